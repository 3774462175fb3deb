"""Run the logs of a row through ``dprl.evaluate`` and count how often the intervals hold the true value."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np

import dprl
from benchmarks.coverage.domains import Domain
from benchmarks.coverage.rows import Row
from benchmarks.coverage.standard import PLANNED
from dprl.bounds import Bounds
from dprl.evaluation.learned_policy import plan_of_learned
from dprl.evaluation.strata import read_axis

LOGS = 500
TABLE, DEVELOPMENT, QUICK = 21, 7, 3
"""First numbers of the seeds of three sets of logs. Nothing was chosen by looking at the logs of the table."""
WHOLE = ("importance sampling", "self-normalised importance sampling")
"""Estimators that weight whole trajectories; the others weight each step, so that cuts take less from early steps."""
SIMULATED = 1_000_000
Z = NormalDist().inv_cdf(0.975)


def bounds_of(row: Row) -> Bounds:
    return Bounds(units=row.units, **row.bounds)


def facts_of(row: Row) -> dict[str, Any]:
    """Return what a row asks for, as plain data."""
    config = row.algorithm()
    return {
        "name": row.name, "title": row.title, "units": row.units, "people": row.people or row.units, "unit": row.unit,
        "epsilon": row.epsilon, "delta": row.delta, "algorithm": config.algorithm,
        "options": {name: value["value"] for name, value in config.hyper_parameters().items()},
        "bounds": bounds_of(row).as_dict(), "flag": row.flag, "counted": row.counted,
    }  # fmt: skip


def plan_of(row: Row) -> dict[str, Any]:
    """Return what ``dprl plan`` says of the row, from only public facts.

    Raises:
        dprl.DprlError: the release would refuse the row.
    """
    from dprl.release.plan import plan_release

    if row.learn:
        plan = plan_of_learned(row.algorithm(), bounds_of(row), dprl.Budget(row.epsilon, row.delta), learner=row.learn)
        widest = [{"interval_half_width": [0.0, one["interval_half_width_at_most"]]} for one in plan.expectation()]
        return {"targets": widest, "estimator": plan.estimator}
    return plan_release(
        None, row.domain().policies, dprl.Budget(row.epsilon, row.delta), row.algorithm(),
        bounds=bounds_of(row), unit=row.unit, compare=row.compare, subgroups=row.subgroups, best=row.best,
    )  # fmt: skip


def run(row: Row, logs: int = LOGS, seeds: int = TABLE, simulated: int = SIMULATED) -> dict[str, Any]:
    """Return the row's figures as plain data: for each target policy, how the intervals of ``logs`` logs performed.

    Args:
        row: the row.
        logs: number of logs.
        seeds: one of ``TABLE``, ``DEVELOPMENT`` and ``QUICK``.
        simulated: number of trajectories or people from which the known bias bound is computed.
    """
    started = time.perf_counter()
    domain, bounds = row.domain(), bounds_of(row)
    found: dict[str, Any] = {"row": facts_of(row), "logs": logs, "seeds": seeds}
    releases: list[Any] = []
    try:
        for number in range(logs):
            releases.append(_release(row, domain, np.random.default_rng([seeds, _number(row), number])))
    except dprl.DprlError as refusal:
        if releases:  # a refusal follows from public facts: the first log would have been refused too
            raise
        with suppress(dprl.DprlError):
            plan_of(row)
            raise RuntimeError(f"{row.name}: the plan does not refuse what the release refuses.") from refusal
        return {**found, "refused": str(refusal), "seconds": round(time.perf_counter() - started, 1)}
    plan = plan_of(row)
    low, high = bounds.value_interval(row.algorithm().discount)
    if row.best or row.learn:
        of = _of_rules if row.learn else _of_winners
        figures = of(domain, releases, plan["targets"][0], high - low)
        return {**found, "range": [low, high], "policies": figures, "seconds": round(time.perf_counter() - started, 1)}
    found["policies"] = []
    for policy, expected in zip(domain.policies, plan["targets"], strict=True):
        figures = _count(domain.value(policy), [r.values[policy] for r in releases], high - low)
        rng = np.random.default_rng([seeds, _number(row)])
        whole = plan["estimator"] in WHOLE
        bias = _bias_bound(row, domain, policy, whole, simulated, rng)
        spread = max(figures["standard_deviation"], figures["privacy_standard_error"])  # the noise is known
        widest = expected["interval_half_width"][1]
        best = min(2.0 * Z * spread + bias, high - low)
        figures |= {
            "policy": policy,
            "known_bias_bound": bias,
            "known_width": best,
            "width_over_known": figures["median_width"] / best,
            "planned_half_width": widest,
            "wider_than_planned": int((figures.pop("widths") > 2.0 * widest * (1.0 + 1e-9)).sum()),
            "usable": widest <= PLANNED * (high - low),
        }
        found["policies"].append(figures)
    found["policies"] += _differences(domain, releases, found["policies"], high - low)
    if row.subgroups:
        found["policies"] += _subgroups(row, releases, high - low)
    if releases[0].projections is not None:
        found["policies"] += _bands(row, releases, high - low)
    return {**found, "range": [low, high], "seconds": round(time.perf_counter() - started, 1)}


def _of_winners(domain: Domain, releases: list[Any], expected: dict[str, Any], span: float) -> list[dict[str, Any]]:
    """Return how the intervals of the chosen policies performed."""
    truths = {policy: domain.value(policy) for policy in domain.policies}
    chosen = [(release.values[release.chosen], truths[release.chosen]) for release in releases]
    found = _each_against_its_own("the winner", chosen, expected["interval_half_width"][1], span)
    return [found | {"mean_loss": max(truths.values()) - float(np.mean([truth for _, truth in chosen]))}]


def _of_rules(domain: Domain, releases: list[Any], expected: dict[str, Any], span: float) -> list[dict[str, Any]]:
    """Return how the intervals of learned rules performed.

    These are the intervals of the rule's value, of its difference to the behaviour policy and, after one decision, of
    its difference to the best action for everybody, and the intervals of all differences together.
    """
    law: Any = domain
    states, actions = np.arange(len(law.start), dtype=np.float64)[:, None], law.behavior.shape[1]
    fixed = {f"always_{a}": np.tile(np.eye(actions)[a], (len(states), 1)) for a in range(actions)}
    known = {name: replace(law, targets={name: table}).value(name) for name, table in fixed.items()}
    known["logged"] = replace(law, targets={"logged": law.behavior}).value("logged")
    widest = expected["interval_half_width"][1]
    values, less_logged, less_best, together = [], [], [], 0
    for release in releases:
        truth = replace(law, targets={"rule": release.policy(states)}).value("rule")
        learned, first = next(iter(release.values)), release.contrasts[0]
        values.append((release.values[learned], truth))
        less_logged.append((SimpleNamespace(**first, bias_bound=0.0, notes=()), truth - known["logged"]))
        if best := release.estimate["choice"].get("less_best_action"):
            own = {**first, **best, "interval": best["simultaneous_interval"]}
            less_best.append((SimpleNamespace(**own, bias_bound=0.0, notes=()), truth - max(known[n] for n in fixed)))
        ends = [(c["simultaneous_interval"], truth - known[c["against"]]) for c in release.contrasts]
        together += all(low <= difference <= high for (low, high), difference in ends)
    z_of_all = NormalDist().inv_cdf(1.0 - 0.025 / (actions + 1))  # intervals of all differences hold together
    out = [
        _each_against_its_own(learned, values, widest, span),
        _each_against_its_own("less what was done", less_logged, 2.0 * widest, 2.0 * span),
    ]
    if not less_best:
        return out
    out.append(_each_against_its_own("less the best action", less_best, 2.0 * widest, 2.0 * span, z_of_all))
    return [*out, out[1] | {"policy": "all together", "hits": together, "below": len(releases) - together, "above": 0}]


def _each_against_its_own(
    name: str, found: list[tuple[Any, float]], widest: float, span: float, z: float = Z
) -> dict[str, Any]:
    """Return how intervals performed that have different true values: each is moved as if its true value were zero."""
    apart = []
    for estimate, truth in found:
        moved = {**vars(estimate), "value": estimate.value - truth}
        moved["interval"] = tuple(end - truth for end in estimate.interval)
        apart.append(SimpleNamespace(**moved))
    figures = _count(0.0, apart, span)
    best = min(2.0 * z * max(figures["standard_deviation"], figures["privacy_standard_error"]), span)
    return figures | {
        "policy": name,
        "known_bias_bound": 0.0,
        "known_width": best,
        "width_over_known": figures["median_width"] / best,
        "planned_half_width": widest,
        "wider_than_planned": int((figures.pop("widths") > 2.0 * widest * (1.0 + 1e-9)).sum()),
        "usable": widest <= PLANNED * span,
    }


def _differences(
    domain: Domain, releases: list[Any], policies: list[dict[str, Any]], span: float
) -> list[dict[str, Any]]:
    """Return how the intervals of differences performed: each alone, and all of a release together."""
    if not releases[0].contrasts:
        return []
    known, out, together = {p["policy"]: p for p in policies}, [], np.full(len(releases), True)
    for place, contrast in enumerate(releases[0].contrasts):
        two = [known[contrast[who]] for who in ("policy", "against")]
        truth = two[0]["truth"] - two[1]["truth"]
        found = [SimpleNamespace(**r.contrasts[place], bias_bound=0.0, notes=()) for r in releases]
        figures = _count(truth, found, 2.0 * span)
        ends = np.array([e.simultaneous_interval for e in found])
        together &= (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        bias, widest = (sum(p[name] for p in two) for name in ("known_bias_bound", "planned_half_width"))
        spread = max(figures["standard_deviation"], figures["privacy_standard_error"])
        best = min(2.0 * Z * spread + bias, 2.0 * span)
        figures |= {
            "policy": f"{contrast['policy']} less {contrast['against']}",
            "known_bias_bound": bias,
            "known_width": best,
            "width_over_known": figures["median_width"] / best,
            "planned_half_width": widest,
            "wider_than_planned": int((figures.pop("widths") > 2.0 * widest * (1.0 + 1e-9)).sum()),
            "usable": widest <= PLANNED * 2.0 * span,
        }
        out.append(figures)
    if len(out) > 1:
        hits = int(together.sum())
        out.append(out[-1] | {"policy": "all together", "hits": hits, "below": len(releases) - hits, "above": 0})
    return out


def _subgroups(row: Row, releases: list[Any], span: float) -> list[dict[str, Any]]:
    """Return how the intervals of subgroups performed: of the smallest, of the largest, and of all subgroups together.

    For the smallest and the largest these are the first policy's value and the first difference. Their width is shown
    beside the width of an interval without privacy for the same number of people.
    """
    domain: Any = row.domain()
    groups: list[tuple[float, str, Any, list[Any]]] = []
    every = np.arange(len(domain.start), dtype=np.float64)[:, None]
    place = 0
    for declared in row.subgroups:
        axis = read_axis(declared, bounds_of(row))
        for cell, label in enumerate(axis.labels()):
            start = np.where(axis.cells(every) == cell, domain.start, 0.0)
            own = replace(domain, start=start / start.sum())
            groups.append((float(start.sum()), label, own, [r.subgroups[place] for r in releases]))
            place += 1
    shown = [min(groups, key=lambda g: g[0])[1], max(groups, key=lambda g: g[0])[1]]
    out, all_values, all_differences = [], np.full(len(releases), True), np.full(len(releases), True)
    for share, label, own, found in groups:
        truths = {policy: own.value(policy) for policy in own.policies}
        for number, target in enumerate(found[0]["targets"]):
            released = [SimpleNamespace(**f["targets"][number]) for f in found]
            all_values &= _together(released, truths[target["name"]])
            if number == 0 and label in shown:
                out.append(_of_group(released, truths[target["name"]], span, f"{target['name']}, {label}", share))
        for number, contrast in enumerate(found[0]["contrasts"]):
            truth = truths[contrast["policy"]] - truths[contrast["against"]]
            released = [SimpleNamespace(**f["contrasts"][number], bias_bound=0.0, notes=()) for f in found]
            all_differences &= _together(released, truth)
            if number == 0 and label in shown:
                name = f"{contrast['policy']} less {contrast['against']}, {label}"
                out.append(_of_group(released, truth, 2.0 * span, name, share))
    for name, together in (("all values", all_values), ("all differences", all_differences)):
        hits = int(together.sum())
        if name == "all values" or releases[0].contrasts:
            out.append(out[-1] | {"policy": name, "hits": hits, "below": 0, "above": 0, "notes": {}})  # on neither side
    return out


def _bands(row: Row, releases: list[Any], span: float) -> list[dict[str, Any]]:
    """Return how the bands of linear projections performed. A band holds if the true projection lies in it everywhere.

    The true projection is that of the true values. A release without a band makes no promise, so it is no miss. A
    band's width is a mean over people. It is shown beside the width of a band that knows how much the released
    projection varies at each state.
    """
    domain: Any = row.domain()
    low, high = np.array(bounds_of(row).state).T
    states = domain.observed if domain.observed is not None else np.arange(len(domain.start), dtype=np.float64)[:, None]
    corners = np.stack(np.meshgrid(*np.linspace(low, high, 9).T), axis=-1).reshape(-1, len(low))

    def features(where: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(where)), 2.0 * (where - low) / (high - low) - 1.0])

    root, out, all_hold = np.sqrt(domain.start)[:, None], [], np.full(len(releases), True)
    lacking = sum(any(one.weights is None for one in r.projections.found) for r in releases)
    for place, asked in enumerate(releases[0].estimate["projections"]["found"]):
        who = [asked[name] for name in ("policy", "against") if name in asked]
        values = domain.values_by_state(who[0]) - (domain.values_by_state(who[1]) if len(who) > 1 else 0.0)
        best = np.linalg.lstsq(root * features(states), root[:, 0] * values)[0]
        there = [r.projections.band(place, corners) for r in releases]
        truth = features(corners) @ best
        held = np.array([b is None or bool(((b[1] <= truth) & (truth <= b[2])).all()) for b in there])
        all_hold &= held
        some = [r.projections.band(place, states) for r, b in zip(releases, there, strict=True) if b is not None]
        out.append({
            "policy": " less ".join(who), "band": True, "misses": int((~held).sum()), "none": len(releases) - len(some),
        })  # fmt: skip
        if some:
            widths = np.array([(b[2] - b[1]) @ domain.start for b in some])
            spread = np.std([b[0] for b in some], axis=0) @ domain.start
            known = 2.0 * releases[0].projections.critical * spread
            out[-1] |= {
                "median_width": float(np.median(widths)),
                "width_over_range": float(np.median(widths)) / (span * len(who)),
                "width_over_known": float(np.median(widths) / known),
            }
    all_misses = int((~all_hold).sum())
    return [*out, {"policy": "all bands", "band": True, "misses": all_misses, "none": lacking}]


def _together(released: list[Any], truth: float) -> np.ndarray:
    ends = np.array([e.simultaneous_interval for e in released])
    return (ends[:, 0] <= truth) & (truth <= ends[:, 1])


def _of_group(released: list[Any], truth: float, span: float, name: str, share: float) -> dict[str, Any]:
    figures = _count(truth, released, span)
    sampling = float(np.median([e.sampling_standard_error for e in released]))
    best = min(2.0 * Z * max(figures["standard_deviation"], figures["privacy_standard_error"]), span)
    del figures["widths"]
    return figures | {
        "policy": name,
        "share": share,
        "width_without_privacy": min(2.0 * Z * sampling / span, 1.0),
        "known_bias_bound": figures["median_bias_bound"],
        "known_width": best,
        "width_over_known": figures["median_width"] / min(best + figures["median_bias_bound"], span),
        "usable": False,
        "planned_half_width": span / 2.0,
        "wider_than_planned": 0,
    }


def _number(row: Row) -> int:
    return zlib.crc32(row.name.encode())


def _release(row: Row, domain: Domain, rng: np.random.Generator) -> Any:
    columns = domain.draw(rng, row.people or row.units).columns()
    if row.unit == "trajectory":
        del columns["person_id"]
    budget, person = dprl.Budget(row.epsilon, row.delta), "person_id" if row.unit == "person" else None
    own: dict[str, Any] = {"unit": row.unit, "person": person, "seed": int(rng.integers(2**62))}
    if row.learn:
        how = {"algorithm": row.algorithm(), "bounds": bounds_of(row), "learner": row.learn}
        return dprl.learn(columns, budget, **how, **own)
    return dprl.evaluate(
        columns, dict(domain.policies), budget, algorithm=row.algorithm(), bounds=bounds_of(row),
        compare=row.compare, subgroups=row.subgroups, best=row.best, **own,
    )  # fmt: skip


def _count(truth: float, estimates: list[Any], span: float) -> dict[str, Any]:
    ends = np.array([e.interval for e in estimates])
    values = np.array([e.value for e in estimates])
    notes = Counter(note for e in estimates for note in e.notes)
    widths = ends[:, 1] - ends[:, 0]
    width = float(np.median(widths))
    return {
        "widths": widths,
        "truth": truth,
        "hits": int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum()),
        "below": int((ends[:, 1] < truth).sum()),
        "above": int((ends[:, 0] > truth).sum()),
        "median_width": width,
        "width_over_range": width / span,
        "mean_value": float(values.mean()),
        "standard_deviation": float(values.std()),
        "privacy_standard_error": float(np.median([e.privacy_standard_error for e in estimates])),
        "median_bias_bound": float(np.median([e.bias_bound for e in estimates])),
        "notes": dict(sorted(notes.items())),
    }


def _bias_bound(row: Row, domain: Domain, policy: str, whole: bool, simulated: int, rng: np.random.Generator) -> float:
    """Return a bound on the bias, from how far the mean weights without privacy are below one.

    Cut ratios, lack of overlap and missing people lower the mean weights. For whole trajectories the bound is
    ``(1 - E w')`` times the value range. Per decision it is the sum over steps of ``gamma^t (1 - E w'_t)`` times the
    reward range, where an ended trajectory keeps its last weight. Cut and uncut weights are compared path by path, so
    that chance adds nothing where nothing is cut.
    """
    bounds, discount, chunk = bounds_of(row), row.algorithm().discount, 50_000
    steps = np.arange(bounds.horizon)
    sums = np.zeros((3, bounds.horizon))
    for _ in range(simulated // chunk):
        paths = domain.draw(rng, chunk)
        ratio = np.where(steps < paths.length[:, None], paths.ratio[policy], 1.0)
        true = np.cumprod(ratio, axis=1)
        kept = np.minimum(np.cumprod(np.minimum(ratio, bounds.max_importance_ratio), axis=1), bounds.cumulative_ratio)
        sums += np.stack([(x.sum(axis=0) * chunk / len(true)) for x in (true, true**2, true - kept)]) / simulated
    mean, square, removed = sums
    error = np.sqrt(np.maximum(square - mean**2, 0.0) / simulated)
    absent = np.where(np.abs(1.0 - mean) < 5.0 * error, 0.0, 1.0 - mean)  # with full overlap the mean is 1
    missing = np.maximum(1.0 - (row.people or row.units) / row.units * (1.0 - absent - removed), 0.0)
    low, high = bounds.value_interval(discount)
    of_wholes = float(missing[-1] * (high - low))
    reward = max(bounds.reward[1], 0.0) - min(bounds.reward[0], 0.0)
    return of_wholes if whole else min(of_wholes, float(np.sum(discount**steps * missing) * reward))
