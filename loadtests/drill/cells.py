"""A drill that moves an account between cells under load, and kills the mover after each of its steps.

Three cells run on this machine behind two fronts, with one directory. Clients know the fronts alone: they send over
HTTP and SMTP, and repeat what was refused or not answered, at the other front. Each front is killed in the middle of a
move and started again, and at last a cell. Every message is counted over all cells; accounts that do not move are sent
from at the same time.
"""

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from engine.accounts.audit import store as audit
from engine.cells.directory import Cell, Directory, migrate_directory
from engine.store.sink_folder import INDEX
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import PlanClient, RelayClient, Send, SendClient, plan
from loadtests.drill.faults import InjectedFault
from loadtests.drill.reconciliation import reconcile
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport, combined
from loadtests.drill.running import ON_THE_WIRE, SETTINGS, kept_if_failed, until_empty, while_sending
from loadtests.kit.accounts import ApiAccess, new_access
from loadtests.kit.service import START_TIMEOUT_S, Service
from ops.account_moves.move import STEPS
from ops.host.process_specs import ROOT
from ops.host.temporary_servers import temporary_servers
from ops.local.sink_store import entries

NAMES: Final = ("one", "two", "three")
RATE: Final = 10.0  # messages a second of each account: three cells share the machine
MOVE_S: Final = 180.0
FRONT_DIES_S: Final = 4.0  # after the begin of a move, at most: about as long as one takes
_ASK_S: Final = 0.1
DOORS: Final = ("left", "right")  # the names of the fronts
_HOMES: Final = {"mover": "one", "neighbor": "one", "second": "two", "third": "three"}
_BEHIND: Final = {
    "PROFILE": "small", "HTTP_PROXY_NETWORKS": "127.0.0.0/8", "PROXY_NETWORKS": "127.0.0.1/32",
}  # fmt: skip
_BY_SMTP: Final = ("mover", "second")  # which send over SMTP too


class _Cells(Struct, frozen=True):
    services: dict[str, Service]
    fronts: list[Service]
    directory: Directory
    directory_url: str

    async def of(self, access: ApiAccess) -> str:
        """Return the cell of an account that does not move."""
        placement = await self.directory.cell_of(access.account_id)
        assert placement is not None
        assert placement.cell is not None
        assert placement.moving_to is None
        return placement.cell

    def clients(self, name: str, access: ApiAccess, order: DrillOrder) -> list[PlanClient]:
        """Return the clients of an account, which know the fronts alone."""
        urls, ports = [one.base_url for one in self.fronts], [one.submission_tls_port for one in self.fronts]
        count, run = order.messages // 4, f"{name}-{secrets.token_hex(3)}"
        found: list[PlanClient] = [
            SendClient(urls[0], access, plan(count, run), others=urls[1:], rate=RATE, rng=order.rng)
        ]
        if name in _BY_SMTP:
            sends = plan(count // 2, f"{run}-smtp")
            found.append(RelayClient(ports[0], access, sends, others=ports[1:], rate=RATE / 2, rng=order.rng))
        return found


class _Moves:
    """Moves one account, and remembers what was done."""

    def __init__(self, cells: _Cells, access: ApiAccess) -> None:
        self._cells = cells
        self._access = access
        self._urls = {name: service.database_url for name, service in cells.services.items()}
        self.pauses: list[float] = []
        self.done: list[InjectedFault] = []
        self.wrong: list[str] = []

    async def to(self, target: str, source: str, *, killed_after: str = "", must_fail: bool = False) -> None:
        """Run the mover; a killed one is run again, which must finish."""
        began = time.time()
        status, output = await self._run(source, target, killed_after)
        if killed_after:
            if status != -signal.SIGKILL:
                self.wrong.append(f"not killed after {killed_after}: {status} {output}")
            status, output = await self._run(source, target, "")
            if killed_after == STEPS[-1] and status == 1 and "already" in output:
                status = 0
        elif status == 0:
            self.pauses.append(float(output))
        if (status != 0) is not must_fail:
            self.wrong.append(f"{source} to {target}: {status} {output}")
        label = f"{source} to {target}" + (f", killed when {killed_after}" if killed_after else "")
        self.done.append(InjectedFault(label, began, time.time()))

    async def _run(self, source: str, target: str, last_step: str) -> tuple[int, str]:
        services = self._cells.services
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loadtests.drill.move_process", self._cells.directory_url,
            self._urls[source], self._urls[target], source, target, str(self._access.account_id), last_step or "-",
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=services[source].environ,
        )  # fmt: skip
        async with asyncio.timeout(MOVE_S):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, (out if process.returncode == 0 else err).decode().strip()[-300:]


