"""Theorems 3 and 4: how the regret falls, and what states and actions cost

Where: Section 5.2, solved for α; erratum E4

Note: Algorithm 1 with Theorem 2's batch, 10 times its step size, and independent noise for replacing one. A bound's
exponent is that of its term that dominates here: the first without noise, the second with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dprl.report.formatting import number, plain
from dprl_papers.harness.programmed import Run, figure_contents, make_chart, make_claim, make_line, make_table
from dprl_papers.paper_003_dp_pg import fosp
from dprl_papers.paper_003_dp_pg.regret import TargetBandit, gaussian_regret

VALUES = (31_623, 100_000, 316_228, 1_000_000)
QUICK = (1000, 3162)
EPSILON = (0.3, 1.0, 3.0)
SPREADS = (1.0, 0.71, 0.5, 0.35, 0.25)
"""Spreads of the Gaussian policy's states, from the largest mu to the smallest."""
ALPHA = 0.4
"""The average regret that bandits of several sizes are to reach, at epsilon 1."""
SIZES = {
    "more states, 4 actions": ((1, 4), (2, 4), (4, 4), (8, 4), (16, 4)),
    "2 states, more actions": ((2, 2), (2, 4), (2, 8), (2, 16)),
}
USERS = (1000, 3162, 10_000, 31_623, 100_000, 316_228)
SEEDS = 5


class Sweep(NamedTuple):
    """Results while one number changed: what was kept, what changed, values of seeds by x, bounds' exponents."""

    kept: str
    x: str
    found: dict[Any, np.ndarray]
    bounds: tuple[float, ...]

    @property
    def slope(self) -> float:
        """The fitted exponent."""
        return fosp.slope([*self.found], [float(v.mean()) for v in self.found.values()], len(self.found))

    def row(self, places: int) -> list[str]:
        """Return what it changed from and to, its means in order, and its exponent beside the bound's."""
        means = ", ".join(number(float(v.mean()), places) for v in self.found.values())
        exponents = (number(self.slope, 2), ", ".join(number(bound, 2) for bound in self.bounds))
        first, *_, last = map(plain, self.found)
        return [f"{self.kept}; {self.x} = {first} to {last}", means, *exponents]


def draw(run: Run) -> dict[str, Any]:
    """Draw what falls how fast, and what the theorems' bounds say."""
    sweeps = [*_sweeps(run)]
    sizes = [_users_over_size(run, name, sizes[: 2 if run.quick else None]) for name, sizes in SIZES.items()]
    claims = []
    for theorem, policy in (("Theorem 3", "Gaussian"), ("Theorem 4", "softmax")):
        own = [s for s in sweeps if s.kept.startswith(policy) and s.x == "N"]
        slower = [f"{s.kept} ({number(s.slope, 2)})" for s in own if s.slope > s.bounds[0] + 0.02]
        text = f"{len(own) - len(slower)} of {len(own)} do{'; slower: ' if slower else ''}{'; '.join(slower)}."
        claims.append(make_claim(f"{theorem}: in N the regret falls at least as fast as the bound.", not slower, text))
    over_mu = [s for s in sweeps if s.x == "μ"]
    text = ", ".join(f"μ^({number(s.slope, 2)}) at {s.kept.removeprefix('Gaussian, ')}" for s in over_mu) + "."
    holds = all(s.slope >= s.bounds[0] - 0.02 for s in over_mu)
    claims.append(make_claim("Theorem 3: the regret grows no faster than 1/μ.", holds, text))
    text = ", ".join(f"d^{number(s.slope, 2)} with {s.kept}" for s in sizes) + "."
    for i, words in enumerate(("√d, as Theorem 4 says", "d^(7/2), as its proof says")):
        holds = all(s.slope <= s.bounds[i] for s in sizes)
        words = f"At one α and ε the users needed grow no faster than {words}."
        claims.append(make_claim(words, holds, text, ours=bool(i)))
    heads = ["", "means", "fitted exponent", "the bound's"]
    caption = f"Average regret (mean of {min(run.trials, SEEDS)} seeds); of the softmax with λ = α/2, α the bound."
    needed = (
        f"Users N at which it is {plain(ALPHA)} ({min(run.trials, SEEDS)} seeds), λ = α/2, ε = 1; of the bounds the "
    )
    needed += "first is printed, the second E4's."
    shown = (([s for s in sweeps if s.x == "N"], "users N", "average regret"), (sizes, "d", "users N needed"))
    return figure_contents(
        charts=[make_chart([make_line(s.kept, s.found) for s in group], x, y, log_y=True) for group, x, y in shown],
        tables=[
            make_table(caption, heads, [s.row(3) for s in sweeps]),
            make_table(needed, heads, [s.row(0) for s in sizes]),
        ],
        claims=claims,
    )


