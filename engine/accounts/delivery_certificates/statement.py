"""Make the statement of a delivery certificate from stored rows. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import orjson
from msgspec import Struct

from engine.accounts.delivery_certificates.types import (
    HEADER_FIELDS,
    VERSION,
    CertifiedContent,
    CertifiedEvent,
    CertifiedLog,
    CertifiedRecipient,
    CertifiedRow,
    CertifiedServer,
    CertifiedTls,
    LogEntry,
    RecipientOutcome,
    Statement,
)
from engine.authentication.canonicalization import CanonicalHeader, HeaderTooLarge, divided, relaxed_body_hash
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import SETTLED, EventType, Status
from engine.delivery.sealed_mail import cut_out, is_masked
from engine.sending.messages.rules import made_at
from engine.sending.messages.types import ERASED_ADDRESS

_STATUSES: Final[Mapping[str, Status]] = {
    EventType.DELIVERED: Status.DELIVERED,
    EventType.BOUNCED: Status.BOUNCED,
    EventType.COMPLAINED: Status.COMPLAINED,
    EventType.FAILED: Status.FAILED,
    EventType.REJECTED: Status.REJECTED,
    EventType.SUPPRESSED: Status.REJECTED,
    EventType.SCHEDULE_CANCELED: Status.CANCELED,
    EventType.SCHEDULE_FAILED: Status.REJECTED,
}
_FIRST: Final = (EventType.ACCEPTED, EventType.SCHEDULED)
# The `to` of a step in a conversation: `mx.example.com [192.0.2.1]:25`.
_ip = re.compile(r" \[([0-9A-Fa-f.:]+)\]:\d+$").search


class OutcomeEvent(Struct, frozen=True):
    """An entry of the log with its detail; null if the entry was erased."""

    entry: LogEntry
    detail: dict[str, Any] | None


def check(row: CertifiedRow | None) -> CertifiedRow:
    """Return the row of a message that a certificate can be made of.

    Raises the 404 if nothing is left of the message, and a 409 while an outcome may still change by itself, or if the
    log was changed.
    """
    if row is None or (row.status is None and not row.events):
        raise not_found("message")
    statuses = [] if row.status is None else [row.status, *(RecipientOutcome(*one).status for one in row.recipients)]
    open_one = next((one for one in statuses if one not in SETTLED), None)
    if open_one is not None:
        raise Refusal(
            ErrorType.INVALID_STATE,
            f"The message is `{open_one}`. Request the certificate once the outcome for every recipient is final.",
            state=open_one,
        )
    broken = next((one for one in map(_entry, row.events) if not one.sound), None)
    if broken is not None:
        raise Refusal(
            ErrorType.CONFLICT,
            f"The account log does not verify at event {broken.seq}, so no certificate is signed. See `GET "
            "/v1/audit/verify`.",
        )
    return row


def content_of(mime: bytes, salt: bytes) -> CertifiedContent:
    """Return the digests of a composed message. Takes 2 ms for each MB."""
    head_end, body_at = divided(mime)
    try:
        header = CanonicalHeader(mime[:head_end])
    except HeaderTooLarge:
        header = CanonicalHeader(b"")
    values: dict[str, str | None] = {}
    for name in HEADER_FIELDS:
        places = header.places(name.encode())
        field = header.relaxed()[places[-1]] if places else None
        values[name] = None if field is None else _digest(salt, field.partition(b":")[2].removesuffix(b"\r\n"))
    return CertifiedContent(
        sha256=sha256(mime).hexdigest(),
        size_bytes=len(mime),
        body_sha256=_digest(salt, relaxed_body_hash(mime, body_at)),
        header_sha256=values,
    )


def statement_of(
    row: CertifiedRow,
    content: CertifiedContent | None,
    *,
    installation: str,
    account: UUID,
    message: UUID,
    at: datetime,
    salts: Sequence[bytes],
    log_salt: bytes,
) -> tuple[Statement, list[str | None]]:
    """Return the statement and the addresses of its recipients (null: erased or encrypted).

    `salts` are those of the recipients, at least as many as `outcomes` returns.
    """
    events = [OutcomeEvent(one, _detail(one)) for one in map(_entry, row.events)]
    found = outcomes(row)
    addresses = [None if _is_hidden(one.address) else one.address for one in found]
    shown = [
        _recipient(one, address, events, salt) for one, address, salt in zip(found, addresses, salts, strict=False)
    ]
    is_erased = any(one.detail is None for one in events)
    statement = Statement(
        version=VERSION,
        installation=installation,
        issued_at=clock.iso(at),
        account=ids.format_id(ids.Kind.ACCOUNT, account),
        message=ids.format_id(ids.Kind.MESSAGE, message),
        accepted_at=clock.iso(made_at(message)),
        delivered_at=clock.iso_or_none(row.delivered_at),
        content=content,
        recipients=shown,
        events=[_event(one.entry, None if is_erased else log_salt) for one in events],
        log=CertifiedLog(row.log_seq, _digest(log_salt, row.log_hash)),
        missing=_missing(row, content, addresses, events),
    )
    return statement, addresses


def outcomes(row: CertifiedRow) -> list[RecipientOutcome]:
    """Return the outcome for each recipient; after retention has deleted the message, from what is left of the log."""
    if row.status is not None:
        return [RecipientOutcome(*one) for one in row.recipients]
    found: dict[str, RecipientOutcome] = {}
    for one in map(_entry, row.events):
        detail, status = _detail(one), _STATUSES.get(one.type)
        if detail is not None and status is not None and "recipient" in detail:
            address = str(detail["recipient"])
            found[address] = RecipientOutcome(None, address, status)
    return list(found.values())


def _recipient(
    outcome: RecipientOutcome, address: str | None, events: Sequence[OutcomeEvent], salt: bytes
) -> CertifiedRecipient:
    own = [one for one in events if _concerns(one, outcome.address)]
    delivered = next((one for one in reversed(own) if one.entry.type == EventType.DELIVERED), None)
    last = own[-1] if own else None
    answered = delivered or last
    return CertifiedRecipient(
        kind=outcome.kind,
        address_sha256=None if address is None else address_digest(salt, address),
        outcome=outcome.status,
        at=None if last is None else clock.iso(last.entry.occurred_at),
        delivered_at=None if delivered is None else clock.iso(delivered.entry.occurred_at),
        simulated=any(one.detail is not None and one.detail.get("simulated") is True for one in own),
        server=None if answered is None else _server(answered, events, outcome.address),
    )


def address_digest(salt: bytes, address: str) -> str:
    """Return the salted digest of an address, which does not depend on its case."""
    return _digest(salt, address.lower().encode())


def _concerns(event: OutcomeEvent, address: str) -> bool:
    if event.detail is None or event.entry.type not in _STATUSES or address == ERASED_ADDRESS:
        return False
    return bool(event.detail.get("recipient", address) == address)


def _server(event: OutcomeEvent, events: Sequence[OutcomeEvent], address: str) -> CertifiedServer | None:
    """Return the server and its reply as the event has them; the address is cut out of the reply."""
    detail = event.detail or {}
    reply = detail.get("diagnostic")
    host = detail.get("mx")
    if reply is None and host is None:
        return None
    tls = detail.get("tls")
    return CertifiedServer(
        host=_text(host),
        ip=_address_of_host(event, events),
        tls=_tls(tls) if isinstance(tls, dict) else None,
        reply=_text(cut_out(reply, address)),
        smtp_code=detail.get("smtp_code"),
        enhanced_code=_text(detail.get("enhanced_code")),
    )


def _tls(tls: dict[str, Any]) -> CertifiedTls:
    return CertifiedTls(*(_text(tls.get(name)) for name in ("version", "cipher", "certificate", "policy")))


def _address_of_host(event: OutcomeEvent, events: Sequence[OutcomeEvent]) -> str | None:
    """Return the IP address of the server: from the attempt that was recorded right before its outcome."""
    wanted = (event.detail or {}).get("attempt")
    for one in reversed(events):
        if one.entry.seq < event.entry.seq and one.entry.type == EventType.ATTEMPTED:
            talk = one.detail or {}
            if wanted is None or talk.get("attempt") != wanted or talk.get("mx") != (event.detail or {}).get("mx"):
                return None
            return _connected_to(talk.get("conversation"))
    return None


def _connected_to(steps: object) -> str | None:
    for step in reversed(steps) if isinstance(steps, list) else ():
        if isinstance(step, dict) and step.get("step") == "connect" and "break" not in step:
            found = _ip(str(step.get("to", "")))
            return None if found is None else found[1]
    return None


def _missing(
    row: CertifiedRow,
    content: CertifiedContent | None,
    addresses: Sequence[str | None],
    events: Sequence[OutcomeEvent],
) -> list[str]:
    """Return the parts that retention or an erasure took, or that were encrypted."""
    found = ["message"] if row.status is None else []
    found += ["content"] if content is None else []
    found += [f"recipients[{place}].addressSha256" for place, address in enumerate(addresses) if address is None]
    is_whole = any(one.entry.type in _FIRST for one in events)
    return found if is_whole and all(one.detail is not None for one in events) else [*found, "events"]


def _event(entry: LogEntry, salt: bytes | None) -> CertifiedEvent:
    digest = None if salt is None else _digest(salt, entry.hash)
    return CertifiedEvent(entry.seq, entry.type, clock.iso(entry.occurred_at), digest)


def _entry(fields: Sequence[Any]) -> LogEntry:
    return LogEntry(*fields)


def _detail(entry: LogEntry) -> dict[str, Any] | None:
    if entry.payload is None:
        return None
    detail = orjson.loads(entry.payload)["detail"]
    return detail if isinstance(detail, dict) else {}


def _is_hidden(address: str) -> bool:
    return address == ERASED_ADDRESS or is_masked(address)


def _digest(salt: bytes, value: bytes) -> str:
    return sha256(salt + value).hexdigest()


def _text(value: object) -> str | None:
    return None if value is None else str(value)
