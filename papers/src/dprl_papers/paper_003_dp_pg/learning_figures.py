"""Paper 003's figures of what is learned on simulated users: bandits, Cart Pole, Acrobot, Pendulum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.strategy import Correlation
from dprl.report.formatting import number, plain
from dprl_papers.harness.figure_parts import line_over, make_claim, mean_text, table_over
from dprl_papers.paper_003_dp_pg import returns
from dprl_papers.paper_003_dp_pg.returns import SOLVED, Point, Points, point

KINDS = ("independent", "square-root", "banded:16")
PRODUCTS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""Step size times number of steps: the best of them for each kind of noise."""
SHARE = "share of the gap between acting at random and acting best"
LARGE = 50_000  # users from which few seeds run
FEW = 4  # seeds where a run is long


def seeds_at(key: Mapping[str, Any], users: float) -> int:
    return key["trials"] if users < LARGE else min(key["trials"], FEW)


def name_of(epsilon: float | None) -> str:
    return "no noise" if epsilon is None else f"ε = {plain(epsilon)}"


# --- kinds of noise ---------------------------------------------------------------------------------------------------


def prefix_ratio(kind: str, steps: int, seeds: int, dimension: int = 64) -> float:
    """RMS error of the sums of the first 1, ..., T rounds as drawn, over independent noise's, at equal guarantee."""

    def error(kind: str) -> float:
        mechanism = GaussianSum(
            parts=((dimension, 1.0),),
            steps=steps,
            batch=100,
            noise_multiplier=1.0,
            relation="zero-out",
            correlation=Correlation(kind),
        )
        squares = []
        for i in range(seeds):
            bound = mechanism.bind(SeededNoise.from_seed(i).stream("users"))
            draws = np.stack([bound.draw(step) for step in range(steps)]).astype(np.float64) * mechanism.grid_step
            squares.append(np.mean(np.cumsum(draws, axis=0) ** 2))
        return math.sqrt(np.mean(squares))

    return error(kind) / error("independent")


