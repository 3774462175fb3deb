"""The type checker that `make test-all` gives to jaxtyping: shapes in signatures are checked while tests run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype

ARRAYS = ("Array", "ndarray", "Mask")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arrays of a function's signature; what else it says is the type checker's to check."""
    said = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: hint for name, hint in said.items() if any(word in str(hint) for word in ARRAYS)}
    return beartype(function)
