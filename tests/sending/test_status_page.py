"""The status page's figures, history and incidents in a real database."""

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.sending.status_page import service, store
from engine.sending.status_page.jobs import StatusRecorder
from engine.sending.status_page.types import ComponentState, StatusComponent
from engine.store.database_errors import DatabaseUnavailable
from engine.store.postgres import close_pool, open_pool
from engine.store.process_registry import ProcessLoad, ProcessRegistration
from ops.host.temporary_servers import Temporary
from ops.processes.worker import JOBS
from tests.harness.accounts import make_account

DELIVERING, WEBHOOKS = StatusComponent.DELIVERING, StatusComponent.WEBHOOKS
UP, DEGRADED, DOWN = ComponentState.UP, ComponentState.DEGRADED, ComponentState.DOWN


@pytest.fixture
def shown(settings: Settings, own_database: str) -> Settings:
    return structs.replace(settings, database_url=own_database, status_page=True, processes=("api", "worker"))


async def state(pool: asyncpg.Pool, settings: Settings, component: StatusComponent) -> ComponentState:
    return (await service.measure(pool, settings, "api"))[component].state


async def queue_row(pool: asyncpg.Pool, late_s: float) -> None:
    account = await make_account(pool)
    await pool.execute(
        "INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at, priority)"
        " VALUES ($1, 'x.test', 0, $2, 'a.test', '[]', 1, $3, 0)",
        ids.uuid7(), account.id, clock.now() - timedelta(seconds=late_s),
    )  # fmt: skip


async def test_emails_that_wait_for_their_attempt_degrade_delivery(own_pool: asyncpg.Pool, shown: Settings) -> None:
    assert await state(own_pool, shown, DELIVERING) is UP
    await queue_row(own_pool, 300)
    assert await state(own_pool, shown, DELIVERING) is DEGRADED
    await queue_row(own_pool, 1_000)
    assert await state(own_pool, shown, DELIVERING) is DOWN


async def attempts(pool: asyncpg.Pool, kind: str, category: str, number: int) -> None:
    """Write `number` messages of a new account, each with one attempt."""
    account = await make_account(pool)
    await pool.execute(
        "WITH made AS (INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream,"
        " recipient_count, size_bytes) SELECT unnest($2::uuid[]), $1, 'queued', 'api', 'a@a.test', 'a.test', 's',"
        " 'transactional', 1, 1 RETURNING id) "
        "INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)"
        " SELECT id, $1, 1000 + row_number() OVER (), $3, id, now(), $4, '' FROM made",
        account.id, [ids.uuid7() for _ in range(number)], kind, f'{{"detail":{{"class":"{category}"}}}}',
    )  # fmt: skip


async def test_attempts_that_reach_no_server_degrade_delivery_unless_they_are_one_account_of_many(
    own_pool: asyncpg.Pool, shown: Settings
) -> None:
    await attempts(own_pool, "bounced", "user_unknown", 20)
    assert await state(own_pool, shown, DELIVERING) is UP
    await attempts(own_pool, "deferred", "network", 60)
    assert await state(own_pool, shown, DELIVERING) is DEGRADED
    await attempts(own_pool, "delivered", "accepted", 1)
    assert await state(own_pool, shown, DELIVERING) is UP


async def test_a_late_webhook_counts_unless_its_endpoint_is_being_posted_to(
    own_pool: asyncpg.Pool, shown: Settings
) -> None:
    account, hook = await make_account(own_pool), ids.uuid7()
    await own_pool.execute(
        "INSERT INTO webhook_queue (webhook_id, event_id, account_id, seq, due_at) VALUES ($1, $2, $3, 1, $4)",
        hook, ids.uuid7(), account.id, clock.now() - timedelta(seconds=300),
    )  # fmt: skip
    assert await state(own_pool, shown, WEBHOOKS) is DEGRADED
    await own_pool.execute(
        "INSERT INTO webhook_hours VALUES ($1, date_trunc('hour', now()), 1, 1, now(), 200, null, 5)", hook
    )
    assert await state(own_pool, shown, WEBHOOKS) is UP


