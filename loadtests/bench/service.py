"""The separate service of benches: temporary folder, free ports, embedded servers with production durability.

It uses the parts of `ops up`, but delivery can be held back and the sink can keep one line per message instead of a
file. Everything is removed at the end; after a killed bench every process ends with its parent, and the next bench
removes the folder.
"""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from engine.base.plans import Plan
from engine.base.settings import HostPort, Settings
from engine.store.migrate import migrate
from engine.store.queries import Queries
from loadtests.bench.load import LoadTarget
from loadtests.bench.smtp_load import SmtpTarget
from loadtests.kit.accounts import ApiAccess
from loadtests.ports import reserve_ports
from ops import admin
from ops.host import launch, process_specs
from ops.host.postgres_server import PostgresServer
from ops.host.state import kept_pepper
from ops.host.supervise import ProcessSpec, StartFailed, Supervisor
from ops.host.valkey_server import ValkeyServer

DOMAIN: Final = "bench.test"
SENDER: Final = f"shop@{DOMAIN}"
CAP: Final = 10_000_000
READY_S: Final = 60.0
_CEILING: Final = 1_000_000_000
_RATE: Final = 1_000_000  # requests per second: the check runs, and never refuses
_FOLDER: Final = "waybill-bench-"
_ABANDONED_S: Final = 60.0
_PORTS: Final = (
    "api_port", "metrics_port", "sink_port", "dns_port", "submission_port", "submission_tls_port", "mx_port",
)  # fmt: skip
_MAX_FOLDER: Final = 40  # leaves room for a socket's name
_SQL = Queries.beside(__file__, "service.sql")
_ANY_QUEUED = _SQL.command("any_queued")
_WAL_POSITION = _SQL.command("wal_position")
_LOCK_QUEUE = _SQL.command("lock_queue")
_DISABLE_ED25519 = _SQL.command("disable_ed25519")


