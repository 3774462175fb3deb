"""Empirical lower bounds on epsilon from the scores of an attack on two neighbouring datasets.

An attack gives each run a score, larger where the run looks as if it was made on D' (with the canary) rather than D.
For every event E an (epsilon, delta) mechanism satisfies P'(E) <= exp(epsilon) P(E) + delta, in both directions.
Clopper-Pearson intervals on both probabilities turn counts into a bound that holds with the stated confidence.
The threshold is chosen on separate trials, so that the choice costs no confidence (Jagielski, Ullman, Oprea 2020; Nasr
et al. 2021). Where scores are Gaussian, a bound on mu (Dong, Roth, Su 2022) is tighter by far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dprl.errors import require
from dprl.protocols import Canary, Precondition
from dprl.report.pages import HasPage, audit_page

Direction = Literal["at or above", "below"]
_CANDIDATES = 2000


@dataclass(frozen=True)
class LowerBound:
    """Lower bound on epsilon that the counts prove.

    Attributes:
        epsilon_lower: the bound. With probability ``confidence`` over the trials, the mechanism's epsilon at ``delta``
            is at least this large.
        threshold, direction: the event, ``score >= threshold`` or ``score < threshold``.
        hits, false_alarms: how often the event happened on the dataset that makes it likely, and on the other one.
        trials: held-out trials of each dataset that were counted.
        selection_trials: trials of each dataset on which the event was chosen.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    threshold: float
    direction: Direction
    hits: int
    false_alarms: int
    trials: int
    selection_trials: int


@dataclass(frozen=True)
class GaussianLowerBound:
    """Lower bounds on mu and on the epsilon of mu-GDP at ``delta``, for scores that are Gaussian with one variance."""

    mu_lower: float
    mu_estimate: float
    epsilon_lower: float
    delta: float
    confidence: float
    trials: int


@dataclass(frozen=True)
class Audit(HasPage):
    """An attack's result beside the claim.

    Attributes:
        bound: lower bound from counts only.
        gaussian: the tighter bound, where the canary's scores are Gaussian.
        description: the pair that was attacked and what was seen of it.
        seconds: wall time of the attack.
        preconditions: preconditions of the theorem behind the claim, where the claim rests on a theorem.
    """

    claimed_epsilon: float
    delta: float
    bound: LowerBound
    gaussian: GaussianLowerBound | None
    description: str = ""
    seconds: float = 0.0
    preconditions: tuple[Precondition, ...] = ()

    @property
    def epsilon_lower(self) -> float:
        """The bound that assumes nothing."""
        return self.bound.epsilon_lower

    @property
    def violated(self) -> bool:
        """Whether either bound disproves the claim."""
        largest = max(self.bound.epsilon_lower, self.gaussian.epsilon_lower if self.gaussian else 0.0)
        return largest > self.claimed_epsilon

    @property
    def verdict(self) -> str:
        """``violated`` or ``not violated``. The latter is no proof of the claim."""
        return "violated" if self.violated else "not violated"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for ``--json``."""
        gaussian = self.gaussian and {
            name: getattr(self.gaussian, name) for name in ("epsilon_lower", "mu_lower", "mu_estimate")
        }
        counts = ("confidence", "selection_trials", "hits", "false_alarms")
        return {
            "epsilon_lower": self.epsilon_lower,
            "claimed_epsilon": self.claimed_epsilon,
            "delta": self.delta,
            "trials": self.bound.trials,
            "verdict": self.verdict,
            **{name: getattr(self.bound, name) for name in counts},
            "gaussian": gaussian,
            "preconditions": [asdict(condition) for condition in self.preconditions],
            "description": self.description,
            "seconds": round(self.seconds, 2),
        }

    def _page(self) -> str:
        return audit_page(self.as_dict())


def run_attack(
    canary: Canary,
    *,
    trials: int,
    seed: int = 0,
    confidence: float = 0.95,
    selection_trials: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Run a canary's attack and bound epsilon from below.

    Args:
        trials: held-out runs on each dataset.
        seed: seed of all noise.
        confidence: probability with which each bound holds.
        selection_trials: further runs on each dataset, on which the event is chosen (default: a quarter of
            ``trials``).
        progress: called with the number of runs done so far, out of ``2 (trials + selection_trials)``.
    """
    require(trials >= 1, "An audit needs at least 1 trial.")
    chosen = max(trials // 4, 1) if selection_trials is None else selection_trials
    started, runs = time.perf_counter(), chosen + trials
    further = progress and (lambda done: progress(runs + done))
    absent, present = canary.scores(seed, runs, False, progress), canary.scores(seed, runs, True, further)
    split = (absent[:chosen], present[:chosen]), (absent[chosen:], present[chosen:])
    bound = epsilon_lower_bound(*split, delta=canary.delta, confidence=confidence)
    gdp = gaussian_lower_bound(*split[1], delta=canary.delta, confidence=confidence) if canary.gaussian else None
    seconds = time.perf_counter() - started
    return Audit(canary.epsilon, canary.delta, bound, gdp, canary.description, seconds, canary.preconditions)


def epsilon_lower_bound(
    selection: tuple[Any, Any], held_out: tuple[Any, Any], *, delta: float, confidence: float = 0.95
) -> LowerBound:
    """Return the Clopper-Pearson lower bound on epsilon; threshold and direction are chosen on ``selection`` only.

    Args:
        selection: scores ``(n,)`` on D and on D' (larger: more like D').
        held_out: scores of other runs, which are counted.
        delta: the delta at which epsilon is bounded.
        confidence: level of the bound. Each of the two intervals is two-sided at this level, so that the two ends that
            are used hold together.
    """
    sound = 0.0 <= delta < 1.0 and 0.0 < confidence < 1.0
    require(sound, "An audit needs delta in [0, 1) and a confidence between 0 and 1.")
    absent, present = (_scores(s) for s in held_out)
    trials = min(len(absent), len(present))
    threshold, direction = _choose(_scores(selection[0]), _scores(selection[1]), trials, delta, confidence)
    above = direction == "at or above"
    arms = (present, absent) if above else (absent, present)
    hits, false_alarms = (int(np.sum((scores >= threshold) == above)) for scores in arms)
    likely = clopper_pearson(hits, len(arms[0]), confidence)[0]
    unlikely = clopper_pearson(false_alarms, len(arms[1]), confidence)[1]
    epsilon = float(_epsilon(likely, unlikely, delta))
    chosen = len(selection[0])
    return LowerBound(epsilon, delta, confidence, threshold, direction, hits, false_alarms, trials, chosen)


def clopper_pearson(successes: Any, trials: int, confidence: float) -> tuple[Any, Any]:
    """Return the two-sided exact interval for a probability, elementwise (Clopper and Pearson, 1934)."""
    from scipy.special import betaincinv

    tail = (1.0 - confidence) / 2.0
    k = np.asarray(successes, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - np.maximum(k, 1) + 1, tail), 0.0)
    inside = np.minimum(k, trials - 1)
    high = np.where(k < trials, betaincinv(inside + 1, trials - inside, 1.0 - tail), 1.0)
    return low, high


