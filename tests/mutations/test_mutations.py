"""Faults planted into the real code: every one is caught by some check, and no check cries without a fault."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from .lab import CHECKS, SLOW, Caught, Lab
from .planting import MUTATIONS

# all checks and faults are in modules of their own, and fill one table each
for path in sorted(Path(__file__).parent.glob("*.py")):
    if path.stem.startswith(("checks", "faults")):
        import_module(f"{__package__}.{path.stem}")


def marks(check: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if check in SLOW else []


PLANTED = [pytest.param(mutation, marks=marks(mutation.caught_by), id=mutation.name) for mutation in MUTATIONS]
CHECKED = [pytest.param(name, marks=marks(name), id=name) for name in sorted(CHECKS)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("mutations"))


@pytest.mark.parametrize("mutation", PLANTED)
def test_every_mutation_is_caught(lab, mutation):
    with mutation.planted() as planting:
        with pytest.raises(Caught):
            CHECKS[mutation.caught_by](lab)
        assert planting.ran, "the check never came to the planted code"


@pytest.mark.parametrize("check", CHECKED)
def test_without_a_fault_every_check_passes(lab, check):
    """Behind all faults, of which nothing stays planted."""
    CHECKS[check](lab)


def test_there_are_enough_and_each_check_is_needed():
    assert len(MUTATIONS) >= 25
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert {mutation.caught_by for mutation in MUTATIONS} == set(CHECKS)


def test_the_readme_says_how_many_there_are():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"{len(MUTATIONS)} bugs are" in readme
