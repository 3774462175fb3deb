"""``dprl calibrate``: the noise multipliers that a budget asks for, or the epsilon that a multiplier costs."""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dprl import added
from dprl.cli.command import configure
from dprl.cli.requests import BudgetOptions, FeatureOptions, PrintOptions, PublicOptions, Settings, may, must
from dprl.cli.running import Progress, show
from dprl.errors import DprlError, require
from dprl.registry import LEARNING, audited, find_in

SAMPLED = ("gpope", "dptd", "dp-sgda", "neural-td")
"""Algorithms whose steps are Poisson-sampled Gaussian sums of one noise multiplier."""
ONCE = ("importance-sampling", "survival", "best-linear-projection")
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

    algorithm: str | None = must(metavar="ALGORITHM", argument=True)
    epsilon: float | None = may(metavar="NUMBER")
    noise_multiplier: float | None = may(metavar="NUMBER")
    sampling_rate: float | None = may(metavar="NUMBER")
    steps: int | None = may(metavar="N")
    bounds: Path | dict | None = may(metavar="FILE")
    environment: str | None = may(metavar="NAME")

    algorithms = staticmethod(audited)


Calibrated = tuple[dict[str, Any], str]
"""The numbers that were computed, and the same in words."""


def calibrate(asked: Calibrate) -> None:
    """Print the calibration of one mechanism, or of every stage of a release."""
    asked.mistakes.check()
    with Progress(quiet=asked.as_json):
        made, words = _calibrated(asked)
    show(made, [words], asked.as_json)


