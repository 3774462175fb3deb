"""A network as a value function: its formula, its starts, and everything that is done with a linear one."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl import x64 as x64
from dprl.errors import DprlError
from dprl.value_functions import network
from dprl.value_functions.features import make_features
from dprl.value_functions.network import MLP, Weights
from dprl.value_functions.value_function import FILE, ValueFunction, load_value_function

BOUNDS = ((-2.4, 2.4), (-3.0, 3.0), (0.0, 10.0))
STATES = np.random.default_rng(0).uniform((-3.0, -3.0, 0.0), (3.0, 3.0, 10.0), (40, 3))


def gradients(features, theta, states):
    """``(N, size)`` gradients of the values by the weights."""
    one = jax.grad(lambda t, s: features.values(t, s[None], jnp)[0])
    return np.asarray(jax.jit(jax.vmap(one, (None, 0)))(theta.astype(np.float64), states))


def random_weights(features: MLP, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(features.size)


def test_values_are_one_hidden_layer_written_out():
    features = make_features("mlp:5", BOUNDS)
    assert isinstance(features, MLP)
    assert (features.size, features.row_size, features(STATES).shape) == (5 * 5 + 1, 0, (40, 0))
    theta = random_weights(features)
    W, b, w, c = features.split(theta)
    expected = []
    for state in STATES:
        x = [2.0 * min(max((s - low) / (high - low), 0.0), 1.0) - 1.0 for s, (low, high) in zip(state, BOUNDS)]  # noqa: B905
        total = c
        for k in range(5):
            a = 4.0 * sum(W[k, i] * x[i] for i in range(3)) + b[k]
            total += (a if a > 0.0 else math.exp(a) - 1.0) * w[k] / math.sqrt(5.0)
        expected.append(total)
    np.testing.assert_allclose(features.values(theta, STATES), expected, rtol=1e-12)
    in_jax = jax.jit(lambda t, s: features.values(t, s, jnp))
    np.testing.assert_allclose(in_jax(theta, STATES), expected, rtol=1e-12)
    assert in_jax(theta.astype(np.float32), STATES.astype(np.float32)).dtype == jnp.float32
    np.testing.assert_array_equal(features.join(features.split(theta)), theta)
    np.testing.assert_array_equal(features.values(features.constant(), STATES), 1.0)


def test_many_inputs_do_not_saturate_the_hidden_units():
    """Under the uniform distribution the input of a hidden unit has the same spread for 4 components and for 400."""
    spread = []
    for k in (4, 400):
        features = MLP(((-1.0, 1.0),) * k, 200)
        W = features.split(features.start().astype(np.float64)).W
        x = np.random.default_rng(2).uniform(-1.0, 1.0, (500, k))
        spread.append(float(np.std(features.gain * x @ W.T)))
    assert spread[1] == pytest.approx(spread[0], rel=0.1)
    assert spread[0] == pytest.approx(4.0 * math.sqrt(4.0 / 9.0), rel=0.1)


@pytest.mark.parametrize("hidden", [1, 2, 7, 50])
def test_the_start_is_exactly_constant_and_its_gradient_is_not(hidden):
    features = MLP(BOUNDS, hidden)
    theta, single = features.start(0.3), STATES.astype(np.float32)
    assert theta.dtype == np.float32
    values = jax.jit(lambda t, s: features.values(t, s, jnp))
    for found in (features.values(theta, STATES), features.values(theta, single), values(theta, single)):
        assert set(np.asarray(found, dtype=np.float32)) == {np.float32(0.3)}
    assert np.linalg.matrix_rank(gradients(features, theta, STATES)) >= min(hidden + 1, 20)
    linear = make_features("fourier:1", BOUNDS)
    np.testing.assert_array_equal(linear.values(linear.start(0.3), single), np.full(40, np.float32(0.3)))


@pytest.mark.parametrize("spec", ["mlp:3", "mlp:50", "fourier:2", "tabular"])
def test_mean_square_is_that_of_the_gradient_under_the_uniform_distribution(spec):
    bounds = ((0.0, 3.0), (0.0, 2.0)) if spec == "tabular" else BOUNDS
    features, rng = make_features(spec, bounds), np.random.default_rng(3)
    low, high = np.transpose(bounds)
    states = rng.uniform(low, high, (4000, len(bounds)))
    if not features.linear:  # at its own points, so that nothing but rounding differs
        states = low + (high - low) * network._uniform((4096, 3), 1)
    if spec == "tabular":
        states = rng.integers(low.astype(int), high.astype(int) + 1, (4000, 2)).astype(np.float64)
    found = np.mean(np.sum(np.square(gradients(features, features.start(0.5), states)), axis=1))
    assert features.mean_gradient_square() == pytest.approx(float(found), rel=0.05 if features.linear else 1e-9)


def test_random_weights_are_those_of_glorot_and_bengio():
    features = MLP(BOUNDS, 400)
    W, b, w, c = features.split(features.random_start(7).astype(np.float64))
    for part, limit in ((W, math.sqrt(6.0 / 403)), (w, math.sqrt(6.0 / 401))):
        assert np.abs(part).max() <= limit
        # a uniform distribution: mean 0, variance limit^2 / 3
        assert abs(part.mean()) < 4.0 * limit / math.sqrt(3.0 * part.size)
        assert part.var() == pytest.approx(limit**2 / 3.0, rel=0.15)
    assert not b.any()
    assert c == 0.0
    np.testing.assert_array_equal(features.random_start(7), features.random_start(7))
    assert not np.array_equal(features.random_start(7), features.random_start(8))


def test_the_counter_is_splitmix64():
    """First numbers of the published generator from the state 0."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    np.testing.assert_array_equal(network._uniform((3,), 0), [(x >> 11) * 2.0**-53 for x in published])


def test_stored_read_back_and_drawn(tmp_path):
    """13 components, of which 12 are drawn."""
    bounds = tuple((float(-i - 1), float(i + 1)) for i in range(13))
    features = make_features("mlp:3", bounds)
    assert isinstance(features, MLP)
    function = ValueFunction(0.3 * random_weights(features), features, (-1.0, 3.0))
    (tmp_path / FILE).write_bytes(function.to_bytes())
    found = load_value_function(tmp_path)
    states = np.random.default_rng(4).uniform(-1.0, 1.0, (20, 13))
    expected = np.clip(1.0 + 2.0 * features.values(function.theta, states), -1.0, 3.0)
    np.testing.assert_array_equal(found(states), expected)
    assert found.features == features
    pieces = function.slices(points=5)
    assert [piece["component"] for piece in pieces] == list(range(12))
    along = np.zeros((5, 13))
    along[:, 11] = np.linspace(-12.0, 12.0, 5)
    np.testing.assert_array_equal(pieces[11]["values"], function(along))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("mlp:0", "at least one hidden"),
        ("mlp:999999", "fewer hidden units"),
        ("mlp:x", "or mlp:HIDDEN"),
        ("mlp", "mlp"),
    ],
)
def test_networks_that_there_are_not(spec, words):
    with pytest.raises(DprlError, match=words):
        make_features(spec, BOUNDS)


def test_weights_are_joined_in_their_order():
    features = MLP(BOUNDS[:2], 2)
    weights = Weights(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([4.0, 5.0]), np.array([6.0, 7.0]), np.float64(8.0))
    np.testing.assert_array_equal(features.join(weights), np.arange(9.0))
