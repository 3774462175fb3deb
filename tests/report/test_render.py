"""The page as a whole: what it says, what it never says, and that it is one sound, closed document."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dprl.report import render
from dprl.report.comparisons import learned_words

from .page import Page, value_of

Artifact = dict[str, Any]
WARNING = "This is not a private release."
PUBLISHED = "As published calibration: carries no guarantee."
Shown = Callable[..., Page]


@pytest.fixture
def shown(estimate: Artifact, certificate: Artifact) -> Shown:
    """The page of the sample's artifacts, with these fields of the estimate instead of its own."""
    return lambda **changes: Page(render({**estimate, **changes}, certificate))


def charts(page: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]


def test_document_is_well_formed_and_every_chart_says_what_it_shows(estimate: Artifact, certificate: Artifact) -> None:
    page = render(estimate, certificate)
    assert page.startswith("<!doctype html>")
    Page(page)
    drawn = [svg for svg in charts(page) if svg.get("aria-hidden") != "true"]
    # a row of intervals and a bar of each policy
    assert len(drawn) == 2 * len(estimate["targets"]) + len(estimate["value_function"]["slices"])
    for svg in drawn:
        assert svg.get("role") == "img"
        assert svg[0].tag == "title"
        assert svg[0].text


def test_page_asks_for_nothing_from_outside(estimate: Artifact, certificate: Artifact) -> None:
    page = render(estimate, certificate)
    assert not re.search(r"https?:|//|@import|url\(", page)
    tags = Page(page).tags
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in tags}
    references = [value for _, attributes in tags for name, value in attributes.items() if name in ("src", "href")]
    assert references
    assert all(str(value).startswith("#") for value in references)
    assert not any(name.startswith("on") for _, attributes in tags for name in attributes)


