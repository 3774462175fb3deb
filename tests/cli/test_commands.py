"""Every command once, end to end, and what it prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import jax
import pytest

from dprl import entry_points
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.cli.command import Progress
from dprl.cli.evaluate import _errors
from dprl.data.partition import partition
from dprl.environments.chain import Chain
from dprl.environments.rollout import rollout, write_log
from dprl.errors import DprlError
from dprl.policies.loading import UniformPolicy

from ..accounting.test_verification import make_keys

ARTIFACTS = {"estimate.json", "report.html", "certificate.json"}
FLAGS = {
    "evaluate": "--target-policy --compare --best --bounds --unit --person-column --epsilon --delta --discount "
    "--algorithm --choosing-share --features --subgroup --ledger --dataset --noise-multiplier --behavior-policy "
    "--config --set --seed --simulated --sign --out --resume --json",
    "learn": "--cuts --policies --bounds --unit --person-column --epsilon --delta --discount --choosing-share --ledger "
    "--dataset --behavior-policy --config --set --seed --simulated --sign --outcome --out --resume --json",
    "audit": "--calibration --units --steps --sampling-rate --epsilon --delta --released --trials --seed --confidence "
    "--set --all --out --list --json",
    "train": "--environment --bounds --epsilon --delta --ledger --dataset --config --set --seed --simulated --sign "
    "--out --resume --engine --shards --address --json",
    "learn-protector": "--tasks --epsilon --delta --value-budget-fraction --scheduler --steps --epochs --seed --set "
    "--start --out --resume --json",
    "calibrate": "--epsilon --delta --sampling-rate --steps --noise-multiplier --bounds --features --set --json",
    "plan": "--target-policy --compare --best --learn --cuts --bounds --unit --person-column --epsilon --delta "
    "--discount --algorithm --choosing-share --features --subgroup --noise-multiplier --behavior-policy --config --set "
    "--json",
    "simulate": "--episodes --policy --seed --out",
    "verify": "--public-key --json",
    "report": "--out",
    "ledger create": "--dataset --epsilon --delta --unit --relation",
    "ledger show": "--json",
    "ledger history": "--dataset --json",
    "data template": "--out --person-column",
    "data describe": "--bounds --unit --person-column --json",
}


@pytest.mark.parametrize("command", FLAGS)
def test_every_command_has_its_flags(dprl, command):
    """On its first page, which fits on a screen, on the page of everything, or on that of an algorithm."""
    first, *pages = [
        dprl(*command.split(), "--help", topic)
        for topic in ("", "all", "gpope" if command != "learn" else "importance-sampling")
    ]
    assert first.code == 0
    assert first.out.count("\n") <= 25
    assert set(FLAGS[command].split()) <= set(re.findall(r"--[a-z-]+", "".join(p.out for p in (first, *pages))))


def test_the_commands_are_listed(dprl):
    found = dprl("--help").done()
    listed = re.findall(r"^  ([a-z-]+)  ", found.out, flags=re.MULTILINE)
    assert {c.partition(" ")[0] for c in FLAGS} <= set(listed)
    assert dprl("-h").out == found.out
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert dprl("--version").out == f"dprl {project['version']}\n"
    (script,) = metadata.entry_points(group="console_scripts", name="dprl")
    assert script.value == "dprl.cli:main"


def test_differences_and_subgroups_are_printed_and_wrong_ones_refused_before_the_charge(dprl, trial):
    asked = {"target_policy": ["uniform", f"{trial.policies}:mostly"]}
    for wrong, words in (
        ({"compare": "mostly:mostly"}, "with itself"),
        ({"subgroup": "observation_0:-1"}, "ascending cut points"),
    ):
        dprl(*trial.arguments(**asked | wrong)).refused(words)
    assert not list(Ledger.open(trial.ledger).history())
    found = dprl(*trial.arguments(**asked, compare="mostly:uniform", subgroup="observation_0:0.5")).done()
    lines = found.out.splitlines()
    assert lines[2].partition("  ")[0] == "mostly less uniform"
    names = [line.partition(":")[0] for line in lines if line.startswith("observation_0")]
    assert names == ["observation_0 < 0.5", "observation_0 >= 0.5"]
    estimate = json.loads((trial.out / "estimate.json").read_text())
    (contrast,) = estimate["contrasts"]
    values = {t["name"]: t["value"] for t in estimate["targets"]}
    assert contrast["value"] == values["mostly"] - values["uniform"]
    assert [group["name"] for group in estimate["subgroups"]] == names
    page = (trial.out / "report.html").read_text()
    assert "Is the policy" in page
    assert "Who benefits" in page
    assert dprl("verify", trial.out).code == 0


def test_a_private_release_from_end_to_end(dprl, trial):
    found = dprl(
        *trial.arguments(target_policy=["uniform", f"{trial.policies}:mostly"], outcome="points a visit")
    ).done()
    said = found.out.splitlines()
    cautions = [line.removeprefix("caution: ") for line in said if line.startswith("caution: ")]
    assert [line.split()[0] for line in said if not line.startswith("caution: ")] == [
        "uniform",
        "mostly",
        "verified:",
        "report:",
    ]
    assert {p.name for p in trial.out.iterdir()} == ARTIFACTS
    estimate = json.loads((trial.out / "estimate.json").read_text())
    # also those that follow from released values, as the report has them
    assert cautions == estimate["cautions"]
    assert len(cautions) >= len(estimate["public_cautions"]) == 1
    assert estimate["schema"] == "dprl.estimate/1"
    assert [t["name"] for t in estimate["targets"]] == ["uniform", "mostly"]
    assert [t["reference"] for t in estimate["targets"]] == [None, None]
    assert estimate["value_function"] is None
    assert estimate["request"] == {
        "log": "log.parquet", "unit": "person", "unit_column": "person_id", "discount": 0.99,
        "outcome": "points a visit",
    }  # fmt: skip
    assert "points a visit" in (trial.out / "report.html").read_text()
    certificate = json.loads((trial.out / "certificate.json").read_text())
    (charge,) = Ledger.open(trial.ledger).history()
    assert charge.digest == certificate["digest"]
    assert certificate["ledger"]["dataset"] == "trial"
    assert certificate["epsilon_of_event"] <= 1.0

    checked = dprl("verify", trial.out, "--json").json()
    assert checked["verified"] is checked["private"] is True
    assert checked["epsilon_recomputed"] <= 1.0
    assert dprl("verify", trial.out).out.count("\n") == 3
    # a second release would overspend, and the first folder is left alone
    dprl(*trial.arguments(out=trial.folder / "second")).refused("has epsilon 0 and delta 0 left")
    assert not (trial.folder / "second").exists()

    shown = dprl("ledger", "show", trial.ledger, "--json").json()
    assert [(d["dataset"], d["epsilon_spent"], d["releases"], d["unfinished"]) for d in shown["datasets"]] == [
        ("trial", 1.0, 1, 0)
    ]
    (row,) = dprl("ledger", "history", trial.ledger, "--json").json()["charges"]
    assert row["digest"] == certificate["digest"]
    assert "evaluate importance-sampling" in dprl("ledger", "history", trial.ledger).out
    assert dprl("ledger", "show", trial.ledger).code == 0

    page = trial.folder / "again.html"
    assert dprl("report", trial.out, "--out", page).code == 0
    assert page.read_bytes() == (trial.out / "report.html").read_bytes()
    assert dprl("verify", trial.out).code == 0


def test_a_value_function_comes_with_gpope(dprl, trial):
    from dprl.value_functions.value_function import load_value_function

    found = dprl(*trial.arguments(algorithm="gpope", set="steps=5", features="fourier:1", json=True)).json()
    assert found["status"] == "verified"
    assert set(found["paths"]) == ARTIFACTS | {"value_function.safetensors"}
    function = load_value_function(trial.out)
    assert function.features.size == 4
    estimate = json.loads((trial.out / "estimate.json").read_text())
    assert estimate["value_function"]["features"] == {"name": "fourier:1", "size": 4}
    piece = estimate["value_function"]["slices"][1]
    states = [[5.0, y] for y in piece["grid"]]
    assert function(states).tolist() == piece["values"]
    assert dprl("verify", trial.out, "--json").json()["artifacts"] == sorted(set(found["paths"]) - {"certificate.json"})


def test_json_of_evaluate(dprl, trial):
    found = dprl(*trial.arguments(json=True)).json()
    assert {"value", "interval", "epsilon", "delta", "status", "paths"} <= set(found)
    assert set(found) - {"value", "interval", "epsilon", "delta", "status", "paths"} <= {"targets", "cautions"}
    assert found["interval"][0] < found["value"] < found["interval"][1]
    assert (found["epsilon"], found["delta"], found["status"]) == (1.0, 1e-5, "verified")
    assert found["paths"] == {name: str(trial.out / name) for name in ARTIFACTS}


def test_a_release_without_a_ledger_says_so(dprl, trial):
    found = dprl(*trial.arguments(ledger=None, dataset=None))
    assert "\nno ledger: nothing was charged" in found.out
    assert "other releases from the same log were not counted" in (trial.out / "report.html").read_text()
    assert trial.charges() == 0


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"seed": 7}, "not private", "This is a statement"),
        ({"simulated": True}, "not private", "This is a statement"),
        ({"algorithm": "gpope", "set": ["steps=5", "calibration=as-published"]}, "as published", "This is a statement"),
    ],
)
def test_what_is_not_private_says_so(dprl, trial, changes, status, words):
    found = dprl(*trial.arguments(**changes)).done()
    assert f"\n{status}: " in found.out
    assert words in found.out
    names = {p.name for p in trial.out.iterdir()}
    assert "statement.json" in names
    assert "certificate.json" not in names
    assert json.loads((trial.out / "statement.json").read_text())["status"] == status
    references = [t["reference"] for t in json.loads((trial.out / "estimate.json").read_text())["targets"]]
    assert (references[0] is not None) == ("simulated" in changes)
    checked = dprl("verify", trial.out, "--json").json()
    assert checked["private"] is False
    assert "not a private release" in dprl("verify", trial.out).out
    # a dry run spends like any other: the rows were read
    assert trial.charges() == 1


def test_flags_win_over_settings_and_settings_over_the_run_file(dprl, trial):
    run = trial.folder / "run.toml"
    run.write_text(
        f"log = '{trial.log}'\ntarget_policy = ['uniform', '{trial.policies}:first']\nbounds = '{trial.bounds}'\n"
        "unit = 'person'\nperson_column = 'person_id'\nepsilon = 0.25\ndelta = 1e-6\n"
        "algorithm = 'importance-sampling'\n"
        f"dataset = 'trial'\nledger = '{trial.ledger}'\ndiscount = 0.5\nconfidence = 0.8\ncaution = 2\n"
    )
    settings = ["--set", "confidence=0.9", "--set", "discount=0.6"]
    flags = ["--discount", "0.7", "--epsilon", "0.9", "--out", trial.out]
    assert dprl("evaluate", "--config", run, *settings, *flags).code == 0
    estimate = json.loads((trial.out / "estimate.json").read_text())
    assert (estimate["epsilon"], estimate["delta"]) == (0.9, 1e-6)
    assert [t["name"] for t in estimate["targets"]] == ["uniform", "first"]
    options = json.loads((trial.out / "certificate.json").read_text())["assumed_public"]["hyper_parameters"]
    assert options["discount"] == {"value": 0.7, "provenance": "flag (stated public)"}
    assert options["confidence"] == {"value": 0.9, "provenance": "--set (stated public)"}
    assert options["variance_margin"] == {"value": 2.0, "provenance": "run.toml (stated public)"}
    assert options["second_moment_weight"]["provenance"] == "library default (public)"


def test_bounds_may_stand_in_the_run_file(dprl, trial):
    run = trial.folder / "run.toml"
    run.write_text("[bounds]\n" + trial.bounds.read_text())
    assert dprl(*trial.arguments(bounds=None, config=run)).code == 0


def test_a_public_behaviour_policy_stands_in_for_the_column(dprl, trial):
    """Uniform over two actions is what the column says: with the same noise the same numbers come out."""
    from ..sample_log import columns

    common = {"seed": 1, "ledger": None, "dataset": None, "json": True}
    with_column = dprl(*trial.arguments(**common, out=trial.folder / "a")).json()
    trial.write({k: v for k, v in columns().items() if k != "behavior_prob"})
    without = dprl(*trial.arguments(**common, behavior_policy="uniform", out=trial.folder / "b")).json()
    assert without["targets"] == with_column["targets"]


def test_an_empty_folder_is_taken_and_the_working_folder_s_name_is_not_needed(dprl, trial, monkeypatch):
    trial.out.mkdir()
    monkeypatch.chdir(trial.folder)
    assert dprl(*trial.arguments(out="results")).code == 0
    assert dprl("verify", "results").code == 0  # a folder may be called as the argument is
    assert {p.name for p in trial.out.iterdir()} == ARTIFACTS
    assert trial.files() == {
        "bounds.toml", "policies.py", "ledger.db", "log.parquet", "results", *(f"results/{n}" for n in ARTIFACTS)
    }  # fmt: skip


def test_plan_says_what_to_expect_and_reads_no_row(dprl, trial):
    raw = trial.log.read_bytes()
    trial.log.write_bytes(raw[:4] + bytes(len(raw) // 3) + raw[4 + len(raw) // 3 :])
    arguments = ["plan", *trial.arguments(ledger=None, dataset=None, out=None)[1:]]
    made = dprl(*arguments, "--json").json()
    assert made["epsilon_of_event"] <= made["epsilon"] == 1.0
    (target,) = made["targets"]
    low, high = target["interval_half_width"]
    assert 0 < target["privacy_standard_error"] < low < high
    said = dprl(*arguments).out
    assert "max_cumulative_ratio: 2, derived" in said
    assert said.count("\n") == 6
    assert trial.charges() == 0


def test_plan_needs_no_log(dprl, trial):
    found = dprl(
        "plan", "--bounds", trial.bounds, "--epsilon", 1, "--delta", 1e-5, "--algorithm", "importance-sampling"
    )
    assert found.code == 0
    assert "per trajectory; importance-sampling" in found.out


def test_the_release_is_as_noisy_as_the_plan_said(dprl, trial):
    trial.bounds.write_text(trial.bounds.read_text().replace("horizon = 4", "horizon = 1"))  # nothing is cut
    planned = dprl("plan", *trial.arguments(ledger=None, dataset=None, out=None)[1:], "--json").json()
    found = dprl(*trial.arguments(json=True)).json()
    expected = planned["targets"][0]["privacy_standard_error"]
    assert found["targets"][0]["privacy_standard_error"] == pytest.approx(expected)
    low, _ = planned["targets"][0]["interval_half_width"]
    assert (found["interval"][1] - found["interval"][0]) / 2 >= low * (1 - 1e-9)


def test_describe_is_for_the_curator(dprl, trial):
    arguments = ["data", "describe", trial.log, "--bounds", trial.bounds, "--person-column", "person_id"]
    assert dprl(*arguments).out.startswith("NOT private")
    assert dprl(*arguments, "--json").json()["units"] == 60


def test_simulate_writes_a_log_that_evaluate_takes(dprl, trial):
    log = trial.folder / "chain.parquet"
    assert dprl("simulate", "chain", "--episodes", 20, "--out", log).code == 0
    changes = {"log": log, "bounds": log.with_suffix(".bounds.toml"), "unit": None, "person_column": None}
    dprl(*trial.arguments(**changes, ledger=None, dataset=None, simulated=True)).done()


def test_signing(dprl, trial):
    keys = make_keys(trial.folder)
    assert dprl(*trial.arguments(sign=keys / "mine.pem")).code == 0
    assert dprl("verify", trial.out, "--public-key", keys / "mine.pub").code == 0
    assert dprl("verify", trial.out, "--public-key", keys / "other.pub").code == 2


# --- as a process -------------------------------------------------------------------------------------------------


def test_as_a_process(trial):
    """Exit codes and streams are those of the calls above; two processes, for each pays for its imports."""
    command = [sys.executable, "-W", "error::UserWarning", "-m", "dprl"]
    Ledger.create(trial.ledger, "other", Budget(1.0, 1e-5), "person", "add or remove one")
    good = subprocess.run(
        [*command, *map(str, trial.arguments(dataset="other", json=True))], capture_output=True, text=True, timeout=120
    )
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["status"] == "verified"
    bad = subprocess.run([*command, "verify", "absent"], capture_output=True, text=True, timeout=120)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]*\n", bad.stderr)


def test_the_bar_is_as_long_as_public_facts_say(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(quiet=False) as progress:
        progress(1)  # nobody has said how many
        assert progress._bar is None
        progress.expect(5)
        progress(3)
        assert progress._bar is not None
        (task,) = progress._bar.tasks
        assert (task.total, task.completed) == (5, 3)
    with Progress(2, quiet=True) as quiet:
        assert quiet._bar is None


def test_what_takes_long_says_that_something_is_going_on(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(quiet=False) as progress:
        late = progress._patience
        assert progress._bar is None
        late.function(*late.args)  # what the timer does after three seconds
        assert progress._bar is not None
        (task,) = progress._bar.tasks
        assert (task.description, task.total) == ("preparing", None)
        progress.expect(5)
        assert (task.description, task.total) == ("private updates", 5)
    with Progress(quiet=False) as short:
        late = short._patience
    late.function(*late.args)
    assert short._bar is None


def test_a_simulation_tells_how_far_it_is(tmp_path):
    told: list[int] = []
    columns = rollout(Chain(), UniformPolicy(1), jax.random.key(1), 5, batch=2, progress=told.append)
    assert told == [2, 4, 5]
    write_log(columns, tmp_path / "log.parquet")
    rows = len(columns["t"])

    class Told(list):
        def expect(self, steps: int) -> None:
            self.append(steps)

        def __call__(self, done: int) -> None:
            self.append(done)

    partition(tmp_path / "log.parquet", "episode_id", 3, tmp_path / "parts", seen := Told())
    assert seen[:2] == [2 * rows, rows]
    assert seen[-1] == 2 * rows
    assert seen[1:] == sorted(seen[1:])


@pytest.mark.parametrize(
    ("sampling", "most", "words"),
    [
        (0.25, None, "privacy noise 0.5, sampling error about 0.25"),
        (0.25, 0.3, "privacy noise 0.5, sampling error about 0.25, at most 0.3"),
        (0.0, 0.3, "privacy noise 0.5, sampling error at most 0.3"),
        (0.0, None, "privacy noise 0.5, sampling error hidden by it"),
    ],
)
def test_errors_of_values_in_words(sampling, most, words):
    """Zero is never said of a sampling error that the noise hides."""
    found = {"privacy_standard_error": 0.5, "sampling_standard_error": sampling}
    assert _errors(found | ({} if most is None else {"sampling_standard_error_at_most": most})) == words


# --- commands that other distributions add ------------------------------------------------------------------------


def test_a_command_of_papers_is_listed_and_found(dprl):
    assert "reproduce" in entry_points.names(entry_points.COMMANDS)
    assert dprl("reproduce", "--list").code == 0


def test_without_the_distribution_it_is_one_sentence(dprl, monkeypatch):
    monkeypatch.setattr(entry_points.metadata, "entry_points", lambda **_: ())
    found = dprl("reproduce", "004")
    assert found.err == (
        "error: dprl reproduce needs the distribution dprl-papers: pip install ./papers in the sources of dprl.\n"
    )
    assert "reproduce" not in dprl("--help").out
    with pytest.raises(DprlError, match="dprl-papers"):
        entry_points.entry_in_calibration("gpope", "as-published")
