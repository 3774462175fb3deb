"""A private step by Opacus for the peers: by hooks, which form every user's gradient, or by ghost clipping."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any


def opacus_of(
    network: Any, per_user: Any, *, ghost: bool, multiplier: float, clip: float, users: int, step_size: float
) -> tuple[Any, Any, Any]:
    """Return the model, the optimizer and the loss of a private step of descent; ``per_user`` gives a loss per user."""
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    common = {"noise_multiplier": multiplier, "max_grad_norm": clip, "expected_batch_size": users}
    if not ghost:
        hooked = GradSampleModule(network, loss_reduction="sum")
        descent = torch.optim.SGD(hooked.parameters(), lr=step_size)
        optimizer = DPOptimizer(descent, loss_reduction="sum", **common)
        return hooked, optimizer, lambda scores, target: per_user(scores, target).sum()
    model = GradSampleModuleFastGradientClipping(
        network, loss_reduction="sum", max_grad_norm=clip, use_ghost_clipping=True
    )
    descent = torch.optim.SGD(model.parameters(), lr=step_size)
    fast = DPOptimizerFastGradientClipping(descent, loss_reduction="sum", **common)
    return model, fast, DPLossFastGradientClipping(model, fast, per_user, loss_reduction="sum")
