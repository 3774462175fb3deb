"""Policy-evaluation tasks against GPOPE itself, and grids of hand schedules against the simulation."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.engine.layouts import padded_units
from dprl.engine.loop import run
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.evaluation import gpope
from dprl.evaluation.dptd import DPTD
from dprl.evaluation.plan import program_for
from dprl.mechanisms.noise import SeededNoise
from dprl.protectors import random_chains as chains
from dprl.protectors.meta_training import simulation_of
from dprl.protectors.objective import Training, meta_gradient
from dprl.protectors.policy_evaluation import TUNED_SCHEDULES, RandomChains
from dprl.protectors.projector import init_weights
from dprl.protectors.protector import Protector
from dprl.protectors.simulation import Simulation, unroll
from dprl.value_functions.features import make_features
from dprl_papers.baselines.hand_grid import Grid, GridSearchResult, Point, hand_losses, point_arrays, search
from dprl_papers.paper_002_l2p.protectors import bounds_of, trajectories_of

SMALL = RandomChains(units=20, horizon=4, states=6, features="rbf:3", steps=8, sampling_rate=0.5)

GRID = Grid(step_sizes=(0.1, 0.4, 0.8), clip_norms=(0.1, 0.2), ratios=(1.0, 2.0, 3.0), tails=(0.5, 1.0))


def fields_of(point: Point) -> dict:
    """Return the fields of a family of policy-evaluation tasks for this hand schedule."""
    return {
        "clip_norm": point.clip_norm,
        "step_size": point.step_size,
        "dual_step": point.step_size * point.ratio,
        "offset": point.offset,
        "tail": point.tail,
    }


def rows_for(family: RandomChains, log: chains.Log):
    """The same log on the way of a release."""
    trajectories = trajectories_of(family, log)
    features = make_features(family.features, family.observation)
    ratios = np.ones(len(trajectories.reward))
    return rows_of(trajectories, ratios, features, family.discount, (0.0, 1.0))


def gradients_of(task, theta, w) -> np.ndarray:
    """``(units, 2n)``: [-A_i' w, A_i theta + C_i w - b_i] of every unit, without JAX."""
    A, b, C, theta, w = (np.asarray(x) for x in (task.A, task.b, task.C, theta, w))
    return np.concatenate([-np.einsum("uij,i->uj", A, w), A @ theta + C @ w - b], axis=1)


def test_a_unit_is_what_it_is_for_gpope():
    chain, log = jax.jit(SMALL.simulate)(jax.random.key(3))
    task = jax.jit(SMALL.task_of)(chain, log)
    data = padded_units(rows_for(SMALL, log))
    rng = np.random.default_rng(0)
    theta, w = (jnp.asarray(rng.normal(size=3), jnp.float32) for _ in range(2))
    theirs = jax.jit(gpope.unit_gradients)(theta, w, data.block(slice(None)))
    ours = gradients_of(task, theta, w)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours).min(axis=1).max() > 0.0

    # everybody: the clipped mean, by the definition
    everybody = dataclasses.replace(SMALL, sampling_rate=1.0)
    clip = 0.5 * float(np.median(np.linalg.norm(ours, axis=1)))
    lengths = np.linalg.norm(ours, axis=1, keepdims=True)
    expected = (ours * np.minimum(1.0, clip / lengths) / clip).sum(axis=0) / SMALL.units
    parameters = jnp.concatenate([theta, w])
    found = jax.jit(everybody.mean_gradient)(task, parameters, jax.random.key(0), clip)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # a Poisson batch: the same in the mean, with the spread of its coins
    keys = jax.random.split(jax.random.key(1), 4000)
    many = jax.jit(jax.vmap(lambda key: SMALL.mean_gradient(task, parameters, key, clip)))(keys)
    terms = ours * np.minimum(1.0, clip / lengths) / clip
    spread = np.sqrt((terms**2).sum(axis=0) * 0.5 * 0.5) / (0.5 * SMALL.units)
    np.testing.assert_allclose(np.mean(many, axis=0), expected, atol=5.0 * spread.max() / np.sqrt(4000))
    np.testing.assert_allclose(np.std(many, axis=0), spread, rtol=0.1)


