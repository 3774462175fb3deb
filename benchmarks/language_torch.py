"""Worker: a private step on prompts by PyTorch and Opacus, with the arguments of :mod:`benchmarks.language_jax`.

It imports nothing of ``dprl``.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.harness import pin, serve
from benchmarks.language_problem import (
    ANSWER,
    CLIP,
    NOISE_MULTIPLIER,
    SIZES,
    STEP_SIZE,
    USERS,
    make,
    path_of,
    peak_of,
)
from benchmarks.opacus_step import opacus_of


def main(mode: str, name: str = "") -> None:
    pin(1)
    import torch

    nn, functional = torch.nn, torch.nn.functional
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start, given, shares = make()
    tokens, shares = torch.from_numpy(given), torch.from_numpy(shares)
    width, heads = SIZES["width"], SIZES["heads"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.seen = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.out, self.between = nn.Linear(width, width), nn.LayerNorm(width)
            self.first, self.second = nn.Linear(width, SIZES["inner"]), nn.Linear(SIZES["inner"], width)

        def forward(self, x: Any, length: int) -> Any:
            # (m, G L, k): a user's sequences lie one after the other, so that Opacus takes them as one sample
            seen = self.seen(self.before(x)).reshape(-1, length, 3, heads, width // heads)
            q, k, v = (seen[:, :, i].transpose(1, 2) for i in range(3))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
            return x + self.second(functional.relu(self.first(self.between(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.symbols, self.places = nn.Embedding(SIZES["symbols"], width), nn.Embedding(SIZES["length"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(SIZES["blocks"]))
            self.last, self.scores = nn.LayerNorm(width), nn.Linear(width, SIZES["symbols"])

        def forward(self, tokens: Any) -> Any:
            users, group, length = tokens.shape
            flat = tokens.reshape(users, -1)
            x = self.symbols(flat) + self.places(torch.arange(length).repeat(users, group))
            for block in self.blocks:
                x = block(x, length)
            return self.scores(self.last(x)).reshape(users, group, length, -1)[:, :, -ANSWER:]

    def network() -> Any:
        module = Decoder()
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), start, strict=True):
                parameter.copy_(torch.from_numpy(value.T if by_dense(module, parameter) else value))
        return module

    def by_dense(module: Any, parameter: Any) -> bool:
        return any(isinstance(m, nn.Linear) and m.weight is parameter for m in module.modules())

    class Surrogate(nn.Module):
        """Loss whose descent is the policy gradient's ascent. It returns a loss per user; Opacus requires "sum"."""

        reduction = "sum"

        def forward(self, scores: Any, target: Any) -> Any:
            answers, shares = target
            logs = torch.log_softmax(scores, dim=-1).gather(-1, answers[..., None])[..., 0].sum(dim=-1)
            return -(shares * logs).sum(dim=1)

    per_user, target = Surrogate(), (tokens[:, :, -ANSWER:], shares)

    def plain() -> Callable[[], Any]:
        model = network()
        sgd = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)

        def run() -> Any:
            sgd.zero_grad()
            per_user(model(tokens[:, :, :-1]), target).sum().backward()
            for parameter in model.parameters():
                parameter.grad.add_(torch.randn_like(parameter), alpha=NOISE_MULTIPLIER * CLIP)
            sgd.step()
            return model

        return run

    def private(ghost: bool, multiplier: float = NOISE_MULTIPLIER) -> Callable[[], Any]:
        model, optimizer, criterion = opacus_of(
            network(), per_user, ghost=ghost, multiplier=multiplier, clip=CLIP, users=USERS, step_size=STEP_SIZE
        )

        def run() -> Any:
            optimizer.zero_grad()
            criterion(model(tokens[:, :, :-1]), target).backward()
            optimizer.step()
            return model._module

        return run

    makers = {
        "torch, no privacy": plain,
        "Opacus, gradient of each user (hooks)": lambda: private(False),
        "Opacus, ghost clipping": lambda: private(True),
    }
    if mode == "memory":
        print(json.dumps(peak_of(makers[name]())))
        return
    for n, ghost in (("Opacus, gradient of each user (hooks)", False), ("Opacus, ghost clipping", True)):
        moved = []
        module = private(ghost, 0.0)()
        for parameter in module.parameters():
            sum_of_it = -parameter.grad.numpy()
            moved.append((sum_of_it.T if by_dense(module, parameter) else sum_of_it).reshape(-1))
        np.save(path_of(n), np.concatenate(moved))
    versions = {package: version(package) for package in ("torch", "opacus")}
    ready = {n: made() for n, made in makers.items()}
    calls = {n: (lambda run=run: (run(), USERS)[1]) for n, run in ready.items()}
    serve(calls, 1, {"versions": versions})


if __name__ == "__main__":
    main(*sys.argv[1:])
