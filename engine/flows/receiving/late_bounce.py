"""Record bounces that arrive as mail, after the receiving server had accepted the message.

One transaction for a batch of notifications: lock the stored mails that nobody has finished → lock account heads → lock
recipients → decide → recipient and message statuses → counts → suppressions → events → results. A notification that
was applied before changes nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct, field, structs

from engine.areas.reports import store as reports
from engine.areas.reports.types import ReportResult, ReportState
from engine.areas.suppressions import store as suppressions
from engine.areas.suppressions.types import Reason
from engine.base import ids
from engine.base.events import MOVES, AccountEvent, EventType, Status, status_of_message
from engine.delivery.late_notices import (
    DecidedNotice,
    KnownRecipient,
    LateNotice,
    NoticeEffect,
    decide,
    suppresses,
)
from engine.delivery.outcome import detail
from engine.delivery.sealed_mail import is_masked
from engine.ledger import heads, log, quota_usage
from engine.ledger.events import append_locked
from engine.mail import simulator
from engine.mail.address import canonical
from engine.store.queries import Conn, Queries, columns

_SQL = Queries.beside(__file__, "late_bounce.sql")
_RECIPIENTS = _SQL.rows("recipients_of", KnownRecipient)
_LOCK_RECIPIENTS = _SQL.rows("lock_recipients", KnownRecipient)
_DELIVERIES = _SQL.command("deliveries_of")
_MARK_BOUNCED = _SQL.command("mark_bounced")
_MARK_MESSAGES = _SQL.command("mark_messages")
_COUNT = _SQL.command("count_bounces")
_TAKE_BACK = _SQL.command("take_back_deliveries")

_SKEW_MS = 60_000  # events of a message are not older than its id, but for the clocks of two hosts


class AppliedEffect(Struct, frozen=True):
    """An effect that the transaction writes, with the notification that it comes from."""

    notice: LateNotice
    recipient: KnownRecipient
    decided: DecidedNotice
    at: datetime
    simulated: bool


class _Decisions(Struct, frozen=True):
    applied: list[AppliedEffect] = field(default_factory=list)
    results: list[ReportResult] = field(default_factory=list)
    later: list[UUID] = field(default_factory=list)


async def record(
    pool: asyncpg.Pool, notices: Sequence[LateNotice], *, at: datetime, mail_host: str, overdue: set[UUID]
) -> list[UUID]:
    """Apply a batch of notifications at `at` and store their results; return the mails to be read again later.

    Those are about deliveries that are not on record yet; the mails `overdue` are not read again.
    """
    async with pool.acquire() as connection, connection.transaction():
        waiting = await reports.lock_waiting(connection, [one.report for one in notices])
        locked, known = await _locked(connection, sorted({one.origin.message_id for one in notices}))
        decisions = _Decisions()
        for notice in notices:
            if notice.report in waiting:
                _decide(notice, known, decisions, at, mail_host, overdue)
        await _write(connection, locked, known, decisions.applied)
        await reports.finish(connection, decisions.results)
    return decisions.later


async def _locked(
    connection: Conn, messages: list[UUID]
) -> tuple[dict[UUID, heads.AccountHead], dict[UUID, list[KnownRecipient]]]:
    """Lock the account heads and recipients of the messages; leave out accounts that are being closed."""
    bounds = messages[0], messages[-1]
    accounts = {one.account_id for one in await _RECIPIENTS.fetch(connection, messages, *bounds)}
    locked = await heads.lock(connection, accounts)
    known: dict[UUID, list[KnownRecipient]] = {}
    for one in await _LOCK_RECIPIENTS.fetch(connection, messages, *bounds):
        if one.account_id in locked and locked[one.account_id].status != "closing":
            known.setdefault(one.message_id, []).append(one)
    return locked, known


def _decide(
    notice: LateNotice,
    known: dict[UUID, list[KnownRecipient]],
    decisions: _Decisions,
    at: datetime,
    mail_host: str,
    overdue: set[UUID],
) -> None:
    """Add the effects of one notification; in `known` a bounced recipient gets its new status for the next one."""
    own = known.get(notice.origin.message_id, [])
    decided = decide(notice, own)
    if notice.report not in overdue and any(one.effect is NoticeEffect.EARLY for one in decided):
        decisions.later.append(notice.report)
        return
    for one in decided:
        if one.recipient is None or one.effect not in _CHANGES:
            continue
        if one.effect is NoticeEffect.BOUNCED:
            own[own.index(one.recipient)] = structs.replace(one.recipient, status=Status.BOUNCED.value)
        domain = one.recipient.address.rpartition("@")[2].lower()
        simulated = domain == simulator.domain_of(mail_host)
        decisions.applied.append(AppliedEffect(notice, one.recipient, one, at, simulated))
    decisions.results.append(_result(notice, decided))


_CHANGES = (NoticeEffect.BOUNCED, NoticeEffect.DEFERRED)


def _result(notice: LateNotice, decided: Sequence[DecidedNotice]) -> ReportResult:
    main = min(decided, key=lambda one: list(NoticeEffect).index(one.effect))
    changed = main.effect in _CHANGES
    account = next((one.recipient.account_id for one in decided if one.recipient is not None), None)
    return ReportResult(
        id=notice.report,
        state=ReportState.APPLIED if changed else ReportState.IGNORED,
        result=main.result,
        reason=" ".join(one.reason for one in decided),
        account_id=account,
        message_id=notice.origin.message_id if account is not None else None,
    )


async def _write(
    connection: Conn,
    locked: dict[UUID, heads.AccountHead],
    known: Mapping[UUID, Sequence[KnownRecipient]],
    applied: Sequence[AppliedEffect],
) -> None:
    bounced = [one for one in applied if one.decided.effect is NoticeEffect.BOUNCED]
    if bounced:
        await _move(connection, known, bounced)
        await _count(connection, bounced)
    entries = [_entry(one) for one in applied]
    entries += await _suppress(connection, bounced)
    if entries:
        concerned = {entry.account_id for entry in entries}
        await append_locked(connection, {key: head for key, head in locked.items() if key in concerned}, entries)


async def _move(
    connection: Conn, known: Mapping[UUID, Sequence[KnownRecipient]], bounced: Sequence[AppliedEffect]
) -> None:
    """Set the statuses of recipients and of their messages; a message with unsettled recipients stays `sending`."""
    messages = sorted({one.recipient.message_id for one in bounced})
    rows = [(one.recipient.message_id, one.recipient.n, _diagnostic(one)) for one in bounced]
    await _MARK_BOUNCED.execute(connection, *columns(rows, 3), messages[0], messages[-1])
    statuses = {one: status_of_message([Status(each.status) for each in known[one]]) for one in messages}
    moves = [(one, status.value, ",".join(sorted(MOVES[status]))) for one, status in statuses.items()]
    await _MARK_MESSAGES.execute(connection, *columns(moves, 3), messages[0], messages[-1])


async def _count(connection: Conn, bounced: Sequence[AppliedEffect]) -> None:
    """Count bounces on the day of the notification, and take the deliveries back from the days that counted them."""
    came = Counter((one.recipient.account_id, one.at.date()) for one in bounced)
    await _COUNT.execute(connection, *columns([(*key, came[key]) for key in sorted(came)], 3))
    delivered = await _delivered_at(connection, bounced)
    back: Counter[tuple[UUID, date]] = Counter()
    simulated: list[quota_usage.Simulated] = []
    for one in bounced:
        account, at = one.recipient.account_id, delivered.get((one.recipient.message_id, one.recipient.address))
        if at is not None:
            back[account, at.date()] += 1
        if one.simulated:
            simulated.append(quota_usage.Simulated(account, one.at.date(), settled=1, bounced=1))
            if at is not None:
                simulated.append(quota_usage.Simulated(account, at.date(), settled=-1))
    if back:
        await _TAKE_BACK.execute(connection, *columns([(*key, back[key]) for key in sorted(back)], 3))
    await quota_usage.count_simulated(connection, simulated)


async def _delivered_at(connection: Conn, bounced: Sequence[AppliedEffect]) -> dict[tuple[UUID, str], datetime]:
    """Return when each recipient's delivery was recorded, by message and address."""
    messages = sorted({one.recipient.message_id for one in bounced})
    since = ids.floor_of(ids.milliseconds_of(messages[0]) - _SKEW_MS)
    return {
        (row["message_id"], orjson.loads(row["payload"])["detail"]["recipient"]): row["occurred_at"]
        for row in await _DELIVERIES.records(connection, messages, since)
    }


