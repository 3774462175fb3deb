"""Paper 003's language model: its layers' gradients against JAX's, its task, its guarantee, and that it learns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from dprl.accounting import accountant
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.ghost_clipping import ghost_sum_of_rows, norms_of
from dprl_papers.paper_003_dp_pg import language
from dprl_papers.paper_003_dp_pg.transformer import Transformer

TINY = Transformer(symbols=7, length=5, width=8, heads=2, blocks=1, inner=6)


def given():
    theta = TINY.start(random.key(0))
    tokens = random.randint(random.key(1), (6, 3, 6), 0, 7)
    return theta + 0.1, tokens, random.normal(random.key(2), (6, 3), jnp.float32)


def gradients(theta, tokens, weights):
    """Return each prompt's gradient by JAX."""

    def objective(theta, tokens, weights):
        return jnp.sum(weights * TINY.log_probs(theta, tokens, 2)[0])

    return jax.jit(jax.vmap(jax.grad(objective), (None, 0, 0)))(theta, tokens, weights)


@pytest.mark.slow
def test_norms_of_every_layer_and_of_all_are_those_of_the_gradients():
    vectors, found = gradients(*given()), jax.jit(lambda *a: TINY.layers_of(*a, 2))(*given())
    ends = np.cumsum([np.prod(shape) for shape in TINY.shapes])
    parts, sizes = np.split(np.asarray(vectors), ends[:-1], axis=1), {"Lookup": 1, "Dense": 2, "Scale": 2}
    assert {type(layer).__name__ for layer in found} == set(sizes)
    for layer in found:
        own = np.concatenate([parts.pop(0) for _ in range(sizes[type(layer).__name__])], axis=1)
        np.testing.assert_allclose(norms_of([layer]), np.linalg.norm(own, axis=1), rtol=2e-5, atol=1e-6)
    assert not parts
    np.testing.assert_allclose(norms_of(found), np.linalg.norm(vectors, axis=1), rtol=1e-5)


def test_the_sum_is_that_of_the_clipped_gradients():
    vectors, found = gradients(*given()), jax.jit(lambda *a: TINY.layers_of(*a, 2))(*given())
    clip, some = float(jnp.median(jnp.linalg.norm(vectors, axis=1))), jnp.arange(6) != 4
    exact = GaussianSum(parts=((TINY.size, clip),), steps=3, batch=6, noise_multiplier=4.0, relation="zero-out")
    total = np.asarray(exact.clipped_sum(vectors, some)) * exact.grid_step
    found = ghost_sum_of_rows(exact.in_float(), found, some)
    np.testing.assert_allclose(found, total, atol=1e-5 * np.abs(total).max())


@pytest.mark.slow
def test_no_token_sees_those_after_it():
    theta, tokens, _ = given()
    later = tokens[0, :, :5].at[:, 3:].set(6)
    first, second = (TINY.run(theta, t)[0][:, :3] for t in (tokens[0, :, :5], later))
    np.testing.assert_allclose(first, second, atol=1e-5)


def words(text):
    return [language.SYMBOLS.index(c) for c in text]


@pytest.mark.slow
def test_a_rule_checks_answers():
    tokens = jnp.array([words(t) for t in ("s2731=1237", "s2731=7321", "c2731=2731", "c2731=1372", "s0010=0001")])
    assert language.is_right(tokens).tolist() == [1, 0, 1, 0, 1]
    assert language.is_right(tokens[None]).shape == (1, 5)
    other = language.answers_to(tokens[:, : language.PROMPT], jnp.zeros(5, bool))
    assert other[:4].tolist() == [words(t) for t in ("7321", "7321", "1372", "1372")]
    prompts = language.prompts_of(random.key(0), 500)
    assert set(np.unique(prompts[:, 0])) == {10, 11}
    assert set(np.unique(prompts[:, -1])) == {12}


def test_a_group_of_equal_rewards_says_nothing():
    weights = language.in_group(jnp.array([[1.0, 1.0], [0.0, 1.0]]))
    assert weights.tolist() == [[0.0, 0.0], [-0.25, 0.25]]


def test_the_guarantee_is_the_accountants_and_the_same_for_any_number_of_prompts():
    multiplier = language.multiplier_of(1.0, 1e-6)
    assert multiplier == pytest.approx(4.22, rel=2e-3)
    for prompts in (512, 8192):
        exact = language.SMALL.mechanism_of(prompts, multiplier)
        assert exact.steps == prompts // language.BATCH
        assert accountant.epsilon_of(exact.event(), 1e-6) <= 1.0


@pytest.mark.slow
def test_it_learns_from_prompts_privately():
    (start,) = language.measured(language.SMALL, language.START, 0, None, 1e-6, 1001, 1)
    assert 0.25 < start < 0.45
    (found,) = language.measured(language.SMALL, language.GRADIENT, 2048, 4.0, 1e-6, 1001, 1)
    assert found > start + 0.2


@pytest.mark.slow
def test_comparisons_lead_to_better_answers():
    (start,) = language.measured(language.SMALL, language.START, 0, None, 1e-6, 1001, 1)
    (found,) = language.measured_favourites(1024, 4.0, 1e-6, 1001, 1)
    assert found > start + 0.1
