"""Worker: meta-gradients by PyTorch. ``python -m benchmarks.l2p_torch [NAME STEPS]``.

With arguments it measures only memory. It imports nothing of ``dprl``.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from benchmarks.harness import pin, serve
from benchmarks.l2p_problem import (
    BATCHES,
    CHECKED,
    CLIP,
    DIMENSION,
    FREE,
    HIDDEN,
    NOISE,
    RECORDS,
    STEP_SIZE,
    STEPS,
    TABLE,
    make,
    peak_bytes,
)


def main(arguments: list[str]) -> None:
    pin(1)
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(1)
    problem = make()
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    weights = {name: torch.from_numpy(value).clone().requires_grad_() for name, value in problem.weights.items()}
    lengths, root = (x * x).sum(1).sqrt(), DIMENSION**0.5

    def loss_of(theta: Any) -> Any:
        scores = x @ theta
        return (torch.nn.functional.softplus(scores) - y * scores).mean()

    reference = loss_of(torch.zeros(DIMENSION)).item()

    def minor(hidden: Any, inputs: Any) -> tuple[Any, Any]:
        """Run the LSTM with coordinates on the minor axis, as this library does: one product per layer."""
        layer_in, kept = inputs, []
        for layer in range(2):
            h, c = hidden[2 * layer], hidden[2 * layer + 1]
            gates = torch.addmm(
                weights[f"projector.{layer}.b"][:, None],
                weights[f"projector.{layer}.w"],
                torch.cat([layer_in, h]),
            )
            i, f, g, o = gates.chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            layer_in = torch.sigmoid(o) * torch.tanh(c)
            kept += [layer_in, c]
        out = torch.addmm(weights["projector.out.b"][:, None], weights["projector.out.w"], layer_in)
        return kept, out

    def cells(hidden: Any, inputs: Any) -> tuple[Any, Any]:
        """Run the same LSTM by PyTorch's cell, with coordinates as its batch."""
        layer_in, kept, none = inputs.T, [], torch.zeros(4 * HIDDEN)
        for layer in range(2):
            w = weights[f"projector.{layer}.w"]
            split = w.shape[1] - HIDDEN
            layer_in, c = torch.lstm_cell(
                layer_in,
                [hidden[2 * layer].T, hidden[2 * layer + 1].T],
                w[:, :split],
                w[:, split:],
                weights[f"projector.{layer}.b"],
                none,
            )
            kept += [layer_in.T, c.T]
        out = torch.addmm(weights["projector.out.b"], layer_in, weights["projector.out.w"].T)
        return kept, out.T

    def step(lstm: Any, noise: float, progress: float, draw: Any, theta: Any, *hidden: Any) -> Any:
        residual = torch.sigmoid(x @ theta) - y
        factor = (CLIP / (residual.abs() * lengths).clamp(min=1e-30)).clamp(max=1.0)
        mean = (factor * residual) @ x / (RECORDS * CLIP) + draw
        scaled, floor = mean * root, max(noise * root, 1e-3)
        rows = [scaled / floor, scaled, theta]
        rows += [torch.full((DIMENSION,), value) for value in (-1.0, progress, math.log(floor))]
        inputs = torch.stack(rows).clamp(-10.0, 10.0)
        kept, out = lstm(hidden, inputs)
        move = torch.exp(2.0 * torch.tanh(out[0] / 2.0)) * (-STEP_SIZE * CLIP * mean) + FREE * out[1]
        return (theta + move, *kept)

    def gradient(
        lstm: Any, steps: int, noise: float = NOISE, again: bool = False, batch: int | None = None
    ) -> dict[str, Any]:
        """Return the meta-gradient.

        If ``again``, every step is computed a second time on the way back. ``batch`` truncates after that many steps.
        """
        for value in weights.values():
            value.grad = None
        state: Any = (torch.zeros(DIMENSION), *[torch.zeros(HIDDEN, DIMENSION) for _ in range(4)])
        for t in range(steps):
            draw = noise * torch.randn(DIMENSION) if noise else torch.zeros(DIMENSION)
            if again:
                state = checkpoint(step, lstm, noise, t / steps, draw, *state, use_reentrant=False)
            else:
                state = step(lstm, noise, t / steps, draw, *state)
            if batch is not None and (t + 1) % batch == 0:
                (loss_of(state[0]) / reference).backward()
                state = tuple(part.detach() for part in state)
        if batch is None:
            (loss_of(state[0]) / reference).backward()
        return {name: value.grad.clone() for name, value in weights.items()}

    full = "torch, full unrolling"
    kinds: dict[str, Callable[[int], Any]] = {
        full: lambda steps: gradient(minor, steps),
        f"{full}, LSTM cells": lambda steps: gradient(cells, steps),
        "torch, each step again": lambda steps: gradient(minor, steps, again=True),
        **{f"torch, truncated at {b}": lambda steps, b=b: gradient(minor, steps, batch=b) for b in BATCHES},
    }
    if arguments:
        name, steps = arguments[0], int(arguments[1])
        kinds[name](max(BATCHES))
        print(json.dumps({"bytes": peak_bytes(lambda: kinds[name](steps))}))
        return

    def timed(name: str, steps: int) -> Callable[[], int]:
        def go() -> int:
            kinds[name](steps)
            return 1

        return go

    candidates = {name: timed(name, STEPS) for name in kinds}
    candidates |= {f"{full}, {steps} steps": timed(full, steps) for steps in TABLE if steps != STEPS}
    gradients = {
        name: {k: v.tolist() for k, v in gradient(lstm, CHECKED, noise=0.0, **more).items()}
        for name, lstm, more in (("minor", minor, {}), ("cells", cells, {}), ("again", minor, {"again": True}))
    }
    serve(candidates, 1, {"gradients": gradients, "versions": {"torch": version("torch").partition("+")[0]}})


if __name__ == "__main__":
    main(sys.argv[1:])
