"""What the accountant promises: only known events, exact composition, an epsilon that is right and never too small.

The oracle integrates the loss of the Poisson-subsampled Gaussian from its definition, in both directions, and shares
nothing with the accountant but NumPy. Below it are the traps of other libraries.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import tokenize
import tomllib
from collections import defaultdict
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting import dp_event as dpe
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from dprl.accounting import accountant, events
from dprl.accounting.accountant import epsilon_of
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.registry import evaluation_entries

ROOT = Path(__file__).parents[2]
ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE

# --- events ---------------------------------------------------------------------------------------------------------

EMITTED = {"GaussianDpEvent", "PoissonSampledDpEvent", "SelfComposedDpEvent", "ComposedDpEvent"}
_FIELDS = {
    "event": dpe.GaussianDpEvent(1.0), "events": [dpe.GaussianDpEvent(1.0)], "count": 2, "num_buckets": 2,
    "sensitivity": 1, "source_dataset_size": 100, "sample_size": 10, "step_counts": [4], "mean": 2.0, "shape": 1.0,
    "sensitivities": [0.0, 1.0], "sampling_probs": [0.5, 0.5], "dataset_size": 100, "truncated_batch_size": 20,
    "sampling_probability": 0.1, "noise_multiplier": 1.0, "noise_parameter": 1.0, "standard_deviation": 1.0,
    "rho": 0.1, "xi": 0.0,
}  # fmt: skip


def foreign_events() -> list[dpe.DpEvent]:
    """One of every class of event that dp_accounting has and no mechanism of ours emits."""
    found = []
    for name, kind in vars(dpe).items():
        if inspect.isclass(kind) and issubclass(kind, dpe.DpEvent) and name not in EMITTED:
            names = [p for p in inspect.signature(kind).parameters if p not in ("args", "kwargs")]
            found.append(kind(**{p: _FIELDS[p] for p in names}))
    return found


@pytest.mark.parametrize("event", foreign_events(), ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    "inside",
    [
        lambda event: event,
        lambda event: dpe.SelfComposedDpEvent(event, 2),
        lambda event: dpe.ComposedDpEvent([dpe.GaussianDpEvent(1.0), event]),
        lambda event: dpe.PoissonSampledDpEvent(0.1, event),
    ],
    ids=["alone", "self-composed", "composed", "sampled"],
)
def test_an_event_that_no_mechanism_emits_is_refused(event, inside):
    with pytest.raises(DprlError):
        epsilon_of(inside(event), 1e-5)
    with pytest.raises(DprlError):
        events.to_json(inside(event))
    name = type(event).__name__.removesuffix("DpEvent")
    with pytest.raises(DprlError):
        events.from_json({"type": name, **{k: v for k, v in vars(event).items() if isinstance(v, int | float)}})


def test_all_classes_of_events_were_tried():
    assert {type(event).__name__ for event in foreign_events()} >= {
        "LaplaceDpEvent", "NonPrivateDpEvent", "SampledWithoutReplacementDpEvent", "SampledWithReplacementDpEvent",
        "TruncatedSubsampledGaussianDpEvent", "SingleEpochTreeAggregationDpEvent", "ZCDpEvent",
    }  # fmt: skip


@pytest.mark.slow  # every setting of every algorithm is calibrated
def test_all_classes_that_are_emitted_are_known():
    kinds = {type(node).__name__ for name in evaluation_entries() for node in emitted_by(name)}
    assert kinds == EMITTED


def emitted_by(name: str) -> list[dpe.DpEvent]:
    """Every event, at every depth, that the conformance suite's settings of an algorithm emit."""
    suite, found = evaluation_entries()[name].load_conformance(), []
    stack = [suite.plan(setting).event for setting in suite.algorithm.settings]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += [node.event] if hasattr(node, "event") else []
        stack += node.events if hasattr(node, "events") else []
    return found


