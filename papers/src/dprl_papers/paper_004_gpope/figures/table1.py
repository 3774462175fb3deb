"""Table 1. Relationships among ε, δ, N, σ and m

Where: Appendix A, Table 1

Statement: We use the color of red to denote negatively related, green to denote positively related. For example, if ε
is decreased, and only δ is changed, then δ must be increased. Similarly, if size of dataset m is increased, and only ε
changed, then ε must be decreased.

Note: Computed, first by Theorem 1 and then by the accountant that certifies this library's releases; the paper's
colours are lost in its text, so only its two examples can be compared.
"""

from __future__ import annotations

from typing import Any

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_table
from dprl_papers.paper_004_gpope.privacy import NAMES, Relations, table_1

UNITS = 1000
SYMBOLS = {"epsilon": "ε", "delta": "δ", "N": "N", "sigma": "σ", "m": "m"}


def draw(run: Run) -> dict[str, Any]:
    """Draw a table for each way in which epsilon follows from the other parameters."""
    versions = table_1(units=UNITS, epsilon=run.epsilon[0], delta=run.delta)
    return figure_contents(tables=[_table(version) for version in versions])


def _table(version: Relations) -> dict[str, Any]:
    setting = ", ".join(f"{SYMBOLS[k]} = {plain(float(f'{v:.4g}'))}" for k, v in version.setting.items())
    caption = f"{version.source}: per cent by which the column must change for one per cent of the row, the other "
    caption += f"three kept. At {setting}."
    lines = zip(NAMES, version.elasticities, version.signs, strict=True)
    rows = [[SYMBOLS[name], *map(_cell, values, signs)] for name, values, signs in lines]
    return make_table(caption, ["", *SYMBOLS.values()], rows)


def _cell(value: float | None, sign: str) -> dict[str, str]:
    text = "" if value is None else "0" if value == 0.0 else number(value, 2 if abs(value) >= 0.1 else 3)
    return {"class": {"+": "plus", "-": "minus"}.get(sign, "empty"), "text": text}
