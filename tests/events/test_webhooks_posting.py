"""Posting: the request to an endpoint, retries, delays between endpoints, and crashes."""

import asyncio
import statistics
from datetime import timedelta
from typing import NoReturn

import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.holds import EVERYWHERE, HoldKind
from engine.events.webhooks import deliveries, rules, store
from engine.events.webhooks.posting import POLL_S, Poster, PostVerdict, recorded
from engine.sending import queue_admin
from engine.store.http_client import HttpClient, resolver_for
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.patience import until
from tests.harness.receiver import Hostile, Receiver, World, hang, verify, world

LADDER_S = (10, 60, 300, 1800, 7200, 21600, 43200)


async def test_nothing_is_posted_while_the_operator_holds_everything(
    settings: Settings, new_database: NewDatabase, receiver: Receiver
) -> None:
    async with world(settings, await new_database()) as own:
        endpoint = await own.endpoint(receiver.url)
        await own.event(endpoint.account)
        everything = queue_admin.queue_target(HoldKind.SITE, EVERYWHERE)
        await queue_admin.suspend(own.pool, everything, reason="restored")
        assert await store.DUE.fetch(own.pool) == []
        async with own.posting():
            await own.event(endpoint.account)
            await asyncio.sleep(3 * POLL_S)
            assert receiver.got == []
            await queue_admin.resume(own.pool, everything)
            await own.until_posted(endpoint)

    assert [got.attempt for got in receiver.got] == [1, 1]


async def test_an_event_arrives_as_documented(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url + "?key=a%20b")
    event = await here.event(endpoint.account, "delivered", recipient="ann@people.test", diagnostic='250 "ok" \u2713')

    async with here.posting():
        await here.until_posted(endpoint)

    [got] = receiver.got
    row = await here.pool.fetchrow("SELECT * FROM events WHERE id = $1", event)
    assert row is not None
    assert got.path == "/hook?key=a%20b"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"] == "Service-Webhooks/1.0"
    assert got.headers["service-delivery-id"] == ids.format_id(ids.Kind.EVENT, event)
    assert got.headers["service-attempt"] == "1"
    assert "service-signature-previous" not in got.headers
    assert {"accept", "accept-encoding", "cookie"}.isdisjoint(got.headers)
    assert got.json == {
        "id": ids.format_id(ids.Kind.EVENT, event),
        "type": "delivered",
        "createdAt": clock.iso(row["occurred_at"]),
        "seq": row["seq"],
        "data": {
            "messageId": ids.format_id(ids.Kind.MESSAGE, row["message_id"]),
            "detail": {"recipient": "ann@people.test", "diagnostic": '250 "ok" \u2713'},
        },
    }
    verify(got, endpoint.secret)
    [attempt] = await here.attempts(endpoint, event)
    assert (attempt.delivered, attempt.status_code, attempt.error) == (True, 200, None)


async def test_a_post_passes_the_trace_of_its_message_on(here: World, receiver: Receiver) -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    endpoint = await here.endpoint(receiver.url)
    await here.event(endpoint.account, "delivered", traceparent=given, recipient="ann@people.test")
    await here.event(endpoint.account, "delivered", recipient="ann@people.test", traceparent=given)

    async with here.posting():
        await here.until_posted(endpoint)

    traced, other = sorted(receiver.got, key=lambda got: int(got.json["seq"]))
    assert traced.headers["traceparent"] == given
    assert "traceparent" not in other.headers  # text of strangers may have any other place


