"""Compare the client's record of a drill with the database, the account log and the sink's store."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.base.events import SETTLED, EventType, Status
from engine.ledger import log
from engine.store.sink_folder import SinkEntry
from loadtests.drill.faults import InjectedFault
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import Send, expects_greylisting, key_of
from ops.local.sink_store import entries

_PAGE = 5_000
_HEAD_BYTES = 64 * 1024


class AccountLogSummary(Struct):
    """The result of reading an account log and recomputing its hashes."""

    events: int
    intact: bool  # hashes follow from one another, places without gap, the head is the last event
    accepted: int  # `accepted` events
    accepted_today: int  # of them on the UTC day that the account head counts
    accepted_twice: int  # messages with more than one
    sent_today: int


class Reconciliation(Struct, kw_only=True):
    """The counts and gaps of one drill. Times in seconds."""

    drill: str
    sent: int
    retried: int  # sends that took more than one try
    accepted: int
    refused: int  # by us
    unanswered: int
    delivered: int  # different messages at the sink
    bounced: int  # refused by their mail server
    lost: int  # neither at the sink nor refused by it nor waiting in the queue
    waiting: int  # still in the queue when patience ended
    unsettled: int  # out of the queue, at the sink, and yet not settled
    unknown: int  # at the sink or in the database, and never accepted towards the client
    duplicated: int  # messages that arrived more than once
    copies: int  # how many copies too many that makes
    same_message_id: bool  # all copies of a message carry the same Message-ID
    kills: list[str]
    accept_gap_s: float  # longest time without a 202 from a kill on
    delivery_gap_s: float  # longest time without an arrival from a kill on
    longest_wait_s: float  # from a 202 to its arrival, greylisted ones left out
    took_s: float
    events: int
    chain_intact: bool
    accepted_events: int
    accepted_today: int
    sent_today: int
    examples: list[str]

    @property
    def passed(self) -> bool:
        """Return True if no message was lost and every common rule held."""
        return self.lost == 0 and all(check.ok for check in checks_of(self))


def checks_of(found: Reconciliation) -> list[Check]:
    """Return the checks that must hold after every fault."""
    hanging = found.waiting + found.unsettled
    counts = found.accepted_events == found.accepted and found.accepted_today == found.sent_today
    events = f"{found.events} events, {found.accepted_events} accepted, {found.sent_today} counted today"
    return [
        Check("every accepted message arrived or was refused by its server", found.lost == 0, f"{found.lost} lost"),
        Check(
            "every accepted message is settled, and none is queued",
            hanging == 0,
            f"{found.waiting} waiting, {found.unsettled} unsettled",
        ),
        Check("no message that was not accepted arrived or is stored", found.unknown == 0, f"{found.unknown}"),
        Check(
            "every send was answered", found.unanswered == 0, f"{found.unanswered} without, {found.retried} repeated"
        ),
        Check("copies carry the same Message-ID", found.same_message_id, f"{found.copies} extra copies"),
        Check("the account log is intact", found.chain_intact, f"{found.events} events"),
        Check("events and the daily counter match the accepted messages", counts, events),
    ]


def report_of(found: Reconciliation) -> DrillReport:
    """Return the reconciliation as a drill report."""
    return DrillReport(
        drill=found.drill,
        sent=found.sent,
        accepted=found.accepted,
        delivered=found.delivered,
        bounced=found.bounced,
        lost=found.lost,
        duplicated=found.duplicated,
        copies=found.copies,
        recovery_s=max(found.accept_gap_s, found.delivery_gap_s),
        took_s=found.took_s,
        checks=checks_of(found),
        done=found.kills,
        examples=found.examples,
        figures={
            "longest time without a 202, s": round(found.accept_gap_s, 2),
            "longest time without an arrival, s": round(found.delivery_gap_s, 2),
            "longest from 202 to arrival, s": round(found.longest_wait_s, 2),
        },
    )


async def reconcile(
    database_url: str,
    store: Path,
    account: UUID,
    sends: Sequence[Send],
    kills: Sequence[InjectedFault],
    *,
    drill: str,
    took_s: float,
) -> Reconciliation:
    """Compare the client's record with database, log and sink; call once the queue is empty.

    `account` must have no mail but `sends`.
    """
    connection = await asyncpg.connect(database_url)
    try:
        statuses = await _statuses(connection, account)
        queued = await _queued(connection, account)
        ledger = await read_account_log(connection, account)
    finally:
        await connection.close()
    own = {key_of(send) for send in sends}
    arrived = _by_address(entry for entry in entries(store) if entry.test_id in own)
    accepted = [send for send in sends if send.message_id is not None]
    waiting = [send for send in accepted if send.message_id in queued]
    done = [send for send in accepted if send.message_id not in queued]
    lost = [send for send in done if _is_lost(send, statuses, arrived)]
    unsettled = [
        send for send in done if send.address in arrived and statuses.get(send.message_id or "") not in SETTLED
    ]
    twice = {address: copies for address, copies in arrived.items() if len(copies) > 1}
    known = {send.message_id for send in accepted}
    strange = [f"{address}: never accepted" for address in set(arrived) - {send.address for send in accepted}]
    strange += [f"{message}: in the database only" for message in set(statuses) - known]
    at_once = {send.address for send in accepted if not expects_greylisting(send)}
    arrivals = sorted(_seconds(copy.at) for address in at_once & arrived.keys() for copy in arrived[address])
    return Reconciliation(
        drill=drill,
        sent=len(sends),
        retried=sum(send.tries > 1 for send in sends),
        accepted=len(accepted),
        refused=sum(send.status not in (0, 200, 202) for send in sends),
        unanswered=sum(send.status == 0 for send in sends),
        delivered=len(arrived),
        bounced=sum(statuses.get(send.message_id or "") is Status.BOUNCED for send in accepted),
        lost=len(lost),
        waiting=len(waiting),
        unsettled=len(unsettled),
        unknown=len(strange),
        duplicated=len(twice),
        copies=sum(len(copies) - 1 for copies in twice.values()),
        same_message_id=all(len(_message_ids(store, copies)) == 1 for copies in twice.values()),
        kills=[kill.label for kill in kills],
        accept_gap_s=longest_gap(sorted(send.answered_at for send in accepted), kills),
        delivery_gap_s=longest_gap(arrivals, kills),
        longest_wait_s=_longest_wait(accepted, arrived),
        took_s=took_s,
        events=ledger.events,
        chain_intact=ledger.intact and not ledger.accepted_twice,
        accepted_events=ledger.accepted,
        accepted_today=ledger.accepted_today,
        sent_today=ledger.sent_today,
        examples=[
            *_description("lost", lost, statuses),
            *_description("waiting", waiting, statuses),
            *_description("unsettled", unsettled, statuses),
            *strange[:5],
        ],
    )


async def read_account_log(connection: asyncpg.Connection, account: UUID) -> AccountLogSummary:
    """Recompute the hash chain of an account's log from its first event."""
    last, events, intact, day = bytes(32), 0, True, ""
    accepted: dict[UUID, int] = defaultdict(int)
    days: dict[str, int] = defaultdict(int)
    while True:
        rows = await connection.fetch(
            "SELECT seq, type, message_id, occurred_at, payload, hash FROM events"
            " WHERE account_id = $1 AND seq > $2 ORDER BY seq LIMIT $3",
            account, events, _PAGE,
        )  # fmt: skip
        for row in rows:
            last = log.chained(last, events + 1, row["occurred_at"], row["payload"])
            intact = intact and row["seq"] == events + 1 and row["hash"] == last
            events = row["seq"]
            if row["type"] == EventType.ACCEPTED:
                accepted[row["message_id"]] += 1
                day = max(day, str(row["occurred_at"])[:10])  # as the head counts: a day that is over stays over
                days[day] += 1
        if len(rows) < _PAGE:
            break
    head = await connection.fetchrow(
        "SELECT seq, hash, day, sent_today FROM account_heads WHERE account_id = $1", account
    )
    intact = intact and head is not None and head["seq"] == events and head["hash"] == last
    return AccountLogSummary(
        events=events,
        intact=intact,
        accepted=sum(accepted.values()),
        accepted_today=0 if head is None else days[str(head["day"])],
        accepted_twice=sum(count > 1 for count in accepted.values()),
        sent_today=0 if head is None else head["sent_today"],
    )


