"""`ops drill hosts`: cut one host after the other off from a service on several hosts, and connect it again.

The hosts are network namespaces (`loadtests.hosts`); the client is one of them. The drill cuts a host's link and kills
nothing: processes and servers notice it only by their timeouts.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import asyncpg

from engine.base.settings import Settings, load
from loadtests.drill.catalogue import DrillOrder, Requirement
from loadtests.drill.clients import Send, SendClient, planned
from loadtests.drill.faults import InjectedFault
from loadtests.drill.reconciliation import reconcile
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import ON_THE_WIRE, until_empty, while_sending
from loadtests.hosts import network, plan
from loadtests.hosts import run as hosts
from loadtests.kit.accounts import new_access

NAME: Final = "hosts"
RATE: Final = 40.0  # messages a second at each of the two hosts that take mail
CUT_LEASES: Final = 2.0
TAKEN_WITHIN_LEASES: Final = 2.5  # expiry, margin, the next look of the others: see `shards.member`
SETTLE_S: Final = 30.0
NEED: Final = Requirement("several hosts", lambda: network.unavailable_reason() or _busy())
_ASK_S: Final = 0.1


class ShardOwners:
    """Reads from the database how many shards each host owns."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def owned(self) -> dict[str, int]:
        """Return the number of shards of each mta host; shards without an owner are under ""."""
        rows = await self._connection.fetch(
            "SELECT coalesce(m.name, '') AS name, count(*) AS shards FROM shard_owners o"
            " LEFT JOIN shard_members m ON m.id = o.owner GROUP BY 1",
            timeout=10,
        )
        found = {one.name: 0 for one in plan.running("mta")}
        for row in rows:
            owner = next((name for name in found if f"/{name}:" in row["name"]), "")
            found[owner] = found.get(owner, 0) + row["shards"]
        return found

    async def until_without(self, host: str, timeout_s: float) -> float | None:
        """Return the seconds until other hosts own all shards of `host`; None after `timeout_s`."""
        return await self._until(lambda found: found[host] == 0 and not found.get(""), timeout_s)

    async def until_shared(self, timeout_s: float) -> float | None:
        """Return the seconds until every host has its share; None after `timeout_s`."""
        return await self._until(lambda found: not found.get("") and max(found.values()) - min(found.values()) <= 1,
                                 timeout_s)  # fmt: skip

    async def _until(self, holds: Callable[[dict[str, int]], bool], timeout_s: float) -> float | None:
        began = time.monotonic()
        while time.monotonic() - began < timeout_s:
            if holds(await self.owned()):
                return time.monotonic() - began
            await asyncio.sleep(_ASK_S)
        return None


class HostCuts:
    """Cuts hosts off, and records the faults and the times of takeover and return."""

    def __init__(self, shards: ShardOwners) -> None:
        self.injected: list[InjectedFault] = []
        self.taken_s: list[float | None] = []
        self.returned_s: list[float | None] = []
        self._shards = shards

    async def mta(self, host: str) -> None:
        """Cut an mta host off for longer than its lease, then wait until it has its share again."""
        at = time.time()
        network.cut(host)
        try:
            self.taken_s.append(await self._shards.until_without(host, SETTLE_S))
            await asyncio.sleep(max(0.0, at + plan.LEASE_S * CUT_LEASES - time.time()))
        finally:
            network.heal(host)
        self.injected.append(InjectedFault(f"{host} cut off", at, time.time()))
        self.returned_s.append(await self._shards.until_shared(SETTLE_S * 2))

    async def api(self, host: str) -> None:
        """Cut an api host off for the same time."""
        at = time.time()
        network.cut(host)
        try:
            await asyncio.sleep(plan.LEASE_S * CUT_LEASES)
        finally:
            network.heal(host)
        self.injected.append(InjectedFault(f"{host} cut off", at, time.time()))
        await asyncio.sleep(plan.LEASE_S)


