"""Adapter that turns an algorithm of dprl into a method of an experiment, in one line per method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dprl.engine.columns import scale_of
from dprl.engine.layouts import PaddedUnits, SharedTransitions
from dprl.engine.loop import run
from dprl.evaluation.plan import program_for
from dprl.mechanisms.noise import SeededNoise
from dprl.registry import find, is_own_kind
from dprl_papers.harness.method import Guarantee, Method, Status

if TYPE_CHECKING:
    from dprl_papers.harness.problem import Setting, Trials


def algorithm(
    name: str,
    label: str,
    config: str | type[Any],
    *,
    guarantee: Status = "verified",
    promise: Callable[[Setting], Guarantee] | None = None,
    at: Callable[[Setting], Mapping[str, Any]] | None = None,
    trivial: bool = False,
    clamp: bool = True,
    **options: Any,
) -> Method:
    """Return a method that runs an algorithm of dprl and spends the whole budget on its value function.

    Args:
        name, label, guarantee, promise, trivial, clamp: as in :class:`Method`.
        config: the algorithm's name in the registry, or its configuration class, a ``ValueFunctionConfig``.
        at: computes further options from a setting.
        options: of the configuration; options that are not given keep their defaults.
    """
    kind = find(config).load_config() if isinstance(config, str) else config
    file = inspect.getsourcefile(kind)
    configured = partial(_configured, kind, options, at)
    return Method(
        name=name,
        label=label,
        guarantee=guarantee,
        batch=partial(_answer, configured),
        promise=promise,
        options=options | {"config": kind.__name__},
        sources=() if file is None else (Path(file),),
        trivial=trivial,
        clamp=clamp,
        scalable=bool({"step_size", "step_scale"} & set(kind.options())),
        configured=configured,
    )


def is_reviewed(method: Method) -> bool:
    """Return whether :func:`algorithm` made this method from one of dprl's own algorithms, with its own guarantee."""
    made, configured = method.batch, method.configured
    if not isinstance(made, partial) or made.func is not _answer or made.args != (configured,):
        return False
    own = isinstance(configured, partial) and configured.func is _configured and is_own_kind(configured.args[0])
    return own and method.promise is None


def _configured(
    kind: type[Any], options: Mapping[str, Any], at: Callable[[Setting], Mapping[str, Any]] | None, setting: Setting
) -> Any:
    """Return the algorithm's configuration at a setting, with its step size multiplied by the setting's factor.

    A tuned step size is 1 in this configuration, and the noisy sums are multiplied by the tuned value instead. Thus one
    compiled program serves all step sizes.
    """
    config = kind(discount=setting.domain.discount, **options, **({} if at is None else at(setting)))
    if setting.tuned is not None:
        return config.replace(step_size=1.0)
    if setting.factor == 1.0:
        return config
    if "step_scale" in kind.options():
        return config.replace(step_scale=setting.factor)
    chosen = getattr(_program(config, setting).config, "step_size", None)  # chosen by the algorithm
    return config if chosen is None else config.replace(step_size=chosen * setting.factor)


def _program(config: Any, setting: Setting) -> Any:
    return program_for(config, setting.bounds, setting.features, setting.budget)


def _answer(configured: Callable[[Setting], Any], trials: Trials, keys: Any) -> np.ndarray:
    setting = trials.setting
    step_size = 1.0 if setting.tuned is None else setting.tuned * setting.factor
    return answers(configured(setting), trials, keys, [step_size])[0]


def answers(config: Any, trials: Trials, keys: Any, step_sizes: Sequence[float]) -> np.ndarray:
    """Return ``(F, T, n)`` weights in the reward's unit; noisy sums are multiplied by each of ``F`` step sizes."""
    setting = trials.setting
    program, factors = _program(config, setting), jnp.asarray(step_sizes)
    if trials.shared:
        theta = np.asarray(_together(program, jnp.asarray(keys), trials.shared_layout(), factors))
    else:
        each = [_one(program, key, problem.layout, factors) for key, problem in zip(keys, trials, strict=True)]
        theta = np.stack([np.asarray(one) for one in each], axis=1)
    centre, half = scale_of(setting.value)
    # some answers have further numbers after the weights
    return centre * setting.features.constant() + half * theta[..., : setting.features.size].astype(np.float64)


@partial(jax.jit, static_argnames="program")
def _together(program: Any, keys: Any, data: SharedTransitions, factors: Any) -> Any:
    """Return the answers of all trials. The arrays of units have a leading axis of trials."""
    axes = data.of_units(lambda _: 0, lambda _: None)
    trials = jax.vmap(lambda factor, key, log: _run(program, key, log, factor), in_axes=(None, 0, axes))
    return jax.vmap(lambda factor: trials(factor, keys, data))(factors)


@partial(jax.jit, static_argnames="program")
def _one(program: Any, key: Any, data: PaddedUnits, factors: Any) -> Any:
    return jax.vmap(lambda factor: _run(program, key, data, factor))(factors)


def _run(program: Any, key: Any, data: Any, factor: Any) -> Any:
    # noise without the integer grid: no digit that a table shows depends on the grid
    mechanisms: Any = tuple(stage.mechanism.in_float(factor) for stage in program.stages)
    # trials run side by side, so all of them wait for the trial with the most blocks
    few = all(stage.mechanism.sampling_rate * data.units <= 4.0 for stage in program.stages)
    return run(program, SeededNoise(key), data, mechanisms=mechanisms, batch=4 if few else 32)[1]
