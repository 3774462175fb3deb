"""AdaSSP against dense linear algebra, worst cases and the law of its noise."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import Bounds
from dprl.engine.loop import run
from dprl.engine.program import PublicFacts
from dprl.errors import DprlError
from dprl.evaluation import adassp
from dprl.evaluation.adassp import AdaSSP
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features

from . import helpers, one_shot

FEATURES = ("tabular", "fourier:3", "columns")
# compiled whole: one operation after the other takes several times as long
svec, smat = jax.jit(adassp.svec), jax.jit(adassp.smat, static_argnums=1)


@settings(max_examples=20)
@given(st.sampled_from([1, 2, 5]), st.integers(0, 10**6))
def test_svec_is_an_isometry_and_smat_its_inverse(k, seed):
    x = np.random.default_rng(seed).normal(size=(3, k))
    vectors = np.asarray(svec(x))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), np.sum(x * x, axis=1), rtol=1e-12)
    # sums of squares and inner products too
    np.testing.assert_allclose(vectors @ vectors.T, (x @ x.T) ** 2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(smat(vectors[0], k)), np.outer(x[0], x[0]), atol=1e-12)


def noise_matrices(k: int, count: int, seed: int) -> np.ndarray:
    draws = np.random.default_rng(seed).normal(size=(count, k * (k + 1) // 2))
    return np.asarray(jax.vmap(lambda d: smat(d, k))(jnp.asarray(draws)))


def test_noise_on_an_svec_is_the_gaussian_orthogonal_ensemble():
    """Variance 1 on the diagonal and 1/2 off it: so it looks alike in every orthonormal basis."""
    k, count = 4, 4000
    noise = noise_matrices(k, count, 0)
    q = np.linalg.qr(np.random.default_rng(1).normal(size=(k, k)))[0]
    for matrices in (noise, q @ noise @ q.T):
        variance = matrices.var(axis=0)
        np.testing.assert_allclose(np.diag(variance), 1.0, atol=5.0 * math.sqrt(2.0 / count))
        off = variance[~np.eye(k, dtype=bool)]
        np.testing.assert_allclose(off, 0.5, atol=5.0 * 0.5 * math.sqrt(2.0 / count))


@pytest.mark.parametrize("k", [3, 8])
def test_the_ridge_makes_a_matrix_without_signal_positive_as_often_as_stated(k):
    """P(E + sigma (sqrt(2 k) + t) I is not positive) <= exp(-t^2 / 2); with a third of the ridge it is not so."""
    count = 2000
    least = np.linalg.eigvalsh(noise_matrices(k, count, k))[:, 0]
    for t in (0.5, 1.0, 2.0):
        bound = math.exp(-(t**2) / 2.0)
        slack = 4.0 * math.sqrt(bound * (1.0 - bound) / count)
        assert np.mean(least + math.sqrt(2.0 * k) + t <= 0.0) <= bound + slack
    assert np.mean(least + math.sqrt(2.0 * k) / 3.0 <= 0.0) > 0.6


@pytest.mark.parametrize("kind", FEATURES)
def test_modes_are_orthonormal_functions_that_start_with_the_constant(kind):
    features = make_features(kind, ((0.0, 4.0),) * 2)
    k = 3
    basis = adassp.modes_basis(features, k)
    np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(basis[:, 0], features.constant(), atol=1e-12)
    states = np.stack(np.meshgrid(np.linspace(0, 4, 5), np.linspace(0, 4, 5)), -1).reshape(-1, 2)
    norms = np.linalg.norm(features(states) @ basis, axis=1)
    assert norms.max() <= adassp.modes_bound(features, k)
    assert norms.max() >= adassp.modes_bound(features, k) * (1 - 1e-5)  # and it is reached


@pytest.mark.parametrize(
    ("kind", "policy"), [("fourier:3", None), *((kind, one_shot.extreme_policy) for kind in FEATURES)]
)
def test_noiseless_limit_is_ridge_regression(kind, policy):
    config = AdaSSP(discount=0.9, modes=2, start_weight=0.3, kappa=1.7)
    program, flat, data = one_shot.made(config, one_shot.extreme(40, 1), kind, policy)
    state, theta = one_shot.plain(program, data)

    weight = 0.7 * flat.weight + 0.3 * flat.start
    y = 2.5 * flat.returns  # the rows hold them over the largest cumulative ratio
    noise = 2.5 / 40 * program.stages[0].mechanism.noise_std
    level = np.clip(np.sum(weight * y) / 40 / (1.0 + 3.0 * noise**2), -1.0, 1.0)
    assert float(state.level) == pytest.approx(level, rel=1e-12)
    x = flat.phi @ adassp.modes_basis(program.facts.features, 2)
    gram = (x * weight[:, None]).T @ x
    fit = np.linalg.solve(gram + program.ridge * np.eye(2), x.T @ (weight * (y - level)))
    expected = level * program.facts.features.constant() + adassp.modes_basis(program.facts.features, 2) @ fit
    np.testing.assert_allclose(theta, np.clip(expected, -program.facts.box, program.facts.box), rtol=1e-9, atol=1e-12)
    assert np.abs(fit).max() > 1e-3


def test_ridge_is_that_of_the_noise():
    program = one_shot.make(AdaSSP(modes=3), helpers.chain_bounds(1000), "tabular")
    assert program.ridge == pytest.approx(program.stages[-1].mechanism.noise_std * math.sqrt(6.0))
    # forty people and ratios of 2.5: so much that hardly anything is left
    program = one_shot.make(AdaSSP(modes=3), one_shot.extreme_bounds(40), "tabular")
    assert program.ridge > 40.0


def test_a_constant_that_is_noise_is_not_believed():
    """Its mean squared error is no more than that of the middle of the range, for levels with the prior's variance."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(-1.0, 1.0, 20000)
    for spread in (0.05, 1.0, 20.0):
        noisy = jnp.asarray(truth + spread * rng.normal(size=truth.size)) / 0.1
        error = np.asarray(adassp.shrunken_level(noisy, spread / 0.1, 0.1)) - truth
        assert np.mean(error**2) < min(1.0 / 3.0, 1.2 * spread**2) * 1.02


