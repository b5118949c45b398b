"""The `worker` process: background jobs, and the metrics of all processes on their own port.

Every job runs in its own task, so that a slow one does not delay the others; a failed job is logged and
runs again at its next turn.
"""

import asyncio
import os
import random
import time
from contextlib import suppress
from typing import Final

import asyncpg
import structlog
import uvloop

from engine.accounts import limit_mails, suspend
from engine.accounts.alerts import measure
from engine.accounts.billing import end_periods
from engine.accounts.billing.configuration import configured
from engine.accounts.request_log import store as request_log
from engine.accounts.send_system_mail import Mailer
from engine.audience.broadcasts import outcomes, reviews
from engine.audience.broadcasts.run import BroadcastRunner
from engine.audience.contacts import jobs as contacts
from engine.base import logs, scheduling
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import Settings, load
from engine.cells import claims, reconcile
from engine.codes.address_checks import service as address_checks
from engine.codes.verifications import jobs as verifications
from engine.events.webhooks import service as webhooks
from engine.people import open_session
from engine.people.team import invitations
from engine.receiving import forget_received
from engine.receiving.analytics import delivery
from engine.receiving.certificates import renewal
from engine.receiving.inbound_routes.forward import Forwarder
from engine.receiving.mta_sts import policies
from engine.receiving.receivers import jobs as receivers
from engine.receiving.reports import read_reports, room
from engine.retention import erase, erase_address, purge, purge_billing, reseal
from engine.sending import forget_content, queue_admin, release
from engine.sending.agent_sends import jobs as agent_sends
from engine.sending.blocklists import jobs as blocklists
from engine.sending.domains import jobs as domains
from engine.sending.statistics import jobs as statistics
from engine.sending.status_page import jobs as status_page
from engine.store import partitions, service_time, socket_activation, stopping
from engine.store import redis as redis_store
from engine.store.database_errors import DatabaseUnavailable
from engine.store.http_client import HttpClient, resolver_for
from engine.store.jobs import Job
from engine.store.migrate import MigrationError, open_current
from engine.store.postgres import close_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration
from engine.store.traces import TRACES
from mta.outbound.tls import reporting
from ops.processes import gauges
from ops.processes.metrics import shown
from ops.processes.posting import posting
from shards import rebalancer

SPREAD: Final = (0.8, 1.2)  # of each wait: jobs that are due once a minute must not all run in one second of it
JOBS: Final = (
    *gauges.JOBS, partitions.JOB, *domains.JOBS, blocklists.JOB, policies.JOB, renewal.JOB,
    release.JOB, queue_admin.JOB, rebalancer.JOB, reporting.JOB, delivery.JOB, statistics.JOB,
    *read_reports.JOBS, room.JOB, webhooks.JOB, measure.JOB, suspend.JOB, limit_mails.JOB, request_log.JOB,
    *contacts.JOBS, *outcomes.JOBS, reviews.JOB, verifications.JOB, address_checks.JOB,
    open_session.JOB, invitations.JOB, status_page.JOB, purge.JOB, purge_billing.JOB, erase.JOB, erase_address.JOB,
    reseal.JOB, reconcile.JOB, receivers.JOB, forget_content.JOB, forget_received.JOB, agent_sends.JOB,
)  # fmt: skip

_log = structlog.get_logger("worker")
_random = random.Random()


def main() -> None:
    """Run the worker process until SIGTERM or SIGINT."""
    settings = load(os.environ).settings
    logs.configure("worker", settings.log_level, settings.state)
    service_time.join(settings)
    scheduling.yield_to_running()
    try:
        with TRACES.during(settings, "worker"):
            uvloop.run(run(settings))
    except (MigrationError, UnsupportedServer) as error:
        raise SystemExit(str(error)) from None


async def run(settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Run all jobs, webhook posting and the metrics server until `stop` is set (default: at SIGTERM or SIGINT)."""
    if settings.database_url is None:
        raise RuntimeError("The worker needs WAYBILL_DATABASE_URL. Set it, or start Waybill with `ops up`.")
    stop = stop or stopping.stop_event()
    if settings.redis_url is not None:
        await redis_store.refuse_old(settings.redis_url)
    claims.configure(settings)
    pool = await open_current(settings.database_url, name="worker", largest=8)
    mailer = Mailer(pool, settings)
    forwarder = Forwarder(pool, settings)
    client = HttpClient.from_settings(settings, resolver_for(settings))
    broadcasts = BroadcastRunner(pool, settings)
    jobs = []
    for job in (*JOBS, mailer.job(), forwarder.job(), broadcasts.job(), end_periods.job(configured(settings, client))):
        gauges.JOB_FAILED.labels(job.name)  # export 0 at once: Prometheus' increase() misses a first failure otherwise
        jobs.append(asyncio.create_task(_repeat(job, pool, settings)))
    jobs.append(asyncio.create_task(service_time.watch()))
    jobs.append(asyncio.create_task(ProcessRegistration(pool, kind="worker", name="worker", figures=ProcessLoad).run()))
    with shown(settings):
        async with posting(settings):
            socket_activation.tell_ready()
            await stop.wait()
    for task in jobs:
        task.cancel()
    for task in jobs:
        with suppress(asyncio.CancelledError):
            await task
    await mailer.close()
    await forwarder.close()
    await client.close()
    await broadcasts.close()
    await claims.close()
    await close_pool(pool)


async def _repeat(job: Job, pool: asyncpg.Pool, settings: Settings) -> None:
    while True:
        began = time.monotonic()
        try:
            await job.run(pool, settings)
            gauges.JOB_DONE.labels(job.name).set_to_current_time()
            _log.debug("job done", job=job.name, took_s=round(time.monotonic() - began, 4))
        except (DatabaseUnavailable, OSError) as error:
            gauges.JOB_FAILED.labels(job.name).inc()
            _log.warning("job delayed", job=job.name, error=repr(error))
        except Exception:  # noqa: BLE001 - process loop: one job must not end the others
            gauges.JOB_FAILED.labels(job.name).inc()
            _log.exception("job failed", job=job.name)
        await job.pause(job.wait_s(time.monotonic() - began) * _random.uniform(*SPREAD))


if __name__ == "__main__":
    main()
