"""Logs and requests that are wrong, under every program; the tables of the two first algorithms are longer."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import dprl as library
from dprl.registry import evaluation_entries

from ..sample_log import BOUNDS, BOUNDS_TOML, Columns
from .conftest import SETTINGS, TABULAR
from .conftest import WITH_NEXT as LOG
from .test_table import ABSENT, ZERO, changed

WITHOUT = ("importance-sampling", "stratified", "survival", "best-linear-projection")  # a value function
PROGRAMS = [name for name in evaluation_entries() if name not in ("gpope", *WITHOUT)]
# one with stages and one without here, the others with the slow tests
FAST = ("constant", "td")
NAMES = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in PROGRAMS]


@pytest.fixture(params=NAMES)
def evaluate(request, doors):
    """In Python; features that every algorithm takes."""

    def evaluated(log: Columns, **changes):
        features = "tabular" if request.param in TABULAR else "columns"
        return doors["python"](log, request.param, **{"features": features, **changes})

    return evaluated


def test_what_is_broken_contributes_zero_and_what_is_extreme_its_bound(evaluate, fixed_noise):
    expected = evaluate(ABSENT)
    for name, log in ZERO.items():
        assert evaluate(log).same(expected), name
    assert not evaluate(LOG).same(expected), "the episode makes no difference: nothing is tested"
    for column, value, bound in (("reward", 99.0, 1.0), ("observation_0", 1e6, 10.0), ("behavior_prob", 5e-324, 0.25)):
        assert evaluate(changed(column, value)).same(evaluate(changed(column, bound))), column
    # nobody at all, or nobody whose rows can be used: noise alone, and as many numbers
    empty = evaluate({k: [] for k in LOG})
    assert empty.same(evaluate({**LOG, "reward": [math.nan] * len(LOG["t"])}))
    assert empty.numbers.shape == expected.numbers.shape
    assert np.isfinite(empty.numbers).all()
    fixed_noise(2)
    assert (evaluate({k: [] for k in LOG}).numbers[5:] != empty.numbers[5:]).any(), "a value function without noise"


WORLDS = {
    "one decision": ("horizon = 4", "horizon = 1"),
    "on policy": ("max_importance_ratio = 2", "max_importance_ratio = 1"),
    "rewards are all zero": ("reward = [-1, 1]", "reward = [0, 0]"),
    "a reward of one value": ("reward = [-1, 1]", "reward = [1, 1]"),
    "one state": ("[[0, 10], [-5, 5]]", "[[0, 0], [3, 3]]"),
    "a value of one point": ("units = 60", "units = 60\nvalue = [0.5, 0.5]"),
    "few units": ("units = 60", "units = 1"),
    "many units": ("units = 60", "units = 9000"),
}


@pytest.mark.parametrize("world", [pytest.param(w, marks=[] if w == "a value of one point" else [pytest.mark.slow])
                                   for w in WORLDS])  # fmt: skip
def test_public_facts_of_every_kind_give_numbers(evaluate, fixed_noise, world):
    old, new = WORLDS[world]
    assert old in BOUNDS_TOML
    bounds = BOUNDS_TOML.replace(old, new)
    nobody = {k: [] for k in LOG}
    try:
        found, empty = evaluate(LOG, bounds=bounds), evaluate(nobody, bounds=bounds)
    except library.DprlError as error:
        refusal = str(error)
    else:
        assert np.isfinite(found.numbers).all()
        assert np.isfinite(empty.numbers).all()
        assert found.numbers.shape == empty.numbers.shape
        return
    assert world == "few units"
    assert "the noise alone" in refusal  # by public facts
    with pytest.raises(library.DprlError, match=re.escape(refusal)):
        evaluate(nobody, bounds=bounds)


@pytest.mark.parametrize("discount", [0.0, 1.0])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS])
def test_discounts_at_the_ends_give_numbers_or_one_sentence(name, discount):
    options = {k: int(v) for k, v in (s.split("=") for s in SETTINGS.get(name, ()))}
    kind, features = evaluation_entries()[name].load_config(), "tabular" if name in TABULAR else "columns"
    budget = library.Budget(1.0, 1e-5)
    try:
        config = kind.from_mapping({**options, "discount": discount}, "code")
        release = library.evaluate(LOG, "uniform", budget, bounds=BOUNDS, algorithm=config, features=features)
    except library.DprlError as error:
        refusal = str(error)
    else:
        assert release.value_function is not None
        assert np.isfinite(release.value_function.theta).all()
        assert np.isfinite(release.interval).all()
        return
    assert "discount" in refusal
    assert "\n" not in refusal


REFUSED = {
    "noisy-counts": ({}, "columns", "use tabular features"),
    "first-visit": ({}, "columns", "use tabular features"),
    "lstd": ({"support": "0,1"}, "columns", "use tabular features"),
    "adassp": ({"modes": 9}, "columns", "at most 3 modes"),
    "doubly-robust": ({"modes": 9}, "columns", "at most 3 modes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_algorithm_cannot_do_is_refused_before_anything_is_spent(trial, name):
    options, features, words = REFUSED[name]
    config = evaluation_entries()[name].load_config().from_mapping(options, "code")
    with pytest.raises(library.DprlError, match=words):
        library.evaluate(LOG, "uniform", library.Budget(1.0, 1e-5), bounds=BOUNDS, algorithm=config, unit="person",
                         features=features, ledger=trial.ledger, dataset="trial")  # fmt: skip
    assert trial.charges() == 0
