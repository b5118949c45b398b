"""The lifetime of a tail: heartbeats, idleness, stops, readers that do not read, killed workers."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.store.postgres import close_pool, open_pool
from tests.conftest import NewDatabase
from tests.harness import logbook
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, server_pid, serving
from tests.harness.service import until
from tests.harness.sse import following

HEARTBEAT_S, IDLE_S, WRITE_S, LEASE_S = 0.4, 4.0, 1.0, 2.0


@pytest.fixture(scope="module")
def brisk(settings: Settings) -> Settings:
    """Settings whose times fit a test."""
    return structs.replace(
        settings, tail_heartbeat_s=HEARTBEAT_S, tail_idle_s=IDLE_S, tail_lease_s=LEASE_S, stream_write_s=WRITE_S
    )


@pytest.fixture(scope="module")
def brisk_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("brisk") / "api.log"


@pytest.fixture(scope="module")
def brisk_url(brisk: Settings, brisk_log: Path) -> Iterator[str]:
    with serving(brisk, brisk_log) as url:
        yield url


@pytest.fixture(scope="module")
def brisk_api(brisk_url: str, http: aiohttp.ClientSession) -> Api:
    return Api(brisk_url, http)


async def test_heartbeats_come_at_their_interval_and_carry_the_place_reached(
    brisk_api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    async with following(brisk_api, account.token, "?stream=news") as tail:
        began = time.monotonic()
        await tail.next()
        await logbook.many(pool, account.id, 7)
        beats = [await tail.next() for _ in range(3)]
        took = time.monotonic() - began

    assert [one.name for one in beats] == ["heartbeat"] * 3
    assert [beats[-1].id, beats[-1].data["seq"]] == [7, 7]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", beats[0].data["at"])
    assert took >= 3 * HEARTBEAT_S - 0.05


@pytest.mark.exhaustive
async def test_a_tail_without_a_message_event_is_closed_and_says_why(brisk_api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with following(brisk_api, account.token) as tail:
        await tail.next()
        for _ in range(3):  # each keeps it open, an event of the account does not
            await asyncio.sleep(IDLE_S / 2)
            place = await logbook.many(pool, account.id, 1)
            await tail.until("message")
        at = time.monotonic()
        await logbook.write(pool, account.id, ("domain.added", {}))
        bye = await tail.until("bye")

        assert time.monotonic() - at >= IDLE_S - 0.1
        assert bye.data["reason"] == "idle"
        assert bye.id == place + 1
        with pytest.raises(EOFError):
            await tail.next()


async def test_a_reader_who_comes_back_with_the_id_of_ready_misses_nothing(brisk_api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 3)
    async with following(brisk_api, account.token, "?replay=0") as tail:
        ready = await tail.next()
    await logbook.many(pool, account.id, 2)

    async with following(brisk_api, account.token, headers={"Last-Event-ID": str(ready.id)}) as tail:
        assert [one.id for one in await tail.messages(2)] == [4, 5]


async def test_a_stop_says_bye_to_every_tail_and_gives_the_places_back(
    brisk: Settings, pool: asyncpg.Pool, http: aiohttp.ClientSession, api_log: Path
) -> None:
    account = await make_account(pool)
    steady = structs.replace(brisk, tail_idle_s=60.0, tail_lease_s=60.0)
    with serving(steady, api_log) as url:
        async with (
            following(Api(url, http), account.token) as one,
            following(Api(url, http), account.token) as other,
        ):
            await one.next()
            await other.next()
            os.kill(server_pid(url), signal.SIGTERM)
            for tail in (one, other):
                assert (await tail.until("bye")).data["reason"] == "shutdown"
                with pytest.raises(EOFError):
                    await tail.next()

            async def gone() -> bool:
                return not _listens(url)

            async def free() -> bool:
                return not await pool.fetchval("SELECT count(*) FROM tail_slots WHERE account_id = $1", account.id)

            await until(gone)
            await until(free)  # the places are given back after the port is closed


@pytest.mark.exhaustive
async def test_places_of_a_worker_that_was_killed_come_back_by_themselves(
    brisk: Settings, pool: asyncpg.Pool, http: aiohttp.ClientSession, api_log: Path
) -> None:
    account = await make_account(pool)
    steady = structs.replace(brisk, tail_idle_s=60.0, tail_lease_s=3 * LEASE_S)
    with serving(steady, api_log) as url, serving(steady, api_log) as other:
        doomed, living = Api(url, http), Api(other, http)
        async with (
            following(doomed, account.token) as one, following(doomed, account.token) as two,
            following(doomed, account.token) as three, following(living, account.token) as four,
            following(living, account.token) as five,
        ):  # fmt: skip
            for tail in (one, two, three, four, five):
                await tail.next()
            assert (await living.get("/v1/messages/tail", account.token)).status == 429
            assert (await doomed.get("/v1/messages/tail", account.token)).status == 429
            await asyncio.sleep(3 * LEASE_S)  # held: leases are renewed
            assert (await living.get("/v1/messages/tail", account.token)).status == 429

            for worker in _workers(url):
                os.kill(worker, signal.SIGKILL)

            async def free() -> bool:
                async with following(living, account.token) as again:
                    return again.status == 200

            await until(free)


async def test_a_place_lost_to_others_ends_its_tail(brisk_api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with following(brisk_api, account.token) as tail:
        await tail.next()
        await pool.execute(
            "UPDATE tail_slots SET holder = gen_random_uuid(), expires_at = now() + interval '1 minute'"
            " WHERE account_id = $1",
            account.id,
        )
        assert (await tail.until("bye")).data["reason"] == "too_many_streams"


async def test_places_lost_in_a_crash_of_the_database_are_taken_again(brisk_api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with following(brisk_api, account.token) as tail:
        await tail.next()
        await pool.execute("DELETE FROM tail_slots WHERE account_id = $1", account.id)

        async def taken() -> bool:
            found = "SELECT count(*) FROM tail_slots WHERE account_id = $1"
            return bool(await pool.fetchval(found, account.id) == 1)

        await until(taken)
        assert tail.status == 200


@pytest.mark.exhaustive
async def test_a_tail_outlives_an_outage_of_the_database_and_misses_nothing(
    settings: Settings, new_database: NewDatabase, http: aiohttp.ClientSession, api_log: Path
) -> None:
    url = await new_database()
    pool = await open_pool(url, name="tests")
    account = await make_account(pool)
    steady = structs.replace(settings, database_url=url, tail_heartbeat_s=HEARTBEAT_S, tail_lease_s=LEASE_S)
    with serving(steady, api_log) as base_url:
        async with following(Api(base_url, http), account.token) as tail:
            await tail.next()
            ends = time.monotonic() + LEASE_S + 1
            while time.monotonic() < ends:  # no session lives long enough to look or to renew a lease
                await pool.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name = 'waybill api'"
                )
                await logbook.many(pool, account.id, 5)
                await asyncio.sleep(0.02)
            last = await logbook.many(pool, account.id, 100)

            assert [one.id for one in await tail.messages(last)] == list(range(1, last + 1))

            async def held() -> bool:
                found = "SELECT count(*) FROM tail_slots WHERE account_id = $1 AND expires_at > now()"
                return bool(await pool.fetchval(found, account.id) == 1)

            await until(held)
    await close_pool(pool)


async def test_a_reader_that_hangs_up_is_noticed_without_an_event(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with following(api, account.token) as tail:
        await tail.next()
        tail.drop()

        async def free() -> bool:
            return not await pool.fetchval("SELECT count(*) FROM tail_slots WHERE account_id = $1", account.id)

        await until(free, 10.0)  # the first heartbeat comes after 15 seconds


@pytest.mark.exhaustive
async def test_a_reader_that_never_reads_is_cut_and_costs_a_bounded_buffer(
    brisk: Settings, pool: asyncpg.Pool, http: aiohttp.ClientSession, api_log: Path
) -> None:
    account = await make_account(pool)
    await logbook.write(pool, account.id, *[("deferred", {"diagnostic": "x" * 2_000})] * 10_000)  # 20 MB and more

    async def places() -> int:
        return int(await pool.fetchval("SELECT count(*) FROM tail_slots WHERE account_id = $1", account.id))

    def told() -> str:
        return api_log.read_text()[-2_000:]

    patient = structs.replace(brisk, tail_idle_s=600.0, stream_write_s=5.0)  # a reader on a busy machine is not cut
    with serving(patient, api_log) as url:
        (worker,) = _workers(url)
        async with following(Api(url, http), account.token, "?after=0") as reader:  # everything warm
            await reader.messages(10_000)
        before = _resident_mb(worker)
        lazy = [_deaf(url, account) for _ in range(4)]
        try:

            async def taken() -> bool:
                return await places() == 4

            async def cut() -> bool:
                return await places() == 0

            async def logged() -> bool:
                return api_log.read_text().count("stream closed") == 4

            await until(taken)
            await until(cut, why=told)
            await until(logged, why=told)
            assert _resident_mb(worker) - before < 20

            async def closed() -> bool:
                return not any(_open_at_server(url, one) for one in lazy)

            await until(closed)  # by the kernel, which would wait for ever without a bound
            async with following(Api(url, http), account.token, "?after=9990") as reader:
                assert len(await reader.messages(10)) == 10
        finally:
            for one in lazy:
                one.close()


async def test_three_clients_of_other_people_read_the_same(brisk_api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.write(pool, account.id, *[("deferred", {"text": "zwölf 漢字 \r\n\u2028", "n": n}) for n in range(50)])
    url, headers = f"{brisk_api.base_url}/v1/messages/tail?after=0", {"Authorization": f"Bearer {account.token}"}

    found = await asyncio.gather(
        asyncio.to_thread(_with_httpx_sse, url, headers),
        asyncio.to_thread(_with_sseclient, url, headers),
        asyncio.to_thread(_with_curl, url, headers),
    )

    own = await brisk_api.get("/v1/events?limit=1000", account.token)
    expected = [(str(one["seq"]), one["id"], one["detail"]["text"]) for one in own.json["data"]]
    assert len(expected) == 50
    for messages, last in found:
        assert messages == expected
        assert last == "idle"


Read = tuple[list[tuple[str, str, str]], str]


def _with_httpx_sse(url: str, headers: dict[str, str]) -> Read:
    import httpx
    import httpx_sse

    with httpx.Client(timeout=30) as client, httpx_sse.connect_sse(client, "GET", url, headers=headers) as source:
        return _read((one.event, one.id, one.data) for one in source.iter_sse())


def _with_sseclient(url: str, headers: dict[str, str]) -> Read:
    import sseclient

    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return _read((one.event, one.id or "", one.data) for one in sseclient.SSEClient(response).events())


def _with_curl(url: str, headers: dict[str, str]) -> Read:
    words = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    done = subprocess.run(
        ["curl", "-sS", "-N", "--max-time", "30", *words, url], capture_output=True, check=True, timeout=40
    )
    blocks = [dict(line.split(": ", 1) for line in one.split("\n")) for one in done.stdout.decode().split("\n\n")[:-1]]
    return _read((one["event"], one.get("id", ""), one["data"]) for one in blocks)


def _read(events: Iterator[tuple[str, str, str]]) -> Read:
    messages, last = [], ""
    for name, place, data in events:
        said = json.loads(data)
        if name == "message":
            messages.append((place, said["id"], said["detail"]["text"]))
        if name == "bye":
            last = said["reason"]
    return messages, last


def _deaf(url: str, account: TestAccount) -> socket.socket:
    """A connection with a small buffer that asks for everything and never reads."""
    host, port = url.removeprefix("http://").split(":")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((host, int(port)))
    head = f"GET /v1/messages/tail?after=0 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {account.token}\r\n\r\n"
    one.sendall(head.encode())
    return one


def _open_at_server(url: str, client: socket.socket) -> bool:
    """Whether the server's end of the connection still stands (/proc/net/tcp, state 01)."""
    ports = (int(url.rpartition(":")[2]), client.getsockname()[1])
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if tuple(int(one.split(":")[1], 16) for one in (local, remote)) == ports:
            return state == "01"
    return False


def _workers(url: str) -> list[int]:
    main = server_pid(url)
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _parent(int(entry.name)) == main
    ]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _listens(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
