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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Recompute epsilon from the certificate's event, and check every digest; exits with 2 when anything differs.

    Digests guard against accidents; against tampering, sign with a key made by

    openssl genpkey -algorithm ed25519 -out signing.pem

    openssl pkey -in signing.pem -pubout -out public.pem

    then release with --sign signing.pem and verify with --public-key public.pem.
    """
    from dprl.accounting import verification

    found = verification.verify(results, public_key)
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
            "artifacts": sorted(content["artifacts"]),
            "digest": content["digest"],
        }
        typer.echo(json.dumps(result, allow_nan=False))
        return
    signature = "not signed"
    if found.signed:
        signature = (
            "signed by the given key" if public_key is not None else "signed (give --public-key to check by whom)"
        )
    if found.private:
        typer.echo(
            f"{found.path}: epsilon {content['epsilon']:g}, delta {content['delta']:g} a {content['privacy_unit']}, "
            f"{content['neighbouring_relation']}; recomputed from its event: epsilon {found.epsilon:.6g}."
        )
    else:
        reason = content["status"] if content["status"] != "verified" else "reproducible noise"
        typer.echo(f"{found.path}: a statement, not a private release ({reason}).")
    typer.echo(f"{len(content['artifacts'])} files unchanged since; {signature}.")
