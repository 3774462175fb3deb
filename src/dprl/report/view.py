"""From the artifacts to the words and numbers of the page. Nothing here knows HTML.

Every reader of a field tolerates its absence: a report is drawn after the budget has been spent, and a page with
a gap is worth more than no page.
"""

from __future__ import annotations

import json
from typing import Any

from dprl.report import answer, charts, guarantee
from dprl.report.fields import items, leaves, section, text
from dprl.report.formatting import MISSING, as_number, clean, plain

VERIFIED, AS_PUBLISHED, UNREVIEWED, NOT_PRIVATE = "verified", "as published", "unreviewed", "not private"
CERTIFICATE_SCHEMA = "dprl.certificate/1"

# Known only once the page itself has been hashed, so the page may not depend on them.
SEAL = ("artifacts", "digest", "signature", "created")


def view(estimate: dict[str, Any], certificate: dict[str, Any]) -> dict[str, Any]:
    """Everything the template prints, as text, booleans and charts."""
    # Through JSON first: a certificate in memory and one read from its file must give the same page.
    estimate, certificate = (clean(json.loads(json.dumps(d, sort_keys=True))) for d in (estimate, certificate))
    certificate = {k: v for k, v in certificate.items() if k not in SEAL}
    unit, units, unit_gloss = guarantee.unit_words(certificate)
    relation, relation_gloss = guarantee.relation(certificate, unit)
    request = section(estimate.get("request"))
    targets = [t for t in items(estimate.get("targets")) if isinstance(t, dict)]
    # `value` and `interval` at the top are those of the first policy.
    targets = targets or [{"value": estimate.get("value"), "interval": estimate.get("interval")}]
    confidence = f"{100.0 * (as_number(estimate.get('confidence')) or 0.95):.6g}%"
    policies = answer.policies(targets, answer.value_bounds(estimate))
    noise = section(certificate.get("noise"))
    return {
        "status": status(estimate, certificate),
        "certified": certificate.get("schema") == CERTIFICATE_SCHEMA,
        "secure": noise.get("secure") is True,
        "noise_source": text(noise.get("source"), MISSING),
        "confidence": confidence,
        "policies": policies,
        "cautions": [plain(line) for line in items(estimate.get("cautions"))],
        "headline": answer.headline(targets[0]),
        "worth": answer.worth(estimate, request),
        "log": text(request.get("log"), "the log"),
        "method": answer.method(estimate),
        "others": answer.others(len(targets) - 1),
        "forest": charts.forest([p["row"] for p in policies], confidence),
        "forest_leaves_axis": charts.leaves_axis([p["row"] for p in policies]),
        "has_reference": any(p["row"].reference is not None for p in policies),
        "has_weights": any(p["weight"] for p in policies),
        "has_clipped": any(p["clipped"] for p in policies),
        "curves": answer.curves(estimate.get("value_function"), estimate.get("bounds")),
        "unit": unit,
        "units": units,
        "unit_gloss": unit_gloss,
        "relation": relation,
        "relation_gloss": relation_gloss,
        "budget": guarantee.budget(estimate, certificate, unit),
        "released": text(certificate.get("released"), MISSING),
        "not_protected": [plain(line) for line in items(certificate.get("not_protected"))],
        "bounds": guarantee.bounds(estimate, certificate, units),
        "hyper_parameters": guarantee.hyper_parameters(certificate),
        "protector": guarantee.protector(certificate),
        "public_policies": [guarantee.policy_words(p) for p in items(guarantee.assumed(certificate).get("policies"))],
        "mechanisms": guarantee.mechanisms(certificate, unit),
        "event": guarantee.event_lines(certificate.get("event")),
        "accountant": text(certificate.get("accountant"), MISSING),
        "request": leaves(request),
        "ledger": leaves(section(certificate.get("ledger"))),
        "versions": [(name, plain(v)) for name, v in sorted(section(certificate.get("versions")).items())],
    }


def status(estimate: dict[str, Any], certificate: dict[str, Any]) -> str:
    """The weakest that either artifact allows; `verified` needs a certificate and secure noise beside the word."""
    claims = {s if isinstance(s, str) else "" for s in (estimate.get("status"), certificate.get("status"))}
    secure = section(certificate.get("noise")).get("secure") is True
    if claims == {VERIFIED} and secure and certificate.get("schema") == CERTIFICATE_SCHEMA:
        return VERIFIED
    for weaker in (UNREVIEWED, AS_PUBLISHED):
        # beside a paper's noise an algorithm that nobody has reviewed is the weaker
        if weaker in claims and claims <= {VERIFIED, AS_PUBLISHED, weaker} and (secure or weaker != UNREVIEWED):
            return weaker
    return NOT_PRIVATE
