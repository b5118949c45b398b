"""Acceptance: what a commit holds, what is refused and in which order, replays, and what happens without servers."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.sending.preparation import Origin
from engine.store import postgres
from engine.store.caches import Cache
from ops.host.temporary_servers import Temporary
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import (
    Process,
    accept_set,
    accepted,
    head_of,
    message_id,
    process,
    refused,
    request_of,
    stored,
    suppress,
    until,
)  # fmt: skip

NewDatabase = Callable[[], Awaitable[str]]


# -- the group commit -------------------------------------------------------------------------


async def test_concurrent_sends_share_a_transaction(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await door.send(account)
    door.flushes.clear()

    results = await asyncio.gather(*[door.try_send(account) for _ in range(60)])

    assert len(accepted(list(results))) == 60
    assert sum(door.flushes) == 60
    assert len(door.flushes) <= 2
    transactions = await pool.fetchval(
        "SELECT count(DISTINCT xmin::text) FROM events WHERE account_id = $1", account.id
    )
    assert transactions == 1 + len(door.flushes)


async def test_an_accepted_message_is_whole_at_once(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    answer = await door.send(account, to=["ann@one.test", "bob@two.test"], bcc=["eve@one.test"], idempotencyKey="k-1")
    found = message_id(answer)

    message = await pool.fetchrow("SELECT * FROM messages WHERE id = $1", found)
    assert message is not None
    assert (message["status"], message["recipient_count"], message["account_id"]) == ("queued", 3, account.id)
    body = await pool.fetchval("SELECT mime FROM message_bodies WHERE message_id = $1", found)
    assert len(body) == message["size_bytes"]
    kinds = await pool.fetch("SELECT kind, status FROM recipients WHERE message_id = $1 ORDER BY n", found)
    assert [tuple(row) for row in kinds] == [("to", "queued"), ("to", "queued"), ("bcc", "queued")]
    pending = await pool.fetch("SELECT domain, total FROM queue WHERE message_id = $1 ORDER BY domain", found)
    assert [tuple(row) for row in pending] == [("one.test", 3), ("two.test", 3)]
    events = await pool.fetch("SELECT seq, type FROM events WHERE message_id = $1", found)
    assert [tuple(row) for row in events] == [(1, "accepted")]
    assert await pool.fetchval("SELECT message_id FROM idempotency WHERE account_id = $1", account.id) == found


async def test_a_fresh_row_leaves_its_hint_time(door: Process, pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    before = datetime.now(UTC)
    answer = await door.send(account)
    after = datetime.now(UTC)

    due = await pool.fetchval("SELECT due_at FROM queue WHERE message_id = $1", message_id(answer))
    hint_time = timedelta(seconds=settings.fresh_due_s)
    rounding = timedelta(milliseconds=1)
    assert before - rounding <= due - hint_time <= after + rounding


async def test_a_message_that_cannot_be_stored_fails_alone(door: Process, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await asyncio.gather(door.send(account), door.send(other))
    unstorable = "a lone \ud800 surrogate"  # no Postgres text

    sends = [
        door.try_send(account), door.try_send(account, idempotencyKey=unstorable), door.try_send(other),
        door.try_send(account),
    ]  # fmt: skip
    results = await asyncio.gather(*sends)

    assert len(accepted(list(results))) == 3
    refusal = results[1]
    assert isinstance(refusal, Refusal)
    assert refusal.kind is ErrorType.INVALID_REQUEST  # no retry would mend it: not 503
    assert await stored(pool, account) == 3
    assert (await head_of(pool, account))["sent_today"] == 3


async def test_who_stopped_waiting_before_the_flush_is_not_sent_for(door: Process, pool: asyncpg.Pool) -> None:
    """They were told that nothing was accepted."""
    account = await make_account(pool)
    await door.send(account)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR UPDATE", account.id)
        first = asyncio.create_task(door.send(account))
        await asyncio.sleep(0.2)  # its flush waits for the head
        second = asyncio.create_task(door.send(account))
        await until(lambda: door.acceptor._group.waiting == 1)
        second.cancel()
        await transaction.rollback()

    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    await door.acceptor._group.idle()
    assert await stored(pool, account) == 2


# -- the order of checks ----------------------------------------------------------------------


async def test_the_first_check_that_fails_is_the_answer(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=0, monthly_cap=0)
    await suppress(pool, account, "gone@people.test")
    wrong: dict[str, object] = {
        "from": "shop@elsewhere.test",
        "stream": "no-such-stream",
        "to": ["not an address", "gone@people.test"],
        "headers": {"From": "x@y.test"},
        "attachments": [{"filename": "a.exe", "contentType": "application/pdf", "content": "!"}],
    }
    mended: list[tuple[dict[str, object], ErrorType, dict[str, object]]] = [
        ({}, ErrorType.DOMAIN_NOT_VERIFIED, {"domain": "elsewhere.test"}),
        ({"from": account.sender}, ErrorType.INVALID_REQUEST, {"field": "stream"}),
        ({"stream": "transactional"}, ErrorType.INVALID_ADDRESS, {"address": "not an address", "field": "to[0]"}),
        ({"to": "gone@people.test"}, ErrorType.INVALID_REQUEST, {"field": "headers.From"}),
        ({"headers": {}}, ErrorType.ATTACHMENT_BLOCKED, {"filename": "a.exe"}),
        ({"attachments": []}, ErrorType.SUPPRESSED, {"address": "gone@people.test", "reason": "bounce"}),
        ({"to": "ann@people.test"}, ErrorType.DAILY_LIMIT_REACHED, {"limit": 0, "sentToday": 0}),
    ]
    for step, kind, evidence in mended:
        wrong |= step
        refusal = await door.try_send(account, **wrong)
        assert isinstance(refusal, Refusal)
        assert (refusal.kind, refusal.fields) == (kind, evidence)


async def test_an_unverified_domain_refuses_with_its_name(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, verified=False)

    refusal = await door.try_send(account)

    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.fields) == (ErrorType.DOMAIN_NOT_VERIFIED, {"domain": account.domain})


async def test_another_accounts_domain_and_stream_are_not_ours(door: Process, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)

    refusal = await door.try_send(account, **{"from": other.sender})

    assert isinstance(refusal, Refusal)
    assert refusal.kind is ErrorType.DOMAIN_NOT_VERIFIED


async def test_what_was_verified_or_opened_elsewhere_a_moment_ago_can_be_used(
    door: Process, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool, verified=False)
    unverified = await door.try_send(account)
    await pool.execute("UPDATE domains SET status = 'verified' WHERE account_id = $1", account.id)  # nobody is told
    accepted_now = await door.try_send(account)
    unopened = await door.try_send(account, stream="news")
    await pool.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, 'news', 'News')", account.id)

    assert isinstance(unverified, Refusal)
    assert unverified.kind is ErrorType.DOMAIN_NOT_VERIFIED
    assert isinstance(unopened, Refusal)
    assert len(accepted([accepted_now, await door.try_send(account, stream="news")])) == 2


async def test_a_refused_batch_asks_the_tables_once(door: Process, pool: asyncpg.Pool) -> None:
    account, load, asked = await make_account(pool), door.acceptor.preparer.domains._load, []

    async def counted(of: UUID) -> dict[str, str | None]:
        asked.append(of)
        return await load(of)

    door.acceptor.preparer.domains = Cache("domains", counted)
    requests = [request_of(account, **{"from": f"shop@no{place}.test"}) for place in range(100)]
    decisions = await accept_set(door.acceptor, requests, Origin(account.id, "api"))

    assert {one.kind for one in refused(decisions)} == {ErrorType.DOMAIN_NOT_VERIFIED}
    assert len(asked) == 2, "once into memory, and once more before the refusals"


# -- idempotency ------------------------------------------------------------------------------


async def test_fifty_parallel_posts_of_one_key_are_one_message(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)

    results = await asyncio.gather(*[doors[turn % 2].send(account, idempotencyKey="order-17") for turn in range(50)])

    assert sorted(one.status for one in results) == ["duplicate"] * 49 + ["queued"]
    assert len({one.id for one in results}) == 1
    assert await stored(pool, account) == 1
    found = await head_of(pool, account)
    assert (found["sent_today"], found["seq"]) == (1, 1)


async def test_a_replay_is_answered_though_it_would_be_refused_by_now(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=1)
    first = await door.send(account, idempotencyKey="k")
    await suppress(pool, account, "ann@people.test")
    await pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)

    again = await door.send(account, idempotencyKey="k")  # suppressed, over the cap
    door.acceptor.preparer.domains.clear()
    and_again = await door.send(account, idempotencyKey="k")  # and from a domain that is not verified

    assert (again.id, again.status, and_again.id, and_again.status) == (first.id, "duplicate", first.id, "duplicate")
    found = await head_of(pool, account)
    assert (found["sent_today"], found["seq"]) == (1, 1)  # no `suppressed` event either


async def test_a_replay_tells_whether_the_request_differs(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    first = await door.send(account, idempotencyKey="k")

    same = await door.send(account, idempotencyKey="k")
    other = await door.send(account, idempotencyKey="k", subject="Something else")

    assert [one.id for one in (same, other)] == [first.id] * 2
    assert (same.body_differs, other.body_differs) == (False, True)


async def test_keys_belong_to_their_account(door: Process, pool: asyncpg.Pool) -> None:
    one, two = await make_account(pool), await make_account(pool)

    answers = [await door.send(account, idempotencyKey="same") for account in (one, two)]

    assert [answer.status for answer in answers] == ["queued", "queued"]


async def test_a_refused_request_does_not_use_its_key_up(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await suppress(pool, account, "ann@people.test")
    assert isinstance(await door.try_send(account, idempotencyKey="k"), Refusal)
    await pool.execute("DELETE FROM suppressions WHERE account_id = $1", account.id)

    assert (await door.send(account, idempotencyKey="k")).status == "queued"


# -- suppression ------------------------------------------------------------------------------


async def test_a_suppressed_recipient_refuses_the_whole_and_is_logged(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await suppress(pool, account, "gone@people.test")

    refusal = await door.try_send(account, to=["ann@people.test", "GONE@people.test"])

    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.fields) == (
        ErrorType.SUPPRESSED, {"address": "GONE@people.test", "reason": "bounce"},
    )  # fmt: skip
    assert await stored(pool, account) == 0
    event = await pool.fetchrow("SELECT * FROM events WHERE account_id = $1", account.id)
    assert event is not None
    assert (event["type"], event["message_id"], event["seq"]) == ("suppressed", None, 1)
    assert event["payload"] == (
        '{"type":"suppressed","messageId":null,"detail":{"address":"GONE@people.test","reason":"bounce"}}'
    )


async def test_a_suppression_holds_for_its_account_only(door: Process, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await suppress(pool, account, "ann@people.test")

    results = await asyncio.gather(door.try_send(account), door.try_send(other))

    assert isinstance(results[0], Refusal)
    assert not isinstance(results[1], Refusal)


# -- servers away -----------------------------------------------------------------------------


async def test_without_redis_mail_is_accepted(settings: Settings, pool: asyncpg.Pool) -> None:
    async with process(replace(settings, redis_url="redis://127.0.0.1:1")) as door:
        account = await make_account(pool)
        answers = await asyncio.gather(*[door.send(account) for _ in range(20)])
        await door.hints.drain()

        assert {answer.status for answer in answers} == {"queued"}
        assert door.hints.lost == 20
        assert door.hints.away
        pending = await pool.fetchval("SELECT count(*) FROM queue WHERE account_id = $1", account.id)
        assert pending == 20  # found by their due times


async def test_without_postgres_nothing_is_accepted_and_it_recovers(
    settings: Settings, disposable_servers: Temporary
) -> None:
    own = replace(settings, database_url=disposable_servers.database_url, redis_url=disposable_servers.redis_url)
    async with process(own) as door:
        account, unknown = await make_account(door.pool), await make_account(door.pool)
        await door.send(account)

        disposable_servers.postgres.kill()
        began = time.monotonic()
        refusals = refused(
            list(await asyncio.gather(*[door.try_send(one) for one in (account, unknown) for _ in range(20)]))
        )
        took = time.monotonic() - began
        disposable_servers.postgres.start()

        assert [refusal.kind for refusal in refusals] == [ErrorType.UNAVAILABLE] * 40
        assert all(refusal.retry_after_s for refusal in refusals)
        assert took < PATIENCE_S
        recovered = False
        began = time.monotonic()
        while not recovered and time.monotonic() - began < PATIENCE_S:
            recovered = not isinstance(await door.try_send(account), Refusal)
        assert recovered
        assert await stored(door.pool, account) == 2
        assert (await head_of(door.pool, account))["sent_today"] == 2


async def test_a_locked_account_is_a_clean_refusal_and_blocks_nobody_for_ever(
    settings: Settings, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT_S", 1)
    async with process(settings) as door:
        account = await make_account(pool)
        await door.send(account)
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR UPDATE", account.id)
            refusal = await door.try_send(account)
            await transaction.rollback()

        assert isinstance(refusal, Refusal)
        assert refusal.kind is ErrorType.UNAVAILABLE
        assert (await door.send(account)).status == "queued"
        assert await stored(pool, account) == 2


async def test_the_hint_follows_the_commit(settings: Settings, pool: asyncpg.Pool) -> None:
    async with process(settings) as door:
        account = await make_account(pool)
        await door.send(account)

        await until(lambda: door.hints._task is not None and door.hints._task.done())
        assert door.hints.lost == 0
