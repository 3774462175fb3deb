"""Writes the sample artifacts beside this file: a release on ACTG 175 as `dprl evaluate` would describe it.

The numbers are made up, but of the size that the trial gives. `python make_sample.py page.html` also draws the page.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BOUNDS: dict[str, Any] = {
    "units": 2139,
    "horizon": 1,
    "reward": [-500, 500],
    "observation": [[0, 90], [0, 1200]],
    "actions": 4,
    "max_importance_ratio": 4,
}
# name, value, privacy standard error, sampling standard error
TARGETS = (
    ("treat_low_cd4", 41.83, 3.94, 5.12),
    ("arm_0", -17.62, 3.71, 4.63),
    ("arm_1", 54.38, 3.71, 6.27),
    ("arm_2", 15.04, 3.71, 5.31),
    ("arm_3", 32.47, 3.71, 5.58),
)


def estimate() -> dict[str, Any]:
    """An ``estimate.json``."""
    targets = []
    for name, value, privacy, sampling in TARGETS:
        half = 1.959964 * math.hypot(privacy, sampling)
        targets.append(
            {
                "name": name,
                "value": value,
                "interval": [value - half, value + half],
                "privacy_standard_error": privacy,
                "sampling_standard_error": sampling,
                "reference": None,
            }
        )
    age = [90.0 * i / 40 for i in range(41)]
    cd4 = [1200.0 * i / 40 for i in range(41)]
    return {
        "schema": "dprl.estimate/1",
        "status": "verified",
        "algorithm": "gpope",
        "estimator": "self-normalised importance sampling",
        "epsilon": 1.0,
        "delta": 1e-5,
        "confidence": 0.95,
        "discount": 0.99,
        "value": targets[0]["value"],
        "interval": targets[0]["interval"],
        "targets": targets,
        "value_function": {
            "target": "treat_low_cd4",
            "features": {"name": "fourier:3", "size": 16},
            "file": "value_function.safetensors",
            "slices": [
                {"component": 0, "name": "age", "grid": age, "values": [36 + 9 * math.cos(a / 28) for a in age]},
                {
                    "component": 1,
                    "name": "cd4_baseline",
                    "grid": cd4,
                    "values": [70 - 0.115 * c + 14 * math.sin(c / 260) for c in cd4],
                },
            ],
        },
        "request": {
            "log": "actg175.parquet",
            "outcome": "change of the CD4 count from baseline to week 20, in cells per mm³",
            "unit": "person",
            "unit_column": "person_id",
            "discount": 0.99,
            "target_policies": ["policies.py:treat_low_cd4", "arm_0", "arm_1", "arm_2", "arm_3"],
        },
        "bounds": BOUNDS,
    }


def certificate() -> dict[str, Any]:
    """A ``certificate.json`` before it is sealed."""
    gaussian = {"type": "Gaussian", "noise_multiplier": 4.21}
    step = {
        "type": "PoissonSampled",
        "sampling_probability": 0.1,
        "event": {"type": "Gaussian", "noise_multiplier": 11.8},
    }
    return {
        "schema": "dprl.certificate/1",
        "status": "verified",
        "epsilon": 1.0,
        "delta": 1e-5,
        "privacy_unit": "person",
        "neighbouring_relation": "add or remove one",
        "released": "The noised sums behind values and intervals, and all iterates of the value function.",
        "not_protected": [
            "Whether this log exists, its columns and their types, and every declared bound.",
            "The policies, which must not have been fitted to this log.",
            "The log itself, the working memory of the machine that read it, and its backups.",
            "Other releases from the same people, unless one ledger counts them all.",
        ],
        "mechanisms": [
            {
                "name": "Gaussian vector",
                "purpose": "value and interval",
                "clip_norm": 4.472,
                "noise_multiplier": 4.21,
                "sampling_rate": 1.0,
                "steps": 1,
                "dimension": 24,
                "grid_step": 2.0**-30,
                "share": 0.85,
            },
            {
                "name": "Poisson-sampled clipped Gaussian sum",
                "purpose": "value function",
                "clip_norm": 1.0,
                "noise_multiplier": 11.8,
                "sampling_rate": 0.1,
                "steps": 200,
                "dimension": 32,
                "grid_step": 2.0**-30,
                "share": 0.15,
            },
        ],
        "event": {"type": "Composed", "events": [gaussian, {"type": "SelfComposed", "count": 200, "event": step}]},
        "accountant": "dp_accounting 0.6.0 PLDAccountant, add or remove one",
        "epsilon_of_event": 0.9987,
        "delta_of_event": 9.99e-6,
        "delta_sampler": 3.1e-12,
        "noise": {
            "secure": True,
            "source": "ChaCha20 keyed by the operating system, rounded Gaussian on an integer grid",
        },
        "assumed_public": {
            "bounds": BOUNDS,
            "hyper_parameters": {
                "clip_norm": {"value": 1.0, "provenance": "library default (public)"},
                "discount": {"value": 0.99, "provenance": "flag (stated public)"},
                "features": {"value": "fourier:3", "provenance": "run.toml (stated public)"},
                "sampling_rate": {"value": 0.1, "provenance": "library default (public)"},
                "steps": {"value": 200, "provenance": "library default (public)"},
            },
            "policies": ["policies.py:treat_low_cd4", "arm_0", "arm_1", "arm_2", "arm_3"],
        },
        "ledger": {"dataset": "actg175", "spent": {"epsilon": 1.0, "delta": 1e-5}},
        "versions": {"dprl": "0.1.0", "python": "3.11.7", "jax": "0.10.0", "dp_accounting": "0.6.0", "numpy": "2.3.0"},
    }


def main() -> None:
    """Write both artifacts, and the page where a path is given."""
    for name, data in (("estimate.json", estimate()), ("certificate.json", certificate())):
        (HERE / name).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if len(sys.argv) > 1:
        from dprl.report import render

        Path(sys.argv[1]).write_text(render(estimate(), certificate()), encoding="utf-8")


if __name__ == "__main__":
    main()
