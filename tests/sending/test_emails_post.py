"""`POST /v1/emails`: what is accepted, and every shape that is refused."""

import base64
from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import ids
from engine.sending.suppressions import store as suppressions
from tests.harness.accounts import TestAccount, add_stream, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import send

ADDRESS = "ann@people.test"
PDF = {"filename": "a.pdf", "contentType": "application/pdf", "content": "aGk="}


async def refused(
    api: Api, account: TestAccount, answer: Answer, status: int, kind: str, field: str | None = None
) -> dict[str, Any]:
    """Checks one refusal in its envelope, and that nothing was counted; gives its evidence."""
    assert (answer.status, answer.error["type"]) == (status, kind), answer
    assert set(answer.json) == {"error"}
    assert answer.error["message"]
    if field is not None:
        assert answer.error["field"] == field, answer
    assert (await api.get("/v1/me", account.token)).json["sending"]["sentToday"] == 0
    return answer.error


async def test_a_good_request_is_accepted_with_its_id(api: Api, account: TestAccount) -> None:
    answer = await send(api, account)

    assert answer.status == 202
    assert answer.json == {"id": answer.json["id"], "status": "queued"}
    ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])


async def test_acceptance_stores_message_event_and_queue_row_together(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    answer = await send(api, account, to=["a@one.test", "b@one.test"], cc=["c@two.test"])
    message = ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])

    assert await pool.fetchval("SELECT status FROM messages WHERE id = $1", message) == "queued"
    assert await pool.fetchval("SELECT count(*) FROM recipients WHERE message_id = $1", message) == 3
    events = await pool.fetch("SELECT seq, type FROM events WHERE account_id = $1", account.id)
    assert [(event["seq"], event["type"]) for event in events] == [(1, "accepted")]
    rows = await pool.fetch("SELECT domain, recipients FROM queue WHERE message_id = $1 ORDER BY domain", message)
    assert [(row["domain"], orjson.loads(row["recipients"])) for row in rows] == [
        ("one.test", [[0, "a@one.test"], [1, "b@one.test"]]),
        ("two.test", [[2, "c@two.test"]]),
    ]


