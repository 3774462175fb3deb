"""Values by single ratios: the solution of the log's own frequencies, norms that hold, and nobody else's rows."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.markov_values import ALGORITHM, MarkovQuery, MarkovRatios, within

from dprl.audits.conformance.suite import Case
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.data.trajectories import Trajectories
from dprl.engine.value_query import value_mechanism
from dprl.policies.given import TabularPolicy
from dprl.registry import Entry

SECOND = TabularPolicy(np.array([[0.0, 1.0], [0.0, 1.0]]))
EITHER = TabularPolicy(np.array([[0.3, 0.7], [0.6, 0.4]]))


def log_of(rng: np.random.Generator, people: int, episodes: int = 1, components: int = 1) -> Trajectories:
    """Trajectories of at most eight steps that move about at random; whoever ends in the first state is rewarded."""
    rows = []
    for person in range(people):
        for episode in range(episodes):
            length = int(rng.integers(1, 9))
            state = rng.integers(0, 2, (length, components)).astype(np.float64)
            for t in range(length):
                ends = t == length - 1 and length < 8
                reward = float(rng.random() < (0.8 if state[t, 0] == 0.0 else 0.3)) * ends
                rows.append((person, person * episodes + episode, t, int(rng.integers(2)), reward, ends, state[t]))
    person, episode, t, action, reward, ends, states = (np.array(column) for column in zip(*rows, strict=True))
    columns = {
        "person_id": person, "episode_id": episode, "t": t, "action": action, "reward": reward, "terminated": ends,
        "truncated": (t == 7) & ~ends, "behavior_prob": np.full(len(t), 0.5), "observation": states,
    }  # fmt: skip
    bounds = Bounds(
        units=people, horizon=8, reward=(0.0, 1.0), observation=((0.0, 1.0),) * components, actions=2,
        max_importance_ratio=2.0, max_cumulative_ratio=4.0, return_range=(0.0, 1.0),
    )  # fmt: skip
    return read_log(columns, bounds=bounds, person="person_id").load()


def query_of(log: Trajectories, options: MarkovRatios, policies: int = 1) -> MarkovQuery:
    return options.value_query(log.bounds, [SECOND, EITHER][:policies], ())


def test_without_noise_it_solves_the_frequencies_of_the_log():
    """Two states are linear in one component, and with a large budget a row counts by its state and ratio alone."""
    log = log_of(np.random.default_rng(1), 400)
    options = MarkovRatios(largest_ratio=1e9)
    query = query_of(log, options)
    (found,) = query.decode(value_mechanism(query, 1.0).plain(), query.unit_vectors(log, [SECOND]).sum(axis=0))
    state, last = log.observation[:, 0].astype(int), np.r_[log.episode_of()[1:] != log.episode_of()[:-1], True]
    counted = (log.action == 1) & (~last | log.terminated)
    onwards, reward = np.zeros((2, 2)), np.zeros(2)
    for s in range(2):
        rows = np.flatnonzero(counted & (state == s))
        reward[s] = log.reward[rows].mean()
        for after in range(2):
            onwards[s, after] = np.mean([not last[r] and state[min(r + 1, len(state) - 1)] == after for r in rows])
    values = np.linalg.solve(np.eye(2) - onwards, reward)
    low, high = found.interval
    assert low < found.value < high  # so that the interval did not move the value
    assert found.value == pytest.approx(values[state[log.episode_offsets[:-1]]].mean(), abs=1e-6)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_no_vector_is_longer_than_it_may_be(discount):
    """Also of people with several trajectories, at any states; and some come near the bound of their part."""
    for seed in range(5):
        log = log_of(np.random.default_rng(seed), 60, episodes=2, components=3)
        options = MarkovRatios(discount=discount, largest_ratio=2.0)
        query = query_of(log, options, policies=2)
        lengths = np.linalg.norm(query.unit_vectors(log, [SECOND, EITHER]), axis=1)
        assert lengths.max() <= query.clip_norm * (1.0 + 1e-9)
        assert lengths.max() > 0.3 * query.clip_norm


def test_a_vector_is_made_of_its_own_rows():
    log, fewer = (log_of(np.random.default_rng(3), people, episodes=2) for people in (40, 25))
    both = [query_of(part, MarkovRatios()).unit_vectors(part, [SECOND]) for part in (log, fewer)]
    np.testing.assert_array_equal(both[0][:25], both[1])


def test_how_much_a_row_counts_never_depends_on_what_follows():
    """The ratios that count add up to less than the budget, and a later ratio changes none before it."""
    log, rng = log_of(np.random.default_rng(4), 50, episodes=2), np.random.default_rng(5)
    ratios = rng.uniform(0.0, 3.0, len(log.reward))
    counted = within(ratios, 3.0, log)
    unit = log.unit_of_episode()[log.episode_of()]
    assert np.bincount(unit, counted).max() <= 3.0
    assert (counted <= ratios).all()
    last = np.append(unit[1:] != unit[:-1], True)
    changed = within(np.where(last, 3.0 - ratios, ratios), 3.0, log)
    np.testing.assert_array_equal(changed[~last], counted[~last])
    assert (changed[last] != counted[last]).any()


@pytest.mark.parametrize("setting", ALGORITHM.settings)
def test_one_person_moves_what_enters_the_mechanism_no_more_than_is_declared(setting):
    """Released through the front door on neighbouring logs, as every registered algorithm is."""
    entry = Entry(ALGORITHM.name, "benchmarks.markov_values", "")
    found = Case(entry, setting, "arrays by person", 0).run()
    assert found.problems == ()
    assert 0.0 < found.largest <= 1.0 + 1e-9
