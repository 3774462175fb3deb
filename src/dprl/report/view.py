"""From the artifacts to the words and numbers of a page. Nothing here knows HTML."""

from __future__ import annotations

import json
import re
from typing import Any

from dprl.report import guarantee
from dprl.report.fields import items, leaves, section, text
from dprl.report.formatting import clean, plain

VERIFIED, AS_PUBLISHED, UNREVIEWED, NOT_PRIVATE = "verified", "as published", "unreviewed", "not private"
CERTIFICATE_SCHEMA = "dprl.certificate/1"

_SEAL = ("artifacts", "digest", "signature", "created")
"""What is known only once the page itself has been hashed, so that the page may not depend on it."""


def cleaned(content: dict[str, Any], certificate: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both artifacts without what must not be printed, and the certificate without its seal."""
    # through JSON first: a certificate in memory and one read from its file must give the same page
    content, certificate = (clean(json.loads(json.dumps(d, sort_keys=True))) for d in (content, certificate))
    return content, {key: value for key, value in certificate.items() if key not in _SEAL}


def with_names_of_arms(content: Any, certificate: dict[str, Any]) -> list[Any]:
    """Return both artifacts with ``always zidovudine`` in place of ``always_0``, where the bounds call action 0 so.

    A function of the user may be called ``always_0``, too: what the certificate says of the policy tells them apart.
    """
    public = guarantee.assumed(certificate)
    called, said = items(section(public.get("bounds")).get("action_names")), section(public.get("policies_in_words"))
    names = {f"always_{code}": text(name) for action, name in enumerate(called) for code in (action, name)}
    arms = {code: f"always {name}" for code, name in names.items() if said.get(code) == f"{name} for everybody."}
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, sorted(arms, key=len, reverse=True)))})(?!\w)")

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {named(key): named(each) for key, each in value.items()}
        if isinstance(value, list):
            return list(map(named, value))
        return pattern.sub(lambda code: arms[code[0]], value) if isinstance(value, str) else value

    if not arms:
        return [content, certificate]
    return named([content, certificate])


def view_of_guarantee(content: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Return what every page prints of the guarantee, as text and booleans, whatever was released.

    Args:
        content: ``estimate.json`` or ``training.json``, as :func:`cleaned` gives it.
        certificate: the certificate or statement beside it, from there too.
    """
    unit, units, unit_gloss = guarantee.unit_words(certificate)
    relation, relation_gloss = guarantee.relation(certificate, unit)
    noise = section(certificate.get("noise"))
    return {
        "status": status(content, certificate),
        "certified": certificate.get("schema") == CERTIFICATE_SCHEMA,
        "secure": noise.get("secure") is True,
        "noise_source": text(noise.get("source")),
        "unit": unit,
        "units": units,
        "unit_gloss": unit_gloss,
        "relation": relation,
        "relation_gloss": relation_gloss,
        "budget": guarantee.budget(content, certificate, unit),
        "released": text(certificate.get("released")),
        "not_protected": [plain(line) for line in items(certificate.get("not_protected"))],
        "hyper_parameters": guarantee.hyper_parameters(certificate),
        "mechanisms": guarantee.mechanisms(certificate, unit),
        "event": guarantee.event_lines(certificate.get("event")),
        "accountant": text(certificate.get("accountant"), ""),
        "request": leaves(section(content.get("request"))),
        "ledger": [(f"Ledger, {label}", value) for label, value in leaves(section(certificate.get("ledger")))],
        "versions": [(name, plain(v)) for name, v in sorted(section(certificate.get("versions")).items())],
    }


def status(content: dict[str, Any], certificate: dict[str, Any]) -> str:
    """Return the weakest status that either artifact allows.

    It is ``verified`` only where a certificate and secure noise stand beside the word.
    """
    claims = {s if isinstance(s, str) else "" for s in (content.get("status"), certificate.get("status"))}
    secure = section(certificate.get("noise")).get("secure") is True
    if claims == {VERIFIED} and secure and certificate.get("schema") == CERTIFICATE_SCHEMA:
        return VERIFIED
    for weaker in (UNREVIEWED, AS_PUBLISHED):
        # beside a paper's noise an algorithm that nobody has reviewed is the weaker
        if weaker in claims and claims <= {VERIFIED, AS_PUBLISHED, weaker} and (secure or weaker != UNREVIEWED):
            return weaker
    return NOT_PRIVATE