async def test_every_field_at_its_bound_is_accepted(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    stream = "s" * 30 + "-" + "1" * 33
    await add_stream(pool, account.id, stream)
    name = "N" * (320 - len(f" <{account.sender}>"))
    request = account.email(
        **{"from": f"{name} <{account.sender}>"},
        to=[f"to{number}@people.test" for number in range(48)],
        cc=["cc@people.test"],
        bcc=["bcc@people.test"],
        subject="s" * 998,
        text="t" * 5_000_000,
        html="<p>h</p>",
        replyTo="r@people.test",
        headers={"X-" + "h" * 198: "v" * 2000},
        listUnsubscribe="https://shop.test/" + "u" * 982,
        stream=stream,
        tags=["t" * 64] * 10,
        metadata={"n" * 64: "v" * 512},
        idempotencyKey="k" * 255,
        attachments=[PDF | {"filename": "f" * 251 + ".pdf"}] * 100,
    )
    for _ in range(20):  # until the new stream is known everywhere
        answer = await api.post("/v1/emails", account.token, request)
        if answer.status == 202:
            break

    assert answer.status == 202, answer


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"from": None}, "from"),
        ({"from": "ab"}, "from"),
        ({"from": "x" * 309 + "@people.test"}, "from"),
        ({"from": 5}, "from"),
        ({"from": None, "From": "a@b.test"}, "From"),
        ({"from": "a@b.test, c@d.test"}, "from"),
        ({"to": None}, "to"),
        ({"to": []}, "to"),
        ({"to": "ab"}, "to"),
        ({"to": ["a@b.test", "x" * 321]}, "to[1]"),
        ({"to": [5]}, "to[0]"),
        ({"to": {"address": "a@b.test"}}, "to"),
        ({"cc": "a@b.test"}, "cc"),
        ({"bcc": [None]}, "bcc[0]"),
        ({"subject": "s" * 999}, "subject"),
        ({"subject": ["s"]}, "subject"),
        ({"text": None}, "text"),
        ({"text": "t" * 5_000_001}, "text"),
        ({"text": 1.5}, "text"),
        ({"html": "h" * 5_000_001}, "html"),
        ({"replyTo": "r" * 321}, "replyTo"),
        ({"replyTo": "nonsense"}, "replyTo"),
        ({"headers": {"X-0": "", "X-A": 5}}, "headers.X-A"),
        ({"headers": [["X-A", "v"]]}, "headers"),
        ({"headers": {"List-Help": "<https://shop.test/ü>"}}, "headers.List-Help"),
        ({"listUnsubscribe": "u" * 1001}, "listUnsubscribe"),
        ({"stream": ""}, "stream"),
        ({"stream": "s" * 65}, "stream"),
        ({"stream": "Upper"}, "stream"),
        ({"stream": "a--b"}, "stream"),
        ({"stream": "nobody-made-this"}, "stream"),
        ({"tags": ["t"] * 11}, "tags"),
        ({"tags": [""]}, "tags[0]"),
        ({"tags": ["t" * 65]}, "tags[0]"),
        ({"tags": "t"}, "tags"),
        ({"metadata": {"": "v"}}, "metadata"),
        ({"metadata": {"n" * 65: "v"}}, "metadata"),
        ({"metadata": {"m": "", "n": "v" * 513}}, "metadata.n"),
        ({"metadata": {"n": None}}, "metadata.n"),
        ({"idempotencyKey": ""}, "idempotencyKey"),
        ({"idempotencyKey": "k" * 256}, "idempotencyKey"),
        ({"attachments": [PDF] * 101}, "attachments"),
        ({"attachments": [PDF | {"filename": ""}]}, "attachments[0].filename"),
        ({"attachments": [PDF | {"filename": "f" * 256}]}, "attachments[0].filename"),
        ({"attachments": [PDF | {"contentType": "x" * 201}]}, "attachments[0].contentType"),
        ({"attachments": [PDF | {"content": "not base64!"}]}, "attachments[0].content"),
        ({"attachments": [PDF, PDF | {"content": None}]}, "attachments[1].content"),
        ({"attachments": [PDF | {"disposition": "none"}]}, "attachments[0].disposition"),
        ({"attachments": [PDF | {"cid": "c" * 201}]}, "attachments[0].cid"),
        ({"attachments": [PDF | {"size": 5}]}, "attachments[0].size"),
        ({"attachments": [{"filename": "a.pdf", "contentType": "application/pdf"}]}, "attachments[0].content"),
        ({"template": "Welcome", "text": None}, "template"),
        ({"template": "welcome", "text": None, "variables": {"a": "v" * 5001}}, "variables.a"),
        ({"template": "welcome", "text": None, "variables": {"a": 1}}, "variables.a"),
        ({"template": "welcome", "text": None, "variables": {"": "v"}}, "variables"),
        ({"template": "welcome", "text": None, "templateVersion": 0}, "templateVersion"),
        ({"templateVersion": 0}, "templateVersion"),
        ({"scheduledAt": "2999-01-01T00:00:00Z"}, "scheduledAt"),
        ({"scheduledAt": "z" * 41}, "scheduledAt"),
        ({"scheduledAt": 5}, "scheduledAt"),
        ({"deliverBy": "2999-01-01T00:00:00Z"}, "deliverBy"),
        ({"body": "text"}, "body"),
        ({"reply_to": "a@b.test"}, "reply_to"),
        ({"idempotency-key": "x"}, "idempotency-key"),
    ],
    ids=lambda value: repr(value)[:60],
)  # fmt: skip
async def test_a_field_outside_its_bounds_is_refused_by_name(
    api: Api, account: TestAccount, fields: dict[str, Any], field: str
) -> None:
    answer = await send(api, account, **fields)

    assert (await refused(api, account, answer, 400, "invalid_request"))["field"] == field


