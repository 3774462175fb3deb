"""The guarantee in words and numbers: what is promised, what was taken as public, what touched the records."""

from __future__ import annotations

import math
from typing import Any

from dprl.report.fields import items, leaves, section, span, spoken, text
from dprl.report.formatting import MISSING, as_number, at_most, one_in, percent, plain, power_of_ten

_UNITS = {
    "person": ("person", "people", "everything the log holds about one person, however many rows that is"),
    "trajectory": (
        "trajectory",
        "trajectories",
        "all the rows of one recorded trajectory; whoever has several trajectories in the log is protected for one at "
        "a time, which is a weaker promise",
    ),
    "transition": (
        "transition",
        "transitions",
        "one row of the log: a state, the decision taken there, its reward and the state that followed; a trajectory "
        "is many of these, and each state within it stands in two, so this is no promise for a trajectory or a person",
    ),
    "reward function": (
        "reward function",
        "reward functions",
        "which rewards are paid, in all states and for all actions, as long as they are within the radius",
    ),
}
_RELATIONS = {
    "add or remove one": "Two logs are neighbours when one of them holds a single {unit} more than the other.",
    "zero out one": "Two logs are neighbours when they differ in one {unit} alone, who adds nothing to one of them.",
    "replace one": "Two logs are neighbours when they are the same, save that one {unit} was exchanged for another.",
}
# What epsilon bounds the odds of, and how many steps between neighbours lie between the statement and its denial:
# by way of the log without the unit, one record and another are two steps apart.
_ODDS = {
    "add or remove one": (("that a given {unit} is in the log at all", 1), ("of anything else about that {unit}", 2)),
    "zero out one": (("that a given {unit} was counted at all", 1), ("of anything else about that {unit}", 2)),
    "replace one": (("of any statement about what is recorded of a given {unit}", 1),),
    "reward functions": (("that it was one of two neighbouring reward functions and not the other", 1),),
    "": (("that it was one of two neighbouring logs and not the other", 1),),
}
_OF_REWARDS = "reward functions"
_REWARD_GLOSS = "Two reward functions are neighbours when they are no further apart than that; all else is the same."
_BOUNDS = {
    "horizon": ("Longest trajectory", "decisions; longer ones are cut"),
    "reward": ("Reward of one decision", "anything outside is moved to the nearer end"),
    "value": ("Return of a trajectory", "anything outside is moved to the nearer end"),
    "actions": ("Possible actions", "number of different decisions"),
    "max_importance_ratio": (
        "Largest importance ratio of one decision",
        "how many times likelier than in the log the policy may make a decision",
    ),
    "max_cumulative_ratio": ("Largest importance ratio of a trajectory", "the same, for all its decisions together"),
}
# nothing follows a trajectory where each transition stands for itself
_OF_TRANSITIONS = {
    "horizon": ("Longest trajectory", "decisions; it bounds the value function, and nothing is cut"),
    "max_cumulative_ratio": ("Largest importance ratio of a trajectory", "no ratios are multiplied here"),
}
_USER_COLUMNS = (
    ("sensitivity", "Sensitivity", "the most that one {unit} can move a sum by, under the relation above"),
    ("noise_multiplier", "Noise multiplier", "standard deviation of the noise, over sensitivity and column norm"),
    ("noise", "Noise", "drawn anew for every sum (independent), or so that later noise cancels earlier noise"),
    ("column_norm", "Column norm", "what correlated noise is larger by: one {unit} then moves all later sums too"),
    ("std", "Standard deviation", "of each draw of noise: the product of the three"),
    ("batch", "Batch", "places in a batch"),
    ("steps", "Steps", "noised sums, one a batch; each {unit} is in one batch, so all of them cost what one does"),
    ("dimension", "Dimension", "how many numbers each sum holds"),
)
_MECHANISM_COLUMNS = (
    ("clip_norm", "Clip norm", "the most that one {unit} can weigh in a sum"),
    ("noise_multiplier", "Noise multiplier", "standard deviation of the noise, in units of the clip norm"),
    ("levels", "Levels", "between which noise multipliers every step could choose, from what was released before it"),
    ("norm_multiplier", "Noise of the norm", "noise multiplier of the sum's length, which is released with it"),
    ("sampling_rate", "Sampling rate", "the chance that a given {unit} takes part in a step"),
    ("steps", "Steps", "how many noised sums were made"),
    ("dimension", "Dimension", "how many numbers each sum holds"),
    ("grid_step", "Grid step", "spacing of the integer grid on which the noise is added"),
    ("share", "Share", "the part of the privacy budget spent here"),
)
_REWARD_COLUMNS = (
    ("sensitivity", "Sensitivity", "how far apart two neighbouring {units} are, in the norm that the noise hides"),
    ("noise_multiplier", "Noise multiplier", "standard deviation of the noise, in units of the sensitivity"),
    ("std", "Standard deviation", "of the noise in each answer, in the units of the answer"),
    ("paths", "Paths", "how many random functions were drawn, each of them once"),
    ("decay", "Decay", "how quickly the noise at one place is forgotten at another"),
    ("clip_norm", "Clip norm", "the most that one reward can weigh in an update"),
    ("steps", "Steps", "how many times noise was drawn that was paid for by itself"),
    ("dimension", "Answers a step", "how many numbers each of them holds, at most"),
)


