"""Only the exact classes that the package registers are its own; whatever else there is, is a stranger's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import dprl
from dprl import registry
from dprl.engine.program import ValueFunctionConfig
from dprl.errors import DprlError
from dprl.evaluation import gpope
from dprl.evaluation.gpope import GPOPEProgram
from dprl.registry import ALGORITHMS, AUDITED, Entry, is_own
from tests.conformance.toy import Toy

from .helpers import bandit_bounds

BOUNDS = bandit_bounds(200, horizon=3, max_cumulative_ratio=4.0)


@dataclass(frozen=True, kw_only=True)
class Mine(dprl.GPOPE):
    """Somebody's own, under a name that is known."""

    algorithm: ClassVar[str] = "gpope"


class Louder(GPOPEProgram):
    """A program of which a unit's vector is another one."""

    def contribution(self, stage: int, state: Any, block: Any) -> Any:
        return 2.0 * super().contribution(stage, state, block)


def planned(config: Any) -> Any:
    return dprl.make_plan(config, BOUNDS, dprl.Budget(1.0, 1e-5), [lambda x: None], "tabular")


@pytest.mark.parametrize("name", AUDITED)
def test_every_registered_configuration_is_the_packages_own(name):
    assert is_own(AUDITED[name].load_config()())


@pytest.mark.parametrize("name", ["td", "gpope", "dptd", "recommended", "adassp", "doubly-robust", "noisy-counts"])
def test_so_is_the_program_that_it_makes(name):
    plan = planned(ALGORITHMS[name].load_config()())
    assert is_own(plan.config, plan.program)


def test_a_subclass_is_a_stranger_whatever_it_is_called():
    assert not is_own(Mine())
    assert not is_own(Toy())
    assert not is_own(object())
    assert not is_own(dprl.GPOPE)  # the class is no configuration


def test_a_program_with_another_contribution_is_a_stranger():
    plan = planned(dprl.GPOPE(steps=3))
    fields = {f.name: getattr(plan.program, f.name) for f in dataclasses.fields(plan.program)}
    assert is_own(plan.config, plan.program)
    assert not is_own(plan.config, Louder(**fields))
    assert not is_own(plan.config, Toy())


def test_what_is_registered_or_exchanged_at_run_time_is_a_stranger(monkeypatch):
    entry = Entry("toy", "tests.conformance.toy:Toy", "", "")
    for table in (registry.ALGORITHMS, registry.AUDITED):
        monkeypatch.setitem(table, "toy", entry)
        monkeypatch.setitem(table, "gpope", Entry("gpope", f"{__name__}:Mine", "", ""))
    assert not is_own(Toy())
    assert not is_own(Mine())
    assert is_own(dprl.GPOPE())
    monkeypatch.setattr(gpope, "GPOPE", Mine)
    assert not is_own(Mine())


def test_a_class_that_pretends_to_come_from_the_package_is_a_stranger():
    fake = type("TD", (ValueFunctionConfig,), {"algorithm": "td", "__module__": dprl.TD.__module__})
    assert not is_own(object.__new__(fake))


def test_what_others_add_is_found_and_is_no_own():
    """A name of dprl's own is never another's; what is added is found by its name, and certifies nothing."""
    others = registry.entries_of_others()
    assert "first-visit" in others
    assert not others.keys() & AUDITED.keys()
    for name, entry in others.items():
        assert registry.find(name) is registry.find_audited(name) is entry
        assert not is_own(entry.load_config()())


def test_without_them_a_refusal_says_where_baselines_are(monkeypatch):
    monkeypatch.setattr(registry, "entries_of_others", dict)
    with pytest.raises(DprlError, match=r"no algorithm 'first-visit'; .*; baselines .* come with .* dprl-papers"):
        registry.find("first-visit")
