"""Theorems 3 and 4: how the regret falls, and what states and actions cost

Where: Section 5.2, solved for α; Proposition 1; erratum E4

Note: Algorithm 1 with Theorem 2's batch, 10 times its step size, and independent noise for replacing one. A bound's
exponent is that of its term that dominates here: the first without noise, the second with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, drawn, make_chart, make_claim, make_line, make_table
from dprl_papers.paper_003_dp_pg import fosp, regret

VALUES = (31_623, 100_000, 316_228, 1_000_000)
QUICK = (1000, 3162)
EPSILON = (0.3, 1.0, 3.0)
SPREADS = (1.0, 0.71, 0.5, 0.35, 0.25)
"""Of the Gaussian policy's states, from the largest mu to the smallest."""
ALPHA = 0.4
"""The average regret that bandits of several sizes are to reach."""
SIZES = {
    "more states, 4 actions": ((1, 4), (2, 4), (4, 4), (8, 4), (16, 4)),
    "2 states, more actions": ((2, 2), (2, 4), (2, 8), (2, 16)),
}
USERS = (1000, 3162, 10_000, 31_623, 100_000, 316_228)
SEEDS = 5


class Sweep(NamedTuple):
    """What came out while one number changed: what was kept, what changed, values of seeds by x, bounds' exponents."""

    kept: str
    x: str
    found: dict[float, np.ndarray]
    bounds: tuple[float, ...]

    @property
    def slope(self) -> float:
        """The fitted exponent."""
        return fosp.slope([*self.found], [float(v.mean()) for v in self.found.values()], len(self.found))

    def row(self, places: int) -> list[str]:
        """Return what it changed from and to, its means, and its exponent beside the bound's."""
        means = ", ".join(number(float(v.mean()), places) for v in self.found.values())
        exponents = (number(self.slope, 2), ", ".join(number(bound, 2) for bound in self.bounds))
        return [f"{self.kept}; {self.x} = {plain(min(self.found))} to {plain(max(self.found))}", means, *exponents]


def draw(run: Run) -> dict[str, Any]:
    """Draw what falls how fast, and what the theorems' bounds say."""
    third, fourth = [*_gaussian(run)], [*_softmax(run)]
    sizes = [_users_over_size(run, name, sizes[: 2 if run.quick else None]) for name, sizes in SIZES.items()]
    heads = ["", "means", "fitted exponent", "the bound's"]
    caption = f"Average regret (mean of {min(run.trials, SEEDS)} seeds)"
    needed = (
        f"Users N at which it is {plain(ALPHA)}, λ = α/2, ε = 1; of the bounds the first is printed, the second E4's."
    )
    charts = [
        make_chart([make_line(s.kept, s.found) for s in sweeps], x, y, log_y=True)
        for sweeps, x, y in (([s for s in (*third, *fourth) if s.x == "N"], "users N", "average regret"),
                             (sizes, "d", "users N needed"))
    ]  # fmt: skip
    claims = [_falls("Theorem 3", third), _falls("Theorem 4", fourth)]
    for i, (ours, words) in enumerate(((False, "√d, as Theorem 4 says"), (True, "d^(7/2), as its proof says"))):
        text = ", ".join(f"d^{number(s.slope, 2)} with {s.kept}" for s in sizes)
        holds = all(s.slope <= s.bounds[i] for s in sizes)
        claims.append(
            make_claim(f"At one α and ε the users needed grow no faster than {words}.", holds, text + ".", ours)
        )
    ratios = [
        run.kept(regret.near_stationary, states, actions, barrier, run.seed, 3)
        for states, actions in ((1, 2), (2, 3), (4, 4), (8, 8))
        for barrier in (0.4, 0.05)
    ]
    text = f"at most {number(max(ratios), 2)} of 2λ, on bandits of 2 to 64 parameters with λ = 0.4 and 0.05."
    claims.append(make_claim("Where |∇J_λ| ≤ λ/(2|S||A|) the regret is at most 2λ.", max(ratios) <= 1.0, text))
    tables = [
        make_table(f"{caption}; Theorem 3, Gaussian policy.", heads, [s.row(3) for s in third]),
        make_table(f"{caption}; Theorem 4, tabular softmax, λ = α/2.", heads, [s.row(3) for s in fourth]),
        make_table(needed, heads, [s.row(0) for s in sizes]),
    ]
    return drawn(charts=charts, tables=tables, claims=claims)


