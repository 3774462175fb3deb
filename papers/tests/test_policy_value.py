"""The policy's value: what domains say of it, how it is measured, and the methods that estimate nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from papers.tests.tiny import SPEC, plugin_file

from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.errors import DprlError
from dprl.mechanisms.noise import SeededNoise
from dprl_papers.domains.chain import Chain
from dprl_papers.harness.domain import Truth, load_domain
from dprl_papers.harness.method import Method
from dprl_papers.harness.metrics import Metrics
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.problem import Logs, Setting, Trials
from dprl_papers.harness.reproduce import REPORT, make_request, reproduce
from dprl_papers.harness.spec import parse
from dprl_papers.methods import policy_value

TINY = Chain(length=6, horizon=60)


def starts():
    return Truth(np.arange(5.0)[:, None], TINY.values(), np.full(5, 0.2), np.zeros(5), TINY.values(steps=60))


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return load_plugin(plugin_file(tmp_path_factory.mktemp("plugin")))


@pytest.fixture(scope="module")
def domain(plugin):
    return replace(plugin.domain, start_values=starts)


def problem_of(domain, epsilon=1.0, units=40):
    setting = Setting(domain=domain, units=units, budget=Budget(epsilon, 1e-5))
    _, second = Trials(setting=setting, seeds=(2, 3), logs=Logs(domain, units, (2, 3)))
    return second


def key_of(seed):
    return np.asarray(SeededNoise.from_seed(seed).key)


def mean_return(problem):
    log = problem.log
    discounted = problem.domain.discount ** log.time() * log.reward
    return np.bincount(log.episode_of(), discounted, minlength=log.units).mean()


# What domains say.


@pytest.mark.parametrize(
    "name", ["chain", "chain_bernoulli", "hiv", "mountain_car", "mountain_car_off_policy", "one_step"]
)
def test_the_values_of_the_domains(name):
    domain = load_domain(name)
    start = domain.start
    assert start is not None
    low, high = domain.public.value_interval(domain.discount)
    assert start.weights.sum() == pytest.approx(1.0)
    assert np.all((start.values >= low) & (start.values <= high))
    assert domain.policy_value == pytest.approx(np.average(start.values, weights=start.weights))
    assert domain.policy_value_error < 3e-3 * domain.range
    assert low <= domain.truncated_value <= high


@pytest.mark.parametrize(
    "name", ["chain", "chain_bernoulli", pytest.param("mountain_car", marks=pytest.mark.slow), "one_step"]
)
def test_starts_are_those_of_logs(name):
    domain, log = load_domain(name), load_domain(name).log(300, 0)
    start = domain.start
    assert start is not None
    first = log.observation[log.episode_offsets[:-1]]
    spread = first.std(axis=0) / np.sqrt(len(first))
    assert np.all(np.abs(first.mean(axis=0) - start.weights @ start.states) < 5 * spread + 1e-6)
    if domain.on_policy:
        # against the simulator of logs, which is another one than that of stored values
        returns = np.bincount(log.episode_of(), domain.discount ** log.time() * log.reward)
        assert abs(returns.mean() - domain.truncated_value) < 5 * returns.std() / np.sqrt(len(returns))


def test_exact_values():
    chain, paid = load_domain("chain"), load_domain("chain_bernoulli")
    assert chain.policy_value == pytest.approx(Chain().values().mean())
    assert chain.truncated_value == pytest.approx(Chain().values(steps=chain.public.horizon).mean(), abs=1e-12)
    assert paid.policy_value == pytest.approx(0.2 * chain.policy_value)
    assert chain.policy_value_error == 0.0
    # outcomes of people who all get the arm; the clips hardly matter
    one = load_domain("one_step")
    assert one.truncated_value == one.policy_value
    assert one.policy_value == pytest.approx(50.0, abs=0.05)


def test_a_domain_that_does_not_say_it(plugin):
    with pytest.raises(DprlError, match="does not say the value of its policy"):
        _ = plugin.domain.policy_value
    assert "value" not in Metrics(plugin.domain).errors(np.zeros((2, 5)), False, True)


# How it is measured.


def test_the_error_of_a_value(domain):
    metrics = Metrics(domain)
    weights = np.linalg.solve(metrics.phi, TINY.values())
    found = metrics.errors(np.stack([weights, 0.0 * weights, 3.0 * weights]), False, False)["value"]
    np.testing.assert_allclose(found, [0.0, TINY.values().mean(), 2.0 * TINY.values().mean()], atol=1e-12)
    # clamped, state by state
    clamped = metrics.errors(3.0 * weights[None], False, True)["value"]
    np.testing.assert_allclose(clamped, np.minimum(3.0 * TINY.values(), 1.0).mean() - TINY.values().mean())
    np.testing.assert_allclose(metrics.errors(3.0 * TINY.values()[None], True, True)["value"], clamped)
    np.testing.assert_allclose(
        metrics.value_errors(np.array([1.5, -2.0]), False)["value"] + [-1.5, -2.0],
        [-TINY.values().mean(), TINY.values().mean() - 0.0],
    )


def test_a_figure_of_values(domain, plugin, tmp_path):
    """A method of a value alone: only this error is there, and what other tables have of it is a dash."""
    text = SPEC.replace('metric = "rmse/range"', 'metric = "value/range"', 2).replace(
        'methods = ["zero", "public-constant", "mine"]', 'methods = ["zero", "mine", "guess"]'
    )
    paper = parse(text, "tiny.toml")
    guess = Method(name="guess", label="a guess", guarantee="verified", value=lambda problem, key: 0.25)
    plugin = replace(plugin, domain=domain, methods=(*plugin.methods, guess), units=(10.0,))
    request = make_request(replace(paper, logs=()), trials=2, plugin=plugin)
    figures = tuple(f for f in request.figures if f.name in ("2", "3"))
    results = reproduce(replace(request, paper=paper, figures=figures), tmp_path)
    two, three = ({s["name"]: s["points"][0] for s in f["series"]} for f in results["figures"])
    assert three["guess"]["value/range"]["mean"] == pytest.approx(TINY.values().mean() - 0.25)
    assert three["zero"]["value/range"]["mean"] == pytest.approx(TINY.values().mean())
    assert two["guess"]["rmse"] == {"mean": None, "sd": None, "se": None, "not_finite": 0}
    page = (tmp_path / REPORT).read_text()
    sections = re.split("<section ", page)
    assert '<td class="number">–</td>' in sections[1]
    assert '<td class="number">–</td>' not in sections[2]
    assert re.findall("<summary>(.*?):", sections[1]) == ["MSPBE", "RMSE"]
    assert re.findall("<summary>(.*?):", sections[2]) == ["error of the policy&#39;s value / range"]
    assert "not finite</" not in page
    wrong = replace(guess, value=lambda problem, key: np.zeros(2))
    request = replace(request, paper=paper, figures=figures, methods={**request.methods, "guess": wrong})
    with pytest.raises(DprlError, match="Method 'guess' must give one number a trial"):
        reproduce(request, tmp_path / "wrong")


# The methods.


def test_without_noise_and_ratios_every_estimator_is_the_mean_return(domain):
    """On policy, with all trajectories over: what is doubly robust telescopes, whatever its value function."""
    problem = problem_of(domain)
    assert problem.log.terminated.sum() == 40
    for estimator in ("per-decision", "trajectory", "self-normalised"):
        found = policy_value.importance_sampling_exact(estimator, problem, key_of(0))
        assert found == pytest.approx(mean_return(problem), abs=1e-9)
    assert policy_value.doubly_robust_exact(problem, key_of(0)) == pytest.approx(mean_return(problem), abs=1e-5)


def test_the_noise_is_that_of_the_whole_budget(domain):
    problem = problem_of(domain)
    values = np.array([policy_value.importance_sampling("per-decision", problem, key_of(s)) for s in range(60)])
    query = policy_value.query_of("per-decision", problem)
    expected = 0.5 * query.clip_norm * gaussian_noise_multiplier(problem.budget) / 40
    assert values.std() == pytest.approx(expected, rel=0.3)
    assert abs(values.mean() - mean_return(problem)) < 5 * expected / np.sqrt(60)


@pytest.mark.slow
def test_doubly_robust_is_what_a_release_computes(domain):
    from dprl.evaluation.doubly_robust import DoublyRobust
    from dprl.evaluation.plan import make_plan
    from dprl.release.private_rows import RowsInMemory, release_rows

    problem = problem_of(domain)
    setting = problem.setting
    config, policies = DoublyRobust(discount=domain.discount), [domain.target_policy]
    plan = make_plan(config, setting.bounds, setting.budget, policies, setting.features.name)
    (released,) = release_rows(plan, RowsInMemory(plan, problem.log, policies), SeededNoise(key_of(1))).estimates
    assert policy_value.doubly_robust(problem, key_of(1)) == pytest.approx(released.value, abs=1e-4)


def test_what_runs_without_noise_is_planned_for_every_number_of_people():
    """A delta of one over the people or more is refused, also by a plan whose noise nobody draws."""
    for units in (200, 99_999):
        policy_value.AMPLE_BUDGET.check_units(units)
