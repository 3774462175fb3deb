"""Estimated propensities: stratified means in the noiseless limit, bounded vectors, overlap, moves of weights."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.accounting.verification import verify
from dprl.bounds import Bounds
from dprl.engine.ratios import step_ratios
from dprl.errors import DprlError
from dprl.evaluation.importance_vectors import unit_pairs
from dprl.evaluation.plan import make_plan
from dprl.evaluation.propensities import Propensities, load_propensities
from dprl.evaluation.residual_design import ResidualDesign
from dprl.evaluation.strata import Strata
from dprl.evaluation.stratified import Stratified
from dprl.evaluation.stratified_steps import StratifiedStepsQuery, WeightNoise
from dprl.policies.loading import ColumnPolicy, LoggedPolicy
from dprl.registry import default_for

from . import one_shot
from .helpers import columns_of

CELLS, ACTIONS = 3, 2
SILENT = 1e-9
FIRST = lambda states: np.tile([1.0, 0.0], (len(states), 1))  # noqa: E731
MIXED = lambda states: np.where(states[:, :1] > 1.5, [[0.2, 0.8]], [[0.6, 0.4]])  # noqa: E731


def facts(horizon: int = 1, **other: Any) -> Bounds:
    known = {"units": 600, "reward": (0.0, 2.0), "actions": ACTIONS, "strata": ("observation_0",), **other}
    return Bounds(horizon=horizon, observation=((0.0, CELLS - 1.0),), **known)


def people(count: int, seed: int, horizon: int = 1, never: tuple[int, int] | None = None) -> dict[str, Any]:
    """A log in which the higher strata get action 1 more often, and fare worse; ``never`` is a stratum's action."""
    rng = np.random.default_rng(seed)
    stratum = rng.integers(0, CELLS, (count, horizon))
    action = (rng.random(stratum.shape) < 0.3 + 0.2 * stratum).astype(int)
    if never is not None:
        action = np.where(stratum == never[0], 1 - never[1], action)
    reward = np.clip(1.2 - 0.3 * stratum + 0.4 * action + 0.3 * rng.normal(size=stratum.shape), 0.0, 2.0)
    columns = columns_of(action, observation_0=stratum.astype(float), reward=reward)
    return {name: values for name, values in columns.items() if name != "behavior_prob"}


def test_whether_a_component_is_missing_tells_strata_apart():
    """People of whom a component is missing get one action only, and the strata say so."""
    columns = people(400, 0) | {"observation_0": [None if i % 4 == 0 else 1.0 for i in range(400)]}
    columns |= {"action": [int(i % 4 == 0 or i % 3 == 0) for i in range(400)]}
    facts_of = facts(fill=(1.0,), flag_missing=(0,), strata=("observation_0 is missing",))
    log = one_shot.load(columns, facts_of)
    strata = Strata(facts_of)
    assert strata.labels == ["observation_0 is missing 0", "observation_0 is missing 1"]
    assert np.bincount(strata.cells(log.observation)).tolist() == [300, 100]


def counted(columns: dict[str, Any], bounds: Bounds, noise: Any = 0.0, deviation: float = SILENT) -> Propensities:
    """What the first sum gives for a log of one trajectory a unit, with ``noise`` added to it."""
    gone = columns.get("censored", np.zeros(len(columns["t"]), dtype=bool))
    kind = np.where(gone, ACTIONS, columns["action"])
    cell = columns["observation_0"].astype(int) * bounds.kinds + kind
    counts = np.bincount(cell, minlength=CELLS * bounds.kinds)
    parts = [2.0 * counts / bounds.horizon]
    if bounds.horizon == 1:
        cell = columns["observation_0"].astype(int) * ACTIONS + columns["action"]
        parts.append(np.bincount(cell[~gone], columns["reward"][~gone] - 1.0, minlength=CELLS * ACTIONS))
    return Propensities(np.concatenate(parts) + noise, Strata(bounds), deviation)


