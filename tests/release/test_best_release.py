"""The best of several policies through the front door: one charge, one choice, one value, and a certificate of both."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.accounting import verification
from dprl.data.partition import partition
from dprl.errors import DprlError
from dprl.mechanisms.noisy_maximum import NoisyMaximum
from dprl.report.evaluation import evaluation_view
from dprl.report.fields import Fields

from ..resealed import resealed
from ..sample_log import BOUNDS, columns, write_parquet
from .resumable import BUDGET, Trial, bounds_file, refused_before_the_charge

SAMPLING = dprl.ImportanceSampling()


def tilted(number: int):
    def policy(states):
        return np.tile([1.0 - number / 10.0, number / 10.0], (len(states), 1))

    policy.__name__ = f"tilted_{number}"
    return policy


POLICIES = [tilted(number) for number in (2, 5, 8)]


def release(**changes) -> dprl.Release:
    options = {
        "log": columns(), "target_policy": POLICIES, "budget": dprl.Budget(8.0, 1e-3), "bounds": BOUNDS,
        "person": "person_id", "algorithm": SAMPLING, "best": True,
    }  # fmt: skip
    return dprl.evaluate(**options | changes)


@pytest.mark.parametrize("algorithm", [SAMPLING, dprl.Recommended()])
def test_the_winner_alone_is_valued_and_both_are_certified(algorithm, tmp_path):
    found = release(algorithm=algorithm)
    assert list(found.values) == [found.chosen]
    assert found.chosen in {"tilted_2", "tilted_5", "tilted_8"}
    assert [target["name"] for target in found.estimate["targets"]] == [found.chosen]
    found.save(tmp_path / "out")
    verified = verification.verify(tmp_path / "out")
    assert verified.private
    assert verified.epsilon == 8.0
    content = verified.content
    assert content["event"]["type"] == "Parallel"
    assert content["event"]["events"][0] == {"type": "Pure", "epsilon": 8.0}
    assert content["mechanisms"][0]["candidates"] == 3
    assert content["assumed_public"]["bounds"]["units"] == BOUNDS.units  # of all, not of a part
    assert content["assumed_public"]["policies"] == ["tilted_2", "tilted_5", "tilted_8"]
    assert content["released"].startswith("Which of 3 policies the people of one part chose.")
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{found.chosen}</bdi></strong> was chosen from 3 policies" in page
    assert "not proven to be the best" in page


def test_nothing_of_the_losers_is_released(tmp_path):
    found = release()
    said = json.dumps(found.estimate) + json.dumps(found.certificate["mechanisms"])
    losers = {"tilted_2", "tilted_5", "tilted_8"} - {found.chosen}
    assert not any(loser in said for loser in losers)
    assert "scores" not in said


def test_of_one_policy_it_is_the_ordinary_release():
    one, other = (release(target_policy=POLICIES[:1], best=best, seed=3) for best in (True, False))
    assert one.estimate == other.estimate
    assert one.chosen is None
    strip = [{k: v for k, v in r.certificate.items() if k != "created"} for r in (one, other)]
    assert strip[0] == strip[1]


def test_a_mapping_a_file_and_a_column_can_be_chosen_from(tmp_path):
    file = tmp_path / "policies.py"
    file.write_text(
        "import numpy as np\n"
        "def _of(p):\n    return lambda states: np.tile([1.0 - p, p], (len(states), 1))\n"
        "RULES = [_of(p / 10) for p in range(1, 10)]\n"
        "NAMED = {'never': _of(0.0), 'always': _of(1.0)}\n"
    )
    assert release(target_policy=f"{file}:RULES").chosen in {f"RULES_{k}" for k in range(9)}
    found = release(target_policy=[f"{file}:NAMED", "uniform", "column"], simulated=True)
    assert found.chosen in {"never", "always", "uniform", "target_prob"}
    assert found.estimate["choice"]["of"] == 4
    assert dprl.evaluate(
        columns(), f"{file}:NAMED", BUDGET, bounds=BOUNDS, algorithm=SAMPLING, seed=1
    ).values.keys() == {"never", "always"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_policy": []}, r"^Name at least one target policy\.$"),
        ({"target_policy": [POLICIES[0], POLICIES[0]]}, "are one and the same: name it once"),
        ({"target_policy": ["uniform", "uniform"]}, "are one and the same: name it once"),
        (
            {"target_policy": [tilted(5) for _ in range(1001)]},
            "at most 1000 policies fit in one choice; these are 1001",
        ),
        ({"compare": ["all"]}, "no other to compare it with"),
        ({"best": False, "choosing_share": 0.5}, "choosing_share is for a choice among policies"),
        ({"choosing_share": 1.0}, "choosing_share must be a share"),
        ({"algorithm": dprl.DoublyRobust()}, "has no intervals for a part of the people"),
    ],
)
def test_what_contradicts_itself_is_refused_before_the_charge(changes, words, tmp_path):
    refused_before_the_charge(tmp_path, words, release, budget=BUDGET, **changes)


def test_a_log_in_parts_is_refused(tmp_path):
    partition(write_parquet(columns(), tmp_path / "log.parquet"), "person_id", 2, tmp_path / "parts")
    with pytest.raises(DprlError, match="best: a log in parts"):
        release(log=tmp_path / "parts", person=None)


@pytest.mark.parametrize("algorithm", [SAMPLING, dprl.Recommended()])
@pytest.mark.parametrize("people", [0, 1, 2])
def test_a_part_without_anybody_is_released_all_the_same(people, algorithm):
    log = columns(people) if people else {name: values[:0] for name, values in columns(1).items()}
    found = release(log=log, algorithm=algorithm, seed=people)
    assert found.chosen in {"tilted_2", "tilted_5", "tilted_8"}
    assert np.isfinite(found.value)


# --- resumed ----------------------------------------------------------------------------------------------------------


def test_a_choice_that_was_made_is_never_made_again(tmp_path, monkeypatch):
    """Interrupted after the choice: the run goes on with it, for one charge, and comes to the same end."""
    trial = Trial(tmp_path / "trial")
    asked = {"target_policy": POLICIES, "algorithm": dprl.GPOPE(steps=5), "best": True}
    trial.stop_after(2, **asked)
    made = []
    original = NoisyMaximum.choose

    def choose(*args):
        made.append(1)
        return original(*args)

    monkeypatch.setattr(NoisyMaximum, "choose", choose)
    found = trial.evaluate(**asked)
    assert not made
    found.save(trial.out)
    assert len(trial.ledger.history()) == 1
    assert verification.verify(trial.out).private


def test_a_run_goes_on_with_its_own_policies_alone(tmp_path):
    trial = Trial(tmp_path / "trial")
    asked = {"algorithm": dprl.GPOPE(steps=5), "best": True}
    trial.stop_after(2, target_policy=POLICIES, **asked)
    gc.collect()
    others = [*POLICIES[:2], tilted(7)]
    others[2].__name__ = "tilted_8"  # of the same name, and another policy
    with pytest.raises(DprlError, match="cannot be resumed"):
        trial.evaluate(target_policy=others, **asked)
    with pytest.raises(DprlError, match="cannot be resumed"):
        trial.evaluate(target_policy=POLICIES, choosing_share=0.3, **asked)


# --- what verify refuses ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "out"
    release().save(folder)
    return folder


def of_row(make):
    return lambda content: content["mechanisms"][0].update(make(content["mechanisms"][0]))


def of_event(make):
    return lambda content: content["event"].update(make(content["event"]))


def of_both(make):
    """Of the event's parts and of the mechanisms' rows alike."""

    def change(content):
        content["event"]["events"] = make(content["event"]["events"])
        content["mechanisms"] = make(content["mechanisms"])

    return change


def more(content):
    content["mechanisms"][0]["epsilon"] = content["event"]["events"][0]["epsilon"] = 8.1


def another_share(content):
    content["assumed_public"]["hyper_parameters"]["choosing_share"]["value"] = 0.9


CHANGES = {
    "a larger rate": of_row(lambda row: {"rate": row["rate"] * 1.0001}),
    "a larger spread": of_row(lambda row: {"spread": row["spread"] * 2}),
    "half of the epsilon": of_row(lambda row: {"epsilon": 4.0, "rate": row["rate"] / 2.0}),
    "more epsilon": more,
    "a point": of_row(lambda row: {"spread": 1, "rate": 1.0}),
    "fewer candidates": of_row(lambda row: {"candidates": row["candidates"] - 1}),
    "another field": of_row(lambda row: {"steps": 1}),
    "nested": of_event(lambda event: {"events": [event["events"][0], dict(event)]}),
    "composed": of_event(lambda event: {"type": "Composed"}),
    "one part": of_both(lambda parts: parts[:1]),
    "more parts": of_both(lambda parts: [*parts, parts[1]]),
    "no choice": of_both(lambda parts: parts[1:] * 2),
    "exchanged": lambda content: content["mechanisms"].reverse(),
    "fewer policies": lambda content: content["assumed_public"]["policies"].pop(),
    "another share": another_share,
    "another relation": lambda content: content.update(neighbouring_relation="replace one"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_certificate_that_states_less_is_refused(change, saved, tmp_path):
    folder = resealed(saved, tmp_path / "out", CHANGES[change])
    with pytest.raises(DprlError):
        verification.verify(folder)


def test_an_untouched_one_is_not(saved, tmp_path):
    assert verification.verify(resealed(saved, tmp_path / "out", lambda content: None)).private


def test_of_people_who_may_be_lost():
    """Those who choose and those who value are cut out of the log with their chances of staying."""
    each = np.ones(len(columns()["reward"]))
    lost = columns() | {"censored": 0.0 * each, "uncensored_prob": 0.9 * each}
    found = release(log=lost, bounds=replace(BOUNDS, max_importance_ratio=2.0 * BOUNDS.max_importance_ratio))
    assert found.chosen in found.values


# --- the command line -------------------------------------------------------------------------------------------------


def test_plan_and_evaluate(tmp_path, said):
    log, file = write_parquet(columns(), tmp_path / "log.parquet"), tmp_path / "policies.py"
    file.write_text(
        "import numpy as np\n"
        "RULES = [lambda s, p=p: np.tile([1.0 - p / 10, p / 10], (len(s), 1)) for p in range(1, 10)]\n"
    )
    common = [
        log, "--bounds", bounds_file(tmp_path, BOUNDS), "--target-policy", f"{file}:RULES", "--best", "--algorithm",
        "importance-sampling", "--epsilon", "8", "--delta", "1e-3", "--person-column", "person_id",
    ]  # fmt: skip
    planned = "\n".join(said("plan", *common))
    assert "noisy maximum of 9 scores at epsilon 8" in planned
    assert "about 24 units choose, 36 value" in planned
    first, second, *_ = said("evaluate", *common, "--out", tmp_path / "out")
    chosen = json.loads((tmp_path / "out" / "estimate.json").read_text())["choice"]["policy"]
    assert first == (
        f"chosen of 9 policies: {chosen}. It is the chosen one, not proven the best; of the others nothing is released."
    )
    assert second.startswith(chosen)
    said("verify", tmp_path / "out")


def test_the_report_says_how_the_policy_was_chosen():
    view = evaluation_view(Fields(release().estimate), Fields(), "people")
    assert view["choice"] == {"of": "3", "choose": "24", "value": "36"}
