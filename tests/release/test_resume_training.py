"""What is learned from a bandit's log and interrupted is resumed: one charge, one answer of a batch, the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dprl
from dprl.accounting.ledger import Ledger
from dprl.environments.bandit import Bandit
from dprl.learning.policy_gradient.people_sources import PeopleOnHost
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SecureNoise
from dprl.mechanisms.run_key import RunKey

from ..environments.visits import bounds, file_and_parts, visits
from ..interruption import interrupted
from .in_parts import contents
from .resumable import KEY, Trial, fix_key

PEOPLE, STEPS = 90, 4
BUDGET = dprl.Budget(1.0, 1e-5)
SETTINGS = {
    "correlated": dprl.DPPG(steps=STEPS, batch=23),
    "independent": dprl.DPPG(steps=STEPS, batch=23, noise="independent", relation="replace-one"),
    "sampled again": dprl.DPPG(steps=STEPS, batch=23, sampling="poisson"),
}


class Training(Trial):
    """One private request to learn from a bandit's log, which may be made again and again."""

    def __init__(self, folder: Path, path: Path, name: str) -> None:
        super().__init__(folder, path, SETTINGS[name].relation_words)
        self.name = name

    def evaluate(self, **changes: Any) -> Any:
        options = {
            "algorithm": SETTINGS[self.name], "bounds": bounds(PEOPLE), "ledger": self.ledger, "dataset": "trial",
            "run": self.run, "resume": self.run.exists(),
        }  # fmt: skip
        return dprl.train(f"bandit:{self.log}", BUDGET, **options | changes)

    def finish(self, **changes: Any) -> dict[str, Any]:
        super().finish(**changes)
        (charge,) = self.ledger.history()
        assert charge.digest is not None
        assert not self.run.exists()
        return contents(self.out)

    def stop_after(self, updates: int, **changes: Any) -> None:
        """Interrupt it after so many batches."""
        last = updates if self.name == "sampled again" else min(23 * updates, PEOPLE)
        super().stop_after(last, **changes)
        assert not self.out.exists()


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return file_and_parts(tmp_path_factory.mktemp("visits"), visits(160, PEOPLE))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "correlated" else pytest.mark.slow) for name in SETTINGS]
)
def test_the_same_bytes_wherever_it_stopped(paths, tmp_path, monkeypatch, name):
    """Also if it stopped again and again; a batch whose noisy sum is on the disk is neither asked nor summed again."""
    fix_key(monkeypatch)
    file, parts = paths
    expected = Training(tmp_path / "whole", file, name).finish()
    asked, coins = [], []
    total = PeopleOnHost.total
    monkeypatch.setattr(PeopleOnHost, "total", lambda *given: asked.append(1) or total(*given))
    flip = GaussianSum.participation_mask
    monkeypatch.setattr(GaussianSum, "participation_mask", lambda *given: coins.append(1) or flip(*given))
    for path, ways in ((file, ((STEPS,), (1, 2, 3))), (parts, ((2,), (1, 2, 3)))):
        for stops in ways:
            asked.clear(), coins.clear()
            trial = Training(tmp_path / f"{path.parent.name} {stops}", path, name)
            for steps in stops:
                trial.stop_after(steps)
            found = trial.finish()
            assert found == expected
            assert len(asked) == STEPS
            assert len(coins) == (STEPS if name == "sampled again" else 0)


def test_without_a_run_folder_it_is_the_same_release(paths, tmp_path, monkeypatch):
    fix_key(monkeypatch)
    key = RunKey(KEY)
    monkeypatch.setattr(SecureNoise, "fresh", classmethod(lambda cls: key.noise(b"")))
    one = Training(tmp_path / "one", paths[0], "correlated").finish()
    assert Training(tmp_path / "other", paths[0], "correlated").finish(run=None, resume=False) == one


def test_other_people_are_refused(paths, tmp_path):
    """One reward of one person is another: the noise under it must be another too."""
    table = visits(160, PEOPLE)
    paid = table.column("reward_0").to_numpy().copy()
    row = np.flatnonzero(np.isfinite(paid))[0]
    paid[row] = 0.3 - 0.5 * paid[row]
    (tmp_path / "others").mkdir()
    number = table.column_names.index("reward_0")
    others = file_and_parts(tmp_path / "others", table.set_column(number, "reward_0", pa.array(paid)))
    for path, other in zip(paths, others, strict=True):
        trial = Training(tmp_path / path.parent.name, path, "correlated")
        trial.stop_after(2)
        trial.log = other
        with pytest.raises(dprl.DprlError, match=r"begun on other data \(rows, policies or features\)"):
            trial.evaluate()
        trial.log = path
        trial.finish()


def test_stopped_at_the_very_end(paths, tmp_path, monkeypatch):
    """The policy is in its folder already: no row is read any more."""
    trial = Training(tmp_path / "trial", paths[0], "correlated")

    with interrupted(Ledger, "commit"), pytest.raises(KeyboardInterrupt):
        trial.finish()
    before = contents(trial.out)
    monkeypatch.setattr(Bandit, "entering", None)
    again = trial.evaluate()
    assert again.save(trial.out)["training.json"] == trial.out / "training.json"
    states = np.zeros((2, 2))
    np.testing.assert_array_equal(again.policy(states), dprl.load_policy(str(trial.out))(states))  # type: ignore[operator]
    assert contents(trial.out) == before
    (charge,) = trial.ledger.history()
    assert charge.digest is not None
    assert not trial.run.exists()


def test_what_cannot_be_resumed_is_refused_before_the_charge(paths, tmp_path):
    trial = Training(tmp_path / "trial", paths[0], "correlated")
    for changes, words in (
        ({"seed": 1}, "Only a private release can be resumed"),
        ({"simulated": True}, "Only a private release can be resumed"),
        ({"algorithm": dprl.DPPG(calibration="as-published"), "bounds": bounds(9000)}, "Only a private release can be"),
        ({"run": None, "resume": True}, "Name the run folder of the release to resume"),
        ({"resume": True}, "There is nothing to resume"),
    ):
        with pytest.raises(dprl.DprlError, match=words):
            trial.evaluate(**changes)
    options: dict[str, Any] = {"ledger": trial.ledger, "dataset": "trial", "run": trial.run}
    with pytest.raises(dprl.DprlError, match="Only what is learned from a bandit's log can be resumed"):
        dprl.train("cart-pole", BUDGET, algorithm=dprl.DPPG(users=100), **options)
    with pytest.raises(dprl.DprlError, match="Only what is learned from a bandit's log can be resumed"):
        dprl.train("interval-walk", BUDGET, algorithm=dprl.FunctionalQ(reward_radius=0.1), **options)
    assert trial.ledger.history() == []
    assert not trial.run.exists()