@pytest.mark.parametrize(
    "letter", ["\u0085", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x7f", "\x01", "\ufeff", "\u202e"]
)
async def test_other_control_characters_are_taken_or_refused_but_never_a_fault(
    api: Api, account: TestAccount, letter: str
) -> None:
    for field in ("subject", "text", "html"):
        assert (await send(api, account, **{field: f"a{letter}b"})).status in {202, 400}, field
    for fields in (
        {"from": f"a{letter}b <{account.sender}>"}, {"to": f"a{letter}b <{ADDRESS}>"},
        {"headers": {"X-A": f"a{letter}b"}}, {"tags": [f"a{letter}b"]}, {"metadata": {f"a{letter}": letter}},
        {"idempotencyKey": letter}, {"attachments": [PDF | {"filename": f"a{letter}b.pdf"}]},
    ):  # fmt: skip
        assert (await send(api, account, **fields)).status in {202, 400, 422}, fields


LONE = b"\\ud800"


@pytest.mark.parametrize(
    "field", ["from", "to", "subject", "text", "html", "replyTo", "listUnsubscribe", "idempotencyKey"]
)
async def test_a_lone_surrogate_is_refused(api: Api, account: TestAccount, field: str) -> None:
    body = orjson.dumps(account.email(**{field: "SPOT"})).replace(b"SPOT", b"a@b" + LONE + b".test")
    answer = await api.post("/v1/emails", account.token, body=body)

    await refused(api, account, answer, 400, "invalid_request")


@pytest.mark.parametrize("spot", [
    b'"tags":["@"]', b'"metadata":{"@":"v"}', b'"metadata":{"n":"@"}', b'"headers":{"X-A":"@"}', b'"headers":{"@":"v"}',
    b'"cc":["@"]', b'"attachments":[{"filename":"@","contentType":"a/b","content":""}]', b'"@":1',
])  # fmt: skip
async def test_a_lone_surrogate_is_refused_inside_lists_and_objects(
    api: Api, account: TestAccount, spot: bytes
) -> None:
    body = orjson.dumps(account.email())[:-1] + b"," + spot.replace(b"@", LONE) + b"}"

    await refused(api, account, await api.post("/v1/emails", account.token, body=body), 400, "invalid_request")


@pytest.mark.parametrize("body", [
    b"", b"null", b"[]", b'"x"', b"5", b"true", b"{", b'{"from":', b"{}x", b"{'from': 'x'}", b"[NaN]", b'{"text": NaN}',
    b'{"from": Infinity}', b'{"text": -Infinity}', b"\xff\xfe{}", b'{"text": "\xff"}', b'{"subject": "\xc3("}',
    b"\xef\xbb\xbf{}", b"\0", b'{"text": "a\nb"}', b"//", b'{"from": "a@b.test",}', b"[" * 100_000,
    b'{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"to":' + b'{"a":' * 100_000,
    b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"templateVersion": 1e999}',
    b'{"templateVersion": ' + b"9" * 5000 + b"}",
], ids=lambda body: repr(body[:30]))  # fmt: skip
async def test_a_body_that_is_no_request_is_a_400(api: Api, account: TestAccount, body: bytes) -> None:
    await refused(api, account, await api.post("/v1/emails", account.token, body=body), 400, "invalid_request")


@pytest.mark.parametrize(("encoding", "expected"), [
    ("utf-8-sig", "begins with a byte order mark"),
    ("utf-16", "seems to be UTF-16: it begins with the bytes FF FE"),
    ("utf-16-le", "seems to be UTF-16: it begins with the bytes 7B 00"),
    ("utf-16-be", "seems to be UTF-16: it begins with the bytes 00 7B"),
    ("utf-32", "seems to be UTF-32: it begins with the bytes FF FE 00 00"),
    ("utf-32-le", "seems to be UTF-32: it begins with the bytes 7B 00 00 00"),
    ("utf-32-be", "seems to be UTF-32: it begins with the bytes 00 00 00 7B"),
    ("latin-1", "byte 15 is FC, 'ü' in Latin-1"),
    ("cp1252", "byte 15 is FC, 'ü' in Latin-1"),
])  # fmt: skip
async def test_a_body_that_is_not_utf_8_is_told_its_encoding(
    api: Api, account: TestAccount, encoding: str, expected: str
) -> None:
    answer = await api.post("/v1/emails", account.token, body='{"subject": "Grüße"}'.encode(encoding))

    assert answer.status == 400
    assert expected in answer.json["error"]["message"]
    assert "Send UTF-8 without" in answer.json["error"]["message"]


async def test_a_field_given_twice_is_the_last_or_refused(api: Api, account: TestAccount) -> None:
    body = orjson.dumps(account.email())[:-1] + b',"subject":"second"}'

    assert (await api.post("/v1/emails", account.token, body=body)).status in {202, 400}


@pytest.mark.parametrize("declared", ["text/plain", "multipart/form-data; boundary=x", "application/xml", "nonsense"])
async def test_another_media_type_is_refused(api: Api, account: TestAccount, declared: str) -> None:
    answer = await api.post("/v1/emails", account.token, account.email(), headers={"Content-Type": declared})

    await refused(api, account, answer, 415, "unsupported_media_type")


async def test_a_compressed_body_is_refused_in_words(api: Api, account: TestAccount) -> None:
    answer = await api.post("/v1/emails", account.token, account.email(), headers={"Content-Encoding": "gzip"})

    await refused(api, account, answer, 415, "unsupported_media_type")


