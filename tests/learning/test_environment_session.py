"""What the learner takes from an environment: observations within their domain, numbers, and nothing that is raised."""

from __future__ import annotations

import math
import threading
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.accounting.reward_relation import DEPTHS
from dprl.audits.conformance.reward_functions import learned_from
from dprl.audits.record_replay import Recorder, compare
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.q_learner import EnvironmentSession, reward_as_float, rewards_at
from dprl.user_code import nothing_compiled_on_disk, quietly

from .beyond import Beyond, saw


@pytest.mark.parametrize("variant", ["functional", "observed-reward", pytest.param("gradient", marks=pytest.mark.slow)])
def test_neighbours_stay_as_near_as_is_paid_for_whatever_is_observed(variant):
    """Record and replay over functions as far apart as neighbours may be."""
    smooth = {"reward_lipschitz": 0.04, "reward_of": "state"} if variant == "functional" else {}
    short = {"samples": 100, "round": 20, "batch": 8, "network": "fourier:1" if variant == "gradient" else "mlp:4"}
    config, budget = FunctionalQ(variant=variant, reward_radius=0.01, **short, **smooth), Budget(0.9, 1e-4)
    recorder = Recorder()
    entered = [recorder.record(learned_from(Beyond(more), budget, config)) for more in (lambda place: 0.0, saw)]
    if variant == "functional":  # a path is never asked beyond its ends, where one point would get many noises
        assert all(np.all((q.places >= 0) & (q.places <= 2 ** DEPTHS[1])) for q in entered[0].questions)
    found = compare(*entered)
    assert found.problems == ()
    assert 0.2 < found.largest <= 1.0 + 1e-9


def test_observations_are_moved_into_their_domain_and_others_are_none():
    class Given:
        def __init__(self, observation: Any) -> None:
            self.observation = observation

        def reset(self, seed: int) -> Any:
            return self.observation

    def seen(observation: Any, depth: int | None = None) -> Any:
        return EnvironmentSession(Given(observation), 2, depth).reset(0)

    np.testing.assert_array_equal(seen([-3.0, 1e300]).unit, [0.0, 1.0])
    assert seen([-3.0, 1e300]).known
    np.testing.assert_array_equal(seen(jnp.array([0.25, 2.0])).unit, [0.25, 1.0])
    for none in ([0.5], [0.5, np.nan], [np.inf, 0.5], None, "x", [10**400, 0.5], {}, [[0.5], [0.5, 0.5]]):
        found = seen(none)
        assert (found.known, found.unit.tolist()) == (False, [0.0, 0.0])
    # declared to lie on a grid, and does not
    assert seen([0.25, 0.5], depth=2).known
    assert not seen([0.25, 0.4], depth=2).known
    kept = np.array([0.5, 0.5])
    first = seen(kept)
    kept[:] = 0.0  # an environment that writes into the same array
    np.testing.assert_array_equal(first.unit, [0.5, 0.5])


def test_a_reward_is_a_number_or_none():
    for value in (0.25, np.float32(0.25), jnp.float64(0.25), np.array(0.25), Fraction(1, 4)):
        assert reward_as_float(value) == 0.25
    assert reward_as_float(True) == reward_as_float(np.int8(1)) == reward_as_float(jnp.bool_(True)) == 1.0
    assert reward_as_float(np.inf) == math.inf
    for value in ("0.25", b"1", None, 10**400, [0.25], np.array([0.25]), 1j, {}, math.nan, Decimal("0.25"), object()):
        assert math.isnan(reward_as_float(value))


def test_rewards_of_a_public_model_are_numbers_or_none():
    class Table:
        def reward(self, points: Any, action: Any) -> Any:
            if action == 1:
                raise ValueError
            return [points[:, 0], None, 0.5, np.zeros((3, 3)), points][int(action)]

    found = rewards_at(Table(), np.array([[0.0], [0.5], [1.0]]), 5)
    nothing = [math.nan] * 3
    np.testing.assert_array_equal(found, [[0.0, 0.5, 1.0], nothing, [0.5] * 3, nothing, nothing])


def test_nothing_is_raised_but_an_interruption():
    def fails(error: BaseException) -> Any:
        raise error

    for error in (ValueError(1), SystemExit(1), GeneratorExit(), BaseException("x"), RecursionError()):
        assert quietly(lambda error=error: fails(error), 7) == 7
    with pytest.raises(KeyboardInterrupt):
        quietly(lambda: fails(KeyboardInterrupt("x")), 7)


def test_the_cache_on_disk_is_back_when_the_last_release_has_ended():
    def least() -> float:
        return getattr(jax.config, "jax_persistent_cache_min_compile_time_secs")  # noqa: B009

    before, inside, leave = least(), threading.Event(), threading.Event()

    def other() -> None:
        with nothing_compiled_on_disk():
            inside.set()
            leave.wait(10.0)

    thread = threading.Thread(target=other)
    with nothing_compiled_on_disk():
        thread.start()
        assert inside.wait(10.0)
    assert least() > 1e9  # of the other one
    leave.set()
    thread.join()
    assert least() == before
