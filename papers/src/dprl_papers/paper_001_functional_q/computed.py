"""Paper 001's figures as plain data for the page: tables of texts, the lines of charts, and claims put to the test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.figure_parts import (
    line_over,
    make_claim,
    mean_text,
    one_chart,
    table_over,
)
from dprl_papers.paper_001_functional_q import returns, theory
from dprl_papers.paper_001_functional_q.published_figures import PAPERS_STEP, appendix_e3, as_published, as_they_ran
from dprl_papers.paper_001_functional_q.returns import Point, Points

TWICE = (30,)  # n at which twice the trials run: there the curves are steepest


def point_at(point: Point, people: float, epsilon: float, key: Mapping[str, Any]) -> Point:
    return replace(point, people=people, epsilon=epsilon, delta=key["delta"])


def seeds_of(key: Mapping[str, Any], people: float) -> int:
    return key["trials"] * (2 if people in TWICE and not key["quick"] else 1)


FUNCTIONAL = Point(method="functional")
OBSERVED = Point(method="observed-reward")
AT_EQUAL_GUARANTEE = {
    "functional": FUNCTIONAL,
    "functional, a path an action": replace(FUNCTIONAL, shared=False),
    "observed-reward": OBSERVED,
    "observed-reward, 1 update in 8": replace(OBSERVED, updates=0.125),
    "observed-reward, 4 cosines": replace(OBSERVED, network="fourier:3"),
    "gradient": Point(method="gradient", batch=250, step_size=10.0),
    "output": Point(method="output"),
}
NO_NOISE = Point(method="none")


def at_equal_guarantee(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """All variants over the number of people."""
    (epsilon,), people = key["epsilon"], key["values"]
    found = {
        name: {n: points.normalised(point_at(point, n, epsilon, key), seeds_of(key, n)) for n in people}
        for name, point in AT_EQUAL_GUARANTEE.items()
    }
    best = points.normalised(NO_NOISE, key["trials"])
    lines = [line_over(name, values) for name, values in found.items()]
    lines.append(line_over("no privacy", dict.fromkeys(people, best), look="none"))
    asked = [("functional", 30, 0.75), ("functional", 100, 0.9), ("observed-reward", 100, 0.9)]
    asked += [("functional", 1000, 0.98), ("observed-reward", 1000, 0.98), ("functional, a path an action", 30, 0.75)]
    claims = [
        make_claim(
            f"{name[:1].upper()}{name[1:]} reaches {plain(least)} at n = {n}.",
            float(found[name][n].mean()) >= least,
            f"{mean_text(found[name][n], 3)} over {len(found[name][n])} seeds.",
            ours=True,
        )
        for name, n, least in asked
        if epsilon == 0.9 and n in people
    ]
    ahead = {n: float(found["functional"][n].mean() - found["observed-reward"][n].mean()) for n in people}
    claims.append(
        make_claim(
            "Our algorithm outperforms input perturbation.",
            all(difference >= -0.02 for difference in ahead.values()),
            "normalised return of functional less that of observed-reward: "
            + ", ".join(f"{number(difference, 2)} at n = {plain(n)}" for n, difference in ahead.items())
            + " (at least −0.02 everywhere is asked for).",
        )
    )
    return {"tables": [table_over(found | {"no privacy": dict.fromkeys(people, best)}, key)], **one_chart(lines)} | {
        "claims": claims
    }


def over_radius(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Functional over people and budget, and what privacy of all reward functions costs anybody."""
    people, delta = key["values"], key["delta"]
    found = {
        f"ε = {plain(epsilon)}": {
            n: points.normalised(point_at(FUNCTIONAL, n, epsilon, key), seeds_of(key, n)) for n in people
        }
        for epsilon in key["epsilon"]
    }
    rows, claims = [], []
    for epsilon in key["epsilon"]:
        pair = [replace(point_at(FUNCTIONAL, 1, epsilon, key), ends=ends) for ends in (False, True)]
        # good where it is better than half of what the two rewards add up to in every state, 0.5 a step: disjoint sets
        good = [points.measured(point, key["trials"])["return"] > 12.5 for point in pair]
        share = np.concatenate(good)
        rows.append(
            [
                plain(epsilon),
                *(number(theory.largest_success(k, epsilon, delta), 3) for k in (2, 3, 5, 10)),
                mean_text(share, 2),
            ]
        )
        if epsilon == 0.9:
            allowed = theory.largest_success(2, epsilon, delta)
            spread = 3.0 * math.sqrt(0.25 / len(share))
            claims.append(
                make_claim(
                    "At radius 0.5 no private learner finds the better of two opposite policies more often than 0.711.",
                    float(share.mean()) <= allowed + spread,
                    f"functional finds it in {number(100.0 * float(share.mean()), 0)}% of {len(share)} runs.",
                    ours=True,
                )
            )
    success = {
        "caption": "Radius of the whole range (n = 1): largest mean probability of a good policy for k reward "
        "functions whose good policies are disjoint, whatever the algorithm; and what the functional variant has on "
        "the walk that is paid in the middle and the one that is paid at its ends (k = 2).",
        "heads": ["ε", "k = 2", "k = 3", "k = 5", "k = 10", "functional, k = 2"],
        "rows": rows,
    }
    lines = [line_over(name, values) for name, values in found.items()]
    return {"tables": [table_over(found, key), success], **one_chart(lines)} | {"claims": claims}