async def test_json_with_a_charset_is_json(api: Api, account: TestAccount) -> None:
    for declared in ("application/json; charset=utf-8", "Application/JSON"):
        answer = await api.post("/v1/emails", account.token, account.email(), headers={"Content-Type": declared})
        assert answer.status == 202


@pytest.mark.parametrize("text", ["xx@", "@people.test", "a b@people.test", "a@people", "a@[127.0.0.1]", "a@b@c.test",
                                  "a@-x.test", "<a@b.test", "x" * 65 + "@people.test"])  # fmt: skip
async def test_a_bad_recipient_is_refused_with_the_address(api: Api, account: TestAccount, text: str) -> None:
    answer = await send(api, account, to=["good@people.test", text])
    evidence = await refused(api, account, answer, 422, "invalid_address", "to[1]")

    assert evidence["address"] == text


async def test_unverified_and_foreign_domains_are_refused_with_the_domain(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, verified=False)
    stranger = await make_account(pool)

    for sender, domain in (
        (account.sender, account.domain),
        (stranger.sender, stranger.domain),
        (f"x@sub.{account.domain}", f"sub.{account.domain}"),
        (f"Shop <X@{stranger.domain.upper()}>", stranger.domain),
    ):
        answer = await send(api, account, **{"from": sender})
        assert (await refused(api, account, answer, 403, "domain_not_verified"))["domain"] == domain


async def test_a_suppressed_recipient_refuses_the_whole_message_with_its_evidence(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await suppressions.ADD.execute(pool, [account.id], [ADDRESS], ["complaint"], [None], [None])
    answer = await send(api, account, to=["good@people.test", "ANN@people.test"])
    evidence = await refused(api, account, answer, 422, "suppressed")

    assert (evidence["address"], evidence["reason"]) == ("ANN@people.test", "complaint")
    assert (await api.get("/v1/messages", account.token)).json["data"] == []
    rows = await pool.fetch("SELECT seq, type, message_id, payload FROM events WHERE account_id = $1", account.id)
    assert [(row["seq"], row["type"], row["message_id"]) for row in rows] == [(1, "suppressed", None)]
    assert orjson.loads(rows[0]["payload"]) == {
        "type": "suppressed",
        "messageId": None,
        "detail": {"address": "ANN@people.test", "reason": "complaint"},
    }


async def test_another_accounts_suppression_does_not_count(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    stranger = await make_account(pool)
    await suppressions.ADD.execute(pool, [stranger.id], [ADDRESS], ["bounce"], [None], [None])

    assert (await send(api, account)).status == 202
    assert (await send(api, stranger)).status == 422


async def test_a_blocked_file_type_is_refused_with_its_name(api: Api, account: TestAccount) -> None:
    answer = await send(api, account, attachments=[PDF | {"filename": "invoice\u202efdp.exe"}])

    assert (await refused(api, account, answer, 422, "attachment_blocked"))["filename"] == "invoice\u202efdp.exe"


async def test_to_is_one_address_or_a_list_and_duplicates_fold(api: Api, account: TestAccount) -> None:
    answer = await send(api, account, to=[ADDRESS, f"Ann <{ADDRESS}>", "ANN@PEOPLE.test"], cc=[ADDRESS], bcc=[ADDRESS])
    found = (await api.get(f"/v1/messages/{answer.json['id']}", account.token)).json

    assert [(one["address"], one["kind"]) for one in found["recipients"]] == [(ADDRESS, "to")]
    assert (await send(api, account, to=[f"a{n % 50}@people.test" for n in range(100)])).status == 202


async def test_an_empty_attachment_and_an_empty_subject_are_fine(api: Api, account: TestAccount) -> None:
    empty = PDF | {"content": "", "filename": "empty.txt", "cid": ""}

    assert (await send(api, account, subject="", text="", attachments=[empty], variables={})).status == 202
    assert (await send(api, account, subject=None, cc=[], bcc=[], tags=[], metadata={}, headers={})).status == 202


async def test_an_attachment_of_ten_mebibytes_is_taken_and_one_more_letter_refused(
    api: Api, account: TestAccount
) -> None:
    content = base64.b64encode(bytes(10_485_762)).decode()
    assert len(content) == 13_981_016

    assert (await send(api, account, attachments=[PDF | {"content": content}])).status == 202
    answer = await send(api, account, attachments=[PDF | {"content": content + "AAAA"}])
    assert (answer.status, answer.error["field"]) == (400, "attachments[0].content")
