"""Private LSTD against dense linear algebra, worst cases and the law of its noise."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.evaluation import adassp
from dprl.evaluation.private_lstd import PrivateLSTD
from dprl.policies.loading import AlwaysPolicy

from . import helpers, one_shot


def statistics(flat, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A and b summed over all rows."""
    f, d = flat.phi @ basis, flat.delta_phi @ basis
    coefficient = flat.weight * flat.rho
    return (f * coefficient[:, None]).T @ d, f.T @ (coefficient * flat.reward)


@pytest.mark.parametrize("kind", ["tabular", "fourier:3", "columns"])
@pytest.mark.parametrize("policy", [None, one_shot.extreme_policy])
def test_noiseless_limit_is_lstd_with_a_ridge(kind, policy):
    config = PrivateLSTD(discount=0.9, modes=2, start_weight=0.3)
    program, flat, data = one_shot.made(config, one_shot.extreme(40, 1), kind, policy)
    state, theta = one_shot.plain(program, data)
    level = float(state.level)
    y = 2.5 * flat.returns * (0.7 * flat.weight + 0.3 * flat.start)
    noise = 2.5 / 40 * program.stages[0].mechanism.noise_std
    assert level == pytest.approx(np.clip(np.sum(y) / 40 / (1.0 + 3.0 * noise**2), -1.0, 1.0), rel=1e-12)
    basis = adassp.modes_basis(program.facts.features, 2)
    a, b = statistics(flat, basis)
    around = np.linalg.solve(a + program.ridge * np.eye(2), b - a @ np.array([level, 0.0]))
    expected = level * program.facts.features.constant() + basis @ around
    np.testing.assert_allclose(theta, np.clip(expected, -program.facts.box, program.facts.box), rtol=1e-9, atol=1e-12)
    assert np.abs(around).max() > 1e-3


def test_a_support_keeps_all_of_a_that_is_not_zero():
    """On the chain, the entries of stay and advance: the answer is that of the whole matrix with the same ridge."""
    config = PrivateLSTD(support="0,1", constant_share=0.0)
    program, flat, data = one_shot.made(config, one_shot.chain(200, 1), "tabular")
    assert program.stages[0].mechanism.dimension == 77 + 39
    theta = one_shot.plain(program, data)[1]
    root = math.sqrt(39)
    a, b = statistics(flat, np.eye(39) / root)
    expected = np.linalg.solve(a + program.ridge * np.eye(39), b) / root
    np.testing.assert_allclose(theta, np.clip(expected, -1 / root, 1 / root), rtol=1e-9)


def test_full_support_and_full_batches_of_people():
    config = PrivateLSTD(discount=0.9, support="full", constant_share=0.0)
    program, flat, data = one_shot.made(config, one_shot.extreme(40, 3), "tabular", one_shot.extreme_policy)
    theta = one_shot.plain(program, data)[1]
    a, b = statistics(flat, np.eye(5) / math.sqrt(5))
    expected = np.linalg.solve(a + program.ridge * np.eye(5), b) / math.sqrt(5)
    np.testing.assert_allclose(theta, np.clip(expected, -program.facts.box, program.facts.box), rtol=1e-9)


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 4), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_a_whole_trajectory_has_a_symmetric_part_that_is_not_negative(length, k, discount, seed):
    """sym(A_i) >= (1 - gamma) C_i on-policy, if the trajectory ends: what the ridge's positivity rests on."""
    x = np.random.default_rng(seed).normal(size=(length, k))
    following = np.vstack([x[1:], np.zeros((1, k))])
    a, c = x.T @ (x - discount * following), x.T @ x
    least = np.linalg.eigvalsh((a + a.T) / 2.0 - (1.0 - discount) * c).min()
    assert least >= -1e-9 * np.linalg.norm(c)


@pytest.mark.parametrize("support", [None, "0,1"])
def test_the_ridge_makes_the_symmetric_part_positive_as_often_as_stated(support):
    bounds = helpers.chain_bounds(1000)
    config = PrivateLSTD(support=support, modes=None if support else 6)
    program = one_shot.make(config, bounds, "tabular")
    i, j = program.entries
    rng, count = np.random.default_rng(0), 1000
    noise = np.zeros((count, program.size, program.size))
    noise[:, i, j] = rng.normal(size=(count, len(i)))
    least = np.linalg.eigvalsh((noise + noise.transpose(0, 2, 1)) / 2.0)[:, 0]
    ridge = program.ridge / program.stages[-1].mechanism.noise_std
    for t in (1.0, 2.0):
        bound = math.exp(-(t**2) / 2.0)
        assert np.mean(least + ridge + t <= 0.0) <= bound + 4.0 * math.sqrt(bound * (1 - bound) / count)
    assert np.mean(least + ridge / 3.0 <= 0.0) > 0.6
    # without a support it is sigma sqrt(2 k)
    assert ridge == pytest.approx(math.sqrt(12.0)) if support is None else ridge < math.sqrt(2 * 39)


@settings(max_examples=5)
@given(
    st.integers(0, 10**6), st.sampled_from(["tabular", "fourier:3", "columns", "support"]), st.floats(-1, 1),
    st.floats(0.1, 10),
)  # fmt: skip
def test_no_clip_binds(seed, kind, level, kappa):
    features = "tabular" if kind == "support" else kind
    options = {"support": "full"} if kind == "support" else {"modes": 2}
    config = PrivateLSTD.from_mapping({"discount": 0.9, "kappa": kappa, **options}, "flag")
    program, _, data = one_shot.made(config, one_shot.extreme(60, seed), features, one_shot.extreme_policy)
    one_shot.check_no_clip_binds(program, program.start_at(jnp.asarray(level)), data)


def test_the_clip_norm_is_reached():
    """One step from one state to another that is not the end, with the largest reward and ratio (full support)."""
    bounds = Bounds(
        units=5, horizon=1, reward=(0.0, 1.0), observation=((0.0, 3.0),), actions=2, max_importance_ratio=2.0,
        return_range=(0.0, 1.0),
    )  # fmt: skip
    columns = {
        "episode_id": [0, 0], "t": [0, 1], "observation": [0.0, 1.0], "action": [1, 1], "reward": [1.0, 0.0],
        "behavior_prob": [0.5, 0.5], "terminated": [False, True],
    }  # fmt: skip
    config, log = PrivateLSTD(discount=0.9, support="full"), one_shot.load(columns, bounds)
    program, _, data = one_shot.made(config, log, "tabular", AlwaysPolicy(1, 2))
    norms = np.linalg.norm(one_shot.vectors(program, 1, program.start_at(jnp.zeros(())), data), axis=1)
    assert norms.max() == pytest.approx(program.stages[1].mechanism.clip_norm, rel=1e-5)


def test_what_is_not_said():
    with pytest.raises(DprlError, match="give either modes or support"):
        PrivateLSTD(modes=2, support="0,1")
    with pytest.raises(DprlError, match="at most 4 modes"):
        one_shot.make(PrivateLSTD(modes=9), one_shot.extreme_bounds(40), "fourier:3")
