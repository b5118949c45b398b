"""Checks that must pass before a bench reports a speed: no message lost or sent twice, the account log intact."""

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from engine.base import clock
from engine.store.queries import Queries
from loadtests.bench.service import BenchService
from loadtests.kit.check import Check, read_account_log
from ops.local.sink_store import entries

_NUMBER: Final = re.compile(r"m(\d{10})@")
_SQL = Queries.beside(__file__, "check.sql")
_EVENTS = _SQL.command("count_events")
_STATUSES = _SQL.command("count_statuses")
_QUEUED = _SQL.command("count_queued")
_SENT = _SQL.command("count_sent")


class SinkArrivals(Struct, frozen=True):
    """The mail that reached the sink: wall-clock time of the first copy, and number of copies, by message number."""

    at: dict[int, float]
    copies: Counter[int]
    unexpected: int  # mail that no order sent


def arrivals(service: BenchService) -> SinkArrivals:
    """Read the sink's index."""
    at: dict[int, float] = {}
    copies: Counter[int] = Counter()
    unexpected = 0
    for entry in entries(service.sink_folder):
        match = _NUMBER.match(entry.recipients[0]) if len(entry.recipients) == 1 else None
        if match is None:
            unexpected += 1
            continue
        number = int(match[1])
        copies[number] += 1
        at.setdefault(number, clock.parse_iso(entry.at).timestamp())
    return SinkArrivals(at, copies, unexpected)


async def check(
    service: BenchService, arrived: SinkArrivals, accepted: set[int], others: Collection[int] = ()
) -> list[Check]:
    """Compare accepted, stored, logged and delivered messages; call when all accepted messages should have arrived.

    `others` are accepted messages of other accounts.
    """
    account, pool, count = service.access.account_id, service.pool, len(accepted)
    events = {row["name"]: row["rows"] for row in await _EVENTS.records(pool, account)}
    statuses = {row["name"]: row["rows"] for row in await _STATUSES.records(pool, account)}
    queued = (await _QUEUED.records(pool))[0]["rows"]
    sent = (await _SENT.records(pool, account))[0]["sent_this_month"]
    async with pool.acquire() as connection:
        chain = await read_account_log(connection, account)
    sent_by_all = accepted.union(others)
    lost = len(sent_by_all - arrived.at.keys())
    strange = arrived.unexpected + len(arrived.at.keys() - sent_by_all)
    died = service.deaths()
    twice = sum(1 for copies in arrived.copies.values() if copies > 1)
    return [
        Check(
            "every accepted message reached the sink once",
            lost == strange == twice == 0,
            f"{len(sent_by_all)} accepted, {len(arrived.at)} arrived, {lost} lost, {twice} twice, {strange} unexpected",
        ),
        Check(
            "every accepted message has its events",
            events.get("accepted") == events.get("delivered") == count,
            _counts(events),
        ),
        Check("every message is delivered", statuses == {"delivered": count}, _counts(statuses)),
        Check("the quota counter equals the accepted messages", sent == count, f"{sent}"),
        Check("no queue row is left", queued == 0, f"{queued}"),
        Check("the account log is intact", chain.intact, chain.shown),
        Check("no process died", not died, _counts(died) or "none"),
    ]


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
