"""Checks of PostgreSQL: its settings, and the state of the service in our tables. They only read."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.accounts import platform_account
from engine.base import clock
from engine.base.secrets import Unsealable
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import Settings, variable
from engine.base.version import COMMAND
from engine.sending.domains import store as domains
from engine.store import migrate, partitions, postgres
from engine.store.database_errors import BehindPooler, ServerUntrusted
from engine.store.queries import Queries
from ops.doctor.blocklists import blocklists
from ops.doctor.finding import DoctorFinding, bad, check_failed, describe_error, good
from ops.doctor.operators import operators
from ops.doctor.peppers import peppers

CONNECT_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 10.0
MIN_CONNECTIONS_LEFT = 10
OVERDUE_S = 120.0
MAX_SKEW_S, GRAVE_SKEW_S = 1.0, 30.0  # ids, day counts, events and signatures use the hosts' clocks
MAX_DUE_COUNTED = 1_000  # per shard
MAX_DOMAINS = 100  # decrypting and parsing a key costs 27 ms

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
    hidden: int  # replicas whose state only members of pg_monitor may see
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
_ANY_LINK = _SQL.command("any_unsubscribe_link")


async def database(settings: Settings) -> list[DoctorFinding]:
    """Check the server's settings and clock, migrations, partitions, queue, shards, signing keys, stored secrets,
    system mail and blocklists."""
    assert settings.database_url is not None
    try:
        await postgres.refuse_pooler(settings.database_url)
        connection = await connect(settings)
    except (BehindPooler, ServerUntrusted, UnsupportedServer) as error:
        problem, _, mend = str(error).partition(". ")
        return [bad("postgres", problem, mend)]
    except Exception as error:  # noqa: BLE001 - any error of an operator's URL or server is the finding
        mend = (
            f"Check {variable('database_url')} if it is set, otherwise read {settings.state}/log/postgres.log."
            " Then start the server."
        )
        return [bad("postgres", f"does not answer ({describe_error(error)})", mend)]
    try:
        found = await _server(connection)
        found.append(await _run_check("migrations", lambda: _migrations(settings)))
        for check, check_one in (
            ("partitions", _partitions), ("queue", _queue), ("shards", _shards), ("signing keys", _signing),
            ("stored secrets", peppers), ("system mail", _system_mail), ("operators", operators),
            ("blocklists", blocklists), ("public URL", _public_url),
        ) if found[-1].ok else ():  # fmt: skip
            found.append(await _run_check(check, lambda check_one=check_one: check_one(connection, settings)))  # type: ignore[misc]
        return found
    finally:
        connection.terminate()


async def connect(settings: Settings) -> asyncpg.Connection:
    """Open a connection for the checks; raises any error that the operator's URL or server causes."""
    assert settings.database_url is not None
    return await postgres.connect(
        settings.database_url,
        name="doctor",
        timeout_s=CONNECT_TIMEOUT_S,
        command_timeout_s=ASK_TIMEOUT_S,
        service_time=True,
    )


async def _run_check(check: str, run: Callable[[], Awaitable[DoctorFinding]]) -> DoctorFinding:
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await run()
    except Exception as error:  # noqa: BLE001 - one failing check must not end the others
        return check_failed(check, error)


async def _server(connection: asyncpg.Connection) -> list[DoctorFinding]:
    before = clock.machine_now()
    facts = await _FACTS.first(connection)
    after = clock.machine_now()
    assert facts is not None
    skew_s = (facts.now - min(max(facts.now, before), after)).total_seconds()  # within the round trip: 0
    return [_version(facts), _durability(facts), _replicas(facts), _connections(facts), _skew(skew_s)]


def _version(facts: _Facts) -> DoctorFinding:
    return good("postgres", f"answers, PostgreSQL {facts.version // 10_000}.{facts.version % 10_000}")


def _durability(facts: _Facts) -> DoctorFinding:
    wanted = {name: getattr(facts, name) for name in ("fsync", "synchronous_commit", "full_page_writes")}
    off = [name for name, value in wanted.items() if value == "off"]
    if off:
        mend = f"Set {', '.join(off)} to on in postgresql.conf and reload. A power cut could lose accepted messages."
        return bad("durability", f"{', '.join(f'{name}=off' for name in off)}", mend)
    return good("durability", ", ".join(f"{name}={value}" for name, value in wanted.items()))


def _replicas(facts: _Facts) -> DoctorFinding:
    """Check that commits wait for a replica if there is one: a failover must not lose accepted messages."""
    if facts.hidden and facts.wanted:
        return good("replicas", f"{facts.replicas} connected; only members of pg_monitor see which are synchronous")
    found = f"{facts.replicas} connected, {facts.synchronous} of them synchronous"
    if facts.replicas and not facts.wanted:
        mend = (
            "Set synchronous_standby_names to the replicas and reload. Otherwise a replica that replaces this server "
            "lacks the messages accepted last."
        )
        return bad("replicas", found, mend)
    if facts.wanted and not facts.synchronous:
        mend = "Start a replica named in synchronous_standby_names, or empty that setting: every commit waits for it."
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
            "Stop this host's processes and synchronise both hosts by NTP (`timedatectl set-ntp true`). Daily counts,"
            " ends of holds and dates of signatures depend on this clock."
        )
        return bad("clock", found, mend)
    if abs(skew_s) > MAX_SKEW_S:
        return bad("clock", found, "Synchronise both hosts by NTP (`timedatectl set-ntp true`).")
    return good("clock", found)


