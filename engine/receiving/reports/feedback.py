"""Apply complaints that arrive as mail (ARF): find the recipient, then record the complaint or the opt-out.

Anybody can write such a report, and a Message-ID is in every header. So a complaint counts only if it holds a return
path of the recipient alone, or another token of the service together with an authenticated author of the recipient's
domain, or is DKIM-signed by a reporter that the operator lists; any other is stored without effect.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.base.events import AccountEvent
from engine.delivery.late_notices import canonical_or_empty
from engine.delivery.sealed_mail import is_masked
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.mail import feedback_headers, return_path, simulator
from engine.mail.address import canonical
from engine.mail.feedback_reports import FeedbackReport, FeedbackType
from engine.mail.return_path import WHOLE_MESSAGE, ReturnPathOrigin, domain_of, is_within, recipients_of
from engine.receiving.reports.report_reading import ComplaintNotice
from engine.receiving.reports.report_tokens import ReportKeys
from engine.receiving.reports.rules import is_listed
from engine.receiving.reports.types import Reporter, ReportResult, ReportState
from engine.sending.complaint import Complaint, complain
from engine.sending.suppressions import store as suppressions
from engine.sending.suppressions.types import Reason
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


class _Lead(Struct, frozen=True):
    """A message that a report leads to, by a token or, with the sending domain, by a Message-ID."""

    message_id: UUID
    origin: ReturnPathOrigin | None = None
    from_domain: str | None = None


class _FoundRecipient(Struct, frozen=True):
    """The recipient that a report is about; `counts`: whether the report is genuine."""

    message_id: UUID
    recipient: ComplainedRecipient
    counts: bool


_RECIPIENTS = _SQL.rows("recipients_of_message", ComplainedRecipient)


async def apply(
    pool: asyncpg.Pool,
    notice: ComplaintNotice,
    keys: ReportKeys,
    *,
    at: datetime,
    mail_host: str,
    reporters: Collection[str],
    overdue: bool,
) -> ReportResult | None:
    """Apply one complaint; return its result, or None if it is to be read again because it came early.

    `reporters`: the addresses and domains of `WAYBILL_COMPLAINT_REPORTERS`.
    """
    kind = notice.said.type
    found = await _find(pool, notice, keys, listed=is_listed(notice.reporter, reporters))
    if found is None:
        return _result(notice, ReportState.IGNORED, "unknown_message", "It names no message and recipient of ours.")
    message, recipient = found.message_id, found.recipient
    if kind not in _ABUSE | _OPT_OUT:
        return _recorded(notice, found, f"Reports of type {kind.value} have no effect.")
    if not found.counts:
        return _recorded(notice, found, _not_genuine(notice.reporter))
    simulated = recipient.address.rpartition("@")[2].lower() == simulator.domain_of(mail_host)
    if kind in _OPT_OUT:
        if not simulated:
            await _opt_out(pool, message, recipient, at)
        return _result(
            notice, ReportState.APPLIED, "opted_out", f"{recipient.address} has unsubscribed.", recipient, message
        )
    reporter = None if notice.reporter is None else notice.reporter.domain
    said = await complain(
        pool, message, recipient.n, at=at, report=_detail(notice.said), reporter=reporter, simulated=simulated
    )
    if said is Complaint.EARLY and not overdue:
        return None
    state = ReportState.APPLIED if said in (Complaint.RECORDED, Complaint.KNOWN) else ReportState.IGNORED
    return _result(notice, state, said.value, _REASONS[said], recipient, message)


def _recorded(notice: ComplaintNotice, found: _FoundRecipient, reason: str) -> ReportResult:
    """Return the result of a report that is kept and has no effect."""
    return _result(notice, ReportState.IGNORED, "recorded", reason, found.recipient, found.message_id)


def _not_genuine(reporter: Reporter | None) -> str:
    """Return why a complaint has no effect, as a sentence for the operator."""
    author = "its author is not authenticated" if reporter is None else f"{reporter.address} is not a listed reporter"
    if reporter is not None and reporter.signed_by is None:
        author = f"{reporter.address} did not sign it with DKIM"
    return f"It holds no token that speaks for this recipient, and {author} (WAYBILL_COMPLAINT_REPORTERS)."


async def _find(
    pool: asyncpg.Pool, notice: ComplaintNotice, keys: ReportKeys, *, listed: bool
) -> _FoundRecipient | None:
    """Return message and recipient: by a token, else by the Message-ID inside; one that counts before any other.

    Where neither names the recipient, the report must, unless only one can be meant.
    """
    named = {canonical_or_empty(address) for address in notice.said.recipients}
    found: _FoundRecipient | None = None
    for lead in _leads(notice, keys):
        everybody = await _RECIPIENTS.fetch(pool, lead.message_id)
        if lead.from_domain is not None:
            everybody = [one for one in everybody if one.from_domain == lead.from_domain]
        entitled = _entitled(lead, everybody, notice.reporter, listed=listed)
        chosen = _chosen(lead, entitled, everybody, named)
        if chosen is not None:
            return _FoundRecipient(lead.message_id, chosen, counts=True)
        chosen = _chosen(lead, everybody, everybody, named)
        if found is None and chosen is not None:
            found = _FoundRecipient(lead.message_id, chosen, counts=False)
    return found


def _leads(notice: ComplaintNotice, keys: ReportKeys) -> list[_Lead]:
    """Return the messages to which a report leads: by genuine tokens, its own address first, then by Message-IDs."""
    said, key = notice.said, keys.return_path
    values = [one.cfbl_feedback_id for one in said.messages]
    paths = [notice.origin, return_path.origin(key, said.return_path)]
    paths += [return_path.origin_of_token(key, token) for token in said.tokens]
    paths += [feedback_headers.cfbl_origin(key, one) for one in values]  # of mail accepted before decision 0090
    origins = [one for one in paths if one is not None and not one.is_outdated(notice.received_at)]
    found = [feedback_headers.cfbl_origin(keys.complaints, one) for one in values]
    origins += [one for one in found if one is not None]
    leads = [_Lead(one.message_id, origin=one) for one in dict.fromkeys(origins)]
    return leads + [_Lead(message, from_domain=domain) for message, domain in _message_ids(said)]


def _entitled(
    lead: _Lead, recipients: Sequence[ComplainedRecipient], reporter: Reporter | None, *, listed: bool
) -> list[ComplainedRecipient]:
    """Return the recipients of a message for whom the report may speak.

    A token that several people may have read, such as CFBL-Feedback-ID in a forwarded header, proves nothing alone: it
    needs an authenticated author, and speaks for recipients of the author's domain.
    """
    if lead.origin is not None and not lead.origin.is_shared:
        return recipients_of(lead.origin, recipients)
    if listed:
        return list(recipients)
    if lead.origin is None or reporter is None:
        return []
    shown = recipients if lead.origin.place == WHOLE_MESSAGE else recipients_of(lead.origin, recipients)
    return [one for one in shown if is_within(domain_of(one), reporter.domain)]


def _chosen(
    lead: _Lead,
    entitled: Sequence[ComplainedRecipient],
    everybody: Sequence[ComplainedRecipient],
    named: Collection[str],
) -> ComplainedRecipient | None:
    """Return the one recipient among the entitled ones that the report names, or that alone can be meant."""
    if len(entitled) == 1 and lead.origin is not None and not lead.origin.is_shared:
        return entitled[0]
    about = [one for one in everybody if canonical_or_empty(one.address) in named]
    chosen = [one for one in entitled if one in about] if about else entitled
    return chosen[0] if len(chosen) == 1 else None


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
