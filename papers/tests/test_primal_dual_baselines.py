"""DP-SGDA, DP-GLD and DP-SRM: their noiseless limits, the noise of Langevin dynamics, and what they spend."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tests.evaluation import helpers

from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.events import compose
from dprl.data.readers import read_log
from dprl.engine import loop as engine
from dprl.engine.layouts import PaddedUnits, padded_units
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.evaluation.plan import program_for
from dprl.evaluation.primal_dual import PrimalDualConfig, PrimalDualProgram
from dprl.evaluation.td_gradients import unit_gradients
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features
from dprl_papers.baselines.langevin import DPGLD, DPGLDProgram
from dprl_papers.baselines.primal_dual_sgd import DPSGDA
from dprl_papers.baselines.recursive_momentum import DPSRM

GAMMA, BUDGET = 0.9, Budget(1.0, 1e-5)


def prepared(config: PrimalDualConfig, features: str = "columns", people: int = 30) -> tuple[Any, PaddedUnits]:
    """A program, and a log of five decisions a person over three states."""
    log = read_log(helpers.stepped_log(people, 0), bounds=helpers.stepped_bounds(people)).load()
    ratios = np.where(np.asarray(log.action) == 1, 1.2, 0.8)
    feature_map = make_features(features, log.bounds.observation)
    program: Any = program_for(config, log.bounds, feature_map, BUDGET)
    value = log.bounds.value_interval(GAMMA)
    return program, padded_units(rows_of(log, ratios, feature_map, GAMMA, value, columns=program.columns))


def traced(program: PrimalDualProgram, data: PaddedUnits, mechanisms: Any, noise: Any) -> tuple[Any, list[Any]]:
    """The final state of all stages, and of each of them the states before its steps."""
    state, traces = program.init(), []
    for number, stage in enumerate(program.stages):
        stream = noise.stream(stage.name)
        state, trace = engine.run_steps(
            program, number, mechanisms[number], stream, data, state, trace=lambda state, noisy: state
        )
        state = program.finish(number, state)
        traces.append(trace)
    return state, traces


def mean_gradient(program: PrimalDualProgram, data: PaddedUnits, theta: Any, w: Any) -> np.ndarray:
    block = data.block(slice(None))
    features, discount = program.facts.features, program.facts.discount
    return np.asarray(unit_gradients(features, discount, theta, w, block), np.float64).mean(axis=0)


SLOW: Any = {"marks": pytest.mark.slow}


@pytest.mark.parametrize(
    ("recursion", "features"),
    [(0.2, "columns"), pytest.param(1.0, "columns", **SLOW), pytest.param(0.2, "mlp:2", **SLOW)],
)
def test_without_noise_the_recursion_of_a_full_batch_is_the_gradient(recursion: float, features: str) -> None:
    """It telescopes: v_t is the gradient at x_t for every a, and the iterates are those of DP-SGDA."""
    options: dict[str, Any] = {"discount": GAMMA, "start": "mid-range", "sampling_rate": 1.0, "average": "last"}
    steps, options = 6, options | {"primal_step": 2.0, "dual_step": 0.5}
    program, data = prepared(DPSRM(steps=steps, recursion=recursion, **options), features)
    plain = engine.noiseless(program)
    final, (_, trace) = traced(program, data, plain, SeededNoise.from_seed(0))
    assert len(trace.theta) == steps - 1
    for t in range(1, steps - 1):
        # what moved x_t is v_t; the trace has the state before each step, whose v is that of the iterate before
        expected = mean_gradient(program, data, trace.theta_before[t], trace.w_before[t])
        np.testing.assert_allclose(np.concatenate([trace.p[t], trace.d[t]]), expected, atol=2e-6)
    other, same = prepared(DPSGDA(steps=steps, **options), features)
    theta = engine.run(other, SeededNoise.from_seed(0), same, mechanisms=engine.noiseless(other))[1]
    np.testing.assert_allclose(program.answer(final), theta, atol=0.0 if recursion == 1.0 else 2e-6)
    assert np.max(np.abs(theta - np.asarray(program.init().theta))) > 0.01


@pytest.mark.parametrize("share", [None, 0.2])
def test_the_recursion_spends_the_budget_on_its_stages(share: float | None) -> None:
    start = "constant" if share else "mid-range"
    options: dict[str, Any] = {} if share is None else {"start_budget_fraction": share}
    config = DPSRM(discount=GAMMA, start=start, initial_share=0.25, sampling_rate=0.5, recursion=0.3, **options)
    program, _ = prepared(config)
    names = [stage.name for stage in program.stages]
    assert names == (["start"] if share else []) + ["initial gradient", "value function"]
    assert sum(shape.share for shape in config.queries(program.facts)) == pytest.approx(1.0)
    *_, initial, last = (stage.mechanism for stage in program.stages)
    assert (initial.steps, initial.sampling_rate, last.steps, last.sampling_rate) == (1, 1.0, 199, 0.5)
    assert initial.noise_multiplier == pytest.approx(((1 - (share or 0)) * 0.25) ** -0.5 / program.facts.mu)
    assert last.clip_norm == pytest.approx((0.3 + 0.7 * 0.2) * initial.clip_norm)
    spent = epsilon_of(compose([stage.mechanism.event() for stage in program.stages]), BUDGET.delta)
    assert 0.99 * BUDGET.epsilon < spent <= BUDGET.epsilon


@pytest.mark.slow
def test_the_iterates_of_langevin_dynamics_have_the_covariance_that_their_noise_implies() -> None:
    """On a quadratic ``x <- M x + S noise``: S = M S M' + s^2 step step'. Linear V, noise far below the clip."""
    config = DPGLD(discount=GAMMA, start="mid-range", primal_step=0.6, dual_step=0.6, clip_norm=50.0, steps=20_000,
                   noise_multiplier=0.05, average="last")  # fmt: skip
    program, data = prepared(config, people=8)
    assert isinstance(program, DPGLDProgram)
    mechanisms = [stage.mechanism.in_float() for stage in program.stages]
    (trace,) = traced(program, data, mechanisms, SeededNoise.from_seed(0))[1]
    x = np.concatenate([trace.theta, trace.w], axis=1)[1000:]
    zero = np.zeros(2, np.float32)
    rest = mean_gradient(program, data, zero, zero)
    unit = np.eye(4, dtype=np.float32)
    M = np.eye(4) - 0.6 * np.stack([mean_gradient(program, data, e[:2], e[2:]) - rest for e in unit], axis=1)
    s = program.stages[0].mechanism.noise_std / 8
    assert np.max(np.abs(np.linalg.eigvals(M))) < 0.99
    lyapunov = np.linalg.solve(np.eye(16) - np.kron(M, M), (0.6 * s) ** 2 * np.eye(4).ravel()).reshape(4, 4)
    measured = np.cov(x.T)
    spread = np.sqrt(np.outer(np.diag(lyapunov), np.diag(lyapunov)))
    assert np.max(np.abs(measured - lyapunov) / spread) < 0.2
    assert program.temperature[0] == pytest.approx(0.6 * s**2 / 2)


def test_the_random_iterate_is_uniform() -> None:
    steps, trials = 8, 2000
    program, data = prepared(DPGLD(discount=GAMMA, start="mid-range", steps=steps), people=8)
    mechanisms = [stage.mechanism.in_float() for stage in program.stages]
    keys = np.random.default_rng(0).integers(0, 2**32, (trials, 2), dtype=np.uint32)

    @jax.jit
    @jax.vmap
    def chosen(key: Any) -> Any:
        final, (trace,) = traced(program, data, mechanisms, SeededNoise(key))
        iterates = jax.numpy.concatenate([trace.theta[1:], final.theta[None]])
        return jax.numpy.argmin(jax.numpy.sum((iterates - program.answer(final)) ** 2, axis=1))

    counts = np.bincount(np.asarray(chosen(keys)), minlength=steps)
    expected = trials / steps
    assert np.sum((counts - expected) ** 2) / expected < 24.3  # chi2 of 7 degrees of freedom, 0.001


def test_what_contradicts_a_method_is_refused() -> None:
    with pytest.raises(DprlError, match="dp-gld: it takes full batches"):
        DPGLD(sampling_rate=0.5)
    with pytest.raises(DprlError, match="dp-srm: steps must be at least 2"):
        DPSRM(steps=1)
    with pytest.raises(DprlError, match="dp-srm: recursion must be"):
        DPSRM(recursion=0.0)
