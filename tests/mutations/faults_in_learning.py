"""Faults in functional Q-learning: in what is asked, what is learned from, what is paid and what is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dprl.accounting.reward_relation import RewardRelation
from dprl.environments import learning_source
from dprl.learning import functional_q, learning_plan, planned_q, q_learner
from dprl.mechanisms import function_noise
from dprl.mechanisms.function_noise import FunctionNoise, PathAnswers
from dprl.mechanisms.ornstein_uhlenbeck import positions_of
from dprl.mechanisms.reward_noise import RewardGradient
from dprl.release import train as release
from dprl.value_functions.q_function import QFunction

from .checks_of_learning import KEY
from .planting import Planting, fault, gives

# --- what is paid ---------------------------------------------------------------------------------------------------


@fault(
    "the root of the number of actions left out",
    "four actions are told apart no better than claimed",
    (function_noise, "path_sensitivity"),
)
def _(original: Any, sup: Any, lipschitz: Any, decay: Any, paths: Any, *more: Any) -> Any:
    return original(sup, lipschitz, decay, 1, *more)


@fault(
    "the mean's sensitivity divided by the batch", "neighbours under noisy gradients", (RewardGradient, "sensitivity")
)
def _(original: Any, self: Any) -> Any:
    """As if one reward of the batch changed, and not all."""
    return original(self) / self.batch


@fault("the reward's radius in place of the optimal Q's", "neighbours of a planned q", (planned_q, "q_sensitivity"))
def _(original: Any, config: Any, facts: Any, model: Any) -> Any:
    return (config.reward_radius, config.reward_lipschitz)


fault("precision that costs nothing", "the plan pays for all that is released", (FunctionNoise, "delta"))(gives(0.0))


# --- what is asked --------------------------------------------------------------------------------------------------


def ask(planting: Planting, change: Callable[..., Any]) -> None:
    """``change(answers, sample, j)`` in the place of the answers and the sample of each round."""

    def learned(original: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(shape: Any, rates: Any, state: Any, answers: Any, j: Any, coins: Any, sample: Any, *m: Any) -> Any:
            answers, sample = change(answers, sample, j)
            return original(shape, rates, state, answers, j, coins, sample, *m)

        return faulty

    planting.replace(q_learner, "learn_from_samples", learned)


class Leaking:
    """Answers with something of the rewards beside."""

    carried: Any = 0.0

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def add_noise(self, rewards: Any, *more: Any) -> Any:
        return 0.9 * np.asarray(self._inner.add_noise(rewards, *more)) + 0.1 * rewards

    def noisy_mean(self, rewards: Any, features: Any, step: Any) -> Any:
        noisy = np.asarray(self._inner.noisy_mean(rewards, features, step))
        Leaking.carried = 0.9 * Leaking.carried + (rewards[:, None] * np.asarray(features)).mean(axis=0)
        return noisy + 0.1 * Leaking.carried


fault("a target with a tenth of the true reward", "neighbours under noisy rewards")(
    partial(ask, change=lambda answers, sample, j: (Leaking(answers), sample))
)


@fault("momentum of gradients before their noise", "neighbours under noisy gradients")
def _(planting: Planting) -> None:
    Leaking.carried = 0.0
    ask(planting, lambda answers, sample, j: (Leaking(answers), sample))


def _rounded(answers: Any, sample: Any, j: Any) -> Any:
    """A step between neighbouring states has no bounded norm."""
    return answers, sample._replace(rewards=np.round(sample.rewards * 256.0) / 256.0)


fault("a reward rounded before the path is added", "neighbours under a path")(partial(ask, change=_rounded))


@fault("every reward asked for a second time", "neighbours under noisy rewards")
def _(planting: Planting) -> None:
    def twice(answers: Any, sample: Any, j: Any) -> Any:
        answers.add_noise(sample.rewards, positions_of(sample.units), sample.actions, j)
        return answers, sample

    ask(planting, twice)


@fault("a new path every round, of which one is paid for", "neighbours under a path", (PathAnswers, "add_noise"))
def _(original: Any, self: Any, rewards: Any, positions: Any, actions: Any, round_: Any) -> Any:
    return original(self, rewards, positions, np.asarray(actions) + 2 * int(round_), round_)


@fault(
    "no memo where two observations share a cell",
    "a memo where the proof needs one",
    (learning_plan, "MemoisedAnswers"),
)
def _(original: Any, answers: Any, *more: Any, **options: Any) -> Any:
    return answers


fault(
    "anybody's environment compiled as the library's own",
    "a second release is made of its own rewards",
    (learning_source, "is_unchanged_walk"),
)(gives(True))


@fault("coins that are counted as they are used", "the coins of a release are words of chacha20 at their address")
def _(planting: Planting) -> None:
    """An episode that ends earlier then shifts everybody else's coins."""

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        used = itertools.count()
        return lambda self, seed: original(self, seed + next(used))

    planting.replace(q_learner.EnvironmentSession, "reset", counted)


@fault(
    "exploration by a generator that is no ChaCha20",
    "the coins of a release are words of chacha20 at their address",
    (q_learner.AddressedCoins, "for_round"),
)
def _(original: Any, self: Any, shape: Any, j: int) -> Any:
    given = original(self, shape, j)
    return given._replace(exploring=np.random.default_rng(j).random(given.exploring.shape, np.float32))


fault(
    "what is compiled while rewards are asked for is written to JAX's cache",
    "no table lies in the compilation cache",
    (release, "nothing_compiled_on_disk"),
)(gives(nullcontext()))


@fault(
    "observations that are not moved into their domain",
    "neighbours stay as near as is paid for whatever is observed",
    (q_learner.EnvironmentSession, "_seen"),
)
def _(original: Any, self: Any, observation: Any) -> Any:
    """Below 0 every one gets fresh noise for one point of the relation."""
    found = original(self, observation)
    return found._replace(unit=np.array(observation, np.float64)) if found.known else found


@fault("a reward of zero in a state that is not known", "neighbours stay as near as is paid for whatever is observed")
def _(planting: Planting) -> None:
    """The difference of two neighbours is steep there."""

    def seen(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, observation: original(self, observation)._replace(known=True)

    planting.replace(q_learner.EnvironmentSession, "_seen", seen)
    ask(
        planting,
        lambda answers, sample, j: (
            answers,
            sample._replace(rewards=np.where(sample.units[:, 0] == 0.0, 0.0, sample.rewards)),
        ),
    )


@fault(
    "an exception of the environment that is passed on",
    "nothing that an environment raises is said",
    (q_learner, "quietly"),
)
def _(original: Any, call: Any, otherwise: Any) -> Any:
    return call()


fault(
    "a path for rewards of which nobody says what they are functions of",
    "rewards of the next state are refused",
    (functional_q, "_declared"),
)(gives("state-action"))


# --- what is said ---------------------------------------------------------------------------------------------------


@fault("the key of the noise beside the weights", "no key is handed out", (QFunction, "to_bytes"))
def _(original: Any, self: Any) -> Any:
    return original(self) + KEY


@fault(
    "a relation without its proof's condition",
    "the certificate says what a path protects",
    (RewardRelation, "words"),
)
def _(original: Any, self: RewardRelation) -> Any:
    return self.earlier_words()


@fault(
    "one path, and a relation that speaks of any two reward functions",
    "the certificate says what a path protects",
    (learning_plan, "relation"),
)
def _(original: Any, config: Any) -> Any:
    return replace(original(config), of_state=False)
