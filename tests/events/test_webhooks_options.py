"""Webhook endpoints that get events of some domains and streams only, and posts with headers or tags and metadata."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks import store
from engine.events.webhooks.post_options import MAX_FILTERS, MAX_HEADERS, PostOptions
from engine.ledger import log
from engine.ledger.events import append_events
from tests.harness.accounts import PEPPER, TestAccount, add_domain, make_account
from tests.harness.api import Answer, Api
from tests.harness.broadcasts import with_stream
from tests.harness.codes import start
from tests.harness.posted_events import VALIDATORS
from tests.harness.receiver import Endpoint, Receiver, World

URL = "http://127.0.0.1:9/hook"
VALUE = "Bearer canary-7d2f"


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    """An account with two verified domains and a second stream."""
    made = await with_stream(pool, await make_account(pool))
    await add_domain(pool, made.id, f"other.{made.domain}")
    return made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


@pytest.fixture
def here(settings: Settings, pool: asyncpg.Pool) -> World:
    return World(settings, pool)


async def made(api: Api, account: TestAccount, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/webhooks", account.token, {"url": URL} | fields)
    assert answer.status == 201, answer.body
    return dict(answer.json)


async def change(api: Api, account: TestAccount, endpoint: dict[str, Any], **fields: object) -> Answer:
    return await api.patch(f"/v1/webhooks/{endpoint['id']}", account.token, fields)


async def sent(api: Api, account: TestAccount, domain: str, stream: str, **fields: object) -> UUID:
    body = {"from": f"desk@{domain}", "to": "ann@people.test", "subject": "Hi", "text": "Hi", "stream": stream}
    answer = await api.post("/v1/emails", account.token, body | fields)
    assert answer.status == 202, answer.body
    return ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])


async def happen(pool: asyncpg.Pool, account: TestAccount, kind: str, message: UUID | None, **detail: object) -> None:
    """Append an event as later steps of the service do."""
    public = None if message is None else ids.format_id(ids.Kind.MESSAGE, message)
    entry = log.Entry(account.id, kind, log.detail_text(detail), clock.now(), message, public)
    async with pool.acquire() as connection, connection.transaction():
        await append_events(connection, [entry])


async def queued(pool: asyncpg.Pool, endpoint: dict[str, Any]) -> list[str]:
    """The types of the events that are queued for an endpoint, in the order of the log."""
    rows = await pool.fetch(
        "SELECT e.type FROM webhook_queue q JOIN events e ON e.id = q.event_id AND e.account_id = q.account_id"
        " WHERE q.webhook_id = $1 ORDER BY q.seq",
        ids.parse_id(ids.Kind.WEBHOOK, endpoint["id"]),
    )
    return [row["type"] for row in rows]


# -- filters --------------------------------------------------------------------------------------


async def test_filters_choose_the_events_of_messages_by_domain_and_stream(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    main, other = account.domain, f"other.{account.domain}"
    everything = await made(api, account)
    of_domain = await made(api, account, domains=[other.upper()])
    of_stream = await made(api, account, streams=["announcements"])
    of_both = await made(api, account, domains=[main, other], streams=["announcements"])
    for domain, stream in ((main, "transactional"), (other, "transactional"), (main, "announcements")):
        message = await sent(api, account, domain, stream)
        await happen(pool, account, "delivered", message, recipient="ann@people.test", diagnostic="250 ok")

    pair = ["accepted", "delivered"]
    assert of_domain["domains"] == [other]
    assert await queued(pool, everything) == pair * 3
    assert await queued(pool, of_domain) == pair
    assert await queued(pool, of_stream) == pair
    assert await queued(pool, of_both) == pair


async def test_filters_hold_for_scheduled_mail_from_its_first_event(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    wanted, unwanted = [await made(api, account, streams=[name]) for name in ("transactional", "announcements")]
    await sent(api, account, account.domain, "transactional", scheduledAt=clock.iso(clock.now() + timedelta(days=1)))
    assert (await queued(pool, wanted), await queued(pool, unwanted)) == (["scheduled"], [])


async def test_events_without_a_message_reach_only_filters_on_their_domain(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    of_domain = await made(api, account, domains=[account.domain])
    of_other = await made(api, account, domains=["elsewhere.test"])
    of_both = await made(api, account, domains=[account.domain], streams=["transactional"])
    await happen(pool, account, AccountEvent.DOMAIN_FAILED, None, id="dom_1", name=account.domain, reason="gone")
    await happen(pool, account, AccountEvent.SUPPRESSION_ADDED, None, address="a@x.test", reason="manual", source="api")
    found = [await queued(pool, one) for one in (of_domain, of_other, of_both)]
    assert found == [["domain.failed"], [], []]

    event = (await api.post(f"/v1/webhooks/{of_both['id']}/test", account.token, body=b"")).status
    assert event == 202
    assert await queued(pool, of_both) == ["webhook.test"]


async def test_a_change_of_filters_concerns_later_events(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    endpoint = await made(api, account, streams=["announcements"])
    await sent(api, account, account.domain, "transactional")
    answer = await change(api, account, endpoint, streams=[])
    assert answer.json["streams"] == []
    await sent(api, account, account.domain, "transactional")
    assert await queued(pool, endpoint) == ["accepted"]


async def test_filters_that_match_nothing_now_are_warned_of(api: Api, account: TestAccount) -> None:
    endpoint = await made(api, account, domains=[account.domain, "strange.test"], streams=["newsletter"])
    assert [(one["field"], one["message"]) for one in endpoint["warnings"]] == [
        ("domains[1]", ("Your account has no domain strange.test: the filter matches no message until it is added.")),
        ("streams[0]", ("Your account has no stream `newsletter`: the filter matches no message until it is added.")),
    ]
    assert (await change(api, account, endpoint, domains=[account.domain], streams=["transactional"])).json[
        "warnings"
    ] == []


# -- headers --------------------------------------------------------------------------------------


async def test_headers_go_with_every_post_and_their_values_are_shown_nowhere(
    api: Api, here: World, account: TestAccount, receiver: Receiver, pool: asyncpg.Pool
) -> None:
    made_now = await webhooks_service.create(
        pool, account.id, url=receiver.url, event_types=(), pepper=PEPPER,
        options=PostOptions(headers={"Authorization": VALUE, "X-Team": "mail"}),
    )  # fmt: skip
    webhook, public = made_now.row.id, ids.format_id(ids.Kind.WEBHOOK, made_now.row.id)
    event = (await api.post(f"/v1/webhooks/{public}/test", account.token, body=b"")).json["id"]
    async with here.posting():
        await here.until_posted(Endpoint(account, webhook, ""))

    (got,) = receiver.got
    assert (got.headers["authorization"], got.headers["x-team"]) == (VALUE, "mail")
    assert got.headers["service-signature"].startswith("t=")
    pages = [
        (await api.get("/v1/webhooks", account.token)).body,
        (await api.get(f"/v1/webhooks/{public}", account.token)).body,
        (await api.get(f"/v1/webhooks/{public}/deliveries", account.token)).body,
        (await api.get(f"/v1/webhooks/{public}/deliveries/{event}", account.token)).body,
        (await api.get("/v1/events", account.token)).body,
    ]
    assert not [page for page in pages if b"canary-7d2f" in page]
    assert await pool.fetchval("SELECT count(*) FROM webhooks w WHERE w::text LIKE '%canary-7d2f%'") == 0


async def test_a_change_sets_and_removes_headers_by_name(
    api: Api, pool: asyncpg.Pool, account: TestAccount, here: World, receiver: Receiver
) -> None:
    endpoint = await made(api, account, headers={"X-A": "1", "X-B": "2"})
    webhook = ids.parse_id(ids.Kind.WEBHOOK, endpoint["id"])
    assert endpoint["headerNames"] == ["X-A", "X-B"]
    changed = await change(api, account, endpoint, url=receiver.url, headers={"x-a": None, "X-C": "3"})
    assert changed.json["headerNames"] == ["X-B", "X-C"]
    assert (await change(api, account, endpoint, description="a note")).json["headerNames"] == ["X-B", "X-C"]
    await api.post(f"/v1/webhooks/{endpoint['id']}/test", account.token, body=b"")
    async with here.posting():
        await here.until_posted(Endpoint(account, webhook, ""))
    sent_now = receiver.got[0].headers
    assert (sent_now.get("x-a"), sent_now["x-b"], sent_now["x-c"]) == (None, "2", "3")
    detail = await pool.fetchval(
        "SELECT payload::jsonb -> 'detail' ->> 'header_names' FROM events"
        " WHERE account_id = $1 AND type = 'webhook.updated' AND payload LIKE '%header_names%'",
        account.id,
    )
    assert detail == '["X-B", "X-C"]'

    assert (await change(api, account, endpoint, headers={"X-B": None, "X-C": None})).json["headerNames"] == []
    assert await pool.fetchval("SELECT sealed_headers IS NULL FROM webhooks WHERE id = $1", webhook)


async def test_headers_sealed_with_another_pepper_end_posts_with_a_reason_and_can_be_replaced(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    endpoint = await made(api, account, headers={"X-A": "1"})
    await pool.execute(
        "UPDATE webhooks SET sealed_headers = $2 WHERE id = $1",
        ids.parse_id(ids.Kind.WEBHOOK, endpoint["id"]), b"x" * 40,
    )  # fmt: skip
    refused = await change(api, account, endpoint, headers={"X-B": "2"})
    assert (refused.status, refused.error["type"]) == (409, "conflict")
    assert "X-A" in refused.error["message"]
    assert (await change(api, account, endpoint, headers={"X-A": "2"})).json["headerNames"] == ["X-A"]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"headers": {"Host": "x"}}, "headers", "`Host` is set by Waybill"),
        ({"headers": {"content-type": "x"}}, "headers", "can't set it"),
        ({"headers": {"Service-Signature": "x"}}, "headers", "can't set it"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers", "can't set it"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers", "given twice"),
        ({"headers": {"X A": "1"}}, "headers", "isn't a valid header name"),
        ({"headers": {"X-A": "a\r\nb: c"}}, "headers", "visible ASCII"),
        ({"headers": {"X-A": " a"}}, "headers", "visible ASCII"),
        ({"headers": {"X-A": "é"}}, "headers", "visible ASCII"),
        ({"headers": {f"X-{n}": "1" for n in range(MAX_HEADERS + 1)}}, "headers", ""),
        ({"domains": ["a@b.test"]}, "domains[0]", "Give a domain"),
        ({"domains": ["no domain"]}, "domains[0]", "Give a domain"),
        ({"streams": ["Not A Stream"]}, "streams[0]", "isn't a valid stream name"),
        ({"streams": ["a"] * (MAX_FILTERS + 1)}, "streams", ""),
    ],
)
async def test_options_that_can_not_work_are_refused(
    api: Api, account: TestAccount, fields: dict[str, Any], field: str, words: str
) -> None:
    for answer in (
        await api.post("/v1/webhooks", account.token, {"url": URL} | fields),
        await api.patch("/v1/webhooks/whk_00000000000000000000000000", account.token, fields),
    ):
        if answer.status != 404:  # a change may give more headers, some of them to be removed
            assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)
            assert words in answer.error["message"]


async def test_a_change_adds_no_more_headers_than_allowed(api: Api, account: TestAccount) -> None:
    endpoint = await made(api, account, headers={f"X-{n}": "1" for n in range(MAX_HEADERS)})
    many = await change(api, account, endpoint, headers={"X-More": "1"})
    assert (many.status, many.error["field"]) == (400, "headers")
    assert "the limit is 10" in many.error["message"]
    swapped = await change(api, account, endpoint, headers={"X-More": "1", "X-0": None})
    assert len(swapped.json["headerNames"]) == MAX_HEADERS


# -- tags and metadata ----------------------------------------------------------------------------


async def posted(here: World, account: TestAccount, *endpoints: dict[str, Any]) -> None:
    async with here.posting():
        for endpoint in endpoints:
            await here.until_posted(Endpoint(account, ids.parse_id(ids.Kind.WEBHOOK, endpoint["id"]), ""))


async def test_an_endpoint_that_asks_gets_tags_and_metadata_and_others_the_same_bytes_as_before(
    api: Api, here: World, account: TestAccount, pool: asyncpg.Pool
) -> None:
    async with Receiver() as asking, Receiver() as plain:
        one = await made(api, account, url=asking.url, includeMetadata=True)
        other = await made(api, account, url=plain.url)
        labels: dict[str, Any] = {"tags": ["receipt", '\u2713 "eu"'], "metadata": {"order": "4711", "note": "a\\b\n"}}
        message = await sent(api, account, account.domain, "transactional", **labels)
        await happen(pool, account, "delivered", message, recipient="ann@people.test", diagnostic="250 ok")
        await sent(api, account, account.domain, "transactional")
        await happen(
            pool, account, AccountEvent.SUPPRESSION_ADDED, None, address="a@x.test", reason="manual", source="api"
        )
        await posted(here, account, one, other)

        found = {(got.json["seq"]): got for got in asking.got}
        same = {(got.json["seq"]): got for got in plain.got}
    assert len(found) == len(same) == 4
    bodies = [found[seq].json for seq in sorted(found)]
    assert [{name: body.get(name) for name in ("tags", "metadata")} for body in bodies] == [
        labels, labels, {"tags": [], "metadata": {}}, {"tags": None, "metadata": None},
    ]  # fmt: skip
    for seq, got in same.items():
        assert set(got.json) == {"id", "type", "createdAt", "seq", "data"}
        assert found[seq].body.startswith(got.body[:-1])
    for got in [*found.values(), *same.values()]:
        VALIDATORS[got.json["type"]].validate(got.json)


async def test_a_post_reads_no_message_for_endpoints_without_the_option(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    endpoint = await made(api, account)
    webhook = ids.parse_id(ids.Kind.WEBHOOK, endpoint["id"])
    await sent(api, account, account.domain, "transactional", tags=["receipt"])

    async def reads() -> bool:
        """Return True if a claim reads rows of messages; the claim is undone."""
        async with pool.acquire() as connection:
            change = connection.transaction()
            await change.start()
            plan = await connection.fetch(f"EXPLAIN (ANALYZE) {store.CLAIM.sql}", [webhook], [10], 30.0)
            await change.rollback()
        nodes = [row[0] for row in plan if " on messages" in row[0]]
        assert nodes
        return any("never executed" not in node for node in nodes)

    assert not await reads()
    assert (await change(api, account, endpoint, includeMetadata=True)).json["includeMetadata"] is True
    assert await reads()


async def test_the_option_is_read_back_changed_and_recorded(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    plain, asking = await made(api, account), await made(api, account, includeMetadata=True)
    assert (plain["includeMetadata"], asking["includeMetadata"]) == (False, True)
    changed = await change(api, account, asking, description="a note")
    assert changed.json["includeMetadata"] is True
    assert (await change(api, account, asking, includeMetadata=False)).json["includeMetadata"] is False
    assert (await api.get(f"/v1/webhooks/{asking['id']}", account.token)).json["includeMetadata"] is False
    details = await pool.fetch(
        "SELECT payload::jsonb -> 'detail' ->> 'include_metadata' AS text FROM events"
        " WHERE account_id = $1 AND type LIKE 'webhook.%' ORDER BY seq",
        account.id,
    )
    assert [row["text"] for row in details] == [None, "true", None, "false"]
    for value in (None, "yes"):
        refused = await change(api, account, asking, includeMetadata=value)
        assert (refused.status, refused.error["field"]) == (400, "includeMetadata")


async def test_the_shown_body_of_a_delivery_has_what_was_posted(
    api: Api, here: World, account: TestAccount, receiver: Receiver
) -> None:
    endpoint = await made(api, account, url=receiver.url, includeMetadata=True)
    await sent(api, account, account.domain, "transactional", metadata={"order": "4711"})
    await posted(here, account, endpoint)
    [got] = receiver.got
    shown = await api.get(f"/v1/webhooks/{endpoint['id']}/deliveries/{got.json['id']}", account.token)
    assert shown.json["body"].encode() == got.body
    assert b'"metadata":{"order": "4711"}' in got.body


async def test_sealed_messages_show_neither_tags_nor_metadata(
    api: Api, here: World, account: TestAccount, receiver: Receiver
) -> None:
    endpoint = await made(api, account, url=receiver.url, includeMetadata=True)
    await start(api, account, tags=["login"], metadata={"person": "81"})
    await posted(here, account, endpoint)
    assert receiver.got
    for got in receiver.got:
        assert {"tags", "metadata"}.isdisjoint(got.json)
