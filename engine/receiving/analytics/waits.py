"""Store the sums of waiting times by hour and provider, and read them.

They are counted with the outcomes of deliveries (`delivery.count_rest` brings them up to date).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.receiving.analytics import histogram
from engine.receiving.analytics.histogram import merged_times
from engine.receiving.analytics.rules import bounds
from engine.receiving.analytics.types import Period
from engine.receiving.analytics.wait_rules import CAUSES, WaitCounts
from engine.store.queries import Conn, Queries, Source
from engine.store.row_sets import Column, RowSet

PAGE: Final = 500  # sums at once, as in `delivery`
MAX_HOURS_DAYS: Final = 7  # of a request by hour


class WaitGroup(StrEnum):
    """The property by which waiting times are grouped."""

    PROVIDER = "provider"
    HOUR = "hour"
    DAY = "day"


class WaitsWanted(Struct, frozen=True, kw_only=True):
    """The attempts asked for; None means all. `from_domains`: the sending domains that the caller may see."""

    by: WaitGroup
    period: Period
    provider: str | None = None
    streams: list[str] | None = None
    from_domains: list[str] | None = None


class _WaitSums(Struct, frozen=True):
    """The sums of one group; `name` is its provider, or the begin of its hour or day."""

    name: str
    attempts: int
    schedule: int
    queue: int
    site_limits: int
    other_accounts: int
    own_mail: int
    connection: int
    transaction: int
    retry: int
    fair_shares: float
    times: bytes


class WaitFigures(Struct, frozen=True, kw_only=True):
    """The waiting times of one group, or of all: milliseconds by cause, the mean of the fair shares, and the 95th
    percentile of `other_accounts`; both None without attempts."""

    name: str
    attempts: int
    ms: dict[str, int]
    fair_share: float | None
    other_accounts_p95_ms: int | None


_KEY = (
    Column("hour", "timestamptz"), Column("provider", repeats=True), Column("stream", repeats=True),
    Column("from_domain", repeats=True),
)  # fmt: skip
WANTED: Final = RowSet("wanted", WaitCounts, *_KEY)
ADDED: Final = RowSet(
    "added", WaitCounts, *_KEY, Column("attempts", "integer"), *[Column(cause, "bigint") for cause in CAUSES],
    Column("fair_shares", "double precision"), Column("times"),
)  # fmt: skip

_SQL = Queries.beside(__file__, "waits.sql")
_TIMES = _SQL.wide("wait_times_of", WANTED)
_ADD = _SQL.wide("add_waits", ADDED)
_SUMS = _SQL.rows("wait_sums", _WaitSums)
FORGET: Final = _SQL.command("forget_waits")


async def add(connection: Conn, account: UUID, counts: Sequence[WaitCounts]) -> None:
    """Add to the sums of an account whose record of counts is locked."""
    for first in range(0, len(counts), PAGE):
        page = counts[first : first + PAGE]
        found = await _TIMES.run(connection, WANTED.of(page), account=account)
        stored = {(hour, provider, stream, sender): times for hour, provider, stream, sender, times in found}
        for one in page:
            one.times = histogram.added(stored.get(one.key, b""), one.samples)
        await _ADD.run(connection, ADDED.of(page), account=account)


async def read(source: Source, account: UUID, wanted: WaitsWanted) -> tuple[WaitFigures, list[WaitFigures]]:
    """Return the figures of all attempts, and of each group in the order of its name."""
    since, until = bounds(wanted.period)
    found = await _SUMS.fetch(
        source, account, since, until, wanted.provider, wanted.streams, wanted.from_domains, wanted.by.value
    )
    samples = await merged_times([*(one.times for one in found), b"".join(one.times for one in found)])
    figures = [_figures(one.name, [one], times) for one, times in zip(found, samples[:-1], strict=True)]
    return _figures("", found, samples[-1]), figures


def _figures(name: str, sums: Sequence[_WaitSums], samples: dict[int, int]) -> WaitFigures:
    attempts = sum(one.attempts for one in sums)
    return WaitFigures(
        name=name,
        attempts=attempts,
        ms={cause: sum(getattr(one, cause) for one in sums) for cause in CAUSES},
        fair_share=round(sum(one.fair_shares for one in sums) / attempts, 3) if attempts else None,
        other_accounts_p95_ms=histogram.percentile(samples, 0.95),
    )
