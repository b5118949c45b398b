"""Metrics that the worker reads from the database, in addition to those that the processes count themselves.

Every host's worker exports the same values: aggregate them over hosts with max, never with sum. No delivery waits for
these queries.
"""

import json
import platform
import shutil
from collections import Counter as Counted
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct
from prometheus_client import Counter, Gauge

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.base.version import version
from engine.delivery import queue
from engine.sending.blocklists import store as blocklists
from engine.sending.blocklists.types import ListFamily
from engine.store import metrics
from engine.store.jobs import Job
from engine.store.queries import Queries

RECENT: Final = timedelta(minutes=10)  # age limit of site states that count
LOGS_AT_ONCE: Final = 200
LAST_BACKUP: Final = "backup.json"  # in the state folder, written by `ops backup`
_STATES: Final = ("new", "waiting", "retry", "held")
_BROADCASTING: Final = ("scheduled", "sending", "paused")
_PHASES: Final = ("open", "paused", "probing", "not reached")


def _gauge(name: str, words: str, *labels: str) -> Gauge:
    return Gauge(name, words, labels, multiprocess_mode="mostrecent")


BUILD = _gauge("waybill_build_info", "1; what runs here", "version", "python", "schema")
QUEUE = _gauge("waybill_queue_deliveries", "Pending deliveries by what they wait for", "state")
OLDEST = _gauge("waybill_queue_oldest_message_seconds", "Age of the oldest message with a pending delivery", "state")
SCHEDULED = _gauge("waybill_scheduled_messages", "Messages that wait for their time")
SCHEDULE_AGE = _gauge("waybill_schedule_overdue_seconds", "How long the oldest due release has waited")
SYSTEM_MAIL = _gauge("waybill_system_mail_waiting", "Mails of the service itself still to be composed")
SYSTEM_AGE = _gauge("waybill_system_mail_overdue_seconds", "How long the oldest of them has been due")
BROADCASTS = _gauge("waybill_broadcasts", "Broadcasts that have not ended", "status")
BROADCAST_WAITING = _gauge(
    "waybill_broadcast_recipients_waiting", "Recipients of sending and paused broadcasts who wait"
)
BROADCAST_AGE = _gauge(
    "waybill_broadcast_overdue_seconds", "How long the longest due broadcast has waited for a worker"
)
IN_REVIEW = _gauge("waybill_broadcasts_in_review", "Broadcasts that wait for the operator's review")
ALERT_RULES = _gauge("waybill_alert_rules", "Enabled alert rules of the accounts", "kind", "state")
ALERT_AGE = _gauge("waybill_alert_rules_oldest_measurement_seconds", "How long ago the first of them was measured")
LISTED = _gauge("waybill_blocklist_listed", "Source addresses (ip) and customers' domains on a blocklist now", "kind")
UNTRUSTED = _gauge("waybill_blocklist_untrusted", "Blocklists whose test points gave wrong answers", "family")
HOLDS = _gauge("waybill_holds", "Holds of the operator in force")
SITES = _gauge("waybill_sites", "Sites seen in the last ten minutes", "phase")
MEMBERS = _gauge("waybill_deliverers", "Delivering processes with a lease")
FREE_SHARDS = _gauge("waybill_shards_free", "Shards that no delivering process owns")
SESSIONS = _gauge("waybill_database_sessions", "Connections to the database", "process", "state")
MAX_SESSIONS = _gauge("waybill_database_sessions_limit", "Connections that the database server takes")
MAX_TRANSACTION = _gauge("waybill_database_longest_transaction_seconds", "The longest one that is open")
MAX_LOCK_WAIT = _gauge("waybill_database_longest_lock_wait_seconds", "The longest wait for a lock")
LOGS_BROKEN = _gauge("waybill_log_heads_broken", "Accounts whose log does not end as its head says, in the last round")
LOGS_CHECKED = Counter("waybill_log_heads_checked", "Ends of logs that were looked at")
FREE_BYTES = _gauge("waybill_state_free_bytes", "Free octets where the state folder lies")
BACKUP_AT = _gauge("waybill_backup_timestamp_seconds", "When the last backup was made on this host; 0: never")
JOB_DONE = _gauge("waybill_job_done_timestamp_seconds", "When a background job last came to its end", "task")
JOB_FAILED = Counter("waybill_job_failures", "Background jobs that ended in an error", ["task"])

