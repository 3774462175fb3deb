"""Worker: a private step of policy gradient by PyTorch and Opacus. ``python -m benchmarks.dp_pg_torch SIZE CORES``.

Nothing of ``dprl`` is imported here.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.dp_pg_problem import ACTIONS, CLIP, HOOKS, NOISE_MULTIPLIER, STEPS, USERS, error, make, reference
from benchmarks.harness import pin, serve
from benchmarks.opacus_step import opacus_of

STEP_SIZE = 1e-2


def main(size: str, cores: int) -> None:
    pin(cores)
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(cores)
    problem = make(size)
    x, action, weight = (torch.from_numpy(a) for a in (problem.x, problem.action, problem.weight))
    std = NOISE_MULTIPLIER * CLIP

    root = problem.W.shape[0] ** 0.5

    class Tanh(torch.nn.Module):
        """Hidden units of tanh, divided by the root of their number."""

        def forward(self, sums: Any) -> Any:
            return torch.tanh(sums) / root

    def network() -> Any:
        hidden, inputs = problem.W.shape
        module = torch.nn.Sequential(torch.nn.Linear(inputs, hidden), Tanh(), torch.nn.Linear(hidden, ACTIONS))
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), (problem.W, problem.b, problem.V, problem.c), strict=True):
                parameter.copy_(torch.from_numpy(value))
        return module

    class Surrogate(torch.nn.Module):
        """Loss whose descent is the policy gradient's ascent. It returns a loss per user; Opacus requires "sum"."""

        reduction = "sum"

        def forward(self, scores: Any, target: Any) -> Any:
            action, weight = target
            return weight * torch.nn.functional.cross_entropy(scores, action, reduction="none")

    per_user, target = Surrogate(), (action, weight)

    def plain(noise: bool) -> Callable[[int], Any]:
        """Return a function that runs steps without clipping."""

        def run(steps: int) -> Any:
            model = network()
            sgd = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)
            for _ in range(steps):
                sgd.zero_grad()
                per_user(model(x), target).sum().backward()
                if noise:
                    for parameter in model.parameters():
                        parameter.grad.add_(torch.randn_like(parameter), alpha=std)
                sgd.step()
            return model

        return run

    def private(ghost: bool, multiplier: float = NOISE_MULTIPLIER) -> Callable[[int], Any]:
        def run(steps: int) -> Any:
            model, optimizer, criterion = opacus_of(
                network(), per_user, ghost=ghost, multiplier=multiplier, clip=CLIP, users=USERS, step_size=STEP_SIZE
            )
            for _ in range(steps):
                optimizer.zero_grad()
                criterion(model(x), target).backward()
                optimizer.step()
            return model._module

        return run

    def by_hand(multiplier: float = NOISE_MULTIPLIER) -> Callable[[int], Any]:
        """Return a function that runs steps of ghost clipping, written by hand.

        Norms come from each layer's inputs and derivatives, and the sum is one weighted product per layer.
        """

        @torch.no_grad()
        def run(steps: int) -> Any:
            model = network()
            W, b, V, c = model.parameters()
            square, rows = (x * x).sum(1) + 1.0, torch.arange(USERS)
            for _ in range(steps):
                hidden = torch.tanh(torch.addmm(b, x, W.T))
                slope = (1.0 - hidden * hidden).div_(root)
                hidden.div_(root)
                out = torch.softmax(torch.addmm(c, hidden, V.T), 1).neg_()
                out[rows, action] += 1.0
                out.mul_(weight[:, None])
                inner = (out @ V).mul_(slope)
                norm = (inner * inner).sum(1) * square + (out * out).sum(1) * ((hidden * hidden).sum(1) + 1.0)
                factor = (CLIP / norm.sqrt_().clamp_(min=1e-30)).clamp_(max=1.0)[:, None]
                inner.mul_(factor)
                out.mul_(factor)
                for parameter, gradient in ((W, inner.T @ x), (b, inner.sum(0)), (V, out.T @ hidden), (c, out.sum(0))):
                    if multiplier:
                        gradient.add_(torch.randn_like(gradient), alpha=std)
                    parameter.add_(gradient, alpha=STEP_SIZE)
            return model

        return run

    def timed(call: Callable[[int], Any], steps: int) -> Callable[[], int]:
        def go() -> int:
            call(steps)
            return steps * USERS

        return go

    several, steps = "" if cores == 1 else f", {cores} cores", STEPS[size]
    candidates = {
        f"torch, no privacy{several}": timed(plain(False), steps),
        f"torch, no privacy, noise added{several}": timed(plain(True), steps),
        f"torch, ghost clipping by hand{several}": timed(by_hand(), steps),
        f"Opacus, ghost clipping{several}": timed(private(True), steps),
    }
    if size in HOOKS:
        candidates[f"Opacus, gradient of each user (hooks){several}"] = timed(private(False), HOOKS[size])
    facts: dict[str, Any] = {}
    if cores == 1:
        wanted, before = (
            reference(problem),
            dict(zip("WbVc", (problem.W, problem.b, problem.V, problem.c), strict=True)),
        )

        def moved(call: Callable[[int], Any]) -> float:
            after = dict(zip("WbVc", call(1).parameters(), strict=True))
            return error({k: (after[k].detach().numpy() - before[k]) / STEP_SIZE for k in before}, wanted)

        quiet = {"torch by hand": by_hand(0.0), "Opacus ghost": private(True, 0.0)}
        if size in HOOKS:
            quiet["Opacus hooks"] = private(False, 0.0)
        facts = {
            "errors": {name: moved(call) for name, call in quiet.items()},
            "versions": {k: version(k).partition("+")[0] for k in ("torch", "opacus")},
        }
    serve(candidates, cores, facts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