async def test_request_and_answer_are_kept_exactly(here: World, receiver: Receiver) -> None:
    receiver.headers = {"X-Trace": "a: b"} | {f"X-Filler-{number}": "f" * 300 for number in range(4)}
    endpoint = await here.endpoint(receiver.url + "?key=a%20b")
    event = await here.event(endpoint.account)

    async with here.posting():
        await here.until_posted(endpoint)

    [got] = receiver.got
    found = await deliveries.read(here.pool, endpoint.account.id, endpoint.id, event)
    [sent] = found.exchanges
    assert found.event is not None
    assert sent.signature is not None
    assert sent.url is not None
    assert sent.answer_headers is not None
    body = rules.body(event, found.event.seq, found.event.occurred_at, found.event.payload)
    shown = rules.sent_headers(
        body, url=sent.url, event_id=event, attempt=sent.attempt, signed=sent.signature, signed_before=None
    )
    assert body == got.body
    assert {name.lower(): value for name, value in shown.items()} == got.headers
    assert (sent.status_code, sent.answer, sent.answer_headers.partition("\n")[0]) == (200, "ok", "X-Trace: a: b")
    assert len(sent.answer_headers) <= rules.MAX_ANSWER_HEADERS
    assert sent.answer_headers.splitlines()[-1].endswith("f" * 300)


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("/a%2Fb/%7Eme/../x?sp=%2Ftriggers%2Frun&sig=a%2Fb%3D%2B+%41", None),
        ("?", ""),
        ("/%zz?a|b=ü", "/%25zz?a%7Cb=%C3%BC"),
    ],
)
async def test_a_url_is_asked_for_octet_by_octet(
    here: World, receiver: Receiver, given: str, posted: str | None
) -> None:
    endpoint = await here.endpoint(receiver.url + given)
    await here.event(endpoint.account)

    async with here.posting():
        await here.until_posted(endpoint)

    assert [got.path for got in receiver.got] == ["/hook" + (given if posted is None else posted)]


async def test_the_ladder_is_walked_to_its_end(here: World, receiver: Receiver) -> None:
    receiver.status = 500
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    waits = []

    async with here.posting():
        for made in range(1, 9):
            await here.until_attempts(endpoint, event, made)
            if made < 8:
                waits.append(await here.make_due(endpoint))
        await here.until_posted(endpoint)
        await asyncio.sleep(0.4)

    assert waits == [pytest.approx(wait, abs=2) for wait in LADDER_S]
    assert [got.attempt for got in receiver.got] == list(range(1, 9))
    assert len({got.headers["service-delivery-id"] for got in receiver.got}) == 1
    assert len({got.body for got in receiver.got}) == 1
    for got in receiver.got:
        verify(got, endpoint.secret)
    row = await here.delivery(endpoint, event)
    assert row.due_at is None
    assert [fields[0] for fields in row.attempts] == list(range(1, 9))
    assert not any(fields[3] for fields in row.attempts)


def test_no_retry_is_early_and_none_later_than_a_twentieth() -> None:
    steps = rules.retry_schedule(tuple(map(float, LADDER_S)))

    for made, promised in enumerate(LADDER_S, 1):
        for jitter in (0.0, 0.5, 0.999):
            wait = rules.wait_after(500, made, steps, jitter=jitter)
            assert wait is not None
            assert promised <= wait <= 1.05 * promised
    assert rules.wait_after(500, 8, steps, jitter=0.5) is None


@pytest.mark.parametrize("status", [404, 410])
async def test_not_found_and_gone_stop_at_once(here: World, receiver: Receiver, status: int) -> None:
    receiver.status = status
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)

    async with here.posting():
        await here.until_posted(endpoint)

    [attempt] = await here.attempts(endpoint, event)
    assert (attempt.delivered, attempt.status_code, attempt.error) == (False, status, f"responded with {status}")
    assert len(receiver.got) == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
async def test_any_2xx_is_a_delivery(here: World, receiver: Receiver, status: int) -> None:
    receiver.status = status
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)

    async with here.posting():
        await here.until_posted(endpoint)

    [attempt] = await here.attempts(endpoint, event)
    assert attempt.delivered


class _FaultyClient(HttpClient):
    """A client that raises what it never should."""

    async def post(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a fault of our own")


async def test_a_post_that_raises_is_recorded_as_a_failed_attempt(here: World) -> None:
    endpoint = await here.endpoint("https://hooks.test/")
    event = await here.event(endpoint.account)

    async with here.posting(_FaultyClient(resolver_for(here.settings))):
        [attempt] = await here.until_attempts(endpoint, event, 1)

    assert (attempt.delivered, attempt.error) == (False, "the post could not be made")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 409, 429, 500, 503, 599])