def test_equal_artifacts_give_equal_bytes_and_are_left_as_they_were(estimate: Artifact, certificate: Artifact) -> None:
    before = copy.deepcopy((estimate, certificate))
    page = render(estimate, certificate)
    assert (estimate, certificate) == before
    assert render(*before) == page
    back_to_front = json.loads(json.dumps(certificate), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert list(back_to_front) != list(certificate)
    assert render(estimate, back_to_front) == page
    tuples = {**estimate, "interval": tuple(estimate["interval"])}
    assert render(tuples, certificate) == page
    seal = {"created": "2026", "artifacts": {"report.html": "ab"}, "digest": "cd", "signature": {"value": "ef"}}
    assert render(estimate, certificate | seal) == page


def test_tables_hold_the_numbers_of_the_estimate(shown: Shown, estimate: Artifact) -> None:
    page = shown()
    for target in estimate["targets"]:
        answer, split = page.cells(target["name"])
        value, interval, privacy, sampling = answer[1:]
        low, high = interval.split(" to ")
        shown = [value_of(x) for x in (value, low, high, privacy, sampling)]
        privacy_error, sampling_error = target["privacy_standard_error"], target["sampling_standard_error"]
        true = [target["value"], *target["interval"], privacy_error, sampling_error]
        assert shown == pytest.approx(true, abs=0.0501)
        added = math.hypot(privacy_error, sampling_error) - sampling_error
        words = re.fullmatch(r"Privacy noise added (\S+) to a standard error of (\S+)\.", split[3])
        assert words
        assert [value_of(w) for w in words.groups()] == pytest.approx([added, sampling_error], abs=0.0501)
        share = privacy_error**2 / (privacy_error**2 + sampling_error**2)
        assert float(split[2].rstrip("%")) / 100.0 == pytest.approx(share, abs=0.0051)


def test_headline_answers_in_one_sentence(shown: Shown, estimate: Artifact) -> None:
    text = shown().text
    said = r"The policy treat_low_cd4 is estimated to be worth (\S+) \(95% interval (\S+) to ([^)]+)\)\."
    assert (found := re.search(said, text))
    target = estimate["targets"][0]
    # whole cells: half the standard error of about 6 is more than one
    assert [value_of(x) for x in found.groups()] == pytest.approx([target["value"], *target["interval"]], abs=0.501)
    assert "97.5% interval" in shown(confidence=0.975).text


def test_reference_is_shown_only_where_there_is_one(estimate: Artifact, certificate: Artifact) -> None:
    without = render(estimate, certificate)
    assert 'class="reference"' not in without
    assert "simulat" not in Page(without).text.lower()
    estimate["targets"][1]["reference"] = -12.34
    page = render(estimate, certificate)
    assert page.count('class="reference"') == 2  # in the key, and in the row of that policy
    rows = Page(page)
    assert value_of(rows.cells("arm_0")[0][-1]) == pytest.approx(-12.3)
    assert rows.cells("arm_1")[0][-1] == "–"


@pytest.mark.parametrize(
    ("status", "banner", "badge"),
    [("not private", WARNING, "badge exposed"), ("as published", PUBLISHED, "badge published")],
)
def test_statement_says_so_before_anything_else(
    shown: Shown, estimate: Artifact, statement: Artifact, status: str, banner: str, badge: str
) -> None:
    verified = shown()
    assert banner not in verified.text
    assert ("span", {"class": "badge verified"}) in verified.tags
    assert "Every person in the log is protected" in verified.text
    page = Page(render({**estimate, "status": status}, {**statement, "status": status}))
    assert page.text.strip().startswith(banner)
    assert page.text.count(banner) == 3  # at the top, beside the guarantee, at the end
    assert ("span", {"class": badge}) in page.tags
    assert "is protected by" not in page.text


@pytest.mark.parametrize(
    "change",
    [
        {"status": "not private"}, {"status": None}, {"status": ["verified"]}, {"schema": "dprl.statement/1"},
        {"noise": {"secure": False}}, {"noise": {"secure": "yes"}}, {"noise": None},
    ],
)  # fmt: skip
def test_one_doubt_is_enough_to_lose_the_badge(estimate: Artifact, certificate: Artifact, change: Artifact) -> None:
    page = Page(render(estimate, {**certificate, **change}))
    assert page.text.strip().startswith(WARNING)
    assert not any(attributes.get("class") == "badge verified" for _, attributes in page.tags)
    page = Page(render({**estimate, "status": "not private"}, certificate))
    assert page.text.strip().startswith(WARNING)


def test_names_are_text_wherever_they_appear(estimate: Artifact, certificate: Artifact) -> None:
    attack = "</title></style><script>alert('x')</script>\"&\u202e\x00\ud800"
    seen = "</title></style><script>alert('x')</script>\"&\ufffd\ufffd\ufffd"
    for target in estimate["targets"]:
        target["name"] = attack
    estimate["value_function"]["target"] = attack
    estimate["value_function"]["slices"][0]["name"] = attack
    estimate["request"] = {"log": attack, attack: attack, "outcome": attack}
    certificate["not_protected"] = [attack]
    certificate["released"] = certificate["accountant"] = certificate["privacy_unit"] = attack
    certificate["neighbouring_relation"] = certificate["noise"]["source"] = attack
    certificate["assumed_public"] = {
        "policies": [attack],
        "hyper_parameters": {attack: {"value": attack, "provenance": attack}},
        "bounds": {attack: attack},
    }
    certificate["mechanisms"][0].update(name=attack, purpose=attack, steps=attack)
    certificate["event"] = {"type": attack}
    certificate["ledger"] = certificate["versions"] = {attack: attack}
    page = render(estimate, certificate)
    parsed = Page(page)
    assert "script" not in {tag for tag, _ in parsed.tags}
    assert parsed.text.count(seen) > 20
    assert page.encode("utf-8")
    for svg in charts(page):
        assert not svg.findall(".//script")


def test_a_value_function_that_is_a_constant_is_called_one(estimate: Artifact, certificate: Artifact) -> None:
    assert "one number was learned" not in render(estimate, certificate)
    for piece in estimate["value_function"]["slices"]:
        piece["values"] = [3.0] * len(piece["grid"])
    assert "one number was learned" in render(estimate, certificate)


def test_a_network_is_called_one(shown: Shown, estimate: Artifact) -> None:
    assert "A neural network" not in shown().text
    slices = estimate["value_function"]["slices"]
    estimate["value_function"]["features"] = {"name": "mlp:50", "size": 50 * (len(slices) + 2) + 1}
    text = shown().text
    assert f"A neural network with one layer of 50 hidden units ({50 * (len(slices) + 2) + 1} weights)." in text
    assert "Shown: the first" not in text
    estimate["value_function"]["slices"] = slices[:1]
    assert f"Shown: the first 1 of {len(slices)} measurements." in shown().text


def test_a_mean_reward_is_no_return(shown: Shown, estimate: Artifact) -> None:
    """Under the privacy unit transition nothing follows a trajectory, whatever its declared horizon."""
    del estimate["request"]["outcome"]
    estimate.update(discount=1.0, bounds={**estimate["bounds"], "horizon": 2})
    assert "had this policy made every decision" in shown().text
    estimate["quantity"] = "mean reward of a transition"
    estimate["targets"][2]["interval"] = [-500.0, 130.0]  # the reward's own bound, not twice of it
    page = shown()
    assert "the average reward of a decision, in the units of the log, had this policy made that one" in page.text
    assert "a return is the sum" not in page.text
    assert page.cells("arm_1")[0][2].endswith("†")


def test_value_function_is_optional(estimate: Artifact, certificate: Artifact) -> None:
    assert Page(render(estimate, certificate)).names.count("h2") == 6
    for nothing in (None, {"slices": []}, {"slices": [{"grid": [0, 1], "values": [math.nan, None]}]}):
        page = render({**estimate, "value_function": nothing}, certificate)
        assert Page(page).names.count("h2") == 5
        assert 'class="curve"' not in page


@pytest.mark.parametrize(("count", "others"), [(1, ""), (2, "One other policy was"), (30, "29 other policies were")])
def test_any_number_of_policies(shown: Shown, estimate: Artifact, count: int, others: str) -> None:
    page = shown(targets=[{**estimate["targets"][0], "name": f"policy_{i}"} for i in range(count)])
    assert [len(page.cells(f"policy_{i}")) for i in range(count)] == [2] * count
    assert ("other polic" in page.text) == (count > 1)
    assert others in page.text


@pytest.mark.parametrize(("value", "error"), [(1e5, 1e4), (1e-4, 1e-5), (-3e8, 2e7), (-2e-7, 1e-8), (0.0, 1.0)])
def test_extreme_values_keep_two_digits_of_their_error(shown: Shown, value: float, error: float) -> None:
    errors = {"privacy_standard_error": 0.6 * error, "sampling_standard_error": 0.8 * error}
    target = {"name": "p", "value": value, "interval": [value - 2 * error, value + 2 * error], **errors}
    row = shown(targets=[target]).cells("p")[0]
    shown = [value_of(t) for t in (row[1], *row[2].split(" to "), row[3], row[4])]
    true = [value, *target["interval"], 0.6 * error, 0.8 * error]
    assert shown == pytest.approx(true, abs=0.051 * error)


def test_interval_that_ends_at_the_public_bound_is_marked(estimate: Artifact, certificate: Artifact) -> None:
    assert "†" not in render(estimate, certificate)
    estimate["targets"][2]["interval"] = [-500.0, 130.0]  # horizon one, reward -500 to 500
    page = Page(render(estimate, certificate))
    assert page.cells("arm_1")[0][2].endswith("130.0†")
    assert "what lay beyond them was moved to their ends" in page.text
    assert not page.cells("arm_2")[0][2].endswith("†")
    # discounted 0.5, two steps: the value lies between -750 and 750
    estimate.update(discount=0.5, bounds={**estimate["bounds"], "horizon": 2})
    assert "†" not in render(estimate, certificate)
    estimate["targets"][2]["interval"] = [10.0, 750.0]
    assert Page(render(estimate, certificate)).cells("arm_1")[0][2].endswith("†")


def test_unbounded_and_missing_intervals(shown: Shown, estimate: Artifact) -> None:
    estimate["targets"][0].update(interval=[None, 60.0])
    estimate["targets"][1].update(interval=None, value=None, privacy_standard_error=None)
    estimate["targets"][2].update(interval=[-math.inf, math.inf], sampling_standard_error=math.inf)
    page = shown()
    assert page.cells("treat_low_cd4")[0][2] == "−∞ to 60.0"
    assert page.cells("arm_0")[0][1:4] == ["not available"] * 3
    assert page.cells("arm_1")[0][2] == "−∞ to ∞"
    assert "An arrow marks" in page.text


def test_odds_follow_from_epsilon_and_the_relation(estimate: Artifact, certificate: Artifact) -> None:
    def beliefs(page: Page) -> list[float]:
        return [float(cell.rstrip("%")) for cell in page.cells("50%")[0][1:]]

    def at(epsilon: float) -> float:
        return 100.0 / (1.0 + math.exp(-epsilon))

    page = Page(render(estimate, certificate))
    assert "at most 2.72" in page.text
    assert "at most 7.39" in page.text  # one record against another: two steps, by way of none
    assert beliefs(page) == pytest.approx([at(1.0), at(2.0)], abs=0.1)
    assert all(shown >= true for shown, true in zip(beliefs(page), [at(1.0), at(2.0)], strict=True))
    assert "1 in 100,000" in page.text
    replaced = Page(render(estimate, {**certificate, "neighbouring_relation": "replace one"}))
    assert "7.39" not in replaced.text
    assert beliefs(replaced) == pytest.approx([at(1.0)], abs=0.1)
    weak = Page(render({**estimate, "epsilon": 10.0}, {**certificate, "epsilon": 10.0}))
    assert "promise little" in weak.text
    assert "promise little" not in page.text


def test_everything_assumed_and_done_is_on_the_page(estimate: Artifact, certificate: Artifact) -> None:
    page = Page(render(estimate, certificate))
    assert page.cells("Privacy units")[0][1] == "2,139"
    assert page.cells("Observation: cd4_baseline")[0][1] == "0 to 1,200"
    assert page.cells("Observation: cd4_baseline")[0][2] == ""
    assert page.cells("sampling rate")[0][1:] == ["0.1", "library default (public)"]
    for line in certificate["not_protected"]:
        assert line in page.text
    done = certificate["mechanisms"]
    (heads,) = page.cells("Of each mechanism")
    assert heads[1:-1] == [f"{m['name']},\n{m['purpose']}" for m in done]
    for label, key in (("Clip norm", "clip_norm"), ("Noise multiplier", "noise_multiplier"), ("Steps", "steps")):
        assert page.cells(label)[0][1:-1] == [f"{m[key]:g}" for m in done]
    assert "200 times: a Poisson sample at rate 0.1" in page.text
    assert certificate["accountant"] in page.text
    assert "dp_accounting 0.6.0" in page.text
    assert page.cells("Ledger, dataset")[0][1] == "actg175"
    alone = Page(render(estimate, {**certificate, "ledger": None}))
    assert "other releases from the same log were not counted" in alone.text
    assert "dprl verify results/" in page.text


def test_a_missing_field_leaves_a_gap_not_an_error(estimate: Artifact, certificate: Artifact) -> None:
    Page(render({}, {}))
    for artifact, other in ((estimate, certificate), (certificate, estimate)):
        for key in artifact:
            for instead in (None, [], {}, "word", 3, [None], [[1, 2, 3]], {"a": {"b": None}}):
                changed = {**artifact, key: instead}
                Page(render(changed, other) if artifact is estimate else render(other, changed))
    for key in estimate["targets"][0]:
        for instead in (None, "word", 0, 1e308, -1e308, 1e-320, 10**400, [1], {}):
            Page(render({**estimate, "targets": [{**estimate["targets"][0], key: instead}]}, certificate))


def test_the_mean_weight_stands_beside_the_errors_where_it_was_released(shown: Shown, estimate: Artifact) -> None:
    assert "mean weight" not in shown().text
    known = {"mean_weight": 0.62, "sampling_standard_error": 0.48, "sampling_standard_error_at_most": 5.9}
    targets = [{**estimate["targets"][0], **known}, *estimate["targets"][1:]]
    page = shown(targets=targets)
    assert "A mean weight of 1 proves nothing." in page.text
    assert "0.62" in page.cells(targets[0]["name"])[0]
    assert "at most 5.9" in page.text


def test_what_was_declared_of_the_log_is_said_in_words(estimate: Artifact, certificate: Artifact) -> None:
    public = certificate["assumed_public"] | {
        "behavior_probabilities": "policy fair <b>", "policies": ["p", "q"], "policies_in_words": {"q": "All of <b>."},
    }  # fmt: skip
    estimate["bounds"] |= {"units": 2139, "observation_names": ["age <b>", "cd4"], "action_names": ["none", "a drug"]}
    page = Page(render(estimate, {**certificate, "assumed_public": public}))
    for words in (
        "declared 2,139 people, with one decision in a trajectory", "the log shows age <b>, cd4.", "none, a drug.",
        "follow from fair <b>, the policy that is declared", "q: All of <b>.",
    ):  # fmt: skip
        assert words in page.text, words
    column, by_value = {"behavior_probabilities": "column chance"}, {"by": ["site <b>", "arm"], "table": {}}
    for changed, words in (
        (column, "The column chance of the log says how likely"),
        (column | {"prepare": {"behavior_prob": "p"}}, "The column chance of the log says how likely"),
        (column | {"prepare": {"behavior_prob": 0.25}}, "The person in charge declared 0.25 for every decision."),
        (column | {"prepare": {"behavior_prob": by_value}}, "declared it, by the values of site <b>, arm."),
        ({"bounds": public["bounds"] | {"strata": ["age", "site"]}}, "within strata of age, site, with noise"),
        ({"bounds": public["bounds"] | {"strata": []}}, "within strata of no covariate, with noise"),
    ):
        assert words in Page(render(estimate, {**certificate, "assumed_public": public | changed})).text
    # a release from before this was written down says nothing of it
    assert "How likely each decision was" not in Page(render(estimate, certificate)).text


def test_an_interval_of_a_value_that_holds_zero_has_a_sentence(shown: Shown, estimate: Artifact) -> None:
    says = "does not tell whether such a policy is worth more than zero or less"
    ends = [[1.0, 2.0], [-1.0, 2.0], [-2.0, -1.0]]
    targets = [{**t, "interval": e} for t, e in zip(estimate["targets"], ends, strict=False)]
    page = shown(targets=targets)
    assert f"Zero lies in the interval of {targets[1]['name']}: this release {says}" in page.text
    # what cannot be below zero by its bounds needs none
    bounds = estimate["bounds"] | {"reward": [0.0, 500.0]}
    assert says not in shown(targets=targets, bounds=bounds).text


# --- differences --------------------------------------------------------------------------------------------------


def difference(low: float, high: float, **more: Any) -> Artifact:
    return {
        "policy": "new <b>", "against": "old", "value": (low + high) / 2.0, "interval": [low, high],
        "simultaneous_interval": [low - 1.0, high + 1.0], "privacy_standard_error": 0.3, "sampling_standard_error": 0.4,
        **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.5, 2.5, "The policy new <b> is worth 1.5 more than old (95% interval 0.5 to 2.5"),
        (-2.5, -0.5, "The policy old is worth 1.5 more than new <b> (95% interval 0.5 to 2.5"),
        (-0.5, 1.5, "This release does not tell which of the policies new <b> and old is worth more"),
    ],
)
def test_the_first_line_answers_the_comparison(shown: Shown, low: float, high: float, says: str) -> None:
    page = shown(contrasts=[difference(low, high)])
    assert "Is the policy new <b> worth more than old?" in page.text
    assert says in page.text
    assert ("does not show that two policies are worth the same" in page.text) == (low < 0.0 < high)


