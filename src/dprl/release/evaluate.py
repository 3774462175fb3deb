"""The front door: evaluate target policies on a log, once, and hand out what may be handed out.

Order matters: public facts are checked, the output folder is tried, the run folder is made, the ledger is charged,
and only then is the first row read. From there on nothing depends on the rows but the noisy sums. Interrupted
anywhere, the same call with ``resume`` goes on (docs/proofs/resume.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.data.parts import Parts
from dprl.data.readers import Log
from dprl.data.sources import LogSource
from dprl.engine.options import Learned, ValueFunctionConfig, ValuesConfig
from dprl.engine.plan import Plan
from dprl.errors import DprlError
from dprl.evaluation.contrasts import asked_pairs
from dprl.evaluation.intervals import ValueEstimate
from dprl.evaluation.plan import Algorithm, make_plan, plan_of_best
from dprl.evaluation.projections import Projections, load_projections
from dprl.evaluation.propensities import Propensities, PropensityModel, load_propensities
from dprl.mechanisms.gaussian_sum import RELATION
from dprl.policies.greedy import GreedyPolicy
from dprl.policies.kinds import OnePolicy, TargetPolicies
from dprl.policies.loading import load_policy, policy_name
from dprl.policies.released import FILE as POLICY
from dprl.policies.rules import FILE as RULE
from dprl.policies.rules import Rule
from dprl.protocols import Bounds
from dprl.registry import default_for, find
from dprl.release.artifacts import certificate_of, estimate_of
from dprl.release.certificate import status_of
from dprl.release.engines.engine import check_engine, open_engine
from dprl.release.pipeline import Handout, Purpose, ReleaseRequest, release
from dprl.release.plan import check_best, load_behavior, load_policies, named_policies, opened_log
from dprl.release.run_folder import RunFolder
from dprl.release.touch import PrivateRows, read_rows, references, release_rows
from dprl.report.shown import frame_of
from dprl.value_functions.linear import ValueFunction, load_value_function


@dataclass(frozen=True)
class Release(Handout):
    """Results of an evaluation that may be handed out, and what they cost.

    Attributes:
        value, interval: of the first target policy, or of the chosen one.
        values: of every target policy, by name; of the chosen one alone, where the best was asked for.
        policy: the chosen policy, where one was chosen.
        learned: what was released besides: the value function of that first target policy, propensities, or
            projections; None where the algorithm learns nothing.
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
        """Estimated behaviour probabilities, by stratum or of a regression; None where the log has them."""
        return self.learned if isinstance(self.learned, Propensities | PropensityModel) else None

    @property
    def projections(self) -> Projections | None:
        """Best linear projections of values and differences; None where the algorithm gives none."""
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
        """Interval of that value."""
        low, high = self.estimate["interval"]
        return low, high

    @property
    def chosen(self) -> str | None:
        """Name of the policy that was chosen as the best; None where none was asked for."""
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
        """Return all released values and differences as an Arrow table, which has ``to_pandas()``; a row for each.

        Its columns are ``policy``, ``against`` (of a difference), ``subgroup``, ``value``, the interval from ``low`` to
        ``high``, and the standard errors of the privacy noise and of sampling.
        """
        return frame_of(self.estimate)

    @property
    def public_cautions(self) -> list[str]:
        """Cautions that follow from public facts only."""
        return list(self.estimate.get("public_cautions", ()))

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the release, by name."""
        learned = {} if self.learned is None else {self.learned.file: self.learned.to_bytes()}
        if isinstance(self.policy, GreedyPolicy):
            return learned | {POLICY: self.policy.to_bytes()}
        return learned | ({RULE: self.policy.to_bytes()} if isinstance(self.policy, Rule) else {})


def evaluate(
    log: LogSource,
    target_policy: TargetPolicies,
    budget: Budget,
    *,
    algorithm: Algorithm | str | None = None,
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
            (then ``bounds`` is needed). One in parts is read block by block, in bounded memory.
        target_policy: a callable from states ``(N, d)`` to action probabilities ``(N, A)``; a model of scikit-learn,
            PyTorch, Flax, d3rlpy or SCOPE-RL; ``"uniform"``, ``"always:ACTION"``, ``"logged"`` for what was done,
            ``"FILE.py:function"``, ``"column:NAME"``; or several as a list, or as a mapping from names, or as
            ``"FILE.py:NAME"`` of a list or a mapping. Neither the policies nor the features may have been fitted on
            this log: a policy is public.
        budget: what may be spent in all.
        algorithm: options of any registered evaluation algorithm, or its name for the default options; without one
            ``Recommended()``, which chooses by public facts alone, or ``Stratified()`` where the bounds declare strata.
            All of them give values and intervals, and most a value function.
        unit: ``person``, ``trajectory`` or ``transition``. Of the last the values are mean rewards of a transition.
        features: ``columns``, ``tabular``, ``fourier:ORDER``, ``fourier-coupled:ORDER`` or ``rbf:N``; for algorithms
            that learn a network, also ``mlp:HIDDEN``.
        behavior_policy: public behaviour policy, for a log without behaviour probabilities.
        ledger, dataset: SQLite ledger and the name under which this data's budget stands there.
        seed: reproducible noise: the release is then *not private* and says so.
        simulated: the log is a simulation: the non-private reference is shown, and the release is not private.
        outcome: what a value means, in words, for the report.
        compare: differences of policies to release besides, by their names: ``"A:B"`` for what A is worth more than B,
            ``"all:B"`` for every other policy against B, ``"all"`` for all pairs. They cost no further budget.
        subgroups: whose values, and differences, are released besides, by the first state of a person or trajectory:
            ``"site"`` for each value of a component that is a whole number, ``"age:30,50"`` for the cells between cut
            points. The names are those of the bounds. They cost no further budget, and make the noise louder.
        best: choose the best of up to 1,000 target policies on one part of the people, and value that one alone on the
            other part. The interval is valid for the winner. Each part costs the whole budget, and both together no
            more. The log must be in memory.
        choosing_share: share of the people who choose; by default 0.4.
        progress: called with the number of updates done; if it has a method ``expect``, that is called before, with
            the number of all.
        run: folder, as private as the log, in which an interrupted release can be resumed; :meth:`Release.save`
            removes it.
        resume: go on with the release of which ``run`` holds the beginning, for what it was charged.
        engine: where a log in parts is summed: ``local``, the default, or ``ray``. It changes no digit.
        shards, address: of the engine ``ray``: number of workers, and the cluster; by default one worker for each
            processor, on a cluster of this machine that is started for this release alone.

    Raises:
        DprlError: one sentence about the request; never about what is in the rows. But whether the rows are those
            with which a resumed run was begun, and whether the ledger knows them under another name, is told to the
            curator.
    """
    asked = ReleaseRequest(
        budget=budget,
        ledger=ledger,
        dataset=dataset,
        seed=seed,
        simulated=simulated,
        progress=progress,
        run=run,
        resume=resume,
    )
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
    policies = load_policies(named, log.bounds)
    targets = list(policies.values())
    below = log.behavior_policy if behavior_policy is None else behavior_policy
    behavior = load_behavior(below, log.bounds)
    pairs = asked_pairs(compare, list(policies))
    noise = asked.noise()
    facts, how = (algorithm, log.bounds, budget), (features, draw_variation(noise), log.unit)
    if best:
        plan = plan_of_best(*facts, policies, *how, choosing_share)
    else:
        plan = make_plan(*facts, targets, *how, pairs, subgroups)
    if where.engine == "ray":  # a file's function is loaded again where it is needed
        sent, below = [_sent(named[name], policy) for name, policy in policies.items()], _sent(below, behavior)
    else:
        sent, below = targets, behavior
    request = {"compare": [list(pair) for pair in pairs]} if pairs else {}
    request |= {"subgroups": list(subgroups)} if subgroups else {}
    request |= {"best": plan.first.parts.share} if plan.first is not None else {}
    opened = partial(open_engine, where, log, plan, sent, below, simulated)
    return carry_out(asked, plan, log, policies, behavior, noise, outcome, request, features, opened)


