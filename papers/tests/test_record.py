"""What is on record of the papers, and their pages: every number between marks is the record's."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from papers.tests.tiny import SPEC, plugin_file, tiny_request

from dprl.errors import DprlError
from dprl_papers.harness import record
from dprl_papers.harness.method import library_methods
from dprl_papers.harness.plugin import load_plugin
from dprl_papers.harness.reproduce import RESULTS, reproduce
from dprl_papers.harness.spec import load_paper, papers, parse
from dprl_papers.harness.store import read_json
from dprl_papers.harness.versions import DIRTY, module_file


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Figure 3, then figure 1, in one folder."""
    folder = tmp_path_factory.mktemp("record")
    paper = parse(SPEC, "tiny.toml")
    request = tiny_request(paper, load_plugin(plugin_file(folder)))
    for name in ("3", "1"):
        results = reproduce(dataclasses.replace(request, figures=(paper.figure(name),)), folder / "out")
    return paper, folder / "out", results


def test_pages_are_made_of_the_record():
    """A table that is not what is on record, or a figure older than its code without its mark, has been forgotten:
    ``dprl reproduce NNN --pages`` mends both.
    """
    for path, text in record.pages().items():
        assert path.read_text(encoding="utf-8") == text, path.name


def test_every_figure_that_the_table_of_parts_names_is_there():
    parts = (record.PAGES / "README.md").read_text(encoding="utf-8").partition("## Figures on record")[0]
    rows = [line.split("|")[1:] for line in parts.split("\n") if "--figure" in line and line.startswith("|")]
    assert len(rows) > 30
    for number, _, _, command, *_ in rows:
        named = re.search(r"--figure (\w[\w-]*)((?:`, `\w[\w-]*)*)", command)
        paper = load_paper({"all": "000"}.get(number.strip(), number.strip()))
        for name in re.findall(r"\w[\w-]*", "".join(named.groups()) if named else ""):
            assert paper.figure(name).name == name


def test_a_figure_is_added_to_those_that_were_there(run):
    _, folder, results = run
    assert [f["name"] for f in results["figures"]] == ["1", "3"]
    assert json.loads((folder / RESULTS).read_text()) == results
    page = (folder / "report.html").read_text()
    assert 'id="1"' in page
    assert 'id="3"' in page


def test_every_cell_says_what_made_it(run):
    paper, _, results = run
    made = results["figures"][0]["made"]
    assert made["command"] == "dprl reproduce 004 --figure 1"
    assert made["seeds"] == [0, 3]
    assert len(made["cells"]) == len(paper.figure("1").methods) * 2  # at 10 and 40 trajectories
    assert all(cell["seconds"] >= 0.0 and cell["commits"] for cell in made["cells"])
    assert set(made["versions"]) >= {"jax", "numpy"}
    assert {"dprl_papers/methods/trivial.py", record.SPECIFICATION} <= set(made["code"])


def test_numbers_older_than_their_code_are_marked(run):
    paper, _, results = run
    figure = results["figures"][0]
    changed = figure["made"]["code"] | {"dprl_papers/methods/trivial.py": "0", "dprl/evaluation/gone.py": "1"}
    older = figure | {"made": figure["made"] | {"code": changed}}
    fresh = figure | {
        "made": figure["made"] | {"code": {record.SPECIFICATION: record.specification(paper.figure("1"))}}
    }
    assert record.stale(fresh, paper) == []
    assert set(record.stale(older, paper)) >= {"dprl_papers/methods/trivial.py", "dprl/evaluation/gone.py"}
    longer = dataclasses.replace(paper, trials=paper.trials + 1)
    assert record.stale(figure, longer) == [record.SETTINGS, *record.stale(figure, paper)]
    narrower = dataclasses.replace(paper, figures=(dataclasses.replace(paper.figure("1"), methods=("zero",)),))
    assert record.stale(fresh, narrower) == [record.SPECIFICATION]
    assert record.STALE in record.markdown(older, paper)
    assert record.STALE not in record.markdown(fresh, paper)


def test_what_measures_makes_numbers_and_what_draws_charts_does_not(run):
    _, _, results = run
    made = set(results["figures"][0]["made"]["code"])
    assert {"dprl_papers/harness/metrics.py", "dprl/value_functions/features.py"} <= made
    assert not {"dprl_papers/harness/charts.py", "dprl/errors.py"} & made


@pytest.mark.parametrize("method", library_methods().values(), ids=lambda method: method.name)
def test_every_method_hangs_on_a_file_of_its_own(method):
    """Also where what it does is a function with some of its arguments given."""
    shared = {module_file(f"dprl_papers.harness.{name}") for name in ("problem", "metrics", "algorithm", "method")}
    assert {file for file in method.files() if file.suffix == ".py"} - shared


def test_libraries_whose_data_a_figure_reads_are_on_record_where_they_are_installed(monkeypatch):
    monkeypatch.setattr(record, "_READS", {"tables.py": "numpy", "games.py": "a-library-that-nobody-has"})
    assert list(record.reads(["dprl_papers/records/tables.py", "dprl_papers/games.py", "numpy.py"])) == ["numpy"]


def test_words_make_no_number(tmp_path):
    """Docstrings and comments leave a digest as it is, and code does not."""
    files = [tmp_path / f"{i}.py" for i in range(3)]
    for file, (doc, code) in zip(
        files, (("Adds.", "a + 1"), ("Sums  up.", "a  +  1  # so"), ("Adds.", "a + 2")), strict=True
    ):
        file.write_text(f'"""{doc}"""\n\n\ndef add(a):\n    """{doc}"""\n    return {code}\n')
    first, second, third = map(record.digest, files)
    assert first == second != third


def test_tables_say_what_the_results_have(run):
    paper, _, results = run
    figure = results["figures"][0]
    text = record.markdown(figure, paper)
    for series in figure["series"]:
        row = next(line for line in text.split("\n") if line.startswith(f"| {series['label']} |"))
        assert row.count("|") == 3 + len(series["points"])
    assert text.count("* *holds*: ") == sum(c["verdict"] == "holds" for c in figure["claims"])


def test_a_quick_run_goes_on_no_record(run, tmp_path):
    _, _, results = run
    own = {"quick": False, "plugin": None}
    for change in ({"quick": True}, {"plugin": "own.py"}, own | {"paper": "000"}, own | {"trials": 3}):
        (tmp_path / RESULTS).write_text(json.dumps(results | change))
        with pytest.raises(DprlError, match="does not go on record"):
            record.write_pages("004", tmp_path / RESULTS)


def test_code_that_no_commit_has_makes_no_number_of_a_page(tmp_path):
    results = read_json(record.RECORD / "001.json")
    record.refuse_for_record(results, load_paper("001"), "here")
    results["figures"][0]["made"]["commits"] = ["0" * 40 + DIRTY]
    with pytest.raises(DprlError, match="that no commit has"):
        record.refuse_for_record(results, load_paper("001"), "here")


def test_claims_are_judged_by_all_that_is_on_record():
    """A figure that is compared with another finds it, whichever run computed it."""
    for number in papers():
        results = read_json(record.RECORD / f"{number}.json")
        assert record.merged(results, results, load_paper(number)) == results
        assert all(claim["verdict"] != "not measured" for f in results["figures"] for claim in f["claims"])
