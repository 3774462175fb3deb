"""Correcting a past charge: a second charge for what a release is now known to have cost beyond the first.

A ledger never changes a charge. Where an advisory withdraws a certificate (:mod:`dprl.accounting.advisories`), the
release has cost more than its charge says, and the difference is charged to the same dataset.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal

from dprl.accounting.budget import Budget
from dprl.accounting.ledger import Charge, Dataset, Ledger
from dprl.errors import DprlError, require

LEAST_DELTA = 1e-30
"""Charged where only epsilon grows, for a ledger keeps no charge without a delta."""


@dataclass(frozen=True)
class Correction:
    """Outcome of a correction.

    Attributes:
        charge: number of the charge that corrects.
        epsilon: that it charged.
        missing: epsilon that the dataset's budget does not hold any more, and that was spent all the same; 0 where
            all of it was charged.
    """

    charge: int
    epsilon: float
    missing: float


def correct(ledger: Ledger, charge: int, epsilon: float, delta: float, why: str) -> Correction:
    """Charge what a release has cost beyond its own charge.

    The same correction is charged once, however often it is asked for. Where the budget does not hold all of it, what
    is left is charged, so that nothing more is released.

    Args:
        ledger: that has the charge.
        charge: its number.
        epsilon, delta: what the release has really cost.
        why: a public note, such as the name of an advisory.

    Raises:
        DprlError: there is no such charge, it covers as much already, or nothing is left to charge.
    """
    true = Budget(epsilon, delta)
    first, dataset = _found(ledger, charge)
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


def _found(ledger: Ledger, charge: int) -> tuple[Charge, Dataset]:
    first = next((one for one in ledger.history() if one.id == charge), None)
    if first is None:
        raise DprlError(f"The ledger {ledger.path} has no charge {charge}.")
    return first, next(one for one in ledger.datasets() if one.name == first.dataset)
