"""The checks of what is learned from people: whose rows they are, and what a batch costs."""

from __future__ import annotations

from typing import Any

import dprl
from dprl.accounting.ledger import Ledger
from dprl.learning.policy_gradient import pg_plan

from ..release.people import BATCH, BUDGET, FACTS, UNITS, Person, log_of
from .lab import Caught, Lab, check, refused, require

CROWD = [Person.number(i) for i in range(UNITS)]


@check
def rows_that_are_learned_from_have_one_name(lab: Lab) -> None:
    path = lab.folder() / "ledger.db"
    for name in ("shop", "copy"):
        Ledger.create(path, name, dprl.Budget(20.0, 1e-3), "person", "zero out one")

    options: dict[str, Any] = {"algorithm": dprl.DPPG(batch=BATCH, noise_multiplier=1.0), "ledger": path}
    dprl.train(log_of(CROWD), BUDGET, dataset="shop", **options)
    with refused("a policy is learned from the same rows under two names"):
        dprl.train(log_of(CROWD), BUDGET, dataset="copy", **options)


@check
def one_batch_of_everybody_has_a_price() -> None:
    config = dprl.DPPG(sampling="poisson", users=UNITS, batch=UNITS, steps=1)
    try:
        plan = pg_plan.make_pg_plan(config, FACTS, BUDGET)
    except RuntimeError as error:
        raise Caught("the mechanism is not the one that was calibrated") from error
    require(plan.event == plan.mechanism.event(), "the event is not the mechanism's")  # type: ignore[union-attr]
