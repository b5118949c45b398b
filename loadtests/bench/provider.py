"""`ops bench provider`: deliver a queue of mail for one domain whose servers are a round trip away.

The client pipelines the commands of the next message behind the content of the present one (RFC 2920 3.1), so a message
takes one round trip on its connection: the final dot's reply and the 354 arrive together. The limit is therefore the
number of connections divided by the round trip. Opening a connection takes three round trips (TCP, greeting, EHLO), its
first envelope one and QUIT one.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from loadtests.bench.distance import round_trip_ms
from loadtests.bench.load import HTTP_GENERATOR, LoadProcess
from loadtests.bench.measured_run import MeasuredRun, SendOptions
from loadtests.bench.report import Row
from loadtests.bench.run import BenchResult, BenchRun
from loadtests.bench.send import failure, roles
from loadtests.bench.service import ServiceKind
from loadtests.bench.yardstick import Yardstick

BATCH: Final = 100  # messages per request while the queue is filled
_SENDING: Final = 64  # connections that fill it
_BESIDE_MESSAGES: Final = 5  # round trips of a connection: TCP, greeting, EHLO, first envelope, QUIT


class ProviderBench(Struct, frozen=True, kw_only=True):
    """The options of the bench."""

    messages: int = 50_000
    rtt: float = 50.0  # ms
    connections: int = 20  # to the provider, over all mta processes
    each: int = 100  # messages per connection
    tls: bool = False
    rsa: bool = False
    profile: bool = False

    async def measure(self, run: BenchRun) -> BenchResult:
        """Queue all messages with delivery stopped, then deliver them."""
        options = SendOptions(
            drain=self.messages, batch=BATCH, domains=1, connections=_SENDING, paced=False, tls=self.tls, rsa=self.rsa
        )
        changed = {"site_connections": self.connections, "messages_per_connection": self.each}
        kind = ServiceKind(delivering=False, tls=self.tls, rsa=self.rsa, rtt_ms=self.rtt)
        async with run.service(changed, kind) as service:
            rtt_ms = await round_trip_ms(service.settings.sink_port)
            target = service.target(connections=_SENDING, domains=1, batch=BATCH)
            async with LoadProcess(HTTP_GENERATOR, target, service.settings.state / "log" / "generator.log") as load:
                found = await MeasuredRun(options, service, load, Yardstick(), run).run()
        if not found["checked"]:
            return BenchResult(found, failure(found))
        found |= {"connections": self.connections, "messages_per_connection": self.each} | self._compared(found, rtt_ms)
        return BenchResult(found, [*_rows(found), (), *roles(found)])

    def _compared(self, found: Mapping[str, Any], measured_ms: float) -> dict[str, Any]:
        """Return the rate in parts of the limits, and the part of the messages on a connection that stood."""
        limit = self.connections * 1000 / self.rtt
        with_opening = limit * self.each / (self.each + _BESIDE_MESSAGES)
        return {
            "rtt_ms": self.rtt, "rtt_measured_ms": round(measured_ms, 2),
            "limit_per_s": round(limit, 1), "of_limit": round(found["delivered_per_s"] / limit, 4),
            "limit_with_opening_per_s": round(with_opening, 1),
            "of_limit_with_opening": round(found["delivered_per_s"] / with_opening, 4),
            "reused": round(found["smtp_connections"].get("reused", 0) / self.messages, 4),
        }  # fmt: skip


def _rows(found: Mapping[str, Any]) -> list[Row]:
    counts = ", ".join(f"{count:,} {how}" for how, count in found["smtp_connections"].items())
    away = f"{found['rtt_ms']:g} ms (a NOOP takes {found['rtt_measured_ms']:.1f})"
    return [
        ("messages to one domain", f"{found['messages']:,}"),
        ("round trip", away),
        ("connections, messages on each", f"{found['connections']}, {found['messages_per_connection']}"),
        ("delivered and settled a second", f"{found['delivered_per_s']:,.1f}"),
        ("limit: a round trip a message", f"{found['limit_per_s']:,.1f}, reached {found['of_limit']:.1%}"),
        (
            "… with opening and closing",
            f"{found['limit_with_opening_per_s']:,.1f}, reached {found['of_limit_with_opening']:.1%}",
        ),
        ("messages on a connection that stood", f"{found['reused']:.2%} ({counts})"),
        ("DNS questions", f"{found['dns_questions']:,}"),
        ("server CPU, ms a message", f"{found['server_cpu_ms_per_message']:.3f}"),
        ("cost in RSA signatures", f"{found['cost_in_signatures']:.2f}"),
        ("cores used by others", f"{found['cores_used_by_others']:.2f}"),
    ]
