"""``dprl calibrate``: one mechanism alone, and every stage of a release with any algorithm."""

from __future__ import annotations

import json
import math
import re

import pytest

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.calibration import gaussian_noise_multiplier, noise_multiplier_for
from dprl.registry import evaluation_entries
from dprl_papers.first_sum import initial_release_epsilon
from dprl_papers.paper_000_dptd.privacy import JOINT

BUDGET = ["--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture
def calibrate(dprl):
    """``dprl calibrate ARGUMENTS``: what it prints."""
    return lambda *arguments: dprl("calibrate", *arguments).done().out


# --- one mechanism alone ------------------------------------------------------------------------------------------


def test_an_object_says_all(calibrate):
    sampled = ["--delta", "1e-5", "--sampling-rate", "0.1", "--steps", "20", "--json"]
    found = json.loads(calibrate("gpope", "--epsilon", "0.1", *sampled))
    assert list(found) == ["noise_multiplier", "epsilon", "delta", "event", "relation", "accountant"]

    def event(multiplier: float):
        return events.poisson_gaussian(0.1, multiplier, 20)

    assert found["noise_multiplier"] == noise_multiplier_for(event, Budget(0.1, 1e-5))
    assert events.from_json(found["event"]) == event(found["noise_multiplier"])
    assert (found["epsilon"], found["delta"], found["relation"]) == (0.1, 1e-5, "add or remove one")
    assert found["accountant"].startswith("dp_accounting 0.6.0 PLDAccountant")
    back = json.loads(calibrate("gpope", "--noise-multiplier", repr(found["noise_multiplier"]), *sampled))
    assert 0.0999 < back["epsilon"] <= 0.1
    assert {**back, "epsilon": 0.1} == found


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        (["importance-sampling"], events.gaussian),
        (["dptd", "--sampling-rate", "1", "--steps", "4"], lambda x: events.poisson_gaussian(1.0, x, 4)),
        (["gpope", "--sampling-rate", "1", "--steps", "4"], lambda x: events.poisson_gaussian(1.0, x, 4)),
    ],
)
def test_a_multiplier_may_be_typed_back(calibrate, asked, event):
    shown = re.match(r"noise multiplier (\S+) ", calibrate(*asked, *BUDGET))
    assert shown
    assert epsilon_of(event(float(shown[1])), 1e-5) <= 1.0
    alone = gaussian_noise_multiplier(Budget(1.0, 1e-5)) * (1.0 if asked[0] == "importance-sampling" else 2.0)
    assert float(shown[1]) == pytest.approx(alone, rel=1e-4)


# --- a release ----------------------------------------------------------------------------------------------------


def options(name: str) -> list[str]:
    if getattr(evaluation_entries()[name].load_config(), "neural", False):
        return ["--features", "mlp:3", "--sampling-rate", "1"]
    return ["--features", "tabular"] if name in ("noisy-counts", "first-visit") else []


@pytest.fixture
def bounds(tmp_path):
    path = tmp_path / "bounds.toml"
    facts = ["units = 500", "horizon = 3", "reward = [0.0, 1.0]", "observation = [[0.0, 4.0]]", "actions = 2"]
    path.write_text("\n".join([*facts, "max_importance_ratio = 2.0", "max_cumulative_ratio = 4.0"]))
    return path


# where a product of ratios need not be cut, or is not asked for
INSTEAD = {"stratified": "strata = []", "survival": "", "best-linear-projection": ""}


@pytest.mark.parametrize("name", evaluation_entries())
def test_every_algorithm_spends_its_budget_in_the_shares_that_are_said(calibrate, bounds, name):
    if name in INSTEAD:
        bounds.write_text(bounds.read_text().replace("max_cumulative_ratio = 4.0", INSTEAD[name]))
    found = json.loads(calibrate(name, *BUDGET, "--bounds", bounds, *options(name), "--json"))
    event = events.from_json(found["event"])
    assert found["epsilon_of_event"] == epsilon_of(event, found["delta_of_event"])
    assert 0.99 < found["epsilon_of_event"] <= found["epsilon"] == 1.0
    stages = found["stages"]
    composed = [events.poisson_gaussian(s["sampling_rate"], s["noise_multiplier"], s["steps"]) for s in stages]
    assert epsilon_of(events.compose(composed), found["delta_of_event"]) == found["epsilon_of_event"]
    assert sum(s["share"] for s in stages) == pytest.approx(1.0)
    # of k steps of a Gaussian with multiplier z, mu^2 is k / z^2
    whole = 1.0 / gaussian_noise_multiplier(Budget(1.0, found["delta_of_event"])) ** 2
    for stage in stages:
        assert stage["sampling_rate"] == 1.0
        assert stage["steps"] / stage["noise_multiplier"] ** 2 == pytest.approx(stage["share"] * whole, rel=1e-3)