def over_lipschitz(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Where functional noise stops winning as the Lipschitz constant grows."""
    (epsilon,), ratios = key["epsilon"], key["values"]
    people = (30, 100) if not key["quick"] else (30,)
    found, claims = {}, []
    for n in people:
        at = {r: replace(point_at(FUNCTIONAL, n, epsilon, key), lipschitz=r) for r in ratios}
        mine = {r: points.normalised(point, seeds_of(key, n)) for r, point in at.items()}
        theirs = points.normalised(point_at(OBSERVED, n, epsilon, key), seeds_of(key, n))
        found |= {f"functional, n = {n}": mine, f"observed-reward, n = {n}": dict.fromkeys(ratios, theirs)}
        ahead = [r for r in ratios if mine[r].mean() >= theirs.mean()]
        last = max(ahead, default=0.0)
        text = f"ahead up to L/R = {plain(last)}" if ahead else "never ahead"
        behind = [r for r in ratios if r > last]
        text += f", behind from {plain(min(behind))} on" if behind else ""
        claims.append(
            make_claim(
                f"At n = {n} functional is ahead for small L/R, and behind for large.",
                bool(ahead) and bool(behind),
                f"{text}; observed-reward has {mean_text(theirs, 2)}.",
                ours=True,
            )
        )
    lines = [
        line_over(name, values, look="private" if "functional" in name else "bound") for name, values in found.items()
    ]
    chart = one_chart(lines, x="L/R: Lipschitz constant of the difference of two neighbours over the radius")
    return {"tables": [table_over(found, key, head="L/R")], **chart, "claims": claims}


def in_two_dimensions(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """The walk on the square: price and return."""
    (epsilon,), people = key["epsilon"], key["values"]
    low, best = returns.extreme_returns(2)
    found = {}
    for name, point in {"functional": FUNCTIONAL, "observed-reward": OBSERVED}.items():
        at = {n: replace(point_at(point, n, epsilon, key), dimensions=2) for n in people}
        found[name] = {n: (points.measured(p, seeds_of(key, n))["return"] - low) / (best - low) for n, p in at.items()}
    price = {
        "caption": "Norm of the difference of two neighbours over the radius, sqrt((1 + L/R)^d), at the best decay.",
        "heads": ["L/R", "d = 1", "d = 2", "d = 3"],
        "rows": [[plain(r), *(number(math.sqrt((1.0 + r) ** d), 3) for d in (1, 2, 3))] for r in (1, 4, 16)],
    }
    lines = [line_over(name, values) for name, values in found.items()]
    return {"tables": [table_over(found, key), price], **one_chart(lines), "claims": []}


def proposition_10(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """E|v' - v*| on finite processes against the printed bound and the right one."""
    del points
    states, std, discount = [int(n) for n in key["values"]], 1.0, 0.9
    kinds = (("random, 2 actions", "garnet", 2), ("random, 10 actions", "garnet", 10))
    kinds += (("every state stays, 1 action", "identity", 1), ("absorbing, 100 actions", "absorbing", 100))
    lines, rows, failing = [], [], []
    seeds = min(key["trials"], 20)
    for label, kind, actions in kinds:
        means = [theory.noise_loss(n, actions, std, discount, seeds, kind, key["seed"]) for n in states]
        drawn = [[float(n), m, e * math.sqrt(seeds)] for n, (m, e) in zip(states, means, strict=True)]
        lines.append({"label": label, "points": drawn})
        rows.append([label, *(f"{number(m, 2)} ± {number(e, 2)}" for m, e in means)])
        failing += [
            f"{label} at n = {n}"
            for n, (m, e) in zip(states, means, strict=True)
            if m - 2.0 * e > theory.printed_bound(n, std, discount)
        ]
    bounds = {
        "Proposition 10": [theory.printed_bound(n, std, discount) for n in states],
        "σ sqrt(2 ln(2nm))/(1 − γ), m = 2": [theory.right_bound(n, 2, std, discount) for n in states],
    }
    for label, values in bounds.items():
        drawn = [[float(n), v, 0.0] for n, v in zip(states, values, strict=True)]
        lines.append({"label": label, "points": drawn, "look": "bound"})
        rows.append([label, *(number(v, 2) for v in values)])
    return {
        "tables": [
            {
                "caption": f"E of the mean over states of |v′ − v*|, σ = 1, γ = 0.9, {seeds} processes each "
                "(± standard error).",
                "heads": ["", *(f"n = {plain(n)}" for n in states)],
                "rows": rows,
            }
        ],
        "lines": lines,
        "x": "number of states n",
        "y": "E of mean |v′ − v*|",
        "claims": [
            make_claim(
                "The utility loss is at most 2 sqrt(2) σ/(sqrt(n π)(1 − γ)).",
                not failing,
                f"exceeded by two standard errors at {len(failing)} of {len(states) * len(kinds)} points"
                + (f", first {failing[0]}." if failing else "."),
            )
        ],
    }


def inverse_learning(key: Mapping[str, Any], points: Points) -> dict[str, Any]:
    """Error of the reward that is recovered from a released Q, where the transitions are known."""
    people = key["values"]
    found = {}
    for epsilon in key["epsilon"]:
        for name, point in (("functional", FUNCTIONAL), ("observed-reward", OBSERVED)):
            at = {n: points.measured(point_at(point, n, epsilon, key), seeds_of(key, n)) for n in people}
            found[f"{name}, ε = {plain(epsilon)}"] = {n: values["recovered"] for n, values in at.items()}
    exact = points.measured(NO_NOISE, key["trials"])["recovered"]
    weights = returns.published_weights([0.32], [78], PAPERS_STEP, key["seed"], key["trials"])
    published = returns.recovered_of(returns.outputs_of("mlp:32", weights)[0, 0, :, -1], 0.9)
    lines = [line_over(name, values, dash=i % 2) for i, (name, values) in enumerate(found.items())]
    lines.append(line_over("no privacy", dict.fromkeys(people, exact), look="none"))
    lines.append(line_over("as published, σ = 0.32", dict.fromkeys(people, published), look="bound"))
    least = found[f"functional, ε = {plain(max(key['epsilon']))}"]
    return {
        "tables": [
            table_over(
                found | {"no privacy": dict.fromkeys(people, exact), "as published": dict.fromkeys(people, published)},
                key,
                what="RMSE of the recovered reward over the reward's standard deviation",
            )
        ],
        **one_chart(lines, y="error of the recovered reward", log_y=True),
        "claims": [
            make_claim(
                "The private Q protects the reward from inverse reinforcement learning: the fewer people, the better.",
                bool(least[min(people)].mean() > 2.0 * least[max(people)].mean() > 0.0),
                f"functional at ε = {plain(max(key['epsilon']))}: {mean_text(least[min(people)], 2)} at n = "
                f"{plain(min(people))}, {mean_text(least[max(people)], 2)} at n = {plain(max(people))}; without "
                f"privacy {mean_text(exact, 2)}.",
            )
        ],
    }


FIGURES: dict[str, Callable[[Mapping[str, Any], Points], dict[str, Any]]] = {
    "1": as_published,
    "2a": as_they_ran,
    "2b": as_they_ran,
    "2a-equal": at_equal_guarantee,
    "2b-equal": at_equal_guarantee,
    "radius": over_radius,
    "lipschitz": over_lipschitz,
    "dimensions": in_two_dimensions,
    "e3": appendix_e3,
    "prop10": proposition_10,
    "irl": inverse_learning,
}
