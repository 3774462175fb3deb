"""Code as users write it, for a type checker: lines that are marked wrong must be errors, and no others."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.linear_model import LogisticRegression

import dprl

BUDGET = dprl.Budget(1.0, 1e-6)


def policy(states: np.ndarray) -> np.ndarray:
    return np.full((len(states), 2), 0.5)


def untyped(states):
    return np.full((len(states), 2), 0.5)


def of_two(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return states * actions


def scores(states: np.ndarray) -> list[float]:
    return [0.0] * len(states)


def logs(frame: pd.DataFrame, table: pa.Table, columns: dict[str, np.ndarray], path: Path) -> None:
    for log in (frame, table, columns, path, "log.parquet", "minari:corridor/plain-v0"):
        dprl.read_log(log, bounds="bounds.toml")
    dprl.evaluate(frame, policy, BUDGET, bounds="bounds.toml")
    dprl.evaluate(dprl.read_log(path, bounds="bounds.toml"), policy, BUDGET)
    dprl.evaluate(3, policy, BUDGET)  # wrong
    dprl.evaluate(None, policy, BUDGET)  # wrong
    dprl.evaluate([columns], policy, BUDGET)  # wrong
    dprl.learn(3.0, BUDGET)  # wrong
    dprl.read_log(policy, bounds="bounds.toml")  # wrong


def policies(fitted: LogisticRegression) -> None:
    dprl.evaluate("log.parquet", untyped, BUDGET)
    dprl.evaluate("log.parquet", fitted, BUDGET, behavior_policy=policy)
    dprl.evaluate("log.parquet", dprl.load_policy("uniform", 2), BUDGET)
    dprl.evaluate("log.parquet", ["uniform", policy, fitted], BUDGET)
    dprl.evaluate("log.parquet", {"half": policy, "model": fitted, "first": "always:0"}, BUDGET)
    dprl.evaluate("log.parquet", of_two, BUDGET)  # wrong
    dprl.evaluate("log.parquet", scores, BUDGET)  # wrong
    dprl.evaluate("log.parquet", 3, BUDGET)  # wrong
    dprl.evaluate("log.parquet", {"half": 0.5}, BUDGET)  # wrong
    dprl.evaluate("log.parquet", policy, BUDGET, behavior_policy=0.5)  # wrong


def options() -> None:
    release = dprl.evaluate("log.parquet", policy, BUDGET, algorithm="doubly-robust")
    dprl.evaluate("log.parquet", policy, BUDGET, algorithm=dprl.DoublyRobust(discount=1.0))
    low, high = release.interval
    print(release.value + low + high, release.to_frame().to_pandas(), release.report())
    release.plot().save("plot.html")
    dprl.evaluate("log.parquet", policy, BUDGET, algorithm=dprl.DPPG(users=10))  # wrong
    dprl.train("cart-pole", BUDGET, algorithm=dprl.DPPG(users=10), engine="ray")
    dprl.train("cart-pole", BUDGET, algorithm=dprl.DPPG(users=10), engine="rey")  # wrong
    dprl.evaluate("log.parquet", policy, 1.0)  # wrong
    dprl.evaluate("log.parquet", policy, BUDGET, bound="bounds.toml")  # wrong
    dprl.DoublyRobust(discont=1.0)  # wrong
    release.valeu  # wrong  # noqa: B018
