"""``make defaults``: compare the recommended default with every named algorithm, on problems not used for any choice.

``python -m benchmarks.default_table [--locked] [--most N] [--default] [--unseen] [--part I N]`` uses the seeds for
judging. ``--locked`` uses the seeds of a release instead. ``--most`` computes at most N further rows. ``--default``
computes only the default again, in all rows. ``--unseen`` takes members that are in no row. ``--part`` takes each N-th
row from the I-th on, so that other processes can compute the other rows. docs/defaults.md is written after each row,
except with ``--locked``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

import jax
import numpy as np
from filelock import FileLock

from benchmarks.families import FAMILIES, JUDGING, LOCKED, Member, member
from benchmarks.harness import ROOT, pin, table
from dprl.accounting.budget import Budget
from dprl.data.readers import read_log
from dprl.engine.layouts import padded_units
from dprl.engine.loop import run
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan, program_for
from dprl.evaluation.recommended import Recommended
from dprl.mechanisms.noise import SeededNoise
from dprl.registry import find
from dprl.value_functions.features import make_features
from dprl_papers.baselines.lstd import lstd

RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "defaults.md"
KEPT, VALUES = RESULTS / "default_table.json", RESULTS / "default_values.json"
DELTA, MEMBERS, FIRST_LOGS, LOGS = 1e-5, 2, 3, 15
EXCESS, RESAMPLED = "at least above", 10_000
_ABOUT = """\
# The default beside every named algorithm

Each row is a family of problems with logs on or off policy, a number of people and a budget. The error is that of the
value function: the root mean square error over the states that the log visits, divided by the width of the public value
range. It is taken over two members of the family and fifteen logs of each. The default spends its shipped share of the
budget on the value function; every named algorithm, the constant among them, spends all of the budget on it. A named
algorithm whose error is more than twice the best after three logs of each member stops there. Computed rows are kept in
`benchmarks/results/default_table.json`; a row takes one to ten minutes of one core.

The default's numbers were chosen on other seeds of the same families. Some decisions, however, were made after rows of
this table had been seen for an earlier choice:

* Off policy, TD is checked, with its slack and its clip, and no statistics follow it.
* On policy, a table is not left to a few modes. TD follows, in so many steps and so far. The more of TD's move may be
  noise, the less of it is kept, and less counts as noise as the budget grows.
* With a small budget the descent has .4 of mu^2.
* Where only lengths vary, statistics decide from a strength of 250 on.
* The value function has the same share of mu^2 after one decision as after several.
* That share is .55 and not half.

So members 102 to 105, which are in no row, were computed afterwards where a decision but the last three matters: the
last two tables, of three logs each.

"""
_VALUES = """\
## The released value

The same rows and logs. The error is that of the value of the target policy: the root mean square error over the width
of the value range. The default spends its shipped share of the budget on the value; importance sampling and doubly
robust values have all of the budget. They refuse a log where their noise alone would hide every value; whichever
refuses a log of either member is left out of the row. The best is the best of both and of the middle of the range.

"""
FAR = 2.0
"""A named algorithm whose error after the first logs is more than this factor times the best is not run any further."""
UNSEEN = {False: ((1_000, 0.1), (1_000, 1.0), (5_000, 0.1)), True: ((1_000, 4.0), (5_000, 1.0))}
"""Off policy or not -> people and epsilon of the rows of the last two tables."""
BESIDE = {False: ("td", "return-regression", "constant"), True: ("td", "constant")}
"""Off policy or not -> algorithms that stand beside the default in the last two tables."""
SIZES = ((1_000, 0.1), (1_000, 1.0), (5_000, 0.1), (5_000, 1.0), (1_000, 4.0), (5_000, 4.0))
NAMED = ("adassp", "dptd", "gpope", "lstd", "noisy-counts", "return-regression", "td")


class Row(NamedTuple):
    """A row of the table."""

    family: str
    off_policy: bool
    people: int
    epsilon: float

    @property
    def name(self) -> str:
        """The row's key in the kept results."""
        return f"{self.family}, {'off' if self.off_policy else 'on'}, {self.people}, {self.epsilon:g}"


def rows() -> Iterator[Row]:
    """Yield all rows, beginning with the sizes that matter most."""
    for people, epsilon in SIZES:
        for family in FAMILIES:
            for off_policy in (False, True):
                yield Row(family, off_policy, people, epsilon)


def programs(
    found: Member, row: Row, discount: float, features: str, named: Sequence[str] = ("constant", *NAMED)
) -> dict[str, Any]:
    """Return the programs of the default, as shipped, and of the ``named`` algorithms that can handle this problem."""
    bounds, budget = found.bounds(row.people), Budget(row.epsilon, DELTA)
    made = {"default": make_plan(Recommended(discount=discount), bounds, budget, [found.policy()], features).program}
    feature_map = make_features(features, bounds.observation)
    for name in named:
        try:
            made[name] = program_for(find(name).load_config()(discount=discount), bounds, feature_map, budget)
        except DprlError:  # such as an algorithm that counts transitions on states that cannot be counted
            continue
    return made


