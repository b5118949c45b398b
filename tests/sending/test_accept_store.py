"""Storing on what a process remembers: one call if each message is still accepted, else a decision under the locks."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from engine.base.errors import ErrorType, Refusal
from engine.base.plans import Plan
from engine.ledger import heads, quota
from engine.sending.admission import Pending
from engine.sending.batch_decisions import BatchResult
from engine.sending.emails.types import Accepted
from engine.sending.fast_path import FastPathBackoff
from tests.harness import history
from tests.harness.accounts import make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import Process, accepted, head_of, message_id, stored, suppress

LARGE = "x" * 70 + "\n" + "0123456789\n" * 100_000


@pytest.fixture
def decided_under_locks(doors: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that the first process decides under the locks."""
    storer, sizes = doors[0].acceptor._storer, list[int]()
    locked = storer._store_locked

    async def counted(connection: Any, batch: Sequence[Pending], *others: Any) -> BatchResult:
        sizes.append(len(batch))
        return await locked(connection, batch, *others)

    monkeypatch.setattr(storer, "_store_locked", counted)
    return sizes


async def test_a_head_that_others_changed_meanwhile_needs_no_decision_under_its_lock(
    doors: tuple[Process, Process], pool: asyncpg.Pool, decided_under_locks: list[int]
) -> None:
    account, (one, two) = await make_account(pool), doors
    await one.send(account)
    assert decided_under_locks == [1]  # the process did not know the head
    for _ in range(3):
        await two.send(account)
        assert (await one.send(account)).status == "queued"

    assert decided_under_locks == [1]
    assert await stored(pool, account) == 7
    assert (await head_of(pool, account))["sent_today"] == 7
    assert await history.chain_holds(pool, account)


async def test_an_allowance_that_another_sub_account_used_up_meanwhile_is_refused(
    doors: tuple[Process, Process], pool: asyncpg.Pool, decided_under_locks: list[int]
) -> None:
    parent, (one, two) = await make_account(pool, plan=Plan.ENTERPRISE), doors
    children = [await make_account(pool) for _ in range(2)]
    await pool.execute(
        "UPDATE accounts SET parent_id = $1 WHERE id = ANY($2)", parent.id, [child.id for child in children]
    )
    for door, child in zip((one, two), children, strict=True):
        await door.send(child)
    cap = quota.monthly_cap((await heads.read_many(pool, [parent.id]))[parent.id])
    await pool.execute("UPDATE account_heads SET sent_this_month = $2 WHERE account_id = $1", parent.id, cap - 2)
    await one.send(children[0])
    await two.send(children[1])

    refusal = await one.try_send(children[0])

    assert isinstance(refusal, Refusal)
    assert refusal.kind is ErrorType.MONTHLY_LIMIT_REACHED
    assert refusal.fields["allowance"] == "parent"
    assert len(decided_under_locks) == 2
    assert [(await head_of(pool, child))["sent_this_month"] for child in children] == [2, 2]
    assert (await head_of(pool, parent))["sent_this_month"] == cap


async def test_a_large_body_is_stored_apart_in_the_transaction_of_its_message(
    doors: tuple[Process, Process], pool: asyncpg.Pool, decided_under_locks: list[int]
) -> None:
    account, (door, _) = await make_account(pool), doors
    await door.send(account)

    answers = await asyncio.gather(door.send(account, text=LARGE), door.send(account), door.send(account, text=LARGE))

    assert decided_under_locks == [1]
    for answer in answers:
        row = await pool.fetchrow(
            "SELECT m.size_bytes, b.mime, m.xmin = b.xmin AND m.xmin = e.xmin AS together FROM messages m "
            "JOIN message_bodies b ON b.message_id = m.id JOIN events e ON e.message_id = m.id WHERE m.id = $1",
            message_id(answer),
        )
        assert row is not None
        assert row["together"]
        assert len(row["mime"]) == row["size_bytes"]
    assert await history.chain_holds(pool, account)


async def test_a_large_message_that_is_refused_leaves_no_body(
    doors: tuple[Process, Process], pool: asyncpg.Pool, decided_under_locks: list[int]
) -> None:
    account, (door, _) = await make_account(pool), doors
    await door.send(account, text=LARGE)
    await suppress(pool, account, "ann@meanwhile.test")

    refusal = await door.try_send(account, to=["ann@meanwhile.test"], text=LARGE)

    assert isinstance(refusal, Refusal)
    assert decided_under_locks == [1, 1]
    assert await pool.fetchval("SELECT count(*) FROM message_bodies b JOIN messages m ON m.id = b.message_id") == (
        await pool.fetchval("SELECT count(*) FROM message_bodies")
    )


async def test_small_messages_do_not_wait_for_large_ones(doors: tuple[Process, Process], pool: asyncpg.Pool) -> None:
    large, small, (door, _) = await make_account(pool), await make_account(pool), doors
    await door.send(large)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM account_heads WHERE account_id = $1 FOR UPDATE", large.id)
        waiting = asyncio.create_task(door.send(large, text=LARGE))
        async with asyncio.timeout(PATIENCE_S):
            while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)

        await door.send(small)

        assert not waiting.done()
    assert (await waiting).status == "queued"