async def test_anything_else_is_tried_again(here: World, receiver: Receiver, status: int) -> None:
    receiver.status = status
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)

    async with here.posting():
        [attempt] = await here.until_attempts(endpoint, event, 1)

    assert not attempt.delivered
    [row] = await here.queued(endpoint)
    assert (row["attempts"], row["leased_until"]) == (1, None)
    wait = row["due_at"] - clock.now()
    assert timedelta(seconds=7) < wait < timedelta(seconds=11)


async def test_an_endpoint_hears_of_the_types_it_wants_and_no_account_event(here: World, receiver: Receiver) -> None:
    account = await make_account(here.pool)
    every = await here.endpoint(receiver.url + "/all", account=account)
    some = await here.endpoint(receiver.url + "/some", account=account, event_types=("bounced", "made.up"))
    quiet = await here.endpoint(receiver.url + "/quiet", account=account, event_types=("made.up",))
    kinds = ["accepted", "bounced", "api_key.created", "domain.verified", "suppression.added", "suppression.removed"]
    await here.events(account, kinds)

    async with here.posting():
        await here.until_posted(every)
        await here.until_posted(some)

    def heard(path: str) -> list[str]:
        return sorted(got.json["type"] for got in receiver.got if got.path == path)

    assert heard("/hook/all") == ["accepted", "bounced", "domain.verified", "suppression.added"]
    assert heard("/hook/some") == ["bounced"]
    assert heard("/hook/quiet") == []
    assert not await here.queued(quiet)


async def test_each_endpoint_of_an_account_gets_the_event_under_one_id(here: World, receiver: Receiver) -> None:
    account = await make_account(here.pool)
    first = await here.endpoint(receiver.url + "/1", account=account)
    second = await here.endpoint(receiver.url + "/2", account=account)
    event = await here.event(account)

    async with here.posting():
        await here.until_posted(first)
        await here.until_posted(second)

    one, two = sorted(receiver.attempts(event), key=lambda got: got.path)
    assert (one.path, two.path) == ("/hook/1", "/hook/2")
    assert one.body == two.body
    verify(one, first.secret)
    verify(two, second.secret)
    with pytest.raises(Exception, match="signature"):
        verify(one, second.secret)


async def test_another_accounts_endpoint_hears_nothing(here: World, receiver: Receiver) -> None:
    mine, theirs = await here.endpoint(receiver.url + "/mine"), await here.endpoint(receiver.url + "/theirs")
    event = await here.event(mine.account)

    async with here.posting():
        await here.until_posted(mine)

    assert [got.path for got in receiver.attempts(event)] == ["/hook/mine"]
    assert not await here.queued(theirs)


@pytest.mark.exhaustive
async def test_a_hanging_endpoint_is_given_up_in_total_time_and_delays_nobody(here: World, receiver: Receiver) -> None:
    async with Hostile(hang) as dead:
        bad = [await here.endpoint(dead.url) for _ in range(30)]
        good = await here.endpoint(receiver.url)
        async with here.posting(webhook_connections=40, webhook_timeout_s=1.0):
            lost = [(await here.events(endpoint.account, ["delivered"] * 20))[0] for endpoint in bad]
            await asyncio.sleep(3.5)  # by now they are known for what they are, and hold all that they can get
            sent = []
            for _ in range(20):
                sent.append((await here.event(good.account), clock.now()))
                await asyncio.sleep(0.05)
            await here.until_posted(good)
            attempt, *_ = await here.until_attempts(bad[0], lost[0], 1)

    delays = [(receiver.attempts(event)[0].at - at).total_seconds() for event, at in sent]
    assert statistics.median(delays) < 1.0  # not all: the machine may have been busy for a moment
    assert attempt.error == "there was no response within 1 s"
    assert attempt.milliseconds is not None
    assert 900 < attempt.milliseconds < 15_000


