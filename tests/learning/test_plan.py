"""Options, public facts and the plan of a learning release: what is filled in, what is refused, what is paid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.reward_relation import parse_relation
from dprl.audits.conformance.reward_functions import Walk
from dprl.errors import DprlError
from dprl.learning import planned_q
from dprl.learning.functional_q import FunctionalQ, resolve
from dprl.learning.learning_plan import bound_answers, epsilon_at, make_learning_plan
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.reward_noise import MemoisedAnswers
from dprl.registry import LEARNING

BUDGET = Budget(0.9, 1e-4)
NOISE_TRAVEL_BUDGET = Walk()
FACTS = NOISE_TRAVEL_BUDGET.facts


def test_everything_follows_from_public_facts():
    """One of n people moves a mean by width/n, and its slope by twice a person's over n."""
    resolved = resolve(FunctionalQ(variant="functional", people=100), FACTS)
    assert resolved.reward_radius == 0.5 / 100
    assert resolved.reward_lipschitz == pytest.approx(2.0 / 100)
    assert resolved.decay == pytest.approx(4.0)
    assert resolved.shared_path is False
    assert resolve(FunctionalQ(variant="functional", people=100), replace(FACTS, reward_of="state")).shared_path
    assert (resolved.discount, resolved.network, resolved.step_size) == (0.9, "fourier:3", 3e-3)
    assert "derived" in resolved.hyper_parameters()["decay"]["provenance"]
    assert resolve(resolved, FACTS) == resolved
    # below a slope of R the decay stays at 1, and an explicit one is kept
    flat = FunctionalQ(variant="functional", reward_radius=0.1, reward_lipschitz=0.02)
    assert resolve(flat, FACTS).decay == 1.0
    assert resolve(replace(flat, decay=3.0), FACTS).decay == 3.0


SQUARE = {"observation": ((0.0, 1.0),) * 2}
DEFAULTS = {
    "all that the proof needs": ({}, {}, "functional", "fourier:3"),
    "rewards that nobody describes": ({}, {"reward_of": None}, "observed-reward", "mlp:32"),
    "described by an option": ({"reward_of": "state"}, {"reward_of": None}, "functional", "fourier:3"),
    "no Lipschitz constant": ({}, {"reward_lipschitz": None}, "observed-reward", "mlp:32"),
    "one stated": ({"reward_lipschitz": 0.01}, {"reward_lipschitz": None}, "functional", "fourier:3"),
    "a steep reward": ({}, {"reward_lipschitz": 10.0}, "observed-reward", "mlp:32"),
    "many actions": ({}, {"actions": 8}, "observed-reward", "mlp:32"),
    "many actions, one path": ({}, {"actions": 8, "reward_of": "state"}, "functional", "fourier:3"),
    "the square": ({}, SQUARE, "observed-reward", "mlp:32"),
    "the square, with derivatives": (
        {"mixed_derivatives": True}, SQUARE | {"reward_of": "state", "on_grid": True}, "functional", "fourier:3",
    ),
    "a memo": ({"memoise": True}, {"finite": (3, 2)}, "observed-reward", "mlp:32"),
    "features of one's own": ({"network": "mlp:4"}, {}, "functional", "mlp:4"),
    "a variant of one's own": ({"variant": "observed-reward"}, {}, "observed-reward", "mlp:32"),
}  # fmt: skip


@pytest.mark.parametrize("what", DEFAULTS)
def test_the_variant_and_its_features_follow_from_declared_facts(what):
    options, facts, variant, network = DEFAULTS[what]
    resolved = resolve(FunctionalQ(people=100, **options), replace(FACTS, **facts))
    assert (resolved.variant, resolved.network) == (variant, network)


