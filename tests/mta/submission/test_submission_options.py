"""The API's options in the header of a submitted message: taken, removed, and held to the API's bounds."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.utils import format_datetime

import asyncpg
import orjson
import pytest

from engine.base.settings import Settings
from engine.mail.read import bodies
from engine.sending.messages.rules import content_of, files_of
from tests.harness.accounts import TestAccount, add_stream
from tests.harness.api import Api
from tests.harness.submission import Client, TestRelay, by_smtplib, composed, many, message, relaying
from tests.mta.submission.stored import count, recipients, stored


@pytest.fixture(scope="module")
async def relay(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    async with relaying(settings, tmp_path_factory.mktemp("relay"), max_message_bytes=1024 * 1024) as running:
        yield running


async def test_options_stand_in_the_header_and_are_taken_out(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await add_stream(pool, account.id, "receipts")
    head = (
        "X-Waybill-Stream: receipts\r\nX-Waybill-Tag: one, two\r\nx-waybill-tag: =?utf-8?q?gr=C3=BCn?=\r\n"
        'X-Waybill-Metadata: order=4711\r\nX-Waybill-Metadata: {"customer": "42",\r\n "empty": ""}\r\n'
    )
    row = await stored(pool, await client.send(account, message(account, head=head)))
    assert row["stream"] == "receipts"
    assert orjson.loads(row["tags"]) == ["one", "two", "grün"]
    assert orjson.loads(row["metadata"]) == {"order": "4711", "customer": "42", "empty": ""}
    assert b"aybill-" not in bytes(row["mime"]).partition(b"\r\n\r\n")[0].replace(b"mail.waybill", b"")


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("X-Waybill-Tag: " + ",".join("abcdefghijk"), "X-Waybill-Tag"),
        ("X-Waybill-Tag: " + "x" * 65, "X-Waybill-Tag"),
        ("X-Waybill-Stream: Receipts!", "X-Waybill-Stream"),
        ("X-Waybill-Stream: a\r\nX-Waybill-Stream: b", "X-Waybill-Stream"),
        ("X-Waybill-Metadata: no pair", "X-Waybill-Metadata"),
        ("X-Waybill-Metadata: a=1\r\nX-Waybill-Metadata: a=2", "X-Waybill-Metadata"),
        ('X-Waybill-Metadata: {"a": 1}', "X-Waybill-Metadata"),
        ('X-Waybill-Metadata: {"a": "\\u0000"}', "The metadata contains NUL"),
        ('X-Waybill-Metadata: {"a": ' + "[" * 700, "X-Waybill-Metadata"),
        ("X-Waybill-Metadata: a=" + "x" * 513, "X-Waybill-Metadata"),
        ("X-Waybill-Idempotency-Key: " + "x" * 256, "X-Waybill-Idempotency-Key"),
        ("X-Waybill-Idempotency-Key:", "X-Waybill-Idempotency-Key"),
        ("X-Waybill-Scheduled-At: tomorrow", "scheduledAt"),
        ("X-Waybill-Deliver-By: 2020-01-01T00:00:00Z", "deliverBy"),
        ("X-Waybill-Template-Version: 1", "X-Waybill-Template-Version"),
        ("X-Waybill-Template-Version: one", "X-Waybill-Template-Version"),
        ("X-Waybill-Template: No Slug", "X-Waybill-Template"),
    ],
)
async def test_options_are_held_to_the_bounds_of_the_api(
    header: str, named: str, client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    reply = await client.send(account, message(account, head=header + "\r\n"))
    assert reply.startswith("550 5.6.0 [invalid_request] "), reply
    assert named in reply
    assert await count(pool, account) == 0


async def test_an_idempotency_key_is_taken_once(client: Client, account: TestAccount, pool: asyncpg.Pool) -> None:
    content = message(account, head="X-Waybill-Idempotency-Key: order 4711\r\n")
    first = await client.send(account, content)
    again = await client.send(account, content)
    other = await client.send(account, content.replace(b"Hello!", b"Other!"))
    id_ = first.split()[-1]
    assert again == f"250 2.0.0 duplicate of {id_}"
    assert other == f"250 2.0.0 duplicate of {id_}, which was another message"
    assert await count(pool, account) == 1


async def test_parallel_messages_of_one_key_become_one(
    relay: TestRelay, account: TestAccount, pool: asyncpg.Pool
) -> None:
    clients = [await relay.logged_in(account) for _ in range(8)]
    content = message(account, head="X-Waybill-Idempotency-Key: one\r\n")
    replies = await asyncio.gather(*[client.send(account, content) for client in clients])
    assert sum(" queued as " in reply for reply in replies) == 1
    assert sum(" duplicate of " in reply for reply in replies) == 7
    assert len({reply.split()[4] for reply in replies}) == 1
    assert await count(pool, account) == 1
    for client in clients:
        await client.close()


async def test_a_key_and_more_recipients_than_fit_do_not_lose_the_rest(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await client.say(f"MAIL FROM:<{account.sender}>")
    replies = [await client.say(f"RCPT TO:<{address}>") for address in many(51)]
    assert replies[-1].startswith("452 4.5.3 ")
    await client.say("DATA")
    await client.write(message(account, head="X-Waybill-Idempotency-Key: one\r\n") + b".\r\n")
    assert "can't be split" in await client.reply()
    assert await count(pool, account) == 0


async def test_a_message_may_be_scheduled(client: Client, account: TestAccount, pool: asyncpg.Pool) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    head = f"X-Waybill-Scheduled-At: {due.isoformat()}\r\n"
    reply = await client.send(account, message(account, head=head))
    assert reply.startswith("250 2.0.0 scheduled as msg_")
    row = await stored(pool, reply)
    assert row["status"] == "scheduled"
    assert f"\nDate: {format_datetime(due)}\r\n".encode() in row["mime"], "a Date of ours is that of the sending"
    event = await pool.fetchrow("SELECT type, payload FROM events WHERE message_id = $1", row["id"])
    assert event is not None
    assert (event["type"], orjson.loads(event["payload"])["detail"]["source"]) == ("scheduled", "smtp")


WELCOME = {
    "id": "welcome",
    "subject": "Welcome, {{name}}",
    "html": "<p>Hello {{name}}</p>",
    "text": "Hello {{name}}",
    "variables": [{"name": "name", "required": True}],
}


async def test_a_template_makes_the_message_and_the_rest_is_kept(
    client: Client, account: TestAccount, pool: asyncpg.Pool, api: Api
) -> None:
    assert (await api.post("/v1/templates", account.token, WELCOME)).status == 201
    head = (
        'X-Waybill-Template: welcome\r\nX-Waybill-Variables: {"name":\r\n "Ann & Bob"}\r\nX-Waybill-Tag: t\r\n'
        "Cc: Carl <carl@people.test>\r\nX-Own: kept\r\nX-Mailer: some\r\n"
        "Reply-To: =?utf-8?q?M=C3=BCller=2C_Eva?= <eva@people.test>, help@people.test\r\n"
        "X-Waybill-Idempotency-Key: welcome-1\r\n"
    )
    content = message(account, head=head, body="\r\n", to="Ann <ann@people.test>").replace(b"Subject: Hello\r\n", b"")
    to = ("ann@people.test", "carl@people.test", "eve@people.test")
    row = await stored(pool, await client.send(account, content, *to))
    assert (row["source"], row["template"], row["template_version"]) == ("smtp", "welcome", 1)
    assert (row["subject"], row["reply_to"], orjson.loads(row["tags"])) == (
        "Welcome, Ann & Bob", '"Müller, Eva" <eva@people.test>, help@people.test', ["t"],
    )  # fmt: skip
    said = bodies(bytes(row["mime"]))
    assert (said.text, said.html) == ("Hello Ann & Bob", "<p>Hello Ann &amp; Bob</p>")
    head_octets = bytes(row["mime"]).partition(b"\r\n\r\n")[0]
    assert b"\nX-Own: kept" in head_octets
    answers_to = message_from_bytes(head_octets, policy=policy.default)["Reply-To"].addresses
    assert [(one.display_name, one.addr_spec) for one in answers_to] == [
        ("Müller, Eva", "eva@people.test"), ("", "help@people.test"),
    ]  # fmt: skip
    assert b"aybill-T" not in head_octets
    assert b"eve@" not in head_octets
    assert await recipients(pool, row) == [
        ("to", "ann@people.test", "Ann"), ("cc", "carl@people.test", "Carl"), ("bcc", "eve@people.test", None),
    ]  # fmt: skip
    assert (await client.send(account, content, *to)).startswith("250 2.0.0 duplicate of ")


@pytest.mark.parametrize(
    ("head", "body", "reply"),
    [
        ("X-Waybill-Template: nope", "\r\n", "550 5.6.0 [template_error] "),
        ("X-Waybill-Template: welcome", "\r\n", "550 5.6.0 [template_error] "),
        (
            'X-Waybill-Template: welcome\r\nX-Waybill-Variables: {"name": "A"}',
            "own words\r\n",
            "550 5.6.0 [invalid_request] ",
        ),
        ('X-Waybill-Template: welcome\r\nX-Waybill-Variables: {"name": 1}', "\r\n", "550 5.6.0 [invalid_request] "),
        ("X-Waybill-Template: welcome\r\nX-Waybill-Variables: [1]", "\r\n", "550 5.6.0 [invalid_request] "),
        ("X-Waybill-Template: welcome\r\nX-Waybill-Data: [1]", "\r\n", "550 5.6.0 [invalid_request] "),
        (
            f'X-Waybill-Template: welcome\r\nX-Waybill-Data: {{"name": {"[" * 9}{"]" * 9}}}',
            "\r\n",
            "550 5.6.0 [invalid_request] ",
        ),
    ],
)
async def test_a_template_refuses_as_in_the_api(
    head: str, body: str, reply: str, client: Client, account: TestAccount, pool: asyncpg.Pool, api: Api
) -> None:
    await api.post("/v1/templates", account.token, WELCOME)
    said = await client.send(account, message(account, head=head + "\r\n", body=body))
    assert said.startswith(reply), said
    assert await count(pool, account) == 0


async def test_attachments_and_pictures_go_with_a_template(
    relay: TestRelay, account: TestAccount, pool: asyncpg.Pool, api: Api
) -> None:
    shown = WELCOME | {"html": '<p>Hello {{name}} <img src="cid:logo"></p>'}
    assert (await api.post("/v1/templates", account.token, shown)).status == 201
    mail = composed(account, X_Waybill_Template="welcome", X_Waybill_Variables='{"name": "Ann"}')
    mail.set_content("\n")
    mail.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Preis – Liste.pdf")
    mail.add_attachment(
        b"\x89PNG", maintype="image", subtype="png", cid="<logo>", disposition="inline", filename="l.png"
    )
    await by_smtplib(relay, account, lambda smtp: smtp.send_message(mail))
    row = await pool.fetchrow(
        "SELECT m.attachments, b.mime FROM messages m JOIN message_bodies b ON b.message_id = m.id "
        "WHERE m.account_id = $1",
        account.id,
    )
    assert row is not None
    files = files_of(row["attachments"])
    assert [(one.filename, content_of(bytes(row["mime"]), files, one)) for one in files] == [
        ("Preis – Liste.pdf", b"%PDF"),
        ("l.png", b"\x89PNG"),
    ]
    assert b"Content-ID: <logo>" in row["mime"]
    assert b"multipart/related" in row["mime"]


async def test_with_a_template_somebody_must_stand_in_to(client: Client, account: TestAccount) -> None:
    head = "X-Waybill-Template: welcome\r\n"
    content = message(account, head=head, body="\r\n", to="undisclosed-recipients:;")
    assert "needs a recipient in To" in await client.send(account, content)
    assert (await client.send(account, content.replace(head.encode(), b""))).startswith("250 ")


async def test_content_that_is_not_retained_is_encrypted(
    client: Client, account: TestAccount, pool: asyncpg.Pool, api: Api
) -> None:
    await api.post("/v1/templates", account.token, WELCOME)
    plain = "X-Waybill-Retain-Content: false\r\n"
    filled = f'{plain}X-Waybill-Template: welcome\r\nX-Waybill-Variables: {{"name": "zebra canary"}}\r\n'
    assert (await client.send(account, message(account, head=plain, body="zebra canary\r\n"))).startswith("250 ")
    assert (await client.send(account, message(account, head=filled, body="\r\n"))).startswith("250 ")
    rows = await pool.fetch(
        "SELECT m.content_hours, b.mime, k.hours FROM messages m"
        " JOIN message_bodies b ON b.message_id = m.id JOIN content_keys k ON k.message_id = m.id"
        " WHERE m.account_id = $1",
        account.id,
    )
    assert [(row["content_hours"], row["hours"]) for row in rows] == [(0, 0), (0, 0)]
    assert not any(b"zebra" in row["mime"] for row in rows)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("X-Waybill-Retain-Content: no", "X-Waybill-Retain-Content"),
        ("X-Waybill-Content-Until: 721", "X-Waybill-Content-Until"),
        ("X-Waybill-Content-Until: 1.5", "X-Waybill-Content-Until"),
        ("X-Waybill-Retain-Content: true\r\nX-Waybill-Content-Until: 5", "contentUntil"),
    ],
)
async def test_a_retention_that_makes_no_sense_is_refused(
    head: str, name: str, client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    said = await client.send(account, message(account, head=f"{head}\r\n", body="Hi\r\n"))
    assert said.startswith("550 5.6.0 [invalid_request] "), said
    assert name in said
    assert await count(pool, account) == 0
