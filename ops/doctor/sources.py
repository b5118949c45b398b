"""Checks of source addresses: forward-confirmed reverse DNS (FCrDNS), and an EHLO name that matches it.

Large providers refuse mail from an address without it, and many lower the score of a sender whose EHLO name differs.
"""

import socket
from ipaddress import ip_address, ip_network

from msgspec import Struct

from engine.base.settings import Settings, variable
from engine.store.resolver import Records, Resolver, TemporaryFailure
from mta.outbound.source_ips.addresses import SourceAddress, sources_of, why_not_ours
from ops.doctor.finding import DoctorFinding, bad, good

# Behind address translation, receivers see another address than the one that connections are bound to.
_PRIVATE = tuple(
    ip_network(text)
    for text in ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
# a.root-servers.net. No packet is sent: connecting a UDP socket shows the address that the system would use.
_INTERNET = {socket.AF_INET: "198.41.0.4", socket.AF_INET6: "2001:503:ba3e::2:30"}
_RECORD = {"4": "A", "6": "AAAA"}


class _SourceChecks(Struct):
    """Results for one source address, collected by the functions below, and the records to publish."""

    found: list[str]
    publish: list[str]


async def sources(settings: Settings) -> list[DoctorFinding]:
    """Check each configured source address, or the system's default ones: PTR, forward confirmation, EHLO name."""
    if settings.delivery != "live":
        return [good("sources", "not checked: in local mode no mail leaves this machine")]
    configured = sources_of(settings)
    chosen = configured or _default_sources(settings)
    if not chosen:
        return [
            bad(
                "sources",
                "this host has no route to the internet",
                "Configure a default route; mail can't be sent without one.",
            )
        ]
    resolver = Resolver.from_settings(settings)
    try:
        return [await _examined(resolver, source, ours=bool(configured)) for source in chosen]
    finally:
        await resolver.close()


def _default_sources(settings: Settings) -> list[SourceAddress]:
    found = []
    for family, target in _INTERNET.items():
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 53))
                found.append(SourceAddress(probe.getsockname()[0], settings.mail_host))
        except OSError:
            continue  # no route in this address family
    return found


async def _examined(resolver: Resolver, source: SourceAddress, *, ours: bool) -> DoctorFinding:
    check = f"source {source.ip}"
    problem = why_not_ours(source.ip) if ours else None
    if problem is not None:
        mend = f"Add the address to this host, or remove it from {variable('source_ips')}."
        return bad(check, f"can't be used on this host: {problem}", mend)
    seen = _SourceChecks([f"EHLO name {source.helo}"], [])
    here = ip_address(source.ip)
    if any(here in network for network in _PRIVATE):
        await _translated(resolver, source, seen)
    else:
        await _forward(resolver, source, seen)
        await _reverse(resolver, source.ip, source.helo, seen)
    if seen.publish:
        return bad(check, "; ".join(seen.found), " ".join(seen.publish))
    return good(check, "; ".join(seen.found))


async def _translated(resolver: Resolver, source: SourceAddress, seen: _SourceChecks) -> None:
    """Check a private address: receivers see its public one, taken from the EHLO name's records."""
    record = _RECORD[source.family]
    public = await _addresses(resolver, source.helo, source.family)
    if isinstance(public, TemporaryFailure):
        _unknown(seen, record, source.helo, public)
    elif not public:
        seen.found.append(f"{record} of {source.helo} missing")
        seen.publish.append(f"Publish {source.helo} {record} with the public address that mail comes from.")
    else:
        seen.found.append(f"private address; {record} of {source.helo} gives the public {', '.join(public)}")
        for ip in public:
            await _reverse(resolver, ip, source.helo, seen)


async def _forward(resolver: Resolver, source: SourceAddress, seen: _SourceChecks) -> None:
    record = _RECORD[source.family]
    found = await _addresses(resolver, source.helo, source.family)
    if isinstance(found, TemporaryFailure):
        _unknown(seen, record, source.helo, found)
    elif source.ip in found:
        seen.found.append(f"{record} of {source.helo} ok")
    else:
        state = f"mismatch ({', '.join(found)})" if found else "missing"
        seen.found.append(f"{record} of {source.helo} {state}")
        seen.publish.append(f"Publish {source.helo} {record} {source.ip}.")


async def _reverse(resolver: Resolver, ip: str, name: str, seen: _SourceChecks) -> None:
    answer = await resolver.names(ip)
    if isinstance(answer, TemporaryFailure):
        _unknown(seen, "PTR", ip, answer)
        return
    names = [one.rstrip(".").lower() for one in answer.values] if isinstance(answer, Records) else []
    if name in names:
        seen.found.append(f"PTR of {ip} ok")
        return
    if names:
        leads = [one for one in names if ip in (await _plain(resolver, one, ip))]
        confirmed = "which resolves back" if leads else "which does not resolve back"
        seen.found.append(f"PTR of {ip} mismatch ({', '.join(names)}, {confirmed})")
    else:
        seen.found.append(f"PTR of {ip} missing")
    pointer = ip_address(ip).reverse_pointer
    seen.publish.append(f"Ask the provider of {ip} to publish {pointer} PTR {name}.")


async def _plain(resolver: Resolver, name: str, ip: str) -> tuple[str, ...]:
    found = await _addresses(resolver, name, "6" if ":" in ip else "4")
    return () if isinstance(found, TemporaryFailure) else found


async def _addresses(resolver: Resolver, name: str, family: str) -> tuple[str, ...] | TemporaryFailure:
    answer = await resolver.addresses(name, "AAAA" if family == "6" else "A")
    if isinstance(answer, TemporaryFailure):
        return answer
    return tuple(str(ip_address(one)) for one in answer.values) if isinstance(answer, Records) else ()


def _unknown(seen: _SourceChecks, record: str, name: str, failure: TemporaryFailure) -> None:
    seen.found.append(f"{record} of {name} unknown ({failure.detail})")
    seen.publish.append(f"Run `ops doctor` again when DNS answers for {record} of {name}.")