WRONG = {
    "no radius": ({}, {}, "give reward_radius, or people"),
    "radius and people": ({"reward_radius": 0.1, "people": 10}, {}, "either reward_radius or people"),
    "no Lipschitz constant": ({"variant": "functional", "people": 9}, {"reward_lipschitz": None}, "reward_lipschitz"),
    "two components off the grid": (
        {"variant": "functional", "people": 9},
        {"observation": ((0.0, 1.0),) * 2, "on_grid": False},
        "on the grid",
    ),
    "two components and a slope": (
        {"variant": "functional", "people": 9}, {"observation": ((0.0, 1.0),) * 2}, "mixed_derivatives",
    ),
    "four components": (
        {"variant": "functional", "people": 9}, {"observation": ((0.0, 1.0),) * 4}, "at most three",
    ),
    "output in two components": ({"variant": "output", "people": 9}, {"observation": ((0.0, 1.0),) * 2}, "one obs"),
    "no memo of endless states": ({"people": 9, "memoise": True}, {}, "finitely many"),
    "another variant's option": (
        {"people": 9, "decay": 2.0, "variant": "observed-reward"}, {}, "of the variant functional and output alone",
    ),
    "broken rounds": ({"people": 9, "samples": 55}, {}, "whole number of rounds"),
    "discount of one": ({"people": 9}, {"discount": 1.0}, "discount below 1"),
    "one reward": ({"people": 9}, {"reward_bounds": (1.0, 1.0)}, "nothing to learn"),
    "one observation": ({"people": 9, "variant": "functional"}, {"observation": ((1.0, 1.0),)}, "cannot be scaled"),
    "a table to learn": ({"people": 9, "network": "table:9"}, {}, "variant output"),
    "an actor of gradients": ({"people": 9, "variant": "gradient", "actor_critic": True}, {}, "replayed samples"),
    "delta above one in n": ({"people": 10_001}, {}, "at least 1/units"),
    "noise that is too small": ({"people": 9, "noise_multiplier": 1.0}, {}, "more than the budget"),
    "a model that is missing": ({"people": 9, "variant": "output"}, {}, "no public transition matrix"),
    "sigma without the paper": ({"people": 9, "published_std": 0.3}, {}, "'as-published' alone"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_refused_in_one_sentence(what):
    options, facts, words = WRONG[what]
    with pytest.raises(DprlError, match=words) as refused:
        make_learning_plan(FunctionalQ(**options), replace(FACTS, **facts), BUDGET)
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(
    "options",
    [{"reward_radius": -1.0}, {"people": 0}, {"samples": 1.5}, {"decay": 0.5}, {"exploration": 2.0}, {"discount": 1.0}],
)
def test_an_option_out_of_range_is_refused_at_once(options):
    with pytest.raises(DprlError, match=f"functional-q: {next(iter(options))} must be"):
        FunctionalQ(**options)


SUITE = LEARNING["functional-q"].load_conformance()


@pytest.mark.parametrize("setting", SUITE.algorithm.settings)
def test_the_plan_pays_for_all_that_is_released(setting):
    """The event's epsilon at what precision leaves of delta is the budget; calibration wastes nothing."""
    plan = SUITE.plan(setting)
    assert plan.event == plan.mechanism.event()
    assert plan.delta_of_event + plan.delta_sampler == pytest.approx(1e-4, rel=1e-12)
    assert plan.delta_sampler >= plan.mechanism.delta(0.9) > 0.0
    assert epsilon_of(plan.event, plan.delta_of_event) == plan.epsilon_of_event
    assert 0.899 < plan.epsilon_of_event <= 0.9
    assert parse_relation(plan.relation.words()) == plan.relation
    # the same noise costs the same, the other way round
    spent, delta = epsilon_at(plan.mechanism, 1e-4)
    assert spent == pytest.approx(0.9, abs=2e-3)
    assert delta < 1e-4


def test_a_path_an_action_costs_the_root_of_their_number():
    shared, four = (
        make_learning_plan(
            FunctionalQ(variant="functional", people=50, shared_path=shared), replace(FACTS, actions=4), BUDGET
        )
        for shared in (True, False)
    )
    assert four.mechanism.sensitivity == pytest.approx(2.0 * shared.mechanism.sensitivity)
    assert shared.relation.of_state
    assert not four.relation.of_state
    # D^2 = R^2 + R L at the best decay
    radius, lipschitz = 0.01, 0.04
    assert shared.mechanism.sensitivity == pytest.approx(math.sqrt(radius**2 + radius * lipschitz))


def test_a_memo_where_the_proof_needs_one():
    """Off the grid the first observation of a cell answers for all of it, and pays for more; on it, for itself."""
    noise = SeededNoise.from_seed(1)
    config = FunctionalQ(variant="functional", people=50, samples=1000)
    on, off = (make_learning_plan(config, replace(FACTS, on_grid=where), BUDGET) for where in (True, False))
    assert all(isinstance(bound_answers(plan, noise), MemoisedAnswers) for plan in (on, off))
    assert off.mechanism.sensitivity > on.mechanism.sensitivity
    finite = replace(FACTS, finite=(4, 2))
    memoised = make_learning_plan(FunctionalQ(people=50, memoise=True), finite, BUDGET)
    assert isinstance(bound_answers(memoised, noise), MemoisedAnswers)
    assert memoised.mechanism.steps == 8
    each = make_learning_plan(FunctionalQ(variant="observed-reward", people=50), finite, BUDGET)
    assert memoised.mechanism.std < 0.1 * each.mechanism.std


def test_the_optimal_q_moves_no_further_than_is_accounted_for():
    """Of random neighbours: in sup norm and in slope."""
    config = resolve(FunctionalQ(variant="output", people=100), FACTS)
    model = NOISE_TRAVEL_BUDGET.transition_matrix(planned_q.POINTS)
    assert planned_q.transition_rate(model) == pytest.approx(8.0, rel=0.05)
    sup, lipschitz = planned_q.q_sensitivity(config, FACTS, model)
    rng = np.random.default_rng(0)
    reward = np.tile(0.5 - np.abs(planned_q.POINTS - 0.5), (2, 1))
    base = np.asarray(planned_q.optimal_q(model, reward, 0.9))
    step = planned_q.POINTS[1]
    reached = [0.0, 0.0]
    for _ in range(20):
        slopes = rng.uniform(-config.reward_lipschitz, config.reward_lipschitz, (2, 256)) * step
        f = np.cumsum(np.concatenate([rng.uniform(-0.5, 0.5, (2, 1)) * config.reward_radius, slopes], axis=1), axis=1)
        f = np.clip(f, -config.reward_radius, config.reward_radius)
        change = np.asarray(planned_q.optimal_q(model, reward + f, 0.9)) - base
        reached[0] = max(reached[0], np.abs(change).max() / sup)
        reached[1] = max(reached[1], np.abs(np.diff(change, axis=1)).max() / step / lipschitz)
    assert 0.05 < reached[0] <= 1.0
    assert 0.02 < reached[1] <= 1.0
    # all of the radius at once: R / (1 - gamma), but for the sweeps
    shift = np.asarray(planned_q.optimal_q(model, reward + config.reward_radius, 0.9)) - base
    assert shift == pytest.approx(sup, rel=1e-5)
    assert shift.max() <= sup
    with pytest.raises(DprlError, match="transition probabilities"):
        planned_q.check_model(model * 1.01, 2)
