"""Load policies from a name, a Python file, a log's column or a callable, and ask them for probabilities in two ways.

:func:`check_policy` asks on public synthetic states, before anything private is read, and says what is wrong.
:func:`policy_probabilities` asks on private states, where an error in a row only makes that row zero.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprl.bounds import Bounds
from dprl.errors import DprlError, explained
from dprl.policies.given import is_model, model_policy
from dprl.policies.rules import FILE as RULE
from dprl.policies.rules import Rule, read_rule
from dprl.protocols import Policy
from dprl.user_code import load_python, place_in_user_code, quietly, suppress_warnings

TOLERANCE = 1e-6
"""Largest distance of a row's sum from 1, and of its probabilities from those of the same row asked alone."""
SYNTHETIC_STATES = 64
DEFAULT_COLUMN = "target_prob"


@dataclass(frozen=True)
class ColumnPolicy:
    """A column of the log holds the policy's probability of the logged action.

    Such a policy cannot be called.
    """

    name: str = DEFAULT_COLUMN


@dataclass(frozen=True)
class LoggedPolicy:
    """What was done in the log.

    This policy cannot be called. Its importance ratios are one, except where people are censored.

    Attributes:
        steady: whether it is public that nobody is lost from the log, so that all ratios are exactly one.
    """

    steady: bool = False


LOG_ONLY_POLICIES = (ColumnPolicy, LoggedPolicy)
"""Kinds of policies that only the log knows: they cannot be asked for probabilities."""


@dataclass(frozen=True)
class UniformPolicy:
    """Every action with the same probability."""

    actions: int

    def __call__(self, states: Any, /) -> Any:
        """Return the same probability of every action."""
        xp = states.__array_namespace__()
        return xp.full((states.shape[0], self.actions), 1.0 / self.actions, dtype=xp.float64)


@dataclass(frozen=True)
class AlwaysPolicy:
    """Policy that takes the same action in every state, such as an arm of a trial."""

    action: int
    actions: int

    def __call__(self, states: Any, /) -> np.ndarray:
        """Return probability one of that action."""
        return np.tile(np.eye(self.actions)[self.action], (len(states), 1))


def load_policy(spec: Any, actions: int | None = None, names: Sequence[str] | None = None) -> Any:
    """Return the policy that ``spec`` names.

    Args:
        spec: ``uniform``; ``always:ACTION`` for one action everywhere; ``logged`` for what was done in the log;
            ``FILE.py:function`` (the file is executed); ``column`` or ``column:NAME`` for a column of the log; the
            folder of a release that holds a policy, or its file ``policy.safetensors`` or ``policy.json``; a model of
            another library (:mod:`dprl.policies.given`); or a policy itself, which is returned unchanged.
        actions: number of discrete actions, which ``uniform`` and ``always`` need; None where actions are continuous.
        names: names of the actions, which ``always`` accepts besides numbers.

    Raises:
        DprlError: ``spec`` names no policy, or a file cannot be read or executed.
    """
    if _is_released(spec):
        path = Path(str(spec))
        with explained(f"Cannot read the policy {str(path)!r}"):
            ruled = path.name == RULE or (path / RULE).is_file()
        if ruled:
            return read_rule(path)
        from dprl.policies.parametric import read_policy

        return read_policy(path)
    if not isinstance(spec, str):
        if is_model(spec):
            return model_policy(spec, actions, names)
        if isinstance(spec, LOG_ONLY_POLICIES) or callable(spec):
            return spec
        raise DprlError(
            "A policy must be a callable, a model with predict_proba or predict, 'uniform', 'always:ACTION', 'logged', "
            "'FILE.py:function', 'column', 'column:NAME' or the folder of a released policy."
        )
    if spec == "logged":
        return LoggedPolicy()
    kind, named, name = spec.partition(":")
    if spec == "uniform" or kind == "always":
        if actions is None:
            raise DprlError(f"The policy {spec!r} needs discrete actions; give a column of the log instead.")
        if spec == "uniform":
            return UniformPolicy(int(actions))
        action = str(list(names).index(name)) if names and name in names else name
        if not action.isdecimal() or len(action) > 9 or int(action) >= actions:
            called = f"; or always:{', always:'.join(names)}" if names else ""
            raise DprlError(f"The policy {spec!r} names no action: write always:0 to always:{actions - 1}{called}.")
        return AlwaysPolicy(int(action), int(actions))
    if kind == "column":
        if named and not name:
            raise DprlError("The policy 'column:' names no column; write column:NAME.")
        return ColumnPolicy(name or DEFAULT_COLUMN)
    file, _, function = spec.rpartition(":")
    if file.endswith(".py") and function:
        policy = getattr(load_python(Path(file), "policy"), function, None)
        if policy is None:
            raise DprlError(f"The policy file {file!r} has no function {function!r}.")
        if isinstance(policy, list | tuple | Mapping) and not policy:
            raise DprlError(f"{function!r} in the policy file {file!r} is empty: it must hold at least one policy.")
        if not callable(policy):
            raise DprlError(f"{function!r} in the policy file {file!r} is not callable.")
        return policy
    if spec.endswith(".py"):
        raise DprlError(f"The policy {spec!r} names no function; write {spec}:FUNCTION.")
    raise DprlError(
        f"Unknown policy {spec!r}: use uniform, always:ACTION, logged, FILE.py:function, column, column:NAME, or the "
        "folder of a released policy."
    )


