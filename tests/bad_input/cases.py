"""Seeded requests of every kind of wrongness: the public part of a fuzzer's case.

Form of the log, its columns and types, bounds, flags, run file, policies; the rows are drawn apart (rows.py),
so that one
request can be made of two different sets of rows.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

POLICIES = '''
import warnings
import numpy as np

def sound(states):
    return np.full((len(states), 2), 0.5)

def mostly(states):
    p = np.where(states[:, 0] < 5.0, 0.9, 0.2)
    return np.stack([p, 1.0 - p], axis=1)

def picky(states):
    """Sound on public states; stumbles over what only the rows hold."""
    if np.any(np.abs(states - 7.731904652) < 1e-9):
        warnings.warn(f"PATIENT-ZERO-7731 {states}")
        raise RuntimeError(f"PATIENT-ZERO-7731 {states}")
    return np.full((len(states), 2), 0.5)

def sulky(states):
    """The same, without a word."""
    seen = np.any(np.abs(states - 7.731904652) < 1e-9, axis=1)
    return np.where(seen[:, None], np.nan, np.full((len(states), 2), 0.5))

def raises(states):
    raise RuntimeError("no")

def stops(states):
    raise SystemExit(3)

def nothing(states):
    return None

def nan(states):
    return np.full((len(states), 2), np.nan)

def flat(states):
    return np.full(len(states), 0.5)

def wide(states):
    return np.full((len(states), 3), 1 / 3)

def negative(states):
    return np.tile([1.5, -0.5], (len(states), 1))

def unsummed(states):
    return np.ones((len(states), 2))

def words(states):
    return [["a", "b"]] * len(states)

def ragged(states):
    return [[0.5, 0.5]] * (len(states) - 1) + [[1.0]]

def batch(states):
    return np.full((len(states), 2), 0.5) if len(states) > 1 else np.array([[1.0, 0.0]])

def imaginary(states):
    return np.full((len(states), 2), 0.5 + 0j)

def huge(states):
    return np.full((len(states), 2), 1e308)

def divides(states):
    return np.full((len(states), 2), 0.5) / (states[:, :1] * 0.0)

five = 5
'''
SOUND = ("sound", "mostly", "picky", "sulky")
UNSOUND = ("raises", "stops", "nothing", "nan", "flat", "wide", "negative", "unsummed", "words", "ragged", "batch",
           "imaginary", "huge", "divides", "five", "absent", "", "é", "a b", "__doc__")  # fmt: skip

ORDINARY: dict[str, Any] = {
    "person_id": pa.string(), "episode_id": pa.string(), "t": pa.int64(), "observation_0": pa.float64(),
    "observation_1": pa.float64(), "action": pa.int64(), "reward": pa.float64(), "behavior_prob": pa.float64(),
    "terminated": pa.bool_(), "truncated": pa.bool_(), "target_prob": pa.float64(),
}  # fmt: skip
NUMERIC = [pa.float64(), pa.float32(), pa.float16(), pa.int64(), pa.int32(), pa.int8(), pa.uint64(), pa.bool_(),
           pa.decimal128(30, 8), pa.decimal256(60, 8), pa.null()]  # fmt: skip
IDENTIFIERS = [pa.string(), pa.large_string(), pa.int64(), pa.uint64(), pa.float64(), pa.float16(), pa.null(),
               pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())]  # fmt: skip
WRONG = [pa.string(), pa.large_string(), pa.binary(), pa.timestamp("us"), pa.date32(), pa.time64("us"),
         pa.duration("s"),
         pa.list_(pa.string()), pa.list_(pa.list_(pa.float64())), pa.struct([("x", pa.float64())]), pa.bool_(),
         pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.float64()), pa.list_(pa.float64(), 2),
         pa.map_(pa.string(), pa.float64()), pa.string_view(), pa.binary(4),
         pa.month_day_nano_interval()]  # fmt: skip
NAMES = ["", " ", "x", "reward ", "Reward", "rewards", "state", "state_0", "observation", "observation_2",
         "obs\nervation",
         "observation_99999999999", "next_observation", "next_observation_0", "pscore", "done", "trajectory",
         "é\u202e",
         "😀", "target:x", "a" * 300, "observation_01", "'\"", "\t", "nan", "0", "step_per_trajectory"]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One request; everything in it is public."""

    seed: int
    form: str
    types: dict[str, Any]
    extra: tuple[tuple[str, Any], ...]  # more columns, under names that may be there already
    bounds: bytes
    options: dict[str, list[str] | None]
    run_file: bytes | None
    command: str
    ledger: bool
    sound: bool  # whether nothing but the rows is wrong
    settings: tuple[str, ...] = ()


BOUNDS = {"units": 60, "horizon": 4, "reward": [-1, 1], "observation": [[0, 10], [-5, 5]], "actions": 2,
          "max_importance_ratio": 2}  # fmt: skip
