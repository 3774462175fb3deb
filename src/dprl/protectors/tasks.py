"""Public learning tasks on which a protector is trained: what a family of tasks is, and which families there are."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax

from dprl import entry_points
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.protectors.projector import HandSchedule

Task = Any
"""A pytree of arrays, of the same shapes for every task of a family."""


class TaskFamily(Protocol):
    """Public simulated tasks of one kind: a frozen dataclass of public facts, hashable.

    All parameters that are learned are one vector ``(d,)`` float32, in the units of the algorithm that the protector
    will serve (policy evaluation: theta, then w). Every method is traceable and differentiable by JAX.
    """

    @property
    def name(self) -> str:
        """Name of the family."""
        ...

    @property
    def algorithm(self) -> str:
        """The evaluation algorithm that is simulated, such as ``gpope``; empty where there is none."""
        ...

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        ...

    @property
    def blocks(self) -> tuple[int, ...]:
        """``(d,)`` kind of each parameter: 0, or 1 for dual variables."""
        ...

    @property
    def units(self) -> int:
        """Declared number of privacy units of a task."""
        ...

    @property
    def hand(self) -> HandSchedule:
        """The hand schedule that a protector corrects, tuned on these tasks: clip norm, rate, steps and step sizes."""
        ...

    def sample(self, key: jax.Array) -> Task:
        """Return a task from a public seed."""
        ...

    def initial(self, task: Task) -> jax.Array:
        """Return ``(d,)`` parameters before the first step."""
        ...

    def natural_clip(self, clip_norm: Any) -> Any:
        """Return () clip norm C in the unit of the gradient, from the option ``clip_norm`` of the algorithm served."""
        ...

    def mean_gradient(self, task: Task, parameters: jax.Array, key: jax.Array, clip: Any) -> jax.Array:
        """Return ``(d,)`` float32 sum of clipped unit gradients over a Poisson batch, over ``q m C`` and without noise.

        Here C is the clip norm ``clip``, which may be traced, ``q`` is the hand schedule's rate and m the declared
        number of units. Steps go against this mean, so the gradient in a dual variable carries a minus sign.
        """
        ...

    def project(self, parameters: jax.Array) -> jax.Array:
        """Return the projection onto the public constraint; without a constraint, the parameters themselves."""
        ...

    def loss(self, task: Task, parameters: jax.Array) -> jax.Array:
        """Return () f, the positive loss that a protector should make small."""
        ...

    def reference(self, task: Task) -> jax.Array:
        """Return () positive number by which a task's losses are divided, such as the loss at the start, or 1."""
        ...

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Return the smallest and the largest value of public facts of the tasks, by name.

        Beyond these a protector falls back to its hand schedule. Names are those of
        :func:`dprl.evaluation.protected.protector_facts`.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return plain data for the provenance: the family's parameters and where the data come from."""
        ...


REGISTERED: dict[str, str] = {"policy-evaluation": "dprl.protectors.policy_evaluation:RandomChains"}
"""Name -> ``module:callable``, which is called without arguments for the family with its defaults."""


def find_family(name: str) -> Any:
    """Return the family called ``name`` with its defaults, from dprl or from an installed distribution that adds it."""
    others = entry_points.names(entry_points.TASKS)
    if name in REGISTERED:
        module, _, attribute = REGISTERED[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()
    if name in others:
        return entry_points.load(entry_points.TASKS, name, f"The family {name!r}")()
    raise DprlError(
        f"There are no tasks {name!r} to learn a protector on; there are {', '.join(sorted({*REGISTERED, *others}))}."
    )
