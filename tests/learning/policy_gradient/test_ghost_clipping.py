"""Users of one step: what ghost clipping is given makes the very vectors that are clipped one by one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.dp_pg import DPPG, resolve
from dprl.learning.policy_gradient.estimator import Trajectory, contribution, ghost_layers
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.ghost_clipping import ghost_sum, ghost_sum_in_float
from dprl.protocols import EnvironmentSpec

USERS = 50


def case(policy: str, weight: float) -> tuple[Any, ...]:
    continuous = "gaussian" in policy
    facts = EnvironmentSpec(
        name="bandit",
        observation=((-1.0, 1.0), (0.0, 2.0)),
        actions=0 if continuous else 3,
        action=((-1.0, 1.0), (-1.0, 1.0)) if continuous else None,
        horizon=1,
        discount=1.0,
        reward_bounds=(-1.0, 1.0),
    )
    config = resolve(DPPG(policy=policy, baseline_weight=weight, step_size=1.0, regularisation=0.0), facts, USERS)
    shape, rates = trainer.shape_of(config, facts), trainer.rates_of(config, facts)
    rng = np.random.default_rng(1)
    actions = rng.standard_normal((USERS, 1, 2)) if continuous else rng.integers(0, 3, (USERS, 1))
    rows = Trajectory(
        rng.uniform(0.0, 1.0, (USERS, 1, 2)).astype(np.float32),
        actions.astype(np.float32 if continuous else np.int32),
        rng.uniform(-1.0, 1.0, (USERS, 1)).astype(np.float32),
        (rng.random(USERS) < 0.9).astype(np.int32),
        np.ones(USERS, bool),
    )
    theta = rng.standard_normal(shape.policy.size).astype(np.float32)
    return shape, rates, theta, np.float32(0.1), rows


@pytest.mark.parametrize(
    ("policy", "weight"),
    [
        ("mlp:5", 0.2),
        pytest.param("softmax", 0.0, marks=pytest.mark.slow),
        pytest.param("mlp:5:gaussian", 0.2, marks=pytest.mark.slow),
    ],
)
def test_layers_make_each_users_vector(policy, weight):
    shape, rates, theta, baseline, rows = case(policy, weight)
    included = rows.length > 0

    @jax.jit
    def each() -> tuple[Any, Any]:
        """Vectors, one by one and by layer."""
        layers, statistics = ghost_layers(shape, rates, theta, baseline, rows)
        found = []
        for layer in layers:
            found.append(jnp.einsum("mo,mi->moi", layer.deltas, layer.inputs).reshape(USERS, -1))
            found += [layer.deltas] if layer.bias else []
        found += [] if statistics is None else [statistics]
        vectors = jax.vmap(contribution, (None, None, None, None, 0))(shape, rates, theta, baseline, rows)
        return vectors, jnp.concatenate(found, axis=1)

    vectors, found = each()
    np.testing.assert_allclose(found, vectors, rtol=2e-5, atol=1e-6)
    # and their sums, about half of which are clipped
    norms = np.linalg.norm(vectors[:, : shape.policy.size], axis=1)
    parts = tuple(zip(shape.parts, (float(np.median(norms)), 0.1), strict=False))
    mechanism = GaussianSum(parts=parts, batch=USERS, noise_multiplier=1.0, relation="zero-out")
    kinds = (mechanism, mechanism.in_float(), mechanism.unclipped())

    @jax.jit
    def sums() -> list[tuple[Any, Any]]:
        layers, statistics = ghost_layers(shape, rates, theta, baseline, rows)
        of = (ghost_sum, ghost_sum_in_float, ghost_sum_in_float)
        ghosts = [make(kind, layers, included, statistics) for make, kind in zip(of, kinds, strict=True)]
        return [(ghost, kind.clipped_sum(vectors, included)) for ghost, kind in zip(ghosts, kinds, strict=True)]

    exact, *floats = sums()
    # on the grid whoever is clipped is clipped a little more
    ghost, wanted = (np.asarray(x) * mechanism.grid_step for x in exact)
    np.testing.assert_allclose(ghost, wanted, atol=4e-3 * mechanism.clip_norm, rtol=4e-3)
    for ghost, wanted in floats:
        np.testing.assert_allclose(ghost, wanted, atol=1e-4, rtol=1e-4)
