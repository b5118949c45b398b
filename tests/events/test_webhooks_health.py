"""How webhook endpoints respond: success share, last response, failing since, next attempt."""

from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.events.webhooks import service, store
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.receiver import Endpoint, Receiver, World


@pytest.fixture
def here(settings: Settings, pool: asyncpg.Pool) -> World:
    return World(settings, pool)


async def health(api: Api, endpoint: Endpoint) -> dict[str, Any]:
    """Return the health that the list and the endpoint's own page show."""
    token = endpoint.account.token
    listed = (await api.get("/v1/webhooks", token)).json["data"][0]["health"]
    read = (await api.get(f"/v1/webhooks/{ids.format_id(ids.Kind.WEBHOOK, endpoint.id)}", token)).json["health"]
    assert listed == read
    return dict(listed)


async def post(here: World, endpoint: Endpoint, times: int = 1) -> None:
    """Post `times` events, one after the other."""
    for _ in range(times):
        await here.event(endpoint.account)
        async with here.posting(webhook_ladder_s=()):
            await here.until_posted(endpoint)


async def test_an_endpoint_without_posts_is_idle(api: Api, here: World) -> None:
    endpoint = await here.endpoint("http://127.0.0.1:9/none")

    assert await health(api, endpoint) == {
        "state": "idle", "successRate": None, "posts": 0, "lastResponse": None, "failingSince": None,
        "nextAttemptAt": None,
    }  # fmt: skip
    await here.event(endpoint.account)
    assert (await health(api, endpoint))["nextAttemptAt"] is not None


async def test_a_delivery_that_is_given_up_makes_its_endpoint_failing_until_one_succeeds(
    api: Api, here: World, receiver: Receiver
) -> None:
    endpoint = await here.endpoint(receiver.url)
    await post(here, endpoint)
    healthy = await health(api, endpoint)
    receiver.status = 410
    await post(here, endpoint)
    failing = await health(api, endpoint)
    receiver.status = 204
    await post(here, endpoint)
    again = await health(api, endpoint)

    assert (healthy["state"], healthy["successRate"], healthy["posts"]) == ("healthy", 1.0, 1)
    assert (healthy["lastResponse"]["statusCode"], healthy["lastResponse"]["error"]) == (200, None)
    assert (failing["state"], failing["successRate"], failing["posts"]) == ("failing", 0.5, 2)
    assert (failing["lastResponse"]["statusCode"], failing["lastResponse"]["error"]) == (410, "responded with 410")
    assert failing["failingSince"] == failing["lastResponse"]["at"]
    assert (again["state"], again["failingSince"], again["posts"]) == ("healthy", None, 3)


async def test_three_failed_posts_in_a_row_make_an_endpoint_failing(api: Api, here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    receiver.status = 503
    states: list[str] = []
    event = await here.event(endpoint.account)
    for attempt in (1, 2, 3):
        async with here.posting(webhook_ladder_s=(600, 600, 600, 600)):
            await here.make_due(endpoint)
            await here.until_attempts(endpoint, event, attempt)
        states.append((await health(api, endpoint))["state"])

    assert states == ["healthy", "healthy", "failing"]
    shown = await health(api, endpoint)
    assert (shown["successRate"], shown["posts"]) == (0.0, 3)
    assert shown["failingSince"] < shown["lastResponse"]["at"] < shown["nextAttemptAt"]


async def test_another_url_or_status_forgets_failures(
    api: Api, here: World, receiver: Receiver, pool: asyncpg.Pool
) -> None:
    endpoint = await here.endpoint(receiver.url)
    path = f"/v1/webhooks/{ids.format_id(ids.Kind.WEBHOOK, endpoint.id)}"
    receiver.status = 410
    await post(here, endpoint)
    await api.patch(path, endpoint.account.token, {"description": "Shop"})
    before = await health(api, endpoint)
    disabled = (await api.patch(path, endpoint.account.token, {"status": "disabled"})).json["health"]
    enabled = (await api.patch(path, endpoint.account.token, {"status": "active"})).json["health"]

    assert before["state"] == "failing"
    assert (disabled["state"], disabled["failingSince"]) == ("disabled", None)
    assert (enabled["state"], enabled["failingSince"]) == ("healthy", None)


async def test_posts_of_more_than_a_day_ago_do_not_count(
    api: Api, here: World, receiver: Receiver, pool: asyncpg.Pool
) -> None:
    endpoint = await here.endpoint(receiver.url)
    await post(here, endpoint)
    await pool.execute("UPDATE webhook_hours SET hour = hour - interval '26 hours' WHERE webhook_id = $1", endpoint.id)
    old = await health(api, endpoint)
    await pool.execute("UPDATE webhook_hours SET hour = hour - interval '31 days' WHERE webhook_id = $1", endpoint.id)
    await store.FORGET_HOURS.execute(pool, clock.now() - service.KEPT)
    purged = await health(api, endpoint)

    assert (old["state"], old["successRate"], old["lastResponse"]["statusCode"]) == ("idle", None, 200)
    assert (purged["state"], purged["lastResponse"]) == ("idle", None)


async def test_health_counts_the_last_day_of_a_long_history(api: Api, here: World, pool: asyncpg.Pool) -> None:
    endpoint = await here.endpoint("http://127.0.0.1:9/none")
    await pool.execute(
        "INSERT INTO webhook_hours SELECT $1, now() - make_interval(hours => n), 1, 1, now(), 200, NULL, 5 "
        "FROM generate_series(0, 700) n",
        endpoint.id,
    )
    found = await store.health(pool, endpoint.account.id, [endpoint.id], clock.now())

    assert 24 <= found[endpoint.id].posts <= 26


async def test_a_delivery_names_recipient_and_subject_of_its_message(
    api: Api, account: TestAccount, here: World
) -> None:
    made = (await api.post("/v1/webhooks", account.token, {"url": "http://127.0.0.1:9/none"})).json
    sent = await api.post(
        "/v1/emails",
        account.token,
        account.email(to=["ann@people.test"], subject="Receipt"),
    )
    await api.post(f"/v1/webhooks/{made['id']}/test", account.token, {})
    rows = (await api.get(f"/v1/webhooks/{made['id']}/deliveries", account.token)).json["data"]

    shown = {row["type"]: (row["messageId"], row["recipient"], row["subject"]) for row in rows}
    assert shown == {
        "webhook.test": (None, None, None),
        "accepted": (sent.json["id"], "ann@people.test", "Receipt"),
    }
