"""The guarantee in words and numbers: what is promised, what was taken as public, which mechanisms saw the records.

The guarantee is read only from the artifacts, and every page prints it. Nothing here knows HTML.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dprl.report.fields import WORDS, Fields, listed_facts, numbers, spoken, text
from dprl.report.formatting import MISSING, as_number, at_most, clean, each_text, one_in, percent, plain, power_of_ten

_REWARDS = "reward functions"
_PLACES = ("first part", "second part")

VERIFIED, AS_PUBLISHED, UNREVIEWED, NOT_PRIVATE = "verified", "as published", "unreviewed", "not private"
CERTIFICATE_SCHEMA = "dprl.certificate/1"

_SEAL = ("artifacts", "digest", "signature", "created")
"""Fields that are known only after the page has been hashed, so that the page must not depend on them."""


def cleaned(content: dict[str, Any], certificate: dict[str, Any]) -> tuple[Fields, Fields]:
    """Return both artifacts with every hidden character made visible, and the certificate without its seal.

    If the bounds call action 0 zidovudine, ``always zidovudine`` replaces the policy's name ``always_0``. A user's
    function may be called ``always_0``, too: the certificate's words about the policy tell the two apart.
    """
    # through JSON first: a certificate in memory and one read from its file must give the same page
    unsealed = {name: value for name, value in certificate.items() if name not in _SEAL}
    both = clean(json.loads(json.dumps([content, unsealed], sort_keys=True)))
    public = assumed_public(Fields(both[1]))
    called, said = public.section("bounds").entries("action_names"), public.section("policies_in_words")
    names = {f"always_{code}": text(name) for action, name in enumerate(called) for code in (action, name)}
    arms = {code: f"always {name}" for code, name in names.items() if said.get(code) == f"{name} for everybody."}
    if arms:
        pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, sorted(arms, key=len, reverse=True)))})(?!\w)")
        both = each_text(both, lambda text: pattern.sub(lambda code: arms[code[0]], text))
    content, certificate = map(Fields, both)
    return content, certificate


def view_of_guarantee(content: Fields, certificate: Fields) -> dict[str, Any]:
    """Return what every page prints of the guarantee, as text and booleans, whatever was released.

    Args:
        content: ``estimate.json`` or ``training.json``, from :func:`cleaned`.
        certificate: the certificate or statement beside it, from :func:`cleaned`, too.
    """
    unit, units, unit_gloss = unit_words(certificate)
    neighbours, relation_gloss = relation(certificate, unit)
    return {
        "content": content,
        "certificate": certificate,
        "status": status(content, certificate),
        "certified": certificate.get("schema") == CERTIFICATE_SCHEMA,
        "secure": certificate.section("noise").get("secure") is True,
        "unit": unit,
        "units": units,
        "unit_gloss": unit_gloss,
        "relation": neighbours,
        "relation_gloss": relation_gloss,
        "budget": budget(content, certificate, unit),
        "hyper_parameters": hyper_parameters(certificate),
        "mechanisms": mechanisms(certificate, unit),
        "event": event_lines(certificate.section("event")),
    }


def status(content: Fields, certificate: Fields) -> str:
    """Return the weakest status that either artifact allows.

    The status is ``verified`` only if both artifacts say so, the schema is a certificate's and the noise is secure.
    """
    claims = {s if isinstance(s, str) else "" for s in (content.get("status"), certificate.get("status"))}
    secure = certificate.section("noise").get("secure") is True
    if claims == {VERIFIED} and secure and certificate.get("schema") == CERTIFICATE_SCHEMA:
        return VERIFIED
    for weaker in (UNREVIEWED, AS_PUBLISHED):
        # of these two, an algorithm that nobody has reviewed is the weaker
        if weaker in claims and claims <= {VERIFIED, AS_PUBLISHED, weaker} and (secure or weaker != UNREVIEWED):
            return weaker
    return NOT_PRIVATE


def unit_words(certificate: Fields) -> tuple[str, str, str]:
    """Return words for the privacy unit: for one unit, for several units, and for what one unit contains."""
    unit = certificate.text("privacy_unit", "privacy unit")
    known = WORDS["units"].get(unit, {"one": unit, "many": f"{unit}s", "gloss": ""})
    return known["one"], known["many"], known["gloss"]


def relation(certificate: Fields, unit: str) -> tuple[str, str]:
    """Return the neighbouring relation and what it means."""
    gloss = WORDS["relations"].get(_kind_of_relation(certificate), "").format(unit=unit)
    return certificate.text("neighbouring_relation"), gloss


def budget(content: Fields, certificate: Fields, unit: str) -> dict[str, Any]:
    """Return epsilon and delta in symbols and in odds, and how they were accounted for."""

    def positive(source: Fields, key: str) -> float | None:
        value = source.number(key)
        return value if value is not None and 0.0 < value < math.inf else None

    epsilon = positive(certificate, "epsilon") or positive(content, "epsilon")
    delta = positive(certificate, "delta") or positive(content, "delta")
    of_event = positive(certificate, "epsilon_of_event")
    odds = WORDS["odds"].get(_kind_of_relation(certificate), WORDS["odds"]["any"])
    factors = [_exp(steps * (epsilon or math.inf)) for _, steps in odds]
    accounts = (
        ("ε, the budget", epsilon, plain),
        ("ε, as computed from the event", of_event, plain),
        ("δ, the budget", delta, power_of_ten),
        ("δ, used by the event", certificate.number("delta_of_event"), power_of_ten),
        ("δ, set aside for the noise sampler", certificate.number("delta_sampler"), power_of_ten),
    )
    return {
        "epsilon": MISSING if epsilon is None else plain(epsilon),
        "delta": MISSING if delta is None else power_of_ten(delta),
        "known": epsilon is not None and delta is not None,
        "one_in": MISSING if delta is None else one_in(delta),
        "odds": [(what.format(unit=unit), at_most(factor)) for (what, _), factor in zip(odds, factors, strict=True)],
        "weak": factors[0] > 20.0,
        "beliefs": [[percent(before), *(_belief(before, f) for f in factors)] for before in (0.01, 0.10, 0.50)],
        "two_steps": len(odds) == 2,
        "accounts": [(label, show(value)) for label, value, show in accounts if value is not None],
        "epsilon_of_event": None if of_event is None else plain(certificate["epsilon_of_event"]),
    }


def bounds(estimate: Fields, certificate: Fields, units: str) -> list[tuple[str, str, str]]:
    """Return the label, value and meaning of every public fact about the log."""
    bounds = assumed_public(certificate).section("bounds") or estimate.section("bounds")
    slices = estimate.section("value_function").sections("slices")
    names = {piece.text("component"): piece.text("name", "") for piece in slices}
    known = WORDS["bounds"]
    if units == WORDS["units"]["transition"]["many"]:
        known = known | WORDS["bounds_of_transitions"]
    declared = [("Privacy units", plain(bounds["units"]), f"declared number of {units}")] if "units" in bounds else []
    return declared + listed_facts(bounds, known, names)


def hyper_parameters(certificate: Fields) -> list[tuple[str, str, str]]:
    """Return the name and the value of each setting, and where it came from."""
    rows = []
    for name, entry in sorted(assumed_public(certificate).section("hyper_parameters").items()):
        stated = Fields(entry if isinstance(entry, dict) and "value" in entry else {"value": entry})
        rows.append((spoken(name), plain(stated["value"]), stated.text("provenance", "not stated")))
    return rows


def mechanisms(certificate: Fields, unit: str) -> dict[str, Any]:
    """Return the table of mechanisms, a column for each. A row appears if at least one mechanism has its field."""
    entries = certificate.sections("mechanisms")
    kind = "rewards" if unit == WORDS["units"]["reward function"]["one"] else "sums"
    if any("column_norm" in m for m in entries):
        kind = "sums_over_users"
    names = [",\n".join(filter(None, (m.text("name", "mechanism"), m.text("purpose", "")))) for m in entries]
    return {
        "columns": [*enumerate(["Of each mechanism", *names]), (len(names) + 1, "Meaning", "text soft")],
        "rows": [
            [label, *(_cell(key, m.get(key)) for m in entries), gloss.format(unit=unit, units=f"{unit}s")]
            for key, (label, gloss) in WORDS["columns"][kind].items()
            if any(m.get(key) is not None for m in entries)
        ],
    }


def _cell(key: str, value: Any) -> str:
    if key == "share" and (share := as_number(value)) is not None:
        return percent(share)
    return "–" if value is None else _levels(value) if key == "levels" else plain(value)


def _levels(levels: Any) -> str:
    """Return the noise multipliers among which the steps choose, in words."""
    known = [x for x in numbers(levels) if x is not None]
    return f"{len(known)} from {plain(min(known))} to {plain(max(known))}" if known else plain(levels)


def protector(certificate: Fields) -> list[tuple[str, str]]:
    """Return the facts about the learned protector that made the steps; an empty list if there was none."""
    known = assumed_public(certificate).section("protector")
    if not known:
        return []
    provenance = known.section("provenance")
    public = provenance.get("public") is True
    origin = "public tasks, as its maker says" if public else provenance.text("charged", "not stated")
    budget = ", ".join(f"{n} {plain(provenance[n])}" for n in ("epsilon", "delta") if n in provenance)
    return [
        ("In force", known.text("in_force")),
        ("Noise over the steps", known.text("scheduler")),
        ("Learned on", f"{provenance.text('tasks', 'tasks that are not named')}: {origin}"),
        *([("Learned for", budget)] if budget else []),
        ("Fingerprint", known.text("fingerprint")),
    ]


def event_lines(event: Fields) -> list[str]:
    """Return the privacy event in words, with one line for each composed part."""
    parts = [event_lines(part) for part in event.sections("events")]
    if event.get("type") == "Parallel":
        return [f"{place} of the people: {line}" for place, part in zip(_PLACES, parts, strict=False) for line in part]
    if event.get("type") == "Composed":
        return [line for part in parts for line in part]
    return [_event_words(event)] if event else []


def policies(certificate: Fields) -> list[tuple[str, str]]:
    """Return the name of each public policy, and its own description."""
    public = assumed_public(certificate)
    return [(name, public.section("policies_in_words").text(name, "")) for name in public.texts("policies")]


def behavior(certificate: Fields) -> str:
    """Return a sentence that says where behaviour probabilities come from; empty if that was not written down."""
    public = assumed_public(certificate)
    bounds, (kind, _, name) = public.section("bounds"), public.text("behavior_probabilities", "").partition(" ")
    within = ", ".join(bounds.texts("strata")) or "no covariate"
    prepared = public.section("prepare")
    if kind == "column" and (by := prepared.section("behavior_prob").texts("by")):
        kind, name = "table", ", ".join(by)
    elif kind == "column" and prepared.number("behavior_prob") is not None:
        kind, name = "number", prepared.text("behavior_prob")
    return (
        WORDS["behavior"].get(kind if bounds.get("strata") is None else "strata", "").format(name=name, within=within)
    )


def declared_about_log(estimate: Fields) -> dict[str, Any]:
    """Return what was declared about a log: its numbers of units and decisions, its columns and its actions."""
    bounds = estimate.section("bounds")
    actions, seen = bounds.number("actions"), range(len(bounds.entries("observation")))
    numbered = [f"action 0 to action {plain(int(actions) - 1)}"] if actions and 2 <= actions < 1e9 else []
    return {
        "units": bounds.text("units", ""),
        "horizon": bounds.text("horizon", ""),
        "column": estimate.section("request").text("unit_column", ""),
        "names": bounds.texts("observation_names") or [f"observation_{i}" for i in seen],
        "actions": bounds.texts("action_names") or numbered,
    }


def assumed_public(certificate: Fields) -> Fields:
    """Return what the certificate assumes to be public."""
    return certificate.section("assumed_public")


def _kind_of_relation(certificate: Fields) -> str:
    """Return the relation's name, without the numbers that only relations between reward functions have."""
    name = certificate.text("neighbouring_relation")
    return _REWARDS if name.startswith(_REWARDS) else name


def _event_words(event: Fields) -> str:
    words = WORDS["events"].get(event.text("type"))
    return plain(event) if words is None else words.format_map(_EventFields(event))


class _EventFields(Fields):
    """Fields of a privacy event in words, with a stand-in for each that is missing."""

    def __getitem__(self, name: str) -> str:
        match name:
            case "event":
                return _event_words(self.section(name))
            case "events":
                return "; ".join(event_lines(self))
            case "noise_multipliers":
                return _levels(self.get(name))
            case "before":
                multipliers = ", ".join(self.texts(name))
                return f"Gaussian releases with noise multipliers {multipliers}, then " if multipliers else ""
        return plain(self.get(name))


def _belief(before: float, factor: float) -> str:
    """Return the belief after a release by Bayes' rule, for the largest change of the odds, rounded up to 0.1%."""
    after = 1.0 if math.isinf(factor) else factor * before / (1.0 - before + factor * before)
    tenths = math.ceil(1000.0 * after - 1e-9)
    return "over 99.9%" if tenths > 999 else f"{tenths / 10.0:.1f}%"


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700.0 else math.inf
