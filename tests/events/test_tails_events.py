"""The live tail of the whole account log: every event once and in order, beside the tail of messages."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack

import asyncpg
import pytest

from tests.harness import logbook
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.people import make_person
from tests.harness.sse import Event, Reader, following


def tailing(api: Api, account: TestAccount, query: str = "", **given: object) -> AbstractAsyncContextManager[Reader]:
    return following(api, account.token, query, path="/v1/events/tail", **given)  # type: ignore[arg-type]


async def shown(tail: Reader, count: int) -> list[Event]:
    return await tail.messages(count, name="event")


async def test_an_event_of_the_account_is_shown_as_the_pull_shows_it(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await logbook.many(pool, account.id, 3)
    async with tailing(api, account, "?replay=1") as tail:
        ready = await tail.until("ready")
        assert (await api.post("/v1/suppressions", account.token, {"address": "eve@people.test"})).status == 201
        sent = await api.post("/v1/emails", account.token, account.email())
        found = await shown(tail, 3)

    pulled = (await api.get("/v1/events?after=2", account.token)).json["data"]
    assert (tail.status, tail.headers["content-type"]) == (200, "text/event-stream")
    assert (ready.data["seq"], ready.data["after"], ready.data["firstSeq"]) == (3, 2, 1)
    assert [one.data for one in found] == pulled
    assert [one.id for one in found] == [3, 4, 5]
    assert [one["type"] for one in pulled] == ["deferred", "suppression.added", "accepted"]
    assert pulled[2]["messageId"] == sent.json["id"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("type=domain.", [2, 3]), ("type=domain.added", [2]), ("type=deferred", [1]),
        ("type=domain.&type=deferred", [1, 2, 3]), ("type=dom", []), ("type=list.", []), ("type=.", []),
        ("type=%00", []), ("", [1, 2, 3, 4]),
    ],
)  # fmt: skip
async def test_a_type_or_the_beginning_of_types_chooses_events(
    api: Api, pool: asyncpg.Pool, account: TestAccount, query: str, wanted: list[int]
) -> None:
    for kind in ("deferred", "domain.added", "domain.verified", "alert.fired"):
        await logbook.write(pool, account.id, (kind, {}))
    async with tailing(api, account, f"?replay=100&{query}") as tail:
        await tail.until("ready")
        assert [one.id for one in await shown(tail, len(wanted))] == wanted
        await logbook.write(pool, account.id, ("domain.added", {}), ("deferred", {}), ("alert.fired", {}))
        if wanted:
            assert (await shown(tail, 1))[0].data["seq"] > wanted[-1]


async def test_a_reader_that_reconnects_misses_nothing_and_gets_nothing_twice(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await logbook.many(pool, account.id, 700)
    async with tailing(api, account, "?after=0") as tail:
        first = [one.id for one in await shown(tail, 250)]
    await logbook.many(pool, account.id, 300, kind="domain.added")
    async with tailing(api, account, "?after=0", headers={"Last-Event-ID": str(first[-1])}) as tail:
        rest = [one.id for one in await shown(tail, 750)]

    assert first + rest == list(range(1, 1_001))


async def test_a_log_whose_beginning_was_purged_is_followed_from_there(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await logbook.many(pool, account.id, 10)
    await logbook.purge(pool, account.id, 4)
    async with tailing(api, account, "?after=1") as tail:
        ready = await tail.until("ready")
        found = [one.id for one in await shown(tail, 6)]

    assert (ready.data["firstSeq"], found) == (5, [5, 6, 7, 8, 9, 10])


async def test_both_tails_of_an_account_see_the_same_log_and_share_its_five_places(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    async with AsyncExitStack() as stack:
        events = await stack.enter_async_context(tailing(api, account))
        messages = await stack.enter_async_context(following(api, account.token))
        for one in (events, messages):
            await one.until("ready")
        await logbook.write(pool, account.id, ("domain.added", {}), ("deferred", {}))
        assert [one.id for one in await shown(events, 2)] == [1, 2]
        assert [one.id for one in await messages.messages(1)] == [2]
        for number in range(3):
            await stack.enter_async_context(tailing(api, account) if number % 2 else following(api, account.token))
        sixth = await api.get("/v1/events/tail", account.token)

    assert (sixth.status, sixth.error["type"], sixth.error["limit"]) == (429, "too_many_streams", 5)


async def test_a_person_follows_with_their_session_until_it_ends(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    ann = await make_person(pool, account.id, "member")
    headers = {"Cookie": f"svc_session={ann.secret}"}
    async with following(api, None, path="/v1/events/tail", headers=headers) as tail:
        await tail.until("ready")
        await pool.execute("DELETE FROM sessions WHERE id = $1", ann.session_id)
        assert (await tail.until("bye")).data["reason"] == "unauthorized"


@pytest.mark.parametrize("query", ["replay=101", "after=-1", "type=", "status=queued", f"type={'x' * 65}"])
async def test_a_bad_query_is_refused(api: Api, account: TestAccount, query: str) -> None:
    assert (await api.get(f"/v1/events/tail?{query}", account.token)).status == 400
