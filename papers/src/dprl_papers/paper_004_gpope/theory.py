"""Paper 004's bounds on GPOPE's error as curves: Theorems 2 and 3 as printed, and what can be computed instead.

Paper: Xie, Thomas, Miklau, "Privacy Preserving Off-Policy Evaluation" (2019), section 6 and appendix C. Errata:
docs/papers/004.md. For a figure::

    theory = theory_of(domain, trajectories=[100, 300, 1000], step_sizes=[...], clip_norm=C, epsilon=0.1, delta=1e-5)
    for curve in theory.curves:
        draw(theory.trajectories, curve.mspbe, curve.label)

with the step sizes (one for each number of trajectories), the clip norm and the start of the run that was measured, in
public units: ``GPOPE(calibration="as-published", steps=m, average="last", project=False, ...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dprl.errors import DprlError
from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import make_table
from dprl_papers.paper_004_gpope.published import noise_multiplier
from dprl_papers.paper_004_gpope.recursion import Recursion, gradient_variance, public_units, second_moment

if TYPE_CHECKING:
    from dprl_papers.harness.domain import Domain
    from dprl_papers.harness.runner import Runner
    from dprl_papers.harness.spec import Measured


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Numbers on which the bounds of Theorems 2 and 3 depend. The paper gives none of them for its experiments.

    Attributes:
        smallest, largest: eigenvalues of Q, see :class:`~dprl_papers.paper_004_gpope.recursion.Recursion`.
        start: |xi_1|^2.
        dimension: 2n.
        gradient_variance: G^2.
        clip_norm: h.
        epsilon, delta: budget that Theorem 1 claims for its sigma.
        c2: constant of Theorem 1: 2 by its proof as printed, 4 by the proof done right (E4).
        noise: what c N/m^2 of Assumption 1 is (E12): the ``trace`` of the noise's covariance, 2n h^2 sigma^2, which is
            its expected squared norm; or, as ``printed``, the squared Frobenius norm 2n h^4 sigma^4.
    """

    smallest: float
    largest: float
    start: float
    dimension: int
    gradient_variance: float
    clip_norm: float
    epsilon: float
    delta: float
    c2: float = 2.0
    noise: Literal["trace", "printed"] = "trace"

    def __post_init__(self) -> None:
        if not self.smallest > 0.0:
            raise DprlError("Theorems 2 and 3 need a lambda_min(Q) above zero, which this problem does not have.")

    def sigma(self, updates: int, trajectories: int) -> float:
        """Return noise multiplier of Theorem 1."""
        return noise_multiplier(updates, trajectories, self.epsilon, self.delta, self.c2)

    def noise_variance(self, updates: int, trajectories: int) -> float:
        """Return c N/m^2 of Assumption 1."""
        covariance = (self.clip_norm * self.sigma(updates, trajectories)) ** 2
        return self.dimension * (covariance if self.noise == "trace" else covariance**2)

    def theorem_2(self, step_size: float, updates: int, trajectories: int) -> float:
        """Return bound (6.4) on E|xi_{N+1}|^2; ``step_size`` is eta/N^k, the only combination that enters.

        Infinite from 1/lambda_min(Q) on, where the theorem as printed says nothing.
        """
        return float(self._theorem_2(np.array([step_size]), updates, trajectories)[0])

    def theorem_2_best(self, updates: int, trajectories: int) -> tuple[float, float]:
        """Return the least that Theorem 2 gives for any step size up to 1/lambda_max(Q), and that step size."""
        steps = np.geomspace(1e-12, 1.0, 4001) / self.largest
        for _ in range(2):  # the second time around the best of the first
            best = int(self._theorem_2(steps, updates, trajectories).argmin())
            around = np.geomspace(steps[max(best - 1, 0)], steps[min(best + 1, len(steps) - 1)], 4001)
            steps = np.append(around, steps[best])
        bounds = self._theorem_2(steps, updates, trajectories)
        return float(bounds.min()), float(steps[bounds.argmin()])

    def _theorem_2(self, steps: np.ndarray, updates: int, trajectories: int) -> np.ndarray:
        gain = np.minimum(steps * self.smallest, 1.0)
        variance = self.gradient_variance + self.noise_variance(updates, trajectories)
        floor = steps * variance / (self.smallest * (2.0 - gain))  # C_0
        return np.where(gain < 1.0, (1.0 - gain) ** (2 * updates) * (self.start - floor) + floor, np.inf)

    def theorem_3(self, eta: float, updates: int, trajectories: int) -> tuple[float, float, float]:
        """Return Theorem 3's bound for step sizes eta/(lambda_min(Q) i), and terms III and IV of its second line."""
        if not eta > 1.0:
            raise DprlError("Theorem 3 needs an eta above 1.")
        factor = eta**2 / ((eta - 1.0) * self.smallest**2)
        noise = self.noise_variance(updates, trajectories)
        bound = max(self.start, factor * (self.gradient_variance + noise)) / updates
        third = max(self.start, factor * self.gradient_variance) / updates
        return bound, third, factor * noise / updates  # c/m^2 is c N/m^2 over N


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        name: ``theorem-2``, ``theorem-2-best``, ``theorem-3`` or ``second-moment``.
        label: for the legend.
        distance: E|xi|^2, of theta and w together, for each number of trajectories; in the units of the recursion.
        mspbe: the same as an MSPBE in the reward's unit: of the theorems lambda_max(A'C^-1A) times their bound, of the
            second moment the expected MSPBE itself.
    """

    name: str
    label: str
    distance: list[float]
    mspbe: list[float]


@dataclass(frozen=True)
class Theory:
    """The lines of a figure over the number of trajectories; ``dataclasses.asdict`` makes it plain data.

    Attributes:
        trajectories: m, which is also the number N of updates.
        step_sizes, sigma: of GPOPE at each m.
        curves: the lines.
        constants: what they were computed from, by name, for the caption.
    """

    trajectories: list[int]
    step_sizes: list[float]
    sigma: list[float]
    curves: list[Curve]
    constants: dict[str, float]


def theory_of(
    domain: Domain,
    *,
    trajectories: Sequence[int],
    step_sizes: float | Sequence[float],
    clip_norm: float,
    epsilon: float,
    delta: float,
    start: Literal["mid-range", "zero"] = "zero",
    units: int = 2000,
    seed: int = 0,
    **constants: float,
) -> Theory:
    """Return the lines for a domain, in the public units in which GPOPE runs on it.

    Args:
        domain: where its moments are estimated, lambda_min(Q) is too.
        start: ``start`` of GPOPE.
        units, seed: the log from which G^2 at the start is estimated.
        trajectories, step_sizes, clip_norm, epsilon, delta, constants: see :func:`theory_curves`.
    """
    from dprl.engine.columns import scale_of
    from dprl.engine.rows import rows_of
    from dprl.value_functions.features import make_features

    bounds = domain.bounds(units)
    features, value = make_features(domain.features, bounds.observation), bounds.value_interval(domain.discount)
    centre, half = scale_of(value)
    theta = np.zeros(features.size) if start == "mid-range" else -centre / half * features.constant()
    recursion = Recursion(*public_units(domain.moments(features), features.constant(), value), theta)
    log = domain.log(units, seed)
    rows = rows_of(log, domain.ratios(log), features, domain.discount, value, dtype=np.float64)
    return theory_curves(
        recursion,
        trajectories=trajectories,
        step_sizes=step_sizes,
        clip_norm=clip_norm,
        epsilon=epsilon,
        delta=delta,
        variance_at_start=gradient_variance(rows, recursion.start),
        reward_scale=half,
        **constants,  # pyright: ignore[reportArgumentType]
    )


def beside(runner: Runner, figure: Measured) -> dict[str, Any]:
    """Return the lines of a figure of GPOPE, for the method and the step sizes that are measured in it."""
    from dprl.engine.program import PublicFacts
    from dprl.evaluation.gpope import GPOPE
    from dprl.value_functions.features import make_features

    request, (domain,), method = runner.request, figure.domains, figure.methods[0]
    units = [int(m) for m in request.values(figure)]
    steps = [request.paper.tuned_value(method, domain, m, figure.epsilon[0]) for m in units]
    if None in steps:
        raise DprlError(f"Figure {figure.name} needs a tuned step size of {method!r} on {domain!r}.")
    place, options = runner.domain(domain), request.methods[method].options
    bounds = place.bounds(max(units))
    config = GPOPE(clip_norm=options.get("clip_norm"), start=options.get("start", "zero"))
    facts = PublicFacts(bounds, make_features(place.features, bounds.observation), config.discount, mu=1.0)
    theory = theory_of(
        place,
        trajectories=units,
        step_sizes=[x for x in steps if x is not None],
        clip_norm=config.clip(facts),
        epsilon=figure.epsilon[0],
        delta=request.paper.delta,
        start=config.start,
        seed=request.paper.seed,
    )
    lines = [
        {"label": c.label, "points": [(m, e) for m, e in zip(units, c.mspbe, strict=True) if np.isfinite(e)]}
        for c in theory.curves
    ]
    cells = [request.cell(domain, m, method, figure.epsilon[0]) for m in units]
    measured = [float(np.mean(runner.results(cell)["mspbe"])) for cell in cells]
    over = [[c.label, *(f"{number(e)} ({number(e / m)})" for e, m in zip(c.mspbe, measured, strict=True))]
            for c in theory.curves]  # fmt: skip
    rows = [[name, number(v) if np.isfinite(v) else "infinite"] for name, v in theory.constants.items()]
    caption = "Bounds as an MSPBE, and in brackets over the measured one."
    return {
        "lines": lines,
        "tables": [
            make_table(caption, ["", *(f"m = {plain(m)}" for m in units)], over),
            make_table("What the bounds were computed from.", ["", ""], rows),
        ],
    }


def theory_curves(
    recursion: Recursion,
    *,
    trajectories: Sequence[int],
    step_sizes: float | Sequence[float],
    clip_norm: float,
    epsilon: float,
    delta: float,
    variance_at_start: float,
    reward_scale: float = 1.0,
    eta: float = 2.0,
    c2: float = 2.0,
    noise: Literal["trace", "printed"] = "trace",
) -> Theory:
    """Return Theorems 2 and 3 and the computed second moment over m = N, one trajectory a step, with Theorem 1's noise.

    Args:
        recursion: in the units in which GPOPE runs, with its start.
        trajectories: numbers m.
        step_sizes: beta of GPOPE, one for all or one for each m.
        clip_norm, epsilon, delta, c2, noise: see :class:`Bound`.
        variance_at_start: what is put for G^2 (:func:`~dprl_papers.paper_004_gpope.recursion.gradient_variance`).
        reward_scale: half-width of the public value range where ``recursion`` is in public units, else 1.
        eta: of Theorem 3's step sizes.
    """
    units = [int(m) for m in trajectories]
    steps = [float(x) for x in np.broadcast_to(np.asarray(step_sizes, dtype=np.float64), (len(units),))]
    bound = Bound(
        smallest=recursion.smallest,
        largest=recursion.largest,
        start=float(recursion.xi @ recursion.xi),
        dimension=2 * recursion.features,
        gradient_variance=variance_at_start,
        clip_norm=clip_norm,
        epsilon=epsilon,
        delta=delta,
        c2=c2,
        noise=noise,
    )
    sigma = [bound.sigma(m, m) for m in units]
    scale = reward_scale**2
    factor = scale * float(np.linalg.eigvalsh(recursion.metric)[-1])
    computed = [
        second_moment(recursion, beta, m, clip_norm * z) for m, beta, z in zip(units, steps, sigma, strict=True)
    ]
    curves = [
        Curve(name, label, distances, [factor * x for x in distances])
        for name, label, distances in (
            ("theorem-2", "Theorem 2", [bound.theorem_2(beta, m, m) for m, beta in zip(units, steps, strict=True)]),
            ("theorem-2-best", "Theorem 2, step size best for it", [bound.theorem_2_best(m, m)[0] for m in units]),
            ("theorem-3", f"Theorem 3, eta = {eta:g}", [bound.theorem_3(eta, m, m)[0] for m in units]),
        )
    ]
    distances, errors = [x.distance for x in computed], [scale * x.mspbe for x in computed]
    curves.append(Curve("second-moment", "Second moment, computed", distances, errors))
    constants = {
        **recursion.constants(),
        "h": clip_norm,
        "c2": c2,
        "G^2 at the start": variance_at_start,
        "first step size of Theorem 3": eta / recursion.smallest,
        "largest MSPBE over squared error": factor,
    }
    return Theory(units, steps, sigma, curves, constants)
