"""First-visit evaluation against loops over trajectories, least squares, and the neighbours that it hides."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from tests.evaluation import helpers, one_shot

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.engine.layouts import padded_units
from dprl.engine.loop import noiseless, run
from dprl.engine.ratios import step_ratios
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.evaluation.plan import program_for
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features
from dprl_papers.baselines import smooth_sensitivity as smooth
from dprl_papers.baselines.first_visit import FirstVisit
from dprl_papers.domains.chain import Chain

BUDGET = Budget(1.0, 1e-5)
NOISE = SeededNoise.from_seed(0)


def chain_rows(units: int, seed: int, dtype=np.float64, person: int = 1):
    """The chain's log, its bounds and its rows; ``person`` consecutive trajectories are one unit."""
    columns = helpers.chain_log(units * person, seed)
    bounds = helpers.chain_bounds(units)
    if person > 1:
        columns["person_id"] = [e // person for e in columns["episode_id"]]
    log = read_log(columns, bounds=bounds, person="person_id" if person > 1 else None).load()
    features = make_features("tabular", bounds.observation)
    rows = rows_of(log, np.ones(len(log.reward)), features, 0.99, (0.0, 1.0), dtype=dtype, columns=("returns", "first"))
    return log, features, rows


def loop_of_first_visits(log, centre: float, half: float, size: int, kappa: float) -> np.ndarray:
    """``(U, 2 size)`` unit vectors as the module says them, by two loops; on-policy, terminated trajectories."""
    out = np.zeros((log.units, 2 * size))
    for u in range(log.units):
        episodes = range(log.unit_offsets[u], log.unit_offsets[u + 1])
        for e in episodes:
            rows, seen = range(log.episode_offsets[e], log.episode_offsets[e + 1]), set()
            for i in rows:
                state = int(log.observation[i, 0])
                if state not in seen:
                    seen.add(state)
                    value = sum(log.reward[j] * 0.99 ** (j - i) for j in rows if j >= i)
                    out[u, state] += kappa / len(episodes)
                    out[u, size + state] += (value - centre) / half / len(episodes)
    return out


def theta_of(config: FirstVisit, bounds: Bounds, features, rows, budget=BUDGET):
    """The noiseless weights, and the program."""
    program = program_for(config, bounds, features, budget)
    data = padded_units(rows)
    return np.asarray(run(program, NOISE, data, mechanisms=noiseless(program))[1]), program


@pytest.mark.parametrize("person", [1, 3])
def test_a_unit_is_its_first_visits(person):
    """Visits and returns of each state, the mean over a person's trajectories; and never longer than the clip."""
    log, features, rows = chain_rows(20, 0, person=person)
    program = program_for(FirstVisit(kappa=0.7), log.bounds, features, BUDGET)
    data = padded_units(rows)
    got = one_shot.vectors(program, 0, program.init(), data)
    expected = loop_of_first_visits(log, 0.5, 0.5, 39, 0.7)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    assert np.linalg.norm(got, axis=1).max() <= program.stages[0].mechanism.clip_norm


def test_the_longest_unit_reaches_the_clip_norm():
    """Every state visited, each return at an end of the range; with fewer steps than states, that many visits."""
    for states, horizon in ((5, 5), (5, 40), (9, 3)):
        length = min(states, horizon)
        bounds = Bounds(units=1, horizon=horizon, reward=(0.0, 1.0), observation=((0.0, states - 1.0),), actions=1,
                        return_range=(0.0, 1.0))  # fmt: skip
        columns = {
            "episode_id": [0] * length, "t": list(range(length)), "observation": [float(s) for s in range(length)],
            "action": [0] * length, "reward": [0.0] * length, "behavior_prob": [1.0] * length,
            "terminated": [i == length - 1 for i in range(length)],
        }  # fmt: skip
        log = read_log(columns, bounds=bounds).load()
        features = make_features("tabular", bounds.observation)
        rows = rows_of(log, np.ones(length), features, 1.0, (0.0, 1.0), dtype=np.float64, columns=("returns", "first"))
        program = program_for(FirstVisit(discount=1.0, kappa=2.0), bounds, features, Budget(1.0, 0.1))
        unit = one_shot.vectors(program, 0, program.init(), padded_units(rows))
        assert np.linalg.norm(unit) == pytest.approx(program.stages[0].mechanism.clip_norm, rel=1e-12)


@pytest.mark.parametrize("ridge", [0.5, 4.0])
def test_noiseless_lsl_solves_its_normal_equations(ridge):
    """Towards the middle of the range: the paper's LSL of centred returns, weight one and lambda = 2 lambda'."""
    log, features, rows = chain_rows(60, 2)
    theta, program = theta_of(FirstVisit(ridge=ridge, intercept=False), log.bounds, features, rows)
    penalty = ridge * program.stages[0].mechanism.noise_std
    visits = smooth.first_visits(log, 0.99, (0.0, 1.0)).relative_to(0.5)
    expected = smooth.lsl(np.eye(39), np.ones(39), 2.0 * penalty, visits)
    np.testing.assert_allclose(0.5 * theta * math.sqrt(39), expected, atol=1e-12)


def test_noiseless_lsl_with_an_intercept_is_least_squares_with_a_free_constant():
    log, features, rows = chain_rows(60, 3)
    theta, program = theta_of(FirstVisit(ridge=0.3), log.bounds, features, rows)
    penalty = 0.3 * program.stages[0].mechanism.noise_std
    visits = smooth.first_visits(log, 0.99, (0.0, 1.0)).relative_to(0.5)
    # unknowns: the 39 values and the constant; rows: sqrt(n) V = v / sqrt(n), and sqrt(penalty) (V - a) = 0
    root, seen = np.sqrt(visits.counts), visits.counts > 0
    fit = np.hstack([np.diag(root), np.zeros((39, 1))])
    shrink = math.sqrt(penalty) * np.hstack([np.eye(39), -np.ones((39, 1))])
    targets = np.where(seen, visits.totals / np.maximum(root, 1.0), 0.0)
    expected = np.linalg.lstsq(np.vstack([fit, shrink]), np.r_[targets, np.zeros(39)], rcond=None)[0][:39]
    np.testing.assert_allclose(0.5 * theta * math.sqrt(39), expected, atol=1e-10)


@pytest.mark.parametrize("estimator", ["lsl", "lsw"])
def test_noiseless_limit_without_a_ridge_is_first_visit_averages(estimator):
    log, features, rows = chain_rows(60, 4)
    theta, _ = theta_of(FirstVisit(estimator=estimator, ridge=1e-6), log.bounds, features, rows)
    visits = smooth.first_visits(log, 0.99, (0.0, 1.0))
    averages, seen = smooth.lsw(np.eye(39), np.ones(39), visits), visits.counts > 0
    np.testing.assert_allclose((0.5 + 0.5 * theta * math.sqrt(39))[seen], averages[seen], atol=1e-4)


def test_lsw_never_divides_by_less_than_the_ridge():
    log, features, rows = chain_rows(60, 5)
    theta, program = theta_of(FirstVisit(estimator="lsw", ridge=0.5), log.bounds, features, rows)
    penalty = 0.5 * program.stages[0].mechanism.noise_std
    visits = smooth.first_visits(log, 0.99, (0.0, 1.0)).relative_to(0.5)
    assert visits.counts.min() < penalty < visits.counts.max()  # both kinds of state are there
    expected = visits.totals / np.maximum(visits.counts, penalty)
    np.testing.assert_allclose(0.5 * theta * math.sqrt(39), expected, atol=1e-12)


def test_off_policy_returns_are_weighted():
    """Sums of per-decision weighted returns over counts; nothing is cut, for the declared bound is large."""
    bounds = helpers.stepped_bounds(300)
    bounds = Bounds(**{**bounds.as_dict(), "max_cumulative_ratio": 1.2**5 * 2.0})
    log = read_log(helpers.stepped_log(300, 6), bounds=bounds).load()
    ratios, features = step_ratios(helpers.stepped_policy, log), make_features("tabular", bounds.observation)
    value = (0.0, 5.0)
    bounds = Bounds(**{**bounds.as_dict(), "return_range": value})
    rows = rows_of(log, ratios, features, 0.9, value, dtype=np.float64, columns=("returns", "first"))
    config = FirstVisit(discount=0.9, estimator="lsw", ridge=1e-6)
    theta, _ = theta_of(config, bounds, features, rows)
    counts, totals = np.zeros(3), np.zeros(3)
    for e in range(log.episodes):
        steps, seen = range(log.episode_offsets[e], log.episode_offsets[e + 1]), set()
        for i in steps:
            state = int(log.observation[i, 0])
            if state in seen:
                continue
            seen.add(state)
            weight, weighted = 1.0, 0.0
            for j in steps:
                if j >= i:
                    weight *= ratios[j]
                    centred = log.reward[j] - 2.5 * (1.0 - 0.9 * (j != steps[-1]))
                    weighted += weight * 0.9 ** (j - i) * centred
            counts[state] += 1.0
            totals[state] += weighted
    np.testing.assert_allclose(2.5 + 2.5 * theta * math.sqrt(3), 2.5 + totals / counts, rtol=1e-9)


def test_the_stage_is_one_gaussian_of_the_whole_budget():
    log, features, _ = chain_rows(50, 7)
    for budget in (Budget(0.1, 1e-5), BUDGET):
        (stage,) = program_for(FirstVisit(), log.bounds, features, budget).stages
        mechanism = stage.mechanism
        assert mechanism.event() == events.gaussian(mechanism.noise_multiplier)
        assert mechanism.noise_multiplier == pytest.approx(gaussian_noise_multiplier(budget), rel=1e-3)
        assert epsilon_of(mechanism.event(), budget.delta) <= budget.epsilon
        assert (mechanism.clip_norm, mechanism.dimension) == (pytest.approx(math.sqrt(2 * 39)), 78)


def test_values_stay_in_the_public_range_whatever_the_noise():
    log, features, rows = chain_rows(3, 8)
    for estimator in ("lsl", "lsw"):
        program = program_for(FirstVisit(estimator=estimator, ridge=1e-6), log.bounds, features, Budget(0.01, 1e-5))
        data = padded_units(rows)
        theta = np.asarray(run(program, NOISE, data)[1])
        assert np.all(np.isfinite(theta))
        assert np.all(np.abs(theta) <= (1.0 + 1e-12) / math.sqrt(39))
        assert np.any(np.abs(theta) > 0.99 / math.sqrt(39))


def test_removing_a_unit_moves_the_sum_by_no_more_than_the_clip_norm():
    log, features, rows = chain_rows(40, 10)
    program = program_for(FirstVisit(), log.bounds, features, BUDGET)
    units = np.asarray(one_shot.vectors(program, 0, program.init(), padded_units(rows)))
    mechanism, everybody = program.stages[0].mechanism, np.ones(40, dtype=bool)
    whole = np.asarray(mechanism.clipped_sum(units, everybody))
    for u in range(40):
        without = np.asarray(mechanism.clipped_sum(units, everybody & (np.arange(40) != u)))
        change = np.linalg.norm((whole - without).astype(np.float64)) * mechanism.noise_std / mechanism.noise_on_grid
        assert 0.0 < change <= mechanism.clip_norm


@pytest.mark.parametrize("wrong", [{"ridge": 0.0}, {"ridge": math.nan}, {"kappa": -1.0}, {"kappa": math.inf}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(DprlError, match="first-visit: "):
        FirstVisit(**wrong)


def test_it_beats_noise_on_the_answer_at_the_same_guarantee():
    """Chain, 1000 trajectories, (1, 1e-5): against tabular LSL with noise for (G), at the best ridge."""
    truth, rng, noise = Chain().values(), np.random.default_rng(0), SeededNoise.from_seed(1)
    features, value = make_features("tabular", ((0.0, 38.0),)), (0.0, 1.0)
    program = program_for(FirstVisit(), helpers.chain_bounds(1000), features, BUDGET)
    mechanism, answer = program.stages[0].mechanism, jax.jit(program.answer)
    weights, multiplier, ridges = np.full(39, 1 / 40), gaussian_noise_multiplier(BUDGET), (2.5, 5.0, 10.0, 20.0, 50.0)
    verified, output = [], []
    for trial in range(30):
        counts, totals = np.zeros(39), np.zeros(39)
        for start in rng.integers(0, 39, 1000):
            left = rng.geometric(0.5, 39 - start)[::-1].cumsum()[::-1]  # steps to the end, from first visits
            counts[start:] += 1.0
            totals[start:] += 0.99 ** (left - 1)
        visits = smooth.FirstVisits(counts, totals)
        drawn = np.asarray(mechanism.scaled(mechanism.draw(noise, trial)))
        theta = np.asarray(answer(np.r_[counts, 2.0 * totals - counts] + drawn))
        verified.append(np.mean((0.5 + 0.5 * math.sqrt(39) * theta - truth) ** 2))
        values = [
            smooth.noisy_tabular_lsl(multiplier, weights, ridge, visits, value, noise.stream("output"), 9 * trial + i)
            for i, ridge in enumerate(ridges)
        ]
        output.append([np.mean((np.clip(v, *value) - truth) ** 2) for v in values])
    best = np.mean(output, axis=0)
    assert 0 < best.argmin() < len(ridges) - 1  # the grid holds it
    assert np.mean(verified) < best.min() / 4.0
