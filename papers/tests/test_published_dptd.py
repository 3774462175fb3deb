"""DPTD as published: its noise against the verified one's, what a unit weighs, and Theorem 5.1."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import chi2
from tests.evaluation.test_dptd import BOUNDS, BUDGET, program_of, rows

from dprl.accounting.budget import Budget
from dprl.engine.layouts import padded_units
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan
from dprl.evaluation.td_gradients import unit_gradients
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.one_unit import SENSITIVITY_IN_CLIPS, OneUnit
from dprl_papers.paper_000_dptd.published import PublishedDPTD, noise_multiplier, theorem_conditions


def innovations(program, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """``p_t - (1 - a_t) p_{t-1}`` ``(steps, d)`` where all that is released is noise, and a_t."""
    mechanism, noise = program.stages[-1].mechanism, SeededNoise.from_seed(8)

    def body(state, step):
        state = program.update(0, state, mechanism.scaled(mechanism.draw(noise, step)), step)
        return state, state.p

    ps = np.asarray(jax.jit(lambda: jax.lax.scan(body, program.init(), jnp.arange(steps, dtype=jnp.uint32))[1])())
    a = np.append(1.0, 0.75 / np.sqrt(np.arange(steps - 1) + 3.0))
    before = np.concatenate([np.zeros((1, ps.shape[1])), ps[:-1]])
    return ps - (1.0 - a[:, None]) * before, a


def test_the_last_step_has_276_times_less_noise_than_as_published():
    """n = T = 1000, epsilon 0.1: the acceptance asks for 50 times. Every step's noise is what its calibration says."""
    bounds, budget, size = replace(BOUNDS, units=1000), Budget(0.1, 1e-5), 64
    options = {"steps": 1001, "start": "mid-range", "clip_norm": 1.0, "sampling_rate": 1e-3}
    features = f"fourier:{size - 1}"
    theirs = program_of(features, bounds, budget, kind=PublishedDPTD, **options)
    ours = program_of(features, bounds, budget, schedule="diminishing", direction="gradient", **options)
    assert isinstance(theirs.stages[0].mechanism, OneUnit)
    z, sigma = (p.stages[0].mechanism.noise_std for p in (ours, theirs))  # of sums with clip norm 1
    assert sigma == pytest.approx(8.05, rel=1e-3)
    assert z == pytest.approx(1.23, rel=0.01)
    for program, std in ((theirs, lambda a: sigma), (ours, lambda a: z * a)):
        noise, a = innovations(program, 1001)
        squares = np.sum(noise**2, axis=1) / std(a) ** 2  # of each step, chi squared
        assert chi2.ppf(1e-7, size) < squares.min()
        assert squares.max() < chi2.ppf(1.0 - 1e-7, size)
        assert squares.sum() == pytest.approx(1001 * size, rel=0.03)
    assert sigma / (z * 0.75 / math.sqrt(999 + 3.0)) == pytest.approx(276.0, rel=0.01)


def test_as_published_weighs_a_unit_before_its_clip_and_draws_one_a_step():
    program = program_of("fourier:3", kind=PublishedDPTD, steps=5, clip_norm=1e6, start="mid-range")
    block = padded_units(rows("fourier:3")).block(slice(None))
    state = program.init()._replace(w=jnp.full(4, 0.3, jnp.float32))
    of_units = jax.jit(lambda state: unit_gradients(program.facts.features, 0.9, state.theta, state.w, block))
    weighed, plain = jax.jit(lambda state: program.contribution(0, state, block)), of_units(state)
    for step, a in ((0, 1.0), (1, 0.75 / math.sqrt(3.0)), (4, 0.75 / math.sqrt(6.0))):
        found = weighed(state._replace(step=jnp.asarray(step)))
        np.testing.assert_allclose(found, a * plain, rtol=1e-5, atol=1e-7)
    config = program.config
    assert (config.kappa, config.eta, config.direction, config.average) == (2.0, 2.0, "gradient", "random")
    assert config.sampling_rate == pytest.approx(1 / 40)
    assert program.normaliser(0) == 1.0


def test_theorem_5_1_at_its_best_beta():
    for epsilon, delta, steps, units in ((0.1, 1e-5, 1000, 1000), (1.0, 1e-5, 100, 240), (10.0, 1e-6, 10**5, 1000)):
        log = math.log(1.0 / delta)
        square = lambda b: 14.0 * steps * (log / ((1.0 - b) * epsilon) + 1.0) / (units**2 * b * epsilon)  # noqa: B023,E731
        best = minimize_scalar(square, bounds=(1e-9, 1.0 - 1e-9), method="bounded", options={"xatol": 1e-12})
        sigma = noise_multiplier(steps, units, epsilon, delta)
        assert sigma == pytest.approx(math.sqrt(best.fun), rel=1e-8)
        order = log / ((1.0 - best.x) * epsilon) + 1.0
        inner = (sigma / 2.0) ** 2
        first, printed, free = theorem_conditions(steps, units, epsilon, delta)
        assert first.holds == (inner >= 0.7)
        for condition, scale in ((printed, sigma**2), (free, inner)):
            assert condition.holds == (order - 1.0 <= 2.0 / 3.0 * scale * math.log(units / (order * (1.0 + inner))))
    # T = 100 n: both hold as printed, and not with sigma'
    assert [c.holds for c in theorem_conditions(10**5, 1000, 1.0, 1e-5)] == [True, True, False]
    plan = make_plan(
        PublishedDPTD(discount=0.9, steps=1001),
        replace(BOUNDS, units=1000), BUDGET, [lambda states: np.full((len(states), 2), 0.5)],
    )  # fmt: skip
    mechanism = plan.stages[0].mechanism
    assert SENSITIVITY_IN_CLIPS * mechanism.noise_multiplier == pytest.approx(noise_multiplier(1000, 1000, 1.0, 1e-5))
    assert plan.claim is not None
    assert plan.claim.conditions == theorem_conditions(1000, 1000, 1.0, 1e-5)
    assert plan.epsilon_of_event > 2.0  # where one is claimed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"direction": "corrected"}, "direction is 'gradient' with calibration"),
        ({"schedule": "constant"}, "schedule is 'diminishing' with calibration"),
        ({"average": "tail"}, "average is 'random' with calibration"),
        ({"start": "constant"}, "start = 'constant' is a release"),
        ({"sampling_rate": 0.5}, "sampling_rate is one over"),
        ({"noise_multiplier": 2.0}, "noise_multiplier contradicts"),
        ({"optimizer": "folder"}, "an optimizer has no calibration"),
    ],
)
def test_refuses(options, words):
    with pytest.raises(DprlError, match=f"^dptd: {words}"):
        program_of("columns", calibration="as-published", **options)