def _calibrated(asked: Calibrate) -> Calibrated:
    """Calibrate what is asked for; how depends on the algorithm's privacy unit."""
    name, budget = str(asked.algorithm), asked.budget(epsilon=1.0)
    unit = find_in(audited(), name).unit
    given = {field for field, value in vars(asked).items() if value is not None}
    if unit == "unit of the log":
        in_one = ", ".join(name for name, entry in LEARNING.items() if entry.unit == "reward function")
        require(asked.environment is None, f"--environment is for what learns in one: {in_one}.")
        if asked.bounds is not None:
            return _release(asked, budget)
        if asked.features is not None or asked.setting or asked.flags:
            raise DprlError("--features and --set are those of a whole release: give --bounds too.")
    if unit == "user" and given & {"environment", "bounds", "features"}:
        raise DprlError(f"{name} is calibrated from its budget alone: leave out environment, bounds, features.")
    if unit == "reward function" and given & {"sampling_rate", "steps", "features"}:
        raise DprlError(f"{name} has no sampling rate, steps or features here: give --set samples=... instead.")
    if (asked.epsilon is None) == (asked.noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")
    calibrated = {"user": _people, "reward function": _rewards, "unit of the log": _mechanism}[unit]
    return calibrated(asked, budget)


def _release(asked: Calibrate, budget: Any) -> Calibrated:
    """Calibrate every stage of a release."""
    if asked.epsilon is None or asked.noise_multiplier is not None:
        raise DprlError("With --bounds a whole release is calibrated: give --epsilon, and no --noise-multiplier.")
    config = _configured(asked, "sampling_rate", "steps")

    from dprl.release.plan import calibrate_release

    facts = {"bounds": asked.bounds, "features": asked.features or "columns"}
    if getattr(config, "calibration", added.VERIFIED) != added.VERIFIED:
        return config.noise_in_words(budget, **facts)
    made = calibrate_release(budget, config, **facts)
    return _said(
        made,
        *(
            f"{stage['purpose']}: noise multiplier {rounded_up(stage['noise_multiplier'])}, "
            f"{_over(stage['steps'], stage['sampling_rate'])}, {100.0 * stage['share']:.3g}% of the budget"
            for stage in made["stages"]
        ),
        f"epsilon {rounded_up(made['epsilon_of_event'])} of {made['epsilon']:g}, delta {made['delta']:g}, "
        f"{made['relation']}; shares are of mu^2, the squared Gaussian privacy parameter",
    )


def _mechanism(asked: Calibrate, budget: Any) -> Calibrated:
    """Calibrate one mechanism that has the whole budget."""
    name, rate, steps = asked.algorithm, asked.sampling_rate, asked.steps
    if name in SAMPLED:
        require(rate is not None and steps is not None, f"{name} needs --sampling-rate and --steps.")
    else:
        require(name in ONCE, f"{name} is calibrated stage by stage, from public bounds: give --bounds.")
        if rate not in (None, 1.0) or steps not in (None, 1):
            raise DprlError(f"{name} is one release over all units: --sampling-rate and --steps are 1.")
    steps = 1 if steps is None else steps
    asked.mistakes.check()
    found = _spent(asked, budget, rate if name in SAMPLED else None, steps)

    from dprl.accounting import accountant

    made: dict[str, Any] = found | {"relation": accountant.RELATION, "accountant": accountant.accountant_name()}
    return _said(
        made,
        f"noise multiplier {rounded_up(made['noise_multiplier'])} (noise standard deviation over clip norm)",
        f"{_guarantee(made)}; {_over(steps, 1.0 if rate is None else rate)}",
    )


def _rewards(asked: Calibrate, budget: Any) -> Calibrated:
    """Calibrate the one mechanism that sees rewards."""
    from dprl.accounting.accountant import accountant_name
    from dprl.accounting.events import to_json
    from dprl.environments.learning_source import HostSource, open_environment
    from dprl.learning import planned_q
    from dprl.learning.functional_q import relation, resolve
    from dprl.learning.learning_plan import epsilon_at, make_learning_plan, make_mechanism

    config = _configured(asked, "noise_multiplier")
    if config.calibration != added.VERIFIED:
        raise DprlError(f"{config.calibration}: there is no certificate to calibrate: see dprl audit --calibration.")
    facts, source = open_environment(asked.environment or "interval-walk", asked.bounds)
    model = None
    if config.variant == "output" and not isinstance(source, HostSource):
        model = source.transition_matrix(planned_q.POINTS)
    if asked.noise_multiplier is None:
        plan = make_learning_plan(config, facts, budget, model)
        config, mechanism = plan.config, plan.mechanism
        spent, delta_of_event = plan.epsilon_of_event, plan.delta_of_event
    else:
        config = resolve(config, facts)
        mechanism = make_mechanism(config, facts, asked.noise_multiplier, model)
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
    return _said(
        made,
        f"{config.variant}: noise multiplier {multiplier}, sensitivity {sensitivity}, noise standard deviation {std}",
        _guarantee(made),
    )


def _people(asked: Calibrate, budget: Any) -> Calibrated:
    """Calibrate sums over people who answer: their noise in clip norms, under each relation that applies."""
    config = _configured(asked, "steps")
    if config.calibration != added.VERIFIED:
        require(asked.epsilon is not None, f"{config.calibration}: there is no epsilon to compute: give --epsilon.")
        return config.noise_in_words(budget)
    sampled = config.poisson
    if sampled != (asked.sampling_rate is not None):
        raise DprlError("--sampling-rate is for people who are sampled again: give it with --set sampling=poisson.")
    if sampled and config.steps is None:
        raise DprlError("People who are sampled again are asked in --steps batches: give their number too.")
    found = _spent(asked, budget, asked.sampling_rate, config.steps or 1)

    from dprl.accounting import accountant
    from dprl.accounting.user_relation import CLIPS, WORDS
    from dprl.mechanisms.strategy import Correlation

    multiplier, relation, name = found["noise_multiplier"], config.relation_words, accountant.accountant_name()
    clips = {relation: 1.0} if sampled else {words: CLIPS[each] for each, words in WORDS.items()}
    made = found | {
        "std_in_clip_norms": {words: multiplier * count for words, count in clips.items()},
        "relation": relation,
        "noise": "independent" if sampled else config.noise,
        # a Gaussian's privacy loss is the same for any two data sets one sensitivity apart
        "accountant": name if sampled else name.replace(accountant.RELATION, "neighbours one sensitivity apart"),
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
    return _said(made, *lines)


def _configured(asked: Calibrate, *names: str) -> Any:
    """Return the algorithm's options in the calibration that they name; all mistakes are raised at once.

    Args:
        names: options of the algorithm that are options of the command, too.
    """
    config = asked.mistakes.attempt(partial(configure, asked, str(asked.algorithm), **asked.only(*names)))
    asked.mistakes.check()
    return added.in_calibration(config)


def _spent(asked: Calibrate, budget: Any, rate: float | None, steps: int) -> dict[str, Any]:
    """Return noise multiplier, epsilon, delta and event of one Gaussian or, with a rate, of Poisson-sampled ones."""
    from dprl.accounting import accountant, events
    from dprl.accounting.calibration import noise_multiplier_for

    def event_of(multiplier: float) -> events.DpEvent:
        return events.gaussian(multiplier) if rate is None else events.poisson_gaussian(rate, multiplier, steps)

    if asked.noise_multiplier is None:
        multiplier, spent = noise_multiplier_for(event_of, budget), budget.epsilon
    else:
        multiplier = asked.noise_multiplier
        spent = accountant.epsilon_of(event_of(multiplier), budget.delta)
        require(math.isfinite(spent), "This noise multiplier is too small to give any guarantee at this delta.")
    event = events.to_json(event_of(multiplier))
    return {"noise_multiplier": multiplier, "epsilon": spent, "delta": budget.delta, "event": event}


def _said(made: dict[str, Any], *lines: str) -> Calibrated:
    return made, "\n".join([*lines, f"accountant: {made['accountant']}"])


def _guarantee(made: dict[str, Any]) -> str:
    return f"epsilon {rounded_up(made['epsilon'])}, delta {made['delta']:g}, {made['relation']}"


def _over(steps: int, rate: float) -> str:
    return f"{steps} {'step' if steps == 1 else 'steps'} at sampling rate {rate:g}"


def rounded_up(number: float) -> str:
    """Return a number with six digits, rounded up: what is printed may be typed back, and must cost no more."""
    return f"{decimal.Context(prec=6, rounding=decimal.ROUND_UP).plus(decimal.Decimal(repr(number))).normalize():f}"
