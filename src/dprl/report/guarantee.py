"""The guarantee in words and numbers: what is promised, what was taken as public, what touched the records.

It is read off the artifacts alone, and every page prints it. Nothing here knows HTML.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dprl.report.fields import WORDS, items, leaves, listed_facts, section, spoken, text
from dprl.report.formatting import MISSING, as_number, at_most, clean, each_text, one_in, percent, plain, power_of_ten

_REWARDS = "reward functions"
_PLACES = ("first part", "second part")

VERIFIED, AS_PUBLISHED, UNREVIEWED, NOT_PRIVATE = "verified", "as published", "unreviewed", "not private"
CERTIFICATE_SCHEMA = "dprl.certificate/1"

_SEAL = ("artifacts", "digest", "signature", "created")
"""What is known only once the page itself has been hashed, so that the page may not depend on it."""


def cleaned(content: dict[str, Any], certificate: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both artifacts without what must not be printed, and the certificate without its seal."""
    # through JSON first: a certificate in memory and one read from its file must give the same page
    content, certificate = (clean(json.loads(json.dumps(d, sort_keys=True))) for d in (content, certificate))
    return content, {key: value for key, value in certificate.items() if key not in _SEAL}


def with_names_of_arms(content: Any, certificate: dict[str, Any]) -> list[Any]:
    """Return both artifacts with ``always zidovudine`` in place of ``always_0``, where the bounds call action 0 so.

    A function of the user may be called ``always_0``, too: what the certificate says of the policy tells them apart.
    """
    public = assumed(certificate)
    called, said = items(section(public.get("bounds")).get("action_names")), section(public.get("policies_in_words"))
    names = {f"always_{code}": text(name) for action, name in enumerate(called) for code in (action, name)}
    arms = {code: f"always {name}" for code, name in names.items() if said.get(code) == f"{name} for everybody."}
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, sorted(arms, key=len, reverse=True)))})(?!\w)")

    if not arms:
        return [content, certificate]
    return each_text([content, certificate], lambda text: pattern.sub(lambda code: arms[code[0]], text))


