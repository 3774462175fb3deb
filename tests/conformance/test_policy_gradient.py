"""Private policy gradient: attacked, recorded and replayed on neighbouring sets of users, and complete."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from dprl.accounting.user_relation import CLIPS_MOVED
from dprl.audits.attacks import users as attacks
from dprl.audits.attacks.users import UsersAgainstCanary, canary_of_sums, exact_sums
from dprl.audits.conformance.users import NOBODY, UNITS, Users
from dprl.audits.lower_bound import run_attack
from dprl.audits.people import CELLS
from dprl.audits.record_replay import Comparison, RecordedRelease, ReleaseTrace, compare, record_replay
from dprl.engine import loop as engine
from dprl.engine import unit_source
from dprl.environments.bandit import Bandit
from dprl.environments.people import Interaction, UserStream
from dprl.learning.policy_gradient import people_sources, trainer
from dprl.learning.policy_gradient.people_sources import PeopleOnHost
from dprl.mechanisms import arithmetic
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.protocols import Attack
from dprl.registry import LEARNING

from ..mutations.lab import forget_compiled
from ..mutations.planting import Planting, gives

SUITE = LEARNING["dp-pg"].load_conformance()
ATTACKS = SUITE.algorithm.attacks
CONFIDENCE = 1.0 - 0.01 / (2 * len(ATTACKS))
TOO_FAR = "the sums of all rounds together differ by more than the noise allows"


def canary(attack: Attack) -> Any:
    return LEARNING["dp-pg"].load_canary(attack)


def named(attack: Attack) -> str:
    return str(dict(attack.options))


# --- attacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attack",
    [pytest.param(a, marks=[pytest.mark.slow] if i else [], id=named(a)) for i, a in enumerate(ATTACKS)],
)
def test_every_noise_is_attacked(attack):
    """It stays below its claim, and near it where scores are Gaussian."""
    tried = canary(attack)
    assert (tried.epsilon, tried.delta) == (1.0, 1e-6)
    result = run_attack(tried, trials=20_000, seed=1, confidence=CONFIDENCE)
    assert not result.violated
    if not tried.gaussian:
        return
    assert result.gaussian is not None
    assert result.gaussian.epsilon_lower > 0.75
    assert result.gaussian.mu_lower <= 1.0 / tried.plan.mechanism.noise_multiplier


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(a, marks=[pytest.mark.slow] if i else [], id=named(a))
        for i, a in enumerate(ATTACKS)
        if "sampling" not in a.options
    ],
)
def test_the_canary_moves_all_that_it_may(attack):
    """No other pair is further apart: the signal has the norm that the noise was made for."""
    mechanism = (tried := canary(attack)).plan.mechanism
    sums = [exact_sums(tried.plan, UsersAgainstCanary(tried.plan, there)) for there in (False, True)]
    signal = np.linalg.norm(mechanism.correlation.whitened((sums[1] - sums[0]) * mechanism.grid_step))
    # the vectors of a network are clipped a little more, see docs/proofs/ghost-clipping.md
    assert signal == pytest.approx(
        mechanism.noise_std / mechanism.noise_multiplier, rel=1e-6 if "policy" not in attack.options else 4e-3
    )
    assert signal <= mechanism.noise_std / mechanism.noise_multiplier
    # and what is seen of it is a likelihood ratio: mean plus and minus mu^2 / 2, variance mu^2
    mu2 = 1.0 / mechanism.noise_multiplier**2
    for there, mean in ((True, mu2 / 2.0), (False, -mu2 / 2.0)):
        scores = tried.scores(3, 4_000, there)
        assert abs(scores.mean() - mean) < 4.0 * np.sqrt(mu2 / 4_000)
        assert scores.var() == pytest.approx(mu2, rel=0.1)


def arriving(plan: Any, present: bool) -> UserStream:
    """The canary's pair as persons who arrive, the canary once more in the second batch."""
    context, action, reward = attacks.canary_answers(plan.facts)

    def answer(sign: float) -> Any:
        return lambda policy: Interaction(context, action, sign * reward)

    def nothing(policy: Any) -> None:
        return None

    own = answer(1.0) if present else nothing if plan.config.relation == "zero-out" else answer(-1.0)
    others = [(f"other {i}", answer(-1.0)) for i in range(plan.config.batch - 1)]
    return UserStream(plan.facts, [("canary", own), *others, ("canary", own)], named=True)


