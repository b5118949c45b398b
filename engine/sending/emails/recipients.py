"""The addresses of a send request: sender, recipients and Reply-To. Pure."""

import re
from functools import lru_cache

from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, Mailbox, canonical, check_sender, parse_mailbox
from engine.sending.emails.headers import forbid_line_breaks
from engine.sending.emails.limits import MAX_ENTRIES, MAX_RECIPIENTS
from engine.sending.emails.types import PreparedRecipient, SendRequest

# Entries of an address list. A quoted name may hold commas; an unclosed quote extends to the end, in linear time.
_ENTRIES = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[^,"])+')


def sender_of(request: SendRequest) -> Mailbox:
    """Return the From mailbox of the request; raise the 400 for `from` if it can't be one.

    The caller checks that its domain is verified.
    """
    forbid_line_breaks("from", request.from_)
    try:
        return _sender(request.from_)
    except BadAddress as error:
        raise invalid("from", f"`from` can't be used as a sender address: {error}") from error


def recipients_of(request: SendRequest) -> list[PreparedRecipient]:
    """Return each recipient once, in the order to, cc, bcc.

    Raises the refusal that names the invalid address, and the 400 for more than MAX_RECIPIENTS.
    """
    to = [request.to] if isinstance(request.to, str) else request.to
    cc, bcc = request.cc or [], request.bcc or []
    if len(to) + len(cc) + len(bcc) > MAX_ENTRIES:
        raise _too_many("to")
    found: dict[str, PreparedRecipient] = {}
    for kind, texts in (("to", to), ("cc", cc), ("bcc", bcc)):
        for index, text in enumerate(texts):
            field = kind if kind == "to" and isinstance(request.to, str) else f"{kind}[{index}]"
            forbid_line_breaks(field, text)
            mailbox = _recipient(text, field)
            key = canonical(mailbox.address)
            if key not in found:
                found[key] = PreparedRecipient(len(found), kind, mailbox, key)
                if len(found) > MAX_RECIPIENTS:
                    raise _too_many(kind)
    return list(found.values())


def reply_to_of(request: SendRequest, header: tuple[str, str] | None) -> tuple[tuple[Mailbox, ...], str | None]:
    """Return the Reply-To mailboxes and their text as written, from `replyTo` or from the header."""
    if header is not None:
        field, text = f"headers.{header[0]}", header[1]
        entries = _ENTRIES.findall(text) or [""]
    elif request.reply_to:
        field, text = "replyTo", request.reply_to
        forbid_line_breaks(field, text)
        entries = [text]
    else:
        return (), None
    try:
        return tuple(parse_mailbox(entry.strip(" \t")) for entry in entries), text
    except BadAddress as error:
        raise invalid(field, f"`{field}` is not an email address: {error}") from error


@lru_cache(maxsize=10_000)
def _sender(text: str) -> Mailbox:
    found = parse_mailbox(text)
    check_sender(found)
    return found


def _recipient(text: str, field: str) -> Mailbox:
    try:
        return parse_mailbox(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`{field}` is not an email address: {error}", address=text, field=field
        ) from error


def _too_many(field: str) -> Refusal:
    return invalid(
        field,
        f"`to`, `cc` and `bcc` may have at most {MAX_RECIPIENTS} addresses together. Split the message into several.",
    )
