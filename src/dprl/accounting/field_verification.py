"""The fields of a certificate or statement: their names and types, and which values contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from dprl.accounting.certificate import CERTIFICATE, NOT_A_TRAJECTORY, NOT_THE_TRANSITIONS, STATUSES, plain_name
from dprl.accounting.ledger_schema import UNITS
from dprl.accounting.reward_relation import UNIT
from dprl.accounting.schema import Check, check_fields, hexadecimal, mapping_of, text, whole
from dprl.errors import require

_DATE = "%Y-%m-%dT%H:%M:%SZ"


def check_content(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse missing, unknown, mistyped and contradictory fields of a certificate or statement.

    Args:
        path: the file, for messages.
        content: its JSON.

    Raises:
        DprlError: one sentence that names the field.
    """
    check_fields(str(path), FIELDS | {"signature": _anything} if "signature" in content else FIELDS, content)
    public = content["assumed_public"]
    check_fields(f"What {path} assumes to be public", {name: PUBLIC.get(name, _anything) for name in public}, public)
    status, unit, unprotected = content["status"], content["privacy_unit"], content["not_protected"]
    require(status in STATUSES, f"The status of {path} must be one of: {', '.join(STATUSES)}.")
    require(unit in UNITS, f"The privacy unit of {path} must be one of: {', '.join(UNITS)}.")
    for narrow, what, others, words in (
        ("transition", "transitions", "a trajectory", NOT_A_TRAJECTORY),
        (UNIT, "reward functions", "transitions", NOT_THE_TRANSITIONS),
    ):
        told = unit != narrow or words in unprotected
        require(told, f"{path} protects {what} without saying that it does not protect {others}.")
    secure = content["noise"].get("secure")
    require(isinstance(secure, bool), f"{path} does not say whether its noise was secure.")
    consistent = (status == "verified" and secure) == (path.name == CERTIFICATE)
    require(consistent, f"Only a verified release with secure noise has a {CERTIFICATE}: {path} contradicts itself.")
    if content["ledger"] is not None:
        _check_ledger_block(path, content)


def check_units(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a delta of 1/units or more, which would allow giving one unit away entirely, and undeclared units."""
    public = content["assumed_public"]
    if content["privacy_unit"] == UNIT:
        units = public.get("hyper_parameters", {}).get("people", {"value": None})["value"]
        if units is None:  # reward functions that are not means over people
            return
    else:
        units = public["bounds"].get("units") if "bounds" in public else public.get("units")
    require(whole(units), f"{path} does not declare how many privacy units there are.")
    small = content["delta"] < 1.0 / units
    require(small, f"The delta of {path} is at least one over its {units} declared units: it protects nobody.")


def _check_ledger_block(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a charge whose epsilon or delta is not the one that the certificate claims."""
    block = content["ledger"]
    check_fields(f"The ledger block of {path}", _LEDGER, block)
    for name in ("epsilon", "delta"):
        same = block[name] == content[name]
        require(same, f"The {name} in the ledger block of {path} is not the {name} that it claims.")


# --- what each field may be -------------------------------------------------------------------------------------------


def _anything(value: Any) -> bool:
    return True


def _is_a(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


_text, _list, _mapping = map(_is_a, (str, list, dict))


def _number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= 10**15)


def _or_nothing(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _date(value: Any) -> bool:
    """Return whether ``value`` is an existing time in UTC, from 2024 on, written YYYY-MM-DDThh:mm:ssZ."""
    try:
        found = datetime.strptime(value, _DATE)
    except (TypeError, ValueError):
        return False
    return found.year >= 2024 and found.strftime(_DATE) == value  # every digit is there, and none is of another script


FIELDS: dict[str, Check] = {
    "schema": _text,
    "status": _text,
    "epsilon": _or_nothing(_number),
    "delta": _or_nothing(_number),
    "privacy_unit": _text,
    "neighbouring_relation": _text,
    "released": _text,
    "not_protected": lambda value: _list(value) and all(map(text, value)),
    "mechanisms": _list,
    "event": _or_nothing(_mapping),
    "accountant": _or_nothing(_text),
    "epsilon_of_event": _or_nothing(_number),
    "delta_of_event": _or_nothing(_number),
    "delta_sampler": _or_nothing(_number),
    "noise": lambda value: _mapping(value) and not set(value) - {"secure", "source"} and text(value.get("source", "")),
    "assumed_public": _mapping,
    "ledger": _or_nothing(_mapping),
    "versions": lambda value: _mapping(value) and all(map(text, value.values())),
    "created": _date,
    "artifacts": lambda value: (
        _mapping(value) and len(value) > 0 and all(map(plain_name, value)) and all(map(hexadecimal(64), value.values()))
    ),
    "digest": _text,
}
"""Check of each field of a certificate or statement; a field ``signature`` may be added."""

PUBLIC: dict[str, Check] = {
    "bounds": _mapping,
    "environment": _mapping,
    "protector": _mapping,
    "hyper_parameters": lambda value: _mapping(value) and all(map(_STATED, value.values())),
    "policies": _list,
    "preconditions": _list,
    "reading": text,
    "units": whole,
}
"""Check of each known field of ``assumed_public``; any of them may be left out, and other fields may be added."""

_STATED = mapping_of({"value": _anything, "provenance": text})
_LEDGER = {"dataset": lambda value: text(value) and value != "", "charge": whole, "epsilon": _number, "delta": _number}
