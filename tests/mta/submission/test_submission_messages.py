"""Messages over SMTP: unchanged, refused as in the API, and never stored in part."""

import asyncio
import smtplib
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import Settings
from engine.mail.read import bodies
from engine.sending.messages.rules import content_of, files_of
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, add_domain, make_account
from tests.harness.patience import PATIENCE_S
from tests.harness.submission import Client, TestRelay, by_smtplib, composed, message, relaying
from tests.mta.submission.stored import count, recipients, stored

FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON message_bodies FOR EACH ROW EXECUTE FUNCTION full_disk();
"""
# SMTP smuggling (2023): what some servers take for the end of a message, and others pass on.
FALSE_ENDS = [
    b"\n.\n", b"\n.\r", b"\r.\n", b"\r.\r", b"\n.\r\n", b"\r.\r\n", b"\r\n.\n", b"\r\n.\r", b"\r\n.\r\r\n",
    b"\r\r\n.\r\r\n", b"\r\n\x00.\r\n",
]  # fmt: skip


@pytest.fixture(scope="module")
async def relay(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    async with relaying(settings, tmp_path_factory.mktemp("relay"), max_message_bytes=1024 * 1024) as running:
        yield running


# -- what is kept ------------------------------------------------------------------------------------


async def test_the_clients_message_is_kept_octet_for_octet(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    content = (
        f"X-Mailer:  odd   spacing\t\r\nFrom: Shop <{account.sender}>\r\nTO: ann@people.test\r\n"
        "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n folded\r\nMessage-id: <own@client.test>\r\n"
        "Date: Fri, 20 Nov 2026 08:00:00 +0000\r\n\r\nTrailing blanks  \r\n\tand tabs\r\n\r\n\r\n"
    ).encode()
    row = await stored(pool, await client.send(account, content))
    trace, _, kept = bytes(row["mime"]).partition(b"+0000\r\n")
    feedback, _, own = kept.partition(b"\r\n")
    assert own == content
    assert feedback.startswith(b"Feedback-ID: ")
    assert trace.startswith(b"Received: by mail.waybill.test with ESMTPSA id msg_")
    assert b"127.0.0.1" not in trace
    assert row["source"] == "smtp"
    assert row["subject"] == "Grüße folded"


async def test_missing_date_and_message_id_are_added(client: Client, account: TestAccount, pool: asyncpg.Pool) -> None:
    row = await stored(pool, await client.send(account, message(account, head="Date: \r\n")))
    head = bytes(row["mime"]).partition(b"\r\n\r\n")[0]
    assert head.count(b"\nDate: ") == 1
    assert f"\nMessage-ID: <{ids.encode(row['id'])}@{account.domain}>".encode() in head


async def test_blind_copies_and_return_paths_are_taken_out(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    head = (
        "Bcc: hidden@people.test,\r\n second@people.test\r\nReturn-Path: <x@y.test>\r\nresent-bcc : z@people.test\r\n"
    )
    reply = await client.send(account, message(account, head=head), "ann@people.test", "hidden@people.test")
    row = await stored(pool, reply)
    mime = bytes(row["mime"])
    for word in (b"hidden", b"second", b"Return-Path", b"z@people"):
        assert word not in mime
    assert await recipients(pool, row) == [("to", "ann@people.test", None), ("bcc", "hidden@people.test", None)]


async def test_complaint_fields_of_the_client_are_replaced_by_ours(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    head = "CFBL-Address: me@evil.test;\r\n report=arf\r\ncfbl-feedback-id: evil\r\nFeedback-ID: a:b:c:evilsender\r\n"
    mime = bytes((await stored(pool, await client.send(account, message(account, head=head))))["mime"])
    assert b"evil" not in mime
    assert mime.lower().count(b"feedback-id: ") == 1  # the domain of the test has no return-path host


async def test_recipients_are_those_of_the_envelope_and_the_header_says_their_kind(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    content = message(
        account,
        to='"Smith, Ann" <Ann@People.test>, team: bob@people.test, c@people.test;, never@sent.test',
        head="Cc: =?utf-8?q?J=C3=B6rg?= <joerg@people.test>, bob@people.test\r\n",
    )
    to = ("dan@people.test", "joerg@people.test", "bob@people.test", "ann@people.test", "ANN@people.test")
    row = await stored(pool, await client.send(account, content, *to))
    assert await recipients(pool, row) == [
        ("to", "bob@people.test", None),
        ("to", "ann@people.test", "Smith, Ann"),
        ("cc", "joerg@people.test", "Jörg"),
        ("bcc", "dan@people.test", None),
    ]


async def test_a_quoted_local_part_is_a_recipient(client: Client, account: TestAccount, pool: asyncpg.Pool) -> None:
    found = await stored(pool, await client.send(account, message(account), '"Ann <a> B"@people.test'))
    query = "SELECT address FROM recipients WHERE message_id = $1"
    assert [row["address"] for row in await pool.fetch(query, found["id"])] == ['"Ann <a> B"@people.test']


async def test_dots_are_unstuffed_once(client: Client, account: TestAccount, pool: asyncpg.Pool) -> None:
    row = await stored(pool, await client.send(account, message(account, body="..\r\n...x\r\n.y\r\na.\r\n")))
    assert bytes(row["mime"]).endswith(b"\r\n\r\n.\r\n..x\r\ny\r\na.\r\n")


async def test_a_message_arrives_whole_however_it_is_cut(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await client.envelope(account)
    for octet in message(account, body="..cut\r\n") + b".\r\n":
        await client.write(bytes((octet,)))
    row = await stored(pool, await client.reply())
    assert bytes(row["mime"]).endswith(b"\r\n\r\n.cut\r\n")


async def test_attachments_are_recorded_and_read_back(
    relay: TestRelay, account: TestAccount, pool: asyncpg.Pool
) -> None:
    mail = composed(account)
    mail.add_alternative("<p>Hello!</p>", subtype="html")
    mail.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Rechnung – März.pdf")
    mail.add_attachment(b"\x00\x01", maintype="application", subtype="octet-stream", filename="a b.bin")
    await by_smtplib(relay, account, lambda smtp: smtp.send_message(mail))
    row = await pool.fetchrow(
        "SELECT m.attachments, b.mime, e.payload FROM messages m JOIN message_bodies b ON b.message_id = m.id "
        "JOIN events e ON e.message_id = m.id WHERE m.account_id = $1",
        account.id,
    )
    assert row is not None
    files = files_of(row["attachments"])
    assert [(one.filename, one.content_type, one.size_bytes) for one in files] == [
        ("Rechnung – März.pdf", "application/pdf", 4),
        ("a b.bin", "application/octet-stream", 2),
    ]
    assert [content_of(bytes(row["mime"]), files, one) for one in files] == [b"%PDF", b"\x00\x01"]
    said = bodies(bytes(row["mime"]))
    assert (said.text, said.html) == ("Hello!\n", "<p>Hello!</p>\n")
    detail = orjson.loads(row["payload"])["detail"]
    assert detail["source"] == "smtp"
    assert [one["filename"] for one in detail["attachments"]] == ["Rechnung – März.pdf", "a b.bin"]


async def test_utf8_headers_need_smtputf8(relay: TestRelay, account: TestAccount, pool: asyncpg.Pool) -> None:
    client = await relay.logged_in(account)
    content = message(account, head="X-Note: grün\r\n")
    assert (await client.send(account, content)).startswith("550 5.6.7 [invalid_request] ")
    assert (await client.say(f"MAIL FROM:<{account.sender}> SMTPUTF8 BODY=8BITMIME")).startswith("250 ")
    assert (await client.say("RCPT TO:<jörg@people.test>")).startswith("250 ")
    assert (await client.say("DATA")).startswith("354 ")
    await client.write(content + b".\r\n")
    row = await stored(pool, await client.reply())
    assert row["smtputf8"] is True
    assert b" with UTF8SMTPSA id " in row["mime"]
    await client.say(f"MAIL FROM:<{account.sender}> SMTPUTF8")
    await client.say("RCPT TO:<ann@people.test>")
    await client.say("DATA")
    await client.write(content.replace("ü".encode(), b"\xfc") + b".\r\n")
    assert (await client.reply()).startswith("550 5.6.7 ")
    await client.close()


async def test_8_bit_content_is_encoded_before_it_is_signed(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    row = await stored(pool, await client.send(account, message(account, body="Grüße\r\n")))
    kept = message_from_bytes(bytes(row["mime"]), policy=policy.default)
    assert bytes(row["mime"]).isascii()
    assert kept.get_content() == "Grüße\r\n"


# -- what must never pass ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", FALSE_ENDS, ids=repr)
async def test_a_false_end_of_data_ends_nothing_and_smuggles_nothing(
    end: bytes, client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    smuggled = (
        f"MAIL FROM:<{account.sender}>\r\nRCPT TO:<victim@people.test>\r\nDATA\r\nFrom: {account.sender}\r\n\r\nx"
    )
    reply = await client.send(account, message(account) + end + smuggled.encode() + b"\r\n")
    assert reply.startswith("550 5.6.11 [invalid_request] ")
    assert await count(pool, account) == 0
    assert (await client.send(account, message(account))).startswith("250 ")  # the session is in step
    assert await count(pool, account) == 1


@pytest.mark.parametrize("octets", [b"a\rb", b"a\nb", b"a\x00b", b"\r\r\n", b"\n\r\n"])
async def test_bare_line_ends_and_nul_are_refused(octets: bytes, client: Client, account: TestAccount) -> None:
    reply = await client.send(account, message(account) + octets + b"\r\n")
    assert reply.startswith("550 5.6.11 [invalid_request] ")


async def test_lines_of_998_octets_pass_and_longer_ones_do_not(client: Client, account: TestAccount) -> None:
    assert (await client.send(account, message(account, body="x" * 998 + "\r\n"))).startswith("250 ")
    for length in (999, 2_000, 300_000):
        reply = await client.send(account, message(account, body="a\r\n" + "x" * length + "\r\nb\r\n"))
        assert reply.startswith("500 5.6.0 [invalid_request] A line is longer"), reply


async def test_too_large_content_is_refused_after_its_end_and_the_session_goes_on(
    client: Client, account: TestAccount, relay: TestRelay
) -> None:
    limit = relay.settings.max_message_bytes
    assert (await client.say(f"MAIL FROM:<{account.sender}> SIZE={limit + 1}")).startswith("552 5.3.4 ")
    reply = await client.send(account, message(account, body=("x" * 98 + "\r\n") * (limit // 50)))
    assert reply.startswith("552 5.3.4 [payload_too_large] ")
    assert (await client.send(account, message(account))).startswith("250 ")
    assert relay.services.server.memory.held == 0


async def test_content_of_exactly_the_limit_passes_whatever_dots_it_holds(
    client: Client, account: TestAccount, relay: TestRelay, pool: asyncpg.Pool
) -> None:
    head = message(account, body="")
    body = b".\r\n" + (b"x" * 98 + b"\r\n") * 20_000
    content = (head + body)[: relay.settings.max_message_bytes - 2] + b"\r\n"
    row = await stored(pool, await client.send(account, content.replace(b"\r\n.", b"\r\n..")))
    assert bytes(row["mime"]).endswith(content)


@pytest.mark.parametrize(
    ("header", "reply"),
    [
        ("To: ann@people.test", "550 5.6.0 [invalid_request] The message has no From field"),
        ("From: {sender}\r\nFrom: {sender}", "550 5.6.0 [invalid_request] The message has 2 From fields"),
        ("From: {sender}\r\nfrom : evil@other.test", "550 5.6.0 [invalid_request] The message has 2 From fields"),
        ("From: {sender}, b@other.test", "550 5.6.0 [invalid_request] From contains 2 addresses"),
        ("From: a@other.test <{sender}>", "550 5.6.0 [invalid_request] From is not an address"),
        ("From: <a@other.test> <{sender}>", "550 5.6.0 [invalid_request] From is not an address"),
        ("From:", "550 5.6.0 [invalid_request] From contains no addresses"),
        ("From: group:;", "550 5.6.0 [invalid_request] From contains no addresses"),
        ("From: shop", "550 5.6.0 [invalid_request] From is not an address"),
        ("From: a@other.test", "550 5.7.1 [domain_not_verified] other.test isn't"),
        ("From: {sender}\r\nno field", "550 5.6.0 [invalid_request] A line of the header isn't a field"),
        (" folded\r\nFrom: {sender}", "550 5.6.0 [invalid_request] The header begins with"),
        ("From: {sender}\r\n \t\r\nX: y", "550 5.6.0 [invalid_request] The header begins with"),
        (
            "From: {sender}\r\nSubject: a\r\nSubject: b",
            "550 5.6.0 [invalid_request] The header has more than one subject",
        ),
        (
            "From: {sender}\r\nX-Waybill-Stream: nope",
            "550 5.6.0 [invalid_request] Your account has no stream named 'nope'",
        ),
        ("From: {sender}\r\nX-Waybill-Strem: a", "550 5.6.0 [invalid_request] Unknown header `X-Waybill-Strem`"),
        ("From: {sender}\r\nX-Waybill-Data: {{}}", "550 5.6.0 [invalid_request] `X-Waybill-Data` needs"),
        ("From: {sender}\r\nX-Waybill-Variables: {{}}", "550 5.6.0 [invalid_request] `X-Waybill-Variables` needs"),
    ],
)
async def test_a_message_that_can_not_be_sent_is_refused_for_good(
    header: str, reply: str, client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    content = header.format(sender=account.sender).encode() + b"\r\n\r\nhello\r\n"
    said = await client.send(account, content)
    assert said.startswith(reply), said
    assert await count(pool, account) == 0


async def test_a_message_on_its_way_round_is_stopped(client: Client, account: TestAccount) -> None:
    for hops, code in ((50, "250 2.0.0 "), (51, "554 5.4.6 [invalid_request] ")):
        head = "Received: from a by b; Fri, 20 Nov 2026 08:00:00 +0000\r\n" * hops
        assert (await client.send(account, message(account, head=head))).startswith(code)


async def test_headers_beyond_all_measure_are_refused(client: Client, account: TestAccount) -> None:
    for head in ("X-A: b\r\n" * 1_001, "X-A: " + ("x" * 900 + "\r\n ") * 120 + "y\r\n"):
        assert (await client.send(account, message(account, head=head))).startswith("550 5.6.0 [invalid_request] ")


@pytest.mark.parametrize("name", ["run.exe", "a.PDF.exe", "=?utf-8?q?run.exe?=", "photo.jpg.js"])
async def test_blocked_attachments_are_refused(name: str, client: Client, account: TestAccount) -> None:
    head = f'Content-Type: application/pdf; name="ok.pdf"\r\nContent-Disposition: attachment; filename="{name}"\r\n'
    reply = await client.send(account, message(account, head=head))
    assert reply.startswith("550 5.7.0 [attachment_blocked] ")


async def test_every_name_of_an_attachment_counts(client: Client, account: TestAccount) -> None:
    for head in (
        'Content-Type: application/pdf; name="run.exe"\r\nContent-Disposition: attachment; filename="ok.pdf"\r\n',
        "Content-Disposition: attachment; filename*0=run.e; filename*1=xe\r\n",
        "Content-Disposition: attachment; filename=ok.pdf; filename*=utf-8''run%2Eexe\r\n",
    ):
        reply = await client.send(account, message(account, head=head))
        assert reply.startswith("550 5.7.0 [attachment_blocked] "), head


async def test_one_suppressed_recipient_refuses_the_whole_message(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'bob@people.test', 'bounce')", account.id
    )
    reply = await client.send(account, message(account), "ann@people.test", "bob@people.test")
    assert reply.startswith("550 5.7.1 [suppressed] bob@people.test is on your suppression list")
    assert await count(pool, account) == 0
    types = await pool.fetch("SELECT type FROM events WHERE account_id = $1", account.id)
    assert [row["type"] for row in types] == ["suppressed"]


# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "kind"), [("daily_cap", "daily_limit_reached"), ("monthly_cap", "monthly_limit_reached")]
)
async def test_quota_is_refused_for_now(cap: str, kind: str, relay: TestRelay, pool: asyncpg.Pool) -> None:
    caps: dict[str, Any] = {cap: 1}
    account = await make_account(pool, **caps)
    client = await relay.logged_in(account)
    assert (await client.send(account, message(account))).startswith("250 ")
    assert (await client.send(account, message(account))).startswith(f"452 4.7.1 [{kind}] ")
    assert await count(pool, account) == 1
    await client.close()


async def test_the_platform_ceiling_is_refused_for_now(settings: Settings, pool: asyncpg.Pool, tmp_path: Path) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path, platform_daily_ceiling=0) as closed:
        client = await closed.logged_in(account)
        assert (await client.send(account, message(account))).startswith("452 4.3.2 [platform_paused] ")
        await client.close()


async def test_the_request_rate_is_refused_for_now_at_mail(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path, request_rate=1) as slow:
        client = await slow.logged_in(account)
        replies = []
        for _ in range(4):
            replies.append(await client.say(f"MAIL FROM:<{account.sender}>"))
            await client.say("RSET")
        assert replies[0].startswith("250 ")
        assert replies[-1].startswith("451 4.7.0 [rate_limited] ")
        await client.close()


async def test_an_absent_database_is_refused_for_now_and_nothing_is_lost(
    settings: Settings, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await make_account(pool)
    async with relaying(settings, tmp_path) as relay:
        client = await relay.logged_in(account)
        assert (await client.send(account, message(account))).startswith("250 ")
        relay.services.pool.terminate()
        assert (await client.send(account, message(account))).startswith("451 4.3.0 [unavailable] ")
        assert await count(pool, account) == 1
        await client.close()


async def test_a_full_disk_is_told_by_its_own_code(
    settings: Settings, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = await new_database()
    async with relaying(structs.replace(settings, database_url=url), tmp_path) as relay:
        own = relay.services.pool
        account = await make_account(own)
        client = await relay.logged_in(account)
        await own.execute(FULL_DISK)
        assert (await client.send(account, message(account))).startswith("452 4.3.1 [unavailable] Insufficient system ")
        await own.execute("DROP TRIGGER full_disk ON message_bodies")
        assert (await client.send(account, message(account))).startswith("250 ")
        assert await count(own, account) == 1
        await client.close()


# -- who sends ---------------------------------------------------------------------------------------------


async def test_any_verified_domain_of_the_account_may_stand_in_from(
    client: Client, account: TestAccount, pool: asyncpg.Pool
) -> None:
    second = f"second-{account.domain}"
    await add_domain(pool, account.id, second)
    content = message(account).replace(account.sender.encode(), f"shop@{second}".encode(), 1)
    async with asyncio.timeout(PATIENCE_S):  # the domain shows within a second
        while not (reply := await client.send(account, content)).startswith("250 "):
            assert "domain_not_verified" in reply
            await asyncio.sleep(0.1)


async def test_another_accounts_domain_is_nobodys(client: Client, account: TestAccount, pool: asyncpg.Pool) -> None:
    other = await make_account(pool)
    assert (await client.send(account, message(other))).startswith("550 5.7.1 [domain_not_verified] ")


@pytest.mark.parametrize("tls", [False, True])
async def test_the_standard_librarys_client_sends(
    tls: bool, relay: TestRelay, account: TestAccount, pool: asyncpg.Pool
) -> None:
    mail: EmailMessage = composed(account, To="Ann <ann@people.test>, bob@people.test", Bcc="eve@people.test")

    def work(smtp: smtplib.SMTP) -> dict[str, tuple[int, bytes]]:
        first = smtp.send_message(mail)
        return first | smtp.send_message(mail)

    assert await by_smtplib(relay, account, work, tls=tls) == {}
    assert await count(pool, account) == 2