def test_of_several_differences_the_intervals_that_hold_together_are_shown(shown: Shown) -> None:
    """The first would be above zero alone, and is not together with the other."""
    page = shown(contrasts=[difference(0.5, 2.5)] * 2)
    assert "does not tell which" in page.text
    assert "of all differences together" in page.text
    assert "Is the policy" not in shown().text


def test_a_confounder_is_spoken_of_where_the_interval_that_is_shown_tells_a_sign(shown: Shown) -> None:
    said = "rests on the assumption that within a stratum"
    assert (
        "to carry an interval to zero: 1.40 for new <b> less old."
        in shown(contrasts=[difference(0.5, 2.5, confounding=1.4)]).text
    )
    assert said not in shown(contrasts=[difference(0.5, 2.5, confounding=1.4)] * 2).text
    page = shown(contrasts=[difference(1.5, 2.5, confounding=1.4)] * 2)
    assert said in page.text
    assert "the interval that a difference has by itself, which is narrower than that of all together" in page.text


def test_what_a_missing_value_becomes_stands_beside_its_component(estimate: Artifact, certificate: Artifact) -> None:
    public = certificate["assumed_public"]
    size = len(public["bounds"]["observation"])
    bounds = public["bounds"] | {"fill": [None] * (size - 1) + [350.0], "flag_missing": [size - 1]}
    page = Page(render(estimate, {**certificate, "assumed_public": public | {"bounds": bounds}}))
    (row,) = page.cells("Observation: cd4_baseline")
    assert row[2] == "where it is missing: 350, and a component more says so"
    assert "flag missing" not in page.text