def run(order: DrillOrder) -> DrillReport:
    """Move an account between three cells under load; kill the mover after each step, a front, and then a cell."""
    with kept_if_failed() as (folder, keep), temporary_servers() as stores, ExitStack() as stack:
        url = stores.database_url
        pepper = {"KEY_PEPPER": secrets.token_hex(32)}
        asyncio.run(migrate_directory(url))

        def started(name: str, own: Mapping[str, str]) -> Service:
            (folder / name).mkdir()
            return stack.enter_context(Service(folder / name, SETTINGS | pepper | dict(own)))

        services = {name: started(name, _BEHIND) for name in NAMES}
        asyncio.run(_add(url, services))
        for name, service in services.items():  # first starts open the same account in each
            service.stop()
            service.set("DIRECTORY_URL", url)
            service.set("CELL", name)
            service.start()
        fronts = [started(name, {"PROCESSES": "front", "DIRECTORY_URL": url}) for name in DOORS]
        report = asyncio.run(_play(services, fronts, url, folder, order))
        for service in (*fronts, *services.values()):
            clean = service.stop() == len(service.everything()) == 0
            what = "front" if service in fronts else "cell"
            report.checks.append(Check(f"the {what} stops cleanly and leaves no process", clean, str(clean)))
        return keep(report)


async def _add(url: str, services: Mapping[str, Service]) -> None:
    """Add the cells to the directory."""
    directory = await Directory.open(url)
    try:
        for name, service in services.items():
            submission = f"127.0.0.1:{service.submission_port}"
            await directory.put_cell(Cell(name, service.base_url, submission, None, "open", 100))
    finally:
        await directory.close()


async def _play(
    services: dict[str, Service], fronts: list[Service], url: str, folder: Path, order: DrillOrder
) -> DrillReport:
    directory = await Directory.open(url)
    cells = _Cells(services, fronts, directory, url)
    try:
        access = {name: await new_access(services[home].settings, name) for name, home in _HOMES.items()}
        for name, home in _HOMES.items():
            await directory.place(access[name].account_id, home)
        clients = {name: cells.clients(name, one, order) for name, one in access.items()}
        moves = _Moves(cells, access["mover"])
        began = time.monotonic()
        kills = await while_sending(
            [one for several in clients.values() for one in several], _strike(cells, moves, order)
        )
        sends = {name: [send for one in several for send in one.sends] for name, several in clients.items()}
        report = await _report(cells, access, sends, moves, kills, folder)
        relays = [one for several in clients.values() for one in several if isinstance(one, RelayClient)]
        permanent = [reply for one in relays for reply in one.permanent]
        report.checks.append(
            Check(
                "no program was refused for good", not permanent, "; ".join(permanent[:3]) or f"{len(relays)} programs"
            )
        )
        report.took_s = time.monotonic() - began
        return report
    finally:
        await directory.close()


async def _strike(cells: _Cells, moves: _Moves, order: DrillOrder) -> int:
    """Move back and forth: the mover is killed after each step in turn, a front in the middle of a move, then a cell.

    Return the number of cells killed.
    """
    here, there = "one", "two"
    for _ in range(order.rounds):
        await moves.to(there, here)
        here, there = there, here
    for step in STEPS:
        await moves.to(there, here, killed_after=step)
        here, there = there, here
    for front in cells.fronts:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_kill_and_start(front, order.rng.uniform(0.0, FRONT_DIES_S)))
            await moves.to(there, here)
        here, there = there, here
    away = cells.services["three"]
    await asyncio.to_thread(away.kill)
    await moves.to("three", here, must_fail=True)
    await _start(away)
    await moves.to("three", here)
    return 1