def _entry(one: AppliedEffect) -> log.Entry:
    assert one.decided.outcome is not None
    found: dict[str, object] = {"recipient": one.recipient.address, **detail(one.decided.outcome), "late": True}
    found["diagnostic"] = _diagnostic(one) or ""
    kind = EventType.DEFERRED
    if one.decided.effect is NoticeEffect.BOUNCED:
        kind = EventType.BOUNCED
        found["suppressed"] = _suppresses(one)
    if one.notice.said.reporting_mta:
        found["reporting_mta"] = one.notice.said.reporting_mta
    if one.simulated:
        found["simulated"] = True
    public = ids.format_id(ids.Kind.MESSAGE, one.recipient.message_id)
    return log.Entry(one.recipient.account_id, kind, log.detail_text(found), one.at, one.recipient.message_id, public)


async def _suppress(connection: Conn, bounced: Sequence[AppliedEffect]) -> list[log.Entry]:
    """Suppress the addresses that proved invalid; return the events, as settling does for live bounces."""
    causes = {(one.recipient.account_id, canonical(one.recipient.address)): one for one in bounced if _suppresses(one)}
    rows = [
        (account, address, Reason.BOUNCE.value, one.recipient.message_id, _diagnostic(one))
        for (account, address), one in causes.items()
    ]
    if not rows:
        return []
    return [
        log.Entry(
            hit.account_id,
            AccountEvent.SUPPRESSION_ADDED,
            log.detail_text(
                {
                    "address": hit.address,
                    "reason": hit.reason,
                    "source": "late_bounce",
                    "message_id": ids.format_id(
                        ids.Kind.MESSAGE, causes[hit.account_id, hit.address].recipient.message_id
                    ),
                }
            ),
            causes[hit.account_id, hit.address].at,
        )
        for hit in await suppressions.add(connection, *columns(rows, 5))
    ]


def _suppresses(one: AppliedEffect) -> bool:
    if one.simulated or is_masked(one.recipient.address):
        return False
    return one.decided.outcome is not None and suppresses(one.decided.outcome)


def _diagnostic(one: AppliedEffect) -> str | None:
    """Return the words of the report; none about a masked recipient, whose address they may quote."""
    if one.decided.outcome is None or is_masked(one.recipient.address):
        return None
    return one.decided.outcome.diagnostic or None
