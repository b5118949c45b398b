"""Decide whether a received message may be forwarded, and build the message that forwards it. Pure.

Forwarded mail carries no DKIM signature of the account and leaves under the service's own bounce domain, never under
the customer's: else a forged message in the customer's name would pass DMARC at the next server (ops/decisions/0051).
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from engine.authentication.dkim_signing import SigningKey
from engine.authentication.results import AuthenticationVerdicts
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.mail.address import Mailbox, canonical
from engine.mail.submitted import MAX_SUBJECT, written
from engine.receiving.inbound_addresses.rules import CATCH_ALL
from engine.receiving.inbound_messages.rules import files_of, is_infected
from engine.receiving.inbound_routes.forwarded import ReceiptTrace, delivered_to, forwarded, needs_smtputf8
from engine.sending.accepted_rows import FORWARDED
from engine.sending.emails.types import Prepared, PreparedRecipient, StoredAttachment

STREAM: Final = "transactional"
MAX_ATTEMPTS: Final = 60  # to have a message accepted: one a minute
WATCH_S: Final = 5.0  # after acceptance, then twice as long each time
MAX_WATCH_S: Final = 1800.0
_VERDICTS = msgspec.json.Decoder(AuthenticationVerdicts)
_SENDER = msgspec.json.Decoder(dict[str, str | None])


class ForwardError(StrEnum):
    """Why a message was not forwarded; refusals of acceptance and statuses of the sent message stand beside these."""

    INFECTED = "infected"
    UNSCANNED = "unscanned"  # a virus scan failed, and the service requires one
    SPAM = "spam"
    LOOP = "loop"
    FORGED_SENDER = "forged_sender"  # perhaps in the service's own name, and not authenticated
    ADDRESS_NOT_ALLOWED = "address_not_allowed"  # no longer of the team, nor under a domain of the account
    ACCOUNT_SUSPENDED = "account_suspended"
    FAILED = "failed"  # not accepted after MAX_ATTEMPTS


class ForwardFacts(Struct, frozen=True):
    """A received message as its forwarding needs it; JSON fields hold JSON text."""

    address: str
    domain: str
    recipient: str
    envelope_from: str
    remote_ip: str
    helo: str
    tls: str | None
    sender: str | None
    sender_address: str | None
    subject: str
    authentication: str
    attachments: str
    warnings: str
    is_spam: bool
    size_bytes: int
    raw_id: UUID
    account_status: str
    forgets: bool  # the content is deleted once the message is forwarded


def refusal_before(
    facts: ForwardFacts, mail_host: str, *, allowed: bool, requested: bool, scanner_required: bool
) -> ForwardError | None:
    """Return why the message may not be forwarded, as far as its record says; None if it may.

    `allowed`: the address still belongs to the account or its team. `requested`: a replay, which forwards spam too.
    """
    files = files_of(facts.attachments)
    if is_infected(files, facts.warnings):
        return ForwardError.INFECTED
    if scanner_required and any(file.scan == "failed" for file in files):
        return ForwardError.UNSCANNED
    if facts.account_status != "active":
        return ForwardError.ACCOUNT_SUSPENDED
    if not allowed:
        return ForwardError.ADDRESS_NOT_ALLOWED
    if facts.is_spam and not requested:
        return ForwardError.SPAM
    dmarc = _verdicts(facts).dmarc.result
    # permerror: no single author. Of two From fields, the next server may take the one that names the service.
    if dmarc == "permerror" or (_names_service(facts.sender_address, mail_host) and dmarc != "pass"):
        return ForwardError.FORGED_SENDER
    return None


def is_loop(facts: ForwardFacts, raw: bytes) -> bool:
    """Return True if the message was delivered to this address before."""
    return any(one in {delivery_address(facts).lower(), facts.address.lower()} for one in delivered_to(raw))


def delivery_address(facts: ForwardFacts) -> str:
    """Return the address to name in Delivered-To: the claimed one, or the recipient of a catch-all address."""
    return facts.recipient if facts.address.startswith(f"{CATCH_ALL}@") else facts.address


def prepared(
    account: UUID, received: UUID, facts: ForwardFacts, raw: bytes, *, to: str, once: UUID, mail_host: str,
    key: SigningKey | None, at: datetime,
) -> Prepared:  # fmt: skip
    """Return the message that forwards `raw` to the address `to`. `once`: no second message is accepted under it."""
    message, received_id = ids.uuid7(), ids.format_id(ids.Kind.RECEIVED, received)
    trace = ReceiptTrace(
        host=mail_host, helo=facts.helo, remote_ip=facts.remote_ip, tls=facts.tls is not None, public_id=received_id,
        delivered_to=delivery_address(facts), null_sender=not facts.envelope_from, verdicts=_verdicts(facts),
        received_at=clock.at_milliseconds(ids.milliseconds_of(received)),
    )  # fmt: skip
    mime = forwarded(raw, trace, key, at=int(at.timestamp()))
    return Prepared(
        account_id=account, id=message, public_id=ids.format_id(ids.Kind.MESSAGE, message), created_at=at,
        source=FORWARDED, sender=_author(facts), from_domain=facts.domain, reply_to=None,
        subject=facts.subject[:MAX_SUBJECT], stream=STREAM, tags=[], metadata={"inbound_message_id": received_id},
        attachments=_attachments(facts), recipients=[PreparedRecipient(0, "to", Mailbox("", to), canonical(to))],
        mime=mime, smtputf8=not to.isascii() or needs_smtputf8(mime), idempotency_key=f"forward {once.hex}",
        request_digest=b"", content_hours=0 if facts.forgets else None,
    )  # fmt: skip


def _attachments(facts: ForwardFacts) -> list[StoredAttachment]:
    """Return the attachments of the received message, with ids of their own, for the record of the sent one."""
    return [
        StoredAttachment(
            ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7()), one.filename, one.content_type, one.size_bytes, one.sha256
        )
        for one in files_of(facts.attachments)
    ]


def is_temporary(refusal: Refusal) -> bool:
    """Return True if acceptance may succeed within minutes: the service, not the account, is the cause."""
    return refusal.kind in {ErrorType.UNAVAILABLE, ErrorType.RATE_LIMITED, ErrorType.PLATFORM_PAUSED}


def watch_after(looks: int) -> timedelta:
    """Return the wait before the next look at the delivery of a forwarded message, after so many looks."""
    return timedelta(seconds=min(WATCH_S * 2 ** min(looks, 20), MAX_WATCH_S))


def _names_service(sender: str | None, mail_host: str) -> bool:
    """Return True if the author's domain may align with our return path (RFC 7489 3.1.2, relaxed)."""
    domain = "" if sender is None else sender.rpartition("@")[2]
    organization = _organization(mail_host.lower())
    return domain == organization or domain.endswith(f".{organization}")


def _organization(host: str) -> str:
    """Return the registered domain of our host, as far as its form tells: two labels, or three as in `a.co.uk`.

    A mistake keeps some unauthenticated mail in the mailbox.
    """
    labels = host.split(".")
    count = 3 if len(labels) > 2 and len(labels[-1]) == 2 and len(labels[-2]) <= 3 else 2
    return ".".join(labels[-count:])


def _verdicts(facts: ForwardFacts) -> AuthenticationVerdicts:
    return _VERDICTS.decode(facts.authentication)


def _author(facts: ForwardFacts) -> str:
    found = {} if facts.sender is None else _SENDER.decode(facts.sender)
    address = found.get("address")
    if not address:
        return facts.envelope_from or facts.address
    return written(Mailbox(found.get("name") or "", address))
