"""The methods of paper 000's figures: what they run on, and the noise that the published ones have."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from papers.tests.test_neural import BOUNDS, DOMAIN

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.engine.program import PublicFacts
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features
from dprl_papers.harness.method import library_methods
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.methods import primal_dual
from dprl_papers.paper_000_dptd.published import noise_multiplier

NETWORK = dataclasses.replace(DOMAIN, network="mlp:2")


def trials_of(domain: Any = NETWORK, units: int = 8, epsilon: float = 5.0) -> tuple[Trials, np.ndarray]:
    setting, seeds = Setting(domain=domain, units=units, budget=Budget(epsilon, 1e-3)), (1, 2)
    keys = np.stack([np.asarray(SeededNoise.from_seed(seed).key) for seed in seeds])
    return Trials(setting=setting, seeds=seeds, logs=Logs(domain, units, seeds)), keys


def test_a_log_by_transitions_has_as_many_in_every_trial() -> None:
    trials, _ = trials_of()
    features = primal_dual.function_of(trials.setting)
    assert features.name == "mlp:2"
    logs, bounds = primal_dual.logs_of(trials, features, "transition", None)
    lengths = [len(problem.log.reward) for problem in trials]
    assert lengths[0] != lengths[1]
    assert bounds.units == min(lengths)
    assert logs.reward.shape == (2, bounds.units, 1)
    assert np.all(np.asarray(logs.weight) == 1.0)
    for i, problem in enumerate(trials):
        states = np.asarray(logs.states)[i, :, 0]
        np.testing.assert_array_equal(states, problem.log.observation[: bounds.units])


def test_trajectories_are_padded_to_one_length_and_keep_their_weight() -> None:
    trials, _ = trials_of()
    logs, bounds = primal_dual.logs_of(trials, primal_dual.function_of(trials.setting), "trajectory", 4)
    assert bounds.units == 8
    np.testing.assert_allclose(np.asarray(logs.weight).sum(axis=2), 1.0, rtol=1e-6)
    assert logs.reward.shape[2] <= 5


def test_the_noise_of_langevin_dynamics_is_just_what_its_claim_asks_for() -> None:
    budget, steps = Budget(1.0, 1e-5), 400
    facts = PublicFacts(dataclasses.replace(BOUNDS, units=300), make_features("columns", BOUNDS.observation), 0.9, 1.0)
    (stage,) = primal_dual.langevin_stages(facts, steps, budget)
    # a replaced transition moves a sum by 2 G, G the clip: half of the multiplier
    event = events.poisson_gaussian(1.0, stage.mechanism.noise_multiplier / 2.0, steps)
    assert epsilon_of(event, budget.delta) == pytest.approx(budget.epsilon, rel=0.01)
    assert stage.mechanism.noise_std / math.sqrt(steps) == pytest.approx(7.46, rel=0.01)
    # c_2 of Wang, Chen and Xu's Algorithm 1, which they leave open
    assert pytest.approx(1.55 * math.sqrt(2.0 * math.log(1e5)), rel=0.01) == 7.46
    assert stage.mechanism.sampling_rate == 1.0
    initial, last = primal_dual.recursive_stages(facts, steps, budget, recursion=0.25)
    assert initial.mechanism.noise_std == last.mechanism.noise_std
    assert last.mechanism.noise_std == pytest.approx(1.75 * noise_multiplier(steps, 300, 1.0, 1e-5))
    assert (initial.mechanism.clip_norm, last.mechanism.clip_norm, last.mechanism.steps) == (1.0, 1.75, steps - 1)


def test_a_published_guarantee_is_that_of_the_run_that_is_drawn() -> None:
    """Noise is made for as many steps as the run has, and few of them mean little noise."""
    from dprl_papers.first_sum import initial_release_epsilon
    from dprl_papers.paper_000_dptd.privacy import JOINT

    found = []
    for epochs in (0, 5, 100):
        setting = Setting(domain=DOMAIN, units=40, budget=Budget(10.0, 1e-5), epochs=epochs)
        count = primal_dual.transitions(setting)
        sigma = noise_multiplier((epochs or primal_dual.EPOCHS) * count - 1, count, 10.0, 1e-5)
        promise = primal_dual.dptd_promise(setting)
        assert promise.true == initial_release_epsilon(count, sigma, JOINT, 1e-5)
        found.append(promise.true)
    assert found[0] == found[2] < found[1]


@pytest.mark.slow
@pytest.mark.parametrize("method", primal_dual.METHODS, ids=lambda method: method.name)
def test_every_method_measures_itself_along_a_run_and_at_its_end(method: Any) -> None:
    assert library_methods()[method.name] is method
    trials, keys = trials_of()
    found = method.curves(trials, keys, (0, 1, 3))
    dual = {"objective"} if "neural" not in method.name else set()
    assert set(found) == {"rmse", "msbe", "mspbe", "value"} | dual
    assert all(x.shape == (2, 3) and np.isfinite(x).all() for x in found.values())
    assert np.all(found["mspbe"][:, 0] != found["mspbe"][:, 1])
    (last,) = (x.shape for name, x in method.curves(trials, keys, ()).items() if name == "rmse")
    assert last == (2, 1)
    guarantee = method.guarantees(trials.setting)
    assert guarantee.status == method.guarantee
    if guarantee.status == "verified":
        assert guarantee.true == 5.0


@pytest.mark.slow
def test_trials_of_a_published_method_start_at_random_weights_of_their_own() -> None:
    trials, keys = trials_of()
    sgd, langevin = (library_methods()[name].curves for name in ("sgd", "gld-published"))
    assert sgd is not None
    assert langevin is not None
    start = sgd(trials, keys, (0,))["rmse"]
    assert start[0, 0] != start[1, 0]
    again = langevin(trials, keys[::-1].copy(), (0,))["rmse"]
    np.testing.assert_array_equal(start, again)
