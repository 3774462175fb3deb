"""What every primal-dual method does around its gradients: start, box, averages, the random iterate, defaults."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.engine.layouts import Block
from dprl.engine.plan import make_stage, program_at
from dprl.engine.program import PublicFacts
from dprl.errors import DprlError
from dprl.evaluation.neural_td import NeuralTD
from dprl.evaluation.plan import program_for
from dprl.evaluation.primal_dual import FUNCTION, PrimalDualConfig, PrimalDualProgram
from dprl.evaluation.private_constant import START, ConstantLSTD, constant_start
from dprl.mechanisms.noise import SeededNoise
from dprl.value_functions.features import make_features

BOUNDS = Bounds(units=500, horizon=20, reward=(0.0, 2.0), observation=((0.0, 1.0),), actions=2)


def facts(features: str = "fourier:3", unit: str = "trajectory", **changes) -> PublicFacts:
    bounds = replace(BOUNDS, **changes)
    return PublicFacts(bounds, make_features(features, bounds.observation), 0.9, 0.3, unit)


def on_noise(program: PrimalDualProgram, seed: int, trials: int):
    """Every iterate ``(trials, T, d)`` and the kept ones where all that is released is noise."""
    (stage,) = program.stages
    mechanism = stage.mechanism

    def one(key):
        noise = SeededNoise(key)

        def body(state, step):
            state = program.update(0, state, mechanism.scaled(mechanism.draw(noise, step)), step)
            return state, (state.theta, state.kept)

        return jax.lax.scan(body, program.init(), jnp.arange(mechanism.steps, dtype=jnp.uint32))[1]

    keys = np.random.default_rng(seed).integers(0, 2**32, (trials, 2), dtype=np.uint32)
    return map(np.asarray, jax.jit(jax.vmap(one))(keys))


@pytest.mark.slow
def test_averages_and_the_random_iterate():
    """Running means are the means; the reservoir ends with each iterate equally often, and with no other."""
    about, trials, steps = facts("columns"), 3000, 6
    of = {}
    for average in ("tail", "all", "last", "random"):
        config = PrimalDualConfig(discount=0.9, steps=steps, start="zero", average=average, sampling_rate=1.0)
        iterates, kept = on_noise(program_at(config, about, 2.0), 5, trials if average == "random" else 2)
        of[average] = iterates, kept[:, -1]
    for average, first in (("tail", 3), ("all", 0), ("last", 5)):
        np.testing.assert_allclose(of[average][1], of[average][0][:, first:].mean(axis=1), rtol=1e-5, atol=1e-7)
    iterates, kept = of["random"]
    chosen = (iterates == kept[:, None]).all(axis=2)
    assert (chosen.sum(axis=1) == 1).all()
    counts = chosen.sum(axis=0)
    assert np.sum((counts - trials / steps) ** 2) / (trials / steps) < chi2.ppf(0.9999, steps - 1)


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_start_of_transitions_is_lstd_on_the_constant(discount: float):
    """Units of one row: an endless and a terminating chain have closed forms, and any log LSTD's."""
    rng, about = np.random.default_rng(0), facts("columns", unit="transition", return_range=(0.0, 40.0))
    about = replace(about, discount=discount)
    level = constant_start(about)
    mechanism = make_stage(level.query(), 1.0).mechanism
    assert isinstance(level, ConstantLSTD)
    assert level.columns == ("states", "next_states", "alive", "raw_reward")
    rho, reward = rng.uniform(0.0, 2.0, 500), rng.uniform(0.0, 2.0, 500)

    def value(ends, reward=reward, rho=rho):
        row = lambda x: jnp.asarray(np.broadcast_to(x, 500)[:, None])  # noqa: E731
        columns = {"rho": row(rho), "weight": row(1.0), "alive": row(1.0 - ends), "raw_reward": row(reward - 1.0)}
        vectors = level.vectors(Block(columns))
        assert float(jnp.linalg.norm(vectors, axis=1).max()) <= 2.0 * level.query().clip_norm
        return 20.0 + 20.0 * float(level.level(jnp.sum(vectors, axis=0), mechanism))

    often = (np.arange(500) % 10 == 0).astype(float)
    assert value(often, 1.5, 1.0) == pytest.approx(1.5 / (1.0 - 0.9 * discount))
    if discount < 1.0:
        assert value(0.0, 1.5, 1.0) == pytest.approx(1.5 / (1.0 - discount))
    going = rho * (1.0 - discount * (1.0 - often))
    assert value(often) == pytest.approx(rho @ reward / going.sum())
    # what noise could do to a handful of rows
    extreme = (level.level(jnp.asarray(x), mechanism) for x in ([1e9, -1e9, -1e9], [-1e9, 1e9, 0.0], [0.0, 0.0, 0.0]))
    assert all(-1.0 <= float(x) <= 1.0 for x in extreme)


