"""Releases under a learned protector: what is drawn is what is charged, whatever the protector asks for.

The protectors have random weights: whether they are any good is of no matter to privacy.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import chi2

from dprl.accounting import events, renyi_filter
from dprl.accounting.renyi_filter import WHOLE
from dprl.audits.attacks.programs import canary_of_plan
from dprl.audits.conformance.evaluation import EvaluationConformance
from dprl.audits.lower_bound import run_attack
from dprl.audits.record_replay import Call, ReleaseTrace, record_replay
from dprl.engine.algorithm import Setting
from dprl.engine.plan import Plan
from dprl.evaluation.gpope import ALGORITHM, GPOPE
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.protectors.projector import Architecture, HandSchedule
from dprl.protocols import Attack
from dprl.release import evaluate as front
from tests.protectors.small import new_protector

from . import cases
from .cases import emitted, log_of, released, same_event, without
from .nearness import check_likelihood_ratio, claiming, nearness
from .walks import arrays_of, compute, mechanisms_of
from .walks import walks as walks_of

HAND = HandSchedule(steps=8, sampling_rate=0.5, clip_norm=0.2, step_sizes=(0.4, 0.4), tail=0.5)
NOISE: Any = SecureNoise(bytes(32))
STAGE = "/value function"


def saved(folder, scheduler: str, hand: HandSchedule = HAND, *, least_noise: bool = False, **architecture: Any) -> str:
    """A protector with random weights; ``least_noise``: it asks for as little as it can, in every step."""
    made = Architecture(hidden=3, layers=1, scheduler=scheduler, **architecture)  # type: ignore[arg-type]
    protector = new_protector(made, hand, algorithm="gpope", provenance={"public": True, "tasks": "none"})
    rng = np.random.default_rng(1)
    weights = {name: 0.5 * rng.normal(size=array.shape) for name, array in protector.weights.items()}
    if scheduler == "public":  # three levels: every one takes time to calibrate
        weights["profile"] = np.repeat([0.4, 0.0, -0.4], [3, 3, 2])
    if scheduler == "adaptive":
        # so that what is released decides
        weights["scheduler.out.w"], weights["scheduler.out.b"] = (
            (np.zeros((1, 3)), np.full(1, -100.0)) if least_noise else (rng.normal(size=(1, 3)) * 8.0, np.zeros(1))
        )
    return str(dataclasses.replace(protector, weights=weights).save(folder))


@dataclasses.dataclass(frozen=True)
class Suite(EvaluationConformance):
    """GPOPE under protectors; ``hostile`` makes another program of a plan's."""

    hostile: Callable[[Any], Any] = dataclasses.field(default=lambda program: program)

    def plan(self, setting: str) -> Plan:
        plan = super().plan(setting)
        return dataclasses.replace(plan, program=self.hostile(plan.program))

    def releasing(self, setting: str, log: Any, *more: Any, **options: Any) -> Call:
        call = super().releasing(setting, log, *more, **options)

        def planned(seed: int) -> Any:
            with patch.object(front, "make_plan", lambda *given, **asked: self.plan(setting)):
                return call(seed)

        return planned


def suite_of(folder: str, **more: Any) -> Suite:
    config = GPOPE(discount=0.9, optimizer=folder, value_budget_fraction=0.3)
    return Suite(dataclasses.replace(ALGORITHM, settings={"it": Setting(config)}), **more)


def walks(suite: Suite, units: int = 6) -> Any:
    """Walks of one length, numbered from 0, so that little is compiled."""
    columns = walks_of(suite, 20 * units, 4)
    ids = columns["episode_id"]
    kept = np.flatnonzero(np.bincount(ids) == suite.bounds.horizon)[:units]
    rows = np.isin(ids, kept)
    return {n: np.searchsorted(kept, v[rows]) if n == "episode_id" else v[rows] for n, v in columns.items()}


def recorded(suite: Suite, columns: Any, noise: Any = NOISE) -> ReleaseTrace:
    return cases.recorded(suite, "it", columns, noise)


def compared(suite: Suite, first: Any, second: Any, **how: Any) -> Any:
    return record_replay(*(released(suite, "it", columns) for columns in (first, second)), noise=NOISE, **how)


