"""The `worker` process: background jobs, and the metrics of all processes on their own port.

Every job runs in its own task, so that a slow one does not delay the others; a failed job is logged and
runs again at its next turn.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
import structlog
import uvloop
from msgspec import Struct, structs

from engine.accounts import limit_mails, suspend
from engine.accounts.alerts import measure
from engine.accounts.billing import end_periods as billing_periods
from engine.accounts.billing.configuration import Billing, configured
from engine.accounts.request_log import rules as request_log
from engine.accounts.send_system_mail import Mailer
from engine.audience.broadcasts import outcomes as broadcast_outcomes
from engine.audience.broadcasts import reviews as broadcast_reviews
from engine.audience.broadcasts.run import BroadcastRunner
from engine.audience.contacts import jobs as contact_jobs
from engine.base import clock, ids, logs, scheduling
from engine.base.settings import Settings, load
from engine.codes.address_checks import service as address_checks
from engine.codes.verifications import jobs as verification_jobs
from engine.delivery import queue
from engine.events.webhooks import service as webhooks_service
from engine.people import open_session
from engine.people.team import invitations as team
from engine.receiving.analytics import delivery
from engine.receiving.certificates import renewal as certificates
from engine.receiving.inbound_routes.forward import BATCH, Forwarder
from engine.receiving.mta_sts import policies as mta_sts
from engine.receiving.reports import read_reports, room
from engine.retention import erase, erase_address, purge, purge_billing, reseal
from engine.sending import queue_admin
from engine.sending.blocklists import jobs as blocklist_jobs
from engine.sending.domains import jobs as domain_jobs
from engine.sending.release import release_due
from engine.sending.statistics import jobs as figures
from engine.store import metrics, partitions, socket_activation
from engine.store.database_clock import DatabaseClock
from engine.store.database_errors import DatabaseUnavailable
from engine.store.http_client import HttpClient, resolver_for
from engine.store.migrate import MigrationError, open_current
from engine.store.postgres import close_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration
from mta.outbound.tls import reporting
from ops.processes import gauges
from ops.processes.metrics import shown
from ops.processes.posting import posting
from shards import rebalancer

_log = structlog.get_logger("worker")
_LOGS = gauges.Logs()
_PUT_OFF = 12
SPREAD = (0.8, 1.2)  # of each wait: jobs that are due once a minute must not all run in one second of it
_random = random.Random()


def main() -> None:
    """Run the worker process until SIGTERM or SIGINT."""
    settings = load(os.environ).settings
    logs.configure("worker", settings.log_level, settings.state)
    scheduling.yield_to_running()
    try:
        uvloop.run(run(settings))
    except MigrationError as error:
        raise SystemExit(str(error)) from None


class Context(Struct, frozen=True):
    """Resources that all jobs share."""

    pool: asyncpg.Pool
    settings: Settings
    mailer: Mailer | None = None
    forwarder: Forwarder | None = None
    billing: Billing | None = None
    broadcasts: BroadcastRunner | None = None


class Job(Struct, frozen=True):
    """A background job: `run` is called again about `every_s` seconds after it returned (SPREAD).

    The wait is longer, up to `_PUT_OFF` times `every_s`, if the job would otherwise use more than `share` of the time.
    """

    name: str
    every_s: float
    run: Callable[[Context], Awaitable[None]]
    share: float = 1.0

    def wait_s(self, took_s: float) -> float:
        """Return the seconds to wait after a run that took `took_s`."""
        return min(max(self.every_s, took_s / self.share), _PUT_OFF * self.every_s)


async def run(settings: Settings) -> None:
    """Run all jobs, webhook posting and the metrics server until SIGTERM or SIGINT."""
    if settings.database_url is None:
        raise RuntimeError("The worker needs WAYBILL_DATABASE_URL. Set it, or start Waybill with `ops up`.")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    pool = await open_current(settings.database_url, name="worker", largest=8)
    mailer = Mailer(pool, settings)
    forwarder = Forwarder(pool, settings)
    client = HttpClient.from_settings(settings, resolver_for(settings))
    broadcasts = BroadcastRunner(pool, settings)
    context = Context(pool, settings, mailer, forwarder, configured(settings, client), broadcasts)
    for one in JOBS:
        gauges.JOB_FAILED.labels(one.name)  # export 0 at once: Prometheus' increase() misses a first failure otherwise
    jobs = [asyncio.create_task(_repeat(job, context)) for job in JOBS]
    jobs.append(asyncio.create_task(ProcessRegistration(pool, kind="worker", name="worker", figures=ProcessLoad).run()))
    with shown(settings):
        async with posting(settings):
            socket_activation.tell_ready()
            await stop.wait()
    for job in jobs:
        job.cancel()
    for job in jobs:
        with suppress(asyncio.CancelledError):
            await job
    await mailer.close()
    await forwarder.close()
    await client.close()
    await broadcasts.close()
    await close_pool(pool)


async def _repeat(job: Job, context: Context) -> None:
    while True:
        began = time.monotonic()
        try:
            await job.run(context)
            gauges.JOB_DONE.labels(job.name).set_to_current_time()
            _log.debug("job done", job=job.name, took_s=round(time.monotonic() - began, 4))
        except (DatabaseUnavailable, OSError) as error:
            gauges.JOB_FAILED.labels(job.name).inc()
            _log.warning("job delayed", job=job.name, error=repr(error))
        except Exception:  # noqa: BLE001 - process loop: one job must not end the others
            gauges.JOB_FAILED.labels(job.name).inc()
            _log.exception("job failed", job=job.name)
        await asyncio.sleep(job.wait_s(time.monotonic() - began) * _random.uniform(*SPREAD))


async def _gauges(context: Context) -> None:
    depths = {depth.shard: depth for depth in await queue.DEPTHS.fetch(context.pool)}
    now = clock.now()
    for shard in range(context.settings.shards):
        depth = depths.get(shard)
        overdue = 0.0 if depth is None else max(0.0, (now - depth.oldest_due).total_seconds())
        metrics.QUEUE_ROWS.labels(shard).set(0 if depth is None else depth.rows)
        metrics.QUEUE_AGE.labels(shard).set(overdue)


async def _backlog(context: Context) -> None:
    await gauges.look(context.pool, context.settings)


async def _log_ends(context: Context) -> None:
    broken = await _LOGS.look(context.pool)
    if broken:
        _log.error(
            "account log does not match its head", accounts=[ids.format_id(ids.Kind.ACCOUNT, one) for one in broken]
        )


async def _partitions(context: Context) -> None:
    async with context.pool.acquire() as connection:
        now = clock.now()
        made = await partitions.ensure(connection, now) + await partitions.ensure_days(connection, now)
        until = partitions.end_of(now, await partitions.weeks_ahead(connection, now))
        metrics.PARTITIONS_UNTIL.set(until.timestamp())
    if made:
        _log.info("partitions made", names=made)


async def _contact_searches(context: Context) -> None:
    """Merge new contacts into the search index, so that imports and searches seldom do."""
    await contact_jobs.merge_trigrams(context.pool)


async def _confirmations(context: Context) -> None:
    await contact_jobs.forget_expired(context.pool, clock.now())


async def _webhook_history(context: Context) -> None:
    """Delete webhook attempts and deleted endpoints after a month."""
    async with context.pool.acquire() as connection:
        await partitions.drop_before(connection, "webhook_attempts", clock.now() - webhooks_service.KEPT)
    await webhooks_service.forget_deleted(context.pool, clock.now())


async def _request_log(context: Context) -> None:
    """Drop the days of the request log that are over."""
    async with context.pool.acquire() as connection:
        await partitions.drop_before(connection, "api_requests", clock.now() - request_log.KEPT)


async def _figures(context: Context) -> None:
    await figures.count_ahead(context.pool)


async def _deliveries(context: Context) -> None:
    """Count deliveries and their times for the analytics."""
    await delivery.count_ahead(context.pool)


async def _purge(context: Context) -> None:
    purged = await purge.purge(context.pool, clock.now())
    if purged is not None and (purged.messages or purged.events or purged.partitions):
        _log.info("purged", **structs.asdict(purged))


async def _releases(context: Context) -> None:
    await release_due(context.pool, context.settings)


async def _domains(context: Context) -> None:
    await domain_jobs.check_due(context.pool, context.settings)


async def _blocklists(context: Context) -> None:
    await blocklist_jobs.check_due(context.pool, context.settings)


async def _sts_policies(context: Context) -> None:
    await mta_sts.check_due(context.pool, context.settings)


async def _certificates(context: Context) -> None:
    await certificates.get_due(context.pool, context.settings)


async def _domain_keys(context: Context) -> None:
    await domain_jobs.retire_keys(context.pool, context.settings)
    await domain_jobs.forget_removed(context.pool, context.settings)


async def _ended(context: Context) -> None:
    await open_session.forget_ended(context.pool, clock.now())
    await team.forget_invites(context.pool, clock.now())


async def _standings(context: Context) -> None:
    """Suspend accounts with too many bounces or complaints."""
    await suspend.judge(context.pool, clock.now())


async def _alerts(context: Context) -> None:
    """Measure the alert rules that are due."""
    at = (await DatabaseClock.read(context.pool)).now()
    for kind, done in (await measure.measure_due(context.pool, context.settings, at)).items():
        gauges.count_alerts(kind, done)


async def _ended_holds(context: Context) -> None:
    """End expired holds and deliver their mail."""
    await queue_admin.finish(context.pool)


async def _billing(context: Context) -> None:
    assert context.billing is not None
    await billing_periods.end_due(context.pool, context.billing)
    await billing_periods.charge_due(context.pool, context.billing)


async def _limit_mails(context: Context) -> None:
    """Tell accounts that have used a limit of messages."""
    await limit_mails.send_due(context.pool, clock.now())


async def _old_billing(context: Context) -> None:
    """Delete billing records after ten years."""
    await purge_billing.purge(context.pool, clock.now())


async def _erasures(context: Context) -> None:
    await erase.erase_due(context.pool, clock.now())


async def _address_erasures(context: Context) -> None:
    """Erase the data of recipients as requested."""
    await erase_address.erase_requested(context.pool, context.settings)


async def _shards(context: Context) -> None:
    await rebalancer.run_once(context.pool, context.settings)


async def _tls_reports(context: Context) -> None:
    await reporting.send_due(context.pool, context.settings, clock.now())


async def _reports(context: Context) -> None:
    """Read the bounces, complaints, DMARC and TLS reports that the MX stored."""
    if context.settings.key_pepper is not None:
        await read_reports.read_due(context.pool, context.settings)


async def _report_room(context: Context) -> None:
    await room.make(context.pool, context.settings.reports_max_bytes)


async def _old_reports(context: Context) -> None:
    await read_reports.forget_old(context.pool, clock.now())


async def _system_mail(context: Context) -> None:
    if context.mailer is not None:
        await context.mailer.send_due()


async def _verifications(context: Context) -> None:
    """Announce finished verifications, and delete old ones."""
    await verification_jobs.look_after(context.pool)


async def _address_checks(context: Context) -> None:
    await address_checks.give_back_expired(context.pool)


async def _forwards(context: Context) -> None:
    """Forward received messages; go on at once while many are due."""
    if context.forwarder is not None:
        while await context.forwarder.forward_due() >= BATCH:
            pass


async def _broadcasts(context: Context) -> None:
    """Accept the messages of all broadcasts that are due."""
    if context.broadcasts is not None:
        await context.broadcasts.run_due()


async def _broadcast_outcomes(context: Context) -> None:
    """Count the outcomes of broadcasts, and stop bad ones."""
    await broadcast_outcomes.count_new(context.pool)


async def _broadcast_reviews(context: Context) -> None:
    """Tell the operator which broadcasts wait for review."""
    await broadcast_reviews.notify(context.pool, clock.now())


async def _reseal(context: Context) -> None:
    """Encrypt under the present pepper what is under the previous one, while one is set."""
    if context.settings.key_pepper is not None:
        await reseal.reseal(context.pool, context.settings.pepper)


async def _old_broadcasts(context: Context) -> None:
    await broadcast_outcomes.forget_old(context.pool, clock.now())


JOBS = (
    Job("gauges", 5.0, _gauges, share=0.01),  # counts the whole queue
    Job("backlog", 15.0, _backlog),
    Job("log ends", 60.0, _log_ends),
    Job("partitions", 3600.0, _partitions),
    Job("domains", 5.0, _domains),
    Job("blocklists", 60.0, _blocklists),
    Job("contact searches", 2.0, _contact_searches),
    Job("contact confirmations", 3600.0, _confirmations),
    Job("mta-sts policies", 5.0, _sts_policies),
    Job("certificates", 20.0, _certificates),
    Job("domain keys", 600.0, _domain_keys),
    Job("releases", 1.0, _releases),
    Job("webhook history", 3600.0, _webhook_history),
    Job("request log", 3600.0, _request_log),
    Job("figures", 15.0, _figures),
    Job("deliveries", 10.0, _deliveries, share=0.2),
    Job("purge", 3600.0, _purge),
    Job("shards", 5.0, _shards),
    Job("tls reports", 600.0, _tls_reports),
    Job("reports", 1.0, _reports),
    Job("report room", 15.0, _report_room, share=0.05),  # reads all reports
    Job("old reports", 3600.0, _old_reports),
    Job("system mail", 0.3, _system_mail),
    Job("forwards", 0.3, _forwards),
    Job("billing", 10.0, _billing),
    Job("old billing", 3600.0, _old_billing),
    Job("limit mails", 60.0, _limit_mails, share=0.05),
    Job("broadcasts", 0.3, _broadcasts),
    Job("broadcast outcomes", 2.0, _broadcast_outcomes, share=0.2),
    Job("broadcast reviews", 15.0, _broadcast_reviews),
    Job("old broadcasts", 3600.0, _old_broadcasts),
    Job("verifications", 0.5, _verifications),
    Job("address checks", 20.0, _address_checks),
    Job("ended sessions", 300.0, _ended),
    Job("standings", 60.0, _standings),
    Job("alerts", 5.0, _alerts, share=0.5),  # each rule every minute
    Job("ended holds", 5.0, _ended_holds),
    Job("erasures", 60.0, _erasures),
    Job("seals", 3600.0, _reseal, share=0.2),
    Job("erasures of addresses", 5.0, _address_erasures),
)


if __name__ == "__main__":
    main()
