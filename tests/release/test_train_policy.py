"""Learning from people as a release: charged before the first is asked, certified, and nobody's answer on file."""

from __future__ import annotations

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import dprl
from dprl.accounting.ledger import Ledger
from dprl.accounting.verification import verify
from dprl.engine import loop
from dprl.environments.bandit import LinearBandit
from dprl.learning.policy_gradient import trainer
from dprl.learning.policy_gradient.trust_region import sharpened
from dprl.mechanisms.noise import SecureNoise
from dprl.release.learning_artifacts import NOBODY_IS_NAMED, PEOPLE_NOT_PROTECTED, PLACES

from ..resealed import resealed
from .resumable import check_no_key_on_file

BUDGET = dprl.Budget(1.0, 1e-6)
BOUNDS = {"units": 60, "observation": [[-1, 1]] * 2, "reward": [0, 1], "actions": 2}
FACTS = dprl.EnvironmentSpec(
    name="shop", observation=((-1.0, 1.0),) * 2, actions=2, horizon=1, discount=1.0, reward_bounds=(0.0, 1.0)
)
RELATION = "zero out one"
KEY = bytes(range(9, 41))


class Shop:
    """People who arrive; counts how many were asked."""

    def __init__(self, people: int = 60, named: bool = True, first: float | None = None) -> None:
        self.asked, self.people, self.first = 0, people, first
        self.stream = dprl.UserStream(FACTS, self.arriving(), named=named)

    def arriving(self) -> Any:
        draws = np.random.default_rng(3)
        for i in range(self.people):
            seen = draws.uniform(-1.0, 1.0, 2)
            yield f"person {i}", self.answer(seen, self.first if i == 0 else None)

    def answer(self, seen: np.ndarray, paid: float | None) -> Any:
        def answer(policy: Any) -> dprl.Interaction:
            self.asked += 1
            action = policy(seen)
            return dprl.Interaction([seen], [action], [float(seen[action] > 0.0) if paid is None else paid])

        return answer


def train(source: Any = None, budget: dprl.Budget = BUDGET, **changes: Any) -> Any:
    own = ("ledger", "dataset", "seed", "simulated", "bounds", "progress")
    asked = {name: changes.pop(name) for name in own if name in changes}
    options: dict[str, Any] = {"users": 60, "steps": 3} | changes
    return dprl.train(Shop().stream if source is None else source, budget, algorithm=dprl.DPPG(**options), **asked)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release into a ledger, by a key that is known here: release, folder, ledger."""
    folder = tmp_path_factory.mktemp("train")
    ledger = Ledger.create(folder / "l.db", "shop", dprl.Budget(1.5, 2e-6), "person", RELATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecureNoise, "fresh", lambda: SecureNoise(KEY))
        release = train(ledger=ledger, dataset="shop")
    release.save(folder / "p")
    return release, folder / "p", ledger


def test_from_end_to_end(released):
    release, folder, ledger = released
    found = verify(folder)
    content = found.content
    assert found.private
    assert found.epsilon == pytest.approx(1.0, rel=1e-3)
    assert (content["privacy_unit"], content["neighbouring_relation"]) == ("person", RELATION)
    assert content["not_protected"] == [*PLACES, *PEOPLE_NOT_PROTECTED]
    assert "joint differential privacy" in content["released"]
    assert "People are told apart" in content["assumed_public"]["reading"]
    assert content["assumed_public"]["units"] == 60
    assert content["ledger"] == {"dataset": "shop", "charge": 1, "epsilon": 1.0, "delta": 1e-6}
    (row,) = content["mechanisms"]
    assert (row["relation"], row["noise"], row["steps"], row["batch"], row["dimension"]) == (
        "zero-out", "square-root", 3, 20, 7,
    )  # fmt: skip
    (charge,) = ledger.history()
    assert (charge.digest, charge.purpose) == (content["digest"], "train dp-pg")
    assert sorted(p.name for p in folder.iterdir()) == [
        "certificate.json", "policy.safetensors", "report.html", "training.json",
    ]  # fmt: skip
    training = json.loads((folder / "training.json").read_bytes())
    assert training == release.training
    assert (training["returns"], training["curve"]) == (None, None)
    states = np.random.default_rng(0).uniform(-2.0, 2.0, (33, 2))
    again: Any = dprl.load_policy(str(folder))
    np.testing.assert_array_equal(again(states), release.policy(states))
    np.testing.assert_allclose(again(states).sum(axis=1), 1.0, rtol=1e-12)
    report = (folder / "report.html").read_text()
    assert "Each person is protected" in report
    assert "Zero out one." in report


def test_nothing_but_parameters_and_public_facts_is_on_file(released):
    """No key in any spelling; no answer, nobody's name, nor room for them."""
    _, folder, _ = released
    check_no_key_on_file(folder, KEY, b"gradients", b"environment")
    assert not any(b"person 1" in path.read_bytes() for path in folder.iterdir())
    assert {name: t.shape for name, t in load_file(folder / "policy.safetensors").items()} == {"theta": (6,)}
    training = json.loads((folder / "training.json").read_bytes())
    assert set(training) == {
        "schema", "status", "algorithm", "epsilon", "delta", "users", "batch", "steps", "discount", "policy", "returns",
        "curve", "request", "environment",
    }  # fmt: skip
    assert set(training["policy"]) == {"file", "kind", "size", "continuous", "iterate", "sharpness", "slices"}


