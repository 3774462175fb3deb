"""Private policy gradient as a program of the engine: the contributions of people, and the step on their noisy sum.

A person's trajectory goes only into the person's vector, and the vector only into the mechanism's sum. Everything that
is learned is made of noisy sums, so it is post-processing: :meth:`PolicyGradient.update` sees nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dprl import x64 as x64
from dprl.config import filled
from dprl.engine.loop import run_steps, run_steps_on_host
from dprl.engine.program import Stage
from dprl.engine.unit_source import Source
from dprl.learning.policy_gradient.dp_pg import DPPG, STEPS, act_once
from dprl.learning.policy_gradient.estimator import (
    GHOST_BLOCK,
    Rates,
    RunShape,
    Trajectory,
    can_ghost_clip,
    contribution,
    ghost_clipped_sum,
    return_interval,
)
from dprl.learning.policy_gradient.trust_region import (
    TARGET_FILL,
    next_growth,
    public_states,
    running_mean,
    share_of_step,
    sharpened,
    squared_changes,
    whitened,
)
from dprl.mechanisms.action_coins import ActionCoins
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.policies.parametric import Parametric
from dprl.protocols import NO_JOURNAL, EnvironmentSpec, Journal
from dprl.user_code import nothing_compiled_on_disk

STREAM = "gradients"
"""Name of the noise stream, and of the journal's."""
_PEOPLE_AT_ONCE = 4
_BLOCK_NUMBERS, _BLOCK_PEOPLE = 2**16, 2048  # most numbers in a block's vectors and visits; most people in a block
BASELINE_GAIN = 0.3
"""Share of the newest batch in the running baseline; less if lengths are released and there are over 20 batches."""
SCALE_OF_ONE_ACTION = 3.0
"""Factor on a person's gradient before the clip, if people act once; measured (docs/papers/003.md)."""


def shape_of(config: DPPG, facts: EnvironmentSpec) -> RunShape:
    """Return the shape of a run with resolved options."""
    return RunShape(
        policy=policy_of(config, facts),
        places=filled(config.users),
        batch=filled(config.batch),
        steps=filled(config.steps),
        horizon=facts.horizon,
        estimator=config.estimator,
        baseline=config.baseline_weight > 0.0,
        bootstrap=config.bootstrap,
        interactions=config.interactions,
        natural=config.natural,
        adaptive=config.chooses_step_size and not act_once(facts),
        scaled=filled(config.scale_weight) > 0.0,
    )


def policy_of(config: DPPG, facts: EnvironmentSpec) -> Parametric:
    """Return the policy that resolved options name."""
    actions = None if facts.action is not None else facts.actions
    return Parametric(str(config.policy), facts.observation, actions, facts.action)


def rates_of(config: DPPG, facts: EnvironmentSpec) -> Rates:
    """Return the numbers of resolved options that compiled code takes as data; scalars that may be traced."""
    discount = filled(config.discount)
    low, high = return_interval(facts.reward_bounds, discount, facts.horizon, config.bootstrap)
    numbers = Rates(
        step_size=config.step_size,
        final=0.0 if config.decay == "linear" else 1.0,
        discount=discount,
        middle=(low + high) / 2.0,
        half=(high - low) / 2.0 or 1.0,
        scale=config.clip_norm * (SCALE_OF_ONE_ACTION if facts.horizon == 1 or facts.discount == 0.0 else 1.0),
        baseline_weight=config.baseline_weight * config.clip_norm,
        baseline_gain=BASELINE_GAIN * min(1.0, (STEPS / filled(config.steps)) ** 0.5)
        if filled(config.scale_weight)
        else BASELINE_GAIN,
        regularisation=config.regularisation,
        clip=config.clip_norm,
        scale_weight=filled(config.scale_weight) * config.clip_norm,
    )
    return Rates(*map(np.float32, numbers))


class State(NamedTuple):
    """State of the learner after some batches: released quantities, and what is public."""

    theta: Any  # (d,) float32
    baseline: Any  # () float32 in [-1, 1]
    average: Any  # (d,) float64 sum of the iterates that batches have met, divided by T
    step: Any  # () int32 batches done
    rates: Rates  # as they were given
    coins: ActionCoins  # of people's actions
    change: Any = np.zeros(2, np.float32)  # mean of squared changes, if steps are adaptive
    growth: Any = np.float32(1.0)  # factor on the scale of people's vectors