VALUES: list[Any] = ["infer", "", "é", -1, 0, 1, 3, 1.5, math.inf, -math.inf, math.nan, 1e308, 10**12, 10**12 + 1,
                     10**30,
                     -(10**30), True, [], [1], [2, 1], [0, 0], [-1, 1], [math.nan, 1], [0, math.inf], ["0", "1"],
                     [[0, 1]],
                     [[0, 1], [0, 1]], [[0, 0], [3, 3]], [[0, 1], [0]], [[[0]]], {}, {"x": 1}, [None], 1e-320, 1e50,
                     1e51,
                     [1e50, 1e50], [-1e50, 1e50], [5e-324, 1e-323], [10**30, 10**31], [True, False]]  # fmt: skip
REQUESTS = ("log", "target_policy", "bounds", "unit", "person_column", "epsilon", "delta", "algorithm", "features",
            "ledger",
            "dataset", "behavior_policy", "outcome", "discount", "estimator", "second_moment_weight", "confidence",
            "variance_margin",
            "noise_multiplier", "provenance", "steps", "out", "seed", "stepz", "é")  # fmt: skip
FLAGS: dict[str, list[Any]] = {
    "unit": ["person", "trajectory", "transition", "family", "", "Person"],
    "person-column": ["person_id", "episode_id", "absent", "", "é", "reward"],
    "epsilon": ["1", "0.5", "0", "-1", "nan", "inf", "1e999", "1e-12", "1e6", "x", "", "１"],
    "delta": ["1e-5", "1e-6", "0", "1", "0.2", "-1", "nan", "1e-300", "x", "1e-20"],
    "discount": ["0", "1", "0.5", "-0.1", "1.1", "nan", "inf", "1e-300", "x"],
    "algorithm": ["gpope", "importance-sampling", "magic", "", "GPOPE", "é", "constant", "first-visit"],
    "features": ["columns", "tabular", "fourier:1", "fourier:0", "fourier:999999", "fourier:-1", "deep", "",
                 "fourier:é"],
    "noise-multiplier": ["4", "1", "0", "-1", "nan", "inf", "1e-300", "1e300", "1999", "x"],
    "behavior-policy": ["uniform", "column", "column:behavior_prob", "POLICIES:mostly", "POLICIES:nan", "é", ""],
    "seed": ["0", "-1", "9" * 30, "x", "1.5", str(2**63 - 1)],
    "outcome": ["a value", "", "é😀\u202e", "<script>alert(1)</script>", "\udcff", "a\nb", "x" * 5000],
    "sign": ["absent.pem", "bounds.toml", ".", ""],
    "dataset": ["trial", "other", "", "é", "'; drop table charges; --", "\udcff"],
    "ledger": ["ledger.db", "absent.db", "bounds.toml", ".", ""],
    "out": ["results", "bounds.toml", ".", "bounds.toml/x", "x" * 300, "", "/proc/x", "\udcff", "é", "a/b/c"],
    "config": ["absent.toml", ".", "bounds.toml", ""],
    "log": ["absent.parquet", ".", "", "bounds.toml", "minari:x", "minari:", "x" * 300 + ".csv", "\udcff.csv",
            "é.csv"],
    "bounds": ["absent.toml", ".", "infer", "", "log.csv"],
    "target-policy": ["greedy", "", "column:", "column", "column:target_prob", "column:absent", "x.pkl",
                      "x.joblib:f", "a.py",
                      "a.py:", ":f", "uniform:x", "é", "column:reward", "column:person_id"],
    "simulated": [None],
    "json": [None],
    "no-such-flag": ["1", None],
}  # fmt: skip
STEPPED, TABULAR = ("gpope", "td", "return-regression"), ("noisy-counts", "first-visit")
PROGRAMS = (*STEPPED, *TABULAR, "recommended", "adassp", "lstd", "doubly-robust", "constant")
SETTINGS = ["variance_margin=1", "confidence=0.8", "estimator=self-normalised", "estimator=trajectory",
            "estimator=per-decision",
            "estimator=x", "variance_margin=nan", "variance_margin=inf",
            "variance_margin=-1", "variance_margin=[1]", "variance_margin={}", "variance_margin='",
            "x", "=", "",
            "steps=1", "stepz=1", "provenance={variance_margin='public: x'}", "provenance={variance_margin='private'}",
            "provenance=1",
            "provenance={stepz='public: x'}", "é=1", "variance_margin=" + "9" * 400, "second_moment_weight=0.05",
            "second_moment_weight=1e-320",
            "confidence=0.9999999999999999", "confidence=1", "discount=0.0", "variance_margin=1979-05-27", "[x]\n=1",
            "provenance={variance_margin='charged: 1'}", "confidence=1e400"]  # fmt: skip

BROKEN = [b"", b"\xff", b"x", b"units =", b"units = 12\nunits = 13", b"[[" * 2000, b"[" * 3000, b"a" * 10**5, b"\0",
          b"=1", b"[x]", b"units = " + b"9" * 5000, b"epsilon = " + b"9" * 5000, "é = 1".encode()]  # fmt: skip