_log = structlog.get_logger("worker")
_SHOWN: dict[Gauge, set[tuple[str, ...]]] = {}
_SQL = Queries.beside(__file__, "gauges.sql")


class State(Struct, frozen=True):
    """Number of pending deliveries in one state, and the creation time of their oldest message (Unix milliseconds)."""

    state: str
    rows: int
    oldest_ms: int


class Backlog(Struct, frozen=True):
    """Counts and delays of scheduled messages and of system mail, and the number of holds."""

    scheduled: int
    schedule_overdue_s: float
    system_mail: int
    system_overdue_s: float
    holds: int


class BroadcastLoad(Struct, frozen=True):
    """Broadcasts in one status, their waiting recipients, and the seconds by which the longest due is overdue."""

    status: str
    broadcasts: int
    waiting: int
    overdue_s: float


class AlertRuleCount(Struct, frozen=True):
    """Enabled alert rules of one kind in one state, and the seconds since the oldest measurement among them."""

    kind: str
    state: str
    rules: int
    waited_s: float


class PhaseCount(Struct, frozen=True):
    """Number of sites in one phase."""

    phase: str
    sites: int


class Deliverers(Struct, frozen=True):
    """Number of delivering processes, and of shards that none of them owns."""

    members: int
    free: int


class Sessions(Struct, frozen=True):
    """Database connections of one process kind in one state, and the server's limit of connections (`most`)."""

    process: str
    state: str
    sessions: int
    transaction_s: float
    lock_s: float
    most: int


class LogEnd(Struct, frozen=True):
    """Result of comparing the end of an account log with its account head."""

    account_id: UUID
    sound: bool


class Schema(Struct, frozen=True):
    """The latest migration."""

    name: str


_QUEUE = _SQL.rows("queue_by_state", State)
_BROADCASTS = _SQL.rows("broadcasts_by_status", BroadcastLoad)
_IN_REVIEW = _SQL.command("broadcasts_in_review")
_ALERT_RULES = _SQL.rows("alert_rules_by_state", AlertRuleCount)
_BACKLOG = _SQL.rows("backlog", Backlog)
_SITES = _SQL.rows("sites_by_phase", PhaseCount)
_DELIVERERS = _SQL.rows("deliverers", Deliverers)
_SESSIONS = _SQL.rows("sessions", Sessions)
_LOG_ENDS = _SQL.rows("log_ends", LogEnd)
_SCHEMA = _SQL.rows("schema", Schema)


async def look(pool: asyncpg.Pool, settings: Settings) -> None:
    """Update the gauges of backlog, delivering processes, blocklists, database connections and free disk space.

    Raises DatabaseUnavailable.
    """
    now = clock.now()
    await _queue(pool, now)
    await _others(pool, settings, now)
    await _alert_rules(pool)
    await _blocklists(pool)
    await _sessions(pool)
    schema = await _SCHEMA.first(pool)
    made = "none" if schema is None else schema.name.removesuffix(".sql")
    _show(BUILD, {(version(), platform.python_version(), made): 1})
    _disk(settings)


async def count_queue(pool: asyncpg.Pool, settings: Settings) -> None:
    """Update the gauges of the queue by shard."""
    depths = {depth.shard: depth for depth in await queue.DEPTHS.fetch(pool)}
    now = clock.now()
    for shard in range(settings.shards):
        depth = depths.get(shard)
        overdue = 0.0 if depth is None else max(0.0, (now - depth.oldest_due).total_seconds())
        metrics.QUEUE_ROWS.labels(shard).set(0 if depth is None else depth.rows)
        metrics.QUEUE_AGE.labels(shard).set(overdue)


class Logs:
    """Checks the ends of all account logs in batches, and exports the number of broken logs after each full round."""

    def __init__(self) -> None:
        self._after = UUID(int=0)
        self._broken = 0

    async def look(self, pool: asyncpg.Pool) -> list[UUID]:
        """Check the next batch; return the accounts whose log does not end as its head says."""
        found = await _LOG_ENDS.fetch(pool, self._after, LOGS_AT_ONCE)
        broken = [one.account_id for one in found if not one.sound]
        LOGS_CHECKED.inc(len(found))
        self._broken += len(broken)
        if broken:
            LOGS_BROKEN.set(self._broken)  # immediately: the end of the round may be hours away
        if len(found) < LOGS_AT_ONCE:
            LOGS_BROKEN.set(self._broken)
            self._after, self._broken = UUID(int=0), 0
        else:
            self._after = found[-1].account_id
        return broken


