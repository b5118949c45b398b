"""Find the public addresses that the service's mail leaves from."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from engine.base.netaddr import is_public
from engine.base.settings import Settings
from engine.store.resolver import Records, Resolver, TemporaryFailure

_KINDS: tuple[Literal["A", "AAAA"], ...] = ("A", "AAAA")


class PublicSources(Struct, frozen=True):
    """Public source addresses; `complete` is False if DNS did not answer for one of the names."""

    ips: tuple[str, ...]
    complete: bool


async def public_sources(resolver: Resolver, settings: Settings, pooled: Iterable[str]) -> PublicSources:
    """Return the source addresses of this host and `pooled`, those that pools and warm-ups name for other hosts.

    Where this host sends from private addresses, or the system chooses, receivers see the addresses that the EHLO
    names resolve to.
    """
    own = {one.ip: one.name or settings.mail_host for one in settings.source_ips}
    names = {name for ip, name in own.items() if not is_public(ip)}
    if not own:
        names = {settings.mail_host}
    found = {ip for ip in (*own, *pooled) if is_public(ip)}
    complete = True
    for name in sorted(names):
        for kind in _KINDS:
            answer = await resolver.addresses(name, kind)
            complete = complete and not isinstance(answer, TemporaryFailure)
            found.update(ip for ip in (answer.values if isinstance(answer, Records) else ()) if is_public(ip))
    return PublicSources(tuple(sorted(found)), complete)
