"""What a version wrote is read for ever: certificates get the same verdict, and every file beside them its reader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.accounting.verification import EVALUATING, FORMERLY_CERTIFIED, LEARNING
from dprl.report import render_folder

from .corpus import VERSIONS, content_of, data_file, own_file
from .test_verdicts import verdict

STATEMENTS = {"seeded", "simulated", "people-seeded", "q-published"}
CAUTIONS = {"observed-reward", "gradient", "functional", "functional-state", "output", "greedy", "people"}
"""Of version 0.1.0, of whose kind some certificates may not hold: SECURITY.md."""
CAUTIONS |= {"people-independent", "people-replaced"}


@pytest.mark.parametrize("version", VERSIONS)
def test_verdicts_are_for_ever(alone, stored, version):
    for name, folder in stored[version].items():
        expected = "statement" if name in STATEMENTS else "holds"
        if version == "0.1.0":
            expected = "withdrawn" if name == "people-sampled" else "caution" if name in CAUTIONS else expected
            assert content_of(folder)["versions"]["dprl"] == "0.1.0"
        assert verdict(folder) == expected, name
        assert name in ("gpope", "return-regression", "scheduled") or alone.check(str(folder))[0] == expected, name


def test_every_algorithm_of_a_version_is_still_known(stored):
    """So that none is renamed or taken out."""
    folders = [folder for found in stored.values() for folder in found.values()]
    said = {json.loads(data_file(folder).read_text())["algorithm"] for folder in folders}
    assert len(said) > 15
    assert said <= {*EVALUATING, *FORMERLY_CERTIFIED, *LEARNING}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_file_has_a_reader(stored, tmp_path, version):
    read = set()
    for name, folder in stored[version].items():
        assert render_folder(folder, tmp_path / f"{name}.html").stat().st_size > 1000
        for path in sorted(folder.iterdir()):
            read.add(path.name)
            if path.name == "value_function.safetensors":
                function = dprl.load_value_function(folder)
                assert np.isfinite(function(np.full((3, len(function.features.bounds)), 0.5))).all()
            elif path.name == "q_function.safetensors":
                assert dprl.load_q_function(folder).policy(np.full(3, 0.5)).shape == (3,)
            elif path.name == "policy.safetensors" and (folder / "training.json").exists():
                assert dprl.load_policy(str(folder)) is not None
    known = {"certificate.json", "statement.json", "estimate.json", "training.json", "report.html"}
    assert known < read


def test_the_archives_hold_nothing_else(stored):
    for found in stored.values():
        for folder in found.values():
            assert all(path.is_file() and not path.is_symlink() for path in Path(folder).iterdir())
            listed = {*content_of(folder)["artifacts"], own_file(folder).name}
            assert {path.name for path in folder.iterdir()} == listed
