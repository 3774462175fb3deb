"""Certificates that are known to be false are withdrawn, with a bound that holds; past charges are corrected."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import dprl
from dprl.accounting import advisories, events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.advisories import ADVISORIES, WithdrawnError, correct, epsilon_of_two
from dprl.accounting.ledger import Ledger
from dprl.accounting.verification import verify
from dprl.cli.ledger import ledger_app
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum

from ..release.test_training_certificate import planned
from .test_strict_verification import under_a_filter
from .test_user_verification import certificate as of_users
from .test_user_verification import learned, user_sum
from .test_verification import fill, sample

ROOT = Path(__file__).parents[2]
OLD = {"versions": {"dprl": "0.1.0", "python": "3.11.7"}}
EVENT = events.poisson_gaussian(0.1, 1.6, 20)


def sampled_people(**changes: Any) -> dict[str, Any]:
    """As dp-pg with sampled people was certified."""
    mechanism = GaussianSum(parts=((4, 1.0),), noise_multiplier=1.6, sampling_rate=0.1, steps=20)
    delta = 1e-5 - 1e-9
    return of_users(user_sum()) | {
        "epsilon": 2.0, "delta": 1e-5, "neighbouring_relation": "add or remove one",
        "mechanisms": [mechanism.describe("Gaussian noise on sums over sampled users", "gradients")],
        "event": events.to_json(EVENT), "epsilon_of_event": epsilon_of(EVENT, delta), "delta_of_event": delta,
        "delta_sampler": 1e-9,
    } | changes  # fmt: skip


def test_sampled_people_of_earlier_versions_are_withdrawn(tmp_path):
    """With a bound that is larger than the claim, and a program that can act upon it."""
    assert verify(learned(tmp_path / "new", sampled_people())).private
    with pytest.raises(WithdrawnError, match="withdrawn by DPRL-2026-01") as caught:
        verify(learned(tmp_path / "old", sampled_people(**OLD)))
    assert caught.value.advisory == "DPRL-2026-01"
    assert caught.value.epsilon is not None
    assert f"epsilon {caught.value.epsilon:.6g}, where it states 2, at delta 1e-05" in str(caught.value)
    claimed = epsilon_of(EVENT, 1e-5)
    assert 2.0 * claimed < caught.value.epsilon < 3.0 * claimed
    for silent in ({}, {"dprl": "not installed"}, {"dprl": "0.1.9"}):  # who does not say is taken for the oldest
        with pytest.raises(WithdrawnError):
            verify(learned(tmp_path / "old", sampled_people(versions=silent)))
    assert verify(learned(tmp_path / "later", sampled_people(versions={"dprl": "0.10.0"}))).private


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_two_people_of_a_gaussian_have_a_closed_form(mu, delta):
    """Removing one and adding another moves a full sum by up to two clips: the bound covers N(0, 1) from N(2 mu, 1)."""
    found = epsilon_of_two(events.gaussian(1.0 / mu), delta)
    shift = 2.0 * mu
    exact = norm.sf(found / shift - shift / 2.0) - math.exp(found) * norm.sf(found / shift + shift / 2.0)
    assert exact <= delta
    assert found > epsilon_of(events.gaussian(1.0 / mu), delta)
    assert found < 1.5 * epsilon_of(events.gaussian(1.0 / (2.0 * mu)), delta)


def test_two_people_of_a_sampled_gaussian():
    """One Poisson step, the sums moved to both sides: integrated, never more than the bound allows."""
    rate, std, delta = 0.2, 0.8, 1e-4
    found = epsilon_of_two(events.poisson_gaussian(rate, std, 1), delta)

    grid = np.linspace(-10.0, 10.0, 200_001)
    up, down = (
        (1.0 - rate) * norm.pdf(grid, scale=std) + rate * norm.pdf(grid, loc=side, scale=std) for side in (1.0, -1.0)
    )
    assert np.trapezoid(np.maximum(up - math.exp(found) * down, 0.0), grid) <= delta


def test_the_functional_variant_off_the_walk_is_withdrawn():
    """On the walk, and as another variant, it is not."""

    def told(name: str, where: str) -> str:
        content = planned(name) | OLD
        content["assumed_public"]["environment"]["name"] = where
        return "; ".join(advisories.check(Path("certificate.json"), content))

    with pytest.raises(WithdrawnError, match=r"DPRL-2026-02: .*; no epsilon is proved") as caught:
        told("state", "gymnasium:FrozenLake-v1")
    assert caught.value.epsilon is None
    assert told("state", "interval-walk").startswith("DPRL-2026-03: ")
    assert told("observed-reward", "gymnasium:FrozenLake-v1").startswith("DPRL-2026-03: ")
    assert advisories.check(Path("certificate.json"), planned("state")) == ()


def test_cautions_where_the_certificate_cannot_tell(tmp_path):
    assert verify(fill(tmp_path / "plain", sample() | OLD)).cautions == ()
    assert verify(fill(tmp_path / "new", under_a_filter())).cautions == ()
    (caution,) = verify(fill(tmp_path / "old", under_a_filter() | OLD)).cautions
    assert caution.startswith("DPRL-2026-04: ")
    named = {"units": 300, "reading": "People are told apart by name: each has one place."}
    content = of_users(user_sum()) | OLD | {"assumed_public": named}
    (caution,) = verify(learned(tmp_path / "named", content)).cautions
    assert caution.startswith("DPRL-2026-05: ")


def test_people_are_told_of_every_advisory():
    """SECURITY.md has each by its name, and no other."""
    told = re.findall(r"DPRL-[0-9]{4}-[0-9]{2}", (ROOT / "SECURITY.md").read_text())
    names = [one.name for one in ADVISORIES]
    assert len(set(names)) == len(names)
    assert set(names) <= set(told)
    assert set(told) - set(names) == {"DPRL-2026-06"}  # of which no certificate tells
    assert (ROOT / "docs" / "proofs" / "withdrawn.md").exists()


@pytest.fixture
def book(tmp_path) -> Ledger:
    book = Ledger.create(tmp_path / "ledger.db", "shop", dprl.Budget(6.0, 1e-4), "person", "add or remove one")
    book.commit(book.charge("shop", dprl.Budget(2.0, 1e-5), "person", "add or remove one", "train dp-pg"), "a" * 64)
    return book


def test_a_past_charge_is_corrected_once(book):
    for _ in range(2):
        found = correct(book, 1, 4.6, 1e-5, "DPRL-2026-01")
        assert found.charge == 2
        assert found.epsilon == pytest.approx(2.6)
        assert found.missing == 0.0
    assert float(book.spent("shop").epsilon) == pytest.approx(4.6)
    first, second = book.history("shop")
    assert second.digest == first.digest
    assert "correction of charge 1" in second.purpose
    assert "DPRL-2026-01" in second.purpose
    with pytest.raises(DprlError, match="covers as much"):
        correct(book, 1, 2.0, 1e-5, "nothing")
    with pytest.raises(DprlError, match="has no charge 7"):
        correct(book, 7, 2.0, 1e-5, "nothing")


def test_what_the_budget_does_not_hold_is_said(book):
    said = CliRunner().invoke(
        ledger_app,
        ["correct", str(book.path), "--charge", "1", "--epsilon", "9", "--delta", "1e-5", "--why", "DPRL-2026-01"],
    )
    assert said.exit_code == 0
    assert "charge 2 adds epsilon 4 to charge 1" in said.stdout
    assert "did not hold epsilon 3" in said.stdout
    assert book.remaining("shop").epsilon == 0
    with pytest.raises(DprlError, match="has nothing left"):
        correct(book, 1, 10.0, 1e-5, "another")