def computed(row: Row, seeds: range, named: Sequence[str], logs: int, known: Mapping[str, float]) -> dict[str, float]:
    """Return a row's errors over ``logs`` logs of each member.

    ``known`` are the errors from an earlier call, or empty. Algorithms that are far behind in them, or on the first
    logs, are not run on all logs.
    """
    found = dict(known) or errors(row, seeds, named, FIRST_LOGS)
    if known or logs > FIRST_LOGS:
        shown = [name for name in named if name in found]
        near = FAR * min(found[name] for name in shown)
        found |= errors(row, seeds, [name for name in shown if name == "constant" or found[name] <= near], logs)
    return found | {"logs": logs * len(seeds)}


def errors(row: Row, seeds: range, named: Sequence[str], logs: int) -> dict[str, float]:
    """Return the error of the default, of each ``named`` algorithm, of mid-range and of LSTD, and :func:`excess`."""
    squares: dict[str, list[float]] = {}
    for seed in seeds:
        found = member(row.family, seed, row.off_policy)
        discount = found.process.discount if found.process.horizon > 1 else 0.99
        bounds = found.bounds(row.people)
        value, features = bounds.value_interval(discount), make_features(found.features, bounds.observation)
        centre, half = sum(value) / 2.0, (value[1] - value[0]) / 2.0
        truth, visits, phi = found.values(), found.visits(), features(found.codes)
        made = programs(found, row, discount, found.features, named)
        compiled = {name: jax.jit(partial(_answer, program)) for name, program in made.items()}
        columns = sorted({column for program in made.values() for column in program.columns})

        def note(name: str, theta: Any, phi: Any = phi, truth: Any = truth, visits: Any = visits,
                 value: Any = value, centre: float = centre, half: float = half) -> None:  # fmt: skip
            gap = np.clip(centre + half * phi @ np.asarray(theta), *value) - truth
            squares.setdefault(name, []).append(float(visits @ gap**2) / (2.0 * half) ** 2)

        rngs = (np.random.default_rng([seed, row.off_policy, row.people, number]) for number in range(logs))
        drawn = [read_log(found.draw(rng, row.people), bounds=bounds).load() for rng in rngs]
        longest = max(int(log.lengths().max()) for log in drawn)  # one length, to compile only once
        for number, log in enumerate(drawn):
            ratios = np.ones(len(log.reward)) if found.on_policy else step_ratios(found.policy(), log)
            made_rows = rows_of(log, ratios, features, discount, value, columns=columns)
            data = padded_units(made_rows, longest)
            for name, answer in compiled.items():
                note(name, answer(SeededNoise.from_seed(1_000 * seed + number).key, data))
            note("mid-range", np.zeros(features.size))
            note("LSTD, not private", lstd(made_rows))
    return {name: float(np.sqrt(np.mean(found))) for name, found in squares.items()} | {EXCESS: excess(squares)}


def excess(squares: Mapping[str, Sequence[float]]) -> float:
    """Return a 99% lower bound of how far the default's error exceeds the allowed error.

    The allowed error is 1.05 times that of the better of constant and mid-range, plus a hundredth of the range. The
    bound is a paired bootstrap over each member's logs.
    """
    trivial = min(("constant", "mid-range"), key=lambda name: float(np.mean(squares[name])))
    pairs = np.reshape([squares["default"], squares[trivial]], (2, MEMBERS, -1))
    logs = pairs.shape[-1]
    chosen = np.random.default_rng(0).integers(logs, size=(RESAMPLED, MEMBERS, logs))
    default, other = np.sqrt(pairs[:, np.arange(MEMBERS)[:, None], chosen].mean(axis=(2, 3)))
    return float(np.quantile(default - 1.05 * other - 0.01, 0.01))


def _answer(program: Any, key: Any, data: Any) -> Any:
    return run(program, SeededNoise(key), data)[1]


