"""`ops drill names`: the recipients' DNS fails in different ways; check what happens to their mail.

The service uses the drill's own DNS responder. Temporary failures must defer mail and deliver it after recovery,
answers
that rule out a mail server must end it at once, and private addresses must never be connected to.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import asyncpg
from msgspec import Struct

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.drill_network import DrillNetwork
from loadtests.drill.fresh_service import account_id, database_url, first_access, run_with_network
from loadtests.drill.kill_drills import report_after_faults
from loadtests.drill.report import Check, DrillReport, combined
from loadtests.drill.send_client import ApiAccess, Send, SendClient
from loadtests.drill.service import Service, ServicePart
from loadtests.ports import reserve_port
from ops.local.dns import DnsBehaviour, Responder

NAME: Final = "names"
EACH: Final = 3  # messages a domain and failure
SEEN_S: Final = 60.0
_LOCAL: Final = "127.0.0.1"
_MANY: Final = 1_000
_LIVE_PARTS: Final = (ServicePart.API, ServicePart.MTA, ServicePart.WORKER, ServicePart.POSTGRES, ServicePart.VALKEY)
_DEFERS: Final = frozenset({"queued", "sending"})
_ENDS: Final = frozenset({"bounced"})
_ARRIVES: Final = frozenset({"delivered"})


class DnsFailure(Struct, frozen=True):
    """A domain whose DNS fails in one way; `allowed_statuses` holds the statuses that its mail may have meanwhile."""

    domain: str
    what: str
    allowed_statuses: frozenset[str]


CASES: Final = (
    DnsFailure("timeout.test", "no answer", _DEFERS),
    DnsFailure("mute-mx.test", "no answer for the mail server's address", _DEFERS),
    DnsFailure("failing.test", "SERVFAIL", _DEFERS),
    DnsFailure("failing-mx.test", "SERVFAIL for the mail server's address", _DEFERS),
    DnsFailure("refusing.test", "REFUSED", _DEFERS),
    DnsFailure("gone.test", "NXDOMAIN", _ENDS),
    DnsFailure("null.test", "null MX", _ENDS),
    DnsFailure("bare.test", "neither MX nor address", _ENDS),
    DnsFailure("cut.test", "truncated over UDP, complete over TCP", _ARRIVES),
    DnsFailure("many.test", "a thousand MX", _ARRIVES),
    DnsFailure("plain.test", "an address and no MX", _ARRIVES),
    DnsFailure("half.test", "SERVFAIL for AAAA only", _ARRIVES),
    DnsFailure("second.test", "the first of two mail servers does not exist", _ARRIVES),
    DnsFailure("late.test", "answers a second late", _ARRIVES),
)
HEALS: Final = {case.domain: case for case in CASES if case.allowed_statuses is _DEFERS}
PRIVATE: Final = {
    "loopback.test": ["127.0.0.1"], "ten.test": ["10.1.2.3"], "metadata.test": ["169.254.169.254"],
    "zero.test": ["0.0.0.0"], "six.test": ["::1"], "mapped.test": ["::ffff:127.0.0.1"],  # noqa: S104 - an answer
    "nat64.test": ["64:ff9b::7f00:1"],
}  # fmt: skip


def run(order: DrillOrder) -> DrillReport:
    """Run the temporary and permanent failures, then the private addresses (fault 26)."""
    return combined(NAME, [_failing(order), _private(order)])


def _failing(order: DrillOrder) -> DrillReport:
    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        for case in CASES:
            _misbehave(network.names, case.domain)
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

    return run_with_network(play)


def _with_cases(report: DrillReport, sends: list[Send], seen: Mapping[str, str]) -> DrillReport:
    for case in CASES:
        found = sorted({seen.get(send.address, "?") for send in sends if send.address.endswith("@" + case.domain)})
        ok = set(found) <= case.allowed_statuses
        report.checks.append(Check(f"{case.what}: {' or '.join(sorted(case.allowed_statuses))}", ok, ", ".join(found)))
    return report


async def _seen(service: Service, access: ApiAccess, sends: list[Send]) -> dict[str, str]:
    """Return the status of each address once all decidable mail is settled and deferred mail was tried, or after
    SEEN_S."""
    connection = await asyncpg.connect(database_url(service))
    decided = {send.address for send in sends if send.address.partition("@")[2] not in HEALS}
    try:
        ends = time.monotonic() + SEEN_S
        while True:
            rows = await connection.fetch(
                "SELECT address, status FROM recipients WHERE account_id = $1", account_id(access)
            )
            seen = {row["address"]: row["status"] for row in rows}
            open_ = [address for address in decided if seen.get(address) in _DEFERS]
            tried = await connection.fetchval(
                "SELECT count(DISTINCT message_id) FROM events WHERE account_id = $1 AND type = 'deferred'",
                account_id(access),
            )
            if (not open_ and tried >= len(HEALS) * EACH) or time.monotonic() > ends:
                return seen
            await asyncio.sleep(0.25)
    finally:
        await connection.close()


def _misbehave(names: Responder, domain: str) -> None:
    """Configure the DNS records and failures of one domain of CASES."""
    server = f"mx.{domain}"
    names.set(domain, "MX", [f"10 {server}."])
    names.set(server, "A", [_LOCAL])
    names.set(server, "AAAA", [])
    match domain:
        case "timeout.test":
            names.behave(domain, DnsBehaviour(drop=True))
        case "mute-mx.test":
            names.behave(server, DnsBehaviour(drop=True))
        case "failing.test":
            names.behave(domain, DnsBehaviour(rcode="SERVFAIL"))
        case "failing-mx.test":
            names.behave(server, DnsBehaviour(rcode="SERVFAIL"))
        case "refusing.test":
            names.behave(domain, DnsBehaviour(rcode="REFUSED"))
        case "gone.test":
            names.behave(domain, DnsBehaviour(rcode="NXDOMAIN"))
        case "null.test":
            names.null_mx(domain)
        case "bare.test":
            for rdtype in ("MX", "A", "AAAA"):
                names.set(domain, rdtype, [])
        case "plain.test":
            names.set(domain, "MX", [])
            names.set(domain, "A", [_LOCAL])
            names.set(domain, "AAAA", [])
        case _:
            _misbehave_and_deliver(names, domain, server)


def _misbehave_and_deliver(names: Responder, domain: str, server: str) -> None:
    match domain:
        case "cut.test":
            for name in (domain, server):
                names.behave(name, DnsBehaviour(truncate=True))
        case "many.test":
            names.set(domain, "MX", [f"{number} mx{number}.{domain}." for number in range(_MANY)])
            for number in range(_MANY):
                names.set(f"mx{number}.{domain}", "A", [_LOCAL])
                names.set(f"mx{number}.{domain}", "AAAA", [])
        case "half.test":
            names.behave(server, DnsBehaviour(rcode="SERVFAIL"), "AAAA")
        case "second.test":
            names.set(domain, "MX", [f"5 absent.{domain}.", f"10 {server}."])
            names.behave(f"absent.{domain}", DnsBehaviour(rcode="NXDOMAIN"))
        case "late.test":
            names.behave(domain, DnsBehaviour(delay_s=1.0))


def _heal(names: Responder, domain: str) -> None:
    for name in (domain, f"mx.{domain}"):
        names.behave(name, None)


def _private(order: DrillOrder) -> DrillReport:
    """Send to domains that point to private addresses, with the service in live mode."""

    async def play(service: Service, network: DrillNetwork) -> DrillReport:
        access = first_access(service)
        for domain, addresses in PRIVATE.items():
            _point(network.names, domain, addresses)
        network.names.set("literal.test", "MX", ["10 127.0.0.1."])
        connections = 0

        async def canary(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            writer.close()

        await asyncio.to_thread(service.stop)
        port = reserve_port()
        service.set("DELIVERY", "live")
        service.set("SMTP_PORT", str(port))
        service.start()  # must run in the main thread; the network has its own
        sends = [
            Send("private", number, f"reader@{domain}") for number, domain in enumerate([*PRIVATE, "literal.test"])
        ]
        async with await asyncio.start_server(canary, _LOCAL, port):
            client = SendClient(service.base_url, access, sends, rng=order.rng)
            await client.run()
            report = await report_after_faults(service, access, client, [], name="private", parts=_LIVE_PARTS)
        bounced = report.bounced == len(sends)
        report.checks += [
            Check("mail for a private address is refused at once", bounced, f"{report.bounced} of {len(sends)}"),
            Check("no private address is connected to", connections == 0, f"{connections} connections"),
        ]
        return report

    return run_with_network(play)


def _point(names: Responder, domain: str, addresses: list[str]) -> None:
    server = f"mx.{domain}"
    names.set(domain, "MX", [f"10 {server}."])
    names.set(server, "A", [one for one in addresses if ":" not in one])
    names.set(server, "AAAA", [one for one in addresses if ":" in one])