async def _kill_and_start(service: Service, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await asyncio.to_thread(service.kill)
    await _start(service)


async def _start(service: Service) -> None:
    """Start a service that was killed, from this thread: it is told to stop when the thread that started it ends."""
    service.begin()
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            with suppress(OSError, ValueError):  # no answer yet, or half of one
                if (await asyncio.to_thread(service.readiness))["status"] == "ready":
                    return
            await asyncio.sleep(_ASK_S)


async def _report(
    cells: _Cells, access: Mapping[str, ApiAccess], sends: Mapping[str, list[Send]], moves: _Moves, kills: int,
    folder: Path,
) -> DrillReport:  # fmt: skip
    for service in cells.services.values():
        await until_empty(service.database_url)
    store = await asyncio.to_thread(_merged, folder, cells.services)
    reports = []
    for name, one in access.items():
        service = cells.services[await cells.of(one)]
        injected = moves.done if name == "mover" else []
        found = await reconcile(
            service.database_url, store, one.account_id, sends[name], injected, drill=name, took_s=0.0
        )
        found.checks.append(await _verified(service, one))
        reports.append(found)
    report = combined("cells", reports)
    every = [one for several in sends.values() for one in several]
    by_smtp = {one.key for name in _BY_SMTP for one in sends[name] if "-smtp-" in one.key}
    report.figures |= {
        "pauses of the moves, s": [round(one, 2) for one in moves.pauses],
        "messages over SMTP": len(by_smtp),
        "longest wait of a client of the moved account, s": round(_longest_wait(sends["mover"]), 1),
        "longest wait of a client of another account, s": round(
            max(_longest_wait(several) for name, several in sends.items() if name != "mover"), 1
        ),
    }
    report.allow_copies(AllowedCopies.each(kills, ON_THE_WIRE, CopyReason.MTA_KILLED))
    report.checks += [
        Check(
            "fronts gave a client no answer but an id, or one to repeat",
            all(one.message_id for one in every),
            "; ".join(f"{one.status} {one.refusal}" for one in every if one.message_id is None)
            or f"{len(every)} sends",
        ),
        Check("every move ended as it should", not moves.wrong, "; ".join(moves.wrong) or f"{len(moves.done)} moves"),
        *[await _left(service, name, access["mover"], cells) for name, service in cells.services.items()],
    ]
    return report


def _longest_wait(sends: Sequence[Send]) -> float:
    """Return the longest time from the first try of a message to its answer."""
    return max(one.answered_at - one.first_at for one in sends)


async def _verified(service: Service, access: ApiAccess) -> Check:
    """Verify the account log with the service's own verifier."""
    async with service.session() as connection:
        verdict = await audit.verify(connection, access.account_id)
    broken = verdict.broken
    return Check("the log verifies", broken is None, f"{verdict.events} events" if broken is None else broken.problem)


async def _left(service: Service, name: str, access: ApiAccess, cells: _Cells) -> Check:
    """Check that a cell has rows of the moved account only if the directory says so, and no mark of a move."""
    rows = await service.value("SELECT count(*) FROM messages WHERE account_id = $1", access.account_id)
    marks = await service.value("SELECT count(*) FROM account_moves")
    ok = (rows > 0) is (await cells.of(access) == name) and marks == 0
    return Check(f"cell {name} has the account if the directory says so", ok, f"{rows} messages, {marks} marks")


def _merged(folder: Path, services: Mapping[str, Service]) -> Path:
    """Make one store of the sinks of all cells."""
    store = folder / "sinks"
    store.mkdir()
    lines = []
    for name, service in services.items():
        (store / name).symlink_to(service.sink)
        lines += [msgspec.structs.replace(one, file=one.file and f"{name}/{one.file}") for one in entries(service.sink)]
    lines.sort(key=lambda one: one.at)
    (store / INDEX).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))
    return store
