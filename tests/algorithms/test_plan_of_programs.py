"""What a plan refuses of a program, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dprl.accounting.budget import Budget
from dprl.algorithms.evaluation.plan import make_plan
from dprl.algorithms.evaluation.private_constant import PrivateConstant
from dprl.algorithms.evaluation.program import Facts, Shape, Stage

from . import helpers

BOUNDS, BUDGET = helpers.bandit_bounds(100), Budget(1.0, 1e-5)


@dataclass(frozen=True, kw_only=True)
class Wrong(PrivateConstant):
    """Options of a program that goes wrong.

    Attributes:
        how: what is wrong with it.
    """

    how: str = ""

    algorithm: ClassVar[str] = "wrong"

    def shapes(self, facts: Facts) -> tuple[Shape, ...]:
        (shape,) = super().shapes(facts)
        match self.how:
            case "name":
                return (replace(shape, name="value"),)
            case "twice":
                return (replace(shape, share=0.5), replace(shape, share=0.5))
            case "samples":
                return (replace(shape, name="first", share=0.5, sampling_rate=0.5), replace(shape, share=0.5))
        return (shape,)

    def program(self, facts: Facts, stages: tuple[Stage, ...]) -> Any:
        (stage,) = stages
        if self.how == "less noise":
            less = replace(stage.mechanism, noise_multiplier=0.7 * stage.mechanism.noise_multiplier)
            stage = replace(stage, mechanism=less)
        return super().program(facts, (stage,))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("name", "names of their own"),
        ("twice", "names of their own"),
        ("samples", "Only the last stage"),
        ("less noise", "not those that were calibrated"),
    ],
)
def test_no_plan_is_made_of_a_program_that_would_cost_more(how: str, sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        make_plan(Wrong(how=how), BOUNDS, BUDGET, [helpers.bandit_policy])


def test_the_same_program_without_a_mistake_has_a_plan() -> None:
    plan = make_plan(Wrong(), BOUNDS, BUDGET, [helpers.bandit_policy])
    assert plan.name == "wrong"
    assert 0.99 < plan.epsilon_of_event <= 1.0
