"""Event-free probabilities against Kaplan and Meier, Greenwood, and exact times."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter

import dprl
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.errors import DprlError
from dprl.evaluation.intervals import SAYS_NOTHING
from dprl.evaluation.plan import make_plan
from dprl.evaluation.survival import Survival
from dprl.evaluation.survival_intervals import EXPOSURE, ReleasedShares, at_risk_matrix, event_free, nominal_shares
from dprl.policies.loading import load_policy

BUDGET, UNTIL, BINS = Budget(1.0, 1e-5), 8.0, 8
TRIAL = Bounds(units=400, horizon=1, reward=(0.0, 12.0), observation=((0.0, 1.0),), actions=2, max_importance_ratio=2.5)
ARMS = [load_policy(f"always:{arm}", 2) for arm in range(2)]


def trial(people: int = 400, seed: int = 0) -> dict[str, np.ndarray]:
    """Two arms with chances .4 and .6; times of events and of leaving at random, some of them whole numbers."""
    rng = np.random.default_rng(seed)
    arm = (rng.random(people) < 0.6).astype(np.int64)
    time, left = rng.exponential(8.0 + 6.0 * arm), np.minimum(rng.exponential(14.0, people), 11.0)
    seen = np.minimum(time, left)
    seen[::3] = np.ceil(seen[::3])
    return {
        "observation": rng.random(people), "action": arm, "reward": seen,
        "behavior_prob": np.where(arm == 1, 0.6, 0.4), "terminated": time <= left,
    }  # fmt: skip


def planned(config: Survival, policies=ARMS, bounds: Bounds = TRIAL, contrasts=()):
    return make_plan(config, bounds, BUDGET, policies, contrasts=contrasts)


def without_noise(plan, columns, policies=ARMS):
    log = read_log(columns, bounds=plan.bounds).load()
    total = plan.query.unit_vectors(log, policies).sum(axis=0)
    return plan.query.decode(plan.value_mechanism, total)


def kaplan_meier(columns, weights) -> np.ndarray:
    some = weights > 0.0
    bins = np.ceil(columns["reward"] * BINS / UNTIL)[some]
    fitter = KaplanMeierFitter().fit(bins, columns["terminated"][some], weights=weights[some])
    return fitter.predict(np.arange(1, BINS + 1)).to_numpy()


END = Survival(until=UNTIL, bins=BINS, censoring="end")


def mixed(states):
    """A policy by the state."""
    second = 0.2 + 0.5 * states[:, 0]
    return np.column_stack([1.0 - second, second])


# --- the estimate -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:It looks like your weights are not integers")
@pytest.mark.parametrize("policies", [ARMS, [*ARMS, mixed], [mixed]], ids=["arms", "arms and a mixture", "a mixture"])
def test_without_noise_it_is_kaplan_meier_on_the_bins(policies):
    columns = trial()
    log = read_log(columns, bounds=TRIAL).load()
    for policy, estimate in zip(policies, without_noise(planned(END, policies), columns, policies), strict=True):
        table = np.asarray(policy(log.observation))
        chance = table[np.arange(len(table)), log.action] / log.behavior_prob
        expected = kaplan_meier(columns, chance)
        np.testing.assert_allclose([s for _, s, *_ in estimate.curve], expected, rtol=0, atol=1e-10)
        assert estimate.value == pytest.approx(expected[-1], abs=1e-10)
        assert estimate.mean_weight == pytest.approx(chance.mean())


def test_the_naive_share_is_lower_and_exact_times_are_nearby():
    columns = trial(4000)
    (value,) = (e.value for e in without_noise(planned(Survival(until=UNTIL), ARMS[:1]), columns, ARMS[:1]))
    mine = columns["action"] == 0
    exact = KaplanMeierFitter().fit(columns["reward"][mine], columns["terminated"][mine]).predict(UNTIL)
    assert value == pytest.approx(float(exact), abs=0.005)
    assert np.mean(columns["reward"][mine] > UNTIL) < value - 0.05


SHARES = st.lists(st.floats(0.01, 1.0), min_size=7, max_size=7).map(np.array)


@given(SHARES, st.sampled_from([0.0, 0.5, 1.0]))
def test_derivatives(shares, exposure):
    shares = shares / shares.sum()
    slope, step = event_free(shares, exposure)[1], 1e-6 * np.eye(7)
    moved = [event_free(shares + d, exposure)[0] - event_free(shares - d, exposure)[0] for d in step]
    np.testing.assert_allclose(slope, np.array(moved).T / 2e-6, atol=1e-4 * np.abs(slope).max())
    np.testing.assert_allclose(slope @ shares, 0.0, atol=1e-12)  # a common factor changes nothing


@given(SHARES)
def test_the_sampling_error_is_that_of_greenwood(shares):
    shares = shares / shares.sum()
    events, people = shares[:3], at_risk_matrix(3, 1.0) @ shares
    value, slope = event_free(shares, 1.0)
    greenwood = value[-1] ** 2 * np.sum(events / people / (people - events))
    np.testing.assert_allclose(shares @ slope[-1] ** 2, greenwood, rtol=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(5, 60))
def test_exact_times_lie_within_what_is_not_known_of_the_bins(seed, people):
    """Whenever in their bin people left: Kaplan and Meier's estimate of the exact times is between the two ends."""
    rng = np.random.default_rng(seed)
    time, event = rng.random(people) * 4.0, rng.random(people) < 0.5
    cells = np.where(time > 3.0, 6, np.floor(time) + np.where(event, 0, 3)).astype(int)
    shares = np.bincount(cells, minlength=7) / people
    if (at_risk_matrix(3, 0.0) @ shares <= 0.0).any():
        return
    exact = KaplanMeierFitter().fit(time, event).predict(3.0)
    low, high = (event_free(shares, x)[0][-1] for x in (0.0, 1.0))
    assert low - 1e-12 <= exact <= high + 1e-12


