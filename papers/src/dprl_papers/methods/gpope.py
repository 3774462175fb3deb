"""GPOPE as published and in verified forms (paper 004, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from dprl_papers.harness.algorithm import algorithm
from dprl_papers.harness.method import Guarantee
from dprl_papers.harness.problem import Setting
from dprl_papers.paper_004_gpope.privacy import published_epsilon


def one_pass(setting: Setting) -> Mapping[str, Any]:
    """Return options for one update per trajectory of the log, each with one trajectory."""
    return {"steps": setting.units}


def one_pass_sampled(setting: Setting) -> Mapping[str, Any]:
    """Return options for as many updates as trajectories, each with a Poisson sample of one trajectory on average."""
    return {"steps": setting.units, "sampling_rate": 1.0 / setting.units}


def as_published(setting: Setting) -> Guarantee:
    """Return the guarantee of Theorem 1's noise when it claims the budget: a lower bound, from the worst pair."""
    claimed, delta = setting.budget.epsilon, setting.budget.delta
    return _as_published(setting.units, claimed, delta)


@cache
def _as_published(units: int, claimed: float, delta: float) -> Guarantee:
    found = published_epsilon(units, units, claimed, delta)
    return Guarantee(status="as published", claimed=claimed, true=found.at_least, delta=delta, words="a lower bound")


# Line 1 of Algorithm 1 allows any start; the paper's comparison with output perturbation suggests zero. The paper's
# clip norm is so large that nothing is clipped, and noise grows with it. This clip norm, which clips nearly every
# gradient, is better on public simulations of all domains.
PAPER = {"start": "zero", "project": False, "clip_norm": 0.001}

METHODS = (
    algorithm(
        "gpope-published",
        "GPOPE as published",
        "gpope",
        guarantee="as published",
        promise=as_published,
        at=one_pass,
        clamp=False,
        calibration="as-published",
        average="last",
        **PAPER,
    ),
    algorithm("gpope-single", "GPOPE, one trajectory a step", "gpope", at=one_pass_sampled, average="last", **PAPER),
    algorithm("gpope-averaged", "GPOPE, averaged", "gpope", at=one_pass_sampled, average="tail", **PAPER),
    algorithm("gpope", "GPOPE, library default", "gpope"),
)
