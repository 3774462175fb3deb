"""``dprl calibrate``: the noise multipliers that a budget asks for, or the epsilon that a multiplier costs."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dprl import entry_points
from dprl.cli.command import Progress, configure, print_result
from dprl.cli.requests import BudgetOptions, FeatureOptions, PrintOptions, PublicOptions, Settings, optional, required
from dprl.errors import DprlError, require
from dprl.registry import LEARNING, auditable_entries, find_in

SAMPLED = ("gpope", "dptd", "dp-sgda", "neural-td")
"""Algorithms whose steps are Poisson-sampled Gaussian sums of one noise multiplier."""
SINGLE_RELEASE = ("importance-sampling", "survival", "best-linear-projection")
"""Algorithms that are one Gaussian sum over all units."""


@dataclass(frozen=True, kw_only=True)
class Calibrate(PrintOptions, Settings, FeatureOptions, PublicOptions, BudgetOptions):
    """Noise multiplier for a budget, or (with --noise-multiplier instead of --epsilon) its epsilon. Reads no data.

    Without --bounds, one mechanism is calibrated, for an algorithm that has one noise multiplier for all steps. With
    --bounds, every stage of a release with any algorithm is calibrated, as the release itself would be. With --set
    calibration=as-published, the noise that the paper's formula gives is printed, and what is known of its epsilon. For
    dp-pg the relation is zero out one (or --set relation=replace-one), and each person is in one batch.

    Attributes:
        algorithm: name of the algorithm, such as gpope or dp-pg.
        epsilon: privacy budget: print the noise multiplier that it asks for.
        noise_multiplier: noise standard deviation over the clip norm. Its epsilon is printed.
        bounds: TOML file with the public bounds. Every stage of a release is calibrated.
        sampling_rate: probability with which a unit joins one step's batch. For gpope, dptd, dp-sgda and neural-td.
        steps: number of steps, for an algorithm that has steps.
        environment: interval-walk or gymnasium:ID, for functional-q.
    """

    algorithm: str | None = required(metavar="ALGORITHM", argument=True)
    epsilon: float | None = optional(metavar="NUMBER")
    noise_multiplier: float | None = optional(metavar="NUMBER")
    sampling_rate: float | None = optional(metavar="NUMBER")
    steps: int | None = optional(metavar="N")
    bounds: Path | dict | None = optional(metavar="FILE")
    environment: str | None = optional(metavar="NAME")

    algorithms = staticmethod(auditable_entries)


Calibrated = tuple[dict[str, Any], str]
"""The numbers that were computed, and the same in words."""


def calibrate(request: Calibrate) -> None:
    """Print the calibration of one mechanism, or of every stage of a release."""
    request.mistakes.check()
    with Progress(quiet=request.as_json):
        made, words = _calibrated(request)
    print_result(made, [words], request.as_json)


def _calibrated(request: Calibrate) -> Calibrated:
    """Calibrate what is asked for; how depends on the algorithm's privacy unit."""
    name, budget = str(request.algorithm), request.budget(epsilon=1.0)
    unit = find_in(auditable_entries(), name).unit
    given = {field for field, value in vars(request).items() if value is not None}
    if unit == "unit of the log":
        in_one = ", ".join(name for name, entry in LEARNING.items() if entry.unit == "reward function")
        require(request.environment is None, f"--environment is for what learns in one: {in_one}.")
        if request.bounds is not None:
            return _release(request, budget)
        if request.features is not None or request.setting or request.flags:
            raise DprlError("--features and --set are those of a whole release: give --bounds too.")
    if unit == "user" and given & {"environment", "bounds", "features"}:
        raise DprlError(f"{name} is calibrated from its budget alone: leave out environment, bounds, features.")
    if unit == "reward function" and given & {"sampling_rate", "steps", "features"}:
        raise DprlError(f"{name} has no sampling rate, steps or features here: give --set samples=... instead.")
    if (request.epsilon is None) == (request.noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")
    calibrated = {"user": _people, "reward function": _rewards, "unit of the log": _mechanism}[unit]
    return calibrated(request, budget)


def _release(request: Calibrate, budget: Any) -> Calibrated:
    """Calibrate every stage of a release."""
    if request.epsilon is None or request.noise_multiplier is not None:
        raise DprlError("With --bounds a whole release is calibrated: give --epsilon, and no --noise-multiplier.")
    config = _configured(request, "sampling_rate", "steps")

    from dprl.release.plan import calibrate_release

    facts = {"bounds": request.bounds, "features": request.features or "columns"}
    if getattr(config, "calibration", entry_points.VERIFIED) != entry_points.VERIFIED:
        return config.noise_in_words(budget, **facts)
    made = calibrate_release(budget, config, **facts)
    return _with_accountant(
        made,
        *(
            f"{stage['purpose']}: noise multiplier {rounded_up(stage['noise_multiplier'])}, "
            f"{_steps_in_words(stage['steps'], stage['sampling_rate'])}, {100.0 * stage['share']:.3g}% of the budget"
            for stage in made["stages"]
        ),
        f"epsilon {rounded_up(made['epsilon_of_event'])} of {made['epsilon']:g}, delta {made['delta']:g}, "
        f"{made['relation']}; shares are of mu^2, the squared Gaussian privacy parameter",
    )


def _mechanism(request: Calibrate, budget: Any) -> Calibrated:
    """Calibrate one mechanism that has the whole budget."""
    name, rate, steps = request.algorithm, request.sampling_rate, request.steps
    if name in SAMPLED:
        require(rate is not None and steps is not None, f"{name} needs --sampling-rate and --steps.")
    else:
        require(name in SINGLE_RELEASE, f"{name} is calibrated stage by stage, from public bounds: give --bounds.")
        if rate not in (None, 1.0) or steps not in (None, 1):
            raise DprlError(f"{name} is one release over all units: --sampling-rate and --steps are 1.")
    steps = 1 if steps is None else steps
    request.mistakes.check()
    found = _gaussian_cost(request, budget, rate if name in SAMPLED else None, steps)

    from dprl.accounting import accountant

    made: dict[str, Any] = found | {"relation": accountant.RELATION, "accountant": accountant.accountant_name()}
    return _with_accountant(
        made,
        f"noise multiplier {rounded_up(made['noise_multiplier'])} (noise standard deviation over clip norm)",
        f"{_guarantee(made)}; {_steps_in_words(steps, 1.0 if rate is None else rate)}",
    )


def _rewards(request: Calibrate, budget: Any) -> Calibrated:
    """Calibrate the one mechanism that sees rewards."""
    from dprl.accounting.accountant import accountant_name
    from dprl.accounting.events import to_json
    from dprl.environments.learning_source import GymnasiumSource, open_environment
    from dprl.learning import planned_q
    from dprl.learning.functional_q import relation, resolve
    from dprl.learning.learning_plan import epsilon_at, make_learning_plan, make_mechanism

    config = _configured(request, "noise_multiplier")
    if config.calibration != entry_points.VERIFIED:
        raise DprlError(f"{config.calibration}: there is no certificate to calibrate: see dprl audit --calibration.")
    facts, source = open_environment(request.environment or "interval-walk", request.bounds)
    model = None
    if config.variant == "output" and not isinstance(source, GymnasiumSource):
        model = source.transition_matrix(planned_q.POINTS)
    if request.noise_multiplier is None:
        plan = make_learning_plan(config, facts, budget, model)
        config, mechanism = plan.config, plan.mechanism
        spent, delta_of_event = plan.epsilon_of_event, plan.delta_of_event
    else:
        config = resolve(config, facts)
        mechanism = make_mechanism(config, facts, request.noise_multiplier, model)
        spent, delta_of_event = epsilon_at(mechanism, budget.delta)
    assert mechanism is not None
    names = ("noise_multiplier", "sensitivity", "std")
    made = {name: getattr(mechanism, name) for name in names} | {
        "epsilon": spent,
        "delta": budget.delta,
        "delta_of_event": delta_of_event,
        "variant": config.variant,
        "relation": relation(config).words(),
        "event": to_json(mechanism.event()),
        "accountant": accountant_name(),
    }
    multiplier, sensitivity, std = (rounded_up(made[name]) for name in names)
    return _with_accountant(
        made,
        f"{config.variant}: noise multiplier {multiplier}, sensitivity {sensitivity}, noise standard deviation {std}",
        _guarantee(made),
    )


def _people(request: Calibrate, budget: Any) -> Calibrated:
    """Calibrate sums over people who answer: their noise in clip norms, under each relation that applies."""
    config = _configured(request, "steps")
    if config.calibration != entry_points.VERIFIED:
        require(request.epsilon is not None, f"{config.calibration}: there is no epsilon to compute: give --epsilon.")
        return config.noise_in_words(budget)
    sampled = config.poisson
    if sampled != (request.sampling_rate is not None):
        raise DprlError("--sampling-rate is for people who are sampled again: give it with --set sampling=poisson.")
    if sampled and config.steps is None:
        raise DprlError("People who are sampled again are asked in --steps batches: give their number too.")
    found = _gaussian_cost(request, budget, request.sampling_rate, config.steps or 1)

    from dprl.accounting.accountant import accountant_name
    from dprl.accounting.user_relation import CLIPS_MOVED, RELATION_WORDS
    from dprl.mechanisms.step_noise import Correlation
    from dprl.release.pipeline import gaussian_accountant

    multiplier, relation = found["noise_multiplier"], config.relation_words
    clips = {relation: 1.0} if sampled else {words: CLIPS_MOVED[each] for each, words in RELATION_WORDS.items()}
    made = found | {
        "std_in_clip_norms": {words: multiplier * count for words, count in clips.items()},
        "relation": relation,
        "noise": "independent" if sampled else config.noise,
        # a Gaussian's privacy loss is the same for any two datasets one sensitivity apart
        "accountant": accountant_name() if sampled else gaussian_accountant(),
    }
    stds = "; ".join(f"{words}: {rounded_up(std)} clip norms" for words, std in made["std_in_clip_norms"].items())
    often = "people are sampled again for every batch" if sampled else "each person is in one batch, of however many"
    lines = [
        f"noise multiplier {rounded_up(multiplier)} (noise standard deviation over sensitivity)",
        f"noise standard deviation, {stds}",
        f"{_guarantee(made)}; {often}",
    ]
    if config.steps is not None and not sampled:
        correlation = Correlation(config.noise)  # what correlated noise does over so many steps
        made["steps"] = config.steps
        made["column_norm"] = correlation.column_norm(config.steps, 1, multiplier)
        made["error_of_prefix_sums"] = correlation.prefix_error(config.steps)
        lines.append(
            f"{config.noise} noise over {config.steps} steps: draws have {rounded_up(made['column_norm'])} times "
            f"that, and running sums {made['error_of_prefix_sums']:.3g} times the error that independent noise makes"
        )
    return _with_accountant(made, *lines)


def _configured(request: Calibrate, *names: str) -> Any:
    """Return the algorithm's options in the calibration that they name; all mistakes are raised at once.

    Args:
        names: options of the algorithm that are options of the command, too.
    """
    config = request.mistakes.attempt(partial(configure, request, str(request.algorithm), **request.given(*names)))
    request.mistakes.check()
    return entry_points.config_in_calibration(config)


def _gaussian_cost(request: Calibrate, budget: Any, rate: float | None, steps: int) -> dict[str, Any]:
    """Return noise multiplier, epsilon, delta and event of one Gaussian or, with a rate, of Poisson-sampled ones."""
    from dprl.accounting import accountant, events
    from dprl.accounting.calibration import noise_multiplier_for

    def event_of(multiplier: float) -> events.DpEvent:
        return events.gaussian(multiplier) if rate is None else events.poisson_gaussian(rate, multiplier, steps)

    if request.noise_multiplier is None:
        multiplier, spent = noise_multiplier_for(event_of, budget), budget.epsilon
    else:
        multiplier = request.noise_multiplier
        spent = accountant.epsilon_of(event_of(multiplier), budget.delta)
        require(math.isfinite(spent), "This noise multiplier is too small to give any guarantee at this delta.")
    event = events.to_json(event_of(multiplier))
    return {"noise_multiplier": multiplier, "epsilon": spent, "delta": budget.delta, "event": event}


def _with_accountant(made: dict[str, Any], *lines: str) -> Calibrated:
    return made, "\n".join([*lines, f"accountant: {made['accountant']}"])


def _guarantee(made: dict[str, Any]) -> str:
    return f"epsilon {rounded_up(made['epsilon'])}, delta {made['delta']:g}, {made['relation']}"


def _steps_in_words(steps: int, rate: float) -> str:
    return f"{steps} {'step' if steps == 1 else 'steps'} at sampling rate {rate:g}"


def rounded_up(number: float) -> str:
    """Return a number with six digits, rounded up: what is printed may be typed back, and must cost no more."""
    return f"{decimal.Context(prec=6, rounding=decimal.ROUND_UP).plus(decimal.Decimal(repr(number))).normalize():f}"
