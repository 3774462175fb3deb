"""``dprl calibrate``: the noise multipliers that a budget asks for, or the epsilon that a multiplier costs."""

from __future__ import annotations

import decimal
import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl import added
from dprl.accounting.budget import Budget
from dprl.cli.evaluate import FEATURES, SET, configure, merge_request
from dprl.errors import DprlError
from dprl.registry import AUDITED, LEARNING, find_audited

SAMPLED = ("gpope", "dptd", "dp-sgda", "neural-td")
"""Algorithms whose steps are Poisson-sampled Gaussian sums of one noise multiplier."""
ONE_MULTIPLIER = (*SAMPLED, "importance-sampling")
_IN_ENVIRONMENTS = [name for name, entry in LEARNING.items() if entry.unit == "reward function"]


def calibrate(
    algorithm: Annotated[str, typer.Argument(help=f"{', '.join(AUDITED)}.")],
    delta: Annotated[float, typer.Option(help="Delta of the budget, well below one over the number of units.")],
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of the budget.")] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help=f"Probability with which a unit joins one step's batch ({', '.join(SAMPLED)}).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps (of an algorithm that has them).")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise standard deviation over the clip norm: print the epsilon it costs.")
    ] = None,
    bounds: Annotated[
        Path | None, typer.Option(help="TOML file with the public bounds: calibrate every stage of a release.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help=f"Where is learned, interval-walk or gymnasium:ID ({', '.join(_IN_ENVIRONMENTS)})."),
    ] = None,
    features: FEATURES = None,
    option: SET = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Noise multiplier for a budget, or (with --noise-multiplier instead of --epsilon) its epsilon. Reads no data.

    That is for one mechanism alone, of an algorithm that has one noise multiplier for all steps. With --bounds, every
    stage of a release with any algorithm is calibrated, as the release itself would be. Of --set
    calibration=as-published it is said what noise the paper's formula gives, and what is known of its epsilon.
    Of dp-pg the relation is zero out one (or --set relation=replace-one), and each person is in one batch.
    """
    entry = find_audited(algorithm)
    if entry.unit == "user":
        if environment is not None or bounds is not None or features is not None:
            raise DprlError(
                f"{algorithm} is calibrated from its budget alone: leave out environment, bounds, features."
            )
        _users(entry.load_config(), delta, epsilon, sampling_rate, steps, noise_multiplier, option, as_json)
        return
    if entry.unit == "reward function":
        if sampling_rate is not None or steps is not None or features is not None:
            raise DprlError(
                f"{algorithm} has no sampling rate, steps or features here: give --set samples=... instead."
            )
        _learning(algorithm, delta, epsilon, noise_multiplier, environment, bounds, option, as_json)
        return
    if environment is not None:
        raise DprlError(f"--environment is for what learns in one: {', '.join(_IN_ENVIRONMENTS)}.")
    if bounds is None:
        if features is not None or option:
            raise DprlError("--features and --set are those of a whole release: give --bounds too.")
        _mechanism(algorithm, delta, epsilon, sampling_rate, steps, noise_multiplier, as_json)
        return
    if epsilon is None or noise_multiplier is not None:
        raise DprlError("With --bounds a whole release is calibrated: give --epsilon, and no --noise-multiplier.")
    _, options = merge_request({}, {"sampling_rate": sampling_rate, "steps": steps}, None, option)

    from dprl.release.plan import calibrate_release

    config, features = added.in_calibration(configure(algorithm, options)), features or "columns"
    if getattr(config, "calibration", added.VERIFIED) == added.VERIFIED:
        made = calibrate_release(Budget(epsilon, delta), config, bounds=bounds, features=features)
        words = _words(made)
    else:
        made, words = config.noise_in_words(Budget(epsilon, delta), bounds=bounds, features=features)
    typer.echo(json.dumps(made, allow_nan=False) if as_json else words)


def _mechanism(
    algorithm: str,
    delta: float,
    epsilon: float | None,
    sampling_rate: float | None,
    steps: int | None,
    noise_multiplier: float | None,
    as_json: bool,
) -> None:
    """One mechanism alone, with all of the budget."""
    if algorithm not in ONE_MULTIPLIER:
        raise DprlError(f"{algorithm} is calibrated stage by stage, from public bounds: give --bounds.")
    if (epsilon is None) == (noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")
    if algorithm in SAMPLED:
        if sampling_rate is None or steps is None:
            raise DprlError(f"{algorithm} needs --sampling-rate and --steps.")
        rate, count = sampling_rate, steps
    else:
        if sampling_rate not in (None, 1.0) or steps not in (None, 1):
            raise DprlError("importance-sampling is one release over all units: --sampling-rate and --steps are 1.")
        rate, count = 1.0, 1
    budget = Budget(1.0 if epsilon is None else epsilon, delta)

    from dprl.accounting import accountant, events
    from dprl.accounting.calibration import noise_multiplier_for

    def event_of(multiplier: float) -> events.DpEvent:
        if algorithm in SAMPLED:
            return events.poisson_gaussian(rate, multiplier, count)
        return events.gaussian(multiplier)

    if noise_multiplier is None:
        multiplier, spent = noise_multiplier_for(event_of, budget), budget.epsilon
    else:
        multiplier, spent = noise_multiplier, accountant.epsilon_of(event_of(noise_multiplier), delta)
        if not math.isfinite(spent):
            raise DprlError("This noise multiplier is too small to give any guarantee at this delta.")
    if as_json:
        result = {
            "noise_multiplier": multiplier,
            "epsilon": spent,
            "delta": delta,
            "relation": accountant.RELATION,
            "event": events.to_json(event_of(multiplier)),
            "accountant": accountant.accountant_name(),
        }
        typer.echo(json.dumps(result, allow_nan=False))
        return
    typer.echo(f"noise multiplier {rounded_up(multiplier)} (noise standard deviation over clip norm)")
    typer.echo(f"epsilon {rounded_up(spent)}, delta {delta:g}, {accountant.RELATION}; {_over(count, rate)}")
    typer.echo(f"accountant: {accountant.accountant_name()}")


def _users(
    kind: Any,
    delta: float,
    epsilon: float | None,
    sampling_rate: float | None,
    steps: int | None,
    noise_multiplier: float | None,
    option: list[str] | None,
    as_json: bool,
) -> None:
    """The one mechanism that sees people's vectors, with all of the budget."""
    from dprl.cli.calibrate_users import calibrate_users
    from dprl.config import merge

    _, options = merge_request({}, {"steps": steps}, None, option)
    calibrate_users(merge(kind, options), delta, epsilon, sampling_rate, noise_multiplier, rounded_up, as_json)


def _learning(
    algorithm: str,
    delta: float,
    epsilon: float | None,
    noise_multiplier: float | None,
    environment: str | None,
    bounds: Path | None,
    option: list[str] | None,
    as_json: bool,
) -> None:
    """The one mechanism that sees rewards, with all of the budget."""
    if (epsilon is None) == (noise_multiplier is None):
        raise DprlError("Give either --epsilon, for its noise multiplier, or --noise-multiplier, for its epsilon.")
    from dprl.accounting.accountant import accountant_name
    from dprl.accounting.events import to_json
    from dprl.config import merge
    from dprl.environments.learning_source import HostSource, open_environment
    from dprl.learning import planner
    from dprl.learning.functional_q import relation, resolve
    from dprl.learning.learning_plan import epsilon_at, make_learning_plan, make_mechanism

    _, options = merge_request({}, {"noise_multiplier": noise_multiplier}, None, option)
    config = merge(find_audited(algorithm).load_config(), options)
    config = added.in_calibration(config)
    if config.calibration != added.VERIFIED:
        raise DprlError(f"{config.calibration}: there is no certificate to calibrate: see dprl audit --calibration.")
    facts, source = open_environment("interval-walk" if environment is None else environment, bounds)
    model = None
    if config.variant == "output" and not isinstance(source, HostSource):
        model = source.transition_matrix(planner.POINTS)
    if epsilon is not None:
        plan = make_learning_plan(config, facts, Budget(epsilon, delta), model)
        config, mechanism, spent = plan.config, plan.mechanism, plan.epsilon_of_event
        delta_of_event = plan.delta_of_event
    else:
        config = resolve(config, facts)
        mechanism = make_mechanism(config, facts, noise_multiplier or 0.0, model)
        spent, delta_of_event = epsilon_at(mechanism, delta)
    assert mechanism is not None
    made = {
        "noise_multiplier": mechanism.noise_multiplier,
        "sensitivity": mechanism.sensitivity,
        "std": mechanism.std,
        "epsilon": spent,
        "delta": delta,
        "delta_of_event": delta_of_event,
        "variant": config.variant,
        "relation": relation(config).words(),
        "event": to_json(mechanism.event()),
        "accountant": accountant_name(),
    }
    if as_json:
        typer.echo(json.dumps(made, allow_nan=False))
        return
    typer.echo(
        f"{config.variant}: noise multiplier {rounded_up(made['noise_multiplier'])}, sensitivity "
        f"{rounded_up(made['sensitivity'])}, noise standard deviation {rounded_up(made['std'])}"
    )
    typer.echo(f"epsilon {rounded_up(spent)}, delta {delta:g}, {made['relation']}")
    typer.echo(f"accountant: {made['accountant']}")


def _words(made: dict[str, Any]) -> str:
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


def _over(steps: int, rate: float) -> str:
    return f"{steps} {'step' if steps == 1 else 'steps'} at sampling rate {rate:g}"


def rounded_up(number: float) -> str:
    # never down: what is printed may be typed back
    return f"{decimal.Context(prec=6, rounding=decimal.ROUND_UP).plus(decimal.Decimal(repr(number))).normalize():f}"
