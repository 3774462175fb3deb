"""The page of a protector: how it was learned, what it serves and how it spreads noise. It holds no private data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dprl.report.charts import line_chart
from dprl.report.fields import WORDS, Fields, span, spoken
from dprl.report.formatting import number, plain
from dprl.report.render import load_template

PAGE = "report.html"


# the last is the third one's name before 0.2.0
BUDGET = ("epsilon", "delta", "value_budget_fraction", "value_share")


def protector_page(
    facts: dict[str, Any], log: Sequence[dict[str, Any]], profile: Sequence[float] | None, fingerprint: str
) -> str:
    """Return the page of a protector, one self-contained file.

    Args:
        facts: the content of ``protector.json``.
        log: records of the validations, from ``training.json``.
        profile: ``(T,)``, the noise of each step over a common scale; None if noise is uniform or adaptive.
        fingerprint: fingerprint of the protector, as in certificates.
    """
    told, records = Fields(facts), [Fields(record) for record in log]
    provenance, architecture = told.section("provenance"), told.section("architecture")
    names = ("epoch", "validation_loss", "hand_loss")
    points = Fields({name: [record.get(name) for record in records] for name in names}).points(*names)
    learning = noise = None
    if len(points) > 1:
        epochs, learned, by_hand = zip(*points, strict=True)
        lines = {"protector": learned, "hand schedule": by_hand}
        learning = _chart(epochs, lines, "meta-gradients", "loss on unseen tasks")
    if profile is not None and len(profile) > 1:
        noise = _chart(list(range(len(profile))), {"noise": profile}, "step", "noise over its scale")
    shown = {
        "tasks": provenance.text("tasks"),
        "algorithm": told.text("algorithm", "no evaluation algorithm"),
        "public": provenance.get("public") is True,
        "budget": [(spoken(n), plain(provenance[n])) for n in BUDGET if n in provenance],
        "scheduler": architecture.text("scheduler"),
        "fingerprint": fingerprint,
        "learning": learning,
        "noise": noise,
        "last": _kept(records),
        "tables": [
            (
                "Public facts of a log for which the protector is in force; beyond them its hand schedule is.",
                [(spoken(n), span(pair)) for n, pair in sorted(told.section("ranges").items())],
            ),
            ("The hand schedule that it corrects.", told.section("hand").leaves()),
            ("What is learned.", architecture.leaves()),
            ("The tasks.", provenance.section("family").leaves()),
            ("The training.", provenance.section("training").leaves()),
        ],
    }
    return load_template("dprl.report", "protector.html.j2").render(shown) + "\n"


def _kept(records: Sequence[Fields]) -> list[tuple[str, str]]:
    """Return the numbers of the validation whose weights were kept."""
    known = [record for record in records if record.number("validation") is not None]
    best = min(known, key=lambda record: record["validation"], default={})
    return [(label, plain(best[name])) for name, label in WORDS["validation"].items() if name in best]


def _chart(grid: Sequence[float], lines: Mapping[str, Sequence[float]], x_name: str, y_name: str) -> Markup:
    ends = (f"{name} from {number(values[0])} to {number(values[-1])}" for name, values in lines.items())
    return line_chart(grid, lines, f"{y_name} over {x_name}: {', '.join(ends)}", y_name, top=24.0)
