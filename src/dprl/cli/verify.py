"""``dprl verify``: does a results folder still say what was released, and does the claim hold?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


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
    if as_json:
        result = {
            "verified": True,
            "private": found.private,
            "file": str(found.path),
            "status": content["status"],
            "epsilon": content["epsilon"],
            "delta": content["delta"],
            "epsilon_recomputed": found.epsilon,
            "privacy_unit": content["privacy_unit"],
            "neighbouring_relation": content["neighbouring_relation"],
            "signed": found.signed,
            "cautions": list(found.cautions),
            "artifacts": sorted(content["artifacts"]),
            "digest": content["digest"],
        }
        typer.echo(json.dumps(result, allow_nan=False))
        return
    signature = "unsigned: shows accidents, not tampering"
    if found.signed:
        whose = "the given key" if public_key is not None else "give --public-key to check by whom"
        signature = f"signed by {content['signature']['public_key'][:16]}... ({whose})"
    if found.private:
        typer.echo(
            f"{found.path}: epsilon {content['epsilon']:g}, delta {content['delta']:g} per {content['privacy_unit']}, "
            f"{content['neighbouring_relation']}; {signature}."
        )
        typer.echo(f"Recomputed from its event: epsilon {found.epsilon:.6g}.")
    else:
        typer.echo(f"{found.path}: a statement, not a private release ({_REASONS[content['status']]}); {signature}.")
    for caution in found.cautions:
        typer.echo(f"Caution: {caution}")
    charged = "" if ledger is None else f", and its charge stands in {ledger}"
    typer.echo(f"{len(content['artifacts'])} files unchanged since{charged}.")


_REASONS = {
    "verified": "reproducible noise",
    "as published": "as published",
    "unreviewed": "unreviewed: an algorithm that is none of dprl's, so nobody here has proved what it protects",
    "not private": "not private",
}
