"""Advisories: which certificates of earlier versions are known to be false, or may be false, and why.

A certificate cannot be taken back from whoever holds it, so every later version knows which certificates do not hold.
Whether an advisory applies to a certificate is decided from the certificate only. ``SECURITY.md`` explains the
advisories to people.

A ledger never changes a charge. Where a certificate is withdrawn, the release has cost more than its charge says, and
:func:`correct` charges the difference to the same dataset.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from dprl.accounting import events
from dprl.accounting.accountant import epsilon_of
from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Ledger
from dprl.accounting.reward_relation import REWARD_FUNCTION
from dprl.accounting.rows import OF_SAMPLED_USERS, PATHS, draws
from dprl.errors import DprlError, require

Certificate = Mapping[str, Any]
FIRST_SOUND_VERSION = (0, 2, 0)
"""First version without any of the defects."""


@dataclass(frozen=True)
class Advisory:
    """Defect of earlier versions, and the certificates that it may have made false.

    Attributes:
        name: name by which the advisory is cited, ``DPRL-YEAR-NUMBER``.
        applies_to: tells whether a certificate of an earlier version is of the kind concerned.
        words: what is wrong, as the end of a sentence about the certificate.
        withdraws: True where every certificate of the kind is false. Else only some are, and the reader is cautioned.
        corrected: returns the epsilon that is proved for the release at its stated delta; None where there is no proof.
    """

    name: str
    applies_to: Callable[[Certificate], bool]
    words: str
    withdraws: bool = True
    corrected: Callable[[Certificate], float] | None = None


class WithdrawnError(DprlError):
    """Error for a certificate that an advisory has withdrawn.

    Attributes:
        advisory: the advisory's name.
        epsilon: epsilon that is proved for the release at its stated delta, or None where there is no proof.
    """

    def __init__(self, message: str, advisory: str, epsilon: float | None) -> None:
        super().__init__(message)
        self.advisory, self.epsilon = advisory, epsilon


def check(path: Path, content: Certificate) -> tuple[str, ...]:
    """Return the cautions that a reader of a certificate must see.

    Raises:
        WithdrawnError: the certificate is known to be false; the message says what is proved in its place.
    """
    cautions = []
    for one in ADVISORIES:
        if not (_version(content) < FIRST_SOUND_VERSION and one.applies_to(content)):
            continue
        if not one.withdraws:
            cautions.append(f"{one.name}: {one.words}.")
            continue
        epsilon, proved = None, "no epsilon is proved for this release"
        found = math.inf if one.corrected is None else one.corrected(content)
        if math.isfinite(found):
            epsilon, stated = found, f"it states {content['epsilon']:g}, at delta {content['delta']:g}"
            proved = f"what is proved for this release is epsilon {epsilon:.6g}, where {stated}"
        raise WithdrawnError(f"{path} is withdrawn by {one.name}: {one.words}; {proved}.", one.name, epsilon)
    return tuple(cautions)


def epsilon_of_two(event: Any, delta: float) -> float:
    """Return an epsilon at ``delta`` for removing one unit and adding another, where ``event`` covers either change.

    Let P and Q be the laws of the release on the two logs, and R that on the log without both units. Then
    ``P(A) <= e^e1 R(A) + d1`` and ``R(A) <= e^e2 Q(A) + d2`` give ``epsilon = e1 + e2`` at ``d1 + e^e1 d2``, for every
    way to divide ``delta``: docs/proofs/withdrawn.md.
    """
    best = math.inf
    for share in (0.5, 0.8):
        first = epsilon_of(event, share * delta)
        second = (1.0 - share) * delta * math.exp(-first) if first < 500.0 else 0.0
        if second > 0.0:
            best = min(best, first + epsilon_of(event, second))
    return best


def _two_people(content: Certificate) -> float:
    """Return :func:`epsilon_of_two` of a certificate, after the sampler's share of delta at that epsilon is paid."""
    event, delta = events.from_json(content["event"]), float(content["delta"])
    assumed = 2.0 * float(content["epsilon"]) + 1.0
    for _ in range(20):
        sampler = events.sampler_delta(assumed, draws(content))
        if not sampler < delta:
            break
        found = epsilon_of_two(event, delta - sampler)
        if found <= assumed:  # the sampler costs less at a smaller epsilon
            return found
        assumed = 1.01 * found
    return math.inf


def _version(content: Certificate) -> tuple[int, ...]:
    """Return the version of dprl that wrote a certificate; one that states no version counts as the oldest."""
    found = re.match(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})", str(content["versions"].get("dprl", "")))
    return (0,) if found is None else tuple(map(int, found.groups()))