@pytest.mark.parametrize(
    "noise", ["square-root", *(pytest.param(n, marks=pytest.mark.slow) for n in ("independent", "banded:4"))]
)
def test_a_user_in_two_batches_is_caught(noise, monkeypatch):
    """A person who comes back moves nothing; forgotten by the stream, the audit says so."""
    options = {"noise": noise, "noise_multiplier": 4.4}
    plan = canary(Attack(epsilon=1.0, delta=1e-6, options=options)).plan

    def attacked() -> Any:
        sums = [exact_sums(plan, arriving(plan, there)) for there in (False, True)]
        moved = np.abs(sums[1] - sums[0]).max(axis=1)
        return int(np.count_nonzero(moved)), run_attack(
            canary_of_sums(plan, *sums, "comes back"), trials=20_000, seed=2
        )

    rounds, result = attacked()
    assert rounds == 1
    assert not result.violated
    monkeypatch.setattr(UserStream, "_first_visit", lambda self, arrival: arrival[1])
    rounds, result = attacked()
    assert rounds == 2
    assert result.violated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "value", "options"),
    [
        pytest.param(GaussianSum, "column_norm", property(lambda self: 1.0), {}, id="column norm left out"),
        pytest.param(CLIPS_MOVED, "replace one", 1.0, {"relation": "replace-one"}, id="relation left out"),
    ],
)
def test_noise_that_is_too_small_is_caught(owner, name, value, options, monkeypatch):
    (monkeypatch.setitem if isinstance(owner, dict) else monkeypatch.setattr)(owner, name, value)
    suite = replace(SUITE)  # whose plans are made anew
    attack = Attack(epsilon=1.0, delta=1e-6, options={**options, "step_size": 1.0})
    result = run_attack(suite.canary(attack), trials=20_000, seed=1)
    assert result.violated


# --- record and replay ----------------------------------------------------------------------------------------------


def compared(folder: Any, setting: str = "square root", cells: Any = NOBODY) -> Comparison:
    learner = Users(SUITE, setting, "arrays", folder)
    calls = (learner.trained_on(range(UNITS), 1, each) for each in (cells, CELLS["paid the most"]))
    return record_replay(*calls)


def test_what_is_no_neighbour_is_noticed():
    mechanism: Any = SUITE.plan("independent").mechanism
    unit = np.zeros(mechanism.dimension, np.int64)
    unit[0] = int(mechanism.clip_norm / mechanism.grid_step)

    def tape(*moved: int) -> ReleaseTrace:
        nothing = np.zeros(mechanism.dimension)
        entries = [RecordedRelease(tuple((times * unit).tolist()), nothing, nothing) for times in moved]
        return ReleaseTrace(entries={0: entries}, mechanisms=[mechanism])

    nobody = tape(0, 0, 0, 0, 0)
    assert compare(nobody, tape(0, 0, 1, 0, 0)) == Comparison((), pytest.approx(1.0), 5)
    twice = compare(nobody, tape(0, 1, 1, 0, 0))
    assert twice.problems == ("one user moves more than 1 of the sums", TOO_FAR)
    assert compare(nobody, tape(0, 2, 0, 0, 0)).problems == (TOO_FAR,)
    assert compare(tape(0, 0), tape(0, 0)).problems == ("the number of releases is not the declared number of steps",)


def twice(original: Any, size: int, included: Any) -> np.ndarray:
    """The first block of a batch is met again after the last."""
    blocks = original(size, included)
    return np.concatenate([blocks, blocks[:1]])


def centred(original: Any, self: Bandit, places: np.ndarray, act: Any) -> Any:
    """Rewards are less nine times the mean reward of the block."""
    rows = original(self, places, act)
    answered = np.arange(rows.rewards.shape[1]) < rows.length[:, None]
    return rows._replace(rewards=rows.rewards - 9.0 * rows.rewards[answered].mean(dtype=np.float32))


LEAKED: list[Any] = []


def leaking(original: Any, *given: Any) -> Any:
    """Note the exact sum of a batch."""
    LEAKED.append(original(*given))
    return LEAKED[-1]


def learned_from_leaks(original: Any, *given: Any) -> Any:
    """A step along the exact sum beside the one on the noisy one."""
    found = original(*given)
    return found._replace(theta=found.theta + np.float32(1e-12 * np.abs(LEAKED[-1]).sum()))


def unclipped(original: Any, vectors: Any, clip_norm: float, *step: Any) -> Any:
    return original(vectors, 1e3 * clip_norm, *step)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        pytest.param([], None, id="none"),
        pytest.param([(people_sources, "blocks_of", twice)], TOO_FAR, id="a user in two blocks"),
        pytest.param([(Bandit, "answers", centred)], TOO_FAR, id="baseline of the block"),
        pytest.param([(arithmetic, "clip_to_grid", unclipped)], TOO_FAR, id="clip left out"),
        pytest.param(
            [(PeopleOnHost, "total", leaking), (engine, "_advance", learned_from_leaks)],
            "the shapes of what is released differ",  # of policies as text
            id="a step on the exact sum",
        ),
        pytest.param([(GaussianSum, "column_norm", gives(1.0))], TOO_FAR, id="column norm"),
    ],
)
def test_faults_are_caught_at_the_door(faults, words, tmp_path):
    """People of a log who are met in blocks: what a mistake there would do is seen at the mechanisms' doors."""
    planting, compiled = Planting(), (unit_source, people_sources, trainer)
    for owner, name, fault in faults:
        planting.replace(owner, name, lambda original, fault=fault: partial(fault, original))
    forget_compiled(*compiled)  # it has no fault in it
    try:
        found = compared(tmp_path)
    finally:
        planting.undo()
        forget_compiled(*compiled)
    assert (found.problems == ()) == (words is None)
    assert words is None or words in found.problems


def test_a_relation_half_as_strong_is_caught_by_replay(monkeypatch, tmp_path):
    least = CELLS["paid the least"]
    assert 0.5 < compared(tmp_path, "replace one", least).largest <= 1.0
    monkeypatch.setitem(CLIPS_MOVED, "replace one", 1.0)
    assert compared(tmp_path, "replace one", least).largest > 1.0