def test_a_start_takes_its_share_and_gives_a_constant():
    about = facts("mlp:4")
    config = PrimalDualConfig(discount=0.9, steps=7)
    shapes = config.queries(about)
    assert [s.name for s in shapes] == [START, FUNCTION]
    assert [s.share for s in shapes] == pytest.approx([0.1, 0.9])
    program = program_at(config, about, 2.0)
    assert program.steps == 7
    assert set(program.columns) == {"states", "next_states", "alive", "returns", "start"}
    state = program.finish(0, program.update(0, program.init(), jnp.asarray([0.25 * 500]), 0))
    states = np.random.default_rng(0).random((9, 1))
    np.testing.assert_allclose(about.features.values(np.asarray(state.theta, np.float64), states), 0.25, rtol=1e-6)
    zero = program_at(PrimalDualConfig(discount=0.9, start="zero"), about, 2.0)
    low, high = about.value
    values = about.features.values(np.asarray(zero.init().theta, np.float64), states)
    np.testing.assert_allclose(values, -(low + high) / (high - low), rtol=1e-6)
    # random weights are public: the same for the same seed
    draws = [program_at(PrimalDualConfig(discount=0.9, start="random", seed=s), about, 2.0).init() for s in (1, 1, 2)]
    assert (draws[0].theta == draws[1].theta).all()
    assert not (draws[0].w == draws[2].w).any()
    assert float(jnp.abs(jnp.concatenate([draws[0].theta, draws[0].w])).max()) <= 1.0


def test_steps_stay_in_the_box():
    about = facts("tabular", observation=((0.0, 3.0),))
    for config in (PrimalDualConfig, NeuralTD):
        program = program_at(config(discount=0.9, start="mid-range", primal_step=1e3, steps=5), about, 100.0)
        iterates, _ = on_noise(program, 1, 2)
        assert np.abs(iterates).max() == pytest.approx(0.5)  # one over the root of four states
    free = program_at(
        PrimalDualConfig(discount=0.9, start="mid-range", primal_step=1e3, steps=5, project=False), about, 100.0
    )
    assert np.abs(next(iter(on_noise(free, 1, 2)))).max() > 1.0


def test_defaults_follow_public_facts_and_stop_where_the_noise_takes_over():
    about = facts("mlp:10")
    square = about.features.mean_gradient_square()
    config = PrimalDualConfig(discount=0.9)
    quiet, loud = (program_at(config, about, z).config for z in (0.01, 50.0))
    assert quiet.sampling_rate == pytest.approx(256 / 500)
    assert quiet.clip_norm == pytest.approx(0.021 * math.sqrt(square))
    assert (quiet.primal_step, quiet.dual_step) == pytest.approx((22.0 / square, 0.4 / square))
    # noise of theta after all steps, in coordinates where B has size one
    assert quiet.clip_norm is not None
    assert loud.primal_step is not None
    noise = 50.0 * quiet.clip_norm / 256 * loud.primal_step
    assert noise * math.sqrt(100 * square) == pytest.approx(0.4, rel=0.01)
    assert config.clip(facts("mlp:10", "transition")) == pytest.approx(math.sqrt(square))
    assert PrimalDualConfig(discount=0.9).rate(facts(units=10**6)) == 0.05
    assert PrimalDualConfig(discount=0.9).rate(facts(units=50)) == 1.0
    given = PrimalDualConfig(discount=0.9, primal_step=0.3, average="all")
    resolved = program_at(given, about, 2.0).config
    assert resolved.primal_step == 0.3
    assert resolved.hyper_parameters()["dual_step"]["provenance"].startswith("derived")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dual_step": 0.1}, "dual_step means nothing"),
        ({"start": "random"}, "start = 'random' is for networks"),
    ],
)
def test_refuses(options, words):
    with pytest.raises(DprlError, match=f"^neural-td: {words}"):
        program_for(NeuralTD(discount=0.9, **options), BOUNDS, facts().features, Budget(1.0, 1e-5))


def test_a_transition_has_no_trajectory_to_be_weighted_by():
    with pytest.raises(DprlError, match="weighting = 'transition' means nothing"):
        NeuralTD(discount=0.9, weighting="transition").queries(facts(unit="transition"))
