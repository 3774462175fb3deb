"""The Renyi filter: costs against integration in both directions, exact integers, and what adaptivity can do."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError
from dp_accounting.pld import PLDAccountant

from dprl.accounting import events, renyi_filter
from dprl.accounting.accountant import accountant_name, epsilon_of, parts_of
from dprl.accounting.renyi_filter import ORDERS, WHOLE, RenyiFilterEvent, cost, effective_multiplier, plan_filter
from dprl.errors import DprlError
from dprl.mechanisms.filtered_sum import FilteredGaussianSum
from dprl.mechanisms.gaussian_sum import GaussianSum

EVENT = RenyiFilterEvent(
    order=16, budget=2.0, sampling_probability=0.05, noise_multipliers=(1.5, 2.0, 5.0), norm_multiplier=6.0, steps=40
)


def integrated(order: int, rate: float, std: float, towards: str) -> float:
    """Order-alpha divergence of ``(1-q) N(0, s^2) + q N(1, s^2)`` and ``N(0, s^2)``, by the trapezoidal rule."""
    x = np.linspace(-14.0 * std - order, order + 14.0 * std, 150_001)
    alone = -0.5 * (x / std) ** 2 - math.log(std * math.sqrt(2.0 * math.pi))
    mixture = alone + np.logaddexp(math.log1p(-rate) if rate < 1.0 else -np.inf, math.log(rate) + (x - 0.5) / std**2)
    p, q = (mixture, alone) if towards == "mixture" else (alone, mixture)
    logs = order * p + (1 - order) * q
    return float(np.logaddexp.reduce(logs) + math.log(x[1] - x[0])) / (order - 1)


def test_costs_are_the_larger_direction_and_rounded_up():
    for order, rate, std in itertools.product((2, 16, 300), (0.002, 0.05, 0.4, 1.0), (0.7, 4.0, 30.0)):
        forth, back = (integrated(order, rate, std, towards) for towards in ("mixture", "Gaussian"))
        found = cost(order, rate, std)
        assert back <= forth * (1 + 1e-9) + 1e-13
        # the integration is good to some eleven digits
        error = 1e-11 * (1 + forth)
        assert forth - error <= found <= forth * (1 + 1e-8) + 1.1e-10 / (order - 1) + error


def test_integers_never_forget_a_part_of_a_cost():
    costs = renyi_filter.integer_costs(EVENT)
    exact = [Fraction(cost(16, 0.05, effective_multiplier(z, 6.0))) for z in EVENT.noise_multipliers]
    unit = Fraction(EVENT.budget) / WHOLE
    for whole, truth in zip(costs, exact, strict=True):
        assert (whole - 1) * unit < truth <= whole * unit
    assert costs[0] > costs[1] > costs[2] > 0
    beyond = dataclasses.replace(EVENT, noise_multipliers=(0.05,))
    assert cost(16, 0.05, effective_multiplier(0.05, 6.0)) > EVENT.budget
    assert renyi_filter.integer_costs(beyond) == (WHOLE + 1,)


def test_the_effective_noise_of_a_sum_and_its_norm():
    """Each over its own noise: squared distances add up, and the norm's rounding is charged."""
    for z, n in itertools.product((0.5, 2.0, 20.0), (1.0, 8.0)):
        squared = 1 / z**2 + (1 + 2.0**-8) ** 2 / n**2
        assert effective_multiplier(z, n) == pytest.approx(squared**-0.5, rel=1e-14)
        assert effective_multiplier(z, n) < min(z, n)


def two_steps(order: int, first: float, choose) -> float:
    """Exact divergence of two Gaussian answers of shift one, where the first chooses the second's noise."""
    y = np.linspace(-12.0 * first - order, order + 12.0 * first, 200_001)
    q = -0.5 * (y / first) ** 2 - math.log(first * math.sqrt(2.0 * math.pi))
    p = -0.5 * ((y - 1.0) / first) ** 2 - math.log(first * math.sqrt(2.0 * math.pi))
    later = order / (2.0 * choose(y) ** 2)  # given the first answer
    logs = order * p + (1 - order) * q + (order - 1) * later
    return float(np.logaddexp.reduce(logs) + math.log(y[1] - y[0])) / (order - 1)