def gaussian_lower_bound(absent: Any, present: Any, *, delta: float, confidence: float = 0.95) -> GaussianLowerBound:
    """Return a lower bound on mu from Gaussian scores of one variance, and the epsilon of mu-GDP at ``delta``.

    The t statistic of the two samples is noncentral t with noncentrality mu sqrt(n n' / (n + n')); its quantile at
    (1 + confidence) / 2 is inverted for mu. Valid only where the scores are Gaussian.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, norm

    a, b = _scores(absent), _scores(present)
    freedom = len(a) + len(b) - 2
    require(freedom >= 10, "A Gaussian bound needs at least 12 trials.")
    spread = math.sqrt((np.var(a) * len(a) + np.var(b) * len(b)) / freedom)
    require(spread > 0.0, "A Gaussian bound needs scores that vary.")
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    estimate = float(np.mean(b) - np.mean(a)) / spread
    tail = (1.0 - confidence) / 2.0
    # beyond some thousand degrees of freedom the normal approximation of the noncentral t is exact enough
    reach = float(norm.isf(tail)) * math.sqrt(1.0 / root**2 + estimate**2 / (2.0 * freedom))
    lower = estimate - reach
    if freedom < 5000:
        with np.errstate(all="ignore"):
            lower = brentq(
                lambda mu: float(nct.sf(estimate * root, freedom, mu * root)) - tail, lower - reach, estimate
            )
    lower = max(float(lower), 0.0)  # type: ignore[arg-type]
    return GaussianLowerBound(lower, estimate, gaussian_epsilon(lower, delta), delta, confidence, min(len(a), len(b)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of mu-GDP at ``delta``, exactly (Balle and Wang, 2018).

    >>> round(gaussian_epsilon(1.0, 1e-5), 3)
    4.377
    """
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(1.0 / mu, delta)) if mu > 0.0 else 0.0