def unit_words(certificate: dict[str, Any]) -> tuple[str, str, str]:
    """The privacy unit: one of them, several of them, and what it takes in."""
    unit = text(certificate.get("privacy_unit"), "privacy unit")
    return _UNITS.get(unit, (unit, f"{unit}s", ""))


def relation(certificate: dict[str, Any], unit: str) -> tuple[str, str]:
    """The neighbouring relation and what it means."""
    name = text(certificate.get("neighbouring_relation"), "")
    if name.startswith(_OF_REWARDS):
        return name, _REWARD_GLOSS
    return name or MISSING, _RELATIONS.get(name, "").format(unit=unit)


def budget(estimate: dict[str, Any], certificate: dict[str, Any], unit: str) -> dict[str, Any]:
    """Epsilon and delta in symbols, and in odds."""

    def positive(source: dict[str, Any], key: str) -> float | None:
        value = as_number(source.get(key))
        return value if value is not None and 0.0 < value < math.inf else None

    epsilon = positive(certificate, "epsilon") or positive(estimate, "epsilon")
    delta = positive(certificate, "delta") or positive(estimate, "delta")
    relation = text(certificate.get("neighbouring_relation"), "")
    odds = _ODDS.get(_OF_REWARDS if relation.startswith(_OF_REWARDS) else relation, _ODDS[""])
    factors = [_exp(steps * (epsilon or math.inf)) for _, steps in odds]
    accounts = (
        ("ε, the budget", epsilon, plain),
        ("ε, as computed from the event", positive(certificate, "epsilon_of_event"), plain),
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
        "beliefs": [(percent(before), [_belief(before, f) for f in factors]) for before in (0.01, 0.10, 0.50)],
        "two_steps": len(odds) == 2,
        "accounts": [(label, show(value)) for label, value, show in accounts if value is not None],
        "epsilon_of_event": plain(certificate["epsilon_of_event"])
        if positive(certificate, "epsilon_of_event")
        else None,
    }


def bounds(estimate: dict[str, Any], certificate: dict[str, Any], units: str) -> list[tuple[str, str, str]]:
    """(what, value, gloss) of every public fact about the log."""
    bounds = section(assumed(certificate).get("bounds")) or section(estimate.get("bounds"))
    names: dict[Any, str] = {i: text(name, "") for i, name in enumerate(items(bounds.get("observation_names")))}
    for piece in items(section(estimate.get("value_function")).get("slices")):
        names[section(piece).get("component")] = text(section(piece).get("name"), "")
    rows = [("Privacy units", plain(bounds["units"]), f"declared number of {units}")] if "units" in bounds else []
    known = _BOUNDS | (_OF_TRANSITIONS if units == _UNITS["transition"][1] else {})
    rows += [(label, span(bounds[key]), gloss) for key, (label, gloss) in known.items() if key in bounds]
    for key in ("observation", "action"):
        for i, pair in enumerate(items(bounds.get(key))):
            name = names.get(i) if key == "observation" else None
            rows.append(
                (f"{key.capitalize()}: {name}" if name else f"{key.capitalize()}, component {i}", span(pair), "")
            )
    told = {"units", "observation", "observation_names", "action", *known}
    return rows + [(*row, "") for row in leaves({k: v for k, v in bounds.items() if k not in told})]


