"""The checks of what is learned from people: whose coins move, who counts as a person, and whose rows they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import dprl
from dprl.accounting.ledger import Ledger
from dprl.learning.policy_gradient import pg_plan

from ..release.people import BATCH, BUDGET, FACTS, UNITS, Person, log_of, moved, stream_of, trained
from .lab import Caught, Lab, check, refused, require

CROWD = [Person.number(i) for i in range(UNITS)]
_ROUNDING = 1e-9


@check
def who_is_added_to_a_log_moves_nobody_else() -> None:
    """Everybody is in every batch, and as many are in the log as are declared before the first one is added."""
    options: dict[str, Any] = {"sampling": "poisson", "batch": UNITS}
    one = trained(log_of([replace(Person.number(200), name="new"), *CROWD]), **options)
    found = moved(one, trained(log_of(CROWD), one, 0, **options))
    require((found <= 1.0 + _ROUNDING).all(), "who is added moves a sum by more than one person's vector")
    require((found > 0.0).all(), "who is added is in no batch")


@check
def who_is_silent_moves_nobody_else() -> None:
    """The first of a batch asks for no action: all others of it act by the coins that they had."""
    one = trained(stream_of(CROWD))
    found = moved(one, trained(stream_of(CROWD, answers={BATCH: lambda policy: None}), one))
    require(0.0 < found[1] <= 1.0 + _ROUNDING, "who is silent moves a sum by more than one person's vector")
    require(found[0] == found[2] == 0.0, "who is silent moves another batch")


@check
def a_name_that_is_missing_is_nobody() -> None:
    answer = lambda policy: dprl.Interaction([(0.5, 0.5)], [policy((0.5, 0.5))], [1.0])  # noqa: E731
    users = dprl.UserStream(FACTS, [(np.float32("nan"), answer) for _ in range(5)], named=True)
    found = users.batch(0, 5, lambda observations, *_: np.zeros(len(observations), np.int32))
    require(not found.length.any(), "one person without a name answers several times")


@check
def rows_that_are_learned_from_have_one_name(lab: Lab) -> None:
    path = lab.folder() / "ledger.db"
    for name in ("shop", "copy"):
        Ledger.create(path, name, dprl.Budget(20.0, 1e-3), "person", "zero out one")

    def train(name: str) -> None:
        options = dprl.DPPG(batch=BATCH, noise_multiplier=1.0)
        dprl.train(log_of(CROWD), BUDGET, algorithm=options, ledger=path, dataset=name)

    train("shop")
    with refused("a policy is learned from the same rows under two names"):
        train("copy")


@check
def one_batch_of_everybody_has_a_price() -> None:
    config = dprl.DPPG(sampling="poisson", users=UNITS, batch=UNITS, steps=1)
    try:
        plan = pg_plan.make_pg_plan(config, FACTS, BUDGET)
    except RuntimeError as error:
        raise Caught("the mechanism is not the one that was calibrated") from error
    require(plan.event == plan.mechanism.event(), "the event is not the mechanism's")  # type: ignore[union-attr]
