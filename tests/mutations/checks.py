"""The checks of what enters the mechanisms and of what is drawn; each drives the library's own machinery.

A check is a function of a :class:`Lab` that raises :class:`Caught`. Without a fault none does. They are quick versions
of what the conformance suite and the statistical tests hold at length.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2, norm

import dprl
from dprl.audits.record_replay import compare
from dprl.mechanisms.arithmetic import grid_step
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise, SeededNoise
from tests.conformance.walks import arrays_of, compute, mechanisms_of

from .lab import (
    FULL,
    POISSON,
    SAMPLING,
    STAGES,
    Lab,
    check,
    flat,
    last_unit,
    require,
    rows_where,
    small_log,
    suite_of,
)

_LEVEL = 1e-6


# --- what enters the mechanisms -------------------------------------------------------------------------------------


def _neighbours(lab: Lab, case: tuple[str, str], first: Any, others: list[Any], unit: str = "trajectory") -> None:
    noise = SecureNoise(bytes(32))
    lab.fresh_outputs(case)
    one = lab.tape(case, first, noise, unit)
    for columns in others:
        problems = compare(one, lab.tape(case, columns, noise, unit)).problems
        require(not problems, f"{case[1]}: {problems[0] if problems else ''}")


def neighbouring_logs(lab: Lab, case: tuple[str, str]) -> None:
    """Record and replay over logs that differ in one unit, which may have broken rows."""
    columns = small_log()
    mine, floats = last_unit(columns), {name: values.astype(np.float64) for name, values in columns.items()}
    broken = {**columns, "reward": np.where(mine, np.nan, floats["reward"])}
    longshot = {**columns, "behavior_prob": np.where(mine, 1e-6, floats["behavior_prob"])}
    _neighbours(lab, case, rows_where(columns, ~mine), [columns, broken, longshot])
    _neighbours(lab, case, rows_where(columns, mine & ~mine), [rows_where(columns, mine)])


for name, case in (
    ("neighbours in full batches", FULL),
    ("neighbours in poisson batches", POISSON),
    ("neighbours in stages", STAGES),
):
    check(partial(neighbouring_logs, case=case), name)


@check
def one_person_is_one_unit(lab: Lab) -> None:
    """Record and replay over logs that differ in one person with several trajectories."""
    columns = small_log()
    ids = np.unique(columns["episode_id"])
    columns["person_id"] = np.searchsorted(ids, columns["episode_id"]) // 3
    columns["reward"] = np.ones(len(columns["t"]))
    mine = columns["person_id"] == columns["person_id"].max()
    for case in (FULL, SAMPLING):
        _neighbours(lab, case, rows_where(columns, ~mine), [columns], "person")


@check
def contributions_add_up(lab: Lab) -> None:
    """What a unit adds to a sum is the same number whoever else is there, and is there at all."""
    for case in (FULL, SAMPLING, STAGES):
        adds_up(lab, case)


def adds_up(lab: Lab, case: tuple[str, str]) -> None:
    columns = small_log()
    lab.fresh_outputs(case)

    def totals(rows: Any) -> list[np.ndarray]:
        tape = lab.tape(case, rows, SecureNoise(bytes(32)))
        return [np.array(e.total, dtype=object) for place in sorted(tape.entries) for e in tape.entries[place]]

    everybody = totals(columns)
    for unit in np.unique(columns["episode_id"])[[0, -1]]:
        mine = columns["episode_id"] == unit
        rest, alone = totals(rows_where(columns, ~mine)), totals(rows_where(columns, mine))
        for whole, others, own in zip(everybody, rest, alone, strict=True):
            require((whole - others).tolist() == own.tolist(), f"{case[1]}: a contribution depends on the others")
            require(any(own), f"{case[1]}: a unit contributes nothing")


@check
def a_vector_is_clipped() -> None:
    """No row of any kind puts more than the clip norm into the sum, in exact integers; a short one is kept."""
    for size in (4, 4096):
        for clip in (0.7, 1.0, 1.3, 3.1):
            mechanism = GaussianSum(parts=((size, clip),), noise_multiplier=1.0)
            step = Fraction(grid_step(clip))
            limit = (Fraction(clip) / step) ** 2
            rows = [np.full(size, scale) for scale in (1e3, 1e150, 1e200, 1e308, np.nan, np.inf)]
            rows.append(np.where(np.arange(size) == 1, -1e9, 0.0))
            rows.append(np.where(np.arange(size) == 1, np.nan, 1e9))
            short = np.linspace(-1.0, 1.0, size) * clip / (2.0 * math.sqrt(size))
            points = mechanism.clipped_sum(jnp.asarray(np.stack([short, np.full(size, np.nan)])), jnp.array([True] * 2))
            require(points.dtype == jnp.int64, "a sum is not made of integers")
            kept = np.asarray(points, dtype=np.float64) * float(step)
            inside = (np.abs(kept) <= np.abs(short)) & (np.abs(kept - short) <= float(step))
            require(inside.all(), "a short vector is not kept")
            everybody = jnp.asarray(np.stack(rows))
            for place in range(len(rows)):
                total = mechanism.clipped_sum(everybody, jnp.arange(len(rows)) == place)
                squared = sum(int(x) ** 2 for x in np.asarray(total).tolist())
                require(squared <= limit, "a clipped vector is longer than the clip norm")


@check
def ratios_are_bounded() -> None:
    """Ratios of a million are cut at the declared bounds, before anything is made of them."""
    columns = small_log()
    columns["behavior_prob"] = np.full(len(columns["t"]), 1e-6)
    for case in (FULL, SAMPLING):
        suite = suite_of(case)
        log = dprl.read_log(columns, bounds=suite.plan(case[1]).bounds).load()
        vectors, units = arrays_of(suite, case[1], log)
        if units is not None:
            largest = float(np.max(np.asarray(units.rho)))
            require(largest <= suite.bounds.max_importance_ratio * (1 + 1e-6), "a ratio exceeds its declared bound")
        longest = float(np.max(np.linalg.norm(np.asarray(vectors), axis=1)))
        clip = mechanisms_of(suite, case[1])["value"].clip_norm
        require(longest <= clip * (1 + 1e-9), "a vector of values exceeds what the bounds allow")


# --- what is drawn ----------------------------------------------------------------------------------------------------


@check
def the_event_is_what_ran(lab: Lab) -> None:
    """Coins, draws and steps that were asked of the noise source, against the event that is accounted for."""
    for case in (POISSON, SAMPLING, STAGES):
        runs_as_declared(lab, case)


def runs_as_declared(lab: Lab, case: tuple[str, str]) -> None:
    suite = suite_of(case)
    lab.fresh_outputs(case)
    calls = lab.tape(case, small_log(), SecureNoise(bytes(32))).calls
    declared, mechanisms = list(flat(suite.plan(case[1]).event)), mechanisms_of(suite, case[1])
    require(len(declared) == len(mechanisms), f"{case[1]}: a mechanism is not in the event")
    for (stream, mechanism), (rate, multiplier, steps) in zip(mechanisms.items(), declared, strict=True):
        coins = [c for c in calls if c[:2] == (f"/{stream}", "coins")]
        draws = [c for c in calls if c[:2] == (f"/{stream}", "gaussian")]
        require([c[2] for c in draws] == list(range(steps)), f"{case[1]}: not one draw for each step of the event")
        require({c[3] for c in draws} == {mechanism.dimension}, f"{case[1]}: a draw of another length")
        require(
            ({c[3] for c in coins} or {1.0}) == {rate} and len(coins) in ((0, steps) if rate == 1.0 else (steps,)),
            f"{case[1]}: the coins do not fall at the rate of the event",
        )
        for *_, std in draws:
            ratio = std * grid_step(mechanism.clip_norm) / mechanism.clip_norm / multiplier
            require(abs(ratio - 1.0) < 1e-9, f"{case[1]}: noise of another scale than the event's")


@check
def noise_is_as_declared(lab: Lab) -> None:
    """Of an empty log nothing is seen but noise: Gaussian, of the event's scale at every step, never the same twice."""
    for case in (POISSON, SAMPLING, STAGES):
        draws_as_declared(lab, case)


