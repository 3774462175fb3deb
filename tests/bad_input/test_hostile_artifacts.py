"""Artifacts that somebody made in order to do harm: whoever reads them hears one clear sentence."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dprl.accounting.certificate import canonical_json, digest
from dprl.accounting.verification import verify
from dprl.data.partition import partition
from dprl.data.parts import Parts
from dprl.errors import DprlError
from dprl.policies.parametric import FILE as POLICY
from dprl.policies.parametric import Parametric, ReleasedPolicy, read_policy
from dprl.report import render_folder
from dprl.value_functions.features import make_features
from dprl.value_functions.q_function import FILE as Q_FILE
from dprl.value_functions.q_function import QFunction, load_q_function
from dprl.value_functions.value_function import FILE, ValueFunction, load_value_function
from tests.accounting.test_strict_verification import under_a_filter
from tests.accounting.test_user_verification import certificate as of_users
from tests.accounting.test_user_verification import user_sum
from tests.accounting.test_verification import fill, sample, statement
from tests.release.test_training_certificate import planned
from tests.sample_log import columns

from .hostile import RAW, dumped, flipped, no_files, one_sentence, spoiled

MORE = int(os.environ.get("DPRL_HOSTILE", "1"))
"""How many times as many spoiled copies: with DPRL_HOSTILE=50 it searches for an hour."""
FOLDERS = {
    "evaluation": sample,
    "statement": statement,
    "filter": under_a_filter,
    "people": lambda: of_users(user_sum()),
    "rewards": lambda: planned("observed-reward"),
    "paths": lambda: planned("state"),
}
LEARNED = {"people": "dp-pg", "rewards": "functional-q", "paths": "functional-q"}


def put(folder: Path, content: Any) -> None:
    """Write a certificate or statement with the digests that go with it, where it has such."""
    listed = content.get("artifacts") if isinstance(content, dict) else None
    if isinstance(listed, dict):
        for name in listed:
            if isinstance(name, str) and name.isprintable() and "/" not in name and (folder / name[:100]).is_file():
                listed[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if isinstance(content, dict) and "digest" in content:
        with contextlib.suppress(DprlError, UnicodeError):
            content["digest"] = digest(content)
    (folder / name_of(folder)).write_bytes(dumped(content) + b"\n")


def name_of(folder: Path) -> str:
    return "certificate.json" if (folder / "certificate.json").exists() else "statement.json"


@pytest.fixture(scope="module", params=FOLDERS)
def results(request, tmp_path_factory) -> tuple[Path, Any, Path]:
    """A good folder of each kind, its certificate, and the file that says what was released."""
    content = FOLDERS[request.param]()
    folder = fill(tmp_path_factory.mktemp(request.param) / "r", content)
    kind, algorithm = "training" if request.param in LEARNED else "estimate", LEARNED.get(request.param, "td")
    name, more = f"{kind}.json", {"algorithm": algorithm, "schema": f"dprl.{kind}/1"}
    stated = json.loads((folder / "estimate.json").read_bytes()) | more
    stated["targets"] = [{"name": "a", "value": 1.0, "interval": [0.0, 2.0], "reference": None}]
    stated["request"] = {"log": "a.parquet", "discount": 1.0}
    (folder / "estimate.json").unlink()
    (folder / name).write_bytes(dumped(stated))
    sealed = json.loads((folder / name_of(folder)).read_bytes())
    sealed["artifacts"] = dict.fromkeys((name, "value_function.safetensors", "report.html"), "0" * 64)
    put(folder, sealed)
    verify(folder)
    return folder, json.loads((folder / name_of(folder)).read_bytes()), folder / name


def read_all(folder: Path, out: Path) -> bool:
    """Whether verify refuses a folder; a report of it is drawn, or refused, as well."""
    one_sentence(lambda: render_folder(folder, out / "page.html"))
    return one_sentence(lambda: verify(folder))


def test_certificates_that_are_spoiled_anywhere(results, tmp_path):
    folder, content, _ = results
    refused = 0
    for changed in spoiled(content, random.Random(7), 60 * MORE):
        put(folder, changed)
        refused += read_all(folder, tmp_path)
    put(folder, content)
    assert not read_all(folder, tmp_path)
    assert refused > 25 * MORE  # some fields are free text


def test_what_was_released_spoiled_anywhere(results, tmp_path):
    folder, content, stated = results
    good = stated.read_bytes()
    for changed in spoiled(json.loads(good), random.Random(8), 25 * MORE):
        stated.write_bytes(dumped(changed))
        put(folder, json.loads(json.dumps(content)))
        read_all(folder, tmp_path)
    stated.write_bytes(good)
    put(folder, content)
    assert not read_all(folder, tmp_path)


def test_files_that_are_no_json_or_no_files(results, tmp_path):
    folder, content, stated = results
    for path in (folder / name_of(folder), stated):
        good = path.read_bytes()
        for raw in RAW:
            path.write_bytes(raw)
            if path == stated:
                put(folder, json.loads(json.dumps(content)))
            assert read_all(folder, tmp_path)
        for changed in flipped(good, random.Random(9), 10 * MORE):
            path.write_bytes(changed)
            read_all(folder, tmp_path)
        for _ in no_files(path):
            assert read_all(folder, tmp_path)
        path.write_bytes(good)
        put(folder, content)
    other = folder / "value_function.safetensors"
    good = other.read_bytes()
    for _ in no_files(other):
        assert one_sentence(lambda: verify(folder))
    other.write_bytes(good)
    assert not read_all(folder, tmp_path)


# --- tensors ---------------------------------------------------------------------------------------------------------

_UNIT = ((0.0, 1.0),)
TENSORS = {
    FILE: (lambda: ValueFunction(np.zeros(3), make_features("fourier:2", _UNIT), (0.0, 1.0)), load_value_function),
    POLICY: (
        lambda: ReleasedPolicy(Parametric("softmax", _UNIT, 2), np.zeros(Parametric("softmax", _UNIT, 2).size)),
        read_policy,
    ),
    Q_FILE: (
        lambda: QFunction({"V": np.zeros((2, 4), np.float32)}, "table:4", _UNIT, 2, (0.0, 1.0), None),
        load_q_function,
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_whose_headers_lie(tmp_path, name):
    make, load = TENSORS[name]
    good, path = make().to_bytes(), tmp_path / name
    length = int.from_bytes(good[:8], "little")
    header, body = json.loads(good[8 : 8 + length]), good[8 + length :]
    path.write_bytes(good)
    load(path)
    rng, refused = random.Random(3), 0
    for changed in spoiled(header, rng, 100 * MORE):
        raw = json.dumps(changed).encode()
        path.write_bytes(len(raw).to_bytes(8, "little") + raw + body)
        refused += one_sentence(lambda: load(path))
    assert refused > 70 * MORE
    for claim in (0, 1, 2**20, 2**30, 2**63, 2**64 - 1):
        path.write_bytes(claim.to_bytes(8, "little") + good[8:])
        assert one_sentence(lambda: load(path))
    for raw in RAW:
        path.write_bytes(raw)
        assert one_sentence(lambda: load(path))
    for raw in flipped(good, rng, 100 * MORE):
        path.write_bytes(raw)
        one_sentence(lambda: load(path))
    for _ in no_files(path):
        assert one_sentence(lambda: load(path))


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    pq.write_table(pa.table(dict(columns(6, seed=5))), folder / "log.parquet")
    return partition(folder / "log.parquet", "person_id", 2, folder / "parts")[0].folder


def use(folder: Path) -> None:
    """Everything that reads a log in parts."""
    opened = Parts.open(folder)
    opened.check()
    opened.arrivals()
    units = np.arange(min(opened.units, 10))
    opened.rows_of(units)
    opened.table(units, opened.names)


def resealed(folder: Path, name: str, raw: bytes) -> None:
    """Exchange a file of a log in parts, with its size and digest in the manifest."""
    (folder / name).write_bytes(raw)
    manifest = json.loads((folder / "parts.json").read_bytes())
    for part in manifest["parts"]:
        for kind, stem in (("file", ""), ("offsets", "offsets_"), ("came", "came_")):
            if part[kind] == name:
                part |= {f"{stem}bytes": len(raw), f"{stem}sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "parts.json").write_bytes(canonical_json(manifest))


def npy(described: str) -> bytes:
    header = described.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


NPY = [
    npy(f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}}}\n")
    for kind in ("'<i8'", "'|O'", "'x'", "3")
    for order in ("False", "3")
    for shape in ("(4,)", "(-4,)", "(4611686018427387904,)", "(10**9,)", "(2**70,)", "()", "(True,)", "4", "('x',)")
] + [npy(text) for text in ("", "{", "(" * 9000, "[" * 60_000, "{'descr'" * 900, "__import__('os')", "\0", "1_" * 5000)]


def test_parts_whose_manifest_or_files_lie(parts, tmp_path):
    folder = Path(shutil.copytree(parts, tmp_path / "parts"))
    manifest, rng = json.loads((folder / "parts.json").read_bytes()), random.Random(5)
    use(folder)
    for changed in spoiled(manifest, rng, 60 * MORE):
        (folder / "parts.json").write_bytes(dumped(changed))
        one_sentence(lambda: use(folder))
    for raw in RAW:
        (folder / "parts.json").write_bytes(raw)
        assert one_sentence(lambda: use(folder))
    for _ in no_files(folder / "parts.json"):
        assert one_sentence(lambda: use(folder))
    (folder / "parts.json").write_bytes(canonical_json(manifest))
    use(folder)
    for name in ("units-00000.npy", "came-00001.npy"):
        good = (folder / name).read_bytes()
        for raw in (*NPY, *RAW, *flipped(good, rng, 20 * MORE)):
            resealed(folder, name, raw)
            one_sentence(lambda: use(folder))
        for _ in no_files(folder / name):
            assert one_sentence(lambda: use(folder))
        resealed(folder, name, good)
    name = "part-00000.arrow"
    good = (folder / name).read_bytes()
    for raw in (*RAW, *flipped(good, rng, 50 * MORE)):
        resealed(folder, name, raw)
        one_sentence(lambda: use(folder))
    resealed(folder, name, good)
    use(folder)
