"""Service time and machine time are told apart: each use of a clock is one or the other, by its name."""

import re
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from engine.store.queries import REGISTRY
from tests.contracts.test_queries import name_of, sql_files

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "api", "mta", "shards", "ops")
OTHER_CLOCKS = re.compile(r"datetime\.now\(|datetime\.utcnow\(|date\.today\(|\btime\.time\(|\btime\.time_ns\(")
# Files that read the machine's clock themselves, and why.
READ_THE_MACHINE = {
    "engine/base/clock.py": "the clock module",
    "engine/base/logs.py": "when a log level ends",
    "engine/receiving/certificates/acme_client.py": "a package takes a deadline in local time",
    "api/sdk/runtime/async_transport.py": "a client, which runs elsewhere",
    "api/sdk/runtime/webhooks.py": "a client, which runs elsewhere",
    "api/sdk/runtime/values.py": "a sentence for callers of the client",
    "ops/commands/service.py": "ages of processes",
    "ops/host/log_levels.py": "when a log level ends",
    "ops/host/process_specs.py": "days of a certificate, which OpenSSL checks",
    "ops/host/supervise.py": "when a process began",
    "ops/host/temporary_servers.py": "age of a folder",
    "ops/host/write_back.py": "time stamps of files",
}
# Files that take a time of `clock.monotonic()` off another one, and why a jump in between does no harm.
AGES = {
    "engine/events/webhooks/posting.py": "the lease of a post, which the clock never jumps over",
    "engine/store/database_clock.py": "the time that passed since the database was read, which jumps too",
    "mta/outbound/deliver.py": "the age of loaded mail; the time of a delivery, which the clock waits for",
    "mta/outbound/sites/slot_queue.py": "the wait of a delivery for a slot, which the clock waits for",
}
SINCE = re.compile(r"clock\.monotonic\(\) - ")
TIME = re.compile(r"(?<![\w.])(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday)\(\)")
KEYWORDS = re.compile(r"\b(?:current_date|current_time|current_timestamp|localtime|localtimestamp)\b", re.IGNORECASE)
# Leases, heartbeats and measurements: a jump of service time must not end them. All their queries name pg_catalog.
MACHINE_TABLES = (
    "shard_members", "shard_rates", "domain_rates", "shard_watch", "shard_splits", "shard_rehomings", "shard_pins",
    "shard_places", "shard_plan", "processes", "replica_marks", "tail_slots", "traces", "pg_stat_activity",
)  # fmt: skip
_MACHINE_TIME = (
    "engine/delivery/splits.sql:begin_rehoming", "engine/delivery/splits.sql:write_split",
    "engine/events/tails/queries.sql:claim_slot", "engine/events/tails/queries.sql:renew_slots",
    "engine/store/process_registry.sql:forget_processes", "engine/store/process_registry.sql:read_processes",
    "engine/store/process_registry.sql:show_process",
    "engine/store/replicas.sql:mark_primary", "engine/store/replicas.sql:primary_state",
    "mta/outbound/resharding.sql:rehomings_here", "mta/outbound/sites/site_stats.sql:traced_domains",
    "ops/commands/trace.sql:end_trace", "ops/doctor/queries.sql:server_facts", "ops/doctor/queries.sql:shard_facts",
    "ops/host/cluster_check.sql:namesakes", "ops/host/cluster_check.sql:read_installation",
    "ops/processes/gauges.sql:deliverers", "ops/processes/gauges.sql:sessions",
    "shards/lease.sql:fence_expired", "shards/lease.sql:heartbeat", "shards/lease.sql:join_members",
    "shards/load.sql:delete_domain_rates", "shards/load.sql:delete_shard_rates", "shards/load.sql:read_domain_rates",
    "shards/load.sql:read_shard_rates", "shards/load.sql:write_domain_rates", "shards/load.sql:write_shard_rates",
    "shards/overview.sql:shard_rows", "shards/placement.sql:pin", "shards/placement.sql:write_load_plan",
    "shards/placement.sql:write_policy", "shards/rebalancer.sql:try_lock",
)  # fmt: skip
_INSERT = re.compile(r"INSERT INTO (\w+)(?: AS \w+)?\s*\(([^)]*)\)")
_TIME_DEFAULTS = """
SELECT table_name, array_agg(column_name::text) AS columns FROM information_schema.columns
WHERE table_schema = 'public' AND column_default ~ 'now\\(\\)|clock_timestamp' GROUP BY table_name
"""


def _python() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def test_the_present_time_is_asked_of_the_clock_module() -> None:
    assert {name for name, text in _python() if OTHER_CLOCKS.search(text)} == READ_THE_MACHINE.keys()


def test_durations_are_measured_by_machine_time() -> None:
    assert {name for name, text in _python() if SINCE.search(text)} == AGES.keys()


def test_queries_of_leases_heartbeats_and_measurements_name_the_machine_clock() -> None:
    found = {name_of(query) for query in REGISTRY if "pg_catalog." in query.sql and "tests/" not in name_of(query)}
    assert found == set(_MACHINE_TIME)


def test_no_query_of_a_lease_uses_service_time() -> None:
    """A statement that changes such a table, or compares its times, has no bare `now()`."""
    writes = re.compile(rf"(?:INSERT INTO|UPDATE|DELETE FROM) (?:{'|'.join(MACHINE_TABLES)})\b")
    assert [name_of(query) for query in REGISTRY if writes.search(query.sql) and TIME.search(query.sql)] == []


def test_no_query_uses_a_time_that_is_part_of_the_grammar() -> None:
    """`current_date` and its like cannot be replaced by a function, so they would show machine time."""
    faults = [
        str(path.relative_to(ROOT))
        for path in sql_files()
        if KEYWORDS.search(
            "".join(line for line in path.read_text("utf-8").splitlines(keepends=True) if "--" not in line[:3])
        )
    ]
    assert faults == []


async def test_no_insert_leaves_service_time_to_a_default(pool: asyncpg.Pool) -> None:
    """Defaults of columns are bound to `pg_catalog`: they are machine time."""
    bound = {row["table_name"]: set(row["columns"]) for row in await pool.fetch(_TIME_DEFAULTS)}
    faults: dict[str, set[str]] = {}
    for query in REGISTRY:
        for table, columns in _INSERT.findall(query.sql):
            left = bound.get(table, set()) - set(re.findall(r"\w+", columns))
            if left and table not in MACHINE_TABLES:
                faults[name_of(query)] = left
    assert faults == {}
