"""The webhook worker as a process: posting, kill during a post, stop, and metrics."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import PREFIX, Settings, to_environ
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks import store
from engine.store import partitions
from loadtests.ports import reserve_port
from tests.conftest import NewDatabase
from tests.harness import fork_server
from tests.harness.api import ROOT
from tests.harness.patience import PATIENCE_S, until
from tests.harness.receiver import Receiver, World, world


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    async with world(settings, await new_database()) as one:
        yield one


@contextlib.contextmanager
def worker(settings: Settings, log: Path) -> Iterator[fork_server.Started]:
    """The real process; ends with the context."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    own = structs.replace(settings, metrics_port=reserve_port(), webhook_timeout_s=10.0)
    with log.open("ab") as output:
        process = fork_server.start(
            "ops.processes.worker", [], environ=environ | to_environ(own), stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_worker_killed_in_the_middle_of_posts_loses_none(here: World, tmp_path: Path) -> None:
    async with Receiver() as receiver:
        endpoint = await here.endpoint(receiver.url)
        events = await here.events(endpoint.account, ["delivered"] * 60)
        receiver.delay_s = 0.3
        with worker(here.settings, tmp_path / "first.log") as first:
            await until(lambda: len(receiver.got) >= 8)
            first.kill()
            first.wait()
        leased = [row for row in await here.queued(endpoint) if row["leased_until"] is not None]
        assert leased
        assert all(row["attempts"] == 0 for row in leased)
        soon = datetime.now(UTC) + timedelta(seconds=60)
        assert all(row["due_at"] < soon for row in leased)
        await here.make_due(endpoint)  # as if the leases had ended
        receiver.delay_s = 0.0
        with worker(here.settings, tmp_path / "second.log"):
            await here.until_posted(endpoint)

        assert all(receiver.attempts(event) for event in events)
        assert {got.attempt for got in receiver.got} == {1}  # what was not recorded was not finished
        for event in events:
            assert [attempt.attempt for attempt in await here.attempts(endpoint, event)] == [1]
            assert len(receiver.attempts(event)) <= 2
        # Those under way, and those that were answered while the record of their answer was.
        assert len(receiver.got) - len(events) <= 2 * here.settings.webhook_connections_each


async def test_a_worker_told_to_stop_finishes_what_is_under_way(here: World, tmp_path: Path) -> None:
    async with Receiver() as receiver:
        endpoint = await here.endpoint(receiver.url)
        events = await here.events(endpoint.account, ["delivered"] * 100)
        receiver.delay_s = 0.5
        with worker(here.settings, tmp_path / "worker.log") as process:
            await until(lambda: len(receiver.got) >= 4)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0

        rest = {row["event_id"] for row in await here.queued(endpoint)}
        made = {event for event in events if receiver.attempts(event)}
        assert made.isdisjoint(rest)
        assert made | rest == set(events)
        assert all(row["leased_until"] is None for row in await here.queued(endpoint))
        assert (tmp_path / "worker.log").read_text() == ""


async def test_attempts_of_a_month_ago_go_with_their_partition(here: World) -> None:
    endpoint = await here.endpoint("http://127.0.0.1:9/")
    event = await here.event(endpoint.account)
    now = datetime.now(UTC)
    async with here.pool.acquire() as connection:
        for weeks in (3, 4, 5, 7):
            await partitions.ensure(connection, now - timedelta(weeks=weeks), ahead=0)
    for weeks in (0, 3, 7):
        at = now - timedelta(weeks=weeks)
        await here.pool.execute(
            "INSERT INTO webhook_attempts (id, webhook_id, event_id, seq, attempt, started_at, delivered) "
            "SELECT $1, $2, $3, seq, $4, $5, false FROM webhook_queue WHERE event_id = $3",
            ids.uuid7(int(at.timestamp() * 1000)), endpoint.id, event, 9 - weeks, at,
        )  # fmt: skip
    async with here.pool.acquire() as connection:
        dropped = await partitions.drop_before(connection, "webhook_attempts", now - webhooks_service.KEPT)
        again = await partitions.drop_before(connection, "webhook_attempts", now - webhooks_service.KEPT)

    assert partitions.partition_name("webhook_attempts", partitions.week_of(now - timedelta(weeks=7))) in dropped
    assert again == []
    found = await store.candidates(here.pool, endpoint.account.id, endpoint.id, before=None, limit=5)
    [row] = await store.deliveries(here.pool, endpoint.account.id, endpoint.id, found)
    assert [fields[0] for fields in row.attempts] == [6, 9]


@pytest.mark.exhaustive
def test_the_bench_counts_every_delivery(tmp_path: Path) -> None:
    script = (
        "import sys; from loadtests.bench.command import run; "
        "options = {'messages': 200, 'hanging': 2, 'idle_s': 0.2, 'paced_s': 1.0, 'learning_s': 0.5}; "
        "sys.exit(run('webhooks', options, as_json=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=ROOT, timeout=100,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # a lock of its own: it need not wait for another bench
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)

    assert result["checked"]
    assert result["checks"][0]["found"] == "1600 sent, 1600 arrived, 0 twice"
