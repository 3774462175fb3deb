"""The certificate of any release before it is sealed: what all have in common is written here, once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dprl.accounting import events
from dprl.accounting.accountant import RELATION, accountant_name
from dprl.accounting.budget import Budget
from dprl.accounting.certificate import versions


class Planned(Protocol):
    """What a plan of any release knows before anything private is read.

    Attributes:
        event: the privacy event of the whole release; None as published.
        epsilon_of_event: its epsilon at ``delta_of_event``.
        delta_sampler: what the sampler adds to delta.
    """

    @property
    def budget(self) -> Budget: ...
    @property
    def event(self) -> events.DpEvent | None: ...
    @property
    def epsilon_of_event(self) -> float: ...
    @property
    def delta_of_event(self) -> float: ...
    @property
    def delta_sampler(self) -> float: ...


class Statement(NamedTuple):
    """What one kind of release says for itself: who is protected, of what, by which noise, and what was public."""

    unit: str
    relation: str
    released: str
    not_protected: Sequence[str]
    mechanisms: Sequence[Mapping[str, Any]]
    accountant: str
    assumed_public: Mapping[str, Any]


def gaussian_accountant() -> str:
    """The accountant of Gaussians alone: each loses the same between any two data sets one sensitivity apart."""
    return accountant_name().replace(RELATION, "neighbours one sensitivity apart")


def certificate_from(plan: Planned, noise: Any, status: str, said: Statement) -> dict[str, Any]:
    """Public facts alone, known before anything private is read; only what is verified is called a certificate."""
    certified = plan.event is not None
    return {
        "schema": "dprl.certificate/1" if status == "verified" else "dprl.statement/1",
        "status": status,
        "epsilon": plan.budget.epsilon,
        "delta": plan.budget.delta,
        "privacy_unit": said.unit,
        "neighbouring_relation": said.relation,
        "released": said.released,
        "not_protected": list(said.not_protected),
        "mechanisms": list(said.mechanisms),
        "event": events.to_json(plan.event) if plan.event is not None else None,
        "accountant": said.accountant if certified else None,
        "epsilon_of_event": plan.epsilon_of_event if certified and math.isfinite(plan.epsilon_of_event) else None,
        "delta_of_event": plan.delta_of_event if certified else None,
        "delta_sampler": plan.delta_sampler if certified else None,
        "noise": {"secure": noise.secure, "source": noise.describe()},
        "assumed_public": dict(said.assumed_public),
        "ledger": None,
        "versions": versions(),
    }