@given(SHARES, SHARES, st.floats(0.0, 0.5))
def test_what_weights_lack_moves_it_no_farther_than_the_two_extremes(shares, added, missing):
    shares, added = shares / shares.sum(), missing * added / added.sum()
    low, between, high = (
        event_free(shares + extra, 1.0)[0][-1] for extra in (missing * np.eye(7)[2], added, missing * np.eye(7)[6])
    )
    assert low - 1e-12 <= between <= high + 1e-12


def test_an_empty_log_has_no_vectors():
    plan = planned(END)
    nobody = {name: values[:0] for name, values in trial().items()}
    vectors = plan.query.unit_vectors(read_log(nobody, bounds=TRIAL).load(), ARMS)
    assert vectors.shape == (0, plan.query.dimension)
    assert vectors.dtype == np.float64


def test_rows_of_periods_are_the_same_as_one_row_with_the_time():
    columns = trial()
    length = np.clip(np.ceil(columns["reward"]), 1, 12).astype(int)
    who = np.repeat(np.arange(len(length)), length)
    last = np.r_[np.diff(who) != 0, True]
    periods = {
        "episode_id": who, "t": np.arange(len(who)) - np.repeat(np.cumsum(length) - length, length),
        "observation": columns["observation"][who], "action": columns["action"][who], "reward": np.ones(len(who)),
        "behavior_prob": np.ones(len(who)), "terminated": last & columns["terminated"][who],
        "truncated": last & ~columns["terminated"][who],
    }  # fmt: skip
    uniform = [load_policy("uniform", 1)]
    one = replace(TRIAL, actions=1, max_importance_ratio=1.0, reward=(0.0, 13.0))
    many = replace(one, horizon=12, reward=(0.0, 1.0))
    single = {**columns, "action": 0 * columns["action"], "behavior_prob": np.ones(len(length))}
    made = [
        without_noise(planned(END, uniform, bounds), rows, uniform)[0]
        for bounds, rows in ((one, {**single, "reward": length.astype(float)}), (many, {**periods, "action": 0 * who}))
    ]
    assert made[0] == made[1]


def test_a_time_at_the_upper_bound_counts_as_later():
    columns = {**trial(), "reward": np.full(400, 20.0), "terminated": np.ones(400, dtype=bool)}
    for until, value in ((12.0, 1.0), (None, 1.0)):
        assert [e.value for e in without_noise(planned(Survival(until=until)), columns)] == pytest.approx([value] * 2)


# --- the noise ----------------------------------------------------------------------------------------------------


def test_noise_is_that_of_the_released_vector():
    plan = planned(replace(END, confidence=0.9), contrasts=((0, 1),))
    query, mechanism = plan.query, plan.value_mechanism
    log = read_log(trial(), bounds=TRIAL).load()
    total = query.unit_vectors(log, ARMS).sum(axis=0)
    steps = 1e-4 * np.eye(query.dimension)
    ends = [[[e.value for e in query.decode(mechanism, total + s * d)] for d in steps] for s in (1.0, -1.0)]
    changes = (np.array(ends[0]) - np.array(ends[1])) / 2e-4
    estimates = query.decode(mechanism, total)
    expected = mechanism.noise_std * np.linalg.norm(changes, axis=0)
    np.testing.assert_allclose([e.privacy_standard_error for e in estimates], expected, rtol=1e-5)
    apart = mechanism.noise_std * np.linalg.norm(changes[:, 0] - changes[:, 1])
    assert query.difference(mechanism, total, 0, 1).noise == pytest.approx(apart, rel=1e-5)


@pytest.mark.parametrize("policies", [ARMS, [*ARMS, mixed], [mixed]], ids=["arms", "arms and a mixture", "a mixture"])
def test_no_vector_is_longer_than_the_clip_norm(policies):
    plan = planned(Survival(until=UNTIL, bins=20), policies)
    vectors = plan.query.unit_vectors(read_log(trial(), bounds=TRIAL).load(), policies)
    norms = np.linalg.norm(vectors, axis=1)
    assert norms.max() <= 1.0 + 1e-9
    assert plan.value_mechanism.clip_norm == 1.0
    if policies == ARMS:  # two arms cost what one costs: who was unlikely to have this arm is as long as can be
        assert norms.max() > 0.99


