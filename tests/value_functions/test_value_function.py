"""A released value function: evaluated, cut to its range, drawn, stored and read back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dprl.errors import DprlError
from dprl.value_functions.features import make_features
from dprl.value_functions.value_function import FILE, ValueFunction, load_value_function

BOUNDS = ((0.0, 10.0), (-1.0, 1.0))


def make(spec="columns", value=(-2.0, 6.0), bounds=BOUNDS, scale=0.1, seed=0):
    features = make_features(spec, bounds)
    theta = scale * np.random.default_rng(seed).standard_normal(features.size)
    return ValueFunction(theta, features, value)


def test_the_value_is_the_linear_function_in_the_reward_s_unit():
    function = make()
    states = np.array([[0.0, -1.0], [5.0, 0.0], [10.0, 1.0]])
    scaled = np.column_stack([np.ones(3), np.sqrt(3) * (states[:, 0] / 5 - 1), np.sqrt(3) * states[:, 1]])
    np.testing.assert_allclose(function(states), 2.0 + 4.0 * scaled @ function.theta)


def test_values_stay_inside_the_public_range():
    function = make(scale=100.0)
    values = function(np.random.default_rng(1).uniform((0, -1), (10, 1), (200, 2)))
    assert values.min() == -2.0
    assert values.max() == 6.0


def test_the_middle_and_the_constant():
    features = make_features("fourier:2", BOUNDS)
    states = np.zeros((3, 2))
    np.testing.assert_allclose(ValueFunction(np.zeros(9), features, (-2.0, 6.0))(states), 2.0)
    np.testing.assert_allclose(ValueFunction(0.5 * features.constant(), features, (-2.0, 6.0))(states), 4.0)


def test_shapes_of_states():
    single = make(bounds=((0.0, 10.0),))
    np.testing.assert_array_equal(single([1.0, 2.0]), single([[1.0], [2.0]]))
    assert make()(np.zeros((0, 2))).shape == (0,)
    for wrong in ([1.0, 2.0], [[1.0]], [[[1.0, 2.0]]], 3.0):
        with pytest.raises(DprlError, match=r"shape \(N, 2\)"):
            make()(wrong)


@pytest.mark.parametrize(
    ("spec", "bounds"), [("columns", BOUNDS), ("fourier:3", BOUNDS), ("tabular", ((0.0, 10.0), (-1.0, 1.0)))]
)
def test_stored_and_read_back(tmp_path, spec, bounds):
    function = make(spec, bounds=bounds)
    (tmp_path / FILE).write_bytes(function.to_bytes())
    states = np.random.default_rng(1).uniform((0, -1), (10, 1), (50, 2))
    for place in (tmp_path, tmp_path / FILE, str(tmp_path)):
        found = load_value_function(place)
        np.testing.assert_array_equal(found(states), function(states))
        assert found.features == function.features
        assert found.value == function.value
    np.testing.assert_array_equal(load_file(tmp_path / FILE)["theta"], function.theta)


def test_slices_are_the_function_along_one_component():
    function = make("fourier:2")
    first, second = function.slices(points=5)
    np.testing.assert_array_equal(first["grid"], np.linspace(0, 10, 5))
    np.testing.assert_array_equal(first["values"], function(np.column_stack([first["grid"], np.zeros(5)])))
    np.testing.assert_array_equal(second["values"], function(np.column_stack([np.full(5, 5.0), second["grid"]])))
    assert [first["component"], second["component"]] == [0, 1]
    json.dumps([first, second], allow_nan=False)


def test_slices_of_a_table_go_through_its_states():
    pieces = make("tabular", bounds=((0.0, 3.0), (0.0, 100.0))).slices(points=41)
    assert pieces[0]["grid"] == [0.0, 1.0, 2.0, 3.0]
    assert len(pieces[1]["grid"]) == 41
    assert all(x == int(x) for x in pieces[1]["grid"])


SCHEMA = {"schema": "dprl.value-function/1", "features": "columns", "bounds": json.dumps(BOUNDS), "value": "[0, 1]"}


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ({"theta": np.zeros(4)}, SCHEMA, "do not fit its features"),
        ({"theta": np.zeros((3, 1))}, SCHEMA, "do not fit its features"),
        ({"weights": np.zeros(3)}, SCHEMA, "do not fit its features"),
        ({"theta": np.zeros(3)}, {**SCHEMA, "schema": "dprl.value-function/9"}, "of a version"),
        ({"theta": np.zeros(3)}, {}, "of a version"),
        ({"theta": np.zeros(3)}, {k: v for k, v in SCHEMA.items() if k != "bounds"}, "does not describe its features"),
        ({"theta": np.zeros(3)}, {**SCHEMA, "bounds": "[["}, "does not describe its features"),
        ({"theta": np.zeros(3)}, {**SCHEMA, "bounds": "[1, 2]"}, "does not describe its features"),
        ({"theta": np.zeros(3)}, {**SCHEMA, "value": "[1]"}, "does not describe its features"),
        ({"theta": np.zeros(3)}, {**SCHEMA, "features": "deep"}, "does not describe its features"),
    ],
)
def test_damaged_files_are_refused(tmp_path, tensors, metadata, words):
    save_file({"theta": np.zeros(3)}, tmp_path / FILE, SCHEMA)
    load_value_function(tmp_path)
    save_file(tensors, tmp_path / FILE, metadata)
    with pytest.raises(DprlError, match=words):
        load_value_function(tmp_path)


def test_what_is_no_file(tmp_path):
    path = tmp_path / "x.safetensors"
    for raw in (b"", b"not a tensor", make().to_bytes()[:-3], b"\x80\x04." * 20):  # the last is a pickle
        path.write_bytes(raw)
        for place in (tmp_path, path, tmp_path / "absent"):
            with pytest.raises(DprlError, match="missing or damaged"):
                load_value_function(place)


def test_the_same_function_is_the_same_bytes():
    """The library shuffles its metadata."""
    assert len({make().to_bytes() for _ in range(20)}) == 1
    assert make().to_bytes() != make(seed=1).to_bytes()