class BenchService:
    """A running service; `pool` is for queries of the bench."""

    def __init__(self, settings: Settings, supervisor: Supervisor, pool: asyncpg.Pool, access: ApiAccess) -> None:
        self.settings = settings
        self.pool = pool
        self.access = access
        self._supervisor = supervisor
        self._names = set(supervisor.pids())

    @property
    def base_url(self) -> str:
        """Return the base URL of its API."""
        return self.settings.public_url

    @property
    def sink_folder(self) -> Path:
        """Return the folder of the sink's index."""
        return self.settings.state / "sink"

    def target(
        self,
        *,
        connections: int,
        domains: int,
        batch: int = 1,
        access: ApiAccess | None = None,
        raw: bool = False,
        attached: int = 0,
    ) -> LoadTarget:
        """Return the target of a load process that sends from an account, by default the first one."""
        sender = access or self.access
        return LoadTarget(
            host=self.settings.api_host, port=self.settings.api_port, key=sender.key, sender=sender.sender,
            domains=domains, connections=connections, folder=str(self.settings.state), batch=batch, raw=raw,
            attached=attached,
        )  # fmt: skip

    def smtp_target(self, **options: Any) -> SmtpTarget:
        """Return the target of a load process that submits mail of the first account over SMTP."""
        return SmtpTarget(
            host=self.settings.api_host, port=self.settings.submission_tls_port, key=self.access.key, sender=SENDER,
            folder=str(self.settings.state), tls="implicit", **options,
        )  # fmt: skip

    def pids(self) -> dict[str, int]:
        """Return the main processes by name."""
        return self._supervisor.pids()

    def deaths(self) -> dict[str, int]:
        """Return how often each process ended unexpectedly; a measurement with any is invalid."""
        living = self.pids()
        counts = {name: self._supervisor.restarts(name) + (name not in living) for name in self._names}
        return {name: count for name, count in counts.items() if count}

    async def wal_position(self) -> tuple[int, float | None]:
        """Return the octets of WAL so far, and the mean size of the first account's stored messages."""
        [row] = await _WAL_POSITION.records(self.pool, self.access.account_id)
        return int(row["octets"]), row["message_bytes"]

    async def anything_queued(self, account: UUID | None = None) -> bool:
        """Return True while a delivery is pending, of one account or of any."""
        rows = await _ANY_QUEUED.records(self.pool, account)
        return bool(rows[0]["any_queued"])

    async def start_delivery(self) -> None:
        """Start the mta processes of a service that was not `delivering`; returns when they are ready."""
        names = [spec.name for spec in _mtas(self.settings)]
        for spec in _mtas(self.settings):
            self._supervisor.start(spec)
        await self._supervisor.wait_ready(*names, timeout_s=READY_S)
        self._names.update(names)

    @asynccontextmanager
    async def lock_queue(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Lock the queue table until the yielded function is called or the context ends.

        Hold it for less than the lock timeout of the service's own sessions (`engine.store.postgres`).
        """
        async with self.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            held = True

            async def unlock() -> None:
                nonlocal held
                held = False
                await transaction.rollback()

            try:
                # On a busy machine the mta processes start for longer than a session may be idle in a transaction.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                await _LOCK_QUEUE.execute(connection)
                yield unlock
            finally:
                if held:
                    await transaction.rollback()


class ServiceKind(msgspec.Struct, frozen=True, kw_only=True):
    """The ways in which a bench's service differs from that of an operator."""

    delivering: bool = True  # without, the mta processes wait for `start_delivery`
    tls: bool = False  # the sink offers STARTTLS
    rsa: bool = False  # mail is signed once, as for a domain without a published Ed25519 key
    zone: Mapping[str, Sequence[str]] | None = None  # TXT records for the local DNS responder, by name
    rtt_ms: float = 0.0  # the sink seems to be so far away


@asynccontextmanager
async def own_service(given: Settings, say: Callable[[str], None], kind: ServiceKind) -> AsyncIterator[BenchService]:
    """Run a service; enter from the main thread.

    `given` are the operator's settings: process counts, limits and timeouts are kept, paths, URLs and ports are
    replaced. Raises what `ops up` raises.
    """
    with _folder() as state:
        postgres, valkey = PostgresServer(state), ValkeyServer(state)
        try:
            async with Supervisor(say) as supervisor:
                try:
                    for server in (postgres, valkey):
                        server.prepare()
                        supervisor.start(process_specs.server(server))
                    await supervisor.wait_ready(timeout_s=READY_S)
                    settings = _settings(given, state, postgres.url, valkey.url)
                    await migrate(postgres.url)
                    async with admin.opened(settings) as pool:
                        access = await _start_all(settings, supervisor, pool, kind)
                        yield BenchService(settings, supervisor, pool, access)
                finally:
                    await _stop_all(supervisor)
        finally:
            postgres.forget_sockets()
            valkey.forget_sockets()
            shutil.rmtree(postgres.paths.base, ignore_errors=True)


async def _start_all(settings: Settings, supervisor: Supervisor, pool: asyncpg.Pool, kind: ServiceKind) -> ApiAccess:
    process_specs.empty_metrics(settings.state)
    behind = msgspec.structs.replace(settings, sink_port=reserve_ports(1)[0]) if kind.rtt_ms else settings
    for spec in process_specs.helpers(behind):
        is_sink = spec.name == "sink"
        supervisor.start(_measuring(spec, kind) if is_sink else _with_zone(spec, settings.state, kind.zone))
        if is_sink and kind.rtt_ms:
            supervisor.start(_distance(spec, settings.sink_port, behind.sink_port, kind.rtt_ms))
    await supervisor.wait_ready(timeout_s=READY_S)
    access = await make_access(settings, pool, DOMAIN)
    if kind.rsa:
        await _DISABLE_ED25519.execute(pool)
    mtas = {spec.name for spec in _mtas(settings)}
    for spec in process_specs.processes(settings):
        if kind.delivering or spec.name not in mtas:
            supervisor.start(spec)
    await supervisor.wait_ready(timeout_s=READY_S)
    return access


async def _stop_all(supervisor: Supervisor) -> None:
    """Kill all processes; the api ends first so that its workers end with it."""
    groups = list(supervisor.pids().values())
    await supervisor.stop("api")
    await supervisor.kill_all()
    for group in groups:  # each process leads a session of its own: what it forked goes too
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _mtas(settings: Settings) -> list[ProcessSpec]:
    return [spec for spec in process_specs.processes(settings) if spec.name.startswith("mta-")]


def _measuring(sink: ProcessSpec, kind: ServiceKind) -> ProcessSpec:
    """Let the sink keep one line per message: creating a file costs more than receiving the message."""
    more = ("--store-mode", "index", *(() if kind.tls else ("--no-tls",)))
    return dataclasses.replace(sink, argv=(*sink.argv, *more))


def _distance(sink: ProcessSpec, port: int, target: int, rtt_ms: float) -> ProcessSpec:
    """Return the relay in front of the sink; it counts among the sink's processes."""
    words = ["loadtests.bench.distance", "--port", str(port), "--target", str(target), "--rtt-ms", str(rtt_ms)]
    argv = tuple(launch.command([sys.executable, "-m", *words]))
    assert sink.log is not None  # benches leave logs in files
    return dataclasses.replace(sink, name="sink-distance", argv=argv, log=sink.log.with_name("sink-distance.log"))


def _with_zone(responder: ProcessSpec, state: Path, zone: Mapping[str, Sequence[str]] | None) -> ProcessSpec:
    """Let the DNS responder serve the records of `zone` too."""
    if zone is None:
        return responder
    file = state / "zone.json"
    file.write_bytes(msgspec.json.encode(zone))
    return dataclasses.replace(responder, argv=(*responder.argv, "--zone", str(file)))


async def make_access(settings: Settings, pool: asyncpg.Pool, domain: str, *, local: bool = True) -> ApiAccess:
    """Create an account with an API key and a verified domain; `local`: the local DNS responder must confirm it."""
    account = await admin.create_account(
        pool, name=domain, email=f"owner@{domain}", plan=Plan.ENTERPRISE, daily_cap=CAP, monthly_cap=CAP
    )
    public_id = account["accountId"]
    key = await admin.create_key(pool, settings, account=public_id, name="Bench", scopes=["all"])
    await admin.add_domain(pool, settings, account=public_id, name=domain, verified=not local)
    if local:
        checked = await admin.check_domain(pool, settings, account=public_id, name=domain)
        if checked is None or checked["status"] != "verified":
            raise StartFailed(f"The local DNS responder did not confirm {domain}: {checked}")
    return ApiAccess(public_id, key["apiKey"], f"shop@{domain}")


def _settings(given: Settings, state: Path, database_url: str, redis_url: str) -> Settings:
    ports = dict(zip(_PORTS, reserve_ports(len(_PORTS)), strict=True))
    return msgspec.structs.replace(
        given,
        state=state,
        database_url=database_url,
        redis_url=redis_url,
        key_pepper=kept_pepper(state),
        delivery="local",
        profile="full",
        api_host=process_specs.LOOPBACK,
        public_url=f"http://{process_specs.LOOPBACK}:{ports['api_port']}",
        dns_servers=(HostPort(process_specs.LOOPBACK, ports["dns_port"]),),
        allow_private_mx=True,
        request_rate=_RATE,
        platform_daily_ceiling=_CEILING,
        **ports,
    )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Create a state folder on a disk and remove it at the end, with folders of benches that were killed."""
    root = disk_folder()
    for abandoned in root.glob(f"{_FOLDER}*"):
        _clear(abandoned)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=root))
    folder.chmod(0o711)  # ours alone to list; the servers' user passes through
    with (folder / "bench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def disk_folder() -> Path:
    """Return the temporary folder, or /var/tmp if that is in memory (a sync costs nothing there) or has a long path."""
    usual = Path(tempfile.gettempdir())
    in_memory = filesystem(usual) in {"tmpfs", "ramfs"}
    return Path("/var/tmp") if in_memory or len(os.fsencode(usual)) > _MAX_FOLDER else usual  # noqa: S108 - mkdtemp follows


def filesystem(path: Path) -> str:
    """Return the type of the file system of `path`, such as `ext4`; "" if unknown."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, point, name, *_ = line.split(" ")
            inside = path.absolute().is_relative_to(point)
            if inside and len(point) >= len(best):
                best, kind = point, name
    return kind


def _clear(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - folder.stat().st_mtime < _ABANDONED_S or folder.is_symlink():
            return
        with (folder / "bench.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
