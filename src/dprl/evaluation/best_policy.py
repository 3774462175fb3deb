"""The best of many policies: chosen on one part of the people, valued on the other, in one release for one budget.

A unit's score for a policy is the unit's weighted distance to the middle of the range, as in importance sampling. A
noisy maximum over the summed scores chooses. Choosing needs no unbiased scores, so products of ratios are cut early,
which keeps the noise small. The chosen policy is then valued like a single policy, by people who had no say in the
choice. So the interval is valid for the winner, however many candidates there were.

Privacy unit: a trajectory, or a person with all their trajectories. Relation: add or remove one. Released: which policy
won, and what its value needs. Proofs: docs/proofs/two-parts.md, docs/proofs/noisy-maximum.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dprl.accounting.events import DpEvent
from dprl.accounting.rows import MOST_CANDIDATES
from dprl.bounds import Bounds
from dprl.config import DERIVED
from dprl.data.trajectories import Trajectories
from dprl.engine.ratios import policy_columns, step_ratios
from dprl.engine.sample_split import FirstPartQuestion, FirstPartRelease, SampleSplit, checked_share
from dprl.errors import DprlError
from dprl.evaluation.importance_sampling import ImportanceQuery, ImportanceSampling, make_query
from dprl.evaluation.importance_vectors import unit_pairs
from dprl.mechanisms.noisy_maximum import NoisyMaximum

# All numbers were chosen on the seeds for choosing of benchmarks/families.py.
CHOICE_CUT = 0.35
"""Product at which ratios are cut, over the root of the number of people who choose."""
SPREAD_SHARE = 0.5
"""Share of the largest spread at which a unit's spread is cut, where products of ratios are cut.

Few units come near the largest spread, which sets the noise.
"""
POINTS = 2**24
"""Points of the largest score."""
CHOICE = "choice"
"""Name of the stream of the noise, and of the journal's stream."""
_AT_ONCE = 1 << 22  # scores that are held at a time