def _is_released(spec: object) -> bool:
    """Tell whether a path names a released policy."""
    if not isinstance(spec, str | Path) or str(spec).partition(":")[0] in ("uniform", "always", "column", "logged"):
        return False
    return _is_file(Path(spec)) or os.path.isdir(spec)


def _is_file(path: Path) -> bool:
    """Tell by its name whether a path is that of a released policy's file."""
    return path.suffix == ".safetensors" or path.name == RULE


def policies_in_file(spec: Any) -> dict[str, Any] | None:
    """Return policies by name if ``spec`` is a ``FILE.py:NAME`` of a list or a mapping of policies; else None.

    Policies of a list are called ``NAME_0``, ``NAME_1`` and so on. The file is executed.
    """
    if not isinstance(spec, str) or not spec.rpartition(":")[0].endswith(".py"):
        return None
    file, _, name = spec.rpartition(":")
    found = getattr(load_python(Path(file), "policy"), name, None)
    if isinstance(found, Mapping):
        return {str(key): policy for key, policy in found.items()} or None
    if isinstance(found, list | tuple) and found:
        return {f"{name}_{place}": policy for place, policy in enumerate(found)}
    return None


def policy_name(spec: Any) -> str:
    """Return a policy's short public name: ``uniform``, ``always_2``, or that of its function, column or folder."""
    if _is_released(spec):
        path = Path(str(spec)).resolve()
        name = path.parent.name if _is_file(path) else path.name
        return name if name.isidentifier() else "policy"
    if isinstance(spec, ColumnPolicy):
        return spec.name
    if isinstance(spec, UniformPolicy | LoggedPolicy):
        return "uniform" if isinstance(spec, UniformPolicy) else "logged"
    if isinstance(spec, AlwaysPolicy):
        return f"always_{spec.action}"
    if isinstance(spec, str):
        if spec.startswith("always:"):
            return spec.replace(":", "_")
        return DEFAULT_COLUMN if spec == "column" else spec.rpartition(":")[2]
    name = getattr(spec, "__name__", None) or type(spec).__name__
    return name if name.isidentifier() else "policy"


def policy_words(policy: Any, names: Sequence[str] | None = None) -> str:
    """Return a policy's description of itself: a rule's sentence, or the first paragraph of its docstring.

    ``names`` are the names of the actions, if they have names.
    """
    if isinstance(policy, Rule):
        return policy.words
    if isinstance(policy, AlwaysPolicy):
        return f"{names[policy.action] if names else f'Action {policy.action}'} for everybody."
    documented = policy if inspect.isfunction(policy) else type(policy)
    named = documented is policy or isinstance(policy, UniformPolicy | LoggedPolicy | ColumnPolicy)
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split()) if named else ""


