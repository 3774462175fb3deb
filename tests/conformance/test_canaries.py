"""Every algorithm is attacked in every calibration; what is verified must withstand a good attack.

The attacks are the algorithms' own standard ones, those of docs/audits.md.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import jax
import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.audits.attacks.programs import canary_of_plan
from dprl.audits.lower_bound import run_attack
from dprl.data import readers
from dprl.engine.program import ValueFunctionConfig
from dprl.errors import DprlError
from dprl.protocols import Attack

from .cases import ENTRIES, NAMES, suite
from .nearness import check_likelihood_ratio, claiming, nearness

EPSILON, DELTA = 1.0, 1e-5
ATTACKS = [(name, attack) for name, entry in ENTRIES.items() for attack in entry.load().attacks]


# now the first attack on one algorithm of each kind: a few steps, many, stages, values alone, a curve; the others, each
# of which is compiled anew, with the slow tests (that they draw what they declare: test_programs_in_short.py)
_SHORT = ("td", "gpope", "adassp", "importance-sampling", "survival")
ATTACK_CASES = [
    pytest.param(
        (name, attack),
        marks=[] if name in _SHORT and attack is ENTRIES[name].load().attacks[0] else [pytest.mark.slow],
        id=f"{name}, {attack.released}, {attack.epsilon:g}, {attack.options}, {attack.trials}",
    )
    for name, attack in ATTACKS
]
# from counts and, where it applies, Gaussian
CONFIDENCE = 1.0 - 0.01 / (2 * len(ATTACKS))


def canary(name: str, *, epsilon: float = EPSILON, released: str = "all", **options):
    """Of the first standard attack, with these changes; ``steps`` only where there are steps."""
    attack = ENTRIES[name].load().attacks[0]
    known = ENTRIES[name].load_config().options()
    options = {**attack.options, **{option: value for option, value in options.items() if option in known}}
    return ENTRIES[name].load_canary(dataclasses.replace(attack, epsilon=epsilon, released=released, options=options))


@pytest.mark.parametrize("case", ATTACK_CASES)
def test_every_calibration_is_attacked(case):
    """What is verified stays below its claim: one chance in a hundred of a false alarm over all (Bonferroni)."""
    name, attack = case
    pair = ENTRIES[name].load_canary(attack)
    assert (pair.epsilon, pair.delta) == (attack.epsilon, attack.delta)
    result = run_attack(pair, trials=13_000, seed=1, confidence=CONFIDENCE)
    assert result.description
    assert math.isfinite(result.epsilon_lower)
    assert not result.violated
    assert result.preconditions == ()
    if pair.gaussian:
        # and the attack is as strong as can be: the whole budget is seen
        assert result.gaussian is not None
        assert result.gaussian.epsilon_lower > 0.6 * attack.epsilon
    else:
        # from counts alone, 13,000 trials an arm prove some of the claim (100,000 prove 37-47% of it)
        assert result.epsilon_lower > 0.02 * attack.epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param(name, setting, id=f"{name}, {setting}")
        for name in ENTRIES
        for setting in suite(name).algorithm.settings
        # those with a program; a plan would tell, too, but calibrates: too long for what is collected
        if isinstance(suite(name).config(setting), ValueFunctionConfig)
    ],
)
def test_every_setting_of_a_program_is_attacked(name, setting):
    """Whatever the public facts choose: the attack on any plan at its calibration."""
    plan = suite(name).plan(setting)
    pair = canary_of_plan(plan)
    assert (pair.epsilon, pair.delta) == (plan.budget.epsilon, plan.budget.delta)
    assert nearness(pair, 16) > 0.999
    result = run_attack(pair, trials=13_000, seed=1, confidence=1.0 - 1e-4)
    assert not result.violated
    assert pair.gaussian == all(stage.mechanism.sampling_rate == 1.0 for stage in plan.stages)
    if pair.gaussian:
        assert result.gaussian is not None
        assert result.gaussian.epsilon_lower > 0.7 * plan.budget.epsilon


@pytest.mark.parametrize("name", NAMES)
def test_half_the_noise_is_caught(name):
    """The same audit with a plan that spends four times as much, held against the smaller claim."""

    attack = claiming(canary(name, steps=50, epsilon=4.0), Budget(EPSILON, DELTA))
    result = run_attack(dataclasses.replace(attack, gaussian=True), trials=13_000, seed=2, confidence=CONFIDENCE)
    assert result.epsilon_lower > EPSILON
    assert result.violated


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["transition", "trajectory", "person"])
def test_a_unit_is_what_is_read_from_columns(unit):
    """The pair differs in one unit of the log, and nobody else's vectors move."""
    options = {"unit": unit, "steps": 2, "sampling_rate": 1.0, "start": "zero", "max_rows_per_unit": None}
    pair = ENTRIES["dptd"].load_canary(Attack(options={**options, "clip_norm": 0.2}))
    (_, fewer), (vectors, rows) = pair.pair
    assert rows.units == fewer.units + 1 == len(vectors) == 4
    program = pair.plan.program
    vectors_of = jax.jit(partial(program.contribution, 0))
    made, alone = (np.asarray(vectors_of(program.init(), log.block(slice(None)))) for log in (rows, fewer))
    assert sum(np.array_equal(np.delete(made, place, axis=0), alone) for place in range(4)) == 1
    assert (np.linalg.norm(made, axis=1) > pair.plan.stages[0].mechanism.clip_norm).all()
    # a person with three trajectories of four rows has the vector of one row like them
    np.testing.assert_allclose(np.asarray(rows.weight).sum(axis=1), 1.0, rtol=1e-6)
    assert rows.weight.shape[1] == {"transition": 1, "trajectory": 4, "person": 12}[unit]
    assert f"by the unit {unit}" in pair.description


