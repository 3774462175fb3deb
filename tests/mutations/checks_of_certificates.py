"""The checks of certificates: what verify refuses, who gets one, and what becomes of files made to do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dprl.accounting.verification import verify
from dprl.engine.value_query import release_vector
from dprl.mechanisms.gaussian_sum import GaussianSum
from dprl.mechanisms.noise import SeededNoise
from dprl.release import pipeline
from tests.accounting.test_strict_verification import block, under_a_filter
from tests.accounting.test_verification import fill, mechanism, restate, sample
from tests.conformance.toy import Toy

from .lab import Caught, Lab, check, refused, require


def _refused(folder: Path, what: str) -> None:
    try:
        with refused(f"{what} is found good"):
            verify(folder)
    except Caught:
        raise
    except Exception as error:
        raise Caught(f"{what} ends in {type(error).__name__}") from error


@check
def certificates_are_held_to_their_rows(lab: Lab) -> None:
    """A good one is found good; every impossible number of a row, of the units, the ledger or the date is refused."""
    filtered, folder = under_a_filter(), lab.folder() / "r"
    for good in (sample(), sample() | block(), filtered):
        verify(fill(folder, good))
    for value in (-5, True, 2.0, "x"):
        _refused(fill(folder, sample() | mechanism(1, dimension=value) | {"delta_sampler": 0.0}), "a dimension")
    public = {"bounds": {"units": 30}, "hyper_parameters": {}, "policies": []}
    _refused(fill(folder, sample() | {"assumed_public": public, "delta": 0.5}), "a delta of one half for 30 units")
    for changes in ({"epsilon": 0.1}, {"charge": 0}, {"dataset": 3}):
        _refused(fill(folder, sample() | block(**changes)), "an invented ledger block")
    _refused(fill(folder, sample() | {"created": "9999-99-99"}), "a date that does not exist")
    first, row = filtered["mechanisms"]
    for changes in ({"noise_multiplier": 2.0 * row["noise_multiplier"]}, {"share": 0.4}):
        rows = [first | ({"share": 0.6} if "share" in changes else {}), row | changes]
        _refused(fill(folder, filtered | {"mechanisms": rows}), "a changed row of a filter")


@check
def only_proved_algorithms_are_certified(lab: Lab) -> None:
    """Neither a stranger's class gets a certificate, nor does verify take one for an unknown algorithm."""

    class Plan:
        config, program, claim = Toy(), None, None

    require(pipeline.status_of(Plan(), True, False) == "unreviewed", "a stranger's algorithm gets a certificate")
    folder = fill(lab.folder() / "r", sample())
    stated = json.loads((folder / "estimate.json").read_bytes())
    _refused(
        restate(folder, json.dumps(stated | {"algorithm": "mine"}).encode()), "a certificate for an unknown algorithm"
    )


@check
def harmful_files_end_in_a_sentence(lab: Lab) -> None:
    folder = fill(lab.folder() / "r", sample())
    for raw in (b"[" * 200_000, b'{"a":' * 200_000, b'{"event": 1' + b"0" * 5000 + b"}", b"\xff"):
        (folder / "certificate.json").write_bytes(raw)
        _refused(folder, "a file of brackets")


@check
def no_program_is_compiled_for_as_many_people_as_there_are() -> None:
    shapes = set()

    class Seen(GaussianSum):
        def clipped_sum(self, vectors: Any, included: Any) -> Any:
            shapes.add("NumPy's" if isinstance(vectors, np.ndarray) else vectors.shape)
            return super().clipped_sum(vectors, included)

    for units in (1, 64):
        seen = Seen(parts=((2, 1.0),), noise_multiplier=2.0)
        release_vector(seen, SeededNoise.from_seed(1), np.zeros((units, 2)))
    require(len(shapes) == 1, "the shape of what is compiled tells how few people there are")
