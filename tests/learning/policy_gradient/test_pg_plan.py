"""Options of private policy gradient, and the plan: what is refused, what follows from public facts, what it costs."""

from __future__ import annotations

import math

import pytest

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier
from dprl.config import DERIVED
from dprl.errors import DprlError
from dprl.learning.policy_gradient.dp_pg import DPPG, resolve
from dprl.learning.policy_gradient.pg_plan import make_pg_plan, program_of
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.step_noise import Correlation
from dprl.protocols import EnvironmentSpec

BUDGET = Budget(1.0, 1e-6)


def facts(**changes) -> EnvironmentSpec:
    known = {"name": "x", "observation": ((0.0, 1.0),) * 4, "actions": 2, "horizon": 500, "discount": 0.99}
    return EnvironmentSpec(**(known | {"reward_bounds": (0.0, 1.0)} | changes))


ONCE, CONTINUOUS = facts(horizon=1, discount=1.0), facts(actions=0, action=((-2.0, 2.0),))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"users": 0}, "users must be a whole number from 1"),
        ({"batch": True}, "batch must be a whole number"),
        ({"steps": 10**6}, "steps must be a whole number from 1 to 100000"),
        ({"clip_norm": math.inf}, "clip_norm must be above 0"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be above 0"),
        ({"discount": 1.1}, "discount must be between 0 and 1"),
        ({"baseline_weight": 1.0}, "baseline_weight must be at least 0 and below 1"),
        ({"regularisation": -1.0}, "regularisation must be between 0 and"),
        ({"users": 100, "scale_weight": 0.95}, "must leave a hundredth"),
        ({"users": 100, "scale_weight": 0.001}, "scale_weight must be 0 or at least 0.01"),
        ({"users": 100, "baseline_weight": 0.995}, "scale_weight, which is 0.1, must leave"),
        ({"users": 100, "scale_weight": 0.1, "step_size": 1.0}, "leave out step_size, or scale_weight"),
        ({"users": 100, "scale_weight": 0.1, "sampling": "poisson"}, "not for users who are sampled again"),
        ({}, "give users"),
        ({"users": 10, "batch": 11}, "more places than there are users"),
        ({"users": 10, "steps": 11}, "fewer users than steps"),
        ({"users": 100, "batch": 10, "steps": 9}, "make 10 steps: leave out batch or steps"),
        ({"users": 100, "sampling": "poisson", "noise": "banded:4"}, "need noise = 'independent'"),
        (
            {"users": 100, "sampling": "poisson", "relation": "replace-one", "noise": "independent"},
            "leave out relation",
        ),
        ({"users": 100, "noise": "white"}, "noise must be independent, square-root or banded:B"),
        ({"users": 100, "policy": "gaussian"}, "needs continuous actions"),
        ({"users": 10**6}, "at least 1/units"),
        ({"users": 100, "noise_multiplier": 1.0}, "more than the budget of 1"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(DprlError, match=words):
        make_pg_plan(DPPG(**options), facts(), BUDGET)


def test_users_are_those_that_the_source_declares():
    assert resolve(DPPG(), ONCE, 400).users == 400
    assert resolve(DPPG(users=400), ONCE, 400).users == 400
    with pytest.raises(DprlError, match="must be the 400 units"):
        resolve(DPPG(users=401), ONCE, 400)


@pytest.mark.parametrize(
    ("options", "known", "batch", "steps", "step_size", "discount", "barrier", "policy"),
    [
        ({"users": 2000}, facts(), 100, 20, 300.0, 0.98, 0.0, "softmax"),
        ({"users": 100_000}, facts(), 1000, 100, 60.0, 0.98, 0.0, "softmax"),
        ({"users": 100, "policy": "mlp:8"}, facts(discount=0.9), 20, 5, 1200.0, 0.9, 0.0, "mlp:8"),
        ({"users": 10_000}, ONCE, 400, 25, 240.0, 1.0, 0.02, "softmax"),
        ({"users": 10_000, "steps": 100}, ONCE, 100, 100, 60.0, 1.0, 0.02, "softmax"),
        # several visits of which none has consequences
        ({"users": 10_000}, facts(horizon=3, discount=0.0), 400, 25, 240.0, 0.0, 0.02, "softmax"),
        ({"users": 1000, "batch": 33}, CONTINUOUS, 33, 31, 6000.0 / 31, 0.98, 0.0, "gaussian"),
        ({"users": 3}, ONCE, 3, 1, 6000.0, 1.0, 0.02, "softmax"),
    ],
)
def test_what_follows_from_public_facts(options, known, batch, steps, step_size, discount, barrier, policy):
    c = resolve(DPPG(**options), known)
    found = (c.batch, c.steps, c.step_size, c.discount, c.regularisation, c.policy)
    assert found == (batch, steps, step_size, discount, barrier, policy)
    assert c.batch * c.steps >= c.users > c.batch * (c.steps - 1)
    assert {c.hyper_parameters()[name]["provenance"] for name in ("discount", "step_size")} == {DERIVED}
    if "batch" in options:
        assert c.hyper_parameters()["batch"]["provenance"] != DERIVED
    assert resolve(c, known) == c


@pytest.mark.parametrize(("epsilon", "in_clips"), [(0.5, 8.06), (1.0, 4.22), (4.0, 1.19)])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_one_pass_costs_one_gaussian(epsilon, in_clips, relation):
    """Whatever the noise is correlated with, and however many batches; twice the clip where one is replaced."""
    budget = Budget(epsilon, 1e-6)
    clips = 1.0 if relation == "zero-out" else 2.0
    for noise, steps in (("independent", 7), ("square-root", 100), ("banded:4", 20)):
        config = DPPG(users=1000, steps=steps, noise=noise, relation=relation, clip_norm=3.0, baseline_weight=0.5)
        plan = make_pg_plan(config, facts(), budget)
        mechanism = plan.mechanism
        assert isinstance(mechanism, GaussianSum)
        multiplier = gaussian_noise_multiplier(Budget(epsilon, plan.delta_of_event))
        assert mechanism.noise_multiplier == pytest.approx(multiplier, rel=2e-4)
        assert mechanism.noise_multiplier == pytest.approx(in_clips, rel=0.01)
        assert mechanism.sensitivity == pytest.approx(3.0 * clips)
        # two classes of five features, and the statistics of returns and of lengths
        assert [size for size, _ in mechanism.parts] == [10, 1, 1]
        assert [clip for _, clip in mechanism.parts[1:]] == pytest.approx([1.5, 0.3])
        assert math.hypot(*(clip for _, clip in mechanism.parts)) == pytest.approx(3.0)
        assert plan.event == events.gaussian(mechanism.noise_multiplier) == mechanism.event()
        assert plan.epsilon_of_event == epsilon_of(plan.event, plan.delta_of_event) <= epsilon
        assert plan.delta_sampler >= mechanism.delta(epsilon) > 0.0
        assert plan.delta_of_event + plan.delta_sampler <= 1e-6 * (1.0 + 1e-12)
        assert plan.relation == {"zero-out": "zero out one", "replace-one": "replace one"}[relation]
        assert mechanism.batch * mechanism.steps >= 1000


def test_people_who_act_once_are_followed_the_further_the_less_noise_there_is():
    def step_size(budget: Budget = BUDGET, **options) -> float:
        config = make_pg_plan(DPPG(**({"users": 5000} | options)), ONCE, budget).config
        assert config.hyper_parameters()["step_size"]["provenance"] == DERIVED
        assert config.step_size is not None
        return config.step_size

    # 2.1 N over z, the error of prefix sums and sqrt(25), in 25 steps
    usual = step_size()
    assert usual == pytest.approx(2.1 * 5000 / (4.2247 * 0.5367 * 5.0) / 25, rel=2e-3)
    assert step_size(relation="replace-one") == pytest.approx(usual / 2.0, rel=1e-9)
    assert step_size(noise="independent") == pytest.approx(usual * 0.5367, rel=2e-3)
    assert step_size(users=10**5) == 240.0
    assert make_pg_plan(DPPG(users=5000, step_size=7.0), ONCE, BUDGET).config.step_size == 7.0


@pytest.mark.parametrize("horizon", [2, 500])
def test_steps_of_episodes_are_bounded_by_the_noise_whatever_the_horizon(horizon):
    """The bound is that for people who act once; what is released may shorten a step."""
    known = facts(horizon=horizon)
    plan = make_pg_plan(DPPG(users=5000), known, BUDGET)
    error = Correlation("square-root").prefix_error(50)
    assert plan.config.step_size == pytest.approx(2.1 * 5000 / (4.2247 * error * math.sqrt(50)) / 50, rel=2e-3)
    assert plan.config.chooses_step_size
    own = make_pg_plan(DPPG(users=5000, step_size=2.0), known, BUDGET)
    assert own.config.step_size == 2.0
    assert [program_of(p)[0].shape.adaptive for p in (plan, own)] == [True, False]
    steps = [resolve(DPPG(users=10**5, step_size=size), known).steps for size in (None, 2.0)]
    assert steps == [100, 40]


@pytest.mark.parametrize(
    ("known", "options", "most"),
    [
        (facts(), {}, 3.0),
        (ONCE, {"step_size": 2.0}, 3.0),
        (facts(), {"sharpness": 1.0}, 1.0),
        (facts(), {"release": "average"}, 1.0),
        (facts(), {"release": "uniform"}, 1.0),
        (CONTINUOUS, {}, 1.0),
    ],
)
def test_the_last_iterate_of_a_softmax_is_sharpened(known, options, most):
    assert resolve(DPPG(users=1000, **options), known).sharpness == most


def test_no_baseline_no_statistic():
    plan = make_pg_plan(DPPG(users=100, baseline_weight=0.0, scale_weight=0.0), facts(), BUDGET)
    assert isinstance(plan.mechanism, GaussianSum)
    assert plan.mechanism.parts == ((10, 1.0),)


@pytest.mark.parametrize(
    ("known", "options", "weight"),
    [
        (facts(), {}, 0.1),
        (facts(), {"scale_weight": 0.2}, 0.2),
        (facts(), {"step_size": 1.0}, 0.0),
        (facts(), {"sampling": "poisson"}, 0.0),
        (facts(horizon=1), {}, 0.0),
    ],
)
def test_lengths_are_released_where_steps_follow_from_what_is_released(known, options, weight):
    assert resolve(DPPG(users=1000, **options), known).scale_weight == weight


def test_sampled_users_are_composed():
    plan = make_pg_plan(DPPG(users=1000, sampling="poisson", batch=50, steps=2, noise_multiplier=2.0), facts(), BUDGET)
    assert isinstance(plan.mechanism, GaussianSum)
    assert plan.config.noise == "independent"
    assert plan.event == events.poisson_gaussian(0.05, 2.0, 2)
    assert plan.relation == "add or remove one"
    assert plan.epsilon_of_event <= 1.0


def test_the_weight_of_lengths_is_filled_in_anew():
    whole = resolve(DPPG(users=1000), facts())
    assert whole.scale_weight == 0.1
    assert resolve(whole.replace("public: a test", step_size=1.0), facts()).scale_weight == 0.0
    with pytest.raises(DprlError, match="here people act once"):
        resolve(DPPG(users=1000, scale_weight=0.1), ONCE)