def test_what_claims_too_much_is_refused(released, tmp_path):
    _, folder, _ = released

    def check(name: str, change: Any) -> None:
        verify(resealed(folder, tmp_path / name, lambda content: change(content, content["mechanisms"][0])))

    check("same", lambda content, row: None)
    for name, change in {
        "another relation": lambda content, row: content.update(neighbouring_relation="replace one"),
        "column norm left out": lambda content, row: row.update(column_norm=1.0),
        "less noise": lambda content, row: row.update(std=row["std"] * 0.99),
        "half of the clip": lambda content, row: row.update(sensitivity=0.5, std=row["std"] / 2.0),
        "paid for twice": lambda content, row: row.update(epochs=3),
        "epsilon": lambda content, row: content.update(epsilon=0.9),
    }.items():
        with pytest.raises(dprl.DprlError):
            check(name, change)


def test_the_policy_is_made_of_noisy_sums_of_the_people(monkeypatch):
    """With the same noise, another answer of one person changes the policy by as little as the clip allows; the noise
    is the one that the certificate states."""
    sums: list[np.ndarray] = []
    advance = loop._advance  # type: ignore[attr-defined]

    def recorded(program: Any, stage: int, mechanism: Any, state: Any, points: Any, step: Any) -> Any:
        sums.append(np.asarray(mechanism.scaled(jnp.asarray(points))))
        return advance(program, stage, mechanism, state, points, step)

    monkeypatch.setattr(loop, "_advance", recorded)
    one, other = (train(Shop(first=paid).stream, seed=5) for paid in (1.0, 0.0))
    first, second = sums[:3], sums[3:]
    moved = np.linalg.norm(first[0] - second[0])
    assert 0.0 < moved <= 2.0 + 1e-6
    assert (one.policy.theta != other.policy.theta).any()
    # as many people as places, each asked once
    std = one.certificate["mechanisms"][0]["std"]
    assert max(np.abs(row).max() for row in sums) < 20.0 + 6.0 * std