@pytest.mark.parametrize("order", [2, 8, 32])
def test_what_was_chosen_on_the_way_stays_within_the_budget(order):
    """Feldman and Zrnic's theorem, integrated: two steps, the second's noise chosen by what the first released."""
    first, levels = 3.0, np.array([1.0, 2.0, 6.0])
    spent = order / (2.0 * first**2)
    for room in (0.02, 0.2, 0.6):
        budget = spent + order * room

        def greedy(y, room=room):
            # a large answer gives the unit away: then ask for the least noise that is admitted
            fits = np.where(1.0 / (2.0 * levels**2) <= room, levels, np.inf)
            return np.where(y > 1.0, fits.min(), fits[-1])

        assert two_steps(order, first, greedy) <= budget + 1e-9
    # no filter: the second step is drawn, and only then found to be too much
    assert two_steps(order, first, lambda y: np.where(y > 1.0, 1.0, np.inf)) > spent + order * 0.2


def excess(order: int, rate: float, norm: float, choose) -> float:
    """``log E[(P/Q)^alpha exp(-(alpha - 1) cost)]`` of a step: at most zero where the cost is one.

    ``choose`` gives the sum's noise from the noisy norm of the same sample; both are moved by one unit of noise.
    """
    n = np.linspace(-9.0 * norm, 9.0 * norm + order, 301)
    log_n, chosen, found = -0.5 * (n / norm) ** 2 - math.log(norm * math.sqrt(2.0 * math.pi)), choose(n), []
    for z in set(chosen):
        y, here = np.linspace(-9.0 * z, 9.0 * z + order, 301), chosen == z
        log_y = -0.5 * (y / z) ** 2 - math.log(z * math.sqrt(2.0 * math.pi))
        loss = ((n[here] - 0.5) / norm**2)[:, None] + (y - 0.5) / z**2
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
        cell = math.log((n[1] - n[0]) * (y[1] - y[0]))
        paid = (order - 1) * cost(order, rate, (z**-2 + norm**-2) ** -0.5)
        found.append(np.logaddexp.reduce((log_n[here][:, None] + log_y + order * ratio).ravel()) + cell - paid)
    return float(np.logaddexp.reduce(found))


@pytest.mark.parametrize(
    ("order", "rate", "norm", "least"), [(4, 0.1, 1.0, 1.0), (4, 0.01, 1.0, 1.0), (4, 0.1, 3.0, 1.0)]
)
def test_the_norm_of_the_same_sample_may_not_choose_its_noise(order, rate, norm, least):
    """As the paper has it: given the norm, a unit is in the sample with another probability than the rate."""
    for fixed in (least, 20.0):
        assert abs(excess(order, rate, norm, lambda n, z=fixed: np.full(len(n), z))) < 1e-6
    assert excess(order, rate, norm, lambda n: np.where(n > 2.0 * norm, least, 20.0)) > 1e-4


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-8), (1.0, 1e-5), (10.0, 1e-6)])
def test_conversion(epsilon, delta):
    for order in (2, 12, 100, 700):
        whole = renyi_filter.rdp_for(order, epsilon, delta)
        if whole == 0.0:
            continue
        assert 0.999999 * epsilon < renyi_filter.epsilon_of_rdp(order, whole, delta) <= epsilon
        # Canonne, Kamath and Steinke: sup over events of P - e^eps Q, of a pair with this divergence, is at most delta
        assert whole + math.log((order - 1) / order) - (math.log(delta) + math.log(order)) / (
            order - 1
        ) == pytest.approx(epsilon)


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize(("epsilon", "delta", "rate", "steps"), [(0.1, 1e-5, 0.05, 100), (4.0, 1e-6, 0.2, 12)])
def test_the_plan_lets_the_constant_schedule_run_and_costs_more_than_pld(epsilon, delta, rate, steps, share):
    norm = 3.0
    plan = plan_filter(epsilon, delta, rate, steps, norm, share)
    before = () if plan.before is None else (plan.before,)
    z = plan.noise_multiplier
    event = RenyiFilterEvent(plan.order, plan.budget, rate, (z,), norm * z, steps, before)
    (each,) = renyi_filter.integer_costs(event)
    assert steps * each <= WHOLE < 1.001 * steps * each
    assert 0.9999 * epsilon < event.epsilon(delta) <= epsilon
    if share:
        assert plan.order / (2 * before[0] ** 2) == pytest.approx(share * event.rdp)
    # the same noise without a choice: the privacy loss distribution of it all asks for less
    fixed = [events.poisson_gaussian(rate, effective_multiplier(z, norm * z), steps), *map(events.gaussian, before)]
    assert 0.8 * epsilon < epsilon_of(events.compose(fixed), delta) < epsilon
    # no other order needs less noise
    for order in ORDERS[:: 7 if share else 40]:
        whole = renyi_filter.rdp_for(order, epsilon, delta) * (1 - share)
        lighter = effective_multiplier(0.999 * z, 0.999 * norm * z)
        assert whole == 0.0 or steps * cost(order, rate, lighter) > whole


