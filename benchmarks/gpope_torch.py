"""Worker: GPOPE by PyTorch and by Opacus, in their own environment. ``python -m benchmarks.gpope_torch DATA CORES``.

The reference iterates of the check are in a file beside DATA. It imports nothing of ``dprl``.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.chain_data import (
    CHECK_STEPS,
    NOISE_MULTIPLIER,
    STATES,
    STEP_SIZE,
    TRAJECTORIES,
    TRIALS,
    clip_norm,
)
from benchmarks.gpope_numpy import moments
from benchmarks.harness import pin, serve


def main(path: str, cores: int) -> None:
    pin(cores)
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(cores)
    data = dict(np.load(path))
    phi, delta, weight, weight_reward = (
        torch.from_numpy(data[k]) for k in ("phi", "delta_phi", "weight", "weight_reward")
    )
    clip, n = clip_norm(), STATES

    @torch.no_grad()
    def batched(steps: int, chosen: Any = None) -> Any:
        """Run all trials at once over the unique transitions."""
        theta, w, total = (torch.zeros(TRIALS, n) for _ in range(3))
        everyone = torch.arange(TRIALS)
        drawn = torch.randint(0, TRAJECTORIES, (steps, TRIALS)) if chosen is None else torch.from_numpy(chosen)
        phi_t, delta_t = phi.T.contiguous(), delta.T.contiguous()
        for i in range(steps):
            c, cr = weight[everyone, drawn[i]], weight_reward[everyone, drawn[i]]
            cu, d = (w @ phi_t).mul_(c), theta @ delta_t
            gradient = torch.cat([(cu @ delta).neg_(), d.mul_(c).add_(cu).sub_(cr) @ phi], dim=1)
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient.mul_((clip / norm.clamp_(min=1e-30)).clamp_(max=1.0))
            if chosen is None:
                gradient.add_(torch.randn(TRIALS, 2 * n), alpha=NOISE_MULTIPLIER * clip)
            theta.sub_(gradient[:, :n], alpha=STEP_SIZE)
            w.sub_(gradient[:, n:], alpha=STEP_SIZE)
            total.add_(theta)
        return total / steps

    A, b, C = (torch.from_numpy(x) for x in moments(data))

    @torch.no_grad()
    def loop(steps: int, chosen: Any = None) -> Any:
        """Run one trial, with each trajectory's A_i, b_i and C_i computed beforehand."""
        theta, w, total = (torch.zeros(n) for _ in range(3))
        drawn = torch.randint(0, TRAJECTORIES, (steps,)).tolist() if chosen is None else chosen[:, 0].tolist()
        for i in drawn:
            gradient = torch.cat([-(w @ A[i]), A[i] @ theta + C[i] @ w - b[i]])
            norm = torch.linalg.vector_norm(gradient)
            gradient.mul_((clip / norm.clamp_(min=1e-30)).clamp_(max=1.0))
            if chosen is None:
                gradient.add_(torch.randn(2 * n), alpha=NOISE_MULTIPLIER * clip)
            theta.sub_(gradient[:n], alpha=STEP_SIZE)
            w.sub_(gradient[n:], alpha=STEP_SIZE)
            total.add_(theta)
        return total / steps

    def timed(call: Callable[[int], Any], steps: int, trials: int) -> Callable[[], int]:
        def go() -> int:
            call(steps)
            return steps * trials

        return go

    if cores > 1:
        serve({f"torch over 100 trials, {cores} cores": timed(batched, 500, TRIALS)}, cores)
        return
    hooks, ghost = _opacus(data)
    chosen = data["chosen"]
    reference = np.load(path + ".reference.npy")
    results: Mapping[str, Any] = {
        "torch batched": batched(CHECK_STEPS, chosen),
        "torch loop": loop(CHECK_STEPS, chosen)[None],
        "Opacus hooks": hooks(CHECK_STEPS, chosen)[None],
        "Opacus ghost": ghost(CHECK_STEPS, chosen)[None],
    }
    errors = {k: float(np.abs(v.numpy() - reference[: len(v)]).max()) for k, v in results.items()}
    candidates = {
        "torch over 100 trials": timed(batched, 500, TRIALS),
        "torch loop, 1 trial": timed(loop, 2000, 1),
        "Opacus, gradient of each example, 1 trial": timed(hooks, 200, 1),
        "Opacus, ghost clipping, 1 trial": timed(ghost, 200, 1),
    }
    serve(
        candidates,
        cores,
        {"errors": errors, "versions": {k: version(k).partition("+")[0] for k in ("torch", "opacus")}},
    )


