"""`ops source`: source addresses, their pools, warm-up, and sites that refuse them."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import asyncpg
import click

from engine.base import clock, ids
from engine.base.settings import Settings, variable
from engine.base.slugs import is_slug
from engine.delivery import sources_store
from engine.delivery.sources import (
    ANY_STREAM,
    SHIPPED,
    Assignment,
    SourceBook,
    Warmup,
    checked_ip,
    checked_members,
    checked_plan,
)
from engine.store.database_errors import ForeignKeyViolation
from mta.outbound.source_ips.addresses import sources_of, why_not_ours
from ops.commands.base import as_json, fail, in_database, in_service, reported, show
from ops.commands.site import numbers

MAX_SITES = 200
MAX_NAME = 64
WAKE_S = 30.0  # deliveries that wait for warm-up quota are made due again, spread over this time
_ip = click.argument("ip", help="Source address, as written in WAYBILL_SOURCE_IPS.")
_pool_name = click.argument("name", help="Name of the pool.")


@click.group()
def source() -> None:
    """Manage source addresses (WAYBILL_SOURCE_IPS): pools by stream, warm-up, refusals."""


@source.command("list")
@as_json
@reported
def source_list(*, as_json: bool) -> None:
    """List source addresses, pools, and the streams assigned to them."""
    found = in_service(listing)
    if not as_json and not found["sources"]:
        click.echo("No source address is configured: the system chooses one for each connection.")
        return
    show(found if as_json else {name: value for name, value in found.items() if value}, as_json=as_json)


@source.command("show")
@_ip
@as_json
@reported
def source_show(*, ip: str, as_json: bool) -> None:
    """Show a source address: warm-up, messages sent today (UTC) and their limit, and sites that refuse it."""
    found = in_service(details, ip)
    show(
        found if as_json else {name: value for name, value in found.items() if value not in (None, [])}, as_json=as_json
    )


@source.group("pool")
def source_pool() -> None:
    """Manage pools of source addresses."""


@source_pool.command("set")
@_pool_name
@click.option(
    "--ips", required=True, help="Addresses, such as 192.0.2.1,192.0.2.2*3; here the second sends three times as much."
)
@as_json
@reported
def source_pool_set(*, name: str, ips: str, as_json: bool) -> None:
    """Create a pool or replace its addresses. In force within a second."""
    show(in_service(set_pool, name, ips), as_json=as_json)


@source_pool.command("remove")
@_pool_name
@as_json
@reported
def source_pool_remove(*, name: str, as_json: bool) -> None:
    """Remove a pool that no stream is assigned to."""
    show(in_database(remove_pool, name), as_json=as_json)


@source.command("assign")
@click.option("--stream", required=True, help="Id of a stream, `broadcast`, `verification`, or `*` for all mail.")
@click.option("--pool", "name", required=True, help="Name of the pool.")
@click.option("--account", help="Id of an account (acc_…); default: all accounts.")
@as_json
@reported
def source_assign(*, stream: str, name: str, account: str | None, as_json: bool) -> None:
    """Send the mail of a stream from a pool. An assignment for one account wins over one for all accounts."""
    show(in_database(assign, stream=stream, name=name, account=account), as_json=as_json)


@source.command("unassign")
@click.option("--stream", required=True, help="Stream, as given to `ops source assign`.")
@click.option("--account", help="Id of an account (acc_…); default: all accounts.")
@as_json
@reported
def source_unassign(*, stream: str, account: str | None, as_json: bool) -> None:
    """Send the mail of a stream from any source address again."""
    show(in_database(unassign, stream=stream, account=account), as_json=as_json)


@source.command("warmup")
@_ip
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), help="Day (UTC) of its first email.")
@click.option("--plan", help="Messages per day to each provider, such as 50,100,500; default: the shipped plan.")
@click.option("--off", is_flag=True, help="End the warm-up and its daily limits.")
@as_json
@reported
def source_warmup(*, ip: str, start: datetime | None, plan: str | None, off: bool, as_json: bool) -> None:
    """Warm up a new address with more mail each day. Mail above the day's limit waits until midnight UTC."""
    if off == (start is not None) or (off and plan):
        fail("Give either --start DATE (and optionally --plan), or --off.")
    if start is None:
        show(in_database(end_warm_up, ip), as_json=as_json)
        return
    steps = None if plan is None else numbers("--plan", plan, int)
    day = start.date()
    show(in_database(warm_up, ip, day, steps), as_json=as_json)


