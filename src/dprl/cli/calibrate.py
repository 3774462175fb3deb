"""``dprl calibrate``: the noise multiplier that a budget asks for, or the epsilon that a multiplier costs."""

from __future__ import annotations

import decimal
import json
import math
from typing import Annotated

import typer

from dprl.accounting.budget import Budget
from dprl.errors import DprlError

ALGORITHMS = ("gpope", "importance-sampling")


def calibrate(
    algorithm: Annotated[str, typer.Argument(help="gpope or importance-sampling.")],
    delta: Annotated[float, typer.Option(help="Delta of the budget, well below one over the number of units.")],
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of the budget.")] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="Probability with which a unit joins one step's batch (gpope).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps (gpope).")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise standard deviation over the clip norm: print the epsilon it costs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Noise multiplier for a budget, or (with --noise-multiplier instead of --epsilon) its epsilon. Reads no data."""
    if algorithm not in ALGORITHMS:
        raise DprlError(f"There is no algorithm {algorithm!r} to calibrate; known are {', '.join(ALGORITHMS)}.")
    if (epsilon is None) == (noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")
    if algorithm == "gpope":
        if sampling_rate is None or steps is None:
            raise DprlError("gpope needs --sampling-rate and --steps.")
        rate, count = sampling_rate, steps
    else:
        if sampling_rate not in (None, 1.0) or steps not in (None, 1):
            raise DprlError("importance-sampling is one release over all units: --sampling-rate and --steps are 1.")
        rate, count = 1.0, 1
    budget = Budget(1.0 if epsilon is None else epsilon, delta)

    from dprl.accounting import calibration, events

    def event_of(multiplier: float) -> events.DpEvent:
        if algorithm == "gpope":
            return events.poisson_gaussian(rate, multiplier, count)
        return events.gaussian(multiplier)

    if noise_multiplier is None:
        multiplier, spent = calibration.noise_multiplier_for(event_of, budget), budget.epsilon
    else:
        multiplier, spent = noise_multiplier, calibration.epsilon_of(event_of(noise_multiplier), delta)
        if not math.isfinite(spent):
            raise DprlError("This noise multiplier is too small to give any guarantee at this delta.")
    if as_json:
        result = {
            "noise_multiplier": multiplier,
            "epsilon": spent,
            "delta": delta,
            "relation": calibration.RELATION,
            "event": events.to_json(event_of(multiplier)),
            "accountant": calibration.accountant_name(),
        }
        typer.echo(json.dumps(result, allow_nan=False))
        return
    typer.echo(f"noise multiplier {_rounded_up(multiplier)} (noise standard deviation over clip norm)")
    over = f"{count} {'step' if count == 1 else 'steps'} at sampling rate {rate:g}"
    typer.echo(f"epsilon {_rounded_up(spent)}, delta {delta:g}, {calibration.RELATION}; {over}")
    typer.echo(f"accountant: {calibration.accountant_name()}")


def _rounded_up(number: float) -> str:
    # never down: what is printed may be typed back
    return f"{decimal.Context(prec=6, rounding=decimal.ROUND_UP).plus(decimal.Decimal(repr(number))).normalize():f}"
