"""`ops drill names`: the recipients' DNS fails in different ways; check what happens to their mail.

The service uses the drill's own DNS responder. Temporary failures must defer mail and deliver it after recovery,
answers
that rule out a mail server must end it at once, and private addresses must never be connected to.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, SendClient
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.report import Check, DrillReport, combined
from loadtests.drill.running import on_network, report_after_faults
from loadtests.kit.accounts import ApiAccess, first_access
from loadtests.kit.servers import ScriptedServer
from loadtests.kit.service import Service, ServicePart
from loadtests.ports import reserve_port
from ops.local.dns import DnsBehaviour, Responder

NAME: Final = "names"
EACH: Final = 3  # messages a domain and failure
SEEN_S: Final = 60.0
_LOCAL: Final = "127.0.0.1"
_MANY: Final = 1_000
_Script = Callable[[Responder, str, str], None]
_LIVE_PARTS: Final = (ServicePart.API, ServicePart.MTA, ServicePart.WORKER, ServicePart.POSTGRES, ServicePart.VALKEY)
_DEFERS: Final = frozenset({"queued", "sending"})
_ENDS: Final = frozenset({"bounced"})
_ARRIVES: Final = frozenset({"delivered"})


class DnsFailure(Struct, frozen=True):
    """A domain whose DNS fails in one way; `allowed_statuses` holds the statuses that its mail may have meanwhile.

    `script` sets records and failures of the domain and of its mail server, which are sound before.
    """

    domain: str
    what: str
    allowed_statuses: frozenset[str]
    script: _Script


def _fails(behaviour: DnsBehaviour, *, server: bool = False, rdtype: str | None = None) -> _Script:
    """Return a script that lets questions about the domain, or about its mail server, fail."""
    return lambda names, domain, mx: names.behave(mx if server else domain, behaviour, rdtype)


def _records(*records: tuple[str, list[str]]) -> _Script:
    """Return a script that sets records of the domain."""

    def script(names: Responder, domain: str, _mx: str) -> None:
        for rdtype, values in records:
            names.set(domain, rdtype, values)

    return script


def _truncates(names: Responder, domain: str, mx: str) -> None:
    for name in (domain, mx):
        names.behave(name, DnsBehaviour(truncate=True))


def _has_many(names: Responder, domain: str, _mx: str) -> None:
    names.set(domain, "MX", [f"{number} mx{number}.{domain}." for number in range(_MANY)])
    for number in range(_MANY):
        names.set(f"mx{number}.{domain}", "A", [_LOCAL])
        names.set(f"mx{number}.{domain}", "AAAA", [])


def _lacks_first(names: Responder, domain: str, mx: str) -> None:
    names.set(domain, "MX", [f"5 absent.{domain}.", f"10 {mx}."])
    names.behave(f"absent.{domain}", DnsBehaviour(rcode="NXDOMAIN"))


_SERVFAIL: Final = DnsBehaviour(rcode="SERVFAIL")
CASES: Final = (
    DnsFailure("timeout.test", "no answer", _DEFERS, _fails(DnsBehaviour(drop=True))),
    DnsFailure("mute-mx.test", "no answer for the mail server's address", _DEFERS,
               _fails(DnsBehaviour(drop=True), server=True)),
    DnsFailure("failing.test", "SERVFAIL", _DEFERS, _fails(_SERVFAIL)),
    DnsFailure("failing-mx.test", "SERVFAIL for the mail server's address", _DEFERS, _fails(_SERVFAIL, server=True)),
    DnsFailure("refusing.test", "REFUSED", _DEFERS, _fails(DnsBehaviour(rcode="REFUSED"))),
    DnsFailure("gone.test", "NXDOMAIN", _ENDS, _fails(DnsBehaviour(rcode="NXDOMAIN"))),
    DnsFailure("null.test", "null MX", _ENDS, lambda names, domain, _mx: names.null_mx(domain)),
    DnsFailure("bare.test", "neither MX nor address", _ENDS, _records(("MX", []), ("A", []), ("AAAA", []))),
    DnsFailure("cut.test", "truncated over UDP, complete over TCP", _ARRIVES, _truncates),
    DnsFailure("many.test", "a thousand MX", _ARRIVES, _has_many),
    DnsFailure("plain.test", "an address and no MX", _ARRIVES, _records(("MX", []), ("A", [_LOCAL]), ("AAAA", []))),
    DnsFailure("half.test", "SERVFAIL for AAAA only", _ARRIVES, _fails(_SERVFAIL, server=True, rdtype="AAAA")),
    DnsFailure("second.test", "the first of two mail servers does not exist", _ARRIVES, _lacks_first),
    DnsFailure("late.test", "answers a second late", _ARRIVES, _fails(DnsBehaviour(delay_s=1.0))),
)  # fmt: skip
HEALS: Final = {case.domain: case for case in CASES if case.allowed_statuses is _DEFERS}
PRIVATE: Final = {
    "loopback.test": ["127.0.0.1"], "ten.test": ["10.1.2.3"], "metadata.test": ["169.254.169.254"],
    "zero.test": ["0.0.0.0"], "six.test": ["::1"], "mapped.test": ["::ffff:127.0.0.1"],  # noqa: S104 - an answer
    "nat64.test": ["64:ff9b::7f00:1"],
}  # fmt: skip


def run(order: DrillOrder) -> DrillReport:
    """Run the temporary and permanent failures, then the private addresses."""
    return combined(NAME, [_failing(order), _private(order)])


@on_network()
async def _failing(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    for case in CASES:
        _point(network.names, case.domain, [_LOCAL])
        case.script(network.names, case.domain, f"mx.{case.domain}")
    access = first_access(service)
    sends = [
        Send(NAME, place * EACH + number, f"reader+{number}@{case.domain}")
        for place, case in enumerate(CASES)
        for number in range(EACH)
    ]
    client = SendClient(service.base_url, access, sends, rng=order.rng)
    await client.run()
    seen = await _seen(service, access, sends)
    for domain in HEALS:
        _heal(network.names, domain)
    report = await report_after_faults(service, access, client, [], name="failing")
    return _with_cases(report, sends, seen)


def _with_cases(report: DrillReport, sends: list[Send], seen: Mapping[str, str]) -> DrillReport:
    for case in CASES:
        found = sorted({seen.get(send.address, "?") for send in sends if send.address.endswith("@" + case.domain)})
        ok = set(found) <= case.allowed_statuses
        report.checks.append(Check(f"{case.what}: {' or '.join(sorted(case.allowed_statuses))}", ok, ", ".join(found)))
    return report


async def _seen(service: Service, access: ApiAccess, sends: list[Send]) -> dict[str, str]:
    """Return the status of each address once all decidable mail is settled and deferred mail was tried, or after
    SEEN_S."""
    decided = {send.address for send in sends if send.address.partition("@")[2] not in HEALS}
    ends = time.monotonic() + SEEN_S
    async with service.session() as connection:
        while True:
            rows = await connection.fetch(
                "SELECT address, status FROM recipients WHERE account_id = $1", access.account_id
            )
            seen = {row["address"]: row["status"] for row in rows}
            tried = await connection.fetchval(
                "SELECT count(DISTINCT message_id) FROM events WHERE account_id = $1 AND type = 'deferred'",
                access.account_id,
            )
            undecided = any(seen.get(address) in _DEFERS for address in decided)
            if (not undecided and tried >= len(HEALS) * EACH) or time.monotonic() > ends:
                return seen
            await asyncio.sleep(0.25)


def _heal(names: Responder, domain: str) -> None:
    for name in (domain, f"mx.{domain}"):
        names.behave(name, None)


class _Canary(ScriptedServer):
    """A server that must not be connected to."""

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say nothing."""


