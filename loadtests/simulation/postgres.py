"""The PostgreSQL of all runs: one server, one database for each job, the same rows at the beginning of each run."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from engine.base import clock, ids
from engine.base.plans import Plan
from engine.base.secrets import Pepper, seal
from engine.events.webhooks import store as webhooks
from engine.events.webhooks.service import secret_key
from engine.people.account import store as accounts
from engine.sending.domains import store as domains
from engine.store import partitions
from engine.store.migrate import migrate
from engine.store.postgres import connect
from loadtests.simulation.backend import Backend, Monitor, startup_of
from loadtests.simulation.world import EPOCH
from ops.host.embedded import short_temp
from ops.host.postgres_server import PostgresServer

PEPPER: Final = Pepper("pepper of the simulation, of no use anywhere else")
TEMPLATE: Final = "simulation"
ACCOUNTS: Final = 2
DAILY_CAP: Final = 10_000
EVENT_TYPES: Final = ("delivered", "bounced", "deferred", "failed")
_USER: Final = "postgres"
# Service time, and machine time where statements name it: both are the simulated one, which each step sets first.
_SETTINGS: Final = """
ALTER DATABASE {name} SET search_path = "$user", public, clock, pg_catalog;
ALTER DATABASE {name} SET sim.now = '{at}';
ALTER DATABASE {name} SET sim.began = '{at}';
"""
_CLOCK: Final = """
CREATE SCHEMA clock;
SET sim.now = '{at}';
SET sim.began = '{at}';
CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT current_setting('sim.began')::timestamptz$$;
CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT current_setting('sim.now')::timestamptz$$;
CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT current_setting('sim.now')::timestamptz$$;
"""
_DROP_PARTITIONS: Final = """
DO $$
DECLARE t record;
BEGIN
    FOR t IN SELECT inhrelid::regclass AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE c.relkind = 'r' AND c.relispartition LOOP
        EXECUTE 'DROP TABLE ' || t.name;
    END LOOP;
END $$
"""
_KEEP: Final = """
CREATE SCHEMA kept;
DO $$
DECLARE t record;
BEGIN
    FOR t IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
             AND pg_relation_size(c.oid) > 0 AND c.relname <> 'schema_migrations' LOOP
        EXECUTE format('CREATE TABLE kept.%I AS SELECT * FROM public.%I', t.relname, t.relname);
    END LOOP;
END $$;
CREATE VIEW kept.links AS SELECT DISTINCT conrelid AS referring, confrelid AS referred FROM pg_constraint
WHERE contype = 'f' AND conparentid = 0;
"""
# Empties the tables that are not as they were at the beginning, and those that refer to them; then fills the kept ones.
_RESET: Final = """
DO $$
DECLARE t record; every text;
BEGIN
    WITH RECURSIVE used AS (
        SELECT c.oid FROM pg_class c
        LEFT JOIN pg_class k ON k.relname = c.relname AND k.relnamespace = 'kept'::regnamespace
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'schema_migrations'
          AND (k.oid IS NOT NULL OR pg_relation_size(c.oid) > 0)
        UNION
        SELECT l.referring FROM used u JOIN kept.links l ON l.referred = u.oid
    )
    SELECT string_agg(u.oid::regclass::text, ', ' ORDER BY u.oid) INTO every FROM used u
    JOIN pg_class c ON c.oid = u.oid WHERE c.relkind IN ('r', 'p');
    EXECUTE 'TRUNCATE ' || every || ' RESTART IDENTITY';
    SET LOCAL session_replication_role = replica;
    FOR t IN SELECT k.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
             FROM pg_class k JOIN pg_class c ON c.relname = k.relname AND c.relnamespace = 'public'::regnamespace
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
             WHERE k.relnamespace = 'kept'::regnamespace AND k.relkind = 'r' GROUP BY 1 ORDER BY 1 LOOP
        EXECUTE format('INSERT INTO public.%I (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM kept.%I',
                       t.relname, t.columns, t.columns, t.relname);
    END LOOP;