def hyper_parameters(certificate: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(name, value, where it came from)."""
    rows = []
    for name, entry in sorted(section(assumed(certificate).get("hyper_parameters")).items()):
        if isinstance(entry, dict) and "value" in entry:
            rows.append((spoken(name), plain(entry["value"]), text(entry.get("provenance"), "not stated")))
        else:
            rows.append((spoken(name), plain(entry), "not stated"))
    return rows


def mechanisms(certificate: dict[str, Any], unit: str) -> dict[str, Any]:
    """The table of what touched the records; a column appears when some mechanism has it."""
    entries = [m for m in items(certificate.get("mechanisms")) if isinstance(m, dict)]
    known = _REWARD_COLUMNS if unit == _UNITS["reward function"][0] else _MECHANISM_COLUMNS
    if any("column_norm" in m for m in entries):
        known = _USER_COLUMNS
    columns = [c for c in known if any(m.get(c[0]) is not None for m in entries)]

    def cell(entry: dict[str, Any], key: str) -> str:
        value = entry.get(key)
        if value is None:
            return "–"
        if key == "levels":
            return levels_words(value)
        share = as_number(value) if key == "share" else None
        return plain(value) if share is None else percent(share)

    return {
        "columns": [label for _, label, _ in columns],
        "glosses": [(label, gloss.format(unit=unit, units=f"{unit}s")) for _, label, gloss in columns],
        "rows": [
            {
                "name": text(m.get("name"), "mechanism"),
                "purpose": text(m.get("purpose"), ""),
                "cells": [cell(m, key) for key, _, _ in columns],
            }
            for m in entries
        ],
    }


def levels_words(levels: Any) -> str:
    """Noise multipliers among which the steps choose, in words."""
    known = [x for x in map(as_number, items(levels)) if x is not None]
    return f"{len(known)} from {plain(min(known))} to {plain(max(known))}" if known else plain(levels)


def protector(certificate: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, value) of the learned protector that made the steps; nothing where there was none."""
    known = section(assumed(certificate).get("protector"))
    provenance = section(known.get("provenance"))
    public = provenance.get("public") is True
    origin = "public tasks, as its maker says" if public else text(provenance.get("charged"), "not stated")
    rows = [
        ("In force", text(known.get("in_force"), MISSING)),
        ("Noise over the steps", text(known.get("scheduler"), MISSING)),
        ("Learned on", f"{text(provenance.get('tasks'), 'tasks that are not named')}: {origin}"),
        ("Fingerprint", text(known.get("fingerprint"), MISSING)),
    ]
    budget = [f"{n} {plain(provenance[n])}" for n in ("epsilon", "delta") if n in provenance]
    if budget:
        rows.insert(3, ("Learned for", ", ".join(budget)))
    return rows if known else []


def event_lines(event: Any) -> list[str]:
    """The privacy event in words, one line a composed part."""
    event = section(event)
    if event.get("type") == "Composed":
        return [line for part in items(event.get("events")) for line in event_lines(part)]
    return [_event_words(event)] if event else []


def policy_words(policy: Any) -> str:
    if isinstance(policy, dict):
        name = text(policy.get("name"), "")
        rest = ", ".join(f"{spoken(k)}: {plain(v)}" for k, v in policy.items() if k != "name")
        return f"{name} ({rest})" if name and rest else name or rest
    return plain(policy)


def assumed(certificate: dict[str, Any]) -> dict[str, Any]:
    return section(certificate.get("assumed_public"))


def _event_words(event: Any) -> str:
    event = section(event)
    inner = event.get("event")
    match event.get("type"):
        case "Gaussian":
            return f"one Gaussian release with noise multiplier {plain(event.get('noise_multiplier'))}"
        case "PoissonSampled":
            rate = plain(event.get("sampling_probability"))
            return f"a Poisson sample at rate {rate} (a coin is tossed for each unit), then {_event_words(inner)}"
        case "SelfComposed":
            return f"{plain(event.get('count'))} times: {_event_words(inner)}"
        case "Composed":
            return "; ".join(event_lines(event))
        case "RenyiFilter":
            return _filter_words(event)
    return plain(event)


def _filter_words(event: dict[str, Any]) -> str:
    before = [plain(x) for x in items(event.get("before"))]
    first = f"Gaussian releases with noise multipliers {', '.join(before)}, then " if before else ""
    return (
        f"{first}at most {plain(event.get('steps'))} times: a noise multiplier is chosen among "
        f"{levels_words(event.get('noise_multipliers'))}, then a Poisson sample at rate "
        f"{plain(event.get('sampling_probability'))} is summed, and the noised sum is released with its length, whose "
        f"noise multiplier is {plain(event.get('norm_multiplier'))}; a Renyi filter at order "
        f"{plain(event.get('order'))} stops before more than its budget of {plain(event.get('budget'))} is spent"
    )


def _belief(before: float, factor: float) -> str:
    """Bayes' rule at the largest factor the odds may change by, rounded up to a tenth of a percent."""
    after = 1.0 if math.isinf(factor) else factor * before / (1.0 - before + factor * before)
    tenths = math.ceil(1000.0 * after - 1e-9)
    return "over 99.9%" if tenths > 999 else f"{tenths / 10.0:.1f}%"


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700.0 else math.inf
