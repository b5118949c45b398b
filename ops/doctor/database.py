"""What the doctor asks of PostgreSQL: how it is set up, and what our own tables say of the service. Only reads."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.areas.domains import store as domains
from engine.base import clock
from engine.base.secrets import Unsealable
from engine.base.settings import Settings, variable
from engine.flows.accounts import platform_account
from engine.store import migrate, partitions, postgres
from engine.store.queries import Queries
from ops.doctor.finding import DoctorFinding, bad, check_failed, describe_error, good

CONNECT_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 10.0
OLDEST_POSTGRES = 15
MIN_CONNECTIONS_LEFT = 10
OVERDUE_S = 120.0
MAX_SKEW_S, GRAVE_SKEW_S = 1.0, 30.0  # ids, day counts, events and signatures carry the hosts' time
MAX_DUE_COUNTED = 1_000  # per shard
MAX_DOMAINS = 100  # unsealing and parsing a key costs 27 ms

_SQL = Queries.beside(__file__)


class _Facts(Struct, frozen=True):
    version: int
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    connections: int
    used: int
    now: datetime
    replicas: int
    synchronous: int
    wanted: str  # synchronous_standby_names


class _Due(Struct, frozen=True):
    rows: int
    oldest: datetime | None


class _Shards(Struct, frozen=True):
    unowned: int
    members: int
    expired: list[str]


class _Domain(Struct, frozen=True):
    account_id: UUID
    name: str


_FACTS = _SQL.rows("server_facts", _Facts)
_DUE = _SQL.rows("due_facts", _Due)
_SHARDS = _SQL.rows("shard_facts", _Shards)
_DOMAINS = _SQL.rows("verified_domains", _Domain)


async def database(settings: Settings) -> list[DoctorFinding]:
    """The server's settings and clock, then what our own tables say."""
    try:
        connection = await connect(settings)
    except Exception as error:  # noqa: BLE001 - whatever a foreign URL and server bring about is the finding
        mend = (
            f"Check {variable('database_url')} where it is set, else see {settings.state}/log/postgres.log,"
            " and start the server."
        )
        return [bad("postgres", f"does not answer ({describe_error(error)})", mend)]
    try:
        found = await _server(connection)
        found.append(await _asked("migrations", lambda: _migrations(settings)))
        for check, look in (
            ("partitions", _partitions), ("queue", _queue), ("shards", _shards), ("signing keys", _signing),
            ("system mail", _system_mail),
        ) if found[-1].ok else ():  # fmt: skip
            found.append(await _asked(check, lambda look=look: look(connection, settings)))  # type: ignore[misc]
        return found
    finally:
        connection.terminate()


async def connect(settings: Settings) -> asyncpg.Connection:
    """A session of the doctor's own; raises whatever a foreign URL and server bring about."""
    assert settings.database_url is not None
    return await postgres.connect(
        settings.database_url, name="doctor", timeout_s=CONNECT_TIMEOUT_S, command_timeout_s=ASK_TIMEOUT_S
    )


async def _asked(check: str, look: Callable[[], Awaitable[DoctorFinding]]) -> DoctorFinding:
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await look()
    except Exception as error:  # noqa: BLE001 - one look that fails must not end the others
        return check_failed(check, error)


async def _server(connection: asyncpg.Connection) -> list[DoctorFinding]:
    before = clock.now()
    facts = await _FACTS.first(connection)
    after = clock.now()
    assert facts is not None
    skew_s = (facts.now - min(max(facts.now, before), after)).total_seconds()  # within the round trip there is none
    return [_version(facts), _durability(facts), _replicas(facts), _connections(facts), _skew(skew_s)]


def _version(facts: _Facts) -> DoctorFinding:
    found = f"answers, PostgreSQL {facts.version // 10_000}.{facts.version % 10_000}"
    if facts.version // 10_000 < OLDEST_POSTGRES:
        return bad("postgres", found, f"Upgrade the server to PostgreSQL {OLDEST_POSTGRES} or newer.")
    return good("postgres", found)


def _durability(facts: _Facts) -> DoctorFinding:
    wanted = {name: getattr(facts, name) for name in ("fsync", "synchronous_commit", "full_page_writes")}
    off = [name for name, value in wanted.items() if value == "off"]
    if off:
        mend = (
            f"Set {', '.join(off)} to on in postgresql.conf and reload: an accepted message must survive a power cut."
        )
        return bad("durability", f"{', '.join(f'{name}=off' for name in off)}", mend)
    return good("durability", ", ".join(f"{name}={value}" for name, value in wanted.items()))


def _replicas(facts: _Facts) -> DoctorFinding:
    """What was accepted must be on two servers before the 202 when one of them may replace the other."""
    found = f"{facts.replicas} connected, {facts.synchronous} of them synchronous"
    if facts.replicas and not facts.wanted:
        mend = (
            "Name the replicas in synchronous_standby_names and reload: when this server is lost, a promoted replica "
            "lacks what was accepted in the last moments."
        )
        return bad("replicas", found, mend)
    if facts.wanted and not facts.synchronous:
        mend = "Start a replica that synchronous_standby_names names, or empty it: until then no commit ends."
        return bad("replicas", f"{found}, and synchronous_standby_names is {facts.wanted!r}", mend)
    return good("replicas", found if facts.replicas else "none connected")


