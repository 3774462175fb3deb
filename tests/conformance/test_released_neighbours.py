"""The whole registry on neighbours, through the front door: nothing that enters a mechanism differs by too much."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dprl.audits.conformance.suite import HEADING, Case, CaseFindings, cases, section, with_section
from dprl.registry import attackable_entries, find_audited

ROOT = Path(__file__).parents[2]
CASES = list(cases())
# settings that are compiled soonest, sources in turn, a third of the neighbours; the slow tests try all of them
SETTINGS = {
    "gpope": "Poisson batches",
    "recommended": "off-policy",
    "dptd": "Algorithm 1, Poisson batches",
    "neural-td": "linear",
    "functional-q": "functional",
}
SOURCES = ("arrays by person", "file by trajectory")
FURTHER = {
    ("constant", "returns", "parts by person"),
    ("best", "best of two, one decision", "arrays by person"),
    ("best", "best of two, several steps", "file by trajectory"),
    ("learn", "learned rule, one decision", "arrays by person"),
    ("learn", "fitted Q, a table", "file by trajectory"),
    ("learn", "fitted Q, a linear basis", "arrays by person"),
    ("dp-pg", "resampled", "parts"),
    ("dp-pg", "replace one", "file"),
    ("dp-pg", "square root", "stream without names"),
    ("functional-q", "observed reward", "equal environments"),
}


def _quick() -> list[Case]:
    chosen = set(FURTHER)
    for number, (name, entry) in enumerate(attackable_entries().items()):
        setting = SETTINGS.get(name, next(iter(entry.load().settings)))
        source = {"user": "stream", "reward function": "unhashable environments"}.get(entry.unit)
        chosen.add((name, setting, source or SOURCES[number % len(SOURCES)]))
    return [replace(case, one_in=3) for case in CASES if (case.entry.name, case.setting, case.source) in chosen]


def named(case: Case) -> str:
    return f"{case.entry.name}, {case.setting}, {case.source}"


def check(found: CaseFindings) -> None:
    assert found.problems == ()
    assert found.largest <= 1.0 + 1e-9
    assert found.pairs
    # of every variant some pair is far enough apart that too little noise would be seen
    assert found.largest > (0.3 if "without names" not in found.source else -1.0)


@pytest.mark.parametrize("case", _quick(), ids=named)
def test_one_variant_of_every_algorithm(case, tmp_path):
    check(case.run(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=named)
def test_every_variant_and_source(case, tmp_path):
    check(case.run(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(find_audited("td"), "Poisson batches", "ray by person"),
        Case(find_audited("dp-pg"), "resampled", "ray"),
        Case(find_audited("dp-pg"), "square root", "ray"),
    ],
    ids=named,
)
def test_workers_of_a_cluster(case, tmp_path):
    check(case.run(tmp_path))


def test_nothing_that_is_registered_is_left_out():
    tried = {(case.entry.name, case.setting) for case in CASES}
    registered = {(name, setting) for name, entry in attackable_entries().items() for setting in entry.load().settings}
    assert tried == registered
    assert {case.entry.name for case in _quick()} == set(attackable_entries())
    page = (ROOT / "docs" / "audits.md").read_text().partition(HEADING)[2]
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| .* \| (\d\.\d{3}) \|", page, flags=re.MULTILINE)
    assert {row[:2] for row in rows} == tried
    assert max(float(ratio) for *_, ratio in rows) == 1.0


def test_the_section_takes_the_place_of_the_one_before():
    found = CaseFindings(
        "td", "full batches", "add or remove one", "arrays", 3, 1.5, ("far apart: refused",), ("too far",)
    )
    text = section([found, found])
    assert "| `td` | full batches | add or remove one | arrays | 6 | 1.500 | far apart: refused |" in text
    assert text.count("* `td`, full batches, arrays: too far.") == 1
    page = with_section("# Audits\n\nOf old.\n", text)
    assert with_section(page, text) == page
    assert page.startswith("# Audits\n\nOf old.\n\n" + HEADING)
