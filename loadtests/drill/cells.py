"""A drill that moves an account between cells under load, and kills the mover after each of its steps.

Three cells run on this machine, with one directory. Clients follow the directory as a front does: they ask it for the
cell of their account, and repeat what was refused meanwhile. Every message is counted over all cells; accounts that do
not move are sent from at the same time.
"""

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec import Struct

from engine.accounts.audit import store as audit
from engine.cells.directory import Cell, Directory, migrate_directory
from engine.store.sink_folder import INDEX
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import CONCURRENCY, PlanClient, Send, body_of, plan
from loadtests.drill.faults import InjectedFault
from loadtests.drill.reconciliation import reconcile
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport, combined
from loadtests.drill.running import ON_THE_WIRE, SETTINGS, kept_if_failed, until_empty, while_sending
from loadtests.kit.accounts import ApiAccess, new_access
from loadtests.kit.http_client import AGAIN, ApiClient
from loadtests.kit.service import Service
from ops.account_moves.move import STEPS
from ops.host.process_specs import ROOT
from ops.host.temporary_servers import temporary_servers
from ops.local.sink_store import entries

NAMES: Final = ("one", "two", "three")
RATE: Final = 10.0  # messages a second of each account: three cells share the machine
MOVE_S: Final = 180.0
FOLLOW_S: Final = 0.2
_UNKNOWN: Final = 401  # of a cell that the account has left: the directory names another one within a moment


class _Cells(Struct, frozen=True):
    services: dict[str, Service]
    directory: Directory
    directory_url: str

    async def of(self, access: ApiAccess) -> str:
        """Return the cell of an account; waits while it moves."""
        while True:
            placement = await self.directory.cell_of(access.account_id)
            assert placement is not None
            assert placement.cell is not None
            if placement.moving_to is None:
                return placement.cell
            await asyncio.sleep(FOLLOW_S)


class FollowingClient(PlanClient):
    """Sends a plan to whichever cell has the account."""

    def __init__(self, cells: _Cells, access: ApiAccess, sends: list[Send], order: DrillOrder) -> None:
        super().__init__(access, sends, rate=RATE, rng=order.rng)
        self._cells = cells
        self._known: tuple[float, str] = (0.0, "")
        self._clients: dict[str, ApiClient] = {}

    async def run(self, until: asyncio.Event | None = None) -> None:
        """Send the plan, then further messages until the event is set."""
        async with AsyncExitStack() as stack:
            for name, service in self._cells.services.items():
                client = ApiClient(service.base_url, self._access.key, connections=CONCURRENCY)
                self._clients[name] = await stack.enter_async_context(client)
            await super().run(until)

    async def attempt(self, place: int, item: Send) -> bool:  # noqa: ARG002 - the pool chooses the connection
        """Post a message; return False after a refusal that a front would not pass on."""
        item.first_at = item.first_at or time.time()
        item.tries += 1
        answer = await self._clients[await self._cell()].call("POST", "/v1/emails", body_of(self._access, item))
        if answer.status in AGAIN or answer.status == _UNKNOWN:
            item.refusal = answer.text
            return False
        item.answered(answer.status, answer.json.get("id"), answer.text)
        return True

    async def _cell(self) -> str:
        at, name = self._known
        if time.monotonic() - at > FOLLOW_S:
            name = await self._cells.of(self._access)
            self._known = (time.monotonic(), name)
        return name


class _Moves:
    """Moves one account, and remembers what was done."""

    def __init__(self, cells: _Cells, access: ApiAccess) -> None:
        self._cells = cells
        self._access = access
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

    async def __aenter__(self) -> Self:
        self._urls = {name: service.database_url for name, service in self._cells.services.items()}
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def run(order: DrillOrder) -> DrillReport:
    """Move an account between three cells under load; kill the mover after each step, and then a cell."""
    more = SETTINGS | {"KEY_PEPPER": secrets.token_hex(32), "PROFILE": "small"}
    with kept_if_failed() as (folder, keep), temporary_servers() as stores, ExitStack() as stack:
        services = {}
        for name in NAMES:
            (folder / name).mkdir()
            services[name] = stack.enter_context(Service(folder / name, more))
        report = asyncio.run(_play(services, stores.database_url, folder, order))
        for service in services.values():
            clean = service.stop() == len(service.everything()) == 0
            report.checks.append(Check("the cell stops cleanly and leaves no process", clean, str(clean)))
        return keep(report)


async def _play(services: dict[str, Service], directory_url: str, folder: Path, order: DrillOrder) -> DrillReport:
    await migrate_directory(directory_url)
    directory = await Directory.open(directory_url)
    cells = _Cells(services, directory, directory_url)
    try:
        access = {}
        for name, home in (("mover", "one"), ("neighbor", "one"), ("second", "two"), ("third", "three")):
            access[name] = await new_access(services[home].settings, name)
        for name, service in services.items():
            await directory.put_cell(Cell(name, service.base_url, None, None, "open", 100))
        for name, home in (("mover", "one"), ("neighbor", "one"), ("second", "two"), ("third", "three")):
            await directory.place(access[name].account_id, home)
        clients = {
            name: FollowingClient(cells, one, plan(order.messages // 4, f"{name}-{secrets.token_hex(3)}"), order)
            for name, one in access.items()
        }
        async with _Moves(cells, access["mover"]) as moves:
            began = time.monotonic()
            kills = await while_sending(clients.values(), _strike(cells, moves, order))
        report = await _report(cells, access, {name: one.sends for name, one in clients.items()}, moves, kills, folder)
        report.took_s = time.monotonic() - began
        return report
    finally:
        await directory.close()


async def _strike(cells: _Cells, moves: _Moves, order: DrillOrder) -> int:
    """Move back and forth, with the mover killed after each step in turn; then kill a cell. Return the cells killed."""
    here, there = "one", "two"
    for _ in range(order.rounds):
        await moves.to(there, here)
        here, there = there, here
    for step in STEPS:
        await moves.to(there, here, killed_after=step)
        here, there = there, here
    away = cells.services["three"]
    await asyncio.to_thread(away.kill)
    await moves.to("three", here, must_fail=True)
    await asyncio.to_thread(away.start)
    await moves.to("three", here)
    return 1


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
    report.figures |= {"pauses of the moves, s": [round(one, 2) for one in moves.pauses]}
    report.allow_copies(AllowedCopies.each(kills, ON_THE_WIRE, CopyReason.MTA_KILLED))
    report.checks += [
        Check("every move ended as it should", not moves.wrong, "; ".join(moves.wrong) or f"{len(moves.done)} moves"),
        *[await _left(service, name, access["mover"], cells) for name, service in cells.services.items()],
    ]
    return report


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
