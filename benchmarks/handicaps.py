"""How large the handicap of larger classes of rules should be: how much the chosen rule beats the best single action.

``python -m benchmarks.handicaps`` draws problems of one decision by seed. In them all actions are alike, or actions
differ equally for everybody, by one comparison, by two, or smoothly. Rules are chosen on 200 to 4,000 people, at
epsilon .25 to 4. It prints the mean gain over the best single action, in thousandths of half the reward range, for
several sizes of the handicap's two parts (:data:`dprl.evaluation.learned_policy.HANDICAP`), on the seeds for choosing
and on those for judging. It prints the same for a declared deviation of rewards from the middle
(:data:`dprl.evaluation.learned_policy.DECLARED`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.harness import pin, table
from dprl.evaluation.learned_policy import TOO_FAR
from dprl.policies.rules import Rule, fixed_actions, public_cuts, thresholds, trees

CHOOSING, JUDGING = range(25), range(100, 125)
KINDS = ("none", "arms", "threshold", "tree", "smooth")
CHANCES, NOISES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2), (0.0, 0.5, 1.0, 2.0)
PEOPLE, EPSILONS, LOGS, MOST = (200, 800, 4000), (0.25, 1.0, 4.0), 6, 1000


def problem(seed: int) -> tuple[int, float, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Return the number of a state's components, the spread of rewards, the behaviour policy, and the mean rewards.

    The last is a function from states to means ``(N, A)``.
    """
    rng, kind = np.random.default_rng([seed, 77]), KINDS[seed % 5]
    size, actions, noise = int(rng.integers(1, 6)), int(rng.integers(2, 5)), float(rng.choice([0.15, 0.4, 1.0]))
    behavior = 0.5 * rng.dirichlet(np.ones(actions) * 5) + 0.5 / actions
    base, effect = rng.uniform(-0.4, 0.4), rng.uniform(0.05, 0.3)
    arms = rng.normal(size=actions) * effect * 0.5 * (kind != "none")
    cuts, where, acts = rng.uniform(0.2, 0.8, size=2), rng.integers(0, size, 2), rng.integers(0, actions, 3)
    slopes = rng.normal(size=(actions, size))

    def mean(states: np.ndarray) -> np.ndarray:
        out = base + np.tile(arms, (len(states), 1))
        first, second = states[:, where[0]] < cuts[0], states[:, where[1]] < cuts[1]
        if kind == "threshold":
            out[first, acts[0]] += effect
            out[~first, acts[1]] += effect
        if kind == "tree":
            for action, there in zip(acts, (first & second, first & ~second, ~first), strict=True):
                out[there, action] += effect
        return np.clip(out + effect * np.tanh((states - 0.5) @ slopes.T) * (kind == "smooth"), -0.95, 0.95)

    return size, noise, behavior, mean


def gains(seed: int) -> np.ndarray:
    """Return ``(2, chances, noises)`` mean gains over the best single action: without and with a declared deviation."""
    size, noise, behavior, mean = problem(seed)
    actions, ratio, rng = len(behavior), 1.0 / behavior.min(), np.random.default_rng([seed, 5])
    names, cuts = tuple("abcdef"[:size]), public_cuts([(0.0, 1.0001)] * size)
    levels = [list(fixed_actions(actions, names)), list(thresholds(actions, names, cuts))]
    rest = MOST - sum(map(len, levels))
    levels.append(list(itertools.islice(trees(actions, names, cuts), rest)))
    rules: list[Rule] = [rule for level in levels for rule in level]
    sizes, states = np.cumsum([len(level) for level in levels]), rng.random((20_000, size))
    level, means = np.repeat([0, 1, 2], [len(level) for level in levels]), mean(states)
    true = np.array([means[np.arange(len(states)), rule.action(states)].mean() for rule in rules])
    out, best = np.zeros((2, len(CHANCES), len(NOISES))), true[:actions].max()
    for people, epsilon, _ in itertools.product(PEOPLE, EPSILONS, range(LOGS)):
        seen, did = rng.random((people, size)), rng.choice(actions, size=people, p=behavior)
        there = mean(seen)[np.arange(people), did]
        coins = np.where(rng.random(people) < (there + 1.0) / 2.0, 1.0, -1.0)
        reward = coins if noise == 1.0 else np.clip(there + noise * rng.normal(size=people), -1.0, 1.0)
        agrees = np.stack([rule.action(seen) for rule in rules]) == did
        # permute-and-flip picks the largest of the scores with exponential noise (Ding et al. 2021)
        scores = (agrees * reward / behavior[did] / ratio).sum(axis=1) + rng.exponential(1.0 / epsilon, len(rules))
        spreads = (1.0, np.sqrt(np.mean(reward**2)))
        for (k, spread), (i, chance), (j, loud) in itertools.product(*map(enumerate, (spreads, CHANCES, NOISES))):
            behind = (
                chance * spread * np.sqrt(ratio * np.log(sizes) / people)
                + loud * ratio * np.log(sizes) / people / epsilon
            )
            behind -= behind[0]
            behind = np.where(behind > TOO_FAR, np.inf, behind * people / ratio)  # a level too far behind is left out
            out[k, i, j] += true[int(np.argmax(scores - behind[level]))] - best
    return out / (len(PEOPLE) * len(EPSILONS) * LOGS)


def figures_of(seeds: Sequence[int]) -> str:
    """Return tables of mean gains, in thousandths of half the range."""
    tables = []
    total = np.sum([gains(seed) for seed in seeds], axis=0)
    for words, found in zip(("chance", "of a declared deviation"), total, strict=True):
        means = 1000.0 * found / len(seeds)
        rows = [[f"{chance:g}", *(f"{x:.2f}" for x in row)] for chance, row in zip(CHANCES, means, strict=True)]
        tables.append(table([words, *(f"noise {loud:g}" for loud in NOISES)], rows))
    return "\n\n".join(tables)


if __name__ == "__main__":
    pin(1)
    for words, seeds in (("choosing", CHOOSING), ("judging", JUDGING)):
        print(f"seeds for {words}", figures_of(seeds), "", sep="\n", flush=True)
