"""The pages of what was learned: a Q-function from rewards, a policy from people who answer, or a protector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from dprl.report import charts, guarantee
from dprl.report.evaluation import name_of_slice
from dprl.report.fields import WORDS, Fields, finite, listed_facts, made_of, span, spoken
from dprl.report.formatting import as_number, number, plain


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
    public, known = guarantee.assumed_public(certificate), WORDS["environment"]
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


# --- a protector ------------------------------------------------------------------------------------------------------

# the last is the third one's name before 0.2.0
_BUDGET = ("epsilon", "delta", "value_budget_fraction", "value_share")


def protector_view(
    facts: dict[str, Any], log: Sequence[dict[str, Any]], profile: Sequence[float] | None, fingerprint: str
) -> dict[str, Any]:
    """Return what the template of a protector prints: how it was learned, what it serves and how it spreads noise.

    Args:
        facts: the content of ``protector.json``.
        log: records of the validations, from ``training.json``.
        profile: ``(T,)``, the noise of each step over a common scale; None if noise is uniform or adaptive.
        fingerprint: fingerprint of the protector, as in certificates.
    """
    stated, records = Fields(facts), [Fields(record) for record in log]
    provenance, architecture = stated.section("provenance"), stated.section("architecture")
    names = ("epoch", "validation_loss", "hand_loss")
    points = Fields({name: [record.get(name) for record in records] for name in names}).points(*names)
    learning = noise = None
    if len(points) > 1:
        epochs, learned, by_hand = zip(*points, strict=True)
        lines = {"protector": learned, "hand schedule": by_hand}
        learning = _chart(epochs, lines, "meta-gradients", "loss on unseen tasks")
    if profile is not None and len(profile) > 1:
        noise = _chart(list(range(len(profile))), {"noise": profile}, "step", "noise over its scale")
    return {
        "tasks": provenance.text("tasks"),
        "algorithm": stated.text("algorithm", "no evaluation algorithm"),
        "public": provenance.get("public") is True,
        "budget": [(spoken(n), plain(provenance[n])) for n in _BUDGET if n in provenance],
        "scheduler": architecture.text("scheduler"),
        "fingerprint": fingerprint,
        "learning": learning,
        "noise": noise,
        "last": _kept(records),
        "tables": [
            (
                "Public facts of a log for which the protector is in force; beyond them its hand schedule is.",
                [(spoken(n), span(pair)) for n, pair in sorted(stated.section("ranges").items())],
            ),
            ("The hand schedule that it corrects.", stated.section("hand").leaves()),
            ("What is learned.", architecture.leaves()),
            ("The tasks.", provenance.section("family").leaves()),
            ("The training.", provenance.section("training").leaves()),
        ],
    }


def _kept(records: Sequence[Fields]) -> list[tuple[str, str]]:
    """Return the numbers of the validation whose weights were kept."""
    known = [record for record in records if record.number("validation") is not None]
    best = min(known, key=lambda record: record["validation"], default={})
    return [(label, plain(best[name])) for name, label in WORDS["validation"].items() if name in best]


def _chart(grid: Sequence[float], lines: Mapping[str, Sequence[float]], x_name: str, y_name: str) -> Markup:
    ends = (f"{name} from {number(values[0])} to {number(values[-1])}" for name, values in lines.items())
    return charts.line_chart(grid, lines, f"{y_name} over {x_name}: {', '.join(ends)}", y_name, top=24.0)