def test_a_probability_is_said_to_be_one(shown: Shown) -> None:
    quantity = "probability of no event up to time 700"
    page = shown(quantity=quantity)
    assert f"the {quantity}, had this policy made every decision" in page.text
    assert quantity not in shown().text


# --- subgroups ----------------------------------------------------------------------------------------------------


def group(low: float, high: float, name: str = "age <b>", **more: Any) -> Artifact:
    value = {
        "name": "new <b>", "value": 0.5, "interval": [0.2, 0.8], "simultaneous_interval": [0.1, 0.9],
        "privacy_standard_error": 0.1, "sampling_standard_error": 0.1,
    }  # fmt: skip
    return {
        "axis": "age:30", "name": name, "people": 123.4, "people_standard_error": 20.0, "targets": [value],
        "contrasts": [difference(low, high)], **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (1.5, 2.5, "with age <b>: new <b> is worth 2.0 more than old, between 0.5 and 3.5 more."),
        (-2.5, -1.5, "with age <b>: new <b> is worth 2.0 less than old, between 0.5 and 3.5 less."),
        (-0.5, 1.5, "this release does not tell whether new <b> or old is worth more (between −1.5 and 2.5)"),
        (-1e9, 1e9, "with age <b>: the budget does not suffice for a group of this size."),
    ],
)
def test_each_subgroup_has_a_sentence(shown: Shown, low: float, high: float, says: str) -> None:
    page = shown(subgroups=[group(low, high)])
    assert says in page.text
    assert "about 120" in page.text
    assert "all values in this section are wide enough to hold together in 95% of repetitions, and so are" in page.text
    assert "Who benefits" not in shown().text


