"""Actor-critic at equal guarantee

Where: Section 3.3

Statement: Our algorithm can be extended to the case where it learns both a policy function and a value function
coordinately, like the actor-critic method. If in the updates of the policy function, only the Q function is used in the
policy gradient estimation, [...] then the algorithm has the same privacy guarantee.

Note: The same noise on the same rewards: the actor, a softmax policy, is improved on the private Q alone, and acts
while both are learned. Judged is the most likely action of the actor that is released; without one, the best by Q.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from dprl.accounting.budget import Budget
from dprl.learning.learning_plan import make_learning_plan
from dprl.learning.q_learner import rates_of, shape_of
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, table_over
from dprl_papers.paper_001_functional_q import returns
from dprl_papers.paper_001_functional_q.compiled_learner import run as compiled_run
from dprl_papers.paper_001_functional_q.returns import FUNCTIONAL, OBSERVED, RETURN, Point, normalised

VALUES = (0.1, 0.45, 0.9, 3.0)
QUICK = (0.9, 3.0)
PEOPLE = (30, 100)


def draw(run: Run) -> dict[str, Any]:
    """Draw returns over epsilon, with and without an actor."""
    found, gains = {}, {}
    for name, point in (("functional", FUNCTIONAL), ("observed-reward", OBSERVED)):
        for people in PEOPLE[: 1 if run.quick else None]:
            points = {e: replace(point, people=people, epsilon=e, delta=run.delta) for e in run.values}
            label = f"{name}, n = {people}"
            alone = {e: normalised(returns.measured(run, p)["return"]) for e, p in points.items()}
            acting = {e: normalised(run.values_of(acted, p, run.seed, run.trials)) for e, p in points.items()}
            found |= {label: alone, f"{label}, actor-critic": acting}
            gains |= {f"{label}, ε = {plain(e)}": acting[e] - alone[e] for e in run.values}
    # seeds are the same with and without an actor
    behind = [name for name, gain in gains.items() if gain.mean() < -2.0 * gain.std(ddof=1) / len(gain) ** 0.5]
    text = f"return less that without an actor: {number(min(g.mean() for g in gains.values()), 2)} to "
    text += f"{number(max(g.mean() for g in gains.values()), 2)}"
    text += f"; behind by more than two standard errors at {'; '.join(behind)}." if behind else "."
    lines = [make_line(name, values, dash=int("actor" in name)) for name, values in found.items()]
    return figure_contents(
        charts=[make_chart(lines, "ε", RETURN)],
        tables=[table_over(found, "ε", RETURN, run.trials)],
        claims=[make_claim("An actor learns as well as Q alone.", not behind, text, ours=True)],
    )


def acted(point: Point, seed: int, seeds: int) -> np.ndarray:
    """Return ``(seeds,)`` returns of the actor's most likely actions, with the noise that the budget needs."""
    walk, config = returns.walk_of(point), returns.config_of(point).replace(actor_critic=True)
    mechanism = make_learning_plan(config, walk.facts, Budget(point.epsilon, point.delta)).mechanism
    shape, rates = shape_of(config, walk.facts), rates_of(config, walk.facts, mechanism)

    numbers = range(seed, seed + seeds)
    weights = _actors(shape, walk, rates, returns.answers_of_seeds(mechanism, numbers), returns.keys_of(numbers))
    outputs = returns.outputs_of(str(config.network), jax.tree.map(np.asarray, weights))
    return returns.policy_returns(np.argmax(outputs, axis=-2))


@partial(jax.jit, static_argnums=(0, 1))
def _actors(shape: Any, walk: Any, rates: Any, answers: Any, keys: Any) -> Any:
    return jax.vmap(lambda *given: compiled_run(shape, walk, rates, *given)[0].average[1])(answers, keys)
