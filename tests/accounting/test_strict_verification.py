"""Every number of a certificate is of its kind and in its range, and what follows from others is computed again."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dprl
from dprl.accounting import events, verification
from dprl.accounting.accountant import accountant_name, epsilon_of
from dprl.accounting.certificate import seal, write
from dprl.accounting.ledger import Ledger
from dprl.accounting.renyi_filter import plan_filter
from dprl.accounting.verification import verify
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.registry import ALGORITHMS, LEARNING

from .test_verification import ARTIFACTS, fill, mechanism, refuse, restate, sample


def under_a_filter() -> dict[str, Any]:
    """The certificate of a release whose noise is chosen on the way."""
    plan = plan_filter(1.0, 1e-5 - 1e-9, 0.1, 20, 3.0, share=0.5)
    z = plan.noise_multiplier
    common = {"parts": ((3, 1.0),), "sampling_rate": 0.1, "steps": 20}
    steps = FilteredGaussianSum(
        **common,
        noise_multiplier=z,
        levels=(z, 2.0 * z),
        norm_multiplier=3.0 * z,
        order=plan.order,
        budget=plan.budget,
    )
    assert plan.before is not None
    event = steps.event().__class__(**{**vars(steps.event()), "before": (plan.before,)})
    first = GaussianSum(parts=((2, 1.0),), noise_multiplier=plan.before).describe("Gaussian vector", "v")
    name = "Poisson-sampled clipped Gaussian sum and its norm, under a Renyi filter"
    return sample() | {
        "mechanisms": [first | {"share": 0.5}, steps.describe(name, "steps") | {"share": 0.5}],
        "event": events.to_json(event),
        "accountant": accountant_name(event),
        "epsilon_of_event": epsilon_of(event, 1e-5 - 1e-9),
    }


@pytest.fixture(scope="module")
def filtered() -> dict[str, Any]:
    return under_a_filter()


BAD = [-5, 0, True, 2.0, "x", None, [3], {}, 10**15]
"""No positive whole numbers."""


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("field", ["steps", "dimension"])
def test_whole_numbers_of_a_sum_are_whole(tmp_path, field, value):
    """In particular no dimension of -5, with which no draw of noise would cost anything."""
    wrong = sample() | mechanism(1, **{field: value}) | {"delta_sampler": 0.0}
    refuse(fill(tmp_path / "r", wrong), "certificate.json")


@pytest.mark.parametrize("field", ["clip_norm", "noise_multiplier", "grid_step", "sampling_rate", "share"])
@pytest.mark.parametrize("value", [-1.0, 0, True, "x", None, 1e300, 5e-324], ids=repr)
def test_numbers_of_a_sum_are_in_their_range(tmp_path, field, value):
    refuse(fill(tmp_path / "r", sample() | mechanism(1, **{field: value})), "certificate.json")


def test_every_field_of_a_filters_row_counts(tmp_path, filtered):
    """Whatever is changed, removed or added is refused; the words in it are free."""
    assert verify(fill(tmp_path / "good", filtered)).private
    row = filtered["mechanisms"][1]
    wrong = {
        "clip_norm": 2.1, "grid_step": 2.0**-31, "noise_multiplier": row["noise_multiplier"] * 1.01, "dimension": 1,
        "sampling_rate": 0.2, "steps": 19, "levels": [1.0], "norm_multiplier": row["norm_multiplier"] * 1.01,
        "order": row["order"] + 1, "budget": row["budget"] * 0.9, "share": 0.4, "name": "Clipped sum", "purpose": 3,
    }  # fmt: skip
    assert set(wrong) == set(row)
    for field, value in wrong.items():
        for changed in (row | {field: value}, {name: row[name] for name in row if name != field}):
            rows = [filtered["mechanisms"][0], changed]
            refuse(fill(tmp_path / "r", filtered | {"mechanisms": rows}), "certificate.json")
    refuse(fill(tmp_path / "r", filtered | {"mechanisms": [filtered["mechanisms"][0], row | {"more": 1}]}), "unknown")
    shares = [filtered["mechanisms"][0] | {"share": 0.6}, row | {"share": 0.4}]
    refuse(fill(tmp_path / "r", filtered | {"mechanisms": shares}), "not what its Renyi filter spends")


@pytest.mark.parametrize("units", [10, 99_999])
def test_delta_is_below_one_over_the_units(tmp_path, units):
    public = {"bounds": {"units": units}, "hyper_parameters": {}, "policies": []}
    assert verify(fill(tmp_path / "r", sample() | {"assumed_public": public})).private
    for wrong in (100_000, 10**9, 0, -1, True, 2.0, "10", None):
        content = sample() | {"assumed_public": public | {"bounds": {"units": wrong}}}
        refuse(fill(tmp_path / "r", content), "at least one over its|does not declare")


def block(**changes: Any) -> dict[str, Any]:
    return {"ledger": {"dataset": "trial", "charge": 1, "epsilon": 1.0, "delta": 1e-5} | changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.1}, {"delta": 1e-6}, {"delta": None}, {"charge": 0}, {"charge": True}, {"charge": 1.0},
        {"charge": "1"}, {"dataset": ""}, {"dataset": 3}, {"dataset": "a\x00b"}, {"epsilon": "1.0"}, {"more": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_an_invented_ledger_block_is_refused(tmp_path, changes):
    assert verify(fill(tmp_path / "good", sample() | block())).private
    refuse(fill(tmp_path / "r", sample() | block(**changes)), "ledger block")
    refuse(fill(tmp_path / "r", sample() | {"ledger": {"dataset": "trial"}}), "ledger block")


def test_the_ledgers_own_record_is_asked(tmp_path):
    """The charge must be there, for this amount, finished, and for this very release."""
    path = tmp_path / "ledger.db"
    book = Ledger.create(path, "trial", dprl.Budget(5.0, 1e-4), "person", "add or remove one")
    for amount in ((1.0, 1e-5), (0.5, 1e-5)):
        book.charge("trial", dprl.Budget(*amount), "person", "add or remove one", "evaluate td")
    folder = fill(tmp_path / "r", sample() | block())
    refuse(folder, "unfinished", ledger=path)
    book.commit(1, "0" * 64)
    refuse(folder, "for another release", ledger=path)
    folder = fill(tmp_path / "r", sample() | block(charge=2))
    refuse(folder, "another epsilon or delta", ledger=path)
    for changes in ({"charge": 3}, {"dataset": "other"}):
        refuse(fill(tmp_path / "r", sample() | block(**changes)), "has no charge", ledger=path)
    refuse(fill(tmp_path / "r", sample()), "names no charge", ledger=path)
    refuse(fill(tmp_path / "r", sample() | block()), "ledger", ledger=tmp_path / "nowhere.db")
    book.charge("trial", dprl.Budget(1.0, 1e-5), "person", "add or remove one", "evaluate td")
    folder = fill(tmp_path / "good", sample() | block(charge=3))
    book.commit(3, verify(folder).content["digest"])
    assert verify(folder, ledger=path).private
    wrong = sample() | block(charge=3) | {"privacy_unit": "trajectory"}
    refuse(fill(tmp_path / "r", wrong), "another privacy unit", ledger=path)


@pytest.mark.parametrize(
    "created",
    ["9999-99-99", "2026-02-30T00:00:00Z", "2026-11-22T24:00:00Z", "2026-11-22 10:00:00", "0001-01-01T00:00:00Z"],
)
def test_dates_exist(tmp_path, created):
    refuse(fill(tmp_path / "r", sample() | {"created": created}), "'created'")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": {"secure": True, "source": 3}}, "'noise'"),
        ({"noise": {"secure": True, "more": "x"}}, "'noise'"),
        ({"versions": {"dprl": 1}}, "'versions'"),
        ({"not_protected": [3]}, "'not_protected'"),
        ({"assumed_public": {"bounds": 3}}, "'bounds'"),
        ({"assumed_public": {"bounds": {"units": 3}, "hyper_parameters": {"steps": 3}}}, "'hyper_parameters'"),
        ({"assumed_public": {"bounds": {"units": 3}, "policies": {}}}, "'policies'"),
        ({"event": events.to_json(events.gaussian(8.0)) | {"noise_multiplier": 8}}, "not one that dprl emits"),
    ],
)
def test_other_fields_are_of_their_type(tmp_path, changes, message):
    refuse(fill(tmp_path / "r", sample() | changes), message)


def test_only_algorithms_of_dprl_are_certified(tmp_path):
    """The names are those of the registry; another one, or none, is refused."""
    assert tuple(ALGORITHMS) == verification.EVALUATING
    assert tuple(LEARNING) == verification.LEARNING
    folder = fill(tmp_path / "r", sample())
    stated = json.loads((folder / "estimate.json").read_bytes())
    for moved in verification.FORMERLY_CERTIFIED:  # what was certified once
        assert verify(restate(folder, json.dumps(stated | {"algorithm": moved}).encode())).private
    for wrong in ("mine", "dp-pg", None, ["td"], 3):
        restate(folder, json.dumps(stated | {"algorithm": wrong}).encode())
        refuse(folder, "certifies an algorithm that this version of dprl does not have")
    (folder / "estimate.json").unlink()
    write(seal(sample(), folder, ARTIFACTS[1:]), folder)
    refuse(folder, "must come with one of")
