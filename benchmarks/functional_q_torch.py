"""Worker: Algorithm 1 of paper 001 by PyTorch and bisect. ``python -m benchmarks.functional_q_torch FOLDER``.

It imports nothing of ``dprl``. The sample path of an action is a sorted list of the queried places and a list of the
answers. The bridge between two places is that of Eq. (2), corrected.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
import random
import sys
from bisect import bisect_left
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.functional_q import (
    BATCH,
    CHECK_MOVES,
    CHECK_START,
    DECAY,
    DISCOUNT,
    HIDDEN,
    LOOP,
    SAMPLES,
    STD,
    STEP_SIZE,
)
from benchmarks.harness import pin, serve

HORIZON = 50


class SamplePath:
    """A Gaussian path of covariance ``STD^2 exp(-DECAY |x - y|)``. Asked again, a place has the same answer."""

    def __init__(self) -> None:
        self.places: list[float] = []
        self.answers: list[float] = []

    def __call__(self, x: float) -> float:
        places, answers = self.places, self.answers
        i = bisect_left(places, x)
        if i < len(places) and places[i] == x:
            return answers[i]
        if not places:
            mean, variance = 0.0, 1.0
        elif i == 0 or i == len(places):
            at = 0 if i == 0 else i - 1
            rho = math.exp(-DECAY * abs(x - places[at]))
            mean, variance = rho * answers[at], 1.0 - rho * rho
        else:
            # sinh(a)/sinh(a + b) without overflow
            a, b = DECAY * (x - places[i - 1]), DECAY * (places[i] - x)
            left, right, both = math.expm1(-2.0 * a), math.expm1(-2.0 * b), math.expm1(-2.0 * (a + b))
            mean = (math.exp(-a) * right * answers[i - 1] + math.exp(-b) * left * answers[i]) / both
            variance = -left * right / both
        answer = mean + STD * math.sqrt(max(variance, 0.0)) * random.gauss(0.0, 1.0)
        places.insert(i, x)
        answers.insert(i, answer)
        return answer


def main(folder: str) -> None:
    pin(1)
    import torch

    torch.set_num_threads(1)
    stored = np.load(Path(folder) / "check.npz")
    names, root = ("W", "b", "V", "c"), math.sqrt(HIDDEN)

    def loop(scripted: bool) -> list[Any]:
        weights = [torch.from_numpy(stored[f"first.{name}"].copy()).requires_grad_() for name in names]
        W, b, V, c = weights

        def q(states: Any) -> Any:
            hidden = torch.relu(torch.addmm(b, 2.0 * states[:, None] - 1.0, W.T))
            return torch.addmm(c, hidden, V.T, alpha=1.0 / root)

        state, t = 0.0, 0
        for _ in range(SAMPLES // BATCH):
            paths = None if scripted else (SamplePath(), SamplePath())
            states, actions, rewards, following, noise, after = [], [], [], [], [], []
            for _ in range(BATCH):
                if t == 0:
                    state = CHECK_START if scripted else random.random()
                with torch.no_grad():
                    values = q(torch.tensor([state]))[0].tolist()
                here = (0.0, 0.0) if paths is None else (paths[0](state), paths[1](state))
                action = int(values[1] + here[1] > values[0] + here[0])
                move = CHECK_MOVES[t] if scripted else random.uniform(0.0, 0.25)
                there = min(max(state + (move if action else -move), 0.0), 1.0)
                states.append(state)
                actions.append(action)
                rewards.append(0.5 - abs(state - 0.5))
                following.append(there)
                noise.append(here[action])
                after.append((0.0, 0.0) if paths is None else (paths[0](there), paths[1](there)))
                state, t = there, (t + 1) % HORIZON
            seen, taken = torch.tensor(states), torch.tensor(actions)
            with torch.no_grad():
                best = (q(torch.tensor(following)) + torch.tensor(after)).max(1).values
                target = torch.tensor(rewards) + DISCOUNT * best - torch.tensor(noise)
            loss = ((q(seen).gather(1, taken[:, None])[:, 0] - target) ** 2).mean() / 2
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                with torch.no_grad():
                    weight.sub_(gradient, alpha=STEP_SIZE)
        return weights

    found = loop(scripted=True)
    last = {name: stored[f"last.{name}"] for name in names}
    scale = max(float(np.abs(w).max()) for w in last.values())
    errors = [float(np.abs(w.detach().numpy() - last[n]).max()) for n, w in zip(names, found, strict=True)]
    moved = max(float(np.abs(last[n] - stored[f"first.{n}"]).max()) for n in names)
    # the changes made by the run must agree, and not only the weights, which begin equal
    error = max(errors) / min(scale, moved)

    def go() -> int:
        loop(scripted=False)
        return SAMPLES

    serve({LOOP: go}, 1, {"error": error, "versions": {"torch": version("torch").partition("+")[0]}})


if __name__ == "__main__":
    main(sys.argv[1])
