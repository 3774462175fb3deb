"""The fields of a certificate or statement: which there are, of what type, and which contradict each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from dprl.accounting.certificate import CERTIFICATE, NOT_A_TRAJECTORY, NOT_THE_TRANSITIONS, STATUSES
from dprl.accounting.ledger_schema import UNITS
from dprl.accounting.reward_relation import UNIT
from dprl.accounting.rows import text, whole
from dprl.errors import DprlError

# Type of each top-level field; None is allowed where it is listed.
_NUMBER, _NOTHING = (int, float), type(None)
_FIELDS: dict[str, tuple[type, ...]] = {
    "schema": (str,),
    "status": (str,),
    "epsilon": (*_NUMBER, _NOTHING),
    "delta": (*_NUMBER, _NOTHING),
    "privacy_unit": (str,),
    "neighbouring_relation": (str,),
    "released": (str,),
    "not_protected": (list,),
    "mechanisms": (list,),
    "event": (dict, _NOTHING),
    "accountant": (str, _NOTHING),
    "epsilon_of_event": (*_NUMBER, _NOTHING),
    "delta_of_event": (*_NUMBER, _NOTHING),
    "delta_sampler": (*_NUMBER, _NOTHING),
    "noise": (dict,),
    "assumed_public": (dict,),
    "ledger": (dict, _NOTHING),
    "versions": (dict,),
    "created": (str,),
    "artifacts": (dict,),
    "digest": (str,),
}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
# Types of what was assumed to be public, where it is stated.
_PUBLIC: dict[str, Callable[[Any], bool]] = {
    "bounds": lambda value: isinstance(value, dict),
    "environment": lambda value: isinstance(value, dict),
    "protector": lambda value: isinstance(value, dict),
    "hyper_parameters": lambda value: isinstance(value, dict) and all(map(_stated, value.values())),
    "policies": lambda value: isinstance(value, list),
    "preconditions": lambda value: isinstance(value, list),
    "reading": text,
    "units": whole,
}


def check_fields(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse missing, unknown, mistyped and contradictory fields; raises one sentence."""
    for name, kinds in _FIELDS.items():
        if name not in content:
            raise DprlError(f"{path} lacks the field {name!r}.")
        value = content[name]
        if not isinstance(value, kinds) or isinstance(value, bool) or (isinstance(value, int) and abs(value) > 10**15):
            raise DprlError(f"The field {name!r} of {path} has the wrong type.")
    unknown = sorted(set(content) - set(_FIELDS) - {"signature"})
    if unknown:
        raise DprlError(f"{path} has an unknown field {unknown[0]!r}.")
    if content["status"] not in STATUSES:
        raise DprlError(f"The status of {path} must be one of: {', '.join(STATUSES)}.")
    _check_unit(path, content)
    noise, versions = content["noise"], content["versions"]
    if not isinstance(noise.get("secure"), bool):
        raise DprlError(f"{path} does not say whether its noise was secure.")
    if set(noise) - {"secure", "source"} or not text(noise.get("source", "")):
        raise DprlError(f"The field 'noise' of {path} has the wrong type.")
    if not all(map(text, content["not_protected"])):
        raise DprlError(f"The field 'not_protected' of {path} has the wrong type.")
    if not all(map(text, versions.values())):
        raise DprlError(f"The field 'versions' of {path} has the wrong type.")
    for name, sound in _PUBLIC.items():
        if name in content["assumed_public"] and not sound(content["assumed_public"][name]):
            raise DprlError(f"What {path} assumes to be public has {name!r} of the wrong type.")
    if not _is_date(content["created"]):
        raise DprlError(f"The field 'created' of {path} is not a time in UTC, written YYYY-MM-DDThh:mm:ssZ.")
    private = content["status"] == "verified" and noise["secure"]
    if private != (path.name == CERTIFICATE):
        raise DprlError(f"Only a verified release with secure noise has a {CERTIFICATE}: {path} contradicts itself.")
    if content["ledger"] is not None:
        _check_ledger_block(path, content)


def check_units(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a delta at which giving one unit away entirely would be allowed, and units that are not declared."""
    public = content["assumed_public"]
    if content["privacy_unit"] == UNIT:
        units = public.get("hyper_parameters", {}).get("people", {"value": None})["value"]
        if units is None:  # reward functions that are no means over people
            return
    else:
        units = public["bounds"].get("units") if "bounds" in public else public.get("units")
    if not whole(units):
        raise DprlError(f"{path} does not declare how many privacy units there are.")
    if not content["delta"] < 1.0 / units:
        raise DprlError(f"The delta of {path} is at least one over its {units} declared units: it protects nobody.")


def _check_unit(path: Path, content: Mapping[str, Any]) -> None:
    if content["privacy_unit"] not in UNITS:
        raise DprlError(f"The privacy unit of {path} must be one of: {', '.join(UNITS)}.")
    if content["privacy_unit"] == "transition" and NOT_A_TRAJECTORY not in content["not_protected"]:
        raise DprlError(f"{path} protects transitions without saying that it does not protect a trajectory.")
    if content["privacy_unit"] == UNIT and NOT_THE_TRANSITIONS not in content["not_protected"]:
        raise DprlError(f"{path} protects reward functions without saying that it does not protect transitions.")


def _check_ledger_block(path: Path, content: Mapping[str, Any]) -> None:
    """The charge that a certificate names is that of its claim."""
    block = content["ledger"]
    if set(block) != {"dataset", "charge", "epsilon", "delta"} or not text(block["dataset"]) or not block["dataset"]:
        raise DprlError(f"The ledger block of {path} does not name a dataset and a charge.")
    if not whole(block["charge"]):
        raise DprlError(f"The number of the charge in the ledger block of {path} is not a positive whole number.")
    for name in ("epsilon", "delta"):
        if type(block[name]) not in _NUMBER or block[name] != content[name]:
            raise DprlError(f"The {name} in the ledger block of {path} is not the {name} that it claims.")


def _stated(entry: Any) -> bool:
    """Whether a hyper-parameter says its value and where that came from."""
    return isinstance(entry, dict) and set(entry) == {"value", "provenance"} and text(entry["provenance"])


def _is_date(created: str) -> bool:
    if _DATE.fullmatch(created) is None:
        return False
    try:
        return datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").year >= 2024
    except ValueError:
        return False
