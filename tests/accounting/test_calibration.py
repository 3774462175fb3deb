"""Calibration: closed forms, the smallest multiplier that the accountant accepts, and a cache that is not trusted."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import mpmath
import pytest

from dprl.accounting import accountant, calibration
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_delta, gaussian_noise_multiplier, noise_multiplier_for
from dprl.accounting.events import compose, gaussian, poisson_gaussian
from dprl.errors import DprlError


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(calibration, "_known", {})
    return tmp_path / "cache" / "dprl" / "calibration"


def poisson(rate: float, steps: int):
    return lambda multiplier: poisson_gaussian(rate, multiplier, steps)


def check_smallest(make_event, budget: Budget, found: float, tolerance: float = 1e-4) -> None:
    assert epsilon_of(make_event(found), budget.delta) <= budget.epsilon
    assert epsilon_of(make_event(found * (1.0 - 1.1 * tolerance)), budget.delta) > budget.epsilon


# --- closed forms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 40.0])
def test_gaussian_delta_agrees_with_fifty_digits(epsilon, multiplier):
    with mpmath.workdps(50):
        mu = 1 / mpmath.mpf(multiplier)
        exact = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        assert gaussian_delta(epsilon, multiplier) == pytest.approx(float(exact), rel=1e-9, abs=1e-16)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_closed_form_meets_its_budget_and_not_by_much(epsilon, delta):
    found = gaussian_noise_multiplier(Budget(epsilon, delta))
    assert gaussian_delta(epsilon, found) <= delta < gaussian_delta(epsilon, found * (1.0 - 1e-6))


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0, 20.0])
@pytest.mark.parametrize("steps", [1, 1000])
def test_plain_gaussian_is_the_closed_form_as_accepted_by_the_pld(epsilon, steps):
    budget = Budget(epsilon, 1e-5)
    found = noise_multiplier_for(poisson(1.0, steps), budget)
    exact = gaussian_noise_multiplier(budget) * math.sqrt(steps)
    assert exact * (1.0 - 1e-8) <= found <= exact * (1.0 + 1e-3)
    check_smallest(poisson(1.0, steps), budget, found)


# --- calibration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta", "expected"),
    [
        (0.005, 200, 1.0, 1e-5, 0.798), (0.001, 1000, 0.1, 1e-5, 1.23), (0.5, 1, 0.01, 1e-5, None),
        (0.5, 100_000, 1.0, 1e-5, None), (0.05, 100, 0.05, 1e-8, None), (0.01, 100_000, 0.01, 1e-6, None),
    ],
)  # fmt: skip
def test_calibration_over_the_range(rate, steps, epsilon, delta, expected):
    budget = Budget(epsilon, delta)
    found = noise_multiplier_for(poisson(rate, steps), budget)
    check_smallest(poisson(rate, steps), budget, found)
    assert expected is None or found == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-4, 0.05, 0.9])
@pytest.mark.parametrize("steps", [1, 300, 100_000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_calibration_over_the_whole_range(rate, steps, epsilon):
    budget = Budget(epsilon, 1e-5)
    found = noise_multiplier_for(poisson(rate, steps), budget)
    if found == calibration.SMALLEST:
        assert epsilon_of(poisson_gaussian(rate, found, steps), 1e-5) <= epsilon
    else:
        check_smallest(poisson(rate, steps), budget, found)


def test_few_calls_of_the_accountant(monkeypatch):
    calls = []
    inner = accountant.epsilon_of_parts

    def counted(parts, delta, coarser=1.0):
        calls.append((parts, coarser))
        return inner(parts, delta, coarser)

    monkeypatch.setattr(accountant, "epsilon_of_parts", counted)
    noise_multiplier_for(poisson(0.02, 77), Budget(1.0, 1e-5))
    assert len({call for call in calls if call[1] == 1.0}) <= 8


def test_two_mechanisms_share_one_multiplier():
    def both(multiplier: float):
        return compose([gaussian(4.0 * multiplier), poisson_gaussian(0.01, multiplier, 50)])

    budget = Budget(0.3, 1e-5)
    found = noise_multiplier_for(both, budget)
    check_smallest(both, budget, found)


def test_a_fixed_part_above_the_budget_is_refused():
    with pytest.raises(DprlError, match="No noise multiplier meets epsilon = 1"):
        noise_multiplier_for(
            lambda multiplier: compose([gaussian(1.0), poisson_gaussian(0.5, multiplier, 2)]), Budget(1.0, 1e-5)
        )


def test_a_delta_below_the_truncation_is_refused():
    with pytest.raises(DprlError, match="No noise multiplier"):
        noise_multiplier_for(poisson(0.5, 10), Budget(1.0, 1e-16))


def test_no_less_noise_than_the_smallest():
    # a unit is sampled with a probability below delta: any noise would do
    assert noise_multiplier_for(poisson(1e-6, 1), Budget(1.0, 1e-5)) == calibration.SMALLEST


# --- the cache --------------------------------------------------------------------------------------------------

BUDGET = Budget(0.05, 1e-5)


def test_cache_is_one_small_file_and_is_read_again(fresh_cache, monkeypatch):
    found = noise_multiplier_for(poisson(0.2, 9), BUDGET)
    (file,) = fresh_cache.iterdir()
    assert json.loads(file.read_text()) == {"noise_multiplier": found}
    monkeypatch.setattr(calibration, "_known", {})
    monkeypatch.setattr(calibration, "_search", None)  # a second search would fail
    assert noise_multiplier_for(poisson(0.2, 9), BUDGET) == found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"noise_multiplier": "3"}',
        b'{"noise_multiplier": NaN}',
        b'{"noise_multiplier": 0.9}',  # too little noise: not private
        b'{"noise_multiplier": 9000.0}',  # too much: wasteful
    ],
)
def test_a_bad_cache_is_never_trusted(fresh_cache, monkeypatch, content):
    found = noise_multiplier_for(poisson(0.2, 9), BUDGET)
    (file,) = fresh_cache.iterdir()
    file.write_bytes(content)
    monkeypatch.setattr(calibration, "_known", {})
    assert noise_multiplier_for(poisson(0.2, 9), BUDGET) == found
    assert json.loads(file.read_text()) == {"noise_multiplier": found}


def test_an_unwritable_or_unreadable_cache_is_ignored(tmp_path, monkeypatch):
    found = noise_multiplier_for(poisson(0.2, 9), BUDGET)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(calibration, "_known", {})
    assert noise_multiplier_for(poisson(0.2, 9), BUDGET) == found


def test_a_relative_cache_folder_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    noise_multiplier_for(poisson(0.2, 9), BUDGET)
    assert os.listdir(tmp_path) == [".cache"]
    assert calibration._cache_folder() == Path(tmp_path, ".cache", "dprl", "calibration")


def test_different_questions_have_different_keys():
    def key(make_event, budget=BUDGET, tolerance=1e-4):
        return calibration._cache_key(make_event, budget, tolerance)

    def part(factor):
        return lambda multiplier: compose([gaussian(multiplier), gaussian(factor * multiplier)])

    keys = [key(poisson(0.2, 9)), key(poisson(0.2, 10)), key(poisson(0.3, 9)), key(part(1.0)), key(part(2.0))]
    keys += [
        key(gaussian),
        key(lambda x: gaussian(x * x)),
        key(gaussian, Budget(0.05, 1e-6)),
        key(gaussian, tolerance=1e-3),
    ]
    assert len(set(keys)) == len(keys)