def test_charged_before_the_first_person_and_never_given_back(tmp_path):
    shop = Shop()

    def broken() -> Any:
        yield "first", shop.answer(np.zeros(2), None)
        raise RuntimeError("0.123456")

    ledger = Ledger.create(tmp_path / "l.db", "shop", dprl.Budget(1.5, 1e-5), "person", RELATION)
    account = {"ledger": ledger, "dataset": "shop"}
    # what the stream raises may quote a person: it ends there, as if nobody else came
    train(dprl.UserStream(FACTS, broken(), named=True), **account)
    (charge,) = ledger.history()
    assert charge.digest is None
    assert shop.asked == 1
    with pytest.raises(dprl.OverspendError, match=r"epsilon 0\.5 and delta 9e-6 left for 'shop'"):
        train(shop.stream, **account)
    with pytest.raises(dprl.DprlError, match=f"relation '{RELATION}'; a release by relation 'replace one'"):
        train(shop.stream, **account, relation="replace-one")
    with pytest.raises(dprl.DprlError, match=f"no dataset 'other'; .* 'person' and --relation '{RELATION}'"):
        train(shop.stream, ledger=ledger, dataset="other")
    with pytest.raises(dprl.DprlError, match="no ledger at"):
        train(shop.stream, ledger=tmp_path / "absent.db", dataset="shop")
    assert shop.asked == 1
    assert len(ledger.history()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": None}, "give users"),
        ({"bounds": BOUNDS}, "bounds are for users named by text"),
        ({"policy": "mlp"}, "Unknown policy 'mlp'"),
        ({"interactions": 2}, "need a simulator"),
        ({"sampling": "poisson", "noise_multiplier": 6.0}, "a log that is read whole"),
    ],
)
def test_mistakes_come_before_the_first_person(changes, message):
    shop = Shop()
    with pytest.raises(dprl.DprlError, match=message):
        train(shop.stream, **changes)
    assert shop.asked == 0


def test_who_cannot_be_asked():
    with pytest.raises(dprl.DprlError, match="Users are a name such as"):
        train(5)
    with pytest.raises(dprl.DprlError, match="leave --bounds out"):
        train("cart-pole", bounds=BOUNDS)
    with pytest.raises(dprl.DprlError, match="options of a learning algorithm"):
        dprl.train("cart-pole", BUDGET, algorithm=dprl.TD())  # type: ignore[call-overload]
    shop = Shop()
    train(shop.stream)
    with pytest.raises(dprl.DprlError, match="read once"):
        train(shop.stream)


def test_nobody_named_is_said(tmp_path):
    release = train(Shop(named=False).stream)
    release.save(tmp_path / "p")
    assert NOBODY_IS_NAMED in verify(tmp_path / "p").content["not_protected"]
    assert "Nobody is named" in (tmp_path / "p" / "report.html").read_text()


def test_a_bandit_and_a_seed(tmp_path):
    draws = np.random.default_rng(1)
    arrays = draws.uniform(-1.0, 1.0, (60, 2)), draws.uniform(0.0, 1.0, (60, 2))
    bandit = dprl.Bandit.of_arrays(*arrays, BOUNDS | {"observation_names": ["age", "hour <b>"]})
    done: list[int] = []
    first = train(bandit, users=None, seed=3, progress=done.append)
    assert done == [20, 40, 60]
    assert first.training["users"] == 60
    second = train(dprl.Bandit.of_arrays(*arrays, BOUNDS), users=None, seed=3)
    np.testing.assert_array_equal(first.policy.theta, second.policy.theta)
    assert (train(bandit, users=None).policy.theta != first.policy.theta).any()
    simulated = train(bandit, users=None, simulated=True).training
    assert (simulated["status"], simulated["curve"]) == ("not private", None)
    best, worst = arrays[1].max(axis=1).mean(), arrays[1].min(axis=1).mean()
    assert all(worst < value < best for value in simulated["returns"].values())
    assert simulated["returns"]["before learning"] == pytest.approx(arrays[1].mean(), abs=0.15)
    assert train(Shop().stream, simulated=True).training["returns"] is None
    assert first.training["status"] == "not private"
    first.save(tmp_path / "s")
    assert not verify(tmp_path / "s").private
    report = (tmp_path / "s" / "report.html").read_text()
    assert "This is not a private release" in report
    for words in ("Observation: age", "Observation: hour &lt;b&gt;", "<bdi>hour &lt;b&gt;</bdi>"):
        assert words in report