def lose(columns: dict[str, Any], seed: int) -> dict[str, Any]:
    """The same log, in which people are lost: the more readily the higher their stratum, and under action 0."""
    rng, keep = np.random.default_rng(seed), np.ones(len(columns["t"]), dtype=bool)
    gone = rng.random(len(keep)) < 0.1 + 0.1 * columns["observation_0"] + 0.1 * (columns["action"] == 0)
    for row in range(1, len(keep)):
        if columns["t"][row]:
            keep[row] = keep[row - 1] and not gone[row - 1]
    lost = {**columns, "censored": gone, "terminated": columns["terminated"] & ~gone}
    lost["reward"] = np.where(gone, np.nan, columns["reward"])
    return {name: values[keep] for name, values in lost.items()}


LOST = {"censoring_hazard": "estimate"}
WIDE = {"max_importance_ratio": 9.0, "max_cumulative_ratio": 9.0**3}


def asked(bounds: Bounds, policies: Sequence[Any] = (FIRST, MIXED), **options: Any) -> Any:
    return make_plan(Stratified(discount=1.0, **options), bounds, dprl.Budget(1.0, 1e-5), policies).query


def summed(query: Any, columns: dict[str, Any], bounds: Bounds, policies: Sequence[Any] = (FIRST, MIXED)) -> np.ndarray:
    """The noiseless sum, of which no unit's vector was longer than the clip norm."""
    vectors = query.unit_vectors(one_shot.load(columns, bounds), policies)
    assert np.linalg.norm(vectors, axis=1).max() <= query.clip_norm * (1.0 + 1e-12)
    return vectors.sum(axis=0)


def estimated(query: Any, *asked: Any) -> list[Any]:
    """Values without noise, of what :func:`summed` takes."""
    return query.decode(one_shot.quiet(query), summed(query, *asked))


def self_normalised(query: Any, log: Any, policy: Any, behavior: Any = None) -> float:
    """The value by importance weights that are divided by their own sum."""
    above, below = unit_pairs(query.inner, log, step_ratios(policy, log, behavior))
    low, high, _ = query.inner.scale
    return low + (high - low) * above.sum() / (above + below).sum()


def stratified_mean(columns: dict[str, Any], policy: Any) -> float:
    """The mean outcomes by stratum and action of who was not lost, weighed by everybody's shares and the policy."""
    stratum, seen, total = columns["observation_0"], ~np.isnan(columns["reward"]), 0.0
    for cell in range(CELLS):
        chances = policy(np.array([[float(cell)]]))[0]
        for action in range(ACTIONS):
            mine = (stratum == cell) & (columns["action"] == action) & seen
            mean = columns["reward"][mine].mean() if mine.any() else 0.0
            total += np.mean(stratum == cell) * chances[action] * mean
    return total


@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_without_noise_it_is_the_stratified_mean(seed):
    check_stratified_means(people(600, seed), facts())


def check_stratified_means(columns: dict[str, Any], bounds: Bounds) -> None:
    estimates = estimated(asked(bounds).around(counted(columns, bounds)), columns, bounds)
    for estimate, policy in zip(estimates, (FIRST, MIXED), strict=True):
        assert estimate.value == pytest.approx(stratified_mean(columns, policy), abs=1e-9)


@given(seed=st.integers(0, 1000), deviation=st.floats(1.0, 60.0), least=st.sampled_from([0.0, 0.02, 0.3]))
@settings(max_examples=25, deadline=None)
def test_no_vector_is_longer_than_its_clip_whatever_was_released(seed, deviation, least):
    columns, bounds = people(300, seed), facts()
    noise = deviation * np.random.default_rng(seed).normal(size=2 * CELLS * ACTIONS)
    policies = [FIRST, MIXED, LoggedPolicy()]
    query = asked(bounds, policies, min_propensity=least).around(counted(columns, bounds, noise, deviation))
    summed(query, columns, bounds, policies)


@pytest.mark.parametrize("horizon", [1, 3])
def test_what_was_done_is_worth_what_was_paid_whatever_its_propensities_are(horizon):
    """Also where an action was never taken, and with propensities that noise made wrong."""
    columns, bounds = people(600, 1, horizon, never=(0, 0)), facts(horizon, **(WIDE if horizon > 1 else {}))
    paid = np.sum(columns["reward"]) / 600
    for noise, deviation in (
        (0.0, SILENT),
        (3.0 * np.random.default_rng(0).normal(size=6 * (1 + (horizon == 1))), 3.0),
    ):
        query = asked(bounds, [LoggedPolicy(), FIRST]).around(counted(columns, bounds, noise, deviation))
        estimate = estimated(query, columns, bounds, [LoggedPolicy(), FIRST])[0]
        if deviation == SILENT:
            assert estimate.value == pytest.approx(paid, abs=1e-4)
        assert estimate.interval[0] < paid < estimate.interval[1]
        assert estimate.interval[1] - estimate.interval[0] < 0.25
        assert "no-overlap" not in estimate.notes


