"""Show and change the limits of sites, with the state that mta processes report; for the operator."""

from datetime import timedelta

import asyncpg
import msgspec
from msgspec import Struct

from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.process_names import label_of
from engine.base.settings import Settings
from engine.delivery import sites_store
from engine.delivery.mx_routes import opened_router
from engine.delivery.routes import Route
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
from engine.ledger.platform_log import OPERATOR, record_platform_change
from engine.store.resolver import Resolver

RECENT = timedelta(hours=1)
MAX_SITES = 100


class SiteServers(Struct, frozen=True):
    """The site that a name resolves to, with its hosts, most preferred first."""

    site: str
    hosts: tuple[str, ...]


class AppliedRule(Struct, frozen=True):
    """The value of one limit of a site, and the rule that it comes from."""

    rule: str
    value: float | str | bool
    because: str


class SiteNote(Struct, frozen=True):
    """What a site said at a time, and the effect on its window."""

    at: str
    said: str
    effect: str


class SiteRefusal(Struct, frozen=True):
    """The reply with which a site refused a source address, and until when the address rests."""

    said: str
    until: str


class _ReportedState(Struct, frozen=True, rename="camel"):
    """The state of a site as a process writes it; defaults for what an earlier version does not write."""

    phase: str = "open"
    window: float = 0
    share: int = 0
    open: int = 0
    opening: int = 0
    asking: int = 0
    waiting: int = 0
    next_probe: str | None = None
    moved_by: SiteNote | None = None
    recent: list[SiteNote] = []
    source: str | None = None
    refused: SiteRefusal | None = None


class SiteState(_ReportedState, frozen=True, rename="camel", kw_only=True):
    """The state of a site in one mta process.

    `window` is its number of connections, `share` that of all processes; `opening` and `asking` count connections that
    are being opened or wait for a slot, `waiting` deliveries. Phase `probe due`: the next probe is to begin.
    """

    process: str
    site: str
    at: str


class SiteLimits(Struct, frozen=True):
    """The limits of a site with their origin, and its state in the mta processes that used it in the last hour."""

    site: str
    window: str
    hosts: list[str]
    rules: list[AppliedRule]
    processes: list[SiteState]


class StoredRule(Struct, frozen=True):
    """A name's rule after a change: the fields that it sets."""

    name: str
    rule: SiteRule


class ListedRule(Struct, frozen=True):
    """A rule in words: `names` are mail hosts or endings of their names, `whose` is `operator` or `shipped`."""

    names: str
    whose: str
    rule: str
    why: str


class ListedSite(Struct, frozen=True):
    """A site in one mta process, with the last reply that changed its window."""

    site: str
    process: str
    phase: str
    window: float
    share: int
    open: int
    waiting: int
    last: str


class SiteList(Struct, frozen=True):
    """All rules, and the sites whose state changed in the last hour, the latest first, at most 100."""

    rules: list[ListedRule]
    sites: list[ListedSite]


async def show(pool: asyncpg.Pool, settings: Settings, name: str, resolver: Resolver | None = None) -> SiteLimits:
    """Return the limits of a domain, mail host or site with their origin, and its state in each mta process."""
    wanted = name.strip().lower().rstrip(".")
    servers = await find(settings, wanted, resolver)
    limits = RuleBook(await sites_store.operators(pool)).limits(servers.site, servers.hosts, settings)
    by_source = [source_key(limits.key, source.ip) for source in settings.source_ips]
    names = dict.fromkeys((limits.key, *by_source, servers.site, wanted, *servers.hosts))
    states = await sites_store.states(pool, list(names), clock.now() - RECENT)
    return SiteLimits(servers.site, limits.key, list(servers.hosts), _rules(limits), [_state(row) for row in states])


