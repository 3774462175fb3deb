"""A process that answers as people do, against its laws."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl_papers.paper_beyond.figures.river_swim import ProcessEnvironment, lost_by_learning
from dprl_papers.paper_beyond.processes import river_swim


@pytest.mark.slow
def test_people_answer_by_the_laws_of_the_process():
    process = river_swim()
    people = ProcessEnvironment(process)
    keys = jax.random.split(jax.random.key(0), 4000)
    for state, action in ((0, 0), (2, 1), (5, 1)):
        following, reward, over = jax.vmap(lambda key, s=state, a=action: people.step(key, s, a))(keys)
        law = np.bincount(np.asarray(following), minlength=6) / len(keys)
        np.testing.assert_allclose(law, process.following[0, state, action], atol=0.04)
        assert abs(float(reward.mean()) - process.rewards[0, state, action]) < 0.04
        assert not np.asarray(over).any()


@pytest.mark.slow
def test_it_is_learned_where_there_is_hardly_any_noise():
    process = river_swim()
    by_chance = process.value() - process.value(np.full(process.shape, 0.5))
    assert lost_by_learning(process, 2000, Budget(10.0, 1e-5), 0) < 0.25 * by_chance
