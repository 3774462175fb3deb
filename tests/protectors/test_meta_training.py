"""Training: it finds a step size, goes on where it was interrupted, and never ends worse than it began."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dprl.accounting.budget import Budget
from dprl.errors import DprlError
from dprl.protectors import meta_training
from dprl.protectors.meta_training import Training, train
from dprl.protectors.projector import Architecture, HandSchedule
from dprl.protectors.protector import Protector
from dprl.protectors.simulation import Simulation

from .small import Bowl

SMALL = Architecture(layers=0, knots=2, learned_clip=True)
SIMULATION = Simulation(family=Bowl(), architecture=SMALL, std=0.1)
SHORT = Training(epochs=6, tasks=2, repeats=1, validate=2, validation=4, learning_rate=0.1)


class StopError(Exception):
    pass


@pytest.mark.slow
def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path):
    whole = train(SIMULATION, SHORT)

    def stop(epoch, _):
        if epoch == 3:
            raise StopError

    with pytest.raises(StopError):
        train(SIMULATION, SHORT, checkpoint=tmp_path, progress=stop)
    found = train(SIMULATION, SHORT, checkpoint=tmp_path, resume=True)
    assert found.log == whole.log
    assert [record["epoch"] for record in whole.log] == [0, 2, 4, 6]
    for name, array in whole.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)
    with pytest.raises(DprlError, match="of another training"):
        train(SIMULATION, dataclasses.replace(SHORT, seed=1), checkpoint=tmp_path, resume=True)
    (tmp_path / meta_training.CHECKPOINT_FILE).write_bytes(b"0" * 40)
    with pytest.raises(DprlError, match="is damaged"):
        train(SIMULATION, SHORT, checkpoint=tmp_path, resume=True)


@pytest.mark.slow
def test_what_training_spoils_is_not_kept():
    # steps so long that the weights leave at once, and never come back
    wild = dataclasses.replace(SHORT, epochs=2, learning_rate=10.0, gradient_clip=1e6)
    found = train(SIMULATION, wild)
    assert found.log[-1]["validation"] > found.log[0]["validation"]
    assert all(np.all(np.asarray(w) == 0.0) for w in found.weights.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"objective": "loss"}, 0.6),
        ({"objective": "log", "intermediate": 0.1}, 0.6),
        ({"objective": "hand", "penalty": 1.0, "spread": 1.2, "incremental": (0.0, 0.5)}, 0.6),
    ],
)
def test_a_step_size_that_is_ten_times_too_small_is_found(options, most):
    hand = HandSchedule(steps=8, sampling_rate=1.0, clip_norm=1.0, step_sizes=(0.05,), tail=0.0)
    simulation = Simulation(family=Bowl(hand=hand), architecture=Architecture(hidden=4, knots=2), std=0.05)
    training = Training(epochs=60, tasks=8, validate=20, learning_rate=0.05, **options)
    log = train(simulation, training).log
    assert log[0]["geometric_ratio"] == pytest.approx(1.0, abs=1e-5)
    assert min(record["geometric_ratio"] for record in log) < most


@pytest.mark.slow
def test_an_adaptive_scheduler_learns_to_spend_its_budget():
    hand = HandSchedule(steps=8, sampling_rate=0.5, clip_norm=1.0, step_sizes=(0.3,), tail=0.0)
    family = Bowl(hand=hand, units=200)
    architecture = Architecture(hidden=4, layers=1, scheduler="adaptive")
    simulation = meta_training.simulation_of(family, architecture, Budget(1.0, 1e-5))
    middle = simulation.ratios.index(1.0)
    assert 1.0 - 1e-4 < 8 * simulation.costs[middle] <= 1.0
    assert list(simulation.costs) == sorted(simulation.costs, reverse=True)
    schedule = dataclasses.replace(Training().schedule, shrink=0.9)
    training = Training(epochs=60, tasks=8, validate=30, learning_rate=0.02, schedule=schedule)
    log = train(simulation, training).log
    assert abs(log[-1]["excess"]) < 0.15
    assert log[-1]["spent"] <= 1.0 + 1e-6
    assert log[-1]["validation"] < log[0]["validation"]


@pytest.mark.slow
def test_learning_writes_down_where_the_protector_comes_from(tmp_path):
    protector, trained = meta_training.learn_protector(
        Bowl(units=300), Budget(1.0, 1e-5), SMALL, SHORT, value_budget_fraction=0.5
    )
    said = protector.provenance
    assert said["public"] is True
    assert (said["tasks"], said["epsilon"], said["delta"], said["value_budget_fraction"]) == ("bowl", 1.0, 1e-5, 0.5)
    strength = 300 * np.sqrt(0.5) / meta_training.whole_budget_multiplier(Budget(1.0, 1e-5))
    assert protector.ranges["strength"] == pytest.approx((strength / 1.25, strength * 1.25))
    assert protector.ranges["horizon"] == (1.0, 50.0)
    alone = meta_training.simulation_of(Bowl(units=300), SMALL, Budget(1.0, 1e-5))
    shared = meta_training.simulation_of(Bowl(units=300), SMALL, Budget(1.0, 1e-5), 0.5)
    # plain Gaussians of everybody: half of mu^2 is root two times the noise
    assert shared.std / alone.std == pytest.approx(np.sqrt(2.0), rel=1e-3)
    folder = meta_training.save_with_log(protector, trained, tmp_path / "p")
    assert Protector.load(folder) == protector
    assert (folder / meta_training.TRAINING_LOG).read_bytes() == meta_training.log_bytes(trained)
    with pytest.raises(DprlError, match="value_budget_fraction"):
        meta_training.learn_protector(Bowl(), Budget(1.0, 1e-5), SMALL, SHORT, value_budget_fraction=1.0)


@pytest.mark.slow
def test_a_refinement_follows_a_training_and_resumes(tmp_path):
    refinement = dataclasses.replace(SHORT, epochs=3, learning_rate=0.05)
    told: list[int] = []

    def learned(**options):
        return meta_training.learn_protector(Bowl(), Budget(1.0, 1e-5), SMALL, SHORT, refinement=refinement, **options)

    protector, trained = learned(progress=lambda epoch, _: told.append(epoch))
    assert told == list(range(1, 10))
    assert [r["epoch"] for r in (*trained.earlier_log, *trained.log)] == [0, 2, 4, 6, 6, 8, 9]
    assert protector.provenance["refinement"]["learning_rate"] == 0.05
    first = train(meta_training.simulation_of(Bowl(), SMALL, Budget(1.0, 1e-5)), SHORT)
    assert trained.log[0]["validation_loss"] == pytest.approx(min(r["validation_loss"] for r in first.log), rel=1e-6)

    def stop(epoch, _):
        if epoch == 8:
            raise StopError

    with pytest.raises(StopError):
        learned(checkpoint=tmp_path / "c", progress=stop)
    again, _ = learned(checkpoint=tmp_path / "c", resume=True)
    assert again == protector
    meta_training.remove_checkpoint(tmp_path / "c")
    assert not (tmp_path / "c").exists()
