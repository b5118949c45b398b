"""`ops sendmail`: send a message that another program composed, as `/usr/sbin/sendmail` does: for cron, PHP and mutt.

Exit status: those of sysexits.h, which such programs know: 0 accepted, 65 refused, 67 a recipient without a domain, 75
try again, 77 the key may not send, 78 no key; 2 wrong usage.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from email.utils import formataddr, getaddresses, parseaddr
from typing import Final, NamedTuple, NoReturn
from urllib.parse import urlencode

import click

from engine.base.settings import BadSetting
from ops.commands.api_access import NoApiKey, api_access

TIMEOUT_S: Final = 60.0
_FIELD: Final = re.compile(rb"[!-9;-~]+[ \t]*:")
_ADDRESS: Final = re.compile(r"[^\s<>@]+@[^\s<>@]+")
_LINE_ENDS: Final = re.compile(rb"\r\n|\r|\n")
_RECIPIENT_FIELDS: Final = frozenset({b"to", b"cc", b"bcc"})
_DELIVER: Final = "m"  # of -b: the only mode that is no server and no report


@click.command()
@click.option("-t", "from_header", is_flag=True, help="Send to the addresses in To, Cc and Bcc.")
@click.option("-i", "keeps_dots", is_flag=True, help="A line with a single dot does not end the message (also -oi).")
@click.option("-f", "-r", "sender", metavar="ADDRESS", help="The sender of a message whose From is missing or local.")
@click.option("-F", "name", metavar="NAME", help="The sender's name, if the message has no From.")
@click.option("-b", "mode", metavar="MODE", default=_DELIVER, help="Only m, to send, is supported.")
@click.option("-o", "options", metavar="OPTION", multiple=True, help="Ignored, except for i.")
@click.option("-B", "-N", "-R", "-V", "unused", metavar="TEXT", multiple=True, expose_value=False, help="Ignored.")
@click.option("-v", "-m", "-n", "-U", "-G", "flags", is_flag=True, expose_value=False, help="Ignored.")
@click.argument("recipients", nargs=-1, metavar="[RECIPIENT]...", help="Addresses to send to, besides those of -t.")
def sendmail(
    *,
    from_header: bool,
    keeps_dots: bool,
    sender: str | None,
    name: str | None,
    mode: str,
    options: tuple[str, ...],
    recipients: tuple[str, ...],
) -> None:
    """Send the message on standard input, as /usr/sbin/sendmail does.

    The key is WAYBILL_API_KEY, or that of the first run; WAYBILL_URL is the service. From decides which domain sends,
    and bounces return to Waybill, whatever -f says.
    """
    if mode != _DELIVER:
        raise click.UsageError(f"-b{mode} is not supported: only sending is.")
    if not recipients and not from_header:
        raise click.UsageError("Name a recipient, or give -t to send to the addresses in To, Cc and Bcc.")
    message = read(sys.stdin.buffer.read(), ends_at_dot=not (keeps_dots or "i" in options))
    message = with_sender(message, sender, name)
    wanted = _wanted(message, recipients, from_header=from_header)
    try:
        access = api_access(None)
    except (BadSetting, NoApiKey, OSError) as error:
        _fail(os.EX_CONFIG, str(error))
    _post(access, message, wanted)


class ComposedMessage(NamedTuple):
    """A message: its header fields, each with its continuation lines and without the last CRLF, and its body."""

    fields: list[bytes]
    body: bytes

    def __bytes__(self) -> bytes:
        return b"".join(field + b"\r\n" for field in self.fields) + b"\r\n" + self.body


def read(given: bytes, *, ends_at_dot: bool) -> ComposedMessage:
    """Return the message of a program; its lines end in CRLF, LF or both. The header ends at the first other line.

    A line `From …` of a mailbox file before the header is left out. `ends_at_dot`: a line with a single dot ends it.
    """
    lines = _LINE_ENDS.split(given)
    if ends_at_dot and b"." in lines:
        lines = lines[: lines.index(b".")]
    if lines and lines[0].startswith((b"From ", b">From ")):
        del lines[0]
    fields: list[bytes] = []
    for place, line in enumerate(lines):
        if _FIELD.match(line):
            fields.append(line)
        elif fields and line[:1] in (b" ", b"\t") and line.strip():
            fields[-1] += b"\r\n" + line
        else:
            lines = lines[place if line else place + 1 :]
            break
    else:
        lines = []
    return ComposedMessage(fields, b"\r\n".join([*lines, b""] if lines and lines[-1] else lines))


def with_sender(message: ComposedMessage, sender: str | None, name: str | None) -> ComposedMessage:
    """Return the message with a From that has a domain: its own, or else `sender`, with the name that From had."""
    own = next((field for field in message.fields if _name_of(field) == b"from"), None)
    shown, address = parseaddr("" if own is None else _value_of(own))
    if "@" in address:
        return message
    if sender is None or not _ADDRESS.fullmatch(sender):
        _fail(
            os.EX_DATAERR,
            "The message has no From with a full address. Give one with -f, such as -f shop@example.com.",
        )
    made = formataddr((" ".join((name or shown).split()), sender)).encode()
    return ComposedMessage([b"From: " + made, *(field for field in message.fields if field is not own)], message.body)


def _wanted(message: ComposedMessage, recipients: tuple[str, ...], *, from_header: bool) -> list[str]:
    """Return the recipients to name to the API; none if they are those of the header alone."""
    named = [address for _, address in getaddresses(list(recipients))]
    in_header = [
        address
        for field in message.fields
        if from_header and _name_of(field) in _RECIPIENT_FIELDS
        for _, address in getaddresses([_value_of(field)])
    ]
    local = next((address for address in (*named, *in_header) if address and "@" not in address), None)
    if local is not None:
        _fail(
            os.EX_NOUSER,
            f"The recipient {local} has no domain, and Waybill has no local mailboxes. Name a full address.",
        )
    return [*in_header, *named] if named else []


def _post(access: dict[str, str], message: ComposedMessage, recipients: list[str]) -> None:
    """Send the message through `POST /v1/emails/raw`; end the command with its exit status if that fails."""
    is_global = not all(map(bytes.isascii, message.fields))
    query = "?" + urlencode([("recipient", one) for one in recipients]) if recipients else ""
    request = urllib.request.Request(  # noqa: S310 - the address is the operator's own setting
        f"{access['baseUrl']}/v1/emails/raw{query}",
        data=bytes(message),
        headers={
            "Authorization": f"Bearer {access['apiKey']}",
            "Content-Type": "message/global" if is_global else "message/rfc822",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        _fail(_status_of(error.code), _sentence(error))
    except OSError as error:  # URLError is one
        _fail(os.EX_TEMPFAIL, f"{access['baseUrl']} can't be reached: {getattr(error, 'reason', error)}.")


def _status_of(http_status: int) -> int:
    if http_status == 429 or http_status >= 500:
        return os.EX_TEMPFAIL
    return os.EX_NOPERM if http_status in {401, 403} else os.EX_DATAERR


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        told = json.load(error)["error"]
        return f"{told['message']} [{told['type']}]"
    except (ValueError, KeyError, TypeError):
        return f"The API returned {error.code}."


def _name_of(field: bytes) -> bytes:
    return field.partition(b":")[0].strip().lower()


def _value_of(field: bytes) -> str:
    return field.partition(b":")[2].decode("utf-8", "replace").replace("\r\n", "").strip()


def _fail(status: int, message: str) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(status)
