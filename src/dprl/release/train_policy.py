"""The front door to learning from users: a policy from noisy sums over batches of people, and what may be said of it.

Order matters: public facts and options are checked, the noise is calibrated, the ledger is charged, and only then is
the first person asked. What people answer goes into the mechanism and nowhere else: the learner has noisy sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprl.environments.user_source import people_of
from dprl.errors import DprlError
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG, UNIT
from dprl.learning.policy_gradient.estimator import Rates
from dprl.learning.policy_gradient.pg_plan import PGPlan, make_pg_plan, program_of
from dprl.learning.policy_gradient.trainer import PolicyGradient
from dprl.learning.policy_gradient.users import Simulated
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.released import FILE, ReleasedPolicy, read_policy
from dprl.protocols import NO_JOURNAL, Bounds
from dprl.release.certificate import status_of
from dprl.release.engines.logged_users import open_users_engine
from dprl.release.learning_artifacts import TRAINING, policy_certificate_of, policy_training_of
from dprl.release.pipeline import Handout, Purpose, ReleaseRequest, release
from dprl.release.policy_returns import measure, measure_on_host
from dprl.release.run_folder import RunFolder

_ASKED = 1000  # places on the host whose true answers are measured, in a simulation


@dataclass(frozen=True)
class TrainedPolicy(Handout):
    """Results of learning from people that may be handed out, and what they cost.

    Attributes:
        policy: may be asked anything, at no further cost.
        certificate: the guarantee; sealed with digests when it is saved.
        training: what was learned, and how, as plain data.
    """

    document_name = TRAINING
    policy: ReleasedPolicy

    @property
    def training(self) -> Mapping[str, Any]:
        """Record of the learning, as plain data."""
        return self.document

    @property
    def files(self) -> Mapping[str, bytes]:
        """Further files of the release, by name."""
        return {FILE: self.policy.to_bytes()}


def train_policy(
    users: Any,
    algorithm: DPPG,
    bounds: Bounds | Mapping[str, Any] | str | Path | None,
    asked: ReleaseRequest,
    engine: str,
    shards: int | None,
    address: str | None,
) -> TrainedPolicy:
    """Learn a policy from users of whom each interacts once; see :func:`dprl.train`.

    Args:
        users: a name (:func:`dprl.environments.user_source.open_users`), a JAX environment
            (:class:`dprl.protocols.Environment`), or :class:`~dprl.environments.people.People`, such as a
            :class:`~dprl.environments.bandit.Bandit`; what has only ``facts`` and ``batch`` is taken for people who
            arrive.
        asked: what every front door is asked; it may have a run folder if the users stand in a log, who can be asked
            again what they were asked before.
        engine, shards, address: where users of a log in parts are asked, see
            :func:`~dprl.release.engines.engine.check_engine`.

    Raises:
        DprlError: one sentence about the request; never about an answer.
    """
    noise = asked.noise()
    if asked.seed is None and not asked.certifies:  # has floating-point noise, which is no secure one
        noise = SeededNoise.from_seed(int(noise.uniform_index(0, 2**31 - 1)))
    people = people_of(users, bounds, int(noise.stream("environment").uniform_index(2, 2**31 - 1)))
    plan = make_pg_plan(algorithm, people.facts, asked.budget, people.units)
    program, rates = program_of(plan)
    program.mechanism.check_source(people)
    if plan.config.interactions > 1 and people.simulator is None:
        raise DprlError("dp-pg: several interactions of one user need a simulator: leave out interactions.")
    people.check()
    status = status_of(plan, asked.seed is None, asked.simulated)
    certificate = policy_certificate_of(plan, noise, status, people.people)
    asked.expect(plan.steps if algorithm.poisson else plan.config.users)
    if asked.run is not None and not people.in_log:
        raise DprlError("Only what is learned from a bandit's log can be resumed: leave the run folder out.")
    account = asked.declared_account(UNIT, plan.relation)
    with open_users_engine(engine, people, program, shards, address) as source:

        def made(_rows: Any, folder: RunFolder | None) -> TrainedPolicy:
            bound, journal = noise, NO_JOURNAL
            if folder is not None:
                bound, journal = folder.bind_noise_to_data(people.entering()), folder.journal.stream(trainer.STREAM)
            theta, history = _learn(plan, (program, rates), source, bound, journal, asked.progress)
            policy = ReleasedPolicy(plan.policy, theta)
            measured, evaluation = None, int(noise.stream("evaluation").uniform_index(0, 2**31 - 1))
            # the library's own simulators know nobody; of other environments only the caller can say so
            if people.simulator is not None and (asked.simulated or isinstance(users, str)):
                measured = measure(people.simulator, policy, history, plan.config, evaluation)
            elif asked.simulated and people.simulator is None and not people.asked_once:
                asked_again = min(plan.config.users or 0, _ASKED)
                measured = measure_on_host(people, policy, history[0], asked_again, evaluation)
            return TrainedPolicy(policy, document=policy_training_of(plan, policy, status, measured))

        purpose, read = Purpose(UNIT, plan.relation, f"train {plan.name}"), people.load if people.in_log else None
        return release(asked, certificate, account, purpose, {}, read=read, make=made, restore=_restored)


def _restored(path: Path) -> TrainedPolicy:
    """Return the release in a folder."""
    policy = read_policy(path / FILE)
    if not isinstance(policy, ReleasedPolicy):
        raise DprlError(f"The policy in {path} was not trained, but learned from a log.")
    return TrainedPolicy(policy, document=json.loads((path / TRAINING).read_bytes()))


def _learn(
    plan: PGPlan,
    learner: tuple[PolicyGradient, Rates],
    source: Any,
    noise: Any,
    journal: Any,
    progress: Callable[[int], None] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the one place where answers meet the mechanism: what is released, and all iterates."""
    program, rates = learner
    coins, stream = noise.stream("environment").actions(), noise.stream(trainer.STREAM)
    if isinstance(source, Simulated):
        drawn = program.mechanism.drawn_before(stream) if stream.secure else stream
        state, history = trainer.run_compiled(program, source, drawn, rates, coins)
    else:
        told = None if progress is None else lambda step: progress(plan.people_after(step))
        state, history = trainer.run_on_host(program, source, stream, rates, coins, told, journal)
    theta = trainer.released(plan.config, state, history, coins)
    # what diverges is released as it is, and can be stored
    return np.nan_to_num(theta, nan=0.0, posinf=0.0, neginf=0.0), np.asarray(history)