TYPES = {
    "Gaussian": events.gaussian(4.0),
    "everybody in every step": events.poisson_gaussian(1.0, 9.0, 3),
    "Poisson samples": events.poisson_gaussian(0.1, 6.0, 3),
    "a vector and Poisson samples": events.compose([events.gaussian(9.0), events.poisson_gaussian(0.2, 7.0, 4)]),
    "two rates": events.compose([events.poisson_gaussian(0.1, 8.0, 2), events.poisson_gaussian(0.3, 9.0, 1)]),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("times", [2, 5])
def test_n_compositions_are_one_composition_of_n(kind, times):
    event = TYPES[kind]
    whole = epsilon_of(dpe.SelfComposedDpEvent(event, times), 1e-6)
    assert epsilon_of(event, 1e-6) < whole
    assert epsilon_of(dpe.ComposedDpEvent([event] * times), 1e-6) == whole
    assert epsilon_of(dpe.ComposedDpEvent([dpe.SelfComposedDpEvent(event, times - 1), event]), 1e-6) == whole


# --- an integration of our own --------------------------------------------------------------------------------------


def integrated(rate: float, std: float, steps: int, delta: float, removed: bool) -> float:
    """Epsilon of one direction by convolving the loss numerically (Gopi, Lee, Wutschitz 2021), tilted for the tail.

    The loss log(1 - rate + rate exp((2x - 1) / 2 std^2)) of x ~ (1 - rate) N(0, std^2) + rate N(1, std^2) against
    N(0, std^2), where the unit is removed; where it is added, minus that loss of x ~ N(0, std^2).
    """
    x = np.linspace(-12.0 * std, 1.0 + 12.0 * std, 20_001)
    bell = [np.exp(-0.5 * ((x - m) / std) ** 2) / (std * math.sqrt(2.0 * math.pi)) for m in (0.0, 1.0)]
    weight = (x[1] - x[0]) * ((1.0 - rate) * bell[0] + rate * bell[1] if removed else bell[0])
    z = (x - 0.5) / std**2
    with np.errstate(divide="ignore"):
        loss = (1.0 if removed else -1.0) * np.logaddexp(np.log1p(-rate) if rate < 1.0 else -np.inf, np.log(rate) + z)
    # the tilt of the Chernoff bound, which puts the middle of the distribution where epsilon is
    tilts = np.geomspace(1e-3, 1e4, 120)
    logs = np.log(np.maximum(weight, 1e-320))
    cumulants = np.array([np.logaddexp.reduce(logs + t * loss) for t in tilts])
    bounds = (steps * cumulants + math.log(1.0 / delta)) / tilts
    tilt, scale = float(tilts[np.argmin(bounds)]), float(np.min(bounds))
    low, high = float(loss.min()), float(loss.max())
    mean = float(weight @ loss)
    tilted = np.exp(logs + tilt * loss - cumulants[np.argmin(bounds)])
    spreads = [math.sqrt(max(float(w @ (loss - w @ loss) ** 2), 1e-300)) for w in (weight, tilted)]
    h = max(min(spreads[0] / 20.0, spreads[1] / 40.0, 5e-4 * scale), (high - low) / 2.0**18)

    index = np.arange(math.floor(low / h) - 1, math.ceil(high / h) + 2)
    edges = (np.append(index, index[-1] + 1) - 0.5) * h * (1.0 if removed else -1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (np.expm1(edges) + rate) / rate
        cut = np.where(inside > 0.0, std**2 * np.log(np.maximum(inside, 1e-300)) + 0.5, -np.inf)

    def between(m: float) -> np.ndarray:
        a, b = (np.minimum(cut[:-1], cut[1:]) - m) / std, (np.maximum(cut[:-1], cut[1:]) - m) / std
        return np.where(a > 0.0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))

    mass = (1.0 - rate) * between(0.0) + rate * between(1.0) if removed else between(0.0)
    shift = mean - float(mass @ index) * h / float(mass.sum())  # rounding keeps the mean
    logs = np.log(np.maximum(mass, 1e-320)) + tilt * index * h
    cumulant = float(np.logaddexp.reduce(logs))
    tilted = np.exp(logs - cumulant)
    centre = float(tilted @ index)
    spread = math.sqrt(float(tilted @ (index - centre) ** 2))
    width = min(steps * len(index), 28.0 * math.sqrt(steps) * spread + 4.0 * len(index))
    size = 1 << math.ceil(math.log2(width + len(index)))
    start = np.bincount(index % size, tilted, minlength=size)
    composed = np.fft.irfft(np.fft.rfft(start) ** steps, size)
    places = np.arange(size) + round(steps * centre) - size // 2
    losses = places * h + steps * shift
    with np.errstate(divide="ignore"):
        log_mass = np.log(np.maximum(composed[places % size], 0.0)) + steps * cumulant - tilt * places * h
    here = np.cumsum(np.exp(np.minimum(log_mass, 0.0))[::-1])[::-1]
    there = np.cumsum(np.exp(np.minimum(log_mass - losses, 600.0))[::-1])[::-1]

    def excess(epsilon: float) -> float:
        k = int(np.searchsorted(losses, epsilon, side="right"))
        return (here[k] - math.exp(epsilon) * there[k] if k < size else 0.0) - delta

    low, high = 0.0, min(float(losses[-1]), 600.0)
    if excess(low) <= 0.0:
        return 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return high


def oracle(rate: float, multiplier: float, steps: int, delta: float) -> float:
    return max(integrated(rate, multiplier, steps, delta, removed) for removed in (True, False))


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("steps", [1, 400])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_the_integration_is_right_where_the_answer_is_known(mu, steps, delta):
    """The plain Gaussian, in closed form (Balle and Wang, 2018)."""
    found = oracle(1.0, math.sqrt(steps) / mu, steps, delta)
    exact = ndtr(mu / 2 - found / mu) - math.exp(found) * ndtr(-mu / 2 - found / mu)
    assert found > 0.0
    assert math.log(exact / delta) == pytest.approx(0.0, abs=0.004 * max(1.0, found / mu * (-ndtri(delta))))


def design(count: int) -> list[tuple[float, float, int, float]]:
    """(rate, multiplier, steps, delta) spread evenly over logarithms; every tenth samples everybody."""
    found: list[tuple[float, float, int, float]] = []
    for a, b, c, d in qmc.Halton(4, scramble=False).random(8 * count)[1:]:
        rate = 1.0 if len(found) % 10 == 9 else 10.0 ** (-4.0 * a)
        multiplier, steps, delta = 0.4 * 100.0**b, round(5000.0**c), 10.0 ** (-3.0 - 7.0 * d)
        mu = rate * math.sqrt(steps * math.expm1(min(1.0 / multiplier**2, 50.0)))
        if 0.02 <= mu <= 6.0 and len(found) < count:
            found.append((rate, multiplier, steps, delta))
    assert len(found) == count
    return found


DESIGN = design(200)
# of every twenty the thirteenth by noise is quick; all of them run with the slow tests
QUICK = {sorted(DESIGN[k : k + 20], key=lambda numbers: numbers[1])[12] for k in range(0, 200, 20)}
CONFIGURATIONS = [
    pytest.param(*numbers, marks=[] if numbers in QUICK else [pytest.mark.slow], id=f"{place}")
    for place, numbers in enumerate(DESIGN)
]


@pytest.mark.parametrize(("rate", "multiplier", "steps", "delta"), CONFIGURATIONS)
def test_epsilon_is_right(rate, multiplier, steps, delta):
    """Within 1% of the integration, never above Renyi's bound, never below the optimistic end of the accountant's."""
    event = events.poisson_gaussian(rate, multiplier, steps)
    found, exact = epsilon_of(event, delta), oracle(rate, multiplier, steps, delta)
    assert 0.999 * exact - 1e-5 <= found <= 1.01 * exact + 1e-5
    renyi = RdpAccountant(neighboring_relation=ADD_OR_REMOVE)
    renyi.compose(event)
    assert found <= renyi.get_epsilon(delta)
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        sampling_prob=rate,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=accountant._grid(accountant.parts_of(event)),
    )
    assert found >= optimistic.self_compose(steps).get_epsilon_for_delta(delta)