@dataclass(frozen=True)
class PolicyChoice(FirstPartQuestion):
    """Choice of a policy by the first part of the people, made from public facts only.

    Attributes:
        query: importance-sampling query that gives the scores; it cuts products early, so that the noise is small.
        mechanism: the noisy maximum.
        candidates: policies to choose from, by name.
        handicaps: points that are taken off each candidate's sum of scores; empty for none.
        made_of: what the candidates are, as plain data, where they are not named one by one.
    """

    query: ImportanceQuery
    mechanism: NoisyMaximum
    candidates: Mapping[str, Any] = field(repr=False)
    handicaps: tuple[int, ...] = ()
    made_of: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Beginning of the certificate's sentence about what is released."""
        others = f" and {len(self.further_policies)} others" if self.further_policies else ""
        return (
            f"Which of {len(self.candidates)} policies the people of one part chose. Of the other part, for that policy"
            f"{others}"
        )

    def event(self) -> DpEvent:
        """Return the privacy event of the choice."""
        return self.mechanism.event()

    def rows(self) -> list[dict[str, Any]]:
        """Return the certificate's row for the choice."""
        return [self.mechanism.describe("choice of a policy")]

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the options in force: the share of the people, and the product at which ratios are cut."""
        cut = {"value": self.query.bounds.cumulative_ratio, "provenance": DERIVED}
        return super().options() | {"choice: max_cumulative_ratio": cut}

    def described(self) -> dict[str, Any]:
        """Return how the policy was or will be chosen, from public facts only."""
        loss = math.log(len(self.candidates)) / self.mechanism.rate
        return {
            "of": len(self.candidates),
            **super().described(),
            "max_cumulative_ratio": self.query.bounds.cumulative_ratio,
            "largest_loss_by_noise": loss / self.points_of(1.0),
            **({"rules": dict(self.made_of)} if self.made_of else {}),
        }

    def points_of(self, value: float) -> float:
        """Return by how many points the sum of all scores grows if the mean return grows by ``value``."""
        return value / (self.query.scale.width / 2.0) * self.split.first * POINTS

    def entering(self, log: Trajectories, behavior: Any) -> Iterator[Any]:
        """Yield the columns that scores and values use of each candidate and each further valued policy. Private."""
        for policy in (*self.candidates.values(), *self.further_policies.values()):
            yield policy_columns(policy, log, behavior)

    def released(self, log: Trajectories, behavior: Any, noise: Any, journal: Any) -> FirstPartRelease:
        """Return the name of the winning candidate, and the policies that are valued, with the winner first."""

        def place() -> Any:
            won = self.mechanism.choose(noise.stream(CHOICE), self.total(log, behavior))
            return np.array([won], dtype=np.int64)

        name = list(self.candidates)[int(journal.stream(CHOICE).step(0, 1, place)[0])]
        return FirstPartRelease(name, {self.policy_name or name: self.candidates[name], **self.further_policies})

    def unit_scores(self, log: Trajectories, behavior: Any = None) -> Float[np.ndarray, "units policies"]:
        """Return each unit's score of each policy, before the spread is cut. Private.

        A score is the weight times the distance of the return, or of every reward, to the middle of its range. Its size
        is at most :data:`POINTS`. Of one return, all policies' scores have the return's sign, so their spread is at
        most that, too.
        """
        ratios = (step_ratios(policy, log, behavior) for policy in self.candidates.values())
        pairs = (unit_pairs(self.query, log, ratio) for ratio in ratios)
        return np.stack([above - below for above, below in pairs], axis=1) * POINTS

    def total(self, log: Trajectories, behavior: Any = None) -> Int[np.ndarray, " policies"]:
        """Return the exact sum of the clipped scores of the units of ``log``, less public handicaps."""
        count = len(self.candidates)
        total = -np.array(self.handicaps or (0,) * count, dtype=np.int64)
        places, size = np.arange(log.units), max(_AT_ONCE // count, 1)
        for start in range(0, log.units, size):
            block = log.of_units((places >= start) & (places < start + size), self.query.bounds)
            scores = self.unit_scores(block, behavior)
            total = total + self.mechanism.clipped_sum(scores, np.ones(block.units, dtype=bool))
        return total


def make_choice(
    discount: float, estimator: str, bounds: Bounds, policies: Mapping[str, Any], epsilon: float, share: float | None
) -> PolicyChoice:
    """Return how one of ``policies`` is chosen, and by how many people.

    Args:
        discount, estimator: options of the values; the choice uses the same return, with weights of the trajectory or
            of each step.
        bounds: public bounds of the whole log.
        epsilon: epsilon of the choice. It is the whole epsilon of the release, because people who choose take no part
            in the valuation.
        share: share of the people who choose; None for the default.

    Raises:
        DprlError: there are too many policies, or too few people for two parts.
    """
    if len(policies) > MOST_CANDIDATES:
        raise DprlError(f"best: at most {MOST_CANDIDATES} policies fit in one choice; these are {len(policies)}.")
    split = SampleSplit(bounds.units, checked_share(share))
    cut = cut_of_choice(bounds, split.first)
    facts = replace(split.bounds_of(bounds, True), max_cumulative_ratio=cut)
    kind: Any = estimator if estimator in ("trajectory", "per-decision") else "auto"
    query = make_query(ImportanceSampling(discount=discount, estimator=kind), facts, np.ones((1, 1)))
    spread = round(POINTS * SPREAD_SHARE) if facts.cuts_products else POINTS
    return PolicyChoice(split, query, NoisyMaximum(candidates=len(policies), spread=spread, epsilon=epsilon), policies)


def cut_of_choice(bounds: Bounds, people: int) -> float:
    """Return the product at which ratios are cut: at most that for values, and small where few people choose."""
    most = min(bounds.cumulative_ratio, bounds.largest_product)
    return min(most, max(float(bounds.max_importance_ratio), CHOICE_CUT * math.sqrt(people)))
