"""The clock of local mode: where it stops on its way, what it refuses, and that live mode has none."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from engine.base import clock
from engine.base.clock import Calls
from engine.base.settings import Settings
from engine.sending.local_clock import service
from engine.sending.local_clock.rules import Stop, duration, next_mark, next_stop
from engine.sending.local_clock.types import DueWork
from engine.store import clock_schema
from engine.store.service_time import Follower
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.patience import PATIENCE_S

AT = datetime(2026, 11, 29, 3, 20, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
CLOCK, SETTLE = "/v1/local/clock", "/v1/local/settle"


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)), ("15m", timedelta(minutes=15)), ("36h", timedelta(hours=36)), ("2d", 2 * DAY),
        ("1w", 7 * DAY), ("1d12h", timedelta(hours=36)), ("", None), ("0s", None), ("2", None), ("-1d", None),
        ("1.5d", None), ("2d ", None), ("P2D", None), ("1d,2h", None),
    ],
)  # fmt: skip
def test_durations_are_numbers_with_units(text: str, expected: timedelta | None) -> None:
    assert duration(text) == expected


def test_the_next_mark_is_later_than_now() -> None:
    assert next_mark(AT, timedelta(hours=6)) == datetime(2026, 11, 29, 6, tzinfo=UTC)
    assert next_mark(datetime(2026, 11, 29, 6, tzinfo=UTC), timedelta(hours=6)) == datetime(
        2026, 11, 29, 12, tzinfo=UTC
    )


def stop(*work: DueWork, days: int = 1, appointment: datetime | None = None) -> Stop:
    return next_stop(AT, AT + days * DAY, began=AT, work=work, appointment=appointment)


def test_the_clock_stops_at_what_falls_due_first_and_calls_whom_it_needs() -> None:
    mail = DueWork("deliveries", 0, AT + HOUR, Calls.MAIL)
    queued = DueWork("forwards", 0, AT + HOUR, Calls.QUEUES)
    later = DueWork("holds", 0, AT + 2 * HOUR, Calls.ALL)

    assert stop(mail, later) == Stop(AT + HOUR, Calls.MAIL)
    assert stop(mail, queued, later) == Stop(AT + HOUR, Calls.QUEUES)
    assert stop(later) == Stop(AT + 2 * HOUR, Calls.ALL)
    assert stop(later, appointment=AT + HOUR / 2) == Stop(AT + HOUR / 2, Calls.MAIL)


def test_without_anything_due_it_stops_at_marks_and_at_the_end() -> None:
    assert stop() == Stop(datetime(2026, 11, 29, 6, tzinfo=UTC), Calls.ALL)
    assert stop(days=30) == Stop(datetime(2026, 11, 30, tzinfo=UTC), Calls.ALL)
    assert next_stop(AT, AT + HOUR, began=AT, work=[], appointment=None) == Stop(AT + HOUR, Calls.ALL)


def test_it_never_stops_before_now_or_after_the_end() -> None:
    overdue = DueWork("deliveries", 0, AT - HOUR, Calls.MAIL)
    late = DueWork("deliveries", 0, AT + 5 * DAY, Calls.MAIL)

    assert stop(overdue).at == AT
    assert next_stop(AT, AT + HOUR, began=AT, work=[late], appointment=None).at == AT + HOUR


async def test_a_move_that_was_cut_short_is_completed_by_the_next(
    settings: Settings, own_database: str, follower: Follower
) -> None:
    """The database has moved, the clock file has not: the file follows, and the database does not go back."""
    mover = await clock_schema.open_mover(own_database)
    await clock_schema.move(mover, DAY // MICROSECOND)
    here = structs.replace(settings, delivery="local", database_url=own_database)

    moved = await service.advance(here, HOUR, within_s=PATIENCE_S)

    assert abs(moved.ahead_us * MICROSECOND - DAY - HOUR) < timedelta(minutes=1)
    assert follower.shared.ahead_us() == moved.ahead_us
    assert await clock_schema.ahead_us(mover) == moved.ahead_us
    await mover.close()


async def test_live_mode_has_no_clock_to_move(
    settings: Settings, account: TestAccount, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    live = structs.replace(settings, delivery="live", tls_cert=None, state=tmp_path)
    with serving(live, tmp_path / "api.log") as url:
        api = Api(url, http)
        for answer in (
            await api.get(CLOCK, account.token),
            await api.post(CLOCK, account.token, {"advance": "1d"}),
            await api.post(CLOCK, account.token, {}),
            await api.post(SETTLE, account.token, {}),
        ):
            assert (answer.status, answer.error["type"]) == (404, "not_found")
            assert "WAYBILL_DELIVERY is live" in answer.error["message"]
    assert not (tmp_path / "clock").exists()


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "advance", "Give either `advance` or `to`"),
        ({"advance": "1d", "to": "2030-01-01T00:00:00Z"}, "advance", "Give either `advance` or `to`"),
        ({"advance": "soon"}, "advance", "give a duration such as `90s`, `2d` or `1d12h`"),
        ({"to": "tomorrow"}, "to", "ISO 8601"),
        ({"to": "2020-01-01T00:00:00Z"}, "to", "never goes back"),
        ({"to": "2199-01-01T00:00:00Z"}, "to", "at most 3660 days ahead"),
        ({"advance": "520w", "timeoutS": 0}, "timeoutS", "1"),
    ],
)
async def test_a_move_that_is_none_is_refused_with_the_reason(
    api: Api, account: TestAccount, body: dict[str, object], field: str, words: str
) -> None:
    answer = await api.post(CLOCK, account.token, body)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)
    assert words in answer.error["message"]


async def test_the_clock_shows_both_times(api: Api, account: TestAccount) -> None:
    shown = (await api.get(CLOCK, account.token)).json

    assert shown["aheadS"] == 0
    assert abs(clock.parse_iso(shown["serviceTime"]) - clock.parse_iso(shown["machineTime"])) < timedelta(seconds=1)


async def test_a_key_that_may_not_send_may_not_move_the_clock(api: Api, pool: asyncpg.Pool) -> None:
    reader = await make_account(pool, scopes=["messages:read"])

    answer = await api.post(CLOCK, reader.token, {"advance": "1s"})

    assert (answer.status, answer.error["scope"]) == (403, "emails:send")
