"""The checks of functional Q-learning: what is asked of the mechanisms, what is paid, and what is handed out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import dprl
from dprl.accounting.budget import Budget
from dprl.accounting.reward_relation import DEPTHS, path_delta
from dprl.accounting.verification import verify
from dprl.audits.attacks.reward_functions import canary_of_plan
from dprl.audits.conformance.reward_functions import Walk, learned_from
from dprl.audits.lower_bound import audit
from dprl.audits.record_replay import Recorder, compare
from dprl.learning.functional_q import FunctionalQ
from dprl.learning.learning_plan import answers_of, make_learning_plan
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from dprl.release.train import train

from ..compilation_cache import on_disk, persistent_cache
from ..learning.beyond import Beyond, saw
from ..release.test_private_rewards import AlsoPriced, Priced
from .lab import Lab, check, refused, require

BUDGET = Budget(0.9, 1e-4)
SHORT: dict[str, Any] = {"samples": 100, "round": 20, "batch": 8, "network": "mlp:4", "reward_radius": 0.01}
KEY = bytes(range(32))


@check
def four_actions_are_told_apart_no_better_than_claimed() -> None:
    """The canary: all of them change at once."""
    facts = replace(Walk().facts, actions=4)
    plan = make_learning_plan(FunctionalQ(variant="functional", reward_radius=0.01), facts, BUDGET)
    found = audit(canary_of_plan(plan), trials=4_000, seed=1, confidence=0.999)
    require(not found.violated, "the audit's lower bound is above the claim")


@check
def a_cell_has_one_answer() -> None:
    """Two observations too near for the grid, or one that is asked again: the second gets what the first got."""
    for on_grid in (False, True):
        facts = replace(Walk().facts, on_grid=on_grid)
        plan = make_learning_plan(FunctionalQ(variant="functional", **SHORT), facts, BUDGET)
        answers = answers_of(plan, SeededNoise.from_seed(1))
        place, action = np.array([[7], [7]]), np.array([1, 1])
        first = np.asarray(answers.add_noise(np.array([0.1, 0.4]), place, action, 0))
        later = np.asarray(answers.add_noise(np.array([0.3, 0.2]), place, action, 1))
        found = {*first.tolist(), *later.tolist()}
        require(len(found) == 1, "a cell answered twice: a difference comes out without noise")


@check
def precision_is_paid_for() -> None:
    plan = make_learning_plan(FunctionalQ(variant="functional", people=50), Walk().facts, BUDGET)
    std = getattr(plan.mechanism, "std", 0.0)
    least = path_delta(0.9, plan.config.samples, std, float(plan.config.decay or 0.0), 1, 0.5)
    require(plan.delta_sampler >= least > 0.0, "the precision of a path is not in delta")
    require(plan.delta_of_event + plan.delta_sampler <= 1e-4 * (1.0 + 1e-12), "delta is spent twice")


@check
def neighbours_beyond_the_domain() -> None:
    """Record and replay where observations are not what the environment declares."""
    config = FunctionalQ(variant="functional", reward_lipschitz=0.04, reward_of="state", **SHORT)
    recorder = Recorder()
    entered = [recorder.record(learned_from(Beyond(more), BUDGET, config)) for more in (lambda _: 0.0, saw)]
    for question in entered[0].questions:
        places = question.places
        # beyond its ends one point of the relation would get many noises
        require(np.all((places >= 0) & (places <= 2 ** DEPTHS[1])), "a path is asked beyond its ends")
    found = compare(*entered)
    require(not found.problems, found.problems[0] if found.problems else "")


@check
def a_second_release_is_made_of_its_own_rewards() -> None:
    """One after the other in environments that compare equal."""

    def weights(environment: Any) -> list[float]:
        algorithm = FunctionalQ(variant="observed-reward", **SHORT)
        released = train(environment, BUDGET, algorithm=algorithm, seed=1).q_function.weights
        return [float(x) for name in sorted(released) for x in released[name].ravel()]

    low, high = np.full(4, 0.1), np.full(4, 0.4)
    weights(Priced(table=low))
    require(weights(Priced(table=high)) == weights(AlsoPriced(table=high)), "made of another environment's rewards")


class Ending:
    """Outside of JAX; keeps the seed of each episode by the sample with which it began, and all actions."""

    facts = replace(Walk().facts, on_grid=False)

    def __init__(self, length: int) -> None:
        self._length, self.seeds, self.actions = length, dict[int, int](), list[int]()

    def reset(self, seed: int) -> np.ndarray:
        self.seeds[len(self.actions)] = seed
        return np.full(1, 0.5)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        self.actions.append(action)
        return np.full(1, 0.5), 0.1, len(self.actions) % self._length == 0, False


@check
def a_coin_stands_at_its_address() -> None:
    """Words of ChaCha20 under the release's key, whatever ends when."""
    algorithm = FunctionalQ(variant="observed-reward", **SHORT)
    environments = Ending(10), Ending(4)
    with patch.object(SecureNoise, "fresh", lambda: SecureNoise(KEY)):
        for environment in environments:
            train(environment, BUDGET, algorithm=algorithm)
    coins, places = SecureNoise(KEY).stream("learner").actions().of_batch(0), np.arange(20)
    seeds, second = coins.words_at(places, 3) >> np.uint32(1), coins.words_at(places, 1) >> np.uint32(31)
    for environment in environments:
        first = [environment.seeds.get(place, int(seeds[place])) for place in range(20)]
        require(first == seeds.tolist(), "an episode's seed depends on what ended before")
        require(environment.actions[:20] == second.tolist(), "the first round, which explores, has other coins")


