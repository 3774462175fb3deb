"""Noise that changes from step to step, through plan, loop, journal and certificate."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import dprl
from dprl.accounting import events, verification
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.renyi_filter import WHOLE
from dprl.data.readers import read_log
from dprl.engine import loop as engine
from dprl.engine.layouts import padded_units, unit_rows
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.evaluation.plan import make_plan, program_for
from dprl.evaluation.protected import to_levels
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.run_key import RunKey
from dprl.release.journal import FolderJournal
from dprl.value_functions.features import make_features

from ..resealed import resealed
from . import helpers
from .changing_noise import LEVELS, Changing

PEOPLE, STEPS = 120, 12
BUDGET, BOUNDS = dprl.Budget(1.0, 1e-5), helpers.stepped_bounds(PEOPLE)
LOG = helpers.stepped_log(PEOPLE, 0)
PROFILE = to_levels(np.geomspace(2.0, 0.5, STEPS), 2)
CONFIGS = {
    "scheduled": Changing(steps=STEPS, sampling_rate=0.3, profile=PROFILE),
    "adaptive": Changing(steps=STEPS, sampling_rate=0.3, greedy=False),
    "greedy": Changing(steps=STEPS, sampling_rate=0.3, greedy=True),
}


def plan_of(name: str) -> Any:
    return make_plan(CONFIGS[name], BOUNDS, BUDGET, [helpers.stepped_policy], total_variation=2.0**-49)


@cache
def data() -> tuple[Any, Any]:
    log = read_log(LOG, bounds=BOUNDS).load()
    features = make_features("columns", BOUNDS.observation)
    rows = rows_of(log, np.ones(len(log.reward)), features, 0.99, (0.0, 5.0))
    return unit_rows(rows, PEOPLE), padded_units(rows)


class Asked:
    """A noise source that notes which Gaussians it is asked for."""

    def __init__(self, inner: Any, calls: list[tuple[Any, ...]] | None = None, name: str = "") -> None:
        self.inner, self.calls, self.name = inner, [] if calls is None else calls, name

    def stream(self, name: str) -> Asked:
        return Asked(self.inner.stream(name), self.calls, f"{self.name}/{name}")

    def participation_mask(self, step: int, count: int, rate: float) -> Any:
        self.calls.append((self.name, "coins", int(step)))
        return self.inner.participation_mask(step, count, rate)

    def gaussian(self, step: int, dimension: int, std: float) -> Any:
        self.calls.append((self.name, "gaussian", int(step), float(std)))
        return self.inner.gaussian(step, dimension, std)


def test_a_profile_is_calibrated_to_the_budget():
    plan = plan_of("scheduled")
    (stage,) = plan.stages
    assert stage.mechanism.multipliers is not None
    ratios = np.array(stage.mechanism.multipliers) / np.array(PROFILE)
    np.testing.assert_allclose(ratios, ratios[0])
    assert plan.event == events.compose([plan.value_mechanism.event(), stage.mechanism.event()])
    assert 0.999 < plan.epsilon_of_event <= 1.0


def test_a_filter_gets_what_the_value_leaves_of_one_order():
    plan = plan_of("adaptive")
    (stage,) = plan.stages
    assert isinstance(stage.mechanism, FilteredGaussianSum)
    value = plan.value_mechanism.noise_multiplier
    assert plan.event == replace(stage.mechanism.event(), before=(value,))
    assert plan.event.order / (2 * value**2) == pytest.approx(0.85 * plan.event.rdp)
    assert 0.999 < plan.epsilon_of_event == plan.event.epsilon(plan.delta_of_event) <= 1.0
    # the level of the constant schedule runs to the last step, and that of less noise does not
    place = LEVELS.levels.index(1.0)
    assert STEPS * stage.mechanism.costs[place] <= WHOLE < 1.001 * STEPS * stage.mechanism.costs[place]
    assert STEPS * stage.mechanism.costs[0] > WHOLE
    # with all of the budget, and no value
    alone = program_for(CONFIGS["adaptive"], BOUNDS, make_features("columns", BOUNDS.observation), BUDGET)
    assert 0.999 < epsilon_of(alone.stages[0].mechanism.event(), 1e-5) <= 1.0
    # both kinds of draws are charged for the sampler
    assert plan.delta_sampler == events.sampler_delta(
        1.0, plan.query.dimension + STEPS * (stage.mechanism.dimension + 1)
    )


@pytest.mark.parametrize("name", [pytest.param("scheduled", marks=pytest.mark.slow), "adaptive"])
def test_both_forms_of_the_loop_are_the_same_steps(name):
    units, padded = data()
    plan, noise = plan_of(name), SeededNoise.from_seed(5)
    asked = Asked(noise)
    on_host, theta = engine.run_on_host(plan.program, asked, units)  # type: ignore[arg-type]
    compiled, same = jax.jit(lambda noise: engine.run(plan.program, noise, padded, batch=16))(noise)
    np.testing.assert_allclose(theta, same, rtol=1e-5, atol=1e-7)
    mechanism, stage = plan.stages[0].mechanism, "/value function"
    draws = [call for call in asked.calls if call[:2] == (stage, "gaussian")]
    if name == "scheduled":
        stds = [mechanism.on_grid(z) for z in mechanism.multipliers]
        assert draws == [(stage, "gaussian", step, std) for step, std in enumerate(stds)]
        return
    assert int(on_host[2]) == int(compiled[2]) == len(draws)
    kinds = Counter((call[0].removeprefix(stage), call[1]) for call in asked.calls)
    assert kinds == {("", "coins"): len(draws), ("", "gaussian"): len(draws), ("/norm", "gaussian"): len(draws)}
    levels = [mechanism.on_grid(z) for z in mechanism.levels]
    spent = [mechanism.costs[levels.index(std)] for *_, std in draws]
    assert sum(spent) <= WHOLE
    # both levels, until one did not fit: nothing was drawn for that
    assert {levels.index(std) for *_, std in draws} == {0, 1}
    assert 1 < len(draws) < STEPS
    assert sum(spent) + mechanism.costs[0] > WHOLE


def test_levels_that_are_none_end_the_stage_before_the_first_draw():
    """Whatever a program proposes: an index out of range is no level."""

    class Wrong:
        def __init__(self, inner: Any, level: Any) -> None:
            self.inner, self.wrong = inner, level

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def level(self, stage: int, state: Any, step: Any) -> Any:
            del stage, state, step
            return self.wrong

    units, _ = data()
    for wrong in (-1, 4, 2**40):
        program: Any = Wrong(plan_of("adaptive").program, wrong)
        asked = Asked(SeededNoise.from_seed(5))
        state, _ = engine.run_on_host(program, asked, units)  # type: ignore[arg-type]
        assert asked.calls == []
        assert int(state[2]) == 0


class StopError(Exception):
    """Interrupted."""


def test_what_a_resumed_stage_has_spent_is_read_and_never_computed_again(tmp_path, monkeypatch):
    """As if digits came out otherwise: on the way through the journal other levels are proposed than were drawn."""
    units, _ = data()
    plan, asked, told = plan_of("greedy"), Asked(SeededNoise.from_seed(5)), [0]
    mechanism = plan.stages[0].mechanism
    assert isinstance(mechanism, FilteredGaussianSum)
    monkeypatch.setattr(engine, "_level", lambda *_: told[0])

    def drawn() -> list[tuple[Any, ...]]:
        return [call for call in asked.calls if call[:2] == ("/value function", "gaussian")]

    def go_on(level: int, until: int) -> None:
        def stop(done: int) -> None:
            if done == until:
                raise StopError

        told[0], journal = level, FolderJournal(tmp_path / "journal", RunKey(bytes(range(32))), bytes(32))
        with suppress(StopError):
            engine.run_on_host(plan.program, asked, units, progress=stop, journal=journal)  # type: ignore[arg-type]
        journal.close()

    levels = [mechanism.on_grid(z) for z in mechanism.levels]
    go_on(0, 2)  # two of the least noise, which cost the most
    go_on(3, STEPS + 1)  # then they are taken for two of the most, and the rest of those is drawn
    spent = [mechanism.costs[levels.index(std)] for *_, std in drawn()]
    assert spent[:2] == [mechanism.costs[0]] * 2
    assert [step for _, _, step, _ in drawn()] == list(range(len(spent)))
    assert sum(spent) <= WHOLE
    before = list(asked.calls)
    go_on(0, STEPS + 1)  # a stage that has ended is not opened again
    assert asked.calls == before


@pytest.mark.parametrize("name", ["scheduled", "greedy"])
def test_a_release_is_certified_resumed_and_checked(name, tmp_path, monkeypatch):
    # as if it were one of dprl's own, which alone are certified
    monkeypatch.setattr("dprl.release.pipeline.is_own", lambda *_: True)
    options: dict[str, Any] = {
        "log": LOG, "target_policy": helpers.stepped_policy, "budget": BUDGET, "bounds": BOUNDS,
        "algorithm": CONFIGS[name], "run": tmp_path / "run",
    }  # fmt: skip
    seen: list[int] = []

    def stop(done: int) -> None:
        seen.append(done)
        if done == 1:
            raise StopError

    with pytest.raises(StopError):
        dprl.evaluate(**options, progress=stop)
    kept = (tmp_path / "run" / "journal").read_bytes()
    release = dprl.evaluate(**options, progress=seen.append, resume=True)
    assert (tmp_path / "run" / "journal").read_bytes().startswith(kept)
    assert seen[-1] == STEPS
    assert seen[:2] == [1, 1]
    if name == "greedy":  # the interrupted run's step, the steps of the resumed one, and the end
        costs = plan_of(name).stages[0].mechanism.costs
        assert len(seen) - 2 == WHOLE // costs[0] < STEPS
    release.save(tmp_path / "out")
    found = verification.verify(tmp_path / "out")
    assert found.private
    assert found.epsilon == release.certificate["epsilon_of_event"]
    rows = found.content["mechanisms"]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert len(rows) == (3 if name == "scheduled" else 2)
    assert ("Renyi filter" in found.content["accountant"]) == (name == "greedy")
    # a row that says something else than the event is refused
    for field in (
        ("noise_multiplier", "steps") if name == "scheduled" else ("levels", "norm_multiplier", "budget", "steps")
    ):
        other = {field: rows[-1][field][:-1] if field == "levels" else rows[-1][field] + 1}
        folder = resealed(tmp_path / "out", tmp_path / field, lambda c, row=other: c["mechanisms"][-1].update(row))
        with pytest.raises(DprlError, match="not those of its privacy event"):
            verification.verify(folder)


def test_plans_that_are_mistakes():
    class TwoStages(Changing):
        def queries(self, facts: Any) -> Any:
            (shape,) = super().queries(facts)
            return (replace(shape, name="first", share=0.5, sampling_rate=1.0), replace(shape, share=0.5))

    wrong = {
        "only one of its program": TwoStages(steps=STEPS, greedy=True),
        "Only the last stage": TwoStages(steps=STEPS, profile=PROFILE),
        "a number for every step": Changing(steps=STEPS + 1, profile=PROFILE),
        "has no profile": Changing(steps=STEPS, profile=PROFILE, greedy=True),
    }
    for sentence, config in wrong.items():
        with pytest.raises(RuntimeError, match=sentence):
            make_plan(config, BOUNDS, BUDGET, [helpers.stepped_policy])

    class Dear(Changing):
        def program(self, facts: Any, stages: Any) -> Any:
            (stage,) = stages
            match self.steps:
                case 5:  # more than was calibrated
                    stages = (replace(stage, mechanism=replace(stage.mechanism, budget=1.01 * stage.mechanism.budget)),)
                case 6:  # a stage that nobody pays for
                    stages = (stage, replace(stage, name="second"))
            made = super().program(facts, stages[:1])
            return replace(made, inner=replace(made.inner, stages=stages))

    make_plan(Dear(steps=4, greedy=True), BOUNDS, BUDGET, [helpers.stepped_policy])
    for steps in (5, 6):
        with pytest.raises(RuntimeError, match="not what was calibrated"):
            make_plan(Dear(steps=steps, greedy=True), BOUNDS, BUDGET, [helpers.stepped_policy])
    with pytest.raises(DprlError, match="noise_multiplier"):
        make_plan(Changing(greedy=True, noise_multiplier=3.0), BOUNDS, BUDGET, [helpers.stepped_policy])
