"""An algorithm that is none of dprl's gets a statement, whatever its noise: nobody here has proved what it protects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import dprl
from dprl.accounting.verification import verify
from dprl.audits.check import read_algorithm
from dprl.cli.evaluate import release_lines
from dprl.environments.interval_walk import IntervalWalk
from dprl.release.pipeline import status_of
from tests.cli.test_check import LEAKING
from tests.mutations.lab import FULL, small_log, suite_of


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Of an algorithm by the name of one that is known, in which no clip bounds what one unit moves the sum by."""
    options: dict[str, Any] = {"budget": dprl.Budget(1.0, 1e-4), "bounds": suite_of(FULL).bounds}
    folder = tmp_path_factory.mktemp("unreviewed") / "results"
    file = folder.with_name("mine.py")
    file.write_text(LEAKING.replace('"level"', '"td"', 1))
    algorithm = read_algorithm(file).load().config()
    assert algorithm.algorithm == "td"
    release = dprl.evaluate(small_log(), "uniform", algorithm=algorithm, **options)
    return release, release.save(folder), folder


def test_a_strangers_algorithm_gets_a_statement(released):
    release, files, folder = released
    assert release.estimate["status"] == release.certificate["status"] == "unreviewed"
    assert release.certificate["noise"]["secure"]
    assert "statement.json" in files
    assert not (folder / "certificate.json").exists()


def test_the_page_says_so(released):
    page = (released[2] / "report.html").read_text()
    assert "Unreviewed algorithm: carries no guarantee of this software." in page
    assert '<span class="badge published">unreviewed</span>' in page
    assert "This is not a private release." not in page


def test_the_console_says_so_and_verify_calls_it_no_private_release(released):
    """What ``dprl verify`` prints of it: tests/accounting/test_verification.py."""
    release, _, folder = released
    assert any(line.startswith("unreviewed: epsilon 1, delta 0.0001") for line in release_lines(release))
    assert not verify(folder).private


def test_what_learns_by_acting_is_judged_alike():
    from dprl.learning.learning_plan import make_learning_plan

    class Mine(dprl.FunctionalQ):
        pass

    facts = IntervalWalk().facts
    found = {}
    for kind in (dprl.FunctionalQ, Mine):
        plan = make_learning_plan(kind(reward_radius=0.01, variant="observed-reward"), facts, dprl.Budget(0.9, 1e-4))
        found[kind] = [status_of(plan, *said) for said in ((True, False), (False, False), (True, True))]
    assert found[dprl.FunctionalQ] == ["verified", "not private", "not private"]
    assert found[Mine] == ["unreviewed", "not private", "not private"]

    class Gradient(dprl.DPPG):
        pass

    assert status_of(SimpleNamespace(config=dprl.DPPG(), claim=None), True, False) == "verified"
    assert status_of(SimpleNamespace(config=Gradient(), claim=None), True, False) == "unreviewed"
    assert status_of(SimpleNamespace(config=dprl.DPPG(), claim=object()), True, False) == "as published"
