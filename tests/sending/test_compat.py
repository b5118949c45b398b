"""Sending through the endpoints for clients of Resend and Postmark, with the real clients pointed at them."""

import base64
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest
import resend
from postmarker.core import PostmarkClient  # type: ignore[import-untyped]
from postmarker.exceptions import ClientError  # type: ignore[import-untyped]
from resend.exceptions import (
    InvalidApiKeyError,
    MissingRequiredFieldsError,
    RateLimitError,
    ResendError,
    ValidationError,
)

from engine.base import clock
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.foreign_clients import called, resend_pointing_at
from tests.harness.sending import stored, suppress


@pytest.fixture(autouse=True)
def resend_points_here(api: Api, account: TestAccount) -> Iterator[None]:
    with resend_pointing_at(api, account.token):
        yield


def postmark(api: Api, token: str) -> PostmarkClient:
    return PostmarkClient(server_token=token, root_api_url=api.base_url)


def email(account: TestAccount, **fields: Any) -> Any:
    return {"from": f"Shop <{account.sender}>", "to": ["ann@people.test"], "subject": "Hi", "html": "<p>Hi"} | fields


async def test_the_client_of_resend_sends(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    whole = email(
        account,
        cc="bob@people.test",
        reply_to=["help@people.test", "desk@people.test"],
        text="Hi",
        headers={"X-Order": "7"},
        tags=[{"name": "kind", "value": "receipt"}],
        attachments=[{"filename": "a.txt", "content": list(b"file")}],
    )
    sent = await called(partial(resend.Emails.send, whole, {"idempotency_key": "never read"}))
    shown = (await api.get(f"/v1/messages/{sent['id']}", account.token)).json

    assert shown["source"] == "api"
    assert (shown["cc"], shown["metadata"]) == (["bob@people.test"], {"kind": "receipt"})
    assert [one["filename"] for one in shown["attachments"]] == ["a.txt"]
    raw = (await api.get(f"/v1/messages/{sent['id']}/raw", account.token)).body
    assert b"Reply-To: help@people.test, desk@people.test" in raw
    assert b"X-Order: 7" in raw
    again = await called(partial(resend.Emails.send, whole, {"idempotency_key": "never read"}))
    assert again["id"] != sent["id"]


WARNING = "the header Idempotency-Key is never read; use the body field idempotencyKey"


async def test_a_repeated_message_with_a_key_in_its_body_is_sent_once(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    mail = email(account, idempotencyKey="receipt-7")
    first: Any = await called(partial(resend.Emails.send, mail))
    again: Any = await called(partial(resend.Emails.send, mail))
    other: Any = await called(partial(resend.Emails.send, mail | {"subject": "Other"}))
    assert (again["id"], again["status"], "bodyDiffers" in again) == (first["id"], "duplicate", False)
    assert (other["id"], other["bodyDiffers"]) == (first["id"], True)
    assert "status" not in first

    theirs = {"From": account.sender, "To": "ann@people.test", "Subject": "Hi", "TextBody": "Hi"}
    headers = {"X-Waybill-Idempotency-Key": "receipt-8"}  # postmarker passes known fields only
    first = await called(partial(postmark(api, account.token).emails.send, **theirs, Headers=headers))
    again = await called(partial(postmark(api, account.token).emails.send, **theirs, Headers=headers))
    assert again["MessageID"] == first["MessageID"]
    raw = (await api.get(f"/v1/messages/{first['MessageID']}/raw", account.token)).body
    assert b"Idempotency" not in raw
    wrong = theirs | {"Headers": [{"Name": "x-waybill-idempotency-key", "Value": "a"}], "idempotencyKey": "b"}
    refused = await api.post("/v1/compat/postmark/email", account.token, wrong)
    assert (refused.status, refused.json["error"]["field"]) == (422, "idempotencyKey")
    assert await stored(pool, account) == 2


async def test_every_response_to_a_send_warns_of_the_header_that_is_never_read(api: Api, account: TestAccount) -> None:
    paths = ["/v1/compat/resend/emails", "/v1/compat/resend/emails/batch"]
    paths += [f"/v1/compat/postmark/email{one}" for one in ("", "/batch", "/withTemplate", "/batchWithTemplates")]
    for path in [*paths, "/email", "/email/withTemplate/"]:
        for token in ("", account.token):
            reply = await api.post(path, token or None, {})
            assert reply.headers["x-waybill-warning"] == WARNING, path
    sent = await api.post("/v1/compat/resend/emails", account.token, email(account))
    assert (sent.status, sent.headers["x-waybill-warning"]) == (200, WARNING)
    assert "x-waybill-warning" not in (await api.post("/v1/emails", account.token, email(account))).headers


async def test_tags_that_anymail_sends_as_headers_are_tags(api: Api, account: TestAccount) -> None:
    headers = {"X-Tags": '["receipt", "shop-7"]', "X-Metadata": '{"order": 7, "kind": "mail"}'}
    sent = await called(
        partial(resend.Emails.send, email(account, headers=headers, tags=[{"name": "kind", "value": "paid"}]))
    )
    (found,) = (await api.get("/v1/messages?tag=receipt&tag=shop-7", account.token)).json["data"]
    assert (found["id"], found["metadata"]) == (sent["id"], {"order": "7", "kind": "paid"})

    own = {"X-Tags": "red, green"}  # of somebody else's making
    sent = await called(partial(resend.Emails.send, email(account, headers=own)))
    raw = (await api.get(f"/v1/messages/{sent['id']}/raw", account.token)).body
    assert b"X-Tags: red, green" in raw
    long = {"X-Tags": '["' + "x" * 65 + '"]'}
    refused = await api.post("/v1/compat/resend/emails", account.token, email(account, headers=long))
    assert (refused.status, refused.json["error"]["field"]) == (422, "headers.X-Tags[0]")


async def test_the_client_of_resend_schedules(api: Api, account: TestAccount) -> None:
    tomorrow = clock.iso(clock.now() + timedelta(days=1))
    sent = await called(partial(resend.Emails.send, email(account, scheduled_at=tomorrow)))
    with pytest.raises(ValidationError, match="`scheduled_at` is more than"):
        await called(partial(resend.Emails.send, email(account, scheduled_at="2126-01-01T00:00:00Z")))

    shown = (await api.get(f"/v1/messages/{sent['id']}", account.token)).json
    assert (shown["status"], shown["scheduledAt"]) == ("scheduled", tomorrow)


async def test_the_client_of_resend_raises_its_own_errors(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    send = resend.Emails.send
    await suppress(pool, account, "gone@people.test")
    for fields, error, name in (
        ({"to": "not an address"}, ValidationError, "validation_error"),
        ({"scheduled_at": "in 1 min"}, ValidationError, "validation_error"),
        ({"topic_id": "x"}, ValidationError, "validation_error"),
        ({"to": "gone@people.test"}, ValidationError, "validation_error"),
        ({"from": "a@stranger.test"}, ResendError, "validation_error"),
        ({"attachments": [{"filename": "a.exe", "content": "aGk="}]}, ResendError, "invalid_attachment"),
    ):
        with pytest.raises(error) as raised:
            await called(partial(send, email(account, **fields)))
        assert raised.value.error_type == name, fields
    with pytest.raises(MissingRequiredFieldsError, match="`to` is required"):
        await called(partial(send, {"from": account.sender}))  # type: ignore[typeddict-item]
    resend.api_key = "re_123"
    with pytest.raises(InvalidApiKeyError):
        await called(partial(send, email(account)))
    resend.api_key = await add_key(pool, account.id, scopes=["messages:read"])
    with pytest.raises(ResendError) as scope:
        await called(partial(send, email(account)))
    assert (scope.value.code, scope.value.error_type) == (401, "restricted_api_key")
    assert await stored(pool, account) == 0


async def test_a_used_up_allowance_is_resends_quota_error(pool: asyncpg.Pool) -> None:
    account = await make_account(pool, daily_cap=1)
    resend.api_key = account.token
    batch = [email(account), email(account)]
    with pytest.raises(RateLimitError) as raised:
        await called(partial(resend.Batch.send, batch))

    assert raised.value.error_type == "daily_quota_exceeded"
    assert await stored(pool, account) == 0  # the first one fitted
    assert len((await called(partial(resend.Batch.send, batch[:1])))["data"]) == 1


async def test_a_batch_of_resend_is_accepted_as_a_whole(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await suppress(pool, account, "gone@people.test")
    good = [email(account), email(account, to="bob@people.test")]
    sent = await called(partial(resend.Batch.send, good))
    incomplete: Any = {"from": account.sender}
    for wrong in (email(account, to="gone@people.test"), email(account, to="?"), incomplete):
        with pytest.raises(ResendError, match=r"^Message 1 \(from 0\): .* No message of the batch was sent\.$"):
            await called(partial(resend.Batch.send, [email(account), wrong, email(account)]))

    assert len({one["id"] for one in sent["data"]}) == 2
    assert await stored(pool, account) == 2
    logged = (await api.get("/v1/events?after=0", account.token)).json["data"]
    assert [one["type"] for one in logged] == ["accepted", "accepted", "suppressed"]
    assert [one["seq"] for one in logged] == [1, 2, 3]


async def test_a_permissive_batch_of_resend_refuses_single_messages(pool: asyncpg.Pool, account: TestAccount) -> None:
    batch = [email(account), email(account, topic_id="x"), email(account, from_name="x"), email(account, to="?")]
    sent = await called(partial(resend.Batch.send, batch, {"batch_validation": "permissive"}))

    assert len(sent["data"]) == await stored(pool, account) == 1
    assert [(one["index"], one["message"].split("`")[1]) for one in sent["errors"]] == [
        (1, "topic_id"), (2, "from_name"), (3, "to"),
    ]  # fmt: skip


async def test_the_client_of_postmark_sends(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    client = postmark(api, account.token)
    mail = client.emails.Email(
        From=account.sender, To=["ann@people.test", "bob@people.test"], Cc="cy@people.test", Subject="Hi",
        HtmlBody='<img src="cid:logo">', TextBody="Hi", Tag="welcome", Metadata={"order": "7"},
        Headers={"X-Order": "7"}, MessageStream="outbound",
    )  # fmt: skip
    mail.attach(("logo.png", base64.b64encode(b"png").decode(), "image/png", "cid:logo"))
    sent = await called(mail.send)
    shown = (await api.get(f"/v1/messages/{sent['MessageID']}", account.token)).json

    assert (sent["ErrorCode"], sent["Message"], sent["To"]) == (0, "OK", "ann@people.test,bob@people.test")
    assert (shown["to"], shown["cc"]) == (["ann@people.test", "bob@people.test"], ["cy@people.test"])
    assert (shown["tags"], shown["metadata"], shown["stream"]) == (["welcome"], {"order": "7"}, "transactional")
    raw = (await api.get(f"/v1/messages/{sent['MessageID']}/raw", account.token)).body
    assert b"Content-ID: <logo>" in raw


async def test_the_client_of_postmark_raises_its_own_errors(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await suppress(pool, account, "gone@people.test")
    mail = {"From": account.sender, "To": "ann@people.test", "Subject": "Hi", "TextBody": "Hi"}
    for fields, code, name in (
        ({"To": "not an address"}, 300, "`To[0]`"),
        ({"TrackOpens": True}, 300, "`TrackOpens`"),
        ({"From": "a@stranger.test"}, 400, "stranger.test"),
        ({"To": "gone@people.test"}, 406, "gone@people.test"),
        ({"Attachments": [("a.exe", "aGk=", "text/plain")]}, 411, "exe files"),
    ):
        with pytest.raises(ClientError) as raised:
            await called(partial(postmark(api, account.token).emails.send, **(mail | fields)))
        assert raised.value.error_code == code, fields
        assert name in str(raised.value)
    with pytest.raises(ClientError) as raised:
        await called(partial(postmark(api, "POSTMARK_API_TEST").emails.send, **mail))
    assert raised.value.error_code == 10
    assert await stored(pool, account) == 0


async def test_a_batch_of_postmark_has_a_result_for_each_message(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    mail = {"From": account.sender, "To": "ann@people.test", "Subject": "Hi", "TextBody": "Hi"}
    others = [mail | {"To": "nobody"}, mail | {"TrackLinks": "HtmlOnly"}, *[mail] * 118]
    results = await called(partial(postmark(api, account.token).emails.send_batch, mail, *others))
    too_many = await api.post("/v1/compat/postmark/email/batch", account.token, [mail] * 501)

    assert [one["ErrorCode"] for one in results] == [0, 300, 300, *[0] * 118]
    assert "`TrackLinks`" in results[2]["Message"]
    assert results[1]["error"] | {"message": ""} == {
        "type": "invalid_address", "address": "nobody", "field": "To[0]", "message": "",
        "docs": f"{api.base_url}/docs/errors#invalid_address",
    }  # fmt: skip
    assert len({one["MessageID"] for one in results if one["ErrorCode"] == 0}) == await stored(pool, account) == 119
    assert (too_many.status, too_many.json["ErrorCode"]) == (422, 410)


async def test_the_client_of_postmark_sends_with_templates(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    content = {"id": "receipt", "subject": "For {{name}}", "text": "{{#items}}{{title}};{{/items}}"}
    assert (await api.post("/v1/templates", account.token, content)).status == 201
    values = {"name": "Ann", "items": [{"title": "Lamp"}, {"title": "Desk"}]}
    mail = {"From": account.sender, "To": "ann@people.test", "TemplateAlias": "receipt", "TemplateModel": values}
    client = postmark(api, account.token)
    sent = await called(partial(client.emails.send_with_template, **mail, TemplateId=None))
    shown = (await api.get(f"/v1/messages/{sent['MessageID']}", account.token)).json
    assert (shown["subject"], shown["text"].rstrip(), shown["template"]) == ("For Ann", "Lamp;Desk;", "receipt")

    batch = [mail, mail | {"TemplateId": 7, "TemplateAlias": None}, mail]
    results = await called(partial(client.emails.send_template_batch, *batch))
    assert [one["ErrorCode"] for one in results] == [0, 300, 0]
    assert "templates have no numbers" in results[1]["Message"]
    nameless = await api.post("/v1/compat/postmark/email/withTemplate", account.token, mail | {"TemplateAlias": None})
    assert (nameless.status, nameless.json["Message"]) == (422, "`TemplateAlias` is required.")
    assert await stored(pool, account) == 3


async def test_postmarks_token_is_a_key_on_its_paths_alone(api: Api, account: TestAccount) -> None:
    mail = {"From": account.sender, "To": "ann@people.test", "TextBody": "Hi"}
    token = {"X-Postmark-Server-Token": account.token}

    assert (await api.post("/v1/compat/postmark/email", json=mail, headers=token)).status == 200
    assert (await api.post("/v1/compat/postmark/email", account.token, json=mail)).status == 200
    assert (await api.post("/v1/compat/postmark/email/batch", json=[mail], headers=token)).status == 200
    for path in ("/v1/emails", "/v1/compat/resend/emails", "/v1/compat/resend/emails/batch", "/v1/messages"):
        assert (await api.post(path, json={}, headers=token)).status in (401, 405), path


async def test_requests_that_never_reach_the_message_have_errors_of_the_service(api: Api, account: TestAccount) -> None:
    missing = await api.post("/v1/compat/resend/emails", json={})
    broken = await api.post("/v1/compat/resend/emails", account.token, body=b"{")
    assert (missing.status, missing.json["name"]) == (401, "missing_api_key")
    assert (broken.status, broken.json["name"], broken.json["statusCode"]) == (400, "validation_error", 400)
    assert broken.error["type"] == "invalid_request"

    missing = await api.post("/v1/compat/postmark/email", json={})
    broken = await api.post("/v1/compat/postmark/email", account.token, body=b"{")
    assert (missing.status, missing.json["ErrorCode"]) == (401, 10)
    assert (broken.status, broken.json["ErrorCode"]) == (422, 402)
    none = await api.post("/v1/compat/resend/emails/batch", account.token, [])
    assert (none.status, none.json["name"]) == (400, "validation_error")


async def test_lists_in_the_values_of_a_template_are_rendered(api: Api, account: TestAccount) -> None:
    content = {
        "id": "receipt",
        "subject": "For {{name}}",
        "text": "{{#items}}{{title}};{{/items}}{{#paid}}paid{{/paid}}",
    }
    assert (await api.post("/v1/templates", account.token, content)).status == 201
    values: dict[str, object] = {"name": "Ann", "items": [{"title": "Lamp"}, {"title": "Desk"}], "paid": False}
    theirs = {"from": account.sender, "to": "ann@people.test", "template": {"id": "receipt", "variables": values}}
    sent = await api.post("/v1/compat/resend/emails", account.token, theirs)
    shown = (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json
    assert (shown["subject"], shown["text"].rstrip()) == ("For Ann", "Lamp;Desk;")

    mail = {"From": account.sender, "To": "ann@people.test", "TemplateAlias": "receipt", "TemplateModel": values}
    sent = await api.post("/v1/compat/postmark/email", account.token, mail)
    shown = (await api.get(f"/v1/messages/{sent.json['MessageID']}", account.token)).json
    assert (shown["subject"], shown["text"].rstrip()) == ("For Ann", "Lamp;Desk;")

    values["items"] = list(range(1_001))
    wrong = await api.post("/v1/compat/postmark/email", account.token, mail)
    assert (wrong.status, wrong.json["error"]["field"]) == (422, "TemplateModel.items")
    wrong = await api.post("/v1/compat/resend/emails", account.token, theirs)
    assert (wrong.status, wrong.json["error"]["field"]) == (422, "template.variables.items")
