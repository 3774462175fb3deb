"""What a release may be called, and so whether a certificate or a statement is written."""

from __future__ import annotations

from typing import Any

from dprl.registry import is_own


def status_of(plan: Any, secure: bool, simulated: bool) -> str:
    """Return the status of a release: only ``verified`` writes a certificate.

    ``not private`` is what has reproducible noise or shows its data; ``as published`` has a paper's own mechanisms;
    ``unreviewed`` is an algorithm that is none of dprl's, whatever its noise: nobody here has proved what it protects.

    Args:
        plan: with ``config``, ``claim`` and, where it has one, ``program``.
        secure: whether the noise is.
        simulated: whether the data are.
    """
    if not secure or simulated:
        return "not private"
    if plan.claim is not None:
        return "as published"
    return "verified" if is_own(plan.config, getattr(plan, "program", None)) else "unreviewed"
