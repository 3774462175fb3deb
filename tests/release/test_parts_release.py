"""A release of a log in parts: the bytes of the release of the file, in bounded memory, for one charge."""

from __future__ import annotations

import gc
import os
import sys
import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import dprl
from dprl.accounting.ledger import Ledger
from dprl.cli import main
from dprl.data.partition import partition
from dprl.data.parts import Parts
from dprl.data.readers import Log, read_log
from dprl.engine import shards
from dprl.engine.shards import Shard, Task, combine_shards
from dprl.engine.value_query import as_numbers, exact_sum
from dprl.evaluation.best_linear_projection import BestLinearProjection
from dprl.evaluation.plan import make_plan
from dprl.mechanisms.arithmetic import clip_to_grid
from dprl.policies.loading import load_policy

from ..sample_log import BOUNDS, BOUNDS_TOML, columns, in_lists, write_parquet
from .in_parts import ALGORITHMS, BUDGET, FAST, PartsTrial, contents, log_and_parts, release
from .resumable import fix_key

NAMES = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in ALGORITHMS]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return log_and_parts(tmp_path_factory.mktemp("logs"))


@pytest.fixture
def in_blocks(monkeypatch):
    """Nothing of the log is kept, and a block has but a few units."""
    monkeypatch.setattr(shards, "KEPT_BYTES", 0)
    monkeypatch.setattr(shards, "BLOCK_ROWS", 20)


def task(log, name="gpope", **options):
    opened = read_log(log, bounds=BOUNDS, person="person_id")
    policies = [load_policy("uniform", 2)]
    return Task(
        make_plan(ALGORITHMS[name], BOUNDS, BUDGET, policies, unit="person"), opened, tuple(policies), **options
    )


# --- the same bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_are_released_as_the_file_is(logs, name, request):
    file, parts = logs
    expected = release(file, ALGORITHMS[name])
    assert {"estimate.json", "mechanisms", "artifacts"} <= set(expected)
    assert release(parts, ALGORITHMS[name], engine="local") == expected
    request.getfixturevalue("in_blocks")
    assert release(parts, ALGORITHMS[name]) == expected
    assert release(parts, ALGORITHMS[name], seed=2) != expected


def _one_decision():
    log = columns()
    first = [i for i, t in enumerate(log["t"]) if t == 0]
    return {name: [values[i] for i in first] for name, values in log.items() if name not in ("t", "episode_id")}


def _lost():
    """Whose trajectory is cut off is lost there."""
    log = columns()
    return {**log, "censored": log["truncated"], "uncensored_prob": [0.8] * len(log["t"])}


FILL = {"fill": (5.0, None), "flag_missing": (0,)}


def _with_gaps():
    log = columns()
    return {**log, "observation_0": [None if i % 5 == 2 else x for i, x in enumerate(log["observation_0"])]}


def by_gap(states):
    """One action where the first component is missing, and the other elsewhere."""
    return np.eye(2)[states[:, 2].astype(int)]


@pytest.mark.parametrize(
    ("log", "by", "options"),
    [
        (columns(), "episode_id", {"person": None, "unit": "trajectory", "bounds": replace(BOUNDS, units=40)}),
        (_one_decision(), "person_id", {"bounds": replace(BOUNDS, horizon=1)}),
        (in_lists(columns()), "person_id", {"behavior_policy": "uniform"}),
        (columns(), "person_id", {"target_policy": {"one": "uniform", "other": "column:target_prob"}}),
        (_with_gaps(), "person_id", {"target_policy": by_gap, "bounds": replace(BOUNDS, **FILL)}),
        (_lost(), "person_id", {"bounds": replace(BOUNDS, max_importance_ratio=2.5)}),
        (_one_decision(), "person_id", {"bounds": replace(BOUNDS, horizon=1), "algorithm": BestLinearProjection()}),
    ],
    ids=[
        "trajectories", "one decision", "lists and a behaviour policy", "several policies", "missing states",
        "people who are lost", "projections on covariates",
    ],
)  # fmt: skip
def test_logs_of_every_kind(tmp_path, in_blocks, log, by, options):
    file, parts = log_and_parts(tmp_path, 3, log, by)
    asked = {"algorithm": ALGORITHMS["importance-sampling"], **options}
    assert release(parts, **asked) == release(file, **asked)