def test_a_difference_from_what_was_done_is_the_stratified_means_less_what_was_paid():
    columns, bounds, policies = people(4_000, 2), facts(units=4_000), [FIRST, LoggedPolicy()]
    plan = make_plan(Stratified(discount=1.0), bounds, dprl.Budget(1.0, 1e-5), policies, contrasts=[(0, 1)])
    query = plan.query.around(counted(columns, bounds))
    mechanism, noisy = one_shot.quiet(query), summed(query, columns, bounds, policies)
    first, logged = query.decode(mechanism, noisy)
    assert first.value - logged.value == pytest.approx(stratified_mean(columns, FIRST) - columns["reward"].mean())
    # the influence of each person on the difference, whose variance the sampling error has
    stratum, taken = columns["observation_0"].astype(int), columns["action"] == 0
    share = np.array([taken[stratum == cell].mean() for cell in range(CELLS)])[stratum]
    own = np.array([columns["reward"][taken & (stratum == cell)].mean() for cell in range(CELLS)])[stratum]
    influence = own + taken / share * (columns["reward"] - own) - columns["reward"]
    found = query.difference(mechanism, noisy, 0, 1)
    assert 1.0 <= found.sampling / (influence.std() / math.sqrt(4_000)) < 1.1


def test_a_column_of_the_log_or_what_was_done_to_the_lost_is_refused():
    with pytest.raises(DprlError, match="a column of the log is none"):
        asked(facts(), [ColumnPolicy()])
    with pytest.raises(DprlError, match="Leave the policy logged out"):
        asked(facts(**LOST, max_importance_ratio=9.0), [LoggedPolicy(), FIRST])


def test_an_action_that_nobody_took_leaves_the_whole_range_there():
    columns, bounds = people(600, 1, never=(0, 0)), facts()
    query, share = asked(bounds).around(counted(columns, bounds)), np.mean(columns["observation_0"] == 0.0)
    estimate = estimated(query, columns, bounds)[0]
    known = stratified_mean(columns, FIRST)  # in which the unseen count as zero, the lowest outcome
    assert estimate.interval[0] < known
    assert estimate.interval[1] > known + 2.0 * share
    assert estimate.bias_bound == pytest.approx(2.0 * share, rel=1e-6)
    assert "no-overlap" in estimate.notes


def test_trimming_leaves_those_people_out():
    columns, bounds = people(600, 1, never=(0, 0)), facts()
    estimate = estimated(asked(bounds, overlap="trim").around(counted(columns, bounds)), columns, bounds)[0]
    others = columns["observation_0"] > 0.0
    rest = {name: values[others] for name, values in columns.items()}
    shares = [np.mean(rest["observation_0"] == cell) for cell in (1, 2)]
    means = [rest["reward"][(rest["observation_0"] == c) & (rest["action"] == 0)].mean() for c in (1, 2)]
    assert estimate.value == pytest.approx(float(np.dot(shares, means)), abs=1e-9)
    assert estimate.notes == ("trimmed",)


def test_a_confounder_of_the_stated_strength_moves_the_value_by_the_distance_to_zero():
    columns, bounds = people(600, 2), facts()
    plan = make_plan(Stratified(), bounds, dprl.Budget(1.0, 1e-5), [FIRST, MIXED], contrasts=((0, 1),))
    query = plan.query.around(counted(columns, bounds))
    noisy = summed(query, columns, bounds)
    found = query.difference(one_shot.quiet(query), noisy, 0, 1)
    weights = np.array([1.0, -1.0])
    design = query.design
    squares = design.decoded(noisy, 0.0, weights)[1]
    table = np.tensordot(weights, query.table, 1)
    odds = math.sqrt(found.confounding) - 1.0 / math.sqrt(found.confounding)
    distance = max(found.interval[0], -found.interval[1], 0.0)  # rewards have half a range of 1
    assert distance > 0.0
    assert odds * design.confounder_factor(table) * math.sqrt(squares) == pytest.approx(distance, rel=1e-6)


