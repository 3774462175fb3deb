"""Learning as a release: charged before the first reward, certified, tamper-evident, and nothing private on file."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import dprl
import dprl.release.train as release_module
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import RewardRelation
from dprl.accounting.verification import verify
from dprl.environments.interval_walk import IntervalWalk
from dprl.learning import planned_q
from dprl.mechanisms.noise import SecureNoise
from dprl.protocols import EnvironmentSpec
from dprl.release.learning_artifacts import REWARDS_NOT_PROTECTED

from ..resealed import reseal
from .resumable import check_no_key_on_file

BUDGET = dprl.Budget(0.9, 1e-4)
SMALL = {"samples": 100, "round": 50, "batch": 8, "network": "mlp:4", "reward_radius": 0.01}
UNIT, RELATION = "reward function", "reward functions at most 0.01 apart"
SMOOTH, ALONE = (RewardRelation(0.01, 0.04, of_state=of_state).words() for of_state in (False, True))
KEY = bytes(range(7, 39))


def train(environment: Any = "interval-walk", **changes: Any) -> dprl.TrainedRelease:
    """The variant output learns nothing, and so compiles in no time."""
    own = ("ledger", "dataset", "seed", "simulated", "bounds", "progress")
    asked = {name: changes.pop(name) for name in own if name in changes}
    options = {"variant": "output", "reward_radius": 0.01} if not changes else SMALL | changes
    return dprl.train(environment, BUDGET, algorithm=dprl.FunctionalQ(**options), **asked)


@dataclass
class Corridor:
    """Four cells in a row, the last of which pays; counts how often a reward was paid."""

    facts: EnvironmentSpec = field(
        default_factory=lambda: EnvironmentSpec(
            name="corridor",
            observation=((0.0, 3.0),),
            actions=2,
            horizon=6,
            discount=0.9,
            reward_bounds=(0.0, 1.0),
            finite=(4, 2),
        )
    )
    paid: int = 0
    broken: bool = False

    def reset(self, seed: int) -> np.ndarray:
        del seed
        if self.broken:
            raise KeyboardInterrupt
        self.cell, self.time = 0, 0
        return np.zeros(1)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        self.paid, self.time = self.paid + 1, self.time + 1
        self.cell = min(self.cell + action, 3)
        return np.array([self.cell / 3.0]), float(self.cell == 3), False, self.time == 6


@pytest.fixture(scope="module", params=["output", pytest.param("functional", marks=pytest.mark.slow)])
def released(tmp_path_factory, request):
    """A release with paths, into a ledger, by a key that is known here: release, folder, ledger."""
    folder = tmp_path_factory.mktemp("train")
    relation = {"output": SMOOTH, "functional": ALONE}[request.param]
    ledger = Ledger.create(folder / "l.db", "tutor", dprl.Budget(1.0, 2e-4), UNIT, relation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureNoise, "fresh", lambda: SecureNoise(KEY))
        options = {} if request.param == "output" else {"variant": request.param}
        release = train(ledger=ledger, dataset="tutor", **options)
    release.save(folder / "q")
    return release, folder / "q", ledger


def test_from_end_to_end(released):
    release, folder, ledger = released
    found = verify(folder)
    content = found.content
    assert found.private
    assert found.epsilon is not None
    assert found.epsilon <= 0.9
    assert (content["privacy_unit"], content["neighbouring_relation"]) == (UNIT, ledger.datasets()[0].relation)
    assert content["not_protected"] == list(REWARDS_NOT_PROTECTED)
    assert content["ledger"] == {"dataset": "tutor", "charge": 1, "epsilon": 0.9, "delta": 1e-4}
    (charge,) = ledger.history()
    assert (charge.digest, charge.purpose) == (content["digest"], "train functional-q")
    assert sorted(p.name for p in folder.iterdir()) == [
        "certificate.json", "q_function.safetensors", "report.html", "training.json",
    ]  # fmt: skip
    training = json.loads((folder / "training.json").read_bytes())
    assert training == release.training
    assert training["returns"] is None
    states = np.linspace(0.0, 1.0, 33)
    again = dprl.load_q_function(folder)
    np.testing.assert_array_equal(again(states), release.q_function(states))
    np.testing.assert_array_equal(training["q_function"]["slices"][0]["values"], again(np.linspace(0, 1, 65)).T)
    report = (folder / "report.html").read_text()
    assert "The reward function is protected" in report
    assert "States, actions and transitions" in report


def test_nothing_but_weights_and_public_facts_is_on_file(released):
    """No key, in any spelling; no reward, state or answer, nor room for them."""
    release, folder, _ = released
    check_no_key_on_file(folder, KEY, b"reward", b"environment")
    tensors = load_file(folder / "q_function.safetensors")
    shapes = {"mlp:4": {"W": (4, 1), "b": (4,), "V": (2, 4), "c": (2,)}, "table:257": {"V": (2, 257)}}
    assert {name: w.shape for name, w in tensors.items()} == shapes[release.q_function.network]

    def longest(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = len(value) if isinstance(value, list) else 0
        return max([own, *map(longest, inner)])

    training = json.loads((folder / "training.json").read_bytes())
    assert longest(training) == 65  # points of a curve; there are 100 samples or more
    assert longest(json.loads((folder / "certificate.json").read_bytes())) < 10
    assert set(training) == {
        "schema", "status", "algorithm", "variant", "epsilon", "delta", "samples", "discount", "q_function",
        "returns", "request", "environment",
    }  # fmt: skip


def test_what_is_restated_is_refused(released, tmp_path):
    _, folder, _ = released
    copy = shutil.copytree(folder, tmp_path / "restated")
    training = json.loads((copy / "training.json").read_bytes()) | {"epsilon": 0.5}
    (copy / "training.json").write_text(json.dumps(training))
    reseal(copy, lambda content: None)
    with pytest.raises(dprl.DprlError, match=r"epsilon in .*training.json is not the epsilon"):
        verify(copy)


def test_charged_before_the_first_reward_and_never_given_back(tmp_path):
    source = Corridor(broken=True)
    ledger = Ledger.create(tmp_path / "l.db", "tutor", dprl.Budget(1.0, 1e-3), UNIT, RELATION)
    account = {"ledger": ledger, "dataset": "tutor"}
    with pytest.raises(KeyboardInterrupt):
        train(source, **account, variant="observed-reward")
    (charge,) = ledger.history()
    assert charge.digest is None
    assert float(ledger.spent("tutor").epsilon) == 0.9
    source.broken = False
    with pytest.raises(dprl.OverspendError, match=r"epsilon 0.1 and delta 0.0009 left for 'tutor'"):
        train(source, **account, variant="observed-reward")
    with pytest.raises(dprl.DprlError, match=f"relation '{RELATION}'; a release by relation '.*0.02 apart'"):
        train(source, **account, variant="observed-reward", reward_radius=0.02)
    with pytest.raises(dprl.DprlError, match=f"no dataset 'pupil'; .* '{UNIT}' and --relation '{RELATION}'"):
        train(source, ledger=ledger, dataset="pupil", variant="observed-reward")
    people = Ledger.create(tmp_path / "p.db", "tutor", dprl.Budget(1.0, 1e-3), "person", "add or remove one")
    with pytest.raises(dprl.DprlError, match=f"privacy unit '{UNIT}' does not compose"):
        train(source, ledger=people, dataset="tutor", variant="observed-reward")
    assert source.paid == 0
    assert len(ledger.history()) == 1


MISTAKES = [
    ({"algorithm": dprl.TD()}, "options of a learning algorithm"),
    ({"budget": (1.0, 1e-5)}, "budget must be a dprl.Budget"),
    ({"environment": 5}, "environment must be interval-walk"),
    ({"algorithm": {"reward_radius": 0.1, "network": "mlp"}}, "no network called 'mlp'"),
    ({"algorithm": {"reward_radius": 0.1, "network": "mlp:999999"}}, "smaller network"),
    ({"algorithm": {"people": 10**5}}, "at least 1/units"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes_come_before_the_charge(changes, message, tmp_path):
    source = Corridor()
    asked: dict[str, Any] = {"environment": source, "budget": BUDGET, "algorithm": {"reward_radius": 0.1}} | changes
    if isinstance(asked["algorithm"], dict):
        asked["algorithm"] = dprl.FunctionalQ(**asked["algorithm"])
    with pytest.raises(dprl.DprlError, match=message):
        dprl.train(asked.pop("environment"), asked.pop("budget"), **asked)
    assert source.paid == 0


def test_a_seed_or_a_simulation_makes_a_statement(tmp_path, monkeypatch):
    first, second = train(seed=3), train(seed=3)
    states = np.linspace(0.0, 1.0, 50)
    np.testing.assert_array_equal(first.q_function(states), second.q_function(states))
    assert (train(seed=4).q_function(states) != first.q_function(states)).any()
    monkeypatch.setattr(release_module, "q_function_returns", lambda *_: {"learned": 3.25})
    simulated = train(simulated=True)
    for release in (first, simulated):
        assert release.training["status"] == "not private"
    assert (first.training["returns"], simulated.training["returns"]) == (None, {"learned": 3.25})
    simulated.save(tmp_path / "s")
    assert not verify(tmp_path / "s").private
    assert "measured with the true rewards" in (tmp_path / "s" / "report.html").read_text()


@pytest.mark.slow
def test_returns_of_a_simulation():
    """Appendix E.1: 10.905 of a random policy, 20.539 of the best."""
    returns = train(simulated=True, seed=0).training["returns"]
    assert returns["random"] == pytest.approx(10.905, abs=0.4)
    assert returns["best known"] == pytest.approx(20.539, abs=0.2)
    assert 0.0 < returns["learned"] <= 20.8
    corridor = train(Corridor(), variant="observed-reward", simulated=True, seed=0).training["returns"]
    assert set(corridor) == {"learned", "random"}
    assert 0.0 < corridor["random"] < 4.0  # pays from the third step of six on, if it walks straight on
    square = train(IntervalWalk(dimensions=2), variant="observed-reward", simulated=True, seed=0).training["returns"]
    assert set(square) == {"learned", "random"}  # whose best policy is not planned


def test_learning_that_diverges_can_be_stored(tmp_path, monkeypatch):
    planned = planned_q.released_q

    def diverged(*arguments: Any) -> Any:
        q = planned(*arguments)
        return replace(q, weights={"V": np.full_like(q.weights["V"], np.nan)})

    monkeypatch.setattr(planned_q, "released_q", diverged)
    train().save(tmp_path / "q")
    assert verify(tmp_path / "q").private
    assert dprl.load_q_function(tmp_path / "q")(np.zeros(1)).shape == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"variant": "observed-reward"}, {"variant": "observed-reward", "memoise": True},
        {"variant": "functional", "reward_lipschitz": 0.04, "reward_of": "state-action"},
        {"variant": "gradient", "network": "fourier:3"},
        {"variant": "observed-reward", "actor_critic": True},
    ],
    ids=str,
)  # fmt: skip
def test_an_environment_outside_of_jax(tmp_path, options):
    source, done = Corridor(), []
    release = train(source, **options, progress=done.append)
    assert source.paid == 100
    assert done == [50, 100]
    release.save(tmp_path / "q")
    content = verify(tmp_path / "q").content
    steps = content["mechanisms"][0]["steps"]
    assert steps == (8 if options.get("memoise") else {"functional": 1, "gradient": 2}.get(options["variant"], 100))
    states = np.linspace(0.0, 3.0, 9)
    np.testing.assert_array_equal(
        dprl.load_q_function(tmp_path / "q").policy(states), release.q_function.policy(states)
    )


@pytest.mark.slow
def test_as_published_is_a_statement_without_a_claim(tmp_path):
    options = {"calibration": "as-published", "samples": 640, "batch": 64, "reward_radius": None}
    release = train(**options)
    release.save(tmp_path / "q")
    found = verify(tmp_path / "q")
    assert (found.private, found.epsilon) == (False, None)
    content = found.content
    assert (content["status"], content["event"], content["mechanisms"]) == ("as published", None, [])
    assert not all(c["holds"] for c in content["assumed_public"]["preconditions"])
    assert "this does not hold here" in (tmp_path / "q" / "report.html").read_text()
    with pytest.raises(dprl.DprlError, match="interval-walk alone"):
        train(Corridor(), **options)


CART_POLE = {
    "units": 1, "horizon": 50, "reward": (0.0, 1.0), "actions": 2, "max_importance_ratio": 1.0,
    "observation": ((-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.0, 3.0)),
}  # fmt: skip


@pytest.mark.slow
def test_gymnasium(tmp_path):
    pytest.importorskip("gymnasium")
    names = ("place", "speed", "angle", "spin")
    bounds = CART_POLE | {"observation_names": names}
    release = train("gymnasium:CartPole-v1", bounds=bounds, variant="observed-reward")
    release.save(tmp_path / "q")
    assert verify(tmp_path / "q").private
    assert tuple(piece["name"] for piece in release.training["q_function"]["slices"]) == names
    assert "Observation: spin" in (tmp_path / "q" / "report.html").read_text()
    assert release.q_function.policy(np.zeros((3, 4))).shape == (3,)
    with pytest.raises(dprl.DprlError, match="at most three observation components; use observed-reward"):
        train("gymnasium:CartPole-v1", bounds=CART_POLE, variant="functional", reward_lipschitz=0.1)