@pytest.mark.slow
def test_values_around_a_value_function_are_those_of_the_file(tmp_path, in_blocks):
    """Of several policies, with references: a second pass over the parts, when the value function is there."""
    file, parts = log_and_parts(tmp_path)
    policies = {"one": "uniform", "other": "column:target_prob"}
    made = [
        dprl.evaluate(
            str(log), policies, BUDGET, bounds=BOUNDS, person="person_id", algorithm=ALGORITHMS["doubly-robust"],
            seed=1, simulated=True,
        )
        for log in (file, parts)
    ]  # fmt: skip
    assert made[0].estimate == made[1].estimate
    targets = made[0].estimate["targets"]
    assert len({t["reference"] for t in targets}) == 2


def test_a_simulation_shows_the_same_reference(logs, in_blocks):
    file, parts = logs
    options = {"algorithm": ALGORITHMS["importance-sampling"], "simulated": True, "seed": None}
    made = [
        dprl.evaluate(str(log), "uniform", BUDGET, bounds=BOUNDS, person="person_id", **options)
        for log in (file, parts)
    ]
    references = [m.estimate["targets"][0]["reference"] for m in made]
    assert references[0] == references[1]
    assert made[0].value != made[1].value  # that noise is fresh
    known = task(parts)
    vectors = known.plan.query.unit_vectors(read_log(file, bounds=BOUNDS).load(), [known.policies[0]])
    plain = known.plan.query.decode(known.plan.value_mechanism, vectors.sum(axis=0))[0].value
    assert references[0] == pytest.approx(plain, rel=1e-11)


@pytest.mark.slow
def test_private_noise_of_one_key(logs, tmp_path, monkeypatch, in_blocks):
    fix_key(monkeypatch)
    file, parts = logs
    made = []
    for name, log in (("file", file), ("parts", parts)):
        trial = PartsTrial(tmp_path / name, log)
        made.append(trial.finish())
        assert made[-1]["schema"].startswith("dprl.certificate")
        (charge,) = trial.ledger.history()
        assert charge.digest is not None
        assert not trial.run.exists()
    assert made[0] == made[1]


def test_nobody_is_in_the_log(tmp_path, in_blocks):
    """One whose rows all lack an identifier."""
    empty = columns()
    empty["person_id"] = [None] * len(empty["t"])
    file = write_parquet(empty, tmp_path / "log.parquet")
    (tmp_path / "in_parts").mkdir()
    partition(file, "person_id", 2, tmp_path / "in_parts" / "log.parquet")
    expected = release(file, ALGORITHMS["gpope"])
    assert release(tmp_path / "in_parts" / "log.parquet", ALGORITHMS["gpope"]) == expected


# --- shards and blocks --------------------------------------------------------------------------------------------


def test_sums_do_not_depend_on_how_the_units_are_cut(logs):
    whole = task(logs[1], exact=True)
    units = whole.parts.units
    included = np.random.default_rng(0).random(units) < 0.6
    program, (stage,) = whole.plan.program, whole.plan.stages
    state = program.init()
    expected = Shard(whole)
    begun, total = expected.begin(), expected.total(program, 0, stage.mechanism, state, included)
    assert total.any()
    small = replace(whole, kept_bytes=0, block_rows=7)
    for cuts in ([0, units], [0, 5, units], [0, 0, 1, 4, 9, units, units]):
        shards = [Shard(small, a, b) for a, b in pairwise(cuts)]
        found = combine_shards([shard.begin() for shard in shards])
        np.testing.assert_array_equal(found.total, begun.total)
        assert found[1:] == begun[1:]
        parts = [included[a:b] for a, b in pairwise(cuts)]
        sums = [s.total(program, 0, stage.mechanism, state, i) for s, i in zip(shards, parts, strict=True)]
        np.testing.assert_array_equal(np.sum(sums, axis=0), total)


