"""Operations that tolerate lag read from a replica; their callers see what they have written, and no error."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from api.http.operation import Operation
from api.routes import all_operations
from engine.base import clock
from engine.base.settings import Settings
from engine.people.people import store as people
from ops.doctor.replica_reads import replica_reads
from tests.harness.accounts import add_key, make_account
from tests.harness.api import Answer, name_of
from tests.harness.everything import Estate, furnish
from tests.harness.operators import ADDRESS
from tests.harness.patience import PATIENCE_S
from tests.harness.people import TestPerson, make_person
from tests.harness.replica import Reader, Replicated, reading, replicated
from tests.harness.submission import message, relaying

LAGGING = [operation for operation in all_operations() if operation.lagging]
PATIENT = 600.0  # seconds that the replica may lag: a paused one still gets reads


@pytest.fixture(scope="module")
async def here(settings: Settings) -> AsyncIterator[Replicated]:
    async with replicated(structs.replace(settings, read_lag_s=PATIENT, operators=(ADDRESS,))) as servers:
        yield servers


@pytest.fixture(scope="module")
async def reader(
    here: Replicated, http: aiohttp.ClientSession, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Reader]:
    async with reading(here.settings, tmp_path_factory.mktemp("reader") / "api.log", http) as started:
        yield started


@pytest.fixture
async def other(here: Replicated, http: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[Reader]:
    """Another process of the same service."""
    async with reading(here.settings, tmp_path / "other.log", http) as started:
        yield started


async def streams(reader: Reader, token: str) -> set[str]:
    answer = await reader.api.get("/v1/streams", token)
    assert answer.status == 200
    return {one["id"] for one in answer.json["data"]}


async def settled(here: Replicated, reader: Reader, token: str) -> None:
    """Wait until the key reads from the replica: it is not new any more, and its writes are shown there."""
    async with asyncio.timeout(PATIENCE_S):
        before = await here.last_read()
        while True:
            assert (await reader.api.get("/v1/streams", token)).status == 200
            if (now := await here.last_read()) != before and now is not None:
                return
            await asyncio.sleep(0.2)


async def test_a_caller_sees_its_own_write_at_once_and_others_see_it_within_the_lag(
    here: Replicated, reader: Reader, other: Reader
) -> None:
    account = await make_account(here.pool)
    colleague = await add_key(here.pool, account.id)
    await settled(here, reader, account.token)
    await settled(here, other, account.token)
    await settled(here, reader, colleague)
    await here.on_replica("SELECT pg_wal_replay_pause()")
    try:
        made = await reader.api.post("/v1/streams", account.token, {"id": "fresh"})
        assert made.status == 201
        assert "fresh" in await streams(reader, account.token)
        assert "fresh" in await streams(other, account.token)  # another process knows of the write through Redis
        assert "fresh" not in await streams(reader, colleague)  # another key sees the replica, which is paused
    finally:
        await here.on_replica("SELECT pg_wal_replay_resume()")
    await here.caught_up()
    assert "fresh" in await streams(reader, colleague)
    await settled(here, other, account.token)
    assert "fresh" in await streams(other, account.token)


async def test_a_key_lists_what_it_has_just_submitted_over_smtp(
    here: Replicated, reader: Reader, tmp_path: Path
) -> None:
    account = await make_account(here.pool)
    await settled(here, reader, account.token)
    async with relaying(here.settings, tmp_path) as relay, paused(here):
        client = await relay.logged_in(account)
        reply = await client.send(account, message(account))
        listed = await reader.api.get("/v1/messages", account.token)
    assert [one["id"] for one in listed.json["data"]] == [reply.split()[-1]]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/audit/events"])
async def test_no_page_is_older_than_the_page_before(here: Replicated, reader: Reader, path: str) -> None:
    account = await make_account(here.pool)
    colleague = await add_key(here.pool, account.id)
    await settled(here, reader, colleague)
    async with paused(here):
        for number in range(3):
            await reader.api.post("/v1/emails", account.token, account.email(subject=f"Number {number}"))
        first = await reader.api.get(f"{path}?limit=1", account.token)  # from the primary
        second = await reader.api.get(f"{path}?limit=1&before={first.json['nextCursor']}", colleague)
        rest = await reader.api.get(f"{path}?limit=100", account.token)
    assert second.json["data"] == rest.json["data"][1:2]


async def test_a_person_sees_what_they_changed_with_their_session(here: Replicated, reader: Reader) -> None:
    account = await make_account(here.pool)
    owner = await make_person(here.pool, account.id)
    await settled(here, reader, account.token)
    await asyncio.sleep(0)
    async with paused(here):
        made = await reader.api.post("/v1/streams", None, {"id": "by-hand"}, person=owner)
        assert made.status == 201
        seen = await reader.api.get("/v1/streams", person=owner)
        assert "by-hand" in {one["id"] for one in seen.json["data"]}
        assert "by-hand" not in await streams(reader, account.token)


async def test_a_new_key_and_a_new_session_see_what_came_before_them(here: Replicated, reader: Reader) -> None:
    async with paused(here):
        account = await make_account(here.pool)  # the replica does not have the account at all
        owner = await make_person(here.pool, account.id)
        assert (await reader.api.get("/v1/streams", account.token)).json["data"]
        assert (await reader.api.get("/v1/streams", person=owner)).json["data"]


async def test_a_refusal_of_a_replica_that_lacks_the_object_is_repeated_on_the_primary(
    here: Replicated, reader: Reader
) -> None:
    account = await make_account(here.pool)
    colleague = await add_key(here.pool, account.id)
    await settled(here, reader, colleague)
    async with paused(here):
        made = await reader.api.post("/v1/lists", account.token, {"name": "Readers"})
        assert made.status == 201
        found = await reader.api.get(f"/v1/lists/{made.json['id']}/opt-outs", colleague)
        assert found.status == 200


async def test_a_cursor_of_one_server_continues_on_the_other(here: Replicated, reader: Reader) -> None:
    account = await make_account(here.pool)
    for number in range(4):
        await reader.api.post("/v1/emails", account.token, account.email(subject=f"Number {number}"))
    await settled(here, reader, account.token)
    page = await reader.api.get("/v1/messages?limit=2", account.token)
    await reader.api.post("/v1/streams", account.token, {"id": "written"})  # the next page comes from the primary
    rest = await reader.api.get(f"/v1/messages?limit=2&before={page.json['nextCursor']}", account.token)
    await settled(here, reader, account.token)
    again = await reader.api.get(f"/v1/messages?limit=2&before={page.json['nextCursor']}", account.token)
    subjects = [one["subject"] for one in [*page.json["data"], *rest.json["data"]]]
    assert subjects == ["Number 3", "Number 2", "Number 1", "Number 0"]
    assert again.json == rest.json


async def test_a_read_that_waits_for_a_lock_on_the_replica_is_repeated_on_the_primary(
    here: Replicated, reader: Reader
) -> None:
    account = await make_account(here.pool)
    await settled(here, reader, account.token)
    repeated = reader.said("read repeated on the primary")
    async with here.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE streams IN ACCESS EXCLUSIVE MODE")
        locked = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'streams'::regclass AND mode LIKE 'AccessExc%')"
        await connection.execute("SELECT pg_logical_emit_message(true, 'tests', 'so that the lock is sent')")
        await here.pool.execute("SELECT pg_switch_wal()")
        await here.until(locked)
        await here.on_replica("SELECT pg_wal_replay_pause()")
        await transaction.rollback()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (
                reader.said("read repeated on the primary") == repeated
            ):  # Redis may be slow: then it asks the primary
                assert (await reader.api.get("/v1/streams", account.token)).status == 200
    finally:
        await here.on_replica("SELECT pg_wal_replay_resume()")


async def test_a_statement_that_the_replica_cancels_is_repeated_on_the_primary(
    here: Replicated, reader: Reader
) -> None:
    account = await make_account(here.pool)
    await settled(here, reader, account.token)
    repeated = reader.said("repeated on the primary")

    async def end_sessions() -> None:
        while reader.said("repeated on the primary") == repeated:
            await here.on_replica(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE application_name = 'waybill api replica' AND state = 'active'"
            )

    await without_error(reader, account.token, end_sessions)


async def test_every_operation_so_marked_only_reads_and_from_the_replica(
    here: Replicated, reader: Reader, settings: Settings
) -> None:
    estate = await furnish(reader.api, here.pool, await make_account(here.pool, plan="enterprise"), settings)
    operator = await an_operator(here)
    await here.caught_up()
    await settled(here, reader, estate.account.token)
    await settled_person(here, reader, operator)
    said = reader.said("repeated on the primary")
    wrong = []
    for operation in LAGGING:
        before = await here.last_read()
        answer = await ask(reader, operation, estate, operator)
        if answer.status != 200 or reader.said("repeated on the primary") != said:
            wrong.append(f"{name_of(operation)}: {answer.status}, repeated or refused")
            said = reader.said("repeated on the primary")
        elif await here.last_read() == before:
            wrong.append(f"{name_of(operation)}: not read from the replica")
    assert not wrong


async def test_without_redis_everything_is_read_from_the_primary(
    here: Replicated, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    away = structs.replace(here.settings, redis_url="unix:///nonexistent/valkey.sock")
    account = await make_account(here.pool)
    async with reading(away, tmp_path / "api.log", http) as reader:
        before = await here.last_read()
        for _ in range(5):
            assert (await reader.api.get("/v1/streams", account.token)).status == 200
        assert await here.last_read() == before


async def test_doctor_tells_a_replica_from_other_servers(here: Replicated, own_database: str) -> None:
    [well] = await replica_reads(here.settings)
    assert well.ok
    assert "replica, " in well.found
    [stranger] = await replica_reads(structs.replace(here.settings, database_read_url=own_database))
    assert not stranger.ok
    assert "belongs to another database system" in stranger.found
    [primary] = await replica_reads(structs.replace(here.settings, database_read_url=here.settings.database_url))
    assert not primary.ok
    assert "accepts writes" in primary.found
    nowhere = "postgresql://postgres@/postgres?host=/nonexistent"
    [away] = await replica_reads(structs.replace(here.settings, database_read_url=nowhere))
    assert not away.ok
    assert "unavailable" in away.found
    assert await replica_reads(structs.replace(here.settings, database_read_url=None)) == []


@contextlib.asynccontextmanager
async def paused(here: Replicated) -> AsyncIterator[None]:
    await here.on_replica("SELECT pg_wal_replay_pause()")
    try:
        yield
    finally:
        await here.on_replica("SELECT pg_wal_replay_resume()")


async def an_operator(here: Replicated) -> TestPerson:
    platform = await make_account(here.pool)
    operator = await make_person(here.pool, platform.id, "owner", email=ADDRESS)
    await people.SET_OPERATOR.execute(here.pool, operator.id, clock.now())
    return operator


async def settled_person(here: Replicated, reader: Reader, person: TestPerson) -> None:
    async with asyncio.timeout(PATIENCE_S):
        before = await here.last_read()
        while await here.last_read() == before:
            assert (await reader.api.get("/v1/streams", person=person)).status == 200
            await asyncio.sleep(0.2)


async def ask(reader: Reader, operation: Operation, estate: Estate, operator: TestPerson) -> Answer:
    things = estate.things
    path = operation.path.replace("{stream}", "outbound")
    for noun in ("templates", "lists", "webhooks"):
        path = path.replace(f"/{noun}/{{id}}", f"/{noun}/{things[noun[:-1]]}")
    if operation.for_operator:
        return await reader.api.get(path, person=operator)
    if operation.access.value == "session":
        return await reader.api.get(path, person=estate.owner)
    return await reader.api.get(path, estate.account.token)


async def without_error(reader: Reader, token: str, fault: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Read all the time until a fault is over; every read must succeed."""
    over = asyncio.create_task(fault())
    while not over.done():
        answers = await asyncio.gather(*[reader.api.get("/v1/messages", token) for _ in range(8)])
        assert {one.status for one in answers} == {200}
    await over