async def test_processes_that_accept_in_turn_count_each_message_and_never_fork_the_chain(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    for _ in range(6):
        for door in doors:
            results = await asyncio.gather(*[door.try_send(account) for _ in range(3)])
            assert len(accepted(list(results))) == 3

    head = await head_of(pool, account)
    assert (head["seq"], head["sent_today"], await stored(pool, account)) == (36, 36, 36)
    assert await history.chain_holds(pool, account)


async def test_the_cap_counts_what_other_processes_accepted_meanwhile(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await pool.execute("UPDATE accounts SET daily_cap = 10 WHERE id = $1", account.id)
    for door in doors:
        await door.send(account)

    results = await asyncio.gather(*[door.try_send(account) for _ in range(10) for door in doors])

    assert len(accepted(list(results))) == 8
    assert await stored(pool, account) == 10


async def test_a_cap_that_was_lowered_holds_for_the_next_message(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account, (door, _) = await make_account(pool), doors
    await door.send(account)
    await door.send(account)
    await pool.execute("UPDATE accounts SET daily_cap = 2 WHERE id = $1", account.id)

    refusal = await door.try_send(account)

    assert isinstance(refusal, Refusal)
    assert refusal.kind is ErrorType.DAILY_LIMIT_REACHED


async def test_a_key_used_in_another_process_is_replayed(doors: tuple[Process, Process], pool: asyncpg.Pool) -> None:
    account, (one, two) = await make_account(pool), doors
    await one.send(account)
    first = await two.send(account, idempotencyKey="k-1")
    assert (await one.send(account)).status == "queued"  # one knows the head again, and not the key

    again = await one.send(account, idempotencyKey="k-1")

    assert (again.id, again.status) == (first.id, "duplicate")
    assert await stored(pool, account) == 3


async def test_a_recipient_suppressed_meanwhile_refuses_its_message_alone(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account, (door, _) = await make_account(pool), doors
    await door.send(account)
    await suppress(pool, account, "gone@one.test")

    kept, refusal = await asyncio.gather(door.try_send(account), door.try_send(account, to=["gone@one.test"]))

    assert isinstance(kept, Accepted)
    assert isinstance(refusal, Refusal)
    assert refusal.kind is ErrorType.SUPPRESSED
    assert await stored(pool, account) == 2
    assert await history.chain_holds(pool, account)


async def test_a_head_that_somebody_holds_is_waited_for(doors: tuple[Process, Process], pool: asyncpg.Pool) -> None:
    account, (door, _) = await make_account(pool), doors
    await door.send(account)
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT 1 FROM account_heads WHERE account_id = $1 FOR NO KEY UPDATE", account.id)
        sending = asyncio.ensure_future(door.send(account))
        await asyncio.sleep(0.1)
        assert not sending.done()
        await transaction.rollback()

    assert (await sending).status == "queued"
    assert await stored(pool, account) == 2


async def test_messages_of_a_batch_that_differ_in_everything_are_stored_each_as_it_is(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    one, two = await make_account(pool), await make_account(pool)
    door, _ = doors
    await asyncio.gather(door.send(one), door.send(two))

    plain, rich = await asyncio.gather(
        door.send(one, to=["ann@one.test"]),
        door.send(
            two, to=["Bob <bob@two.test>", "eve@three.test"], cc=["joe@one.test"], replyTo="desk@four.test",
            tags=["a"], metadata={"k": "v"}, idempotencyKey="k-2", minTls="verified",
        ),
    )  # fmt: skip

    rows = {
        row["id"]: row
        for row in await pool.fetch("SELECT * FROM messages WHERE account_id = ANY($1)", [one.id, two.id])
    }
    first, second = rows[message_id(plain)], rows[message_id(rich)]
    assert (first["account_id"], first["recipient_count"], first["reply_to"], first["tags"]) == (one.id, 1, None, None)
    assert (second["account_id"], second["recipient_count"], second["reply_to"]) == (two.id, 3, "desk@four.test")
    recipients = await pool.fetch(
        "SELECT n, kind, address, name, account_id FROM recipients WHERE message_id = $1 ORDER BY n", second["id"]
    )
    assert [tuple(row) for row in recipients] == [
        (0, "to", "bob@two.test", "Bob", two.id),
        (1, "to", "eve@three.test", None, two.id),
        (2, "cc", "joe@one.test", None, two.id),
    ]
    queued = await pool.fetch(
        "SELECT domain, total, min_tls, account_id FROM queue WHERE message_id = $1", second["id"]
    )
    assert sorted(tuple(row)[:3] for row in queued) == [
        (domain, 3, "verified") for domain in ("one.test", "three.test", "two.test")
    ]
    assert {row["account_id"] for row in queued} == {two.id}


def test_after_each_miss_in_a_row_twice_as_many_batches_look_first() -> None:
    backoff = FastPathBackoff()
    looked = []
    for _ in range(4):
        assert backoff.may_try()
        backoff.miss()
        count = 0
        while not backoff.may_try():
            count += 1
        backoff._locking = 0
        looked.append(count)
    assert looked == [1, 3, 7, 15]
    backoff.hit()
    backoff.miss()
    assert [backoff.may_try(), backoff.may_try()] == [False, True]
