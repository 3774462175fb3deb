"""ICU-Sepsis: its published values, the package's own environment, and the mixture that the log was made by."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from benchmarks import icu_sepsis
from benchmarks.harness import RESULTS


@pytest.fixture(scope="module")
def sepsis():
    pytest.importorskip("icu_sepsis")
    return icu_sepsis.Sepsis.load()


def test_published_values(sepsis):
    """Choudhary, Gupta and Thomas (2024), Table 1, to two places; and no single action is better than the optimum."""
    found = [sepsis.value(policy) for policy in (sepsis.random, sepsis.clinicians, sepsis.optimal)]
    assert [round(value, 2) for value in found] == [0.78, 0.78, 0.88]
    among_admissible = sepsis.admissible / sepsis.admissible.sum(axis=1, keepdims=True)
    assert sepsis.value(among_admissible) == pytest.approx(found[0], abs=1e-12)  # the others do what these do
    values = sepsis.values(sepsis.optimal)
    each = sepsis.following[..., icu_sepsis.SURVIVED] + sepsis.following[..., : icu_sepsis.STATES] @ values
    assert (each <= values[:, None] + 1e-9).all()


def test_logs_are_those_of_the_environment(sepsis):
    """Survival and length of patients in the package's environment, whom the clinicians treat, and in a log."""
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("gym")  # which the package imports
    environment = gymnasium.make("icu_sepsis:Sepsis/ICU-Sepsis-v2", disable_env_checker=True)
    rng, real = np.random.default_rng(7), []
    for patient in range(300):
        state, _ = environment.reset(seed=patient)
        length, ended, reward = 0, False, 0.0
        while not ended:
            action = rng.choice(icu_sepsis.ACTIONS, p=sepsis.clinicians[state])
            state, reward, ended, _, _ = environment.step(int(action))
            length += 1
        real.append((reward, length))
    everybody = sepsis.draw(np.random.default_rng(8), 2_000, by_clinicians=1.0)
    last = np.append(everybody["t"][1:] == 0, True)
    drawn = np.stack([everybody["reward"][last], everybody["t"][last] + 1.0], axis=1)
    real = np.array(real)
    error = np.sqrt(real.var(axis=0) / len(real) + drawn.var(axis=0) / len(drawn))
    assert (np.abs(real.mean(axis=0) - drawn.mean(axis=0)) < 4.0 * error).all()
    assert abs(drawn[:, 0].mean() - sepsis.value(sepsis.clinicians)) < 4.0 * drawn[:, 0].std() / math.sqrt(len(drawn))


def test_probabilities_are_those_of_the_mixture(sepsis):
    """The product along a trajectory is the mean of both policies' products; so no clinicians' weight exceeds two."""
    log = sepsis.draw(np.random.default_rng(9), 300)
    for episode in range(300):
        rows = log["episode_id"] == episode
        state, action = log["state"][rows], log["action"][rows]
        both = np.prod(sepsis.clinicians[state, action]), np.prod(sepsis.random[state, action])
        assert np.prod(log["behavior_prob"][rows]) == pytest.approx(np.mean(both), rel=1e-9)
        assert both[0] / np.mean(both) <= 2.0
    assert log["behavior_prob"].max() <= 1.0 + 1e-12
    ratio = sepsis.optimal[log["state"], log["action"]] / log["behavior_prob"]
    assert ratio.max() <= sepsis.largest_ratio * (1.0 + 1e-12)


def test_the_page_is_that_of_the_record():
    record = json.loads((RESULTS / "icu_sepsis.json").read_text(encoding="utf-8"))
    text = icu_sepsis.PAGE.read_text(encoding="utf-8")
    assert text == icu_sepsis.page(record), "run python -m benchmarks icu_sepsis"
    again = icu_sepsis.summary(record["truth"], record["found"])
    assert again["table"] == record["table"]
    assert len(text.splitlines()) <= 60
