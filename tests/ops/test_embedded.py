"""The embedded servers: private, durable, restartable after a kill, and one owner per state folder."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import asyncpg
import pytest
import redis.asyncio as redis

from ops.host import embedded, server_paths
from ops.host import temporary_servers as temporary
from ops.host.postgres_server import PostgresServer
from ops.host.server_paths import CannotServe
from ops.host.state import AlreadyRunning, StateLock, UnusableState, bound_log, holder, kept_pepper, make_state, tail
from ops.host.temporary_servers import Temporary, temporary_servers
from ops.host.valkey_server import ValkeyServer
from tests.harness import shared_memory

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def servers() -> Iterator[Temporary]:
    with temporary_servers() as pair:
        yield pair


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that a root's server user can pass through; pytest's own is closed."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


async def scalar(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.exhaustive
async def test_both_servers_answer_on_unix_sockets(servers: Temporary) -> None:
    assert await scalar(servers.database_url, "SELECT current_setting('server_version_num')::int / 10000 >= 15")
    assert await scalar(servers.database_url, "SELECT current_setting('listen_addresses')") == ""
    assert await scalar(servers.database_url, "SELECT current_setting('TimeZone')") == "UTC"
    client = redis.Redis.from_url(servers.redis_url)
    assert await client.ping()
    assert (await client.config_get("port"))["port"] == "0"
    await client.aclose()


def test_data_and_sockets_are_closed_to_other_users(servers: Temporary) -> None:
    base = servers.postgres.paths.base
    for folder in (servers.postgres.data, base / "valkey", servers.postgres.socket_folder()):
        status = folder.stat()
        assert stat.S_IMODE(status.st_mode) == 0o700
        assert status.st_uid != 0, "a server never runs as root"


@pytest.mark.exhaustive
async def test_a_durable_server_syncs_every_commit(open_path: Path) -> None:
    server = PostgresServer(open_path)
    server.prepare()
    words = server.argv()

    assert {"fsync=on", "synchronous_commit=on", "full_page_writes=on"} <= set(words)


async def test_committed_rows_survive_a_killed_postmaster(servers: Temporary) -> None:
    connection = await asyncpg.connect(servers.database_url)
    await connection.execute("CREATE TABLE kept (n int); SET synchronous_commit = on; INSERT INTO kept VALUES (7)")
    first = servers.postgres.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    servers.postgres.start()
    connection.terminate()

    assert servers.postgres.pid != first
    assert await scalar(servers.database_url, "SELECT n FROM kept") == 7


async def test_an_orderly_stop_keeps_streams_and_starts_again(servers: Temporary) -> None:
    client = redis.Redis.from_url(servers.redis_url)
    await client.xadd("hints", {"id": "1"})
    await client.aclose()
    servers.valkey.stop()
    assert not servers.valkey.alive()
    servers.valkey.start()

    client = redis.Redis.from_url(servers.redis_url)
    assert await client.xlen("hints") == 1
    await client.aclose()


def test_a_pid_file_that_names_a_stranger_does_not_block_the_start(servers: Temporary) -> None:
    servers.postgres.stop()
    stranger = subprocess.Popen(["/bin/sleep", "60"], cwd="/")
    try:
        for file in (servers.postgres.data / "postmaster.pid", servers.postgres.socket_folder() / ".s.PGSQL.5432.lock"):
            file.write_text(f"{stranger.pid}\n{servers.postgres.data}\n1\n5432\n/x\n\n0 0\nready\n")
            file.chmod(0o644)
        servers.postgres.start()
    finally:
        stranger.kill()
        stranger.wait()

    assert servers.postgres.alive()


def test_a_long_state_path_gets_a_short_socket_folder(open_path: Path) -> None:
    server = ValkeyServer(open_path / ("long" * 20))
    folder = server.socket_folder()

    assert len(os.fsencode(server.socket)) <= 100
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    server.forget_sockets()
    assert not folder.exists()


def test_existing_data_of_an_unavailable_version_is_not_touched(open_path: Path) -> None:
    server = PostgresServer(open_path)
    data = server.paths.base / "pg99"
    data.mkdir(mode=0o700)
    (data / "PG_VERSION").write_text("99\n")

    with pytest.raises(CannotServe, match="postgresql-99"):
        server.prepare()


def test_a_server_that_cannot_start_shows_the_end_of_its_log(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "RESTART_WINDOW_S", 0.0)
    monkeypatch.setattr(ValkeyServer, "argv", lambda self: [str(self._program), "--no-such-option", "1"])

    with pytest.raises(CannotServe, match=r"valkey did not start[\s\S]*no-such-option"):
        ValkeyServer(open_path).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands servers to another user")
def test_a_folder_closed_to_the_servers_user_is_left_closed(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_paths, "SHARED", open_path / "shared")
    closed = open_path / "home"
    closed.mkdir(mode=0o700)

    paths = server_paths.find_paths(closed / "state")

    assert paths.base.parent == open_path / "shared"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert server_paths.find_paths(closed / "state").base == paths.base
    assert server_paths.runs(["/bin/sh", "-c", f"cd {paths.base}"], paths.identity)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands servers to another user")
def test_a_new_state_folder_does_not_get_the_data_of_a_deleted_one(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_paths, "SHARED", open_path / "shared")
    state = open_path / "home" / "state"
    state.parent.mkdir(mode=0o700)
    bases = []
    for _ in range(3):
        bases.append(server_paths.find_paths(state).base)
        (bases[-1] / "pg17").mkdir()
        (bases[-1] / "pg17" / "PG_VERSION").write_text("17\n")
        os.chown(bases[-1] / "pg17", 1, 1)
        again = server_paths.find_paths(state)
        assert (again.base, server_paths.earlier_data(again)) == (bases[-1], sorted(bases[:-1]))
        shutil.rmtree(state)

    assert len(set(bases)) == 3
    assert all((base / "pg17" / "PG_VERSION").exists() for base in bases)
    state.mkdir(mode=0o700)
    (state / "pepper").write_text("of the first data")  # the state folder was copied without its link
    assert server_paths.find_paths(state).base == bases[0]


def test_servers_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "pids"
    code = (
        "import time\nfrom pathlib import Path\nfrom ops.host.temporary_servers import temporary_servers\n"
        "with temporary_servers() as s:\n"
        f" Path({str(report)!r}).write_text(f'{{s.postgres.pid}} {{s.valkey.pid}} {{s.folder}}')\n time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as starter:
        deadline = time.monotonic() + 60
        while not (report.exists() and report.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        postgres, valkey, folder = report.read_text().split()
        segments = shared_memory.held_by(int(postgres))
        starter.kill()

    while not (gone(int(postgres)) and gone(int(valkey))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(int(postgres))
    assert gone(int(valkey))
    assert shared_memory.left(segments) == set()
    os.utime(folder, (0, 0))
    temporary._clear_abandoned(Path(folder).parent)
    assert not Path(folder).exists()


def test_servers_leave_no_shared_memory_when_they_end() -> None:
    with temporary_servers() as pair:
        assert pair.postgres.pid is not None
        first = shared_memory.held_by(pair.postgres.pid)
        pair.postgres.kill()
        pair.postgres.start()
        segments = shared_memory.held_by(pair.postgres.pid)
        assert bool(segments) == Path("/proc/sysvipc/shm").exists()

    assert shared_memory.left(first | segments) == set()


def test_a_second_start_on_a_state_folder_fails_at_once_and_names_the_first(tmp_path: Path) -> None:
    with StateLock(tmp_path):
        assert holder(tmp_path) == os.getpid()
        with (
            pytest.raises(AlreadyRunning, match=rf"process {os.getpid()}\)\. Stop it with"),
            StateLock(tmp_path),
        ):
            pass
    assert holder(tmp_path) is None
    with StateLock(tmp_path):
        pass


def test_looking_for_the_holder_does_not_keep_a_start_from_its_lock(tmp_path: Path) -> None:
    with StateLock(tmp_path):
        pass
    done = Event()

    def look() -> None:
        while not done.is_set():
            holder(tmp_path)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(look)
        for _ in range(20):
            with StateLock(tmp_path):
                pass
        done.set()


def test_the_pepper_is_made_once_and_private(tmp_path: Path) -> None:
    pepper = kept_pepper(tmp_path)

    assert len(bytes.fromhex(pepper)) == 32
    assert kept_pepper(tmp_path) == pepper
    assert stat.S_IMODE((tmp_path / "pepper").stat().st_mode) == 0o600


def test_a_damaged_pepper_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "pepper").write_text("abc")
    with pytest.raises(UnusableState, match="backup"):
        kept_pepper(tmp_path)


def test_a_state_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(UnusableState, match="WAYBILL_STATE"):
        make_state(tmp_path / "state")


def test_a_new_state_folder_cannot_be_listed_by_others(tmp_path: Path) -> None:
    state = make_state(tmp_path / "a" / "state")
    assert stat.S_IMODE(state.stat().st_mode) & 0o066 == 0


def test_a_log_over_its_limit_is_set_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 100)
        bound_log(log, 100)
        writer.write(b"new\n")

    assert log.read_text() == "new\n"
    assert (tmp_path / "x.log.1").stat().st_size == 400
    assert tail(log) == "new"
    bound_log(tmp_path / "absent.log")
