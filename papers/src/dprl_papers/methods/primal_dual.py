"""Primal-dual temporal differences and their baselines (paper 000), as published and in verified forms.

As published, and without privacy, a step takes one transition of the log, and an epoch has as many steps as the log has
transitions. For Langevin dynamics, an epoch is one step on all transitions. The verified methods spend the whole budget
on their value function, and an epoch has as many batches as the log holds. Every method measures itself: its value
function is the domain's network, or linear in the domain's features where the domain has no network.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from dprl.accounting import events
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import noise_multiplier_for
from dprl.bounds import Bounds
from dprl.data.trajectories import Trajectories
from dprl.engine.columns import TRANSITION
from dprl.engine.layouts import PaddedUnits, padded_units
from dprl.engine.loop import noiseless
from dprl.engine.program import PublicFacts, Query, Stage
from dprl.engine.rows import rows_of
from dprl.evaluation.dptd import DPTD
from dprl.evaluation.neural_td import NeuralTD
from dprl.evaluation.plan import program_for
from dprl.evaluation.primal_dual import FUNCTION, PrimalDualConfig
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.value_functions.features import Features, make_features
from dprl_papers.baselines.langevin import DPGLD
from dprl_papers.baselines.primal_dual_sgd import DPSGDA
from dprl_papers.baselines.recursive_momentum import DPSRM, INITIAL
from dprl_papers.harness.method import Guarantee, Method
from dprl_papers.harness.neural import NeuralMetrics, answers, run_curves
from dprl_papers.harness.problem import Setting, Trials
from dprl_papers.harness.versions import module_file
from dprl_papers.one_unit import SENSITIVITY_IN_CLIPS, single_unit_stage
from dprl_papers.paper_000_dptd.published import PublishedDPTD, noise_multiplier

EPOCHS = 100
"""Epochs of the methods as published, where none are asked for."""
SGD_STEP = 1e-3
"""Appendix G: SGD's step size is "in the same order with other algorithms, ranging from 1e-3 to 1e-4"; DP-SRM's too.
Ten times as much makes DP-SRM as published worse on Cart Pole, and with thirty times as much it runs away."""
LANGEVIN_STEP = 0.1
"""Step size of both variables; a step is a whole epoch. On Cart Pole, in 100 epochs, DP-GLD as published runs away with
three times as much, and hardly moves with a tenth."""
RECURSION = 0.3
Unit = Literal["trajectory", "transition"]
SettingOptions = Callable[[Setting], Mapping[str, Any]]


# --- a method's value function, logs and metrics --------------------------------------------------------------------


def function_of(setting: Setting) -> Features:
    """Return the domain's network, or its features where it has no network."""
    name = setting.domain.network
    return make_features(name, setting.bounds.observation) if name else setting.features


def logs_of(trials: Trials, features: Features, unit: Unit, rows: int | None) -> tuple[PaddedUnits, Bounds]:
    """Return the logs by units, with a leading axis of trials, and the bounds with the number of units.

    Every trial is cut to the number of units of the smallest trial, so that one program runs them all.
    """
    columns = (*TRANSITION, "raw_reward", *(("returns", "start") if unit == "trajectory" else ()))
    value = trials.setting.value

    def make(log: Trajectories, ratios: np.ndarray, discount: float) -> PaddedUnits:
        if unit == "transition":
            single = np.arange(len(log.reward) + 1, dtype=np.int64)
            valid = log.valid[log.episode_of()]
            log = dataclasses.replace(log, episode_offsets=single, unit_offsets=single, valid=valid, unit=unit)
        return padded_units(rows_of(log, ratios, features, discount, value, columns=columns, most=rows))

    parts = [
        p.once(f"{features.name} by {unit}, {rows} rows", lambda p=p: make(p.log, p.ratios, p.domain.discount))
        for p in trials
    ]
    count, longest = min(part.units for part in parts), max(part.reward.shape[1] for part in parts)

    def alike(array: Any) -> np.ndarray:
        array = np.asarray(array)[:count]
        return np.pad(array, [(0, 0), (0, longest - array.shape[1]), *[(0, 0)] * (array.ndim - 2)])

    stacked = jax.tree.map(lambda *arrays: jnp.asarray(np.stack([alike(x) for x in arrays])), *parts)
    return stacked, dataclasses.replace(trials.setting.bounds, units=count)


_LOCK = threading.RLock()


def metrics_of(domain: Any, features: Features) -> NeuralMetrics:
    """Return the metrics of a domain, which are made once for all methods."""
    with _LOCK:
        return _metrics(domain, features)


