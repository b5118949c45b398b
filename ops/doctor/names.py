"""What the doctor asks of DNS: that it answers, and in live mode that our own name and address lead to each other."""

import dns.asyncresolver
import dns.exception
import dns.reversename

from engine.base.settings import Settings, variable
from engine.store.resolver import Records, Resolver, TemporaryFailure, system_servers
from ops.doctor.database import verified_domain
from ops.doctor.finding import Finding, bad, good

TIMEOUT_S = 5.0


async def names(settings: Settings) -> list[Finding]:
    """The resolver answers, and in live mode the mail host's name and address lead to each other."""
    resolver = Resolver.from_settings(settings)
    try:
        found = [await _resolver(resolver, settings)]
        if settings.delivery == "live":
            found.append(await _mail_host(resolver, settings))
        return found
    finally:
        await resolver.close()


async def _resolver(resolver: Resolver, settings: Settings) -> Finding:
    name = await verified_domain(settings) or settings.mail_host
    for answer in (await resolver.mx(name), await resolver.txt(name)):
        if isinstance(answer, TemporaryFailure):
            if settings.delivery == "local" and not settings.dns_servers:
                mend = f"See {settings.state}/log/dns.log."
            else:
                mend = f"Name servers that answer in {variable('dns_servers')}, or mend /etc/resolv.conf."
            return bad("dns", answer.detail, mend)
    return good("dns", f"MX and TXT of {name} are answered")


async def _mail_host(resolver: Resolver, settings: Settings) -> Finding:
    """Forward-confirmed reverse DNS: large providers refuse hosts without it."""
    host = settings.mail_host
    addresses = await _addresses(resolver, host)
    if not addresses:
        mend = f"Publish {host} (A, AAAA) with the address that mail leaves from, or correct {variable('mail_host')}."
        return bad("mail host", f"{host} has no address", mend)
    for address in addresses:
        reverse = await _reverse(settings, address)
        confirmed = [name for name in reverse if address in await _addresses(resolver, name)]
        if not confirmed:
            mend = f"Have the provider of {address} set its reverse record (PTR) to {host}."
            return bad("mail host", f"{address} of {host} has the reverse name {', '.join(reverse) or 'none'}", mend)
    return good("mail host", f"{host} is {', '.join(addresses)}, and its reverse names lead back")


async def _addresses(resolver: Resolver, name: str) -> tuple[str, ...]:
    answers = (await resolver.addresses(name, "A"), await resolver.addresses(name, "AAAA"))
    return tuple(value for answer in answers if isinstance(answer, Records) for value in answer.values)


async def _reverse(settings: Settings, address: str) -> list[str]:
    servers = settings.dns_servers or system_servers()
    asked = dns.asyncresolver.Resolver(configure=False)
    asked.nameservers = [server.host for server in servers]
    asked.nameserver_ports = {server.host: server.port for server in servers}
    try:
        answer = await asked.resolve(dns.reversename.from_address(address), "PTR", lifetime=TIMEOUT_S)
    except dns.exception.DNSException:
        return []
    return [record.target.to_text(omit_final_dot=True).lower() for record in answer]