def view_of_guarantee(content: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Return what every page prints of the guarantee, as text and booleans, whatever was released.

    Args:
        content: ``estimate.json`` or ``training.json``, as :func:`cleaned` gives it.
        certificate: the certificate or statement beside it, from there too.
    """
    unit, units, unit_gloss = unit_words(certificate)
    neighbours, relation_gloss = relation(certificate, unit)
    noise = section(certificate.get("noise"))
    return {
        "status": status(content, certificate),
        "certified": certificate.get("schema") == CERTIFICATE_SCHEMA,
        "secure": noise.get("secure") is True,
        "noise_source": text(noise.get("source")),
        "unit": unit,
        "units": units,
        "unit_gloss": unit_gloss,
        "relation": neighbours,
        "relation_gloss": relation_gloss,
        "budget": budget(content, certificate, unit),
        "released": text(certificate.get("released")),
        "not_protected": [plain(line) for line in items(certificate.get("not_protected"))],
        "hyper_parameters": hyper_parameters(certificate),
        "mechanisms": mechanisms(certificate, unit),
        "event": event_lines(certificate.get("event")),
        "accountant": text(certificate.get("accountant"), ""),
        "request": leaves(section(content.get("request"))),
        "ledger": [(f"Ledger, {label}", value) for label, value in leaves(section(certificate.get("ledger")))],
        "versions": [(name, plain(v)) for name, v in sorted(section(certificate.get("versions")).items())],
    }


def status(content: dict[str, Any], certificate: dict[str, Any]) -> str:
    """Return the weakest status that either artifact allows.

    It is ``verified`` only where a certificate and secure noise stand beside the word.
    """
    claims = {s if isinstance(s, str) else "" for s in (content.get("status"), certificate.get("status"))}
    secure = section(certificate.get("noise")).get("secure") is True
    if claims == {VERIFIED} and secure and certificate.get("schema") == CERTIFICATE_SCHEMA:
        return VERIFIED
    for weaker in (UNREVIEWED, AS_PUBLISHED):
        # beside a paper's noise an algorithm that nobody has reviewed is the weaker
        if weaker in claims and claims <= {VERIFIED, AS_PUBLISHED, weaker} and (secure or weaker != UNREVIEWED):
            return weaker
    return NOT_PRIVATE


def unit_words(certificate: dict[str, Any]) -> tuple[str, str, str]:
    """Return the privacy unit in words: one of them, several of them, and what one takes in."""
    unit = text(certificate.get("privacy_unit"), "privacy unit")
    known = WORDS["units"].get(unit, {"one": unit, "many": f"{unit}s", "gloss": ""})
    return known["one"], known["many"], known["gloss"]


def relation(certificate: dict[str, Any], unit: str) -> tuple[str, str]:
    """Return the neighbouring relation and what it means."""
    name = text(certificate.get("neighbouring_relation"), "")
    gloss = WORDS["relations"].get(_kind_of_relation(name), "").format(unit=unit)
    return name or MISSING, gloss


def budget(content: dict[str, Any], certificate: dict[str, Any], unit: str) -> dict[str, Any]:
    """Return epsilon and delta in symbols and in odds, and how they were accounted for."""

    def positive(source: dict[str, Any], key: str) -> float | None:
        value = as_number(source.get(key))
        return value if value is not None and 0.0 < value < math.inf else None

    epsilon = positive(certificate, "epsilon") or positive(content, "epsilon")
    delta = positive(certificate, "delta") or positive(content, "delta")
    of_event = positive(certificate, "epsilon_of_event")
    name = text(certificate.get("neighbouring_relation"), "")
    odds = WORDS["odds"].get(_kind_of_relation(name), WORDS["odds"]["any"])
    factors = [_exp(steps * (epsilon or math.inf)) for _, steps in odds]
    accounts = (
        ("ε, the budget", epsilon, plain),
        ("ε, as computed from the event", of_event, plain),
        ("δ, the budget", delta, power_of_ten),
        ("δ, used by the event", as_number(certificate.get("delta_of_event")), power_of_ten),
        ("δ, set aside for the noise sampler", as_number(certificate.get("delta_sampler")), power_of_ten),
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


def bounds(estimate: dict[str, Any], certificate: dict[str, Any], units: str) -> list[tuple[str, str, str]]:
    """Return the label, value and meaning of every public fact about the log."""
    bounds = section(assumed(certificate).get("bounds")) or section(estimate.get("bounds"))
    names = {plain(i): text(name, "") for i, name in enumerate(items(bounds.get("observation_names")))}
    for piece in map(section, items(section(estimate.get("value_function")).get("slices"))):
        names[plain(piece.get("component"))] = text(piece.get("name"), "")
    known = WORDS["bounds"]
    if units == WORDS["units"]["transition"]["many"]:
        known = known | WORDS["bounds_of_transitions"]
    declared = [("Privacy units", plain(bounds["units"]), f"declared number of {units}")] if "units" in bounds else []
    return declared + listed_facts(bounds, known, names, {"units"})


def hyper_parameters(certificate: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the name and the value of each setting, and where it came from."""
    rows = []
    for name, entry in sorted(section(assumed(certificate).get("hyper_parameters")).items()):
        stated = entry if isinstance(entry, dict) and "value" in entry else {"value": entry}
        rows.append((spoken(name), plain(stated["value"]), text(stated.get("provenance"), "not stated")))
    return rows


def mechanisms(certificate: dict[str, Any], unit: str) -> dict[str, Any]:
    """Return the table of what touched the records, a column for each; a row appears when some mechanism has it."""
    entries = [m for m in items(certificate.get("mechanisms")) if isinstance(m, dict)]
    kind = "rewards" if unit == WORDS["units"]["reward function"]["one"] else "sums"
    if any("column_norm" in m for m in entries):
        kind = "sums_over_users"
    names = [",\n".join(filter(None, (text(m.get("name"), "mechanism"), text(m.get("purpose"), "")))) for m in entries]
    return {
        "columns": [*enumerate(["Of each mechanism", *names]), (len(names) + 1, "Meaning", "text soft")],
        "rows": [
            [label, *(_cell(key, m.get(key)) for m in entries), gloss.format(unit=unit, units=f"{unit}s")]
            for key, (label, gloss) in WORDS["columns"][kind].items()
            if any(m.get(key) is not None for m in entries)
        ],
    }


def _cell(key: str, value: Any) -> str:
    share = as_number(value) if key == "share" else None
    if value is None:
        return "–"
    if key == "levels":
        return _levels(value)
    return plain(value) if share is None else percent(share)


def _levels(levels: Any) -> str:
    """Return the noise multipliers among which the steps choose, in words."""
    known = [x for x in map(as_number, items(levels)) if x is not None]
    return f"{len(known)} from {plain(min(known))} to {plain(max(known))}" if known else plain(levels)


def protector(certificate: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is stated of the learned protector that made the steps; nothing where there was none."""
    known = section(assumed(certificate).get("protector"))
    if not known:
        return []
    provenance = section(known.get("provenance"))
    public = provenance.get("public") is True
    origin = "public tasks, as its maker says" if public else text(provenance.get("charged"), "not stated")
    budget = ", ".join(f"{n} {plain(provenance[n])}" for n in ("epsilon", "delta") if n in provenance)
    return [
        ("In force", text(known.get("in_force"))),
        ("Noise over the steps", text(known.get("scheduler"))),
        ("Learned on", f"{text(provenance.get('tasks'), 'tasks that are not named')}: {origin}"),
        *([("Learned for", budget)] if budget else []),
        ("Fingerprint", text(known.get("fingerprint"))),
    ]


def event_lines(event: Any) -> list[str]:
    """Return the privacy event in words, with one line for each composed part."""
    event = section(event)
    if event.get("type") == "Parallel":
        parts = [event_lines(part) for part in items(event.get("events"))]
        return [
            f"{place} of the people: {line}" for place, lines in zip(_PLACES, parts, strict=False) for line in lines
        ]
    if event.get("type") == "Composed":
        return [line for part in items(event.get("events")) for line in event_lines(part)]
    return [_event_words(event)] if event else []


def policies(certificate: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each public policy by its name, and what it says of itself."""
    public = assumed(certificate)
    said = section(public.get("policies_in_words"))
    return [(plain(name), text(said.get(plain(name)), "")) for name in items(public.get("policies"))]


def behavior(certificate: dict[str, Any]) -> str:
    """Return in a sentence where behaviour probabilities come from; nothing where that was not written down."""
    public = assumed(certificate)
    strata = section(public.get("bounds")).get("strata")
    kind, _, name = text(public.get("behavior_probabilities"), "").partition(" ")
    within = ", ".join(map(plain, items(strata))) or "no covariate"
    return WORDS["behavior"].get(kind if strata is None else "strata", "").format(name=name, within=within)


def who(estimate: dict[str, Any]) -> dict[str, Any]:
    """Return what was declared of a log: how many units and decisions, its columns and its actions."""
    bounds = section(estimate.get("bounds"))
    seen, actions = items(bounds.get("observation")), as_number(bounds.get("actions"))
    return {
        "units": text(bounds.get("units"), ""),
        "horizon": text(bounds.get("horizon"), ""),
        "column": text(section(estimate.get("request")).get("unit_column"), ""),
        "names": list(map(plain, items(bounds.get("observation_names"))))
        or [f"observation_{i}" for i in range(len(seen))],
        "actions": list(map(plain, items(bounds.get("action_names"))))
        or ([f"action 0 to action {plain(int(actions) - 1)}"] if actions and 2 <= actions < 1e9 else []),
    }


def assumed(certificate: dict[str, Any]) -> dict[str, Any]:
    """Return what the certificate assumes to be public."""
    return section(certificate.get("assumed_public"))


def _kind_of_relation(name: str) -> str:
    """Return a relation's name without its numbers, which only those between reward functions have."""
    return _REWARDS if name.startswith(_REWARDS) else name


def _event_words(event: Any) -> str:
    event = section(event)
    words = WORDS["events"].get(text(event.get("type"), ""))
    return plain(event) if words is None else words.format_map(_EventFields(event))


class _EventFields(dict[str, Any]):
    """Fields of a privacy event in words, with a stand-in for each that is missing."""

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        match name:
            case "event":
                return _event_words(value)
            case "events":
                return "; ".join(event_lines(self))
            case "noise_multipliers":
                return _levels(value)
            case "before":
                multipliers = ", ".join(map(plain, items(value)))
                return f"Gaussian releases with noise multipliers {multipliers}, then " if multipliers else ""
        return plain(value)


def _belief(before: float, factor: float) -> str:
    """Return the belief after, by Bayes' rule at the largest change of the odds, rounded up to a tenth of a percent."""
    after = 1.0 if math.isinf(factor) else factor * before / (1.0 - before + factor * before)
    tenths = math.ceil(1000.0 * after - 1e-9)
    return "over 99.9%" if tenths > 999 else f"{tenths / 10.0:.1f}%"


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700.0 else math.inf
