"""Implementation of `ops site`: show and change the limits of sites, and the state that mta processes report."""

from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
from msgspec import Struct

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import sites_store
from engine.delivery.sites import (
    EVERYWHERE,
    FIELDS,
    PROVIDERS,
    Limits,
    RuleBook,
    SiteRule,
    checked_name,
    rule_from_json,
)
from engine.delivery.sources import source_key
from engine.store.resolver import Resolver
from mta.outbound.mx_routes import Router
from mta.outbound.routes import Route
from shards.placement import label_of

RECENT = timedelta(hours=1)
MAX_SITES = 100


class SiteServers(Struct, frozen=True):
    """The site that a name resolves to, with its hosts, most preferred first."""

    site: str
    hosts: tuple[str, ...]


async def show(pool: asyncpg.Pool, settings: Settings, name: str) -> dict[str, Any]:
    """Return the limits of a domain, mail host or site with their origin, and its state in each mta process."""
    servers = await find(settings, name.strip().lower().rstrip("."))
    limits = RuleBook(await sites_store.operators(pool)).limits(servers.site, servers.hosts, settings)
    by_source = [source_key(limits.key, source.ip) for source in settings.source_ips]
    names = dict.fromkeys((limits.key, *by_source, servers.site, name.strip().lower(), *servers.hosts))
    states = await sites_store.states(pool, list(names), clock.now() - RECENT)
    return {
        "site": servers.site,
        "window": limits.key,
        "hosts": list(servers.hosts),
        "rules": _rules(limits),
        "processes": [
            {"process": label_of(row.process), "site": row.site, "at": clock.iso(row.updated_at)} | _state(row)
            for row in states
        ],
    }


async def change(
    pool: asyncpg.Pool, settings: Settings, name: str, fields: dict[str, object], why: str | None
) -> dict[str, Any]:
    """Set fields of a name's rule, or remove those that are None; in force within a second. Raises ValueError.

    For a mail domain, the rule is stored for its site, unless its servers have names below the domain.
    """
    wanted = checked_name(name)
    if wanted != EVERYWHERE and "#" not in wanted:
        servers = await find(settings, wanted)
        if servers.hosts and not f".{servers.hosts[0]}".endswith(f".{wanted}"):
            wanted = servers.site
    try:
        rule = await sites_store.change(pool, wanted, fields, why)
    except msgspec.ValidationError as error:
        raise ValueError(f"The rule is not valid: {error}") from None
    return {"name": wanted, "rule": _plain(rule)}


async def reset(pool: asyncpg.Pool, settings: Settings, name: str) -> dict[str, Any]:
    """Remove the operator's rule for a name; raises ValueError if there is none."""
    wanted = checked_name(name)
    removed = await sites_store.reset(pool, wanted)
    if not removed and "#" not in wanted and wanted != EVERYWHERE:
        wanted = (await find(settings, wanted)).site
        removed = await sites_store.reset(pool, wanted)
    if not removed:
        raise ValueError(f"There is no operator's rule for {name}. `ops site list` shows all rules.")
    return {"name": wanted, "reset": "shipped rules and settings apply"}


async def listing(pool: asyncpg.Pool) -> dict[str, Any]:
    """Return all rules, and the sites whose state changed in the last hour."""
    own = [
        {"names": row.name, "whose": "operator", "rule": _words(rule_from_json(row.rule)), "why": row.why}
        for row in await sites_store.rows(pool)
    ]
    shipped = [
        {"names": ", ".join(one.names), "whose": "shipped", "rule": _words(one.rule), "why": one.title}
        for one in PROVIDERS
    ]
    rows = await sites_store.all_states(pool, clock.now() - RECENT, MAX_SITES)
    return {"rules": own + shipped, "sites": [_brief(row) for row in rows]}


async def find(settings: Settings, name: str) -> SiteServers:
    """Return the site and hosts of a name, from DNS as for a delivery; the name itself if there is no answer."""
    if "#" in name or "/" in name or name == EVERYWHERE:
        return SiteServers(name, ())
    resolver = Resolver.from_settings(settings)
    router = Router.from_settings(settings, resolver)
    try:
        route = await router.route(name)
    finally:
        await router.close()
        await resolver.close()
    if isinstance(route, Route):
        return SiteServers(route.site, tuple(host.name for host in route.hosts))
    return SiteServers(name, (name,))


def _brief(row: sites_store.StateRow) -> dict[str, Any]:
    state = _state(row)
    moved = state.get("movedBy") or {}
    shown = {field: state.get(field) for field in ("phase", "window", "share", "open", "waiting")}
    return {"site": row.site, "process": label_of(row.process), **shown, "last": moved.get("said", "")}


def _state(row: sites_store.StateRow) -> dict[str, Any]:
    """Return the state as the process wrote it, with phase `probe due` if the time of the next probe has passed."""
    state: dict[str, Any] = msgspec.json.decode(row.state)
    if state.get("nextProbe") and state["nextProbe"] < clock.iso(clock.now()):
        state["phase"] = "probe due"
    return state


def _rules(limits: Limits) -> list[dict[str, Any]]:
    values: dict[str, object] = {
        "connections": limits.connections,
        "messages_per_connection": limits.messages_per_connection,
        "recipients": limits.recipients,
        "family": limits.family.value,
        "ladder_s": ",".join(f"{step:g}" for step in limits.ladder_s),
        "back_off": ", ".join(limits.back_off),
        "together": limits.key.endswith("/*"),
    }
    periods = {1.0: "per_second", 60.0: "per_minute", 3600.0: "per_hour"}
    values |= {periods[seconds]: count for count, seconds in limits.rates}
    return [
        {"rule": field, "value": values[field], "because": limits.origins.get(field, "default")}
        for field in FIELDS
        if field in values
    ]


def _plain(rule: SiteRule) -> dict[str, Any]:
    return dict(msgspec.to_builtins(rule))


def _words(rule: SiteRule) -> str:
    return " ".join(f"{name}={_listed(value)}" for name, value in _plain(rule).items())


def _listed(value: object) -> str:
    """Format a value: lists with commas, booleans as yes or no."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
