"""Apply complaints that arrive as mail (ARF): find the recipient, then record the complaint or the opt-out."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.reports.types import ReportResult, ReportState
from engine.areas.suppressions import store as suppressions
from engine.areas.suppressions.types import Reason
from engine.base import ids
from engine.base.events import AccountEvent
from engine.delivery.late_notices import canonical_or_empty
from engine.delivery.sealed_mail import is_masked
from engine.flows.receiving.report_reading import ComplaintNotice, ReportKeys
from engine.flows.sending.complaint import Complaint, complain
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.mail import feedback_headers, return_path, simulator
from engine.mail.address import canonical
from engine.mail.feedback_reports import FeedbackReport, FeedbackType
from engine.mail.return_path import SHARED, ReturnPathOrigin
from engine.store.queries import Queries

_SQL = Queries.beside(__file__, "feedback.sql")
_ABUSE = frozenset({FeedbackType.ABUSE, FeedbackType.FRAUD})
_OPT_OUT = frozenset({FeedbackType.OPT_OUT, FeedbackType.OPT_OUT_LIST})
_MESSAGE_ID_LENGTH = 26

_REASONS = {
    Complaint.RECORDED: "The complaint is recorded and the address suppressed.",
    Complaint.KNOWN: "A complaint of this recipient about this message was recorded before.",
    Complaint.EARLY: "The delivery is not on record.",
    Complaint.UNKNOWN: "The message is erased, past its retention, or its account is being closed.",
}


class ComplainedRecipient(Struct, frozen=True):
    """A recipient of the message that a complaint is about."""

    n: int
    account_id: UUID
    address: str
    from_domain: str


_RECIPIENTS = _SQL.rows("recipients_of_message", ComplainedRecipient)


async def apply(
    pool: asyncpg.Pool, notice: ComplaintNotice, keys: ReportKeys, *, at: datetime, mail_host: str, overdue: bool
) -> ReportResult | None:
    """Apply one complaint; return its result, or None if it is to be read again because it came early."""
    kind = notice.said.type
    found = await _find(pool, notice, keys)
    if found is None:
        return _result(notice, ReportState.IGNORED, "unknown_message", "It names no message and recipient of ours.")
    message, recipient = found
    if kind not in _ABUSE | _OPT_OUT:
        return _result(
            notice, ReportState.IGNORED, "recorded", f"Reports of type {kind.value} have no effect.", recipient, message
        )
    simulated = recipient.address.rpartition("@")[2].lower() == simulator.domain_of(mail_host)
    if kind in _OPT_OUT:
        if not simulated:
            await _opt_out(pool, message, recipient, at)
        return _result(
            notice, ReportState.APPLIED, "opted_out", f"{recipient.address} has unsubscribed.", recipient, message
        )
    said = await complain(pool, message, recipient.n, at=at, report=_detail(notice.said), simulated=simulated)
    if said is Complaint.EARLY and not overdue:
        return None
    state = ReportState.APPLIED if said in (Complaint.RECORDED, Complaint.KNOWN) else ReportState.IGNORED
    return _result(notice, state, said.value, _REASONS[said], recipient, message)


async def _find(
    pool: asyncpg.Pool, notice: ComplaintNotice, keys: ReportKeys
) -> tuple[UUID, ComplainedRecipient] | None:
    """Return message and recipient: by the return path, else by the Message-ID inside.

    Where neither names the recipient, the report must, unless the message has one recipient only.
    """
    named = {canonical_or_empty(address) for address in notice.said.recipients}
    for origin in _origins(notice, keys):
        recipients = await _RECIPIENTS.fetch(pool, origin.message_id)
        chosen = _chosen(recipients, origin.place, named)
        if chosen is not None:
            return origin.message_id, chosen
    for message, domain in _message_ids(notice.said):
        recipients = [one for one in await _RECIPIENTS.fetch(pool, message) if one.from_domain == domain]
        chosen = _chosen(recipients, SHARED, named)
        if chosen is not None:
            return message, chosen
    return None


def _origins(notice: ComplaintNotice, keys: ReportKeys) -> list[ReturnPathOrigin]:
    """Return the genuine origins that a complaint names, that of its own address first."""
    said, key = notice.said, keys.return_path
    found = [notice.origin]
    found.append(return_path.origin(key, said.return_path))
    found += [feedback_headers.cfbl_origin(key, one.cfbl_feedback_id) for one in said.messages]
    found += [feedback_headers.cfbl_origin(key, token) for token in said.tokens]
    return list(dict.fromkeys(one for one in found if one is not None))


def _chosen(recipients: list[ComplainedRecipient], place: int, named: set[str]) -> ComplainedRecipient | None:
    if place != SHARED:
        return next((one for one in recipients if one.n == place), None)
    if len(recipients) == 1:
        return recipients[0]
    return next((one for one in recipients if canonical_or_empty(one.address) in named), None)


def _message_ids(said: FeedbackReport) -> list[tuple[UUID, str]]:
    """Return the messages that Message-IDs of our form name, each with its sending domain."""
    found = []
    for one in said.messages:
        local, _, domain = one.message_id.rpartition("@")
        if len(local) != _MESSAGE_ID_LENGTH:
            continue
        try:
            found.append((ids.parse_id(ids.Kind.MESSAGE, f"{ids.Kind.MESSAGE.value}_{local}"), domain.lower()))
        except ids.WrongId:
            continue
    return found


async def _opt_out(pool: asyncpg.Pool, message: UUID, recipient: ComplainedRecipient, at: datetime) -> None:
    """Suppress the address for mail outside transactional streams; a stronger or equal suppression stays.

    The address of a verification is not known any more: it can't be suppressed.
    """
    if is_masked(recipient.address):
        return
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, [recipient.account_id])
        if recipient.account_id not in locked or locked[recipient.account_id].status == "closing":
            return
        address = canonical(recipient.address)
        hits = await suppressions.add(
            connection, [recipient.account_id], [address], [Reason.UNSUBSCRIBE.value], [message], [None]
        )
        detail = {"reason": Reason.UNSUBSCRIBE.value, "source": "feedback_report"}
        public = ids.format_id(ids.Kind.MESSAGE, message)
        entries = [
            log.Entry(
                recipient.account_id,
                AccountEvent.SUPPRESSION_ADDED,
                log.detail_text({"address": hit.address, **detail, "message_id": public}),
                at,
            )
            for hit in hits
        ]
        await append_locked(connection, locked, entries)


def _detail(said: FeedbackReport) -> Mapping[str, str]:
    """Return the report's fields for the event's detail."""
    found = {"feedback_type": said.type.value, "user_agent": said.user_agent, "source_ip": said.source_ip}
    return {name: value for name, value in found.items() if value}


def _result(
    notice: ComplaintNotice,
    state: ReportState,
    result: str,
    reason: str,
    recipient: ComplainedRecipient | None = None,
    message: UUID | None = None,
) -> ReportResult:
    account = None if recipient is None else recipient.account_id
    return ReportResult(
        id=notice.report, state=state, result=result, reason=reason, account_id=account, message_id=message
    )