def _sweeps(run: Run) -> Iterator[Sweep]:
    """Measure the Gaussian policy over users, mu and epsilon, and the softmax over users and epsilon."""
    most, bandit, at = max(run.whole), fosp.bandit_of(2, 3), dict[Any, np.ndarray]()
    mu = {spread: round(TargetBandit(spread).fisher, 2) for spread in SPREADS}
    for epsilon in (None, *run.epsilon):
        name = "no noise" if epsilon is None else f"ε = {plain(epsilon)}"
        for spread in SPREADS if epsilon in (None, 1.0) else SPREADS[:1]:
            setting = (_setting(run, n, epsilon) for n in run.whole)
            found = {s.users: run.values_of(gaussian_regret, spread, s, run.seed, _seeds(run)) for s in setting}
            at[epsilon, spread] = found[most]
            kept = f"Gaussian, μ = {number(mu[spread], 1)}, {name}"
            yield Sweep(kept, "N", found, (-1 / 4 if epsilon is None else -1 / 3,))
        if epsilon in (None, 1.0):
            yield Sweep(f"Gaussian, N = {plain(most)}, {name}", "μ", {mu[s]: at[epsilon, s] for s in SPREADS}, (-1.0,))
        found = {}
        for n in run.whole:
            private = 0.0 if epsilon is None else (bandit.policy.size**0.5 / (n * epsilon)) ** (2 / 9)
            found[n] = _softmax(run, bandit, n, epsilon, n ** (-1 / 6) + private)
        at[epsilon, None] = found[most]
        yield Sweep(f"softmax, {name}", "N", found, (-1 / 6 if epsilon is None else -2 / 9,))
    for policy, spread, bound in (("Gaussian, μ = 16.7", 1.0, -1 / 3), ("softmax", None, -2 / 9)):
        yield Sweep(f"{policy}, N = {plain(most)}", "ε", {e: at[e, spread] for e in run.epsilon}, (bound,))


def _users_over_size(run: Run, name: str, sizes: tuple[tuple[int, int], ...]) -> Sweep:
    """Measure the users at which the mean regret is ALPHA, between the last N above it and the first below, in logs."""
    found, first = {}, 0  # more parameters need more users
    for states, actions in sizes:
        bandit = fosp.TabularBandit(means=((0.5, *(-0.5,) * (actions - 1)),) * states)
        above = (1, bandit.gap)
        for i, n in enumerate(USERS[first:], first):
            mean = float(_softmax(run, bandit, n, 1.0, ALPHA).mean())
            if mean <= ALPHA:
                share = np.log(above[1] / ALPHA) / np.log(above[1] / mean)
                found[states * actions] = np.array([above[0] * (n / above[0]) ** share])
                break
            above, first = (n, mean), i
    return Sweep(name, "d", found, (1 / 2, 7 / 2))


def _softmax(run: Run, bandit: fosp.TabularBandit, users: int, epsilon: float | None, alpha: float) -> np.ndarray:
    return run.values_of(fosp.measured, bandit, _setting(run, users, epsilon, alpha / 2.0), run.seed, _seeds(run))[1]


def _setting(run: Run, users: int, epsilon: float | None, barrier: float = 0.0) -> fosp.Setting:
    return fosp.Setting(users=users, epsilon=epsilon, delta=run.delta, factor=10.0, barrier=barrier)


def _seeds(run: Run) -> int:
    return min(run.trials, SEEDS)
