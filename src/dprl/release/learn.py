"""The front door to learning from a log: a rule that people can read, what it is worth, and whether it is better.

One part of the people chooses the rule, the other values it (docs/proofs/two-parts.md). Order matters, as in an
evaluation: public facts are checked, the ledger is charged, and only then is the first row read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.data.parts import Parts
from dprl.data.sources import LogSource
from dprl.errors import DprlError
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.learned import plan_of_learned
from dprl.evaluation.stratified import Stratified
from dprl.policies.kinds import OnePolicy, TargetPolicies
from dprl.protocols import Bounds
from dprl.release.evaluate import Release, carry_out, draw_variation
from dprl.release.pipeline import ReleaseRequest
from dprl.release.plan import load_behavior, load_policies, named_policies, opened_log


def learn(
    log: LogSource,
    budget: Budget,
    *,
    algorithm: ImportanceSampling | Stratified | None = None,
    bounds: Bounds | Mapping[str, Any] | str | Path | None = None,
    unit: str | None = None,
    person: str | None = None,
    cuts: Sequence[str] = (),
    policies: TargetPolicies = (),
    behavior_policy: OnePolicy | None = None,
    choosing_share: float | None = None,
    learner: str = "recommended",
    basis: str | None = None,
    return_deviation: float | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    simulated: bool = False,
    outcome: str | None = None,
    progress: Callable[[int], None] | None = None,
    run: str | Path | None = None,
    resume: bool = False,
) -> Release:
    """Learn a rule from a log, privately, and say what it is worth.

    Each person is in one of two parts by a coin. The first part chooses a rule of a class that public facts declare:
    the same action for everybody, or one that one or two comparisons of a state's components decide. The second part
    values it, and what was done, and after one decision every action for everybody. Each part costs the whole budget,
    and both together no more.

    Args:
        log, budget, bounds, unit, person, behavior_policy: see :func:`dprl.evaluate`. Actions must be discrete, and the
            log in memory.
        algorithm: options of the values, of importance sampling: above all ``discount`` and ``confidence``. Where the
            bounds declare strata they are those of :class:`~dprl.Stratified`.
        cuts: components that rules may look at: ``"age:30,50"`` with cut points, or ``"site"`` for each value of a
            whole number. By default all components, at cut points that the bounds give.
        policies: of your own, to choose from as well; as :func:`dprl.evaluate` takes target policies.
        choosing_share: share of the people who choose; by default 0.4.
        learner: ``rules`` as above; ``fitted-q`` for a policy by fitted Q iteration, which looks at every component and
            values what follows a decision; ``advantage`` for one by a noisy regression of how much more each action
            brings than what was done, which needs less budget; or ``recommended``, by public facts: over several steps
            ``fitted-q`` where the budget is large and ``advantage`` where it is not, else ``rules``. Where the
            bounds declare strata, because behaviour probabilities are not known, it is ``fitted-q`` with an action for
            each stratum.
        basis: of a policy: ``"table"``, ``"products:0"``, ``"products:1"`` or ``"products:2"``; by default the
            largest that the budget serves. See :class:`~dprl.policies.greedy.Basis`.
        return_deviation: how far returns lie from the middle of their range: the root of the mean square, as the
            literature or an earlier trial has it. It is public, and makes the choice bolder where it is small. A wrong
            one costs value, never privacy or the intervals.
        ledger, dataset, seed, simulated, outcome, progress, run, resume: see :func:`dprl.evaluate`.

    Returns:
        A release whose :attr:`~dprl.Release.policy` is the rule, a callable policy that is saved as ``policy.json``, or
        the policy that was learned, saved as ``policy.safetensors``; ``release.chosen`` says it in words.
        ``release.contrasts`` has what it is worth more than what was done, and than each action for everybody, with
        intervals that hold together.

    Raises:
        DprlError: one sentence about the request; never about what is in the rows.
    """
    asked = ReleaseRequest(
        budget=budget, ledger=ledger, dataset=dataset, seed=seed, simulated=simulated, progress=progress, run=run,
        resume=resume,
    )  # fmt: skip
    if not isinstance(algorithm, ImportanceSampling | Stratified | None):
        raise DprlError(
            "learn: values are by importance sampling, or within strata: give dprl.ImportanceSampling(...), "
            "dprl.Stratified(...), or nothing."
        )
    named = named_policies(policies) if policies else {}
    opened = opened_log(log, named, bounds, unit, person, behavior_policy)
    if isinstance(opened.source, Parts):
        raise DprlError("learn: a log in parts is read by its engine alone: learn from the file that it was made of.")
    own = load_policies(named, opened.bounds) if named else {}
    below = opened.behavior_policy if behavior_policy is None else behavior_policy
    behavior, noise = load_behavior(below, opened.bounds), asked.noise()
    config = algorithm or (ImportanceSampling() if opened.bounds.strata is None else Stratified())
    plan = plan_of_learned(
        config, opened.bounds, budget, draw_variation(noise), opened.unit, cuts=cuts, candidates=own,
        behavior=behavior, censored="censored" in opened.schema.scalars, share=choosing_share,
        learner=learner, basis=basis, deviation=return_deviation,
    )  # fmt: skip
    assert plan.first is not None
    return carry_out(asked, plan, opened, own, behavior, noise, outcome, {"learn": plan.first.described()})
