"""What a plan refuses of a program, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dprl.accounting.budget import Budget
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.errors import DprlError
from dprl.evaluation.best_linear_projection import BestLinearProjection
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan
from dprl.evaluation.private_constant import PrivateConstant
from dprl.evaluation.survival import Survival
from dprl.evaluation.td import TD

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

    def queries(self, facts: PublicFacts) -> tuple[Query, ...]:
        (shape,) = super().queries(facts)
        match self.how:
            case "name":
                return (replace(shape, name="value"),)
            case "twice":
                return (replace(shape, share=0.5), replace(shape, share=0.5))
            case "samples":
                return (replace(shape, name="first", share=0.5, sampling_rate=0.5), replace(shape, share=0.5))
        return (shape,)

    def program(self, facts: PublicFacts, stages: tuple[Stage, ...]) -> Any:
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
        ("less noise", "not what was calibrated"),
    ],
)
def test_no_plan_is_made_of_a_program_that_would_cost_more(how: str, sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        make_plan(Wrong(how=how), BOUNDS, BUDGET, [helpers.bandit_policy])


def test_the_same_program_without_a_mistake_has_a_plan() -> None:
    plan = make_plan(Wrong(), BOUNDS, BUDGET, [helpers.bandit_policy])
    assert plan.name == "wrong"
    assert 0.99 < plan.epsilon_of_event <= 1.0


def test_of_a_transition_the_value_is_a_mean_reward() -> None:
    """Five decisions of a reward in [0, 1]: the noise is that of one decision, and the largest ratio too."""
    bounds = helpers.stepped_bounds(100)
    config = ImportanceSampling(discount=1.0, estimator="trajectory")
    whole, single = (
        make_plan(config, bounds, BUDGET, [helpers.stepped_policy], unit=u) for u in ("trajectory", "transition")
    )
    assert single.query.bounds.value_interval(1.0) == bounds.reward == (0.0, 1.0)
    assert single.bounds == bounds
    errors = [plan.expectation()[0]["privacy_standard_error"] for plan in (whole, single)]
    # half-ranges of 5/2 and 1/2, ratios of at most 1.2^5, which is less than the declared 2.5, and 1.2
    assert errors[0] / errors[1] == pytest.approx(5.0 * 1.2**4, rel=1e-6)
    for other in (TD(), BestLinearProjection(), Survival()):
        with pytest.raises(DprlError, match=f"^{other.algorithm} has no statement for the privacy unit transition"):
            make_plan(other, bounds, BUDGET, [helpers.stepped_policy], unit="transition")


@pytest.mark.parametrize(("bounds", "budget"), [("bounds.toml", BUDGET), (BOUNDS, 1.0)])
def test_bounds_and_budget_are_what_they_are_called(bounds, budget):
    with pytest.raises(DprlError, match=r"bounds must be dprl\.Bounds, which dprl\.read_bounds reads"):
        make_plan(TD(), bounds, budget, [helpers])


def test_more_policies_than_a_file_of_results_holds_are_refused():
    with pytest.raises(DprlError, match="At most 1000 target policies fit in one release; these are 1001"):
        make_plan(ImportanceSampling(), BOUNDS, BUDGET, [helpers.stepped_policy] * 1_001)


def test_a_plan_prints_what_is_to_be_expected_of_it():
    plan = make_plan(ImportanceSampling(), BOUNDS, BUDGET, [helpers.stepped_policy] * 2)
    first = plan.expectation()[0]
    width = f"{first['interval_half_width_at_least']:.4g} to {first['interval_half_width_at_most']:.4g}"
    assert repr(plan) == (
        f"<Plan: importance-sampling at epsilon 1, delta 1e-05; half-widths of intervals {width}, {width}>"
    )