async def _statuses(connection: asyncpg.Connection, account: UUID) -> dict[str, Status]:
    rows = await connection.fetch("SELECT id, status FROM messages WHERE account_id = $1", account)
    return {ids.format_id(ids.Kind.MESSAGE, row["id"]): Status(row["status"]) for row in rows}


async def _queued(connection: asyncpg.Connection, account: UUID) -> set[str]:
    rows = await connection.fetch("SELECT message_id FROM queue WHERE account_id = $1", account)
    return {ids.format_id(ids.Kind.MESSAGE, row["message_id"]) for row in rows}


def _is_lost(send: Send, statuses: Mapping[str, Status], arrived: Collection[str]) -> bool:
    """Return True for accepted mail neither at the sink nor bounced; `delivered` without an arrival is a loss too."""
    return send.address not in arrived and statuses.get(send.message_id or "") is not Status.BOUNCED


def _by_address(received: Iterable[SinkEntry]) -> dict[str, list[SinkEntry]]:
    found: dict[str, list[SinkEntry]] = {}
    for entry in received:
        for address in entry.recipients:
            found.setdefault(address, []).append(entry)
    return found


def _message_ids(store: Path, copies: Iterable[SinkEntry]) -> set[str]:
    found = set()
    for copy in copies:
        assert copy.file is not None
        with (store / copy.file).open("rb") as file:
            head = file.read(_HEAD_BYTES).partition(b"\r\n\r\n")[0]
        lines = [line for line in head.split(b"\r\n") if line.lower().startswith(b"message-id:")]
        found.add(b"|".join(lines).decode("utf-8", "replace"))
    return found


def longest_gap(times: Sequence[float], kills: Sequence[InjectedFault]) -> float:
    """Return the longest pause (s) that ends after the first fault, without the time of the faults; 0 without
    faults."""
    if not kills:
        return 0.0
    ends = [later - earlier - _held(earlier, later, kills) for earlier, later in pairwise(times) if later > kills[0].at]
    return max(ends, default=0.0)


def _held(start: float, end: float, injected: Iterable[InjectedFault]) -> float:
    """Return the seconds from `start` to `end` during which a fault lasted: recovery can only begin afterwards."""
    return sum(max(0.0, min(end, one.until) - max(start, one.at)) for one in injected)


def _longest_wait(accepted: Iterable[Send], arrived: Mapping[str, Sequence[SinkEntry]]) -> float:
    waits = [
        _seconds(arrived[send.address][0].at) - send.answered_at
        for send in accepted
        if send.address in arrived and not expects_greylisting(send)
    ]
    return max(waits, default=0.0)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _description(word: str, sends: Iterable[Send], statuses: Mapping[str, Status]) -> list[str]:
    """Return up to five lines that describe these messages."""
    lines = [f"{word}: {send.message_id} to {send.address}, {statuses.get(send.message_id or '')}" for send in sends]
    return lines[:5]
