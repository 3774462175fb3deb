"""The page of a protector: how it was learned, what it serves and how it spreads noise. It holds no private data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from markupsafe import Markup

from dprl.report.charts import chart_frame, curve_domain
from dprl.report.fields import leaves, section, span, spoken, text
from dprl.report.formatting import MISSING, as_number, number, plain
from dprl.report.render import load_template
from dprl.report.svg import draw_text, markup, px

PAGE = "report.html"


def protector_page(
    facts: dict[str, Any], log: Sequence[dict[str, Any]], profile: Sequence[float] | None, fingerprint: str
) -> str:
    """The page, one self-contained file.

    Args:
        facts: ``protector.json``.
        log: records of the validations, from ``training.json``.
        profile: ``(T,)`` noise of the steps over a common scale; None where it is uniform or adaptive.
        fingerprint: of the protector.
    """
    provenance = section(facts.get("provenance"))
    hand, architecture = section(facts.get("hand")), section(facts.get("architecture"))
    records = [
        found
        for record in map(section, log)
        if None not in (found := [as_number(record.get(n)) for n in ("epoch", "validation_loss", "hand_loss")])
    ]
    learning = None
    if len(records) > 1:
        epochs, learned, plain_steps = (list(column) for column in zip(*records, strict=True))
        learning = _lines(
            epochs, {"protector": learned, "hand schedule": plain_steps}, "meta-gradients", "loss on unseen tasks"
        )
    noise = None
    if profile is not None and len(profile) > 1:
        noise = _lines(list(range(len(profile))), {"noise": profile}, "step", "noise over its scale")
    return (
        load_template("dprl.report", "protector.html.j2").render(
            tasks=text(provenance.get("tasks"), MISSING),
            algorithm=text(facts.get("algorithm"), "no evaluation algorithm"),
            public=provenance.get("public") is True,
            budget=[(n, plain(provenance[n])) for n in ("epsilon", "delta", "value_share") if n in provenance],
            scheduler=text(architecture.get("scheduler"), MISSING),
            fingerprint=fingerprint,
            learning=learning,
            noise=noise,
            last=_last(log),
            ranges=[(spoken(n), span(pair)) for n, pair in sorted(section(facts.get("ranges")).items())],
            tables=[
                ("The hand schedule that it corrects.", leaves(hand)),
                ("What is learned.", leaves(architecture)),
                ("The tasks.", leaves(section(provenance.get("family")))),
                ("The training.", leaves(section(provenance.get("training")))),
            ],
        )
        + "\n"
    )


def _last(log: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """The numbers of the validation whose weights were kept."""
    known = [record for record in map(section, log) if as_number(record.get("validation")) is not None]
    if not known:
        return []
    best = min(known, key=lambda record: record["validation"])
    names = {
        "epoch": "After so many meta-gradients",
        "validation_loss": "Mean loss on unseen tasks",
        "hand_loss": "The hand schedule's, on the same tasks with the same noise",
        "geometric_ratio": "Geometric mean of the ratios of the two",
        "worst_ratio": "The largest of them",
        "noise_covariance": "Covariance of noise and last gradient (Theorem B.2)",
    }
    return [(label, plain(best[name])) for name, label in names.items() if name in best]


def _lines(grid: Sequence[float], lines: dict[str, Sequence[float]], x_name: str, y_name: str) -> Markup:
    """One curve a name, in one chart, each with its name at its end."""
    every = [value for values in lines.values() for value in values]
    title = f"{y_name} over {x_name}: " + ", ".join(
        f"{name} from {number(values[0])} to {number(values[-1])}" for name, values in lines.items()
    )
    svg, x, y = chart_frame(640.0, 260.0, 24.0, grid, curve_domain([0.0, *every]), title, x_name, y_name)
    for i, (name, values) in enumerate(lines.items()):
        path = "".join(
            f"{'L' if j else 'M'}{px(x(a))} {px(y(b))}" for j, (a, b) in enumerate(zip(grid, values, strict=True))
        )
        ET.SubElement(svg, "path", {"d": path, "class": "curve" if i == 0 else "curve hand"})
        if len(lines) > 1:
            draw_text(svg, 60.0 + 150.0 * i, 14.0, name if i == 0 else f"{name} (dashed)", "tick")
    return markup(svg)
