"""What the doctor asks of the addresses that mail leaves from: whether names and reverse names confirm each other.

Large providers refuse mail from an address without a reverse name that leads back to it (FCrDNS), and many score down
a greeting that is another name than that.
"""

import socket
from ipaddress import ip_address, ip_network

from msgspec import Struct

from engine.base.settings import Settings, variable
from engine.store.resolver import Records, Resolver, TemporaryFailure
from mta.outbound.source_ips.addresses import SourceAddress, sources_of, why_not_ours
from ops.doctor.finding import DoctorFinding, bad, good

# Behind address translation the world sees another address than the one that connections are bound to.
_INSIDE = tuple(
    ip_network(text)
    for text in ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
)
# a.root-servers.net: nothing is sent there; the system is only asked which address it would use.
_WORLD = {socket.AF_INET: "198.41.0.4", socket.AF_INET6: "2001:503:ba3e::2:30"}
_RECORD = {"4": "A", "6": "AAAA"}


class _SourceChecks(Struct):
    """What was found about one source, and what there is to publish."""

    found: list[str]
    publish: list[str]


async def sources(settings: Settings) -> list[DoctorFinding]:
    """Each source, or where none is configured what the system would use: PTR, forward confirmation, EHLO name."""
    if settings.delivery != "live":
        return [good("sources", "not looked at: in local mode no mail leaves this machine")]
    configured = sources_of(settings)
    chosen = configured or _chosen_by_the_system(settings)
    if not chosen:
        return [bad("sources", "this host has no route to the world", "Give it one: mail can't leave without.")]
    resolver = Resolver.from_settings(settings)
    try:
        return [await _examined(resolver, source, ours=bool(configured)) for source in chosen]
    finally:
        await resolver.close()


def _chosen_by_the_system(settings: Settings) -> list[SourceAddress]:
    found = []
    for family, world in _WORLD.items():
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((world, 53))
                found.append(SourceAddress(probe.getsockname()[0], settings.mail_host))
        except OSError:
            continue  # no route in this family: no mail leaves by it
    return found


async def _examined(resolver: Resolver, source: SourceAddress, *, ours: bool) -> DoctorFinding:
    check = f"source {source.ip}"
    problem = why_not_ours(source.ip) if ours else None
    if problem is not None:
        mend = f"Add the address to this host, or take it out of {variable('source_ips')}."
        return bad(check, f"mail can't leave from it here: {problem}", mend)
    seen = _SourceChecks([f"greets as {source.helo}"], [])
    here = ip_address(source.ip)
    if any(here in network for network in _INSIDE):
        await _from_inside(resolver, source, seen)
    else:
        await _forward(resolver, source, seen)
        await _reverse(resolver, source.ip, source.helo, seen)
    if seen.publish:
        return bad(check, "; ".join(seen.found), " ".join(seen.publish))
    return good(check, "; ".join(seen.found))


async def _from_inside(resolver: Resolver, source: SourceAddress, seen: _SourceChecks) -> None:
    """Nobody outside sees this address: what the name stands for is taken for the one they see."""
    record = _RECORD[source.family]
    outside = await _addresses(resolver, source.helo, source.family)
    if isinstance(outside, TemporaryFailure):
        _unknown(seen, record, source.helo, outside)
    elif not outside:
        seen.found.append(f"{record} of {source.helo} missing")
        seen.publish.append(f"Publish {source.helo} {record} with the address that the world sees mail come from.")
    else:
        seen.found.append(f"is translated on its way; judged by {record} of {source.helo}, {', '.join(outside)}")
        for ip in outside:
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
        confirmed = "which leads back" if leads else "which does not lead back"
        seen.found.append(f"PTR of {ip} mismatch ({', '.join(names)}, {confirmed})")
    else:
        seen.found.append(f"PTR of {ip} missing")
    pointer = ip_address(ip).reverse_pointer
    seen.publish.append(f"Have the provider of {ip} publish {pointer} PTR {name}.")


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
    seen.publish.append(f"Look again once DNS answers for {record} of {name}.")
