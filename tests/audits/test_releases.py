"""The attack on whole releases in two parts: what it knows of each part, and what a sound and a faulty one tell."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.conformance.nearness import nearness
from tests.mutations.faults_in_choice import in_both_parts, rows_divided

import dprl
from dprl.audits.attacks.releases import LearnAudit, odds
from dprl.audits.audit import canary_of
from dprl.audits.conformance.sample_split import BEST, LEARN
from dprl.audits.lower_bound import run_attack
from dprl.errors import DprlError
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.protocols import Attack
from dprl.release.private_rows import RowsInMemory

KEYS = [bytes([n]) * 32 for n in range(12)]


def canary(suite=LEARN, **options):
    asked = {name: options.pop(name) for name in ("epsilon", "released") if name in options}
    return suite.canary(Attack(**asked, options=options))


def test_the_odds_of_a_choice_are_those_of_all_coins():
    mechanism, total = NoisyMaximum(candidates=4, spread=100, epsilon=1.5), np.array([40, 90, 0, 75])
    heads = np.exp(-mechanism.rate * (90 - total))
    expected = np.zeros(4)
    for coins in itertools.product((0, 1), repeat=4):
        chance = np.prod(np.where(coins, heads, 1.0 - heads))
        expected += chance * np.array(coins) / max(sum(coins), 1)
    np.testing.assert_allclose(odds(mechanism, total), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("suite", "options"), [(BEST, {}), (LEARN, {"learner": "rules"}), (LEARN, {"learner": "fitted-q"})]
)
def test_a_person_moves_one_part_as_far_as_is_accounted_for(suite, options):
    """Whoever it is in the other part: what that releases tells nothing."""
    attack = canary(suite, choosing_share=0.5, **options)
    moved = np.array([[_moved(m, *traces) for m in traces[0].mechanisms] for traces in _all_traces(attack)])
    assert (moved.min(axis=1) == 0.0).all()
    assert moved.max() <= 1.0 + 1e-9
    np.testing.assert_allclose(moved.max(axis=0), 1.0, rtol=0.02)


def _all_traces(attack):
    return [attack.traces(key, present=True) for key in KEYS]


def _moved(mechanism, seen, other):
    """How far two logs' sums lie apart, as a share of the sensitivity."""
    place = next(i for i, known in enumerate(seen.mechanisms) if known is mechanism)
    two, one = (np.array(trace.entries[place][0].total) for trace in (other, seen))
    if isinstance(mechanism, NoisyMaximum):
        return np.ptp(two - one) / mechanism.spread
    return np.linalg.norm(two - one) * mechanism.grid_step / mechanism.sensitivity


def test_the_score_is_the_likelihood_ratio():
    """Its exponential has mean one without the person, and so has the inverse with that person."""
    attack = canary(choosing_share=0.6)
    for ratio in (np.exp(attack.scores(3, 80, present=False)), np.exp(-attack.scores(3, 80, present=True))):
        assert abs(ratio.mean() - 1.0) < 5.0 * ratio.std() / math.sqrt(len(ratio))
        assert ratio.max() <= math.e + 1.0  # the choice tells e at most, the values seldom more


@pytest.mark.slow
@pytest.mark.parametrize("suite", [BEST, LEARN])
def test_a_sound_release_withstands_a_good_attack(suite):
    result = run_attack(canary(suite, choosing_share=0.95), trials=2000, seed=1, confidence=0.999)
    assert 0.6 < result.epsilon_lower <= 1.0
    assert not result.violated


@pytest.mark.parametrize(
    ("fault", "shown"), [(lambda sound, *asked: sound(*asked), False), (in_both_parts, True), (rows_divided, True)]
)
def test_a_person_in_both_parts_is_caught(monkeypatch, fault, shown):
    """By how much the likelihoods break the claim: a delta that is at least as large as this is needed."""
    original = RowsInMemory.after_first
    monkeypatch.setattr(RowsInMemory, "after_first", lambda *asked: fault(original, *asked))
    attack = canary(choosing_share=0.95)
    needed = np.mean(np.maximum(1.0 - np.exp(attack.epsilon - attack.scores(4, 150, present=True)), 0.0))
    assert needed > 0.02 if shown else needed <= 1e-3


@pytest.mark.slow
def test_a_choice_without_noise_is_caught(monkeypatch):
    monkeypatch.setattr(NoisyMaximum, "choose", lambda self, noise, total: int(np.argmax(total)))
    result = run_attack(canary(choosing_share=0.95), trials=1000, seed=1, confidence=0.99)
    assert result.violated
    assert result.epsilon_lower > 2.0


@pytest.mark.parametrize("learner", ["rules", "fitted-q", "advantage"])
def test_what_is_attacked_is_what_was_asked_for(learner):
    """Options of a learned policy are options of a choice, too: they must not be attacked as one."""
    asked = LearnAudit(learner=learner)
    canary = canary_of(asked, Attack(), "verified")
    found = canary.plan.first.described()
    assert found["learner"]["name"] == learner if learner != "rules" else "rules" in found


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["fitted-q", "advantage"])
def test_a_person_who_teaches_tells_all_that_is_accounted_for(learner):
    """At every step the vector is at full clip norm, and the score that of a Gaussian shift in as many."""
    attack = canary(learner=learner, part="first")
    assert nearness(attack, 8) == pytest.approx(1.0, abs=1e-6)
    mechanism = attack.plan.stages[0].mechanism
    shift = math.sqrt(mechanism.steps) * mechanism.clip_norm / mechanism.noise_std
    for present, sign in ((True, 1.0), (False, -1.0)):
        scores = attack.scores(1, 2000, present=present)
        assert abs(scores.mean() - sign * shift**2 / 2.0) < 5.0 * shift / math.sqrt(len(scores))
        assert scores.std() == pytest.approx(shift, rel=0.1)


def test_what_means_nothing_is_refused():
    for options, words in (
        ({"part": "first"}, "rules are chosen once"),
        ({"released": "last"}, "leave out released"),
        ({"unit": "transition"}, "leave unit out"),
        ({"choosing_share": 2.0}, "choosing_share must be a share"),
        ({"learner": "nobody"}, "learner"),
    ):
        with pytest.raises(DprlError, match=words):
            canary(**options)
    assert dprl.audit("best", dprl.Budget(1.0, 1e-5), trials=100, selection_trials=10).bound.trials == 100
