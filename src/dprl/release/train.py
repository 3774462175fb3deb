"""The front door to learning by acting: a Q-function from private rewards, or a policy from people who answer once.

Order matters: public facts and options are checked, the noise is calibrated, the ledger is charged, and only then is
the first reward, or the first person, asked for. Rewards and answers go only into the mechanism; the learner sees only
what the mechanism returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import jax
import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import REWARD_FUNCTION
from dprl.bounds import Bounds
from dprl.config import filled
from dprl.entry_points import VERIFIED
from dprl.environments.interval_walk import is_unchanged_walk
from dprl.environments.learning_source import declared_facts, open_environment, people_of, source_on_host
from dprl.errors import DprlError
from dprl.learning import planned_q, q_learner
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import LearningPlan, bound_answers, make_learning_plan
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG, UNIT
from dprl.learning.policy_gradient.people_sources import CompiledPeople
from dprl.learning.policy_gradient.pg_plan import PGPlan, make_pg_plan, program_of
from dprl.learning.q_learner import rewards_at
from dprl.policies.parametric import FILE as POLICY
from dprl.policies.parametric import ReleasedPolicy, read_policy
from dprl.protocols import NO_JOURNAL, EnvironmentSpec
from dprl.registry import find_audited
from dprl.release.engines.engine import check_engine
from dprl.release.engines.logged_users import open_users_engine
from dprl.release.engines.ray_workers import EngineChoice
from dprl.release.learning_artifacts import (
    TRAINING,
    policy_certificate_of,
    policy_training_of,
    q_certificate_of,
    q_training_of,
)
from dprl.release.pipeline import Purpose, ReleaseRequest, relation_as_declared, release, status_of
from dprl.release.results import ReleaseResults
from dprl.release.returns import is_own_simulator, policy_returns, policy_returns_on_host, q_function_returns
from dprl.release.run_folder import RunFolder
from dprl.user_code import nothing_compiled_on_disk, quietly
from dprl.value_functions.q_function import FILE, QFunction, weight_shapes

_MOST_ASKED_AGAIN = 1000  # most places whose true answers are measured on the host, in a simulation


@dataclass(frozen=True)
class _Trained(ReleaseResults):
    document_name = TRAINING

    @property
    def training(self) -> Mapping[str, Any]:
        """Record of the learning, as plain data."""
        return self.document


@dataclass(frozen=True)
class TrainedRelease(_Trained):
    """Results of learning from rewards that may be handed out, and what they cost.

    Attributes:
        q_function: the learned Q-function; it may be asked any number of questions at no further cost.
        certificate: the guarantee; sealed with digests when it is saved.
        training: what was learned, and how, as plain data.
    """

    q_function: QFunction

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the release, by name."""
        return {FILE: self.q_function.to_bytes()}