def test_the_release_is_the_one_that_is_planned(dprl, calibrate, bounds):
    asked = ["--bounds", bounds, *BUDGET, "--set", "value_budget_fraction=0.4", "--set", "discount=0.5", "--json"]
    planned = dprl("plan", "--algorithm", "lstd", *asked).json()
    found = json.loads(calibrate("lstd", *asked))
    names = ("purpose", "noise_multiplier", "sampling_rate", "steps")
    assert [[s[n] for n in names] for s in found["stages"]] == [[m[n] for n in names] for m in planned["mechanisms"]]
    assert found["epsilon_of_event"] == planned["epsilon_of_event"]
    assert [s["share"] for s in found["stages"]] == pytest.approx([0.4, 0.6 * 0.2, 0.6 * 0.8])


def test_stages_in_words(calibrate, bounds):
    asked = ["gpope", *BUDGET, "--bounds", bounds, "--sampling-rate", "0.5", "--steps", "20"]
    found = json.loads(calibrate(*asked, "--json"))
    first, second, cost, accountant = calibrate(*asked).splitlines()
    assert re.fullmatch(
        r"values and intervals: noise multiplier \S+, 1 step at sampling rate 1, 85% of the budget", first
    )
    assert re.fullmatch(
        r"value function: noise multiplier \S+, 20 steps at sampling rate 0.5, 15% of the budget", second
    )
    assert re.match(r"epsilon \S+ of 1, delta 1e-05, add or remove one; ", cost)
    assert accountant == f"accountant: {found['accountant']}"
    for line, stage in zip((first, second), found["stages"], strict=True):
        shown = float(line.partition("noise multiplier ")[2].partition(",")[0])
        assert stage["noise_multiplier"] <= shown <= stage["noise_multiplier"] * (1.0 + 1e-5)


def test_actions_may_be_continuous(calibrate, bounds):
    bounds.write_text(bounds.read_text().replace("actions = 2", "action = [[0.0, 1.0]]"))
    assert calibrate("constant", *BUDGET, "--bounds", bounds).count("\n") == 4


def test_a_paper_s_formula_is_shown_with_what_it_lacks(calibrate, bounds):
    """Theorem 1 of paper 004; in closed form the epsilon of its first step alone."""
    asked = ["--set", "calibration=as-published", "--steps", "60", "--bounds", bounds, "--json"]
    found = json.loads(calibrate("gpope", *BUDGET, *asked))
    sigma = found["noise_multiplier"]
    assert sigma == pytest.approx(2.0 * math.sqrt(60 * math.log(1e5)) / 500)
    alone = initial_release_epsilon(500, sigma, JOINT, 1e-5)
    assert 1.0 < found["epsilon_at_least"] == alone
    lines = calibrate("gpope", *BUDGET, *asked[:-1]).splitlines()
    assert [line.endswith("does not hold here") for line in lines] == [False, False, True, True, False]
    shown = float(lines[-1].partition("at least ")[2].partition(",")[0])
    assert found["epsilon_at_least"] - 0.001 <= shown <= found["epsilon_at_least"]


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["importance-sampling", *BUDGET, "--noise-multiplier", "1"], "Give either --epsilon"),
        (["importance-sampling", *BUDGET, "--steps", "2"], "one release over all units"),
        (["importance-sampling", "--noise-multiplier", "0.001", "--delta", "1e-5"], "too small"),
        (["td", *BUDGET], "td is calibrated stage by stage"),
        (["gpope", *BUDGET, "--set", "steps=3"], "give --bounds too"),
        (["importance-sampling", *BUDGET, "--features", "tabular"], "give --bounds too"),
        (["td", "--delta", "1e-5", "--bounds", "BOUNDS"], "give --epsilon"),
        (["gpope", *BUDGET, "--noise-multiplier", "9", "--bounds", "BOUNDS"], "no --noise-multiplier"),
        (["constant", *BUDGET, "--steps", "9", "--bounds", "BOUNDS"], "steps"),
        (["td", *BUDGET, "--bounds", "missing.toml"], "missing.toml"),
    ],
)
def test_refuses(dprl, bounds, arguments, sentence):
    dprl("calibrate", *(bounds if a == "BOUNDS" else a for a in arguments)).refused(sentence)


# --- learning -----------------------------------------------------------------------------------------------------


