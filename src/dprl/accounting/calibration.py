"""Calibration: find a noise multiplier for a budget that the accountant accepts.

A single or self-composed plain Gaussian has a closed form (Balle and Wang, 2018, "Improving the Gaussian mechanism
for differential privacy", Theorem 8). The closed form gives the starting point, and the PLD decides.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from scipy.special import erfc, erfcx

from dprl.accounting import accountant
from dprl.accounting.budget import Budget
from dprl.accounting.events import DpEvent, Part, to_json
from dprl.accounting.renyi_filter import NO_NOISE_HELPS, smallest_accepted
from dprl.errors import DprlError, require

SMALLEST, LARGEST = 0.2, 1e8
"""Smallest and largest noise multiplier of a search. Below ``SMALLEST`` a single step costs an epsilon above 30, so
``SMALLEST`` is returned instead. Above ``LARGEST`` the noise leaves nothing of any signal."""


def noise_multiplier_for(make_event: Callable[[float], DpEvent], budget: Budget, tolerance: float = 1e-4) -> float:
    """Return the smallest noise multiplier ``x`` for which ``make_event(x)`` stays within ``budget``.

    The accountant has checked the returned value itself: ``epsilon_of(make_event(x), budget.delta)`` is at most
    ``budget.epsilon``.

    The result is kept in the process and under ``$XDG_CACHE_HOME/dprl`` or ``~/.cache/dprl``. A remembered multiplier
    is only a hint: unless one call of :func:`epsilon_of` (which a certificate needs in any case) confirms the
    multiplier, it is computed anew. A cache that cannot be read or written is ignored.

    Args:
        make_event: returns the event for a multiplier; the event's epsilon must fall as the multiplier grows.
        budget: what the event may cost.
        tolerance: relative precision of the multiplier.

    Raises:
        DprlError: no multiplier up to ``LARGEST`` stays within the budget.
    """
    require(1e-7 <= tolerance <= 0.1, "The tolerance of a calibration must lie between 1e-7 and 0.1.")

    def epsilon_at(multiplier: float, coarser: float = 1.0) -> float:
        return accountant.epsilon_of_parts(accountant.parts_of(make_event(multiplier)), float(budget.delta), coarser)

    key = _cache_key(make_event, budget, tolerance)
    remembered = _recall(key)
    # Too much noise would be private but wasteful, so a hint is held to the budget from both sides.
    if remembered is not None and 0.99 * budget.epsilon <= epsilon_at(remembered) <= budget.epsilon:
        _known[key] = remembered  # from now on the same answer, even if another process writes to the folder
        return remembered

    start = _first_guess(make_event, budget)
    found = None
    if all(rate == 1.0 for rate, _, _ in accountant.parts_of(make_event(1.0))):
        # the closed form's answer, moved up by as little as the PLD's own rounding asks for
        near = (start * (1.0 + more) for more in (0.0, 1e-7, 1e-6, 1e-5, 3e-5, 1e-4) if more <= tolerance)
        found = next((multiplier for multiplier in near if epsilon_at(multiplier) <= budget.epsilon), None)
    if found is None:
        slope = _slope(make_event, start)
        if accountant.costly(accountant.parts_of(make_event(start))):
            # a grid sixteen times as coarse costs a sixteenth and misses the answer by little
            start = _search(functools.partial(epsilon_at, coarser=16.0), budget, start, slope, tolerance)
            slope = _slope(make_event, start)
        found = _search(epsilon_at, budget, start, slope, math.log1p(tolerance))
    assert epsilon_at(found) <= budget.epsilon  # the search only returns what was accepted
    _remember(key, found)
    return found


def gaussian_delta(epsilon: float, noise_multiplier: float) -> float:
    """Return the exact delta of one Gaussian release at ``epsilon`` (Balle and Wang, 2018, Theorem 8).

    delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu), with mu = 1 / noise_multiplier.

    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    mu = 1.0 / noise_multiplier
    near = (epsilon / mu - mu / 2.0) / math.sqrt(2.0)
    far = (epsilon / mu + mu / 2.0) / math.sqrt(2.0)
    # exp(eps) erfc(far) = exp(-near^2) erfcx(far): nothing overflows
    return max(0.0, float(0.5 * erfc(near) - 0.5 * math.exp(-near * near) * erfcx(far)))


def gaussian_noise_multiplier(budget: Budget) -> float:
    """Return the smallest noise multiplier of one Gaussian release within ``budget``, rounded to the safe side.

    >>> round(gaussian_noise_multiplier(Budget(1.0, 1e-5)), 4)
    3.7306
    """
    return smallest_accepted(lambda x: gaussian_delta(budget.epsilon, x) <= budget.delta, 1e-9, 1e12)


# --- the search -------------------------------------------------------------------------------------------------


def _mu(parts: tuple[Part, ...]) -> float:
    """Return mu of a composition's Gaussian limit: exact for plain Gaussians (sampled: Bu, Dong, Long and Su, 2020)."""
    total = 0.0
    for rate, multiplier, count in parts:
        sampled = rate**2 * math.expm1(min(1.0 / multiplier**2, 500.0))
        total += count / multiplier**2 if rate == 1.0 else count * sampled
    return math.sqrt(total)


