"""Checks of DNS: the resolver answers; in live mode the mail host has forward-confirmed reverse DNS and MX records."""

import asyncio
from secrets import token_hex

from engine.base.settings import Settings, variable
from engine.store.resolver import Records, Resolver, TemporaryFailure
from ops.doctor.database import verified_domain
from ops.doctor.finding import DoctorFinding, bad, good

REPEAT_S = 2.0  # a busy server may fail one query; the local one rests for 1 s after the database was late


async def names(settings: Settings) -> list[DoctorFinding]:
    """Check the resolver, and in live mode the address, reverse names and MX records of the mail host."""
    found = [await _resolver(settings)]
    if not found[0].ok:
        await asyncio.sleep(REPEAT_S)
        found = [await _resolver(settings)]
    resolver = Resolver.from_settings(settings)
    try:
        if settings.delivery == "live":
            found.append(await _mail_host(resolver, settings))
            host = settings.mail_host
            found.append(await _mx(resolver, host, host, host, "complaints, DMARC and TLS reports", or_address=True))
            found.append(await _mx(resolver, host, f"bounces.{host}", f"bounces.{host}", "bounces and complaints"))
            # A random label: a name that exists by itself would hide a missing wildcard (RFC 4592 2.2.2).
            drawn = f"{token_hex(8)}.in.{host}"
            found.append(await _mx(resolver, host, drawn, f"*.in.{host}", "mail to managed receiving domains"))
        return found
    finally:
        await resolver.close()


async def _resolver(settings: Settings) -> DoctorFinding:
    """Check MX and TXT of a verified domain, or of the mail host, past every cache."""
    name = await verified_domain(settings) or settings.mail_host
    resolver = Resolver.from_settings(settings)
    try:
        answers = await resolver.mx(name), await resolver.txt(name)
    finally:
        await resolver.close()
    for answer in answers:
        if isinstance(answer, TemporaryFailure):
            if settings.delivery == "local" and not settings.dns_servers:
                mend = f"Read {settings.state}/log/dns.log."
            else:
                mend = f"Set {variable('dns_servers')} to name servers that answer, or correct /etc/resolv.conf."
            return bad("dns", answer.detail, mend)
    return good("dns", f"answers for MX and TXT of {name}")


async def _mail_host(resolver: Resolver, settings: Settings) -> DoctorFinding:
    """Check forward-confirmed reverse DNS; large providers refuse hosts without it."""
    host = settings.mail_host
    addresses = await _addresses(resolver, host)
    if not addresses:
        mend = f"Publish A or AAAA of {host} with the source address of mail, or correct {variable('mail_host')}."
        return bad("mail host", f"{host} has no address", mend)
    for address in addresses:
        reverse = await _reverse(resolver, address)
        confirmed = [name for name in reverse if address in await _addresses(resolver, name)]
        if not confirmed:
            mend = f"Ask the provider of {address} to set its reverse record (PTR) to {host}."
            return bad("mail host", f"{address} of {host} has the reverse name {', '.join(reverse) or 'none'}", mend)
    return good("mail host", f"{host} has {', '.join(addresses)}, confirmed by reverse DNS")


async def _mx(
    resolver: Resolver, host: str, asked: str, published: str, purpose: str, *, or_address: bool = False
) -> DoctorFinding:
    """Check that the MX records of `asked`, published as `published`, lead to the mail host and to no other.

    `or_address`: a name without MX records will do, because mail goes to its address then (RFC 5321 5.1).
    """
    subject = f"MX of {published}"
    answer = await resolver.mx(asked)
    if isinstance(answer, TemporaryFailure):
        return bad(subject, answer.detail, "Repeat the check; name servers of the domain do not answer.")
    records = sorted(answer.values, key=lambda one: one.preference) if isinstance(answer, Records) else []
    found = [one.host for one in records]
    if set(found) == {host}:
        return good(subject, f"points to {host}")
    if or_address and not found:
        return good(subject, "no record: mail goes to the address of the host")
    mend = f"Publish {published} MX 10 {host}. and no other MX there: without it {purpose} do not arrive."
    return bad(subject, f"points to {', '.join(name or '.' for name in found)}" if found else "no record", mend)


async def _addresses(resolver: Resolver, name: str) -> tuple[str, ...]:
    answers = (await resolver.addresses(name, "A"), await resolver.addresses(name, "AAAA"))
    return tuple(value for answer in answers if isinstance(answer, Records) for value in answer.values)


async def _reverse(resolver: Resolver, address: str) -> list[str]:
    answer = await resolver.names(address)
    return [name.rstrip(".").lower() for name in answer.values] if isinstance(answer, Records) else []
