"""The pages of what was learned: a Q-function from people's rewards, or a policy from people who answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from dprl.report import charts, guarantee
from dprl.report.answer import name_of_slice
from dprl.report.fields import WORDS, Fields, finite, listed_facts, made_of
from dprl.report.formatting import as_number, number


class _Slice(NamedTuple):
    """Slice of what was learned, along one component: a row of values for each action, and the chosen actions."""

    name: str
    grid: list[float]
    values: list[list[float]]
    chosen: list[int]


def q_function_view(training: Fields, certificate: Fields) -> dict[str, Any]:
    """Return what the template of a Q-function prints besides the guarantee, as text, booleans and charts."""
    function, variant = training.section("q_function"), training.text("variant")
    slices = _slices(function)
    if slices and len(slices[0].values) > charts.ACTION_COLOURS:  # too many to draw: show the best value
        slices = [one._replace(values=[list(map(max, zip(*one.values, strict=True)))]) for one in slices]
    return _view(training, certificate, "q_function") | {
        "returns": _returns(training, 2),
        "variant_words": WORDS["q_function"]["variants"].get(variant, variant),
        "made_of": made_of("q_function", function.text("network"), function.get("size"), "weights"),
        "actor": function.get("actor") is True,
        "curves_of": _curves(slices, training, "Q"),
    }


def policy_view(training: Fields, certificate: Fields) -> dict[str, Any]:
    """Return what the template of a policy prints besides the guarantee, as text, booleans and charts."""
    policy, request = training.section("policy"), training.section("request")
    kind, continuous = policy.text("kind"), policy.get("continuous") is True
    slices = [one._replace(values=one.values[: charts.ACTION_COLOURS]) for one in _slices(policy)]
    if continuous:
        curves = _curves([one._replace(chosen=[]) for one in slices], training, "mean action")
    else:
        curves = _curves(slices, training, "probability", (0.0, 1.0))
    noise = WORDS["policy"]["noise"].get(request.text("noise").partition(":")[0], "with noise")
    again = request.get("sampling") == "poisson"
    return _view(training, certificate, "policy") | {
        "unit_gloss": "everything that one person saw, did and was paid",
        "relation_gloss": WORDS["relations_of_people"].get(certificate.text("neighbouring_relation"), ""),
        "asked": "some of whom were asked in every batch" if again else "each of whom was asked once",
        "kind": kind,
        "made_of": made_of("policy", kind, policy.get("size"), "parameters"),
        "variant_words": f"policy gradient on sums over batches of people, {noise}",
        "returns": _returns(training),
        "learning": _learning(training.section("curve")),
        "continuous": continuous,
        "curves_of": curves,
    }


def _view(training: Fields, certificate: Fields, what: str) -> dict[str, Any]:
    """Return what the pages of all kinds of learning print."""
    public, known = guarantee.assumed(certificate), WORDS["environment"]
    stated = {k: v for k, v in public.section("environment").items() if v is not None or k not in known}
    conditions = public.sections("preconditions")
    return {
        "words": WORDS[what]["words"],
        "environment": training.section("environment").text("name", "the environment"),
        "reading": public.text("reading", ""),
        "facts_of_data": listed_facts(Fields(stated), known),
        "preconditions": [(c.text("statement", ""), c.get("holds") is True) for c in conditions],
    }


def _returns(training: Fields, places: int | None = None) -> list[tuple[str, str]]:
    return [(name, number(as_number(v), places)) for name, v in training.section("returns").items()]


def _learning(curve: Fields) -> Any:
    """Return the chart of the iterates' returns; None where they were not measured."""
    users, returns = (finite(curve.get(name)) for name in ("users", "returns"))
    if users is None or returns is None or len(users) < 2 or len(users) != len(returns):
        return None
    title = f"Mean return along the way, from {number(returns[0])} to {number(returns[-1])}"
    return charts.line_chart(users, {"return": returns}, title, "mean return")


def _slices(function: Fields) -> list[_Slice]:
    """Return the slices that are complete."""
    found: list[_Slice] = []
    for piece in function.sections("slices"):
        grid, rows = finite(piece.get("grid")), [finite(row) for row in piece.entries("values")]
        values = [row for row in rows if row is not None]
        chosen = [v for v in piece.entries("policy") if isinstance(v, int) and v >= 0]
        if grid is None or len(grid) < 2 or not rows or len(chosen) != len(grid):
            continue
        if len(values) == len(rows) and {*map(len, values)} == {len(grid)}:
            found.append(_Slice(name_of_slice(piece, len(found)), grid, values, chosen))
    return found


def _curves(
    slices: list[_Slice], training: Fields, quantity: str, domain: tuple[float, float] | None = None
) -> dict[str, Any] | None:
    """Return a chart for each slice, the actions that have a curve, and how many components there are."""
    if not slices:
        return None
    domain = domain or charts.curve_domain([v for one in slices for row in one.values for v in row])
    actions = len(slices[0].values)
    return {
        "actions": list(range(actions)) if actions > 1 and slices[0].chosen else [],
        "components": len(training.section("environment").entries("observation")) or len(slices),
        "charts": [(one.name, charts.action_curves(*one[1:], one.name, domain, quantity)) for one in slices],
    }
