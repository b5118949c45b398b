"""`POST /v1/emails/raw`: a message that its client composed, over HTTP."""

from email.message import EmailMessage
from email.policy import SMTP

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, add_key, add_stream
from tests.harness.api import Answer, Api
from tests.harness.sending import stored, suppress
from tests.harness.submission import composed, message

MIME = {"Content-Type": "message/rfc822"}


async def post(api: Api, account: TestAccount, octets: bytes, query: str = "", kind: str = "message/rfc822") -> Answer:
    headers = {"Content-Type": kind}
    return await api.post(f"/v1/emails/raw{query}", account.token, body=octets, headers=headers)


async def raw_of(api: Api, account: TestAccount, answer: Answer) -> bytes:
    assert answer.status == 202, answer
    return (await api.get(f"/v1/messages/{answer.json['id']}/raw", account.token)).body


async def test_a_composed_message_is_sent_as_it_is(api: Api, account: TestAccount) -> None:
    octets = message(account, head="X-Mine: kept\r\nBcc: cy@people.test\r\n", body="Hello!\r\nBye.\r\n")
    answer = await post(api, account, octets)
    raw = await raw_of(api, account, answer)
    shown = (await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json

    assert answer.json["status"] == "queued"
    assert shown["source"] == "api"
    assert (shown["to"], shown["bcc"]) == (["ann@people.test"], ["cy@people.test"])
    assert raw.endswith(octets.replace(b"Bcc: cy@people.test\r\n", b""))
    assert b"with HTTP id " + answer.json["id"].encode() in raw
    assert raw.count(b"Message-ID: <") == raw.count(b"Date: ") == 1


async def test_complaint_fields_of_the_client_are_replaced_by_ours(api: Api, account: TestAccount) -> None:
    head = "CFBL-Address: me@evil.test; report=arf\r\nCFBL-Feedback-ID: evil\r\nFeedback-ID: a:b:c:evilsender\r\n"
    raw = await raw_of(api, account, await post(api, account, message(account, head=head)))

    assert b"evil" not in raw
    assert raw.count(b"Feedback-ID: ") == 1


async def test_options_are_fields_of_the_message(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await add_stream(pool, account.id, "news")
    mail = composed(account)
    for name, value in (
        ("Stream", "news"), ("Tag", "a, b"), ("Metadata", "order=7"), ("Idempotency-Key", "once"),
    ):  # fmt: skip
        mail[f"X-Waybill-{name}"] = value
    answer = await post(api, account, mail.as_bytes(policy=SMTP))
    again = await post(api, account, mail.as_bytes(policy=SMTP))
    shown = (await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json

    assert (shown["stream"], shown["tags"], shown["metadata"]) == ("news", ["a", "b"], {"order": "7"})
    assert b"X-Waybill" not in await raw_of(api, account, answer)
    assert (again.status, again.json) == (200, {"id": answer.json["id"], "status": "duplicate"})


async def test_the_envelope_may_be_named_apart(api: Api, account: TestAccount) -> None:
    answer = await post(api, account, message(account), "?recipient=bob@people.test&recipient=ann@people.test")
    shown = (await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json

    assert [(one["address"], one["kind"]) for one in shown["recipients"]] == [
        ("ann@people.test", "to"), ("bob@people.test", "bcc"),
    ]  # fmt: skip


async def test_a_message_with_unix_line_ends_is_converted(api: Api, account: TestAccount) -> None:
    raw = await raw_of(api, account, await post(api, account, composed(account).as_bytes()))

    assert raw.count(b"\n") == raw.count(b"\r\n")


async def test_a_header_in_utf_8_is_announced_by_the_media_type(api: Api, account: TestAccount) -> None:
    octets = message(account, head="X-Name: Jörg\r\n")
    refused = await post(api, account, octets)
    sent = await post(api, account, octets, kind="message/global")

    assert (refused.status, refused.error["field"]) == (400, "body")
    assert "message/global" in refused.error["message"]
    assert "Jörg".encode() in await raw_of(api, account, sent)


async def test_a_template_takes_the_content_of_a_raw_message(api: Api, account: TestAccount) -> None:
    text = "Hello {{name}}{{#items}}, {{title}}{{/items}}"
    made = {"id": "hello", "subject": "Hello", "text": text}
    assert (await api.post("/v1/templates", account.token, made)).status == 201
    mail = EmailMessage()
    mail["From"], mail["To"] = account.sender, "ann@people.test"
    mail["X-Waybill-Template"], mail["X-Waybill-Variables"] = "hello", '{"name": "Ann"}'

    assert b"Hello Ann" in await raw_of(api, account, await post(api, account, mail.as_bytes(policy=SMTP)))
    mail["X-Waybill-Data"] = '{"items": [{"title": "Lamp"}, {"title": "Desk"}]}'
    assert b"Hello Ann, Lamp, Desk" in await raw_of(api, account, await post(api, account, mail.as_bytes(policy=SMTP)))


async def test_a_dry_run_of_a_raw_message_sends_nothing(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await suppress(pool, account, "gone@people.test")
    answer = await post(api, account, message(account), "?dryRun=true")
    refused = await post(api, account, message(account, to="gone@people.test"), "?dryRun=true")

    assert (answer.status, answer.json["status"], answer.json["message"]["text"]) == (200, "queued", "Hello!\n")
    assert (refused.status, refused.error["type"]) == (422, "suppressed")
    assert await stored(pool, account) == 0


@pytest.mark.parametrize(
    ("octets", "status", "kind", "field"),
    [
        (b"From: a@stranger.test\r\nTo: ann@people.test\r\n\r\n", 403, "domain_not_verified", None),
        (b"From: {sender}\r\n\r\nx\r\n", 400, "invalid_request", "To"),
        (b"From: {sender}\r\nTo: nobody\r\n\r\n", 422, "invalid_address", "To"),
        (b"From: {sender}\r\nTo: ann@people.test\r\nBcc: a@b@c\r\n\r\n", 422, "invalid_address", "Bcc"),
        (b"From: {sender}\r\nTo: ann@people.test\r\n\r\na\r\nb\nc\r\n", 400, "invalid_request", "body"),
        (b"From: {sender}\r\nTo: ann@people.test\r\nX-Waybill-Tga: a\r\n\r\n", 400, "invalid_request", "X-Waybill-Tga"),
        (b"To: ann@people.test\r\n\r\n", 400, "invalid_request", "body"),
        (b"", 400, "invalid_request", "body"),
        (b"{}", 400, "invalid_request", "body"),
    ],
)
async def test_a_raw_message_is_refused_as_by_submission(
    octets: bytes, status: int, kind: str, field: str | None, api: Api, account: TestAccount
) -> None:
    answer = await post(api, account, octets.replace(b"{sender}", account.sender.encode()))

    assert (answer.status, answer.error["type"], answer.error.get("field")) == (status, kind, field)


async def test_refusals_of_the_request_itself(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    json = await post(api, account, b"{}", kind="application/json")
    recipient = await post(api, account, message(account), "?recipient=nobody")
    large = await post(api, account, message(account, body="x" * 900 + "\r\n") + b"y" * 41_943_040)
    key = await add_key(pool, account.id, scopes=["messages:read"])
    scope = await api.post("/v1/emails/raw", key, body=message(account), headers=MIME)

    assert (json.status, json.error["type"]) == (415, "unsupported_media_type")
    assert "message/rfc822" in json.error["message"]
    assert (recipient.status, recipient.error["field"]) == (422, "recipient")
    assert (large.status, large.error["limit"]) == (413, 41_943_040)
    assert (scope.status, scope.error["scope"]) == (403, "emails:send")
    assert await stored(pool, account) == 0


async def test_a_large_raw_message_is_accepted(api: Api, account: TestAccount) -> None:
    mail = composed(account)
    mail.add_attachment(bytes(2_000_000), maintype="application", subtype="octet-stream", filename="a.bin")
    answer = await post(api, account, mail.as_bytes(), kind="application/octet-stream")

    assert len(await raw_of(api, account, answer)) > 2_600_000
