"""What a policy-evaluation algorithm sees of a log: per-unit rows of features, ready to be summed and clipped.

Symbols (docs/symbols.md): phi features of s_t, delta_phi = phi(s_t) - gamma phi(s_{t+1}) with terminal features zero,
rho importance ratio, weight of a transition within its unit. Rewards and values are in public units: the value range
[low, high] is mapped to [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dprl import x64 as x64
from dprl.data.trajectories import Trajectories
from dprl.engine.bands import Bands, find_bands
from dprl.engine.row_columns import row_columns
from dprl.engine.thin import Rows as Rows
from dprl.engine.thin import thin
from dprl.engine.unit_blocks import SHARED, Block, SharedBlock
from dprl.engine.unit_blocks import apply as apply
from dprl.engine.unit_blocks import project as project
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import ADDS_ONE_UNIT, Stability
from dprl.protocols import Interval
from dprl.value_functions.features import Features

Weighting = Literal["trajectory", "transition"]
_CHUNK_ROWS = 1 << 13
# XLA rounds sums over very few rows differently; a block never has fewer than this.
LEAST_ROWS = 64


@dataclass(frozen=True)
class SharedTransitions:
    """A log over a finite, public set of transitions; the fast layout for experiments with many trials."""

    phi: Any
    delta_phi: Any
    weight: Any
    weight_rho: Any
    weight_rho_reward: Any
    bands: Bands | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    stability: ClassVar[tuple[Stability, ...]] = ADDS_ONE_UNIT

    @property
    def units(self) -> int:
        return self.weight.shape[0]

    @property
    def size(self) -> int:
        return self.phi.shape[1]

    def block(self, units: Any, state: Any = None) -> SharedBlock:
        """The units with these indices, whatever the state is."""
        del state
        weights = (self.weight[units], self.weight_rho[units], self.weight_rho_reward[units])
        extra = {name: x if name in SHARED else x[units] for name, x in self.extra.items()}
        return SharedBlock(self.phi, self.delta_phi, *weights, bands=self.bands, extra=extra)


jax.tree_util.register_dataclass(
    SharedTransitions,
    data_fields=["phi", "delta_phi", "weight", "weight_rho", "weight_rho_reward", "extra"],
    meta_fields=["bands"],
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PaddedUnits:
    """Every unit's rows padded to one length; simple, for experiments and tests."""

    phi: Any
    delta_phi: Any
    reward: Any
    rho: Any
    weight: Any
    extra: Mapping[str, Any] = field(default_factory=dict)
    stability: ClassVar[tuple[Stability, ...]] = ADDS_ONE_UNIT

    @property
    def units(self) -> int:
        return self.reward.shape[0]

    @property
    def size(self) -> int:
        return self.phi.shape[2]

    def block(self, units: Any, state: Any = None) -> Block:
        """The units with these indices, whatever the state is."""
        del state
        arrays = (self.phi, self.delta_phi, self.reward, self.rho, self.weight)
        return Block(*(x[units] for x in arrays), extra={name: x[units] for name, x in self.extra.items()})


