"""An algorithm that is none of dprl's gets a statement, whatever its noise: nobody here has proved what it protects."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest
import typer
from typer.testing import CliRunner

import dprl
from dprl.accounting.verification import verify
from dprl.cli.evaluate import lines
from dprl.cli.results import verify as verify_command
from dprl.engine.program import PublicFacts, Query, Stage, ValueFunctionConfig
from dprl.environments.interval_walk import IntervalWalk
from dprl.release.certificate import status_of
from tests.mutations.lab import FULL, small_log, suite_of


@dataclass(frozen=True, kw_only=True)
class LargestReturn(ValueFunctionConfig):
    """Every unit's vector is the largest return of all: no clip bounds what one unit moves the sum by."""

    algorithm: ClassVar[str] = "td"  # the name of one that is known

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        return (Query("level", facts.features.size, 1.0),)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> LargestProgram:
        return LargestProgram(stages, facts.features.size)


@dataclass(frozen=True)
class LargestProgram:
    stages: tuple[Stage, ...]
    size: int

    columns = ("returns",)

    def init(self) -> Any:
        return jnp.zeros(self.size)

    def contribution(self, stage: int, state: Any, block: Any) -> Any:
        mine = jnp.sum(block.weight_return, axis=1, keepdims=True)
        return jnp.broadcast_to(jnp.max(mine), (len(mine), self.size))

    def update(self, stage: int, state: Any, noisy: Any, step: Any) -> Any:
        return noisy

    def finish(self, stage: int, state: Any) -> Any:
        return state

    def answer(self, state: Any) -> Any:
        return state


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    options: dict[str, Any] = {"budget": dprl.Budget(1.0, 1e-4), "bounds": suite_of(FULL).bounds}
    release = dprl.evaluate(small_log(), "uniform", algorithm=LargestReturn(), **options)
    folder = tmp_path_factory.mktemp("unreviewed") / "results"
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


def test_the_console_and_verify_say_so(released):
    release, _, folder = released
    assert any(line.startswith("unreviewed: epsilon 1, delta 0.0001") for line in lines(release))
    found = verify(folder)
    assert not found.private
    app = typer.Typer()
    app.command()(verify_command)
    said = CliRunner().invoke(app, [str(folder)])
    assert said.exit_code == 0
    assert "a statement, not a private release (unreviewed: an algorithm that is none of dprl's" in said.stdout


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
