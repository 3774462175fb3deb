"""The verifier of one file computes what dprl computes, from formulas of its own, and knows the same fields."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dprl import untrusted_files
from dprl.accounting import certificate, events, ledger_schema, renyi_filter, rows, verification
from dprl.accounting.accountant import epsilon_of

from .conftest import SCRIPT

BAD = [-5, 0, 0.0, 1, 2, True, 2.0, 0.5, 1.5, "x", "\n", None, [], [3], [0.5], [0.5] * 65, {}, 10**15, 1e300, 5e-324]
PARTS = [{"dimension": 3, "clip_norm": 1.0}]
VALUES = [*BAD, PARTS, [*PARTS, {}], "0" * 64, {"a": "0" * 64}, {"secure": True}, "2026-11-21T12:00:00Z"]

PLAIN = [events.gaussian(z) for z in (0.3, 1.0, 4.05, 60.0)]
SAMPLED = [
    events.poisson_gaussian(0.1, 2.0, 3),
    events.poisson_gaussian(0.02, 4.0, 25),
    pytest.param(events.poisson_gaussian(0.9, 6.0, 10), marks=pytest.mark.slow),
    pytest.param(events.poisson_gaussian(0.01, 1.0, 500), marks=pytest.mark.slow),
    pytest.param(
        events.compose([events.gaussian(8.0), events.poisson_gaussian(0.02, 4.0, 25)]), marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize("event", PLAIN, ids=repr)
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_gaussians_are_the_closed_form(alone, event, delta):
    """Exactly, and the accountant's bound is above it, by its rounding alone."""
    found, _ = alone.epsilon_of(events.to_json(event), delta)
    mu = 1.0 / event.noise_multiplier
    exact = norm.sf(found / mu - mu / 2.0) - math.exp(found + norm.logsf(found / mu + mu / 2.0))
    assert exact == pytest.approx(delta, rel=1e-6)
    assert found <= epsilon_of(event, delta) <= found * (1.0 + alone.ROUNDED)


@pytest.mark.parametrize("event", SAMPLED, ids=repr)
@pytest.mark.parametrize("delta", [1e-4, 1e-7])
def test_sampled_gaussians_are_those_of_the_accountant(alone, event, delta):
    found, known_to = alone.epsilon_of(events.to_json(event), delta)
    assert found == pytest.approx(epsilon_of(event, delta), rel=known_to / 5.0)


@pytest.mark.parametrize(("rate", "std"), [(0.2, 0.8), (0.05, 2.0)])
def test_one_sampled_release_is_bounded_from_above(alone, rate, std):
    """Integrated, both ways round: never more than the bound allows, and nearly as much."""
    delta = 1e-4
    found, _ = alone.epsilon_of(events.to_json(events.poisson_gaussian(rate, std, 1)), delta)
    grid = np.linspace(-12.0, 12.0, 400_001)
    without = norm.pdf(grid, scale=std)
    mixed = (1.0 - rate) * without + rate * norm.pdf(grid, loc=1.0, scale=std)
    deltas = [
        np.trapezoid(np.maximum(a - math.exp(found) * b, 0.0), grid) for a, b in ((mixed, without), (without, mixed))
    ]
    assert 0.999 * delta < max(deltas) <= delta * (1.0 + 1e-6)


def test_a_step_under_a_filter_costs_the_same(alone):
    for order, rate, z in ((2, 0.1, 1.0), (32, 0.01, 0.8), (200, 0.3, 20.0), (8000, 1.0, 50.0)):
        assert alone.sampled_cost(order, rate, z) == pytest.approx(renyi_filter.cost(order, rate, z), rel=1e-9)


def test_it_needs_nothing_but_the_standard_library():
    tree = ast.parse(SCRIPT.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert "dprl" not in names


def test_its_lists_are_those_of_this_version(alone):
    assert alone.EVALUATING == verification.EVALUATING
    assert alone.LEARNING == verification.LEARNING
    assert alone.FORMERLY_CERTIFIED == verification.FORMERLY_CERTIFIED
    assert alone.DATA == verification.DATA
    assert alone.FILES == certificate.FILES
    assert alone.STATUSES == certificate.STATUSES
    assert alone.UNITS == ledger_schema.UNITS
    assert list(alone.NARROW.values()) == [certificate.NOT_A_TRAJECTORY, certificate.NOT_THE_TRANSITIONS]
    assert alone.SPREADS == rows.SPREADS
    assert renyi_filter.ORDERS[-1] == alone.LARGEST_ORDER
    assert {name: set(fields) | {"type"} for name, fields in alone.EVENTS.items()} == {
        name: {"type", *fields} for name, (_, fields) in events._TYPES.items()
    }


def test_its_fields_are_those_of_this_version(alone):
    """By name, and by what they let pass."""
    assert set(alone.ROWS) == set(rows.KINDS)
    tables = [(alone.ROWS[name], rows.schema_of(kind)) for name, kind in rows.KINDS.items()]
    tables += [(alone.FIELDS, certificate.FIELDS), (alone.PUBLIC, certificate.PUBLIC)]
    for own, theirs in tables:
        assert set(own) == set(theirs)
        for name, check in own.items():
            for value in VALUES:
                if name in ("schema", "status", "privacy_unit") and isinstance(value, str):
                    continue  # of which only known words pass, later
                assert bool(check(value)) == bool(theirs[name](value)), (name, value)


def test_its_page_says_how_to_run_it(alone):
    page = (Path(SCRIPT).parents[1] / "docs" / "how-to" / "verify-without-dprl.md").read_text()
    for verdict, code in alone.CODES.items():
        assert f"| `{verdict}` | {code} |" in page


def test_files_of_a_release_may_be_as_large_for_both(alone):
    """With room for a thousand values and differences, each with linear projections and their curves."""
    assert inspect.signature(alone.read).parameters["most"].default == untrusted_files.MOST_JSON_BYTES > 1000 * 26_200
