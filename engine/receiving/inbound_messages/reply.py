"""Answer a received message: a send with its recipient, subject, In-Reply-To and References filled in."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated
from uuid import UUID

import asyncpg
import orjson
from msgspec import Meta, structs

from engine.base.errors import ErrorType, Refusal, existing, invalid
from engine.mail.headers import ANSWERED
from engine.mail.received import ReceivedSummary, summarise
from engine.receiving.inbound_messages import rules, store
from engine.receiving.inbound_messages.types import ReceivedRow
from engine.sending.accept import Acceptor
from engine.sending.emails.limits import MAX_HEADER_VALUE, MAX_SUBJECT
from engine.sending.emails.types import Accepted, AddressText, SendRequest
from engine.sending.preparation import Origin


class ReplyRequest(SendRequest, frozen=True, kw_only=True):
    """An answer to a received message: a send in which sender and recipient may be left out."""

    # Both are filled in before the send, which needs them.
    from_: Annotated[AddressText | None, Meta(description="Default: the address that the message was sent to")] = None  # type: ignore[assignment]
    to: Annotated[
        AddressText | Annotated[list[AddressText], Meta(min_length=1)] | None,
        Meta(description="Default: Reply-To of the message, else From"),
    ] = None  # type: ignore[assignment]
    automatic: Annotated[
        bool,
        Meta(
            description="True for a reply that a program writes: it gets `Auto-Submitted: auto-replied`, and a message "
            "from a program or a list gets no reply (409 `invalid_state`)"
        ),
    ] = False


async def answer(
    pool: asyncpg.Pool,
    acceptor: Acceptor,
    message: UUID,
    request: ReplyRequest,
    origin: Origin,
    *,
    domains: Collection[str] | None,
) -> Accepted:
    """Accept an answer to a received message; sender, recipient and subject that it lacks follow from the
    message. Raises the 404 for an unknown message, the 409 for an automatic answer that would answer a program, and
    whatever a send raises.
    """
    row = existing(await store.read(pool, origin.account_id, message, domains=domains), rules.WHAT)
    references: Sequence[str] = ()
    if row.header_message_id is not None or request.automatic:
        mime = await store.raw(pool, row.raw_id)
        summary = None if mime is None else await asyncio.to_thread(summarise, mime)
        references = () if summary is None else summary.references
        if request.automatic:
            _check_person(row, summary)
    filled = filled_in(request, row, references)
    return await acceptor.accept(await acceptor.preparer.check(filled, structs.replace(origin, answers=row.id)))


def _check_person(row: ReceivedRow, summary: ReceivedSummary | None) -> None:
    """Raise the 409 unless a person wrote the message (RFC 3834 2); also if its content is gone, so nobody can tell."""
    if summary is None or not row.envelope_from or summary.auto_submitted or summary.bulk:
        raise Refusal(
            ErrorType.INVALID_STATE,
            "A program or list sent this message, so an automatic reply could loop. Leave `automatic` out if a "
            "person replies.",
            state="automatic",
        )


def filled_in(request: ReplyRequest, row: ReceivedRow, references: Sequence[str]) -> SendRequest:
    """Return the request with what follows from the message that it answers. Pure."""
    subject = request.subject
    if subject is None and request.template is None:
        subject = answered_subject(row.subject)
    headers = dict(request.headers or {})
    given = {name.lower() for name in headers}
    if request.automatic:
        headers |= {name: value for name, value in ANSWERED.items() if name.lower() not in given}
    if row.header_message_id is not None and is_message_id(row.header_message_id):
        if "in-reply-to" not in given:
            headers["In-Reply-To"] = f"<{row.header_message_id}>"
        if "references" not in given:
            headers["References"] = joined_references([*references, row.header_message_id])
    return structs.replace(
        request,
        from_=request.from_ or _own_address(row),
        to=request.to or _recipient(row),
        subject=subject,
        headers=headers or None,
    )


def answered_subject(subject: str) -> str:
    """Return the subject of an answer: one `Re: ` before the subject (RFC 5322 3.6.5)."""
    known = subject[:3].lower() == "re:"
    return (subject if known else f"Re: {subject}")[:MAX_SUBJECT].strip()


def joined_references(message_ids: Sequence[str]) -> str:
    """Return the References field of an answer: the first id, which names the conversation, and as many of the last
    ones as fit.
    """
    usable = [f"<{one}>" for one in dict.fromkeys(message_ids) if is_message_id(one)]
    room = MAX_HEADER_VALUE - len(usable[0])
    kept: list[str] = []
    for one in reversed(usable[1:]):
        room -= len(one) + 1
        if room < 0:
            break
        kept.append(one)
    return " ".join([usable[0], *reversed(kept)])


def is_message_id(text: str) -> bool:
    """Return True if the text can stand between angle brackets in a header field of ours."""
    return text.isascii() and text.isprintable() and not any(char in text for char in "<> ") and len(text) <= 500


def _own_address(row: ReceivedRow) -> str:
    """Return the address that the message was sent to; of a catch-all address the recipient itself."""
    if not row.address.startswith("*@"):
        return row.address
    local, _, domain = row.recipient.rpartition("@")
    return f"{local.partition('+')[0]}@{domain}"


def _recipient(row: ReceivedRow) -> str:
    for text in (row.reply_to, row.sender):
        found = None if text is None else orjson.loads(text)["address"]
        if found:
            return str(found)
    raise invalid("to", "The message has no address to reply to. Send your reply with `POST /v1/emails` instead.")
