"""From the artifacts of learning from people to the words and numbers of their page."""

from __future__ import annotations

import math
from typing import Any

from dprl.report import charts
from dprl.report.fields import items, section, text
from dprl.report.formatting import MISSING, as_number, number, plain
from dprl.report.training import cleaned, learned_view

_WORDS = {
    "title": "policy",
    "protected": "people's answers",
    "secret": "what these people said and did",
    "given": "it been learned\nfrom a neighbouring set of people",
    "neighbours": "sets of people",
    "one": "what people answered",
    "same": "the same people",
    "source": "people",
    "none": "no answer",
}
_GLOSSES = {
    "zero out one": "Two sets of people are neighbours when one person answers in one of them, and in the other nobody "
    "does in that person's place; how many places there are is public.",
    "replace one": "Two sets of people are neighbours when they are the same, save that one person was exchanged for "
    "another in the same place.",
    "add or remove one": "Two sets of people are neighbours when one of them holds a single person more.",
}
_GLOSS = "everything that one person saw, did and was paid"
_METHODS = {
    "independent": "with noise drawn anew for each batch",
    "square-root": "with noise that is correlated over the batches, so that much of it cancels in their running sum",
    "banded": "with noise that is correlated over a few batches, so that part of it cancels in their running sum",
}


def policy_view(training: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Everything the template prints of a policy, as text, booleans and charts."""
    training, certificate = cleaned(training, certificate)
    view = learned_view(training, certificate)
    policy = section(training.get("policy"))
    noise = text(section(training.get("request")).get("noise"), "")
    kind = noise.partition(":")[0]
    again = section(training.get("request")).get("sampling") == "poisson"
    return view | {
        "answer": "policy.html.j2",
        "words": _WORDS,
        "unit_gloss": _GLOSS,
        "relation_gloss": _GLOSSES.get(view["relation"], ""),
        "asked": "some of whom were asked in every batch" if again else "each of whom was asked once",
        "users": plain(training.get("users", MISSING)),
        "batch": plain(training.get("batch", MISSING)),
        "steps": plain(training.get("steps", MISSING)),
        "kind": text(policy.get("kind"), MISSING),
        "made_of": _made_of(text(policy.get("kind"), MISSING), policy.get("size")),
        "iterate": text(policy.get("iterate"), MISSING),
        "variant_words": f"policy gradient on sums over batches of people, {_METHODS.get(kind, 'with noise')}",
        "returns": [(name, number(as_number(value))) for name, value in section(training.get("returns")).items()],
        "learning": _learning(section(training.get("curve"))),
        "curves": _curves(policy, training),
    }


def _learning(curve: dict[str, Any]) -> Any:
    """The chart of the iterates' returns; None where they were not measured."""
    users, returns = ([as_number(v) for v in items(curve.get(name))] for name in ("users", "returns"))
    known = [v for v in (*users, *returns) if v is not None and math.isfinite(v)]
    if len(users) < 2 or len(users) != len(returns) or len(known) != 2 * len(users):
        return None
    return charts.learning_curve(users, returns)  # type: ignore[arg-type]


def _curves(policy: dict[str, Any], training: dict[str, Any]) -> dict[str, Any] | None:
    """What is done along each component that is shown."""
    continuous = policy.get("continuous") is True
    slices = []
    for piece in map(section, items(policy.get("slices"))):
        grid = [as_number(v) for v in items(piece.get("grid"))]
        values = [[as_number(v) for v in items(row)] for row in items(piece.get("values"))]
        chosen = [v for v in items(piece.get("policy")) if isinstance(v, int) and v >= 0]
        known = [v for row in (grid, *values) for v in row if v is not None and math.isfinite(v)]
        if len(grid) < 2 or not values or len(known) != len(grid) * (len(values) + 1) or len(chosen) != len(grid):
            continue
        name = text(piece.get("name"), f"component {plain(piece.get('component', len(slices)))}")
        slices.append((name, grid, values[: charts.ACTION_COLOURS], [] if continuous else chosen))
    if not slices:
        return None
    domain = (0.0, 1.0)
    if continuous:
        domain = charts.curve_domain([v for _, _, values, _ in slices for row in values for v in row])
    actions = len(slices[0][2])
    components = len(items(section(training.get("environment")).get("observation"))) or len(slices)
    quantity = "mean action" if continuous else "probability"
    return {
        "continuous": continuous,
        "actions": list(range(actions)) if actions > 1 else [],
        "shown": "" if len(slices) == components else f"Shown: the first {len(slices)} of {components} measurements.",
        "charts": [
            (name, charts.action_curves(grid, values, chosen, name, domain, len(slices) == 1, quantity))
            for name, grid, values, chosen in slices
        ],
    }


def _made_of(kind: str, size: Any) -> str:
    name, _, rest = kind.partition(":")
    words = {
        "softmax": "A softmax of linear preferences",
        "gaussian": "A Gaussian around a linear mean",
        "tabular": "A softmax for each state",
        "mlp": f"A neural network with one layer of {rest.partition(':')[0]} hidden units",
    }.get(name, kind)
    return f"{words} ({plain(size)} parameters)." if isinstance(size, int) else f"{words}."