async def change(
    pool: asyncpg.Pool,
    settings: Settings,
    name: str,
    fields: dict[str, object],
    why: str | None,
    *,
    resolver: Resolver | None = None,
    actor: str = OPERATOR,
) -> StoredRule:
    """Set fields of a name's rule, or remove those that are None; in force within a second. Raises ValueError.

    For a mail domain, the rule is stored for its site, unless its servers have names below the domain.
    """
    wanted = checked_name(name)
    if wanted != EVERYWHERE and "#" not in wanted:
        servers = await find(settings, wanted, resolver)
        if servers.hosts and not f".{servers.hosts[0]}".endswith(f".{wanted}"):
            wanted = servers.site
    try:
        async with pool.acquire() as connection, connection.transaction():
            rule = await sites_store.change(connection, wanted, fields, why)
            detail = {"name": wanted, "fields": fields, "reason": why}
            await record_platform_change(connection, "set_site_rule", detail, actor=actor)
    except msgspec.ValidationError as error:
        raise ValueError(f"The rule is not valid: {error}") from None
    return StoredRule(wanted, rule)


async def reset(
    pool: asyncpg.Pool, settings: Settings, name: str, *, resolver: Resolver | None = None, actor: str = OPERATOR
) -> str:
    """Remove the operator's rule for a name or its site, and return the rule's name; raises 404 if there is none."""
    wanted = checked_name(name)
    removed = await _remove(pool, wanted, actor)
    if not removed and "#" not in wanted and wanted != EVERYWHERE:
        wanted = (await find(settings, wanted, resolver)).site
        removed = await _remove(pool, wanted, actor)
    if not removed:
        raise Refusal(ErrorType.NOT_FOUND, f"No operator's rule exists for {name}. The list of sites shows all rules.")
    return wanted


async def listing(pool: asyncpg.Pool) -> SiteList:
    """Return all rules, and the sites whose state changed in the last hour."""
    own = [
        ListedRule(row.name, "operator", _words(rule_from_json(row.rule)), row.why)
        for row in await sites_store.rows(pool)
    ]
    shipped = [ListedRule(", ".join(one.names), "shipped", _words(one.rule), one.title) for one in PROVIDERS]
    rows = await sites_store.all_states(pool, clock.now() - RECENT, MAX_SITES)
    return SiteList(own + shipped, [_brief(_state(row)) for row in rows])


async def find(settings: Settings, name: str, resolver: Resolver | None = None) -> SiteServers:
    """Return the site and hosts of a name, from DNS as for a delivery; the name itself if there is no answer."""
    if "#" in name or "/" in name or name == EVERYWHERE:
        return SiteServers(name, ())
    async with opened_router(settings, resolver) as router:
        route = await router.route(name)
    if isinstance(route, Route):
        return SiteServers(route.site, tuple(host.name for host in route.hosts))
    return SiteServers(name, (name,))


async def _remove(pool: asyncpg.Pool, name: str, actor: str) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        removed = await sites_store.reset(connection, name)
        if removed:
            await record_platform_change(connection, "reset_site_rule", {"name": name}, actor=actor)
    return removed


def _brief(state: SiteState) -> ListedSite:
    return ListedSite(
        site=state.site,
        process=state.process,
        phase=state.phase,
        window=state.window,
        share=state.share,
        open=state.open,
        waiting=state.waiting,
        last="" if state.moved_by is None else state.moved_by.said,
    )


def _state(row: sites_store.StateRow) -> SiteState:
    """Return the state as the process wrote it, with phase `probe due` if the time of the next probe has passed."""
    reported = msgspec.json.decode(row.state, type=_ReportedState)
    if reported.next_probe is not None and reported.next_probe < clock.iso(clock.now()):
        reported = msgspec.structs.replace(reported, phase="probe due")
    own = {"process": label_of(row.process), "site": row.site, "at": clock.iso(row.updated_at)}
    return msgspec.convert(msgspec.to_builtins(reported) | own, SiteState)


def _rules(limits: Limits) -> list[AppliedRule]:
    values: dict[str, float | str | bool] = {
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
        AppliedRule(field, values[field], limits.origins.get(field, "default")) for field in FIELDS if field in values
    ]


def _words(rule: SiteRule) -> str:
    return " ".join(f"{name}={_listed(value)}" for name, value in msgspec.to_builtins(rule).items())


def _listed(value: object) -> str:
    """Format a value: lists with commas, booleans as yes or no."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