async def test_two_posters_never_post_one_attempt_twice(here: World, receiver: Receiver) -> None:
    endpoints = [await here.endpoint(receiver.url) for _ in range(5)]
    async with here.posting(), here.posting(), here.posting():
        for _ in range(10):
            for endpoint in endpoints:
                await here.events(endpoint.account, ["delivered"] * 6)
        for endpoint in endpoints:
            await here.until_posted(endpoint)

    assert len(receiver.got) == 5 * 10 * 6
    assert len({got.headers["service-delivery-id"] for got in receiver.got}) == len(receiver.got)
    recorded = await here.pool.fetchval(
        "SELECT count(*) FROM webhook_attempts WHERE webhook_id = ANY($1)", [one.id for one in endpoints]
    )
    assert recorded == len(receiver.got)


async def test_what_a_dead_worker_had_in_hand_comes_back_with_its_number(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    taken = await store.claim(here.pool, {endpoint.id: 8}, 30.0)  # by a process that says no more
    [row] = await here.queued(endpoint)

    assert [post.event_id for post in taken] == [event]
    assert row["due_at"] - clock.now() <= timedelta(seconds=60)
    async with here.posting():
        await asyncio.sleep(0.6)
        assert receiver.got == []  # leased
        await here.make_due(endpoint)
        await here.until_posted(endpoint)

    assert [got.attempt for got in receiver.got] == [1]


async def test_a_late_record_of_a_stalled_worker_changes_nothing(here: World, receiver: Receiver) -> None:
    receiver.status = 500
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    stalled = await store.claim(here.pool, {endpoint.id: 8}, 30.0)
    await here.make_due(endpoint)
    async with here.posting():
        await here.until_attempts(endpoint, event, 1)

    verdict = PostVerdict(delivered=True, status=200, answer="late", error=None)
    late = recorded(stalled[0], verdict, clock.now(), 5, rules.retry_schedule((10.0,)), jitter=0.0)
    assert await store.record(here.pool, [late]) == set()
    assert [attempt.status_code for attempt in await here.attempts(endpoint, event)] == [500]
    assert len(await here.queued(endpoint)) == 1


async def test_a_draining_worker_records_what_is_under_way_and_hands_back_the_rest(
    here: World, receiver: Receiver
) -> None:
    receiver.delay_s = 0.5
    endpoint = await here.endpoint(receiver.url)
    events = await here.events(endpoint.account, ["delivered"] * 20)
    async with here.posting(webhook_connections_each=4) as poster:
        assert isinstance(poster, Poster)
        await until(lambda: len(receiver.got) >= 4)

    made = [event for event in events if receiver.attempts(event)]
    rest = await here.queued(endpoint)
    assert len(made) + len(rest) == 20
    assert {row["event_id"] for row in rest}.isdisjoint(made)
    assert all(row["attempts"] == 0 and row["due_at"] <= clock.now() for row in rest)


async def test_fast_endpoints_keep_their_connections(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    await here.events(endpoint.account, ["delivered"] * 200)

    async with here.posting():
        await here.until_posted(endpoint)

    assert len(receiver.got) == 200
    assert len({got.port for got in receiver.got}) <= here.settings.webhook_connections_each


async def test_an_event_is_posted_soon_after_it_is_written(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    delays = []
    async with here.posting():
        await asyncio.sleep(0.5)
        for _ in range(5):
            event, at = await here.event(endpoint.account), clock.now()
            await until(lambda event=event: bool(receiver.attempts(event)))  # type: ignore[misc]
            delays.append((receiver.attempts(event)[0].at - at).total_seconds())

    assert min(delays) < 2.0  # a poll comes four times a second; no stall of the machine lasts for all five


async def test_posts_to_an_endpoint_dead_for_hours_end_when_a_day_overdue(here: World) -> None:
    endpoint = await here.endpoint("http://127.0.0.1:9/nobody")
    old, new = await here.event(endpoint.account), await here.event(endpoint.account)
    await here.pool.execute("UPDATE webhook_queue SET due_at = now() - interval '25 hours' WHERE event_id = $1", old)
    ended = await store.give_up(here.pool, [endpoint.id], clock.now() - timedelta(days=1), max_each=100, why="given up")

    assert ended == 1
    assert [row["event_id"] for row in await here.queued(endpoint)] == [new]
    [attempt] = await here.attempts(endpoint, old)
    assert (attempt.attempt, attempt.milliseconds, attempt.error) == (0, None, "given up")
