"""A monthly allowance of a parent account, shared exactly with its sub-accounts."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from engine.accounts.sub_accounts.service import SubAccountPatch, change_sub_account, open_sub_account
from engine.base import clock
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.ledger import heads
from engine.mail.address import parse_mailbox
from engine.people.account import allowance
from engine.sending.emails import submitted
from engine.sending.preparation import Origin
from engine.sending.streams.service import close_stream, open_stream
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, add_domain, make_account, set_status
from tests.harness.schedules import comes_due, release, scheduled, standing, waybill
from tests.harness.sending import Process, accept, accept_set, accepted, head_of, process, refused, request_of, stored


async def below(pool: asyncpg.Pool, parent: TestAccount, *, limit: int | None = None) -> TestAccount:
    """A sub-account with a verified domain and no daily cap of its own."""
    row = await open_sub_account(pool, parent.id, name="Shop", monthly_limit=limit, actor="operator")
    domain = f"{row.id.hex}.test"
    await add_domain(pool, row.id, domain)
    await pool.execute("UPDATE accounts SET daily_cap = 100000 WHERE id = $1", row.id)
    return TestAccount(row.id, "", domain)


@pytest.fixture
async def door(settings: Settings) -> AsyncIterator[Process]:
    async with process(settings) as opened:
        yield opened


@pytest.fixture
async def other(settings: Settings) -> AsyncIterator[Process]:
    async with process(settings) as opened:
        yield opened


async def month(pool: asyncpg.Pool, account: TestAccount) -> int:
    return int((await head_of(pool, account))["sent_this_month"])


async def test_a_parent_and_its_sub_accounts_share_the_month_exactly_under_concurrency(
    pool: asyncpg.Pool, door: Process, other: Process
) -> None:
    parent = await make_account(pool, monthly_cap=100)
    children = [await below(pool, parent), await below(pool, parent, limit=20), await below(pool, parent)]
    senders = [parent, *children] * 45

    results = await asyncio.gather(
        *[(door, other)[n % 2].try_send(one) for n, one in enumerate(senders)],
        *[accept_set(
            two.acceptor, [request_of(one)] * 5, Origin(one.id, "api")
        ) for two, one in ((door, children[0]), (other, children[2]), (door, parent), (other, children[1]))],
    )  # fmt: skip
    flat = [one for result in results for one in (result if isinstance(result, list) else [result])]

    assert len(accepted(flat)) == 100
    assert {one.kind for one in refused(flat)} == {ErrorType.MONTHLY_LIMIT_REACHED}
    counts = [await stored(pool, one) for one in (parent, *children)]
    assert sum(counts) == 100
    assert counts[2] <= 20
    assert await month(pool, parent) == 100
    assert [await month(pool, one) for one in children] == counts[1:]
    assert (await head_of(pool, parent))["sent_today"] == counts[0]


async def test_the_refusal_says_whose_limit_it_is(pool: asyncpg.Pool, door: Process) -> None:
    parent = await make_account(pool, monthly_cap=4)
    small, free = await below(pool, parent, limit=2), await below(pool, parent)
    answers = [await door.try_send(one) for one in (small, small, small, free, free, free, parent)]

    told = [(one.fields.get("allowance"), one.fields["limit"]) for one in refused(answers)]
    assert told == [("own", 2), ("parent", 4), (None, 4)]


async def test_a_sub_accounts_day_is_its_own(pool: asyncpg.Pool, door: Process) -> None:
    parent = await make_account(pool, daily_cap=1)
    child = await below(pool, parent)
    await pool.execute("UPDATE accounts SET daily_cap = NULL WHERE id = $1", child.id)
    answers = [await door.try_send(child) for _ in range(51)]

    assert len(accepted(answers)) == 50
    assert refused(answers)[0].kind is ErrorType.DAILY_LIMIT_REACHED
    assert len(accepted([await door.try_send(parent), await door.try_send(parent)])) == 1


async def test_a_parents_agreement_reaches_below(pool: asyncpg.Pool, door: Process) -> None:
    """A sub-account without a limit of its own is bound by its parent's allowance, not by the plan's number."""
    parent = await make_account(pool, plan="growth", monthly_cap=400_000)
    child = await below(pool, parent)
    await pool.execute(
        "UPDATE account_heads SET sent_this_month = 300000, month = date_trunc('month', now())::date"
        " WHERE account_id = $1",
        child.id,
    )

    assert len(accepted([await door.try_send(child)])) == 1


async def test_a_message_over_smtp_counts_as_any(pool: asyncpg.Pool, door: Process) -> None:
    parent = await make_account(pool, monthly_cap=1)
    child = await below(pool, parent)
    content = f"From: {child.sender}\r\nTo: ann@people.test\r\nSubject: Hello\r\n\r\nHello!\r\n".encode()
    read = submitted.read(content, [parse_mailbox("ann@people.test")], smtputf8=False, host="mail.test")
    assert isinstance(read, submitted.Submitted)

    await accept(door.acceptor, read, Origin(child.id, "smtp"))
    with pytest.raises(Refusal) as refusal:
        await accept(door.acceptor, read, Origin(child.id, "smtp"))
    assert refusal.value.fields["allowance"] == "parent"


async def test_a_scheduled_message_is_counted_on_both_when_it_is_released(
    pool: asyncpg.Pool, door: Process, settings: Settings
) -> None:
    parent = await make_account(pool, monthly_cap=1)
    child, sibling = await below(pool, parent), await below(pool, parent)
    first, second = await scheduled(door, child), await scheduled(door, sibling)
    assert await month(pool, parent) == 0
    await comes_due(pool, first, ago=timedelta(hours=2))
    await release(pool, settings)
    await comes_due(pool, second, ago=timedelta(hours=2))
    await release(pool, settings)

    assert (await standing(pool, first))[0] == "queued"
    assert (await standing(pool, second))[0] == "rejected"
    kind, detail = (await waybill(pool, second))[-1]
    assert (kind, detail["reason"], detail["allowance"]) == ("schedule_failed", "monthly_limit_reached", "parent")
    assert [await month(pool, one) for one in (parent, child, sibling)] == [1, 1, 0]


async def test_what_waits_for_a_used_up_month_of_the_parent_is_refused_now(pool: asyncpg.Pool, door: Process) -> None:
    parent = await make_account(pool, monthly_cap=0)
    child = await below(pool, parent)
    soon = clock.now() + timedelta(minutes=5)
    answer = await door.try_send(child, scheduledAt=clock.iso(soon))

    if soon.month == clock.now().month:  # of another month nothing is known yet
        assert [one.fields["allowance"] for one in refused([answer])] == ["parent"]


async def test_an_account_whose_erasure_has_begun_takes_nothing_more(pool: asyncpg.Pool, door: Process) -> None:
    parent = await make_account(pool)
    child = await below(pool, parent)
    await set_status(pool, child.id, "closing")

    assert refused([await door.try_send(child)])[0].kind is ErrorType.NOT_FOUND
    assert await stored(pool, child) == 0


async def test_sends_of_a_family_and_changes_of_it_never_lock_each_other_out(
    pool: asyncpg.Pool, door: Process, other: Process, settings: Settings
) -> None:
    parent = await make_account(pool)
    children = [await below(pool, parent) for _ in range(3)]
    assert settings.database_url is not None
    apart = await open_pool(settings.database_url, name="changes", largest=4)

    async def changes(child: UUID) -> None:
        for n in range(10):
            await change_sub_account(apart, parent.id, child, SubAccountPatch(name=f"Shop {n}"), actor="operator")
            await open_stream(apart, parent.id if n % 2 else child, slug=f"{child.hex}-{n}", name=None)
            await close_stream(apart, parent.id if n % 2 else child, f"{child.hex}-{n}")

    sends = [(door, other)[n % 2].try_send(one) for n, one in enumerate([*children, parent] * 50)]
    try:
        results, _ = await asyncio.gather(
            asyncio.gather(*sends), asyncio.gather(*[changes(one.id) for one in children])
        )
    finally:
        await apart.close()

    assert [one.message for one in results if isinstance(one, Refusal)] == []
    assert await month(pool, parent) == 200


async def test_a_sub_account_has_no_more_left_than_its_parent(pool: asyncpg.Pool, door: Process) -> None:
    parent = await make_account(pool, monthly_cap=10)
    child = await below(pool, parent, limit=8)
    for one in (parent, parent, parent, child):
        await door.send(one)
    async with pool.acquire() as connection:
        found = await allowance.read(connection, child.id, clock.now())

    assert (found.monthly_limit, found.sent_this_month, found.remaining_this_month) == (8, 1, 6)


@pytest.mark.parametrize(
    "avoided", [(), ("hashjoin", "mergejoin", "seqscan", "hashagg")], ids=["usual", "nested loops"]
)
async def test_a_family_counted_by_somebody_else_is_locked_whole_whatever_the_plan(
    new_database: NewDatabase, avoided: tuple[str, ...]
) -> None:
    pool = await open_pool(await new_database(), name="tests", largest=4)
    for _ in range(5):
        parent = await make_account(pool)
    await pool.execute("ANALYZE")
    child = await below(pool, parent)

    async with pool.acquire() as counting, pool.acquire() as waiting:
        for kind in avoided:
            await waiting.execute(f"SET enable_{kind} = off")
        async with counting.transaction():
            await counting.execute("UPDATE account_heads SET sent_this_month = 7")
            locked = asyncio.create_task(heads.lock_counted(waiting, [child.id]))
            while not await pool.fetchval("SELECT 1 FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
        found = await locked
    await pool.close()

    assert {account: head.sent_this_month for account, head in found.items()} == {parent.id: 7, child.id: 7}
