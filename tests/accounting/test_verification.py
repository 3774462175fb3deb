"""A certificate that was changed anywhere, or that claims too much, is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from typer.testing import CliRunner

from dprl.accounting import accountant, events
from dprl.accounting.certificate import NOT_A_TRAJECTORY, digest, seal, to_bytes, versions, write
from dprl.accounting.verification import verify
from dprl.cli.results import verify as verify_command
from dprl.errors import DprlError
from dprl.mechanisms.gaussian_sum import GaussianSum

EVENT = events.compose([events.gaussian(8.0), events.poisson_gaussian(0.02, 4.0, 25)])
ARTIFACTS = ["estimate.json", "value_function.safetensors", "report.html"]


def row(name: str, noise_multiplier: float, sampling_rate: float, steps: int) -> dict[str, Any]:
    """As a sum over three coordinates is described."""
    common = {"parts": ((3, 1.0),), "steps": steps, "sampling_rate": sampling_rate}
    return GaussianSum(noise_multiplier=noise_multiplier, **common).describe(name, "values")


def sample() -> dict[str, Any]:
    """A certificate as an evaluation would fill it in, before sealing."""
    return {
        "schema": "dprl.certificate/1",
        "status": "verified",
        "epsilon": 1.0,
        "delta": 1e-5,
        "privacy_unit": "person",
        "neighbouring_relation": "add or remove one",
        "released": "the noisy sums and iterates",
        "not_protected": ["that the log exists"],
        "mechanisms": [
            row("Gaussian vector", 8.0, 1.0, 1) | {"share": 0.75},
            row("Poisson-sampled clipped Gaussian sum", 4.0, 0.02, 25) | {"share": 0.25},
        ],
        "event": events.to_json(EVENT),
        "accountant": accountant.accountant_name(),
        "epsilon_of_event": accountant.epsilon_of(EVENT, 1e-5 - 1e-9),
        "delta_of_event": 1e-5 - 1e-9,
        "delta_sampler": 1e-9,
        "noise": {"secure": True, "source": "ChaCha20"},
        "assumed_public": {"bounds": {"units": 10}, "hyper_parameters": {}, "policies": ["treat"]},
        "ledger": None,
        "versions": versions(),
        "created": "2026-11-21T12:00:00Z",
    }


def statement() -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("event", "accountant", "epsilon_of_event", "delta_of_event", "delta_sampler", "epsilon", "delta")
    )
    changed = {"schema": "dprl.statement/1", "status": "not private", "mechanisms": [], "noise": {"secure": False}}
    return sample() | nothing | changed


def fill(directory: Path, content: dict[str, Any], sign_key: Path | None = None) -> Path:
    """A results folder around ``content``; returns the folder."""
    directory.mkdir(exist_ok=True)
    estimate = {name: content[name] for name in ("status", "epsilon", "delta")} | {"algorithm": "td", "value": 30.1}
    (directory / "estimate.json").write_bytes(json.dumps(estimate).encode())
    (directory / "value_function.safetensors").write_bytes(bytes(range(64)))
    (directory / "report.html").write_text("<!doctype html><p>report</p>\n")
    write(seal(content, directory, ARTIFACTS, sign_key), directory)
    return directory


@pytest.fixture
def results(tmp_path):
    return fill(tmp_path / "results", sample())


def make_keys(folder: Path) -> Path:
    """Two pairs of keys, ``mine`` and ``other``, in a folder; returns the folder."""
    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        (folder / f"{name}.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys"))


def restate(directory: Path, stated: bytes) -> Path:
    """A folder of :func:`sample` whose estimate is another one, sealed again; returns the folder."""
    (directory / "estimate.json").write_bytes(stated)
    write(seal(sample(), directory, ARTIFACTS), directory)
    return directory


def refuse(directory: Path, message: str, **arguments: Any) -> None:
    with pytest.raises(DprlError, match=message) as caught:
        verify(directory, **arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


# --- a sound folder ---------------------------------------------------------------------------------------------


def test_a_sound_certificate_verifies(results):
    found = verify(results)
    assert found.private
    assert not found.signed
    assert found.epsilon == pytest.approx(accountant.epsilon_of(EVENT, 1e-5 - 1e-9))
    assert found.content["digest"] == digest(found.content)
    assert sorted(found.content["artifacts"]) == sorted(ARTIFACTS)


def test_a_statement_without_an_event_makes_no_claim(tmp_path):
    found = verify(fill(tmp_path / "r", statement()))
    assert not found.private
    assert found.epsilon is None


def test_a_published_calibration_may_claim_less_than_its_event_costs(tmp_path):
    changed = {"schema": "dprl.statement/1", "status": "as published", "epsilon": 0.01}
    found = verify(fill(tmp_path / "r", sample() | changed))
    assert not found.private
    assert found.epsilon is not None
    assert found.epsilon > 0.01


# --- anything changed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["certificate", "signed", "statement"])
def test_any_changed_byte_is_caught(tmp_path, keys, kind):
    content = statement() if kind == "statement" else sample()
    directory = fill(tmp_path / "r", content, keys / "mine.pem" if kind == "signed" else None)
    verify(directory)
    generator = random.Random(20)
    for file in sorted(directory.iterdir()):
        good = file.read_bytes()
        places = range(len(good)) if len(good) < 200 else sorted(generator.sample(range(len(good)), 200))
        for place in places:
            other = bytearray(good)
            other[place] = generator.choice([byte for byte in range(256) if byte != good[place]])
            file.write_bytes(bytes(other))
            with pytest.raises(DprlError):
                verify(directory)
        for changed in (good + b"\n", good[:-1], b"", b"\xef\xbb\xbf" + good):
            file.write_bytes(changed)
            with pytest.raises(DprlError):
                verify(directory)
        file.write_bytes(good)
    verify(directory)


def test_files_that_come_and_go(results):
    (results / "notes.txt").write_text("")
    refuse(results, "notes.txt is not listed")
    (results / "notes.txt").unlink()
    (results / "more").mkdir()
    refuse(results, "more is not listed")
    (results / "more").rmdir()
    (results / "report.html").rename(results.parent / "report.html")
    refuse(results, "report.html is missing")
    (results / "report.html").symlink_to(results.parent / "report.html")
    refuse(results, "not a regular file")


def test_no_certificate_and_too_many(results):
    refuse(results.parent / "nowhere", "There is no results folder")
    refuse(results / "certificate.json", f"certificate.json is a file: name the folder '{results}'")
    (results / "statement.json").write_bytes(b"{}")
    refuse(results, "holds both")
    (results / "statement.json").unlink()
    (results / "certificate.json").unlink()
    refuse(results, "neither certificate.json nor statement.json")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"a": 1, "a": 1}', "not strict JSON"),
        (b'{"a": NaN}', "not strict JSON"),
        (b'{"a": -Infinity}', "not strict JSON"),
        (b'{"a": 1e999}', "not strict JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not strict JSON"),
        (b'{"a": "\xff"}', "not strict JSON"),
        (b"[" * 100_000, "not strict JSON"),
        (b"", "not strict JSON"),
        (b"[]", "not a JSON object"),
        (b'{"schema": "dprl.certificate/2"}', "does not know"),
        (b'{"schema": ["dprl.certificate/1"]}', "does not know"),
        (b"{}", "does not know"),
        (b'{"schema": "dprl.statement/1"}', "schema of a statement.json"),
        (b'{"schema": "dprl.certificate/1"}', "not written the way"),
        (to_bytes({"schema": "dprl.certificate/1"}), "lacks the field 'status'"),
    ],
)
def test_files_that_are_no_certificate(results, raw, message):
    (results / "certificate.json").write_bytes(raw)
    refuse(results, message)


# --- sealed, but wrong ------------------------------------------------------------------------------------------


def mechanism(index: int, **changes: Any) -> dict[str, Any]:
    listed = sample()["mechanisms"]
    listed[index] = listed[index] | changes
    return {"mechanisms": listed}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.1}, "claims a smaller epsilon"),
        ({"epsilon_of_event": 0.2}, "not what the accountant finds"),
        ({"epsilon_of_event": None}, "does not state the epsilon"),
        ({"delta_sampler": 2e-9}, "exceed the delta"),
        ({"delta_sampler": -1e-9}, "must be probabilities"),
        ({"delta_sampler": None}, "without a positive epsilon and delta"),
        ({"delta_of_event": 0.0}, "must be probabilities"),
        ({"delta": 1e-6}, "exceed the delta"),
        ({"delta": None}, "without a positive epsilon and delta"),
        ({"event": None}, "without a privacy event"),
        ({"event": {"type": "Laplace"}}, "not one that dprl emits"),
        ({"event": {"type": "Gaussian", "noise_multiplier": "8"}}, "not one that dprl emits"),
        ({"event": events.to_json(events.gaussian(8.0))}, "not those of its privacy event"),
        (mechanism(0, noise_multiplier=9.0), "not those of its privacy event"),
        (mechanism(0, steps=2), "not those of its privacy event"),
        (mechanism(1, sampling_rate=0.01), "not those of its privacy event"),
        (mechanism(1, steps=24), "not those of its privacy event"),
        ({"mechanisms": sample()["mechanisms"][::-1]}, "not those of its privacy event"),
        ({"mechanisms": sample()["mechanisms"][:1]}, "not those of its privacy event"),
        ({"mechanisms": ["Gaussian vector", "sum"]}, "none that this version"),
        ({"status": "as published"}, "contradicts itself"),
        ({"status": "certain"}, "must be one of"),
        ({"noise": {"secure": False}}, "contradicts itself"),
        ({"noise": {}}, "whether its noise was secure"),
        ({"schema": "dprl.statement/1"}, "contradicts itself"),
        ({"neighbouring_relation": "replace one"}, "not the relation"),
        ({"privacy_unit": "village"}, "must be one of: person, trajectory, transition"),
        ({"privacy_unit": "transition"}, "without saying that it does not protect a trajectory"),
        ({"privacy_unit": "transition", "not_protected": [NOT_A_TRAJECTORY[:-1]]}, "without saying"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"epsilon": True}, "wrong type"),
        ({"epsilon": 10**400}, "not strict JSON"),
        ({"epsilon": 10**18}, "wrong type"),
        ({"released": 3}, "wrong type"),
    ],
)
def test_a_sealed_certificate_is_still_held_to_its_event(tmp_path, changes, message):
    refuse(fill(tmp_path / "r", sample() | changes), message)


def test_transitions_are_certified_where_it_says_what_they_are_not(tmp_path):
    content = sample() | {"privacy_unit": "transition", "not_protected": ["that the log exists", NOT_A_TRAJECTORY]}
    assert verify(fill(tmp_path / "r", content)).private


@pytest.mark.parametrize("field", [name for name in sample() if name not in ("schema", "status", "epsilon", "delta")])
def test_every_field_is_asked_for(tmp_path, field):
    content = sample()
    del content[field]
    refuse(fill(tmp_path / "r", content), f"lacks the field '{field}'")


@pytest.mark.parametrize("change", [{"epsilon": 1.1}, {"delta": 1e-6}, {"status": "as published"}, {"epsilon": None}])
def test_the_estimate_tells_the_same_story(results, change):
    content = json.loads((results / "estimate.json").read_bytes()) | change
    refuse(restate(results, json.dumps(content).encode()), f"{next(iter(change))} in .*estimate.json is not")


def test_the_estimate_is_strict_json(results):
    twice = b'{"status": "verified", "epsilon": 1.0, "epsilon": 1.0, "delta": 1e-05}'
    refuse(restate(results, twice), "estimate.json is not strict JSON")


# --- signatures -------------------------------------------------------------------------------------------------


def test_signed_by_whom(tmp_path, keys):
    directory = fill(tmp_path / "r", sample(), keys / "mine.pem")
    assert verify(directory).signed
    assert verify(directory, keys / "mine.pub").signed
    refuse(directory, "signed by another key", public_key=keys / "other.pub")
    refuse(directory, "not a PEM public key", public_key=keys / "mine.pem")
    refuse(directory, "cannot be read", public_key=keys / "missing.pub")
    forged = sample() | {"released": "nothing"}
    sealed = seal(forged, directory, ARTIFACTS)
    write(sealed, directory)
    refuse(directory, "not signed", public_key=keys / "mine.pub")
    signature = seal(sample(), directory, ARTIFACTS, keys / "mine.pem")["signature"]
    write(sealed | {"signature": signature}, directory)
    refuse(directory, "signature of .* is not valid", public_key=keys / "mine.pub")
    refuse(directory, "signature of .* is not valid")
    for odd in (None, {}, signature | {"algorithm": "none"}, signature | {"value": signature["value"].upper()}):
        write(sealed | {"signature": odd}, directory)
        refuse(directory, "not in the form")


@pytest.mark.parametrize(("key", "message"), [("mine.pub", "is not an Ed25519"), ("missing.pem", "Cannot read")])
def test_nothing_is_sealed_without_a_private_key(tmp_path, keys, key, message):
    """Keys of other kinds: tests/release/test_save.py."""
    with pytest.raises(DprlError, match=message):
        seal(sample(), tmp_path, [], keys / key)


# --- the command ------------------------------------------------------------------------------------------------


def run(*arguments: object):
    app = typer.Typer()
    app.command()(verify_command)
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_command_says_what_was_verified(tmp_path, results, keys):
    plain = run(results)
    assert plain.exit_code == 0, plain.output
    first, *rest = plain.stdout.splitlines()
    assert "epsilon 1, delta 1e-05 per person" in first
    assert first.endswith("unsigned: shows accidents, not tampering.")
    assert rest[-1] == "3 files unchanged since."
    found = json.loads(run(results, "--json").stdout)
    assert (found["verified"], found["private"], found["signed"]) == (True, True, False)
    signed = fill(tmp_path / "signed", sample(), keys / "mine.pem")
    key = json.loads((signed / "certificate.json").read_bytes())["signature"]["public_key"]
    given, unknown = (run(signed, *more).stdout.splitlines()[0] for more in (("--public-key", keys / "mine.pub"), ()))
    assert given.endswith(f"signed by {key[:16]}... (the given key).")
    assert unknown.endswith(f"signed by {key[:16]}... (give --public-key to check by whom).")
    unreviewed = sample() | {"schema": "dprl.statement/1", "status": "unreviewed"}
    said = "a statement, not a private release (unreviewed: an algorithm that is none of dprl's"
    assert said in run(fill(tmp_path / "u", unreviewed)).stdout
    assert "not a private release (not private)" in run(fill(tmp_path / "s", statement())).stdout
    assert "openssl genpkey -algorithm ed25519" in run("--help").stdout
    assert isinstance(run(tmp_path).exception, DprlError)