def synthetic_states(bounds: Bounds) -> np.ndarray:
    """Return ``(64, d)`` public states: midpoint, corners (at most 16), and a fixed uniform sample within bounds."""
    low, high = np.array(bounds.state, dtype=np.float64).T
    size = len(low)
    sample = np.random.default_rng(0)  # noqa: TID251 (public)
    if size <= 4:
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=size)))
    else:
        corners = np.vstack([np.zeros(size), np.ones(size), sample.integers(0, 2, (14, size)).astype(np.float64)])
    midpoint = np.full((1, size), 0.5)
    inside = sample.random((SYNTHETIC_STATES - 1 - len(corners), size))
    return low + (high - low) * np.vstack([midpoint, corners, inside])


def check_policy(policy: Any, bounds: Bounds, name: str | None = None) -> None:
    """Ask ``policy`` on public synthetic states, and refuse it if it does not give probabilities row by row.

    Args:
        policy: policy from :func:`load_policy`; a policy that only the log knows is not asked.
        bounds: public bounds of the observation, and the number of actions.
        name: name of the policy in a message.

    Raises:
        DprlError: the policy raised, or its answer has a wrong shape, is no probability, or depends on the other rows.
    """
    if isinstance(policy, LOG_ONLY_POLICIES):
        return
    who = f"The policy {name or policy_name(policy)!r}"
    if bounds.actions is None:
        raise DprlError(f"{who} gives probabilities of discrete actions; with continuous ones use a column of the log.")
    states = synthetic_states(bounds)
    batch = _ask_public(policy, states, who)
    shape = (len(states), bounds.actions)
    if batch.shape != shape:
        raise DprlError(
            f"{who} returned shape {batch.shape} for {shape[0]} public synthetic states; it must return {shape}, "
            "one row a state and one column an action."
        )
    if not np.all(np.isfinite(batch)) or np.any(batch < 0):
        raise DprlError(f"{who} returned negative or non-finite numbers on public synthetic states.")
    if np.any(np.abs(batch.sum(axis=1) - 1.0) > TOLERANCE):
        raise DprlError(f"{who} returned rows that do not sum to 1 within {TOLERANCE:g} on public synthetic states.")
    for i in range(len(states)):
        alone = _ask_public(policy, states[i : i + 1], who)
        if alone.shape != (1, bounds.actions) or not np.all(np.abs(alone[0] - batch[i]) <= TOLERANCE):
            raise DprlError(
                f"{who} answers a state differently alone and among others; it must treat each row by itself, "
                "and the same way each time."
            )


def _ask_public(policy: Policy, states: np.ndarray, who: str) -> np.ndarray:
    try:
        answer = policy(states.copy())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        where = (line := place_in_user_code(error)) and f": {line}"
        raise DprlError(
            f"{who} raised {type(error).__name__} on public synthetic states inside the bounds{where}. "
            f"Call it on an array of shape {states.shape} to see the whole message."
        ) from None
    found = quietly(lambda: np.asarray(answer, dtype=np.float64), None)
    if found is None:
        raise DprlError(f"{who} returned something that is not an array of numbers.")
    return found


def policy_probabilities(policy: Policy, states: np.ndarray, actions: int, batch: int = 65_536) -> np.ndarray:
    """Return ``(N, actions)`` float64 probabilities on private states, without an error or a message for any row.

    A row for which the policy raises, or returns anything but probabilities, is zero. A batch that fails is halved
    until the failing rows are alone, which gives the same result as asking row by row. Warnings are silenced.

    Args:
        policy: a policy that :func:`check_policy` accepted.
        states: ``(N, d)`` states.
        actions: number of actions.
        batch: most rows in one call.
    """
    probabilities = np.zeros((len(states), actions), dtype=np.float64)
    with suppress_warnings():
        pending = [(i, min(i + batch, len(states))) for i in range(0, len(states), batch)]
        while pending:
            start, stop = pending.pop()
            asked = states[start:stop].copy()
            answer = quietly(lambda: np.array(policy(asked), dtype=np.float64), None)  # noqa: B023
            if answer is not None and answer.shape == (stop - start, actions):
                probabilities[start:stop] = answer
            elif stop - start > 1:
                middle = (start + stop) // 2
                pending += [(start, middle), (middle, stop)]
        bad = ~np.all(np.isfinite(probabilities) & (probabilities >= 0), axis=1)
        bad |= ~(np.abs(probabilities.sum(axis=1) - 1.0) <= TOLERANCE)
    probabilities[bad] = 0.0
    return probabilities
