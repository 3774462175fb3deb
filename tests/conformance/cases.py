"""What the suite runs over: every algorithm in the registry, and one that somebody might add."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import dprl
from dprl.accounting import events
from dprl.audits.record_replay import Recorder, ReleaseTrace
from dprl.mechanisms.arithmetic import grid_step
from dprl.registry import Entry, evaluation_entries

from .toy import TOY
from .walks import mechanisms_of

ENTRIES: dict[str, Entry] = {**evaluation_entries(), "toy": TOY}
# Further settings of an algorithm take the same ways through the code, and programs share their loop: all of it runs
# with the slow tests but for two settings of GPOPE and of importance sampling. The other algorithms have a short
# version (test_programs_in_short.py).
_FAST = {"gpope": 2, "importance-sampling": 2}
CASES = [
    pytest.param(
        (name, setting), marks=[pytest.mark.slow] if number >= _FAST.get(name, 0) else [], id=f"{name}, {setting}"
    )
    for name, entry in ENTRIES.items()
    for number, setting in enumerate(entry.load().settings)
]
# names, of which those that are tried in short alone are slow
NAMES = [pytest.param(name, marks=[] if name in _FAST else [pytest.mark.slow]) for name in ENTRIES]
# these take the same ways through the code as dptd
_ALIKE = ("dp-sgda", "dp-gld", "dp-srm", "neural-td")
QUICK = [
    pytest.param(name, next(iter(entry.load().settings)), marks=[pytest.mark.slow] if name in _ALIKE else [])
    for name, entry in ENTRIES.items()
    if name not in _FAST
]


def suite(name: str) -> Any:
    return ENTRIES[name].load_conformance()


def log_of(conformance: Any, setting: str, columns: Any) -> Any:
    return dprl.read_log(columns, bounds=conformance.plan(setting).bounds)


def released(conformance: Any, setting: str, columns: Any) -> Any:
    """The call that releases a log of these columns."""
    return conformance.releasing(setting, log_of(conformance, setting, columns))


def recorded(
    conformance: Any, setting: str, columns: Any, noise: Any, recorder: Recorder | None = None
) -> ReleaseTrace:
    return (recorder or Recorder()).record(released(conformance, setting, columns), noise=noise)


def totals(tape: ReleaseTrace) -> list[tuple[int, ...]]:
    return [entry.total for place in sorted(tape.entries) for entry in tape.entries[place]]


def without(columns: Any, unit: int) -> Any:
    return {name: values[columns["episode_id"] != unit] for name, values in columns.items()}


def emitted(conformance: Any, setting: str, calls: list) -> events.DpEvent:
    """The event of what the noise source was really asked for, stream by stream."""
    parts = []
    for stream, mechanism in mechanisms_of(conformance, setting).items():
        draws = [c for c in calls if c[:2] == (f"/{stream}", "gaussian")]
        coins = [c for c in calls if c[:2] == (f"/{stream}", "coins")]
        (rate,) = {rate for *_, rate in coins} or {1.0}
        assert [c[2] for c in draws] == list(range(len(draws))), "each step draws once, at its own counter"
        assert not coins or [c[2] for c in coins] == [c[2] for c in draws]
        assert {dimension for *_, dimension, _ in draws} == {mechanism.dimension}
        of_stream = []
        for scale in dict.fromkeys(std for *_, std in draws):
            steps = sum(std == scale for *_, std in draws)
            multiplier = scale * grid_step(mechanism.clip_norm) / mechanism.sensitivity
            one = rate == 1.0 and len(draws) == 1
            of_stream.append(events.gaussian(multiplier) if one else events.poisson_gaussian(rate, multiplier, steps))
        parts.append(of_stream[0] if len(of_stream) == 1 else events.compose(of_stream))
    assert {c[0] for c in calls} == {f"/{stream}" for stream in mechanisms_of(conformance, setting)}
    return events.compose(parts)


def check_event(conformance: Any, setting: str, tape: ReleaseTrace) -> None:
    """The event that is declared is that of the mechanisms and of what was drawn, and each mechanism released."""
    plan, mechanisms = conformance.plan(setting), list(mechanisms_of(conformance, setting).values())
    assert plan.event == events.compose([m.event() for m in mechanisms])
    assert same_event(plan.event, emitted(conformance, setting, tape.calls))
    # values around a value function are released after it
    assert tape.mechanisms == (mechanisms[1:] + mechanisms[:1] if plan.around_function else mechanisms)


def same_event(a, b) -> bool:
    """Equal but for the rounding of a division."""

    def numbers(x):
        if isinstance(x, dict):
            return list(itertools.chain.from_iterable(numbers(x[key]) for key in sorted(x)))
        return list(itertools.chain.from_iterable(map(numbers, x))) if isinstance(x, list) else [x]

    x, y = (numbers(events.to_json(e)) for e in (a, b))
    return len(x) == len(y) and all(
        p == q if isinstance(p, str) else abs(p / q - 1.0) < 1e-12 for p, q in zip(x, y, strict=True)
    )