def test_no_budget_is_left_for_the_impossible():
    with pytest.raises(DprlError, match="Renyi filter"):
        plan_filter(1e-9, 1e-30, 1.0, 10**6, 1.0)


# --- the event --------------------------------------------------------------------------------------------------------


def test_the_event_is_read_back_and_stands_alone():
    event = dataclasses.replace(EVENT, before=(4.0, 5.5))
    text = json.dumps(events.to_json(event), allow_nan=False)
    assert events.from_json(json.loads(text)) == event
    assert event.rdp == pytest.approx(2.0 + 16 / 2 * (1 / 16 + 1 / 5.5**2))
    assert epsilon_of(event, 1e-5) == event.epsilon(1e-5) > EVENT.epsilon(1e-5)
    assert "order 16, under a Renyi filter, add or remove one" in accountant_name(event)
    # a filter's budget is for all that it filters: composing it with anything is not defined
    for wrong in (events.compose([event, events.gaussian(3.0)]), events.compose([event, event])):
        with pytest.raises(DprlError, match="RenyiFilterEvent"):
            epsilon_of(wrong, 1e-5)
    with pytest.raises(DprlError, match="RenyiFilterEvent"):
        parts_of(event)


@pytest.mark.parametrize(
    "changes",
    [
        {"order": 1}, {"order": 2.5}, {"order": True}, {"order": 10**6}, {"budget": 0.0}, {"budget": "0.3"},
        {"budget": math.inf}, {"sampling_probability": 0.0}, {"sampling_probability": 1.1}, {"noise_multipliers": []},
        {"noise_multipliers": [1.0, 0.0]}, {"noise_multipliers": [1.0] * 65}, {"norm_multiplier": -1.0},
        {"norm_multiplier": None}, {"steps": 0}, {"steps": 1.0}, {"before": [0.0]}, {"before": None}, {"more": 1},
    ],
)  # fmt: skip
def test_refuses_to_read_what_no_filter_is(changes):
    with pytest.raises(DprlError):
        events.from_json(events.to_json(EVENT) | changes)


def test_noise_that_adapts_is_never_composed_by_distribution():
    """Its event is the filter's, which stands alone; a schedule that is fixed beforehand is composed, step by step."""
    with pytest.raises(UnsupportedEventError):
        PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(EVENT)
    filtered = FilteredGaussianSum(
        parts=((3, 1.0),), noise_multiplier=2.0, sampling_rate=0.1, steps=5, levels=(1.0, 4.0),
        norm_multiplier=6.0, order=8, budget=0.5,
    )  # fmt: skip
    assert isinstance(filtered.event(), RenyiFilterEvent)
    public = GaussianSum(parts=((3, 1.0),), multipliers=(1.0, 4.0), sampling_rate=0.1)
    assert parts_of(public.event()) == ((0.1, 1.0, 1), (0.1, 4.0, 1))
    for mechanism in (filtered, public):
        for field in dataclasses.fields(mechanism):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(mechanism, field.name, getattr(mechanism, field.name))
