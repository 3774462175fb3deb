"""How a chosen or learned policy, and what it is worth, are released on neighbouring logs; nothing is private.

Everything is as with :class:`EvaluationConformance`, but that the policy is chosen or learned on one part of the people
and valued on the other. The attack sees the choice alone, which is all that the people of the first part are told of.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.audits.conformance.evaluation import EvaluationConformance
from dprl.audits.conformance.suite import handed_out
from dprl.audits.record_replay import Call
from dprl.engine.algorithm import Setting
from dprl.engine.plan import Plan
from dprl.evaluation.best import Choice
from dprl.evaluation.fitted_q import NAME
from dprl.evaluation.importance_sampling import ALGORITHM, ImportanceSampling
from dprl.evaluation.learned import plan_of_learned
from dprl.evaluation.plan import plan_of_best
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.protocols import Precondition
from dprl.registry import Entry
from dprl.release.learn import learn

_OPTIONS = ImportanceSampling(discount=0.9)
SETTINGS = {
    "best of two, one decision": Setting(_OPTIONS, facts={"horizon": 1, "max_cumulative_ratio": 1.6}),
    "best of two, several steps": Setting(_OPTIONS),
    "learned rule, one decision": Setting(_OPTIONS, facts={"horizon": 1, "max_cumulative_ratio": 1.6}),
    "learned rule, several steps": Setting(_OPTIONS, facts={"units": 16}),
    "fitted Q, a table": Setting(_OPTIONS, facts={"units": 16}),
    "fitted Q, a linear basis": Setting(_OPTIONS, facts={"units": 16}),
}
LEARNED: Mapping[str, Mapping[str, Any]] = {
    "learned rule, one decision": {"learner": "rules"},
    "learned rule, several steps": {"learner": "rules"},
    "fitted Q, a table": {"learner": NAME, "basis": "table"},
    "fitted Q, a linear basis": {"learner": NAME, "basis": "products:2"},
}
"""How each setting that learns asks for it."""


@dataclass(frozen=True)
class BestConformance(EvaluationConformance):
    """The audits of a choice among the suite's policies, or of a rule, valued by importance sampling."""

    def plan(self, setting: str) -> Plan:
        """Return the plan of a release under the suite's bounds."""
        chosen = self.algorithm.settings[setting]
        bounds = replace(self.bounds, **chosen.facts)
        if setting in LEARNED:
            return plan_of_learned(chosen.config, bounds, self.budget, 2.0**-49, **LEARNED[setting])
        policies = {f"policy {place}": policy for place, policy in enumerate(self.policies)}
        return plan_of_best(chosen.config, bounds, self.budget, policies, total_variation=2.0**-49)

    def mechanisms(self, setting: str) -> dict[str, Any]:
        """Return the noisy maximum or the learner's noisy sum, and that of the values."""
        plan: Any = self.plan(setting)
        first = plan.first
        own = {"choice": first.mechanism} if isinstance(first, Choice) else {NAME: first.program.stages[0].mechanism}
        return own | {"value": plan.value_mechanism}

    def sources(self, setting: str) -> tuple[str, ...]:
        """Return in which form a log is read; one in parts is refused."""
        del setting
        return ("arrays by person", "file by trajectory")

    def options(self, setting: str) -> dict[str, Any]:
        """Return what the public call is told besides."""
        del setting
        return {"best": True}

    def releasing(self, setting: str, log: Any, budget: Budget | None = None, **engine: Any) -> Call:
        """Return the public call that releases ``log`` in this setting."""
        if setting not in LEARNED:
            return super().releasing(setting, log, budget, **engine)

        def call(seed: int) -> Mapping[str, np.ndarray]:
            release = learn(log, budget or self.budget, algorithm=self.config(setting), seed=seed, **LEARNED[setting])
            return handed_out({"estimate": release.estimate, "certificate": release.certificate})

        return call


@dataclass(frozen=True)
class BestEntry(Entry):
    """The entry of importance sampling as a choice asks for it; it is no algorithm of its own."""

    def load_conformance(self) -> BestConformance:
        """Return its audits."""
        return BestConformance(replace(ALGORITHM, settings=SETTINGS))


BEST = BestEntry("importance-sampling", "dprl.evaluation.importance_sampling", "")


@dataclass(frozen=True, kw_only=True)
class ChoiceCanary:
    """The worst pair of logs for a noisy maximum, seen by who knows all but the canary; see
    :class:`dprl.protocols.Canary`.

    Everybody else's scores are told by ``gaps`` to the highest, in spreads; the canary adds a whole spread to the last
    candidate alone. What is seen is whether it won.
    """

    mechanism: NoisyMaximum
    gaps: tuple[float, ...]
    delta: float = 1e-5
    description: str = "one unit adds its whole spread to one candidate; which candidate won is seen"
    gaussian: bool = False
    preconditions: tuple[Precondition, ...] = field(default=())

    @property
    def epsilon(self) -> float:
        """Claimed epsilon."""
        return self.mechanism.epsilon

    def scores(
        self, seed: int, trials: int, present: bool, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return ``(trials,)`` scores: one where the canary's candidate won."""
        spread = self.mechanism.spread
        total = np.array([-math.ceil(gap * spread) for gap in self.gaps], np.int64)
        total[-1] += spread * present
        out = np.zeros(trials)
        for trial in range(trials):
            key = hashlib.blake2b(f"{seed} {present} {trial}".encode(), digest_size=32).digest()
            out[trial] = self.mechanism.choose(SecureNoise(key), total) == len(total) - 1
            if progress is not None and trial % 1000 == 999:
                progress(trial + 1)
        return out


def choice_canary(budget: Budget, candidates: int = 2) -> ChoiceCanary:
    """Return the attack on a noisy maximum, whose canary's candidate is one spread behind: from there on the odds move
    most.
    """
    mechanism = NoisyMaximum(candidates=candidates, spread=2**24, epsilon=budget.epsilon)
    gaps = (0.0,) * (candidates - 1) + (1.0,)
    return ChoiceCanary(mechanism=mechanism, gaps=gaps, delta=budget.delta)
