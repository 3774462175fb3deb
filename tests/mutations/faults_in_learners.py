"""Faults in a policy learned on noisy sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting import verification
from dprl.evaluation.fitted_q import PolicyLearner
from dprl.evaluation.learning_question import LearningQuestion
from dprl.mechanisms import arithmetic
from dprl.release.private_rows import RowsInMemory

from .faults_in_choice import in_both_parts, rows_divided
from .planting import fault, gives, go_on_without_noise

fault("a person teaches advantages and values", "neighbours of advantages", (RowsInMemory, "after_first"))(
    in_both_parts
)
fault("rows teach advantages and not people", "neighbours of advantages", (RowsInMemory, "after_first"))(rows_divided)


fault("a person teaches a rule in strata and values", "neighbours of a rule in strata", (RowsInMemory, "after_first"))(
    in_both_parts
)


@fault("propensities are counted of all people", "neighbours of a rule in strata", (RowsInMemory, "after_first"))
def _(original: Any, rows: Any, noise: Any, journal: Any) -> Any:
    """Of those who teach, too, and not of those who value alone."""
    found, second = original(rows, noise, journal)
    everybody = replace(second, log=rows.log.of_units(np.ones(rows.log.units, bool), second.log.bounds))
    counted = type("Counted", (RowsInMemory,), {"units": property(lambda _: everybody.units)})
    return found, counted(second.plan, second.log, second.policies, second.behavior)


fault("a rule in strata is made of sums without noise", "neighbours of a rule in strata", traced=True)(
    go_on_without_noise
)


@fault("advantages that nobody clips", "neighbours of advantages", (arithmetic, "clip_to_grid"), traced=True)
def _(original: Any, vectors: Any, clip_norm: float, *step: float) -> Any:
    return jnp.trunc(vectors.astype(jnp.float64) / arithmetic.grid_step(clip_norm)).astype(jnp.int64)


fault("advantages without noise", "neighbours of advantages", traced=True)(go_on_without_noise)


@fault(
    "regressions on features that are centred by those of a block of people",
    "neighbours of a learner",
    (PolicyLearner, "_phi"),
)
def _(original: Any, self: Any, states: Any) -> Any:
    found = original(self, states)
    return found - found.mean(axis=0)


fault("draws of a learner that nobody pays for", "costs of a learner", (LearningQuestion, "draws"))(gives(0))


@fault("a learner with noise for twice the epsilon", "costs of a learner", (PolicyLearner, "calibrated"))
def _(original: Any, self: Any, budget: Any) -> Any:
    return original(self, type(budget)(2.0 * budget.epsilon, budget.delta))


fault("a learner's statement that nobody reads", "verifier of a learner", (verification, "_check_choice"))(gives(None))
