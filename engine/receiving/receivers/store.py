"""Add to the cohorts of receivers and read them; write and read the judgements."""

from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final
from uuid import UUID

from engine.base.secrets import DerivedKey, Pepper, derived, hmac_sha256
from engine.receiving.receivers.rules import WINDOWS_S
from engine.receiving.receivers.time_classes import class_of
from engine.receiving.receivers.types import BUCKET, KEPT, MAX_ACCOUNTS, Cohort, ReceiverRow
from engine.store.queries import Queries, Source, columns

LOOK_BACK: Final = timedelta(hours=26)  # the longest wait that forecasts know
_LATELY: Final = timedelta(seconds=WINDOWS_S[-1]) + 3 * BUCKET
_LATE: Final = class_of((_LATELY - timedelta(seconds=WINDOWS_S[-1]) - BUCKET).total_seconds())
_DIGEST_BYTES: Final = 8

_SQL = Queries.beside(__file__)
_ADD = _SQL.command("add_cohorts")
_RECENT = _SQL.rows("recent_cohorts", Cohort)
_AT_HOURS = _SQL.rows("cohorts_at_hours", Cohort)
LIST: Final = _SQL.rows("list_receivers", ReceiverRow)
_WRITE = _SQL.command("write_receivers")
_FORGET = _SQL.command("forget_cohorts")
_FORGET_RECEIVERS = _SQL.command("forget_receivers")


async def add_cohorts(source: Source, pepper: Pepper, counted: Iterable[tuple[Cohort, Collection[UUID]]]) -> None:
    """Add counts, in the order of the key: two processes must not wait for one another's rows."""
    rows = [
        (
            one.bucket, one.provider, one.site, one.entered, one.ended, one.first_delivered, one.first_deferred,
            one.first_refused, _literal(one.times),
            _literal(account_digest(pepper, account, one.bucket.date()) for account in sorted(accounts)[:MAX_ACCOUNTS]),
        )
        for one, accounts in counted
    ]  # fmt: skip
    rows.sort(key=lambda row: row[:3])
    await _ADD.execute(source, *columns(rows, 10))


async def recent_cohorts(source: Source, at: datetime) -> list[Cohort]:
    """Return the cohorts that tell how receivers have treated mail in the hour before `at`."""
    return await _RECENT.fetch(source, at - LOOK_BACK, at - _LATELY, _LATE)


async def cohorts_of_week(source: Source, at: datetime) -> list[Cohort]:
    """Return the cohorts of the hour of `at` on the seven days before."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    return await _AT_HOURS.fetch(source, [hour - timedelta(days=ago) for ago in range(1, 8)])


async def write_receivers(source: Source, rows: Sequence[ReceiverRow]) -> None:
    """Write judgements."""
    values = [
        (
            one.provider, one.site, one.state, one.since, one.basis, one.sample, one.first_share,
            _literal(one.survival), _literal(one.accounts), one.updated_at,
        )
        for one in sorted(rows, key=lambda one: one.key)
    ]  # fmt: skip
    await _WRITE.execute(source, *columns(values, 10))


async def forget(source: Source, at: datetime) -> None:
    """Delete what is too old for any forecast."""
    await _FORGET.execute(source, at - KEPT)
    await _FORGET_RECEIVERS.execute(source, at - KEPT)


def account_digest(pepper: Pepper, account: UUID, day: date) -> str:
    """Return the digest of an account on a day, `day:digest`. Digests of different days can't be compared."""
    return f"{day.isoformat()}:{hmac_sha256(_key(pepper, day), account.bytes)[:_DIGEST_BYTES].hex()}"


def is_digest_of(pepper: Pepper, account: UUID, text: str) -> bool:
    """Return True if a digest `day:digest` is of the account."""
    return account_digest(pepper, account, date.fromisoformat(text.partition(":")[0])) == text


@lru_cache(maxsize=64)  # deriving a key takes 20 µs
def _key(pepper: Pepper, day: date) -> DerivedKey:
    return derived(pepper, f"receiver accounts {day.isoformat()}")


def _literal(values: Iterable[object]) -> str:
    """Return an array literal of numbers, or of texts without special characters."""
    return "{" + ",".join(map(str, values)) + "}"
