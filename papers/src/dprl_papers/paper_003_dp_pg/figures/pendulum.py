"""Pendulum without privacy

Where: 20,000 users, or none
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.environments.simulators import facts_of
from dprl.policies.parametric import Parametric
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_claim, make_table, mean_text
from dprl_papers.paper_003_dp_pg.evolution import evolved_parameters
from dprl_papers.paper_003_dp_pg.ppo import train_ppo
from dprl_papers.paper_003_dp_pg.returns import FEW, judged, measured, point, simulator

USERS, BATCH, DISCOUNT = 20_000, 100, 0.95
PENDULUM = simulator("pendulum")
SEARCHED = (
    ("linear", "gaussian", 150),
    ("3 cosines", "gaussian:fourier:3", 250),
    ("16 hidden units", "mlp:16:gaussian", 400),
)
LEARNED = (("8 cosines", "gaussian:fourier:8"), ("32 hidden units", "mlp:32:gaussian"))
DELTA = 4e-5  # of a plan whose noise is left out: at 1e-6 a network takes too many draws
SWUNG_UP = -200.0


def draw(run: Run) -> dict[str, Any]:
    """Draw what policies of the pendulum are worth that are searched for, or learned from people without noise."""
    seeds, users = min(run.trials, FEW), 1000 if run.quick else USERS
    ppo = run.values_of(by_ppo, "mlp:32:gaussian", users // BATCH, run.seed, seeds)
    found = {"proximal policy optimisation, 32 hidden units, 10 epochs a batch of 100": ppo}
    for name, kind in LEARNED:
        asked = point("pendulum", users, None, policy=kind, discount=DISCOUNT, steps=users // 200)
        found[f"the recipe, {name}"] = measured(run, replace(asked, delta=DELTA), seeds)
    for name, kind, rounds in SEARCHED:
        each = [
            run.cached(by_search, kind, 2 if run.quick else rounds, seed) for seed in range(run.seed, run.seed + seeds)
        ]
        found[f"an evolution strategy, which meets no users, {name}"] = np.array(each)
    rows = [[name, mean_text(values, 0), number(float(values.max()), 0)] for name, values in found.items()]
    caption = f"Return of the greedy policy, {plain(users)} users without noise or none; ± over {seeds} seeds."
    claim = make_claim(
        "Without privacy 20,000 users are enough to swing the pendulum up.",
        float(ppo.mean()) >= SWUNG_UP,
        f"proximal policy optimisation {mean_text(ppo, 0)}; {plain(SWUNG_UP)} is asked for.",
        ours=True,
    )
    return figure_contents(tables=[make_table(caption, ["", "mean return", "best seed"], rows)], claims=[claim])


def policy_of(kind: str) -> Parametric:
    """Return a policy of the pendulum."""
    facts = facts_of(PENDULUM)
    return Parametric(kind, facts.observation, None, facts.action)


def by_search(kind: str, rounds: int, seed: int) -> float:
    """Return what the best policy of a class is worth that an evolution strategy finds."""
    policy = policy_of(kind)
    return judged(policy, PENDULUM, jnp.asarray(evolved_parameters(policy, PENDULUM, rounds, seed), jnp.float32), seed)


def by_ppo(kind: str, steps: int, seed: int, seeds: int) -> list[float]:
    """Return what the last policy of proximal policy optimisation is worth, of each seed."""
    policy = policy_of(kind)
    numbers = range(seed, seed + seeds)
    return [judged(policy, PENDULUM, train_ppo(policy, PENDULUM, BATCH, steps, DISCOUNT, i)[-1], i) for i in numbers]
