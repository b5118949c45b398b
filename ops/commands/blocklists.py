"""`ops blocklists`: lists and whether they can be trusted, source addresses, and listings."""

from typing import Any

import asyncpg
import click

from engine.base import clock, ids
from engine.base.settings import Settings, variable
from engine.sending.blocklists import jobs, store
from engine.store.resolver import ascii_domain
from ops.commands.base import as_json, in_database, in_service, limit_option, print_json, reported, show_rows

MAX_NAME = 253
_COLUMNS = {
    "lists": ["list", "family", "trusted", "detail", "testedAt"],
    "addresses": ["ip", "state", "listedOn", "checkedAt"],
    "listings": ["kind", "target", "list", "since", "lastSeen", "answer", "account"],
}


@click.command()
@click.option("--check", is_flag=True, help="Check all source addresses, and what else is due, before printing.")
@click.option("--domain", metavar="NAME", help="Check this verified domain too; implies --check.")
@limit_option(50, most=10_000)
@as_json
@reported
def blocklists(*, check: bool, domain: str | None, limit: int, as_json: bool) -> None:
    """Show the DNS blocklists, whether each can be trusted, and which addresses and domains they name."""
    if check or domain is not None:
        in_service(check_now, domain)
    found = in_database(standing, limit=limit)
    if as_json:
        print_json(found)
        return
    for name, columns in _COLUMNS.items():
        click.echo(f"{name}:")
        show_rows(found[name], columns, as_json=False)


async def standing(pool: asyncpg.Pool, *, limit: int) -> dict[str, Any]:
    """Return the lists, the source addresses, and at most `limit` listings."""
    return {
        "lists": [
            {
                "list": one.name,
                "family": one.family,
                "trusted": one.trusted,
                "detail": one.detail,
                "testedAt": clock.iso(one.tested_at),
            }
            for one in await store.LISTS.fetch(pool)
        ],
        "addresses": [
            {
                "ip": one.ip,
                "state": "listed" if one.listed_on else "not listed" if one.measured else "unknown",
                "listedOn": one.listed_on,
                "checkedAt": clock.iso_or_none(one.checked_at),
            }
            for one in await store.ADDRESSES.fetch(pool, clock.now())
        ],
        "listings": [
            {
                "kind": one.kind,
                "target": one.target,
                "list": one.zone,
                "answer": one.answer,
                "since": clock.iso(one.listed_since),
                "lastSeen": clock.iso(one.last_seen),
                "account": None if one.account_id is None else ids.format_id(ids.Kind.ACCOUNT, one.account_id),
            }
            for one in await store.LISTINGS.fetch(pool, limit)
        ],
    }


async def check_now(pool: asyncpg.Pool, settings: Settings, domain: str | None) -> int:
    """Check all source addresses, a domain, and what else is due; return the number of checked targets.

    Raises ValueError if no lists are set, or if the domain is not a verified one.
    """
    if not settings.blocklist_ip_zones and not settings.blocklist_domain_zones:
        names = f"{variable('blocklist_ip_zones')} or {variable('blocklist_domain_zones')}"
        raise ValueError(f"No blocklists are set. Set {names}, for the worker too.")
    if not await store.make_due(pool, None if domain is None else ascii_domain(domain) or domain):
        raise ValueError(f"{(domain or '')[:MAX_NAME]!r} is not a verified domain of any account.")
    return await jobs.check_due(pool, settings)
