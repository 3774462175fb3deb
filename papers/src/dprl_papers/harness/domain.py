"""Domains of experiments: public facts, logs for any seed, true values, and exact or estimated moments.

A domain is one Python file that defines ``DOMAIN = Domain(...)``: a file in ``dprl_papers/domains/``, or any file that
is given by its path. Nothing here is private, because everything is simulated.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import dprl
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.errors import DprlError
from dprl.files import replacing
from dprl.protocols import Policy
from dprl.user_code import load_python
from dprl.value_functions.features import Features

Moments = tuple[np.ndarray, np.ndarray, np.ndarray]
"""``A (n, n)``, ``b (n,)``, ``C (n, n)`` of paper 004, Eq. (2.1), in the reward's unit: V = theta' phi."""

FOLDER = Path(__file__).parents[1] / "domains"
MOMENT_SEED = 1 << 40
"""Logs for the moments have seeds from here on; those of trials are below."""
_MOMENT_CHUNK = 250


@dataclass(frozen=True, eq=False)
class Truth:
    """True values at the states over which an error is taken.

    Attributes:
        states: ``(S, d)`` observations.
        values: ``(S,)`` discounted values of the target policy, in the reward's unit.
        weights: ``(S,)``, summing to one.
        standard_errors: ``(S,)`` standard errors of ``values``; zero where the values are exact.
        truncated: ``(S,)`` expected discounted returns until the horizon of a log, where a log may be cut; else None.
    """

    states: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    standard_errors: np.ndarray
    truncated: np.ndarray | None = None

    def rmse(self, values: np.ndarray) -> float:
        """Return the root of the weighted mean squared difference between ``(S,)`` estimates and the true values."""
        return float(np.sqrt(self.weights @ (np.asarray(values, dtype=np.float64) - self.values) ** 2))

    @property
    def mean(self) -> float:
        """Weighted mean of the values: the constant with the smallest RMSE."""
        return float(self.weights @ self.values)

    @property
    def std(self) -> float:
        """RMSE of the best constant, :attr:`mean`."""
        return self.rmse(np.full_like(self.values, self.mean))

    @property
    def standard_error(self) -> float:
        """RMSE of the stored values themselves.

        A measured error ``e`` stands for a true error of ``sqrt(e^2 - standard_error^2)``.
        """
        return float(np.sqrt(self.weights @ self.standard_errors**2))

    @property
    def standard_error_of_mean(self) -> float:
        """Standard error of :attr:`mean`; the errors of the states are independent."""
        return float(np.linalg.norm(self.weights * self.standard_errors))


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """A domain of an experiment; everything in it is public.

    Attributes:
        name: the name of its file, without the suffix.
        label: the name in a figure's title.
        discount: discount factor.
        features: name of the feature map (:func:`dprl.value_functions.features.make_features`).
        public: bounds of its logs, the value range among them; ``units`` is replaced by the size of a log.
        target_policy: the policy that is evaluated; maps states ``(N, d)`` to probabilities ``(N, A)``.
        behavior: the policy that logs, in the same form; the target policy itself where the domain is on-policy.
        simulate: maps bounds and a seed to a log of ``bounds.units`` trajectories; the same seed gives the same log.
        true_values: makes :attr:`truth`; called once.
        start_values: makes :attr:`start`; called once. Without it, the domain has no policy value.
        mean_reward: mean reward of a step under the target policy, for relative errors.
        exact_moments: maps features to exact moments; without it, moments are estimated from ``moment_units``
            trajectories.
        moment_units: trajectories of the independent log behind :meth:`moments`.
        depends_on: further files that logs depend on; when one of them changes, arrays in the cache folder are no
            longer used.
        network: name of the network that algorithms with nonlinear value functions use here; empty if there is none.
        extra: name of the optional dependency without which the domain has no logs; empty if it needs none.
    """

    name: str
    label: str
    discount: float
    features: str
    public: Bounds
    target_policy: Policy
    behavior: Policy
    simulate: Callable[[Bounds, int], Trajectories] = field(repr=False)
    true_values: Callable[[], Truth] = field(repr=False)
    mean_reward: float
    start_values: Callable[[], Truth] | None = field(default=None, repr=False)
    exact_moments: Callable[[Features], Moments] | None = field(default=None, repr=False)
    moment_units: int = 10_000
    depends_on: tuple[Path, ...] = ()
    network: str = ""
    extra: str = ""

    def bounds(self, units: int) -> Bounds:
        """Return the public facts of a log of ``units`` trajectories, the value range among them."""
        return replace(self.public, units=units)

    def log(self, units: int, seed: int) -> Trajectories:
        """Return a log of ``units`` trajectories. The ``seed`` must be from 0 to 2^40 - 1."""
        if not 0 <= seed < MOMENT_SEED:
            raise DprlError("domains: a seed must be from 0 to 2^40 - 1.")
        return self.simulate(self.bounds(units), seed)

    @functools.cached_property
    def truth(self) -> Truth:
        """True values at the states over which an error is taken."""
        return self.true_values()

    @functools.cached_property
    def start(self) -> Truth | None:
        """True values at states that represent the start distribution; None where the domain does not give them."""
        return None if self.start_values is None else self.start_values()

    @property
    def policy_value(self) -> float:
        """The policy's value: its expected discounted return from the start, without truncation."""
        return self._known_start().mean

    @property
    def policy_value_error(self) -> float:
        """Standard error of :attr:`policy_value`."""
        return self._known_start().standard_error_of_mean

    @property
    def truncated_value(self) -> float:
        """Expected discounted return until the horizon of a log, which importance sampling estimates."""
        start = self._known_start()
        return start.mean if start.truncated is None else float(start.weights @ start.truncated)

    def _known_start(self) -> Truth:
        if self.start is None:
            raise DprlError(f"The domain {self.name!r} does not say the value of its policy: it has no start_values.")
        return self.start

    @property
    def range(self) -> float:
        """Width of the public value range."""
        low, high = self.public.value_interval(self.discount)
        return high - low

    @property
    def on_policy(self) -> bool:
        """Whether the behaviour policy is the target policy."""
        return self.behavior is self.target_policy

    def ratios(self, log: Trajectories) -> np.ndarray:
        """Return the ``(N,)`` importance ratios of the steps of a log, which are at most the public bound."""
        if self.on_policy:
            return np.ones(len(log.reward))
        from dprl.engine.ratios import step_ratios

        return step_ratios(self.target_policy, log)

    def moments(self, features: Features) -> Moments:
        """Return ``A``, ``b``, ``C`` of the MSPBE for V = theta' phi, in the reward's unit.

        MSPBE is the mean squared projected Bellman error. A transition has weight one over the length of its
        trajectory, as in paper 004. The moments are exact where the domain has ``exact_moments``. Otherwise they are
        means over ``moment_units`` trajectories that share no seed with any trial; these means are kept in the cache
        folder.
        """
        if self.exact_moments is not None:
            return self.exact_moments(features)
        key = f"{features.name} {features.bounds} {self.moment_units} {self.discount} {self.public}"
        kept = cached(f"moments-{self.name}", key, lambda: self._estimated_moments(features), self._sources())
        return kept["A"], kept["b"], kept["C"]

    def _estimated_moments(self, features: Features) -> dict[str, np.ndarray]:
        from dprl.engine.rows import rows_of
        from dprl_papers.baselines.lstd import moments

        total: list[np.ndarray] = []
        for i, start in enumerate(range(0, self.moment_units, _MOMENT_CHUNK)):
            units = min(_MOMENT_CHUNK, self.moment_units - start)
            log = self.simulate(self.bounds(units), MOMENT_SEED + i)
            # a value range of [-1, 1] leaves the rewards unchanged
            rows = rows_of(log, self.ratios(log), features, self.discount, (-1.0, 1.0))
            parts = [units * part for part in moments(rows)]
            total = [a + b for a, b in zip(total, parts, strict=True)] if total else parts
        return dict(zip("AbC", (part / self.moment_units for part in total), strict=True))

    def _sources(self) -> tuple[Path, ...]:
        own = sys.modules.get(getattr(self.simulate, "__module__", ""))
        file = getattr(own, "__file__", None)
        return (*self.depends_on, *([Path(file)] if file else []))


