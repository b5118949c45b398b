"""Checks that must pass before a bench reports a speed: no message lost or sent twice, the account log intact."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock
from engine.ledger import log
from engine.store.queries import Queries
from engine.store.sink_folder import INDEX
from loadtests.bench.service import BenchService
from ops.local.sink_store import entries

__all__ = ["INDEX", "CheckResult", "SinkArrivals", "arrivals", "check"]

_NUMBER: Final = re.compile(r"m(\d{10})@")
_PAGE: Final = 2_000
_SQL = Queries.beside(__file__, "check.sql")
_EVENTS = _SQL.command("count_events")
_STATUSES = _SQL.command("count_statuses")
_QUEUED = _SQL.command("count_queued")
_HEAD = _SQL.command("read_head")
_LOG = _SQL.command("read_log_after")


class CheckResult(Struct, frozen=True):
    """A check, whether it passed, and what was found."""

    what: str
    ok: bool
    found: str

    def as_json(self) -> dict[str, object]:
        """Return the check as a JSON value."""
        return {"what": self.what, "ok": self.ok, "found": self.found}


def as_rows(checks: Iterable[CheckResult]) -> list[tuple[str]]:
    """Return a line for each check."""
    return [(f"{'ok  ' if one.ok else 'BAD '} {one.what}: {one.found}",) for one in checks]


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


async def check(service: BenchService, arrived: SinkArrivals, accepted: set[int]) -> list[CheckResult]:
    """Compare accepted, stored, logged and delivered messages; call when all accepted messages should have arrived."""
    account, pool, count = service.access.account_id, service.pool, len(accepted)
    events = {row["name"]: row["rows"] for row in await _EVENTS.records(pool, account)}
    statuses = {row["name"]: row["rows"] for row in await _STATUSES.records(pool, account)}
    queued = (await _QUEUED.records(pool))[0]["rows"]
    head = (await _HEAD.records(pool, account))[0]
    lost = len(accepted - arrived.at.keys())
    strange = arrived.unexpected + len(arrived.at.keys() - accepted)
    died = service.deaths()
    twice = sum(1 for copies in arrived.copies.values() if copies > 1)
    return [
        CheckResult(
            "every accepted message reached the sink once",
            lost == strange == twice == 0,
            f"{count} accepted, {len(arrived.at)} arrived, {lost} lost, {twice} twice, {strange} unexpected",
        ),
        CheckResult(
            "every accepted message has its events",
            events.get("accepted") == events.get("delivered") == count,
            _counts(events),
        ),
        CheckResult("every message is delivered", statuses == {"delivered": count}, _counts(statuses)),
        CheckResult(
            "the quota counter equals the accepted messages",
            head["sent_this_month"] == count,
            f"{head['sent_this_month']}",
        ),
        CheckResult("no queue row is left", queued == 0, f"{queued}"),
        await _chain(pool, account, head["seq"], head["hash"]),
        CheckResult("no process died", not died, _counts(died) or "none"),
    ]


async def _chain(pool: asyncpg.Pool, account: UUID, last_seq: int, last_hash: bytes) -> CheckResult:
    """Verify the account log from its start: `seq` without gaps, every hash computed from the one before."""
    what = "the account log is intact"
    seq, previous = 0, bytes(32)
    while rows := await _LOG.records(pool, account, seq, _PAGE):
        for row in rows:
            seq += 1
            previous = log.chained(previous, seq, row["occurred_at"], row["payload"])
            if row["seq"] != seq or row["hash"] != previous:
                return CheckResult(what, False, f"broken at {row['seq']}, expected {seq}")  # noqa: FBT003 - a field
    return CheckResult(what, seq == last_seq and previous == last_hash, f"{seq} events")


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
