"""Reading through the endpoints for clients of Resend and Postmark, with the real clients pointed at them."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest
import resend
from postmarker.core import PostmarkClient  # type: ignore[import-untyped]
from postmarker.exceptions import ClientError  # type: ignore[import-untyped]
from resend.exceptions import ResendError

from engine.base import clock
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.api import Api
from tests.harness.foreign_clients import called, resend_pointing_at
from tests.harness.settling import settle

UNKNOWN = (550, "5.1.1 no such user")
BLOCKED = (550, "5.7.1 blocked by policy")


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.fixture(autouse=True)
def resend_points_here(api: Api, account: TestAccount) -> Iterator[None]:
    with resend_pointing_at(api, account.token):
        yield


@pytest.fixture
def postmark(api: Api, account: TestAccount) -> PostmarkClient:
    return PostmarkClient(server_token=account.token, root_api_url=api.base_url)


async def sent(api: Api, account: TestAccount, to: str = "ann@people.test", **fields: Any) -> str:
    body = {"from": f"Shop <{account.sender}>", "to": to, "subject": "Hi", "text": "Hi", "html": "<p>Hi"} | fields
    answer = await api.post("/v1/emails", account.token, body)
    assert answer.status == 202, answer
    return str(answer.json["id"])


# -- Resend -----------------------------------------------------------------------------------------------


async def test_the_client_of_resend_reads_a_message(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    message = await sent(api, account, cc=["bob@people.test"], replyTo="help@people.test", metadata={"order": "7"})
    found: Any = await called(partial(resend.Emails.get, message))
    assert {name: value for name, value in found.items() if name != "http_headers"} == {
        "object": "email", "id": message, "to": ["ann@people.test"], "cc": ["bob@people.test"], "bcc": [],
        "from": f"Shop <{account.sender}>", "reply_to": ["help@people.test"], "subject": "Hi", "html": "<p>Hi",
        "text": found["text"], "created_at": found["created_at"], "scheduled_at": None, "last_event": "queued",
        "tags": [{"name": "order", "value": "7"}],
    }  # fmt: skip

    gone = await sent(api, account, "gone@people.test")
    await settle(pool, gone, ("gone@people.test", *UNKNOWN))
    waiting = await sent(api, account, "slow@people.test")
    await settle(pool, waiting, ("slow@people.test", 451, "4.7.1 later"), again_after=timedelta(minutes=1))
    for one, event in ((gone, "bounced"), (waiting, "delivery_delayed")):
        assert (await called(partial(resend.Emails.get, one)))["last_event"] == event
    with pytest.raises(ResendError) as raised:
        await called(partial(resend.Emails.get, "4ef9a417-02e9-4d39-ad75-9611e0fcc33c"))
    assert (raised.value.code, raised.value.error_type) == (404, "not_found")


async def test_the_client_of_resend_lists_messages(api: Api, account: TestAccount) -> None:
    messages = [await sent(api, account, subject=str(number)) for number in range(3)]
    first: Any = await called(partial(resend.Emails.list, {"limit": 2}))
    rest: Any = await called(partial(resend.Emails.list, {"limit": 2, "after": first["data"][-1]["id"]}))
    assert (first["object"], first["has_more"], rest["has_more"]) == ("list", True, False)
    assert [one["id"] for one in first["data"] + rest["data"]] == messages[::-1]
    with pytest.raises(ResendError, match="Page with `after`"):
        await called(partial(resend.Emails.list, {"before": messages[0]}))


async def test_the_client_of_resend_moves_and_cancels_a_scheduled_message(api: Api, account: TestAccount) -> None:
    soon, later = (clock.iso(clock.now() + timedelta(hours=hours)) for hours in (1, 2))
    message = await sent(api, account, scheduledAt=soon)
    moved: Any = await called(partial(resend.Emails.update, {"id": message, "scheduled_at": later}))
    assert (moved["object"], moved["id"]) == ("email", message)
    shown: Any = await called(partial(resend.Emails.get, message))
    assert shown["scheduled_at"] == later
    for wrong, field in (("in 1 hour", "scheduled_at"), ("2126-01-01T00:00:00Z", "scheduled_at")):
        with pytest.raises(ResendError, match=f"`{field}`"):
            await called(partial(resend.Emails.update, {"id": message, "scheduled_at": wrong}))

    assert (await called(partial(resend.Emails.cancel, message)))["id"] == message
    assert (await called(partial(resend.Emails.get, message)))["last_event"] == "canceled"
    with pytest.raises(ResendError) as raised:
        await called(partial(resend.Emails.update, {"id": message, "scheduled_at": later}))
    assert raised.value.error_type == "validation_error"


async def test_the_client_of_resend_reads_domains(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    listed: Any = await called(partial(resend.Domains.list))
    (one,) = listed["data"]
    assert (one["name"], one["status"], listed["has_more"]) == (account.domain, "verified", False)
    found: Any = await called(partial(resend.Domains.get, one["id"]))
    assert (found["object"], found["name"]) == ("domain", account.domain)
    dkim = next(record for record in found["records"] if record["record"] == "DKIM")
    assert (dkim["type"], dkim["ttl"], dkim["name"].endswith(f"._domainkey.{account.domain}")) == ("TXT", "Auto", True)
    with pytest.raises(ResendError) as raised:
        await called(partial(resend.Domains.get, "dom_x"))
    assert raised.value.error_type == "not_found"


async def test_the_client_of_resend_sends_with_a_template(api: Api, account: TestAccount) -> None:
    content = {"id": "receipt", "subject": "For {{name}}", "text": "Hi {{name}}"}
    assert (await api.post("/v1/templates", account.token, content)).status == 201
    mail: Any = {
        "from": account.sender, "to": "ann@people.test", "template": {"id": "receipt", "variables": {"name": "Ann"}},
    }  # fmt: skip
    sent_: Any = await called(partial(resend.Emails.send, mail))
    assert (await called(partial(resend.Emails.get, sent_["id"])))["subject"] == "For Ann"


async def test_a_key_reads_what_its_scopes_and_limits_allow(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    other = f"other.{account.domain}"
    await add_domain(pool, account.id, other)
    mine = await sent(api, account)
    await sent(api, account, **{"from": f"a@{other}"})
    resend.api_key = await add_key(pool, account.id, scopes=["emails:send"])
    with pytest.raises(ResendError) as raised:
        await called(partial(resend.Emails.get, mine))
    assert raised.value.error_type == "restricted_api_key"
    resend.api_key = await add_key(pool, account.id, scopes=["messages:read"], domains=[account.domain])
    listed: Any = await called(partial(resend.Emails.list))
    assert [one["id"] for one in listed["data"]] == [mine]
    stranger = await make_account(pool)
    resend.api_key = stranger.token
    with pytest.raises(ResendError):
        await called(partial(resend.Emails.get, mine))


# -- Postmark ---------------------------------------------------------------------------------------------


async def test_the_client_of_postmark_searches_messages(
    api: Api, account: TestAccount, postmark: PostmarkClient
) -> None:
    message = await sent(
        api, account, "Ann <ann@people.test>", cc=["bob@people.test"], tags=["welcome"], metadata={"order": "7"},
        attachments=[{"filename": "a.txt", "contentType": "text/plain", "content": "aGk="}],
    )  # fmt: skip
    others = [await sent(api, account, "cy@people.test") for _ in range(2)]
    (found,) = await called(partial(postmark.messages.outbound.all, tag="welcome"))
    shown = found.as_dict()
    assert shown == {
        "Tag": "welcome", "MessageID": message, "MessageStream": "outbound",
        "To": [{"Email": "ann@people.test", "Name": "Ann"}], "Cc": [{"Email": "bob@people.test", "Name": None}],
        "Bcc": [], "Recipients": ["ann@people.test", "bob@people.test"], "ReceivedAt": shown["ReceivedAt"],
        "From": f"Shop <{account.sender}>", "Subject": "Hi", "Attachments": ["a.txt"], "Status": "Queued",
        "Metadata": {"order": "7"}, "TrackOpens": False, "TrackLinks": "None", "Sandboxed": False,
    }  # fmt: skip
    all_ = await called(partial(postmark.messages.outbound.all, count=2))
    assert [one.MessageID for one in all_] == others[::-1]
    assert len(await called(partial(postmark.messages.outbound.all, count=600))) == 3
    assert [one.MessageID for one in await called(partial(postmark.messages.outbound.all, recipient="ann@people.test"))]
    assert [one.MessageID for one in await called(partial(postmark.messages.outbound.all, count=1, offset=2))] == [
        message
    ]
    assert len(await called(partial(postmark.messages.outbound.all, fromdate="2020-01-01", todate="2100-01-01"))) == 3
    assert await called(partial(postmark.messages.outbound.all, todate="2020-01-01")) == []
    for words, name in (
        ({"subject": "Hi"}, "`subject`"),
        ({"fromdate": "yesterday"}, "`fromdate`"),
        ({"recipient": "ann"}, "`recipient`"),
        ({"offset": 1_000}, "`count` and `offset`"),
        ({"tag": "a\0b"}, "`tag`"),
    ):
        with pytest.raises(ClientError, match=name):
            await called(partial(postmark.messages.outbound.all, **words))


async def test_the_client_of_postmark_reads_a_message(
    api: Api, pool: asyncpg.Pool, account: TestAccount, postmark: PostmarkClient
) -> None:
    message = await sent(api, account)
    await settle(pool, message, ("ann@people.test", 250, "2.0.0 ok"))
    found = (await called(partial(postmark.messages.outbound.get, message))).as_dict()
    assert (found["TextBody"].strip(), found["HtmlBody"].strip(), found["Status"]) == ("Hi", "<p>Hi", "Sent")
    (event,) = found["MessageEvents"]
    assert (event["Recipient"], event["Type"]) == ("ann@people.test", "Delivered")
    assert event["Details"]["DeliveryMessage"] == "250 2.0.0 ok"
    assert "Subject: Hi" in await called(partial(postmark.messages.outbound.get_dump, message))
    with pytest.raises(ClientError) as raised:
        await called(partial(postmark.messages.outbound.get, "msg_x"))
    assert raised.value.error_code == 701


async def test_the_client_of_postmark_reads_and_activates_bounces(
    api: Api, pool: asyncpg.Pool, account: TestAccount, postmark: PostmarkClient
) -> None:
    gone = await sent(api, account, "gone@people.test", tags=["welcome"])
    await settle(pool, gone, ("gone@people.test", *UNKNOWN))
    blocked = await sent(api, account, "ann@blocked.test")
    await settle(pool, blocked, ("ann@blocked.test", *BLOCKED))
    newest, oldest = await called(partial(postmark.bounces.all))
    assert (newest.Type, newest.Email, newest.Inactive) == ("Blocked", "ann@blocked.test", False)
    shown = oldest.as_dict()
    assert shown == {
        "RecordType": "Bounce", "ID": shown["ID"], "Type": "HardBounce", "TypeCode": 1, "Name": "Hard bounce",
        "Tag": "welcome", "MessageID": gone, "MessageStream": "outbound", "Description": "user_unknown (recipient)",
        "Details": "550 5.1.1 no such user", "Email": "gone@people.test", "From": f"Shop <{account.sender}>",
        "BouncedAt": shown["BouncedAt"], "DumpAvailable": True, "Inactive": True, "CanActivate": True,
        "Subject": "Hi",
    }  # fmt: skip
    for words, wanted in (
        ({"type": "HardBounce"}, [gone]),
        ({"type": "Blocked"}, [blocked]),
        ({"type": "SoftBounce"}, []),
        ({"emailFilter": "Gone@people.test"}, [gone]),
        ({"count": 1, "offset": 1}, [gone]),
        ({"todate": "2020-01-01"}, []),
    ):
        found = await called(partial(postmark.bounces.all, **words))
        assert [one.MessageID for one in found] == wanted, words
    for name, value in (("type", "Unknown"), ("inactive", True), ("tag", "x"), ("emailFilter", "people")):
        with pytest.raises(ClientError, match=f"`{name}`"):
            await called(partial(postmark.bounces.all, **{name: value}))

    one = await called(partial(postmark.bounces.get, oldest.ID))
    assert await called(lambda: one.dump) == "550 5.1.1 no such user"
    assert await called(one.activate) == "OK"
    assert (one.Inactive, one.CanActivate) == (False, False)
    assert await called(one.activate) == "OK"  # repeatable
    with pytest.raises(ClientError) as raised:
        await called(partial(postmark.bounces.get, 123_456))
    assert raised.value.error_code == 407


async def test_postmarks_dump_lists_suppressions_by_stream(api: Api, account: TestAccount) -> None:
    for address, reason in (("a@people.test", "manual"), ("b@people.test", "unsubscribe")):
        added = await api.post("/v1/suppressions", account.token, {"address": address, "reason": reason})
        assert added.status == 201

    async def dump(stream: str = "outbound", query: str = "") -> Any:
        return await api.get(f"/v1/compat/postmark/message-streams/{stream}/suppressions/dump{query}", account.token)

    found = (await dump()).json["Suppressions"]
    assert [(one["EmailAddress"], one["SuppressionReason"], one["Origin"]) for one in found] == [
        ("a@people.test", "ManualSuppression", "Customer")
    ]  # who unsubscribed still gets transactional mail
    assert (await dump(query="?SuppressionReason=HardBounce")).json == {"Suppressions": []}
    assert len((await dump(query="?EmailAddress=a@people.test")).json["Suppressions"]) == 1
    assert (await dump(query="?EmailAddress=c@people.test")).json == {"Suppressions": []}
    for name in ("unknown", "%00"):
        assert (await dump(name)).json["ErrorCode"] == 1226
    assert (await dump(query="?Origin=Admin")).json["ErrorCode"] == 300
    assert (await dump(query="?SuppressionReason=x")).json["ErrorCode"] == 300


async def test_text_that_the_database_cant_hold_is_refused(api: Api, account: TestAccount) -> None:
    for path in (
        "/messages/outbound?messagestream=%00", "/messages/outbound?recipient=%00", "/messages/outbound?tag=%00",
        "/bounces?messagestream=%00", "/bounces?emailFilter=%00", "/bounces?type=%00", "/bounces?fromdate=%00",
        "/message-streams/outbound/suppressions/dump?EmailAddress=%00",
    ):  # fmt: skip
        found = await api.get(f"/v1/compat/postmark{path}", account.token)
        assert (found.status, found.json["ErrorCode"]) == (422, 300), path
    for name in ("messages/outbound", "bounces"):
        for since, until in (("0001-01-01", "9999-12-31"), ("1900-01-01", "9000-01-01"), ("2020-01-01", "9999-12-31")):
            query = f"?fromdate={since}&todate={until}"
            far = await api.get(f"/v1/compat/postmark/{name}{query}", account.token)
            assert far.status in (200, 422), (far, query)


async def test_a_limited_key_sees_the_bounces_of_its_domains(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    message = await sent(api, account, "gone@people.test")
    await settle(pool, message, ("gone@people.test", *UNKNOWN))
    other = f"other.{account.domain}"
    await add_domain(pool, account.id, other)
    tokens = {domain: await add_key(pool, account.id, domains=[domain]) for domain in (account.domain, other)}
    (bounce,) = (await api.get("/v1/compat/postmark/bounces", account.token)).json["Bounces"]
    for domain, count in ((account.domain, 1), (other, 0)):
        for query in ("", "?emailFilter=gone@people.test"):
            found = await api.get(f"/v1/compat/postmark/bounces{query}", tokens[domain])
            assert len(found.json["Bounces"]) == count
        one = await api.get(f"/v1/compat/postmark/bounces/{bounce['ID']}", tokens[domain])
        assert one.status == (200 if count else 404)
        refused = await api.put(f"/v1/compat/postmark/bounces/{bounce['ID']}/activate", tokens[domain])
        assert refused.status == 401  # Postmark's status for what a token may not do


async def test_a_request_without_a_valid_key_is_refused_in_the_form_of_the_service(api: Api) -> None:
    message, domain, wrong = "msg_x", "dom_x", "svc_live_wrong"
    for refused in (
        await api.get("/v1/compat/resend/emails", wrong),
        await api.get(f"/v1/compat/resend/emails/{message}", wrong),
        await api.patch(f"/v1/compat/resend/emails/{message}", wrong, {"scheduled_at": "2100-01-01T00:00:00Z"}),
        await api.post(f"/v1/compat/resend/emails/{message}/cancel", wrong),
        await api.get("/v1/compat/resend/domains", wrong),
        await api.get(f"/v1/compat/resend/domains/{domain}", wrong),
    ):
        assert (refused.status, refused.json["name"]) == (403, "invalid_api_key")
    for refused in (
        await api.get("/v1/compat/postmark/messages/outbound", wrong),
        await api.get(f"/v1/compat/postmark/messages/outbound/{message}/details", wrong),
        await api.get(f"/v1/compat/postmark/messages/outbound/{message}/dump", wrong),
        await api.get("/v1/compat/postmark/bounces", wrong),
        await api.get(f"/v1/compat/postmark/bounces/{7}", wrong),
        await api.get(f"/v1/compat/postmark/bounces/{7}/dump", wrong),
        await api.put(f"/v1/compat/postmark/bounces/{7}/activate", wrong),
        await api.get(f"/v1/compat/postmark/message-streams/{domain}/suppressions/dump", wrong),
        await api.post("/v1/compat/postmark/email/batchWithTemplates", wrong, {"Messages": [{}]}),
    ):
        assert (refused.status, refused.json["ErrorCode"]) == (401, 10)
