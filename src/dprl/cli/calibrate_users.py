"""``dprl calibrate dp-pg``: the noise of sums over people who answer once, in clip norms, under either relation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import typer

from dprl.accounting.budget import Budget
from dprl.added import VERIFIED, in_calibration
from dprl.errors import DprlError


def calibrate_users(
    config: Any,
    delta: float,
    epsilon: float | None,
    sampling_rate: float | None,
    noise_multiplier: float | None,
    rounded_up: Callable[[float], str],
    as_json: bool,
) -> None:
    """The noise multiplier of a budget, or the epsilon of a multiplier.

    Args:
        config: options; of ``steps`` nothing depends but what correlated noise does over so many of them.
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")
    if config.calibration != VERIFIED:
        if epsilon is None:
            raise DprlError(f"{config.calibration}: there is no epsilon to compute: give --epsilon.")
        made, words = in_calibration(config).noise_in_words(Budget(epsilon, delta))
    else:
        made = _made(config, delta, epsilon, sampling_rate, noise_multiplier)
        words = _words(made, rounded_up)
    typer.echo(json.dumps(made, allow_nan=False) if as_json else words)


def _made(
    config: Any, delta: float, epsilon: float | None, sampling_rate: float | None, noise_multiplier: float | None
) -> dict[str, Any]:
    from dprl.accounting import accountant, events
    from dprl.accounting.calibration import noise_multiplier_for
    from dprl.accounting.user_relation import CLIPS, WORDS

    sampled = config.poisson
    if sampled != (sampling_rate is not None):
        raise DprlError("--sampling-rate is for people who are sampled again: give it with --set sampling=poisson.")
    if sampled and config.steps is None:
        raise DprlError("People who are sampled again are asked in --steps batches: give their number too.")

    def event_of(multiplier: float) -> Any:
        if sampled:
            return events.poisson_gaussian(sampling_rate or 0.0, multiplier, config.steps)
        return events.gaussian(multiplier)

    budget = Budget(1.0 if epsilon is None else epsilon, delta)
    if noise_multiplier is None:
        multiplier, spent = noise_multiplier_for(event_of, budget), budget.epsilon
    else:
        multiplier, spent = noise_multiplier, accountant.epsilon_of(event_of(noise_multiplier), delta)
        if not math.isfinite(spent):
            raise DprlError("This noise multiplier is too small to give any guarantee at this delta.")
    name, words = accountant.accountant_name(), config.relation_words
    clips = {words: 1.0} if sampled else {WORDS[relation]: CLIPS[relation] for relation in WORDS}
    made = {
        "noise_multiplier": multiplier,
        "std_in_clip_norms": {relation: multiplier * count for relation, count in clips.items()},
        "epsilon": spent,
        "delta": delta,
        "relation": words,
        "noise": "independent" if sampled else config.noise,
        "event": events.to_json(event_of(multiplier)),
        # a Gaussian loses the same between any two data sets that are one sensitivity apart
        "accountant": name if sampled else name.replace(accountant.RELATION, "neighbours one sensitivity apart"),
    }
    if config.steps is not None and not sampled:
        made |= {"steps": config.steps} | _over(config.noise, config.steps, multiplier)
    return made


def _over(noise: str, steps: int, noise_multiplier: float) -> dict[str, float]:
    """What correlated noise does over so many steps."""
    from dprl.mechanisms.strategy import column_norm, prefix_error

    return {
        "column_norm": column_norm(noise, steps, 1, noise_multiplier),
        "error_of_prefix_sums": prefix_error(noise, steps),
    }


def _words(made: dict[str, Any], rounded_up: Callable[[float], str]) -> str:
    clips = "; ".join(f"{words}: {rounded_up(std)} clip norms" for words, std in made["std_in_clip_norms"].items())
    sampled = made["event"]["type"] == "SelfComposed"
    often = "people are sampled again for every batch" if sampled else "each person is in one batch, of however many"
    lines = [
        f"noise multiplier {rounded_up(made['noise_multiplier'])} (noise standard deviation over sensitivity)",
        f"noise standard deviation, {clips}",
        f"epsilon {rounded_up(made['epsilon'])}, delta {made['delta']:g}, {made['relation']}; {often}",
    ]
    if "steps" in made:
        lines.append(
            f"{made['noise']} noise over {made['steps']} steps: draws have {rounded_up(made['column_norm'])} times "
            f"that, and running sums {made['error_of_prefix_sums']:.3g} times the error that independent noise makes"
        )
    return "\n".join([*lines, f"accountant: {made['accountant']}"])