@source.command("trust")
@_ip
@click.option("--site", help="Site, as `ops source show` names it; default: all.")
@as_json
@reported
def source_trust(*, ip: str, site: str | None, as_json: bool) -> None:
    """Use an address again for sites that refused it, for example after its removal from a blocklist."""
    show(in_database(trust, ip, site), as_json=as_json)


async def listing(pool: asyncpg.Pool, settings: Settings) -> dict[str, Any]:
    """Return all source addresses (configured here or in pools and warm-ups), pools and assignments."""
    book = await sources_store.read(pool)
    today = clock.now().date()
    used = await sources_store.sums(pool, today)
    names = {source.ip: source.helo for source in sources_of(settings)}
    known = dict.fromkeys([*names, *book.warmups, *(one.ip for named in book.pools.values() for one in named.members)])
    return {
        "sources": [
            {
                "ip": ip,
                "ehlo": names.get(ip, ""),
                "here": _here(ip, names),
                "pools": ", ".join(_pools_of(book, ip)),
                "warmUp": _warm_up(book.warmups.get(ip), today),
                "today": used.get(ip, 0),
            }
            for ip in known
        ],
        "pools": [
            {"pool": one.name, "ips": ", ".join(_member(member.ip, member.weight) for member in one.members)}
            for one in book.pools.values()
        ],
        "assigned": [
            {"stream": stream, "account": _account(account), "pool": name}
            for (stream, account), name in book.assignments.items()
        ],
    }


async def details(pool: asyncpg.Pool, settings: Settings, ip: str) -> dict[str, Any]:
    """Return one source address: warm-up plan, messages sent today per site and their limit, sites that refuse it."""
    wanted = checked_ip(ip)
    book = await sources_store.read(pool)
    now = clock.now()
    today = now.date()
    warmup = book.warmups.get(wanted)
    allowed = None if warmup is None else warmup.allowance(today)
    counts = await sources_store.counts(pool, today, wanted, MAX_SITES)
    rests = await sources_store.rests_of(pool, wanted, now, MAX_SITES)
    names = {source.ip: source.helo for source in sources_of(settings)}
    return {
        "ip": wanted,
        "ehlo": names.get(wanted, ""),
        "here": _here(wanted, names),
        "pools": _pools_of(book, wanted),
        "warmUp": _warm_up(warmup, today),
        "plan": [] if warmup is None else list(warmup.plan),
        "allowed": allowed,
        "today": [{"site": one.site, "sent": one.used, "allowed": allowed} for one in counts],
        "refused": [{"site": one.site, "until": clock.iso(one.until), "said": one.said} for one in rests],
    }


async def set_pool(pool: asyncpg.Pool, settings: Settings, name: str, ips: str) -> dict[str, Any]:
    """Create or replace a pool; `ips` is `ip` or `ip*weight`, joined by commas. In force within a second."""
    members = checked_members(ips)
    if not is_slug(name):
        raise ValueError(f"{name[:MAX_NAME]!r} is not a valid pool name. Use lower-case letters, digits and hyphens.")
    await sources_store.set_pool(pool, name, members)
    here = {source.ip for source in sources_of(settings)}
    elsewhere = [one.ip for one in members if one.ip not in here]
    done: dict[str, Any] = {"pool": name, "ips": [_member(one.ip, one.weight) for one in members]}
    if elsewhere:
        done["notHere"] = f"{', '.join(elsewhere)}: not in {variable('source_ips')} of this host"
    return done


async def remove_pool(pool: asyncpg.Pool, name: str) -> dict[str, Any]:
    """Delete a pool; raises ValueError if it is unknown or a stream is assigned to it."""
    if not await sources_store.remove_pool(pool, name):
        raise ValueError(f"No pool {name[:MAX_NAME]!r} exists, or a stream is assigned to it. See `ops source list`.")
    return {"pool": name, "removed": True}