def divergence(order: int, rate: float, std: float) -> float:
    """Of a Poisson-sampled Gaussian of shift one: the binomial sum (Mironov, Talwar and Zhang 2019, Section 3.3)."""
    terms = [
        math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        + k * math.log(rate) + (order - k) * math.log1p(-rate) + k * (k - 1) / (2.0 * std**2)
        for k in range(order + 1)
    ]  # fmt: skip
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def spent(suite: Suite, calls: list[tuple[Any, ...]]) -> tuple[int, float]:
    """Steps that were drawn, and what all that the noise source was asked for costs, over what the plan may spend.

    From the calls alone, by a formula of its own: order-alpha divergences of the joint release of sum and norm.
    """
    plan = suite.plan("it")
    event: Any = plan.event
    mechanism: Any = plan.stages[0].mechanism
    point = grid_step(mechanism.clip_norm) / mechanism.clip_norm
    draws = [c for c in calls if c[:2] == (STAGE, "gaussian")]
    norms = [c for c in calls if c[:2] == (f"{STAGE}/norm", "gaussian")]
    coins = [c for c in calls if c[:2] == (STAGE, "coins")]
    steps = list(range(len(draws)))
    assert [c[2] for c in draws] == [c[2] for c in norms] == [c[2] for c in coins] == steps
    (value,) = [c for c in calls if c[:2] == ("/value", "gaussian")]
    multiplier = value[-1] * grid_step(plan.value_mechanism.clip_norm) / plan.value_mechanism.clip_norm
    total = event.order / (2.0 * multiplier**2)
    for draw, norm, coin in zip(draws, norms, coins, strict=True):
        squared = (draw[-1] * point) ** -2 + (norm[-1] * point / (1.0 + renyi_filter.NORM_ROUNDING)) ** -2
        total += divergence(event.order, coin[-1], squared**-0.5)
    return len(draws), total / event.rdp


@pytest.fixture(scope="module")
def adaptive(tmp_path_factory):
    return suite_of(saved(tmp_path_factory.mktemp("adaptive"), "adaptive"))


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    return suite_of(saved(tmp_path_factory.mktemp("public"), "public"))


# --- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_public_schedule_is_charged_level_by_level(public):
    tape = recorded(public, walks(public))
    declared = public.plan("it").event
    assert declared == events.compose([m.event() for m in mechanisms_of(public, "it").values()])
    assert same_event(declared, emitted(public, "it", tape.calls))
    levels = {round(c[-1]) for c in tape.calls if c[:2] == (STAGE, "gaussian")}
    assert len(levels) == len(mechanisms_of(public, "it")["value function"].noise_levels) == 3


def test_adaptive_noise_is_charged_as_it_is_drawn(adaptive):
    tape = recorded(adaptive, walks(adaptive))
    steps, share = spent(adaptive, tape.calls)
    assert 1 < steps <= HAND.steps
    assert 0.5 < share <= 1.0
    levels = [entry.level for entry in tape.entries[1]]
    assert len(set(levels)) > 1
    # the noise that was asked for is that of the levels
    mechanism: Any = tape.mechanisms[1]
    draws = [c[-1] for c in tape.calls if c[:2] == (STAGE, "gaussian")]
    np.testing.assert_allclose(draws, [mechanism.on_grid(mechanism.levels[level]) for level in levels])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["public", "adaptive"])
def test_neighbours_move_nothing_else(kind, request):
    """Along the same releases: not a level, not the number of steps, no sum and no norm by more than they may."""
    suite = request.getfixturevalue(kind)
    full, largest = walks(suite), 0.0
    broken = {
        name: np.where(full["episode_id"] == 0, np.nan, values) if name == "reward" else values
        for name, values in full.items()
    }
    for columns, more in (
        (without(full, 5), {}), (without(full, 3), {"missing": 3}), (broken, {}),
    ):  # fmt: skip
        found = compared(suite, full, columns, **more)
        assert found.problems == ()
        largest = max(largest, found.largest)
    assert 0.0 < largest <= 1.0


def norms_of_nobody(suite: Suite, seeds: int = 40) -> np.ndarray:
    """Released norms of an empty log over their declared noise."""
    nobody, found = {n: v[:0] for n, v in walks_of(suite, 2, 0).items()}, []
    for seed in range(seeds):
        tape = recorded(suite, nobody, SecureNoise(seed.to_bytes(32, "big")))
        mechanism: Any = tape.mechanisms[1]
        std = mechanism.norm_multiplier * mechanism.clip_norm
        found += [entry.released[-1] / std for entry in tape.entries[1]]
    return np.array(found)


