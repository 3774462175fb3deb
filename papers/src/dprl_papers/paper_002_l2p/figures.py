"""Paper 002's figures as plain data for the page: quadratics, classifiers, and a mismatch of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.figure_parts import line_over, make_claim, mean_text
from dprl_papers.paper_002_l2p import classifiers, quadratics
from dprl_papers.paper_002_l2p.returns import Points

EXCESS = "loss above the minimum"
LOOKS = {"no privacy": "none", "SGD-Adv": "bound"}
RUNS = 20
"""Most runs of a point but figure 8's."""


def few(key: Mapping[str, Any]) -> int:
    return min(key["trials"], RUNS)


# --- quadratics -------------------------------------------------------------------------------------------------------


def figure_8(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """All methods at (0.05, 1e-8): one problem in many repeats, and the mean over problems nobody was trained on."""
    epsilon = key["epsilon"][0]
    rows, claims, charts = [], [], []
    for problem in (quadratics.MANY, quadratics.PRINTED):
        found = {
            method: quadratics.measured(points, problem, method, epsilon, key["trials"], key["quick"], wide=False)
            for method in quadratics.METHODS
        }
        found |= {name: {"losses": v, "chosen": "–"} for name, v in quadratics.dataless(problem, key["quick"]).items()}
        one, mean = {}, {}
        for name, at in found.items():
            losses = np.array(at["losses"])
            one[name], mean[name] = quadratics.interval(losses[0]), quadratics.interval(losses.mean(axis=0))
            rows.append([f"{problem.label}: {name}", _with(one[name]), _with(mean[name]), at["chosen"]])
        others = ("SGD-Adv", "SGD", "AGD", "L2P-Proj")
        for where, values in (("on figure 8's problem", one), ("in the mean over problems", mean)):
            ours = values["L2P"]
            beaten = [name for name in others if quadratics.apart(ours, values[name])]
            claims.append(
                make_claim(
                    f"{problem.label}: L2P ends below SGD-Adv, SGD, AGD and L2P-Proj {where}, with 95% intervals that "
                    "do not overlap.",
                    len(beaten) == len(others),
                    f"{_with(ours)}, against "
                    + "; ".join(f"{name} {_with(values[name])}" for name in others)
                    + "; the start at the origin without data has "
                    + f"{number(values['no data: the origin'][0], 3)}.",
                    ours=problem is not quadratics.PRINTED,
                )
            )
        charts.append(
            {
                "title": f"Mean paths of the first problem, {problem.label}; the centre of the loss is the last mark",
                "lines": quadratics.paths(points, problem, epsilon, key["trials"], key["quick"]),
                "x": "first parameter",
                "y": "second parameter",
                "log_x": False,
                "log_y": False,
            }
        )
    return {
        "charts": charts,
        "tables": [
            {
                "caption": f"f/60 above its minimum at ({plain(epsilon)}, 1e-8), mean ± half a 95% interval over "
                f"{key['trials']} repeats: on figure 8's problem, and averaged over problems in each repeat.",
                "heads": ["", "one problem", "mean over problems", "chosen on public problems"],
                "rows": rows,
            }
        ],
        "claims": claims,
    }


def figure_6(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """The same over epsilon."""
    charts, tables, claims = [], [], []
    for problem in (quadratics.OWN,):
        found = {
            method: {
                epsilon: np.array(
                    quadratics.measured(points, problem, method, epsilon, few(key), key["quick"], wide=True)["losses"]
                ).mean(axis=0)
                for epsilon in key["values"]
            }
            for method in quadratics.METHODS
        }
        charts.append(_chart(found, problem.label, EXCESS))
        tables.append(_table(found, f"{problem.label}: {EXCESS}, mean ± standard error over {few(key)} repeats"))
        for method in ("SGD-Adv", "AGD", "L2P-Proj"):
            below = [e for e in key["values"] if found["L2P"][e].mean() < found[method][e].mean()]
            claims.append(
                make_claim(
                    f"{problem.label}: L2P ends below {method} at every ε.",
                    len(below) == len(key["values"]),
                    f"at {len(below)} of {len(key['values'])}.",
                )
            )
    return {"charts": charts, "tables": tables, "claims": claims}


def queries(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """D(a): how often the data are asked."""
    rows, fewer = [], []
    for epsilon in key["values"]:
        cells = [plain(epsilon)]
        counts = {}
        for method in ("AGD", "SGD", "L2P", "L2P, adaptive noise"):
            found = quadratics.measured(points, quadratics.OWN, method, epsilon, few(key), key["quick"], wide=True)
            counts[method] = found["queries"]
            cells.append(f"{number(found['steps'], 1)} / {number(found['queries'], 1)}")
        fewer.append(max(counts["L2P"], counts["L2P, adaptive noise"]) < counts["AGD"])
        rows.append(cells)
    return {
        "tables": [
            {
                "caption": "Steps taken / queries of the data, 60 records. AGD asks for a gradient and for its "
                "candidates' losses, and again after a step that does not help; adaptive L2P for gradient and norm.",
                "heads": ["ε", "AGD", "SGD", "L2P", "L2P, adaptive noise"],
                "rows": rows,
            }
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": [
            make_claim(
                "L2P requires fewer times in querying the datasets.", all(fewer), f"at {sum(fewer)} of {len(fewer)} ε."
            )
        ],
    }


def covariance(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Theorem B.2's covariance of accumulated noise and last gradient, along meta-training."""
    lines, rows, claims = [], [], []
    for problem in (quadratics.PRINTED, quadratics.MANY):
        for method in ("L2P-Proj", "L2P"):
            _, learned = quadratics.protector_of(
                points, problem, method, quadratics.LONGEST, key["epsilon"][0], key["quick"]
            )
            seen = [(r["epoch"], abs(r["noise_covariance"])) for r in learned.log]
            name = f"{method}, {problem.units:,} records"
            lines.append({"label": name, "points": [[e, c, 0.0] for e, c in seen], "look": "private", "dash": 0})
            signed = [r["noise_covariance"] for r in learned.log]
            rows.append([name, f"{signed[0]:.2e}", f"{signed[-1]:.2e}", f"{learned.log[-1]['validation']:.3g}"])
            claims.append(
                make_claim(
                    f"{name}: training brings the covariance towards zero.",
                    abs(signed[-1]) < abs(signed[0]),
                    f"from {signed[0]:.2e} at epoch {seen[0][0]:.0f} to {signed[-1]:.2e}.",
                    ours=problem is quadratics.MANY,
                )
            )
    return {
        "tables": [
            {
                "caption": "Theorem B.2's covariance (Eq. 32), measured at the first and the last validation.",
                "heads": ["", "first", "last", "validation loss at the end"],
                "rows": rows,
            }
        ],
        "lines": lines,
        "x": "epoch",
        "y": "|covariance|",
        "log_x": False,
        "log_y": True,
        "claims": claims,
    }


# --- classifiers ------------------------------------------------------------------------------------------------------


def figure_7(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Support vector machines over epsilon."""
    return _classified(key, points, "svm", ("census", "digits"))


def logistic(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Logistic regression over epsilon."""
    return _classified(key, points, "logistic", ("census", "digits"))


def network(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """A network of 20 hidden units over epsilon: perturbed objectives and outputs are for convex ones."""
    return _classified(key, points, "network", ("digits",))


def _classified(key: Mapping[str, Any], points: Points, kind: Any, places: tuple[Any, ...]) -> dict[str, Any]:
    charts, tables, claims, runs = [], [], [], few(key)
    names = {"census": "synthetic census", "digits": "digits 3 and 5"}
    for table in places:
        methods = [m for m in classifiers.METHODS if kind != "network" or "perturbation" not in m]
        found = {
            m: {e: classifiers.measured(points, m, kind, table, e, runs, key["quick"]) for e in key["values"]}
            for m in methods
        }
        for what, label in (("accuracy", "accuracy on what is left out"), ("loss", "training loss")):
            series = {m: {e: at[what] for e, at in by.items()} for m, by in found.items()}
            charts.append(_chart(series, f"{names[table]}: {label}", label, log_y=what == "loss"))
            tables.append(_table(series, f"{names[table]}: {label}, mean ± standard error over {runs} runs"))
        private = [m for m in methods if m not in ("L2P", "no privacy")]
        ahead, behind = [], []
        for e in key["values"]:
            ours = found["L2P"][e]
            best = max(private, key=lambda m: float(found[m][e]["accuracy"].mean()))
            gap = float(ours["accuracy"].mean() - found[best][e]["accuracy"].mean())
            (ahead if gap >= 0.0 else behind).append(f"ε = {plain(e)}: {best}, by {number(abs(gap), 3)}")
        claims.append(
            make_claim(
                f"{names[table]}: L2P is at least as accurate as every other private method at every ε.",
                not behind,
                "behind at " + "; ".join(behind) + "." if behind else "at all of them.",
            )
        )
        lower = [
            e
            for e in key["values"]
            if all(found["L2P"][e]["loss"].mean() <= found[m][e]["loss"].mean() for m in private)
        ]
        claims.append(
            make_claim(
                f"{names[table]}: L2P has the lowest training loss at every ε.",
                len(lower) == len(key["values"]),
                f"at {len(lower)} of {len(key['values'])}.",
            )
        )
    return {"charts": charts, "tables": tables, "claims": claims}


SETS: tuple[tuple[int, ...], ...] = ((4, 6), (8, 9), (0, 1), classifiers.OTHERS)


def figure_4(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Protectors trained on other digits, at work on 3 against 5."""
    epsilon, runs = key["epsilon"][0], few(key)
    rows, accuracies = [], {}
    baselines = ("SGD-MA", "AGD", "objective perturbation")
    for name in baselines:
        found = classifiers.measured(points, name, "logistic", "digits", epsilon, runs, key["quick"])
        accuracies[name] = found["accuracy"]
        rows.append([name, mean_text(found["accuracy"], 3), mean_text(found["loss"], 3)])
    for digits in SETS:
        found = classifiers.mismatched(points, digits, "logistic", epsilon, runs, key["quick"])
        name = "L2P from " + (", ".join(map(str, digits)))
        accuracies[name] = found["accuracy"]
        rows.append([name, mean_text(found["accuracy"], 3), mean_text(found["loss"], 3)])
    best = max(float(accuracies[name].mean()) for name in baselines)
    worst = min(float(v.mean()) for name, v in accuracies.items() if name.startswith("L2P"))
    return {
        "tables": [
            {
                "caption": f"Logistic regression of 3 against 5 at ({plain(epsilon)}, 1e-8): accuracy on what is left "
                f"out and training loss, mean ± standard error over {runs} runs.",
                "heads": ["", "accuracy", "training loss"],
                "rows": rows,
            }
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": [
            make_claim(
                "Less similar auxiliary classes still show performance above the best baseline.",
                worst > best,
                f"the worst protector has {number(worst, 3)}, the best baseline {number(best, 3)}.",
            )
        ],
    }


# --- parts ------------------------------------------------------------------------------------------------------------


def _with(interval: tuple[float, float]) -> str:
    return f"{number(interval[0], 3)} ± {number(interval[1], 3)}"


def _chart(series: Mapping[str, Mapping[float, np.ndarray]], title: str, y: str, log_y: bool = True) -> dict[str, Any]:
    lines = [line_over(name, by, look=LOOKS.get(name, "private")) for name, by in series.items()]
    return {"title": title, "lines": lines, "x": "ε", "y": y, "log_x": True, "log_y": log_y}


def _table(series: Mapping[str, Mapping[float, np.ndarray]], caption: str) -> dict[str, Any]:
    places = list(next(iter(series.values())))
    return {
        "caption": caption + ".",
        "heads": ["", *(f"ε = {plain(e)}" for e in places)],
        "rows": [[name, *(mean_text(by[e], 3) for e in places)] for name, by in series.items()],
    }