def draws_as_declared(lab: Lab, case: tuple[str, str]) -> None:
    empty = rows_where(small_log(), np.zeros(len(small_log()["t"]), dtype=bool))
    suite, drawn, seen = suite_of(case), {}, set()
    declared = list(flat(suite.plan(case[1]).event))
    for run in range(30):
        lab.fresh_outputs(case)
        tape = lab.tape(case, empty, SecureNoise((run + 1).to_bytes(32, "big")))
        for place, ((_, multiplier, _), mechanism) in enumerate(zip(declared, tape.mechanisms, strict=True)):
            for step, entry in enumerate(tape.entries[place]):
                points = entry.released / grid_step(mechanism.clip_norm)
                require(np.array_equal(points, np.round(points)), f"{case[1]}: what is released is not on the grid")
                z = entry.released / (multiplier * mechanism.clip_norm)
                require(float(np.round(z[0], 9)) not in seen, f"{case[1]}: the same noise twice")
                seen.add(float(np.round(z[0], 9)))
                drawn.setdefault((place, step), []).append(z)
    for z in map(np.concatenate, drawn.values()):
        low, high = chi2.ppf([_LEVEL, 1.0 - _LEVEL], len(z))
        require(low <= float(np.sum(z**2)) <= high, f"{case[1]}: noise of another scale than the event's")
    for (_, one), (_, other) in itertools.combinations(drawn.items(), 2):
        size = min(len(one[0]), len(other[0]))
        a, b = (np.concatenate([z[:size] for z in zs]) for zs in (one, other))
        alike = float(np.corrcoef(a, b)[0, 1]) * math.sqrt(len(a))
        require(abs(alike) < norm.isf(_LEVEL), f"{case[1]}: the noise of two draws is correlated")
    together = np.concatenate([np.concatenate(z) for z in drawn.values()])
    low, high = chi2.ppf([_LEVEL, 1.0 - _LEVEL], len(together))
    require(low <= float(np.sum(together**2)) <= high, f"{case[1]}: noise of another scale than the event's")


