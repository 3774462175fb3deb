"""Releases by the unit transition: what is released, what it is called, and what a row may reach."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dprl
from dprl.accounting.certificate import NOT_A_TRAJECTORY
from dprl.accounting.ledger import Ledger
from dprl.accounting.verification import verify
from dprl.engine.layouts import gather, unit_rows
from dprl.engine.rows import rows_of
from dprl.evaluation.dptd import DPTD
from dprl.evaluation.plan import make_plan, program_for
from dprl.mechanisms.arithmetic import clip_to_grid
from dprl.value_functions.features import make_features

BOUNDS = dprl.Bounds(
    units=300, horizon=20, reward=(-1.0, 2.0), observation=((0.0, 10.0), (-5.0, 5.0)), actions=2,
    max_importance_ratio=1.5, max_cumulative_ratio=9.0, return_range=(-2.0, 3.0),
)  # fmt: skip
BUDGET = dprl.Budget(1.0, 1e-5)
SAMPLING = dprl.ImportanceSampling(discount=0.9)
ALGORITHMS = pytest.mark.parametrize(
    "algorithm",
    [SAMPLING, pytest.param(DPTD(discount=0.9, steps=3), marks=pytest.mark.slow)],
    ids=lambda a: a.algorithm,
)


def mostly(states):
    p = np.where(states[:, 0] < 5.0, 0.7, 0.2)
    return np.stack([p, 1.0 - p], axis=1)


def log_of(rows: int = 300, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of which none follows another, of two kinds: some end, of some the next state is not known."""
    rng = np.random.default_rng(seed)
    box = np.array(BOUNDS.observation)
    following = rng.uniform(box[:, 0], box[:, 1], (rows, 2))
    following[rng.random(rows) < 0.1] = np.nan
    return {
        "observation": rng.uniform(box[:, 0], box[:, 1], (rows, 2)),
        "next_observation": following,
        "action": rng.integers(0, 2, rows),
        "reward": rng.uniform(-1.0, 2.0, rows),
        "behavior_prob": np.full(rows, 0.5),
        "terminated": rng.random(rows) < 0.1,
    }


LOG = log_of()


def evaluate(log=LOG, policy=mostly, **changes):
    options = {"budget": BUDGET, "bounds": BOUNDS, "unit": "transition", "algorithm": SAMPLING} | changes
    return dprl.evaluate(log, policy, **options)


@ALGORITHMS
def test_a_release_says_what_it_protects_and_can_be_verified(tmp_path, algorithm):
    path = tmp_path / "ledger.db"
    ledger = Ledger.create(path, "trial", BUDGET, "transition", "add or remove one")
    release = evaluate(algorithm=algorithm, ledger=path, dataset="trial")
    assert release.certificate["privacy_unit"] == "transition"
    assert NOT_A_TRAJECTORY in release.certificate["not_protected"]
    release.save(tmp_path / "results")
    found = verify(tmp_path / "results")
    assert found.private
    assert ledger.remaining("trial").epsilon == 0
    page = (tmp_path / "results" / "report.html").read_text()
    assert "a state, the decision taken there, its reward and the state that followed" in page
    if release.value_function is not None:
        assert np.isfinite(release.value_function(LOG["observation"])).all()
    other = Ledger.create(tmp_path / "people.db", "trial", BUDGET, "person", "add or remove one")
    with pytest.raises(dprl.DprlError, match="privacy unit 'person'"):
        evaluate(ledger=other, dataset="trial")
    assert other.history() == []


@ALGORITHMS
def test_the_value_is_the_mean_reward_of_a_transition(algorithm):
    """Whatever the bounds say of trajectories: their horizon, their value range, the product of their ratios."""
    ratios = np.minimum(mostly(LOG["observation"])[np.arange(300), LOG["action"]] / 0.5, 1.5)
    # the middle of the rewards' range is known: ratios weigh the distance from it
    expected = 0.5 + float(np.mean(ratios * (LOG["reward"] - 0.5)))
    (estimate,) = evaluate(budget=dprl.Budget(200.0, 1e-5), seed=1, algorithm=algorithm).values.values()
    assert abs(estimate.value - expected) < 5.0 * estimate.privacy_standard_error < 0.05
    assert estimate.interval[0] < expected < estimate.interval[1]
    alike = replace(BOUNDS, horizon=500, return_range=None, max_cumulative_ratio=None)
    plans = [make_plan(SAMPLING, b, BUDGET, [mostly], unit="transition") for b in (BOUNDS, alike)]
    assert plans[0].expectation() == plans[1].expectation()
    assert evaluate(seed=1).estimate["cautions"] == []


@pytest.mark.parametrize("algorithm", [None, dprl.GPOPE(), "td", "constant"])
def test_algorithms_that_need_trajectories_say_so(algorithm):
    from dprl.registry import find

    chosen = find(algorithm).load_config()() if isinstance(algorithm, str) else algorithm
    with pytest.raises(dprl.DprlError, match="no statement for the privacy unit transition"):
        evaluate(algorithm=chosen)


@pytest.mark.slow
@pytest.mark.parametrize("features", ["columns", "mlp:4"])
def test_a_row_that_is_missing_changes_no_other_vector(features):
    """To the last bit, in blocks of the size of a release, at every stage; and nor does the order of the rows."""
    shuffled = np.random.default_rng(1).permutation(300)
    some = np.sort(np.random.default_rng(2).permutation(300)[:290])
    feature_map = make_features(features, BOUNDS.observation)
    program = program_for(DPTD(discount=0.9, steps=3), BOUNDS, feature_map, BUDGET, "transition")
    value = BOUNDS.value_interval(0.9)

    def units(rows):
        log = dprl.read_log({name: x[rows] for name, x in LOG.items()}, bounds=BOUNDS, unit="transition").load()
        ratios = np.where(log.action == 1, 0.5, 1.5)
        found = unit_rows(rows_of(log, ratios, feature_map, 0.9, value, columns=program.columns), BOUNDS.units)
        return found, log.observation

    state = program.init()
    for number, stage in enumerate(program.stages):
        clip = stage.mechanism.clip_norm
        clipped = jax.jit(lambda block, n=number, s=state, c=clip: clip_to_grid(program.contribution(n, s, block), c))

        def points(rows, clipped=clipped):
            found, states = units(rows)
            parts = [
                (np.asarray(clipped(gather(found.columns, i))), live)
                for i, live in found.chunks(np.ones(len(rows), bool))
            ]
            vectors = np.concatenate([part[live] for part, live in parts])
            return {state.tobytes(): vector.tobytes() for state, vector in zip(states, vectors, strict=True)}

        everybody, rest = points(np.arange(300)), points(some)
        assert points(shuffled) == everybody
        assert len(rest) == 290
        assert rest.items() <= everybody.items()
        assert len(set(everybody.values())) > 200
        if number == 0:
            state = program.finish(0, program.update(0, state, jnp.full(stage.mechanism.dimension, 30.0), 0))
            w = np.random.default_rng(3).normal(size=state.w.shape).astype(np.float32)
            state = state._replace(w=w, theta=state.theta + w[::-1])
