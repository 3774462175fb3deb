"""The page of a protector: how it was learned, what it serves and how it spreads noise. It holds no private data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dprl.report.charts import line_chart
from dprl.report.fields import WORDS, leaves, section, span, spoken, text
from dprl.report.formatting import as_number, number, plain
from dprl.report.render import load_template

PAGE = "report.html"


# the last is a name from before 0.2.0
BUDGET = ("epsilon", "delta", "value_budget_fraction", "value_share")


def protector_page(
    facts: dict[str, Any], log: Sequence[dict[str, Any]], profile: Sequence[float] | None, fingerprint: str
) -> str:
    """Return the page of a protector, one self-contained file.

    Args:
        facts: the content of ``protector.json``.
        log: records of the validations, from ``training.json``.
        profile: ``(T,)`` noise of the steps over a common scale; None where it is uniform or adaptive.
        fingerprint: the protector's, as certificates name it.
    """
    provenance, architecture = section(facts.get("provenance")), section(facts.get("architecture"))
    records = [
        found
        for record in map(section, log)
        if None not in (found := [as_number(record.get(n)) for n in ("epoch", "validation_loss", "hand_loss")])
    ]
    learning = noise = None
    if len(records) > 1:
        epochs, learned, by_hand = (list(column) for column in zip(*records, strict=True))
        lines = {"protector": learned, "hand schedule": by_hand}
        learning = _chart(epochs, lines, "meta-gradients", "loss on unseen tasks")
    if profile is not None and len(profile) > 1:
        noise = _chart(list(range(len(profile))), {"noise": profile}, "step", "noise over its scale")
    shown = {
        "tasks": text(provenance.get("tasks")),
        "algorithm": text(facts.get("algorithm"), "no evaluation algorithm"),
        "public": provenance.get("public") is True,
        "budget": [(spoken(n), plain(provenance[n])) for n in BUDGET if n in provenance],
        "scheduler": text(architecture.get("scheduler")),
        "fingerprint": fingerprint,
        "learning": learning,
        "noise": noise,
        "last": _kept(log),
        "tables": [
            (
                "Public facts of a log for which the protector is in force; beyond them its hand schedule is.",
                [(spoken(n), span(pair)) for n, pair in sorted(section(facts.get("ranges")).items())],
            ),
            ("The hand schedule that it corrects.", leaves(section(facts.get("hand")))),
            ("What is learned.", leaves(architecture)),
            ("The tasks.", leaves(section(provenance.get("family")))),
            ("The training.", leaves(section(provenance.get("training")))),
        ],
    }
    return load_template("dprl.report", "protector.html.j2").render(shown) + "\n"


def _kept(log: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the numbers of the validation whose weights were kept."""
    known = [record for record in map(section, log) if as_number(record.get("validation")) is not None]
    best = min(known, key=lambda record: record["validation"], default={})
    return [(label, plain(best[name])) for name, label in WORDS["validation"].items() if name in best]


def _chart(grid: Sequence[float], lines: Mapping[str, Sequence[float]], x_name: str, y_name: str) -> Markup:
    ends = (f"{name} from {number(values[0])} to {number(values[-1])}" for name, values in lines.items())
    return line_chart(grid, lines, f"{y_name} over {x_name}: {', '.join(ends)}", y_name, top=24.0)
