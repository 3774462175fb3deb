"""Checking what a certificate claims: its rows against its privacy event and relation, its epsilon by the accountant.

The noise that a relation asks for is computed again: docs/proofs/functional-noise.md, observed-reward.md,
reward-gradient.md, output-perturbation.md, one-pass-users.md, correlated-noise.md, renyi-filter.md and
noisy-maximum.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from dprl.accounting import accountant, events, reward_relation
from dprl.accounting.certificate import canonical_json, check_units
from dprl.accounting.renyi_filter import WHOLE, RenyiFilterEvent, effective_multiplier, gaussian_cost, integer_cost
from dprl.accounting.rows import (
    FilteredSumRow,
    MaximumRow,
    MechanismRow,
    RewardRow,
    SharedSumRow,
    SumRow,
    UserSumRow,
    counted_steps,
    draws,
    read_rows,
)
from dprl.accounting.user_relation import RELATION_WORDS
from dprl.errors import DprlError, require

_MOST_PARTS = 64  # most different parts of an event; each takes the accountant a second
_CALIBRATED = 1e-5  # relative precision to which a multiplier is calibrated, with room


def check_claim(path: Path, content: dict[str, Any]) -> float | None:
    """Recompute epsilon from the event; compare it with the claim where the status makes one."""
    verified = content["status"] == "verified"
    if content["event"] is None:
        require(not verified, f"{path} claims a verified release without a privacy event.")
        return None
    foreign = f"The privacy event of {path} is not one that dprl emits."
    try:
        event = events.from_json(content["event"])
        require(canonical_json(events.to_json(event)) == canonical_json(content["event"]), foreign)
        parts, known = events.stated_parts(event), events.events_by_part(event)
        plain = [one for one in known if not isinstance(one, events.RenyiFilterEvent | events.PureDpEvent)]
        require(all(len(accountant.parts_of(one)) <= _MOST_PARTS for one in plain), foreign)
    except (DprlError, RecursionError, OverflowError) as error:
        raise DprlError(foreign) from error
    stated_rows = read_rows(path, content) if verified else []
    _check_mechanisms(path, content["mechanisms"], parts)
    of_event, delta, sampler = (content[name] for name in ("epsilon_of_event", "delta_of_event", "delta_sampler"))
    probable = _is_probability(delta) and (sampler in (None, 0.0) or _is_probability(sampler))
    require(probable, f"delta_of_event and delta_sampler of {path} must be probabilities.")
    try:
        epsilon = accountant.epsilon_of(event, delta)
    except (ValueError, ArithmeticError, MemoryError) as error:
        raise DprlError(f"The accountant finds no epsilon for the privacy event of {path}.") from error
    stated = epsilon if of_event is None else of_event
    unneeded = not verified and not math.isfinite(epsilon)
    require(of_event is not None or unneeded, f"{path} does not state the epsilon of its event.")
    same = math.isclose(stated, epsilon, rel_tol=1e-6, abs_tol=1e-9)
    require(same, f"epsilon_of_event of {path} is not what the accountant finds for its event.")
    if verified:
        claim, whole, sampler = (content[name] for name in ("epsilon", "delta", "delta_sampler"))
        complete = None not in (claim, whole, sampler) and claim > 0.0 and 0.0 < whole < 1.0
        require(complete, f"{path} claims a verified release without a positive epsilon and delta.")
        precision = _check_noise(path, content, stated_rows)
        one_part = len(known) == 1 or content["neighbouring_relation"] == accountant.RELATION
        require(one_part, f"The parts of the people of {path} have no proof for its neighbouring relation.")
        check_units(path, content)
        for one in known:  # the rows of each part of the people, in order
            count = len(events.stated_parts(one))
            own, stated_rows = stated_rows[:count], stated_rows[count:]
            _check_shares(path, own)
            if isinstance(one, events.RenyiFilterEvent):
                _check_filter(path, own, one)
        # The tolerances are for the last digits of floating-point sums and transforms on another machine.
        covered = max(epsilon, stated) <= claim * (1.0 + 1e-9) + 1e-9
        require(covered, f"{path} claims a smaller epsilon than the accountant finds for its event.")
        least = max(precision, events.sampler_delta(claim, draws(content)))
        paid = not content["noise"]["secure"] or sampler >= least * (1.0 - 1e-9)
        require(paid, f"delta_sampler of {path} is less than its draws of noise cost.")
        within = delta + sampler <= whole * (1.0 + 1e-9)
        require(within, f"delta_of_event and delta_sampler of {path} exceed the delta it claims.")
    return epsilon if math.isfinite(epsilon) else None


def _is_probability(value: float | None) -> bool:
    return value is not None and 0.0 < value < 1.0


def _check_mechanisms(path: Path, mechanisms: list[Any], parts: Sequence[tuple[Any, ...]]) -> None:
    """Refuse mechanisms that are not the parts of the event, in the same order, with the same numbers."""
    stated = []
    for mechanism in mechanisms:
        require(isinstance(mechanism, dict), f"The mechanisms of {path} must be objects.")
        if "candidates" in mechanism:
            stated.append((mechanism.get("epsilon"),))
            continue
        of_filter = [mechanism.get(name) for name in ("norm_multiplier", "order", "budget")]
        filtered = of_filter != [None] * 3
        noise = mechanism.get("levels" if filtered else "noise_multiplier")
        # a row without a rate or a count of steps is about everybody, once
        rate, steps = (1 if n is None else n for n in (mechanism.get("sampling_rate"), counted_steps(mechanism)))
        stated.append((rate, tuple(noise) if isinstance(noise, list) else noise, steps, *(of_filter * filtered)))
    require(stated == list(parts), f"The mechanisms of {path} are not those of its privacy event.")


# --- what must agree --------------------------------------------------------------------------------------------------


def _check_noise(path: Path, content: Mapping[str, Any], rows: Sequence[MechanismRow]) -> float:
    """Refuse rows with less noise than the certificate's relation asks for.

    Args:
        path: the certificate's file, for messages.
        content: the certificate.
        rows: the certificate's rows, as :func:`~dprl.accounting.rows.read_rows` returns them.

    Returns:
        What the finite precision of all rows adds to delta, at least, beyond the sampler of rounded Gaussians.

    Raises:
        DprlError: one sentence that says what is not protected.
    """
    stated = content["neighbouring_relation"]
    if content["privacy_unit"] == reward_relation.REWARD_FUNCTION:
        kind, whom, relation = RewardRow, "reward functions", reward_relation.parse_relation(stated)
        require(relation, f"The neighbouring relation of {path} does not say how far apart two reward functions are.")
        asked = isinstance(content["assumed_public"].get("environment"), dict) and rows
        require(asked, f"{path} does not say in which environment, and by which mechanism, rewards were asked for.")
    elif any(isinstance(row, UserSumRow) for row in rows):
        kind, whom = UserSumRow, "users"
        relation = {words: name for name, words in RELATION_WORDS.items()}.get(stated)
        require(relation, f"The neighbouring relation of {path} does not say which users are neighbours.")
    else:
        other = f"The accountant answers for {accountant.RELATION!r}, which is not the relation that {path} claims."
        require(stated == accountant.RELATION, other)
        sums = all(isinstance(row, SumRow | MaximumRow) for row in rows)
        require(sums, f"A mechanism of {path} does not protect the units of its relation.")
        return 0.0  # a noise multiplier is relative to the clip norm, which is what one unit moves
    delta = 0.0
    for row in rows:
        try:
            require(isinstance(row, kind), "The mechanism is for other neighbours.")
            sound = row.noise_suffices(relation, content)  # type: ignore[attr-defined]
            delta += row.precision(content)  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise DprlError(f"A mechanism of {path} does not protect the {whom} of its relation.") from error
        require(sound, f"A mechanism of {path} states less noise than its relation asks for.")
    return delta


def _check_shares(path: Path, rows: Sequence[MechanismRow]) -> None:
    """Refuse rows whose shares do not add up to the whole budget."""
    shares = [row.share for row in rows if isinstance(row, SharedSumRow)]
    complete = not shares or abs(math.fsum(shares) - 1.0) <= 1e-6
    require(complete, f"The shares of the mechanisms of {path} do not add up to the whole budget.")


def _check_filter(path: Path, rows: Sequence[MechanismRow], event: RenyiFilterEvent) -> None:
    """Refuse rows of a Renyi filter whose ``noise_multiplier`` or shares are not what its event gives.

    Both are computed again. The ``noise_multiplier`` is the least constant one with which the budget lasts to the last
    step. The shares are those of the releases before the steps, and of the steps, in the Renyi divergence.
    """
    parts = [Fraction(gaussian_cost(event.order, z)) for z in event.before] + [Fraction(event.budget)]
    for row, part in zip(rows, parts, strict=True):
        same = isinstance(row, SharedSumRow) and math.isclose(row.share, float(part / sum(parts)), rel_tol=1e-6)
        require(same, f"The shares of the mechanisms of {path} are not what its Renyi filter spends.")
    row: Any = rows[-1]
    runs = [isinstance(row, FilteredSumRow) and _runs(event, row, 1.0 + sign * _CALIBRATED) for sign in (1, -1)]
    least = runs == [True, False]
    require(least, f"The noise multiplier of {path} is not the least that its filter's budget lets run to the end.")


def _runs(event: RenyiFilterEvent, row: FilteredSumRow, scale: float) -> bool:
    """Return whether the budget lasts to the last step under the row's constant noise times ``scale``."""
    multiplier = effective_multiplier(row.noise_multiplier * scale, row.norm_multiplier * scale)
    return event.steps * integer_cost(event.order, event.sampling_probability, multiplier, event.budget) <= WHOLE
