"""Record bounces that arrive as mail, after the receiving server had accepted the message.

read recipients and deliveries → decide → one call of a database function, which locks the account heads, checks that
nothing has changed since it was read, and writes everything. Sends of the same accounts wait for the heads, so no round
trip passes under their locks. Where something has changed, or more is to be written, a transaction locks first and
reads again. A notification that was applied before changes nothing.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct, field, structs

from engine.base import ids
from engine.base.events import Status
from engine.delivery.late_notices import (
    DecidedNotice,
    KnownRecipient,
    LateNotice,
    NoticeEffect,
    decide,
    is_delay,
)
from engine.ledger import heads, log, quota_usage
from engine.mail import simulator
from engine.mail.address import canonical
from engine.receiving.reports import late_bounce_rows as rows
from engine.receiving.reports import store as reports
from engine.receiving.reports.late_bounce_rows import AppliedEffect, BouncedRecipient, MovedMessage, SuppressedAddress
from engine.receiving.reports.types import ReportResult, ReportState
from engine.sending.bounces import store as bounces
from engine.sending.suppressions import store as suppressions
from engine.sending.suppressions.rules import is_stronger
from engine.sending.suppressions.types import Reason
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__, "late_bounce.sql")
_RECIPIENTS = _SQL.rows("recipients_of", KnownRecipient)
_DELIVERIES = _SQL.command("deliveries_of")
_LATE_DELAYS = _SQL.command("late_delays_of")
_FORWARDS_AMONG = _SQL.command("forwards_among")
_LOOK_AT_FORWARDS = _SQL.command("look_at_forwards")

_SKEW_MS = 60_000  # events of a message are not older than its id, but for the clocks of two hosts
_RECORD = _SQL.session_function(
    "record_bounces", rows.EXPECTED, rows.BOUNCED, rows.MOVED, rows.COUNTED, rows.SUPPRESSED, reports.FINISH,
    log.UNSEALED, log.EVENT,
    returns="text",
    types={"low": "uuid", "high": "uuid", "accounts": "uuid[]", "counts": "integer[]", "as_strong": "text[]"},
    report_finish=reports.REPORT_FINISH, **log.SEALING,
)  # fmt: skip
_AS_STRONG = [one.value for one in Reason if not is_stronger(Reason.BOUNCE, one)]


class _Decisions(Struct, frozen=True):
    applied: list[AppliedEffect] = field(default_factory=list)
    results: list[ReportResult] = field(default_factory=list)
    later: list[UUID] = field(default_factory=list)

    @property
    def bounced(self) -> list[AppliedEffect]:
        """Return the effects that set a recipient to `bounced`."""
        return [one for one in self.applied if one.decided.effect is NoticeEffect.BOUNCED]


class BouncePlan(Struct, frozen=True):
    """The effects of a batch of notifications, and what they were decided on."""

    at: datetime
    decisions: _Decisions
    expected: list[KnownRecipient]  # all recipients of the messages that change, as they were read
    moved: list[MovedMessage]
    delivered: Mapping[tuple[UUID, str], datetime]
    suppressed: list[SuppressedAddress]  # the addresses that have no reason as strong
    forwarded: Mapping[UUID, UUID]  # received messages by the forwards among the messages that bounced

    @property
    def is_alone(self) -> bool:
        """Return True if `record_bounces` writes all of it."""
        return not self.forwarded and not any(one.simulated for one in self.decisions.bounced)


async def record(
    pool: asyncpg.Pool, notices: Sequence[LateNotice], *, at: datetime, mail_host: str, overdue: set[UUID]
) -> list[UUID]:
    """Apply a batch of notifications at `at` and store their results; return the mails to be read again later.

    Those are about deliveries that are not on record yet; the mails `overdue` are not read again.
    """
    async with pool.acquire() as connection:
        plan = await _plan(connection, notices, at, mail_host, overdue)
        if plan.is_alone and await _write(connection, plan):
            return plan.decisions.later
        async with connection.transaction():
            waiting = await reports.lock_waiting(connection, [one.report for one in notices])
            left = [one for one in notices if one.report in waiting]
            if not left:
                return []
            accounts = {one.account_id for one in await _recipients(connection, left)}
            locked = await heads.lock(connection, accounts)
            closing = accounts - {one.account_id for one in locked.values() if one.status != "closing"}
            plan = await _plan(connection, left, at, mail_host, overdue, closing)
            if not await _write(connection, plan):
                raise RuntimeError("a recipient changed under the lock of its account's head")
            await quota_usage.count_simulated(connection, rows.simulated(plan.decisions.bounced, plan.delivered))
            await _return_forwards(connection, plan.forwarded)
            return plan.decisions.later


async def _plan(
    connection: Conn,
    notices: Sequence[LateNotice],
    at: datetime,
    mail_host: str,
    overdue: set[UUID],
    closing: Collection[UUID] = (),
) -> BouncePlan:
    """Decide what the notifications change, without writing; mail of the accounts `closing` counts as erased."""
    found: dict[UUID, list[KnownRecipient]] = {}
    for one in await _recipients(connection, notices):
        if one.account_id not in closing:
            found.setdefault(one.message_id, []).append(one)
    await _count_delays(connection, notices, found)
    known = {message: list(own) for message, own in found.items()}
    decisions = _Decisions()
    for notice in await _with_servers(connection, notices):
        _decide(notice, known, decisions, at, mail_host, overdue)
    await _judge_repetitions(connection, decisions, at)
    bounced = decisions.bounced
    messages = sorted({one.recipient.message_id for one in bounced})
    changed = sorted({one.recipient.message_id for one in decisions.applied})
    return BouncePlan(
        at,
        decisions,
        expected=[one for message in changed for one in found[message]],
        moved=[rows.moved(message, known[message]) for message in messages],
        delivered=await _delivered_at(connection, messages),
        suppressed=await _to_suppress(connection, bounced),
        forwarded=await _forwards(connection, messages),
    )


async def _recipients(connection: Conn, notices: Sequence[LateNotice]) -> list[KnownRecipient]:
    messages = sorted({one.origin.message_id for one in notices})
    return await _RECIPIENTS.fetch(connection, messages, messages[0], messages[-1])


async def _count_delays(
    connection: Conn, notices: Sequence[LateNotice], found: dict[UUID, list[KnownRecipient]]
) -> None:
    """Add to the recipients how many delay notices are on record, if the notifications tell of delays."""
    messages = sorted({one.origin.message_id for one in notices if is_delay(one)} & found.keys())
    if not messages:
        return
    events = await _LATE_DELAYS.records(connection, messages, _first_event(messages))
    delays = Counter(_place(event) for event in events)
    for message in messages:
        found[message] = [structs.replace(one, late_delays=delays[message, one.address]) for one in found[message]]


async def _judge_repetitions(connection: Conn, decisions: _Decisions, at: datetime) -> None:
    """Let an unexplained bounce suppress if the address bounced like this a day before, as settling does."""
    asked = {
        (one.recipient.account_id, one.recipient.address.lower()): place
        for place, one in enumerate(decisions.applied)
        if rows.is_unexplained(one)
    }
    for key in await bounces.unexplained_before(connection, asked, at):
        place = asked[key]
        decisions.applied[place] = rows.suppressing(decisions.applied[place])


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
        place = own.index(one.recipient)
        if one.effect is NoticeEffect.BOUNCED:
            own[place] = structs.replace(one.recipient, status=Status.BOUNCED.value)
        else:
            own[place] = structs.replace(one.recipient, late_delays=one.recipient.late_delays + 1)
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


async def _write(connection: Conn, plan: BouncePlan) -> bool:
    """Return True if the plan was written; False, with nothing written, if it no longer holds."""
    decisions, bounced = plan.decisions, plan.decisions.bounced
    entries = [rows.entry(one) for one in decisions.applied]
    entries += [rows.suppressed_entry(one, plan.at) for one in plan.suppressed]
    accounts = sorted({one.account_id for one in entries})
    events, counts = log.unsealed(accounts, entries)
    low, high = (plan.expected[0].message_id, plan.expected[-1].message_id) if plan.expected else (None, None)
    outcome = await _RECORD.run(
        connection,
        rows.EXPECTED.of(plan.expected),
        rows.BOUNCED.of([BouncedRecipient(*one.place, rows.diagnostic(one)) for one in bounced]),
        rows.MOVED.of(plan.moved),
        rows.COUNTED.of(rows.counted(bounced, plan.delivered)),
        rows.SUPPRESSED.of(plan.suppressed),
        reports.FINISH.of(decisions.results),
        log.UNSEALED.of(events),
        accounts=accounts,
        counts=counts,
        low=low,
        high=high,
        as_strong=_AS_STRONG,
    )
    return outcome == "done"


async def _forwards(connection: Conn, messages: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return the received messages by those of the messages (ascending) that forward them."""
    if not messages:
        return {}
    found = await _FORWARDS_AMONG.records(connection, messages, messages[0], messages[-1])
    return {row["id"]: ids.parse_id(ids.Kind.RECEIVED, row["received"]) for row in found}