def test_the_first_pass_is_the_value_query(logs):
    known = task(logs[1], exact=True)
    vectors = known.plan.query.unit_vectors(known.log.load(), list(known.policies))
    begun = Shard(known).begin()
    np.testing.assert_array_equal(
        begun.total, np.asarray(clip_to_grid(vectors, known.plan.query.clip_norm)).sum(axis=0)
    )
    np.testing.assert_allclose(as_numbers(begun.exact), vectors.sum(axis=0), rtol=1e-12)


def test_exact_sums_are_those_of_any_cut():
    vectors = np.random.default_rng(1).normal(size=(10_000, 3))
    parts = [exact_sum(vectors[a:b]) for a, b in ((0, 1), (1, 5000), (5000, 10_000))]
    assert exact_sum(vectors) == tuple(map(sum, zip(*parts, strict=True)))
    np.testing.assert_allclose(as_numbers(exact_sum(vectors)), vectors.sum(axis=0), rtol=1e-11)


def test_a_step_reads_the_units_it_drew(logs, monkeypatch):
    """And no other one, a block at a time."""
    small = task(logs[1], kept_bytes=0, block_rows=9)
    lengths, read = small.parts.rows_of(np.arange(small.parts.units)), []
    table = Parts.table

    def watched(parts, units, names):
        read.append(units)
        return table(parts, units, names)

    monkeypatch.setattr(Parts, "table", watched)
    included = np.arange(small.parts.units) % 3 == 1
    (stage,) = small.plan.stages
    Shard(small).total(small.plan.program, 0, stage.mechanism, small.plan.program.init(), included)
    np.testing.assert_array_equal(np.concatenate(read), np.flatnonzero(included))
    assert len(read) > 1
    assert all(lengths[units].sum() < 9 + lengths.max() for units in read)


def test_the_digest_is_of_what_policies_make_of_the_rows(logs):
    known = task(logs[1])
    digests = [Shard(replace(known, policies=(policy,))).begin().digest for policy in (_even, _nearly_even, _even)]
    assert digests[0] == digests[2] != digests[1]


def test_policies_in_another_order_are_others(logs):
    """Where values are taken around what is released, the first pass has no sum of theirs."""
    known = task(logs[1], "doubly-robust")
    orders = ((_even, _nearly_even), (_nearly_even, _even))
    one, other = (Shard(replace(known, policies=policies)).begin().digest for policies in orders)
    assert one != other


def _even(states):
    return np.full((len(states), 2), 0.5)


def _nearly_even(states):
    first = np.where(states[:, 0] < 5.0, 0.5, 0.5 + 1e-9)
    return np.stack([first, 1.0 - first], axis=1)


def test_what_goes_wrong_in_the_background_is_raised_and_leaves_nothing(logs, monkeypatch):
    def broken(*_):
        raise dprl.DprlError("the disk is gone")

    monkeypatch.setattr(Log, "take", broken)
    before = set(threading.enumerate())
    with pytest.raises(dprl.DprlError, match="the disk is gone"):
        Shard(task(logs[1])).begin()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)
        assert not thread.is_alive()


# --- resumed, charged ---------------------------------------------------------------------------------------------


def test_interrupted_and_resumed(logs, tmp_path, monkeypatch, in_blocks):
    fix_key(monkeypatch)
    whole, stopped = (PartsTrial(tmp_path / name, logs[1]) for name in ("whole", "stopped"))
    expected = whole.finish()
    for updates in (1, 3):
        stopped.stop_after(updates)
    assert stopped.finish() == expected
    assert len(stopped.ledger.history()) == 1


@pytest.mark.parametrize("changed", ["rows", "policy"])
def test_other_data_are_not_resumed(tmp_path, changed):
    _, parts = log_and_parts(tmp_path)
    trial = PartsTrial(tmp_path / "trial", parts)
    policy = tmp_path / "policy.py"
    policy.write_text("import numpy as np\n\ndef even(states):\n    return np.full((len(states), 2), 0.5)\n")
    asked = {"target_policy": f"{policy}:even"}
    trial.stop_after(1, **asked)
    if changed == "rows":
        other = columns()
        other["reward"][3] += 1e-9
        os.rename(parts, tmp_path / "before")
        partition(write_parquet(other, tmp_path / "other.parquet"), "person_id", 3, parts)
    else:
        policy.write_text(policy.read_text().replace("0.5)", "0.5) + 1e-9 * np.array([1.0, -1.0])"))
    with pytest.raises(dprl.DprlError, match="other data"):
        trial.evaluate(**asked)
    assert len(trial.ledger.history()) == 1