async def assign(pool: asyncpg.Pool, *, stream: str, name: str, account: str | None) -> dict[str, Any]:
    """Send mail of a stream (id, `broadcast`, `verification`, `*`) from a pool, for one account or all."""
    if stream != ANY_STREAM and not is_slug(stream):
        raise ValueError(f"{stream[:MAX_NAME]!r} is not a stream. Give its id, broadcast, verification, or *.")
    whose = _account_id(account)
    try:
        await sources_store.assign(pool, Assignment(stream, whose, name))
    except ForeignKeyViolation as error:
        missing = f"pool {name[:MAX_NAME]!r}" if error.constraint == "source_assignments_pool_fkey" else "such account"
        raise ValueError(f"No {missing} exists.") from None
    return {"stream": stream, "account": _account(whose), "pool": name}


async def unassign(pool: asyncpg.Pool, *, stream: str, account: str | None) -> dict[str, Any]:
    """Remove an assignment; raises ValueError if there is none."""
    if not await sources_store.unassign(pool, stream, _account_id(account)):
        raise ValueError("No such assignment exists. `ops source list` shows all.")
    return {"stream": stream, "account": account or "", "pool": "any address"}


async def warm_up(pool: asyncpg.Pool, ip: str, start: date, plan: Sequence[int] | None) -> dict[str, Any]:
    """Start the warm-up of an address on a UTC day; `plan` None uses the shipped plan. Retries waiting deliveries."""
    warmup = Warmup(checked_ip(ip), start, checked_plan(plan if plan is not None else SHIPPED.plan))
    await sources_store.warm_up(pool, warmup)
    await sources_store.wake_waiting(pool, WAKE_S)
    return {
        "ip": warmup.ip,
        "warmUp": _warm_up(warmup, clock.now().date()),
        "plan": list(warmup.plan),
        "source": "yours" if plan is not None else " ".join(SHIPPED.source.split()),
    }


async def end_warm_up(pool: asyncpg.Pool, ip: str) -> dict[str, Any]:
    """End the warm-up of an address; raises ValueError if there is none."""
    wanted = checked_ip(ip)
    if not await sources_store.end_warm_up(pool, wanted):
        raise ValueError(f"{wanted} has no warm-up. `ops source list` shows all.")
    waiting = await sources_store.wake_waiting(pool, WAKE_S)
    return {"ip": wanted, "warmUp": "warm", "deliveriesWoken": waiting}


async def trust(pool: asyncpg.Pool, ip: str, site: str | None) -> dict[str, Any]:
    """Use an address again within seconds, for one site that refused it or for all; raises ValueError."""
    wanted = checked_ip(ip)
    sites = await sources_store.end_rests(pool, wanted, site, clock.now())
    if not sites:
        raise ValueError(f"No site refuses {wanted}." if site is None else f"{site} does not refuse {wanted}.")
    return {"ip": wanted, "usedAgainAt": sites}


def _here(ip: str, names: dict[str, str]) -> str:
    if ip not in names:
        return "not configured here"
    return why_not_ours(ip) or "yes"


def _pools_of(book: SourceBook, ip: str) -> list[str]:
    return [named.name for named in book.pools.values() if any(one.ip == ip for one in named.members)]


def _warm_up(warmup: Warmup | None, today: date) -> str:
    allowed = None if warmup is None else warmup.allowance(today)
    if warmup is None or allowed is None:
        return "warm"
    day = warmup.day(today)
    if day < 1:
        return f"begins on {warmup.started_on}"
    return f"day {day} of {len(warmup.plan)}: {allowed} to each provider"


def _member(ip: str, weight: int) -> str:
    return ip if weight == 1 else f"{ip}*{weight}"


def _account_id(account: str | None) -> UUID | None:
    return None if account is None else ids.parse_id(ids.Kind.ACCOUNT, account)


def _account(account: UUID | None) -> str:
    return "" if account is None else ids.format_id(ids.Kind.ACCOUNT, account)
