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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import RelayClient, SendClient, plan
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import (
    SETTINGS,
    injected_faults,
    kept_if_failed,
    on_service,
    planned_client,
    reconcile_when_idle,
    report_after_faults,
    run_on,
    while_sending,
)
from loadtests.kit.accounts import first_access, new_access
from loadtests.kit.processes import child_pids
from loadtests.kit.service import Service, ServicePart

DISK_MB: Final = 400
ROOM_BYTES: Final = 3 << 20  # what the ballast leaves: less than the next WAL segment takes
LOG_MB: Final = 4
FULL_S: Final = 12.0
RATE: Final = 80.0
RELAY_RATE: Final = 8.0
BETWEEN_S: Final = 4.0
TRACED_S: Final = 6.0
_COPIES: Final = AllowedCopies(50, (CopyReason.POSTGRES_ENDED,))  # messages on the wire, whose commit is lost


# -- a full disk -------------------------------------------------------------------------------------------------------


def disk_full(order: DrillOrder) -> DrillReport:
    """Fill the disks of PostgreSQL (with its WAL) and of the logs, then free them."""
    return run_on_small_disk(lambda service, ballast: _disk_full(service, order, ballast), order.settings())


def run_on_small_disk(
    play: Callable[[Service, Sequence[Path]], Awaitable[DrillReport]], more: Mapping[str, str] | None = None
) -> DrillReport:
    """Run `play` on a new service whose disks the given files fill (`fill_for_a_while`)."""
    with kept_if_failed() as (folder, keep), small_disk(folder, more) as (service, ballast):
        return keep(run_on(service, lambda one: play(one, ballast)))


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
    access, other = first_access(service), await new_access(service.settings, "relay")
    client = planned_client(service, order, "disk-full", rate=RATE)
    sends = plan(order.messages // 10, "disk-relay")
    relay = RelayClient(service.submission_tls_port, other, sends, rate=RELAY_RATE, rng=order.rng)
    faults = injected_faults(
        lambda: asyncio.to_thread(fill_for_a_while, ballast), rounds=order.rounds, rng=order.rng,
        every_s=BETWEEN_S, rest_s=BETWEEN_S,
    )  # fmt: skip
    injected = await while_sending([client, relay], faults)
    report = await report_after_faults(service, access, client, injected, name="disk-full", allowed_copies=_COPIES)
    by_relay = await reconcile_when_idle(service, other, relay.sends, injected, name="disk-relay")
    report.checks += _refusals(client, relay)
    report.count(by_relay)
    report.checks += [Check(f"relay: {one.what}", one.ok, one.found) for one in by_relay.checks]
    report.figures["answers"] = dict(Counter(one.status for one in client.tried))
    return report


def fill_for_a_while(ballast: Sequence[Path]) -> str:
    """Fill the file systems of these files for `FULL_S`; return a description."""
    for file in ballast:
        fill_disk(file)
    time.sleep(FULL_S)  # the length of the fault
    for file in ballast:
        file.unlink()
    return "the disk was full"


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
    codes = Counter(found[1] for send in relay.sends if (found := re.search(r"Command\(['\"](\d{3})", send.refusal)))
    permanent = {code: count for code, count in codes.items() if not code.startswith("4")}
    return [
        Check("a full disk refuses sends by 503 only", not strange, f"{refused} by 503, {dict(strange)}"),
        Check("some sends were refused while the disk was full", refused > 0, f"{refused}"),
        Check("the relay refuses only temporarily", not permanent, f"{dict(codes)}"),
    ]


def _done(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=120)


# -- a failing disk ----------------------------------------------------------------------------------------------------


@on_service()
async def write_error(service: Service, order: DrillOrder) -> DrillReport:
    """Fail PostgreSQL's fdatasync with EIO; it must stop at once and recover."""
    client = planned_client(service, order, "write-error", rate=RATE)
    faults = injected_faults(
        lambda: asyncio.to_thread(_fail_syncs, service), rounds=order.rounds, rng=order.rng,
        every_s=BETWEEN_S, rest_s=BETWEEN_S,
    )  # fmt: skip
    injected = await while_sending([client], faults)
    report = await report_after_faults(
        service, first_access(service), client, injected, name="write-error", allowed_copies=_COPIES
    )
    log = service.state / "log" / "postgres.log"
    panics = log.read_text("utf-8", "replace").count("PANIC:")
    report.checks.append(Check("PostgreSQL stops with PANIC", panics > 0, f"{panics} in {log.name}"))
    return report


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