def test_people_who_are_sampled_again(tmp_path, monkeypatch):
    """By secret coins, and everybody pays for every batch."""
    draws, asked, done = np.random.default_rng(1), list[np.ndarray](), list[int]()
    arrays = draws.uniform(-1.0, 1.0, (60, 2)), draws.uniform(0.0, 1.0, (60, 2))
    answers = dprl.Bandit.answers

    def recorded(self: Any, places: np.ndarray, act: Any) -> Any:
        asked.append(places[places >= 0])  # the rest of a block is nobody
        return answers(self, places, act)

    monkeypatch.setattr(dprl.Bandit, "answers", recorded)
    options = {"sampling": "poisson", "steps": 8, "batch": 20, "noise_multiplier": 6.0}
    release = train(dprl.Bandit.of_arrays(*arrays, BOUNDS), users=None, progress=done.append, **options)
    assert done == list(range(1, 9))
    assert len(asked) == 8
    assert len({tuple(places) for places in asked}) == 8
    assert all(len(set(places)) == len(places) for places in asked)
    assert 100 <= sum(map(len, asked)) <= 220  # 160 are expected, and 10 is the standard deviation
    release.save(tmp_path / "p")
    content = verify(tmp_path / "p").content
    assert content["neighbouring_relation"] == "add or remove one"
    assert content["not_protected"] == [*PEOPLE_NOT_PROTECTED, NOBODY_IS_NAMED]
    assert content["event"]["count"] == 8
    assert content["mechanisms"][0]["sampling_rate"] == pytest.approx(1.0 / 3.0)
    assert "asked in every batch" in content["assumed_public"]["reading"]
    assert "some of whom were asked in every batch" in (tmp_path / "p" / "report.html").read_text()
    seeded = [train(dprl.Bandit.of_arrays(*arrays, BOUNDS), users=None, seed=1, **options) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].policy.theta, seeded[1].policy.theta)
    with pytest.raises(dprl.DprlError, match="a log that is read whole"):
        train("cart-pole", **options)


def test_learning_that_diverges_can_be_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "released_parameters", lambda *given: np.full(6, np.nan, np.float32))
    train().save(tmp_path / "p")
    assert verify(tmp_path / "p").private
    assert not dprl.load_policy(str(tmp_path / "p")).theta.any()  # type: ignore[union-attr]


def test_a_released_policy_can_be_evaluated(released, tmp_path):
    """It is a target policy like any other, by the name of its folder."""
    _, folder, _ = released
    draws = np.random.default_rng(2)
    log = {
        "observation": draws.uniform(-1.0, 1.0, (80, 2)), "action": draws.integers(0, 2, 80),
        "reward": draws.uniform(0.0, 1.0, 80), "behavior_prob": np.full(80, 0.5),
    }  # fmt: skip
    bounds = BOUNDS | {"units": 80, "horizon": 1, "max_importance_ratio": 2}
    release = dprl.evaluate(
        log, str(folder), dprl.Budget(1.0, 1e-5), algorithm=dprl.ImportanceSampling(), bounds=bounds, seed=1
    )
    assert list(release.values) == ["p"]
    with pytest.raises(dprl.DprlError, match="shape"):
        dprl.evaluate(log, str(folder), dprl.Budget(1.0, 1e-5), bounds=bounds | {"actions": 3})


@pytest.mark.slow
def test_as_published_is_a_statement_without_a_claim(tmp_path):
    for users in ("linear-bandit", Shop().stream):
        release = train(users, calibration="as-published", steps=None)
        folder = tmp_path / type(users).__name__
        release.save(folder)
        found = verify(folder)
        assert (found.private, found.epsilon) == (False, None)
        content = found.content
        assert (content["status"], content["event"], content["mechanisms"]) == ("as published", None, [])
        assert not all(c["holds"] for c in content["assumed_public"]["preconditions"])
        assert "this does not hold here" in (folder / "report.html").read_text()