def test_subgroups_without_a_difference_are_of_the_first_policy(shown: Shown) -> None:
    page = shown(subgroups=[group(0.0, 1.0, contrasts=[])])
    assert "with age <b>: new <b> is worth 0.50, between 0.10 and 0.90." in page.text
    assert "and so are those of all differences" not in page.text


# --- projections --------------------------------------------------------------------------------------------------


def projection(low: float, high: float, **more: Any) -> Artifact:
    slices = [{"name": "age <b>", "grid": [0, 50, 100], "values": [1, 2, 3], "low": [0, 1, 1], "high": [2, 3, 5]}]
    coefficients = [{"name": "age <b>", "value": (low + high) / 2.0, "interval": [low, high]}]
    return {"policy": "new <b>", "band": True, "coefficients": coefficients, "slices": slices, **more}


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (1.0, 3.0, "It rises by 2.0 (1.0 to 3.0) from the low to the high end of age <b>."),
        (-3.0, -1.0, "It falls by 2.0 (1.0 to 3.0) from the low to the high end of age <b>."),
        (-1.0, 3.0, "The budget buys a constant only."),
    ],
)
def test_each_projection_has_a_sentence_and_a_band(
    estimate: Artifact, certificate: Artifact, low: float, high: float, says: str
) -> None:
    found = [projection(low, high), projection(low, high, against="old")]
    text = render({**estimate, "projections": {"found": found}}, certificate)
    page = Page(text)
    assert page.text.count(says) == 2
    assert page.text.index("new <b> less old") < page.text.index(says)  # a difference comes first
    assert len(re.findall('class="ribbon"', text)) == 2
    assert "Who benefits" not in Page(render(estimate, certificate)).text