async def _return_forwards(connection: Conn, forwarded: Mapping[UUID, UUID]) -> None:
    """Queue the received messages whose forwards bounced, so that the forwarder shows them in the mailbox."""
    if forwarded:
        await _LOOK_AT_FORWARDS.execute(connection, list(forwarded.values()), list(forwarded))


async def _delivered_at(connection: Conn, messages: Sequence[UUID]) -> dict[tuple[UUID, str], datetime]:
    """Return when each delivery of the messages (ascending) was recorded, by message and address."""
    return {key: at for key, (at, _) in (await _deliveries(connection, messages)).items()}


async def _with_servers(connection: Conn, notices: Sequence[LateNotice]) -> list[LateNotice]:
    """Return the notifications, with the servers that accepted the message where the author is compared with them."""
    asked = sorted({one.origin.message_id for one in notices if one.origin.is_shared and one.author is not None})
    servers: dict[UUID, dict[str, str]] = {}
    for (message, address), (_, mx) in (await _deliveries(connection, asked)).items():
        servers.setdefault(message, {})[address] = mx
    return [structs.replace(one, servers=servers.get(one.origin.message_id, {})) for one in notices]


async def _deliveries(connection: Conn, messages: Sequence[UUID]) -> dict[tuple[UUID, str], tuple[datetime, str]]:
    """Return time and server of each delivery of the messages (ascending), by message and address."""
    if not messages:
        return {}
    rows = await _DELIVERIES.records(connection, messages, _first_event(messages))
    details = [orjson.loads(row["payload"])["detail"] for row in rows]
    return {
        (row["message_id"], detail["recipient"]): (row["occurred_at"], detail.get("mx") or "")
        for row, detail in zip(rows, details, strict=True)
    }


def _first_event(messages: Sequence[UUID]) -> UUID:
    """Return an id below those of all events of the messages (ascending)."""
    return ids.floor_of(ids.milliseconds_of(messages[0]) - _SKEW_MS)


def _place(event: asyncpg.Record) -> tuple[UUID, str]:
    """Return message and address of an event about a recipient."""
    return event["message_id"], orjson.loads(event["payload"])["detail"]["recipient"]


async def _to_suppress(connection: Conn, bounced: Sequence[AppliedEffect]) -> list[SuppressedAddress]:
    """Return the addresses that proved invalid and are not suppressed for a reason as strong."""
    causes = {
        (one.recipient.account_id, canonical(one.recipient.address)): one for one in bounced if rows.is_suppressing(one)
    }
    if not causes:
        return []
    accounts, addresses = [key[0] for key in causes], [key[1] for key in causes]
    present = await suppressions.find(connection, accounts, addresses)
    return [
        SuppressedAddress(account, address, one.recipient.message_id, rows.diagnostic(one))
        for (account, address), one in causes.items()
        if present.get((account, address)) not in _AS_STRONG
    ]
