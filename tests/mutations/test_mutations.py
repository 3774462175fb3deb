"""Faults planted into the real code: every one is caught by some check, and no check cries without a fault."""

from __future__ import annotations

import pytest

from . import (
    checks,
    checks_of_accidents,
    checks_of_certificates,
    checks_of_doubly_robust,
    checks_of_intervals,
    checks_of_learning,
    checks_of_neighbours,
    checks_of_people,
    checks_of_primal_dual,
    claims,
    faults_in_accidents,
    faults_in_certificates,
    faults_in_claims,
    faults_in_doubly_robust,
    faults_in_intervals,
    faults_in_learning,
    faults_in_mechanisms,
    faults_in_neighbours,
    faults_in_primal_dual,
    faults_in_programs,
    faults_with_people,
)
from .lab import Caught, Lab
from .planting import MUTATIONS

# all are imported, and fill the one list
FAULTS = (
    faults_in_accidents,
    faults_in_certificates,
    faults_in_claims,
    faults_in_doubly_robust,
    faults_in_intervals,
    faults_in_learning,
    faults_in_mechanisms,
    faults_in_neighbours,
    faults_in_primal_dual,
    faults_in_programs,
    faults_with_people,
)
assert len({module.fault for module in FAULTS}) == 1
CHECKS = {
    **checks.CHECKS,
    **claims.CHECKS,
    **checks_of_accidents.CHECKS,
    **checks_of_certificates.CHECKS,
    **checks_of_doubly_robust.CHECKS,
    **checks_of_intervals.CHECKS,
    **checks_of_people.CHECKS,
    **checks_of_primal_dual.CHECKS,
    **checks_of_learning.CHECKS,
    **checks_of_neighbours.CHECKS,
}

# networks take long to compile: with the slow tests
LONG = {*checks_of_primal_dual.CHECKS, *checks_of_learning.CHECKS}
# many releases take long, too; the quickest are tried always
LONG |= {*checks_of_neighbours.CHECKS} - {"neighbours in logs", "neighbours in places of a log"}
SLOW = {name: [pytest.mark.slow] if name in LONG else [] for name in CHECKS}
CHECKED = [pytest.param(name, marks=marks, id=name) for name, marks in SLOW.items()]
PLANTED = [pytest.param(mutation, marks=SLOW[mutation.caught_by], id=mutation.name) for mutation in MUTATIONS]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("mutations"))


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
