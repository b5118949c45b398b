"""`ops bench mx`: the cost of receiving a message, from MAIL to the 250 after its commit.

The service runs as many mx processes as the settings say (`WAYBILL_MX_WORKERS`), PostgreSQL and Valkey, and with
`--posts` a worker, which posts each message to a webhook endpoint. The messages have 2 KB, are signed with DKIM, and
come from domains whose SPF, DKIM and DMARC records the local DNS responder serves, so that each message is judged.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from engine.authentication import dkim_signing as dkim
from engine.events.webhooks import service as webhooks
from engine.receiving.inbound_addresses import service as addresses
from engine.receiving.inbound_routes import service as routes
from engine.receiving.inbound_routes.types import RouteAction, RouteSettings
from engine.store.queries import Queries
from loadtests.bench import figures, measure
from loadtests.bench.load import SMTP_GENERATOR, LoadProcess, times_of
from loadtests.bench.rounds import Rounds, rows_of
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.service import DOMAIN, BenchService, ServiceKind
from loadtests.bench.smtp_load import SELECTOR, SignedMails, SmtpTarget
from loadtests.bench.webhook_arrivals import WebhookArrivals, receiving
from ops.host.process_specs import LOOPBACK

SENDERS: Final = [f"sender-{number}.test" for number in range(10)]
RECIPIENT: Final = f"support@{DOMAIN}"
PACED_S: Final = 10.0
_STORED = Queries.beside(__file__, "inbound.sql").command("stored_and_passed")


class InboundBench(Struct, frozen=True, kw_only=True):
    """The options of the bench."""

    messages: int = 20_000
    connections: int = 64
    runs: int = 1
    each: int = 0  # messages per session; 0: no limit
    tls: bool = False
    idle: int = 0  # sessions that stay open and idle
    posts: bool = False
    paced: bool = True
    profile: bool = False

    async def measure(self, run: BenchRun) -> BenchResult:
        """Send rounds at the full rate and one at half of it, then count what is stored."""
        sessions = self.connections + self.idle + 100
        kinds = ("mx", "worker") if self.posts else ("mx",)
        changed = {"processes": kinds, "mx_sessions": sessions, "mx_sessions_each": sessions}
        key = await asyncio.to_thread(dkim.generate_rsa)
        async with (
            run.service(changed, ServiceKind(zone=zone_of(dkim.public_txt(key)))) as service,
            self._arrivals(service) as arrivals,
        ):
            target = await self._target(service, key)
            before_mb = _memory_mb(service)
            async with LoadProcess(SMTP_GENERATOR, target, service.settings.state / "log" / "generator.log") as load:
                with_sessions_mb = _memory_mb(service)
                rounds = Rounds(run, service, {"mx": load})
                found = await rounds.measure(self.messages, self.runs, {"mx": service.pids()["mx-1"]})
                received = found.pop("mx")
                paced = await _paced(rounds, received["accepted_per_s"] / 2, arrivals, run) if self.paced else {}
            [counted] = await _STORED.records(service.pool)
            deaths = service.deaths()
        sent = rounds.sent
        result = {
            "received_per_s": received["accepted_per_s"], **received, **found, "mode": "mx", "messages": self.messages,
            "connections": self.connections, "tls": self.tls, "messages_per_session": self.each or None,
            "idle_sessions": self.idle, "memory_mb": {"before": before_mb, "with_sessions": with_sessions_mb},
            "paced": paced, "sent": sent, "stored": dict(counted), "deaths": deaths,
            "checked": dict(counted) == {"stored": sent, "different": sent, "passed": sent} and not deaths,
        }  # fmt: skip
        return BenchResult(result, _rows(result))

    @asynccontextmanager
    async def _arrivals(self, service: BenchService) -> AsyncIterator[WebhookArrivals | None]:
        """Run the receiver of the posts and register it, if wanted."""
        if not self.posts:
            yield None
            return
        with receiving() as arrivals:
            pool, account, pepper = service.pool, service.access.account_id, service.settings.pepper
            await webhooks.create(pool, account, url=arrivals.quick_url, event_types=(), pepper=pepper)
            both = RouteSettings(action=RouteAction.BOTH)
            await routes.create(pool, account, address=None, domain=DOMAIN, settings=both)
            yield arrivals

    async def _target(self, service: BenchService, key: bytes) -> SmtpTarget:
        state, account = service.settings.state, service.access.account_id
        await addresses.claim(service.pool, account, RECIPIENT, label=None, mail_host=service.settings.mail_host)
        file = state / "sender.der"
        file.write_bytes(key)
        return SmtpTarget(
            host=LOOPBACK, port=service.settings.mx_port, mails=SignedMails(RECIPIENT, SENDERS, str(file)),
            connections=self.connections, each=self.each, tls="starttls" if self.tls else "none", idle=self.idle,
            folder=str(state),
        )  # fmt: skip


def zone_of(key_record: str) -> dict[str, list[str]]:
    """Return the TXT records of the senders' domains by name."""
    zone: dict[str, list[str]] = {}
    for domain in SENDERS:
        zone[domain] = [f"v=spf1 ip4:{LOOPBACK} -all"]
        zone[f"{SELECTOR}._domainkey.{domain}"] = [key_record]
        zone[f"_dmarc.{domain}"] = ["v=DMARC1; p=reject"]
    return zone


async def _paced(rounds: Rounds, rate: float, arrivals: WebhookArrivals | None, run: BenchRun) -> dict[str, Any]:
    """Send at a constant rate; return the times of acceptance, and those from storing to the post."""
    first, count = rounds.sent, max(1, round(rate * PACED_S))
    if arrivals is not None:
        run.say("Waiting for the posts so far")
        await arrivals.wait_for(first)
    run.say(f"At half the rate: {count:,} messages, {rate:,.0f} a second")
    sent = await rounds.send("mx", count, rate)
    found = {"per_s": round(rate, 1), "accept_ms": figures.percentiles(times_of(sent)[0])}
    if arrivals is not None:
        await arrivals.wait_for(first + count)
        found["post_ms"] = figures.percentiles(await arrivals.delays_s(first))
    return found


def _memory_mb(service: BenchService) -> float:
    """Return the resident memory of the first mx process, shared pages included."""
    return round(measure.resident_mb(service.pids()["mx-1"]), 1)


def _rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    paced, rows = result["paced"], rows_of(result, result["signature_ms"])
    rows[0] = ("received a second", rows[0][1])
    for name, title in (
        ("accept_ms", f"accept at {paced.get('per_s', 0):,.0f} a second, ms p50 p95 p99"),
        ("post_ms", "… from storing to the webhook post"),
    ):
        if name in paced:
            rows.append((title, " ".join(f"{ms:,.1f}" for ms in paced[name].values())))
    memory = " ".join(map(str, result["memory_mb"].values()))
    rows.append(("memory of mx-1, MiB: started, with all sessions open", memory))
    found = f"sent {result['sent']}, {result['stored']}; checked: {result['checked']}"
    return [*rows, (f"signature {result['signature_ms']} ms; {found}",)]
