"""`ops bench --mx`: the cost of receiving a message, from MAIL to the 250 after its commit.

A separate service runs one mx process, PostgreSQL and Valkey, and with `--posts` a worker, which posts each message to
a webhook endpoint. The messages have 2 KB, are signed with DKIM, and come from domains whose SPF, DKIM and DMARC
records the local DNS responder serves, so that each message is judged.
"""

import asyncio
import json
import os
import statistics
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from engine.authentication import dkim_signing as dkim
from engine.base import settings
from engine.events.webhooks import service as webhooks
from engine.receiving.inbound_addresses import service as addresses
from engine.receiving.inbound_routes import service as routes
from engine.receiving.inbound_routes.types import RouteAction, RouteSettings
from engine.store.queries import Queries
from loadtests.bench import figures, flame_graphs, inbound_load, measure, report
from loadtests.bench.load import LoadOrder, LoadProcess, times_of
from loadtests.bench.measured_run import SLOWEST_PER_S
from loadtests.bench.run_control import FAILURES, BenchFailed, machine_lock
from loadtests.bench.service import DOMAIN, BenchService, own_service
from loadtests.bench.webhook_arrivals import WebhookArrivals, receiving
from loadtests.bench.yardstick import Yardstick
from ops.process_specs import LOOPBACK, ROOT

GENERATOR: Final = "loadtests.bench.inbound_load"
SENDERS: Final = tuple(f"sender-{number}.test" for number in range(10))
RECIPIENT: Final = f"support@{DOMAIN}"
WARM_UP: Final = 500
PACED_S: Final = 10.0
_PATIENCE_S: Final = 60.0
_STORED = Queries.beside(__file__, "inbound.sql").command("stored_and_passed")


def run(
    *,
    messages: int,
    connections: int,
    runs: int,
    profile: bool,
    as_json: bool,
    each: int,
    tls: bool,
    idle: int,
    posts: bool,
) -> int:
    """Measure and print; return exit status 0 when every message was stored once and passed."""
    progress = report.Progress()
    folder = report.new_folder(ROOT) if profile else None
    bench = InboundBench(
        messages=messages, connections=connections, runs=runs, each=each, tls=tls, idle=idle, posts=posts
    )
    try:
        with machine_lock(progress.say):
            result = asyncio.run(bench.measure(folder, progress))
    except FAILURES as error:
        progress.fail(str(error) or type(error).__name__)
        return 1
    if folder is not None:
        result["report"] = str(folder)
        report.write_json(result, folder)
    _show(result, as_json=as_json)
    return 0 if result["checked"] else 1


