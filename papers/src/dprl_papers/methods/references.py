"""Reference methods without privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl.engine.columns import scale_of
from dprl_papers.baselines.lstd import moments, wis_lstd
from dprl_papers.harness.method import Method
from dprl_papers.harness.problem import Problem, Setting, Trials


def lstd(trials: Trials, keys: Any) -> np.ndarray:
    """Return the weights of LSTD (Bradtke and Barto 1996), with per-step importance ratios off-policy."""
    del keys
    if trials.shared:
        data = trials.shared_layout()
        phi, delta = np.asarray(data.phi, dtype=np.float64), np.asarray(data.delta_phi, dtype=np.float64)
        mean = lambda x: np.asarray(x, dtype=np.float64).mean(axis=1)  # noqa: E731
        A = np.einsum("tk,ki,kj->tij", mean(data.weight_rho), phi, delta)
        systems = list(zip(A, mean(data.weight_rho_reward) @ phi, strict=True))
    else:
        systems = [moments(problem.rows)[:2] for problem in trials]
    return in_reward_units(trials.setting, np.stack([np.linalg.lstsq(A, b, rcond=None)[0] for A, b in systems]))


def wis(name: str, trace: float) -> Method:
    """Return the method WIS-LSTD(lambda) (Mahmood, van Hasselt and Sutton 2014)."""

    def weights(problem: Problem, key: Any) -> np.ndarray:
        del key
        return wis_lstd(problem.log, problem.ratios, problem.features, problem.domain.discount, trace)

    label = "WIS-LSTD" + (f"({trace:g})" if trace else "")
    return Method(name=name, label=label, guarantee="none", weights=weights, options={"lambda": trace})


def in_reward_units(setting: Setting, theta: np.ndarray) -> np.ndarray:
    """Return the weights of V = w' phi from weights in public units, V = centre + half * theta' phi."""
    centre, half = scale_of(setting.value)
    return centre * setting.features.constant() + half * theta


METHODS = (
    Method(name="lstd", label="LSTD", guarantee="none", batch=lstd),
    wis("wis-lstd", 0.0),
    *(wis(f"wis-lstd-{trace:g}", trace) for trace in (0.3, 0.5, 0.9)),
)