def _connections(facts: _Facts) -> DoctorFinding:
    left = facts.connections - facts.used
    found = f"{facts.used} of {facts.connections} in use"
    if left < MIN_CONNECTIONS_LEFT:
        return bad(
            "connections", found, "Raise max_connections in postgresql.conf and restart, or run fewer processes."
        )
    return good("connections", found)


def _skew(skew_s: float) -> DoctorFinding:
    found = f"the clocks of this host and of PostgreSQL differ by {abs(skew_s):.1f} s"
    if abs(skew_s) > GRAVE_SKEW_S:
        mend = (
            "Stop this host's processes and let both hosts keep time by NTP (`timedatectl set-ntp true`): days are"
            " counted, holds ended and signatures dated by this clock."
        )
        return bad("clock", found, mend)
    if abs(skew_s) > MAX_SKEW_S:
        return bad("clock", found, "Let both hosts keep time by NTP (`timedatectl set-ntp true`).")
    return good("clock", found)


async def _migrations(settings: Settings) -> DoctorFinding:
    assert settings.database_url is not None
    missing = await migrate.pending(settings.database_url)
    if missing:
        return bad("migrations", f"{', '.join(missing)} not applied", "Run `python3 -m ops migrate`.")
    return good("migrations", "the database is up to date")


async def _partitions(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:  # noqa: ARG001 - one shape for all
    weeks = await partitions.weeks_ahead(connection, clock.now())
    found = "this week has no partitions" if weeks < 0 else f"weeks made ahead: {weeks}"
    if weeks < partitions.MIN_WEEKS_AHEAD:
        mend = (
            "See that a worker runs, and in its log why it does not make them; `python3 -m ops migrate` makes them now."
        )
        return bad("partitions", found, mend)
    return good("partitions", found)


async def _queue(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    due = await _DUE.first(connection, settings.shards, MAX_DUE_COUNTED)
    assert due is not None
    late_s = 0.0 if due.oldest is None else (clock.now() - due.oldest).total_seconds()
    found = f"due: {due.rows} deliveries, the oldest for {late_s:.0f} s" if due.rows else "nothing is overdue"
    if late_s > OVERDUE_S:
        mend = f"See that mta processes run and own every shard, and why in {settings.state}/log/mta-1.log."
        return bad("queue", found, mend)
    return good("queue", found)


async def _shards(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    facts = await _SHARDS.first(connection, settings.shards)
    assert facts is not None
    found = f"{settings.shards - facts.unowned} of {settings.shards} owned by {facts.members} mta processes"
    if facts.expired:
        found += f"; the lease of {', '.join(facts.expired)} has run out"
    if facts.unowned or facts.expired:
        mend = (
            "Start or restart the mta processes; the shards of a dead one go to the others within"
            f" {3 * settings.lease_s:.0f} s, so look again before you do."
        )
        return bad("shards", found, mend)
    return good("shards", found)


async def _signing(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Every verified domain signs with RSA, with a key that the present pepper opens."""
    if settings.key_pepper is None:
        return good("signing keys", "not looked at: there is no pepper yet")
    verified = await _DOMAINS.fetch(connection, MAX_DOMAINS)
    sealed: list[str] = []
    without: list[str] = []
    for domain in verified:
        try:
            keys = await domains.signing_keys(connection, domain.account_id, domain.name, pepper=settings.key_pepper)
        except Unsealable:
            sealed.append(domain.name)
            continue
        if not any(key.algorithm == "rsa-sha256" for key in keys):
            without.append(domain.name)
    if sealed:
        mend = f"Restore the pepper these keys were made under ({variable('key_pepper')} or {settings.state}/pepper)."
        return bad("signing keys", f"{_some(sealed)} sealed under another pepper", mend)
    if without:
        mend = "Remove each of these domains and add it again: that makes new keys to publish."
        return bad("signing keys", f"{_some(without)} without an active RSA key", mend)
    return good("signing keys", f"{len(verified)} verified domains can be signed for")


async def _system_mail(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Confirmations and links for passwords have an account to be sent from, and none waits for long."""
    standing = await platform_account.standing(connection, settings)
    found = f"comes from {standing.sender}"
    if standing.account_id is None:
        mend = "Name the account that it is sent from: `python3 -m ops platform set --account acc_…`."
        return bad("system mail", "nobody sends it: people can't confirm addresses or reset passwords", mend)
    if standing.domain_status != "verified":
        mend = f"Verify {standing.domain} on the platform account, or name another sender ({variable('system_from')})."
        return bad("system mail", f"{found}, whose domain is not verified", mend)
    late_s = 0.0 if standing.oldest is None else (clock.now() - standing.oldest).total_seconds()
    if late_s > OVERDUE_S:
        mend = f"See why in {settings.state}/log/worker.log."
        return bad("system mail", f"{found}; {standing.waiting} wait, the oldest for {late_s:.0f} s", mend)
    return good("system mail", found)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


async def verified_domain(settings: Settings) -> str | None:
    """A domain that mail is really sent for, if one can be told."""
    try:
        connection = await connect(settings)
        try:
            found = await _DOMAINS.fetch(connection, 1)
        finally:
            connection.terminate()
    except Exception:  # noqa: BLE001 - that the database is away is another finding
        return None
    return found[0].name if found else None