@settings(max_examples=3)
@given(
    st.integers(0, 10**6), st.sampled_from(FEATURES), st.integers(1, 2), st.integers(1, 2), st.floats(0, 1),
    st.floats(-1, 1), st.floats(0.1, 10),
)  # fmt: skip
def test_no_clip_binds(seed, kind, components, modes, start_weight, level, kappa):
    """Whatever rows the public bounds allow, a unit's vector is within the clip norm that follows from them."""
    config = AdaSSP(discount=0.9, modes=modes, start_weight=start_weight, kappa=kappa)
    log = one_shot.extreme(60, seed, components)
    program, _, data = one_shot.made(config, log, kind, one_shot.extreme_policy)
    one_shot.check_no_clip_binds(program, program.start_at(jnp.asarray(level)), data)


def test_the_clip_norm_is_reached():
    """One decision at the corner where the modes are largest, with the largest return against the lowest constant."""
    bounds = Bounds(units=5, horizon=1, reward=(0.0, 1.0), observation=((0.0, 1.0),), actions=1)
    columns = {
        "observation": [0.0, 1.0], "action": [0, 0], "reward": [1.0, 0.0], "behavior_prob": [1.0, 1.0],
    }  # fmt: skip
    program, _, data = one_shot.made(AdaSSP(modes=3), one_shot.load(columns, bounds), "fourier:3")
    state = program.start_at(jnp.asarray(-0.7))
    norms = np.linalg.norm(one_shot.vectors(program, 1, state, data), axis=1)
    assert norms.max() == pytest.approx(program.stages[1].mechanism.clip_norm, rel=1e-5)


def test_more_modes_where_there_is_more_to_learn_from():
    def chosen(mu: float, components: int) -> int:
        features = make_features("fourier:5", ((0.0, 1.0),) * components)
        return adassp.default_modes(PublicFacts(one_shot.extreme_bounds(1000, components), features, 0.99, mu))

    assert [chosen(mu, 1) for mu in (1e-4, 0.03, 0.3, 3.0)] == sorted(chosen(mu, 1) for mu in (1e-4, 0.03, 0.3, 3.0))
    assert chosen(1e-4, 1) == 1 < chosen(3.0, 1) < chosen(3.0, 2)


@pytest.mark.slow
def test_it_beats_the_best_constant_on_the_chain():
    program, _, data = one_shot.made(AdaSSP(), one_shot.chain(1000, 5), "tabular", dtype=np.float32)
    truth = one_shot.chain_values()
    for seed in range(2):
        theta = np.asarray(run(program, SeededNoise.from_seed(seed), data)[1])
        error = 0.5 + 0.5 * math.sqrt(39) * theta - truth
        assert math.sqrt(np.mean(error**2)) < 0.6 * truth.std()


def test_what_is_not_said():
    with pytest.raises(DprlError, match="no smooth modes are known"):
        one_shot.make(AdaSSP(), one_shot.extreme_bounds(40), "fourier-coupled:3")


def test_without_a_constant_there_is_one_release():
    program = one_shot.make(AdaSSP(constant_share=0.0, modes=2), one_shot.extreme_bounds(40), "tabular")
    assert [stage.mechanism.dimension for stage in program.stages] == [5]