def _first_guess(make_event: Callable[[float], DpEvent], budget: Budget) -> float:
    wanted = 1.0 / gaussian_noise_multiplier(budget)

    def enough(multiplier: float) -> bool:
        return _mu(accountant.parts_of(make_event(multiplier))) <= wanted

    return SMALLEST if enough(SMALLEST) else smallest_accepted(enough, SMALLEST, LARGEST, 1e-9)


def _slope(make_event: Callable[[float], DpEvent], at: float) -> float:
    """Return d log(epsilon) / d log(multiplier) in the Gaussian limit, roughly; it is always negative."""
    here, beyond = _mu(accountant.parts_of(make_event(at))), _mu(accountant.parts_of(make_event(1.05 * at)))
    return min(-0.2, 1.1 * math.log(beyond / here) / math.log(1.05))


class _Point(NamedTuple):
    """Multiplier that was tried: ``y > 0`` asks for too much epsilon, ``y <= 0`` is accepted."""

    multiplier: float
    u: float
    """Logarithm of the multiplier."""
    y: float
    """Logarithm of the ratio of epsilon to the budget's epsilon."""


def _search(
    epsilon_at: Callable[[float], float], budget: Budget, start: float, slope: float, tolerance: float
) -> float:
    """Return the accepted end of a bracket no wider than ``tolerance``, in logarithms, around the smallest multiplier.

    The bracket is found geometrically, then closed in by secants on the log-log curve.
    """
    unsafe: _Point | None = None
    safe: _Point | None = None
    before: _Point | None = None
    multiplier, reach, gap = start, math.log(1.5), math.inf
    for _ in range(200):
        multiplier = min(max(multiplier, SMALLEST), LARGEST)
        epsilon = epsilon_at(multiplier)
        # an epsilon of zero has no logarithm: call it a millionth of the budget
        y = math.log(max(epsilon / budget.epsilon, 1e-6)) if math.isfinite(epsilon) else math.inf
        point = _Point(multiplier, math.log(multiplier), y)
        if y > 0.0:
            unsafe = point
            none = f"No noise multiplier meets epsilon = {budget.epsilon:g} at delta = {budget.delta:g}"
            require(multiplier < LARGEST, f"{none} for this release: {NO_NOISE_HELPS}")
        else:
            safe = point
            if multiplier <= SMALLEST:
                return multiplier
        if before is not None and math.isfinite(before.y) and math.isfinite(y) and before.u != point.u:
            measured = (y - before.y) / (point.u - before.u)
            slope = measured if measured < 0.0 else slope
        estimate = point.u - y / slope if math.isfinite(y) else math.inf
        before = point
        if unsafe is not None and safe is not None:
            width = safe.u - unsafe.u
            if width <= tolerance:
                return safe.multiplier
            multiplier = math.exp(_inside(unsafe, safe, estimate, tolerance, halve=width > 0.5 * gap))
            gap = width
        else:
            # a little beyond the estimate, so that the two ends come to lie around the answer
            step = min(abs(estimate - point.u) + 0.5 * tolerance, reach)
            reach *= 2.0
            multiplier = math.exp(point.u + (step if y > 0.0 else -step))
    raise DprlError("The calibration did not converge: the event does not ask for less epsilon as its noise grows.")


def _inside(unsafe: _Point, safe: _Point, estimate: float, tolerance: float, halve: bool) -> float:
    """Return the next point to try between two ends: near the estimate, or nearer the middle to ``halve`` the gap."""
    low, high = unsafe.u, safe.u
    middle = 0.5 * (low + high)
    if not low < estimate < high:
        if not math.isfinite(unsafe.y):
            return middle
        estimate = low + (high - low) * unsafe.y / (unsafe.y - safe.y)
    if high - estimate <= 0.6 * tolerance:
        return max(high - 0.9 * tolerance, middle if halve else low + 0.1 * (high - low))
    if estimate - low <= 0.6 * tolerance:
        return min(low + 0.9 * tolerance, middle if halve else high - 0.1 * (high - low))
    if halve:
        # the secants crawl along one side: fold the interval towards the estimate
        return 0.5 * (estimate + middle)
    return min(estimate + 0.4 * tolerance, 0.5 * (estimate + high))


# --- the cache --------------------------------------------------------------------------------------------------

_known: dict[str, float] = {}


def _cache_key(make_event: Callable[[float], DpEvent], budget: Budget, tolerance: float) -> str:
    # Three samples of the template tell apart all the ways in which our events depend on one multiplier.
    template = [to_json(make_event(x)) for x in (0.75, 1.0, 3.0)]
    question = [accountant.accountant_name(), template, float(budget.epsilon), float(budget.delta), tolerance]
    text = json.dumps(["dprl.calibration/2", *question], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification asks to ignore a relative path
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "dprl" / "calibration"


def _recall(key: str) -> float | None:
    if key in _known:
        return _known[key]
    try:
        with open(_cache_folder() / f"{key}.json", "rb") as file:
            value = json.loads(file.read(4096))["noise_multiplier"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, RecursionError):
        return None
    good = isinstance(value, float) and SMALLEST <= value <= LARGEST
    return value if good else None


def _remember(key: str, multiplier: float) -> None:
    _known[key] = multiplier
    with suppress(OSError, RuntimeError):
        _cache_folder().mkdir(parents=True, exist_ok=True)
        # a hint that was cut off is no JSON, and is ignored
        (_cache_folder() / f"{key}.json").write_text(json.dumps({"noise_multiplier": multiplier}))