@check
def coins_are_as_declared() -> None:
    """Batch sizes are binomial at the event's rate, and nobody's coin depends on how many others there are."""
    units, steps = 400, 60
    mechanism = mechanisms_of(suite_of(POISSON), POISSON[1])["value function"]
    rate = list(flat(suite_of(POISSON).plan(POISSON[1]).event))[-1][0]
    for noise in (SecureNoise(bytes(32)), SeededNoise.from_seed(3)):
        sizes = [int(np.sum(np.asarray(mechanism.participation_mask(noise, step, units)))) for step in range(steps)]
        spread = sum((size - rate * units) ** 2 for size in sizes) / (units * rate * (1.0 - rate))
        low, high = chi2.ppf([_LEVEL, 1.0 - _LEVEL], steps)
        require(low <= spread <= high, "batch sizes are not those of Poisson sampling at the event's rate")
    noise = SecureNoise(bytes(32))
    for step in range(4):
        more, fewer = (np.asarray(mechanism.participation_mask(noise, step, n)) for n in (units, units - 1))
        require(np.array_equal(more[:-1], fewer), "a coin depends on how many others there are")


@check
def compiled_and_host_loop_agree() -> None:
    """The compiled loop of experiments and audits gives what the loop of releases gives."""
    suite, noise = suite_of(POISSON), SeededNoise.from_seed(5)
    tape = Lab(Path()).tape(POISSON, small_log(12), noise)
    arrays = arrays_of(suite, POISSON[1], dprl.read_log(small_log(12), bounds=suite.plan(POISSON[1]).bounds).load())
    value, theta = jax.jit(lambda key: compute(suite, POISSON[1], key, arrays))(noise.key)
    for a, b in ((value, tape.entries[0][0].released), (theta, tape.results["theta"])):
        require(np.allclose(a, b, rtol=1e-4, atol=3e-7), "the compiled loop and the host loop differ")
