"""Turn a message submitted over SMTP, with its envelope, into a message to store.

The counterpart of `rules.prepare` for submission. `X-Waybill-*` headers carry the other fields of a send request and
have the same types and limits.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b, sha256
from typing import Any, Final, get_type_hints
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from engine.areas.emails import rules
from engine.areas.emails.types import (
    MAX_ATTACHMENTS,
    MAX_RECIPIENTS,
    MinTls,
    Prepared,
    PreparedRecipient,
    SendRequest,
    StoredAttachment,
    Timing,
)
from engine.base import ids, validation
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.suggest import hint
from engine.mail import submitted as mail
from engine.mail.address import Mailbox, canonical
from engine.mail.attachments import blocked_extension
from engine.mail.feedback_headers import feedback_field
from engine.mail.fields import text_of
from engine.mail.headers import date_field
from engine.mail.read import File, UnreadableMail, bodies, files
from engine.mail.seven_bit import to_seven_bit
from engine.mail.submitted import MAX_SUBJECT, Mail, Option

STREAM: Final = "transactional"
MAX_NAME, MAX_TYPE = 255, 200  # stored characters of an attachment's name and type
_TYPES: Final = get_type_hints(SendRequest, include_extras=True)


class Submitted(Struct, frozen=True, kw_only=True):
    """Hold a submitted message with its options, after every check that needs no lookup.

    `recipients` are those of the envelope. `scheduled_at` and `deliver_by` are unparsed.
    """

    sender: Mailbox
    recipients: list[PreparedRecipient]
    attachments: list[StoredAttachment]
    mail: Mail
    size_bytes: int  # of the message as the client wrote it, before 8-bit parts were encoded
    host: str  # our name in the trace field
    stream: str = STREAM
    tags: list[str] = []
    metadata: dict[str, str] = {}
    idempotency_key: str | None = None
    scheduled_at: str | None = None
    deliver_by: str | None = None
    min_tls: MinTls | None = None
    request_digest: bytes = b""  # as `rules.request_digest`: of the message and its recipients; b"" without a key


def read(octets: bytes, recipients: Sequence[Mailbox], *, smtputf8: bool, host: str) -> Submitted | SendRequest:
    """Read a submitted message and its options; return a SendRequest if `X-Waybill-Template` names a template.

    Raises Unsendable for octets that are no message, and the Refusal of the first rule that the message breaks. Large
    messages take milliseconds: call it outside the event loop.
    """
    found = mail.read(octets, smtputf8=smtputf8)
    given = _options(found.options)
    addressed = _addressed(found, recipients)
    try:
        if "template" in given:
            return _request(found, given, addressed)
        attachments = [_stored(file, place) for place, file in enumerate(_checked(files(found.kept)), start=1)]
    except UnreadableMail as error:
        raise invalid("body", f"The MIME structure of the message can't be read: {error}") from error
    for name in ("template_version", "variables"):
        if name in given:
            raise invalid(
                _header_of(name),
                f"`{_header_of(name)}` needs `X-Waybill-Template`. Add that header or remove this one.",
            )
    digest = _digest(found, addressed) if "idempotency_key" in given else b""
    return Submitted(
        sender=found.sender,
        recipients=addressed,
        attachments=attachments,
        mail=found if found.smtputf8 else structs.replace(found, kept=to_seven_bit(found.kept)),
        size_bytes=len(found.kept),
        host=host,
        request_digest=digest,
        **given,
    )


def prepare(
    submitted: Submitted,
    timing: Timing,
    *,
    account_id: UUID,
    message_id: UUID,
    at: datetime,
    max_bytes: int,
    source: str = "smtp",
    feedback_key: bytes | None = None,
    cfbl: str = "",
    resent_from: UUID | None = None,
    answers: UUID | None = None,
) -> Prepared:
    """Return the message to store, with missing header fields added; raise the 413 above `max_bytes`.

    The limit counts the message as the client wrote it.
    """
    found = submitted.mail
    if submitted.size_bytes > max_bytes:
        raise rules.too_large(max_bytes)
    public_id = ids.format_id(ids.Kind.MESSAGE, message_id)
    mime = mail.complete(
        found,
        message_id=f"{ids.encode(message_id)}@{found.sender.domain}",
        at=timing.scheduled_at or at,
        received=_trace(submitted.host, public_id, at, smtputf8=found.smtputf8),
        feedback=""
        if feedback_key is None
        else feedback_field(feedback_key, account_id, "", submitted.stream, found.sender.domain),
        cfbl=cfbl,
    )
    reply_to = found.text(b"reply-to")
    return Prepared(
        account_id=account_id,
        id=message_id,
        public_id=public_id,
        created_at=at,
        source=source,
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
        min_tls=rules.min_tls_to_store(submitted.min_tls),
        resent_from=resent_from,
        answers=answers,
    )


def _trace(host: str, public_id: str, at: datetime, *, smtputf8: bool) -> str:
    """Return our Received field (RFC 5321 4.4), which also lets loop detection count this hop.

    It omits the client's address, to keep the sender's network private.
    """
    protocol = "UTF8SMTPSA" if smtputf8 else "ESMTPSA"  # RFC 3848, RFC 6531 4.3: with TLS and AUTH
    return f"Received: by {host} with {protocol} id {public_id};\r\n{date_field(at).removeprefix('Date:')}"


# -- options ---------------------------------------------------------------------------------------


def _one(name: str, texts: list[str]) -> object:
    if len(texts) > 1:
        raise invalid(name, f"`{name}` appears {len(texts)} times. Give it once.")
    return texts[0]


def _several(_name: str, texts: list[str]) -> object:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _number(name: str, texts: list[str]) -> object:
    text = str(_one(name, texts))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise invalid(name, f"`{name}` is {text!r}; it must be a whole number.")
    return int(text)


def _pairs(name: str, texts: list[str]) -> object:
    """Parse fields of the form `name=value`, or JSON objects."""
    found: dict[str, object] = {}
    for text in texts:
        if text.startswith("{"):
            pairs = _object(name, text)
        else:
            key, equals, value = text.partition("=")
            if not equals:
                raise invalid(name, f"`{name}` is neither name=value nor a JSON object of strings.")
            pairs = {key.strip(): value.strip()}
        for key, given in pairs.items():
            if key in found:
                raise invalid(name, f"`{name}` has the key {key!r} twice. Give it once.")
            found[key] = given
    return found


def _objects(name: str, texts: list[str]) -> object:
    return _object(name, str(_one(name, texts)))


def _object(name: str, text: str) -> Mapping[str, object]:
    try:
        found = msgspec.json.decode(text.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise invalid(name, f"`{name}` is not a JSON object of strings.") from error
    return found


_READERS: Final[dict[str, tuple[str, Callable[[str, list[str]], object]]]] = {
    "x-waybill-stream": ("stream", _one),
    "x-waybill-tag": ("tags", _several),
    "x-waybill-metadata": ("metadata", _pairs),
    "x-waybill-idempotency-key": ("idempotency_key", _one),
    "x-waybill-scheduled-at": ("scheduled_at", _one),
    "x-waybill-deliver-by": ("deliver_by", _one),
    "x-waybill-min-tls": ("min_tls", _one),
    "x-waybill-template": ("template", _one),
    "x-waybill-template-version": ("template_version", _number),
    "x-waybill-variables": ("variables", _objects),
}
_FOLDED_JSON: Final = frozenset({"metadata", "variables"})


def _options(options: Sequence[Option]) -> dict[str, Any]:
    """Return the SendRequest fields set by `X-Waybill-*` headers, by their names in `SendRequest`."""
    texts: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for option in options:
        folded = option.name.lower()
        if folded not in _READERS:
            meant = hint(folded, (name.title() for name in _READERS))
            raise invalid(option.name, f"Unknown header `{option.name}`; the message was not sent.{meant}")
        names.setdefault(folded, option.name)
        texts.setdefault(folded, []).append(option.text)
    found: dict[str, Any] = {}
    for folded, listed in texts.items():
        field, reader = _READERS[folded]
        name = names[folded]
        value = reader(name, listed)
        try:
            found[field] = msgspec.convert(value, _TYPES[field])
        except msgspec.ValidationError as error:
            fault = validation.fault_of(error, _TYPES[field], value)
            place = f"`{fault.path}` in `{name}`" if fault.path else f"`{name}`"
            raise invalid(name, f"{place} {fault.words}.") from None
    if len(found.get("metadata", ())) > rules.MAX_METADATA:
        raise invalid(
            "X-Waybill-Metadata",
            f"The message has {len(found['metadata'])} metadata entries; at most {rules.MAX_METADATA} are allowed.",
        )
    if "\0" in "".join(_strings(found)):
        raise invalid("X-Waybill-Metadata", "The metadata contains NUL (U+0000). Remove it.")
    return found


def _strings(found: Mapping[str, Any]) -> Iterator[str]:
    for field in _FOLDED_JSON:
        for name, value in (found.get(field) or {}).items():
            yield name
            yield value


def _header_of(field: str) -> str:
    return next(name for name, (given, _) in _READERS.items() if given == field).title()


# -- recipients and attachments ----------------------------------------------------------------------


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
        raise invalid("to", f"The message has {len(ordered)} recipients; at most {MAX_RECIPIENTS} are allowed.")
    return [PreparedRecipient(n, kind, one, key) for n, (kind, key, one) in enumerate(ordered)]


def _checked(attached: Iterator[File]) -> Iterator[File]:
    """Yield the attachments; raise the refusal of one with a blocked extension in any of its names."""
    for count, file in enumerate(attached, start=1):
        if count > MAX_ATTACHMENTS:
            raise invalid(
                "attachments", f"The message has more than {MAX_ATTACHMENTS} attachments. Send several messages."
            )
        for name in file.names:
            extension = blocked_extension(name)
            if extension is not None:
                raise Refusal(
                    ErrorType.ATTACHMENT_BLOCKED,
                    f"Mailbox providers refuse {extension} files. Send a link instead.",
                    filename=_name(file, count),
                )
        yield file


def _stored(file: File, place: int) -> StoredAttachment:
    return StoredAttachment(
        ids.format_id(ids.Kind.ATTACHMENT, ids.uuid7()),
        _name(file, place),
        file.content_type[:MAX_TYPE],
        len(file.content),
        sha256(file.content).hexdigest(),
    )


def _name(file: File, place: int) -> str:
    """Return a printable name for an attachment, made from its place if it has none."""
    name = file.names[0][:MAX_NAME] if file.names else ""
    if not name.isprintable():
        name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    return name or f"attachment-{place}"


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
        "attachments": [_attachment(file, place) for place, file in enumerate(_checked(files(found.kept)), start=1)],
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
        if name not in rules.OWNED_HEADERS and not name.startswith(rules.OWNED_PREFIXES):
            headers.setdefault(name.title(), text_of(field.value))
    reply_to = ", ".join(map(mail.written, found.mailboxes(b"reply-to")))
    return headers | {"Reply-To": reply_to} if reply_to else headers


def _attachment(file: File, place: int) -> dict[str, str | None]:
    return {
        "cid": file.cid,
        "disposition": "attachment" if file.cid is None else "inline",
        "filename": _name(file, place),
        "contentType": file.content_type[:MAX_TYPE],
        "content": b64encode(file.content).decode(),
    }
