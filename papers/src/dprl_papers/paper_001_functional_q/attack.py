"""The strongest known attack on Algorithm 1 of paper 001 as published: it runs the whole algorithm, and sees its Q.

Everything here is simulated; nothing is private.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax import random

from dprl.accounting.reward_relation import DEPTHS
from dprl.audits.attacks.trials import PlanCanary
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning.learning_plan import LearningPlan
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.q_function import q_values
from dprl_papers.paper_001_functional_q.published import PublishedQ, initial, published_rates, run_published

_SEEN = 17  # states at which a published Q is evaluated


def canary_of_plan(plan: LearningPlan, environment: Any = None) -> PlanCanary:
    """Return the attack in which every reward is larger by 1, the paper's radius. The attack sees the released Q."""
    environment = IntervalWalk() if environment is None else environment
    config = plan.config
    assert isinstance(config, PublishedQ)
    rates = published_rates(config, plan.facts)
    start = initial(str(config.network), random.key(0), environment.actions)

    def score(key: Any, present: Any) -> Any:
        source = SeededNoise(key)
        seed = random.wrap_key_data(source.stream("environment").key)
        raised = Shifted(environment, lambda states, actions: jnp.full(len(states), present))
        weights, _ = run_published(config, raised, rates, source.stream("reward").nodes(), seed, start)
        states = jnp.linspace(0.0, 1.0, _SEEN, dtype=jnp.float32)[:, None]
        return jnp.mean(q_values(str(config.network), weights, states, jnp)).astype(jnp.float64)

    rounds, seen = config.samples // config.batch, f"its mean over {_SEEN} states is seen"
    return PlanCanary(
        plan=plan,
        score=score,
        draws=config.samples * environment.actions * 2 * (DEPTHS[1] + 2),
        gaussian=False,
        description=f"every reward is larger by 1, the paper's radius; {rounds} rounds of {config.batch} samples with "
        f"sigma {config.published_std:g}, from known weights: of the Q-function that is released {seen}",
    )


@dataclass(frozen=True)
class Shifted:
    """An environment whose rewards are larger by a function of states and actions.

    Attributes:
        by: ``by(states (B, d), actions (B,)) -> (B,)``, in JAX.
    """

    inner: Any
    by: Callable[[Any, Any], Any] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def reward(self, states: Any, actions: Any) -> Any:
        """Return rewards ``(B,)``, larger by :attr:`by`."""
        return self.inner.reward(states, actions) + self.by(states, actions)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        """Return the next state, the larger reward, and whether the episode is over."""
        following, reward, over = self.inner.step(key, state, action)
        return following, reward + self.by(jnp.asarray(state)[None], jnp.asarray(action)[None])[0], over
