"""The live tail: content, start, filters, limits and end."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from engine.base import clock, ids
from tests.harness import logbook
from tests.harness.accounts import add_key, make_account, revoke_key, set_status
from tests.harness.api import Api
from tests.harness.patience import until
from tests.harness.settling import settle
from tests.harness.sse import following


async def test_tail_opens_with_ready_which_says_where_it_begins(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 3)

    async with following(api, account.token, "?replay=0") as tail:
        ready = await tail.next()

        assert (tail.status, tail.headers["content-type"]) == (200, "text/event-stream")
        assert tail.headers["cache-control"] == "no-cache, no-transform"
        assert len(tail.headers["x-request-id"]) >= 8
        assert int(tail.headers["ratelimit-limit"]) > 0
        assert (ready.name, ready.id) == ("ready", 3)
        assert ready.data == {"seq": 3, "after": 3, "firstSeq": 1, "heartbeatSeconds": 15.0, "idleSeconds": 900.0}
        assert ready.retry is not None
        assert 1000 <= ready.retry <= 3000


async def test_tail_shows_an_event_with_what_its_message_says(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with following(api, account.token) as tail:
        await tail.until("ready")
        sent = await api.post(
            "/v1/emails",
            account.token,
            account.email(to=["Ann Bee <ann@people.test>", "bob@people.test"], tags=["a", "b"]),
        )
        assert sent.status == 202, sent.body
        shown = (await tail.messages(1))[0]

        waybill = (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json["waybill"]
        assert shown.id == waybill[0]["seq"]
        assert shown.data == {
            "seq": waybill[0]["seq"],
            "id": waybill[0]["id"],
            "type": "accepted",
            "createdAt": waybill[0]["createdAt"],
            "messageId": sent.json["id"],
            "status": "queued",
            "from": account.sender,
            "to": ["Ann Bee <ann@people.test>", "bob@people.test"],
            "subject": "Hello",
            "stream": "transactional",
            "tags": ["a", "b"],
            "detail": waybill[0]["detail"],
        }

        await settle(pool, sent.json["id"], ("bob@people.test", 550, "5.1.1 no such user"))
        outcomes = await tail.messages(3)
        assert [one.data["type"] for one in outcomes] == ["attempted", "delivered", "bounced"]
        assert [one.data["status"] for one in outcomes] == ["sending", "sending", "bounced"]


async def test_tail_begins_with_the_latest_twenty_unless_told_otherwise(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 150)

    for query, count in (("", 20), ("?replay=0", 0), ("?replay=1", 1), ("?replay=100", 100)):
        async with following(api, account.token, query) as tail:
            ready = await tail.until("ready")
            found = await tail.messages(count)
            assert ready.data["after"] == 150 - count
            assert [one.id for one in found] == list(range(151 - count, 151))
            assert await tail.quiet(0.3)


async def test_replay_counts_the_events_that_the_filters_let_through(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    places = []
    for number in range(5):
        message = await logbook.message(pool, account.id, stream="news")
        places.append(await logbook.write(pool, account.id, ("accepted", {"n": number}), message=message))
        await logbook.many(pool, account.id, 90)

    async with following(api, account.token, "?stream=news&replay=3") as tail:
        assert [one.id for one in await tail.messages(3)] == places[-3:]
        assert await tail.quiet(0.3)


async def test_everything_behind_after_is_shown_in_order_however_much(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 2_500)

    async with following(api, account.token, "?after=0&replay=5") as tail:
        found = await tail.messages(2_500)

    assert [one.id for one in found] == list(range(1, 2_501))
    assert [one.data["seq"] for one in found] == list(range(1, 2_501))


async def test_last_event_id_goes_before_after(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 10)

    async with following(api, account.token, "?after=2", headers={"Last-Event-ID": "7"}) as tail:
        assert [one.id for one in await tail.messages(3)] == [8, 9, 10]
    async with following(api, account.token, "?after=8", headers={"Last-Event-ID": ""}) as tail:
        assert [one.id for one in await tail.messages(2)] == [9, 10]


async def test_an_after_that_was_never_reached_shows_what_comes(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 2)

    async with following(api, account.token, f"?after={2**63 - 1}") as tail:
        assert (await tail.until("ready")).data["after"] == 2
        await logbook.many(pool, account.id, 1)
        assert (await tail.messages(1))[0].id == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?replay=101", "replay"),
        ("?replay=-1", "replay"),
        ("?replay=x", "replay"),
        ("?after=-1", "after"),
        (f"?after={2**63}", "after"),
        ("?after=1.5", "after"),
        ("?after=msg_1", "after"),
        ("?status=lost", "status"),
        ("?stream=Not%20a%20stream", "stream"),
        ("?stream=" + "a" * 65, "stream"),
        ("?tag=", "tag[0]"),
        ("?limit=5", "limit"),
    ],
)
async def test_a_parameter_that_is_no_good_is_refused_by_name(
    query: str, field: str, api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)

    answer = await api.get(f"/v1/messages/tail{query}", account.token)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


@pytest.mark.parametrize("text", ["x", "-1", "1 2", "٣", str(2**63), "9" * 400])
async def test_a_last_event_id_that_is_no_place_is_refused(text: str, api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    answer = await api.get("/v1/messages/tail", account.token, headers={"Last-Event-ID": text})

    assert (answer.status, answer.error["field"]) == (400, "Last-Event-ID")


async def test_new_events_are_shown_at_once_and_to_every_tail(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    async with following(api, account.token) as one, following(api, account.token) as other:
        await one.until("ready")
        await other.until("ready")
        for _ in range(3):
            place = await logbook.many(pool, account.id, 40)
            assert [event.id for event in await one.messages(40)] == list(range(place - 39, place + 1))
            assert [event.id for event in await other.messages(40)] == list(range(place - 39, place + 1))


async def test_events_of_the_account_are_not_shown_and_leave_no_gap_in_ids_of_heartbeats(
    api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    await logbook.write(
        pool, account.id, ("domain.added", {"name": "x.test"}), ("deferred", {}), ("api_key.created", {})
    )

    async with following(api, account.token, "?after=0") as tail:
        await tail.until("ready")
        assert (await tail.messages(1))[0].id == 2
        assert await tail.quiet(0.3)


async def test_a_refused_send_is_shown_though_it_has_no_message(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.write(pool, account.id, ("suppressed", {"address": "ann@people.test", "reason": "bounce"}))

    async with following(api, account.token) as tail:
        data = (await tail.messages(1))[0].data

    assert data["type"] == "suppressed"
    assert data["detail"] == {"address": "ann@people.test", "reason": "bounce"}
    absent = [data[name] for name in ("messageId", "status", "from", "subject", "stream")]
    assert absent == [None] * 5
    assert (data["to"], data["tags"]) == ([], [])


async def test_filters_must_all_match(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for stream, tags in (("news", ["a", "b"]), ("news", ["a"]), ("transactional", ["a", "b"])):
        message = await logbook.message(pool, account.id, stream=stream, tags=tags)
        await logbook.write(
            pool, account.id, ("accepted", {}), ("attempted", {}), ("delivered", {"recipient": "ann@people.test"}),
            message=message,
        )  # fmt: skip

    for query, expected in (
        ("?stream=news", [1, 2, 3, 4, 5, 6]),
        ("?tag=a&tag=b", [1, 2, 3, 7, 8, 9]),
        ("?tag=b&stream=news&status=delivered", [3]),
        ("?status=sending", [2, 5, 8]),
        ("?status=canceled", []),
    ):
        async with following(api, account.token, query) as tail:
            assert [one.id for one in await tail.messages(len(expected))] == expected
            assert await tail.quiet(0.3)


async def test_status_is_the_one_the_event_left_whenever_it_is_read(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = await logbook.message(pool, account.id, "ann@a.test", "bob@b.test", status="bounced")
    await logbook.write(
        pool,
        account.id,
        ("scheduled", {}),
        ("accepted", {"scheduled": True}),
        ("attempted", {}),
        ("delivered", {"recipient": "ann@a.test"}),
        ("queued", {"reason": "site window"}),
        ("attempted", {}),
        ("deferred", {"recipient": "bob@b.test"}),
        ("bounced", {"recipient": "bob@b.test"}),
        ("complained", {"recipient": "ann@a.test"}),
        message=message,
    )

    async with following(api, account.token) as tail:
        found = await tail.messages(9)

    assert [one.data["status"] for one in found] == [
        "scheduled", "queued", "sending", "sending", "sending", "sending", "sending", "bounced", "complained",
    ]  # fmt: skip


async def test_a_message_that_is_gone_leaves_its_events(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    message = ids.uuid7()
    await logbook.write(pool, account.id, ("delivered", {"recipient": "ann@a.test"}), message=message)

    async with following(api, account.token) as tail:
        data = (await tail.messages(1))[0].data

    assert data["messageId"] == ids.format_id(ids.Kind.MESSAGE, message)
    assert (data["status"], data["from"], data["to"], data["tags"]) == ("delivered", None, [], [])


async def test_nobody_sees_the_events_of_another_account(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    async with following(api, account.token, "?after=0") as tail:
        await tail.until("ready")
        await logbook.many(pool, other.id, 5)
        assert await tail.quiet(0.8)
        await logbook.many(pool, account.id, 1)
        assert (await tail.messages(1))[0].id == 1


async def test_what_retention_took_is_passed_over_and_said(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 30)
    await logbook.purge(pool, account.id, 20)

    async with following(api, account.token, "?after=5") as tail:
        ready = await tail.until("ready")
        assert (ready.data["firstSeq"], ready.data["after"]) == (21, 20)
        assert [one.id for one in await tail.messages(10)] == list(range(21, 31))
    async with following(api, account.token, "?replay=100") as tail:
        assert [one.id for one in await tail.messages(10)] == list(range(21, 31))


async def test_a_broken_log_does_not_stop_a_tail(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 12)
    await pool.execute("DELETE FROM events WHERE account_id = $1 AND seq IN (3, 4, 12)", account.id)
    await pool.execute("UPDATE events SET payload = 'x' WHERE account_id = $1 AND seq = 6", account.id)
    await pool.execute("UPDATE events SET occurred_at = 'infinity' WHERE account_id = $1 AND seq = 7", account.id)

    async with following(api, account.token, "?after=0") as tail:
        assert [one.id for one in await tail.messages(9)] == [1, 2, 5, 6, 7, 8, 9, 10, 11]
        await logbook.many(pool, account.id, 1)
        assert (await tail.messages(1))[0].id == 13


async def test_an_account_has_five_tails_and_a_closed_one_makes_room_at_once(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    key = await add_key(pool, account.id)
    async with (
        following(api, account.token) as first, following(api, account.token) as second,
        following(api, key) as third, following(api, account.token) as fourth, following(api, key) as fifth,
    ):  # fmt: skip
        for tail in (first, second, third, fourth, fifth):
            assert (await tail.next()).name == "ready"

        answer = await api.get("/v1/messages/tail", account.token)
        assert (answer.status, answer.error["type"], answer.error["limit"]) == (429, "too_many_streams", 5)
        assert int(answer.headers["retry-after"]) > 0
        async with following(api, other.token) as stranger:
            assert stranger.status == 200

        second.drop()
        for _ in range(20):
            async with following(api, account.token) as sixth:
                if sixth.status == 200:
                    break
        assert sixth.status == 200


async def statuses_at_once(api: Api, token: str, count: int) -> list[int]:
    """Ask for so many tails at once, keep them until all are answered, and return the statuses."""
    statuses: list[int] = []
    done = asyncio.Event()

    async def reach() -> None:
        async with following(api, token) as tail:
            statuses.append(tail.status)
            await done.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(reach())
        await until(lambda: len(statuses) == count)
        done.set()
    return sorted(statuses)


async def test_two_at_once_never_get_a_sixth_place(api: Api, pool: asyncpg.Pool) -> None:
    for _ in range(5):
        account = await make_account(pool)
        assert await statuses_at_once(api, account.token, 12) == [200] * 5 + [429] * 7


async def test_a_revoked_key_ends_its_tails_and_no_others(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    key = await add_key(pool, account.id)
    async with following(api, key) as tail, following(api, account.token) as other:
        await tail.until("ready")
        await other.until("ready")
        await revoke_key(pool, account.id, key)

        bye = await tail.until("bye")
        assert bye.data["reason"] == "unauthorized"
        with pytest.raises(EOFError):
            await tail.next()
        await logbook.many(pool, account.id, 1)
        assert (await other.messages(1))[0].id == 1


@pytest.mark.exhaustive
async def test_a_suspended_account_and_an_expired_key_end_their_tails(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    key = await add_key(pool, other.id, expires_at=clock.now() + timedelta(seconds=3))
    async with following(api, account.token) as tail, following(api, key) as expiring:
        await tail.until("ready")
        await expiring.until("ready")
        await set_status(pool, account.id, "suspended")

        assert (await tail.until("bye")).data["reason"] == "unauthorized"
        assert (await expiring.until("bye")).data["reason"] == "unauthorized"


async def test_tail_is_no_message_id(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    answer = await api.get("/v1/messages/tails", account.token)

    assert (answer.status, answer.error["type"]) == (404, "not_found")


async def test_the_description_tells_of_the_stream(api: Api) -> None:
    described = (await api.get("/v1/openapi.json")).json["paths"]["/v1/messages/tail"]["get"]

    content = described["responses"]["200"]["content"]
    assert content == {
        "text/event-stream": {
            "schema": {"type": "string"},
            "x-item-schema": {"$ref": "#/components/schemas/TailMessage"},
        }
    }
    parameters = {(one["in"], one["name"]) for one in described["parameters"]}
    assert parameters == {("query", name) for name in ("status", "stream", "tag", "replay", "after")} | {
        ("header", "Last-Event-ID")
    }