@dataclass(frozen=True)
class UnitRows:
    """A log as flat rows, with the rows of each unit indexed in buckets of similar length; for releases.

    Memory is O(transitions x features): nothing is stored per unit, and padding at most doubles a bucket.

    Attributes:
        phi, delta_phi: ``(N + 1, n)`` float32; the last row is the padding, all zero.
        reward, rho, weight: ``(N + 1,)`` float32.
        buckets: of each bucket the unit numbers ``(U_b,)`` and their row indices ``(U_b, L_b)``.
        units: number of units in the log (private).
        declared: number of units that the curator declares (public).
    """

    phi: Any
    delta_phi: Any
    reward: Any
    rho: Any
    weight: Any
    buckets: tuple[tuple[np.ndarray, np.ndarray], ...]
    units: int
    declared: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    stability: ClassVar[tuple[Stability, ...]] = ADDS_ONE_UNIT

    @property
    def size(self) -> int:
        return self.phi.shape[1]

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What :func:`gather` takes."""
        return self.phi, self.delta_phi, self.reward, self.rho, self.weight, self.extra

    def chunks(self, included: np.ndarray, sampling_rate: float = 1.0) -> Any:
        """Row indices ``(B, L)`` of the included units in blocks of fixed size, and which rows of a block count.

        A block's size follows from the length of its bucket and public facts alone: compiled code of another shape may
        round a unit's sum differently, and nobody's presence may change somebody else's digits. A batch takes as many
        blocks as it needs, the last filled up with units that do not count.
        """
        expected = max(1, round(self.declared * sampling_rate))
        if not included.any():  # the same code runs for nobody as for somebody
            yield np.full((LEAST_ROWS, 1), len(self.reward) - 1, np.int32), np.zeros(LEAST_ROWS, dtype=bool)
        for members, index in self.buckets:
            chosen = index[included[members]]
            length = index.shape[1]
            block = min(1 << (expected - 1).bit_length(), _CHUNK_ROWS // length)
            block = max(block, -(-LEAST_ROWS // length), 1)
            for start in range(0, len(chosen), block):
                part = chosen[start : start + block]
                live = np.zeros(block, dtype=bool)
                live[: len(part)] = True
                if len(part) < block:
                    part = np.concatenate(
                        [part, np.full((block - len(part), length), len(self.reward) - 1, index.dtype)]
                    )
                yield part, live

    def gather(self, index: Any) -> Block:
        return gather(self.arrays, index)


jax.tree_util.register_dataclass(
    UnitRows,
    data_fields=["phi", "delta_phi", "reward", "rho", "weight", "extra"],
    meta_fields=["buckets", "units", "declared"],
)


def gather(arrays: tuple[Any, ...], index: Any) -> Block:
    """The rows ``index`` ``(B, L)`` of :attr:`UnitRows.arrays`."""
    *plain, extra = arrays
    return Block(*(x[index] for x in plain), extra={name: x[index] for name, x in extra.items()})


def scale_of(value: Interval) -> tuple[float, float]:
    """Centre and half-width of the public value range; a range of one point v scales by max(|v|, 1).

    With any scale the noise is calibrated to the same multiplier; this one keeps it of a size that can be read.
    """
    low, high = value
    half = (high - low) / 2.0 if high > low else max(abs(low), 1.0)
    return (low + high) / 2.0, max(half, 1e-12)


def rows_of(
    trajectories: Trajectories,
    ratios: np.ndarray,
    features: Features,
    discount: float,
    value: Interval,
    weighting: Weighting = "trajectory",
    dtype: Any = np.float32,
    columns: Iterable[str] = (),
    most: int | None = None,
) -> Rows:
    """Features, rewards in public units, ratios and weights of every transition.

    The value function is learned as ``V = centre + half * theta' phi``; so that it solves the same Bellman equation
    the reward becomes ``(r - centre (1 - gamma [s' not terminal])) / half``.

    Args:
        trajectories: the log.
        ratios: ``(N,)`` importance ratio of each step, already bounded.
        features: public feature map.
        discount: gamma.
        value: public value range.
        weighting: ``trajectory`` weights a transition by one over the length of its trajectory (paper 004, Eq. 2.2);
            ``transition`` by one over the public horizon. Where the unit is a transition, each counts as one.
        dtype: of the result.
        columns: further ones, see :mod:`~dprl.engine.row_columns`.
        most: rows of a unit that are kept, see :func:`~dprl.engine.thin.thin`; by default all.
    """
    centre, half = scale_of(value)
    lengths = trajectories.lengths()
    episode = trajectories.episode_of()
    alive = trajectories.has_next & ~trajectories.terminated
    usable = trajectories.valid[episode] & (alive | trajectories.terminated)
    per_episode = (
        1.0 / np.maximum(lengths, 1)
        if weighting == "trajectory" or trajectories.unit == "transition"
        else np.full(len(lengths), 1.0 / trajectories.bounds.horizon)
    )
    # a unit with several trajectories counts once: the mean over them
    siblings = np.repeat(np.diff(trajectories.unit_offsets), np.diff(trajectories.unit_offsets))
    weight = np.where(usable, (per_episode / np.maximum(siblings, 1))[episode], 0.0)
    n = len(trajectories.reward)
    phi, delta = (_aligned_zeros((n + 1, features.row_size), dtype) for _ in range(2))
    for start in range(0, n, 1 << 14):
        part = slice(start, min(start + (1 << 14), n))
        phi[part] = features(trajectories.observation[part])
        following = features(trajectories.next_observation[part]) * (discount * alive[part])[:, None]
        delta[part] = phi[part] - following
    reward = (trajectories.reward - centre * (1.0 - discount * alive)) / half
    pad = lambda x: np.append(np.where(usable, x, 0.0), 0.0).astype(dtype)  # noqa: E731
    offsets = trajectories.episode_offsets[trajectories.unit_offsets]
    extra = {
        name: np.concatenate([x, np.zeros((1, *x.shape[1:]))]).astype(dtype)
        for name, x in row_columns(columns, trajectories, ratios, features, discount, (centre, half)).items()
    }
    return thin(Rows(phi, delta, pad(reward), pad(ratios), pad(weight), offsets, extra), most)


def _aligned_zeros(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """Zeros where JAX can use them as they are: it copies what does not start at a multiple of 64 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def unit_rows(rows: Rows, declared: int) -> UnitRows:
    """Index the rows of every unit in buckets whose lengths are within a factor of two.

    ``declared`` is the public number of units, from which the size of a block follows.
    The arrays of ``rows`` may be used without a copy: they must not be changed afterwards.
    """
    lengths = np.diff(rows.offsets)
    padding = len(rows.reward) - 1
    kind = np.int32 if padding < 2**31 - 1 else np.int64
    exponents = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    buckets = []
    for exponent in np.unique(exponents):
        members = np.flatnonzero(exponents == exponent)
        columns = np.arange(1 << exponent)
        index = rows.offsets[members][:, None] + columns
        index = np.where(columns < lengths[members][:, None], index, padding).astype(kind)
        buckets.append((members, index))
    # device_put, unlike asarray, takes aligned memory as it is: the features are there once, not twice
    arrays = [jax.device_put(x) for x in rows[:5]]
    extra = {name: jax.device_put(x) for name, x in rows.extra.items()}
    return UnitRows(*arrays, buckets=tuple(buckets), units=len(lengths), declared=declared, extra=extra)


def padded_units(rows: Rows) -> PaddedUnits:
    """Every unit padded to the longest one."""
    lengths = np.diff(rows.offsets)
    columns = np.arange(max(int(lengths.max(initial=0)), 1))
    index = np.where(columns < lengths[:, None], rows.offsets[:-1, None] + columns, len(rows.reward) - 1)
    extra = {name: jnp.asarray(x[index]) for name, x in rows.extra.items()}
    return PaddedUnits(*(jnp.asarray(x[index]) for x in rows[:5]), extra=extra)


def shared_transitions(
    units: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    rows: Rows,
    transitions: np.ndarray,
    table: np.ndarray,
    discount: float,
    states: np.ndarray | None = None,
) -> SharedTransitions:
    """Rewrite rows over a finite public set of transitions.

    Args:
        units: ``(N,)`` unit of each transition.
        source, target: ``(N,)`` state numbers; ``target`` is -1 for the terminal state.
        rows: the rows themselves (their rewards, ratios and weights are used).
        transitions: ``(K, 2)`` public list of (source, target) pairs that can happen.
        table: ``(S, n)`` features of each state.
        discount: gamma.
        states: ``(S, d)`` the states themselves, for programs that ask for them.
    """
    bands = find_bands(transitions, table, discount)
    if bands is not None:
        transitions = bands.transitions()
    base = len(table) + 1
    code = transitions[:, 0] * base + transitions[:, 1] + 1
    order = np.argsort(code)
    k = order[np.searchsorted(code[order], source * base + target + 1)]
    shape = (len(rows.offsets) - 1, len(transitions))
    flat = units * shape[1] + k
    n = len(units)
    weight, rho, reward = (x[:n].astype(np.float64) for x in (rows.weight, rows.rho, rows.reward))
    columns = {name: x[:n].astype(np.float64) for name, x in rows.extra.items()}
    total = lambda x: np.bincount(flat, x, minlength=shape[0] * shape[1]).reshape(shape)  # noqa: E731
    following = np.where(transitions[:, 1:] >= 0, table[transitions[:, 1]], 0.0)
    phi = table[transitions[:, 0]]
    kind = rows.phi.dtype
    summed = _summed(columns, weight, rho, reward)
    extra = {name: jnp.asarray(total(x), dtype=kind) for name, x in summed.items()}
    if "states" in columns:
        if states is None:
            raise DprlError("A program asks for states, and the finite set of transitions comes without them.")
        ends = transitions[:, 1] < 0
        shared = (states[transitions[:, 0]], np.where(ends[:, None], 0.0, states[transitions[:, 1]]), ~ends)
        extra |= {name: jnp.asarray(x, dtype=kind) for name, x in zip(SHARED, shared, strict=True)}
    return SharedTransitions(
        *(
            jnp.asarray(x, dtype=kind)
            for x in (phi, phi - discount * following, total(weight), total(weight * rho), total(weight * rho * reward))
        ),
        bands=bands,
        extra=extra,
    )


def _summed(
    columns: Mapping[str, np.ndarray], weight: np.ndarray, rho: np.ndarray, reward: np.ndarray
) -> dict[str, np.ndarray]:
    """The row coefficients of :class:`SharedBlock`, before they are summed over the rows of a transition."""
    out = {name: columns[name] for name in ("start", "first") if name in columns}
    if "returns" in columns:
        out |= {f"{name}_return": x * columns["returns"] for name, x in {**out, "weight": weight}.items()}
    if "to_end" in columns:
        out["start_end"], out["weight_end"] = columns["start"] * columns["to_end"], weight * columns["to_end"]
        out["start_early"] = columns["start"] * columns["early"]
    if "raw_reward" in columns:
        out["weight_raw_reward"] = weight * rho * columns["raw_reward"]
    if "first" in columns:
        out |= {"first_rho": columns["first"] * rho, "first_rho_reward": columns["first"] * rho * reward}
    return out