@pytest.mark.slow  # of GPOPE it is fast
def test_a_unit_is_what_it_is_for_dptd():
    """Vectors, clip, start and projection of DPTD's own program under a protector of the family."""
    family = dataclasses.replace(SMALL, serves="dptd", clip_norm=0.3)
    assert family.algorithm == "dptd"
    chain, log = jax.jit(family.simulate)(jax.random.key(3))
    task = jax.jit(family.task_of)(chain, log)
    config = DPTD(discount=family.discount, max_rows_per_unit=None)
    features = make_features(family.features, family.observation)
    program = program_for(config, bounds_of(family), features, Budget(1.0, 1e-3))
    trajectories = trajectories_of(family, log)
    ratios = np.ones(len(trajectories.reward))
    rows = rows_of(trajectories, ratios, features, family.discount, (0.0, 1.0), columns=program.columns)
    block = padded_units(rows).block(slice(None))
    rng = np.random.default_rng(0)
    theta, w = (jnp.asarray(rng.normal(size=3), jnp.float32) for _ in range(2))
    state = program.state_at(jnp.concatenate([theta, w]))
    stage = len(program.stages) - 1
    theirs = np.asarray(jax.jit(lambda state, block: program.contribution(stage, state, block))(state, block))
    ours = gradients_of(task, theta, w)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert family.natural_clip(0.3) == 0.3
    tuned, other = (dataclasses.replace(SMALL, serves=s).tuned(Budget(1.0, 1e-5)) for s in ("dptd", "gpope"))
    assert tuned.natural_clip(tuned.clip_norm) == pytest.approx(other.natural_clip(other.clip_norm))
    # the start, but for its noise: the mean return of everybody as a constant value function
    level = np.asarray(program.start.vectors(block))[:, 0].sum() / family.units
    start = np.asarray(family.initial(task))
    np.testing.assert_allclose(family.table() @ start[:3], level, atol=1e-5)
    assert np.all(start[3:] == 0.0)
    wide = jnp.asarray([3.0, 0.2, -4.0, 0.5, -7.0, 1.0], jnp.float32)
    np.testing.assert_array_equal(family.project(wide), program.project(wide))
    with pytest.raises(DprlError, match="gpope or dptd"):
        RandomChains(serves="lstd")


@pytest.mark.slow
def test_the_error_is_that_of_the_expected_matrices():
    """Of an indicator for each state, where all is solvable: zero at the fixed point, and the start's by hand."""
    family = dataclasses.replace(SMALL, features="tabular", units=4)
    task = jax.jit(family.sample)(jax.random.key(10))  # every state is met
    moments = jax.jit(chains.exact_moments, static_argnums=1)(task.chain, family.horizon)
    visits, onward, outcome = (np.asarray(x, np.float64) for x in moments)
    table = np.sqrt(6.0)
    A = np.diag(visits) - family.discount * onward
    reward = 2.0 * outcome - (visits - family.discount * onward.sum(axis=1))
    solution = np.linalg.solve(A, reward) / table
    parameters = jnp.asarray(np.concatenate([solution, np.zeros(6)]), jnp.float32)
    assert float(family.loss(task, parameters)) < 1e-8
    start = np.sum(reward**2 / visits)
    assert float(family.reference(task)) == pytest.approx(start, rel=1e-3)
    assert float(family.loss(task, family.initial(task))) == pytest.approx(start, rel=1e-3)


@pytest.mark.slow
def test_a_grid_runs_the_simulation():
    simulation = Simulation(family=SMALL, architecture=SMALL.architecture, std=0.2)
    points = [Point(0.4, 4.0, 0.1, None, 0.5), Point(0.1, 1.0, 0.3, 5.0, 0.25)]
    task, key = jax.jit(SMALL.sample)(jax.random.key(2)), jax.random.key(3)
    ours = jax.jit(lambda: hand_losses(simulation, task, key, point_arrays(simulation, points)))()
    for number, point in enumerate(points):
        at = dataclasses.replace(simulation, family=dataclasses.replace(SMALL, **fields_of(point)))
        weights = init_weights(at.architecture, key)
        theirs = jax.jit(lambda at=at, weights=weights: unroll(at, weights, task, key, learned=False).final)()
        assert float(ours[number]) == pytest.approx(float(theirs), rel=1e-5)
        zero = jax.jit(lambda at=at, weights=weights: unroll(at, weights, task, key).final)()
        assert float(zero) == pytest.approx(float(theirs), rel=1e-3)
    found = search(simulation, GRID, tasks=2, repeats=2)
    assert found.losses.shape == (2, 36)
    assert np.isfinite(found.losses).all()
    assert found.losses.mean(axis=0)[GRID.points().index(found.best())] == found.losses.mean(axis=0).min()


def test_the_best_point_of_a_grid_and_its_edges():
    losses = np.full((2, 36), 2.0)
    inner, low, nan = GRID.points().index(Point(0.4, 2.0, 0.2, None, 0.5)), 1, 0
    losses[:, inner], losses[:, low], losses[0, nan] = (1.0, 1.0), (0.1, 2.5), np.nan
    found = GridSearchResult(GRID, losses)
    assert found.best() == GRID.points()[inner]
    assert found.on_edge(found.best()) == ["clip_norm"]
    assert found.best("geometric") == GRID.points()[low]
    assert found.on_edge(GRID.points()[low]) == ["step_size", "ratio", "clip_norm"]