@dataclass(frozen=True)
class TrainedPolicy(_Trained):
    """Results of learning from people that may be handed out, and what they cost.

    Attributes:
        policy: the learned policy; it may be asked any number of questions at no further cost.
        certificate: the guarantee; sealed with digests when it is saved.
        training: what was learned, and how, as plain data.
    """

    policy: ReleasedPolicy

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the release, by name."""
        return {POLICY: self.policy.to_bytes()}


class _Others(TypedDict, total=False):
    """Keywords of :func:`train` that all algorithms share, for its overloads."""

    bounds: Bounds | Mapping[str, Any] | str | Path | None
    ledger: str | Path | Ledger | None
    dataset: str | None
    seed: int | None
    simulated: bool
    progress: Callable[[int], None] | None
    run: str | Path | None
    resume: bool
    engine: Literal["local", "ray"] | None
    shards: int | None
    address: str | None


@overload
def train(environment: str | Any, budget: Budget, *, algorithm: DPPG, **others: Unpack[_Others]) -> TrainedPolicy: ...


@overload
def train(
    environment: str | Any, budget: Budget, *, algorithm: str, **others: Unpack[_Others]
) -> TrainedRelease | TrainedPolicy: ...


@overload
def train(
    environment: str | Any, budget: Budget, *, algorithm: FunctionalQ | None = None, **others: Unpack[_Others]
) -> TrainedRelease: ...


def train(
    environment: str | Any,
    budget: Budget,
    *,
    algorithm: FunctionalQ | DPPG | str | None = None,
    bounds: Bounds | Mapping[str, Any] | str | Path | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    simulated: bool = False,
    progress: Callable[[int], None] | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    engine: Literal["local", "ray"] | None = None,
    shards: int | None = None,
    address: str | None = None,
) -> TrainedRelease | TrainedPolicy:
    """Learn a Q-function in an environment whose reward function is private, or a policy from people who answer once.

    Args:
        environment: with :class:`FunctionalQ`: ``interval-walk``, ``gymnasium:ID``, or an environment with ``facts``
            such as :func:`dprl.environments.learning_source.open_environment` returns. With :class:`DPPG`: a name such
            as ``cart-pole``, ``gymnasium:ID`` or ``bandit:FILE``, a simulator (:class:`dprl.protocols.Environment`), a
            :class:`dprl.Bandit`, or people who arrive one after the other (:class:`dprl.UserStream`).
        budget: what may be spent in all.
        algorithm: options of a learning algorithm: at least ``FunctionalQ(reward_radius=...)``,
            ``FunctionalQ(people=...)`` or ``DPPG(users=...)``. Or its name, such as ``"dp-pg"``, for the default
            options.
        bounds: public bounds of reward and observation, for a Gymnasium environment or a file.
        ledger, dataset: SQLite ledger, and the name in it of the budget of these rewards or people.
        seed: reproducible noise: the release is then *not private* and says so.
        simulated: nobody is behind the rewards or answers: returns are measured with the true rewards or answers, and
            the release is not private.
        progress: called with the number of samples or people done. If it has a method ``expect``, this is called first,
            with the total number.
        run: for a bandit's log: folder, as private as the log, in which an interrupted release can be resumed;
            :meth:`TrainedPolicy.save` removes it.
        resume: continue the interrupted release whose beginning ``run`` holds; it is not charged again.
        engine: where people of a bandit's log in parts are asked: ``local``, the default, or ``ray``. The choice
            changes no digit.
        shards, address: for the engine ``ray``; see :func:`dprl.evaluate`.

    Raises:
        DprlError: one sentence about the request, never about a reward or an answer. What was charged stays charged. An
            interrupted run has released nothing. It can be resumed from its run folder; without one it begins anew.
    """
    if isinstance(algorithm, str):
        algorithm = find_audited(algorithm).load_config()()
    learns_policy = isinstance(algorithm, DPPG)
    if not learns_policy:
        if any(x is not None for x in (engine, shards, address)):
            raise DprlError("engine, shards and address are for people of a log in parts: leave them out.")
        if run is not None or resume:
            raise DprlError("Only what is learned from a bandit's log can be resumed: leave run and resume out.")
        if not isinstance(algorithm, FunctionalQ):
            raise DprlError("algorithm must be the options of a learning algorithm, such as dprl.DPPG(users=10000).")
    certifies = not learns_policy or algorithm.calibration == VERIFIED
    request = ReleaseRequest(budget, ledger, dataset, seed, simulated, progress, run, resume, certifies)
    if learns_policy:
        return _train_policy(environment, algorithm, bounds, request, check_engine(engine, shards, address))
    return _train_q(environment, algorithm, bounds, request)


def _train_q(environment: Any, algorithm: FunctionalQ, bounds: Any, request: ReleaseRequest) -> TrainedRelease:
    """Learn a Q-function from noisy answers about the reward; see :func:`train`."""
    facts, source = _opened(environment, bounds)
    host_source = quietly(lambda: source_on_host(source, facts), source)
    model = None
    if algorithm.variant == "output":
        matrix = quietly(lambda: getattr(source, "transition_matrix", None), None)
        # a matrix that cannot be read is replaced by an empty one, which is refused
        model = (
            None if matrix is None else quietly(lambda: np.asarray(matrix(planned_q.POINTS), np.float64), np.zeros(0))
        )
    plan, noise = make_learning_plan(algorithm, facts, request.budget, model), request.noise
    if plan.claim is not None and not is_unchanged_walk(source):
        raise DprlError(f"{plan.config.calibration}: what is not verified is kept for interval-walk alone.")
    weight_shapes(str(plan.config.network), facts.dimensions, facts.actions)  # refuses an unknown network
    answers = None if plan.claim is not None else bound_answers(plan, noise.stream("reward"))
    status = status_of(plan, noise.secure, request.simulated)
    certificate = q_certificate_of(plan, noise, status)
    request.expect(plan.steps)
    account = request.declared_account(REWARD_FUNCTION, plan.relation.words())

    def make_release(_rows: Any, _folder: Any) -> TrainedRelease:
        with nothing_compiled_on_disk():
            function = _learn_q(plan, source, host_source, answers, noise, request.progress)
            returns = None
            if request.simulated:
                coins = int(noise.stream("evaluation").uniform_index(0, 2**31 - 1))
                returns = q_function_returns(source, host_source, facts, function, coins)
        return TrainedRelease(function, document=q_training_of(plan, function, status, returns))

    purpose = Purpose(REWARD_FUNCTION, relation_as_declared(account, plan.relation), f"train {plan.name}")
    return release(request, certificate, account, purpose, {}, read=None, make=make_release, restore=None)


def _opened(environment: Any, bounds: Any) -> tuple[EnvironmentSpec, Any]:
    """Return the public facts of an environment, and the environment itself."""
    if isinstance(environment, str):
        return open_environment(environment, bounds)
    facts = quietly(lambda: environment.facts, None)
    if bounds is not None or not isinstance(facts, EnvironmentSpec):
        raise DprlError("environment must be interval-walk or gymnasium:ID, or an environment with facts of its own.")
    return declared_facts(environment, facts), environment


def _learn_q(
    plan: LearningPlan, source: Any, host_source: Any, answers: Any, noise: Any, progress: Callable[[int], None] | None
) -> QFunction:
    """Learn the Q-function: the one place where rewards meet the mechanism. ``host_source`` runs step by step."""
    config, facts, discount = plan.config, plan.facts, filled(plan.config.discount)
    if plan.claim is not None:
        return _finite(config.learn_q_function(source, facts, noise))
    shape, rates = q_learner.shape_of(config, facts), q_learner.rates_of(config, facts, plan.mechanism)
    if config.variant == "output":
        read = rewards_at(source, planned_q.POINTS[:, None], facts.actions)
        return _finite(planned_q.released_q(plan.model, read, answers, discount, facts))
    on_grid = config.variant == "functional" and facts.on_grid
    coins = q_learner.AddressedCoins(noise.stream("learner").actions())
    state = q_learner.run_on_host(shape, host_source, rates, answers, coins, progress, on_grid)
    return _finite(q_learner.q_function_of(state, shape, facts, discount))


def _finite(function: QFunction) -> QFunction:
    actor = None if function.actor is None else {name: _numbers(w) for name, w in function.actor.items()}
    return replace(function, weights={name: _numbers(w) for name, w in function.weights.items()}, actor=actor)


def _numbers(weights: np.ndarray) -> np.ndarray:
    """Return the weights with 0 for each that is not finite, so that a learner that diverged can be stored."""
    return np.nan_to_num(weights, nan=0.0, posinf=0.0, neginf=0.0)


def _train_policy(
    users: Any, algorithm: DPPG, bounds: Any, request: ReleaseRequest, where: EngineChoice
) -> TrainedPolicy:
    """Learn a policy from users who answer; see :func:`train`.

    Args:
        users: a name (:func:`dprl.environments.learning_source.open_people`), a JAX environment
            (:class:`dprl.protocols.Environment`), or :class:`~dprl.environments.people.People`, such as a
            :class:`~dprl.environments.bandit.Bandit`. An object with only ``facts`` and ``batch`` is taken for people
            who arrive.
        request: the part of the request that all front doors share. A run folder is allowed only if the users stand in
            a log, where they can be asked again what they were asked before.
        where: where people of a log in parts are asked.
    """
    noise = request.noise
    people = people_of(users, bounds, int(noise.stream("environment").uniform_index(2, 2**31 - 1)))
    plan = make_pg_plan(algorithm, people.facts, request.budget, people.units)
    program, rates = program_of(plan)
    program.mechanism.check_source(people)
    if plan.config.interactions > 1 and people.simulator is None:
        raise DprlError("dp-pg: several interactions of one user need a simulator: leave out interactions.")
    people.check()
    status = status_of(plan, request.seed is None, request.simulated)
    certificate = policy_certificate_of(plan, noise, status, people.people)
    request.expect(plan.steps if algorithm.poisson else plan.config.users)
    if request.run is not None and not people.in_log:
        raise DprlError("Only what is learned from a bandit's log can be resumed: leave the run folder out.")
    account = request.declared_account(UNIT, plan.relation)
    with open_users_engine(where, people, program) as source:

        def make_release(_rows: Any, folder: RunFolder | None) -> TrainedPolicy:
            bound, journal = noise, NO_JOURNAL
            if folder is not None:
                bound, journal = folder.bind_noise_to_data(people.entering()), folder.journal.stream(trainer.STREAM)
            theta, history = _learn_policy(plan, program, rates, source, bound, journal, request.progress)
            policy = ReleasedPolicy(plan.policy, theta)
            measured, evaluation = None, int(noise.stream("evaluation").uniform_index(0, 2**31 - 1))
            # nobody is behind the library's own simulators; for other environments only the caller can say so
            if people.simulator is not None and (request.simulated or isinstance(users, str)):
                measured = policy_returns(people.simulator, policy, history, plan.config, evaluation)
            elif request.simulated and people.simulator is None and not people.asked_once:
                asked_again = min(plan.config.users or 0, _MOST_ASKED_AGAIN)
                measured = policy_returns_on_host(people, policy, history[0], asked_again, evaluation)
            return TrainedPolicy(policy, document=policy_training_of(plan, policy, status, measured))

        purpose, read = Purpose(UNIT, plan.relation, f"train {plan.name}"), people.load if people.in_log else None
        return release(request, certificate, account, purpose, {}, read=read, make=make_release, restore=_restored)


def _restored(path: Path) -> TrainedPolicy:
    """Return the release that was saved in a folder."""
    policy = read_policy(path / POLICY)
    if not isinstance(policy, ReleasedPolicy):
        raise DprlError(f"The policy in {path} was not trained, but learned from a log.")
    return TrainedPolicy(policy, document=json.loads((path / TRAINING).read_bytes()))


def _learn_policy(
    plan: PGPlan,
    program: trainer.PolicyGradient,
    rates: Any,
    source: Any,
    noise: Any,
    journal: Any,
    progress: Callable[[int], None] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the released parameters and all iterates: the one place where answers meet the mechanism."""
    coins, stream = noise.stream("environment").actions(), noise.stream(trainer.STREAM)
    if isinstance(source, CompiledPeople):
        drawn = program.mechanism.drawn_before(stream) if stream.secure else stream
        state, history = trainer.run_compiled(
            program, source, drawn, rates, coins, is_own_simulator(source.environment)
        )
    else:
        report_step = None if progress is None else lambda step: progress(plan.people_after(step))
        state, history = trainer.run_on_host(program, source, stream, rates, coins, report_step, journal)
    state = state._replace(theta=_numbers(np.asarray(state.theta)))
    with jax.default_matmul_precision("highest"):  # the same digits on every device
        theta = trainer.released_parameters(plan.config, plan.policy, state, history, coins)
    return _numbers(theta), np.asarray(history)
