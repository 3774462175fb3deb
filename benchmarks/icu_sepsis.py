"""ICU-Sepsis: a log of 20,000 patients whose true values are known, and the estimates of each estimator.

The environment is that of Choudhary, Gupta and Thomas (2024), made from the records of MIMIC-III: 713 states in which a
patient is treated, 25 actions, and a return of 1 if the patient survives. Its laws are read from the package
icu-sepsis, so that values are exact. A fair coin for each patient decides between the clinicians' policy and random
treatment. The log states the probability of each action given the earlier ones, so that the product along a trajectory
is that of the mixture.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import dprl
from benchmarks.harness import ROOT, goal, table
from benchmarks.markov_values import MarkovRatios
from dprl.bounds import Bounds
from dprl.data.readers import read_log
from dprl.errors import DprlError

PAGE = ROOT / "docs" / "icu-sepsis.md"
PATIENTS, HORIZON, SURVIVED, STATES, ACTIONS = 20_000, 100, 714, 713, 25
COMPONENTS, REACH = 10, 2.0
JUDGING = range(100, 140)
"""Seeds of the logs. Options were chosen on the logs of seeds 0 to 11."""
EPSILONS, DELTA = (1.0, 1_000.0), 1e-5
SLOW = ("recommended", "doubly-robust"), 10
"""Slow algorithms, which read fewer logs than the others, and the number of their logs."""
WITHIN, COVERED = 0.03, 0.95


@dataclass(frozen=True)
class Sepsis:
    """The process of treatment.

    Attributes:
        start: ``(713,)`` law of the first state.
        following: ``(713, 25, 715)`` law of the next state; the last two places are death and survival.
        clinicians: ``(713, 25)`` the clinicians' policy in the dataset.
        admissible: ``(713, 25)`` whether an action was taken often enough in the records. The other actions have the
            mean effect of the admissible ones.
        centres: ``(713, 47)`` means of the patients' measurements in each state.
    """

    start: np.ndarray
    following: np.ndarray
    clinicians: np.ndarray
    admissible: np.ndarray
    centres: np.ndarray

    @classmethod
    def load(cls) -> Sepsis:
        """Return the process from the package's files.

        The package is not imported, since it needs the retired package gym.
        """
        found = importlib.util.find_spec("icu_sepsis")
        if found is None or not found.submodule_search_locations:
            raise DprlError("icu-sepsis is not installed; install it with: pip install --no-deps icu-sepsis==2.0.1.")
        assets = Path(found.submodule_search_locations[0]) / "envs" / "assets"
        given = np.load(assets / "dynamics.npz")
        admissible = np.zeros((STATES, ACTIONS), bool)
        for row, line in zip(admissible, (assets / "admissible_actions.txt").read_text().split("\n")[1:], strict=False):
            row[[int(action) for action in line.split()]] = True
        following = given["tx_mat"][:STATES, :, : SURVIVED + 1]
        policy = given["expert_policy"][:STATES]
        return cls(given["d_0"][:STATES], following, policy, admissible, given["state_cluster_centers"][:STATES])

    @property
    def random(self) -> np.ndarray:
        """``(713, 25)`` policy that draws every action with the same probability."""
        return np.full((STATES, ACTIONS), 1.0 / ACTIONS)

    @cached_property
    def optimal(self) -> np.ndarray:
        """``(713, 25)`` best policy among those of admissible actions, by policy iteration (Howard 1960)."""
        policy = self.random
        while True:
            values = self.values(policy)
            gain = self.following[..., SURVIVED] + self.following[..., :STATES] @ values
            gain = np.where(self.admissible, gain, -1.0)
            policy = np.eye(ACTIONS)[gain.argmax(axis=1)]
            if (gain.max(axis=1) <= values + 1e-12).all():
                return policy

    def values(self, policy: np.ndarray) -> np.ndarray:
        """Return ``(713,)`` chances of survival under a policy ``(713, 25)``, without a horizon."""
        onwards = np.einsum("sa,sat->st", policy, self.following)
        return np.linalg.solve(np.eye(STATES) - onwards[:, :STATES], onwards[:, SURVIVED])

    def value(self, policy: np.ndarray) -> float:
        """Return the chance of survival under a policy, from the law of the first state."""
        return float(self.start @ self.values(policy))

    @property
    def largest_ratio(self) -> float:
        """Largest importance ratio of the optimal policy to the mixture in a step.

        The mixture's probability of an action is at least the smaller one of the two mixed policies.
        """
        return 1.0 / min(1.0 / ACTIONS, float(self.clinicians[self.optimal > 0.0].min()))

    def draw(self, rng: np.random.Generator, patients: int, by_clinicians: float = 0.5) -> dict[str, np.ndarray]:
        """Return a log as columns, in which ``state`` and ``following`` are numbers of states.

        Args:
            rng: source of randomness.
            patients: number of patients.
            by_clinicians: chance that a patient is treated by the clinicians' policy and not at random.
        """
        coin = rng.random(patients) < by_clinicians
        who, state = np.arange(patients), _pick(rng, np.cumsum(self.start)[None], np.zeros(patients, np.int64))
        acts = np.stack([np.cumsum(self.random, axis=1), np.cumsum(self.clinicians, axis=1)]).reshape(-1, ACTIONS)
        nexts = np.cumsum(self.following, axis=-1).reshape(STATES * ACTIONS, -1)
        steps = []
        for t in range(HORIZON):
            action = _pick(rng, acts, STATES * coin[who] + state)
            after = _pick(rng, nexts, ACTIONS * state + action)
            steps.append((who, np.full(len(who), t), state, action, after))
            who, state = who[after < STATES], after[after < STATES]
        episode, t, state, action, after = (np.concatenate(column) for column in zip(*steps, strict=True))
        order = np.lexsort((t, episode))
        episode, t, state, action, after = (x[order] for x in (episode, t, state, action, after))
        ours, others = (_products(policy[state, action], t) for policy in (self.clinicians, self.random))
        product = by_clinicians * ours + (1.0 - by_clinicians) * others
        return {
            "episode_id": episode,
            "t": t,
            "state": state,
            "action": action,
            "following": after,
            "reward": (after == SURVIVED).astype(np.float64),
            "behavior_prob": product / np.where(t > 0, np.append(1.0, product[:-1]), 1.0),
            "terminated": after >= STATES,
            "truncated": (t == HORIZON - 1) & (after < STATES),
        }

    @cached_property
    def components(self) -> np.ndarray:
        """``(713, 10)`` first principal components of the states' centres, each scaled to variance one."""
        scaled = (self.centres - self.centres.mean(axis=0)) / np.maximum(self.centres.std(axis=0), 1e-9)
        return np.linalg.svd(scaled, full_matrices=False)[0][:, :COMPONENTS] * math.sqrt(STATES)


