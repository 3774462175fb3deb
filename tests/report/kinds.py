"""Seven kinds of release, made through the front doors with noise from the operating system, and two pages more."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dprl
from dprl.report import render

from .conftest import SAMPLE
from .test_protector import FACTS, LOG, protector_page

EXAMPLES = Path(__file__).parents[2] / "examples"
BUDGET = dprl.Budget(1.0, 1e-5)
ARMS = ("zidovudine", "zidovudine and didanosine", "zidovudine and zalcitabine", "didanosine")
PATIENTS = 20_000


def trial(folder: Path) -> None:
    """Values of four arms and of a policy that nobody ran, and what each is worth more than the first arm."""
    columns = _patients() | {"behavior_prob": np.full(2139, 0.25)}
    names = ("treat_low_cd4", "zidovudine", "zidovudine_didanosine", "zidovudine_zalcitabine", "didanosine")
    log = _written(folder, "actg175", columns)
    release = dprl.evaluate(
        log, [f"{EXAMPLES / 'actg175_policy.py'}:{name}" for name in names], BUDGET,
        algorithm=dprl.ImportanceSampling(), bounds=EXAMPLES / "actg175_bounds.toml", compare=["all:zidovudine"],
        outcome="change of the CD4 count from baseline to week 20, in cells per mm³",
    )  # fmt: skip
    release.save(folder / "trial")


def survival(folder: Path) -> None:
    """How many are without an event, over time, under three arms."""
    columns = _patients()
    columns |= {"reward": columns.pop("days"), "terminated": columns.pop("event")}
    bounds = dprl.Bounds(
        units=2139, horizon=1, reward=(0.0, 1300.0), observation=((0.0, 90.0), (0.0, 1200.0)), actions=4,
        observation_names=("age in years", "CD4 cells per mm³ at baseline"), action_names=ARMS, max_importance_ratio=4,
    )  # fmt: skip
    release = dprl.evaluate(
        _written(folder, "times", columns), [f"always:{ARMS[a]}" for a in (0, 1, 3)], BUDGET, bounds=bounds,
        algorithm=dprl.Survival(until=700), compare=["all:always_zidovudine"],
        behavior_policy=fair_draw, outcome="a CD4 count that halved, AIDS or death",
    )  # fmt: skip
    release.save(folder / "survival")


def rule(folder: Path) -> None:
    """A rule of two comparisons, learned from a simulated trial."""
    rng = np.random.default_rng(3)
    age, pressure = rng.uniform(20.0, 90.0, PATIENTS), rng.uniform(80.0, 200.0, PATIENTS)
    action = rng.integers(0, 2, PATIENTS)
    gain = np.where((pressure > 140.0) & (age < 70.0), 0.35, -0.35)
    columns = {
        "person_id": np.arange(PATIENTS), "observation_0": age, "observation_1": pressure, "action": action,
        "reward": (rng.random(PATIENTS) < 0.5 + (2 * action - 1) * gain).astype(float),
        "behavior_prob": np.full(PATIENTS, 0.5),
    }  # fmt: skip
    bounds = dprl.Bounds(
        units=PATIENTS, horizon=1, reward=(0.0, 1.0), observation=((20.0, 90.0), (80.0, 200.0)), actions=2,
        observation_names=("age in years", "blood pressure in mmHg"), action_names=("advice alone", "a tablet"),
        max_importance_ratio=2,
    )  # fmt: skip
    cuts = ["age in years:50,60,70", "blood pressure in mmHg:120,140,160"]
    log = _written(folder, "pressure", columns)
    outcome = "share of people whose blood pressure is in order after a year"
    dprl.learn(log, BUDGET, bounds=bounds, cuts=cuts, outcome=outcome).save(folder / "rule")


def regime(folder: Path) -> None:
    """A policy of two steps, learned from a simulated log."""
    rng = np.random.default_rng(3)
    marker, noise = rng.uniform(-1.0, 1.0, PATIENTS), rng.normal(0.0, 0.3, PATIENTS)
    action = rng.integers(0, 2, (PATIENTS, 2))
    first = rng.uniform(-1.0, 1.0, PATIENTS)
    second = np.clip(0.6 * first + 0.2 * action[:, 0] + noise, -1.0, 1.0)
    sign = 2 * action - 1
    mean = 0.5 + 0.4 * sign * np.column_stack([marker, second - 0.1])
    columns = {
        "person_id": np.repeat(np.arange(PATIENTS), 2), "episode_id": np.repeat(np.arange(PATIENTS), 2),
        "t": np.tile([0, 1], PATIENTS), "terminated": np.tile([False, True], PATIENTS),
        "observation_0": np.tile([0.0, 1.0], PATIENTS), "observation_1": np.column_stack([first, second]).ravel(),
        "observation_2": np.repeat(marker, 2), "action": action.ravel(),
        "reward": 0.5 * (rng.random((PATIENTS, 2)) < np.clip(mean, 0.0, 1.0)).ravel(),
        "behavior_prob": np.full(2 * PATIENTS, 0.5),
    }  # fmt: skip
    bounds = dprl.Bounds(
        units=PATIENTS, horizon=2, reward=(0.0, 0.5), observation=((0.0, 1.0), (-1.0, 1.0), (-1.0, 1.0)), actions=2,
        observation_names=("stage", "severity", "marker"), action_names=("wait", "treat"), max_importance_ratio=2,
    )  # fmt: skip
    log = _written(folder, "regime", columns)
    dprl.learn(log, BUDGET, bounds=bounds, learner="fitted-q").save(folder / "regime")


def best(folder: Path) -> None:
    """The best of 101 rules, chosen and valued on a simulated trial in which treatment helps below the age of 50."""
    rng = np.random.default_rng(2)
    age, treated = rng.uniform(0.0, 100.0, PATIENTS), rng.integers(0, 2, PATIENTS)
    columns = {
        "person_id": np.arange(PATIENTS), "observation_0": age, "action": treated,
        "reward": (rng.random(PATIENTS) < 0.5 + (50.0 - age) / 200.0 * treated).astype(float),
        "behavior_prob": np.full(PATIENTS, 0.5),
    }  # fmt: skip
    bounds = dprl.Bounds(
        units=PATIENTS, horizon=1, reward=(0.0, 1.0), observation=((0.0, 100.0),), actions=2,
        observation_names=("age in years",), action_names=("wait", "treat"), max_importance_ratio=2,
    )  # fmt: skip
    policies = {f"treat below {cut}": _treat_below(cut) for cut in range(101)}
    log = _written(folder, "ages", columns)
    outcome = "share of people who recover"
    dprl.evaluate(log, policies, BUDGET, bounds=bounds, best=True, outcome=outcome).save(folder / "best")


def rewards(folder: Path) -> None:
    """A Q-function learned where what is paid is private."""
    algorithm = dprl.FunctionalQ(variant="functional", reward_radius=0.01)
    dprl.train("interval-walk", dprl.Budget(0.9, 1e-4), algorithm=algorithm).save(folder / "rewards")


def people(folder: Path) -> None:
    """A policy learned from people, each of whom answers once."""
    dprl.train("cart-pole", dprl.Budget(0.5, 1e-6), algorithm=dprl.DPPG(users=2000)).save(folder / "people")


KINDS = (trial, survival, best, rule, regime, rewards, people)


def others(folder: Path) -> dict[str, Path]:
    """Pages that no release of these wrote: a protector's, and one that carries a warning and has many columns."""
    estimate, certificate = (
        json.loads((SAMPLE / f"{name}.json").read_text(encoding="utf-8")) for name in ("estimate", "certificate")
    )
    many = {"strata": ["all of them"], "propensities": [[0.0625] * 16], "noisy_counts": [[134.0] * 16]}
    exposed = render({**estimate, "propensities": many}, {**certificate, "status": "not private"})
    facts = {**FACTS, "provenance": {**FACTS["provenance"], "tasks": "chains"}}
    pages = {"protector": protector_page(facts, LOG, [1.2, 1.2, 0.8, 0.8], "ab" * 32), "warning": exposed}
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


def fair_draw(states: np.ndarray) -> np.ndarray:
    """Draw one of four arms, each as likely as the others."""
    return np.full((len(states), 4), 0.25)


def _treat_below(cut: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda states: np.eye(2)[(states[:, 0] < cut).astype(int)]


def _patients() -> dict[str, np.ndarray]:
    source = Path(str(distribution("lifelines").locate_file("lifelines/datasets/ACTG175.csv")))
    with source.open(newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> np.ndarray:
        return np.array([float(row[name]) for row in rows])

    return {
        "person_id": column("pidnum").astype(int), "observation_0": column("age"), "observation_1": column("cd40"),
        "action": column("arms").astype(int), "reward": column("cd420") - column("cd40"), "days": column("days"),
        "event": column("cens") == 1.0,
    }  # fmt: skip


def _written(folder: Path, name: str, columns: dict[str, np.ndarray]) -> Path:
    path = folder / f"{name}.parquet"
    known = {key: values for key, values in columns.items() if key not in ("days", "event")}
    pq.write_table(pa.table(known), path)
    return path
