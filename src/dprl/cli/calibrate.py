"""``dprl calibrate``: the noise multipliers that a budget asks for, or the epsilon that a multiplier costs."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl import added
from dprl.cli.command import configure
from dprl.cli.requests import Budgeted, Featured, OfPublicFacts, Printed, Settings, may, must
from dprl.cli.running import show
from dprl.errors import DprlError
from dprl.registry import LEARNING, audited

SAMPLED = ("gpope", "dptd", "dp-sgda", "neural-td")
"""Algorithms whose steps are Poisson-sampled Gaussian sums of one noise multiplier."""
ONE_MULTIPLIER = (*SAMPLED, "importance-sampling")
_IN_ENVIRONMENTS = [name for name, entry in LEARNING.items() if entry.unit == "reward function"]


@dataclass(frozen=True, kw_only=True)
class Calibrate(Printed, Settings, Featured, OfPublicFacts, Budgeted):
    """Noise multiplier for a budget, or (with --noise-multiplier instead of --epsilon) its epsilon. Reads no data.

    That is for one mechanism alone, of an algorithm that has one noise multiplier for all steps. With --bounds, every
    stage of a release with any algorithm is calibrated, as the release itself would be. Of --set
    calibration=as-published it is said what noise the paper's formula gives, and what is known of its epsilon.
    Of dp-pg the relation is zero out one (or --set relation=replace-one), and each person is in one batch.

    Attributes:
        algorithm: name of the algorithm, such as gpope or dp-pg.
        epsilon: privacy budget: print the noise multiplier that it asks for.
        noise_multiplier: noise standard deviation over the clip norm. Its epsilon is printed.
        bounds: TOML file with the public bounds. Every stage of a release is calibrated.
        sampling_rate: probability with which a unit joins one step's batch. For gpope, dptd, dp-sgda and neural-td.
        steps: number of steps, of an algorithm that has them.
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


def calibrate(asked: Calibrate) -> None:
    """Print what one mechanism, or every stage of a release, is calibrated to."""
    asked.mistakes.check()
    name = str(asked.algorithm)
    unit = audited()[name].unit if name in audited() else ""
    given = {field for field, value in vars(asked).items() if value is not None}
    if unit == "user":
        if given & {"environment", "bounds", "features"}:
            raise DprlError(f"{name} is calibrated from its budget alone: leave out environment, bounds, features.")
        made, words = _people(asked)
    elif unit == "reward function":
        if given & {"sampling_rate", "steps", "features"}:
            raise DprlError(f"{name} has no sampling rate, steps or features here: give --set samples=... instead.")
        made, words = _rewards(asked), _rewards_words
    elif asked.environment is not None:
        raise DprlError(f"--environment is for what learns in one: {', '.join(_IN_ENVIRONMENTS)}.")
    elif asked.bounds is not None:
        made, words = _release(asked)
    elif asked.features is not None or asked.setting or asked.flags:
        raise DprlError("--features and --set are those of a whole release: give --bounds too.")
    else:
        made, words = _mechanism(asked), _mechanism_words
    show(made, words, asked.as_json)


# --- every stage of a release -----------------------------------------------------------------------------------


def _release(asked: Calibrate) -> tuple[dict[str, Any], Callable[[Any], str]]:
    if asked.epsilon is None or asked.noise_multiplier is not None:
        raise DprlError("With --bounds a whole release is calibrated: give --epsilon, and no --noise-multiplier.")
    mistakes, budget = asked.mistakes, asked.budget()
    config = mistakes.attempt(_configured, asked)
    mistakes.check()

    from dprl.release.plan import calibrate_release

    config = added.in_calibration(config)
    facts = {"bounds": asked.bounds, "features": asked.features or "columns"}
    if getattr(config, "calibration", added.VERIFIED) == added.VERIFIED:
        return calibrate_release(budget, config, **facts), _release_words
    made, words = config.noise_in_words(budget, **facts)
    return made, lambda _: words


def _configured(asked: Calibrate) -> Any:
    return configure(asked, str(asked.algorithm), **asked.only("sampling_rate", "steps"))


