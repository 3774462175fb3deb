"""The front door: evaluate target policies on a log, once, and hand out what may be handed out.

Order matters: public facts are checked, the output folder is tried, the ledger is charged, and only then is the
first row read. From there on nothing depends on the rows but the noised sums.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import accountant_name
from dprl.accounting.certificate import versions
from dprl.accounting.ledger import Ledger
from dprl.algorithms.evaluation import gpope
from dprl.algorithms.evaluation import importance_sampling as importance
from dprl.algorithms.evaluation.gpope import GPOPE
from dprl.algorithms.evaluation.importance_sampling import ESTIMATOR_NAMES, ValueEstimate
from dprl.algorithms.evaluation.plan import Algorithm, Plan, make_plan
from dprl.algorithms.evaluation.ratios import step_ratios
from dprl.algorithms.evaluation.unit_data import rows_of, unit_rows
from dprl.data.readers import Log, read_log
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.mechanisms.clipped_sum import RELATION
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.policies.loading import ColumnPolicy, check_policy, load_policy, policy_name
from dprl.protocols import Bounds
from dprl.releases.save import save_release
from dprl.value_functions.linear import LinearValueFunction

NOT_PROTECTED = (
    "The target policies, the feature map, the public bounds and every hyper-parameter: they must not have been "
    "fitted on this log.",
    "Whether the log was evaluated at all, when, and how long it took.",
    "What follows about a person from facts that do not depend on that person's own record.",
)


@dataclass(frozen=True)
class Release:
    """What may be handed out, and what it cost.

    Attributes:
        value, interval: of the first target policy.
        values: of every target policy, by name.
        value_function: of the first target policy; None where the algorithm learns none.
        certificate: the guarantee; sealed with digests when it is saved.
        estimate: everything above as plain data.
    """

    values: Mapping[str, ValueEstimate]
    value_function: LinearValueFunction | None = field(repr=False)
    certificate: Mapping[str, Any] = field(repr=False)
    estimate: Mapping[str, Any] = field(repr=False)
    _charge: tuple[Ledger, int] | None = field(default=None, repr=False)

    @property
    def value(self) -> float:
        return self.estimate["value"]

    @property
    def interval(self) -> tuple[float, float]:
        low, high = self.estimate["interval"]
        return low, high

    @property
    def public_cautions(self) -> list[str]:
        """What the declared bounds alone say against the answer."""
        return Bounds.from_mapping(self.estimate["bounds"]).cautions()

    def save(self, folder: str | Path, sign_key: str | Path | None = None) -> dict[str, Path]:
        """Write estimate, value function, report and certificate into a new folder, all or nothing.

        Returns:
            Name of each artifact -> its path.
        """
        paths, digest = save_release(self.estimate, self.value_function, self.certificate, folder, sign_key)
        if self._charge is not None:
            ledger, charge = self._charge
            ledger.commit(charge, digest)
        return paths


def evaluate(
    log: Any,
    target_policy: Any,
    budget: Budget,
    *,
    algorithm: Algorithm | None = None,
    bounds: Bounds | Mapping[str, Any] | str | Path | None = None,
    unit: str | None = None,
    person: str | None = None,
    features: str = "columns",
    behavior_policy: Any = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    simulated: bool = False,
    outcome: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Release:
    """Evaluate target policies on a log, privately.

    Args:
        log: a :class:`Log` from :func:`dprl.read_log`, loaded :class:`Trajectories`, or whatever ``read_log`` reads
            (then ``bounds`` is needed).
        target_policy: a callable from states ``(N, d)`` to action probabilities ``(N, A)``, ``"uniform"``,
            ``"FILE.py:function"``, ``"column:NAME"``; or several as a list, or as a mapping from names. Neither
            the policies nor the features may have been fitted on this log.
        budget: what may be spent in all.
        algorithm: :class:`GPOPE` (value, interval and value function; the default) or :class:`ImportanceSampling`.
        features: ``columns``, ``tabular`` or ``fourier:ORDER``.
        behavior_policy: public behaviour policy, for a log without behaviour probabilities.
        ledger, dataset: SQLite ledger and the name under which this data's budget stands there.
        seed: reproducible noise: the release is then *not private* and says so.
        simulated: the log is a simulation: the non-private reference is shown, and the release is not private.
        outcome: what a value means, in words, for the report.
        progress: called with the number of updates done.

    Raises:
        DprlError: one sentence about the request; never about what is in the rows.
    """
    algorithm = GPOPE() if algorithm is None else algorithm
    if not isinstance(budget, Budget):
        raise DprlError("budget must be a dprl.Budget(epsilon, delta).")
    columns_of = _named_policies(target_policy)
    columns = [p.name for p in columns_of.values() if isinstance(p, ColumnPolicy)]
    if isinstance(log, Log | Trajectories) and any(x is not None for x in (bounds, unit, person)):
        raise DprlError("The log is open already: bounds, unit and person belong into read_log.")
    if not isinstance(log, Log):
        log = read_log(
            log, bounds=bounds, unit=unit, person=person, target_columns=columns, behavior_policy=behavior_policy
        )
    elif any(f"target:{c}" not in log.schema.scalars for c in columns):
        raise DprlError("The log was opened without the target policy's column: name it in target_columns.")
    policies = load_policies(target_policy, log.bounds)
    behavior = log.behavior_policy if behavior_policy is None else behavior_policy
    behavior = None if behavior is None else load_policy(behavior, log.bounds.actions)
    if behavior is not None:
        if isinstance(behavior, ColumnPolicy):
            raise DprlError("The behaviour policy must be a function of states; a column of the log is behavior_prob.")
        check_policy(behavior, log.bounds, "behaviour policy")
    noise = SecureNoise.fresh() if seed is None else SeededNoise.from_seed(seed)
    plan = make_plan(
        algorithm,
        log.bounds,
        budget,
        list(policies.values()),
        features,
        noise.total_variation_per_draw if noise.secure else 0.0,
    )
    charge = _charge(ledger, dataset, budget, log.unit, plan)

    # what numbers do to arithmetic is nobody's business either: no warning may depend on the rows
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trajectories = log.load()
        estimates, function = _touch(plan, trajectories, list(policies.values()), behavior, noise, progress)
    references = _references(plan, trajectories, list(policies.values()), behavior) if simulated else None

    status = _status(plan, noise.secure, simulated)
    values = dict(zip(policies, estimates, strict=True))
    estimate = _estimate(plan, log, values, function, references, status, features, outcome)
    certificate = _certificate(plan, log, policies, noise, status, features)
    if charge is not None:
        certificate["ledger"] = {
            "dataset": dataset,
            "charge": charge[1],
            "epsilon": budget.epsilon,
            "delta": budget.delta,
        }
    return Release(values, function, certificate, estimate, charge)


def load_policies(target: Any, bounds: Bounds) -> dict[str, Any]:
    """Target policies by name, each tried on public states; see :func:`evaluate`."""
    policies = {name: load_policy(p, bounds.actions) for name, p in _named_policies(target).items()}
    for name, policy in policies.items():
        if not isinstance(policy, ColumnPolicy):
            if bounds.actions is None:
                raise DprlError("Actions are continuous: give the target policy as a column of the log (column:NAME).")
            check_policy(policy, bounds, name)
    return policies


def _named_policies(target: Any) -> dict[str, Any]:
    if isinstance(target, Mapping):
        named = dict(target)
    else:
        several = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
        named = {}
        for policy in several:
            name = policy_name(policy)
            named[name if name not in named else f"{name}_{len(named)}"] = policy
    if not named:
        raise DprlError("Name at least one target policy.")
    return {
        str(name): load_policy(p, None) if isinstance(p, str) and p.startswith("column") else p
        for name, p in named.items()
    }


def _charge(ledger: Any, dataset: str | None, budget: Budget, unit: str, plan: Plan) -> tuple[Ledger, int] | None:
    if ledger is None:
        if dataset is not None:
            raise DprlError("A dataset is named, but no ledger: give --ledger FILE too.")
        return None
    if dataset is None:
        raise DprlError("A ledger is given, but not under which name this data's budget stands: give --dataset NAME.")
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    return book, book.charge(dataset, budget, unit, RELATION, f"evaluate {plan.name}")


def _touch(
    plan: Plan, trajectories: Trajectories, policies: list[Any], behavior: Any, noise: Any, progress: Any
) -> tuple[list[ValueEstimate], LinearValueFunction | None]:
    """The one place where private rows meet the mechanisms."""
    vectors = importance.unit_vectors(plan.query, trajectories, policies, behavior)
    noised = importance.release_vector(plan.value_mechanism, noise.stream("value"), vectors)
    estimates = importance.decode(plan.query, plan.value_mechanism, noised)
    if plan.function_mechanism is None:
        return estimates, None
    assert isinstance(plan.config, GPOPE)
    assert plan.features is not None
    value = plan.bounds.value_interval(plan.config.discount)
    ratios = step_ratios(policies[0], trajectories, behavior)
    rows = rows_of(trajectories, ratios, plan.features, plan.config.discount, value, plan.config.weighting)
    _, theta = gpope.run_on_host(
        plan.config,
        plan.function_mechanism,
        noise.stream("value function"),
        unit_rows(rows, plan.bounds.units),
        plan.start,
        units=plan.bounds.units,
        projection=plan.projection,
        progress=progress,
    )
    weights = np.nan_to_num(np.asarray(theta, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return estimates, LinearValueFunction(weights, plan.features, value)


def _references(plan: Plan, trajectories: Trajectories, policies: list[Any], behavior: Any) -> list[float]:
    """The same estimator without noise: for simulations only."""
    total = importance.unit_vectors(plan.query, trajectories, policies, behavior).sum(axis=0)
    return [e.value for e in importance.decode(plan.query, plan.value_mechanism, total)]


def _status(plan: Plan, secure: bool, simulated: bool) -> str:
    if not secure or simulated:
        return "not private"
    return "as published" if plan.published else "verified"


def _estimate(
    plan: Plan,
    log: Log,
    values: Mapping[str, ValueEstimate],
    function: LinearValueFunction | None,
    references: list[float] | None,
    status: str,
    features: str,
    outcome: str | None,
) -> dict[str, Any]:
    targets = [
        {
            "name": name,
            "value": e.value,
            "interval": list(e.interval),
            "privacy_standard_error": e.privacy_standard_error,
            "sampling_standard_error": e.sampling_standard_error,
            "reference": None if references is None else references[i],
        }
        for i, (name, e) in enumerate(values.items())
    ]
    request = {"log": log.name, "unit": log.unit, "discount": plan.config.discount}
    request |= {"unit_column": log.unit_column} if log.unit_column else {}
    request |= {"outcome": outcome} if outcome else {}
    described = None
    if function is not None:
        described = {
            "target": targets[0]["name"],
            "features": {"name": features, "size": function.features.size},
            "file": "value_function.safetensors",
            "slices": function.slices(),
        }
        names = log.bounds.observation_names
        for piece in described["slices"]:
            i = piece["component"]
            piece["name"] = f"observation_{i}" if names is None else names[i]
    return {
        "schema": "dprl.estimate/1",
        "status": status,
        "algorithm": plan.name,
        "estimator": ESTIMATOR_NAMES[plan.query.estimator],
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "confidence": plan.query.config.confidence,
        "discount": plan.config.discount,
        "value": targets[0]["value"],
        "interval": targets[0]["interval"],
        "targets": targets,
        "value_function": described,
        "cautions": _cautions(plan, values),
        "request": request,
        "bounds": log.bounds.in_force(),
    }


def _cautions(plan: Plan, values: Mapping[str, ValueEstimate]) -> list[str]:
    """What a reader must know before the numbers; from released values and public facts."""
    low, high = plan.bounds.value_interval(plan.config.discount)
    outside = [name for name, e in values.items() if not low <= e.value <= high]
    return plan.bounds.cautions() + [
        f"The value of {name} lies outside of what a trajectory can return by the declared bounds "
        f"({low:g} to {high:g}): noise, a wrong number of units, or a log whose rows cannot be used; the curator can "
        "look with `dprl data describe`."
        for name in outside
    ]


def _certificate(
    plan: Plan, log: Log, policies: Mapping[str, Any], noise: Any, status: str, features: str
) -> dict[str, Any]:
    mechanisms = [plan.value_mechanism.describe("Gaussian vector", "values and intervals")]
    shares = [plan.config.value_share if isinstance(plan.config, GPOPE) else 1.0]
    released = "One noised vector, from which every value and interval is computed"
    if plan.function_mechanism is not None:
        mechanisms.append(plan.function_mechanism.describe("Poisson-sampled clipped Gaussian sum", "value function"))
        shares.append(1.0 - shares[0])
        released += ", and the noised gradient sum of every update, from which the value function is computed"
    for mechanism, share in zip(mechanisms, shares, strict=True):
        mechanism["share"] = share
        if plan.published:
            # the noise over what replacing one unit can change, as the event has it
            mechanism["noise_multiplier"] /= 2.0
            mechanism["sensitivity"] = 2.0 * mechanism["clip_norm"]
    options = plan.query.config.hyper_parameters() | plan.config.hyper_parameters()
    if plan.features is not None:
        options["features"] = {"value": features, "provenance": "stated public"}
    clipped = plan.function_mechanism
    if isinstance(plan.config, GPOPE) and plan.config.clip_norm is None and clipped is not None:
        options["clip_norm"] = {
            "value": clipped.clip_norm,
            "provenance": "derived from the public horizon and features",
        }
    certificate: dict[str, Any] = {
        "schema": "dprl.certificate/1" if status == "verified" else "dprl.statement/1",
        "status": status,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "privacy_unit": log.unit,
        "neighbouring_relation": "replace one" if plan.published else RELATION,
        "released": released + ".",
        "not_protected": list(NOT_PROTECTED),
        "mechanisms": mechanisms,
        "event": events.to_json(plan.event),
        "accountant": accountant_name(),
        "epsilon_of_event": plan.epsilon_of_event if math.isfinite(plan.epsilon_of_event) else None,
        "delta_of_event": plan.delta_of_event,
        "delta_sampler": plan.delta_sampler,
        "noise": {"secure": noise.secure, "source": noise.describe()},
        "assumed_public": {"bounds": log.bounds.in_force(), "hyper_parameters": options, "policies": list(policies)},
        "ledger": None,
        "versions": versions(),
    }
    return certificate