class InboundBench(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one measurement."""

    messages: int
    connections: int
    runs: int
    each: int
    tls: bool
    idle: int
    posts: bool = False
    paced: bool = True

    async def measure(self, folder: Path | None, progress: report.Progress) -> dict[str, Any]:
        """Run the service, send and count."""
        given = msgspec.structs.replace(
            settings.load(os.environ).settings,
            processes=("mx", "worker") if self.posts else ("mx",),
            mx_workers=1,
            mx_sessions=self.connections + self.idle + 100,
            mx_sessions_each=self.connections + self.idle + 100,
        )
        yardstick = Yardstick()
        key = await asyncio.to_thread(dkim.generate_rsa)
        progress.say("Starting a separate service with one mx process")
        zone = zone_of(dkim.public_txt(key))
        async with (
            own_service(given, progress.say, delivering=True, tls=False, zone=zone) as service,
            self._arrivals(service) as arrivals,
        ):
            target = await self._target(service, key)
            before_mb = _memory_mb(service)
            async with LoadProcess(GENERATOR, target, service.settings.state / "log" / "generator.log") as generator:
                with_sessions_mb = _memory_mb(service)
                rounds, signatures = await self._rounds(service, generator, yardstick, folder, progress)
                result = figures.medians(rounds)
                sent = WARM_UP + self.messages * self.runs
                paced = {}
                if self.paced:
                    paced = await self._paced(generator, sent, result["received_per_s"] / 2, arrivals, progress)
                    sent += paced.pop("messages")
            [counted] = await _STORED.records(service.pool)
            deaths = service.deaths()
        result |= {
            "mode": "mx", "messages": self.messages, "connections": self.connections, "tls": self.tls,
            "messages_per_session": self.each or None, "idle_sessions": self.idle,
            "memory_mb": {"before": before_mb, "with_sessions": with_sessions_mb},
            "signature_ms": round(statistics.median(signatures), 4), "paced": paced,
            "sent": sent, "stored": dict(counted), "deaths": deaths,
        }  # fmt: skip
        result["cost_in_signatures"] = round(result["server_cpu_ms_per_message"] / result["signature_ms"], 2)
        result["checked"] = dict(counted) == {"stored": sent, "different": sent, "passed": sent} and not deaths
        return dict(result)

    @asynccontextmanager
    async def _arrivals(self, service: BenchService) -> AsyncIterator[WebhookArrivals | None]:
        """Run the receiver of the posts and register it, if wanted."""
        if not self.posts:
            yield None
            return
        with receiving() as arrivals:
            pepper = service.settings.pepper
            url = f"http://{LOOPBACK}:{arrivals.quick_port}/hook"
            account = service.access.account_id
            await webhooks.create(service.pool, account, url=url, event_types=(), pepper=pepper)
            both = RouteSettings(action=RouteAction.BOTH)
            await routes.create(service.pool, account, address=None, domain=DOMAIN, settings=both)
            yield arrivals

    async def _target(self, service: BenchService, key: bytes) -> inbound_load.InboundTarget:
        state = service.settings.state
        account = service.access.account_id
        await addresses.claim(service.pool, account, RECIPIENT, label=None, mail_host=service.settings.mail_host)
        file = state / "sender.der"
        file.write_bytes(key)
        return inbound_load.InboundTarget(
            host=LOOPBACK, port=service.settings.mx_port, recipient=RECIPIENT, domains=list(SENDERS), key=str(file),
            connections=self.connections, each=self.each, tls=self.tls, idle=self.idle, folder=str(state),
        )  # fmt: skip

    async def _rounds(
        self,
        service: BenchService,
        generator: LoadProcess,
        yardstick: Yardstick,
        folder: Path | None,
        progress: report.Progress,
    ) -> tuple[list[dict[str, Any]], list[float]]:
        await _round(service, generator, 0, WARM_UP)
        rounds: list[dict[str, Any]] = []
        signatures: list[float] = []
        for number in range(self.runs):
            progress.say(f"Round {number + 1}: {self.messages:,} messages")
            signatures.append((await asyncio.to_thread(yardstick.measure)).cpu_ms)
            profiled = {"mx": service.pids()["mx-1"]} if folder is not None and number == self.runs - 1 else {}
            async with flame_graphs.FlameRecorders(profiled, folder or Path()):
                rounds.append(await _round(service, generator, WARM_UP + number * self.messages, self.messages))
        signatures.append((await asyncio.to_thread(yardstick.measure)).cpu_ms)
        return rounds, signatures

    async def _paced(
        self,
        generator: LoadProcess,
        first: int,
        rate: float,
        arrivals: WebhookArrivals | None,
        progress: report.Progress,
    ) -> dict[str, Any]:
        count = max(1, round(rate * PACED_S))
        if arrivals is not None:
            progress.say("Waiting for the posts so far")
            await arrivals.wait_for(first)
        progress.say(f"At half the rate: {count:,} messages, {rate:,.0f} a second")
        sent = await generator.send(
            LoadOrder(first=first, count=count, rate=rate, timeout_s=_PATIENCE_S + count / SLOWEST_PER_S)
        )
        if sent.refused:
            raise BenchFailed(f"Not every message was accepted: {sent.refused}\n{sent.example}")
        found = {"messages": count, "per_s": round(rate, 1), "accept_ms": figures.percentiles(times_of(sent)[0])}
        if arrivals is not None:
            await arrivals.wait_for(first + count)
            found["post_ms"] = figures.percentiles(await arrivals.delays_s(first))
        return found


async def _round(service: BenchService, generator: LoadProcess, first: int, count: int) -> dict[str, Any]:
    roots = measure.roots_by_role(service.pids())
    before = measure.sample(roots)
    sent = await generator.send(LoadOrder(first=first, count=count, timeout_s=_PATIENCE_S + count / SLOWEST_PER_S))
    after = measure.sample(roots)
    if sent.refused:
        raise BenchFailed(f"Not every message was accepted: {sent.refused}\n{sent.example}")
    used = figures.usage(before, after, count)
    return {
        "received_per_s": round(count / max(sent.ended - sent.began, 1e-6), 1),
        "accept_ms": figures.percentiles(times_of(sent)[0]),
        "server_cpu_ms_per_message": used["server_cpu_ms_per_message"],
        "cpu_ms_by_role": used["cpu_ms_by_role"],
        "cores_used_by_others": used["cores_used_by_others"],
    }


def _memory_mb(service: BenchService) -> float:
    """Return the resident memory of the mx process, shared pages included."""
    return round(measure.resident_mb(service.pids()["mx-1"]), 1)


def zone_of(key_record: str) -> dict[str, list[str]]:
    """Return the TXT records of the senders' domains by name."""
    zone: dict[str, list[str]] = {}
    for domain in SENDERS:
        zone[domain] = [f"v=spf1 ip4:{LOOPBACK} -all"]
        zone[f"{inbound_load.SELECTOR}._domainkey.{domain}"] = [key_record]
        zone[f"_dmarc.{domain}"] = ["v=DMARC1; p=reject"]
    return zone


def _show(result: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    paced = result["paced"]
    by_role = [f"{role} {ms / result['signature_ms']:.2f}" for role, ms in result["cpu_ms_by_role"].items()]
    for row in (
        ("received a second", f"{result['received_per_s']:,.0f}"),
        ("server CPU, ms a message", f"{result['server_cpu_ms_per_message']:.3f}"),
        ("in RSA signatures", f"{result['cost_in_signatures']:.2f} ({', '.join(by_role)})"),
        ("to the 250 at full rate, ms p50 p95 p99", " ".join(map(str, result["accept_ms"].values()))),
        (f"… at {paced['per_s']:,.0f} a second", " ".join(map(str, paced["accept_ms"].values()))),
        *(
            [("… from storing to the webhook post", " ".join(map(str, paced["post_ms"].values())))]
            if "post_ms" in paced
            else []
        ),
        ("memory, MiB: started, with all sessions open", " ".join(map(str, result["memory_mb"].values()))),
        ("cores used by others", str(result["cores_used_by_others"])),
    ):
        table.add_row(*row)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(table)
    found = f"sent {result['sent']}, {result['stored']}; checked: {result['checked']}"
    console.print(f"signature {result['signature_ms']} ms; {found}")
