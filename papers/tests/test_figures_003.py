from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl_papers.harness.programmed import Run
from dprl_papers.harness.store import Store
from dprl_papers.paper_003_dp_pg import fosp, regret, returns
from dprl_papers.paper_003_dp_pg.figures import noise, slopes, theorem1, users


@pytest.mark.slow
def test_value_of_a_tabular_bandit_is_that_of_its_own_steps():
    bandit = fosp.bandit_of(3, 4)
    theta = jnp.asarray(np.random.default_rng(0).normal(size=12), jnp.float32)
    policy, keys = bandit.policy, jax.random.split(jax.random.key(0), 40_000)

    def one(key):
        a, b, c = jax.random.split(key, 3)
        state = bandit.reset(a)
        action = policy.draw(theta, bandit.observe(state)[None], policy.coins(c, (1,)))[0]
        return bandit.step(b, state, action)[1]

    paid = np.asarray(jax.jit(jax.vmap(one))(keys))
    assert set(np.unique(paid)) == {-1.0, 1.0}
    assert abs(paid.mean() - float(bandit.value(theta))) < 4 / np.sqrt(len(paid))
    sharp = jnp.asarray(1e6 * np.array(bandit.means).T.reshape(-1))
    assert float(bandit.value(sharp)) == pytest.approx(bandit.best, abs=1e-6)
    assert bandit.best - float(bandit.value(jnp.zeros(12))) == pytest.approx(bandit.gap, abs=1e-9)


@pytest.mark.slow
def test_squared_gradients_fall_with_users_and_begin_where_they_must():
    bandit = fosp.bandit_of(1, 2)
    setting = fosp.Setting(users=4096, epsilon=None, delta=1e-6, factor=10.0)
    squares, regrets, last = fosp.measured(bandit, setting, 0, 2)
    start = float(np.sum(np.asarray(jax.jit(jax.grad(bandit.value))(jnp.zeros(2))) ** 2))
    assert squares.max() < 0.2 * start
    assert np.all((last < regrets) & (regrets < bandit.gap))
    one = fosp.Setting(users=8, epsilon=None, delta=1e-6, factor=1e-9, batch=8)
    found = fosp.measured(bandit, one, 0, 1)
    np.testing.assert_allclose(found, [[start], [bandit.gap], [bandit.gap]], rtol=1e-5)
    assert fosp.slope([1, 10, 100], [1.0, 0.1, 0.01], 3) == pytest.approx(-1.0)


def test_value_of_the_gaussians_problem_is_an_integral():
    bandit = regret.TargetBandit(0.5)
    theta = np.array([0.1, 0.4])
    draws = np.random.default_rng(0).normal(size=200_000)
    total = 0.0
    for state in range(regret.SIDE):
        seen = float(bandit.observe(jnp.int32(state))[0])
        actions = theta[0] + theta[1] * seen + regret.STD * draws
        total += float(jnp.mean(jax.vmap(lambda a, s=state: bandit.step(None, s, a[None])[1])(jnp.asarray(actions))))
    assert float(bandit.value(theta)) == pytest.approx(total / regret.SIDE, abs=2e-3)
    best = np.array([0.0, 0.3 / 0.5])
    assert float(bandit.value(best)) == pytest.approx(bandit.best, abs=1e-9)
    x = 0.5 * np.linspace(-1, 1, regret.SIDE)
    phi = np.stack([np.ones_like(x), x])
    assert bandit.fisher == pytest.approx(np.linalg.eigvalsh(phi @ phi.T / len(x) / regret.STD**2)[0])


def test_theorem_1_is_put_to_the_test(tmp_path):
    found = theorem1.draw(Run(epsilon=(0.5, 1.0), delta=1e-6, store=Store(tmp_path / "r", "003")))
    assert [c["verdict"] for c in found["claims"]] == ["does not hold", "holds"]
    assert theorem1.epsilon_of_gaussian(4.2247, 1e-6) == pytest.approx(1.0, abs=1e-3)


def test_prefix_errors_are_measured_as_drawn():
    assert noise.prefix_ratio("independent", 30, 1) == 1.0
    assert 0.3 < noise.prefix_ratio("square-root", 100, 2) < 0.35


