"""The accountant, held against closed forms, against RDP and against itself."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import mpmath
import pytest
import typer
from dp_accounting import NeighboringRelation
from dp_accounting import dp_event as dpe
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dprl.accounting import calibration
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import epsilon_of, gaussian_delta, gaussian_noise_multiplier, noise_multiplier_for
from dprl.accounting.events import compose, gaussian, poisson_gaussian
from dprl.cli.calibrate import calibrate
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


@pytest.mark.parametrize(("multiplier", "steps"), [(20.0, 1000), (300.0, 10_000), (2000.0, 50_000)])
def test_grid_keeps_many_small_losses_tight(multiplier, steps):
    """Sampling nearly everybody, step by step, is close to one Gaussian whose epsilon is known in closed form."""
    epsilon = epsilon_of(poisson_gaussian(1.0 - 1e-9, multiplier, steps), 1e-5)
    assert gaussian_delta(epsilon, multiplier / math.sqrt(steps)) == pytest.approx(1e-5, rel=0.02)
    assert gaussian_delta(epsilon, multiplier / math.sqrt(steps)) <= 1e-5 * (1 + 1e-4)


# --- calibration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "expected"),
    [(0.005, 200, 1.0, 0.798), (0.005, 200, 0.1, 2.39), (0.001, 1000, 1.0, 0.641), (0.001, 1000, 0.1, 1.23)],
)
def test_known_multipliers(rate, steps, epsilon, expected):
    budget = Budget(epsilon, 1e-5)
    found = noise_multiplier_for(poisson(rate, steps), budget)
    assert found == pytest.approx(expected, rel=0.01)
    check_smallest(poisson(rate, steps), budget, found)


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta"),
    [(0.5, 1, 0.01, 1e-5), (0.5, 100_000, 1.0, 1e-5), (0.05, 100, 0.05, 1e-8), (0.01, 100_000, 0.01, 1e-6)],
)
def test_calibration_over_the_range(rate, steps, epsilon, delta):
    budget = Budget(epsilon, delta)
    check_smallest(poisson(rate, steps), budget, noise_multiplier_for(poisson(rate, steps), budget))


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
    inner = calibration._epsilon

    def counted(parts, delta, coarser=1.0):
        calls.append((parts, coarser))
        return inner(parts, delta, coarser)

    monkeypatch.setattr(calibration, "_epsilon", counted)
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


# --- the accounting contract ------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(
    rate=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
    multiplier=st.floats(5.0, 50.0),
    first=st.integers(1, 40),
    second=st.integers(1, 40),
)
def test_composing_equals_one_composition(rate, multiplier, first, second):
    whole = epsilon_of(poisson_gaussian(rate, multiplier, first + second), 1e-5)
    parts = [poisson_gaussian(rate, multiplier, first), poisson_gaussian(rate, multiplier, second)]
    assert epsilon_of(compose(parts), 1e-5) == pytest.approx(whole, rel=1e-12)
    assert epsilon_of(compose(parts[::-1]), 1e-5) == epsilon_of(compose(parts), 1e-5)
    # the accountant itself, one step after the other, on its default grid
    direct = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for part in parts:
        direct.compose(part)
    assert whole <= direct.get_epsilon(1e-5) * (1 + 1e-6)


@settings(max_examples=12, deadline=None)
@given(
    rate=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
    multiplier=st.floats(2.0, 500.0),
    factor=st.floats(1.001, 3.0),
    steps=st.sampled_from([1, 10, 1000]),
)
def test_more_noise_never_costs_more(rate, multiplier, factor, steps):
    less = epsilon_of(poisson_gaussian(rate, multiplier, steps), 1e-5)
    more = epsilon_of(poisson_gaussian(rate, multiplier * factor, steps), 1e-5)
    # rounding of the transforms aside
    assert more <= less * (1 + 1e-7) + 1e-12


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("multiplier", "steps"), [(1.0, 1), (1.0, 30), (3.0, 100), (10.0, 1000), (60.0, 10_000)])
def test_never_above_renyi(rate, multiplier, steps):
    event = poisson_gaussian(rate, multiplier, steps)
    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    renyi.compose(event)
    assert 0.0 < epsilon_of(event, 1e-5) <= renyi.get_epsilon(1e-5)


def test_replace_one_is_never_asked_for_because_the_accountants_disagree():
    """PLDAccountant(REPLACE_ONE) doubles the sensitivity inside, RdpAccountant(REPLACE_ONE) does not."""

    def answer(accountant, relation, multiplier):
        made = accountant(neighboring_relation=relation)
        made.compose(dpe.GaussianDpEvent(multiplier))
        return made.get_epsilon(1e-5)

    add, replace = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
    assert answer(PLDAccountant, replace, 1.0) == pytest.approx(answer(PLDAccountant, add, 0.5), rel=1e-6)
    assert answer(RdpAccountant, replace, 1.0) == answer(RdpAccountant, add, 1.0)
    assert answer(RdpAccountant, replace, 1.0) < 0.5 * answer(PLDAccountant, replace, 1.0)
    assert epsilon_of(gaussian(1.0), 1e-5) == pytest.approx(answer(PLDAccountant, add, 1.0), rel=1e-6)
    assert "add or remove one" in calibration.accountant_name()


@pytest.mark.parametrize(
    "event",
    [
        dpe.LaplaceDpEvent(1.0),
        dpe.NonPrivateDpEvent(),
        dpe.NoOpDpEvent(),
        dpe.PoissonSampledDpEvent(0.1, dpe.SelfComposedDpEvent(dpe.GaussianDpEvent(1.0), 2)),
        dpe.SampledWithoutReplacementDpEvent(100, 10, dpe.GaussianDpEvent(1.0)),
        dpe.GaussianDpEvent(0.0),
        dpe.SelfComposedDpEvent(dpe.GaussianDpEvent(1.0), 10**40),
    ],
)
def test_refuses_events_it_does_not_know(event):
    with pytest.raises(DprlError):
        epsilon_of(event, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_refuses_a_delta_that_is_no_probability(delta):
    with pytest.raises(DprlError):
        epsilon_of(gaussian(1.0), delta)


@pytest.mark.parametrize("event", [gaussian(1e-3), poisson_gaussian(0.5, 0.5, 10**12)])
def test_hopeless_events_are_answered_at_once(event):
    assert epsilon_of(event, 1e-5) == math.inf


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


# --- the command ------------------------------------------------------------------------------------------------


def run(*arguments: str):
    app = typer.Typer()
    app.command()(calibrate)
    return CliRunner().invoke(app, list(arguments))


def test_command_prints_an_object_that_says_all():
    asked = ["gpope", "--epsilon", "0.1", "--delta", "1e-5", "--sampling-rate", "0.1", "--steps", "20", "--json"]
    result = run(*asked)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found) == ["noise_multiplier", "epsilon", "delta", "relation", "event", "accountant"]
    assert found["noise_multiplier"] == noise_multiplier_for(poisson(0.1, 20), Budget(0.1, 1e-5))
    assert (found["epsilon"], found["delta"], found["relation"]) == (0.1, 1e-5, "add or remove one")
    assert found["accountant"].startswith("dp_accounting 0.6.0 PLDAccountant")
    back = ["gpope", "--noise-multiplier", str(found["noise_multiplier"]), *asked[3:]]
    assert 0.0999 < json.loads(run(*back).stdout)["epsilon"] <= 0.1


def test_command_prints_a_multiplier_that_may_be_typed_back():
    result = run("importance-sampling", "--epsilon", "1", "--delta", "1e-5")
    assert result.exit_code == 0, result.output
    printed = float(result.stdout.split()[2])
    assert epsilon_of(gaussian(printed), 1e-5) <= 1.0
    assert printed == pytest.approx(gaussian_noise_multiplier(Budget(1.0, 1e-5)), rel=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sarsa", "--epsilon", "1", "--delta", "1e-5"],
        ["gpope", "--epsilon", "1", "--delta", "1e-5"],
        ["gpope", "--delta", "1e-5", "--sampling-rate", "0.1", "--steps", "2"],
        ["importance-sampling", "--epsilon", "1", "--noise-multiplier", "1", "--delta", "1e-5"],
        ["importance-sampling", "--epsilon", "1", "--delta", "1e-5", "--steps", "2"],
        ["importance-sampling", "--epsilon", "0", "--delta", "1e-5"],
        ["importance-sampling", "--epsilon", "1", "--delta", "1"],
        ["importance-sampling", "--noise-multiplier", "0.001", "--delta", "1e-5"],
        ["gpope", "--epsilon", "1", "--delta", "1e-5", "--sampling-rate", "2", "--steps", "2"],
    ],
)
def test_command_refuses(arguments):
    assert isinstance(run(*arguments).exception, DprlError)
