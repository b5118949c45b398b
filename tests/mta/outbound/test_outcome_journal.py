"""Outcomes that PostgreSQL cannot take outlive their process, and are settled before their shards change hands."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import asyncpg
import msgspec
import pytest

from engine.base import ids
from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.delivery.queue import Row
from engine.sending.settle import DeliveryAttempt
from mta.outbound import outcome_journal
from mta.outbound.journal_file import SUFFIX, JournalFile, left_files
from mta.outbound.outcome_journal import OutcomeJournal
from tests.harness.outbound import World
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import DEFERRED, DELIVERED, Process, attempt_at, member, rows_of, settler_of
from tests.harness.stalled_settling import end_sessions, kept_outcomes, locked_heads, outcome_files
from tests.harness.stored_messages import sent, status
from tests.mta.processes import process as mta_process

KEY = DerivedKey(range(32))


@pytest.fixture
async def attempts(door: Process, pool: asyncpg.Pool) -> list[DeliveryAttempt]:
    return [attempt_at(row, DELIVERED) for row in [await row_of(door, pool, f"r{n}@people.test") for n in range(3)]]


async def row_of(door: Process, pool: asyncpg.Pool, address: str) -> Row:
    _, message = await sent(door, address)
    [row] = await rows_of(pool, message)
    return row


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.01)


# -- the file ----------------------------------------------------------------------------------


def read(folder: Path) -> list[DeliveryAttempt]:
    [left] = left_files(folder, KEY)
    with left:
        return left.read()


async def test_a_file_returns_the_outcomes_without_the_content(tmp_path: Path, attempts: list[DeliveryAttempt]) -> None:
    file = JournalFile(tmp_path, KEY)
    file.append(attempts[:1])
    file.append(attempts[1:])
    file.close()

    bare = [msgspec.structs.replace(one, row=msgspec.structs.replace(one.row, mime=None)) for one in attempts]
    assert read(tmp_path) == bare
    content = file.path.read_bytes()
    assert b"people.test" not in content
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [1, 30, 5_000])
async def test_a_torn_tail_costs_the_last_group_only(tmp_path: Path, attempts: list[DeliveryAttempt], cut: int) -> None:
    file = JournalFile(tmp_path, KEY)
    file.append(attempts[:2])
    kept = file.size
    file.append(attempts[2:])
    file.close()
    os.truncate(file.path, max(kept + 2, file.size - cut))

    assert [one.row.key for one in read(tmp_path)] == [one.row.key for one in attempts[:2]]


async def test_a_damaged_record_ends_the_file(tmp_path: Path, attempts: list[DeliveryAttempt]) -> None:
    file = JournalFile(tmp_path, KEY)
    file.append(attempts[:1])
    kept = file.size
    file.append(attempts[1:])
    file.close()
    content = bytearray(file.path.read_bytes())
    content[kept + 40] ^= 1
    file.path.write_bytes(content)

    assert [one.row.key for one in read(tmp_path)] == [attempts[0].row.key]


@pytest.mark.parametrize("content", [b"", b"way", b"something else entirely\n", os.urandom(300)])
async def test_a_file_of_another_kind_holds_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{ids.uuid7()}{SUFFIX}").write_bytes(content)
    assert read(tmp_path) == []


async def test_the_last_attempt_at_a_row_counts(tmp_path: Path, attempts: list[DeliveryAttempt]) -> None:
    row = attempts[0].row
    later = msgspec.structs.replace(attempts[0], row=msgspec.structs.replace(row, attempts=1, mime=None))
    file = JournalFile(tmp_path, KEY)
    file.append([attempts[0], later])
    file.close()
    assert read(tmp_path) == [later]


async def test_the_file_of_a_living_process_is_left_to_it(tmp_path: Path, attempts: list[DeliveryAttempt]) -> None:
    file = JournalFile(tmp_path, KEY)
    file.append(attempts)
    [left] = left_files(tmp_path, KEY)
    with pytest.raises(BlockingIOError), left:
        pass
    file.close()
    assert len(read(tmp_path)) == len(attempts)


# -- while settling stalls ---------------------------------------------------------------------


async def test_outcomes_are_kept_while_they_cannot_be_settled_and_only_then(
    attempts: list[DeliveryAttempt], pool: asyncpg.Pool, settings: Settings, database_url: str, tmp_path: Path
) -> None:
    settler = settler_of(pool, await member(pool))
    journal = OutcomeJournal(msgspec.structs.replace(settings, state=tmp_path), settler)
    keeping = asyncio.create_task(journal.run())
    await settler.settle(attempts[0])
    assert outcome_files(tmp_path) == []

    async with locked_heads(database_url):
        settling = [settler.settle(one) for one in attempts[1:]]
        await until(lambda: bool(outcome_files(tmp_path)) and not journal.is_behind)
        settling.append(settler.settle(attempts[0]))
        assert journal.is_behind  # no delivery begins before this outcome is in the file
        await until(lambda: not journal.is_behind)
    assert await asyncio.gather(*settling) == [True, True, False]

    await until(lambda: outcome_files(tmp_path) == [])
    keeping.cancel()


async def test_a_full_file_gives_way_to_one_with_the_unsettled_outcomes_alone(
    attempts: list[DeliveryAttempt],
    pool: asyncpg.Pool,
    settings: Settings,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome_journal, "MAX_BYTES", 100)
    settler = settler_of(pool, await member(pool))
    journal = OutcomeJournal(msgspec.structs.replace(settings, state=tmp_path), settler)
    async with locked_heads(database_url):
        settling = [settler.settle(one) for one in attempts]
        assert await journal._keep()
        [full] = outcome_files(tmp_path)
        size = full.stat().st_size
    await asyncio.gather(*settling)
    again = msgspec.structs.replace(attempts[0], row=msgspec.structs.replace(attempts[0].row, attempts=1))
    async with locked_heads(database_url):
        late = settler.settle(again)
        assert await journal._keep()
        [fresh] = outcome_files(tmp_path)
        assert fresh != full
        assert 0 < fresh.stat().st_size < size
    await late
    journal.clear()
    assert outcome_files(tmp_path) == []


async def test_a_full_file_of_unsettled_outcomes_grows_no_further(
    attempts: list[DeliveryAttempt],
    pool: asyncpg.Pool,
    settings: Settings,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome_journal, "MAX_BYTES", 100)
    monkeypatch.setattr(outcome_journal, "RETRY_S", 0.01)
    settler = settler_of(pool, await member(pool))
    journal = OutcomeJournal(msgspec.structs.replace(settings, state=tmp_path), settler)
    keeping = asyncio.create_task(journal.run())
    async with locked_heads(database_url):
        settling = [settler.settle(attempts[0])]
        await until(lambda: bool(outcome_files(tmp_path)) and not journal.is_behind)
        size = outcome_files(tmp_path)[0].stat().st_size
        settling.append(settler.settle(attempts[1]))
        await asyncio.sleep(0.1)  # several tries
        assert [file.stat().st_size for file in outcome_files(tmp_path)] == [size]
        assert journal.is_behind  # so that no delivery begins whose outcome could not be kept
    assert await asyncio.gather(*settling) == [True, True]
    await until(lambda: outcome_files(tmp_path) == [])
    keeping.cancel()


# -- after a kill ------------------------------------------------------------------------------


@pytest.mark.parametrize("heir", ["mta-1", "mta-2"], ids=["the same slot", "another slot"])
async def test_a_process_killed_while_settling_stalls_sends_nothing_twice(
    here: World, tmp_path: Path, heir: str
) -> None:
    messages = await here.send_many(8, lambda number: f"reader{number}@peer.test")
    assert here.settings.database_url is not None
    async with (
        locked_heads(here.settings.database_url) as lock,
        mta_process(here, tmp_path, state=tmp_path) as killed,
    ):
        await here.until(lambda: kept_outcomes(tmp_path) == 8)
        killed.send(signal.SIGKILL)
        await killed.ended()
        await end_sessions(lock, "mta-1")
    async with mta_process(here, tmp_path, name=heir, state=tmp_path):
        for message in messages:
            await here.until_step(message, "delivered")
        await here.until_idle()
        await here.until(lambda: outcome_files(tmp_path) == [])

    arrived = [address for one in here.sink.messages for address in one.recipients]
    assert sorted(arrived) == [f"reader{number}@peer.test" for number in range(8)]
    for message in messages:
        assert await here.steps(message) == ["accepted", "attempted", "delivered"]


async def test_what_another_process_has_tried_since_is_left_out(here: World, tmp_path: Path) -> None:
    message = await here.send("ann@peer.test")
    [row] = await rows_of(here.pool, message)
    file = JournalFile(tmp_path / "mta", key_of(here.settings))
    file.append([attempt_at(row, DEFERRED)])
    file.close()
    await here.pool.execute("UPDATE queue SET attempts = 1 WHERE message_id = $1", message)

    await here.mta(state=tmp_path)
    await here.until_step(message, "delivered")

    assert await status(here.pool, message) == "delivered"
    assert await here.steps(message) == ["accepted", "attempted", "delivered"]
    assert outcome_files(tmp_path) == []


def key_of(settings: Settings) -> DerivedKey:
    return OutcomeJournal(settings, settler_of(None, ids.uuid7()))._key  # type: ignore[arg-type]
