"""Worker: learners without privacy on the logs of :mod:`benchmarks.learn_from_log`.

``python -m benchmarks.learn_from_log_peers FOLDER`` reads the logs in a folder, ``*.npz``, and prints a JSON object for
each log. It has, for every learner, the action for each of the simulator's people, and the seconds that learning took.
It imports nothing of ``dprl``.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import pin

ARMS, STEPS = 4, 2000
Learner = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _scores(action: np.ndarray, residual: np.ndarray) -> np.ndarray:
    return np.eye(ARMS)[action] * ARMS * residual[:, None]


def rule_search(states: np.ndarray, action: np.ndarray, reward: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the actions of the best rule of two comparisons at eighths of the declared ranges.

    A rule's score is the weighted sum of rewards less their mean.
    """
    scores = _scores(action, reward - reward.mean())
    cuts = [(i, high * at / 8.0) for i, high in enumerate((90.0, 1200.0)) for at in range(1, 8)]
    best, found = -np.inf, np.zeros(len(asked), int)
    for (i, one), (j, two), below in itertools.product(cuts, cuts, (True, False)):

        def leaf(x: np.ndarray, i: int = i, j: int = j, cuts: Any = (one, two, below)) -> np.ndarray:
            return np.where((x[:, i] < cuts[0]) == cuts[2], 1 + (x[:, j] < cuts[1]), 0)

        sums = np.stack([np.bincount(leaf(states), scores[:, a], 3) for a in range(ARMS)], axis=1)
        if sums.max(axis=1).sum() > best:
            best, found = sums.max(axis=1).sum(), sums.argmax(axis=1)[leaf(asked)]
    return found


def _fitted(states: np.ndarray, action: np.ndarray, reward: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the mean rewards ``(N, A)`` of a linear regression for each action."""
    design, there = (np.column_stack([np.ones(len(x)), x]) for x in (states, asked))
    weights = [np.linalg.lstsq(design[action == a], reward[action == a], rcond=None)[0] for a in range(ARMS)]
    return there @ np.stack(weights, axis=1)


def regression(states: np.ndarray, action: np.ndarray, reward: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the best actions by a linear regression for each action."""
    return _fitted(states, action, reward, asked).argmax(axis=1)


def policy_tree(states: np.ndarray, action: np.ndarray, reward: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the actions of a tree of depth two on doubly robust scores (Athey and Wager 2021), grown greedily."""
    from sklearn.tree import DecisionTreeRegressor

    means = _fitted(states, action, reward, states)
    robust = means + _scores(action, reward - means[np.arange(len(reward)), action])
    tree = DecisionTreeRegressor(max_depth=2, min_samples_leaf=50, random_state=0).fit(states, robust)
    return tree.predict(asked).argmax(axis=1)


def of_d3rlpy(name: str) -> Learner:
    """Return a learner of d3rlpy with its default options, for one decision."""
    import d3rlpy

    def learner(states: np.ndarray, action: np.ndarray, reward: np.ndarray, asked: np.ndarray) -> np.ndarray:
        seen, there = (((x - states.mean(0)) / states.std(0)).astype(np.float32) for x in (states, asked))
        data = d3rlpy.dataset.MDPDataset(
            seen, action[:, None], (reward[:, None] / 500.0).astype(np.float32), np.ones(len(seen), np.float32),
            action_space=d3rlpy.constants.ActionSpace.DISCRETE, action_size=ARMS,
        )  # fmt: skip
        model = getattr(d3rlpy.algos, f"{name}Config")(gamma=0.0).create(device=False)
        quiet = {"show_progress": False, "logger_adapter": d3rlpy.logging.NoopAdapterFactory()}
        model.fit(data, n_steps=STEPS, n_steps_per_epoch=STEPS, **quiet)
        return model.predict(there)

    return learner


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    learners: dict[str, Learner] = {
        "rule search, NumPy": rule_search, "regression, NumPy": regression, "policy tree, scikit-learn": policy_tree,
        f"DQN of one step, d3rlpy {version('d3rlpy')}": of_d3rlpy("DQN"),
        f"BCQ of one step, d3rlpy {version('d3rlpy')}": of_d3rlpy("DiscreteBCQ"),
    }  # fmt: skip
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as log:
            arrays = [log[name] for name in ("states", "action", "reward", "asked")]
        out = {}
        for name, learner in learners.items():
            start = time.process_time()
            actions = learner(*arrays)
            out[name] = {"seconds": time.process_time() - start, "actions": np.asarray(actions).tolist()}
        print(json.dumps(out), flush=True)


if __name__ == "__main__":
    pin(1)
    main(Path(sys.argv[1]))
