"""The front door to learning from users: a policy from noised sums over batches of people, and what may be said of it.

Order matters: public facts and options are checked, the noise is calibrated, the ledger is charged, and only then is
the first person asked. What people answer goes into the mechanism and nowhere else: the learner has noised sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.environments.user_source import facts_of, open_users
from dprl.errors import DprlError
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG, UNIT
from dprl.learning.policy_gradient.estimator import Rates, Shape
from dprl.learning.policy_gradient.on_host import run_on_host, run_resampled
from dprl.learning.policy_gradient.pg_plan import PGPlan, make_pg_plan
from dprl.learning.policy_gradient.published import published_run
from dprl.learning_facts import LearningFacts
from dprl.mechanisms.noise import SeededNoise
from dprl.policies.released import FILE, ReleasedPolicy, read_policy
from dprl.protocols import NO_JOURNAL, Bounds
from dprl.release.account import learning_account
from dprl.release.engines.engine import check_engine
from dprl.release.engines.logged_users import open_users_engine
from dprl.release.pipeline import Asked, Handout, Purpose, release
from dprl.release.policy_artifacts import TRAINING, policy_certificate_of, policy_training_of
from dprl.release.policy_returns import measure, measure_on_host
from dprl.release.run_folder import RunFolder
from dprl.release.status import status_of

_ASKED = 1000  # places on the host whose true answers are measured, in a simulation


@dataclass(frozen=True)
class TrainedPolicy(Handout):
    """What may be handed out of learning from people, and what it cost.

    Attributes:
        policy: may be asked anything, at no further cost.
        certificate: the guarantee; sealed with digests when it is saved.
        training: what was learned, and how, as plain data.
    """

    document_name = TRAINING
    policy: ReleasedPolicy

    @property
    def training(self) -> Mapping[str, Any]:
        return self.document

    @property
    def files(self) -> Mapping[str, bytes]:
        return {FILE: self.policy.to_bytes()}


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
    request = Asked(
        budget=budget, seed=seed, simulated=simulated, progress=progress,
        run=run, resume=resume, certifies=not algorithm.published,
    )  # fmt: skip
    chosen = check_engine(engine, shards, address)
    noise = request.noise()
    if seed is None and algorithm.published:  # has floating-point noise, which is no secure one
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
    request.expect(plan.steps if algorithm.poisson else plan.config.users)
    if run is not None and not hasattr(source, "entering"):
        raise DprlError("Only what is learned from a bandit's log can be resumed: leave the run folder out.")
    account = learning_account(ledger, dataset, UNIT, plan.relation)
    learner = _learner(plan)
    where = {"exact": not plan.published, "shards": shards, "address": address}
    with open_users_engine(chosen, source, *learner, **where) as asked:

        def made(_rows: Any, folder: RunFolder | None) -> TrainedPolicy:
            if folder is None:
                theta, history = _learn(plan, learner, asked, noise, NO_JOURNAL, progress)
            else:
                bound = folder.bind(source.entering())
                theta, history = _learn(plan, learner, asked, bound, folder.journal.stream("gradients"), progress)
            policy = ReleasedPolicy(plan.policy, theta)
            measured, evaluation = None, int(noise.stream("evaluation").below(0, 2**31 - 1))
            # the library's own simulators know nobody; of other environments only the caller can say so
            if simulator and (simulated or isinstance(users, str)):
                measured = measure(source, policy, history, plan.config, evaluation)
            elif simulated and not hasattr(source, "check"):  # a stream is read once
                asked_again = min(plan.config.users or 0, _ASKED)
                measured = measure_on_host(source, policy, history[0], asked_again, evaluation)
            return TrainedPolicy(policy, document=policy_training_of(plan, policy, status, measured))

        return release(
            request,
            certificate,
            account,
            Purpose(UNIT, plan.relation, f"train {plan.name}"),
            {},
            read=getattr(source, "load", None),  # of a log, whose rows are claimed
            make=made,
            restore=_restored,
        )


def _restored(path: Path) -> TrainedPolicy:
    """The release in a folder."""
    return TrainedPolicy(read_policy(path / FILE), document=json.loads((path / TRAINING).read_bytes()))


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


def _learner(plan: PGPlan) -> tuple[Shape, Rates, Any]:
    """What is compiled, its numbers, and what sees users' vectors."""
    if plan.settings is not None:
        return published_run(plan.settings, plan.policy, plan.facts.horizon)
    return trainer.shape_of(plan.config, plan.facts), trainer.rates_of(plan.config, plan.facts), plan.mechanism


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
