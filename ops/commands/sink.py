"""`ops sink`: list the mail in the local sink; show one mail with its text and links."""

import re
from email import message_from_bytes, policy
from email.message import EmailMessage
from html import unescape
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.store.sink_folder import SinkEntry
from ops.commands.base import as_json, fail, limit_option, line, loaded, print_json, reported, table
from ops.local.sink_store import entries

LAST = "LAST"
_HREF = re.compile(r"""<a\b[^>]*?\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s<>\"')\]]+")
_TAG = re.compile(r"<(style|script)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_HEADERS = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID")


@click.group(invoke_without_command=True)
@limit_option(10, most=1000)
@as_json
@click.pass_context
@reported
def sink(context: click.Context, *, limit: int, as_json: bool) -> None:
    """List the emails in the local sink, newest first; `show` prints one email with its links."""
    if context.invoked_subcommand is not None:
        return
    folder = _sink_folder()
    found = listed(folder, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("The sink is empty.")
    else:
        rows = [row | {"subject": subject_of(folder, row)} for row in found]
        table(rows, ["id", "at", "to", "subject", "tls", "size"])
        click.echo("\n`ops sink show ID` (or LAST) prints one mail with its links.")


@sink.command("show")
@click.argument("wanted", metavar="ID|LAST", help="Id, as `ops sink` lists it, or LAST for the newest.")
@as_json
@reported
def sink_show(*, wanted: str, as_json: bool) -> None:
    """Print one mail from the sink: headers, text and links."""
    found = shown(_sink_folder(), wanted)
    if as_json:
        print_json(found)
        return
    envelope = found["envelope"]
    line("envelope", f"{envelope['from']} -> {', '.join(envelope['to'])}")
    for header in found["headers"]:
        if header["name"] in _HEADERS:
            line(header["name"], header["value"])
    line("attachments", found["attachments"])
    line("file", found["file"])
    click.echo(f"\n{readable(found)}\n")
    click.echo("links:" if found["links"] else "links: none")
    for link in found["links"]:
        click.echo(f"  {link}")


def _sink_folder() -> Path:
    settings = loaded().settings
    if settings.delivery == "live":
        fail("Live mode has no sink: with WAYBILL_DELIVERY=live, mail goes to the recipients' mail servers.")
    return settings.state.expanduser().absolute() / "sink"


def listed(folder: Path, *, limit: int) -> list[dict[str, Any]]:
    """Return the envelopes of received mail, newest first."""
    kept = entries(folder)[-limit:] if limit else []
    return [dict(msgspec.to_builtins(entry)) for entry in reversed(kept)]


def subject_of(folder: Path, row: dict[str, Any]) -> str | None:
    """Return the subject of a listed mail; None where the sink kept no content."""
    mail = None if row["file"] is None else _read(folder / row["file"])
    return None if mail is None else str(mail.get("Subject", ""))


def shown(folder: Path, wanted: str) -> dict[str, Any]:
    """Return one mail: envelope, header fields, text, HTML and links; `wanted` is an id of the list, or LAST.

    Raises ValueError where there is none, or where its content was not kept.
    """
    entry = _find(entries(folder), wanted)
    mail = None if entry.file is None else _read(folder / entry.file)
    if entry.file is None or mail is None:
        raise ValueError(f"The sink has no content of {entry.id}: it was not stored, or has been deleted since.")
    text, html = _body(mail, "plain"), _body(mail, "html")
    return {
        "id": entry.id,
        "at": entry.at,
        "envelope": {"from": entry.sender, "to": list(entry.recipients), "helo": entry.helo, "tls": entry.tls},
        "headers": [{"name": name, "value": str(value)} for name, value in mail.items()],
        "text": text,
        "html": html,
        "links": _links(text, html),
        "attachments": [part.get_filename() or part.get_content_type() for part in mail.iter_attachments()],
        "file": str((folder / entry.file).absolute()),
    }


def readable(mail: dict[str, Any]) -> str:
    """Return the text of a mail, or its HTML without tags if it has no text."""
    if mail["text"] is not None or mail["html"] is None:
        return str(mail["text"] or "").strip()
    lines = (" ".join(one.split()) for one in unescape(_TAG.sub("", mail["html"])).splitlines())
    return "\n".join(one for one in lines if one)


def _find(kept: list[SinkEntry], wanted: str) -> SinkEntry:
    if not kept:
        raise ValueError("The sink is empty. Send a message with `ops send` first.")
    if wanted.upper() == LAST:
        return kept[-1]
    found = next((entry for entry in reversed(kept) if entry.id == wanted), None)
    if found is None:
        raise ValueError(f"The sink has no mail {wanted!r}. `ops sink` lists the ids; LAST is the newest.")
    return found


def _read(file: Path) -> EmailMessage | None:
    """Return a stored mail; None if the sink has deleted it."""
    try:
        return message_from_bytes(file.read_bytes(), policy=policy.default)
    except FileNotFoundError:
        return None


def _body(mail: EmailMessage, kind: str) -> str | None:
    part = mail.get_body((kind,))
    if part is None:
        return None
    try:
        return str(part.get_content())
    except (LookupError, ValueError):  # a charset that Python does not know
        content = part.get_payload(decode=True)
        return content.decode("latin-1") if isinstance(content, bytes) else None


def _links(text: str | None, html: str | None) -> list[str]:
    """Return the links of both parts, each once, in the order in which they stand."""
    linked = [unescape(next(filter(None, groups), "")) for groups in _HREF.findall(html or "")]
    plain = [one.rstrip(".,;:!?") for one in _URL.findall(text or "")]
    return [one for one in dict.fromkeys([*plain, *linked]) if one.startswith(("http://", "https://", "mailto:"))]
