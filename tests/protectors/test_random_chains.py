"""Random chains: exact moments against every path, logs against the moments."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.protectors import random_chains
from dprl.protectors.random_chains import Chain, draw_chain

HORIZON = 3
# compiled whole: one operation after the other takes several times as long
exact_moments = jax.jit(random_chains.exact_moments, static_argnums=1)
draw_log = jax.jit(random_chains.draw_log, static_argnums=(2, 3))
CHAIN = Chain(
    moves=jnp.asarray([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.0, 0.75, 0.25]], jnp.float32),
    ends=jnp.asarray([0.0, 0.25, 0.5], jnp.float32),
    outcome=jnp.asarray([0.1, 0.5, 0.9], jnp.float32),
    start=jnp.asarray([0.5, 0.25, 0.25], jnp.float32),
)


def by_paths(chain: Chain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The moments, by the definition: every path, its probability, and one over its length for each transition."""
    moves, ends, outcome, start = (np.asarray(x, np.float64) for x in chain)
    visits, onward, reward = np.zeros(3), np.zeros((3, 3)), np.zeros(3)
    for length in range(1, HORIZON + 1):
        for path in itertools.product(range(3), repeat=length):
            alive = start[path[0]] * np.prod([moves[s, n] * (1 - ends[s]) for s, n in itertools.pairwise(path)])
            cut = [(path[-1], n, alive * moves[path[-1], n] * (1 - ends[path[-1]])) for n in range(3)]
            over = alive * ends[path[-1]]
            for s, n in itertools.pairwise(path):
                share = (over + (sum(c[2] for c in cut) if length == HORIZON else 0.0)) / length
                visits[s] += share
                onward[s, n] += share
            visits[path[-1]] += over / length
            reward[path[-1]] += over * outcome[path[-1]] / length
            if length == HORIZON:
                for s, n, probability in cut:
                    visits[s] += probability / length
                    onward[s, n] += probability / length
    return visits, onward, reward


def test_exact_moments_are_those_of_all_paths():
    found = exact_moments(CHAIN, HORIZON)
    for ours, theirs in zip(found, by_paths(CHAIN), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_log_has_the_exact_moments():
    units = 40_000
    log = jax.tree.map(np.asarray, draw_log(jax.random.key(0), CHAIN, units, HORIZON))
    weight = log.alive / log.alive.sum(axis=1, keepdims=True)
    onward, reward = np.zeros((3, 3)), np.zeros(3)
    np.add.at(onward, (log.state, log.following), weight * ~log.ended)
    np.add.at(reward, log.state, weight * log.reward)
    exact = exact_moments(CHAIN, HORIZON)
    # a weight is at most 1 in each of the units
    np.testing.assert_allclose(onward / units, exact.onward, atol=5.0 / np.sqrt(units))
    np.testing.assert_allclose(reward / units, exact.outcome, atol=5.0 / np.sqrt(units))
    assert log.alive[:, 0].all()
    assert not (log.alive[:, 1:] & ~log.alive[:, :-1]).any()
    assert not (log.alive[:, 1:] & log.ended[:, :-1]).any()
    assert not (log.reward.astype(bool) & ~log.ended).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chains", "mdps"])
def test_processes_are_processes_and_differ(kind):
    draw = jax.jit(jax.vmap(lambda key: draw_chain(key, 12, kind)))
    drawn = jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(1), 30)))
    np.testing.assert_allclose(drawn.moves.sum(axis=2), 1.0, atol=1e-5)
    np.testing.assert_allclose(drawn.start.sum(axis=1), 1.0, atol=1e-5)
    for x in drawn:
        assert x.dtype == np.float32
        assert (x >= 0.0).all()
        assert (x <= 1.0 + 1e-6).all()
    assert np.std(drawn.outcome.mean(axis=1)) > 0.1