@dataclass(frozen=True)
class PolicyGradient:
    """A :class:`~dprl.engine.program.Program` whose units are people who meet the policy of the state.

    Attributes:
        shape: what fixes the compiled code.
        mechanism: mechanism of the only stage, whose steps are batches.
    """

    shape: RunShape
    mechanism: GaussianSum
    columns = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The calibrated stages, in order."""
        return (Stage(STREAM, self.mechanism),)

    def init(self, rates: Rates, coins: ActionCoins) -> State:
        """Return the state before the first batch; ``coins`` draw the initial weights and people's actions."""
        policy = self.shape.policy
        theta = policy.initial(coins.initial(policy.random_weights))
        return State(theta, jnp.float32(0.0), jnp.zeros(theta.shape, jnp.float64), jnp.int32(0), rates, coins)

    def contribution(self, stage: int, state: State, block: Trajectory) -> Any:
        """Return ``(B, dimension)``: the raw vectors of a block of people. Private."""
        del stage

        def one(trajectory: Trajectory) -> Any:
            return contribution(self.shape, state.rates, state.theta, state.baseline, trajectory, state.growth)

        if self.shape.policy.hidden and self.shape.horizon > 1:
            # the hidden units of a few people's whole interactions stay in the cache
            return lax.map(one, block, batch_size=_PEOPLE_AT_ONCE)
        return jax.vmap(one)(block)

    def clipped_sum(self, stage: int, mechanism: GaussianSum, state: State, block: Trajectory, included: Any) -> Any:
        """Add up clipped vectors, see :class:`~dprl.engine.program.QuickProgram`.

        For networks and people of one step no gradient is computed.
        """
        # a GPU's matrix products with fewer digits must not enter what is clipped
        with jax.default_matmul_precision("highest"):
            if can_ghost_clip(self.shape, mechanism):
                known = state.rates, mechanism, state.theta, state.baseline
                return ghost_clipped_sum(self.shape, *known, block, included)
            return mechanism.clipped_sum(self.contribution(stage, state, block), included)

    def update(self, stage: int, state: State, noisy: Any, step: Any) -> State:
        """Return the next state, only from a batch's noisy sum ``(dimension,)``."""
        del stage, step
        shape, rates, theta, t = self.shape, state.rates, state.theta, state.step
        mean = noisy / shape.batch
        size = shape.policy.size
        share = 1.0 - (1.0 - rates.final) * t / max(shape.steps - 1, 1)
        gradient = mean[:size].astype(jnp.float32)
        # the barrier keeps every action alive while steps are large, and falls with them
        barrier = (rates.regularisation * rates.scale * state.growth * share).astype(jnp.float32)
        gradient = gradient + barrier * log_barrier_gradient(shape.policy, theta)
        baseline, growth, *seen = state.baseline, state.growth, *mean[size:]
        if shape.baseline:
            fresh = seen[0] / rates.baseline_weight
            fresh = jnp.clip(baseline + fresh / growth if shape.scaled else fresh, -1.0, 1.0)
            # the first batches are averaged; later the newest batch has the share ``gain``
            gain = jnp.maximum(rates.baseline_gain, 1.0 / (t + 1.0))
            baseline = (state.baseline + gain * (fresh - state.baseline)).astype(jnp.float32)
        std = self.mechanism.noise_std_of_step / shape.batch
        if shape.natural:
            gradient = natural_direction(shape.policy, theta, gradient)
        elif shape.adaptive:
            gradient = whitened(shape.policy, gradient, std / rates.clip)
        length, change = rates.step_size * share / rates.clip, state.change
        if shape.adaptive:
            states = jnp.asarray(public_states(shape.policy), jnp.float32)
            found = squared_changes(shape.policy, theta, gradient, mean[:size].astype(jnp.float32), std, states)
            change = running_mean(change, found, t)
            length = length * share_of_step(t, shape.steps, rates.step_size / rates.clip, change)
        if shape.scaled:
            unit = rates.scale_weight / (1.0 - TARGET_FILL)
            growth = next_growth(growth, seen[-1] / unit, std / unit)
        length = length.astype(jnp.float32)
        average = state.average + theta.astype(jnp.float64) / shape.steps
        return State(theta + length * gradient, baseline, average, t + 1, rates, state.coins, change, growth)

    def finish(self, stage: int, state: State) -> State:
        """Return the state unchanged: nothing is left to do after the last batch."""
        del stage
        return state

    def answer(self, state: State) -> Any:
        """Return the last iterate ``(d,)``. For other iterates that may be released see :func:`released_parameters`."""
        return state.theta

    def block_size(self, mechanism: GaussianSum) -> int:
        """Return the number of people in a block on the host: about what the cache holds, by public facts only."""
        shape = self.shape
        if can_ghost_clip(shape, mechanism):
            most = GHOST_BLOCK  # without their vectors far more people fit into memory
        else:
            of_one = shape.interactions * shape.horizon * len(shape.policy.observation) + shape.dimension
            most = max(shape.block, min(_BLOCK_PEOPLE, _BLOCK_NUMBERS // of_one))
        if mechanism.batch is None:  # people are drawn: any number of them may take part
            return most if shape.batch > shape.block else shape.block
        return -(-shape.batch // -(-shape.batch // most))


def log_barrier_gradient(policy: Parametric, theta: Any) -> Any:
    """Return ``(d,)``: the gradient of (1/(|A||S|)) sum_{s,a} log pi(a|s), Eq. (8) without lambda.

    It is zero for a Gaussian policy.
    """
    if policy.gaussian:
        return jnp.zeros_like(theta)
    states = jnp.asarray(public_states(policy), jnp.float32)

    def barrier(theta: Any) -> Any:
        return jnp.mean(jax.nn.log_softmax(policy.preferences(theta, states), axis=-1))

    return jax.grad(barrier)(theta)


def natural_direction(policy: Parametric, theta: Any, gradient: Any, damping: float = 0.1) -> Any:
    """Return ``(d,)``: (F d/tr(F) + damping)^-1 gradient, where F is the Fisher matrix on :func:`public_states`."""
    states = jnp.asarray(public_states(policy), jnp.float32)
    if policy.gaussian:
        rows = jax.jacrev(lambda th: policy.preferences(th, states).reshape(-1))(theta) / policy.std
    else:
        weights = jnp.sqrt(policy.probabilities(theta, states)).reshape(-1)
        logs = jax.jacrev(lambda th: jax.nn.log_softmax(policy.preferences(th, states)).reshape(-1))(theta)
        rows = logs * weights[:, None]
    fisher = rows.T @ rows / len(states)
    level = jnp.trace(fisher) / policy.size
    whole = fisher / level + damping * jnp.eye(policy.size, dtype=fisher.dtype)
    return jnp.linalg.solve(whole, gradient)


# --- runs ---------------------------------------------------------------------------------------------------------


def run(program: PolicyGradient, people: Any, noise: Any, rates: Rates, coins: ActionCoins) -> tuple[State, Any]:
    """Return a whole run by the engine's compiled loop. It may be compiled, and batched over noise, rates and coins.

    Args:
        people: people as :class:`~dprl.engine.unit_source.Blocks`, such as those of a simulator.
        noise: the mechanism's stream, or all its noise drawn beforehand.
        coins: coins of the initial weights, of actions and of the simulation.

    Returns:
        The last state, and the iterates ``(T + 1, d)`` float32, which are all released.
    """
    start, block = program.init(rates, coins), program.shape.block
    trace: Callable[[State, Any], Any] = lambda state, _: state.theta  # noqa: E731
    state, before = run_steps(program, 0, program.mechanism, noise, people, start, batch=block, trace=trace)
    return state, jnp.concatenate([before, state.theta[None]])


def run_compiled(
    program: PolicyGradient, people: Any, noise: Any, rates: Rates, coins: ActionCoins, own: bool = True
) -> tuple[State, Any]:
    """Return :func:`run`, compiled; only for this call if the people's environment is not dprl's ``own``.

    A compiled program holds the environment with all its tables. So an environment that users bring along is never
    compared with another, its program is not kept, and nothing of it is written to JAX's cache on disk.
    """
    if own:
        return _RUN(program, people, noise, rates, coins)
    alone: Any = jax.jit(lambda *given: run(program, people, *given))
    with nothing_compiled_on_disk():
        try:
            return jax.block_until_ready(alone(noise, rates, coins))
        finally:
            alone.clear_cache()


_RUN = jax.jit(run, static_argnums=0)


def run_on_host(
    program: PolicyGradient,
    people: Source,
    noise: Any,
    rates: Rates,
    coins: ActionCoins,
    progress: Callable[[int], None] | None = None,
    journal: Journal = NO_JOURNAL,
) -> tuple[State, np.ndarray]:
    """Return :func:`run` by the engine's loop on the host, which takes ``progress`` and ``journal``."""
    start = program.init(rates, coins)
    iterates = [np.asarray(start.theta)]
    state = run_steps_on_host(
        program, 0, program.mechanism, noise, people, start, progress, journal,
        trace=lambda state: iterates.append(np.asarray(state.theta)),
    )  # fmt: skip
    return state, np.stack(iterates)


def released_parameters(config: Any, policy: Parametric, state: State, history: Any, coins: ActionCoins) -> np.ndarray:
    """Return the released parameters ``(d,)`` float32, sharpened as ``config.sharpness`` says.

    ``config.release`` chooses the ``last`` iterate, or, of the iterates that batches met, their ``average`` or a
    uniformly drawn one (``uniform``).
    """
    theta = state.theta
    if config.release == "average":
        theta = state.average
    if config.release == "uniform":
        theta = history[coins.uniform_index(len(history) - 1)]
    if config.sharpness != 1.0:
        theta = sharpened(policy, theta, config.sharpness)
    return np.asarray(theta, np.float32)
