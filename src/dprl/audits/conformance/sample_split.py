"""How a chosen or learned policy, and its value, are released on neighbouring logs; nothing here is private.

Everything is as in :class:`EvaluationConformance`, except that the policy is chosen or learned on one part of the
people and valued on the other part. The attack, :mod:`dprl.audits.attacks.releases`, sees all that both parts release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dprl.accounting.budget import Budget
from dprl.audits.attacks.releases import BestAudit, LearnAudit
from dprl.audits.conformance.evaluation import EvaluationConformance
from dprl.engine.algorithm import Algorithm, Setting
from dprl.engine.plan import Plan
from dprl.errors import DprlError
from dprl.evaluation.advantage import ADVANTAGE
from dprl.evaluation.fitted_q import FITTED_Q
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.plan import plan_of_best
from dprl.evaluation.stratified import Stratified
from dprl.protocols import Attack, Canary
from dprl.release.evaluate import learn

_OPTIONS, _WITHIN = ImportanceSampling(discount=0.9), Stratified(discount=0.9)
_ONE, _STRATA = {"horizon": 1, "max_cumulative_ratio": 1.6}, {"units": 16, "strata": ("observation_0",)}
_CANARY = "dprl.audits.attacks.releases:release_canary"
TRIALS = 10_000
"""Trials of a standard attack; so few because each run is a whole release of one log and of the other."""
_SEVERAL = {"units": 16}
_LEARNING: Mapping[str, tuple[Mapping[str, Any], Setting]] = {
    "learned rule, one decision": ({"learner": "rules"}, Setting(_OPTIONS, facts=_ONE)),
    "learned rule, several steps": ({"learner": "rules"}, Setting(_OPTIONS, facts=_SEVERAL)),
    "fitted Q, a table": ({"learner": FITTED_Q, "basis": "table"}, Setting(_OPTIONS, facts=_SEVERAL)),
    "fitted Q, a linear basis": ({"learner": FITTED_Q, "basis": "products:2"}, Setting(_OPTIONS, facts=_SEVERAL)),
    "advantages, a table": ({"learner": ADVANTAGE, "basis": "table"}, Setting(_OPTIONS, facts=_SEVERAL)),
    "advantages, a linear basis": ({"learner": ADVANTAGE, "basis": "products:2"}, Setting(_OPTIONS, facts=_SEVERAL)),
    "rule within strata, one decision": ({}, Setting(_WITHIN, facts=_ONE | _STRATA)),
    "rule within strata, several steps": (
        {},
        Setting(_WITHIN, facts={"max_importance_ratio": 1.6, "max_cumulative_ratio": 2.0} | _STRATA),
    ),
}
"""Arguments of the public call, and setting, by the name of each setting that learns a policy."""


@dataclass(frozen=True)
class SampleSplitConformance(EvaluationConformance):
    """The audits of a policy that is chosen among the suite's or learned, and then valued by importance sampling."""

    @property
    def learns(self) -> bool:
        """Whether a policy is learned, instead of one of the suite's policies being chosen."""
        return issubclass(self.algorithm.config, LearnAudit)

    def plan(self, setting: str) -> Plan:
        """Return the plan of a release under the suite's bounds."""
        chosen = self.algorithm.settings[setting]
        bounds = replace(self.bounds, **chosen.facts)
        if self.learns:
            return plan_of_learned(chosen.config, bounds, self.budget, 2.0**-49, **_LEARNING[setting][0])
        policies = {f"policy {place}": policy for place, policy in enumerate(self.policies)}
        return plan_of_best(chosen.config, bounds, self.budget, policies, total_variation=2.0**-49)

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return the form and the privacy unit in which a log is read; a log in parts is refused."""
        return ("arrays by person", "file by trajectory")

    def _released(self, setting: str, log: Any, budget: Budget, **options: Any) -> Any:
        if not self.learns:
            return super()._released(setting, log, budget, best=True, **options)
        return learn(log, budget, algorithm=self.config(setting), **_LEARNING[setting][0], **options)

    def attack(self, asked: dict[str, Any]) -> Canary:
        """Return the attack on the whole release, in which a person with two trajectories is added."""
        if asked["unit"] not in (None, "person"):
            raise DprlError(
                f"{self.algorithm.name} is attacked by who adds a person with two trajectories: leave unit out."
            )
        return super().attack(asked | {"unit": None})


def _suite(config: Any, settings: dict[str, Setting], more: tuple[Attack, ...] = ()) -> SampleSplitConformance:
    # where many people choose, the attack sees mainly the choice; where few do, mainly the values
    shares = ({"choosing_share": share} for share in (0.95, 0.05))
    attacks = (*(Attack(options=share, trials=TRIALS) for share in shares), Attack(epsilon=4.0, trials=TRIALS), *more)
    return SampleSplitConformance(Algorithm(config, settings, attacks, _CANARY))


BEST = _suite(
    BestAudit,
    {
        "best of two, one decision": Setting(_OPTIONS, facts=_ONE),
        "best of two, several steps": Setting(_OPTIONS),
    },
)
LEARN = _suite(
    LearnAudit,
    {name: setting for name, (_, setting) in _LEARNING.items()},
    (
        *(
            Attack(epsilon=epsilon, options={"choosing_share": 0.95, "learner": FITTED_Q}, trials=TRIALS)
            for epsilon in (1.0, 4.0)
        ),
        Attack(epsilon=4.0, options={"choosing_share": 0.95, "learner": ADVANTAGE}, trials=TRIALS),
        *(
            Attack(epsilon=epsilon, options={"learner": learner, "part": "first"}, trials=10 * TRIALS)
            for learner in (FITTED_Q, ADVANTAGE, "strata")
            for epsilon in (1.0, 4.0)
        ),
        # few trials, because each run computes a strategy
        Attack(epsilon=4.0, options={"choosing_share": 0.05, "learner": "strata"}, trials=TRIALS // 20),
    ),
)