@pytest.mark.parametrize("horizon", [1, 3])
def test_the_first_sum_counts_who_was_lost_beside_the_actions(horizon):
    columns, bounds = lose(people(200, 8, horizon), 8), facts(horizon, max_importance_ratio=9.0, **LOST)
    program, _, data = one_shot.made(Stratified(discount=1.0), one_shot.load(columns, bounds), "columns")
    released = one_shot.plain(program, data)[1]
    assert released == pytest.approx(counted(columns, bounds).theta, abs=1e-9)
    assert len(released) == CELLS * (ACTIONS + 1) + (CELLS * ACTIONS if horizon == 1 else 0)


@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_of_people_who_are_lost_it_is_the_stratified_mean_of_the_others(seed):
    check_stratified_means(lose(people(600, seed), seed), facts(**LOST))


def test_of_several_steps_people_who_stay_stand_for_those_who_are_lost():
    columns, bounds = lose(people(500, 9, 3), 9), facts(3, **WIDE, **LOST)
    known = counted(columns, bounds)
    query = asked(bounds).around(known)
    estimate = estimated(query, columns, bounds)[0]
    with_lost = {**columns, "kind": np.where(columns["censored"], ACTIONS, columns["action"])}
    shares = np.array([
        [np.mean(with_lost["kind"][columns["observation_0"] == cell] == kind) for kind in range(ACTIONS + 1)]
        for cell in range(CELLS)
    ])  # fmt: skip
    chances = shares[columns["observation_0"].astype(int), columns["action"]]
    told = {**columns, "behavior_prob": chances, "uncensored_prob": np.ones(len(chances))}
    log = one_shot.load(told, facts(3, **WIDE, strata=None))
    assert estimate.value == pytest.approx(self_normalised(query, log, FIRST), abs=1e-6)
    assert known.shape == (CELLS, ACTIONS)
    assert known.propensities(0.0) == pytest.approx(shares[:, :ACTIONS])


def test_an_action_that_is_not_supported_leaves_the_others_of_its_stratum_their_weights():
    columns, bounds = people(600, 1, 3, never=(0, 0)), facts(3, max_importance_ratio=4.0)
    query, log = asked(bounds).around(counted(columns, bounds)), one_shot.load(columns, bounds)
    always = lambda states: np.tile([0.0, 1.0], (len(states), 1))  # noqa: E731
    assert (query.unit_vectors(log, [always, MIXED])[:, 0] > 0.0).any()


@pytest.mark.parametrize("decision", [0, 1])
def test_no_confounder_of_one_decision_weaker_than_stated_carries_the_interval_to_zero(decision):
    columns = people(3000, 10, 2)
    most = {"units": 3000, "max_importance_ratio": 4.0, "max_cumulative_ratio": 16.0}
    bounds = facts(2, **most)
    always = lambda states: np.tile([0.0, 1.0], (len(states), 1))  # noqa: E731
    plan = make_plan(Stratified(discount=1.0), bounds, dprl.Budget(1.0, 1e-5), [always, FIRST], contrasts=((0, 1),))
    query = plan.query.around(counted(columns, bounds))
    found = query.difference(one_shot.quiet(query), summed(query, columns, bounds, [always, FIRST]), 0, 1)
    assert found.interval[0] > 0.0
    assert 1.0 < found.confounding < 4.0
    own = counted(columns, bounds).propensities(0.0)
    chances = own[columns["observation_0"].astype(int), columns["action"]]
    told = one_shot.load({**columns, "behavior_prob": chances}, facts(2, **most, strata=None))
    low, high, largest = query.inner.scale
    moved = np.zeros(3000)
    for policy, sign in ((always, 1.0), (FIRST, -1.0)):
        above, below = unit_pairs(query.inner, told, step_ratios(policy, told))
        moved += sign * (high - low) * largest * (above - above.sum() / (above + below).sum() * (above + below))
    shape = (3000, 2)
    stratum, action = columns["observation_0"].reshape(shape).astype(int), columns["action"].reshape(shape)
    history = (stratum * ACTIONS + action)[:, : decision + 1] @ np.array([10, 1])[: decision + 1]
    propensity, g = own[stratum[:, decision], action[:, decision]], found.confounding
    factor = np.ones(3000)
    for group in np.unique(history):  # the worst: who loses most stands for most
        mine = np.flatnonzero(history == group)
        order = mine[np.argsort(moved[mine])]
        cut = math.floor(len(order) / (1.0 + g))  # of them, for a mean of one
        factor[order[:cut]], factor[order[cut:]] = g, 1.0 / g
        assert factor[mine].mean() == pytest.approx(1.0, abs=g / len(mine))
    shift = float(np.mean(moved * (factor - 1.0) * (1.0 - propensity)))
    assert abs(shift) <= found.interval[0]
    assert abs(shift) > 0.2 * found.interval[0]  # the bound is no empty one


