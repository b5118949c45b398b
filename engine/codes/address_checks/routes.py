"""Ask DNS whether a domain takes mail (RFC 5321 5.1, RFC 7505)."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, Literal

from engine.codes.address_checks.types import MailRoute
from engine.store.resolver import Mx, NoData, NxDomain, Records, Resolver, TemporaryFailure

DNS_TIMEOUT_S: Final = 4.8  # for all look-ups of a call together: its answer comes within 5 s
MAX_HOSTS: Final = 5  # mail servers of a domain that are looked at; the first that exists suffices


async def routes_of(
    resolver: Resolver, domains: Collection[str], *, timeout_s: float = DNS_TIMEOUT_S
) -> dict[str, MailRoute]:
    """Return what DNS says about each domain; one that got no answer in time is UNREACHABLE."""
    found = dict.fromkeys(domains, MailRoute.UNREACHABLE)

    async def look_up(domain: str) -> None:
        found[domain] = await route_of(resolver, domain)

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as tasks:
            for domain in found:
                tasks.create_task(look_up(domain))
    return found


async def route_of(resolver: Resolver, domain: str) -> MailRoute:
    """Return what DNS says about mail to one domain."""
    answer = await resolver.mx(domain)
    if isinstance(answer, TemporaryFailure):
        return MailRoute.UNREACHABLE
    if isinstance(answer, NxDomain):
        return MailRoute.NO_DOMAIN
    if isinstance(answer, NoData):  # RFC 5321 5.1: the domain itself is the mail server then
        return await _any_exists(resolver, [domain])
    hosts = _hosts(answer)
    return await _any_exists(resolver, hosts[:MAX_HOSTS]) if hosts else MailRoute.NULL_MX


def _hosts(answer: Records[Mx]) -> list[str]:
    """Return the mail servers by preference; none for a null MX. A root name beside others is ignored (RFC 7505 3)."""
    ordered = sorted(answer.values, key=lambda one: one.preference)
    return list(dict.fromkeys(one.host for one in ordered if one.host))


async def _any_exists(resolver: Resolver, hosts: Sequence[str]) -> MailRoute:
    uncertain = False
    kinds: tuple[Literal["A", "AAAA"], ...] = ("A", "AAAA")
    for host in hosts:
        for kind in kinds:
            answer = await resolver.addresses(host, kind)
            if isinstance(answer, Records):
                return MailRoute.SERVER
            uncertain = uncertain or isinstance(answer, TemporaryFailure)
    return MailRoute.UNREACHABLE if uncertain else MailRoute.NO_SERVER
