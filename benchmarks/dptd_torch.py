"""Worker: DPTD as published by PyTorch's double backward. ``python -m benchmarks.dptd_torch PROBLEM FOLDER CORES``.

It reads the problem and the library's weights after the check from FOLDER. It imports nothing of ``dprl``.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.dptd_problem import (
    BOX,
    CHECK_STEPS,
    CLIP,
    HIDDEN,
    PUSH,
    STEPS,
    layers,
    load,
    momentum,
    problem_path,
    reference_path,
    relaxation,
)
from benchmarks.harness import pin, serve


def main(name: str, folder: str, cores: int) -> None:
    pin(cores)
    import torch
    from torch.nn.functional import elu

    torch.set_num_threads(cores)
    problem = load(problem_path(folder))
    inputs, d, root = problem.x.shape[1], problem.size, 1.0 / math.sqrt(HIDDEN)
    x, following, alive, reward, start = (
        torch.from_numpy(a) for a in (problem.x, problem.x_next, problem.alive, problem.reward, problem.start)
    )
    alive_of, reward_of = problem.alive.tolist(), problem.reward.tolist()
    std = float(problem.std)

    def leaves(row: Any) -> list[Any]:
        """Return the layers as separate weights that share the row's memory."""
        return [part.detach().requires_grad_() for part in layers(row, inputs)]

    def update(both: Any, running: Any, gradient: Any, noise: Any, t: int) -> None:
        """Clip, add noise, and apply momentum and projection. p and d are one vector, theta and w another one."""
        a = momentum(t)
        norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True).mul_(a)
        gradient.mul_((CLIP / norm.clamp_(min=1e-30)).clamp_(max=1.0).mul_(a))
        if noise is not None:
            gradient.add_(noise.normal_(), alpha=std)
        running.mul_(1.0 - a).add_(gradient)
        both.lerp_(torch.add(both, running, alpha=-PUSH).clamp_(-BOX, BOX), relaxation(t))

    def loop(steps: int, chosen: Any = None, seed: int = 0) -> Any:
        """Run one seed."""
        both, running, gradient = start.clone(), torch.zeros(2 * d), torch.zeros(2 * d)
        noise = torch.zeros(2 * d) if chosen is None else None
        weights = leaves(both[None, :d])
        W, b, o, c = weights[0], weights[1], weights[2], weights[3]
        W, b, o, c = (part.detach()[0].requires_grad_() for part in (W, b, o, c))
        weights, dual = (W, b, o, c), [part[0] for part in layers(both[None, d:], inputs)]
        drawn = torch.randint(0, len(x), (steps,)).tolist() if chosen is None else chosen[:, seed].tolist()

        def value(state: Any) -> Any:
            return torch.dot(elu(torch.addmv(b, W, state)), o) * root + c

        for t in range(steps):
            i = drawn[t]
            here = value(x[i])
            psi = torch.autograd.grad(here, weights, create_graph=True)
            q = sum((part * other).sum() for part, other in zip(psi, dual, strict=True))
            delta = value(following[i]) * alive_of[i] - here + reward_of[i]
            error = delta - q
            primal = torch.autograd.grad((delta - 0.5 * q) * q, weights)
            with torch.no_grad():
                torch.cat([part.reshape(-1) for part in (*primal, *psi)], out=gradient)
                gradient[d:].mul_(-error.detach())
                update(both, running, gradient, noise, t)
        return both

    def batched(steps: int, chosen: Any = None) -> Any:
        """Run all seeds at once. The gradient of a sum over the seeds holds the gradient of each seed."""
        seeds = problem.seeds
        both, running, gradient = start.repeat(seeds, 1), torch.zeros(seeds, 2 * d), torch.zeros(seeds, 2 * d)
        noise = torch.zeros(seeds, 2 * d) if chosen is None else None
        weights, dual = leaves(both[:, :d]), layers(both[:, d:], inputs)
        W, b, o, c = weights
        drawn = torch.randint(0, len(x), (steps, seeds)) if chosen is None else torch.from_numpy(chosen)

        def value(states: Any) -> Any:
            hidden = torch.baddbmm(b[:, :, None], W, states[:, :, None])[:, :, 0]
            return (elu(hidden) * o).sum(1) * root + c

        for t in range(steps):
            i = drawn[t]
            here = value(x[i])
            psi = torch.autograd.grad(here.sum(), weights, create_graph=True)
            q = sum((part * other).flatten(1).sum(1) for part, other in zip(psi[:3], dual[:3], strict=True))
            q = q + psi[3] * dual[3]
            delta = value(following[i]) * alive[i] - here + reward[i]
            error = delta - q
            primal = torch.autograd.grad(((delta - 0.5 * q) * q).sum(), weights)
            with torch.no_grad():
                torch.cat([part.reshape(seeds, -1) for part in (*primal, *psi)], dim=1, out=gradient)
                gradient[:, d:].mul_(-error.detach()[:, None])
                update(both, running, gradient, noise, t)
        return both

    def timed(call: Callable[[int], Any], seeds: int) -> Callable[[], int]:
        steps = STEPS[name][1]

        def go() -> int:
            call(steps)
            return steps * seeds

        return go

    several = "" if cores == 1 else f", {cores} cores"
    candidates = {f"torch loop, double backward, 1 seed{several}": timed(loop, 1)}
    if problem.seeds > 1:
        candidates[f"torch over {problem.seeds} seeds, double backward{several}"] = timed(batched, problem.seeds)
    facts: dict[str, Any] = {}
    if cores == 1:
        reference = np.load(reference_path(folder))
        found = {
            "torch loop": loop(CHECK_STEPS, problem.chosen)[None],
            "torch batched": batched(CHECK_STEPS, problem.chosen),
        }
        errors = {k: float(np.abs(v.numpy() - reference[: len(v)]).max()) for k, v in found.items()}
        facts = {"errors": errors, "versions": {"torch": version("torch").partition("+")[0]}}
    serve(candidates, cores, facts)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
