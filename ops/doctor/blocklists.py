"""Check of the blocklists: every list can be trusted, and no source address is on one.

It reads the findings of the worker and looks nothing up.
"""

import asyncpg

from engine.base import clock
from engine.base.settings import Settings, variable
from engine.sending.blocklists import store
from engine.sending.blocklists.types import CheckedAddress, TestedList
from ops.doctor.finding import DoctorFinding, bad, good

CHECK = "blocklists"
MAX_NAMED = 5


async def blocklists(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Report listed source addresses first, then lists that cannot be trusted."""
    lists = await store.LISTS.fetch(connection)
    if not lists:
        if settings.blocklist_ip_zones or settings.blocklist_domain_zones:
            return good(CHECK, "not tested yet: a worker does it within a minute once there is something to check")
        return good(CHECK, f"not asked: {variable('blocklist_ip_zones')} names none")
    addresses = await store.ADDRESSES.fetch(connection, clock.now())
    listed = [one for one in addresses if one.listed_on]
    if listed:
        mend = "Find the cause, then ask the list to remove the address: ops/runbooks/blocklists.md."
        return bad(CHECK, "; ".join(map(_said, listed[:MAX_NAMED])), mend)
    wrong = [one for one in lists if not one.trusted and not _covers_ipv4_only(one, lists)]
    if wrong:
        mend = (
            f"Most lists refuse public resolvers: set {variable('dns_servers')} to a resolver of your own, or "
            f"remove the list from {variable('blocklist_ip_zones')} and {variable('blocklist_domain_zones')}."
        )
        return bad(CHECK, "; ".join(f"{one.name} can't be trusted: {one.detail}" for one in wrong[:MAX_NAMED]), mend)
    domains = (await store.count_listed(connection)).domains
    return good(CHECK, f"no source address of {len(addresses)} is listed; {domains} domains of customers are")


def _said(address: CheckedAddress) -> str:
    return f"{address.ip} is on {', '.join(address.listed_on)}"


def _covers_ipv4_only(one: TestedList, lists: list[TestedList]) -> bool:
    """Return True for the IPv6 side of a list whose IPv4 side is right: many lists hold no IPv6 addresses."""
    return one.family == "ipv6" and any(
        other.name == one.name and other.family == "ipv4" and other.trusted for other in lists
    )
