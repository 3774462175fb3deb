"""Faults in who gets a certificate, and in what verify takes for a good one."""

from __future__ import annotations

import json
from typing import Any

import jax.numpy as jnp
import numpy as np

from dprl.accounting import advisories, certificate, claim_verification, rows, verification
from dprl.engine import value_query
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.release import pipeline

from . import checks_of_certificates
from .planting import Planting, fault, gives

ROWS = "certificates are held to their rows"


@fault("a negative dimension, for which no draw costs anything", ROWS)
def _(planting: Planting) -> None:
    for kind in (rows.GaussianRow, rows.SumRow, rows.FilteredSumRow, rows.SensitivityRow, rows.PathRow):
        planting.replace(kind, "proved", lambda original: lambda self: True)
    planting.replace(
        rows, "schema_of", lambda original: lambda kind: original(kind) | {"dimension": lambda value: True}
    )


fault("a delta of one half for thirty units", ROWS, (claim_verification, "check_units"))(gives(None))


fault("a ledger block that nobody compares", ROWS, (certificate, "_check_ledger_block"))(gives(None))


@fault("a date that does not exist", ROWS, (certificate, "check_fields"))
def _(original: Any, what: Any, fields: Any, content: Any) -> Any:
    any_date = {"created": lambda value: True} if "created" in fields else {}
    return original(what, fields | any_date, content)


fault("fields of a filter's row that nobody recomputes", ROWS, (claim_verification, "_check_filter"))(gives(None))


fault("whatever class is released is certified", "only proved algorithms are certified", (pipeline, "is_own"))(
    gives(True)
)


fault(
    "verify takes any algorithm's certificate",
    "only proved algorithms are certified",
    (verification, "_check_algorithm"),
)(gives(None))


fault(
    "what was certified falsely stays certified",
    "sampled people of earlier versions are withdrawn",
    (advisories, "check"),
)(gives(()))


@fault("JSON that is read as it comes", "harmful files end in a sentence", (verification, "strict_object"))
def _(original: Any, name: Any, raw: Any) -> Any:
    return json.loads(raw)


@fault(
    "the norm of more people than rounding is charged for",
    "the norm of more people than may be declared is cut",
    (FilteredGaussianSum, "answer"),
)
def _(original: Any, self: Any, total: Any) -> Any:
    x = total.astype(jnp.float64)
    return jnp.concatenate([total, jnp.round(jnp.sqrt(jnp.sum(x * x))).astype(jnp.int64)[None]])


@fault(
    "value vectors compiled for as many people as there are",
    "no program is compiled for as many people as there are",
    (value_query, "release_vector"),
    (checks_of_certificates, "release_vector"),
)
def _(original: Any, mechanism: Any, noise: Any, vectors: Any) -> Any:
    total = mechanism.clipped_sum(jnp.asarray(vectors), jnp.ones(len(vectors), dtype=bool))
    return np.asarray(mechanism.release(total, jnp.asarray(mechanism.draw(noise, 0))))