def _pick(rng: np.random.Generator, edges: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` indices, each drawn from the law whose cumulative sums are its row in ``edges`` ``(R, K)``."""
    draws = rng.random(len(rows)) * edges[rows, -1]
    low, high = np.zeros(len(rows), np.int64), np.full(len(rows), edges.shape[1] - 1)
    while (low < high).any():
        middle = (low + high) // 2
        above = edges[rows, middle] <= draws
        low, high = np.where(above, middle + 1, low), np.where(above, high, middle)
    return low


def _products(values: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return products of ``values`` from each trajectory's first row up to each row, by sums of logarithms."""
    with np.errstate(divide="ignore"):
        sums = np.cumsum(np.maximum(np.log(values), -1e3))
    first = np.flatnonzero(t == 0)
    before = np.append(0.0, sums)[first]
    return np.exp(sums - np.repeat(before, np.diff(np.append(first, len(t)))))


# --- estimators ---------------------------------------------------------------------------------------------------


def _released(log: Any, config: Any, policy: str, epsilon: float, seed: int, bounds: Bounds) -> tuple[float, ...]:
    """Return a released value and its interval, or three times NaN if the release is refused."""
    opened = read_log(log, bounds=bounds, target_columns=[policy])
    try:
        (found,) = dprl.evaluate(
            opened, [f"column:{policy}"], dprl.Budget(epsilon, DELTA / 2.0), algorithm=config, seed=seed
        ).values.values()  # fmt: skip
    except DprlError:
        return math.nan, math.nan, math.nan
    return found.value, *found.interval


def bounds_of(ratio: float, product: float | None = None) -> Bounds:
    """Return the declared bounds. The largest importance ratios follow from the policies, which are public."""
    return Bounds(
        units=PATIENTS,
        horizon=HORIZON,
        reward=(0.0, 1.0),
        observation=((-REACH, REACH),) * COMPONENTS,
        actions=ACTIONS,
        max_importance_ratio=ratio,
        max_cumulative_ratio=product,
        return_range=(0.0, 1.0),
    )


def columns_of(sepsis: Sepsis, log: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns for an evaluation: components replace states, and both targets' probabilities are added."""
    own = {name: log[name] for name in ("episode_id", "t", "action", "reward", "behavior_prob", "terminated")}
    targets = {"optimal": sepsis.optimal, "clinicians": sepsis.clinicians}
    own |= {name: policy[log["state"], log["action"]] for name, policy in targets.items()}
    return own | {"truncated": log["truncated"], "observation": sepsis.components[log["state"]]}


ALGORITHMS: Mapping[str, Callable[[], Any]] = {
    "single ratios": lambda: MarkovRatios(confidence=0.975),
    "importance-sampling": lambda: dprl.ImportanceSampling(discount=1.0, confidence=0.975),
    "recommended": lambda: dprl.Recommended(discount=1.0, confidence=0.975),
    "doubly-robust": lambda: dprl.DoublyRobust(discount=1.0, confidence=0.975),
}


def private(sepsis: Sepsis, log: Mapping[str, np.ndarray], seed: int) -> dict[str, tuple[float, ...]]:
    """Return, by algorithm and epsilon, value and interval of the optimal policy and of the clinicians' policy.

    The latter two come from importance sampling with a tenth of epsilon.
    """
    columns = columns_of(sepsis, log)
    out = {}
    for epsilon in EPSILONS:
        sampling = ALGORITHMS["importance-sampling"]()
        other = _released(columns, sampling, "clinicians", 0.1 * epsilon, seed, bounds_of(ACTIONS, 2.0))
        for name, config in ALGORITHMS.items():
            if name in SLOW[0] and seed >= JUDGING.start + SLOW[1]:
                continue
            own = _released(columns, config(), "optimal", 0.9 * epsilon, seed, bounds_of(sepsis.largest_ratio))
            out[f"{name}, {epsilon:g}"] = (*own, *other)
    return out


def without_privacy(sepsis: Sepsis, log: Mapping[str, np.ndarray]) -> dict[str, tuple[float, ...]]:
    """Return the same figures of the usual estimators without privacy.

    Rewards come only in the last step, so that per-decision importance sampling is the same as that of whole
    trajectories.
    """
    episode, t, state, action, after = (log[name] for name in ("episode_id", "t", "state", "action", "following"))
    last = np.append(t[1:] == 0, True)
    reward = log["reward"][last]
    out: dict[str, tuple[float, ...]] = {}
    for policy in (sepsis.optimal, sepsis.clinicians):
        weight = _products(policy[state, action] / log["behavior_prob"], t)
        before, whole = np.where(t > 0, np.append(1.0, weight[:-1]), 1.0), weight[last]
        values = plug_in(state, action, after, policy, float(reward.mean()))
        robust = np.bincount(episode, (before - weight) * values[state] + weight * log["reward"])
        weighted = float((whole * reward).sum() / whole.sum())
        found = {
            "ordinary importance sampling": _mean(whole * reward),
            "weighted importance sampling": _mean(weighted + whole * (reward - weighted) / whole.mean()),
            "doubly robust": _mean(robust),
            "model from counts": (float(values[state[t == 0]].mean()), math.nan, math.nan),
        }
        out = {name: (*out.get(name, ()), *numbers) for name, numbers in found.items()}
    return out


def plug_in(state: np.ndarray, action: np.ndarray, after: np.ndarray, policy: np.ndarray, unseen: float) -> np.ndarray:
    """Return ``(713,)`` values under the transition frequencies of the log.

    The value is ``unseen`` in a state where the log has no action of the policy.
    """
    cell = ACTIONS * state + action
    seen = np.bincount(cell, minlength=STATES * ACTIONS).reshape(STATES, ACTIONS)
    kept = np.where(seen > 0, policy, 0.0)
    share = kept.sum(axis=1)
    kept = np.divide(kept, np.maximum(share, 1e-300)[:, None] * np.maximum(seen, 1))
    onwards = np.zeros((STATES, SURVIVED + 1))
    np.add.at(onwards, (state, after), kept.ravel()[cell])
    onwards *= 1.0 - 1e-9  # keeps the system solvable if the log never leaves a state
    reward = np.where(share > 0.0, onwards[:, SURVIVED], unseen)
    return np.linalg.solve(np.eye(STATES) - onwards[:, :STATES], reward)


def _mean(terms: np.ndarray) -> tuple[float, float, float]:
    """Return a mean and its interval of 97.5% by the normal law."""
    value, half = float(terms.mean()), 2.2414 * float(terms.std()) / math.sqrt(len(terms))
    return value, value - half, value + half


# --- the table ----------------------------------------------------------------------------------------------------


def run() -> dict[str, Any]:
    """Return the benchmark's record, and write the page that is made from it."""
    sepsis = Sepsis.load()
    policies = {"optimal": sepsis.optimal, "clinicians": sepsis.clinicians, "random": sepsis.random}
    truth = {name: sepsis.value(policy) for name, policy in policies.items()}
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in JUDGING:
        log = sepsis.draw(np.random.default_rng(seed), PATIENTS)
        for name, numbers in (private(sepsis, log, seed) | without_privacy(sepsis, log)).items():
            found.setdefault(name, []).append(numbers)
    result = summary(truth, found)
    PAGE.write_text(page(result), encoding="utf-8")
    return result


def summary(truth: Mapping[str, float], found: Mapping[str, list[tuple[float, ...]]]) -> dict[str, Any]:
    """Return the record of the values and intervals of both policies, which are given seed by seed."""
    rows, reached = [], {}
    for name, numbers in found.items():
        value, low, high, other, *ends = np.array(numbers).T
        if np.isnan(value).all():
            rows.append([name, "refused", *[""] * 6])
            continue
        error, difference = value - truth["optimal"], value - other
        within, sign = np.abs(error) <= WITHIN, difference > 0.0
        covers = (low <= truth["optimal"]) & (truth["optimal"] <= high)
        tells = low - ends[1] > 0.0
        ends_shown = [f"{low.mean():.3f} to {high.mean():.3f}", _count(covers), _count(tells)]
        rows.append([
            name, f"{value.mean():.4f}", f"{math.sqrt(np.mean(error**2)):.4f}", _count(within),
            *(["none", "", ""] if np.isnan(low).all() else ends_shown), _count(sign),
        ])  # fmt: skip
        reached[name] = math.sqrt(np.mean(error**2)), float(np.mean(covers)), float(np.mean(sign))
    error, covered, right = reached[f"single ratios, {EPSILONS[0]:g}"]
    headings = [
        "estimator, epsilon", "mean value", "RMS error", f"within {WITHIN}", "interval, mean ends", "covers",
        "tells the better", "sign right",
    ]  # fmt: skip
    return {
        "title": "ICU-Sepsis",
        "notes": [
            f"Value of the optimal policy ({truth['optimal']:.4f}; the clinicians' is {truth['clinicians']:.4f}, that "
            f"of random actions {truth['random']:.4f}, by solving the process) from {len(JUDGING)} logs of "
            f"{PATIENTS:,} patients, delta {DELTA:g}; nine tenths of epsilon pay for it, and one for the clinicians' "
            "value by importance sampling. Epsilon 1000 is as good as no noise. Intervals are of 97.5%, so that two "
            "hold together at 95%; the last columns are of the optimal policy less the clinicians'.",
        ],
        "table": table(headings, rows),
        "goals": [
            goal("RMS error of single ratios", error, WITHIN, False, ""),
            goal("logs whose interval covers", covered, COVERED, True, ""),
            goal("logs in which the sign is right", right, COVERED, True, ""),
        ],
        "found": {name: [list(x) for x in numbers] for name, numbers in found.items()},
        "truth": dict(truth),
    }


def _count(which: np.ndarray) -> str:
    return f"{int(which.sum())} of {len(which)}"


def page(result: Mapping[str, Any]) -> str:
    """Return the text of docs/icu-sepsis.md from the benchmark's record and the template beside this file."""
    figures = "\n\n".join([*result["notes"], result["table"]])
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").replace("{figures}", figures)