@functools.lru_cache(maxsize=8)
def _metrics(domain: Any, features: Features) -> NeuralMetrics:
    return NeuralMetrics(domain, features, transitions=10_000)


def measured(
    trials: Trials, program: Any, states: tuple[Any, ...], final: bool, has_dual: bool, clamp: bool
) -> dict[str, np.ndarray]:
    """Return ``(T, E)`` errors of each metric: of the iterates, or of the answer if the states are ``final``."""
    metrics = metrics_of(trials.setting.domain, program.facts.features)
    columns = []
    for state in states:
        theta = answers(program, state) if final else np.asarray(state.theta)
        columns.append(metrics.errors(theta, np.asarray(state.w) if has_dual else None, clamp))
    return {name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]}


# --- with a guarantee -----------------------------------------------------------------------------------------------


def verified_curves(
    kind: type[PrimalDualConfig],
    options: Mapping[str, Any],
    unit: Unit,
    trials: Trials,
    keys: Any,
    epochs: tuple[int, ...],
    further: SettingOptions | None = None,
) -> dict[str, np.ndarray]:
    """Return errors along a run whose noise is calibrated to its length; without ``epochs``, those of the answer."""
    setting, features = trials.setting, function_of(trials.setting)
    options = {**options, **({} if further is None else further(setting))}
    scale = setting.factor * options.pop("step_scale", 1.0)
    config = kind(discount=setting.domain.discount, step_scale=scale, **options)
    logs, bounds = logs_of(trials, features, unit, config.max_rows_per_unit)
    rate = config.rate(PublicFacts(bounds, features, config.discount, 1.0, unit))
    if epochs:
        config = config.replace(steps=max(2, math.ceil(epochs[-1] / rate)))
    program: Any = program_for(config, bounds, features, setting.budget, unit)
    last = program.stages[-1].mechanism.steps
    at = tuple(min(last, round(epoch / rate)) for epoch in epochs) or (last,)
    batch = 64 if rate * bounds.units > 4.0 else 4
    states = run_curves(program, None, keys, logs, at, batch=batch)
    return measured(trials, program, states, not epochs, kind is not NeuralTD, clamp=True)


def verified(
    name: str, label: str, kind: type[PrimalDualConfig], *, unit: Unit = "trajectory", at: SettingOptions | None = None,
    **options: Any,
) -> Method:  # fmt: skip
    """Return a verified method; ``options`` are those of its configuration, and ``at`` computes more from a setting."""

    def curves(trials: Trials, keys: Any, epochs: tuple[int, ...]) -> dict[str, np.ndarray]:
        return verified_curves(kind, options, unit, trials, keys, epochs, at)

    def promise(setting: Setting) -> Guarantee:
        budget, words = setting.budget, "of one transition" if unit == "transition" else ""
        return Guarantee(
            status="verified", claimed=budget.epsilon, true=budget.epsilon, delta=budget.delta, words=words
        )

    return _method(name, label, "verified", curves, promise, {"config": kind.__name__, "unit": unit, **options})


# --- as published, and without privacy --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Published:
    """A method with the stages of a paper, on single transitions or on all of them.

    Attributes:
        config: options; the number of steps is filled in for each run.
        stages: maps facts, steps and budget to stages.
        steps: maps the number of transitions to the number of steps in an epoch.
        private: whether noise is added.
    """

    config: PrimalDualConfig
    stages: Callable[[PublicFacts, int, Budget], tuple[Stage, ...]]
    steps: Callable[[int], int]
    private: bool = True

    def curves(self, trials: Trials, keys: Any, epochs: tuple[int, ...]) -> dict[str, np.ndarray]:
        setting, features = trials.setting, function_of(trials.setting)
        logs, bounds = logs_of(trials, features, "transition", None)
        per_epoch = self.steps(bounds.units)
        steps = per_epoch * max(1, *epochs) if epochs else per_epoch * EPOCHS
        facts = PublicFacts(bounds, features, setting.domain.discount, 1.0, "transition")
        config = self.config.replace(discount=facts.discount, step_scale=setting.factor, steps=steps)
        if features.linear:
            config = config.replace(start="mid-range")
        program: Any = config.program(facts, self.stages(facts, steps, setting.budget))
        at = tuple(min(program.stages[-1].mechanism.steps, per_epoch * epoch) for epoch in epochs)
        states = run_curves(
            program,
            None if self.private else noiseless(program),
            keys,
            logs,
            at or (program.stages[-1].mechanism.steps,),
            _starts(program, trials.seeds),
        )
        return measured(trials, program, states, not epochs, True, clamp=False)