def _falls(theorem: str, sweeps: list[Sweep]) -> dict[str, Any]:
    slower = [f"{s.kept} in {s.x} ({number(s.slope, 2)})" for s in sweeps if s.slope > s.bounds[0] + 0.02]
    text = f"{len(sweeps) - len(slower)} of {len(sweeps)} do"
    text += f"; slower: {', '.join(slower)}." if slower else "."
    return make_claim(f"{theorem}: the regret falls at least as fast as the bound.", not slower, text)


def _name(epsilon: float | None) -> str:
    return "no noise" if epsilon is None else f"ε = {plain(epsilon)}"


def _setting(run: Run, users: int, epsilon: float | None, barrier: float = 0.0) -> fosp.Setting:
    return fosp.Setting(users=users, epsilon=epsilon, delta=run.delta, factor=10.0, barrier=barrier)


def _gaussian(run: Run) -> Iterator[Sweep]:
    seeds, most, at = min(run.trials, SEEDS), max(run.whole), dict[Any, Any]()
    for epsilon in (None, *run.epsilon):
        for spread in SPREADS if epsilon in (None, 1.0) else SPREADS[:1]:
            found = {
                n: run.values_of(regret.gaussian_regret, spread, _setting(run, n, epsilon), run.seed, seeds)
                for n in run.whole
            }
            at[epsilon, spread] = found[most]
            mu = number(regret.TargetBandit(spread).fisher, 1)
            yield Sweep(f"μ = {mu}, {_name(epsilon)}", "N", found, (-1 / 4 if epsilon is None else -1 / 3,))
    for epsilon in (None, 1.0):
        over_mu = {regret.TargetBandit(s).fisher: at[epsilon, s] for s in SPREADS}
        yield Sweep(f"N = {plain(most)}, {_name(epsilon)}", "μ", over_mu, (-1.0,))
    yield Sweep(f"N = {plain(most)}, μ = 16.7", "ε", {e: at[e, SPREADS[0]] for e in run.epsilon}, (-1 / 3,))


def _softmax(run: Run) -> Iterator[Sweep]:
    bandit, most, at = fosp.bandit_of(2, 3), max(run.whole), {}
    for epsilon in (None, *run.epsilon):
        found = {}
        for n in run.whole:
            private = 0.0 if epsilon is None else (bandit.policy.size**0.5 / (n * epsilon)) ** (2 / 9)
            found[n] = _average(run, bandit, n, epsilon, n ** (-1 / 6) + private)
        at[epsilon] = found[most]
        yield Sweep(_name(epsilon), "N", found, (-1 / 6 if epsilon is None else -2 / 9,))
    yield Sweep(f"N = {plain(most)}", "ε", {e: at[e] for e in run.epsilon}, (-2 / 9,))


def _average(run: Run, bandit: Any, users: int, epsilon: float | None, alpha: float) -> np.ndarray:
    setting = _setting(run, users, epsilon, alpha / 2.0)
    return run.values_of(fosp.measured, bandit, setting, run.seed, min(run.trials, SEEDS))[1]


def _users_over_size(run: Run, name: str, sizes: tuple[tuple[int, int], ...]) -> Sweep:
    """Measure the users at which the mean regret is ALPHA, between the last N above it and the first below, in logs."""
    found, first = {}, 0  # more parameters need more users
    for states, actions in sizes:
        above = (1, 1.0 - 1.0 / actions)  # the uniform policy's regret
        for i, n in enumerate(USERS[first:], first):
            mean = float(_average(run, regret.bandit_of_size(states, actions), n, 1.0, ALPHA).mean())
            if mean <= ALPHA:
                share = np.log(above[1] / ALPHA) / np.log(above[1] / mean)
                found[states * actions] = np.array([above[0] * (n / above[0]) ** share])
                break
            above, first = (n, mean), i
    return Sweep(name, "d", found, (1 / 2, 7 / 2))