def test_learning_is_calibrated_in_its_environment(calibrate, dprl):
    """One mechanism with all of the budget; and back, what a multiplier costs."""
    learning = ["functional-q", "--delta", "1e-4", "--set", "people=100", "--set", "variant=functional"]
    found = json.loads(calibrate(*learning, "--epsilon", "0.9", "--json"))
    assert found["relation"].startswith(
        "reward functions of the state in which the action is taken, at most 0.005 apart"
    )
    assert found["std"] == pytest.approx(found["noise_multiplier"] * found["sensitivity"])
    assert found["sensitivity"] == pytest.approx(math.sqrt(0.005**2 + 0.005 * 0.02))
    assert epsilon_of(events.from_json(found["event"]), found["delta_of_event"]) == found["epsilon"]
    back = json.loads(calibrate(*learning, "--noise-multiplier", repr(found["noise_multiplier"]), "--json"))
    assert back["epsilon"] == pytest.approx(0.9, abs=2e-3)
    assert "noise multiplier" in calibrate("functional-q", *BUDGET, "--set", "reward_radius=0.01")
    for wrong, words in (
        (["functional-q", *BUDGET], "give reward_radius, or people"),
        (["functional-q", *BUDGET, "--steps", "3"], "no sampling rate, steps or features"),
        (["functional-q", "--delta", "1e-5"], "either --epsilon"),
        (["gpope", *BUDGET, "--environment", "interval-walk"], "for what learns in one: functional-q"),
        (["functional-q", *BUDGET, "--set", "calibration=as-published"], "no certificate to calibrate"),
    ):
        dprl("calibrate", *wrong).refused(words)


# --- sums over people who answer once -----------------------------------------------------------------------------


def test_noise_for_people_in_clip_norms_under_either_relation(calibrate, dprl):
    budget = ["dp-pg", "--epsilon", "1", "--delta", "1e-6"]
    found = json.loads(calibrate(*budget, "--json"))
    assert found["noise_multiplier"] == pytest.approx(4.22, rel=0.01)
    assert found["noise_multiplier"] == pytest.approx(gaussian_noise_multiplier(Budget(1.0, 1e-6)), rel=2e-4)
    assert found["std_in_clip_norms"] == {
        "zero out one": found["noise_multiplier"],
        "replace one": 2.0 * found["noise_multiplier"],
    }
    assert found["std_in_clip_norms"]["replace one"] == pytest.approx(8.45, rel=0.01)
    assert (found["relation"], found["noise"]) == ("zero out one", "square-root")
    assert events.from_json(found["event"]) == events.gaussian(found["noise_multiplier"])
    replaced = json.loads(calibrate(*budget, "--set", "relation=replace-one", "--json"))
    assert replaced == found | {"relation": "replace one"}
    printed = calibrate(*budget)
    assert printed.splitlines()[:3] == [
        "noise multiplier 4.22468 (noise standard deviation over sensitivity)",
        "noise standard deviation, zero out one: 4.22468 clip norms; replace one: 8.44936 clip norms",
        "epsilon 1, delta 1e-06, zero out one; each person is in one batch, of however many",
    ]
    back = json.loads(calibrate("dp-pg", "--delta", "1e-6", "--noise-multiplier", "4.22468", "--json"))
    assert 0.9999 < back["epsilon"] <= 1.0
    over = json.loads(calibrate(*budget, "--steps", "100", "--json"))
    assert over["column_norm"] == pytest.approx(1.591, abs=1e-3)
    assert over["error_of_prefix_sums"] <= 0.35
    assert "0.334 times the error" in calibrate(*budget, "--steps", "100")
    sampled = ["--set", "sampling=poisson", "--set", "noise=independent", "--sampling-rate", "0.1", "--steps", "3"]
    again = json.loads(calibrate("dp-pg", "--delta", "1e-6", "--noise-multiplier", "2", *sampled, "--json"))
    assert again["epsilon"] == epsilon_of(events.poisson_gaussian(0.1, 2.0, 3), 1e-6)
    assert (again["relation"], set(again["std_in_clip_norms"])) == ("add or remove one", {"add or remove one"})


def test_noise_for_people_as_published(calibrate, dprl):
    published = ["dp-pg", "--delta", "1e-6", "--set", "calibration=as-published"]
    found = json.loads(calibrate(*published, "--epsilon", "0.5", "--json"))
    assert found["std_in_bounds"] == pytest.approx(math.sqrt(8.0 * math.log(1.25e6)) / 0.5)
    assert found["needed"] == pytest.approx({"replace one": 16.1, "zero out one": 8.06}, rel=0.01)
    assert [c["holds"] for c in found["preconditions"]] == [True, False]
    printed = calibrate(*published, "--epsilon", "1")
    assert "10.5977 times the bound Rmax G" in printed
    assert "below 1, where the classical Gaussian mechanism is proved: this does not hold here" in printed
    assert "this certifies nothing" in printed
    for wrong, words in (
        ([*published], "either --epsilon"),
        ([*published, "--noise-multiplier", "1"], "give --epsilon"),
        (["dp-pg", *BUDGET, "--environment", "cart-pole"], "from its budget alone"),
        (["dp-pg", *BUDGET, "--sampling-rate", "0.1"], "sampled again"),
        (["dp-pg", *BUDGET, "--set", "sampling=poisson", "--sampling-rate", "0.1"], "give their number"),
        (["dp-pg", "--delta", "1e-6", "--noise-multiplier", "1e-6"], "too small to give any guarantee"),
        (["dp-pg", *BUDGET, "--steps", "5", "--set", "noise=pink"], "noise must be independent"),
    ):
        dprl("calibrate", *wrong).refused(words)