def _starts(program: Any, seeds: tuple[int, ...]) -> Any:
    """Return the initial states; every trial has random weights from its own seed."""
    configs = (program.config.replace(seed=seed) for seed in seeds)
    states = [dataclasses.replace(program, config=config).init() for config in configs]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def _stage(name: str, facts: PublicFacts, steps: int, clip: float, multiplier: float) -> Stage:
    """Return a stage that uses one transition per step."""
    size = 2 * facts.features.size
    return single_unit_stage(Query(name, size, clip, steps), facts.units, multiplier)


def dptd_stages(facts: PublicFacts, steps: int, budget: Budget) -> tuple[Stage, ...]:
    """Return the stage with the noise of Theorem 5.1, for G = 1."""
    multiplier = noise_multiplier(max(steps - 1, 1), facts.units, budget.epsilon, budget.delta)
    return (_stage(FUNCTION, facts, steps, 1.0, multiplier),)


def langevin_stages(facts: PublicFacts, steps: int, budget: Budget) -> tuple[Stage, ...]:
    """Return the stage with the noise that is needed, and enough, if replacing one transition moves a sum by 2."""
    size, multiplier = 2 * facts.features.size, 2.0 * math.sqrt(steps) * _multiplier(budget)
    mechanism = GaussianSum(parts=((size, 1.0),), noise_multiplier=multiplier, steps=steps)
    return (Stage(FUNCTION, mechanism),)


def recursive_stages(facts: PublicFacts, steps: int, budget: Budget, recursion: float = RECURSION) -> tuple[Stage, ...]:
    """Return the stages of DP-SRM, reconstructed from Lemma B.3 of paper 000 and the bound 2 - a that G = 1 implies."""
    bound = 2.0 - recursion
    multiplier = noise_multiplier(steps, facts.units, budget.epsilon, budget.delta)
    return (
        _stage(INITIAL, facts, 1, 1.0, bound * multiplier),
        _stage(FUNCTION, facts, steps - 1, bound, multiplier),
    )


def single_stage(facts: PublicFacts, steps: int, budget: Budget) -> tuple[Stage, ...]:
    """Return the stage of a run without noise."""
    del budget
    return (_stage(FUNCTION, facts, steps, 1.0, 1.0),)


@functools.cache
def _multiplier(budget: Budget) -> float:
    return noise_multiplier_for(events.gaussian, budget)


def transitions(setting: Setting) -> int:
    """Return the number of transitions in a log of this size, counted in one example log."""
    return len(_example(setting.domain, setting.units).reward)


@functools.lru_cache(maxsize=16)
def _example(domain: Any, units: int) -> Trajectories:
    return domain.log(units, 0)


def dptd_promise(setting: Setting) -> Guarantee:
    """Return a lower bound on epsilon for Theorem 5.1's noise that claims the budget; joint gradients are at most 1."""
    count = transitions(setting)
    sigma = noise_multiplier(_epochs(setting) * count - 1, count, *_asked(setting))
    return _initial_promise(setting, sigma, "a lower bound")


def langevin_promise(setting: Setting) -> Guarantee:
    budget = setting.budget
    words = "of one transition, replaced; in exact arithmetic; the constant is derived"
    return Guarantee(
        status="as published", claimed=budget.epsilon, true=budget.epsilon, delta=budget.delta, words=words
    )


def recursive_promise(setting: Setting) -> Guarantee:
    """Return the same lower bound as :func:`dptd_promise` for the noise of Lemma B.3."""
    count = transitions(setting)
    sigma = (2.0 - RECURSION) * noise_multiplier(_epochs(setting) * count, count, *_asked(setting))
    return _initial_promise(setting, sigma, "a lower bound; the constants are reconstructed")


def _initial_promise(setting: Setting, sigma: float, words: str) -> Guarantee:
    """Return the guarantee of the initial gradients; later gradients hardly matter beside them (docs/papers/000.md)."""
    from dprl_papers.first_sum import initial_release_epsilon

    count, (epsilon, delta) = transitions(setting), _asked(setting)
    least = initial_release_epsilon(count, sigma, SENSITIVITY_IN_CLIPS, delta)
    words = f"of one of {count} transitions; {words}"
    return Guarantee(status="as published", claimed=epsilon, true=least, delta=delta, words=words)