_LOGS = Logs()


async def _check_log_ends(pool: asyncpg.Pool, _: Settings) -> None:
    if broken := await _LOGS.look(pool):
        _log.error(
            "account log does not match its head", accounts=[ids.format_id(ids.Kind.ACCOUNT, one) for one in broken]
        )


JOBS = (
    Job("gauges", every_s=5, run=count_queue, share=0.01, quiet_s=30, machine=True),  # counts the whole queue
    Job("backlog", every_s=15, run=look, quiet_s=30, machine=True),
    Job("log ends", every_s=60, run=_check_log_ends, machine=True),
)


async def _alert_rules(pool: asyncpg.Pool) -> None:
    found = await _ALERT_RULES.fetch(pool)
    _show(ALERT_RULES, {(one.kind, one.state): one.rules for one in found})
    ALERT_AGE.set(max((one.waited_s for one in found), default=0.0))


async def _queue(pool: asyncpg.Pool, now: datetime) -> None:
    found = {one.state: one for one in await _QUEUE.fetch(pool)}
    for state in _STATES:
        one = found.get(state)
        QUEUE.labels(state).set(0 if one is None else one.rows)
        OLDEST.labels(state).set(0 if one is None else max(0.0, clock.milliseconds(now) / 1000 - one.oldest_ms / 1000))


async def _others(pool: asyncpg.Pool, settings: Settings, now: datetime) -> None:
    backlog = await _BACKLOG.first(pool, now)
    assert backlog is not None
    SCHEDULED.set(backlog.scheduled)
    SCHEDULE_AGE.set(backlog.schedule_overdue_s)
    SYSTEM_MAIL.set(backlog.system_mail)
    SYSTEM_AGE.set(backlog.system_overdue_s)
    HOLDS.set(backlog.holds)
    broadcasts = await _BROADCASTS.fetch(pool)
    counts: dict[tuple[str, ...], float] = {(one.status,): one.broadcasts for one in broadcasts}
    _show(BROADCASTS, {(status,): 0 for status in _BROADCASTING} | counts)
    BROADCAST_WAITING.set(sum(one.waiting for one in broadcasts))
    BROADCAST_AGE.set(max((one.overdue_s for one in broadcasts), default=0.0))
    IN_REVIEW.set((await _IN_REVIEW.records(pool))[0]["broadcasts"])
    phases: dict[tuple[str, ...], float] = {(one.phase,): one.sites for one in await _SITES.fetch(pool, now - RECENT)}
    _show(SITES, {(phase,): 0 for phase in _PHASES} | phases)
    deliverers = await _DELIVERERS.first(pool, settings.shards)
    assert deliverers is not None
    MEMBERS.set(deliverers.members)
    FREE_SHARDS.set(deliverers.free)


async def _blocklists(pool: asyncpg.Pool) -> None:
    listed = await blocklists.count_listed(pool)
    _show(LISTED, {("ip",): listed.addresses, ("domain",): listed.domains})
    untrusted = Counted(one.family for one in await blocklists.LISTS.fetch(pool) if not one.trusted)
    _show(UNTRUSTED, {(family.value,): untrusted[family] for family in ListFamily})


async def _sessions(pool: asyncpg.Pool) -> None:
    found = await _SESSIONS.fetch(pool)
    _show(SESSIONS, {(one.process, one.state): one.sessions for one in found})
    MAX_SESSIONS.set(max((one.most for one in found), default=0))
    MAX_TRANSACTION.set(max((one.transaction_s for one in found), default=0.0))
    MAX_LOCK_WAIT.set(max((one.lock_s for one in found), default=0.0))


def _show(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Set the gauge; reset labels that are no longer present to 0, as the multiprocess file cannot drop them."""
    shown = _SHOWN.setdefault(gauge, set())
    for labels in shown.difference(values):
        gauge.labels(*labels).set(0)
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    shown.update(values)


def _disk(settings: Settings) -> None:
    try:
        FREE_BYTES.set(shutil.disk_usage(settings.state).free)
    except OSError:
        FREE_BYTES.set(0)
    try:
        made = json.loads((settings.state / LAST_BACKUP).read_text("utf-8"))["madeAt"]
        BACKUP_AT.set(datetime.fromisoformat(made).timestamp())
    except (OSError, ValueError, KeyError, TypeError):
        BACKUP_AT.set(0)
