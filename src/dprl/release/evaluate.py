"""The front doors for a log: evaluate target policies on the log, or learn from it a rule that people can read.

Where a rule or the best policy is asked for, one part of the people chooses it, and the other part values it
(docs/proofs/two-parts.md).

Order matters: public facts are checked, the output folder is tried, the run folder is made, the ledger is charged, and
only then is the first row read. From then on only the noisy sums depend on the rows. If the release is interrupted
anywhere, the same call with ``resume`` continues it (docs/proofs/resume.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.bounds import Bounds
from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.data.sources import LogSource
from dprl.engine.plan import Plan
from dprl.engine.program import Learned, ValueFunctionConfig, ValuesConfig
from dprl.errors import DprlError
from dprl.evaluation.contrasts import asked_pairs
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.intervals import ValueEstimate
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.plan import EvaluationOptions, make_plan, plan_of_best
from dprl.evaluation.projections import Projections, load_projections
from dprl.evaluation.propensities import Propensities, PropensityModel, load_propensities
from dprl.evaluation.stratified import Stratified
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.policies.given import OnePolicy, TargetPolicies
from dprl.policies.greedy import GreedyPolicy
from dprl.policies.loading import load_policy, policy_name
from dprl.policies.parametric import FILE as POLICY
from dprl.policies.rules import FILE as RULE
from dprl.policies.rules import Rule
from dprl.registry import default_for, find
from dprl.release.artifacts import certificate_of, estimate_of
from dprl.release.engines.engine import check_engine, open_engine, policy_for_workers
from dprl.release.pipeline import Purpose, ReleaseRequest, release, status_of
from dprl.release.plan import check_best, load_behavior, load_policies, named_policies, opened_log
from dprl.release.private_rows import PrivateRows, read_rows, references, release_rows
from dprl.release.results import ReleaseResults
from dprl.release.run_folder import RunFolder
from dprl.report.evaluation import frame_of
from dprl.value_functions.value_function import ValueFunction, load_value_function


@dataclass(frozen=True)
class Release(ReleaseResults):
    """Results of an evaluation that may be handed out, and what they cost.

    Attributes:
        value, interval: value and interval of the first target policy, or of the chosen policy.
        values: value of every target policy, by name; only of the chosen policy where the best was asked for.
        policy: the policy that was chosen or learned; None where neither was asked for.
        learned: what the algorithm learned and released besides: the value function of the first target policy,
            propensities, or projections; None where the algorithm learns nothing.
        certificate: the guarantee; sealed with digests when it is saved.
        estimate: everything above as plain data.
    """

    document_name = "estimate.json"
    values: Mapping[str, ValueEstimate]
    learned: Learned | None = field(repr=False)
    policy: Any = field(default=None, repr=False)

    @property
    def value_function(self) -> ValueFunction | None:
        """Value function of the first target policy; None where the algorithm learns none."""
        return self.learned if isinstance(self.learned, ValueFunction) else None

    @property
    def propensities(self) -> Propensities | PropensityModel | None:
        """Estimated behaviour probabilities, by stratum or from a regression; None if the algorithm estimates none."""
        return self.learned if isinstance(self.learned, Propensities | PropensityModel) else None

    @property
    def projections(self) -> Projections | None:
        """Best linear projections of values and differences; None where the algorithm computes none."""
        return self.learned if isinstance(self.learned, Projections) else None

    @property
    def estimate(self) -> Mapping[str, Any]:
        """Released values, as plain data."""
        return self.document

    @property
    def value(self) -> float:
        """Value of the first target policy."""
        return self.estimate["value"]

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the first target policy's value."""
        low, high = self.estimate["interval"]
        return low, high

    @property
    def chosen(self) -> str | None:
        """Name of the policy that was chosen or learned; None where neither was asked for."""
        choice = self.estimate.get("choice")
        return None if choice is None else choice["policy"]

    @property
    def contrasts(self) -> list[dict[str, Any]]:
        """Differences that were asked for, as plain data; see :class:`~dprl.evaluation.contrasts.Contrast`."""
        return list(self.estimate.get("contrasts", ()))

    @property
    def subgroups(self) -> list[dict[str, Any]]:
        """Subgroups that were asked for, as plain data; see :class:`~dprl.evaluation.subgroups.Subgroup`."""
        return list(self.estimate.get("subgroups", ()))

    def to_frame(self) -> pa.Table:
        """Return all released values and differences as an Arrow table, one row each. The table has ``to_pandas()``.

        Its columns are ``policy``, ``against`` (for a difference), ``subgroup``, ``value``, the row's own interval from
        ``low`` to ``high``, the simultaneous interval from ``low_together`` to ``high_together``, the standard errors
        of privacy noise and of sampling, and the mean importance weight, which should be 1, with its standard error.
        The simultaneous intervals hold together with those of the other differences or, in subgroups, of all subgroups.
        Entries that do not apply to a row are null.
        """
        return frame_of(self.estimate)

    @property
    def public_cautions(self) -> list[str]:
        """Cautions that follow from public facts only."""
        return list(self.estimate.get("public_cautions", ()))

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the release: name -> content."""
        learned = {} if self.learned is None else {self.learned.file: self.learned.to_bytes()}
        if isinstance(self.policy, GreedyPolicy):
            return learned | {POLICY: self.policy.to_bytes()}
        return learned | ({RULE: self.policy.to_bytes()} if isinstance(self.policy, Rule) else {})


def evaluate(
    log: LogSource,
    target_policy: TargetPolicies,
    budget: Budget,
    *,
    algorithm: EvaluationOptions | str | None = None,
    bounds: Bounds | Mapping[str, Any] | str | Path | None = None,
    unit: str | None = None,
    person: str | None = None,
    features: str = "columns",
    behavior_policy: OnePolicy | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    simulated: bool = False,
    outcome: str | None = None,
    compare: Sequence[str] = (),
    subgroups: Sequence[str] = (),
    best: bool = False,
    choosing_share: float | None = None,
    progress: Callable[[int], None] | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    engine: Literal["local", "ray"] | None = None,
    shards: int | None = None,
    address: str | None = None,
) -> Release:
    """Evaluate target policies on a log, privately.

    Args:
        log: a :class:`Log` from :func:`dprl.read_log`, loaded :class:`Trajectories`, or whatever ``read_log`` reads
            (then ``bounds`` is needed). A log in parts is read block by block, in bounded memory.
        target_policy: a callable from states ``(N, d)`` to action probabilities ``(N, A)``; a model of scikit-learn,
            PyTorch, Flax, d3rlpy or SCOPE-RL; ``"uniform"``, ``"always:ACTION"``, ``"logged"`` for what was done,
            ``"FILE.py:function"`` or ``"column:NAME"``. Several policies are a list, a mapping from names, or
            ``"FILE.py:NAME"`` of a list or a mapping. Neither the policies nor the features may have been fitted on
            this log: a policy is public.
        budget: what may be spent in all.
        algorithm: options of any registered evaluation algorithm, or its name for the default options. The default is
            ``Recommended()``, which chooses by public facts only, or ``Stratified()`` where the bounds declare strata.
            All of them give values and intervals, and most a value function.
        unit: ``person``, ``trajectory`` or ``transition``. With ``transition`` values are mean rewards of a transition.
        features: ``columns``, ``tabular``, ``fourier:ORDER``, ``fourier-coupled:ORDER`` or ``rbf:N``; for algorithms
            that learn a network, also ``mlp:HIDDEN``.
        behavior_policy: public behaviour policy, for a log without behaviour probabilities.
        ledger, dataset: SQLite ledger, and the name of these data's budget in it.
        seed: reproducible noise: the release is then *not private* and says so.
        simulated: the log is a simulation: the non-private reference is shown, and the release is not private.
        outcome: what a value means, in words, for the report.
        compare: differences between policies to release as well, by name: ``"A:B"`` for the value of A less that of B,
            ``"all:B"`` for every other policy against B, ``"all"`` for all pairs. They cost no further budget.
        subgroups: groups whose values and differences are released as well, by the first state of a person or
            trajectory: ``"site"`` for each value of an integer component, ``"age:30,50"`` for the cells between cut
            points. Components are named as in the bounds. Subgroups cost no further budget, but they make the noise
            larger.
        best: choose the best of up to 1,000 target policies on one part of the people, and value only this policy on
            the other part. The interval is valid for the winner. Each part costs the whole budget, and both together
            cost no more. The log must be in memory.
        choosing_share: share of the people who choose; by default 0.4.
        progress: called with the number of updates done. If it has a method ``expect``, this is called first, with the
            total number of updates.
        run: folder, as private as the log, in which an interrupted release can be resumed; :meth:`Release.save`
            removes it.
        resume: continue the interrupted release whose beginning ``run`` holds; it is not charged again.
        engine: where a log in parts is summed: ``local``, the default, or ``ray``. The choice changes no digit.
        shards, address: for the engine ``ray``: number of workers, and address of the cluster. By default there is one
            worker for each processor, on a cluster that is started on this machine for this release only.

    Raises:
        DprlError: one sentence about the request, never about what is in the rows, with three exceptions. The curator
            is told if the rows are not those with which a resumed run was begun, if the ledger knows the rows under
            another name, and if a unit is split over the parts of a log.
    """
    request = ReleaseRequest(budget, ledger, dataset, seed, simulated, progress, run, resume)
    where = check_engine(engine, shards, address)
    named = named_policies(target_policy)
    check_best(best, choosing_share, named, compare, subgroups)
    log = opened_log(log, named, bounds, unit, person, behavior_policy)
    algorithm = default_for(log.bounds) if algorithm is None else algorithm
    algorithm = find(algorithm).load_config()() if isinstance(algorithm, str) else algorithm
    if not isinstance(algorithm, ValueFunctionConfig | ValuesConfig):
        raise DprlError("algorithm must be the options of an evaluation algorithm, such as dprl.Recommended().")
    if algorithm.needs_events and not log.says_what_ends:
        raise DprlError(
            f"{algorithm.algorithm} needs to know whether the event happened: name the column that says it "
            "'terminated', or under terminated of [prepare]."
        )
    if best and isinstance(log.source, Parts):
        raise DprlError("best: a log in parts is read by its engine alone: evaluate the file that it was made of.")
    policies, behavior = load_policies(named, log.bounds), load_behavior(log.behavior_policy, log.bounds)
    engine_targets, engine_behavior = list(policies.values()), behavior
    pairs = asked_pairs(compare, list(policies))
    facts, how = (algorithm, log.bounds, budget), (features, request.draw_variation, log.unit)
    if best:
        plan = plan_of_best(*facts, policies, *how, choosing_share)
    else:
        plan = make_plan(*facts, engine_targets, *how, pairs, subgroups)
    if where.engine == "ray":  # workers load a file's function themselves
        engine_targets = [policy_for_workers(named[name], policy) for name, policy in policies.items()]
        engine_behavior = policy_for_workers(log.behavior_policy, behavior)
    further_facts = {"compare": [list(pair) for pair in pairs]} if pairs else {}
    further_facts |= {"subgroups": list(subgroups)} if subgroups else {}
    further_facts |= {"best": plan.first.split.share} if plan.first is not None else {}
    opened = partial(open_engine, where, log, plan, engine_targets, engine_behavior, simulated)
    return _released(request, plan, log, policies, behavior, outcome, further_facts, features, opened)


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

    A coin puts each person into one of two parts. The first part chooses a rule from a class that public facts declare:
    the same action for everybody, or an action that one or two comparisons of a state's components decide. The second
    part values the rule and what was done and, where there is one decision, every action for everybody. Each part costs
    the whole budget, and both together cost no more.

    Args:
        log, budget, bounds, unit, person, behavior_policy: see :func:`dprl.evaluate`. Actions must be discrete, and the
            log in memory.
        algorithm: options of importance sampling, which computes the values: above all ``discount`` and ``confidence``.
            Where the bounds declare strata, options of :class:`~dprl.Stratified`.
        cuts: components that rules may look at: ``"age:30,50"`` with cut points, or ``"site"`` for each value of a
            whole number. By default all components, at cut points that the bounds give.
        policies: policies of your own to choose from as well, in the form in which :func:`dprl.evaluate` takes target
            policies.
        choosing_share: share of the people who choose; by default 0.4.
        learner: ``rules`` as above; ``fitted-q`` for a policy by fitted Q iteration, which looks at every component and
            values what follows a decision; ``advantage`` for a policy by a noisy regression of how much more each
            action brings than what was done, which needs less budget; or ``recommended``, which chooses by public
            facts. Over several steps it chooses ``fitted-q`` if the budget is large and ``advantage`` if it is smaller;
            in all other cases ``rules``. Where the bounds declare strata, because behaviour probabilities are not
            known, it is ``fitted-q`` with an action for each stratum.
        basis: basis of a learned policy: ``"table"``, ``"products:0"``, ``"products:1"`` or ``"products:2"``; by
            default the largest that the budget serves. See :class:`~dprl.policies.greedy.Basis`.
        return_deviation: root mean square distance of returns from the middle of their range, as the literature or an
            earlier trial has it. This number is public. The smaller it is, the bolder the choice. A wrong number costs
            value, but neither privacy nor the validity of the intervals.
        ledger, dataset, seed, simulated, outcome, progress, run, resume: see :func:`dprl.evaluate`.

    Returns:
        A release. Its :attr:`~dprl.Release.policy` is the rule, a callable policy that is saved as ``policy.json``, or
        the learned policy, saved as ``policy.safetensors``. ``release.chosen`` describes it in words.
        ``release.contrasts`` has its value less that of what was done, and less that of each action for everybody, with
        intervals that hold together.

    Raises:
        DprlError: one sentence about the request; never about what is in the rows.
    """
    request = ReleaseRequest(budget, ledger, dataset, seed, simulated, progress, run, resume)
    if not isinstance(algorithm, ImportanceSampling | Stratified | None):
        raise DprlError(
            "learn: values are by importance sampling, or within strata: give dprl.ImportanceSampling(...), "
            "dprl.Stratified(...), or nothing."
        )
    named = named_policies(policies) if policies else {}
    log = opened_log(log, named, bounds, unit, person, behavior_policy)
    if isinstance(log.source, Parts):
        raise DprlError("learn: a log in parts is read by its engine alone: learn from the file that it was made of.")
    own, behavior = load_policies(named, log.bounds), load_behavior(log.behavior_policy, log.bounds)
    config = algorithm or (ImportanceSampling() if log.bounds.strata is None else Stratified())
    plan = plan_of_learned(
        config, log.bounds, budget, request.draw_variation, log.unit, cuts=cuts, candidates=own,
        behavior=behavior, censored="censored" in log.schema.scalars, share=choosing_share,
        learner=learner, basis=basis, deviation=return_deviation,
    )  # fmt: skip
    assert plan.first is not None
    return _released(request, plan, log, own, behavior, outcome, {"learn": plan.first.described()})