@pytest.mark.slow
def test_a_person_in_three_units_is_caught(monkeypatch):
    """The attack through columns sees a reader that takes each trajectory for a unit."""
    attack = Attack(options={"unit": "person", "steps": 5})
    sound = run_attack(ENTRIES["td"].load_canary(attack), trials=13_000, seed=1)
    assert not sound.violated
    assemble = readers.assemble
    monkeypatch.setattr(
        readers, "assemble", lambda columns, *more: assemble({**columns, "person": columns["episode"]}, *more)
    )
    split = run_attack(ENTRIES["td"].load_canary(attack), trials=13_000, seed=1)
    assert split.violated
    assert split.epsilon_lower > 1.5 > 0.6 > sound.epsilon_lower


MEANINGLESS = [
    ("td", Attack(options={"unit": "transition"}), "no statement for the privacy unit transition"),
    ("td", Attack(options={"unit": "family"}), "unit must be one of"),
    ("td", Attack(options={"unit": "person"}, released="last"), "leave out unit"),
    ("importance-sampling", Attack(options={"unit": "person"}), "value function"),
    ("importance-sampling", Attack(options={"steps": 3}), "steps"),
    ("importance-sampling", Attack(options={"sampling_rate": 0.1}), "sampling_rate"),
    ("gpope", Attack(options={"stepps": 3}), "stepps"),
]


@pytest.mark.parametrize(("name", "attack", "words"), MEANINGLESS)
def test_attacks_that_mean_nothing_are_refused(name, attack, words):
    with pytest.raises(DprlError, match=words):
        ENTRIES[name].load_canary(attack)


def test_progress_is_told():
    told = []
    run_attack(canary("importance-sampling"), trials=20_000, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 50_000


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_reproducible_and_independent(name):
    attack = canary(name, steps=5)
    a, b, c = attack.scores(1, 50, True), attack.scores(1, 50, True), attack.scores(2, 50, True)
    np.testing.assert_array_equal(a, b)
    assert len(np.unique(np.concatenate([a, c]))) == 100
    # the two datasets share no noise, and more trials begin with the fewer
    absent = attack.scores(1, 50, False)
    assert abs(float(np.corrcoef(a, absent)[0, 1])) < 0.6
    np.testing.assert_allclose(attack.scores(1, 20, True), a[:20], rtol=1e-9)
    assert np.isfinite(a).all()


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_the_likelihood_ratio(name):
    """Of a Gaussian the log-likelihood ratio has mean plus and minus mu^2 / 2, and variance mu^2."""
    attack = canary(name, steps=5, epsilon=2.0)
    present, absent = attack.scores(3, 4_000, True), attack.scores(3, 4_000, False)
    mu2 = float(np.var(np.concatenate([present - present.mean(), absent - absent.mean()])))
    spread = (mu2 / 4_000) ** 0.5
    assert abs(present.mean() - mu2 / 2) < 4 * spread + 0.05 * mu2
    assert abs(absent.mean() + mu2 / 2) < 4 * spread + 0.05 * mu2


@pytest.mark.parametrize("setting", ["full batches", "Poisson batches"])
def test_the_score_of_a_program_is_the_likelihood_ratio(setting):
    """Its exponential has mean one without the canary, and so has the inverse with it: of random batches too."""
    check_likelihood_ratio(canary_of_plan(suite("toy").plan(setting)), 0.02)


@pytest.mark.parametrize("steps", [1, 200, 5_000, 20_000])
def test_memory_is_bounded(steps):
    """Runs side by side keep all their noisy sums: fewer of them where there are more steps."""
    assert canary("gpope", steps=steps)._at_once * steps <= max(1 << 22, 64 * steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "fraction"), [({}, 0.65), ({"sampling_rate": 0.1, "value_budget_fraction": 0.05}, 0.45)]
)
def test_gpope_verified_is_tight_at_length(options, fraction):
    result = run_attack(canary("gpope", **options), trials=600_000, seed=7)
    assert fraction * EPSILON <= result.epsilon_lower <= EPSILON
    assert not result.violated
