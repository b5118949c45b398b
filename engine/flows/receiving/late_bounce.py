"""Record bounces that arrive as mail, after the receiving server had accepted the message.

One transaction for a batch of notifications: lock the stored mails that are not finished → read the deliveries → lock
account heads → lock recipients → decide → suppress addresses → write everything else by one statement. Sends of the
same accounts wait for the heads, so few round trips pass under their locks. A notification that was applied before
changes nothing.
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
from engine.mail import simulator
from engine.mail.address import canonical
from engine.store.queries import Conn, Queries, columns
from engine.store.row_sets import Column, RowSet

_SQL = Queries.beside(__file__, "late_bounce.sql")
_RECIPIENTS = _SQL.rows("recipients_of", KnownRecipient)
_LOCK_RECIPIENTS = _SQL.rows("lock_recipients", KnownRecipient)
_DELIVERIES = _SQL.command("deliveries_of")

_FORWARDS_AMONG = _SQL.command("forwards_among")
_LOOK_AT_FORWARDS = _SQL.command("look_at_forwards")

_SKEW_MS = 60_000  # events of a message are not older than its id, but for the clocks of two hosts


class BouncedRecipient(Struct, frozen=True):
    """A recipient to be set to `bounced`."""

    message_id: UUID
    n: int
    response: str | None


class MovedMessage(Struct, frozen=True):
    """A message to be set to `status` if its present one is among `moves`, comma-separated."""

    id: UUID
    status: str
    moves: str


class CountedDay(Struct, frozen=True):
    """Bounces that came on a day, and deliveries of that day to be subtracted."""

    account_id: UUID
    day: date
    bounced: int
    taken_back: int


_BOUNCED = RowSet("bounced", BouncedRecipient, Column("message_id"), Column("n", "smallint"), Column("response"))
_MOVED = RowSet("moved", MovedMessage, Column("id"), Column("status", repeats=True), Column("moves", repeats=True))
_COUNTED = RowSet(
    "counted", CountedDay, Column("account_id"), Column("day"), Column("bounced", "integer"),
    Column("taken_back", "integer"),
)  # fmt: skip
_WRITE = _SQL.wide(
    "write_bounces", _BOUNCED, _MOVED, _COUNTED, reports.FINISH, log.EVENT, heads.TIP,
    report_finish=reports.REPORT_FINISH, append_events=log.APPEND_EVENTS,
)  # fmt: skip


class AppliedEffect(Struct, frozen=True):
    """An effect that the transaction writes, with the notification that it comes from."""

    notice: LateNotice
    recipient: KnownRecipient
    decided: DecidedNotice
    at: datetime
    simulated: bool

    @property
    def key(self) -> tuple[UUID, str]:
        """Return message and address."""
        return self.recipient.message_id, self.recipient.address

    @property
    def place(self) -> tuple[UUID, int]:
        """Return message and number of the recipient."""
        return self.recipient.message_id, self.recipient.n


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
        messages = sorted({one.origin.message_id for one in notices})
        delivered = await _delivered_at(connection, messages)
        locked, known = await _locked(connection, messages)
        decisions = _Decisions()
        for notice in notices:
            if notice.report in waiting:
                _decide(notice, known, decisions, at, mail_host, overdue)
        bounced = [one for one in decisions.applied if one.decided.effect is NoticeEffect.BOUNCED]
        missing = {one.recipient.message_id for one in bounced if one.key not in delivered}
        if missing:  # settled between the reading and the locks
            delivered |= await _delivered_at(connection, sorted(missing))
        await _write(connection, locked, known, decisions, bounced, delivered)
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
    locked: Mapping[UUID, heads.AccountHead],
    known: Mapping[UUID, Sequence[KnownRecipient]],
    decisions: _Decisions,
    bounced: Sequence[AppliedEffect],
    delivered: Mapping[tuple[UUID, str], datetime],
) -> None:
    entries = [_entry(one) for one in decisions.applied] + await _suppress(connection, bounced)
    tips = {account: locked[account] for account in {one.account_id for one in entries}}
    await quota_usage.count_simulated(connection, _simulated(bounced, delivered))
    moved = _moved(known, bounced)
    await _WRITE.run(
        connection,
        _BOUNCED.of([BouncedRecipient(*one.place, _diagnostic(one)) for one in bounced]),
        _MOVED.of(moved),
        _COUNTED.of(_counted(bounced, delivered)),
        reports.FINISH.of(decisions.results),
        log.EVENT.of(log.seal_all(tips, entries)),
        heads.TIP.of(tips.values()),
        low=moved[0].id if moved else None,
        high=moved[-1].id if moved else None,
    )
    if moved:
        await _return_forwards(connection, [one.id for one in moved])


def _moved(known: Mapping[UUID, Sequence[KnownRecipient]], bounced: Sequence[AppliedEffect]) -> list[MovedMessage]:
    """Return the new statuses of the messages, by id; a message with unsettled recipients stays `sending`."""
    messages = sorted({one.recipient.message_id for one in bounced})
    statuses = [status_of_message([Status(each.status) for each in known[one]]) for one in messages]
    return [
        MovedMessage(message, status.value, ",".join(sorted(MOVES[status])))
        for message, status in zip(messages, statuses, strict=True)
    ]


async def _return_forwards(connection: Conn, messages: Sequence[UUID]) -> None:
    """Queue the received messages whose forwards bounced, so that the forwarder shows them in the mailbox."""
    found = await _FORWARDS_AMONG.records(connection, messages, messages[0], messages[-1])
    rows = [(ids.parse_id(ids.Kind.RECEIVED, row["received"]), row["id"]) for row in found]
    if rows:
        await _LOOK_AT_FORWARDS.execute(connection, *columns(rows, 2))


def _counted(bounced: Sequence[AppliedEffect], delivered: Mapping[tuple[UUID, str], datetime]) -> list[CountedDay]:
    """Count bounces on the day of the notification, and take the deliveries back from the days that counted them."""
    came = Counter((one.recipient.account_id, one.at.date()) for one in bounced)
    back = Counter((one.recipient.account_id, delivered[one.key].date()) for one in bounced if one.key in delivered)
    return [CountedDay(*day, came[day], back[day]) for day in sorted(came.keys() | back.keys())]


def _simulated(
    bounced: Sequence[AppliedEffect], delivered: Mapping[tuple[UUID, str], datetime]
) -> list[quota_usage.Simulated]:
    found: list[quota_usage.Simulated] = []
    for one in bounced:
        if one.simulated:
            account, at = one.recipient.account_id, delivered.get(one.key)
            found.append(quota_usage.Simulated(account, one.at.date(), settled=1, bounced=1))
            if at is not None:
                found.append(quota_usage.Simulated(account, at.date(), settled=-1))
    return found


async def _delivered_at(connection: Conn, messages: Sequence[UUID]) -> dict[tuple[UUID, str], datetime]:
    """Return when each delivery of the messages (ascending) was recorded, by message and address."""
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