def _names(content: Certificate) -> set[str]:
    return {row["name"] for row in content["mechanisms"]}


def _off_the_walk(content: Certificate) -> bool:
    """Return whether a certificate is of the variant functional, where rewards may depend on more than the state."""
    public = content["assumed_public"]
    variant = public.get("hyper_parameters", {}).get("variant", {"value": None})["value"]
    where = public.get("environment", {}).get("name")
    return PATHS in _names(content) and variant == "functional" and where != "interval-walk"


ADVISORIES = (
    Advisory(
        "DPRL-2026-01",
        lambda content: OF_SAMPLED_USERS in _names(content),
        "dp-pg with sampled people cut the log at the declared number of units, so that in a log that holds as many "
        "one more person changed two",
        corrected=_two_people,
    ),
    Advisory(
        "DPRL-2026-02",
        _off_the_walk,
        "the variant functional of functional-q has no proof for rewards that depend on the next state or on chance, "
        "nor for observations outside of their bounds, and nothing kept them out",
    ),
    Advisory(
        "DPRL-2026-03",
        lambda content: content["privacy_unit"] == REWARD_FUNCTION,
        "a second functional-q release of one process could be made of the first one's rewards; rely on the "
        "certificate only if it was the first of its process",
        withdraws=False,
    ),
    Advisory(
        "DPRL-2026-04",
        lambda content: content["event"]["type"] == "RenyiFilter",
        "a run that was resumed under other settings of JAX could spend more than its filter admits; rely on the "
        "certificate only if the run was not resumed",
        withdraws=False,
    ),
    Advisory(
        "DPRL-2026-05",
        lambda content: str(content["assumed_public"].get("reading", "")).startswith("People are told apart by name"),
        "a person whose name was a kind of NaN was taken for a new one at each visit; rely on the certificate only if "
        "every name was text or a whole number",
        withdraws=False,
    ),
)
"""Advisories in the order in which they are checked; the first that withdraws a certificate is reported."""

# --- corrections ------------------------------------------------------------------------------------------------

LEAST_DELTA = 1e-30
"""Charged as delta where only epsilon grows, and as epsilon where only delta grows: a charge must have both."""


@dataclass(frozen=True)
class Correction:
    """Outcome of a correction.

    Attributes:
        charge: number of the correcting charge.
        epsilon: epsilon of the correcting charge.
        missing: epsilon that was spent but could not be charged, because the dataset's budget no longer holds so much;
            0 where all of it was charged.
    """

    charge: int
    epsilon: float
    missing: float


def correct(ledger: Ledger, charge: int, epsilon: float, delta: float, why: str) -> Correction:
    """Charge what a release has cost beyond its own charge.

    The same correction is charged only once, however often this function is called. Where the budget does not cover
    the whole correction, all that is left is charged, so that nothing more can be released.

    Args:
        ledger: ledger that holds the charge.
        charge: number of the charge.
        epsilon, delta: what the release has really cost.
        why: a public note, such as the name of an advisory.

    Raises:
        DprlError: there is no such charge, the charge covers as much already, or nothing is left to charge.
    """
    true = Budget(epsilon, delta)
    first, dataset = ledger.charge_of(charge)
    note = f"correction of charge {charge} to epsilon {true.epsilon!r}, delta {true.delta!r}: {why}"
    token = hashlib.sha256(f"{dataset.name}\0{note}".encode()).hexdigest()[:32]
    for known in ledger.history(dataset.name):
        if known.token == token:
            done = float(known.amount.epsilon)
            return Correction(known.id, done, max(0.0, true.epsilon - float(first.amount.epsilon) - done))
    more = Decimal(repr(float(true.epsilon))) - first.amount.epsilon
    more_delta = Decimal(repr(float(true.delta))) - first.amount.delta
    require(more > 0 or more_delta > 0, f"Charge {charge} of the ledger {ledger.path} covers as much already.")
    left = ledger.remaining(dataset.name)
    take = min(max(more, Decimal(repr(LEAST_DELTA))), left.epsilon)
    spent = f"The ledger {ledger.path} has nothing left for {dataset.name!r}"
    require(take > 0, f"{spent}: release nothing more of it, and note that it has cost epsilon {float(more):g} more.")
    amount = Budget(float(take), float(min(max(more_delta, Decimal(repr(LEAST_DELTA))), left.delta)))
    number = ledger.charge(dataset.name, amount, dataset.unit, dataset.relation, note, token)
    if first.digest is not None:
        ledger.commit(number, first.digest)
    return Correction(number, amount.epsilon, float(more - take))
