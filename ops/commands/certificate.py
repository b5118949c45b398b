"""`ops certificate`: verify delivery certificates offline, and show and rotate the keys that sign them."""

from pathlib import Path
from typing import Any

import asyncpg
import click

from api.sdk.runtime.certificates import CertificateError, VerifiedCertificate, verify_certificate, verify_log
from engine.accounts.delivery_certificates import signing, store
from engine.base import clock
from engine.base.settings import Settings
from ops.commands.base import as_json, fail, in_database, in_service, print_json, reported, show, show_rows

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_COLUMNS = ["kid", "madeAt", "retiredAt"]


@click.group()
def certificate() -> None:
    """Verify delivery certificates; show and rotate the keys that sign them."""


@certificate.command("verify")
@click.argument("file", type=_file, help="The certificate, as `GET /v1/messages/{id}/certificate` returned it.")
@click.option("--keys", type=_file, help="The JWK set, saved from /.well-known/waybill/keys of the service.")
@click.option("--message", type=_file, help="The message as a file: it must be the certified one.")
@click.option("--recipient", help="An address that must be among the recipients.")
@click.option("--log", type=_file, help="An export of the account log: it must hold the certified events.")
@as_json
@reported
def certificate_verify(
    *, file: Path, keys: Path | None, message: Path | None, recipient: str | None, log: Path | None, as_json: bool
) -> None:
    """Verify the certificate in FILE; exit status 1 if it is not valid.

    With --keys no service is asked. Without it, the keys are those of the service that runs here.
    """
    known = in_database(key_set) if keys is None else keys.read_bytes()
    try:
        found = verify_certificate(
            file.read_bytes(), known, message=None if message is None else message.read_bytes(), recipient=recipient
        )
        events = None if log is None else _in_log(found, log)
    except CertificateError as error:
        if as_json:
            print_json({"valid": False, "reason": error.reason, "problem": str(error)})
            raise click.exceptions.Exit(1) from error
        fail(f"Not valid ({error.reason}): {error}.")
    if as_json:
        print_json({
            "valid": True, "key": found.key["kid"], "message": found.message, "recipient": found.recipient,
            "eventsInLog": events, "statement": found.statement,
        })  # fmt: skip
        return
    for line in _sentences(found, events):
        click.echo(line)


@certificate.command("keys")
@as_json
@reported
def certificate_keys(*, as_json: bool) -> None:
    """List the keys of certificates, the newest first."""
    show_rows(in_database(key_set)["keys"], _COLUMNS, as_json=as_json)


@certificate.command("rotate-key")
@as_json
@reported
def certificate_rotate_key(*, as_json: bool) -> None:
    """Sign further certificates with a new key, and delete the private half of the present one.

    Certificates that it signed still verify.
    """
    show(in_service(rotated), as_json=as_json)


async def key_set(pool: asyncpg.Pool) -> dict[str, list[dict[str, str]]]:
    """Return the JWK set of the installation."""
    return {"keys": [signing.public_jwk(row) for row in await store.ALL_KEYS.fetch(pool)]}


async def rotated(pool: asyncpg.Pool, settings: Settings) -> dict[str, Any]:
    """Replace the key that signs; return the new one's id."""
    return {"kid": await store.rotate(pool, settings.pepper, clock.now())}


def _in_log(found: VerifiedCertificate, log: Path) -> int:
    with log.open("rb") as lines:
        return verify_log(found, lines)


def _sentences(found: VerifiedCertificate, events: int | None) -> list[str]:
    """Return what the certificate proves, a sentence a line."""
    said = found.statement
    lines = [f"Valid: {said['installation']} signed it at {said['issuedAt']}, about message {said['message']}."]
    for place, one in enumerate(said["recipients"], 1):
        server = one["server"] or {}
        answer = f" by {server['host']}: {server['reply']}" if server.get("host") and server.get("reply") else ""
        lines.append(f"Recipient {place}: {one['outcome']}{' at ' + one['at'] if one['at'] else ''}{answer}")
    if found.recipient is not None:
        place = said["recipients"].index(found.recipient) + 1
        lines.append(f"The address is that of recipient {place}.")
    if found.message is not None:
        exact = "octet for octet" if found.message == "identical" else "in its body and its certified header fields"
        lines.append(f"The message is the certified one, {exact}.")
    if events is not None:
        lines.append(f"The log holds {events} of its {len(said['events'])} events, and its end.")
    if said["missing"]:
        lines.append(f"No longer stored when it was signed: {', '.join(said['missing'])}.")
    return lines