@on_network()
async def _private(service: Service, network: DrillNetwork, order: DrillOrder) -> DrillReport:
    """Send to domains that point to private addresses, with the service in live mode."""
    access = first_access(service)
    for domain, addresses in PRIVATE.items():
        _point(network.names, domain, addresses)
    network.names.set("literal.test", "MX", ["10 127.0.0.1."])
    await asyncio.to_thread(service.stop)
    port = reserve_port()
    service.set("DELIVERY", "live")
    service.set("SMTP_PORT", str(port))
    service.start()  # must run in the main thread; the network has its own
    sends = [Send("private", number, f"reader@{domain}") for number, domain in enumerate([*PRIVATE, "literal.test"])]
    async with _Canary(port) as canary:
        client = SendClient(service.base_url, access, sends, rng=order.rng)
        await client.run()
        report = await report_after_faults(service, access, client, [], name="private", parts=_LIVE_PARTS)
    bounced = report.bounced == len(sends)
    report.checks += [
        Check("mail for a private address is refused at once", bounced, f"{report.bounced} of {len(sends)}"),
        Check("no private address is connected to", canary.connections == 0, f"{canary.connections} connections"),
    ]
    return report


def _point(names: Responder, domain: str, addresses: list[str]) -> None:
    server = f"mx.{domain}"
    names.set(domain, "MX", [f"10 {server}."])
    names.set(server, "A", [one for one in addresses if ":" not in one])
    names.set(server, "AAAA", [one for one in addresses if ":" in one])
