"""``dprl verify``, ``dprl certificate`` and ``dprl report``: check, export and redraw what is in a results folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dprl.cli.command import print_result


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
    print_result(result, _lines(found, public_key is not None, ledger), as_json)


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


def certificate(
    results: Annotated[Path, typer.Argument(help="Results folder, with certificate.json or statement.json.")],
    format: Annotated[str, typer.Option(help="opendp, label, nist or dp-fy-ml.")] = "opendp",
    curator: Annotated[
        Path | None, typer.Option(help="TOML file of answers that only you know; without it they are missing.")
    ] = None,
    template: Annotated[
        Path | None, typer.Option(help="Write a file of the form's questions here, to be answered, and end.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the form here instead of printing it.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The fields and what is missing, as one JSON object.")
    ] = False,
) -> None:
    """Verify a certificate, and write it as a registry's record, a privacy label, claims, or a checklist.

    opendp is a record of the OpenDP deployments registry, label a privacy label (arXiv 2507.15997), nist the claims
    of NIST SP 800-226, dp-fy-ml the reporting checklist of arXiv 2303.00654. What the certificate states is filled
    in; what only the curator knows is asked for, and listed as missing where there is no answer.
    """
    from dprl.errors import require
    from dprl.files import write_atomically
    from dprl.release.certificate_formats import curator_template, export_certificate

    target = out if template is None else template
    require(target is None or not target.exists(), f"{target} is there already: give another name.")
    if template is not None:
        write_atomically(template, curator_template(format).encode())
        typer.echo(f"Answer the questions in {template}, then give it with --curator.")
        return
    found = export_certificate(results, format, curator)
    text = found.text
    if as_json:
        text = json.dumps({"format": format, "fields": found.fields, "missing": found.missing}, indent=2) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
    if found.missing:
        typer.echo(f"Missing, for the curator to answer: {len(found.missing)} fields.", err=True)


def report(
    results: Annotated[Path, typer.Argument(help="Folder that `dprl evaluate --out` or `dprl train --out` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Write the page here and leave the sealed folder alone.")] = None,
) -> None:
    """Draw report.html again from the artifacts of a release; reads no log and costs no budget."""
    from dprl.report import render_folder

    typer.echo(str(render_folder(results, out)))
