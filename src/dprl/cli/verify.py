"""``dprl verify``: does a results folder still say what was released, and does the claim hold?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli.running import show


def verify(
    results: Annotated[Path, typer.Argument(help="Results folder, with certificate.json or statement.json.")],
    public_key: Annotated[
        Path | None, typer.Option(help="PEM public key: the signature must be there and be made by its owner.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger: it must hold the charge that the certificate names.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Recompute epsilon from the certificate's event, and check every digest; exits with 2 when anything differs.

    Digests guard against accidents; against tampering, sign with a key made by

    openssl genpkey -algorithm ed25519 -out signing.pem

    openssl pkey -in signing.pem -pubout -out public.pem

    then release with --sign signing.pem and verify with --public-key public.pem.
    """
    from dprl.accounting import verification

    found = verification.verify(results, public_key, ledger)
    content = found.content
    names = ("status", "epsilon", "delta", "privacy_unit", "neighbouring_relation", "digest")
    result = {"verified": True, "private": found.private, "file": str(found.path)}
    result |= {name: content[name] for name in names} | {"artifacts": sorted(content["artifacts"])}
    result |= {"epsilon_recomputed": found.epsilon, "signed": found.signed, "cautions": list(found.cautions)}
    words = "\n".join(_lines(found, public_key is not None, ledger))
    show(result, lambda _: words, as_json)


def _lines(found: Any, key: bool, ledger: Path | None) -> Iterator[str]:
    content = found.content
    signature = "unsigned: shows accidents, not tampering"
    if found.signed:
        whose = "the given key" if key else "give --public-key to check by whom"
        signature = f"signed by {content['signature']['public_key'][:16]}... ({whose})"
    if found.private:
        yield (
            f"{found.path}: epsilon {content['epsilon']:g}, delta {content['delta']:g} per {content['privacy_unit']}, "
            f"{content['neighbouring_relation']}; {signature}."
        )
        yield f"Recomputed from its event: epsilon {found.epsilon:.6g}."
    else:
        yield f"{found.path}: a statement, not a private release ({_REASONS[content['status']]}); {signature}."
    yield from (f"Caution: {caution}" for caution in found.cautions)
    charged = "" if ledger is None else f", and its charge stands in {ledger}"
    yield f"{len(content['artifacts'])} files unchanged since{charged}."


_REASONS = {
    "verified": "reproducible noise",
    "as published": "as published",
    "unreviewed": "unreviewed: an algorithm that is none of dprl's, so nobody here has proved what it protects",
    "not private": "not private",
}