def test_without_a_band_the_page_says_so(shown: Shown) -> None:
    page = shown(projections={"found": [{"policy": "new", "band": False}]})
    assert "No band is given: noise hides how covariates are spread" in page.text


def test_broken_differences_subgroups_and_projections_make_a_page(shown: Shown) -> None:
    for broken in ({}, 7, {"interval": None}, {"value": "x", "simultaneous_interval": [None, math.inf]}):
        shown(contrasts=[broken])
    for broken in ({}, 7, group(0, 1, targets=None, contrasts=None), group(0, 1, contrasts=[{}], people="x")):
        shown(subgroups=[broken])
    for broken in ({}, 7, projection(0, 1, slices=[{"grid": [1, 2]}, 3]), projection(0, math.nan)):
        shown(projections={"found": [broken]})


def test_event_free_probabilities_are_drawn_over_time(estimate: Artifact, certificate: Artifact) -> None:
    curve = [[0.5, 0.9, 0.85, 0.95], [1.0, 0.7, 0.6, 0.8]]
    targets = [{**target, "curve": curve} for target in estimate["targets"]]
    page = render({**estimate, "targets": targets}, certificate)
    assert page.count("Event-free probability along time, from 1.00 to 0.700") == len(targets)
    broken = [{**target, "curve": [[0.5, None, 0.85, 0.95], [1.0]]} for target in estimate["targets"]]
    assert "Event-free probability" not in render({**estimate, "targets": broken}, certificate)