# --- traps of other libraries ---------------------------------------------------------------------------------------


def test_what_runs_is_what_is_pinned():
    """The accountant's own conventions change between versions: one is pinned, and a certificate names it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = metadata.version("dp-accounting")
    assert f"dp-accounting=={version}" in project["dependencies"]
    assert accountant.accountant_name().startswith(f"dp_accounting {version} PLDAccountant, add or remove one")


def test_no_other_accountant_is_used():
    """jax_privacy's calibration assumes Poisson sampling whatever is asked, and its bound from GDP is wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    assert not [name for name in asked if re.match(r"jax.privacy|opacus|autodp|prv.accountant", name)]
    names = defaultdict[str, set[str]](set)
    for path in (ROOT / "src").rglob("*.py"):
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                names[token.string].add(path.name)
    # what PLDAccountant does, for the one relation (test_gaussian_pld.py compares them)
    assert names["PrivacyLossDistribution"] == {"accountant.py"}
    # what published noise really costs is no guarantee of ours: papers/ alone asks
    assert "from_gaussian_mechanism" not in names
    assert "PLDAccountant" not in names
    # the one exception: noise that is chosen on the way has no privacy loss distribution, see below
    assert names["RdpAccountant"] == {"renyi_filter.py"}
    # never for another relation
    assert names["ADD_OR_REMOVE_ONE"] == {"renyi_filter.py"}
    assert not names.keys() & {"jax_privacy", "opacus", "autodp", "REPLACE_ONE", "REPLACE_SPECIAL"}


@pytest.mark.parametrize("clip", [math.inf, math.nan, -math.inf, -1.0, 0.0])
def test_a_clip_norm_that_bounds_nothing_is_refused(clip):
    with pytest.raises(DprlError, match="clip norm"):
        GaussianSum(parts=((2, clip),), noise_multiplier=1.0)
    for entry in evaluation_entries().values():
        if "clip_norm" in entry.load_config().options():
            with pytest.raises(DprlError, match="clip_norm"):
                entry.load_config()(clip_norm=clip)


@pytest.mark.parametrize("multiplier", [0.0, math.nan, math.inf, -1.0, 1e-9])
def test_no_noise_is_refused(multiplier):
    with pytest.raises(DprlError, match="noise multiplier"):
        GaussianSum(parts=((2, 1.0),), noise_multiplier=multiplier)