def test_seeds_are_kept_in_pairs(tmp_path, monkeypatch):
    """More trials keep the seeds that are there."""
    asked = []

    def measure(point, first, count):
        asked.append((first, count))
        return np.arange(first, first + count)

    monkeypatch.setattr(returns, "measure", functools.wraps(returns.measure)(measure))
    run = Run(trials=5, store=Store(tmp_path / "r", "003"))
    point = returns.point("bandit", 2000, 1.0)
    assert returns.measured(run, point, 2).tolist() == [0, 1]
    assert returns.measured(run, point).tolist() == [0, 1, 2, 3, 4]
    assert asked == [(0, 2), (2, 2), (4, 1)]


@pytest.mark.slow
def test_a_bandit_is_learned_and_privacy_costs_something():
    free, private, noisy = (
        returns.measure(returns.point("bandit", 2000, epsilon), 0, 2) for epsilon in (None, 4.0, 0.2)
    )
    assert free.shape == (2,)
    assert free.mean() > 0.85
    assert free.mean() > private.mean() > noisy.mean() > -0.5
    published = returns.measure(returns.Point(problem="bandit", users=2000, epsilon=1.0, published=True), 0, 1)
    assert published[0] < 0.6


@pytest.mark.slow
def test_cart_pole_is_solved_at_the_settings_that_are_asked_for():
    for people, epsilon, policy in users.ASKED:
        found = returns.measure(returns.point("cart-pole", people, epsilon, policy=policy), 0, 10)
        assert found.min() >= returns.SOLVED, (people, epsilon, policy)


@pytest.mark.slow
def test_the_bandit_reaches_what_is_asked_for():
    for people, epsilon, least in ((10_000, 1.0, 0.97), (100_000, 0.5, 0.99)):
        assert returns.measure(returns.point("bandit", people, epsilon), 0, 10).mean() >= least


def test_treatment_is_fitted_on_half_of_the_patients():
    pytest.importorskip("lifelines")
    from dprl_papers.paper_003_dp_pg.treatment import TreatmentBandit, fitted

    known, bandit = fitted(), TreatmentBandit()
    assert 900 < len(known["contexts"]) < 1200
    assert np.abs(known["contexts"]).max() <= 3.0
    contexts = np.asarray(jax.jit(jax.vmap(bandit.reset))(jax.random.split(jax.random.key(0), 2000)))
    means = np.asarray(jax.jit(bandit.mean_rewards)(contexts))
    low, high = bandit.reward_bounds
    assert low < means.min() < means.max() < high
    assert np.argmax(means.mean(0)) == 1  # zidovudine and didanosine, as the trial found


def test_users_needed_are_read_off_between_the_numbers_that_ran(monkeypatch):
    """Where the regret is a power of N, exactly; what needs more users than ran is left out."""
    law = lambda run, bandit, n, epsilon, alpha: np.array([10.0 * bandit.states * bandit.actions / n**0.5])  # noqa: E731
    monkeypatch.setattr(slopes, "_softmax", law)
    found = slopes._users_over_size(None, "more states", ((1, 4), (2, 4), (4, 4), (8, 4)))  # type: ignore[arg-type]
    assert {d: float(n[0]) for d, n in found.found.items()} == pytest.approx({d: (25.0 * d) ** 2 for d in (4, 8, 16)})
    assert found.slope == pytest.approx(2.0)


@pytest.mark.parametrize(("states", "actions", "barrier"), [(1, 2, 0.4), (2, 3, 0.05), (4, 4, 0.4)])
def test_near_a_stationary_point_the_regret_is_within_proposition_1s_bound(states, actions, barrier):
    """By exact gradient ascent of J_lambda from random starts."""
    bandit, d = fosp.bandit_of(states, actions), states * actions

    def step(theta, _):
        barred = lambda x: bandit.value(x) + barrier * jnp.mean(jax.nn.log_softmax(x.reshape(actions, states), axis=0))  # noqa: E731
        gradient = jax.grad(barred)(theta)
        near = jnp.linalg.norm(gradient) <= barrier / (2.0 * d)
        return theta + states * gradient, jnp.where(near, bandit.best - bandit.value(theta), -1.0)

    starts = 3.0 * jax.random.normal(jax.random.key(0), (3, d), jnp.float64)
    found = jax.jit(jax.vmap(lambda x: jax.lax.scan(step, x, length=5000)[1]))(starts)
    assert 0.0 < float(jnp.max(found)) <= 2.0 * barrier
    assert int(jnp.sum(found >= 0.0, axis=1).min()) > 100  # the condition is met