END $$
"""


class SimulatedSender(Struct, frozen=True):
    """An account that sends, with its domain and its webhook endpoint."""

    account: UUID
    domain: str
    webhook: UUID


def senders() -> list[SimulatedSender]:
    """Return the accounts of each run."""
    at_ms = clock.milliseconds(EPOCH) - 86_400_000
    found = []
    for number in range(ACCOUNTS):
        account, webhook = (ids.uuid7(at_ms + number, bytes([kind]) * 10) for kind in (1, 2))
        found.append(SimulatedSender(account, f"sender{number}.test", webhook))
    return found


class SimulationServer(PostgresServer):
    """A PostgreSQL that does nothing of its own: no vacuum, no checkpoint that matters."""

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {
            "autovacuum": "off", "max_connections": "200", "shared_buffers": "128MB", "wal_level": "minimal",
            "max_wal_senders": "0", "checkpoint_timeout": "1d", "max_wal_size": "4GB", "deadlock_timeout": "20ms",
            "max_parallel_workers_per_gather": "0", "idle_in_transaction_session_timeout": "0", "io_method": "sync",
            "bgwriter_lru_maxpages": "0", "track_activities": "off",
        }  # fmt: skip


@contextmanager
def server() -> Iterator[SimulationServer]:
    """Run a PostgreSQL with a template of the database."""
    with tempfile.TemporaryDirectory(prefix="waybill-sim-", dir=short_temp(), ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        running = SimulationServer(Path(folder), durable=False)
        running.start()
        try:
            asyncio.run(_make_template(running.url))
            yield running
        finally:
            running.end()


class JobDatabase:
    """The database of one job, with sessions that outlive runs."""

    def __init__(self, running: SimulationServer, name: str) -> None:
        self.name = name
        self.path = str(running.socket_folder() / ".s.PGSQL.5432")
        self.url = running.url.replace("/postgres?", f"/{name}?", 1)
        _admin(self.path, "postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        _admin(self.path, "postgres", f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        _admin(self.path, name, _SETTINGS.format(name=name, at=_AT))
        self.warm: dict[bytes, list[Backend]] = {}
        self.known: dict[bytes, bytes] = {}
        self.monitor = Monitor(self.path, startup_of(_USER, name))

    def reset(self) -> None:
        """Bring all rows back to those of the beginning."""
        self.monitor.rows(_RESET)

    def keep(self, most: dict[bytes, int]) -> None:
        """Have as many real sessions open, by startup message, as a run has used at once."""
        for startup, count in most.items():
            free = self.warm.setdefault(startup, [])
            while len(free) < count:
                free.append(Backend(self.path, startup, monitor=self.monitor))


_AT: Final = EPOCH.strftime("%Y-%m-%d %H:%M:%S+00")


def _admin(path: str, database: str, sql: str) -> None:
    session = Monitor(path, startup_of(_USER, database))
    session.rows(sql)
    session.close()


async def _make_template(url: str) -> None:
    connection = await connect(url, name="simulation")
    await connection.execute(f"CREATE DATABASE {TEMPLATE}")
    await connection.close()
    own = url.replace("/postgres?", f"/{TEMPLATE}?", 1)
    connection = await connect(own, name="simulation")
    await connection.execute((_SETTINGS + _CLOCK).format(name=TEMPLATE, at=_AT))
    await connection.close()
    await migrate(own)
    connection = await connect(own, name="simulation")
    try:
        await connection.execute(_DROP_PARTITIONS)  # those of the real time: each costs planning in every statement
        await partitions.ensure(connection, EPOCH, ahead=0)
        for sender in senders():
            await _insert(connection, sender)
        await connection.execute(_KEEP)
    finally:
        await connection.close()


async def _insert(connection: object, sender: SimulatedSender) -> None:
    session: Any = connection
    await accounts.insert(
        session, sender.account, name=sender.domain, plan=Plan.GROWTH, daily_cap=DAILY_CAP, monthly_cap=None
    )
    domain = ids.uuid7(clock.milliseconds(EPOCH) - 1000, sender.account.bytes[:10])
    key = domains.fresh_key("wb1", "ed25519-sha256")
    await domains.insert(session, domain, sender.account, sender.domain, pepper=PEPPER, keys=[])
    await domains.insert_key(session, domain, key, "active", pepper=PEPPER)
    await domains.MARK.execute(session, domain, "verified")
    sealed = seal(secret_key(PEPPER), b"whsec_" + b"s" * 32, sender.webhook.bytes)
    await webhooks.INSERT.execute(
        session, sender.webhook, sender.account, f"https://hooks.{sender.domain}/", list(EVENT_TYPES), sealed, "",
        [], [], [], None, False,  # noqa: FBT003 - columns
    )  # fmt: skip
