"""The two front doors, ``dprl evaluate`` in this process and :func:`dprl.evaluate`, with noise that can be repeated."""

from __future__ import annotations

import functools
import itertools
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dprl as library
from dprl.config import merge
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey
from dprl.registry import find

from ..cli.conftest import Outcome
from ..cli.conftest import dprl as dprl
from ..cli.conftest import trial as trial
from ..sample_log import BOUNDS_TOML, columns

KEY = bytes(range(1, 33))
SETTINGS = {"gpope": ("steps=2",), "td": ("steps=2",), "return-regression": ("steps=2",)}
TABULAR = ("noisy-counts", "first-visit")
WITH_NEXT = {**columns(), "next_observation_0": [5.0] * len(columns()["t"]),
             "next_observation_1": [1.0] * len(columns()["t"])}  # fmt: skip
TYPES = {k: pa.table(WITH_NEXT).schema.field(k).type for k in WITH_NEXT} | {"action": pa.float64(), "t": pa.float64()}


@dataclass(frozen=True)
class Released:
    """Everything that a release hands out, as numbers that can be compared bit for bit."""

    numbers: np.ndarray
    estimate: dict[str, Any]
    certificate: dict[str, Any]

    def same(self, other: Released) -> bool:
        return self.numbers.shape == other.numbers.shape and bool((self.numbers == other.numbers).all())


def numbers(estimate: dict[str, Any], theta: Any) -> np.ndarray:
    parts = [(t["value"], *t["interval"], t["privacy_standard_error"], t["sampling_standard_error"])
             for t in estimate["targets"]]  # fmt: skip
    return np.array([*itertools.chain.from_iterable(parts), *theta], dtype=np.float64)


@pytest.fixture
def fixed_noise(monkeypatch):
    """Every release draws the same secure noise; called with a number, another one."""

    def fix(number: int = 0) -> None:
        key = bytes([number, *KEY[1:]])
        monkeypatch.setattr(SecureNoise, "fresh", classmethod(lambda cls: cls(key)))
        monkeypatch.setattr(RunKey, "noise", lambda self, bound: SecureNoise(key))

    fix(1)
    return fix


Run = Callable[..., Released]


@pytest.fixture
def doors(dprl, tmp_path_factory) -> dict[str, Run]:
    """``command`` and ``python``: a log, options as the command line has them, and what is released."""
    count = itertools.count()

    def command(log: Any, algorithm: str, bounds: str = BOUNDS_TOML, **changes: Any) -> Released:
        place = tmp_path_factory.mktemp("release")
        if not isinstance(log, str | Path):
            path = place / "log.parquet"
            pq.write_table(pa.table({k: pa.array(v, TYPES.get(k)) for k, v in log.items()}), path)
            log = path
        (place / "bounds.toml").write_text(bounds)
        out = place / f"results{next(count)}"
        options = {"bounds": place / "bounds.toml", "unit": "trajectory", "target-policy": "uniform", "epsilon": "1",
                   "delta": "1e-5", "out": out, "algorithm": algorithm} | changes  # fmt: skip
        found: Outcome = dprl(
            "evaluate", log, "--json",
            *itertools.chain.from_iterable((f"--{k}", v) for k, v in options.items() if v is not None),
            *itertools.chain.from_iterable(("--set", s) for s in SETTINGS.get(algorithm, ())),
        )  # fmt: skip
        if found.code == 2:
            assert found.out == ""
            assert found.err.startswith("error: ")
            assert found.err.count("\n") == 1
            assert not out.exists()
            raise library.DprlError(found.err.removeprefix("error: ").rstrip("\n"))
        assert (found.code, found.err) == (0, "")
        estimate = json.loads((out / "estimate.json").read_text())
        (statement,) = (json.loads(p.read_text()) for p in (out / "certificate.json", out / "statement.json")
                        if p.exists())  # fmt: skip
        has_function = estimate["value_function"] is not None
        theta = library.load_value_function(out).theta if has_function else ()
        return Released(numbers(estimate, theta), estimate, statement)

    def python(log: Any, algorithm: str, bounds: str = BOUNDS_TOML, **changes: Any) -> Released:
        options: dict[str, Any] = {"unit": "trajectory", "target-policy": "uniform", "epsilon": 1.0, "delta": 1e-5}
        options |= changes
        settings = [tuple(s.split("=")) for s in SETTINGS.get(algorithm, ())]
        chosen = {name: json.loads(value) for name, value in settings}
        noise = {"noise_multiplier": float(options.pop("noise-multiplier"))} if "noise-multiplier" in options else {}
        release = library.evaluate(
            str(log) if isinstance(log, Path) else log,
            options.pop("target-policy"),
            library.Budget(float(options.pop("epsilon")), float(options.pop("delta"))),
            bounds=tomllib.loads(bounds),
            algorithm=merge(find(algorithm).load_config(), [(chosen, "code"), (noise, "code")]),
            person=options.pop("person-column", None),
            **options,
        )
        theta = release.value_function.theta if release.value_function is not None else ()
        return Released(numbers(dict(release.estimate), theta), dict(release.estimate), dict(release.certificate))

    return {"command": command, "python": python}


@pytest.fixture(params=["command", "python"])
def door(request, doors) -> Run:
    return doors[request.param]


@pytest.fixture(params=["python gpope", "command importance-sampling"])
def evaluate(request, doors) -> Run:
    """Each of the doors, for one of the algorithms."""
    door, algorithm = request.param.split()
    return functools.partial(doors[door], algorithm=algorithm)


_released: dict[tuple[object, ...], Released] = {}


@pytest.fixture
def once(request, fixed_noise) -> Callable[[str, Callable[[], Released]], Released]:
    """What many tests compare with, released once by each door under each algorithm, always with the same noise."""
    params = request.node.callspec.params
    where = (params.get("door"), params.get("evaluate"))

    def release(what: str, released: Callable[[], Released]) -> Released:
        key = (*where, what)
        if key not in _released:
            fixed_noise(1)
            _released[key] = released()
        return _released[key]

    return release