def carry_out(
    asked: ReleaseRequest,
    plan: Plan,
    log: Log,
    policies: Mapping[str, Any],
    behavior: Any,
    noise: Any,
    outcome: str | None,
    request: Mapping[str, Any],
    features: str = "columns",
    opened: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Release:
    """Charge a plan, release it and certify it.

    Args:
        asked: what every front door shares.
        policies: target policies by name; of a plan with a first part those that a certificate names.
        behavior: public behaviour policy, or None where the log has probabilities.
        noise: source of the release.
        outcome, features: see :func:`evaluate`.
        request: what a resumed run must have been asked for besides.
        opened: gives the engine that reads a log in parts; none for one in memory.
    """
    simulated, targets = asked.simulated, [] if plan.first is not None else list(policies.values())
    plan.refuse_the_hopeless()
    asked.expect(plan.steps)
    status = status_of(plan, noise.secure, simulated)
    certificate = certificate_of(plan, log, policies, behavior, noise, status, features)
    account = asked.account()
    with opened() as units:

        def made(rows: PrivateRows, folder: RunFolder | None) -> Release:
            found = release_rows(plan, rows, noise, folder, asked.progress)
            exact = references(found.rows, found.learned) if simulated else None
            valued = policies if found.first is None else found.first.policies
            values = dict(zip(valued, found.estimates, strict=True))
            estimate = estimate_of(plan, log, values, found, exact, status, outcome)
            policy = None if found.first is None else next(iter(valued.values()))
            return Release(values, found.learned, policy, document=estimate)

        shared = {
            "log": log.name, "unit_column": log.unit_column, "outcome": outcome,
            "behavior_policy": None if behavior is None else policy_name(behavior),
            "strategy": plan.query.strategy.tolist(),
        }  # fmt: skip
        purpose = Purpose(log.unit, RELATION, f"evaluate {plan.name}")
        reading, whole = partial(read_rows, plan, log, units, targets, behavior), {**shared, **request}
        return release(asked, certificate, account, purpose, whole, read=reading, make=made, restore=_restored)


def draw_variation(noise: Any) -> float:
    """Return the total variation of one draw that a plan pays for; none of noise that protects nobody."""
    return noise.total_variation_per_draw if noise.secure else 0.0


def _sent(spec: Any, policy: Any) -> Any:
    """Return a policy as workers get it: where it stands in a file, or itself."""
    if isinstance(spec, str) and ".py:" in spec:
        file, _, function = spec.rpartition(":")
        return f"{os.path.abspath(file)}:{function}"
    return policy


def _restored(path: Path) -> Release:
    """Return the release in a folder."""
    estimate = json.loads((path / Release.document_name).read_bytes())
    function: Learned | None = None if estimate["value_function"] is None else load_value_function(path)
    for kind, load in ((Propensities.kind, load_propensities), (Projections.kind, load_projections)):
        function = load(path) if kind in estimate else function
    values = {target["name"]: ValueEstimate.from_mapping(target) for target in estimate["targets"]}
    policy = load_policy(path) if any((path / name).exists() for name in (RULE, POLICY)) else None
    return Release(values, function, policy, document=estimate)
