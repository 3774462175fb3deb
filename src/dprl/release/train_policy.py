"""The front door to learning from users: a policy from noised sums over batches of people, and what may be said of it.

Order matters: public facts and options are checked, the noise is calibrated, the ledger is charged, and only then is
the first person asked. What people answer goes into the mechanism and nowhere else: the learner has noised sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.added import VERIFIED
from dprl.environments.user_source import facts_of, open_users
from dprl.errors import DprlError
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG, UNIT
from dprl.learning.policy_gradient.estimator import Rates, Shape
from dprl.learning.policy_gradient.on_host import run_on_host, run_resampled
from dprl.learning.policy_gradient.pg_plan import PGPlan, make_pg_plan
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.policies.released import FILE, ReleasedPolicy, read_policy
from dprl.protocols import NO_JOURNAL, Bounds
from dprl.release.account import learning_account
from dprl.release.engines.engine import check_engine
from dprl.release.engines.logged_users import open_users_engine
from dprl.release.policy_artifacts import TRAINING, policy_certificate_of, policy_training_of
from dprl.release.policy_returns import measure, measure_on_host
from dprl.release.resumable import Purpose, open_run_of, paths_of, read_and_release, save_finished
from dprl.release.run_folder import RunFolder
from dprl.release.status import status_of

_ASKED = 1000  # places on the host whose true answers are measured, in a simulation


@dataclass(frozen=True)
class TrainedPolicy:
    """What may be handed out, and what it cost.

    Attributes:
        policy: may be asked anything, at no further cost.
        certificate: the guarantee; sealed with digests when it is saved.
        training: what was learned, and how, as plain data.
    """

    policy: ReleasedPolicy
    certificate: Mapping[str, Any] = field(repr=False)
    training: Mapping[str, Any] = field(repr=False)
    _charge: tuple[Ledger, int] | None = field(default=None, repr=False)
    _run: RunFolder | None = field(default=None, repr=False)
    _saved: Path | None = field(default=None, repr=False)

    def save(self, folder: str | Path, sign_key: str | Path | None = None) -> dict[str, Path]:
        """Write training record, policy, report and certificate into a new folder, all or nothing.

        The first time, this finishes the release: its charge is committed and its run folder removed.

        Returns:
            Name of each artifact -> its path.
        """
        done = paths_of(self._saved, folder, self.certificate, sign_key)
        if done is not None:
            return done
        files = TRAINING, self.training, {FILE: self.policy.to_bytes()}, self.certificate
        return save_finished(self._charge, self._run, *files, folder, sign_key)


def train_policy(
    users: str | Any,
    budget: Budget,
    *,
    algorithm: DPPG,
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
) -> TrainedPolicy:
    """Learn a policy from users of whom each interacts once; see :func:`dprl.train`.

    Args:
        users: a name (:func:`dprl.environments.user_source.open_users`), a JAX environment
            (:class:`dprl.protocols.Environment`), or a source of users with ``facts`` and ``batch``, such as
            :class:`~dprl.environments.bandit.Bandit` and :class:`~dprl.environments.user_stream.UserStream`.
        run, resume: of users of a log, who can be asked again what they were asked before.
        engine, shards, address: of users of a log in parts.

    Raises:
        DprlError: one sentence about the request; never about an answer. What was charged stays charged. Where a run
            is interrupted nothing was released: it is resumed from its run folder, and begins anew without one.
    """
    if resume and run is None:
        raise DprlError("Name the run folder of the release to resume.")
    if run is not None and (seed is not None or simulated or algorithm.calibration != VERIFIED):
        raise DprlError("Only a private release can be resumed: leave the run folder out, or seed and simulated.")
    chosen = check_engine(engine, shards, address)
    noise = SecureNoise.fresh() if seed is None else SeededNoise.from_seed(seed)
    if seed is None and algorithm.calibration != VERIFIED:  # has floating-point noise, which is no secure one
        noise = SeededNoise.from_seed(int(noise.below(0, 2**31 - 1)))
    facts, source = _opened(users, bounds, int(noise.stream("environment").below(2, 2**31 - 1)))
    if algorithm.poisson and not hasattr(source, "count"):
        raise DprlError(
            "dp-pg: sampling = 'poisson' draws a coin for everybody in a log that is read whole (bandit:FILE): who has "
            "not come yet, or is simulated, cannot be sampled again: leave out sampling."
        )
    plan = make_pg_plan(algorithm, facts, budget, getattr(source, "units", None))
    simulator = hasattr(source, "observation_bounds")
    if not simulator:
        _check_source(plan, source)
    people = "episodes" if simulator else getattr(source, "people", "unnamed")
    status = status_of(plan, seed is None, simulated)
    certificate = policy_certificate_of(plan, noise, status, people)
    if hasattr(progress, "expect"):
        progress.expect(plan.steps if algorithm.poisson else plan.config.users)  # type: ignore[union-attr]
    if run is not None and not hasattr(source, "entering"):
        raise DprlError("Only what is learned from a bandit's log can be resumed: leave the run folder out.")
    account = learning_account(ledger, dataset, UNIT, plan.relation)
    learner = plan.learner
    where = {"shards": shards, "address": address}
    with open_users_engine(chosen, source, *learner, **where) as asked:
        folder = open_run_of(run, resume, certificate, account, {})

        def learned(_: Any) -> tuple[np.ndarray, np.ndarray]:
            if folder is None:
                return _learn(plan, learner, asked, noise, NO_JOURNAL, progress)
            bound = folder.bind(source.entering())
            return _learn(plan, learner, asked, bound, folder.journal.stream("gradients"), progress)

        charge, finished, found = read_and_release(
            account,
            folder,
            resume,
            budget,
            Purpose(UNIT, plan.relation, f"train {plan.name}"),
            restore=_restored,
            read=getattr(source, "load", None),  # of a log, whose rows are claimed
            release=learned,
        )
    if finished is not None:
        return finished
    theta, history = found
    policy = ReleasedPolicy(plan.policy, theta)
    measured, evaluation = None, int(noise.stream("evaluation").below(0, 2**31 - 1))
    # the library's own simulators know nobody; of other environments only the caller can say so
    if simulator and (simulated or isinstance(users, str)):
        measured = measure(source, policy, history, plan.config, evaluation)
    elif simulated and not hasattr(source, "check"):  # a stream is read once
        measured = measure_on_host(source, policy, history[0], min(plan.config.users or 0, _ASKED), evaluation)
    if charge is not None:
        entry = {"dataset": dataset, "charge": charge[1], "epsilon": budget.epsilon, "delta": budget.delta}
        certificate["ledger"] = entry
    certificate["created"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return TrainedPolicy(policy, certificate, policy_training_of(plan, policy, status, measured), charge, folder)


def _restored(path: Path, certificate: Mapping[str, Any]) -> TrainedPolicy:
    """The release in a folder."""
    training = json.loads((path / TRAINING).read_bytes())
    return TrainedPolicy(read_policy(path / FILE), certificate, training, _saved=path)


def _opened(users: Any, bounds: Any, seed: int) -> tuple[LearningFacts, Any]:
    """Public facts, and who answers."""
    if isinstance(users, str):
        return open_users(users, bounds, seed)
    if bounds is not None:
        raise DprlError("bounds are for users named by text: these have public facts of their own.")
    if hasattr(users, "facts") and hasattr(users, "batch"):
        return users.facts, users
    if hasattr(users, "observation_bounds"):
        return facts_of(users), users
    raise DprlError(
        "Users are a name such as cart-pole or bandit:FILE, an environment, a dprl.Bandit or a dprl.UserStream."
    )


def _check_source(plan: PGPlan, source: Any) -> None:
    """Refuse what users on the host cannot do, before anything is spent."""
    if plan.config.interactions > 1:
        raise DprlError("dp-pg: several interactions of one user need a simulator: leave out interactions.")
    if hasattr(source, "check"):
        source.check()


def _learn(
    plan: PGPlan,
    learner: tuple[Shape, Rates, Any],
    source: Any,
    noise: Any,
    journal: Any,
    progress: Callable[[int], None] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The one place where answers meet the mechanism: what is released, and all iterates."""
    shape, rates, mechanism = learner
    coins, stream = noise.stream("environment").actions(), noise.stream("gradients")
    if plan.config.poisson:
        state, history = run_resampled(shape, source, rates, mechanism, stream, coins, progress, journal)
    elif hasattr(source, "observation_bounds"):
        state, history = trainer.run_compiled(shape, source, rates, mechanism.bind(stream), mechanism, coins)
    else:
        answers = mechanism.in_order(stream) if mechanism.certifies else mechanism.bind(stream)
        state, history = run_on_host(shape, source, rates, answers, mechanism, coins, progress, journal)
    theta = trainer.released(plan.config, state, history, coins)
    # what diverges is released as it is, and can be stored
    return np.nan_to_num(theta, nan=0.0, posinf=0.0, neginf=0.0), np.asarray(history)
