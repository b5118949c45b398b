"""Received messages through the API: lists, counts, the single message, changes, downloads, replays."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from engine.base import clock, ids
from engine.base.scopes import SCOPES
from engine.base.settings import Settings
from engine.base.settings.values import SocketAddress
from engine.receiving.inbound_messages import rules, service
from engine.receiving.inbound_messages.service import ChangedMessages
from engine.receiving.receive import Receiver
from engine.receiving.types import AttachmentScan
from engine.store import partitions
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.api import Answer, Api, serving
from tests.harness.received_mail import (
    claim,
    counted_anew,
    counts_of,
    day_counts_of,
    days_counted_anew,
    listed,
    mail,
    messages_of,
    only,
    receive,
    received,
    route,
    scanned,
)


@pytest.fixture
def receiver(pool: asyncpg.Pool, settings: Settings) -> Receiver:
    return Receiver(pool, settings)


async def subjects(api: Api, account: TestAccount, query: str = "") -> list[str]:
    """The subjects of a list."""
    return [one["subject"] for one in await listed(api, account, query)]


async def counted(api: Api, account: TestAccount, query: str = "") -> int:
    """The count for a query."""
    answer = await api.get(f"/v1/inbound/messages/count?{query}", account.token)
    assert answer.status == 200, answer.json
    return int(answer.json["count"])


# -- lists ------------------------------------------------------------------------------------------


async def test_the_list_shows_the_newest_first_and_its_cursor_leads_through_all(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    empty = (await api.get("/v1/inbound/messages", account.token)).json
    await received(receiver, await claim(pool, account), *[mail(f"No {number}") for number in range(5)])

    first = (await api.get("/v1/inbound/messages?limit=3", account.token)).json
    last = (await api.get(f"/v1/inbound/messages?limit=3&before={first['nextCursor']}", account.token)).json

    assert empty == {"data": [], "nextCursor": None, "hasMore": False}
    assert [one["subject"] for one in first["data"] + last["data"]] == [f"No {number}" for number in (4, 3, 2, 1, 0)]
    assert (first["hasMore"], last["hasMore"]) == (True, False)
    assert last["nextCursor"] == last["data"][-1]["id"]


async def test_a_message_shows_what_the_contract_names(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    raw = mail("Hi", "My order is late.\r\n", Cc="Bob <bob@x.test>", Reply_To="help@people.test")
    await receive(receiver, address.recipient("7"), raw=raw, scan=scanned(0, score=7.5))

    one = await only(api, account)

    assert (one["recipient"], one["tag"], one["address"]) == (f"support+7@{account.domain}", "7", address.address)
    assert one["from"] == {"name": "Ann", "address": "ann@people.test"}
    assert one["cc"] == [{"name": "Bob", "address": "bob@x.test"}]
    assert one["replyTo"] == {"name": None, "address": "help@people.test"}
    assert (one["snippet"], one["sizeBytes"], one["read"], one["readAt"]) == (
        "My order is late.",
        len(raw),
        False,
        None,
    )
    assert (one["spam"], one["spamScore"], one["spamThreshold"], one["spamOverride"]) == (True, 7.5, 6, None)
    assert one["authentication"]["spf"]["result"] == "pass"
    assert (one["action"], one["fallback"], one["attachments"]) == ("mailbox", False, [])
    assert one["receivedAt"].endswith("Z")
    assert one["date"].endswith("Z")


async def test_the_count_ignores_the_parameters_of_paging(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), *[mail(f"No {number}") for number in range(3)])
    first = (await api.get("/v1/inbound/messages?limit=1", account.token)).json

    assert await counted(api, account, f"limit=1&before={first['nextCursor']}") == 3


async def test_every_filter_narrows_list_and_count_alike(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    await add_domain(pool, account.id, f"other-{account.domain}")
    support, sales = await claim(pool, account), await claim(pool, account, "sales")
    other = await claim(pool, TestAccount(account.id, account.token, f"other-{account.domain}"))
    hook = await claim(pool, account, "hook")
    await route(pool, hook, "forward", forward_to="ann@nowhere.test")
    await received(receiver, support, mail("Apple pie", "with cream"), mail("Größe", "passt", From="Bob <bob@b.test>"))
    await received(receiver, sales, mail("100% off", "buy now"), scan=scanned(0, score=9.0))
    await received(receiver, other, mail("Elsewhere", "the CREAM is gone"))
    newest = (await listed(api, account))[0]
    await api.post(f"/v1/inbound/messages/{newest['id']}/read", account.token, body=b"")

    for query, wanted in (
        ("", ["Elsewhere", "100% off", "Größe", "Apple pie"]),
        (f"address=SUPPORT@{account.domain}", ["Größe", "Apple pie"]),
        (f"domain={account.domain}", ["100% off", "Größe", "Apple pie"]),
        ("sender=BOB@b.test", ["Größe"]),
        ("search=pie", ["Apple pie"]),
        ("search=GR%C3%96SSE", []),
        ("search=gr%C3%B6%C3%9Fe", ["Größe"]),
        ("search=100%25", ["100% off"]),
        ("search=ann@", ["Elsewhere", "100% off", "Apple pie"]),
        ("body=cream", ["Elsewhere", "Apple pie"]),
        (f"body=cream&address=support@{account.domain}", ["Apple pie"]),
        ("read=true", ["Elsewhere"]),
        ("read=false", ["100% off", "Größe", "Apple pie"]),
        ("spam=true", ["100% off"]),
        ("spam=false&read=false", ["Größe", "Apple pie"]),
        ("routed=webhook", []),
        ("until=2020-01-01T00:00:00Z", []),
        ("from=2020-01-01T00:00:00Z&spam=true", ["100% off"]),
        ("address=nobody@nowhere.test", []),
    ):
        assert await subjects(api, account, query) == wanted, query
        assert await counted(api, account, query) == len(wanted), query
    bad = await api.get("/v1/inbound/messages?from=yesterday", account.token)
    assert (bad.status, bad.error["field"]) == (400, "from")


async def test_counts_of_any_period_are_exact(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    addresses = [await claim(pool, account, local) for local in ("a", "b")]
    for turn in range(12):
        await receive(receiver, addresses[turn % 2].recipient(), scan=scanned(0, score=turn % 3 * 4.0))
    days = await spread(pool, account)
    await service.mark_read(pool, account.id, [row["id"] for row in await messages_of(pool, account.id)][:5], read=True)
    assert await day_counts_of(pool, account.id) == await days_counted_anew(pool, account.id)

    rows = await messages_of(pool, account.id)
    edges = [days + timedelta(hours=hours) for hours in (-1, 0, 5, 24, 30, 48, 72, 100)]
    for low, high in itertools.combinations(edges, 2):
        period = f"from={low:%Y-%m-%dT%H:%M:%SZ}&until={high:%Y-%m-%dT%H:%M:%SZ}"
        within = [row for row in rows if low <= rules.received_at(row["id"]) < high]
        assert await counted(api, account, period) == len(within), period
        named = [row for row in within if row["address"] == addresses[0].address and not row["is_spam"]]
        assert await counted(api, account, f"{period}&spam=false&address={addresses[0].address}") == len(named), period
    assert await counted(api, account, f"from={days:%Y-%m-%d}T00:00:00Z") == len(rows)


async def spread(pool: asyncpg.Pool, account: TestAccount) -> datetime:
    """Move the messages of an account to every eighth hour since a midnight, and its counts with them; return that."""
    midnight = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=5)
    async with pool.acquire() as connection, connection.transaction():
        await partitions.ensure(connection, midnight, ahead=1)
        for turn, row in enumerate(await messages_of(pool, account.id)):
            moved = ids.floor_of(clock.milliseconds(midnight + timedelta(hours=8 * turn)))
            await connection.execute("UPDATE inbound_messages SET id = $2 WHERE id = $1", row["id"], moved)
        await connection.execute("DELETE FROM inbound_day_counts WHERE account_id = $1", account.id)
        await connection.execute(
            "INSERT INTO inbound_day_counts SELECT account_id, uuid7_day(m.id), place.id, in_mailbox, is_spam, is_read,"
            " count(*) FROM inbound_messages m, LATERAL (VALUES (address_id), ($2::uuid)) AS place (id)"
            " WHERE account_id = $1 GROUP BY 1, 2, 3, 4, 5, 6",
            account.id, UUID(int=0),
        )  # fmt: skip
    return midnight


async def test_mail_for_webhooks_alone_is_listed_only_when_asked_for(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    hook = await claim(pool, account, "hook")
    made = await api.post("/v1/webhooks", account.token, {"url": "http://127.0.0.1:9/hook"})
    await route(pool, hook, "webhook", webhook_id=ids.parse_id(ids.Kind.WEBHOOK, made.json["id"]))
    await received(receiver, hook, mail("Posted"))
    await received(receiver, await claim(pool, account), mail("Kept"))

    assert await subjects(api, account) == ["Kept"]
    assert await subjects(api, account, "routed=webhook") == ["Posted"]
    assert await subjects(api, account, "routed=all") == ["Kept", "Posted"]
    assert await counted(api, account, "routed=all") == 2


async def test_replies_to_a_sent_message_are_listed_by_it(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    sent = (await api.post("/v1/emails", account.token, account.email())).json["id"]
    header = f"<{ids.body_of(sent)}@{account.domain}>"
    await received(receiver, await claim(pool, account), mail("Re: Hello", In_Reply_To=header), mail("Unrelated"))

    assert await subjects(api, account, f"repliesTo={sent}") == ["Re: Hello"]
    assert await counted(api, account, f"repliesTo={sent}") == 1
    assert [one["repliesTo"] for one in await listed(api, account)] == [None, sent]


async def test_a_key_limited_to_domains_sees_their_mail_only(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    second = f"second-{account.domain}"
    await add_domain(pool, account.id, second)
    await received(receiver, await claim(pool, account), mail("First"))
    await received(receiver, await claim(pool, TestAccount(account.id, account.token, second)), mail("Second"))
    limited = TestAccount(account.id, await add_key(pool, account.id, scopes=SCOPES), account.domain)
    await pool.execute(
        "UPDATE api_keys SET domains = $2 WHERE id = (SELECT id FROM api_keys WHERE account_id = $1"
        " ORDER BY id DESC LIMIT 1)", account.id, [second],
    )  # fmt: skip
    hidden = (await listed(api, account))[1]["id"]

    assert await subjects(api, limited) == ["Second"]
    assert await counted(api, limited) == 1
    assert await counted(api, limited, f"domain={account.domain}") == 0
    for method, path, body in (
        ("GET", "", None), ("GET", "/raw", None), ("GET", "/thread", None), ("DELETE", "", None),
        ("POST", "/read", {"read": True}), ("POST", "/spam", {"spam": True}),
        ("POST", "/replay", None), ("POST", "/reply", {"text": "Hi"}),
    ):  # fmt: skip
        answer = await asked(api, method, f"/v1/inbound/messages/{hidden}{path}", limited.token, body)
        assert answer.status == 404, (method, path)
    bulk = await api.post("/v1/inbound/messages/bulk", limited.token, {"ids": [hidden], "action": "delete"})
    assert bulk.json == {"changed": 0, "unchanged": 0, "notFound": [hidden]}


async def asked(api: Api, method: str, path: str, token: str, body: object) -> Answer:
    """A request of any method."""
    if method == "POST":
        return await api.post(path, token, body)
    return await (api.get(path, token) if method == "GET" else api.delete(path, token))


# -- one message ------------------------------------------------------------------------------------


async def test_the_single_message_has_harmless_html_and_the_reply_alone(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    text = "Thanks!\r\n\r\nOn Mon, Bob wrote:\r\n> How are you?\r\n"
    html = "<p onclick=x()>Thanks!</p><script>alert(1)</script><img src=https://spy.test/p.gif>"
    await received(receiver, await claim(pool, account), mail("Hi", text, html=html))

    one = (await api.get(f"/v1/inbound/messages/{(await only(api, account))['id']}", account.token)).json

    assert "> How are you?" in one["text"]
    assert one["replyText"] == "Thanks!"
    assert "Thanks!" in one["html"]
    assert not [bad for bad in ("script", "onclick", "spy.test") if bad in one["html"]]
    assert (one["htmlOmitted"], one["envelopeFrom"], one["remoteIp"]) == (None, "ann@people.test", "192.0.2.1")
    assert (one["helo"], one["tls"]) == ("mx.people.test", "TLSv1.3")
    assert {"name": "Subject", "value": "Hi"} in one["headers"]


@pytest.mark.parametrize(
    ("head", "sender", "automatic", "bulk"),
    [
        ("", "ann@people.test", False, False),
        ("Auto-Submitted: auto-replied\r\n", "ann@people.test", True, False),
        ("", "", True, False),
        ("List-Id: <list.people.test>\r\n", "ann@people.test", False, True),
    ],
)
async def test_mail_of_programs_and_to_many_is_marked(
    api: Api, pool: asyncpg.Pool, receiver: Receiver, head: str, sender: str, automatic: bool, bulk: bool
) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), head.encode() + mail("Hi"), sender=sender)

    one = (await api.get(f"/v1/inbound/messages/{(await only(api, account))['id']}", account.token)).json

    assert (one["autoSubmitted"], one["bulk"]) == (automatic, bulk)


async def test_html_beyond_the_limits_is_left_out_and_said_so(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), mail("Hi", "text", html="<div>" * 3_000))

    one = (await api.get(f"/v1/inbound/messages/{(await only(api, account))['id']}", account.token)).json

    assert one["html"] is None
    assert one["htmlOmitted"]


async def test_an_attachment_downloads_and_an_infected_one_does_not(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    files = [("a.html", "text/html", b"<b>hi</b>"), ("ü.pdf", "application/pdf", b"%PDF")]
    await received(receiver, address, mail("Clean", files=files))
    await received(receiver, address, mail("Bad", files=files), scan=scanned(2, scan=AttachmentScan.INFECTED))
    bad, clean = await listed(api, account)

    page, paper = [
        await api.get(f"/v1/inbound/messages/{clean['id']}/attachments/{file['id']}", account.token)
        for file in clean["attachments"]
    ]
    refused = await api.get(
        f"/v1/inbound/messages/{bad['id']}/attachments/{bad['attachments'][0]['id']}", account.token
    )
    raw = await api.get(f"/v1/inbound/messages/{bad['id']}/raw", account.token)

    assert (page.body, page.headers["content-type"]) == (b"<b>hi</b>", "application/octet-stream")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert (paper.body, paper.headers["content-type"]) == (b"%PDF", "application/pdf")
    assert paper.headers["content-disposition"].startswith("attachment;")
    assert (refused.status, refused.error["type"]) == (422, "attachment_infected")
    assert (raw.status, raw.error["type"]) == (422, "attachment_infected")
    assert bad["attachments"][0]["signature"] == "Eicar-Test-Signature"


async def test_an_attachment_whose_scan_failed_downloads_unless_scans_are_required(
    api: Api, pool: asyncpg.Pool, receiver: Receiver, settings: Settings, api_log: Any, http: Any
) -> None:
    account = await make_account(pool)
    raw = mail("Hi", files=[("a.txt", "text/plain", b"hi")])
    await received(receiver, await claim(pool, account), raw, scan=scanned(1, scan=AttachmentScan.FAILED))
    one = await only(api, account)
    path = f"/v1/inbound/messages/{one['id']}/attachments/{one['attachments'][0]['id']}"

    assert (await api.get(path, account.token)).body == b"hi"
    assert (await api.get(f"/v1/inbound/messages/{one['id']}/raw", account.token)).body == raw
    with serving(replace(settings, clamd=SocketAddress("127.0.0.1", 9), clamd_required=True), api_log) as url:
        refused = await Api(url, http).get(path, account.token)
    assert (refused.status, refused.error["type"]) == (422, "attachment_blocked")


# -- changes ----------------------------------------------------------------------------------------


async def test_reading_is_dated_once_and_written_to_the_log(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), mail())
    name = (await only(api, account))["id"]

    first = (await api.post(f"/v1/inbound/messages/{name}/read", account.token, body=b"")).json
    again = (await api.post(f"/v1/inbound/messages/{name}/read", account.token, {"read": True})).json
    unread = (await api.post(f"/v1/inbound/messages/{name}/read", account.token, {"read": False})).json

    assert (first["read"], again["readAt"]) == (True, first["readAt"])
    assert (unread["read"], unread["readAt"]) == (False, first["readAt"])
    kinds = await pool.fetch(
        "SELECT type FROM events WHERE account_id = $1 AND type LIKE 'inbound_message.%'", account.id
    )
    assert [row["type"] for row in kinds] == ["inbound_message.read"] * 2


async def test_the_spam_override_wins_and_null_returns_to_the_score(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), mail(), scan=scanned(0, score=8.0))
    name = (await only(api, account))["id"]

    found = [
        (await api.post(f"/v1/inbound/messages/{name}/spam", account.token, {"spam": value})).json
        for value in (False, True, None)
    ]

    assert [(one["spam"], one["spamOverride"], one["spamScore"]) for one in found] == [
        (False, False, 8.0), (True, True, 8.0), (True, None, 8.0),
    ]  # fmt: skip
    missing = await api.post(f"/v1/inbound/messages/{name}/spam", account.token, {})
    assert missing.status == 400


async def test_deleting_removes_the_bytes_with_the_last_message_that_has_them(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    one, other = await make_account(pool), await make_account(pool)
    await receive(receiver, (await claim(pool, one)).recipient(), (await claim(pool, other)).recipient())
    [row] = await messages_of(pool, one.id)
    held = "SELECT count(*) FROM inbound_bytes WHERE id = $1"

    assert (await api.delete(f"/v1/inbound/messages/{(await only(api, one))['id']}", one.token)).status == 204
    assert await pool.fetchval(held, row["raw_id"]) == 1
    assert (await api.delete(f"/v1/inbound/messages/{(await only(api, other))['id']}", other.token)).status == 204
    assert await pool.fetchval(held, row["raw_id"]) == 0
    assert await counted(api, one, "routed=all") == 0
    again = await api.delete(f"/v1/inbound/messages/{ids.format_id(ids.Kind.RECEIVED, row['id'])}", one.token)
    assert again.status == 404


async def test_messages_that_share_bytes_leave_none_when_deleted_at_once(
    pool: asyncpg.Pool, receiver: Receiver
) -> None:
    accounts = [await make_account(pool) for _ in range(4)]
    addresses = [await claim(pool, account) for account in accounts]
    await receive(receiver, *[address.recipient() for address in addresses])
    rows = [(await messages_of(pool, account.id))[0] for account in accounts]

    await asyncio.gather(*[service.delete(pool, row["account_id"], [row["id"]]) for row in rows])

    assert await pool.fetchval("SELECT count(*) FROM inbound_bytes WHERE id = $1", rows[0]["raw_id"]) == 0


async def test_counts_stay_exact_when_mail_and_changes_meet(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    addresses = [await claim(pool, account, local) for local in ("a", "b")]
    await asyncio.gather(
        *[
            receive(receiver, addresses[turn % 2].recipient(), scan=scanned(0, score=turn % 3 * 4.0))
            for turn in range(30)
        ]
    )
    rows = [row["id"] for row in await messages_of(pool, account.id)]
    luck = random.Random(7)
    changes: list[Callable[[list[UUID]], Awaitable[ChangedMessages]]] = [
        lambda one: service.mark_read(pool, account.id, one, read=True),
        lambda one: service.mark_read(pool, account.id, one, read=False),
        lambda one: service.mark_spam(pool, account.id, one, spam=True),
        lambda one: service.mark_spam(pool, account.id, one, spam=None),
        lambda one: service.delete(pool, account.id, one),
    ]
    work = [luck.choice(changes)(luck.sample(rows, 5)) for _ in range(40)]

    await asyncio.gather(*work, *[receive(receiver, addresses[turn % 2].recipient()) for turn in range(10)])

    assert await counts_of(pool, account.id) == await counted_anew(pool, account.id)
    assert await day_counts_of(pool, account.id) == await days_counted_anew(pool, account.id)


async def test_a_bulk_change_names_the_unknown_and_changes_the_rest(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account, stranger = await make_account(pool), await make_account(pool)
    await received(receiver, await claim(pool, account), mail(), mail(), mail())
    await received(receiver, await claim(pool, stranger), mail())
    own = [one["id"] for one in await listed(api, account)]
    foreign = (await only(api, stranger))["id"]
    await api.post(f"/v1/inbound/messages/{own[0]}/read", account.token, body=b"")

    wanted = [*own, own[0], foreign, "imsg_nothing"]
    read = await api.post("/v1/inbound/messages/bulk", account.token, {"ids": wanted, "action": "read"})
    gone = await api.post("/v1/inbound/messages/bulk", account.token, {"ids": own[:2], "action": "delete"})

    assert read.json == {"changed": 2, "unchanged": 1, "notFound": ["imsg_nothing", foreign]}
    assert gone.json == {"changed": 2, "unchanged": 0, "notFound": []}
    assert await counted(api, account) == 1
    assert await counted(api, stranger) == 1
    too_many = await api.post("/v1/inbound/messages/bulk", account.token, {"ids": own * 34, "action": "read"})
    assert too_many.status == 400


# -- replays ---------------------------------------------------------------------------------------


async def test_a_replay_posts_the_same_delivery_along_the_present_route(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    await received(receiver, address, mail())
    [row] = await messages_of(pool, account.id)
    name = ids.format_id(ids.Kind.RECEIVED, row["id"])

    refused = await api.post(f"/v1/inbound/messages/{name}/replay", account.token)
    webhook = ids.parse_id(
        ids.Kind.WEBHOOK,
        (await api.post("/v1/webhooks", account.token, {"url": "http://127.0.0.1:9/hook"})).json["id"],
    )
    await route(pool, address, "both", webhook_id=webhook)
    twice = [await api.post(f"/v1/inbound/messages/{name}/replay", account.token) for _ in range(2)]

    assert (refused.status, refused.error["type"]) == (409, "invalid_state")
    assert [one.status for one in twice] == [202, 202]
    assert twice[0].json["id"] == ids.format_id(ids.Kind.EVENT, row["event_id"])
    queued = await pool.fetch("SELECT webhook_id, event_id FROM webhook_queue WHERE account_id = $1", account.id)
    assert [(one["webhook_id"], one["event_id"]) for one in queued] == [(webhook, row["event_id"])]