def from_rollout(columns: Mapping[str, np.ndarray], bounds: Bounds) -> Trajectories:
    """Return :class:`Trajectories` from the columns of :func:`dprl.environments.rollout`, with one unit per trajectory.

    Rewards and observations are clamped to ``bounds``.
    """
    low, high = np.array(bounds.observation).T
    lengths = np.bincount(columns["episode_id"], minlength=bounds.units)
    offsets = np.r_[0, np.cumsum(lengths)].astype(np.int64)
    return Trajectories(
        observation=np.clip(columns["observation"].astype(np.float64), low, high),
        next_observation=np.clip(columns["next_observation"].astype(np.float64), low, high),
        action=columns["action"].astype(np.int64),
        reward=np.clip(columns["reward"].astype(np.float64), *bounds.reward),
        behavior_prob=columns["behavior_prob"].astype(np.float64),
        target_prob={},
        terminated=columns["terminated"].astype(bool),
        has_next=np.ones(len(columns["reward"]), dtype=bool),
        episode_offsets=offsets,
        unit_offsets=np.arange(len(lengths) + 1, dtype=np.int64),
        valid=np.ones(len(lengths), dtype=bool),
        bounds=bounds,
        unit="trajectory",
    )


# Finding domains.


def domain_names() -> list[str]:
    """Return the names of the domains that come with the library, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def load_domain(spec: str | Path) -> Domain:
    """Return the domain that ``spec`` names.

    ``spec`` is one of :func:`domain_names`, or the path of a Python file, which is executed.

    Raises:
        DprlError: the domain or file does not exist, the file cannot be executed, or it defines no ``DOMAIN``.
    """
    text = str(spec)
    if text.endswith(".py"):
        module: Any = load_python(Path(text), "domain", quoted=True)
    elif text in domain_names():
        module = importlib.import_module(f"dprl_papers.domains.{text}")
    else:
        raise DprlError(
            f"There is no domain {text!r}; use one of {', '.join(domain_names())}, or the path of a Python file."
        )
    domain = getattr(module, "DOMAIN", None)
    if not isinstance(domain, Domain):
        raise DprlError(f"The domain {text!r} defines no DOMAIN = Domain(...).")
    return domain


# Results of long simulations are kept between runs.


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/dprl/domains`` or ``~/.cache/dprl/domains``."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "dprl" / "domains"


def cached(
    name: str, key: str, make: Callable[[], Mapping[str, np.ndarray]], depends_on: tuple[Path, ...] = ()
) -> dict[str, np.ndarray]:
    """Return the arrays of ``make``, or the arrays that an earlier run kept in :func:`cache_folder`.

    A file of the cache is found by ``key``, by the bytes of dprl's simulators, and by the bytes of the files in
    ``depends_on``. Therefore no file of a changed simulator is used. A folder that cannot be read or written is
    ignored.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file, save_file

    digest = hashlib.sha256(key.encode())
    for path in (*sorted((Path(dprl.__file__).parent / "environments").glob("*.py")), *depends_on):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    path = cache_folder() / f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}-{digest.hexdigest()[:32]}.safetensors"
    with contextlib.suppress(OSError, SafetensorError):
        return load_file(path)
    arrays = {name: np.ascontiguousarray(array) for name, array in make().items()}
    with contextlib.suppress(OSError, DprlError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            save_file(arrays, temporary)
    return arrays