# --- simulators and Gymnasium -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ("linear-bandit", {"noise": "independent", "release": "uniform", "relation": "replace-one"}),
        ("pendulum", {"release": "average", "users": 40, "steps": 2}),
        (LinearBandit(arms=2, size=3), {"interactions": 2, "natural": True, "noise": "banded:2"}),
    ],
)
def test_simulators(tmp_path, environment, options):
    release = train(environment, **options)
    release.save(tmp_path / "p")
    found = verify(tmp_path / "p")
    assert found.private
    assert found.content["neighbouring_relation"] == ("replace one" if "relation" in options else RELATION)
    if not isinstance(environment, str):  # who stands behind it is not known here
        assert (release.training["returns"], release.training["curve"]) == (None, None)
        release = train(environment, simulated=True, **options)
        release.save(tmp_path / "s")
    training = release.training
    assert set(training["returns"]) == {"learned", "learned, likeliest actions", "before learning"}
    assert training["curve"]["users"][-1] == training["users"]
    folder = tmp_path / ("p" if isinstance(environment, str) else "s")
    page = (folder / "report.html").read_text()
    assert "public simulator" in page
    assert ("mean action" in page) == (environment == "pendulum")
    again: Any = dprl.load_policy(str(folder))
    states = np.zeros((3, len(training["environment"]["observation"])))
    np.testing.assert_array_equal(again.greedy(states), release.policy.greedy(states))
    assert again.sample(states, 1).shape == again.greedy(states).shape


@pytest.mark.slow
def test_cart_pole_is_learned():
    """2,000 people at epsilon 1."""
    release = dprl.train("cartpole", BUDGET, algorithm=dprl.DPPG(users=2000))
    assert release.training["status"] == "verified"
    assert release.training["returns"]["learned, likeliest actions"] >= 475.0


@pytest.mark.slow
def test_gymnasium(tmp_path):
    pytest.importorskip("gymnasium")
    bounds = {
        "units": 60, "horizon": 40, "reward": (0.0, 1.0), "actions": 2,
        "observation": ((-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.0, 3.0)),
    }  # fmt: skip
    release = train("gymnasium:CartPole-v1", bounds=bounds)
    release.save(tmp_path / "p")
    assert verify(tmp_path / "p").private
    first, second = (train("gymnasium:CartPole-v1", bounds=bounds, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.policy.theta, second.policy.theta)
    with pytest.raises(dprl.DprlError, match="has 2 discrete actions"):
        train("gymnasium:CartPole-v1", bounds=bounds | {"actions": 3})
    with pytest.raises(dprl.DprlError, match="lists 1 components"):
        train("gymnasium:CartPole-v1", bounds=bounds | {"observation": [[0, 1]]})


def test_the_released_policy_is_the_last_iterate_sharpened():
    releases = [train(Shop().stream, seed=4, sharpness=most) for most in (1.0, 3.0)]
    plain, sharp = (release.policy for release in releases)
    np.testing.assert_allclose(sharp.theta, sharpened(plain.parametric, jnp.asarray(plain.theta), 3.0), rtol=1e-6)
    assert np.any(sharp.theta != plain.theta)
    said = ["multiplied by at most 3" in release.certificate["released"] for release in releases]
    assert said == [False, True]


def test_one_weight_that_is_no_number_does_not_take_the_others_along(monkeypatch):
    ran = trainer.run_on_host

    def broken(*given: Any, **named: Any) -> Any:
        state, history = ran(*given, **named)
        return state._replace(theta=state.theta.at[0].set(jnp.nan)), history

    monkeypatch.setattr(trainer, "run_on_host", broken)
    found = train(Shop().stream, seed=4, sharpness=3.0).policy.theta
    assert found[0] == 0.0
    assert found.shape == (6,)
    assert np.all(found[1:] != 0.0)


def test_continuous_actions_are_not_sharpened():
    with pytest.raises(dprl.DprlError, match="continuous actions have no preferences"):
        dprl.train("pendulum", BUDGET, algorithm=dprl.DPPG(users=60, steps=3, sharpness=2.0))