@check
def no_table_lies_on_disk(lab: Lab) -> None:
    """With JAX's persistent cache on, and an environment that compiles a function of its own."""
    table, folder = np.arange(4) / 7.0 + 0.123456789, lab.folder()

    class Compiled(Walk):
        def reward(self, states: Any, actions: Any) -> Any:
            return jax.jit(lambda x: jnp.asarray(table)[(x[..., 0] * 3.999).astype(int)])(states)

    with persistent_cache(folder):
        train(Compiled(), BUDGET, algorithm=FunctionalQ(variant="observed-reward", **SHORT))
        require(table.tobytes() not in on_disk(folder), "a table of rewards lies in the compilation cache")


class Quoting:
    """An environment that quotes a reward in what it raises."""

    facts = replace(Walk().facts, on_grid=False)

    def reset(self, seed: int) -> np.ndarray:
        return np.full(1, 0.5)

    def step(self, action: int) -> Any:
        raise BaseException("0.123456789")


@check
def nothing_that_an_environment_raises_is_said() -> None:
    try:
        train(Quoting(), BUDGET, algorithm=FunctionalQ(variant="observed-reward", **SHORT))
    except BaseException as error:
        require(False, f"an exception after the charge: {type(error).__name__}")


@check
def rewards_of_the_next_state_are_refused() -> None:
    """Where nobody declares of what rewards are functions, a path has no proof."""
    facts = replace(Walk().facts, reward_of=None)
    with refused("a path is planned for rewards that may depend on the next state"):
        make_learning_plan(FunctionalQ(variant="functional", **SHORT), facts, BUDGET)


def _released(lab: Lab, **options: Any) -> Any:
    """A private release of known noise, in a folder."""
    with patch.object(SecureNoise, "fresh", lambda: SecureNoise(KEY)):
        release = train(Walk(), BUDGET, algorithm=FunctionalQ(**{**SHORT, **options}))
    folder = lab.folder() / "q"
    return release, release.save(folder), folder


@check
def no_key_is_handed_out(lab: Lab) -> None:
    """Not the run key, nor one that was made of it: whoever has it can subtract the noise."""
    _, paths, _ = _released(lab)
    keys = [KEY, SecureNoise(KEY).stream("reward")._key]
    for path in paths.values():
        content = path.read_bytes()
        require(not any(k in content or k.hex().encode() in content for k in keys), f"a key lies in {path.name}")


@check
def the_certificate_says_what_a_path_protects(lab: Lab) -> None:
    """One path for all actions protects functions of the state alone, and must say so."""
    try:
        _, _, folder = _released(lab, variant="functional", shared_path=True)
        content = verify(folder).content
    except dprl.DprlError as error:
        require(False, f"the certificate is refused: {error}")
    else:
        require(
            "of the state in which the action is taken" in content["neighbouring_relation"], "a condition is missing"
        )
