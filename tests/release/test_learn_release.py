"""A rule learned from a log through the front door: chosen by some, valued by others, and said in one sentence."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.accounting.budget import Budget
from dprl.bounds import Bounds
from dprl.data.partition import partition
from dprl.errors import DprlError
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.mechanisms.noise import SeededNoise
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.policies.loading import AlwaysPolicy
from dprl.policies.rules import Rule
from dprl.report.comparisons import learned_words

from ..resealed import reseal
from ..sample_log import write_parquet
from .resumable import Learning, fix_key, on_the_command_line, refused, refused_before_the_charge

PEOPLE = 3_000
BOUNDS = Bounds(
    units=PEOPLE, horizon=1, reward=(0.0, 1.0), observation=((20.0, 80.0), (1.0, 4.0)), actions=2,
    observation_names=("age", "site"), max_importance_ratio=2.0,
)  # fmt: skip
AMPLE, SAMPLING = Budget(5.0, 1e-5), dprl.ImportanceSampling()


def columns(gain: float = 0.4, seed: int = 0, people: int = PEOPLE) -> dict[str, np.ndarray]:
    """Until an age of 50 the second action pays, and afterwards the first."""
    rng = np.random.default_rng(seed)
    age, action = rng.uniform(20.0, 80.0, people), rng.integers(0, 2, people)
    reward = (rng.random(people) < 0.3 + gain * (action == (age < 50.0))).astype(float)
    return {
        "person_id": np.arange(people), "t": np.zeros(people, int), "observation_0": age,
        "observation_1": rng.integers(1, 5, people), "action": action, "reward": reward,
        "behavior_prob": np.full(people, 0.5), "terminated": np.ones(people, bool),
    }  # fmt: skip


def learned(log=None, budget=AMPLE, **options) -> dprl.Release:
    return dprl.learn(columns() if log is None else log, budget, **{"bounds": BOUNDS, **options})


@pytest.fixture(scope="module")
def ample():
    return learned(seed=1)


def test_with_ample_budget_it_is_the_best_rule_valued_by_importance_sampling_on_the_others(ample):
    found, log = ample, columns()
    assert found.chosen == "action 1 where age < 50; else action 0"
    valued = dprl.read_log(log, bounds=BOUNDS).load(None)
    plan = plan_of_learned(dprl.ImportanceSampling(), BOUNDS, AMPLE)
    second = ~plan.first.split.in_first(SeededNoise.from_seed(1), valued.units)
    same = found.policy.action(valued.observation) == valued.action
    expected = 0.5 * plan.bounds.units + np.sum(second * same * (valued.reward - 0.5) / 0.5)
    error = found.values["the learned rule"].privacy_standard_error
    assert abs(found.value - expected / plan.bounds.units) < 5.0 * error
    low, high = found.contrasts[0]["simultaneous_interval"]
    assert low < 0.2 < high
    assert low > 0.1


def test_the_rule_is_a_file_that_an_evaluation_reads_back(tmp_path):
    found = learned(person="person_id")
    paths = found.save(tmp_path / "out")
    assert set(paths) == {"estimate.json", "policy.json", "report.html", "certificate.json"}
    verified = verification.verify(tmp_path / "out")
    assert verified.private
    assert verified.epsilon == 5.0
    rules = verified.content["assumed_public"]["rules"]
    assert rules["levels"]["one action for everybody"] == 2
    assert rules["cuts"]["site"] == [1.5, 2.5, 3.5]
    assert dprl.load_policy(tmp_path / "out") == found.policy
    again = dprl.evaluate(
        columns(seed=1), [str(tmp_path / "out"), "logged"], AMPLE, bounds=BOUNDS, algorithm=SAMPLING, compare=["all"]
    )
    assert list(again.values) == ["out", "logged"]
    assert abs(again.values["logged"].value - 0.5) < 0.05
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("The learned rule, action 1 where age &lt; 50; else action 0, is worth") < page.index(
        "Worth means"
    )
    assert '<div class="tree">' in page


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "out"
    learned(cuts=["site"], budget=Budget(0.3, 1e-5)).save(folder)
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"levels": [2]}, {"levels": {"one": 1000, "two": -2}}, {"levels": {"one": 2.0}}, {"own": True}, {"own": 1},
    ],
)  # fmt: skip
def test_a_class_of_rules_that_cannot_be_is_refused(change, saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "out")
    estimate = json.loads((folder / "estimate.json").read_text())
    estimate["choice"]["rules"].update(change)
    (folder / "estimate.json").write_text(json.dumps(estimate))
    reseal(folder, lambda content: content["assumed_public"]["rules"].update(change))
    with pytest.raises(DprlError, match="The choice in the release of"):
        verification.verify(folder)


def test_actions_are_called_what_the_bounds_call_them(tmp_path):
    """In words, in the file, in the names of what was valued beside, and in the picture."""
    found = learned(bounds=replace(BOUNDS, action_names=("placebo", "drug A & drug B")), seed=1)
    assert found.chosen == "drug A & drug B where age < 50; else placebo"
    assert list(found.values) == ["the learned rule", "logged", "always_placebo", "always_drug A & drug B"]
    found.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "policy.json").read_text())["words"] == found.chosen
    assert dprl.load_policy(tmp_path / "out") == found.policy
    page = (tmp_path / "out" / "report.html").read_text()
    saved = json.loads((tmp_path / "out" / "estimate.json").read_text())
    assert learned_words(saved)["cases"] == [(["age < 50"], "drug A & drug B"), (["age >= 50"], "placebo")]
    assert page.count("drug A &amp; drug B where age &lt; 50; else placebo") >= 1
    assert "→ <bdi>drug A &amp; drug B</bdi>" in page
    assert "action 1" not in page


def test_where_nothing_is_better_the_first_line_says_so():
    found = learned(columns(gain=0.0), Budget(1.0, 1e-5), seed=2)
    said = learned_words(dict(found.estimate))
    assert said["lead"].startswith("This release does not show that the learned rule is better than what was done")
    assert not said["better"]


def test_one_action_for_everybody_is_not_compared_with_itself():
    """So few people that only fixed actions are looked for."""
    bounds = replace(BOUNDS, units=300)
    log = columns(people=300)
    log["reward"] = (log["action"] == 1).astype(float)
    found = dprl.learn(log, Budget(0.3, 1e-4), bounds=bounds, seed=1)
    assert found.chosen == "action 1 for everybody"
    assert isinstance(found.policy, Rule)
    assert [c["against"] for c in found.contrasts] == ["logged", "always_0"]
    best = found.estimate["choice"]["less_best_action"]
    assert best["value"] == 0.0
    assert best["simultaneous_interval"] == [0.0, 0.0]
    said = learned_words(dict(found.estimate))
    assert said["against_best"].startswith("It is the same for everybody, and worth more than any other")
    assert "were not looked for" in said["why"]
    assert said["cases"] == [([], "action 1")]


def test_what_the_rule_is_worth_more_than_the_best_action_is_the_smallest_difference(ample):
    fixed = [c for c in ample.contrasts if c["against"].startswith("always")]
    best = ample.estimate["choice"]["less_best_action"]
    assert best["value"] == min(c["value"] for c in fixed)
    for end in (0, 1):
        assert best["simultaneous_interval"][end] == min(c["simultaneous_interval"][end] for c in fixed)


def test_actions_that_were_not_valued_are_said_not_to_have_been(ample):
    """The behaviour policy hardly ever takes the third: nobody knows whether it is better for everybody."""
    chances = {"behavior_policy": lambda states: np.tile([0.495, 0.495, 0.01], (len(states), 1))}
    log = columns()
    del log["behavior_prob"]
    found = learned(log, bounds=replace(BOUNDS, actions=3, max_importance_ratio=2.1), seed=1, **chances)
    assert "always_2" not in found.values
    said = " Of 3 actions for everybody only 2 could be valued."
    assert learned_words(dict(found.estimate))["against_best"].endswith(said)
    assert said not in learned_words(dict(ample.estimate))["against_best"]


def test_policies_of_your_own_are_chosen_from_as_well(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import numpy as np\n"
        "def by_age(s):\n    return np.eye(2)[((s[:, 0] < 50) != (s[:, 1] > 9)).astype(int)] * 0.5 + 0.25\n"
    )
    found = learned(policies=[f"{file}:by_age"], cuts=["site"], seed=1)
    assert found.chosen == "by_age"
    assert found.policy(np.array([[30.0, 1.0]])).tolist() == [[0.25, 0.75]]
    assert "policy.json" not in found.files
    assert learned_words(dict(found.estimate))["cases"] == []


def walks(people: int, steps: int) -> dict[str, np.ndarray]:
    """The second action pays."""
    rng, rows = np.random.default_rng(0), people * steps
    action, who = rng.integers(0, 2, rows), np.repeat(np.arange(people), steps)
    return {
        "person_id": who, "episode_id": who, "t": np.tile(np.arange(steps), people), "observation": rng.random(rows),
        "action": action, "reward": action.astype(float), "behavior_prob": np.full(rows, 0.5),
        "terminated": np.tile(np.arange(steps) == steps - 1, people),
    }  # fmt: skip


STEPS = Bounds(units=PEOPLE, horizon=3, reward=(0, 1), observation=((0, 1),), actions=2, max_importance_ratio=2.0)


def test_over_several_steps_the_rule_is_compared_with_what_was_done():
    found = dprl.learn(walks(PEOPLE, 3), AMPLE, bounds=STEPS, person="person_id", seed=1, learner="rules")
    assert list(found.values) == ["the learned rule", "logged"]
    assert found.chosen == "action 1 for everybody"
    assert found.contrasts[0]["sign"] == 1
    assert "less_best_action" not in found.estimate["choice"]


def test_where_people_are_lost_those_who_stay_stand_for_them():
    log = walks(PEOPLE, 1)
    log["censored"] = np.random.default_rng(1).random(PEOPLE) < 0.2
    bounds = replace(STEPS, horizon=1, max_importance_ratio=2.5, censoring_hazard=0.2)
    found = dprl.learn(log, AMPLE, bounds=bounds, person="person_id", seed=1)
    assert found.chosen == "action 1 for everybody"
    opened = dprl.read_log(log, bounds=bounds, person="person_id").load(None)  # which says as well who was lost
    assert dprl.learn(opened, AMPLE, seed=1).values == found.values
    for name, value in (("the learned rule", 1.0), ("logged", 0.5), ("always_0", 0.0)):
        low, high = found.values[name].interval
        assert low <= value <= high


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cuts": ["income"]}, "cuts: there is no component 'income'"),
        ({"cuts": {"age": [30, 50]}}, "cuts must be a list of texts"),
        ({"algorithm": dprl.Recommended()}, "values are by importance sampling"),
        ({"policies": "nobody"}, "Unknown policy 'nobody'"),
        ({"behavior_policy": "column"}, "is a function of states"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_charge(changes, words, tmp_path):
    refused_before_the_charge(tmp_path, words, learned, budget=Budget(1.0, 1e-5), **changes)


def test_a_log_in_parts_is_refused(tmp_path):
    partition(write_parquet(columns(), tmp_path / "log.parquet"), "person_id", 2, tmp_path / "parts")
    with pytest.raises(DprlError, match="learn: a log in parts"):
        learned(tmp_path / "parts")


def test_the_command_line_learns_and_evaluates(tmp_path, said):
    arguments, out = [*on_the_command_line(tmp_path, columns(), BOUNDS, 5), "--cuts", "age:30,50"], tmp_path / "out"
    planned = said("plan", *arguments, "--learn")
    assert planned[1].startswith("choice of a policy: noisy maximum of ")
    assert sum(line.startswith("the learned rule less ") for line in planned) == 3
    first, second, *_ = said("learn", *arguments, "--out", out)
    assert first.startswith("The learned rule, action 1 where age < 50; else action 0, is worth ")
    assert second.startswith("It is worth ")
    assert json.loads((out / "policy.json").read_text())["words"] == "action 1 where age < 50; else action 0"


def test_the_logged_behaviour_is_worth_what_was_paid():
    found = dprl.evaluate(columns(), "logged", AMPLE, bounds=BOUNDS, algorithm=SAMPLING, seed=1)
    assert abs(found.value - columns()["reward"].mean()) < 5.0 * found.values["logged"].privacy_standard_error
    both = dprl.evaluate(
        columns(), ["logged", "always:1"], AMPLE, bounds=BOUNDS, algorithm=SAMPLING, compare=["all"], seed=1
    )
    assert isinstance(dprl.load_policy("always:1", 2), AlwaysPolicy)
    assert both.contrasts[0]["policy"] == "always_1"


# --- resumed ----------------------------------------------------------------------------------------------------------


def _own(young: int):
    def policy(states):
        return np.eye(2)[np.where(states[:, 0] < 30.0, young, 1 - young)]

    policy.__name__ = "own"
    return policy


def request(folder):
    return Learning(folder, columns(), partial(learned, budget=Budget(4.0, 1e-5), policies=[_own(1)]))


@pytest.fixture
def trial(tmp_path, monkeypatch):
    fix_key(monkeypatch)
    return request(tmp_path / "trial")


def test_interrupted_after_the_choice_it_comes_to_the_same_end(trial, tmp_path, monkeypatch):
    whole = request(tmp_path / "whole")
    whole.finish()
    trial.stop_before_values()
    assert (trial.run / "journal").stat().st_size == 16 + 8 + 32  # stream and step, which rule, and what seals it
    with monkeypatch.context() as patch:
        patch.setattr(NoisyMaximum, "choose", None)  # the choice was made, and is not made again
        trial.finish()
    assert trial.contents() == whole.contents()
    assert "policy.json" in trial.contents()
    assert len(trial.ledger.history()) == 1
    assert verification.verify(trial.out).private


def test_it_goes_on_with_the_same_rows_policies_and_rules_alone(trial):
    trial.stop_before_values()
    other, moved = columns(), columns()
    other["reward"][7] = 1.0 - other["reward"][7]
    moved["observation_0"][7] = 100.0 - moved["observation_0"][7]
    for log in (other, moved):
        refused(trial, "cannot be resumed: it was begun on other data", log=log)
    refused(trial, "cannot be resumed: it was begun on other data", policies=[_own(0)])
    for changes in ({"policies": []}, {"cuts": ["age:30"]}, {"choosing_share": 0.5}, {"return_deviation": 0.5}):
        refused(trial, "cannot be resumed: the request is another one", **changes)
    trial.finish()
    assert len(trial.ledger.history()) == 1