def _scores(values: Any) -> np.ndarray:
    out = np.asarray(values, dtype=np.float64).ravel()
    sound = len(out) and not np.isnan(out).any()
    require(sound, "The scores of an audit must be numbers, at least one for each dataset.")
    return out


def _epsilon(likely: Any, unlikely: Any, delta: float) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(np.log(np.maximum(likely - delta, 0.0)) - np.log(unlikely), 0.0)


def _choose(
    absent: np.ndarray, present: np.ndarray, held_out: int, delta: float, confidence: float
) -> tuple[float, Direction]:
    """Return the event that promises the best bound on ``held_out`` further trials, judged by the scores given."""
    pooled = np.unique(np.concatenate([absent, present]))
    if len(pooled) > _CANDIDATES:
        # evenly spaced ranks in the middle, dense ranks at both ends: the best event is often a rare one
        ranks = np.linspace(0, len(pooled) - 1, _CANDIDATES // 2).astype(int)
        tail = np.unique(np.geomspace(1, len(pooled), _CANDIDATES // 4).astype(int)) - 1
        pooled = pooled[np.unique(np.concatenate([ranks, tail, len(pooled) - 1 - tail]))]
    counted = tuple(len(x) - np.searchsorted(np.sort(x), pooled, side="left") for x in (absent, present))
    smooth = _smoothed(pooled, counted)
    # a row per direction: the number of runs on the dataset that makes the event likely; in reverse, on the other one
    sizes = np.array([[len(present)], [len(absent)]])

    def best(above: tuple[np.ndarray, ...], caution: float) -> tuple[int, Direction]:
        likely, unlikely = np.stack([above[1], len(absent) - above[0]]), np.stack([above[0], len(present) - above[1]])
        # add standard errors to the rare count, for otherwise the luckiest of many events would be chosen
        rare = np.minimum((unlikely + caution * np.sqrt(np.maximum(unlikely, 0.0)) + caution) / sizes[::-1], 1.0)
        expected, rare = likely / sizes * held_out, rare * held_out
        low = clopper_pearson(expected, held_out, confidence)[0]
        epsilon = _epsilon(low, clopper_pearson(rare, held_out, confidence)[1], delta)
        # subtract a standard error of the held-out bound: the bound is a little lower on average, but varies less
        promised = epsilon - np.sqrt(1.0 / np.maximum(expected, 1.0) + 1.0 / np.maximum(rare, 1.0))
        side, place = np.unravel_index(promised.argmax(), promised.shape)
        return int(place), "below" if side else "at or above"

    place, direction = best(counted, 2.0)
    if smooth is not None:
        other, side = best(smooth, 0.5)
        # prefer the smoothed choice where the counts do not contradict the curve
        if all(
            abs(c[other] - m[other]) <= 4.0 * math.sqrt(m[other]) + 4.0 for c, m in zip(counted, smooth, strict=True)
        ):
            place, direction = other, side
    return float(pooled[place]), direction


@np.errstate(all="ignore")
def _smoothed(pooled: np.ndarray, above: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...] | None:
    """Return counts at or above each of ``pooled``, with the densities' ratio smoothed; None where that fails.

    Logistic regression fits the log-ratio as a quadratic in the score, so that a rare event is judged by all trials and
    not by the few that fell into it. Where scores are log-likelihood ratios, the log-ratio is the score itself.
    """
    cells = [a - np.append(a[1:], 0) for a in above]
    both = cells[0] + cells[1]
    finite = pooled[np.isfinite(pooled)]
    if len(finite) < 8:
        return None
    x = np.clip(pooled, finite[0], finite[-1])
    # a cell's scores lie between this candidate and the next
    x = (x + np.append(x[1:], x[-1])) / 2.0
    centre = np.average(x, weights=both)
    scale = math.sqrt(np.average((x - centre) ** 2, weights=both))
    if not 0.0 < scale < math.inf:  # all alike, or so far apart that their squares overflow
        return None
    z = (x - centre) / scale
    design, weights = np.stack([np.ones_like(z), z, z * z], axis=1), np.zeros(3)
    for _ in range(50):
        fitted = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -50.0, 50.0)))
        slope = design.T @ (cells[1] - both * fitted) - 1e-3 * weights
        curvature = (design * (both * fitted * (1.0 - fitted))[:, None]).T @ design + 1e-3 * np.eye(3)
        step = np.linalg.solve(curvature, slope)
        weights = weights + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        if float(np.abs(step).max()) < 1e-8:
            present = both * (1.0 / (1.0 + np.exp(-np.clip(design @ weights, -50.0, 50.0))))
            return tuple(np.cumsum(part[::-1])[::-1] for part in (both - present, present))
    return None