def over_noise_kinds(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Prefix error and the bandit at T = 100 and 1,000."""
    (epsilon,) = key["epsilon"]
    cases = ((100, 10_000), (1000, 10_000), (1000, 20_000)) if not key["quick"] else ((100, 2_000),)
    rows, spread, best, ratios = [], [], {}, {}
    for steps, users in cases:
        for kind in KINDS:
            tried = {}
            for product in PRODUCTS:
                tried[product] = points.measured(
                    point("bandit", users, epsilon, steps=steps, noise=kind, step_size=product / steps), key["trials"]
                )
            at = max(tried, key=lambda product: float(tried[product].mean()))
            best[steps, users, kind] = tried[at]
            if (steps, kind) not in ratios:
                ratios[steps, kind] = prefix_ratio(kind, steps, max(2, min(key["trials"], 8)))
            name = f"T = {plain(steps)}, N = {plain(users)}, {kind}"
            rows.append([name, number(ratios[steps, kind], 3), mean_text(tried[at], 3), plain(at)])
            spread.append([name, *(mean_text(v, 2) for v in tried.values())])
    claims = [
        make_claim(
            f"Prefix sums err by at most {plain(most)} of independent noise's error at T = {plain(steps)}.",
            ratios[steps, "square-root"] <= most,
            f"{number(ratios[steps, 'square-root'], 3)} as drawn.",
            ours=True,
        )
        for steps, most in ((100, 0.35), (1000, 0.15))
        if (steps, "square-root") in ratios
    ]
    for steps, users in cases:
        least = {100: 0.1, 1000: 0.3}[steps]
        ours, theirs = best[steps, users, "square-root"], best[steps, users, "independent"]
        reach = [1.96 * v.std(ddof=1) / math.sqrt(len(v)) for v in (ours, theirs)]
        gain = float(ours.mean() - theirs.mean())
        claims.append(
            make_claim(
                f"Correlated noise gains at least {plain(least)} of the gap on the bandit at T = {plain(steps)}, "
                f"N = {plain(users)}.",
                gain >= least and gain > sum(reach),
                f"{mean_text(ours, 3)} against {mean_text(theirs, 3)}, each at its own best step size; 95% intervals "
                f"of ± {number(reach[0], 3)} and ± {number(reach[1], 3)}.",
                ours=True,
            )
        )
    return {
        "tables": [
            {
                "caption": f"At ε = {plain(epsilon)}: RMS error of prefix sums over independent noise's, as drawn; "
                f"{SHARE}, greedy, {key['trials']} seeds, at the best step size of the next table.",
                "heads": ["", "prefix error", "share of the gap", "steps × step size"],
                "rows": rows,
            },
            {
                "caption": "Share of the gap by steps × step size.",
                "heads": ["", *(plain(x) for x in PRODUCTS)],
                "rows": spread,
            },
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": claims,
    }


# --- bandits ----------------------------------------------------------------------------------------------------------


def treatment(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """The bandit of 36 parameters, and the one from ACTG 175, over users and budget."""
    users, charts, tables, claims = [int(n) for n in key["values"]], [], [], []
    for problem, title in (("bandit", "4 arms, 36 parameters"), ("treatment", "ACTG 175: arms by patient")):
        found = {
            name_of(epsilon): {
                n: points.measured(point(problem, n, epsilon), key["trials"])  # type: ignore[arg-type]
                for n in users
            }
            for epsilon in (*key["epsilon"], None)
        }
        at = 1.0 if 1.0 in key["epsilon"] else key["epsilon"][0]
        found[f"independent noise, ε = {plain(at)}"] = {
            n: points.measured(point(problem, n, at, noise="independent"), key["trials"])  # type: ignore[arg-type]
            for n in users
        }
        largest = max(users)
        found[f"as published, ε = {plain(at)}"] = {
            n: points.measured(
                Point(problem=problem, users=n, epsilon=at, published=True),  # type: ignore[arg-type]
                key["trials"],
            )
            for n in users
        }
        batch = [max(1, n // 50) for n in users]
        found["PPO, no privacy"] = {
            n: points.ppo(problem, m, 50, min(key["trials"], FEW))  # type: ignore[arg-type]
            for n, m in zip(users, batch, strict=True)
            if n <= 10_000
        }
        full = {name: at for name, at in found.items() if len(at) == len(users)}
        charts.append(
            {
                "title": title,
                "lines": [line_over(name, values, look=_look(name)) for name, values in found.items()],
                "x": "users N",
                "y": "share of the gap",
                "log_x": True,
                "log_y": False,
            }
        )
        tables.append(table_over(full, key, head="N", what=f"{title}: {SHARE}"))
        for epsilon, n, least in ((1.0, 10_000, 0.97), (0.5, 100_000, 0.99)):
            if problem == "bandit" and n in users and epsilon in key["epsilon"]:
                values = found[name_of(epsilon)][n]
                claims.append(
                    make_claim(
                        f"At N = {plain(n)} and ε = {plain(epsilon)} the bandit's policy closes "
                        f"{number(100 * least, 0)}% of the gap.",
                        float(values.mean()) >= least,
                        f"{mean_text(values, 3)} over {len(values)} seeds.",
                        ours=True,
                    )
                )
        if problem == "treatment":
            values, free = found[name_of(at)][largest], found[name_of(None)][largest]
            claims.append(
                make_claim(
                    f"At N = {plain(largest)} and ε = {plain(at)} treatment loses at most 0.03 of the gap to privacy.",
                    float(free.mean() - values.mean()) <= 0.03,
                    f"{mean_text(values, 3)} against {mean_text(free, 3)} without noise.",
                    ours=True,
                )
            )
    return {"charts": charts, "tables": tables, "claims": claims}


def _look(name: str) -> str:
    return "none" if name.startswith(("no noise", "PPO")) else "bound" if name.startswith("as published") else "private"


# --- Cart Pole --------------------------------------------------------------------------------------------------------


def return_over_epsilon(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Return of the greedy policy over users and budget."""
    users = [int(n) for n in key["values"]]
    found = {
        name_of(epsilon): {n: points.measured(point("cart-pole", n, epsilon), seeds_at(key, n)) for n in users}
        for epsilon in (*key["epsilon"], None)
    }
    found["as published, ε = 1"] = {
        n: points.measured(Point(problem="cart-pole", users=n, epsilon=1.0, published=True), seeds_at(key, n))
        for n in users
    }
    table = table_over(found, key, head="N", what="return")
    found["PPO, no privacy"] = {
        n: points.ppo("cart-pole", n // 20, 20, min(key["trials"], FEW)) for n in users if n <= 5000
    }
    most = max(users)
    solved = found[name_of(min(key["epsilon"]))][most]
    claims = [
        make_claim(
            f"With {plain(most)} users the cart is balanced at every ε.",
            bool(solved.min() >= SOLVED),
            f"least mean return over {returns.EPISODES} episodes at ε = {plain(min(key['epsilon']))}: "
            f"{number(float(solved.min()), 1)} of 500.",
            ours=True,
        ),
        make_claim(
            "Algorithm 1 as published learns with as many.",
            float(found["as published, ε = 1"][most].mean()) >= SOLVED,
            f"mean return {mean_text(found['as published, ε = 1'][most], 1)}.",
        ),
    ]
    rows = [["PPO, no privacy", *(mean_text(v, 1) for v in found["PPO, no privacy"].values())]]
    ppo = {
        "caption": "PPO without privacy, 10 epochs a batch, to compare with.",
        "heads": ["", *(f"N = {plain(n)}" for n in found["PPO, no privacy"])],
        "rows": rows,
    }
    return {
        "tables": [table, ppo],
        "lines": [line_over(name, values, look=_look(name)) for name, values in found.items()],
        "x": "users N",
        "y": "return of the greedy policy",
        "log_x": True,
        "log_y": False,
        "claims": claims,
    }


ACCEPTED = ((2_000, 1.0, "softmax"), (5_000, 0.5, "softmax"), (20_000, 0.1, "softmax"), (10_000, 0.5, "mlp:64"))
LADDER = (250, 500, 1000, 2000, 5000, 10_000, 20_000)


def over_users(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """How many users a linear policy needs, by budget; and the settings that are asked for."""
    ladder = LADDER if not key["quick"] else LADDER[1:3]
    rows, needed = [], {}
    for epsilon in key["epsilon"]:
        cells = []
        for users in ladder:
            # far from what is needed nothing is run
            if not 300.0 <= users * epsilon <= 6000.0 or (epsilon in needed):
                cells.append("")
                continue
            values = points.measured(point("cart-pole", users, epsilon), key["trials"])
            count = int((values >= SOLVED).sum())
            cells.append(f"{count}/{len(values)}")
            if count == len(values):
                needed[epsilon] = users
        least = needed.get(epsilon)
        rows.append([plain(epsilon), *cells, "–" if least is None else plain(least)])
        rows[-1].append("–" if least is None else plain(least * epsilon))
    asked, claims = [], []
    for users, epsilon, policy in ACCEPTED if not key["quick"] else ACCEPTED[:1]:
        values = points.measured(point("cart-pole", users, epsilon, policy=policy), key["trials"])
        asked.append([f"{policy}, N = {plain(users)}, ε = {plain(epsilon)}", mean_text(values, 1)])
        asked[-1] += [number(float(values.min()), 1), f"{int((values >= SOLVED).sum())}/{len(values)}"]
        claims.append(
            make_claim(
                f"Cart Pole of 500 steps is solved by {policy} with N = {plain(users)} at ε = {plain(epsilon)}.",
                bool(values.min() >= SOLVED),
                f"least of {len(values)} seeds {number(float(values.min()), 1)} (475 is asked for).",
                ours=True,
            )
        )
    return {
        "tables": [
            {
                "caption": f"Linear policy: seeds of {key['trials']} whose mean return over {returns.EPISODES} "
                "episodes is at least 475, up to the first N that solves all.",
                "heads": ["ε", *(f"N = {plain(n)}" for n in ladder), "users needed", "N ε"],
                "rows": rows,
            },
            {
                "caption": "Settings that are asked for.",
                "heads": ["", "mean return", "least", "solved"],
                "rows": asked,
            },
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": claims,
    }


# --- other environments, other algorithms -----------------------------------------------------------------------------

CONTROL: dict[str, dict[str, Any]] = {
    "acrobot": {"policy": "softmax:fourier:3"},
    "pendulum": {"policy": "gaussian:fourier:3", "discount": 0.95, "steps": 100, "step_size": 4.0},
}


def with_continuous_control(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Acrobot and Pendulum."""
    users, charts, tables, claims = [int(n) for n in key["values"]], [], [], []
    seeds = min(key["trials"], FEW)
    for problem, options in CONTROL.items():
        found = {
            name_of(epsilon): {
                n: points.measured(point(problem, n, epsilon, **options), seeds)  # type: ignore[arg-type]
                for n in users
            }
            for epsilon in (*key["epsilon"], None)
        }
        if problem == "acrobot":
            least, most = name_of(min(key["epsilon"])), max(users)
            claims.append(
                make_claim(
                    f"With {plain(most)} users Acrobot swings up in 100 steps on average at {least}.",
                    float(found[least][most].mean()) >= -100.0,
                    f"mean return {mean_text(found[least][most], 1)}.",
                    ours=True,
                )
            )
        title = f"{problem.capitalize()}, {options['policy']}"
        charts.append(
            {
                "title": title,
                "lines": [line_over(name, values, look=_look(name)) for name, values in found.items()],
                "x": "users N",
                "y": "return of the greedy policy",
                "log_x": True,
                "log_y": False,
            }
        )
        tables.append(table_over(found, {**key, "trials": seeds}, head="N", what=f"{title}: return"))
    return {"charts": charts, "tables": tables, "claims": claims}


VARIANTS: dict[str, dict[str, Any]] = {
    "the recipe": {},
    "replace one": {"relation": "replace-one"},
    "independent noise": {"noise": "independent"},
    "no baseline": {"baseline_weight": 0.0},
    "score times whole return": {"estimator": "reinforce"},
    "no log barrier": {"regularisation": 0.0},
    "natural gradient": {"natural": True},
    "average of the iterates": {"release": "average"},
    "4 answers a user": {"interactions": 4},
}


def what_else(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """What each part of the recipe brings, and what goes beyond it."""
    problems = (("bandit", 10_000), ("cart-pole", 1_000)) if not key["quick"] else (("bandit", 2_000),)
    rows = []
    for name, options in VARIANTS.items():
        cells = []
        for problem, users in problems:
            for epsilon in key["epsilon"]:
                if problem == "cart-pole" and name in ("no log barrier",):
                    cells.append("–")
                    continue
                values = points.measured(point(problem, users, epsilon, **options), key["trials"])  # type: ignore[arg-type]
                cells.append(mean_text(values, 3 if problem == "bandit" else 0))
        rows.append([name, *cells])
    for epochs in (2, 4):
        cells = []
        for problem, users in problems:
            for epsilon in key["epsilon"]:
                values = points.epochs(problem, users, epsilon, epochs, key["trials"])  # type: ignore[arg-type]
                cells.append(mean_text(values, 3 if problem == "bandit" else 0))
        rows.append([f"PPO, {epochs} epochs, independent noise", *cells])
    heads = [f"{problem}, N = {plain(users)}, ε = {plain(e)}" for problem, users in problems for e in key["epsilon"]]
    return {
        "tables": [
            {
                "caption": f"One thing changed at a time: share of the gap on the bandit, return on Cart Pole "
                f"({key['trials']} seeds).",
                "heads": ["", *heads],
                "rows": rows,
            }
        ],
        "lines": [],
        "x": "",
        "y": "",
        "claims": [],
    }