def standard(numbers: np.ndarray) -> bool:
    low, high = chi2.ppf([1e-6, 1.0 - 1e-6], numbers.size)
    return bool(low <= np.sum(numbers**2) <= high)


@pytest.mark.slow
def test_the_norm_has_its_noise(adaptive):
    found = norms_of_nobody(adaptive)
    assert found.size > 100
    assert standard(found)
    assert not standard(found * 1.5)
    assert not standard(found / 1.5)


# --- protectors that want more than there is ------------------------------------------------------------------------


class Hostile:
    """A program whose proposals are what ``level(step)`` says."""

    def __init__(self, inner: Any, level: Callable[[Any], Any]) -> None:
        self.inner, self.wanted = inner, level

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def level(self, stage: int, state: Any, step: Any) -> Any:
        del stage, state
        return self.wanted(step)


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "the least noise": lambda step: 0 * step,
    "the least noise at the end": lambda step: np.int32(30) * (step < 3),
    "no level at all": lambda step: np.int32(2**31 - 1) + 0 * step.astype(np.int32),
    "a negative one": lambda step: 0 * step.astype(np.int32) - 5,
    "not a number": lambda step: np.float32("nan") * step,
}


@pytest.mark.parametrize(
    "wanted", [pytest.param(w, marks=[pytest.mark.slow] * (w != "the least noise")) for w in HOSTILE]
)
def test_a_protector_that_overspends_is_stopped(adaptive, wanted):
    suite = dataclasses.replace(adaptive, hostile=lambda program: Hostile(program, HOSTILE[wanted]))
    tape = recorded(suite, walks(suite))
    steps, share = spent(suite, tape.calls)
    mechanism: Any = mechanisms_of(suite, "it")["value function"]
    assert share <= 1.0
    if wanted == "the least noise":
        assert steps == WHOLE // mechanism.costs[0] < HAND.steps
    if wanted in ("no level at all", "a negative one"):
        assert steps == 0
    assert np.isfinite(tape.results["theta"]).all()


@pytest.mark.slow
def test_greed_in_the_weights_is_stopped(tmp_path):
    """The same by a protector as it is carried in files."""
    suite = suite_of(saved(tmp_path, "adaptive", least_noise=True, least=0.1))
    tape = recorded(suite, walks(suite))
    steps, share = spent(suite, tape.calls)
    assert {entry.level for entry in tape.entries.get(1, [])} == ({0} if steps else set())
    assert steps < HAND.steps
    assert share <= 1.0


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_filter_that_looks_after_the_draw_is_caught(adaptive, monkeypatch):
    def admit(self: Any, spent: Any, level: Any) -> tuple[Any, Any]:
        return spent < WHOLE, spent + self.costs[int(level)]

    greedy = dataclasses.replace(adaptive, hostile=lambda program: Hostile(program, lambda step: 0 * step))
    full = walks(greedy)
    assert compared(greedy, full, without(full, 3), missing=3).problems == ()
    monkeypatch.setattr(FilteredGaussianSum, "admit", admit)
    assert spent(greedy, recorded(greedy, full).calls)[1] > 1.0
    found = compared(greedy, full, without(full, 3), missing=3)
    assert "the releases cost more than the filter's budget" in found.problems


@pytest.mark.slow
def test_a_norm_that_is_not_charged_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(renyi_filter, "effective_multiplier", lambda noise, norm: noise)
    greedy = suite_of(
        saved(tmp_path, "adaptive", norm=1.0), hostile=lambda program: Hostile(program, lambda step: 0 * step + 12)
    )
    try:
        assert spent(greedy, recorded(greedy, walks(greedy)).calls)[1] > 1.2
    finally:
        renyi_filter.integer_costs.cache_clear()


@pytest.mark.slow
def test_the_square_of_the_norm_is_caught(adaptive, monkeypatch):
    """Its sensitivity grows with the sum: what the paper prints for it is that of removing a unit from few others."""
    plain = FilteredGaussianSum.answer

    def squared(self: Any, total: Any) -> Any:
        found = plain(self, total)
        norm = found[-1] * grid_step(self.clip_norm)
        return found.at[-1].set((norm * norm / self.clip_norm / grid_step(self.clip_norm)).astype(found.dtype))

    monkeypatch.setattr(FilteredGaussianSum, "answer", squared)
    full = walks(adaptive, 40)
    found = compared(adaptive, full, without(full, 39))
    assert found.largest > 1.0
    assert any("more than the sensitivity" in problem for problem in found.problems)