@pytest.mark.parametrize("horizon", [2, 4])
def test_moves_of_weights_are_those_of_dense_vectors(horizon):
    columns, bounds = people(200, 3, horizon), facts(horizon, max_importance_ratio=4.0)
    noise = np.random.default_rng(3).normal(size=CELLS * ACTIONS)
    known = counted(columns, bounds, noise, 0.3)
    log, moves = one_shot.load(columns, bounds), WeightNoise(known, 0.0, 2.0)
    counts, expected = known.counts, []
    for episode in range(log.episodes):
        visits, longest = np.zeros((CELLS, ACTIONS)), 0.0
        for row in range(log.episode_offsets[episode], log.episode_offsets[episode + 1]):
            visits[int(log.observation[row, 0]), log.action[row]] += 1.0
            z = visits / counts - (visits.sum(axis=1) / counts.sum(axis=1))[:, None]
            longest = max(longest, known.count_noise * float(np.linalg.norm(z)))
        expected.append(longest + longest**2 / 4.0)
    assert moves.standard_errors(log) == pytest.approx(expected, rel=1e-9)
    assert moves.standard_errors(log).max() <= moves.largest_error


def test_several_steps_without_noise_are_self_normalised_importance_sampling_with_the_logs_own_propensities():
    columns, bounds = people(600, 4, 3), facts(3, max_importance_ratio=4.0, max_cumulative_ratio=64.0)
    known = counted(columns, bounds)
    query = asked(bounds).around(known)
    assert isinstance(query, StratifiedStepsQuery)
    log = one_shot.load(columns, bounds)
    estimates = estimated(query, columns, bounds)
    own = known.counts / known.counts.sum(axis=1, keepdims=True)
    behaved = lambda states: own[states[:, 0].astype(int)]  # noqa: E731
    for estimate, policy in zip(estimates, (FIRST, MIXED), strict=True):
        assert estimate.value == pytest.approx(self_normalised(query, log, policy, behaved), abs=1e-6)


@given(seed=st.integers(0, 1000), deviation=st.floats(0.1, 30.0))
@settings(max_examples=15, deadline=None)
def test_no_vector_of_several_steps_is_longer_than_its_clip(seed, deviation):
    columns, bounds = people(100, seed, 3), facts(3, max_importance_ratio=4.0)
    noise = deviation * np.random.default_rng(seed).normal(size=CELLS * ACTIONS)
    summed(asked(bounds).around(counted(columns, bounds, noise, deviation)), columns, bounds)


@pytest.mark.parametrize(
    ("bounds", "options", "policies", "words"),
    [
        ({"strata": None}, {}, [FIRST], "declare strata in the bounds"),
        ({"strata": ("age",)}, {}, [FIRST], "there is no component 'age'"),
        ({"strata": ("observation_0:5",)}, {}, [FIRST], "ascending cut points"),
        ({"strata": ("observation_0", "observation_0:1")}, {}, [FIRST], "name a component twice"),
        ({"strata": ()}, {}, [MIXED], "differs within a stratum"),
        ({"horizon": 3}, {}, [FIRST], "declare max_importance_ratio"),
        ({"horizon": 3, "max_importance_ratio": 2.0}, {"overlap": "trim"}, [FIRST], "nothing can be trimmed"),
        ({}, {"min_propensity": 0.9}, [FIRST], "min_propensity"),
        ({"strata": None, **LOST}, {}, [FIRST], 'censoring_hazard = "estimate" needs strata'),
    ],
)
def test_what_cannot_be_served_is_refused(bounds, options, policies, words):
    with pytest.raises(DprlError, match=words):
        asked(facts(**bounds), policies, **options)


