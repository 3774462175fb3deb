"""Private rewards are arguments: a release is made of its own, keeps none and says none."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dprl
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import RewardRelation
from dprl.environments.interval_walk import IntervalWalk
from dprl.environments.learning_source import open_environment
from dprl.learning.functional_q import relation, resolve
from dprl.protocols import EnvironmentSpec
from dprl.release.train import train

from ..compilation_cache import on_disk, persistent_cache

BUDGET = dprl.Budget(0.9, 1e-4)
TINY = {"samples": 20, "round": 10, "batch": 4, "network": "mlp:4", "reward_radius": 1e-6}
SMOOTH = {**TINY, "variant": "functional", "reward_lipschitz": 4e-6, "reward_of": "state"}
SECRET = 0.123456789


@dataclass(frozen=True, kw_only=True)
class Priced(IntervalWalk):
    """A walk that is paid by a table. Equality does not look at the table."""

    table: Any = field(default=None, compare=False)

    def reward(self, state: Any, action: Any) -> Any:
        del action
        return jnp.asarray(self.table)[jnp.asarray(state[..., 0] * 3.999).astype(int)]


class AlsoPriced(Priced):
    """Another class, and so never equal."""


@dataclass(kw_only=True)
class Unhashable:
    """Has a table, equality and no hash, and is no walk."""

    table: np.ndarray
    walk: IntervalWalk = field(default_factory=IntervalWalk)
    observation_bounds: Any = ((0.0, 1.0),)

    @property
    def facts(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            name="unhashable", observation=((0.0, 1.0),), actions=2, horizon=50, discount=0.9, reward_bounds=(0.0, 0.5),
            on_grid=True,
        )  # fmt: skip

    def reset(self, key: Any) -> Any:
        return self.walk.reset(key)

    def observe(self, state: Any) -> Any:
        return state

    def step(self, key: Any, state: Any, action: Any) -> Any:
        following, _, over = self.walk.step(key, state, action)
        return following, self.table[int(state[0] * 3.999)], over


def learned(environment: Any, options: Any = TINY, **asked: Any) -> dprl.TrainedRelease:
    return train(environment, BUDGET, algorithm=dprl.FunctionalQ(**options), **asked)


def weights(release: dprl.TrainedRelease) -> bytes:
    return b"".join(w.tobytes() for _, w in sorted(release.q_function.weights.items()))


@pytest.mark.parametrize("options", [TINY, pytest.param(SMOOTH, marks=pytest.mark.slow)])
def test_a_second_release_is_made_of_its_own_rewards(options):
    """Environments that compare equal, one after the other; the oracle is one that equals neither."""
    tables = np.full(4, 0.1), np.full(4, 0.4)
    first, second = (Priced(table=table) for table in tables)
    assert first == second
    assert hash(first) == hash(second)
    of_first, of_second = (weights(learned(e, options, seed=1)) for e in (first, second))
    assert of_second == weights(learned(AlsoPriced(table=tables[1]), options, seed=1))
    assert of_first == weights(learned(AlsoPriced(table=tables[0]), options, seed=1))
    assert of_first != of_second
    # one environment, into which another table is put
    object.__setattr__(first, "table", tables[1])
    assert weights(learned(first, options, seed=1)) == of_second


def test_an_environment_without_a_hash_is_served():
    one, two = (learned(Unhashable(table=np.full(4, paid)), seed=1) for paid in (0.1, 0.4))
    assert weights(one) != weights(two)


def test_no_table_lies_in_the_compilation_cache(tmp_path):
    """Not even one of which the environment compiles a function by itself; what is compiled elsewhere is kept."""
    table = np.arange(4) / 7.0 + SECRET

    class Compiled(Unhashable):
        __hash__ = object.__hash__

        def step(self, key: Any, state: Any, action: Any) -> Any:
            paid = jax.jit(lambda x: jnp.asarray(table)[(x[0] * 3.999).astype(int)])(state)
            return self.walk.step(key, state, action)[0], paid, False

    with persistent_cache(tmp_path):
        for environment in (Priced(table=table), Compiled(table=table)):
            learned(environment)
            assert table.tobytes() not in on_disk(tmp_path)
        jax.jit(lambda x: jnp.asarray(table)[x])(2)
        assert table.tobytes() in on_disk(tmp_path)


@pytest.mark.slow
def test_a_simulator_of_people_is_compiled_for_one_release(tmp_path):
    """The same of policies: somebody's simulator may have tables of people in it."""
    tables = np.arange(4) / 7.0 + SECRET, 0.5 - np.arange(4) / 9.0
    options = dprl.DPPG(users=8, batch=4, policy="softmax")

    def iterate(environment: Any) -> bytes:
        return np.asarray(train(environment, BUDGET, algorithm=options, seed=1).policy.theta).tobytes()

    with persistent_cache(tmp_path):
        one, other = (iterate(Priced(table=table, horizon=4)) for table in tables)
        assert other == iterate(AlsoPriced(table=tables[1], horizon=4)) != one
        assert not any(table.tobytes() in on_disk(tmp_path) for table in tables)


class Panic(BaseException):
    """As other languages' exceptions arrive."""


ANSWERS = [
    f"{SECRET}", 10**400, np.full(3, SECRET), None, math.nan, [SECRET], {"paid": SECRET}, Panic(SECRET),
    ValueError(SECRET), SystemExit(SECRET), np.full(1, SECRET), complex(SECRET),
]  # fmt: skip


