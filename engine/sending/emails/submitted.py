"""Turn a message that its client composed, with its envelope, into a message to store.

The counterpart of `rules.prepare` for SMTP submission and for `POST /v1/emails/raw`. `X-Waybill-*` headers carry the
other fields of a send request and have the same types and limits.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, structs

from engine.base import ids, validation
from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail import submitted as mail
from engine.mail.address import BadAddress, Mailbox, canonical
from engine.mail.address_list import undoubted
from engine.mail.attachments import blocked_extension
from engine.mail.client_fields import is_owned
from engine.mail.fields import text_of
from engine.mail.headers import date_field
from engine.mail.read import File, ShownName, UnreadableMail, bodies, submitted_files
from engine.mail.seven_bit import to_seven_bit
from engine.mail.submitted import Mail
from engine.sending.emails.attachments import described
from engine.sending.emails.content_retention import content_hours_of
from engine.sending.emails.defaults import DEFAULT_STREAM, min_tls_to_store
from engine.sending.emails.limits import (
    MAX_ADDRESS,
    MAX_ATTACHMENTS,
    MAX_ENTRIES,
    MAX_FILE_NAME,
    MAX_FILE_TYPE,
    MAX_RECIPIENTS,
    MAX_SUBJECT,
)
from engine.sending.emails.rules import too_large
from engine.sending.emails.submitted_options import header_of, options_of
from engine.sending.emails.types import (
    MessageFacts,
    MinTls,
    Prepared,
    PreparedRecipient,
    SendRequest,
    StoredAttachment,
    Timing,
)

SUBMISSION, UTF8_SUBMISSION = "ESMTPSA", "UTF8SMTPSA"  # RFC 3848, RFC 6531 4.3: with TLS and AUTH


class Submitted(Struct, frozen=True, kw_only=True):
    """A submitted message with its options, after every check that needs no lookup.

    `recipients` are those of the envelope. `scheduled_at` and `deliver_by` are unparsed.
    """

    sender: Mailbox
    recipients: list[PreparedRecipient]
    attachments: list[StoredAttachment]
    mail: Mail
    size_bytes: int  # of the message as the client wrote it, before 8-bit parts were encoded
    host: str  # our name in the trace field
    protocol: str  # by which the message came, in the trace field
    stream: str = DEFAULT_STREAM
    tags: list[str] = []
    metadata: dict[str, str] = {}
    idempotency_key: str | None = None
    scheduled_at: str | None = None
    deliver_by: str | None = None
    min_tls: MinTls | None = None
    retain_content: bool | None = None
    content_until: int | None = None
    request_digest: bytes = b""  # as of `request_digest`: of the message and its recipients; b"" without a key


def read(
    octets: bytes, recipients: Sequence[Mailbox] | None, *, smtputf8: bool, host: str, protocol: str | None = None
) -> Submitted | SendRequest:
    """Read a submitted message and its options; return a SendRequest if `X-Waybill-Template` names a template.

    `recipients`: None for those that To, Cc and Bcc name. `protocol`: None for SMTP submission. Raises Unsendable for
    octets that are no message, and the Refusal of the first rule that the message breaks. Large messages take
    milliseconds: call it outside the event loop.
    """
    found = mail.read(octets, smtputf8=smtputf8)
    given = options_of(found.options)
    addressed = _addressed(found, _named_in_header(found) if recipients is None else recipients)
    try:
        if "template" in given:
            return _request(found, given, addressed)
        attachments = [
            described(_name(file, place), file.content_type[:MAX_FILE_TYPE], file.content)
            for place, file in enumerate(_checked(found.kept), start=1)
        ]
    except UnreadableMail as error:
        raise invalid("body", f"The MIME structure of the message can't be read: {error}") from error
    for name in ("template_version", "variables", "data"):
        if name in given:
            raise invalid(
                header_of(name),
                f"`{header_of(name)}` needs `X-Waybill-Template`. Add that header or remove this one.",
            )
    digest = _digest(found, addressed) if "idempotency_key" in given else b""
    return Submitted(
        sender=found.sender,
        recipients=addressed,
        attachments=attachments,
        mail=found if found.smtputf8 else structs.replace(found, kept=to_seven_bit(found.kept)),
        size_bytes=len(found.kept),
        host=host,
        protocol=protocol or (UTF8_SUBMISSION if found.smtputf8 else SUBMISSION),
        request_digest=digest,
        **given,
    )


def prepare(submitted: Submitted, timing: Timing, facts: MessageFacts) -> Prepared:
    """Return the message to store, with missing header fields added; raise the 413 for one that is too large.

    The limit counts the message as the client wrote it.
    """
    found = submitted.mail
    if submitted.size_bytes > facts.max_bytes:
        raise too_large(facts.max_bytes)
    public_id = ids.format_id(ids.Kind.MESSAGE, facts.message_id)
    mime = mail.complete(
        found,
        message_id=f"{ids.encode(facts.message_id)}@{found.sender.domain}",
        at=timing.scheduled_at or facts.at,
        received=_trace(submitted, public_id, facts.at),
        feedback=facts.feedback("", submitted.stream, found.sender.domain),
        cfbl=facts.cfbl,
    )
    reply_to = found.text(b"reply-to")
    return Prepared(
        account_id=facts.account_id,
        id=facts.message_id,
        public_id=public_id,
        created_at=facts.at,
        source=facts.source,
        sender=mail.written(found.sender),
        from_domain=found.sender.domain,
        reply_to=reply_to[:MAX_SUBJECT] if reply_to else None,
        subject=(found.text(b"subject") or "")[:MAX_SUBJECT],
        stream=submitted.stream,
        tags=submitted.tags,
        metadata=submitted.metadata,
        attachments=submitted.attachments,
        recipients=submitted.recipients,
        mime=mime,
        smtputf8=found.smtputf8,
        idempotency_key=submitted.idempotency_key,
        request_digest=submitted.request_digest,
        scheduled_at=timing.scheduled_at,
        deliver_by=timing.deliver_by,
        min_tls=min_tls_to_store(submitted.min_tls),
        resent_from=facts.resent_from,
        answers=facts.answers,
        traceparent=facts.traceparent,
        content_hours=content_hours_of(
            retain=submitted.retain_content, until=submitted.content_until, default=facts.stream_content_hours
        ),
    )


def _trace(submitted: Submitted, public_id: str, at: datetime) -> str:
    """Return our Received field (RFC 5321 4.4), which also lets loop detection count this hop.

    It omits the client's address, to keep the sender's network private.
    """
    source = f"by {submitted.host} with {submitted.protocol} id {public_id}"
    return f"Received: {source};\r\n{date_field(at).removeprefix('Date:')}"


# -- recipients and attachments ----------------------------------------------------------------------


def _named_in_header(found: Mail) -> list[Mailbox]:
    """Return the mailboxes of To, Cc and Bcc; raise the refusal of an entry that is none, and of a header without any.

    Other than `Mail.mailboxes` it skips nothing: a recipient must not be lost.
    """
    named: list[Mailbox] = []
    for field, entry in found.recipient_entries():
        if len(named) == MAX_ENTRIES:
            raise invalid(field, f"The message has more than {MAX_ENTRIES} entries in To, Cc and Bcc.")
        try:
            named.append(undoubted(entry))
        except BadAddress as error:
            raise Refusal(
                ErrorType.INVALID_ADDRESS,
                f"`{field}` contains {entry.written[:MAX_ADDRESS]!r}, which isn't an email address: {error}",
                address=entry.written[:MAX_ADDRESS],
                field=field,
            ) from error
    if not named:
        raise invalid("To", "The message names no recipient in To, Cc or Bcc. Add one, or pass `recipient` separately.")
    return named


def _addressed(found: Mail, recipients: Sequence[Mailbox]) -> list[PreparedRecipient]:
    """Return each envelope recipient once: first those in To, then those in Cc, then the others as bcc."""
    places: dict[str, tuple[str, str]] = {}
    for kind in ("cc", "to"):  # an address in both counts as To
        for one in found.mailboxes(kind.encode()):
            places[canonical(one.address)] = kind, one.name
    kinds: dict[str, list[tuple[str, Mailbox]]] = {"to": [], "cc": [], "bcc": []}
    seen: set[str] = set()
    for one in recipients:
        key = canonical(one.address)
        if key in seen:
            continue
        seen.add(key)
        kind, name = places.get(key, ("bcc", ""))
        kinds[kind].append((key, Mailbox(name, one.address)))
    ordered = [(kind, key, one) for kind, listed in kinds.items() for key, one in listed]
    if len(ordered) > MAX_RECIPIENTS:
        raise invalid("to", f"The message has {len(ordered)} recipients; the limit is {MAX_RECIPIENTS}. Remove some.")
    return [PreparedRecipient(n, kind, one, key) for n, (kind, key, one) in enumerate(ordered)]


def _checked(mime: bytes) -> Iterator[File]:
    """Yield the attachments; raise the refusal of a blocked extension in any name that a mail program could show."""
    names, attached = submitted_files(mime)
    for name in names:
        _check_name(name)
    for count, file in enumerate(attached, start=1):
        if count > MAX_ATTACHMENTS:
            raise invalid(
                "attachments", f"The message has more than {MAX_ATTACHMENTS} attachments. Send several messages."
            )
        yield file


def _check_name(name: ShownName) -> None:
    extension = blocked_extension(name.spelled)
    if extension is not None:
        raise Refusal(
            ErrorType.ATTACHMENT_BLOCKED,
            f"Mailbox providers reject {extension} files. Send a link instead.",
            filename=_printable(name.shown) or _printable(name.spelled),
        )


def _name(file: File, place: int) -> str:
    """Return a printable name for an attachment, made from its place if it has none."""
    return _printable(file.names[0] if file.names else "") or f"attachment-{place}"


def _printable(name: str) -> str:
    name = name[:MAX_FILE_NAME]
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def _digest(found: Mail, recipients: Sequence[PreparedRecipient]) -> bytes:
    hashed = blake2b(digest_size=16)
    for one in sorted(one.canonical for one in recipients):
        hashed.update(one.encode() + b"\0")
    for option in found.options:
        hashed.update(f"{option.name.lower()}:{option.text}\0".encode())
    hashed.update(found.kept)
    return hashed.digest()


# -- with a template ----------------------------------------------------------------------------------


def _request(found: Mail, given: dict[str, Any], recipients: Sequence[PreparedRecipient]) -> SendRequest:
    """Return the equal request of the API, without the headers that mail programs add by themselves."""
    listed: dict[str, list[str]] = {"to": [], "cc": [], "bcc": []}
    for one in recipients:
        listed[one.kind].append(mail.written(one.mailbox))
    if not listed["to"]:
        raise invalid("to", "`X-Waybill-Template` needs a recipient in To: To names no address of the envelope.")
    content = bodies(found.kept)
    request: dict[str, Any] = {
        "from": mail.written(found.sender),
        **{kind: texts for kind, texts in listed.items() if texts},
        "subject": found.text(b"subject") or None,
        "text": content.text if content.text and content.text.strip() else None,
        "html": content.html if content.html and content.html.strip() else None,
        "headers": _own_headers(found) or None,
        "attachments": [_attachment(file, place) for place, file in enumerate(_checked(found.kept), start=1)],
        **{_wire_name(field): value for field, value in given.items()},
    }
    try:
        return msgspec.convert(request, SendRequest)
    except msgspec.ValidationError as error:
        fault = validation.fault_of(error, SendRequest, request)
        raise invalid("body", f"The message can't be sent with a template: {fault.sentence(fault.path)}") from None


def _wire_name(field: str) -> str:
    names = dict(zip(SendRequest.__struct_fields__, SendRequest.__struct_encode_fields__, strict=True))
    return names[field]


def _own_headers(found: Mail) -> dict[str, str]:
    headers: dict[str, str] = {}
    for field in found.header:
        name = field.name.decode()
        if not is_owned(name):
            headers.setdefault(name.title(), text_of(field.value))
    reply_to = ", ".join(map(mail.written, found.mailboxes(b"reply-to")))
    if found.traceparent is not None:
        headers["Traceparent"] = found.traceparent
    return headers | {"Reply-To": reply_to} if reply_to else headers


def _attachment(file: File, place: int) -> dict[str, str | None]:
    return {
        "cid": file.cid,
        "disposition": "attachment" if file.cid is None else "inline",
        "filename": _name(file, place),
        "contentType": file.content_type[:MAX_FILE_TYPE],
        "content": b64encode(file.content).decode(),
    }