def test_other_algorithms_refuse_a_log_whose_propensities_are_to_be_estimated():
    with pytest.raises(DprlError, match="needs behaviour probabilities"):
        make_plan(dprl.ImportanceSampling(), facts(), dprl.Budget(1.0, 1e-5), [FIRST])


def check_saved(release: Any, folder: Any) -> dict[str, Any]:
    """The files of a release: it is verified, its propensities are read back, and refused where they are damaged."""
    files = release.save(folder / "out")
    verify(folder / "out")
    again = load_propensities(folder / "out")
    assert again.theta.tolist() == release.propensities.theta.tolist()
    assert again.noise == pytest.approx(release.propensities.noise)
    damaged = folder / "propensities.json"
    damaged.write_bytes(release.propensities.to_bytes().replace(b'"released": [', b'"released": [1.0, '))
    with pytest.raises(DprlError, match="holds no propensities"):
        load_propensities(damaged)
    return files


def test_a_release_without_a_named_algorithm_estimates_and_can_be_verified(tmp_path):
    columns, bounds = people(600, 5), facts()
    assert default_for(bounds) == "stratified"
    release = dprl.evaluate(columns, {"first": FIRST}, dprl.Budget(4.0, 1e-5), bounds=bounds)
    assert release.value_function is None
    files = check_saved(release, tmp_path)
    assert json.loads(files["estimate.json"].read_bytes())["propensities"]["file"] == "propensities.json"
    assert "Who got which action" in files["report.html"].read_text()


@pytest.mark.parametrize("strata", ["observation_0", "observation_0:linear"])
def test_values_of_fewer_people_than_were_declared_say_so(strata):
    ratio = {"max_importance_ratio": 10.0} if strata.endswith("linear") else {}
    bounds, columns = facts(units=2000, strata=(strata,), **ratio), people(2000, 5)
    cautions = lambda: str(  # noqa: E731
        dprl.evaluate(columns, {"first": FIRST}, dprl.Budget(8.0, 1e-5), bounds=bounds).estimate["cautions"]
    )
    assert "declared units" not in cautions()
    columns["reward"][:500] = np.nan
    assert re.search(r"Of 2000 declared units about 1[45]\d\d can be used", cautions())


def test_shapes_do_not_depend_on_which_cells_are_empty():
    bounds = facts()
    of = [counted(people(600, 6), bounds), counted(people(600, 6, never=(2, 1)), bounds)]
    designs = [ResidualDesign(known, Strata(bounds).table([FIRST, MIXED]), (), False, 0.02) for known in of]
    assert designs[0].vector_factors.shape == designs[1].vector_factors.shape
    assert len({len(known.to_bytes().splitlines()) for known in of}) == 1


def test_what_is_kept_for_its_noise_is_counted_where_strata_are_left_out():
    """Strata whose counts are near the limit: of those that are kept the noise is positive in the mean."""
    rng, strata, noise = np.random.default_rng(0), 300, 10.0
    bounds = Bounds(
        units=90_000, horizon=1, reward=(-1.0, 1.0), observation=((0.0, strata - 1.0),), actions=2,
        strata=("observation_0",),
    )  # fmt: skip
    second = lambda states: np.tile([0.0, 1.0], (len(states), 1))  # noqa: E731
    # a stratum that fares badly has a third of the people, and outcomes of all others lie above the model
    people = np.tile([176, 29], (strata, 1)) * np.where(np.arange(strata) == 0, strata / 2, 1.0)[:, None]
    paid = people * np.where(np.arange(strata) == 0, -0.9, [[-0.9], [0.9]]).T
    biases, counted_ = [], []
    for _ in range(60):
        theta = np.concatenate([2.0 * people.ravel(), paid.ravel()]) + 2.0 * noise * rng.normal(size=4 * strata)
        known = Propensities(theta, Strata(bounds), 2.0 * noise)
        design = asked(bounds, [second], overlap="trim").around(known).design
        table = np.tile([0.0, 1.0], (strata, 1))
        error = (known.counts - people) / np.maximum(known.counts, 1.0) * (design.cells > 0.0)
        biases.append(float((design.shares[:, None] * table * error * (paid / people - design.outcomes)).sum()))
        counted_.append(design.second_order_bias(table))
    assert 0.02 < np.mean(biases) < np.mean(counted_) < 2.0 * np.mean(biases)
