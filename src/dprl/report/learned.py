"""The pages of what was learned: a Q-function from people's rewards, or a policy from people who answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from dprl.report import charts, guarantee
from dprl.report.answer import name_of_slice
from dprl.report.fields import WORDS, finite, items, listed_facts, made_of, section, text
from dprl.report.formatting import MISSING, as_number, number, plain
from dprl.report.guarantee import cleaned, view_of_guarantee


class _Slice(NamedTuple):
    """Slice of what was learned, along one component: a row of values for each action, and the best action."""

    name: str
    grid: list[float]
    values: list[list[float]]
    chosen: list[int]


def q_function_view(training: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Return everything that the template prints of a Q-function, as text, booleans and charts."""
    training, certificate = cleaned(training, certificate)
    function, variant = section(training.get("q_function")), text(training.get("variant"))
    slices = _slices(function)
    if slices and len(slices[0].values) > charts.ACTION_COLOURS:  # only the best of them
        slices = [one._replace(values=[list(map(max, zip(*one.values, strict=True)))]) for one in slices]
    domain = charts.curve_domain([v for one in slices for row in one.values for v in row])
    return _view(training, certificate, WORDS["q_function"]["words"]) | {
        "returns": _returns(training, 2),
        "samples": plain(training.get("samples", MISSING)),
        "variant": variant,
        "variant_words": WORDS["q_function"]["variants"].get(variant, variant),
        "made_of": made_of("q_function", text(function.get("network")), function.get("size"), "weights"),
        "actor": function.get("actor") is True,
        "curves_of": _curves(slices, training, domain, "Q"),
    }


def policy_view(training: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Return everything that the template prints of a policy, as text, booleans and charts."""
    training, certificate = cleaned(training, certificate)
    view = _view(training, certificate, WORDS["policy"]["words"])
    policy, request = section(training.get("policy")), section(training.get("request"))
    kind, continuous = text(policy.get("kind")), policy.get("continuous") is True
    slices = [one._replace(values=one.values[: charts.ACTION_COLOURS]) for one in _slices(policy)]
    domain, quantity = (0.0, 1.0), "probability"
    if continuous:
        domain, quantity = charts.curve_domain([v for one in slices for row in one.values for v in row]), "mean action"
        slices = [one._replace(chosen=[]) for one in slices]
    noise = WORDS["policy"]["noise"].get(text(request.get("noise"), "").partition(":")[0], "with noise")
    again = request.get("sampling") == "poisson"
    return view | {
        "unit_gloss": "everything that one person saw, did and was paid",
        "relation_gloss": WORDS["relations_of_people"].get(view["relation"], ""),
        "asked": "some of whom were asked in every batch" if again else "each of whom was asked once",
        "users": plain(training.get("users", MISSING)),
        "batch": plain(training.get("batch", MISSING)),
        "steps": plain(training.get("steps", MISSING)),
        "kind": kind,
        "made_of": made_of("policy", kind, policy.get("size"), "parameters"),
        "variant_words": f"policy gradient on sums over batches of people, {noise}",
        "returns": _returns(training),
        "learning": _learning(section(training.get("curve"))),
        "continuous": continuous,
        "curves_of": _curves(slices, training, domain, quantity, named=not continuous),
    }


def _view(training: dict[str, Any], certificate: dict[str, Any], words: dict[str, str]) -> dict[str, Any]:
    """Return what is printed of everything that is learned."""
    public = guarantee.assumed(certificate)
    return view_of_guarantee(training, certificate) | {
        "words": words,
        "environment": text(section(training.get("environment")).get("name"), "the environment"),
        "discount": plain(training.get("discount", MISSING)),
        "reading": text(public.get("reading"), ""),
        "facts_of_data": _facts(section(public.get("environment"))),
        "preconditions": [
            (text(c.get("statement"), ""), c.get("holds") is True)
            for c in map(section, items(public.get("preconditions")))
        ],
    }


def _facts(environment: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the label, value and meaning of every public fact about the environment."""
    known = WORDS["environment"]
    stated = {key: value for key, value in environment.items() if value is not None or key not in known}
    names = {plain(i): text(name, "") for i, name in enumerate(items(environment.get("observation_names")))}
    return listed_facts(stated, known, names, {"name"})


def _returns(training: dict[str, Any], places: int | None = None) -> list[tuple[str, str]]:
    return [(name, number(as_number(v), places)) for name, v in section(training.get("returns")).items()]


def _learning(curve: dict[str, Any]) -> Any:
    """Return the chart of the iterates' returns; None where they were not measured."""
    users, returns = (finite(curve.get(name)) for name in ("users", "returns"))
    if users is None or returns is None or len(users) < 2 or len(users) != len(returns):
        return None
    title = f"Mean return along the way, from {number(returns[0])} to {number(returns[-1])}"
    return charts.line_chart(users, {"return": returns}, title, "mean return")


def _slices(function: dict[str, Any]) -> list[_Slice]:
    """Return the slices of which nothing is missing."""
    found: list[_Slice] = []
    for piece in map(section, items(function.get("slices"))):
        grid, rows = finite(piece.get("grid")), [finite(row) for row in items(piece.get("values"))]
        values = [row for row in rows if row is not None]
        chosen = [v for v in items(piece.get("policy")) if isinstance(v, int) and v >= 0]
        if grid is None or len(grid) < 2 or not rows or len(chosen) != len(grid):
            continue
        if len(values) == len(rows) and {*map(len, values)} == {len(grid)}:
            found.append(_Slice(name_of_slice(piece, len(found)), grid, values, chosen))
    return found


def _curves(
    slices: list[_Slice], training: dict[str, Any], domain: tuple[float, float], quantity: str, named: bool = True
) -> dict[str, Any] | None:
    """Return a chart for each slice, the actions that have a curve, and how many components there are."""
    if not slices:
        return None
    actions = len(slices[0].values)
    return {
        "actions": list(range(actions)) if actions > 1 and named else [],
        "components": len(items(section(training.get("environment")).get("observation"))) or len(slices),
        "charts": [(one.name, charts.action_curves(*one[1:], one.name, domain, quantity)) for one in slices],
    }