class Odd:
    """Outside of JAX, with answers that are none. ``at`` says what fails: a reward, an observation, or both calls."""

    facts = EnvironmentSpec(
        name="odd", observation=((0.0, 1.0),), actions=2, horizon=5, discount=0.9, reward_bounds=(0.0, 1.0)
    )

    def __init__(self, answers: list[Any], at: str = "reward") -> None:
        self.answers, self.at, self.time = answers, at, 0

    def _next(self) -> Any:
        self.time += 1
        answer = self.answers[self.time % len(self.answers)]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def reset(self, seed: int) -> Any:
        del seed
        return self._next() if self.at == "observation" else np.full(1, 0.5)

    def step(self, action: int) -> Any:
        if self.at == "reward":
            return np.full(1, 0.25), self._next(), False, self.time % 5 == 0
        if self.at == "observation":
            return self._next(), 0.5, False, self.time % 5 == 0
        return self._next()


@pytest.mark.parametrize("at", ["reward", "observation", "step"])
def test_whatever_an_environment_answers_or_raises_is_never_said(at, tmp_path, capfd, caplog):
    """The release goes on, for whether it does would say something too."""
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    words = RewardRelation(1e-6).words()
    ledger = Ledger.create(tmp_path / "l.db", "odd", dprl.Budget(1.0, 1e-3), "reward function", words)
    release = learned(Odd(ANSWERS, at), ledger=ledger, dataset="odd")
    release.save(tmp_path / "q")
    assert len(ledger.history()) == 1
    said = "".join(
        [*capfd.readouterr(), caplog.text, *(p.read_text(errors="replace") for p in (tmp_path / "q").iterdir())]
    )
    assert "1234567" not in said
    assert np.isfinite(release.q_function(np.zeros(1))).all()


def test_only_an_interruption_passes_and_without_its_words():
    with pytest.raises(KeyboardInterrupt) as caught:
        learned(Odd([KeyboardInterrupt(SECRET)]))
    error = caught.value
    assert error.args == ()
    assert error.__context__ is None
    assert error.__cause__ is None


class Secretive:
    """Its public facts cannot be read without an exception that quotes it."""

    @property
    def facts(self) -> EnvironmentSpec:
        raise ValueError(SECRET)


class NoMatrix(IntervalWalk):
    def transition_matrix(self, points: Any) -> Any:
        raise ValueError(SECRET)


class Inherits(IntervalWalk):
    """Says of its rewards what the walk says of its own."""


def wrapped() -> Any:
    @dataclass(frozen=True)
    class Wrapped:
        inner: IntervalWalk

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    return Wrapped(IntervalWalk())


PATH = {"variant": "functional", "reward_radius": 0.01, "reward_lipschitz": 0.04}
REFUSED = [
    (Secretive(), {"reward_radius": 0.1}, "environment must be"),
    (NoMatrix(), {"variant": "output", "reward_radius": 0.1, "reward_lipschitz": 0.1}, "the model must be 2 matrices"),
    (Odd([0.0]), PATH, "not of the next state, chance or time.*or use observed-reward"),
    (Unhashable(table=np.zeros(4)), PATH, "not of the next state"),
    (Inherits(), PATH, "not of the next state"),
    (wrapped(), PATH, "not of the next state"),
    (Inherits(), {"variant": "functional", "reward_radius": 0.01, "reward_of": "state"}, "needs reward_lipschitz"),
    (Odd([0.0]), {**PATH, "shared_path": True, "reward_of": "state-action"}, "leave one out"),
    (Odd([0.0]), {"reward_radius": 0.01, "reward_of": "state"}, "variant functional alone"),
    (Inherits(), {"calibration": "as-published"}, "interval-walk alone"),
]


@pytest.mark.parametrize(("environment", "options", "message"), REFUSED)
def test_what_has_no_proof_is_refused_before_the_charge(environment, options, message, tmp_path):
    ledger = Ledger.create(tmp_path / "l.db", "x", BUDGET, "reward function", RewardRelation(0.01).words())
    with pytest.raises(dprl.DprlError, match=message) as caught:
        learned(environment, options, ledger=ledger, dataset="x")
    assert ledger.history() == []
    error: BaseException | None = caught.value
    while error is not None:
        assert "1234567" not in str(error)
        error = error.__context__


def test_gymnasium_declares_nothing_about_rewards():
    """On slippery ice one pays for where chance leads."""
    pytest.importorskip("gymnasium")
    lake = {"units": 1, "horizon": 20, "reward": [0.0, 1.0], "observation": [[0.0, 15.0]], "actions": 4}
    bounds = {**lake, "max_importance_ratio": 1.0}
    with pytest.raises(dprl.DprlError, match="not of the next state, chance or time"):
        learned("gymnasium:FrozenLake-v1", PATH, bounds=bounds)
    facts, _ = open_environment("gymnasium:FrozenLake-v1", bounds)
    declared = resolve(dprl.FunctionalQ(**{**SMOOTH, "reward_of": "state-action"}), facts)
    assert "of the state in which the action is taken and of the action" in relation(declared).words()
    assert declared.hyper_parameters()["reward_of"]["value"] == "state-action"


def test_a_ledger_keeps_the_words_of_its_day(tmp_path):
    """One that was declared before the words named the state is charged still, and by no other relation."""
    kept = RewardRelation(1e-6, 4e-6, of_state=True)
    assert "state in which the action is taken" in kept.words()
    ledger = Ledger.create(tmp_path / "l.db", "old", BUDGET, "reward function", kept.earlier_words())
    with pytest.raises(dprl.DprlError, match="relation"):
        learned(IntervalWalk(), {**SMOOTH, "shared_path": False}, ledger=ledger, dataset="old")
    release = learned(IntervalWalk(), {**SMOOTH, "variant": "functional"}, ledger=ledger, dataset="old")
    assert len(ledger.history()) == 1
    assert release.certificate["neighbouring_relation"] == kept.words()