def _epochs(setting: Setting) -> int:
    return setting.epochs or EPOCHS


def _asked(setting: Setting) -> tuple[float, float]:
    return setting.budget.epsilon, setting.budget.delta


def _published(name: str, label: str, run: Published, promise: Callable[[Setting], Guarantee] | None) -> Method:
    options = {f.name: getattr(run.config, f.name) for f in dataclasses.fields(run.config) if f.name != "provenance"}
    return _method(name, label, "as published" if run.private else "none", run.curves, promise, options)


def _method(name: str, label: str, guarantee: Any, curves: Any, promise: Any, options: Mapping[str, Any]) -> Method:
    files = (module_file("dprl_papers.methods.primal_dual"), module_file("dprl_papers.harness.neural"))
    return Method(
        name=name, label=label, guarantee=guarantee, curves=curves, promise=promise, options=options,
        sources=tuple(Path(file) for file in files if file), scalable=True, clamp=guarantee == "verified",
    )  # fmt: skip


def _one_step_per_transition(count: int) -> int:
    return count


def _one_step_per_epoch(count: int) -> int:
    del count
    return 1


_PAPER_OPTIONS: dict[str, Any] = {"start": "random", "max_rows_per_unit": None}
_DPTD = PublishedDPTD(**_PAPER_OPTIONS)
_SGD = DPSGDA(**_PAPER_OPTIONS, primal_step=SGD_STEP, dual_step=SGD_STEP, average="last")
_GLD = DPGLD(**_PAPER_OPTIONS, primal_step=LANGEVIN_STEP, dual_step=LANGEVIN_STEP)
_SRM = DPSRM(**_PAPER_OPTIONS, recursion=RECURSION, primal_step=SGD_STEP, dual_step=SGD_STEP)


def _batches(rate: float) -> SettingOptions:
    """Return options for batches of a ``rate``.

    Small batches make at least five passes, and the steps are scaled so that all of them together go equally far.
    """

    def at(setting: Setting) -> dict[str, Any]:
        count = max(100, min(round(5.0 / rate), setting.units))
        return {"sampling_rate": rate, "steps": count, "step_scale": 100.0 / count}

    return at


def _single(setting: Setting) -> dict[str, Any]:
    return {**_batches(1.0 / setting.units)(setting), "sampling_rate": 1.0 / setting.units}


METHODS = (
    verified("dptd", "DPTD", DPTD, direction="gradient"),
    verified("dptd-random", "DPTD, random iterate", DPTD, direction="gradient", average="random"),
    verified("dptd-corrected", "DPTD, corrected", DPTD),
    verified("dptd-corrected-random", "DPTD, corrected, random iterate", DPTD, average="random"),
    verified("sgda", "DP-SGDA", DPSGDA),
    verified("sgda-random", "DP-SGDA, random iterate", DPSGDA, average="random"),
    verified("gld", "DP-GLD", DPGLD),
    verified("gld-tail", "DP-GLD, averaged", DPGLD, average="tail"),
    verified("srm", "DP-SRM", DPSRM),
    verified("srm-tail", "DP-SRM, averaged", DPSRM, average="tail"),
    verified("neural-td", "neural TD(0)", NeuralTD),
    verified("neural-td-random", "neural TD(0), random iterate", NeuralTD, average="random"),
    verified("dptd-transition", "DPTD, unit transition", DPTD, unit="transition", direction="gradient"),
    verified("dptd-corrected-transition", "DPTD, corrected, unit transition", DPTD, unit="transition"),
    verified("dptd-corrected-single", "DPTD, corrected, one unit a step", DPTD, at=_single),
    *(
        verified(f"dptd-corrected-q{rate:g}", f"DPTD, corrected, q = {rate:g}", DPTD, at=_batches(rate))
        for rate in (0.01, 0.05, 0.2, 1.0)
    ),
    _published(
        "dptd-published", "DPTD as published", Published(_DPTD, dptd_stages, _one_step_per_transition), dptd_promise
    ),
    _published("td-000", "TD", Published(_DPTD, single_stage, _one_step_per_transition, private=False), None),
    _published("sgd", "SGD", Published(_SGD, single_stage, _one_step_per_transition, private=False), None),
    _published(
        "gld-published",
        "DP-GLD as published",
        Published(_GLD, langevin_stages, _one_step_per_epoch),
        langevin_promise,
    ),
    _published(
        "srm-published",
        "DP-SRM as published",
        Published(_SRM, recursive_stages, _one_step_per_transition),
        recursive_promise,
    ),
)
