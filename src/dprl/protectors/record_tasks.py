"""What families of learning tasks on records share: a batch's clipped mean gradient, and the mean loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dprl.protectors.descent import noise_of, unit_sum
from dprl.protectors.projector import Hand
from dprl.protectors.record_losses import RecordLoss, Records, objective


class RecordTasks:
    """A :class:`~dprl.protectors.tasks.TaskFamily` but for its tasks, which are :class:`Records`."""

    @property
    def algorithm(self) -> str:
        """What a protector of these tasks serves: descents on records, which ``dprl evaluate`` does not run."""
        return "records"

    @property
    def record_loss(self) -> RecordLoss:
        raise NotImplementedError

    @property
    def hand(self) -> Hand:
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        return self.record_loss.dimension

    @property
    def blocks(self) -> tuple[int, ...]:
        return (0,) * self.dimension

    def natural_clip(self, clip_norm: Any) -> Any:
        return clip_norm

    def mean_gradient(self, task: Records, parameters: jax.Array, key: jax.Array, clip: Any) -> jax.Array:
        """``(d,)`` float32 sum of a batch's clipped gradients over ``q n C``, and the penalty's gradient over C."""
        rate, loss, units = self.hand.sampling_rate, self.record_loss, task.y.shape[0]
        mechanism = unit_sum(loss.dimension, rate)
        # a batch of everybody needs no coins
        word = jax.random.bits(key, dtype=jnp.uint32) if rate < 1.0 else 0
        included = mechanism.coins(noise_of(word), 0, units)
        total = mechanism.clipped_sum(loss.gradients(parameters, task) / clip, included)
        return (total / (units * rate) + jax.grad(loss.penalty)(parameters) / clip).astype(jnp.float32)

    def project(self, parameters: jax.Array) -> jax.Array:
        return parameters

    def loss(self, task: Records, parameters: jax.Array) -> jax.Array:
        """The mean over the records, penalty included."""
        return objective(self.record_loss, parameters, task)

    def reference(self, task: Records) -> jax.Array:
        del task
        return jnp.ones((), jnp.float32)
