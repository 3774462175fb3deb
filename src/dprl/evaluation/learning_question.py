"""A policy that is learned from noisy sums over one part of the people, and valued by the other part.

The basis is the largest that the budget serves. Public facts decide this: the signal against the noise in the sums.
Privacy unit, relation and event: see :mod:`dprl.evaluation.fitted_q` and :mod:`dprl.evaluation.advantage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.bounds import Bounds
from dprl.config import DERIVED
from dprl.data.trajectories import Trajectories
from dprl.engine.layouts import unit_rows
from dprl.engine.loop import run_on_host
from dprl.engine.ratios import policy_columns, step_ratios
from dprl.engine.rows import rows_of
from dprl.engine.sample_split import FirstPartQuestion, FirstPartRelease, SampleSplit
from dprl.errors import DprlError, require
from dprl.evaluation.advantage import ADVANTAGE, Advantage
from dprl.evaluation.fitted_q import FITTED_Q, ROUNDS, LinearQ, NoFeatures, PolicyLearner, TableQ
from dprl.evaluation.least_noise import public_states
from dprl.evaluation.strata import Strata
from dprl.evaluation.strata_q import StrataBasis, StrataQ, check_depth
from dprl.policies.greedy import MOST_CHARACTERS, Basis, are_codes
from dprl.policies.loading import UniformPolicy, policy_probabilities

# All numbers were chosen on the seeds for choosing of benchmarks/learn_many_steps.py.
LEAST_TABLE, LEAST_LINEAR = 3.0, 2.0
"""Least signal to noise: expected rows of an action over their noise, in a cell or in a direction of the basis."""
LEAST_ADVANTAGE = 3.0
"""The same of advantages: people times the clip norm over the length of the noise in their sum."""
FITTED_Q_STRENGTH = 12.0
"""The signal to noise from which fitted Q iteration finds more than advantages over what was done."""
MOST_SUMS, MOST_FEATURES = 2**17, 64
CONSTANT_BASIS = "products:0"
"""The basis that every budget serves."""
PURPOSE = "learning a policy"
LEARNED_POLICY = "the learned policy"
"""Name of the learned policy among the policies that are valued."""


@dataclass(frozen=True)
class LearningQuestion(FirstPartQuestion):
    """Question to the first part of the people, from whose noisy sums a policy is learned.

    Attributes:
        program: program that learns the policy, with noise for the budget once :meth:`calibrated`.
        refused_basis: the largest basis, and why it was refused, as plain data; None where none was refused.
    """

    program: TableQ | LinearQ | Advantage
    refused_basis: Mapping[str, Any] | None = None
    policy_name: str = field(default=LEARNED_POLICY, kw_only=True)

    @property
    def words(self) -> str:
        """Beginning of the certificate's sentence about what is released."""
        return (
            f"Every noisy sum of the learner {self.program.name} over people of one part, of which the policy is made. "
            f"Of the other part, for that policy and {len(self.further_policies)} others"
        )

    @property
    def draws(self) -> int:
        """Number of Gaussian numbers that are drawn."""
        return self.program.query.dimension * self.program.query.steps

    def calibrated(self, budget: Budget) -> LearningQuestion:
        """Return the same question with noise for ``budget``."""
        return replace(self, program=self.program.calibrated(budget))

    def event(self) -> events.DpEvent:
        """Return the event of all rounds."""
        return self.program.stages[0].mechanism.event()

    def rows(self) -> list[dict[str, Any]]:
        """Return the certificate's rows of the noisy sum."""
        return [row | {"share": 1.0} for row in self.program.stages[0].mechanism.rows("Clipped Gaussian sum", PURPOSE)]

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the options that were in force: the learner, and the share of the people."""
        return {"learner": {"value": self.program.name, "provenance": DERIVED}} | super().options()

    def described(self) -> dict[str, Any]:
        """Return how the policy was or will be learned, from public facts only."""
        of = self.program
        learner = {
            "name": of.name, "basis": of.basis.kind, "size": of.basis.size, "rounds": of.rounds,
            "caution": of.caution, "left_out": None if self.refused_basis is None else dict(self.refused_basis),
        }  # fmt: skip
        return super().described() | {"learner": learner}

    def entering(self, log: Trajectories, behavior: Any) -> Iterator[Any]:
        """Yield what is read from the rows: ratios that show behaviour probabilities, then policies' columns. Private.

        The ratios are those of the uniform policy, because the learned policy is not known yet.
        """
        yield step_ratios(UniformPolicy(self.program.actions), log, behavior)
        for policy in self.further_policies.values():
            yield policy_columns(policy, log, behavior)

    def released(self, log: Trajectories, behavior: Any, noise: Any, journal: Any) -> FirstPartRelease:
        """Learn the policy from the rows; return it with the other policies that are valued."""
        of = self.program
        log = replace(log, bounds=of.bounds)  # if the unit is a transition, trajectories have one step
        ratios = step_ratios(of.ratio_policy, log, behavior)
        value = of.bounds.value_interval(of.discount)
        rows = rows_of(log, ratios, NoFeatures(of.bounds.state), of.discount, value, columns=of.columns)
        _, weights = run_on_host(of, noise, unit_rows(rows, of.bounds.units), journal=journal)
        policy = of.policy(np.nan_to_num(np.asarray(weights, np.float64), nan=0.0, posinf=0.0, neginf=0.0))
        words = policy.words if len(policy.words) <= MOST_CHARACTERS else "a rule of many comparisons"
        return FirstPartRelease(words, {self.policy_name: policy, **self.further_policies})


def make_question(
    bounds: Bounds,
    discount: float,
    budget: Budget,
    split: SampleSplit,
    behavior: Any = None,
    basis: str | None = None,
    learner: str = FITTED_Q,
) -> LearningQuestion:
    """Return the question to the people from whom a policy is learned, with the largest basis that ``budget`` serves.

    Args:
        bounds: public bounds of the whole log.
        discount: gamma.
        budget: what the part of the people from whom the policy is learned may spend.
        split: division of the people.
        behavior: public behaviour policy. With a table, actions that it takes too rarely for the declared importance
            ratio are not proposed.
        basis: kind of :class:`~dprl.policies.greedy.Basis`; None for the largest basis that the budget serves.
        learner: ``fitted-q`` or ``advantage``.

    Raises:
        DprlError: the basis does not fit the states, takes too many sums, or cannot leave out actions that the
            behaviour policy never takes.
    """
    facts, multiplier = split.bounds_of(bounds, True), noise_multiplier_for(events.gaussian, budget)
    refused_basis = None
    for program in _larger_programs(facts, discount, behavior, learner) if basis is None else ():
        least = LEAST_TABLE if program.basis.is_table else LEAST_LINEAR
        least = LEAST_ADVANTAGE if learner == ADVANTAGE else least
        strength = program.strength(multiplier)
        if strength >= least:
            return LearningQuestion(split, program, refused_basis)
        if refused_basis is None:
            refused_basis = {"basis": program.basis.kind, "strength": strength, "least": least}
    return LearningQuestion(split, _program(facts, discount, behavior, basis or CONSTANT_BASIS, learner), refused_basis)


def question_within_strata(
    bounds: Bounds, discount: float, split: SampleSplit, min_propensity: float
) -> LearningQuestion:
    """Return the question from whose noisy sums a rule over declared strata is learned.

    See :mod:`dprl.evaluation.strata_q`.

    Args:
        bounds: public bounds of the whole log, with strata.
        discount: gamma.
        split: division of the people.
        min_propensity: an action that was taken by a smaller share of a stratum is not proposed there.
    """
    facts = split.bounds_of(bounds, True)
    strata = Strata(facts)
    check_depth(strata)
    return LearningQuestion(
        split, StrataQ(facts, StrataBasis(facts.state, "strata", strata), discount, min_propensity=min_propensity)
    )


def recommended_question(bounds: Bounds, discount: float, budget: Budget, *others: Any) -> LearningQuestion | None:
    """Return the question with the learner that public facts recommend.

    The arguments are those of :func:`make_question`. The learner is fitted Q iteration where the signal in its largest
    basis is strong (:data:`FITTED_Q_STRENGTH`) and every step has its own round. Otherwise it is advantages, in the
    largest basis that the budget serves. The result is None where that basis is a constant, or where no basis can leave
    out the actions that the behaviour policy never takes.
    """
    multiplier = noise_multiplier_for(events.gaussian, budget)
    with suppress(DprlError):
        found = make_question(bounds, discount, budget, *others)
        whole = found.program.basis.is_table or bounds.horizon <= ROUNDS
        if whole and found.refused_basis is None and found.program.strength(multiplier) >= FITTED_Q_STRENGTH:
            return found
        found = make_question(bounds, discount, budget, *others, learner=ADVANTAGE)
        return None if found.program.basis.kind == CONSTANT_BASIS else found
    return None


def _larger_programs(
    bounds: Bounds, discount: float, behavior: Any, learner: str
) -> Iterator[TableQ | LinearQ | Advantage]:
    """Yield the programs that fit and have more than a constant, the largest first.

    The first is a table if every component looks like codes of categories.
    """
    for kind in ["table"] * all(map(are_codes, bounds.state)) + ["products:2", "products:1"]:
        with suppress(DprlError):
            yield _program(bounds, discount, behavior, kind, learner)


def _program(bounds: Bounds, discount: float, behavior: Any, kind: str, learner: str) -> TableQ | LinearQ | Advantage:
    """Return the program of one basis; refuse a basis that does not fit."""
    basis = Basis(bounds.state, kind)
    of = Advantage if learner == ADVANTAGE else TableQ if basis.is_table else LinearQ
    program = of(bounds, basis, discount)
    if basis.is_table:
        require(program.query.dimension <= MOST_SUMS, f"{learner}: a table has more than {MOST_SUMS} sums here.")
        return replace(program, allowed=_allowed(program, behavior))
    require(basis.size <= MOST_FEATURES, f"{learner}: {kind} has more than {MOST_FEATURES} functions here.")
    states = public_states(bounds)
    require(
        behavior is None or (policy_probabilities(behavior, states, bounds.actions or 1) > 0.0).all(),
        f"{learner}: at some states the behaviour policy never takes some action, which {kind} cannot leave out: "
        "take the basis table, or learn rules.",
    )
    return program


def _allowed(table: PolicyLearner, behavior: Any) -> tuple[tuple[bool, ...], ...]:
    """Return for each state which actions the public behaviour policy takes often enough.

    In a state where it takes no action often enough, all actions are allowed.
    """
    if behavior is None:
        return ()
    low = np.array([pair[0] for pair in table.bounds.state])
    counts = [int(high) - int(below) + 1 for below, high in table.bounds.state]
    states = low + np.indices(counts).reshape(len(counts), -1).T
    taken = policy_probabilities(behavior, states, table.actions)
    often = taken >= (1.0 - 1e-9) / table.bounds.max_importance_ratio
    often |= ~often.any(axis=1, keepdims=True)
    return tuple(tuple(bool(x) for x in row) for row in often)
