"""Record and replay through the front door: what enters each mechanism of a release that is called as users call it.

:mod:`~dprl.audits.record_replay` hands an algorithm its mechanisms. Here a public call makes them itself, of real
inputs, and what stands at their doors is replaced for the length of the call. Every call after the first has the same
key and sees what the first released, so that adaptivity hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.audits.record_replay import Comparison, Recorder, Tape, compare
from dprl.audits.record_rewards import Question, RecordingAnswers, compare_questions
from dprl.audits.record_users import RecordingUserNoise, UserTape, compare_user_tapes
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.function_noise import FunctionNoise
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.reward_noise import RewardGradient, RewardNoise
from dprl.mechanisms.user_sum import UserSum

SEED = 11
"""Of every call, whose noise is reproducible: the key that neighbours share."""

Call = Callable[[int], Mapping[str, np.ndarray]]
"""A public call with a seed: all that is handed out, by name."""


@dataclass
class Entered:
    """What one call let into its mechanisms. Private.

    Attributes:
        sums: sums over people who are sampled, or over all of them.
        users: sums over batches of people of whom each takes part once.
        rewards: what was asked of a private reward function.
        mechanism: of one of the latter two.
    """

    sums: Tape
    users: UserTape
    rewards: list[Question]
    mechanism: Any = None


class Door:
    """Stands at the mechanisms' doors while neighbours are released, one after the other."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self._first: Entered | None = None

    def record(self, call: Call, missing: int | None = None, others: Sequence[Any] = ()) -> Entered:
        """Call once. The first call is what all later ones replay.

        Args:
            missing: place of the person whom this call's input lacks: all others keep the coins that they have beside
                that person, which is the coupling of the proofs.
            others: what else is replaced meanwhile, see :func:`replaced`.
        """
        entered = Entered(Tape(), UserTape(), [])
        first = self._first or Entered(Tape(), UserTape(), [])

        def in_order(original: Any) -> Any:
            def recorded(mechanism: UserSum, noise: Any) -> Any:
                entered.mechanism = mechanism
                return RecordingUserNoise(original(mechanism, noise), entered.users, first.users)

            return recorded

        def bind(original: Any) -> Any:
            def recorded(mechanism: Any, noise: Any) -> Any:
                entered.mechanism = mechanism
                return RecordingAnswers(original(mechanism, noise), entered.rewards, first.rewards)

            return recorded

        def run(noise: Any, wrap: Any) -> Mapping[str, np.ndarray]:
            del wrap
            with ExitStack() as stack:
                stack.enter_context(replaced(SeededNoise, "from_seed", lambda _: staticmethod(lambda seed: noise)))
                stack.enter_context(replaced(GaussianSum, "noised", self._noised))
                stack.enter_context(replaced(FilteredGaussianSum, "noised", self._noised))
                stack.enter_context(replaced(FilteredGaussianSum, "draw", self._drawn))
                stack.enter_context(replaced(UserSum, "in_order", in_order))
                for answering in (FunctionNoise, RewardNoise, RewardGradient):
                    stack.enter_context(replaced(answering, "bind", bind))
                for owner, name, make in others:
                    stack.enter_context(replaced(owner, name, make))
                return call(SEED)

        noise: Any = SeededNoise.from_seed(SEED)
        entered.sums = self._recorder.record(run, noise, missing)
        entered.users.results, entered.users.messages = entered.sums.results, entered.sums.messages
        self._first = self._first or entered
        return entered

    def _noised(self, original: Any) -> Any:
        def recorded(mechanism: GaussianSum, total: Any, draw: Any) -> Any:
            points = original(mechanism, total, draw)
            exact = mechanism.answer(total) if isinstance(mechanism, FilteredGaussianSum) else total
            place = self._recorder.place_of(mechanism)
            return jnp.asarray(self._recorder.note(place, np.asarray(exact), np.asarray(points)))

        return recorded

    def _drawn(self, original: Any) -> Any:
        def recorded(mechanism: FilteredGaussianSum, noise: Any, step: Any, *more: Any, level: Any = None) -> Any:
            self._recorder.draw_level(self._recorder.place_of(mechanism), int(level))
            return original(mechanism, noise, step, *more, level=level)

        return recorded


def differ(one: Entered, two: Entered) -> Comparison:
    """How far apart lies what two neighbours let in, over the declared sensitivity; and what differs that must not.

    Sums over sampled people are compared under add or remove one, batches of users under the mechanism's own relation.
    """
    found = compare(one.sums, two.sums)
    if one.mechanism is None and two.mechanism is None:
        return found
    if one.mechanism is None or one.mechanism != two.mechanism:
        return Comparison(("the mechanisms differ",), found.largest, found.releases)
    if isinstance(one.mechanism, UserSum):
        other = compare_user_tapes(one.users, two.users, one.mechanism)
    else:
        other = compare_questions(one.rewards, two.rewards, one.mechanism)
    problems = tuple(dict.fromkeys((*found.problems, *other.problems)))
    return Comparison(problems, max(found.largest, other.largest), found.releases + other.releases)


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Put ``make(original)`` in the place of a class's or module's ``name``, meanwhile."""
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
