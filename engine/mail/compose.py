"""Compose an accepted message as MIME, the bytes that are stored, signed and sent.

The same draft gives the same bytes. The message is joined from encoded pieces: a 2 KB message takes some microseconds,
against a millisecond with the standard library's EmailMessage.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import chain

from msgspec import Struct

from engine.mail.address import Mailbox
from engine.mail.attachments import BadContent
from engine.mail.encode import BOUNDARY_MARK
from engine.mail.headers import date_field, mailbox_field, text_field, url_list_field
from engine.mail.parts import EncodedEntity, MailAttachment, file_entity, multipart, text_entity

_BREAKING = "\r\n\0"
_ONE_CLICK = "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"  # RFC 8058 3.1


class BadDraft(ValueError):  # noqa: N818 - named for what the caller gave
    """A value is not allowed in a message: CR, LF, NUL, a lone surrogate, or an invalid attachment field."""


class Draft(Struct, frozen=True, kw_only=True):
    """The content of a message to compose. Bcc recipients are not part of it: they exist in the envelope only.

    `message_id` has no angle brackets; `date` is aware; `headers` are the customer's own fields, whose names have been
    checked; `list_unsubscribe` is a checked ASCII value `<https://…>, <mailto:…>`. `feedback` holds the complete fields
    Feedback-ID, CFBL-Address and CFBL-Feedback-ID, or some of them, or "".
    """

    message_id: str
    date: datetime
    sender: Mailbox
    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...] = ()
    reply_to: tuple[Mailbox, ...] = ()
    subject: str = ""
    text: str | None = None
    html: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    list_unsubscribe: str | None = None
    one_click: bool = False
    feedback: str = ""
    attachments: tuple[MailAttachment, ...] = ()


class Composed(Struct, frozen=True):
    """A composed message.

    `smtputf8` is True if its header needs a server with SMTPUTF8 (the envelope may need it independently). `places[i]`
    is the index of the draft's attachment `i` among the attachments of the MIME text, which puts inline images first;
    `engine.mail.read.attachment` takes this index.
    """

    mime: bytes
    smtputf8: bool
    places: tuple[int, ...] = ()


def compose(draft: Draft) -> Composed:
    """Compose a draft (RFC 5322): CRLF only, no NUL, lines of at most 998 octets, 7-bit unless `smtputf8`.

    Fields come in the order From, To, Cc, Reply-To, Subject, Date, Message-ID, the customer's own, List-Unsubscribe,
    Feedback-ID, CFBL-*, MIME-Version, Content-*. Raises BadDraft.
    """
    _check(draft)
    try:
        content = _content(draft)
        head = _fields(draft) + content.head
    except (BadContent, UnicodeEncodeError) as error:
        raise BadDraft(str(error)) from error
    pieces = [head.encode(), b"\r\n", *content.body]
    if pieces[-1] and not pieces[-1].endswith(b"\r\n"):
        pieces.append(b"\r\n")
    return Composed(b"".join(pieces), not head.isascii(), _places(draft))


def _check(draft: Draft) -> None:
    """Raise BadDraft if a value could end its header field; all values are checked in one pass."""
    values = [draft.subject, draft.message_id, draft.list_unsubscribe or ""]
    for mailbox in chain((draft.sender,), draft.to, draft.cc, draft.reply_to):
        values += (mailbox.name, mailbox.address)
    for field in draft.headers:
        values += field
    for file in draft.attachments:
        values += (file.filename, file.content_type, file.cid or "")
    together = "".join(values)
    if draft.list_unsubscribe and not draft.list_unsubscribe.isascii():
        raise BadDraft("A List-Unsubscribe URL contains characters outside ASCII; percent-encode them.")
    if together.isprintable():
        return
    if any(letter in together for letter in _BREAKING):
        raise BadDraft("A header value contains a line break or NUL.")
    if any("\ud800" <= letter <= "\udfff" for letter in together):
        raise BadDraft("A header value contains half a character (a lone surrogate).")


def _fields(draft: Draft) -> str:
    """Return all header fields except Content-*."""
    fields = [mailbox_field("From", (draft.sender,)), mailbox_field("To", draft.to)]
    if draft.cc:
        fields.append(mailbox_field("Cc", draft.cc))
    if draft.reply_to:
        fields.append(mailbox_field("Reply-To", draft.reply_to))
    if draft.subject:
        fields.append(text_field("Subject", draft.subject))
    fields.append(date_field(draft.date))
    fields.append(f"Message-ID: <{draft.message_id}>\r\n")
    fields += [text_field(name, value) for name, value in draft.headers]
    if draft.list_unsubscribe is not None:
        fields.append(url_list_field("List-Unsubscribe", draft.list_unsubscribe))
        if draft.one_click:
            fields.append(_ONE_CLICK)
    fields.append(draft.feedback)
    fields.append("MIME-Version: 1.0\r\n")
    return "".join(fields)


def _content(draft: Draft) -> EncodedEntity:
    """Nest mixed > related > alternative, each layer only if the draft needs it."""
    boundary = BOUNDARY_MARK + blake2b(draft.message_id.encode(), digest_size=12).hexdigest()
    bodies = []
    if draft.text is not None or draft.html is None:
        bodies.append(text_entity("plain", draft.text or ""))
    if draft.html is not None:
        bodies.append(text_entity("html", draft.html))
    content, root = bodies[0], "text/html"
    if len(bodies) == 2:
        content, root = multipart("alternative", boundary + ".a", bodies), "multipart/alternative"
    if not draft.attachments:
        return content
    shown, beside = _sorted(draft)
    if shown:  # RFC 2387: the root first, its type as a parameter
        files = [file_entity(draft.attachments[index]) for index in shown]
        content = multipart("related", boundary + ".r", [content, *files], f' type="{root}";\r\n')
    if beside:
        files = [file_entity(draft.attachments[index]) for index in beside]
        content = multipart("mixed", boundary + ".m", [content, *files])
    return content


def _sorted(draft: Draft) -> tuple[list[int], list[int]]:
    """Return the indexes of the inline attachments that the HTML shows, and those of the others."""
    shown: list[int] = []
    beside: list[int] = []
    for index, file in enumerate(draft.attachments):
        (shown if file.embedded and draft.html is not None else beside).append(index)
    return shown, beside


def _places(draft: Draft) -> tuple[int, ...]:
    if not draft.attachments:
        return ()
    shown, beside = _sorted(draft)
    return _inverted(shown + beside)


def _inverted(order: Sequence[int]) -> tuple[int, ...]:
    places = [0] * len(order)
    for place, index in enumerate(order):
        places[index] = place
    return tuple(places)