def test_hand_schedules_by_budget():
    assert RandomChains().tuned(Budget(0.1, 1e-5)).step_size == TUNED_SCHEDULES[0.1]["step_size"]
    assert RandomChains().tuned(Budget(2.0, 1e-5)).step_size == TUNED_SCHEDULES[1.0]["step_size"]
    with pytest.raises(DprlError, match="chains or mdps"):
        RandomChains(kind="bandits")
    assert RandomChains(units=3000).tuned(Budget(0.1, 1e-5)).step_size == TUNED_SCHEDULES[1.0]["step_size"]
    said = RandomChains().describe()
    assert said["units"] == 300
    assert said["kind"] == "chains"


@pytest.mark.slow
def test_a_release_under_a_protector_has_the_simulated_distribution(tmp_path):
    """GPOPE's own program on a task's log, exact sums and all, against the simulator: quantiles of the error."""
    budget = Budget(1.0, 1e-5)
    family = RandomChains().tuned(budget)
    chain, log = family.simulate(jax.random.key(7))
    task = family.task_of(chain, log)
    weights = family.begin(family.architecture, 0)
    draw = 0.2 * jax.random.normal(jax.random.key(1), weights["dense"].shape, jnp.float32)
    weights |= {"dense": draw, "start": weights["start"] + 0.05}
    protector = Protector(
        architecture=family.architecture,
        hand=family.hand,
        weights=weights,
        algorithm="gpope",
        ranges=family.ranges(),
        provenance={"public": True},
    )
    protector.save(tmp_path)
    features = make_features(family.features, family.observation)
    config = gpope.GPOPE(discount=family.discount, optimizer=str(tmp_path))
    program = program_for(config, bounds_of(family), features, budget)
    assert program.reason is None  # type: ignore[attr-defined]
    simulation = simulation_of(family, family.architecture, budget)
    mechanism = program.stages[0].mechanism
    assert mechanism.noise_multiplier / (family.sampling_rate * family.units) == pytest.approx(simulation.std, rel=1e-3)
    data = padded_units(rows_for(family, log))
    runs = 200

    def real(words):
        return family.loss(task, run(program, SeededNoise(words), data)[1].astype(jnp.float32)) / family.reference(task)

    words = jax.random.bits(jax.random.key(8), (runs, 2), jnp.uint32)
    ours = np.asarray(jax.jit(lambda k: jax.lax.map(real, k, batch_size=20))(words))
    keys = jax.random.split(jax.random.key(9), runs)
    theirs = np.asarray(jax.jit(jax.vmap(lambda key: unroll(simulation, weights, task, key).final))(keys))
    grid = np.sort(np.concatenate([ours, theirs]))
    distance = np.abs(np.searchsorted(np.sort(ours), grid, "right") - np.searchsorted(np.sort(theirs), grid, "right"))
    # Kolmogorov and Smirnov: 1.95 sqrt(2 / runs) is exceeded once in a thousand
    assert distance.max() / runs < 1.95 * np.sqrt(2.0 / runs)

    # beyond what it was trained for it is its hand schedule
    fewer = dataclasses.replace(bounds_of(family), units=100)
    assert "units" in program_for(config, fewer, features, budget).reason  # type: ignore[attr-defined]


@pytest.mark.slow
def test_meta_gradients_of_single_tasks_add_up_and_are_clipped():
    simulation = Simulation(family=SMALL, architecture=SMALL.architecture, std=0.2)
    weights = init_weights(SMALL.architecture, jax.random.key(0))
    plain = Training(tasks=3, repeats=1, objective="both", penalty=2.0)
    arguments = (weights, (jnp.float32(0), jnp.float32(1)), jax.random.key(1), jnp.float32(1))
    expected, _ = meta_gradient(simulation, plain, *arguments)
    found, _ = meta_gradient(simulation, dataclasses.replace(plain, task_clip=1e6), *arguments)
    for name, g in expected.items():
        np.testing.assert_allclose(found[name], g, atol=1e-5 * (1.0 + float(jnp.max(jnp.abs(g)))))
    clipped, _ = meta_gradient(simulation, dataclasses.replace(plain, task_clip=1e-3), *arguments)
    norm = float(jnp.sqrt(sum(jnp.sum(g * g) for g in clipped.values())))
    # no task's gradient is as short
    assert 1e-4 < norm <= 1e-3 * (1 + 1e-5)
