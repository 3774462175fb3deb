"""Configurations: types, provenance, and which source wins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from dprl.config import DERIVED, LIBRARY_DEFAULT, STATED_IN_CODE, Config, merge
from dprl.errors import DprlError
from dprl.evaluation.td import TD
from dprl.registry import AUDITED


@dataclass(frozen=True, kw_only=True)
class Options(Config):
    steps: int = 10
    rate: float = 0.5
    clip: float | None = None
    kind: Literal["a", "b"] = "a"
    label: str = "x"
    project: bool = True


def provenance(config: Config) -> dict[str, str]:
    return {name: entry["provenance"] for name, entry in config.hyper_parameters().items()}


def test_options_are_the_fields_in_order():
    assert Options.options() == ("steps", "rate", "clip", "kind", "label", "project")


def test_where_each_value_came_from():
    config = Options.from_mapping({"steps": 5, "clip": 2}, "flag")
    assert config == Options(steps=5, clip=2.0)
    assert provenance(config) == {
        "steps": "flag (stated public)", "clip": "flag (stated public)",
        **dict.fromkeys(("rate", "kind", "label", "project"), LIBRARY_DEFAULT),
    }  # fmt: skip
    assert provenance(Options(rate=0.25))["rate"] == STATED_IN_CODE
    assert provenance(Options(rate=0.5))["rate"] == LIBRARY_DEFAULT


def test_a_value_that_was_given_is_not_called_a_default_even_when_it_is_one():
    assert provenance(Options.from_mapping({"steps": 10}, "flag"))["steps"] == "flag (stated public)"


def test_later_sources_win_and_keep_their_mark():
    file, settings = {"steps": 1, "rate": 0.1, "label": "toml"}, {"steps": 2, "kind": "b"}
    config = merge(Options, [(file, "run.toml"), (settings, "--set"), ({}, "nothing"), ({"steps": 3}, "flag")])
    assert config == Options(steps=3, rate=0.1, kind="b", label="toml")
    marks = provenance(config)
    named = [marks[n].split(" (")[0] for n in ("steps", "rate", "kind", "label")]
    assert named == ["flag", "run.toml", "--set", "run.toml"]
    assert marks["clip"] == LIBRARY_DEFAULT


def test_nothing_given_is_the_default():
    assert merge(Options, []) == merge(Options, [({}, "flag")]) == Options()


def test_replace_marks_what_it_changes_and_keeps_the_rest():
    config = Options.from_mapping({"steps": 5, "rate": 0.1}, "flag").replace(DERIVED, rate=0.2)
    assert config == Options(steps=5, rate=0.2)
    assert provenance(config)["rate"] == DERIVED
    assert provenance(config)["steps"] == "flag (stated public)"


def test_what_was_said_of_a_value_does_not_stay_with_another_value():
    config = Options(rate=0.1, steps=5, provenance={"rate": "simulated: chain", "steps": "public: protocol"})
    changed = config.replace(rate=0.2)
    assert provenance(changed)["rate"] == STATED_IN_CODE
    assert provenance(changed)["steps"] == "public: protocol"
    assert provenance(config.replace("charged: charge 3 of trial", rate=0.2))["rate"] == "charged: charge 3 of trial"


SAID = ("public: the trial's protocol", "simulated: chain", "charged: charge 3 of trial", "public:x")
NOT_SAID = ("", "public", "public:", "public: ", "private", "tuned on the log", "unknown", "Public: protocol",
            "derived from the log", str(DERIVED), "flag (stated public)", LIBRARY_DEFAULT, " public: x", "public: a\nb",
            "public: \ud800", "simulated: " + "x" * 200, None, 5, ["public: x"])  # fmt: skip


@pytest.mark.parametrize("text", SAID)
def test_a_user_says_where_a_value_came_from(text):
    assert provenance(Options(rate=0.1, provenance={"rate": text}))["rate"] == text
    config = merge(Options, [({"rate": 0.1, "provenance": {"rate": text}}, "run.toml")])
    assert provenance(config)["rate"] == text
    assert config == Options(rate=0.1)


@pytest.mark.parametrize("text", NOT_SAID)
def test_what_says_nothing_is_refused(text):
    words = "the provenance of rate must be 'public: ...', 'simulated: ...' or 'charged: ...'"
    with pytest.raises(DprlError, match=f"Options: {words}"):
        Options(rate=0.1, provenance={"rate": text})
    with pytest.raises(DprlError, match=words):
        Options().replace(text if text is not None else "", rate=0.1)
    with pytest.raises(DprlError, match=f"run.toml: {words}"):
        merge(Options, [({"rate": 0.1, "provenance": {"rate": text}}, "run.toml")])


@pytest.mark.parametrize("table", [{"rat": "public: x"}, {"provenance": "public: x"}, {5: "public: x"}])
def test_only_options_have_a_provenance(table):
    with pytest.raises(DprlError, match="no such option; it has steps, rate"):
        Options(provenance=table)
    with pytest.raises(DprlError, match=r"run\.toml: provenance of .* no such option"):
        merge(Options, [({"provenance": table}, "run.toml")])


@pytest.mark.parametrize("table", ["public: x", ["rate"], 5, None])
def test_a_provenance_is_a_table(table):
    with pytest.raises(DprlError, match="provenance must be a table"):
        Options(provenance=table)
    with pytest.raises(DprlError, match="provenance must be a table"):
        merge(Options, [({"rate": 0.1, "provenance": table}, "run.toml")])


def test_a_source_speaks_of_its_own_values_and_of_those_it_leaves_to_others():
    file = {"steps": 5, "provenance": {"steps": "public: protocol", "rate": "simulated: chain"}}
    marks = provenance(merge(Options, [(file, "run.toml"), ({"rate": 0.1}, "flag")]))
    assert (marks["steps"], marks["rate"]) == ("public: protocol", "simulated: chain")
    # another value than the one that the file speaks of
    marks = provenance(merge(Options, [(file, "run.toml"), ({"steps": 6}, "flag")]))
    assert marks["steps"] == "flag (stated public)"


def test_later_changes_of_the_table_change_nothing():
    table = {"rate": "simulated: chain"}
    config = Options(rate=0.1, provenance=table)
    table["rate"] = "private"
    assert provenance(config)["rate"] == "simulated: chain"


def test_provenance_takes_no_part_in_equality_and_cannot_be_set_from_outside():
    assert Options.from_mapping({"steps": 5}, "flag") == Options(steps=5)
    with pytest.raises(DprlError, match="no option 'provenance'"):
        Options.from_mapping({"provenance": {"steps": "public"}}, "run.toml")


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("steps", 5.0, 5),
        ("rate", 1, 1.0),
        ("clip", None, None),
        ("clip", 3, 3.0),
        ("kind", "b", "b"),
        ("label", "", ""),
    ],
)
def test_values_that_fit(name, value, kept):
    found = getattr(Options.from_mapping({name: value}, "flag"), name)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("steps", 5.5, "flag: steps of Options must be a whole number"),
        ("steps", "5", "must be a whole number"),
        ("steps", True, "must be a whole number"),
        ("steps", math.inf, "must be a whole number"),
        ("steps", math.nan, "must be a whole number"),
        ("steps", 10**400, "must be a whole number"),
        ("steps", None, "must be a whole number"),
        ("steps", [5], "must be a whole number"),
        ("rate", "much", "rate of Options must be a number"),
        ("rate", 10**400, "must be a number"),
        ("rate", False, "must be a number"),
        ("clip", "none", "must be a number"),
        ("kind", "c", "must be a or b"),
        ("kind", ["a"], "must be a or b"),
        ("label", 5, "must be text"),
        ("project", 1, "must be true or false"),
        ("stepz", 5, "no option 'stepz'; it has steps, rate"),
    ],
)
def test_values_that_do_not_fit(name, value, words):
    with pytest.raises(DprlError, match=words):
        Options.from_mapping({name: value}, "flag")


def test_options_in_code_are_what_they_may_be():
    assert type(Options(steps=np.int64(5)).steps) is int
    for wrong, words in (
        ({"kind": "c"}, "Options: kind must be a or b"),
        ({"steps": 1.5}, "Options: steps must be a whole number"),
        ({"rate": "much"}, "Options: rate must be a number"),
    ):
        with pytest.raises(DprlError, match=words):
            Options(**wrong)


def beyond(interval: str) -> list[float]:
    """Numbers at the open ends of an interval, or a hair before them, and one beyond its closed ones."""
    if ".." in interval:
        low, high = map(int, interval.split(".."))
        return [low - 1, high + 1]
    low, high = (float(end) for end in interval[1:-1].split(", "))
    below = low - 1.0 if interval[0] == "[" else low
    above = [] if high == math.inf else [2.0 * high] if interval[-1] == "]" else [high, math.nextafter(high, 0.0)]
    return [below, *above]


@pytest.mark.parametrize("name", AUDITED)
def test_numbers_beyond_their_ranges_are_refused(name):
    kind = AUDITED[name].load_config()
    ranges = {option: interval for base in kind.__mro__ for option, interval in vars(base).get("ranges", {}).items()}
    assert ranges
    for option, interval in ranges.items():
        for number in beyond(interval):
            with pytest.raises(DprlError, match=rf"^{name}: {option} must be "):
                kind(**{option: number})


def test_former_names_of_options_are_understood():
    told = {"value_share": 0.5, "limit": False, "provenance": {"value_share": "public: a paper"}}
    config = merge(TD, [(told, "run.toml")])
    assert (config.value_budget_fraction, config.cap_step_size) == (0.5, False)
    assert provenance(config)["value_budget_fraction"] == "public: a paper"
    assert config == TD.from_mapping({"value_share": 0.5, "cap_step_size": False}, "flag")


def test_an_option_by_both_of_its_names_is_refused():
    with pytest.raises(DprlError, match="no option 'value_share'"):
        TD.from_mapping({"value_share": 0.5, "value_budget_fraction": 0.5}, "flag")
    with pytest.raises(DprlError, match="no option 'square_scale'"):
        TD.from_mapping({"square_scale": 0.5}, "flag")
