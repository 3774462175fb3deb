"""A policy of fitted Q iteration through the front door: certified, saved, verified, resumed, printed and read back."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.errors import DprlError
from dprl.evaluation.advantage import ADVANTAGE
from dprl.evaluation.fitted_q import FITTED_Q
from dprl.release import run_folder

from ..resealed import resealed
from ..sample_log import write_parquet
from .resumable import Learning, bounds_file

PEOPLE, STEPS = 2_000, 3
BOUNDS = Bounds(
    units=PEOPLE, horizon=STEPS, reward=(0.0, 1.0), observation=((0.0, 3.0),), actions=2, max_importance_ratio=2.0,
    observation_names=("place",),
)  # fmt: skip
AMPLE = Budget(5.0, 1e-5)
OPTIONS = dprl.ImportanceSampling(discount=1.0)


def columns(seed: int = 0) -> dict[str, np.ndarray]:
    """The second action leads to the right, where there is a reward, and the first one pays a little at once."""
    rng, place = np.random.default_rng(seed), np.zeros((PEOPLE, STEPS + 1), int)
    place[:, 0], action = rng.integers(0, 4, PEOPLE), rng.integers(0, 2, (PEOPLE, STEPS))
    for t in range(STEPS):
        place[:, t + 1] = np.clip(place[:, t] + 2 * action[:, t] - 1, 0, 3)
    reward = np.where(place[:, 1:] == 3, 1.0, 0.1 * (action == 0))
    rows = np.repeat(np.arange(PEOPLE), STEPS)
    return {
        "person_id": rows, "episode_id": rows, "t": np.tile(np.arange(STEPS), PEOPLE),
        "observation_0": place[:, :-1].ravel(), "action": action.ravel(), "reward": reward.ravel(),
        "behavior_prob": np.full(PEOPLE * STEPS, 0.5), "terminated": np.tile(np.arange(STEPS) == STEPS - 1, PEOPLE),
    }  # fmt: skip


def learned(log=None, budget=AMPLE, **options) -> dprl.Release:
    given = {"bounds": BOUNDS, "person": "person_id", "algorithm": OPTIONS, "learner": FITTED_Q}
    return dprl.learn(columns() if log is None else log, budget, **given | options)


@pytest.mark.parametrize("basis", ["table", "products:1"])
def test_it_is_certified_saved_verified_and_read_back(basis, tmp_path):
    found = learned(basis=basis)
    paths = found.save(tmp_path / "out")
    assert set(paths) == {"estimate.json", "policy.safetensors", "report.html", "certificate.json"}
    verified = verification.verify(tmp_path / "out")
    assert verified.private
    assert verified.epsilon == pytest.approx(5.0, abs=1e-6)
    assert verified.content["assumed_public"]["learner"]["basis"] == basis
    places = np.arange(4.0)[:, None]
    again = dprl.load_policy(tmp_path / "out")
    np.testing.assert_array_equal(again(places), found.policy(places))
    assert found.policy.action(places)[1:].tolist() == [1, 1, 1]  # the reward is to the right
    truth = 2.25 if found.policy.action(places)[0] == 1 else 2.075
    assert abs(found.value - truth) < 0.3
    page = (tmp_path / "out" / "report.html").read_text()
    assert "The learned policy, " in page
    assert "learned by fitted Q iteration" in page
    valued = dprl.evaluate(columns(1), str(tmp_path / "out"), AMPLE, bounds=BOUNDS, algorithm=OPTIONS)
    assert list(valued.values) == ["out"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "out"
    learned().save(folder)
    return folder


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (("assumed_public", "learner", "rounds"), 3),
        (("assumed_public", "hyper_parameters", "choosing_share", "value"), 0.3),
        (("mechanisms", 0, "steps"), 2),
        (("mechanisms", 0, "noise_multiplier"), 0.1),
        (("assumed_public", "learner"), None),
    ],
)
def test_a_certificate_that_states_another_learner_is_refused(place, change, saved, tmp_path):
    def state(content):
        *way, last = place
        inner = reduce(lambda found, name: found[name], way, content)
        if change is None:
            del inner[last]
        else:
            inner[last] = change

    folder = resealed(saved, tmp_path / "out", state)
    with pytest.raises(DprlError):
        verification.verify(folder)


def test_an_interrupted_release_goes_on_with_the_noise_that_was_drawn(tmp_path):
    """The power fails after the policy was learned: what the journal holds is not drawn again."""
    trial = Learning(tmp_path / "trial", columns(), partial(learned, basis="products:1"))
    trial.stop_before_values()
    kept = (trial.run / run_folder.JOURNAL).read_bytes()
    found = trial.evaluate()
    assert (trial.run / run_folder.JOURNAL).read_bytes().startswith(kept)
    assert len(trial.ledger.history()) == 1
    found.save(trial.out)
    assert verification.verify(trial.out).private


@pytest.mark.parametrize("learner", [FITTED_Q, ADVANTAGE])
def test_with_other_behaviour_probabilities_nothing_is_gone_on_with(learner, tmp_path):
    """Of several steps nothing that is valued beside the policy shows them: they are bound by themselves."""
    trial = Learning(tmp_path / "trial", columns(), partial(learned, learner=learner, basis="table"))
    trial.stop_before_values()
    others = columns()
    others["behavior_prob"] = np.where(others["observation_0"] == 0.0, 0.6, 0.5)
    with pytest.raises(DprlError, match="other"):
        trial.evaluate(log=others)
    trial.finish()
    assert verification.verify(trial.out).private


def test_the_command_line_learns_and_plans(tmp_path, said):
    log, out = write_parquet(columns(), tmp_path / "log.parquet"), tmp_path / "out"
    arguments = [log, "--bounds", bounds_file(tmp_path, BOUNDS), "--epsilon", "5", "--delta", "1e-5", "--discount", "1"]
    planned = said("plan", *arguments, "--learn", "--algorithm", "importance-sampling", "--learner", "fitted-q")
    assert planned[1].startswith("learning a policy: noise multiplier ")
    assert any("fitted-q with the basis table of 4 functions" in line for line in planned)
    first, second, *_ = said("learn", *arguments, "--out", out)  # recommended over several steps
    assert first.startswith("The learned policy, ")
    assert second == "learned by fitted Q iteration: it is the chosen one, not proven the best"