async def _migrations(settings: Settings) -> DoctorFinding:
    assert settings.database_url is not None
    missing = await migrate.pending(settings.database_url)
    if missing:
        return bad("migrations", f"{', '.join(missing)} not applied", f"Run `{COMMAND} migrate`.")
    return good("migrations", "the database is up to date")


async def _partitions(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:  # noqa: ARG001 - one shape for all
    weeks = await partitions.weeks_ahead(connection, clock.now())
    found = "this week has no partitions" if weeks < 0 else f"made for {weeks} weeks ahead"
    if weeks < partitions.MIN_WEEKS_AHEAD:
        mend = f"Check that a worker runs, and read its log. `{COMMAND} migrate` makes the missing partitions now."
        return bad("partitions", found, mend)
    return good("partitions", found)


async def _queue(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    due = await _DUE.first(connection, settings.shards, MAX_DUE_COUNTED)
    assert due is not None
    late_s = 0.0 if due.oldest is None else (clock.now() - due.oldest).total_seconds()
    found = f"{due.rows} deliveries are due, the oldest for {late_s:.0f} s" if due.rows else "no delivery is overdue"
    if late_s > OVERDUE_S:
        mend = f"Check that mta processes own all shards (`ops shards`), and read {settings.state}/log/mta-1.log."
        return bad("queue", found, mend)
    return good("queue", found)


async def _shards(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    facts = await _SHARDS.first(connection, settings.shards)
    assert facts is not None
    found = f"{settings.shards - facts.unowned} of {settings.shards} owned by {facts.members} mta processes"
    if facts.expired:
        found += f"; the lease of {', '.join(facts.expired)} has expired"
    if facts.unowned or facts.expired:
        mend = (
            f"Run `ops doctor` again in {3 * settings.lease_s:.0f} s: other mta processes take over the shards of dead"
            " ones in that time. If that does not help, start or restart the mta processes."
        )
        return bad("shards", found, mend)
    return good("shards", found)


async def _signing(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Check that every verified domain has an RSA key that the current pepper decrypts."""
    if settings.key_pepper is None:
        return good("signing keys", "not checked: there is no pepper yet")
    verified = await _DOMAINS.fetch(connection, MAX_DOMAINS)
    sealed: list[str] = []
    without: list[str] = []
    for domain in verified:
        try:
            keys = await domains.signing_keys(connection, domain.account_id, domain.name, pepper=settings.pepper)
        except Unsealable:
            sealed.append(domain.name)
            continue
        if not any(key.algorithm == "rsa-sha256" for key in keys):
            without.append(domain.name)
    if sealed:
        mend = f"Set their pepper as {variable('key_pepper_previous')}, or restore {settings.state}/pepper-previous."
        return bad("signing keys", f"the keys of {_some(sealed)} are encrypted with another pepper", mend)
    if without:
        mend = "Remove each of these domains and add it again, then publish its new keys in DNS."
        return bad("signing keys", f"no active RSA key for {_some(without)}", mend)
    return good("signing keys", f"{len(verified)} verified domains have usable keys")


async def _system_mail(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Check that the platform account can send Waybill's own mail, and that none of it is late."""
    platform = await platform_account.state(connection, settings)
    found = f"sent from {platform.sender}"
    if platform.account_id is None:
        mend = f"Choose the account that sends it: `{COMMAND} platform set --account acc_…`."
        return bad("system mail", "no account sends it, so people can't confirm addresses or reset passwords", mend)
    if platform.domain_status != "verified":
        mend = f"Verify {platform.domain} on the platform account, or set another sender ({variable('system_from')})."
        return bad("system mail", f"{found}, whose domain is not verified", mend)
    late_s = 0.0 if platform.oldest is None else (clock.now() - platform.oldest).total_seconds()
    if late_s > OVERDUE_S:
        mend = f"Read {settings.state}/log/worker.log for the reason."
        return bad("system mail", f"{found}; {platform.waiting} wait, the oldest for {late_s:.0f} s", mend)
    return good("system mail", found)


async def _public_url(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Check that unsubscribe links lead to https in live mode: without it there is no one-click (RFC 8058 3.1)."""
    url = settings.public_url
    if settings.delivery == "local" or url.startswith("https://"):
        return good("public URL", url)
    if not (await _ANY_LINK.records(connection))[0]["any_link"]:
        return good("public URL", f"{url}; no message has an unsubscribe link yet, which should be https")
    mend = (
        f"Set {variable('public_url')} to an https URL of the API. Large providers demand one-click unsubscribing "
        "of broadcasts."
    )
    return bad(
        "public URL", f"{url}: messages have unsubscribe links, without one-click because this is not https", mend
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


async def verified_domain(settings: Settings) -> str | None:
    """Return the newest verified domain; None if there is none or the database is unavailable."""
    try:
        connection = await connect(settings)
        try:
            found = await _DOMAINS.fetch(connection, 1)
        finally:
            connection.terminate()
    except Exception:  # noqa: BLE001 - another check reports that the database is unavailable
        return None
    return found[0].name if found else None
