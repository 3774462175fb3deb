"""Calibrations as published: found by their name, caught by their attacks, and never behind a certificate."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.conformance.test_neighbours import HUGE, NAN, SECURE, SEEDED, compare
from tests.conformance.test_neighbours import replace as replaced
from tests.conformance.walks import walks
from tests.evaluation.test_gpope import chain, program_of
from tests.sample_log import BOUNDS

import dprl
from dprl import entry_points
from dprl.accounting.budget import Budget
from dprl.audits.lower_bound import run_attack
from dprl.engine import loop
from dprl.engine.layouts import padded_units
from dprl.errors import DprlError
from dprl.evaluation.gpope import GPOPE, unit_gradients
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.protocols import Attack
from dprl.registry import AUDITED, find_audited, in_every_calibration, is_own
from dprl_papers.one_unit import OneUnit
from dprl_papers.paper_004_gpope.published import noise_multiplier, precondition_holds
from dprl_papers.registered import AS_PUBLISHED

EPSILON, DELTA = 1.0, 1e-5
LOGS = [name for name, entry in AS_PUBLISHED.items() if entry.unit == "unit of the log"]


def canary(name: str, *, epsilon: float = EPSILON, released: str = "all"):
    """Of the first standard attack, with these changes."""
    entry = AS_PUBLISHED[name]
    return entry.load_canary(replace(entry.load().attacks[0], epsilon=epsilon, released=released))


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_they_are_found_by_their_name_and_are_none_of_dprls(name):
    entry = find_audited(name, "as-published")
    assert entry is AS_PUBLISHED[name] in in_every_calibration()
    kind, own = entry.load_config(), AUDITED[name].load_config()
    assert issubclass(kind, own)
    asked = own(calibration="as-published", provenance={"calibration": "public: the paper"})
    found = entry_points.config_in_calibration(asked)
    assert type(found) is kind
    assert found.hyper_parameters() == asked.hyper_parameters() | {}
    assert entry_points.config_in_calibration(found) is found
    assert entry_points.config_in_calibration(own()) == own()
    assert not is_own(found)


def test_without_the_distribution_it_is_one_sentence(monkeypatch):
    monkeypatch.setattr(entry_points.metadata, "entry_points", lambda **_: ())
    with pytest.raises(DprlError, match="needs the distribution dprl-papers"):
        make_plan(dprl.GPOPE(calibration="as-published"), BOUNDS, Budget(1.0, 1e-5), ["uniform"])


def test_published_calibration_is_theorem_1():
    assert noise_multiplier(200, 200, 1.0, 1e-5) == pytest.approx(2 * np.sqrt(200 * np.log(1e5)) / 200)


def test_published_form_takes_one_trajectory_a_step(monkeypatch):
    """The vector of no other trajectory is computed."""
    _, rows = chain(20, 4)
    algorithm = program_of(GPOPE(steps=25, step_size=0.1), 20)
    mechanism = OneUnit(parts=((78, math.inf),), sampling_rate=1 / 20, steps=25, arithmetic="plain")
    data = padded_units(rows)
    noise = SeededNoise.from_seed(3)
    state = algorithm.start_at(jnp.ones(39))
    gradients = np.asarray(unit_gradients(state.theta, state.w, data.block(slice(None))))
    sizes, clipped_sum = [], loop.clipped_sum
    monkeypatch.setattr(loop, "clipped_sum", lambda *given: sizes.append(len(given[-1])) or clipped_sum(*given))
    total = jax.jit(lambda step: loop._batch_total(algorithm, 0, mechanism, noise, data, state, step, batch=3))
    for step in range(5):
        np.testing.assert_allclose(total(jnp.uint32(step)), gradients[int(noise.uniform_index(step, 20))], atol=1e-12)
    assert sizes == [1]
    counts = np.bincount(jax.jit(jax.vmap(lambda s: noise.uniform_index(s, 4)))(jnp.arange(400)), minlength=4)
    secure = SecureNoise.fresh()
    also = np.bincount([secure.uniform_index(s, 4) for s in range(400)], minlength=4)
    for found in (counts, also):
        assert ((found - 100) ** 2 / 100).sum() < 25  # chi-square with 3 degrees of freedom, p < 2e-5


def test_gpope_as_published_is_caught():
    """Claimed (1, 1e-5) with the noise of Theorem 1; all iterates are seen. 4e5 trials an arm give more than 8."""
    result = run_attack(canary("gpope"), trials=13_000, seed=3)
    assert result.claimed_epsilon == 1.0
    assert result.epsilon_lower > 4.0
    assert result.violated
    assert result.gaussian is None
    # N = m = 200 at epsilon 1: neither of the proof's conditions holds (docs/papers/004.md, E5)
    assert [condition.holds for condition in result.preconditions] == [False, False]
    assert "sigma is 0.4799" in result.preconditions[0].statement


@pytest.mark.slow
def test_dptd_as_published_is_caught_and_verified_is_not():
    """n = 10,000, T = 1,000, claimed (1, 1e-5): the initial gradient alone costs more than 300. One of n is drawn."""
    pair = canary("dptd")
    assert pair.plan.steps == 1001
    result = run_attack(pair, trials=200_000, seed=3)
    assert result.claimed_epsilon == 1.0
    assert result.epsilon_lower > 3.0
    assert result.violated
    assert [condition.holds for condition in result.preconditions] == [False, False, False]
    assert "the first 17 noisy gradients" in result.description
    alike = Attack(units=10_000, options={"steps": 1001, "sampling_rate": 1e-4, "value_budget_fraction": 0.05})
    verified = run_attack(find_audited("dptd").load_canary(alike), trials=20_000, seed=3)
    assert not verified.violated
    # where no release finds a record, the first hundred are looked at, and nothing is found
    weak = AS_PUBLISHED["dptd"].load_canary(Attack(units=1000, options={"steps": 100_001}))
    assert "the first 100 noisy gradients" in weak.description
    assert not run_attack(weak, trials=4_000, seed=3).violated


@pytest.mark.slow
def test_the_pair_of_dptd_keeps_to_what_theorem_5_1_assumes():
    """Every gradient has norm G, wherever theta and w are in their boxes, and none is clipped."""
    pair = canary("dptd", epsilon=1.0)
    block = pair._data(True).block(slice(9_998, None))
    program, clip = pair.plan.program, pair.plan.stages[0].mechanism.clip_norm
    state, vectors_of = program.init(), jax.jit(partial(program.contribution, 0))
    for theta, w in itertools.product((-1.0, 0.3, 1.0), repeat=2):
        there = state._replace(theta=np.full_like(state.theta, theta), w=np.full_like(state.w, w), step=np.int32(0))
        first, second = np.asarray(vectors_of(there, block))
        for vector, sign in ((first, -1.0), (second, 1.0)):
            np.testing.assert_allclose(vector, [0.0, sign * clip], atol=1e-6)


@pytest.mark.parametrize(
    ("units", "epsilon", "holds"), [(200, 0.1, [True, False]), (31, 1.0, [True, False]), (32, 1.0, [False, False])]
)
def test_preconditions_of_theorem_1_are_computed(units, epsilon, holds):
    """Of m = N at delta = 1e-5, sigma >= 1.201 means sqrt(m) epsilon <= 5.65: at epsilon 1 at most 31 trajectories."""
    conformance = AS_PUBLISHED["gpope"].load_conformance()
    pair = conformance.canary(Attack(units=units, epsilon=epsilon, options={"steps": units}))
    assert [condition.holds for condition in pair.preconditions] == holds


@pytest.mark.slow
def test_the_last_iterate_tells_something_but_less_than_all_of_them():
    everything, last = (
        run_attack(canary("gpope", released=released), trials=100_000, seed=5).epsilon_lower
        for released in ("all", "last")
    )
    assert 2.0 < last < everything


@pytest.mark.slow
@pytest.mark.parametrize(("released", "found"), [("all", 7.5), ("last", 3.5)])
def test_gpope_as_published_at_length(released, found):
    """m = N = 200, claimed (1, 1e-5): all iterates are seen, or the last one at a wall that forgets the others."""
    result = run_attack(canary("gpope", released=released), trials=400_000, seed=6)
    assert result.epsilon_lower > found


@pytest.mark.slow
def test_algorithm_1_as_published_at_length():
    """Figure 2(a): 5,000 samples, sigma 0.32, claimed (0.9, 1e-4)."""
    (attack,) = AS_PUBLISHED["functional-q"].load().attacks
    assert attack.options == {"published_std": 0.32, "samples": 640}
    attack = replace(attack, options={"published_std": 0.32, "samples": 5000})
    result = run_attack(AS_PUBLISHED["functional-q"].load_canary(attack), trials=400, seed=2)
    assert result.epsilon_lower > 4.0
    assert "78 rounds of 64 samples with sigma 0.32" in result.description


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "gpope" else [pytest.mark.slow]) for n in LOGS])
def test_as_published_under_replacing_one(name, noise):
    """One of exactly m is drawn: a replaced one moves a sum by twice the clip norm, and that is what is declared."""
    conformance = AS_PUBLISHED[name].load_conformance()
    published = conformance, next(iter(conformance.algorithm.settings))
    full, largest = walks(conformance, 9, 4), 0.0
    for unit in (0, 4, 8):
        for cells in ({"reward": NAN}, {"reward": 1e6, "behavior_prob": 1e-6}, {"action": 17.0}, {"observation": HUGE}):
            found = compare(published, full, replaced(full, unit, **cells), noise, relation="replace one")
            assert found.problems == ()
            largest = max(largest, found.largest)
    assert largest > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_every_attack_on_them(name):
    """Algorithm 1 of each paper is far above its own claim, but for DP-PG's, whose noise is too much."""
    entry = AS_PUBLISHED[name]
    for attack in entry.load().attacks:
        pair = entry.load_canary(attack)
        assert pair.preconditions
        result = run_attack(pair, trials=400 if name == "functional-q" else 20_000, seed=1)
        assert result.violated == (name != "dp-pg")
        if result.gaussian is not None:  # Theorem 1 of paper 003 wastes half of its claim
            assert 0.1 < result.gaussian.epsilon_lower < 0.75


@pytest.mark.parametrize(("multiplier", "holds"), [(1.2012, True), (1.2011, False), (0.48, False)])
def test_what_theorem_1_assumes_of_sigma(multiplier, holds):
    """exp(1 / sigma^2) <= 2."""
    assert precondition_holds(multiplier) is holds
    assert (math.exp(1.0 / multiplier**2) <= 2.0) is holds


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("gpope", {"sampling_rate": 0.1}, "sampling_rate"),
        ("gpope", {"noise_multiplier": 2.0}, "noise_multiplier"),
        ("dptd", {"unit": "person"}, "leave out unit"),
        ("functional-q", {"unit": "person"}, "no other units"),
    ],
)
def test_options_that_mean_nothing_are_refused(name, options, word):
    with pytest.raises(DprlError, match=word):
        AS_PUBLISHED[name].load_canary(Attack(options=options))
