"""Learning from people through the front door: neighbours by the relation that is certified move a sum as declared.

With the same key, whoever is added, silent or another moves nobody else: not by a bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dprl

from .people import BATCH, STEPS, UNITS, Person, log_of, moved, stream_of, trained

POISSON: dict[str, Any] = {"sampling": "poisson"}
CROWD = [Person.number(i) for i in range(2 * UNITS + 1)]
NEWCOMER = replace(Person.number(200), name="new")
PLACE = BATCH  # the first of the second batch


@pytest.mark.parametrize("people", [0, UNITS, 2 * UNITS])
def test_who_is_added_to_a_log_that_is_sampled_moves_the_sum_by_their_own_vector(people):
    """Wherever they stand, and however many are declared: nobody is pushed out, and nobody else's coins move."""
    without = trained(log_of(CROWD[:people]), **POISSON)
    largest = 0.0
    for place in {0, people // 2, people}:
        others = [*CROWD[:place], NEWCOMER, *CROWD[place:people]]
        one = trained(log_of(others), **POISSON)
        found = moved(one, trained(log_of(CROWD[:people]), one, place, **POISSON))
        assert (found <= 1.0).all()
        largest = max(largest, *found)
    assert largest > 0.3  # some batch has them
    assert any(total.any() for total in without.totals) == (people > 0)


def asks_often(policy: Any) -> dprl.Interaction:
    """Looks at many actions, and takes the first."""
    actions = [policy((0.5, -0.5)) for _ in range(20)]
    return dprl.Interaction([(0.5, -0.5)], actions[:1], [1.0])


def raises(policy: Any) -> dprl.Interaction:
    policy((0.0, 0.0))
    raise RuntimeError


@pytest.mark.parametrize("answer", [lambda policy: None, raises, asks_often])
def test_who_answers_otherwise_moves_their_own_batch_alone(answer):
    """A person who arrives: silent, with an error, or with twenty questions."""
    crowd = CROWD[:UNITS]
    one = trained(stream_of(crowd))
    found = moved(one, trained(stream_of(crowd, answers={PLACE: answer}), one))
    assert found[PLACE // BATCH] > 0.0
    assert found[PLACE // BATCH] <= (2.0 if answer is asks_often else 1.0)
    assert (np.delete(found, PLACE // BATCH) == 0.0).all()


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_a_place_in_a_log(relation):
    """A place is emptied by emptying its person's cells; the rows stay where they are."""
    crowd = CROWD[: UNITS + 3]
    mine = crowd[PLACE]
    cells = np.full_like(mine.seen, np.nan) if relation == "zero-out" else -mine.seen
    paid = mine.paid if relation == "zero-out" else 1.0 - mine.paid
    others = [*crowd[:PLACE], replace(mine, seen=cells, paid=paid), *crowd[PLACE + 1 :]]
    one = trained(log_of(crowd), relation=relation)
    found = moved(one, trained(log_of(others), one, relation=relation))
    assert 0.1 < found[PLACE // BATCH] <= (1.0 if relation == "zero-out" else 2.0)
    assert (np.delete(found, PLACE // BATCH) == 0.0).all()


def test_who_is_taken_out_of_a_list_is_no_neighbour_by_place():
    """All that follow move up, into other batches: the certificate says that places are public."""
    one = trained(log_of(CROWD))
    found = moved(one, trained(log_of([*CROWD[:PLACE], *CROWD[PLACE + 1 :]]), one))
    assert np.count_nonzero(found) == STEPS - PLACE // BATCH
    assert found.max() > 1.0


def test_everybody_in_one_batch():
    """A rate of 1 and one step is one plain release, and no defect of the library."""
    options: dict[str, Any] = {**POISSON, "batch": UNITS, "steps": 1, "noise_multiplier": 1.0}
    release = dprl.train(log_of(CROWD), dprl.Budget(8.0, 1e-4), algorithm=dprl.DPPG(**options))
    assert release.certificate["event"] == {"type": "Gaussian", "noise_multiplier": 1.0}


@pytest.mark.parametrize("users", ["cart-pole", "linear-bandit", stream_of(CROWD)])
def test_who_cannot_be_read_whole_is_not_sampled(users):
    algorithm = dprl.DPPG(users=UNITS, noise_multiplier=4.0, steps=STEPS, **POISSON)
    with pytest.raises(dprl.DprlError, match="a log that is read whole"):
        dprl.train(users, dprl.Budget(8.0, 1e-4), algorithm=algorithm)