def run(order: DrillOrder) -> DrillReport:
    """Run the drill on new hosts; the logs are kept when it fails."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-hosts-"))
    keep = True
    try:
        hosts.up(folder, lambda _line: None)
        with network.entered(plan.CLIENT):
            report = asyncio.run(_play(folder, order))
        keep = not report.passed
        return report
    finally:
        if keep:
            kept = Path(tempfile.mkdtemp(prefix="waybill-hosts-failed-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True, symlinks=True, ignore=_only_logs)
            print(f"the logs of this drill are in {kept}", file=sys.stderr)
        hosts.down(folder, lambda _line: None)


async def _play(folder: Path, order: DrillOrder) -> DrillReport:
    settings = _settings(folder)
    assert settings.database_url is not None
    access = await new_access(settings, NAME)
    clients = [
        SendClient(f"http://{one.address}:{plan.API_PORT}", access, [planned(f"{NAME}-{one.name}", 0)], rate=RATE,
               rng=order.rng)
        for one in plan.running("api")
    ]  # fmt: skip
    connection = await asyncpg.connect(settings.database_url, timeout=10)
    shards = ShardOwners(connection)
    cuts = HostCuts(shards)
    try:
        ready = await shards.until_shared(SETTLE_S)
        began = time.monotonic()
        await while_sending(clients, _rounds(cuts, order))
        await until_empty(settings.database_url)
    finally:
        await connection.close()
    took_s = time.monotonic() - began
    sends = [send for client in clients for send in client.sends]
    report = await reconcile(
        settings.database_url, folder / "sink", access.account_id, sends, cuts.injected, drill=NAME, took_s=took_s
    )
    report.allow_copies(AllowedCopies.each(len(cuts.taken_s), ON_THE_WIRE, CopyReason.MTA_CUT_OFF))
    report.checks += [
        Check("every host has its share at the start", ready is not None, _seconds([ready])),
        *_verdicts(cuts),
        *_flowed(clients, sends),
    ]
    report.figures |= {
        "shards taken over within, s": _seconds(cuts.taken_s),
        "a host that returned had its share within, s": _seconds(cuts.returned_s),
    }
    return report


async def _rounds(cuts: HostCuts, order: DrillOrder) -> None:
    for _ in range(order.rounds):
        await asyncio.sleep(order.rng.uniform(1.0, 3.0))
        await cuts.mta(order.rng.choice(plan.running("mta")).name)
        await cuts.api(order.rng.choice(plan.running("api")).name)


def _verdicts(cuts: HostCuts) -> Iterator[Check]:
    bound_s = plan.LEASE_S * TAKEN_WITHIN_LEASES
    in_time = [one is not None and one <= bound_s for one in cuts.taken_s]
    yield Check(f"others take a cut host's shards within {bound_s:g} s", all(in_time), _seconds(cuts.taken_s))
    back = all(one is not None for one in cuts.returned_s)
    yield Check("a host that returns gets its share again", back, _seconds(cuts.returned_s))


def _flowed(clients: Sequence[SendClient], sends: Sequence[Send]) -> Iterator[Check]:
    for client, one in zip(clients, plan.running("api"), strict=True):
        accepted = sum(send.message_id is not None for send in client.sends)
        yield Check(f"mail flows through {one.name}", accepted == len(client.sends), f"{accepted} messages")
    refused = {send.status for send in sends} - {200, 202}
    yield Check("no answer is a refusal", not refused, str(refused or "none"))


def _settings(folder: Path) -> Settings:
    return load(plan.environ(folder, plan.host(plan.CLIENT), hosts.pepper(folder))).settings


def _seconds(times: Sequence[float | None]) -> str:
    return ", ".join("never" if one is None else f"{one:.1f}" for one in times) or "none"


def _only_logs(folder: str, names: list[str]) -> list[str]:
    """Return the names that `copytree` ignores: everything except logs and folders."""
    keep = {name for name in names if name.endswith(".log") or (Path(folder) / name).is_dir()}
    return [name for name in names if name not in keep or name.startswith(("pg", "messages", "valkey", "programs"))]


def _busy() -> str | None:
    with contextlib.suppress(OSError):
        return "hosts are already up; `ops hosts down` removes them" if network.existing_hosts() else None
    return None