def test_one_claim_for_the_file_and_its_parts(logs, tmp_path):
    file, parts = logs
    trial = PartsTrial(tmp_path / "trial", parts)
    trial.ledger = Ledger.create(trial.ledger.path, "another", dprl.Budget(9.0, 9e-5), "person", "add or remove one")
    asked = {"algorithm": ALGORITHMS["importance-sampling"], "run": None, "resume": False}
    trial.evaluate(**asked)
    trial.evaluate(log=str(file), **asked)
    assert len(trial.ledger.history()) == 2
    with pytest.raises(dprl.DprlError, match="under another name"):
        trial.evaluate(dataset="another", **asked)


def test_parts_that_were_changed_are_refused_after_the_charge(tmp_path):
    _, parts = log_and_parts(tmp_path)
    file = sorted(parts.glob("*.arrow"))[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    trial = PartsTrial(tmp_path / "trial", parts)
    with pytest.raises(dprl.DprlError, match="damaged"):
        trial.evaluate()
    assert len(trial.ledger.history()) == 1


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "spark"}, "engine must be one of local, ray"),
        ({"engine": "ray"}, "needs a log in parts: make one with `dprl data partition"),
        ({"shards": 2}, "those of the engine ray"),
        ({"engine": "local", "address": "auto"}, "those of the engine ray"),
        ({"engine": "ray", "shards": 0}, "shards must be a whole number"),
        ({"engine": "ray", "shards": True}, "shards must be a whole number"),
        ({"engine": "ray", "address": ""}, "address must be that of a Ray cluster"),
    ],
)
def test_what_is_asked_of_an_engine_is_checked_before_the_charge(logs, tmp_path, options, words):
    trial = PartsTrial(tmp_path / "trial", logs[0])
    with pytest.raises(dprl.DprlError, match=words):
        trial.evaluate(**options)
    assert trial.ledger.history() == []
    assert not trial.run.exists()


@pytest.fixture
def command(logs, tmp_path, capsys):
    """``dprl evaluate`` of a log with these arguments: exit code, what is said, and the folder of the release."""
    (tmp_path / "bounds.toml").write_text(BOUNDS_TOML)

    def run(log, *more, out="results"):
        asked = ["--target-policy", "uniform", "--bounds", tmp_path / "bounds.toml", "--person-column", "person_id"]
        asked += ["--epsilon", "1", "--delta", "1e-5", "--algorithm", "importance-sampling", "--seed", "1"]
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in ["evaluate", log, *asked, "--out", tmp_path / out, *more]])
        return stop.value.code, capsys.readouterr().err

    return run


def test_the_command_line_takes_parts(logs, command, tmp_path):
    assert command(logs[0], out="file") == (0, "")
    assert command(logs[1], "--engine", "local", out="parts") == (0, "")
    assert contents(tmp_path / "parts") == contents(tmp_path / "file")


@pytest.mark.parametrize(
    ("flags", "toml", "words"),
    [
        (["--engine", "ray"], "", "needs a log in parts: make one with `dprl data partition LOG --by COLUMN"),
        (["--shards", "2"], "", "add --engine ray"),
        ([], 'engine = "spark"', "engine must be one of local, ray"),
        ([], "engine = 3", "engine must be text"),
        ([], 'engine = "ray"\nshards = "two"', "shards must be a whole number"),
    ],
)
def test_the_command_line_refuses(logs, command, tmp_path, flags, toml, words):
    (tmp_path / "run.toml").write_text(toml)
    code, said = command(logs[0], *flags, "--config", tmp_path / "run.toml")
    assert code == 2
    assert said.startswith("error: ")
    assert words in said
    assert len(said.splitlines()) == 1


def test_without_ray(logs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    trial = PartsTrial(tmp_path / "trial", logs[1])
    with pytest.raises(dprl.DprlError, match=r"pip install 'dprl\[cluster\]'"):
        trial.evaluate(engine="ray")
    assert trial.ledger.history() == []
