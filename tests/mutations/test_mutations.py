"""Faults planted into the real code: every one is caught by some check, and no check cries without a fault."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from .lab import CHECKS, Caught, Lab
from .planting import MUTATIONS

# networks and many releases take long: with the slow tests, but for the quickest
LONG = {"checks_of_primal_dual", "checks_of_learning", "checks_of_neighbours"}
QUICK = ("neighbours in logs", "neighbours in places of a log")
SLOW: dict[str, list[pytest.MarkDecorator]] = {}
# all checks and faults are in modules of their own, and fill one table each
for path in sorted(Path(__file__).parent.glob("*.py")):
    if path.stem.startswith(("checks", "faults")):
        import_module(f"{__package__}.{path.stem}")
        for name in CHECKS.keys() - SLOW.keys():
            SLOW[name] = [pytest.mark.slow] * (path.stem in LONG and name not in QUICK)
CHECKED = [pytest.param(name, marks=marks, id=name) for name, marks in sorted(SLOW.items())]
PLANTED = [pytest.param(mutation, marks=SLOW[mutation.caught_by], id=mutation.name) for mutation in MUTATIONS]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("mutations"))


@pytest.mark.parametrize("check", CHECKED)
def test_without_a_fault_every_check_passes(lab, check):
    CHECKS[check](lab)


@pytest.mark.parametrize("mutation", PLANTED)
def test_every_mutation_is_caught(lab, mutation):
    with mutation.planted() as planting:
        with pytest.raises(Caught):
            CHECKS[mutation.caught_by](lab)
        assert planting.ran, "the check never came to the planted code"


@pytest.mark.parametrize("check", CHECKED)
def test_nothing_stays_planted(lab, check):
    CHECKS[check](lab)


def test_there_are_enough_and_each_check_is_needed():
    assert len(MUTATIONS) >= 25
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert {mutation.caught_by for mutation in MUTATIONS} == set(CHECKS)