@pytest.mark.slow
def test_a_level_that_the_event_forgets_is_caught(tmp_path, monkeypatch):
    whole = GaussianSum.event

    def event(self: Any) -> Any:
        if self.multipliers is None:
            return whole(self)
        levels = self.noise_levels[:-1]
        return events.compose([events.poisson_gaussian(self.sampling_rate, z, count) for z, count in levels])

    monkeypatch.setattr(GaussianSum, "event", event)
    suite = suite_of(saved(tmp_path, "public"))
    tape = recorded(suite, walks(suite))
    assert not same_event(suite.plan("it").event, emitted(suite, "it", tape.calls))


@pytest.mark.slow
def test_a_level_that_depends_on_the_data_is_caught(adaptive):
    class Peeking(Suite):
        def releasing(self, setting: str, log: Any, *more: Any, **options: Any) -> Call:
            seen = int(log.load().units % 2)
            suite = dataclasses.replace(
                adaptive, hostile=lambda program: Hostile(program, lambda step: 0 * step + 12 + seen)
            )
            return suite.releasing(setting, log, *more, **options)

    peeking = Peeking(adaptive.algorithm)
    full = walks(peeking)
    found = compared(peeking, full, without(full, 5))
    assert "the coins or draws that were asked for differ" in found.problems


@pytest.mark.slow
def test_a_norm_without_noise_is_caught(adaptive, monkeypatch):
    """The levels would follow private data: of nobody the released norms are all the same."""

    def add_noise(self: Any, total: Any, draw: Any) -> Any:
        return self.answer(total) + draw.at[-1].set(0)

    monkeypatch.setattr(FilteredGaussianSum, "add_noise", add_noise)
    assert not standard(norms_of_nobody(adaptive, 5))


# --- attacks --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["public", "adaptive"])
def test_the_score_is_the_likelihood_ratio(kind, request):
    """Of sums and norms, at the noise that each was drawn with: its exponential has mean one without the canary."""
    pair = canary_of_plan(request.getfixturevalue(kind).plan("it"))
    check_likelihood_ratio(pair, 0.002)
    assert nearness(pair, 16) > 0.999


@pytest.mark.slow
@pytest.mark.parametrize(("scheduler", "rate"), [("public", 0.1), ("adaptive", 0.1), ("the least noise", 0.5)])
def test_protected_releases_are_attacked(scheduler, rate, tmp_path):
    """All that is released is seen, norms too; and the same with a budget of eight is caught at the claim of one."""
    # by the least noise there are few steps, which small batches would hide
    hand = dataclasses.replace(HAND, steps=20, sampling_rate=rate)
    folder = saved(tmp_path, scheduler.replace("the least noise", "adaptive"), hand, least_noise=" " in scheduler)
    suite = suite_of(folder)

    def pair(epsilon: float) -> Any:
        return suite.canary(Attack(epsilon=epsilon, options={"optimizer": folder, "value_budget_fraction": 0.05}))

    sound = pair(1.0)
    assert sound.plan.stages[0].mechanism.steps == 20
    result = run_attack(sound, trials=13_000, seed=1, confidence=1.0 - 1e-3)
    assert not result.violated
    assert result.epsilon_lower > 0.02

    overspent = claiming(pair(8.0), sound.plan.budget)
    assert run_attack(overspent, trials=13_000, seed=2, confidence=1.0 - 1e-3).violated


@pytest.mark.slow
def test_the_compiled_form_is_the_form_of_a_release(adaptive, public):
    import jax

    for suite in (adaptive, public):
        noise, arrays = SeededNoise.from_seed(5), arrays_of(suite, "it", log_of(suite, "it", walks(suite)).load())
        tape = recorded(suite, walks(suite), noise)
        value, theta = jax.jit(lambda key, s=suite, a=arrays: compute(s, "it", key, a))(noise.key)
        np.testing.assert_allclose(value, tape.entries[0][0].released, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(theta, tape.results["theta"], rtol=2e-4, atol=2e-5)