def test_where_an_interval_is_the_whole_range_no_number_stands_first(shown: Shown, estimate: Artifact) -> None:
    first = {**estimate["targets"][0], "notes": ["says-nothing"]}
    page = shown(targets=[first])
    assert "This release says nothing about what the policy" in page.text
    page = shown(contrasts=[difference(-1e9, 1e9)])
    assert "This release says nothing about which of the policies" in page.text


@pytest.mark.parametrize(("half", "said"), [(1.0, False), (2.0, True)])
def test_an_interval_that_its_errors_do_not_explain_is_explained(
    shown: Shown, estimate: Artifact, half: float, said: bool
) -> None:
    errors = {"privacy_standard_error": 0.3, "sampling_standard_error": 0.4, "value": 0.0}
    target = {**estimate["targets"][0], **errors, "interval": [-half, half]}
    page = shown(targets=[target])
    assert ("reaches farther than both errors" in page.text) == said


@pytest.mark.parametrize(
    "found",
    [
        {"components": ["a"], "counts": [1e18], "lowest": [0], "table": [0, 1]},
        {"components": ["a"], "counts": [2], "lowest": [None], "table": [0, 1]},
        {"components": ["a"], "counts": [0], "lowest": [0], "table": []},
        {"features": ["1"], "weights": [[1.0, 2.0]]},
        {"features": ["1", "2"], "weights": [["none"]]},
        {},
    ],
)
def test_a_learned_policy_that_makes_no_sense_has_no_table(found):
    estimate = {"choice": {"policy": "p", "learner": {"basis": "table", "size": 2}, "learned_policy": found}}
    said = learned_words(estimate)
    assert said["table"] is None
    found = {"components": ["a"], "counts": [2], "lowest": [3], "table": [0, 1]}
    estimate["choice"]["learned_policy"] = found
    estimate["bounds"] = {"action_names": ["stay", "go"]}
    assert learned_words(estimate)["table"] == ([(0, "a"), (1, "action")], [["3", "stay"], ["4", "go"]])
