"""A protector in place of an algorithm's steps: its hand schedule against the algorithms' own, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import dprl
from dprl.accounting.budget import Budget
from dprl.data.readers import read_log
from dprl.engine.layouts import padded_units
from dprl.engine.loop import run
from dprl.engine.rows import rows_of
from dprl.errors import DprlError
from dprl.evaluation.dptd import DPTD
from dprl.evaluation.gpope import GPOPE
from dprl.evaluation.plan import make_plan, program_for
from dprl.evaluation.primal_dual import PrimalDualConfig
from dprl.evaluation.protected import FROM_PROTECTOR, Protected
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.protectors.projector import Architecture, HandSchedule
from dprl.protectors.protector import Protector
from dprl.value_functions.features import make_features
from tests.protectors.small import new_protector

from . import helpers

BUDGET = Budget(1.0, 1e-5)
BOUNDS = replace(helpers.stepped_bounds(40), max_importance_ratio=1.0, max_cumulative_ratio=1.0)
FEATURES = make_features("tabular", BOUNDS.observation)
HAND = HandSchedule(steps=6, sampling_rate=0.5, clip_norm=0.2, step_sizes=(0.4, 0.4), tail=0.5)
PUBLIC = {"public": True, "tasks": "bowl"}


def saved(folder, hand: HandSchedule = HAND, **changes) -> str:
    options = {"hidden": 2, "layers": 1} | changes.pop("architecture", {})
    facts = {"algorithm": "gpope", "provenance": PUBLIC} | changes
    weights = facts.pop("weights", {})
    protector = new_protector(Architecture(**options), hand, **facts)
    return str(replace(protector, weights=dict(protector.weights) | weights).save(folder))


def weights_of(program, columns=()) -> np.ndarray:
    log = read_log(helpers.stepped_log(40, 0), bounds=BOUNDS).load()
    rows = rows_of(log, np.ones(len(log.reward)), FEATURES, 0.9, BOUNDS.value_interval(0.9), columns=columns)
    both = jax.jit(lambda data: run(program, SeededNoise.from_seed(0), data)[1])
    return np.asarray(both(padded_units(rows)))


def test_its_hand_schedule_is_the_algorithm_with_the_same_numbers(tmp_path):
    common = {"discount": 0.9, "steps": 6, "sampling_rate": 0.5, "clip_norm": 0.2}
    plain = program_for(GPOPE(step_size=0.4, **common), BOUNDS, FEATURES, BUDGET)
    own = program_for(GPOPE(discount=0.9, optimizer=saved(tmp_path / "g")), BOUNDS, FEATURES, BUDGET)
    assert isinstance(own, Protected)
    assert own.stages == plain.stages
    np.testing.assert_allclose(weights_of(own), weights_of(plain), atol=1e-6)
    assert own.config.hyper_parameters()["steps"] == {"value": 6, "provenance": FROM_PROTECTOR}


@pytest.mark.slow
def test_of_dptd_its_hand_schedule_is_plain_primal_dual_descent_behind_the_released_start(tmp_path):
    common = {"discount": 0.9, "steps": 6, "sampling_rate": 0.5, "clip_norm": 0.2}
    folder = saved(tmp_path / "d", replace(HAND, step_sizes=(0.4, 0.3)), algorithm="dptd")
    plain = program_for(PrimalDualConfig(primal_step=0.4, dual_step=0.3, **common), BOUNDS, FEATURES, BUDGET)
    own = program_for(DPTD(discount=0.9, optimizer=folder), BOUNDS, FEATURES, BUDGET)
    assert len(own.stages) == 2
    assert own.stages == plain.stages
    np.testing.assert_allclose(weights_of(own, own.columns), weights_of(plain, plain.columns), atol=1e-6)


def planned(folder: str, config=GPOPE, **options):
    return make_plan(
        config(discount=0.9, optimizer=folder, **options), BOUNDS, BUDGET, [helpers.stepped_policy], "tabular"
    )


def test_the_noise_is_the_protectors_and_stays_within_the_budget(tmp_path):
    steps = np.repeat([0.4, -0.4], 4)
    profile = {"architecture": {"scheduler": "public"}, "weights": {"profile": steps}}
    public = planned(saved(tmp_path / "p", replace(HAND, steps=20), **profile))
    mechanism = public.stages[-1].mechanism
    assert len(mechanism.noise_levels) == 2
    expected = np.exp(steps)[np.arange(20) * 8 // 20]
    np.testing.assert_allclose(
        np.divide(mechanism.multipliers, mechanism.multipliers[0]), expected / expected[0], rtol=1e-6
    )
    adaptive = planned(saved(tmp_path / "a", architecture={"scheduler": "adaptive"}))
    assert isinstance(adaptive.stages[-1].mechanism, FilteredGaussianSum)
    for plan in (public, adaptive):
        assert 0.98 < plan.epsilon_of_event <= 1.0
        assert plan.program.described["in_force"] == "learned protector"


def test_the_scheduler_sees_what_was_released_in_units_of_the_clip(tmp_path):
    """Norm and cost of a step reach the next proposal, and no other step's."""
    weights = {"scheduler.out.b": np.array([-0.7])}
    program = planned(saved(tmp_path / "a", architecture={"scheduler": "adaptive"}, weights=weights)).program
    mechanism = program.stages[0].mechanism
    state = jax.jit(program.init)()
    levels = np.array(mechanism.levels)
    assert float(state.protector.norm) == 0.0
    least, y = program.protector.architecture.least, 1.0 / (1.0 + np.exp(0.7))
    asked = mechanism.noise_multiplier * (least + 2.0 * (1.0 - least) * y)
    assert int(program.level(0, state, 0)) == np.argmin(np.abs(np.log(levels / asked)))
    noisy = np.append(np.full(6, 0.3), 5.0)
    moved = jax.jit(lambda state: program.update(0, state, noisy, 0))(state)
    unit = 0.5 * 40 * mechanism.clip_norm
    assert float(moved.protector.norm) == pytest.approx(5.0 / unit)
    assert float(moved.protector.spent) == pytest.approx(mechanism.costs[int(state.level)] / 2**40, rel=1e-5)
    # theta stays in the unit ball
    theta = -0.4 * 0.3 / 20.0 * np.ones(3)
    np.testing.assert_allclose(moved.parameters[:3], np.clip(theta, -program.base.facts.box, None), rtol=1e-5)