def _opacus(data: Mapping[str, np.ndarray]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return two loops of GPOPE by Opacus: the saddle point of Eq. (2.3) is a loss whose gradients are GPOPE's.

    An example is a trajectory, and a batch is one example. Each part of the loss holds the other player's output
    constant, so that one descent updates both players.
    """
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    # the first trial's rows: features, feature differences and weighted rewards of each trajectory
    k, offsets, reward = data["rows"], data["offsets"], data["reward"]
    batches = []
    for i in range(TRAJECTORIES):
        rows = k[offsets[i] : offsets[i + 1]]
        arrays = (data["phi"][rows], data["delta_phi"][rows], reward[rows])
        x, dx, r = (torch.from_numpy(np.ascontiguousarray(a, dtype=np.float32))[None] for a in arrays)
        batches.append((torch.stack([dx, x], dim=2), r, 1.0 / len(rows)))

    class Saddle(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.theta = torch.nn.Linear(STATES, 1, bias=False)
            self.w = torch.nn.Linear(STATES, 1, bias=False)
            torch.nn.init.zeros_(self.theta.weight)
            torch.nn.init.zeros_(self.w.weight)

        def forward(self, x: Any) -> Any:
            return torch.cat([self.theta(x[:, :, 0]), self.w(x[:, :, 1])], dim=-1)

    class Loss(torch.nn.Module):
        reduction = "sum"  # Opacus requires this; the loss returns one value per example

        def forward(self, output: Any, target: Any) -> Any:
            reward, weight = target
            d, u = output[..., 0], output[..., 1]
            primal = -(u.detach() * d)
            dual = (d.detach() - reward) * u + 0.5 * u * u
            return weight * (primal + dual).sum(dim=1)

    def train(ghost: bool, steps: int, chosen: Any) -> Any:
        noise = NOISE_MULTIPLIER if chosen is None else 0.0
        common = {"noise_multiplier": noise, "max_grad_norm": clip_norm(), "expected_batch_size": 1}
        if ghost:
            model = GradSampleModuleFastGradientClipping(
                Saddle(), loss_reduction="sum", max_grad_norm=clip_norm(), use_ghost_clipping=True
            )
            sgd = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)
            optimizer = DPOptimizerFastGradientClipping(sgd, loss_reduction="sum", **common)
            criterion = DPLossFastGradientClipping(model, optimizer, Loss(), loss_reduction="sum")
        else:
            model = GradSampleModule(Saddle(), loss_reduction="sum")
            sgd = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)
            optimizer = DPOptimizer(sgd, loss_reduction="sum", **common)
            per_example = Loss()

            def criterion(output: Any, target: Any) -> Any:
                return per_example(output, target).sum()

        total = torch.zeros(STATES)
        weights = model._module.theta.weight  # type: ignore[union-attr]
        drawn = torch.randint(0, TRAJECTORIES, (steps,)).tolist() if chosen is None else chosen[:, 0].tolist()
        for i in drawn:
            x, r, weight = batches[i]
            optimizer.zero_grad()
            criterion(model(x), (r, weight)).backward()
            optimizer.step()
            total.add_(weights.detach()[0])
        return total / steps

    return (lambda steps, chosen=None: train(False, steps, chosen)), (
        lambda steps, chosen=None: train(True, steps, chosen)
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
