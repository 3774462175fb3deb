"""Types that are accepted as a policy. They are protocols, so that no other library is imported for them."""

# ruff: noqa: D102 (members of a protocol say what they are by their names)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from dprl.policies.loading import ColumnPolicy, LoggedPolicy


class Array(Protocol):
    """Array of NumPy, JAX or PyTorch."""

    def __array__(self) -> Any: ...


class ProbabilityModel(Protocol):
    """Classifier of scikit-learn."""

    @property
    def predict_proba(self) -> Any: ...


class ActionModel(Protocol):
    """Policy of d3rlpy, or a classifier without probabilities."""

    @property
    def predict(self) -> Any: ...


OnePolicy: TypeAlias = (
    "str | Path | ColumnPolicy | LoggedPolicy | Callable[[Any], Array] | ProbabilityModel | ActionModel"
)
"""Anything that is accepted as a policy."""
TargetPolicies: TypeAlias = "OnePolicy | Sequence[OnePolicy] | Mapping[str, OnePolicy]"
"""One policy, or several."""
