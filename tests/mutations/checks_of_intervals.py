"""The checks of intervals: what they hold, and what is said where they say nothing."""

from __future__ import annotations

import numpy as np

from dprl.accounting.budget import Budget
from dprl.data.readers import read_log
from dprl.evaluation.importance_sampling import ImportanceSampling
from dprl.evaluation.plan import make_plan
from dprl.evaluation.subgroups import subgroups_of

from ..evaluation.many_logs import LOGS, bernoulli, estimates, first, hits, one_decision, several, without
from .lab import check, refused, require


@check
def what_is_cut_is_counted() -> None:
    """Ten decisions whose products are cut, at a declared and at the derived bound."""
    for cumulative in (None, 4.0):
        generate, policy, bounds, truth = several(200, 0.9, cumulative)
        found = estimates(generate, policy, bounds, ImportanceSampling(discount=1.0))
        require(hits(found, truth) >= LOGS - 4, "intervals do not hold the value where ratios are cut")


@check
def false_facts_show() -> None:
    """A ratio that is declared ten times too small."""
    found = estimates(bernoulli(100.0, 0.1), first, one_decision(1000, 10.0), ImportanceSampling(), 2.0)
    require(hits(found, 0.1) >= LOGS - 6, "intervals do not hold the value where a ratio is declared too small")


@check
def missing_people_are_counted() -> None:
    """Two people in a hundred, too few for the mean weight to tell, and a value near the end of the range."""
    found = estimates(without(bernoulli(2.0, 0.95), 46), first, one_decision(10_000, 2.0), ImportanceSampling())
    require(hits(found, 0.95) >= LOGS - 6, "intervals do not hold the value where a few people are missing")


@check
def the_people_of_a_subgroup_are_counted_with_noise() -> None:
    """Everybody is rewarded alike, near an end of the range: all error is noise, and most of it in the number."""
    units, rng = 2_000, np.random.default_rng(5)
    bounds = one_decision(units, 1.0)
    rows = {"observation": np.arange(units) / units, "action": np.zeros(units, int), "reward": np.full(units, 0.9)}
    log = read_log(rows | {"behavior_prob": np.ones(units)}, bounds=bounds).load()
    plan = make_plan(ImportanceSampling(), bounds, Budget(0.5, 1e-5), [first], subgroups=["observation_0:0.2"])
    total, held = plan.query.unit_vectors(log, [first]).sum(axis=0), 0
    for _ in range(200):
        draw = total + plan.value_mechanism.noise_std * rng.normal(size=len(total))
        few, _ = subgroups_of(plan.query, plan.value_mechanism, draw, ())
        held += few.values[0].interval[0] <= 0.9 <= few.values[0].interval[1]
    require(held >= 180, "intervals do not hold the value of a subgroup whose people are counted with noise")


@check
def sampling_errors_are_bounded() -> None:
    """The largest sampling error that is told is at least the true one, in most logs."""
    found = estimates(bernoulli(50.0, 0.05), first, one_decision(1000, 50.0), ImportanceSampling())
    true = np.sqrt((50.0 * 0.25 - 0.45**2) / 1000)
    enough = [(e.sampling_standard_error_at_most or 0.0) >= 0.97 * true for e in found]
    require(sum(enough) >= LOGS - 6, "sampling errors are told too small")
    require(all(0.0 <= e.interval[0] <= e.interval[1] <= 1.0 for e in found), "an interval leaves the declared range")


@check
def the_hopeless_is_refused() -> None:
    """A hundred people with weights of up to 20, at an epsilon of 0.1."""
    with refused("a release that can say nothing is not refused"):
        make_plan(ImportanceSampling(), one_decision(100, 20.0), Budget(0.1, 1e-4), [first]).refuse_the_hopeless()
