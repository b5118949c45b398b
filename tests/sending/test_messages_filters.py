"""`GET /v1/messages`: filters by source, template, domain of a recipient, broadcast and scope of a bounce."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.events import SETTLED, Status
from engine.events.tails.rules import STATUS_AFTER
from engine.sending.messages.rules import filters
from engine.sending.messages.types import OUTCOMES, MessageIndex
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.emails import sent_id
from tests.harness.settling import settle
from tests.sending.test_messages import listed, send_once_known, walked


async def set_source(pool: asyncpg.Pool, message: str, source: str) -> None:
    await pool.execute("UPDATE messages SET source = $2 WHERE id = $1", ids.parse_id(ids.Kind.MESSAGE, message), source)


async def make_broadcast(pool: asyncpg.Pool, account: TestAccount, *messages: str) -> str:
    """Store a broadcast whose copies are these messages; return its id."""
    broadcast = ids.uuid7()
    await pool.execute(
        "INSERT INTO broadcasts (id, account_id, list_id, name, stream, sender, from_domain, status, created_at,"
        " updated_at) VALUES ($1, $2, $1, 'News', 'news', 'a@b.test', 'b.test', 'sent', now(), now())",
        broadcast,
        account.id,
    )
    await pool.executemany(
        "INSERT INTO broadcast_recipients (broadcast_id, contact_id, address, state, message_id)"
        " VALUES ($1, $2, 'x@y.test', 'accepted', $3)",
        [(broadcast, ids.uuid7(), ids.parse_id(ids.Kind.MESSAGE, one)) for one in messages],
    )
    return ids.format_id(ids.Kind.BROADCAST, broadcast)


async def test_recipient_domain_finds_messages_with_any_recipient_there_each_once(
    api: Api, account: TestAccount
) -> None:
    both = await sent_id(api, account, to=["ann@one.test", "bob@ONE.test"], bcc=["carl@two.test"])
    await sent_id(api, account, to="ann@sub.one.test")
    other = await sent_id(api, account, to="Ann <ann@one.test>")

    assert await listed(api, account, {"recipientDomain": "One.test"}) == [other, both]
    assert await walked(api, account, recipientDomain="one.test", limit="1") == [other, both]
    assert await listed(api, account, {"recipientDomain": "two.test"}) == [both]
    assert await listed(api, account, {"recipientDomain": "three.test"}) == []


async def test_source_finds_what_was_sent_that_way(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    over_http, over_smtp = await sent_id(api, account), await sent_id(api, account)
    await set_source(pool, over_smtp, "smtp")

    assert await listed(api, account, {"source": "api"}) == [over_http]
    assert await listed(api, account, {"source": "smtp"}) == [over_smtp]
    assert await listed(api, account, {"source": "forward"}) == []


async def test_template_finds_messages_of_all_its_versions(api: Api, account: TestAccount) -> None:
    for name in ("order", "receipt"):
        made = await api.post(
            "/v1/templates", account.token, {"id": name, "name": name, "subject": "Hi", "text": "Hello"}
        )
        assert made.status == 201, made
    email: dict[str, Any] = {"template": "order", "text": None, "html": None, "subject": None}
    first = await send_once_known(api, account, **email)
    assert (await api.patch("/v1/templates/order", account.token, {"text": "Hello again"})).status == 200
    second = await send_once_known(api, account, **email)
    await send_once_known(api, account, **email | {"template": "receipt"})
    await sent_id(api, account)

    assert await listed(api, account, {"template": "order"}) == [second, first]
    assert await walked(api, account, template="order", limit="1") == [second, first]


async def test_broadcast_finds_its_copies_and_an_unknown_one_is_404(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    copies = [await sent_id(api, account) for _ in range(2)]
    await sent_id(api, account)
    broadcast = await make_broadcast(pool, account, *copies)
    stranger = await make_account(pool)

    assert await walked(api, account, broadcast=broadcast, limit="1") == copies[::-1]
    assert await listed(api, account, {"broadcast": broadcast, "source": "api"}) == copies[::-1]
    assert (await api.get("/v1/messages", stranger.token, params={"broadcast": broadcast})).status == 404
    answer = await api.get("/v1/messages", account.token, params={"broadcast": copies[0]})
    assert (answer.status, answer.error["field"]) == (400, "broadcast")


async def test_scope_finds_messages_with_a_bounce_of_that_scope_each_once(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await sent_id(api, account, to=["ann@one.test", "bob@one.test"])
    await sent_id(api, account)
    unknown = (550, "5.1.1 no such user")
    await settle(pool, message, ("ann@one.test", *unknown), ("bob@one.test", *unknown))

    assert await listed(api, account, {"scope": "recipient"}) == [message]
    assert await walked(api, account, scope="recipient", limit="1") == [message]
    assert await listed(api, account, {"scope": "recipient", "to": "bob@one.test"}) == [message]
    assert await listed(api, account, {"scope": "site"}) == []


async def test_status_finds_scheduled_and_canceled_messages_and_those_with_an_unusual_outcome(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    later = {"scheduledAt": clock.iso(clock.now() + timedelta(hours=2))}
    scheduled, canceled = [await sent_id(api, account, **later) for _ in range(2)]
    await api.request("DELETE", f"/v1/emails/{canceled}/schedule", token=account.token)
    bounced, failed, delivered = [await sent_id(api, account, to="ann@one.test") for _ in range(3)]
    await settle(pool, bounced, ("ann@one.test", 550, "5.1.1 no such user"))
    await settle(pool, failed, ("ann@one.test", 554, "5.3.4 message too big"))
    await settle(pool, delivered, ("ann@one.test", 250, "2.0.0 ok"))
    found = {status: await listed(api, account, {"status": status}) for status in Status}

    assert found[Status.SCHEDULED] == [scheduled]
    assert found[Status.CANCELED] == [canceled]
    assert found[Status.BOUNCED] == [failed, bounced]
    assert found[Status.DELIVERED] == [delivered]
    assert await walked(api, account, status="bounced", limit="1") == [failed, bounced]


def test_each_unusual_status_names_all_events_that_lead_to_it() -> None:
    leading = {status: {event for event, after in STATUS_AFTER.items() if after is status} for status in OUTCOMES}

    assert {status: set(events) for status, events in OUTCOMES.items()} == leading
    assert set(OUTCOMES) == SETTLED - {Status.DELIVERED}


async def test_all_filters_hold_together_whichever_index_serves_the_list(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    wanted, other = [await sent_id(api, account, to="ann@one.test", tags=["x"]) for _ in range(2)]
    await set_source(pool, wanted, "broadcast")
    broadcast = await make_broadcast(pool, account, wanted, other)
    params: dict[str, str] = {"recipientDomain": "one.test", "broadcast": broadcast, "source": "broadcast", "tag": "x"}

    assert await listed(api, account, params) == [wanted]
    assert await listed(api, account, params | {"to": "ann@one.test"}) == [wanted]
    assert await listed(api, account, params | {"template": "none"}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("scope", "domain"), ("source", "fax"), ("template", "No Slug"), ("broadcast", "x"), ("recipientDomain", "a..b")],
)
async def test_a_filter_with_an_invalid_value_is_refused(api: Api, account: TestAccount, name: str, value: str) -> None:
    answer = await api.get("/v1/messages", account.token, params={name: value})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", name)


def test_a_list_is_read_by_the_filter_that_leaves_the_fewest_messages() -> None:
    given: dict[str, Any] = dict.fromkeys(("before", "status", "to", "search", "domain", "stream", "metadata"))
    given |= {"tags": (), "since": None, "until": None}

    assert filters(**given).index is MessageIndex.TIME
    assert filters(**given | {"source": "api"}).scans == "source"  # most messages: read along all of them
    by_domain = filters(**given | {"recipient_domain": "one.test"})
    assert (by_domain.index, by_domain.scans) == (MessageIndex.RECIPIENT_DOMAIN, None)
    by_scope = filters(**given | {"recipient_domain": "one.test", "scope": "site"})
    assert (by_scope.index, by_scope.scans) == (MessageIndex.SCOPE, "recipientDomain")
