"""Effects on posts when their endpoint or event is changed, deleted, tested or replayed."""

import asyncio
from datetime import timedelta

import pytest

from engine.base import clock, ids
from engine.events.webhooks import service as webhooks_service
from tests.harness.accounts import PEPPER, make_account
from tests.harness.patience import until
from tests.harness.receiver import Hostile, Receiver, World, hang, verify


async def test_a_deleted_endpoint_gets_what_is_queued_and_nothing_new(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    before = await here.event(endpoint.account)
    await webhooks_service.remove(here.pool, endpoint.account.id, endpoint.id)
    after = await here.event(endpoint.account)

    async with here.posting():
        await here.until_posted(endpoint)

    assert len(receiver.attempts(before)) == 1
    assert receiver.attempts(after) == []
    verify(receiver.got[0], endpoint.secret)


async def test_a_disabled_endpoint_gets_what_is_queued_and_nothing_new(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    account = endpoint.account.id
    before = await here.event(endpoint.account)
    await webhooks_service.change(
        here.pool, account, endpoint.id, url=None, event_types=None, status="disabled", pepper=PEPPER
    )
    during = await here.event(endpoint.account)
    await webhooks_service.change(
        here.pool, account, endpoint.id, url=None, event_types=None, status="active", pepper=PEPPER
    )
    after = await here.event(endpoint.account)

    async with here.posting():
        await here.until_posted(endpoint)

    assert [len(receiver.attempts(event)) for event in (before, during, after)] == [1, 0, 1]


async def test_a_deleted_endpoint_is_forgotten_when_nothing_is_left_to_post(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    await here.event(endpoint.account)
    await webhooks_service.remove(here.pool, endpoint.account.id, endpoint.id)
    later = clock.now() + webhooks_service.KEPT + timedelta(minutes=1)

    async def exists() -> bool:
        return bool(await here.pool.fetchval("SELECT true FROM webhooks WHERE id = $1", endpoint.id))

    await webhooks_service.forget_deleted(here.pool, later)
    assert await exists()  # its queue is not empty
    async with here.posting():
        await here.until_posted(endpoint)
    await webhooks_service.forget_deleted(here.pool, clock.now())
    assert await exists()  # deleted a moment ago
    await webhooks_service.forget_deleted(here.pool, later)
    assert not await exists()


async def test_a_new_url_gets_what_is_queued(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint("http://127.0.0.1:9/nobody")
    event = await here.event(endpoint.account)

    async with here.posting():
        await here.until_attempts(endpoint, event, 1)
        await webhooks_service.change(
            here.pool, endpoint.account.id, endpoint.id, url=receiver.url, event_types=None, status=None, pepper=PEPPER
        )
        await here.make_due(endpoint)
        await here.until_posted(endpoint)

    assert [got.attempt for got in receiver.got] == [2]


async def test_after_a_rotation_both_secrets_sign_for_a_day(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    account = endpoint.account.id
    fresh = await webhooks_service.rotate(here.pool, account, endpoint.id, pepper=PEPPER, at=clock.now())
    await here.event(endpoint.account)
    async with here.posting():
        await here.until_posted(endpoint)
        await here.pool.execute(
            "UPDATE webhooks SET previous_until = now() - interval '1 second' WHERE id = $1", endpoint.id
        )
        await here.event(endpoint.account)
        await here.until_posted(endpoint)

    during, after = receiver.got
    verify(during, fresh.secret)
    verify(during, endpoint.secret, "service-signature-previous")
    assert (
        during.headers["service-signature"].split(",")[0] == during.headers["service-signature-previous"].split(",")[0]
    )
    verify(after, fresh.secret)
    assert "service-signature-previous" not in after.headers
    assert fresh.previous_until - clock.now() == pytest.approx(timedelta(hours=24), abs=timedelta(minutes=1))


async def test_a_test_event_goes_to_one_endpoint_whatever_it_wants(here: World, receiver: Receiver) -> None:
    account = await make_account(here.pool)
    tried = await here.endpoint(receiver.url + "/tried", account=account, event_types=("bounced",))
    await here.endpoint(receiver.url + "/other", account=account)
    event = await webhooks_service.try_out(here.pool, account.id, tried.id, clock.now())

    async with here.posting():
        await here.until_posted(tried)

    [got] = receiver.got
    assert (got.path, got.json["type"], got.json["data"]["messageId"]) == ("/hook/tried", "webhook.test", None)
    assert got.json["id"] == ids.format_id(ids.Kind.EVENT, event)


async def test_a_replay_has_the_same_id_and_body_and_the_next_number(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    async with here.posting():
        await here.until_posted(endpoint)
        receiver.status = 500
        assert await webhooks_service.replay(here.pool, endpoint.account.id, event, None) == [endpoint.id]
        await here.until_attempts(endpoint, event, 2)
        first_wait = await here.make_due(endpoint)
        await here.until_attempts(endpoint, event, 3)

    assert first_wait == pytest.approx(10, abs=2)  # a ladder of its own
    assert [got.attempt for got in receiver.got] == [1, 2, 3]
    assert len({got.body for got in receiver.got}) == 1
    assert len({got.headers["service-delivery-id"] for got in receiver.got}) == 1


async def test_a_replay_of_a_waiting_post_is_due_now_and_keeps_its_ladder(here: World, receiver: Receiver) -> None:
    receiver.status = 500
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    async with here.posting():
        await here.until_attempts(endpoint, event, 1)
        await webhooks_service.replay(here.pool, endpoint.account.id, event, endpoint.id)
        await here.until_attempts(endpoint, event, 2)
        wait = await here.make_due(endpoint)

    assert wait == pytest.approx(60, abs=2)


async def test_a_replay_does_not_double_a_post_in_hand(here: World, receiver: Receiver) -> None:
    receiver.delay_s = 0.4
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    async with here.posting():
        await until(lambda: len(receiver.got) == 1)
        await webhooks_service.replay(here.pool, endpoint.account.id, event, None)
        await here.until_posted(endpoint)
        await asyncio.sleep(0.3)

    assert len(receiver.got) == 1


async def test_a_replay_reaches_an_endpoint_made_later_when_it_is_named(here: World, receiver: Receiver) -> None:
    account = await make_account(here.pool)
    first = await here.endpoint(receiver.url + "/first", account=account)
    event = await here.event(account)
    async with here.posting():
        await here.until_posted(first)
        second = await here.endpoint(receiver.url + "/second", account=account)
        assert await webhooks_service.replay(here.pool, account.id, event, second.id) == [second.id]
        await here.until_posted(second)

    assert [(got.path, got.attempt) for got in receiver.attempts(event)] == [("/hook/first", 1), ("/hook/second", 1)]


async def test_a_post_without_its_event_ends_quietly(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)
    await here.pool.execute("DELETE FROM events WHERE id = $1", event)

    async with here.posting():
        await here.until_posted(endpoint)

    [attempt] = await here.attempts(endpoint, event)
    assert (attempt.attempt, attempt.milliseconds, attempt.error) == (0, None, "the event is no longer stored")
    assert receiver.got == []


async def test_a_post_without_its_endpoint_ends_quietly(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    await here.event(endpoint.account)
    await here.pool.execute("DELETE FROM webhooks WHERE id = $1", endpoint.id)

    async with here.posting():
        await here.until_posted(endpoint)

    assert receiver.got == []


async def test_a_secret_under_another_pepper_is_an_attempt_that_failed(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    event = await here.event(endpoint.account)

    async with here.posting(key_pepper="another pepper altogether"):
        [attempt] = await here.until_attempts(endpoint, event, 1)

    assert not attempt.delivered
    assert "PEPPER" in str(attempt.error)
    assert receiver.got == []


async def test_what_a_dead_endpoint_was_not_tried_with_for_a_day_is_given_up(here: World) -> None:
    async with Hostile(hang) as dead:
        endpoint = await here.endpoint(dead.url)
        events = await here.events(endpoint.account, ["delivered"] * 6)
        await here.pool.execute(
            "UPDATE webhook_queue SET due_at = now() - interval '25 hours' WHERE webhook_id = $1", endpoint.id
        )
        async with here.posting(webhook_connections_each=1, webhook_timeout_s=1.0) as poster:
            await here.until_attempts(endpoint, events[0], 1)
            known = poster._shares.endpoints[endpoint.id]
            assert known.failing_since is not None
            known.failing_since -= 3_700  # it has not answered for an hour
            poster._sweep_at = 0.0
            [ended] = await here.until_attempts(endpoint, events[-1], 1)

    assert (ended.attempt, ended.milliseconds, ended.delivered) == (0, None, False)
    assert "not responded" in str(ended.error)
    assert (await here.queued(endpoint))[0]["event_id"] == events[0]  # it waits for its retry
