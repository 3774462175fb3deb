"""Two verifiers that share no code give one verdict, on what dprl wrote and on what somebody may have made of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.advisories import ADVISORIES, FIRST_SOUND_VERSION, WithdrawnError
from dprl.accounting.certificate import seal, write
from dprl.accounting.verification import verify
from dprl.errors import DprlError, UnreadableError

from ..accounting.test_verification import make_keys
from .conftest import SCRIPT
from .corpus import SENSES, VERSIONS, cases, content_of, put

FAST = ("importance-sampling", "best", "people")
"""Of every composition one: the others go the same ways."""


def verdict(folder: Path, **asked: Any) -> str:
    """Return what :func:`dprl.accounting.verification.verify` says, in the words of the other verifier."""
    try:
        found = verify(folder, **asked)
    except WithdrawnError:
        return "withdrawn"
    except UnreadableError:
        return "unreadable"
    except DprlError:
        return "does not hold"
    return "statement" if not found.private else "caution" if found.cautions else "holds"


def compared(alone: Any, bases: dict[str, Path], scratch: Path) -> Counter[str]:
    """Return how often each verdict was given; refuse two that differ."""
    found, differing = Counter[str](), []
    for name, folder in cases(bases, scratch):
        theirs, (own, why, _) = verdict(folder), alone.check(str(folder))
        found[own] += 1
        if own != theirs:
            differing.append((name, theirs, own, why))
    assert differing == []
    return found


def test_a_few_of_each_kind(alone, stored, tmp_path):
    found = compared(alone, {name: stored["0.2.0"][name] for name in FAST}, tmp_path)
    assert found.total() > 200
    assert {"holds", "does not hold", "caution", "unreadable"} <= set(found)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_whole_corpus(alone, stored, tmp_path, version):
    found = compared(alone, stored[version], tmp_path)
    assert found.total() > 1000
    assert {"holds", "does not hold", "unreadable", "statement"} <= set(found)
    assert ("caution" in found, "withdrawn" in found) == (True, True)


@pytest.mark.slow
def test_every_change_meets_a_certificate_that_has_room_for_it(stored, tmp_path):
    """Or else it would be no case."""
    bases = {name: folder for found in stored.values() for name, folder in found.items()}
    met = {name.partition(": ")[2] for name, _ in cases(bases, tmp_path)}
    assert set(SENSES) <= met


@pytest.mark.parametrize("version", VERSIONS)
def test_many_rewards_are_no_vector(alone, stored, tmp_path, version):
    """A hundred of them in one step of dimension 100 would cost what one does: a tenth of the epsilon."""
    folder = Path(shutil.copytree(stored[version]["observed-reward"], tmp_path / "r"))
    content = content_of(folder)
    (row,) = content["mechanisms"]
    row |= {"steps": 1, "dimension": row["steps"]}
    content["event"] = {"type": "Gaussian", "noise_multiplier": row["noise_multiplier"]}
    epsilon = epsilon_of(events.from_json(content["event"]), content["delta_of_event"])
    content |= {"epsilon": epsilon, "epsilon_of_event": epsilon, "ledger": None}
    put(folder, content, {"epsilon": epsilon})
    assert (verdict(folder), alone.check(str(folder))[0]) == ("does not hold",) * 2


def ran(*arguments: str | Path) -> tuple[int, str]:
    """Run the script as a stranger would: no environment, no packages, an empty folder."""
    command = [sys.executable, "-I", "-S", str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={}, cwd="/", check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_script_runs_without_any_package(alone, stored, tmp_path):
    folder = stored["0.2.0"]["importance-sampling"]
    code, said = ran(folder)
    assert code == 0
    assert "holds: every check passed." in said.splitlines()[-1]
    assert "shows accidents, not tampering" in said
    code, said = ran("--json", folder)
    assert json.loads(said)["verdict"] == "holds"
    for name, folder in cases({"statement": stored["0.2.0"]["seeded"]}, tmp_path):
        if name in ("statement", "statement: cut in half", "statement: no folder", "statement: a file too many"):
            code, said = ran(folder)
            assert code == alone.CODES[said.splitlines()[-1].partition(":")[0]]
            assert code == alone.CODES[verdict(folder)]


def test_signatures(alone, stored, tmp_path):
    """With the right key, another one, none, and a changed signature."""
    keys, content = make_keys(tmp_path), content_of(stored["0.2.0"]["signed"])
    results = Path(shutil.copytree(stored["0.2.0"]["signed"], tmp_path / "r"))
    write(seal(content, results, content["artifacts"], keys / "mine.pem"), results)
    good = (results / "certificate.json").read_bytes()
    for key in ("mine", "other", None):
        pem = None if key is None else keys / f"{key}.pub"
        expected = "does not hold" if key == "other" else "holds"
        assert verdict(results, public_key=pem) == expected
        assert alone.check(str(results), pem and str(pem))[0] == expected
    for value in re.finditer(rb'"(?:value|public_key)": "([0-9a-f]{8})[0-9a-f]{56}', good):
        changed = bytearray(good)
        changed[value.start(1)] ^= 1
        (results / "certificate.json").write_bytes(changed)
        assert alone.check(str(results))[0] == verdict(results) == "does not hold"
    (results / "certificate.json").write_bytes(good.replace(b'"Ed25519"', b'"Ed448"'))
    assert alone.check(str(results))[0] == verdict(results) == "does not hold"
    assert alone.check(str(stored["0.2.0"]["td"]), str(keys / "mine.pub"))[0] == "does not hold"


def test_advisories_are_the_same(alone):
    assert [(name, withdraws) for name, withdraws, _ in alone.ADVISORIES] == [
        (one.name, one.withdraws) for one in ADVISORIES
    ]
    assert FIRST_SOUND_VERSION == (0, 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        ("check_fields", None), ("check_row", None), ("check_rows", None), ("check_units", None),
        ("check_shares", None), ("check_noise", 0.0), ("check_choice", None), ("check_advisories", []),
    ],
)  # fmt: skip
def test_without_one_check_the_verdicts_differ(alone, stored, tmp_path, monkeypatch, name, nothing):
    """Each check decides some case, so that the corpus would notice if it were lost."""
    monkeypatch.setattr(alone, name, lambda *_: nothing)
    bases = {base: stored["0.2.0"][base] for base in ("importance-sampling", "greedy", "best", "people", "functional")}
    found = ((verdict(folder), alone.check(str(folder))[0]) for _, folder in cases(bases, tmp_path))
    assert any(own != theirs for theirs, own in found)