def test_cells_are_asked_for_with_less_noise_than_one_by_one():
    config = Survival(until=UNTIL, bins=20)
    plan = planned(config, ARMS[:1])
    identity = replace(plan.query, cells=np.eye(41))
    noise = [query.expect(plan.value_mechanism)[0][0] for query in (plan.query, identity)]
    assert noise[0] < 0.6 * noise[1]


def test_nobody_changes_anybody_elses_vector():
    plan, columns = planned(Survival(until=UNTIL), [*ARMS, mixed]), trial(40)
    few = {name: values[:-7] for name, values in columns.items()}
    whole, part = (
        plan.query.unit_vectors(read_log(rows, bounds=TRIAL).load(), [*ARMS, mixed]) for rows in (columns, few)
    )
    np.testing.assert_array_equal(whole[:33], part)


def test_where_noise_hides_who_is_at_risk_it_says_nothing():
    released = ReleasedShares(nominal_shares(0.5, 0.9, 4), 0.1 * np.eye(9), 1.0, 100, 1, EXPOSURE["end"], 1.96, 1.0)
    estimate = released.estimate([1.0, 2.0, 3.0, 4.0])
    assert released.known_bins == 1
    assert estimate.interval[0] == 0.0
    assert SAYS_NOTHING in replace(released, noise_root=5.0 * np.eye(9)).estimate([1.0, 2.0, 3.0, 4.0]).notes
    # what is known early bounds what comes later
    late = replace(released, shares=np.r_[0.9, np.zeros(7), 0.1], noise_root=0.01 * np.eye(9), units=10**6).estimate(
        [1, 2, 3, 4]
    )
    assert late.interval[1] < 0.2


# --- releases -----------------------------------------------------------------------------------------------------


def test_a_release_has_the_whole_curve_and_says_what_it_is_of():
    release = dprl.evaluate(
        trial(), ["always:0", "always:1"], BUDGET, bounds=TRIAL, algorithm=Survival(until=8.0), seed=1
    )
    assert release.estimate["quantity"] == "probability of no event up to time 8"
    for target in release.estimate["targets"]:
        time, value, low, high = np.array(target["curve"]).T
        np.testing.assert_allclose(time, np.arange(1, 21) * 0.4)
        assert (np.diff(value) <= 0.0).all()
        assert ((low <= value) & (value <= high)).all()
    assert release.estimate["bounds"] == {**TRIAL.in_force(), "observation": ((0.0, 1.0),), "reward": (0.0, 12.0)}


REFUSED = {
    "no bins": ({"bins": 0}, {}, "survival: bins must be a whole number from 1 to 100"),
    "many bins": ({"bins": 101}, {}, "survival: bins must be a whole number from 1 to 100"),
    "time zero": ({"until": 0.0}, {}, "survival: until must be a positive finite number"),
    "beyond the bounds": ({"until": 13.0}, {}, "survival: until must be at most 12, the longest time by the bounds"),
    "no times": ({}, {"reward": (-3.0, 0.0)}, "survival: rewards are times, so that their upper bound must be above 0"),
    "cut": ({}, {"horizon": 9, "max_cumulative_ratio": 4.0}, "survival: products of importance ratios would be cut"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_is_refused(name):
    options, facts, words = REFUSED[name]
    with pytest.raises(DprlError, match=f"^{words}"):
        planned(Survival(**options), bounds=replace(TRIAL, **facts))


def test_a_nominal_scenario_is_what_it_says():
    shares = nominal_shares(0.7, 0.4, 10)
    assert shares.sum() == pytest.approx(1.0)
    assert event_free(shares, 1.0)[0][-1] == pytest.approx(0.7)
    assert shares[-1] == pytest.approx(0.7 * 0.6)
    assert math.isclose(shares[10:20].sum() + shares[-1], 1.0 - shares[:10].sum())


def test_whether_the_event_happened_is_never_taken_for_granted():
    """A log of one decision may do without the column, which then says that every trajectory ended."""
    columns = {
        "observation": np.zeros((4, 1)),
        "action": np.zeros(4),
        "reward": np.full(4, 0.5),
        "behavior_prob": np.ones(4),
    }
    facts = {"units": 4, "horizon": 1, "reward": (0.0, 2.0), "observation": ((0.0, 1.0),), "actions": 2}
    log = dprl.read_log(columns, bounds=facts | {"max_importance_ratio": 2.0})
    with pytest.raises(DprlError, match="survival needs to know whether the event happened"):
        dprl.evaluate(log, "uniform", dprl.Budget(1.0, 1e-5), algorithm=dprl.Survival(until=1.0))