def toml(value: Any) -> str:
    """A value as TOML, as far as it has one."""
    if isinstance(value, bool) or value is None:
        return "true" if value else "false"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else str(value)


def make_case(seed: int) -> Case:
    """The public part of case ``seed``."""
    random = Random(f"public {seed}")
    types, extra = dict(ORDINARY), []
    bounds: bytes | dict[str, Any] = dict(BOUNDS)
    options: dict[str, list[str] | None] = {
        "unit": [random.choice(["person", "trajectory"])], "epsilon": ["1"], "delta": ["1e-5"],
        "algorithm": ["importance-sampling"],
        "target-policy": [random.choice(["uniform", "column:target_prob", *(f"POLICIES:{p}" for p in SOUND)])],
    }  # fmt: skip
    form = random.choice(["parquet", "parquet", "csv", "csv", "mapping", "arrays", "table", "frame"])
    command = random.choices(["evaluate", "plan", "data describe"], [8, 1, 1])[0]
    settings: list[str] = []
    run_file = None
    # types that are right, though not the usual ones
    for name in types:
        if random.random() < 0.15:
            choice = IDENTIFIERS if name.endswith("_id") else NUMERIC
            types[name] = random.choice(choice)
    if random.random() < 0.2:
        types.pop("observation_1")
        types["observation_0"] = None
        types = {("observation" if k == "observation_0" else k): v for k, v in types.items()}
        types["observation"] = random.choice(
            [pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.int64())]
        )
    if random.random() < 0.2:
        types["next_observation_0"], types["next_observation_1"] = pa.float64(), pa.float32()
    if random.random() < 0.3:
        types.pop(random.choice(["truncated", "target_prob"]))
    if random.random() < 0.06:
        program = random.choice(PROGRAMS)
        options["algorithm"] = [program]
        if program in STEPPED:
            settings.append("steps=2")
            if random.random() < 0.5:
                settings.append("sampling_rate=0.5")
        elif program in TABULAR:
            options["features"] = ["tabular"]
    elif random.random() < 0.3:
        settings.append(random.choice(["estimator=trajectory", "estimator=per-decision", "estimator=self-normalised"]))
    if random.random() < 0.15:
        options["target-policy"] = ["uniform", "POLICIES:mostly"]
    ledger = random.random() < 0.5
    sound = random.random() < 0.45
    for _ in range(0 if sound else random.choice([1, 1, 1, 2, 3])):
        kind = random.choice(["column", "column", "bounds", "bounds", "flag", "flag", "run file", "policy", "setting"])
        if kind == "column":
            names = list(types)
            name = random.choice(names)
            what = random.choice(["drop", "rename", "wrong", "double", "extra"])
            if what == "drop":
                types.pop(name)
            elif what == "rename":
                types = {(random.choice(NAMES) if k == name else k): v for k, v in types.items()}
            elif what == "wrong":
                types[name] = random.choice(WRONG)
            elif what == "double":
                extra.append((name, types[name]))
            else:
                extra.append((random.choice(NAMES), random.choice(WRONG + NUMERIC)))
        elif kind == "bounds":
            if options["algorithm"] in [[p] for p in PROGRAMS]:  # every other bound is another program to compile
                options["algorithm"], settings = ["importance-sampling"], []
            if random.random() < 0.1:
                bounds = random.choice(BROKEN)
            elif isinstance(bounds, dict):
                name = random.choice(
                    [*BOUNDS, "action", "value", "max_cumulative_ratio", "observation_names", "x", "é"]
                )
                if random.random() < 0.2:
                    bounds.pop(name, None)
                else:
                    bounds[name] = random.choice(VALUES)
        elif kind == "flag":
            name = random.choice(list(FLAGS))
            value = random.choice(FLAGS[name])
            if random.random() < 0.15:
                options[name] = None
            else:
                options[name] = [] if value is None else [value]
        elif kind == "setting":
            settings.append(random.choice(SETTINGS))
        elif kind == "policy":
            spec = random.choice(["POLICIES:" + random.choice(UNSOUND), *FLAGS["target-policy"]])
            options["target-policy"] = [spec] if random.random() < 0.7 else ["uniform", spec]
        elif random.random() < 0.2:
            run_file = random.choice(BROKEN)
        else:
            chosen = random.sample(REQUESTS, random.randint(1, 3))
            run_file = "\n".join(f"{json.dumps(k)} = {toml(random.choice(VALUES))}" for k in chosen).encode()
    if (whose := Random(f"unit {seed}").random()) < 0.06:
        options["unit"] = ["transition"]
        if whose < 0.05:  # the others are refused
            types["next_observation_0"], types["next_observation_1"] = pa.float64(), pa.float32()
    text = (
        bounds
        if isinstance(bounds, bytes)
        else "\n".join(f"{json.dumps(k)} = {toml(v)}" for k, v in bounds.items()).encode()
    )
    return Case(seed, form, types, tuple(extra), text, options, run_file, command, ledger, sound, tuple(settings))
