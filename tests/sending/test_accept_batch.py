"""Batches without a door, races with everything at once, and messages that their client composed."""

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.mail.address import parse_mailbox
from engine.sending.admission import Decision
from engine.sending.emails import submitted
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.types import Accepted
from engine.sending.preparation import Origin
from tests.harness.accounts import TestAccount, make_account
from tests.harness.schedules import standing, waybill, within
from tests.harness.sending import (
    Process,
    accept,
    accept_set,
    accepted,
    head_of,
    message_id,
    process,
    refused,
    request_of,
    stored,
    suppress,
)

ROUNDS = 100


async def batch(door: Process, account: TestAccount, *items: dict[str, object]) -> list[Decision]:
    requests = [request_of(account, **fields) for fields in items]
    return await accept_set(door.acceptor, requests, Origin(account.id, "api"))


# -- batches ----------------------------------------------------------------------------------


async def test_a_batch_is_one_commit(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    results = await batch(door, account, *[{}] * 100)

    assert len(accepted(results)) == 100
    assert door.flushes == [100]


async def test_an_item_that_cannot_be_stored_fails_alone(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=3)
    unstorable: dict[str, object] = {"idempotencyKey": "a lone \ud800 surrogate"}  # no Postgres text

    results = await batch(door, account, {}, unstorable, {}, {}, {})

    assert [one.status if isinstance(one, Accepted) else one.kind for one in results] == [
        "queued", ErrorType.INVALID_REQUEST, "queued", "queued", ErrorType.DAILY_LIMIT_REACHED,
    ]  # fmt: skip
    assert await stored(pool, account) == 3
    assert (await head_of(pool, account))["sent_today"] == 3


async def test_a_whole_set_is_accepted_or_leaves_no_trace(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=10)  # more than all other sets, whatever their order
    await suppress(pool, account, "gone@people.test")

    async def whole(*items: dict[str, object]) -> list[Decision]:
        requests = [request_of(account, **fields) for fields in items]
        return await accept_set(door.acceptor, requests, Origin(account.id, "api"), whole=True)

    first, large, invalid, suppressed, two, last = await asyncio.gather(
        door.send(account),
        whole(*[{}] * 11),
        whole({}, {"to": "nobody"}),
        whole({}, {"to": "gone@people.test"}, {}),
        whole({"idempotencyKey": "a"}, {"idempotencyKey": "b"}),
        door.send(account),
    )
    broken = await whole({}, {"idempotencyKey": "a lone \ud800 surrogate"})

    assert [one.status for one in (first, *accepted(two), last)] == ["queued"] * 4
    assert {one.kind for one in refused(large)} == {ErrorType.CONFLICT, ErrorType.DAILY_LIMIT_REACHED}
    assert [one.kind for one in refused(invalid)] == [ErrorType.CONFLICT, ErrorType.INVALID_ADDRESS]
    assert [one.kind for one in refused(suppressed)] == [
        ErrorType.CONFLICT, ErrorType.SUPPRESSED, ErrorType.CONFLICT,
    ]  # fmt: skip
    assert [one.kind for one in refused(broken)] == [ErrorType.INVALID_REQUEST] * 2
    assert [len(refused(one)) for one in (large, invalid, suppressed, broken)] == [11, 2, 3, 2]
    assert await stored(pool, account) == 4
    head = await head_of(pool, account)
    assert (head["sent_today"], head["seq"]) == (4, 5)  # four `accepted`, one `suppressed`


async def test_a_batch_without_postgres_is_refused_as_a_whole(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        await batch(door, account, {})
        door.pool.terminate()
        with pytest.raises(Refusal) as caught:
            await batch(door, account, {}, {})

    assert caught.value.kind is ErrorType.UNAVAILABLE
    assert await stored(pool, account) == 1


async def test_scheduled_and_immediate_items_share_the_commit(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=1)

    results = await batch(door, account, {}, {"scheduledAt": within(days=2)}, {}, {"scheduledAt": within(days=2)})

    assert [one.status if isinstance(one, Accepted) else one.kind for one in results] == [
        "queued", "scheduled", ErrorType.DAILY_LIMIT_REACHED, "scheduled",
    ]  # fmt: skip
    assert door.flushes == [4]
    head = await head_of(pool, account)
    assert (head["sent_today"], head["scheduled"], head["seq"]) == (1, 2, 3)


async def test_scheduled_messages_leave_the_platforms_ceiling_alone(settings: Settings, new_database: Any) -> None:
    own = replace(settings, database_url=await new_database(), platform_daily_ceiling=1)
    async with process(own) as door:
        account = await make_account(door.pool)
        later: dict[str, object] = {"scheduledAt": within(hours=2)}
        results = await batch(door, account, *[later] * 5, {}, {})

        assert [one.status if isinstance(one, Accepted) else one.kind for one in results] == [
            *["scheduled"] * 5, "queued", ErrorType.PLATFORM_PAUSED,
        ]  # fmt: skip


async def test_what_waits_for_the_commit_is_bounded_in_memory(settings: Settings, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with process(replace(settings, max_inflight_bytes=1024 * 1024)) as door:
        await door.send(account)
        large = {"text": "word " * 120_000}
        results = await asyncio.gather(*[door.try_send(account, **large) for _ in range(8)])
        assert {one.kind for one in refused(list(results))} == {ErrorType.RATE_LIMITED}
        assert 1 <= len(accepted(list(results))) <= 3
        assert door.acceptor._memory.held == 0
        assert (await door.send(account, **large)).status == "queued"


# -- races ------------------------------------------------------------------------------------


@pytest.mark.exhaustive
async def test_batches_and_singles_at_the_cap_are_counted_exactly(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    for turn in range(ROUNDS):
        cap = 10 + turn % 7
        account = await make_account(pool, daily_cap=cap)
        for _ in range(4):
            await doors[0].send(account)

        async def one_batch(door: Process, account: TestAccount = account) -> list[Decision]:
            return await batch(door, account, {}, {"to": "nonsense"}, {}, {"scheduledAt": within(days=3)}, {})

        async def one_send(door: Process, account: TestAccount = account) -> list[Decision]:
            return [await door.try_send(account)]

        work = [one_batch(doors[n % 2]) for n in range(6)] + [one_send(doors[n % 2]) for n in range(10)]
        found = [one for results in await asyncio.gather(*work) for one in results]

        queued = [one for one in accepted(found) if one.status == "queued"]
        kinds = Counter(one.kind for one in refused(found))
        assert len(queued) == cap - 4
        assert kinds[ErrorType.DAILY_LIMIT_REACHED] == 6 * 3 + 10 - (cap - 4)
        assert all(
            one.fields == {"limit": cap, "sentToday": cap}
            for one in refused(found)
            if one.kind is ErrorType.DAILY_LIMIT_REACHED
        )
        head = await head_of(pool, account)
        assert (head["sent_today"], head["sent_this_month"], head["scheduled"]) == (cap, cap, 6)
        assert head["seq"] == cap + 6
        assert await stored(pool, account) == cap + 6


@pytest.mark.exhaustive
async def test_fifty_parallel_posts_of_one_key_are_one_message_every_time(
    doors: tuple[Process, Process], pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    for turn in range(ROUNDS):
        fields: dict[str, object] = {"idempotencyKey": f"order-{turn}"}
        if turn % 3 == 0:
            fields["scheduledAt"] = within(hours=5)
        singles = [doors[n % 2].try_send(account, **fields) for n in range(30)]
        batches = [batch(doors[n % 2], account, *[fields] * 4) for n in range(5)]

        one_by_one = await asyncio.gather(*singles, *batches)

        found = [one for part in one_by_one for one in (part if isinstance(part, list) else [part])]
        states = Counter(one.status for one in accepted(found))
        assert states == {"scheduled" if turn % 3 == 0 else "queued": 1, "duplicate": 49}
        assert len({one.id for one in accepted(found)}) == 1
    assert await stored(pool, account) == ROUNDS


# -- composed by its client -------------------------------------------------------------------

MAIL = "From: Shop <shop@{domain}>\r\nTo: ann@people.test\r\nSubject: Hello\r\n{more}\r\nHello!\r\n"


def handed_in(account: TestAccount, more: str = "", to: str = "ann@people.test") -> Submitted:
    octets = MAIL.format(domain=account.domain, more=more).encode()
    found = submitted.read(octets, [parse_mailbox(to)], smtputf8=False, host="mail.waybill.test")
    assert isinstance(found, Submitted)
    return found


async def hand_in(door: Process, account: TestAccount, more: str = "", to: str = "ann@people.test") -> Decision:
    try:
        return await accept(door.acceptor, handed_in(account, more, to), Origin(account.id, "smtp"))
    except Refusal as refusal:
        return refusal


async def test_a_submitted_message_takes_the_same_way(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    answer = await hand_in(door, account)

    assert isinstance(answer, Accepted)
    assert answer.status == "queued"
    found = message_id(answer)
    assert await standing(pool, found) == ("queued", ["queued"], 1)
    [(kind, detail)] = await waybill(pool, found)
    assert kind == "accepted"
    assert detail == {
        "source": "smtp", "to_domain": "people.test", "from_domain": account.domain, "stream": "transactional",
    }  # fmt: skip
    assert (await head_of(pool, account))["sent_today"] == 1


async def test_a_submitted_message_is_refused_for_the_same_reasons(door: Process, pool: asyncpg.Pool) -> None:
    account, stranger = await make_account(pool), await make_account(pool, daily_cap=0)
    await suppress(pool, account, "gone@people.test")

    for answer, kind in (
        (await hand_in(door, account, to="gone@people.test"), ErrorType.SUPPRESSED),
        (await hand_in(door, account, "X-Waybill-Stream: none\r\n"), ErrorType.INVALID_REQUEST),
        (await hand_in(door, account, "X-Waybill-Scheduled-At: soon\r\n"), ErrorType.INVALID_REQUEST),
        (await hand_in(door, stranger), ErrorType.DAILY_LIMIT_REACHED),
    ):
        assert isinstance(answer, Refusal)
        assert answer.kind is kind
    with pytest.raises(Refusal) as caught:
        await accept(door.acceptor, handed_in(account), Origin(stranger.id, "smtp"))
    assert caught.value.kind is ErrorType.DOMAIN_NOT_VERIFIED


async def test_a_submitted_message_can_wait_and_be_replayed(door: Process, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    later = f"X-Waybill-Scheduled-At: {within(hours=3)}\r\nX-Waybill-Idempotency-Key: k\r\n"
    first = await hand_in(door, account, later)
    assert isinstance(first, Accepted)
    assert first.status == "scheduled"
    assert await standing(pool, message_id(first)) == ("scheduled", ["scheduled"], 0)
    await pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)
    door.acceptor.preparer.domains.clear()

    again = await hand_in(door, account, later)  # refused by now, but for the key

    assert isinstance(again, Accepted)
    assert (again.status, again.id, again.body_differs) == ("duplicate", first.id, False)
