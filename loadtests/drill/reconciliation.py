"""Compare the client's record of a drill with the database, the account log and the sink's store."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import ids
from engine.base.events import SETTLED, Status
from engine.store.sink_folder import SinkEntry
from loadtests.drill import arrivals
from loadtests.drill.clients import Send
from loadtests.drill.faults import InjectedFault
from loadtests.drill.report import DrillReport
from loadtests.kit.check import AccountLogSummary, Check, read_account_log


class Reconciliation(Struct, kw_only=True):
    """Counts of the messages of one drill by what happened to them."""

    retried: int  # sends that took more than one try
    accepted: int
    unanswered: int
    lost: list[str] = []  # neither at the sink nor refused by it nor waiting in the queue
    waiting: list[str] = []  # still in the queue when patience ended
    unsettled: list[str] = []  # out of the queue, at the sink, and yet not settled
    unknown: list[str] = []  # at the sink or in the database, and never accepted towards the client
    copies: int = 0  # how many copies too many arrived
    same_message_id: bool = True  # all copies of a message carry the same Message-ID
    log: AccountLogSummary


def checks_of(found: Reconciliation) -> list[Check]:
    """Return the checks that must hold after every fault."""
    hanging = f"{len(found.waiting)} waiting, {len(found.unsettled)} unsettled"
    answers = f"{found.unanswered} without, {found.retried} repeated"
    return [
        Check("every accepted message arrived or was refused by its server", not found.lost, f"{len(found.lost)} lost"),
        Check("every accepted message is settled, and none is queued", not found.waiting + found.unsettled, hanging),
        Check("no message that was not accepted arrived or is stored", not found.unknown, f"{len(found.unknown)}"),
        Check("every send was answered", found.unanswered == 0, answers),
        Check("copies carry the same Message-ID", found.same_message_id, f"{found.copies} extra copies"),
        *found.log.checks(found.accepted),
    ]


async def reconcile(
    database_url: str,
    store: Path,
    account: UUID,
    sends: Sequence[Send],
    injected: Sequence[InjectedFault],
    *,
    drill: str,
    took_s: float,
) -> DrillReport:
    """Compare the client's record with database, log and sink; call once the queue is empty.

    `account` must have no mail but `sends`.
    """
    connection = await asyncpg.connect(database_url)
    try:
        statuses = await read_statuses(connection, account)
        rows = await connection.fetch("SELECT message_id FROM queue WHERE account_id = $1", account)
        ledger = await read_account_log(connection, account)
    finally:
        await connection.close()
    queued = {ids.format_id(ids.Kind.MESSAGE, row["message_id"]) for row in rows}
    arrived = arrivals.by_address(store, {send.key for send in sends})
    twice = [copies for copies in arrived.values() if len(copies) > 1]
    found = _compared(sends, statuses, queued, arrived.keys(), ledger)
    found.copies = sum(len(copies) - 1 for copies in twice)
    found.same_message_id = all(len(arrivals.message_ids(store, copies)) == 1 for copies in twice)
    recovery_s, times = _times([send for send in sends if send.message_id is not None], arrived, injected)
    return DrillReport(
        drill=drill, sent=len(sends), accepted=found.accepted, delivered=len(arrived),
        bounced=sum(statuses.get(send.message_id or "") == Status.BOUNCED for send in sends), lost=len(found.lost),
        duplicated=len(twice), copies=found.copies, recovery_s=recovery_s, took_s=took_s, checks=checks_of(found),
        done=[one.label for one in injected],
        examples=[line for part in (found.lost, found.waiting, found.unsettled, found.unknown) for line in part[:5]],
        figures=times,
    )  # fmt: skip


def _compared(
    sends: Sequence[Send],
    statuses: Mapping[str, str],
    queued: Collection[str],
    arrived: Collection[str],
    ledger: AccountLogSummary,
) -> Reconciliation:
    """Sort the accepted messages by what became of them; `arrived` are the addresses with mail."""
    found = Reconciliation(
        retried=sum(send.tries > 1 for send in sends),
        accepted=0,
        unanswered=sum(send.status == 0 for send in sends),
        log=ledger,
    )
    known: dict[str, Send] = {}
    for send in sends:
        if send.message_id is None:
            continue
        found.accepted += 1
        known[send.message_id] = send
        status = statuses.get(send.message_id)
        line = f"{send.message_id} to {send.address}, {status}"
        if send.message_id in queued:
            found.waiting.append(f"waiting: {line}")
        elif send.address not in arrived and status != Status.BOUNCED:  # `delivered` without an arrival is a loss too
            found.lost.append(f"lost: {line}")
        elif send.address in arrived and status not in SETTLED:
            found.unsettled.append(f"unsettled: {line}")
    addresses = {send.address for send in known.values()}
    found.unknown += [f"{address}: never accepted" for address in arrived if address not in addresses]
    found.unknown += [f"{message}: in the database only" for message in statuses if message not in known]
    return found


def _times(
    accepted: Sequence[Send], arrived: Mapping[str, Sequence[SinkEntry]], injected: Sequence[InjectedFault]
) -> tuple[float, dict[str, float]]:
    """Return the longest time to recover from a fault, and the figures of times; greylisted mail is left out."""
    at_once = [send for send in accepted if send.address in arrived and not send.is_greylisted]
    came = sorted(arrivals.arrived_at(copy) for send in at_once for copy in arrived[send.address])
    waits = [arrivals.arrived_at(arrived[send.address][0]) - send.answered_at for send in at_once]
    found = {
        "longest time without a 202, s": longest_gap(sorted(one.answered_at for one in accepted), injected),
        "longest time without an arrival, s": longest_gap(came, injected),
    }
    recovery_s = max(found.values())
    found["longest from 202 to arrival, s"] = max(waits, default=0.0)
    return recovery_s, {name: round(one, 2) for name, one in found.items()}


async def read_statuses(connection: asyncpg.Connection, account: UUID) -> dict[str, str]:
    """Return the status of each message of an account by id."""
    rows = await connection.fetch("SELECT id, status FROM messages WHERE account_id = $1", account)
    return {ids.format_id(ids.Kind.MESSAGE, row["id"]): row["status"] for row in rows}


def longest_gap(times: Sequence[float], injected: Sequence[InjectedFault]) -> float:
    """Return the longest pause (s) that ends after the first fault, without the time of the faults; 0 without
    faults."""
    if not injected:
        return 0.0

    def held(start: float, end: float) -> float:
        return sum(max(0.0, min(end, one.until) - max(start, one.at)) for one in injected)

    ends = [later - one - held(one, later) for one, later in pairwise(times) if later > injected[0].at]
    return max(ends, default=0.0)