def _release_words(made: dict[str, Any]) -> str:
    lines = [
        f"{s['purpose']}: noise multiplier {rounded_up(s['noise_multiplier'])}, "
        f"{_over(s['steps'], s['sampling_rate'])}, {100.0 * s['share']:.3g}% of the budget"
        for s in made["stages"]
    ]
    lines += [
        f"epsilon {rounded_up(made['epsilon_of_event'])} of {made['epsilon']:g}, delta {made['delta']:g}, "
        f"{made['relation']}; shares are of mu^2, the squared Gaussian privacy parameter",
        f"accountant: {made['accountant']}",
    ]
    return "\n".join(lines)


# --- one mechanism alone, with all of the budget ----------------------------------------------------------------


def _check_either(asked: Calibrate) -> None:
    if (asked.epsilon is None) == (asked.noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")


def _spent(asked: Calibrate, rate: float | None, steps: int) -> dict[str, Any]:
    """Return noise multiplier, epsilon, delta and event of one Gaussian, or of sampled ones where there is a rate."""
    budget = asked.budget(epsilon=1.0)
    asked.mistakes.check()

    from dprl.accounting import accountant, events
    from dprl.accounting.calibration import noise_multiplier_for

    def event_of(multiplier: float) -> events.DpEvent:
        return events.gaussian(multiplier) if rate is None else events.poisson_gaussian(rate, multiplier, steps)

    if asked.noise_multiplier is None:
        multiplier, spent = noise_multiplier_for(event_of, budget), budget.epsilon
    else:
        multiplier = asked.noise_multiplier
        spent = accountant.epsilon_of(event_of(multiplier), budget.delta)
        if not math.isfinite(spent):
            raise DprlError("This noise multiplier is too small to give any guarantee at this delta.")
    event = events.to_json(event_of(multiplier))
    return {"noise_multiplier": multiplier, "epsilon": spent, "delta": budget.delta, "event": event}


def _mechanism(asked: Calibrate) -> dict[str, Any]:
    name, rate, steps = asked.algorithm, asked.sampling_rate, asked.steps
    if name not in ONE_MULTIPLIER:
        configure(asked, str(name))  # refuses what is no algorithm
        raise DprlError(f"{name} is calibrated stage by stage, from public bounds: give --bounds.")
    _check_either(asked)
    if name in SAMPLED and (rate is None or steps is None):
        raise DprlError(f"{name} needs --sampling-rate and --steps.")
    if name not in SAMPLED and not (rate in (None, 1.0) and steps in (None, 1)):
        raise DprlError("importance-sampling is one release over all units: --sampling-rate and --steps are 1.")
    found = _spent(asked, rate if name in SAMPLED else None, 1 if steps is None else steps)

    from dprl.accounting import accountant

    names = ("noise_multiplier", "epsilon", "delta")
    result = {name: found[name] for name in names} | {"relation": accountant.RELATION, "event": found["event"]}
    return result | {"accountant": accountant.accountant_name()}


def _mechanism_words(made: dict[str, Any]) -> str:
    event = made["event"]
    steps = event["count"] if event["type"] == "SelfComposed" else 1
    inner = event["event"] if event["type"] == "SelfComposed" else event
    lines = [
        f"noise multiplier {rounded_up(made['noise_multiplier'])} (noise standard deviation over clip norm)",
        f"epsilon {rounded_up(made['epsilon'])}, delta {made['delta']:g}, {made['relation']}; "
        f"{_over(steps, inner.get('sampling_probability', 1.0))}",
        f"accountant: {made['accountant']}",
    ]
    return "\n".join(lines)


# --- the one mechanism that sees rewards ------------------------------------------------------------------------


def _rewards(asked: Calibrate) -> dict[str, Any]:
    _check_either(asked)
    from dprl.accounting.accountant import accountant_name
    from dprl.accounting.events import to_json
    from dprl.environments.learning_source import HostSource, open_environment
    from dprl.learning import planner
    from dprl.learning.functional_q import relation, resolve
    from dprl.learning.learning_plan import epsilon_at, make_learning_plan, make_mechanism

    budget = asked.budget(epsilon=1.0)
    config = asked.mistakes.attempt(
        lambda: configure(asked, str(asked.algorithm), noise_multiplier=asked.noise_multiplier)
    )
    asked.mistakes.check()
    config = added.in_calibration(config)
    if config.calibration != added.VERIFIED:
        raise DprlError(f"{config.calibration}: there is no certificate to calibrate: see dprl audit --calibration.")
    facts, source = open_environment(asked.environment or "interval-walk", asked.bounds)
    model = None
    if config.variant == "output" and not isinstance(source, HostSource):
        model = source.transition_matrix(planner.POINTS)
    if asked.epsilon is not None:
        plan = make_learning_plan(config, facts, budget, model)
        config, mechanism = plan.config, plan.mechanism
        spent, delta_of_event = plan.epsilon_of_event, plan.delta_of_event
    else:
        config = resolve(config, facts)
        mechanism = make_mechanism(config, facts, asked.noise_multiplier or 0.0, model)
        spent, delta_of_event = epsilon_at(mechanism, budget.delta)
    assert mechanism is not None
    return {
        "noise_multiplier": mechanism.noise_multiplier,
        "sensitivity": mechanism.sensitivity,
        "std": mechanism.std,
        "epsilon": spent,
        "delta": budget.delta,
        "delta_of_event": delta_of_event,
        "variant": config.variant,
        "relation": relation(config).words(),
        "event": to_json(mechanism.event()),
        "accountant": accountant_name(),
    }


def _rewards_words(made: dict[str, Any]) -> str:
    multiplier, sensitivity, std = (rounded_up(made[name]) for name in ("noise_multiplier", "sensitivity", "std"))
    return (
        f"{made['variant']}: noise multiplier {multiplier}, sensitivity {sensitivity}, noise standard deviation {std}\n"
        f"epsilon {rounded_up(made['epsilon'])}, delta {made['delta']:g}, {made['relation']}\n"
        f"accountant: {made['accountant']}"
    )


# --- sums over people who answer once ---------------------------------------------------------------------------


def _people(asked: Calibrate) -> tuple[dict[str, Any], Callable[[Any], str]]:
    """Return the noise of sums over people, in clip norms, under either relation."""
    config = configure(asked, str(asked.algorithm), steps=asked.steps)
    _check_either(asked)
    if config.calibration != added.VERIFIED:
        if asked.epsilon is None:
            raise DprlError(f"{config.calibration}: there is no epsilon to compute: give --epsilon.")
        budget = asked.budget()
        asked.mistakes.check()
        made, words = added.in_calibration(config).noise_in_words(budget)
        return made, lambda _: words
    sampled = config.poisson
    if sampled != (asked.sampling_rate is not None):
        raise DprlError("--sampling-rate is for people who are sampled again: give it with --set sampling=poisson.")
    if sampled and config.steps is None:
        raise DprlError("People who are sampled again are asked in --steps batches: give their number too.")
    found = _spent(asked, asked.sampling_rate, config.steps or 1)

    from dprl.accounting import accountant
    from dprl.accounting.user_relation import CLIPS, WORDS

    multiplier, words = found["noise_multiplier"], config.relation_words
    clips = {words: 1.0} if sampled else {WORDS[relation]: CLIPS[relation] for relation in WORDS}
    name = accountant.accountant_name()
    made = found | {
        "std_in_clip_norms": {relation: multiplier * count for relation, count in clips.items()},
        "relation": words,
        "noise": "independent" if sampled else config.noise,
        # a Gaussian loses the same between any two data sets that are one sensitivity apart
        "accountant": name if sampled else name.replace(accountant.RELATION, "neighbours one sensitivity apart"),
    }
    if config.steps is not None and not sampled:
        from dprl.mechanisms.strategy import Correlation

        correlation = Correlation(config.noise)
        # what correlated noise does over so many steps
        made["steps"] = config.steps
        made["column_norm"] = correlation.column_norm(config.steps, 1, multiplier)
        made["error_of_prefix_sums"] = correlation.prefix_error(config.steps)
    return made, _people_words


def _people_words(made: dict[str, Any]) -> str:
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


def _over(steps: int, rate: float) -> str:
    return f"{steps} {'step' if steps == 1 else 'steps'} at sampling rate {rate:g}"


def rounded_up(number: float) -> str:
    # never down: what is printed may be typed back
    """Return a number with six digits, rounded up."""
    return f"{decimal.Context(prec=6, rounding=decimal.ROUND_UP).plus(decimal.Decimal(repr(number))).normalize():f}"
