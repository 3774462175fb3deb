"""Action-value functions: their formulas, the same bits in any batch and after reloading, and nothing else on file."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save_file

from dprl import x64 as x64
from dprl.arrays import unit_states
from dprl.errors import DprlError
from dprl.value_functions.q_function import (
    FILE,
    QFunction,
    hidden_weights,
    initial_weights,
    load_q_function,
    q_values,
    weight_shapes,
)

CASES = [("mlp:5", 1, 2), ("mlp:33", 3, 4), ("fourier:2", 2, 3), ("table:9", 1, 2)]
VALUE = (-1.0, 4.0)


def make(network: str, inputs: int, actions: int, actor: bool = False) -> QFunction:
    rng = np.random.default_rng(inputs)

    def draw():
        shapes = weight_shapes(network, inputs, actions)
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    weights, bounds = draw(), tuple((-1.0 - i, 2.0) for i in range(inputs))
    return QFunction(weights, network, bounds, actions, VALUE, draw() if actor else None)


def states_of(q: QFunction, count: int = 50) -> np.ndarray:
    """A few of them outside of the bounds."""
    return np.random.default_rng(7).uniform(-3.5, 2.5, (count, len(q.bounds)))


def written_out(q: QFunction, state: np.ndarray) -> list[float]:
    w = {name: v.astype(np.float64) for name, v in q.weights.items()}
    x = [min(max((s - low) / (high - low), 0.0), 1.0) for s, (low, high) in zip(state, q.bounds, strict=True)]
    kind, _, size = q.network.partition(":")
    out = []
    for a in range(q.actions):
        if kind == "mlp":
            total = w["c"][a]
            for h in range(int(size)):
                inner = w["b"][h] + sum(w["W"][h, i] * (2.0 * x[i] - 1.0) for i in range(len(x)))
                total += w["V"][a, h] * max(0.0, inner) / math.sqrt(int(size))
        elif kind == "fourier":
            order = range(int(size) + 1)
            waves = [[math.sqrt(2.0 if k else 1.0) * math.cos(math.pi * k * v) for k in order] for v in x]
            largest = (1.0 + 2.0 * int(size)) ** (len(x) / 2.0)
            total = sum(w["V"][a] * np.array([p * r for p in waves[0] for r in waves[1]])) / largest
        else:
            total = float(np.interp(x[0], np.linspace(0.0, 1.0, int(size)), w["V"][a]))
        out.append((VALUE[0] + VALUE[1]) / 2.0 + (VALUE[1] - VALUE[0]) / 2.0 * total)
    return out


@pytest.mark.parametrize(("network", "inputs", "actions"), CASES)
def test_values(network, inputs, actions, tmp_path):
    q = make(network, inputs, actions)
    states = states_of(q)
    found = q(states)
    np.testing.assert_allclose(found, [written_out(q, s) for s in states], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(q.policy(states), np.argmax(found, axis=1))
    unit = unit_states(states, q.bounds).astype(np.float32)
    in_jax = jax.jit(lambda w, s: q_values(network, w, s, jnp))(q.weights, unit)
    assert in_jax.dtype == jnp.float32
    np.testing.assert_allclose(1.5 + 2.5 * in_jax, found, atol=3e-4)
    # the same bits one by one, in pieces, in another order and memory layout, and after reloading
    (tmp_path / FILE).write_bytes(q.to_bytes())
    again = load_q_function(tmp_path)
    assert q.to_bytes() == again.to_bytes()
    for other in (q, again):
        np.testing.assert_array_equal(np.concatenate([other(s[None]) for s in states]), found)
        np.testing.assert_array_equal(np.concatenate([other(states[i : i + 7]) for i in range(0, 50, 7)]), found)
        np.testing.assert_array_equal(other(np.asfortranarray(states[::-1]))[::-1], found)
    if inputs == 1:
        np.testing.assert_array_equal(q(states[:, 0]), found)
    with pytest.raises(DprlError, match="States must have shape"):
        q(np.zeros((2, inputs + 1)))


def test_slices_are_values_and_choices():
    q = make("mlp:33", 3, 4, actor=True)
    first, second = q.slices(points=5, most=2)
    states = np.array([[0.5, v, -0.5] for v in np.linspace(-2.0, 2.0, 5)])
    states[:, 0] = 0.5
    assert [first["component"], second["component"]] == [0, 1]
    np.testing.assert_array_equal(second["grid"], states[:, 1])
    np.testing.assert_array_equal(np.array(second["values"]).T, q(states))
    assert second["policy"] == q.policy(states).tolist()
    actor = replace(q, weights=q.actor, actor=None)
    assert second["policy"] == np.argmax(actor(states), axis=1).tolist()


def test_an_actor_is_stored_beside_q(tmp_path):
    q = make("fourier:2", 2, 3, actor=True)
    (tmp_path / FILE).write_bytes(q.to_bytes())
    again = load_q_function(tmp_path / FILE)
    states = states_of(q)
    np.testing.assert_array_equal(again.policy(states), q.policy(states))
    np.testing.assert_array_equal(again(states), q(states))
    assert (q.policy(states) != np.argmax(q(states), axis=1)).any()


@pytest.mark.parametrize(("network", "inputs", "actions"), CASES[1:3])
def test_the_start_is_zero_and_tells_states_apart(network, inputs, actions):
    uniforms = np.random.default_rng(0).random(hidden_weights(network, inputs), np.float32)
    started = initial_weights(network, uniforms, inputs, actions)
    weights = {name: np.asarray(w) for name, w in started.items()}
    unit = np.random.default_rng(0).uniform(size=(40, inputs)).astype(np.float32)
    assert {name: w.shape for name, w in weights.items()} == weight_shapes(network, inputs, actions)
    assert all(w.dtype == np.float32 for w in weights.values())
    assert not np.any(q_values(network, weights, unit))
    if "W" in weights:
        bound = 4.0 / math.sqrt(inputs)
        for part in (weights["W"], weights["b"]):
            assert 0.5 * bound < np.max(np.abs(part)) <= bound
    # values are linear in V: with a row for each of its columns, what an action's row is multiplied with
    size = weights["V"].shape[1]
    each = weights | {"V": np.eye(size), "c": np.zeros(size)}
    features = q_values(network, each, unit)
    assert np.linalg.matrix_rank(features) >= 3
    if network.startswith("fourier"):  # of norm at most one: a clip norm of one cuts nothing
        assert np.max(np.sum(features**2, axis=1)) <= 1.0 + 1e-6


@pytest.mark.parametrize(
    ("network", "inputs", "message"),
    [
        ("mlp", 1, "no network called 'mlp'"), ("mlp:0", 1, "no network"), ("cnn:3", 1, "no network"),
        ("table:257", 2, "one component"), ("table:1", 1, "at least two points"), ("mlp:999999", 9, "smaller network"),
    ],
)  # fmt: skip
def test_what_is_no_network(network, inputs, message):
    with pytest.raises(DprlError, match=message):
        weight_shapes(network, inputs, 2)


def test_damaged_files(tmp_path):
    q = make("mlp:5", 1, 2)
    good = q.to_bytes()
    meta = json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])["__metadata__"]
    path = tmp_path / "other.safetensors"
    tensors = load(good)

    def refused(message: str, changed=None, **metadata: str) -> None:
        save_file(tensors | (changed or {}), path, meta | metadata)
        with pytest.raises(DprlError, match=message):
            load_q_function(path)

    refused("not a Q-function of a version", schema="dprl.value-function/1")
    refused("do not fit", network="mlp:6")
    refused("do not fit", network="mlp:5" * 9)
    refused("do not fit", actions="3")
    refused("do not fit", actions="true")
    refused("do not fit", bounds="[[0, 1], [0, 1]]")
    refused("do not fit", value="[0]")
    refused("do not fit", value="[0, Infinity]")
    refused("do not fit", {"extra": np.zeros(2, np.float32)})
    refused("do not fit", {"c": np.full(2, np.nan, np.float32)})
    refused("do not fit", {"c": np.zeros(2)})
    refused("do not fit", {"actor.c": np.zeros(2, np.float32)})
