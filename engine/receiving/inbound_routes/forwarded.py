"""Prepare a received message to be forwarded: prepend trace fields and an ARC set, and change nothing else. Pure.

Body and signed fields stay as they came, so that the sender's DKIM signature stays valid. Of the existing fields only
Authentication-Results that claim to be ours are removed (RFC 8601 5), which no signature should cover.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from engine.authentication import arc_seal
from engine.authentication.canonicalization import HeaderTooLarge, head_and_body
from engine.authentication.dkim_signing import SigningKey
from engine.authentication.results import AuthenticationVerdicts, claims, results_text
from engine.mail.headers import date_field

_MAX_LOOP_FIELDS: Final = 100  # of Delivered-To; each hop adds one, and loops end sooner
_field_starts = re.compile(rb"\r\n(?![ \t])").split
_delivered_to = re.compile(rb"(?:\A|\r\n)delivered-to[ \t]*:([^\r\n]*(?:\r\n[ \t][^\r\n]*)*)", re.IGNORECASE)
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9.:_-]")


class ReceiptTrace(Struct, frozen=True, kw_only=True):
    """The facts about the receipt that trace fields state. `delivered_to`: the claimed address that got the message."""

    host: str  # our name, also the authserv-id
    helo: str
    remote_ip: str
    tls: bool
    public_id: str
    delivered_to: str
    null_sender: bool
    received_at: datetime
    verdicts: AuthenticationVerdicts


def forwarded(raw: bytes, trace: ReceiptTrace, key: SigningKey | None, *, at: int) -> bytes:
    """Return the message to send on; `at` is Unix time in seconds.

    Without a `key`, and where a chain of the message can't be extended, it carries no ARC set of ours.
    """
    mime = without_own_results(raw, trace.host)
    results = results_text(trace.host, trace.verdicts, null_sender=trace.null_sender)
    sealed = _sealed(mime, key, results, trace.verdicts.arc.result, at)
    return b"%bAuthentication-Results: %b\r\nDelivered-To: %b\r\n%b\r\n%b" % (
        sealed, results.encode(), trace.delivered_to.encode(), _received(trace).encode(), mime,
    )  # fmt: skip


def without_own_results(raw: bytes, host: str) -> bytes:
    """Return the message without Authentication-Results fields that carry our authserv-id `host`."""
    head, _ = head_and_body(raw)
    if b"authentication-results" not in head.lower():
        return raw
    kept = [field + b"\r\n" for field in _field_starts(head.removesuffix(b"\r\n")) if not claims(field, host)]
    return b"".join(kept) + raw[len(head) :]


def delivered_to(raw: bytes) -> Iterator[str]:
    """Yield the addresses in Delivered-To fields (RFC 9228), in lower case, at most 100."""
    head, _ = head_and_body(raw)
    for count, field in enumerate(_delivered_to.finditer(head)):
        if count == _MAX_LOOP_FIELDS:
            return
        yield field[1].decode("utf-8", "replace").strip().strip("<>").lower()


def needs_smtputf8(mime: bytes) -> bool:
    """Return True if the header contains UTF-8 (RFC 6532); other octets beyond ASCII need no more than 8BITMIME."""
    head, _ = head_and_body(mime)
    if head.isascii():
        return False
    try:
        head.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sealed(mime: bytes, key: SigningKey | None, results: str, chain: str, at: int) -> bytes:
    if key is None:
        return b""
    try:
        return arc_seal.seal(mime, key, results=results, chain=chain, at=at)
    except HeaderTooLarge:
        return b""


def _received(trace: ReceiptTrace) -> str:
    """Return the Received field of the receipt (RFC 5321 4.4), without its last CRLF."""
    helo = _NOT_A_NAME.sub("", trace.helo)[:255] or "unknown"
    peer = f"IPv6:{trace.remote_ip}" if ":" in trace.remote_ip else trace.remote_ip
    protocol = "ESMTPS" if trace.tls else "ESMTP"  # RFC 3848
    date = date_field(trace.received_at).removeprefix("Date:").strip()
    return f"Received: from {helo} ([{peer}])\r\n by {trace.host} with {protocol} id {trace.public_id};\r\n {date}"
