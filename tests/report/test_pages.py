"""What a notebook shows: parts of pages that are drawn from public facts and released numbers."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dprl
from dprl.audits.lower_bound import Audit, LowerBound
from dprl.report import render
from dprl.report.pages import Page

from .. import sample_log
from .page import Page as Parsed

BUDGET = dprl.Budget(1.0, 1e-6)
ASKED: dict[str, Any] = {
    "bounds": sample_log.BOUNDS, "person": "person_id", "algorithm": "importance-sampling",
    "compare": ["all"], "subgroups": ["observation_0:5"],
}  # fmt: skip


def evaluated(**more: Any) -> dprl.Release:
    return dprl.evaluate(sample_log.columns(), ["uniform", "always:1"], BUDGET, **ASKED, **more)


@pytest.fixture(scope="module")
def release() -> dprl.Release:
    return evaluated()


@pytest.fixture(scope="module")
def shown(release) -> dict[str, Any]:
    policies = [dprl.load_policy(name, 2) for name in ("uniform", "always:0")]
    bound = LowerBound(0.4, 1e-5, 0.95, 1.0, "below", 10, 5, 100, 25)
    return {
        "release": release,
        "certificate": release.certificate,
        "plan": dprl.make_plan(dprl.ImportanceSampling(), sample_log.BOUNDS, BUDGET, policies),
        "audit": Audit(1.0, 1e-5, bound, None, "a pair"),
    }


KINDS = ("release", "certificate", "plan", "audit")


def inside(frame: str) -> str:
    """The document in a frame."""
    (document,) = re.findall(r'srcdoc="([^"]*)"', frame)
    return html.unescape(document)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_holds_the_first_section_of_the_page(shown, kind, tmp_path):
    frame = inside(shown[kind]._repr_html_())
    page = shown[kind].report(tmp_path / "page.html", show=False).read_text()
    tags = [tag for tag, _ in Parsed(frame).tags]
    assert tags.count("section") == 1
    assert "svg" in tags
    first = page[page.index("<header>") : page.index("</section>")]
    assert first in frame
    assert "script" not in tags


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_is_its_charts_and_nothing_else(shown, kind):
    figures = re.findall(r"<figure>.*?</figure>", inside(shown[kind]._repr_html_()), re.DOTALL)
    plot = shown[kind].plot()
    main = plot.text[plot.text.index("<main>") : plot.text.index("</main>")]
    assert main == "<main>" + "".join(figures)
    Parsed(inside(plot._repr_html_()))


def test_the_report_is_that_of_the_saved_folder(release, tmp_path):
    written = release.report(tmp_path / "report.html", show=False)
    assert written.read_text() == render(dict(release.document), dict(release.certificate))
    assert written.read_bytes() == release.save(tmp_path / "out")["report.html"].read_bytes()


def test_a_report_is_opened_by_the_browser_of_the_machine(tmp_path):
    """A browser that writes down which address it was given."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "seen"}\n')
    browser.chmod(0o755)
    code = "from dprl.report.pages import Certificate; print(Certificate(epsilon=1.0, delta=1e-6).report())"
    asked = {**os.environ, "BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True)
    written = Path(done.stdout.strip())
    assert written.is_file()
    assert written.is_relative_to(tmp_path)
    assert (tmp_path / "seen").read_text().strip() == written.as_uri()


def test_a_page_needs_a_folder(tmp_path):
    with pytest.raises(dprl.DprlError, match="there is no such folder"):
        Page("").save(tmp_path / "none" / "page.html")


def test_a_release_that_protects_nobody_says_so_wherever_it_is_shown():
    release = evaluated(seed=1)
    for page in (release._repr_html_(), release.plot()._repr_html_()):
        assert "This is not a private release." in inside(page)
    assert "This release carries no guarantee" in inside(release.certificate._repr_html_())  # type: ignore[attr-defined]


def test_a_violated_claim_is_said_first(shown):
    violated = replace(shown["audit"], claimed_epsilon=0.1)
    assert "<h1>The claim is violated</h1>" in inside(violated._repr_html_())
    assert "<h1>The claim is not violated</h1>" in inside(shown["audit"]._repr_html_())


def test_the_frame_of_a_release_has_all_that_was_released(release):
    frame = release.to_frame().to_pylist()
    groups = release.subgroups
    assert len(frame) == (1 + len(groups)) * 3
    document = [(None, release.estimate)] + [(f"{group['axis']}: {group['name']}", group) for group in groups]
    rows = [(name, row) for name, found in document for row in (*found["targets"], *found["contrasts"])]
    for found, (name, row) in zip(frame, rows, strict=True):
        assert found["subgroup"] == name
        assert found["policy"] == row.get("name", row.get("policy"))
        assert found["against"] == row.get("against")
        assert [found["low"], found["high"]] == row["interval"]
        together = row.get("simultaneous_interval", [None, None])
        assert [found["low_together"], found["high_together"]] == together
        for column in ("value", "privacy_standard_error", "sampling_standard_error"):
            assert found[column] == row[column]
        for column in ("mean_weight", "mean_weight_error"):
            assert found[column] == row.get(column)
    assert {row["high_together"] is None for row in frame} == {True, False}
    assert {row["mean_weight_error"] is None for row in frame} == {True, False}


def test_a_page_calls_an_arm_by_its_name_and_a_function_by_its_own():
    def always_1(states: Any) -> Any:
        return np.tile([0.0, 1.0], (len(states), 1))

    bounds = replace(sample_log.BOUNDS, action_names=("placebo", "a drug"))
    policies = {"always_0": "always:0", "always_a drug": "always:a drug", "always_1": always_1}
    asked = ASKED | {"bounds": bounds, "compare": ["always_1:always_0"], "subgroups": []}
    release = dprl.evaluate(sample_log.columns(), policies, dprl.Budget(10.0, 1e-4), **asked)
    assert {"always_0", "always_a drug", "always_1"} == set(release.values)
    page = html.unescape(re.sub(r"<[^>]*>", "", render(release.estimate, release.certificate)))
    assert "always_1 less always placebo" in page
    assert "always a drug" in page
    assert "always_0" not in page
    assert "placebo for everybody." in page