def page(kept: Mapping[str, Mapping[str, float]]) -> str:
    """Return the page with the table and with the number of rows in which the default keeps its promises."""
    lines, near, few, worse = [], 0, 0, []
    for row in rows():
        found = kept.get(row.name)
        if found is None:
            continue
        best = min((found[name], name) for name in NAMED if name in found)[1]
        trivial = min(found["constant"], found["mid-range"])
        bar = min(trivial, found[best])
        near += found["default"] <= 1.5 * bar
        if found.get(EXCESS, found["default"] - 1.05 * trivial - 0.01) > 0.0:
            worse.append(row.name)
        numbers = (found[x] for x in ("default", best, "constant", "mid-range", "LSTD, not private"))
        shown = [f"{x:.4f}".lstrip("0") for x in numbers]
        few += found.get("logs", 0) < MEMBERS * LOGS
        lines.append([row.name, shown[0], f"{shown[1]} {best}", *shown[2:], f"{found['default'] / bar:.2f}"])
    headings = ["family, log, people, epsilon", "default", "best named", "constant", "mid-range", "LSTD, not private",
                "default over best"]  # fmt: skip
    last = ""
    for off_policy, beside in BESIDE.items():
        names = ("default", *beside)
        others = [(r.name, kept.get(r.name + ", unseen")) for r in unseen_rows() if r.off_policy == off_policy]
        cells = [[name, *(f"{found[x]:.4f}".lstrip("0") for x in names)] for name, found in others if found]
        last += f"\n\n{table([headings[0], *names], cells)}"
    rest = f" In these it is: {'; '.join(worse)}." if worse else ""
    rest += f" {few} rows are still of {FIRST_LOGS} logs of each member, and judged by their means." if few else ""
    return (
        f"{_ABOUT}"
        f"Of {len(lines)} rows {near} ({near / max(len(lines), 1):.0%}) are within 1.5 times the best of all others. "
        f"In {len(lines) - len(worse)} the error is not shown to be above 1.05 times that of the better of constant "
        f"and mid-range and a hundredth of the range (99% lower bounds by a paired bootstrap over logs).{rest}\n\n"
        f"{table(headings, lines)}\n\n## Members in no row{last}\n\n{values_section()}"
    )


def unseen_rows() -> list[Row]:
    """Return the rows of the last two tables."""
    families = [family for family in FAMILIES if family != "bandit"]
    return [Row(family, off, *size) for off, sizes in UNSEEN.items() for family in families for size in sizes]


def kept_results(path: Path = KEPT) -> dict[str, dict[str, float]]:
    """Return the computed rows, by name."""
    return json.loads(path.read_text()) if path.exists() else {}


def values_section() -> str:
    """Return the section on the error of the released value."""
    kept, lines, near = kept_results(VALUES), [], 0
    for row in rows():
        if (found := kept.get(row.name)) is None:
            continue
        best, name = min((error, name) for name, error in found.items() if name != "default")
        near += found["default"] <= 1.5 * best
        default, least, middle = (f"{x:.4f}".lstrip("0") for x in (found["default"], best, found["mid-range"]))
        lines.append([row.name, default, f"{least} {name}", middle, f"{found['default'] / best:.2f}"])
    headings = ["family, log, people, epsilon", "default", "best", "mid-range", "default over best"]
    count = f"In {near} of {len(lines)} rows the default's error is within 1.5 times the best."
    return f"{_VALUES}{count}\n\n{table(headings, lines)}\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default_table")
    parser.add_argument("--locked", action="store_true", help="the seeds of a release, of which nothing is kept")
    parser.add_argument("--most", type=int, default=10**9, help="compute at most so many rows")
    parser.add_argument("--default", action="store_true", help="compute the default again, where all else is kept")
    parser.add_argument("--unseen", action="store_true", help="members in no row")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"),
                        help="each N-th row, from the I-th")  # fmt: skip
    asked = parser.parse_args(arguments)
    pin(1, asked.part[0])  # parts that run side by side use different cores
    if asked.locked and asked.unseen:
        parser.error("--locked and --unseen are other members: give one of them")
    seeds, suffix = (LOCKED if asked.locked else JUDGING)[:MEMBERS], ""
    if asked.unseen:
        seeds, suffix = JUDGING[MEMBERS:6], ", unseen"
    logs = FIRST_LOGS if asked.unseen else LOGS
    kept = {} if asked.locked else kept_results()
    every = unseen_rows() if asked.unseen else rows()
    due = [r for r in every if asked.default or kept.get(r.name + suffix, {}).get("logs", 0) < logs * len(seeds)]
    for row in due[asked.part[0] :: asked.part[1]][: asked.most]:
        name, named = row.name + suffix, BESIDE[row.off_policy] if asked.unseen else ("constant", *NAMED)
        found = computed(row, seeds, ("constant",) if asked.default else named, logs, kept.get(name, {}))
        print(name, {name: round(x, 4) for name, x in found.items()}, flush=True)
        with FileLock(Path(gettempdir()) / "dprl-default-table.lock"):  # other processes may have written their rows
            kept = (kept if asked.locked else kept_results()) | {name: found}
            if not asked.locked:
                KEPT.write_text(json.dumps(kept, indent=1) + "\n")
                PAGE.write_text(page(kept))
    if asked.locked:
        print(page(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
