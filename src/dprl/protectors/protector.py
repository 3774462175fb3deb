"""A protector as it is carried from public tasks to private data: weights, hand schedule, ranges and provenance.

Paper 002. A protector is public: it must have been learned on public tasks, or its training must have been charged.
Where the public facts are others than those that it was trained for, only its hand schedule is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from dprl.errors import DprlError, explained, require
from dprl.files import write_atomically
from dprl.protectors.projector import (
    LEVELS,
    Architecture,
    HandSchedule,
    ProtectorState,
    UpdateRule,
    init_weights,
    levels_of,
    nearest_level,
)
from dprl.untrusted_files import read_regular, strict_object, tensors_to_bytes
from dprl.user_code import quietly

R = TypeVar("R")

WEIGHTS, FACTS = "protector.safetensors", "protector.json"
_SCHEMA = "dprl.protector/1"
_LARGEST = {WEIGHTS: 2**24, FACTS: 2**18}
_DEEPEST = 8  # levels of tables and lists in each other in a provenance
_LEDGER_ENTRY = re.compile(r"charge [1-9][0-9]* of \S.*")


@dataclass(frozen=True, kw_only=True, eq=False)
class Protector(UpdateRule):
    """A learned protector. Two protectors are equal where all their facts and all their weights are equal.

    Attributes:
        algorithm: the evaluation algorithm that the protector serves; empty for none.
        features: the feature map to whose coordinates the weights belong; empty where any feature map will do.
        ranges: smallest and largest value, by name, of the public facts that the protector was trained for.
        provenance: origin of the protector, as plain data: ``public`` or ``charged``, tasks, seeds, budget, versions.
    """

    algorithm: str = ""
    features: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(value, dtype=np.float32) for name, value in self.weights.items()}
        expected = jax.eval_shape(lambda: init_weights(self.architecture, jax.random.key(0)))
        for name, array in arrays.items():  # a file stores a single number as a list of one
            if name in expected and array.shape == (1,) and expected[name].shape == ():
                arrays[name] = array.reshape(())
        if {n: a.shape for n, a in arrays.items()} != {n: a.shape for n, a in expected.items()}:
            raise DprlError("The protector is damaged: its weights do not fit its architecture.")
        if not all(np.isfinite(a).all() for a in arrays.values()):
            raise DprlError("The protector's weights are not finite numbers: train it again, with smaller steps.")
        object.__setattr__(self, "weights", arrays)
        object.__setattr__(self, "ranges", {n: (float(a), float(b)) for n, (a, b) in self.ranges.items()})

    # --- identity -------------------------------------------------------------------------------------------------

    def _tensors(self) -> bytes:
        return tensors_to_bytes({n: np.asarray(self.weights[n]) for n in sorted(self.weights)}, {"schema": _SCHEMA})

    def _facts(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA,
            "algorithm": self.algorithm,
            "features": self.features,
            "architecture": dataclasses.asdict(self.architecture),
            "hand": dataclasses.asdict(self.hand),
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
            "provenance": dict(self.provenance),
            "weights_digest": hashlib.sha256(self._tensors()).hexdigest(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the facts, which include the SHA-256 of the weights. Certificates name this fingerprint."""
        facts = json.dumps(self._facts(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(facts.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Protector) and self.learned == other.learned and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.learned))

    # --- use ------------------------------------------------------------------------------------------------------

    @cached_property
    def profile(self) -> tuple[float, ...] | None:
        """``(T,)`` noise of the steps over a common scale, at most 8 levels; None without a learned public schedule."""
        if not self.learned or self.architecture.scheduler != "public":
            return None
        steps = self.hand.steps
        # one number for each level, on the host: compiled loops may round equal numbers differently
        levels = np.exp(np.asarray(self.weights["profile"], dtype=np.float64))
        profile = levels[np.arange(steps) * LEVELS // steps]
        return tuple((profile * math.sqrt(float(np.mean(profile**-2.0)))).tolist())

    @cached_property
    def clip_norm(self) -> float:
        """The clip norm, as a value of the option of that name of the algorithm that is served."""
        return self.hand.clip_norm * float(self.clip_factor)

    @property
    def levels(self) -> tuple[float, ...]:
        """Noise levels of the adaptive scheduler; see :func:`levels_of`."""
        return levels_of(self.architecture)

    def reason_not_to_serve(self, facts: Mapping[str, float], features: str = "") -> str | None:
        """Return None where the protector was trained for these public facts; otherwise return why not, in words."""
        if self.features and features != self.features:
            return f"it was trained for the features {self.features}, and there are {features}"
        dimension = self.architecture.dimension
        if dimension is not None and facts.get("dimension", dimension) != dimension:
            return f"it was trained for {dimension} parameters, and there are {facts['dimension']:g}"
        for name, (low, high) in self.ranges.items():
            if name in facts and not low <= facts[name] <= high:
                return f"it was trained for {name} between {low:.4g} and {high:.4g}, and it is {facts[name]:.4g}"
        return None

    def fallback(self) -> Protector:
        """Return this protector with learning switched off, which is its hand schedule."""
        return dataclasses.replace(self, learned=False)

    def check_provenance(self) -> None:
        """Check that the protector was learned on public tasks, or that a ledger was charged for its training."""
        said, charged = self.provenance.get("public"), self.provenance.get("charged")
        if said is not True and not (isinstance(charged, str) and _LEDGER_ENTRY.fullmatch(charged)):
            raise DprlError(
                "The protector does not say that it was trained on public tasks: train it on public tasks, or charge "
                'its training and name the ledger\'s entry in its provenance, such as "charged": "charge 3 of trial".'
            )

    def next_level(self, state: ProtectorState, noise: Any, step: Any) -> tuple[ProtectorState, jax.Array]:
        """Return the next state, and the place in :attr:`levels` of the noise that is chosen for the coming step.

        The protector must be adaptive. Arguments are those of :meth:`propose_noise`, but with the number of the step in
        place of the progress.
        """
        progress = jnp.minimum(jnp.asarray(step, dtype=jnp.float32) / self.hand.steps, 1.0)
        state, ratio = self.propose_noise(state, noise, progress)
        return state, nearest_level(jnp.asarray(self.levels, dtype=jnp.float32), ratio)

    # --- files ----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write ``protector.safetensors`` and ``protector.json`` into a folder, which is made if it does not exist."""
        folder = Path(folder)
        with explained(f"A protector cannot be written into {str(folder)!r}"):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / WEIGHTS, self._tensors())
        write_atomically(folder / FACTS, (json.dumps(self._facts(), indent=2, sort_keys=True) + "\n").encode())
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Protector:
        """Read a protector back from its folder."""
        from safetensors.numpy import load

        folder = Path(folder)
        try:
            raw, text = (read_regular(folder / name, size, links=True) for name, size in _LARGEST.items())
            facts, weights = strict_object(FACTS, text), quietly(lambda: load(raw), None)  # load may panic
            require(weights is not None, "no tensors")
        except DprlError as error:
            raise DprlError(f"Cannot read a protector from {str(folder)!r}: it is missing or damaged.") from error
        damaged = DprlError(f"The protector in {str(folder)!r} is damaged, or of a version that this dprl cannot read.")
        if facts.get("schema") != _SCHEMA:
            raise damaged
        if facts.get("weights_digest") != hashlib.sha256(raw).hexdigest():
            raise DprlError(f"The protector in {str(folder)!r} is damaged: its weights are not what it describes.")
        try:
            provenance = _of_type(dict, facts["provenance"])
            if _depth(provenance) > _DEEPEST:
                raise damaged
            json.dumps(provenance, ensure_ascii=False).encode()  # raises if half a character is in a text
            return cls(
                architecture=_record(Architecture, facts["architecture"]),
                hand=_record(HandSchedule, facts["hand"]),
                weights=weights or {},
                algorithm=_of_type(str, facts["algorithm"]),
                features=_of_type(str, facts["features"]),
                ranges={name: _of_type(tuple[float, float], pair) for name, pair in facts["ranges"].items()},
                provenance=provenance,
            )
        except DprlError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged from error


def _record(kind: type[R], content: Any) -> R:
    """Return ``content`` as the fields of ``kind``, each of its declared type."""
    types = get_type_hints(kind)
    return kind(**{name: _of_type(types[name], value) for name, value in content.items()})


def _of_type(kind: Any, value: Any) -> Any:
    """Return a JSON value if it has the type ``kind``; whole numbers also count as floats, and lists as tuples."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list):
        every = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_of_type(one, x) for one, x in zip(every, value, strict=True))
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if (origin is Literal and value in inner) or (origin is None and type(value) is kind):
        return value
    if type(None) in inner:
        return None if value is None else _of_type(inner[0], value)
    raise TypeError("another type")


def _depth(value: Any) -> int:
    """Return how deeply tables and lists are nested in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
