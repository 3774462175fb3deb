"""Faults planted into the real code: every one is caught by some check, and no check cries without a fault."""

from __future__ import annotations

import time

import pytest

from . import (
    checks,
    checks_of_learning,
    checks_of_primal_dual,
    claims,
    faults_in_claims,
    faults_in_learning,
    faults_in_mechanisms,
    faults_in_primal_dual,
    faults_in_programs,
)
from .lab import Caught, Lab
from .planting import MUTATIONS

# all are imported, and fill the one list
assert faults_in_mechanisms.fault is faults_in_claims.fault is faults_in_programs.fault is faults_in_primal_dual.fault
assert faults_in_learning.fault is faults_in_mechanisms.fault
CHECKS = {**checks.CHECKS, **claims.CHECKS, **checks_of_primal_dual.CHECKS, **checks_of_learning.CHECKS}

# networks take long to compile: with the slow tests
LONG = {*checks_of_primal_dual.CHECKS, *checks_of_learning.CHECKS}
SLOW = {name: [pytest.mark.slow] if name in LONG else [] for name in CHECKS}
CHECKED = [pytest.param(name, marks=marks, id=name) for name, marks in SLOW.items()]
PLANTED = [pytest.param(mutation, marks=SLOW[mutation.caught_by], id=mutation.name) for mutation in MUTATIONS]

_seconds: dict[str, float] = {}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("mutations"))


@pytest.fixture(autouse=True)
def _processor_time(request):
    before = time.process_time()
    yield
    if request.node.get_closest_marker("slow") is None:
        _seconds[request.node.name] = time.process_time() - before


@pytest.mark.parametrize("check", CHECKED)
def test_without_a_fault_every_check_passes(lab, check):
    CHECKS[check](lab)


@pytest.mark.parametrize("mutation", PLANTED)
def test_every_mutation_is_caught(lab, mutation, tmp_path):
    with mutation.planted() as planting:
        with pytest.raises(Caught):
            CHECKS[mutation.caught_by](Lab(tmp_path) if mutation.traced else lab)
        assert planting.ran, "the check never came to the planted code"


@pytest.mark.parametrize("check", CHECKED)
def test_nothing_stays_planted(lab, check):
    CHECKS[check](lab)


def test_there_are_enough_and_each_check_is_needed():
    assert len(MUTATIONS) >= 25
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert {mutation.caught_by for mutation in MUTATIONS} == set(CHECKS)


def test_all_of_it_takes_less_than_a_minute_and_a_half():
    """Of processor time, in this process; with several of them each runs a part."""
    assert sum(_seconds.values()) < 90.0
