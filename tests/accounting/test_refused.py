"""What privacy refuses, and where it is tested that it does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dprl.accounting import events
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.registry import evaluating

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", evaluating())
def test_noise_that_adapts_to_the_run_cannot_be_asked_for(name):
    """A privacy loss distribution needs every step's noise beforehand: a mechanism is frozen and has one multiplier."""
    suite = evaluating()[name].load_conformance()
    for setting in suite.settings:
        for mechanism in suite.mechanisms(setting).values():
            assert isinstance(mechanism, GaussianSum)
            for field in dataclasses.fields(mechanism):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(mechanism, field.name, getattr(mechanism, field.name))
            assert isinstance(mechanism.noise_multiplier, float)
            assert f"{mechanism.noise_multiplier!r}" in repr(events.to_json(mechanism.event()))


REFUSED = {
    "add or remove one with shuffled or one-pass batches": (
        "tests/mutations/faults_in_mechanisms.py:shuffled batches of fixed size under Poisson accounting",
        "tests/mutations/faults_in_mechanisms.py:one pass over the log in batches of fixed size",
        "tests/audits/test_record_replay.py:shuffled batches under Poisson",
    ),
    "the same noise reused across releases": (
        "tests/mutations/faults_in_mechanisms.py:the same noise in every release",
        "tests/statistical/test_noise.py:def test_fresh_sources_share_nothing",
    ),
    "un-noised state carried into the next step": (
        "tests/mutations/faults_in_mechanisms.py:un-noised sum carried into the next step",
        "tests/mutations/faults_in_mechanisms.py:momentum over sums without noise",
    ),
    "PLD with adaptive sigma": (
        "tests/accounting/test_refused.py:def test_noise_that_adapts_to_the_run_cannot_be_asked_for",
        "tests/accounting/test_renyi_filter.py:def test_noise_that_adapts_is_never_composed_by_distribution",
    ),
    "batch-mean baselines or advantage normalisation": (
        "tests/mutations/faults_in_claims.py:values standardised over the log",
        "tests/mutations/faults_in_claims.py:features normalised over the batch",
        "tests/conformance/test_neighbours.py:def test_contributions_add_up",
    ),
    "a behaviour policy estimated from the same data without budget": (
        "tests/data/test_readers.py:def test_a_missing_column_is_named",
    ),
    "unclipped gradients": ("tests/accounting/test_contract.py:def test_a_clip_norm_that_bounds_nothing_is_refused",),
    "bounds inferred from the data": (
        "tests/mutations/faults_in_neighbours.py:what a person adds is scaled by the largest of the log",
        "tests/test_protocols.py:def test_a_missing_bound_is_named_and_never_inferred",
    ),
    "a fixed noise seed in a release": (
        "tests/mutations/faults_in_claims.py:seeded noise in a certified release",
        "tests/release/test_evaluate.py:def test_the_status_and_the_file_that_carries_it",
    ),
    "stopping or selecting an iterate by private loss": (
        "tests/mutations/faults_in_mechanisms.py:steps until the log has been seen often enough",
        "tests/audits/test_record_replay.py:more steps for more data",
    ),
    "hyper-parameters whose provenance is not stated": (
        "tests/test_config.py:def test_what_says_nothing_is_refused",
        "tests/conformance/test_algorithms.py:def test_every_option_has_a_provenance",
    ),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_is_tested_somewhere(line):
    for place in REFUSED[line]:
        path, _, words = place.partition(":")
        assert words in (ROOT / path).read_text(), f"{words!r} is no longer in {path}"
