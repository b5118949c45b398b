"""Drills of disk faults: a full disk and a disk that fails to write. Linux and root only.

The faults affect only the drill's own service: a small tmpfs over its database folder, a tracer on its PostgreSQL.
"""

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import InjectedFault
from loadtests.drill.fresh_service import SETTINGS, first_access, new_access, run_on_service
from loadtests.drill.kill_drills import reconcile_when_idle, report_after_faults
from loadtests.drill.reconciliation import Reconciliation, checks_of
from loadtests.drill.relay_client import RelayClient
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import SendClient, plan
from loadtests.drill.service import Service, ServicePart, child_pids, clear, make_folder

DISK_MB: Final = 400
ROOM_BYTES: Final = 3 << 20  # what the ballast leaves: less than the next WAL segment takes
LOG_MB: Final = 4
FULL_S: Final = 12.0
RATE: Final = 80.0
RELAY_RATE: Final = 8.0
BETWEEN_S: Final = 4.0
TRACED_S: Final = 6.0
_COPIES: Final = 50  # messages on the wire whose commit is lost with PostgreSQL


# -- row 12 ------------------------------------------------------------------------------------------------------------


def disk_full(order: DrillOrder) -> DrillReport:
    """Fill the disks of PostgreSQL (with its WAL) and of the logs, then free them (fault 12)."""
    folder = make_folder()
    keep = True
    try:
        with small_disk(folder) as (service, ballast):
            report = asyncio.run(_disk_full(service, order, ballast))
            status = service.stop()
            report.checks.append(Check("the service stops cleanly", status == 0, f"status {status}"))
            keep = not report.passed
        return report
    finally:
        if not keep:
            clear(folder)


@contextmanager
def small_disk(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[tuple[Service, tuple[Path, ...]]]:
    """Run a service with database and logs on small file systems; yield it and the files that fill them."""
    service = Service(folder, SETTINGS | dict(more or {}))
    log = service.state / "log"
    mounted: list[Path] = []
    try:
        service.start()
        service.stop()
        data = next(path for at in ("", "embedded") for path in (service.state / at).resolve().glob("pg[0-9][0-9]"))
        owner = data.stat()
        for place, size_mb in ((data, DISK_MB), (log, LOG_MB)):
            aside = place.with_name(place.name + ".aside")
            place.rename(aside)
            place.mkdir(mode=0o700)
            _done("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=0700", "tmpfs", str(place))
            mounted.append(place)
            _done("cp", "-a", f"{aside}/.", str(place))
            shutil.rmtree(aside)
        os.chown(data, owner.st_uid, owner.st_gid)
        service.start()
        yield service, (data / "ballast", log / "ballast")
    finally:
        service.kill()
        for place in mounted:
            _done("umount", "-l", str(place))


async def _disk_full(service: Service, order: DrillOrder, ballast: Sequence[Path]) -> DrillReport:
    access, other = first_access(service), await new_access(service, "relay")
    client = SendClient(service.base_url, access, plan(order.messages, "disk-full"), rate=RATE, rng=order.rng)
    relay = RelayClient(
        service.submission_tls_port, other, plan(order.messages // 10, "disk-relay"), rate=RELAY_RATE, rng=order.rng
    )
    injected, over = [], asyncio.Event()

    async def fill() -> None:
        try:
            for _ in range(order.rounds):
                await asyncio.sleep(BETWEEN_S)
                at = time.time()
                for file in ballast:
                    await asyncio.to_thread(fill_disk, file)
                await asyncio.sleep(FULL_S)
                for file in ballast:
                    file.unlink()
                injected.append(InjectedFault("the disk was full", at, time.time()))
            await asyncio.sleep(BETWEEN_S)
        finally:
            over.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run(over))
        tasks.create_task(relay.run(over))
        tasks.create_task(fill())

    async def extra_checks(_: Reconciliation) -> list[Check]:
        by_relay = await reconcile_when_idle(service, other, relay.sends, injected, name="disk-relay")
        return [
            *_refusals(client, relay),
            *[Check(f"relay: {one.what}", one.ok, one.found) for one in checks_of(by_relay)],
        ]

    report = await report_after_faults(
        service, access, client, injected, name="disk-full", max_copies=_COPIES, extra_checks=extra_checks
    )
    report.figures["answers"] = dict(Counter(one.status for one in client.tried))
    return report


def fill_disk(file: Path) -> None:
    """Fill the file system except for `ROOM_BYTES`."""
    room = os.statvfs(file.parent)
    with file.open("wb") as taken:
        os.posix_fallocate(taken.fileno(), 0, max(4096, room.f_bavail * room.f_frsize - ROOM_BYTES))
        with suppress(OSError):  # the rest, to the last page
            while True:
                os.write(taken.fileno(), bytes(65_536))


def _refusals(client: SendClient, relay: RelayClient) -> list[Check]:
    strange = Counter(one.status for one in client.tried if one.status not in (0, 200, 202, 503))
    refused = sum(one.status == 503 for one in client.tried)
    codes = Counter(found[1] for send in relay.sends if (found := re.search(r"Refused\(['\"](\d{3})", send.refusal)))
    permanent = {code: count for code, count in codes.items() if not code.startswith("4")}
    return [
        Check("a full disk refuses sends by 503 only", not strange, f"{refused} by 503, {dict(strange)}"),
        Check("some sends were refused while the disk was full", refused > 0, f"{refused}"),
        Check("the relay refuses only temporarily", not permanent, f"{dict(codes)}"),
    ]


def _done(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=120)


# -- row 13 ------------------------------------------------------------------------------------------------------------


def write_error(order: DrillOrder) -> DrillReport:
    """Fail PostgreSQL's fdatasync with EIO (fault 13); it must stop at once and recover."""

    async def play(service: Service) -> DrillReport:
        access = first_access(service)
        client = SendClient(service.base_url, access, plan(order.messages, "write-error"), rate=RATE, rng=order.rng)
        log = service.state / "log" / "postgres.log"
        injected, over = [], asyncio.Event()

        async def strikes() -> None:
            try:
                for _ in range(order.rounds):
                    await asyncio.sleep(BETWEEN_S)
                    at = time.time()
                    injected.append(InjectedFault(await asyncio.to_thread(_fail_syncs, service), at, time.time()))
                await asyncio.sleep(BETWEEN_S)
            finally:
                over.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.run(over))
            tasks.create_task(strikes())

        async def extra_checks(_: Reconciliation) -> list[Check]:
            panics = log.read_text("utf-8", "replace").count("PANIC:")
            return [Check("PostgreSQL stops with PANIC", panics > 0, f"{panics} in {log.name}")]

        return await report_after_faults(
            service, access, client, injected, name="write-error", max_copies=_COPIES, extra_checks=extra_checks
        )

    return run_on_service(play)


def _fail_syncs(service: Service) -> str:
    """Make every fdatasync and fsync of PostgreSQL fail with EIO for TRACED_S; return a description."""
    pids = [pid for main in service.pids(ServicePart.POSTGRES) for pid in child_pids(main)]
    words = ["strace", "-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO"]
    for pid in pids:
        words += ["-p", str(pid)]
    tracer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, output = tracer.communicate(timeout=TRACED_S)
    except subprocess.TimeoutExpired:
        tracer.terminate()
        _, output = tracer.communicate(timeout=10)
    injected = output.count(b"(INJECTED)")
    return f"EIO for {injected} syncs of {len(pids)} processes"
