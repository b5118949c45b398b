"""`ops drill silent-sites`: one tenant mails thousands of servers that never answer; other mail must not wait.

A bystander and the harmful tenant each send 5 messages a second to healthy domains; the baseline is measured with these
alone. Then the harmful tenant queues one message to each of many domains at once, whose servers stay silent after
accepting, drop SYN packets, or whose name servers never answer. Rule: the 99th percentile of the healthy mail, the
harmful tenant's included, stays below `silent_checks.limit_ms`, and nothing is lost. All limits are the defaults.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from msgspec import Struct

from engine.base import ids
from engine.base.events import Status
from engine.base.settings import Settings
from loadtests.bench.measure import peaks_mb
from loadtests.drill.arrivals import until_arrived
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, send_batch, send_paced
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.report import DrillReport, combined
from loadtests.drill.running import run_with_network
from loadtests.drill.silent_cases import ZONE, SilentCase, SilentServerKind, Stage, domain, records, remote_pattern
from loadtests.drill.silent_checks import (
    DeliveryTimes,
    HarmfulMailCost,
    HealthySender,
    SilentMailCount,
    report_of_case,
    series,
)
from loadtests.drill.silent_servers import OpenConnections, SilentServers
from loadtests.kit.accounts import ApiAccess, first_access, open_accounts
from loadtests.kit.check import read_account_log
from loadtests.kit.http_client import ApiClient
from loadtests.kit.service import Service, ServicePart
from ops.local.dns import DnsBehaviour
from ops.local.sink_store import entries

NAME: Final = "silent-sites"
RATE: Final = 5.0  # messages a second of each sender of healthy mail
BASELINE_S: Final = 30.0
DEFAULT_MINUTES: Final = 1.0
DEFAULT_CASES: Final = (
    (SilentServerKind.SILENT, 1),
    (SilentServerKind.DEAD, 1),
    (SilentServerKind.MIXED, 1_000),
    (SilentServerKind.DNS_SILENT, 1),
)
SETTINGS: Final = {"RETRY_LADDER_S": ",".join(f"{step:g}" for step in Settings().retry_ladder_s)}  # the default
_WARM_S: Final = 3.0
_ARRIVE_S: Final = 15.0  # for the last messages of a phase
_BATCH: Final = 100
_AT_ONCE: Final = 4  # requests that queue harmful mail
_OWN_DOMAINS: Final = 10  # healthy ones that the harmful tenant mails


def run(order: DrillOrder) -> DrillReport:
    """Run the case that the options describe, or each of `DEFAULT_CASES`."""
    seconds = (order.minutes or DEFAULT_MINUTES) * 60
    reports = [_run_case(case, seconds) for case in cases(order)]
    return reports[0] if len(reports) == 1 else combined(NAME, reports)


def cases(order: DrillOrder) -> list[SilentCase]:
    """Return the cases to run: one if any option is given, else `DEFAULT_CASES`."""
    chosen = order.options
    wanted = (
        [(SilentServerKind(str(chosen.get("kind", SilentServerKind.SILENT))), int(chosen.get("accounts", 1)))]
        if chosen
        else DEFAULT_CASES
    )
    return [
        SilentCase(
            kind=kind,
            stage=Stage(str(chosen.get("stage", Stage.GREETING))),
            accounts=min(accounts, order.messages),
            sites=order.messages,
            addresses=int(chosen.get("addresses", 0)),
        )
        for kind, accounts in wanted
    ]


def _run_case(case: SilentCase, seconds: float) -> DrillReport:
    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        network.names.steady(records(case))
        if case.kind is SilentServerKind.DNS_SILENT:
            network.names.behave_under(ZONE, DnsBehaviour(drop=True))
        harmful = await open_accounts(service.settings, "harmful", case.accounts)
        async with SilentServers(case, service.sink_port):
            return await _SilentSitesRun(service, case, first_access(service), harmful).measured(seconds)

    report = run_with_network(play, SETTINGS)
    report.drill = NAME
    return report


class _Phase(Struct):
    """The healthy mail of both senders in one phase, and its arrival times."""

    sent: list[list[Send]]
    arrived: dict[str, float]
    until: float

    def of(self, sender: int, since: float = 0.0) -> DeliveryTimes:
        """Return the delivery times of one sender, for messages answered at or after `since`."""
        return series([one for one in self.sent[sender] if one.answered_at >= since], self.arrived, self.until)


class _SilentSitesRun:
    """A case on a running service."""

    def __init__(self, service: Service, case: SilentCase, bystander: ApiAccess, harmful: Sequence[ApiAccess]) -> None:
        self._service = service
        self._case = case
        self._healthy = [bystander, harmful[0]]
        self._harmful = harmful
        self._sent: list[Send] = []

    async def measured(self, seconds: float) -> DrillReport:
        """Measure the baseline, then the fault; return the report."""
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(ApiClient(self._service.base_url, one.key)) for one in self._healthy
            ]
            await self._phase(clients, "warm", _WARM_S)
            baseline = await self._phase(clients, "baseline", BASELINE_S)
            mtas, before = self._service.pids(ServicePart.MTA), self._peak_mb()
            connections = await stack.enter_async_context(OpenConnections(remote_pattern(self._service.sink_port)))
            began = time.time()
            async with asyncio.TaskGroup() as tasks:
                fault = tasks.create_task(self._phase(clients, "fault", seconds))
                queued = tasks.create_task(self._queue_all())
            during, queued_at = fault.result(), queued.result()
        load = HarmfulMailCost(
            queued_s=queued_at - began,
            max_open=connections.max_open,
            max_to_one=connections.max_to_one,
            opened=connections.opened,
            mta_restarted=self._service.pids(ServicePart.MTA) != mtas,
            peak_before_mb=before,
            peak_after_mb=self._peak_mb(),
        )
        names = ("bystander", "harmful tenant's own healthy domains")
        senders = [
            HealthySender(
                name=name, baseline=baseline.of(at), during=during.of(at), after_queueing=during.of(at, queued_at)
            )
            for at, name in enumerate(names)
        ]
        return report_of_case(self._case, senders, await self._count(), load)

    async def _phase(self, clients: Sequence[ApiClient], name: str, seconds: float) -> _Phase:
        """Send for `seconds` from both senders, then wait for the last arrivals."""
        count = round(seconds * RATE)
        domains = {"bystander": ["healthy"], "own": [f"own{number}" for number in range(_OWN_DOMAINS)]}
        sent = [
            [
                Send(f"{who}-{name}", number, f"reader+{name}-{number}@{own[number % len(own)]}.test")
                for number in range(count)
            ]
            for who, own in domains.items()
        ]
        both = zip(clients, self._healthy, sent, strict=True)
        await asyncio.gather(*[send_paced(api, access, sends, RATE) for api, access, sends in both])
        self._sent += [one for sends in sent for one in sends]
        wanted = {one.key for sends in sent for one in sends if one.message_id is not None}
        arrived = await until_arrived(self._service.sink, wanted, _ARRIVE_S)
        return _Phase(sent, arrived, time.time())

    async def _queue_all(self) -> float:
        """Queue the harmful mail of all accounts; return the time of the last answer."""
        work = iter(_batches(self._case, len(self._harmful)))

        async def worker() -> None:
            for account, sends in work:
                access = self._harmful[account]
                async with ApiClient(self._service.base_url, access.key) as api:
                    await send_batch(api, access, sends)
                self._sent += sends

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(worker())
        return time.time()

    def _peak_mb(self) -> float:
        return peaks_mb({"mta": self._service.pids(ServicePart.MTA)})["mta"]

    async def _count(self) -> SilentMailCount:
        """Compare the clients' record with the queue, the messages, the logs and the sink."""
        accounts = list({one.account_id for one in (*self._healthy, *self._harmful)})
        async with self._service.session() as connection:
            queued = await connection.fetch("SELECT message_id FROM queue WHERE account_id = ANY($1)", accounts)
            # Read before the sink: a message that leaves the queue meanwhile has arrived.
            bounced = await connection.fetch(
                "SELECT id FROM messages WHERE account_id = ANY($1) AND status = $2", accounts, Status.BOUNCED
            )
            ledgers = [await read_account_log(connection, account) for account in accounts]
        known = {ids.format_id(ids.Kind.MESSAGE, row[0]) for row in (*queued, *bounced)}
        copies = Counter(entry.test_id for entry in await asyncio.to_thread(entries, self._service.sink))
        accepted = [one for one in self._sent if one.message_id is not None]
        arrived = [one for one in accepted if one.key in copies]
        known |= {str(one.message_id) for one in arrived}
        return SilentMailCount(
            sent=len(self._sent),
            accepted=len(accepted),
            arrived=len(arrived),
            waiting=len(queued),
            bounced=len(bounced),
            lost=sum(one.message_id not in known for one in accepted),
            copies=sum(copies[one.key] - 1 for one in arrived),
            broken_logs=sum(not one.intact or one.accepted_twice > 0 for one in ledgers),
            accounts=len(accounts),
        )


def _batches(case: SilentCase, accounts: int) -> list[tuple[int, list[Send]]]:
    """Return (account, messages) of requests that send one message to each domain; accounts take domains in turn."""
    found = []
    for account in range(accounts):
        numbers = range(account, case.sites, accounts)
        for start in range(0, len(numbers), _BATCH):
            part = numbers[start : start + _BATCH]
            found.append((account, [Send("harmful", number, f"reader@{domain(number)}") for number in part]))
    return found