def test_outside_of_what_it_was_trained_for_it_is_its_hand_schedule(tmp_path):
    profile = {"profile": np.linspace(0.4, -0.4, 8), "projector.out.b": np.ones(2)}
    folder = saved(
        tmp_path / "p", architecture={"scheduler": "public"}, weights=profile, ranges={"horizon": (50.0, 90.0)}
    )
    plan = planned(folder)
    assert plan.stages[-1].mechanism.multipliers is None
    said = plan.program.described
    assert said["in_force"].startswith("its hand schedule: it was trained for horizon between 50 and 90, and it is ")
    assert said["fingerprint"] == plan.program.protector.fingerprint
    assert not plan.program.protector.learned


def test_what_does_not_go_together_is_refused(tmp_path):
    folder = saved(tmp_path / "p")
    for options in ({"steps": 7}, {"clip_norm": 0.2}, {"schedule": "diminishing"}, {"noise_multiplier": 3.0}):
        (name,) = options
        with pytest.raises(DprlError, match=f"gpope: {name} is the optimizer's to decide"):
            GPOPE(optimizer=folder, **options)
    with pytest.raises(DprlError, match="learned for gpope, and the algorithm is dptd"):
        planned(folder, DPTD)
    with pytest.raises(DprlError, match="train it on public tasks"):
        planned(saved(tmp_path / "unknown", provenance={}))
    with pytest.raises(DprlError, match="Cannot read a protector"):
        planned(str(tmp_path / "absent"))
    adaptive = saved(tmp_path / "a", algorithm="dptd", architecture={"scheduler": "adaptive"})
    with pytest.raises(DprlError, match="add start = 'mid-range'"):
        planned(adaptive, DPTD)
    assert planned(adaptive, DPTD, start="mid-range").program.stages[0].mechanism.released == 7


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["uniform", "public", "adaptive"])
def test_a_release_names_the_protector_and_is_the_same_in_both_forms(tmp_path, scheduler):
    rng = np.random.default_rng(0)
    architecture = Architecture(hidden=2, layers=1, scheduler=scheduler)
    protector = new_protector(architecture, HAND, algorithm="gpope", provenance=PUBLIC)
    weights = {n: 0.5 * rng.normal(size=w.shape) for n, w in protector.weights.items()}
    folder = str(replace(protector, weights=weights).save(tmp_path / "p"))
    log = read_log(helpers.stepped_log(40, 0), bounds=BOUNDS)
    config = GPOPE(discount=0.9, optimizer=folder)
    release = dprl.evaluate(log, "uniform", BUDGET, algorithm=config, features="tabular", seed=0)
    said = release.certificate["assumed_public"]["protector"]
    assert said["provenance"] == PUBLIC
    assert release.certificate["assumed_public"]["hyper_parameters"]["optimizer"]["value"] == said["fingerprint"]
    page = release.save(tmp_path / "out")["report.html"].read_text()
    assert said["fingerprint"] in page
    assert ("Renyi filter" in page) == (scheduler == "adaptive")

    plan = make_plan(config, log.bounds, BUDGET, [helpers.stepped_policy], "tabular")
    assert plan.program is not None
    assert release.value_function is not None
    np.testing.assert_allclose(release.value_function.theta, weights_of(plan.program), atol=1e-5)


def test_a_folder_is_read_once(tmp_path, monkeypatch):
    """All of a plan is made of one reading: of another protector that is put there meanwhile nothing gets in."""
    folder = new_protector(Architecture(layers=0), HAND, algorithm="gpope", provenance=PUBLIC).save(tmp_path / "p")
    other = new_protector(Architecture(layers=0), replace(HAND, clip_norm=0.3), algorithm="gpope", provenance=PUBLIC)
    load, read = Protector.load, []

    def loaded(path):
        read.append(load(path))
        other.save(folder)
        return read[-1]

    monkeypatch.setattr(Protector, "load", loaded)
    log = read_log(helpers.stepped_log(40, 0), bounds=BOUNDS)
    plan = make_plan(
        GPOPE(discount=0.9, optimizer=str(folder)), log.bounds, BUDGET, [helpers.stepped_policy], "tabular"
    )
    (first,) = read
    assert plan.program is not None
    assert plan.program.protector == first
    assert plan.config.clip_norm == first.clip_norm  # type: ignore[union-attr]
