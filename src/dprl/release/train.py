"""The front door to learning: a Q-function from noised answers about the reward, and what may be said of it.

Order matters: public facts and options are checked, the noise is calibrated, the ledger is charged, and only then is
the first reward asked for. Rewards go into the mechanism and nowhere else: what comes back is all that the learner has.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import UNIT
from dprl.compiled import nothing_compiled_on_disk
from dprl.environments.interval_walk import is_own
from dprl.environments.learning_source import declared_facts, open_environment, source_of
from dprl.errors import DprlError
from dprl.learning import planner, q_learner
from dprl.learning.asking import rewards_at
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import LearningPlan, answers_of, make_learning_plan
from dprl.learning.policy_gradient.dp_pg import DPPG
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.protocols import Bounds
from dprl.release.account import charge_learning
from dprl.release.returns import mean_returns
from dprl.release.save import save_charged
from dprl.release.status import status_of
from dprl.release.training_artifacts import TRAINING, certificate_of, training_of
from dprl.user_code import quietly
from dprl.value_functions.q_function import FILE, QFunction, weight_shapes

if TYPE_CHECKING:
    from dprl.release.train_policy import TrainedPolicy


@dataclass(frozen=True)
class TrainedRelease:
    """What may be handed out, and what it cost.

    Attributes:
        q_function: answers any number of questions, at no further cost.
        certificate: the guarantee; sealed with digests when it is saved.
        training: what was learned, and how, as plain data.
    """

    q_function: QFunction
    certificate: Mapping[str, Any] = field(repr=False)
    training: Mapping[str, Any] = field(repr=False)
    _charge: tuple[Ledger, int] | None = field(default=None, repr=False)

    def save(self, folder: str | Path, sign_key: str | Path | None = None) -> dict[str, Path]:
        """Write training record, Q-function, report and certificate into a new folder, all or nothing.

        Returns:
            Name of each artifact -> its path.
        """
        others = {FILE: self.q_function.to_bytes()}
        return save_charged(self._charge, TRAINING, self.training, others, self.certificate, folder, sign_key)


class _Others(TypedDict, total=False):
    """The keywords of :func:`train` that all algorithms have, for its two signatures."""

    bounds: Bounds | Mapping[str, Any] | str | Path | None
    ledger: str | Path | Ledger | None
    dataset: str | None
    seed: int | None
    simulated: bool
    progress: Callable[[int], None] | None
    run: str | Path | None
    resume: bool
    engine: str | None
    shards: int | None
    address: str | None


@overload
def train(environment: str | Any, budget: Budget, *, algorithm: DPPG, **others: Unpack[_Others]) -> TrainedPolicy: ...


@overload
def train(
    environment: str | Any, budget: Budget, *, algorithm: FunctionalQ | None = None, **others: Unpack[_Others]
) -> TrainedRelease: ...


def train(
    environment: str | Any,
    budget: Budget,
    *,
    algorithm: FunctionalQ | DPPG | None = None,
    bounds: Bounds | Mapping[str, Any] | str | Path | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    simulated: bool = False,
    progress: Callable[[int], None] | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    engine: str | None = None,
    shards: int | None = None,
    address: str | None = None,
) -> TrainedRelease | TrainedPolicy:
    """Learn a Q-function in an environment whose reward function is private, or a policy from people who answer once.

    Args:
        environment: with :class:`FunctionalQ`: ``interval-walk``, ``gymnasium:ID``, or an environment with ``facts``,
            as :func:`dprl.environments.learning_source.open_environment` gives. With :class:`DPPG`: a name such as
            ``cart-pole``, ``gymnasium:ID`` or ``bandit:FILE``, a simulator (:class:`dprl.protocols.Environment`), a
            :class:`dprl.Bandit`, or people who arrive one after the other (:class:`dprl.UserStream`).
        budget: what may be spent in all.
        algorithm: options; ``FunctionalQ(reward_radius=...)`` or ``FunctionalQ(people=...)`` at least, or
            ``DPPG(users=...)``.
        bounds: of a Gymnasium environment or of a file: public bounds of its reward and observation.
        ledger, dataset: SQLite ledger and the name under which the budget of these rewards, or people, stands there.
        seed: reproducible noise: the release is then *not private* and says so.
        simulated: nobody is behind the rewards or answers: returns are measured with the true ones, and the release is
            not private.
        progress: called with the number of samples or people done; if it has a method ``expect``, that is called
            before, with the number of all.
        run: of a bandit's log: folder, as private as that, in which an interrupted release can be resumed;
            :meth:`TrainedPolicy.save` removes it.
        resume: go on with the release of which ``run`` holds the beginning, for what it was charged.
        engine: where people of a bandit in parts are asked: ``local``, the default, or ``ray``. It changes no digit.
        shards, address: of the engine ``ray``, see :func:`dprl.evaluate`.

    Raises:
        DprlError: one sentence about the request; never about a reward or an answer. What was charged stays charged.
            Where a run is interrupted nothing was released: it is resumed from its run folder, and begins anew without
            one.
    """
    if not isinstance(budget, Budget):
        raise DprlError("budget must be a dprl.Budget(epsilon, delta).")
    if isinstance(algorithm, DPPG):
        from dprl.release.train_policy import train_policy

        return train_policy(
            environment,
            budget,
            algorithm=algorithm,
            bounds=bounds,
            ledger=ledger,
            dataset=dataset,
            seed=seed,
            simulated=simulated,
            progress=progress,
            run=run,
            resume=resume,
            engine=engine,
            shards=shards,
            address=address,
        )
    if any(x is not None for x in (engine, shards, address)):
        raise DprlError("engine, shards and address are for people of a log in parts: leave them out.")
    if run is not None or resume:
        raise DprlError("Only what is learned from a bandit's log can be resumed: leave run and resume out.")
    if not isinstance(algorithm, FunctionalQ):
        raise DprlError("algorithm must be the options of a learning algorithm, such as dprl.DPPG(users=10000).")
    facts, source = _opened(environment, bounds)
    asked = quietly(lambda: source_of(source, facts), source)
    model = None
    if algorithm.variant == "output":
        matrix = quietly(lambda: getattr(source, "transition_matrix", None), None)
        # one that cannot be read is refused as no matrix
        model = None if matrix is None else quietly(lambda: np.asarray(matrix(planner.POINTS), np.float64), np.zeros(0))
    noise = SecureNoise.fresh() if seed is None else SeededNoise.from_seed(seed)
    plan = make_learning_plan(algorithm, facts, budget, model)
    if plan.claim is not None and not is_own(source):
        raise DprlError(f"{plan.config.calibration}: what is not verified is kept for interval-walk alone.")
    weight_shapes(str(plan.config.network), facts.dimensions, facts.actions)  # refuses what is no network
    answers = None if plan.claim is not None else answers_of(plan, noise.stream("reward"))
    status = status_of(plan, noise.secure, simulated)
    certificate = certificate_of(plan, noise, status)
    if hasattr(progress, "expect"):
        progress.expect(plan.steps)  # type: ignore[union-attr]
    charge = charge_learning(ledger, dataset, budget, UNIT, plan.relation, plan.name)
    # what numbers do to arithmetic is nobody's business either: no warning may depend on the rewards
    with np.errstate(all="ignore"), warnings.catch_warnings(), nothing_compiled_on_disk():
        warnings.simplefilter("ignore")
        function = _learn(plan, source, asked, answers, noise, progress)
        returns = None
        if simulated:
            returns = mean_returns(source, asked, facts, function, int(noise.stream("evaluation").below(0, 2**31 - 1)))
    if charge is not None:
        entry = {"dataset": dataset, "charge": charge[1], "epsilon": budget.epsilon, "delta": budget.delta}
        certificate["ledger"] = entry
    certificate["created"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return TrainedRelease(function, certificate, training_of(plan, function, status, returns), charge)


def _opened(environment: Any, bounds: Any) -> tuple[LearningFacts, Any]:
    """Public facts, and the environment."""
    if isinstance(environment, str):
        return open_environment(environment, bounds)
    facts = quietly(lambda: environment.facts, None)
    if bounds is not None or not isinstance(facts, LearningFacts):
        raise DprlError("environment must be interval-walk or gymnasium:ID, or an environment with facts of its own.")
    return declared_facts(environment, facts), environment


def _learn(
    plan: LearningPlan, source: Any, asked: Any, answers: Any, noise: Any, progress: Callable[[int], None] | None
) -> QFunction:
    """The one place where rewards meet the mechanism; ``asked`` is ``source`` step by step."""
    config, facts = plan.config, plan.facts
    assert config.discount is not None
    if plan.claim is not None:
        return _finite(config.learned(source, facts, noise))
    shape, rates = q_learner.shape_of(config, facts), q_learner.rates_of(config, facts)
    if config.variant == "output":
        read = rewards_at(source, planner.POINTS[:, None], facts.actions)
        return _finite(planner.released(plan.model, read, answers, config.discount, facts))
    on_grid = config.variant == "functional" and facts.on_grid
    coins = q_learner.AddressedCoins(noise.stream("learner").actions())
    state = q_learner.run_on_host(shape, asked, rates, answers, coins, progress, on_grid)
    return _finite(q_learner.q_of(state, shape, facts, config.discount))


def _finite(function: QFunction) -> QFunction:
    """With 0 for every weight that is no number: learning that diverges is released as it is, and can be stored."""

    def finite(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.nan_to_num(w, nan=0.0, posinf=0.0, neginf=0.0) for name, w in weights.items()}

    actor = None if function.actor is None else finite(function.actor)
    return replace(function, weights=finite(function.weights), actor=actor)