async def test_the_job_records_the_worst_confirmed_state_and_forgets_old_ones(
    own_pool: asyncpg.Pool, shown: Settings
) -> None:
    old = clock.now() - timedelta(days=91)
    await store.WRITE_QUARTERS.execute(own_pool, ["webhooks"], [old], [0])
    await ProcessRegistration(own_pool, kind="api", name="api", figures=ProcessLoad).show()
    recorder = StatusRecorder()
    await recorder.record(own_pool, shown)
    await queue_row(own_pool, 1_000)
    await recorder.record(own_pool, shown)
    assert {one.component for one in await service.history(own_pool, clock.now()) if one.down} == set()
    await recorder.record(own_pool, shown)
    await own_pool.execute("DELETE FROM queue")
    await recorder.record(own_pool, shown)
    found = await service.history(own_pool, clock.now())

    assert {one.component for one in found if one.down} == {"delivering"}
    assert {one.component for one in found} == {"accepting", "delivering", "webhooks"}
    assert await own_pool.fetchval("SELECT count(*) FROM status_quarters WHERE quarter <= $1", old) == 0


async def test_nothing_is_recorded_while_the_page_is_off(own_pool: asyncpg.Pool, shown: Settings) -> None:
    [job] = [one for one in JOBS if one.name == "status_page"]
    await job.run(own_pool, structs.replace(shown, status_page=False))
    assert await service.history(own_pool, clock.now()) == []
    await job.run(own_pool, shown)
    assert await service.history(own_pool, clock.now())


@pytest.fixture
async def fragile(disposable_servers: Temporary) -> AsyncIterator[asyncpg.Pool]:
    pool = await open_pool(disposable_servers.database_url, name="tests", largest=2)
    yield pool
    await close_pool(pool)


async def test_an_outage_of_the_database_is_recorded_when_it_is_back(
    fragile: asyncpg.Pool, disposable_servers: Temporary, shown: Settings
) -> None:
    recorder = StatusRecorder()
    await recorder.record(fragile, shown)
    disposable_servers.postgres.kill()
    try:
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await recorder.record(fragile, shown)
    finally:
        disposable_servers.postgres.start()
    await recorder.record(fragile, shown)
    found = await service.history(fragile, clock.now())

    assert {one.component for one in found if one.down} == {"accepting", "delivering", "webhooks"}


async def test_an_incident_is_opened_updated_and_closed_by_its_title(own_pool: asyncpg.Pool) -> None:
    await service.open_incident(own_pool, "Sending is slow", "We look into it.")
    with pytest.raises(ValueError, match="is open"):
        await service.open_incident(own_pool, "Sending is slow", "Again.")
    await service.update_incident(own_pool, "Sending is slow", "Found.")
    await service.update_incident(own_pool, "Sending is slow", "Mended.", close=True)
    with pytest.raises(ValueError, match="No open incident"):
        await service.update_incident(own_pool, "Sending is slow", "More.")
    found = await service.incidents(own_pool, clock.now())

    assert [one.message for one in found] == ["Mended.", "Found.", "We look into it."]
    assert all(one.closed_at is not None for one in found)
    await service.open_incident(own_pool, "Sending is slow", "Once more.")
    assert (await service.incidents(own_pool, clock.now()))[0].closed_at is None


async def test_closed_incidents_go_after_90_days_and_open_ones_stay(own_pool: asyncpg.Pool) -> None:
    for title in ("Old", "Open"):
        await service.open_incident(own_pool, title, "…")
    await service.update_incident(own_pool, "Old", "Over.", close=True)
    await own_pool.execute(
        "UPDATE status_incidents SET opened_at = opened_at - interval '95 days',"
        " closed_at = closed_at - interval '91 days'"
    )
    await StatusRecorder().write(own_pool)

    assert [row["title"] for row in await own_pool.fetch("SELECT title FROM status_incidents")] == ["Open"]


@pytest.mark.parametrize(
    ("title", "message"), [("", "x"), ("x" * 121, "x"), ("a\nb", "x"), ("x", " "), ("x", "y" * 2001)]
)
async def test_bad_text_is_refused(own_pool: asyncpg.Pool, title: str, message: str) -> None:
    with pytest.raises((Refusal, ValueError)):
        await service.open_incident(own_pool, title, message)