def _released(
    request: ReleaseRequest,
    plan: Plan,
    log: Log,
    policies: Mapping[str, Any],
    behavior: Any,
    outcome: str | None,
    further_facts: Mapping[str, Any],
    features: str = "columns",
    opened: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Release:
    """Charge a plan, release it and certify it.

    Args:
        request: the part of the request that all front doors share.
        policies: target policies by name; for a plan with a first part, the policies that its certificate names.
        behavior: public behaviour policy; None where the log has behaviour probabilities.
        outcome, features: see :func:`evaluate`.
        further_facts: facts of the request, which must be the same when a run is resumed.
        opened: opens the engine that reads a log in parts; yields None for a log in memory.
    """
    noise, targets = request.noise, [] if plan.first is not None else list(policies.values())
    plan.refuse_the_hopeless()
    request.expect(plan.steps)
    status = status_of(plan, noise.secure, request.simulated)
    certificate = certificate_of(plan, log, policies, behavior, noise, status, features)
    account = request.account()
    with opened() as units:

        def make_release(rows: PrivateRows, folder: RunFolder | None) -> Release:
            released = release_rows(plan, rows, noise, folder, request.progress)
            exact = references(released.rows, released.learned) if request.simulated else None
            valued = policies if released.first is None else released.first.policies
            values = dict(zip(valued, released.estimates, strict=True))
            estimate = estimate_of(plan, log, values, released, exact, status, outcome)
            policy = None if released.first is None else next(iter(valued.values()))
            return Release(values, released.learned, policy, document=estimate)

        shared = {
            "log": log.name, "unit_column": log.unit_column, "outcome": outcome,
            "behavior_policy": None if behavior is None else policy_name(behavior),
            "strategy": plan.query.strategy.tolist(),
        }  # fmt: skip
        purpose = Purpose(log.unit, RELATION, f"evaluate {plan.name}")
        read, bound = partial(read_rows, plan, log, units, targets, behavior), {**shared, **further_facts}
        return release(request, certificate, account, purpose, bound, read=read, make=make_release, restore=_restored)


def _restored(path: Path) -> Release:
    """Return the release that was saved in a folder."""
    estimate = json.loads((path / Release.document_name).read_bytes())
    function: Learned | None = None if estimate["value_function"] is None else load_value_function(path)
    for kind, load in ((Propensities.kind, load_propensities), (Projections.kind, load_projections)):
        function = load(path) if kind in estimate else function
    values = {target["name"]: ValueEstimate.from_mapping(target) for target in estimate["targets"]}
    policy = load_policy(path) if any((path / name).exists() for name in (RULE, POLICY)) else None
    return Release(values, function, policy, document=estimate)
