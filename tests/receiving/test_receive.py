"""Storing received messages: rows, events, posts, counts and copies, under parallel mail."""

import asyncio

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.base.settings import Settings
from engine.mail.received import summarise
from engine.receiving.receive import LARGE_BYTES, Receiver
from engine.receiving.types import InboundRecipient, ReceiveOutcome, RecipientPurpose
from tests.harness.account_log import details_logged
from tests.harness.accounts import make_account, set_status
from tests.harness.received_mail import (
    PASSED,
    claim,
    counted_anew,
    counts_of,
    day_counts_of,
    days_counted_anew,
    envelope,
    mail,
    messages_of,
    receive,
    route,
    scanned,
)
from tests.harness.report_mails import genuine_token

STORED, MONTH_USED, GONE = ReceiveOutcome.STORED, ReceiveOutcome.MONTH_USED, ReceiveOutcome.GONE


@pytest.fixture
def receiver(pool: asyncpg.Pool, settings: Settings) -> Receiver:
    return Receiver(pool, settings)


async def add_webhook(pool: asyncpg.Pool, account: object, status: str = "active") -> object:
    """An endpoint of the account that takes all event types."""
    webhook = ids.uuid7()
    await pool.execute(
        "INSERT INTO webhooks (id, account_id, url, status, sealed_secret)"
        " VALUES ($1, $2, 'http://127.0.0.1:1/', $3, '')", webhook, account, status,
    )  # fmt: skip
    return webhook


async def queued(pool: asyncpg.Pool, account: object) -> list[object]:
    """The endpoints that posts of the account wait for."""
    found = await pool.fetch("SELECT webhook_id FROM webhook_queue WHERE account_id = $1 ORDER BY seq", account)
    return [row["webhook_id"] for row in found]


async def test_a_message_is_stored_with_its_bytes_event_and_counts(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    raw = mail("Größe", "Where is my order?", files=[("list.csv", "text/csv", b"a,b")])

    assert await receive(receiver, address.recipient("42"), raw=raw) is STORED

    [row] = await messages_of(pool, account.id)
    assert await pool.fetchval("SELECT bytes FROM inbound_bytes WHERE id = $1", row["raw_id"]) == raw
    assert (row["address"], row["recipient"], row["tag"]) == (address.address, f"support+42@{account.domain}", "42")
    assert (row["subject"], row["size_bytes"], row["action"], row["is_spam"]) == ("Größe", len(raw), "mailbox", False)
    assert orjson.loads(row["sender"]) == {"name": "Ann", "address": "ann@people.test"}
    [file] = orjson.loads(row["attachments"])
    assert (file["filename"], file["size_bytes"], file["scan"]) == ("list.csv", 3, "clean")
    [detail] = await details_logged(pool, account.id, "inbound.received")
    assert detail["inbound_message_id"] == ids.format_id(ids.Kind.RECEIVED, row["id"])
    assert (detail["recipient"], detail["tag"], detail["replies_to"]) == (row["recipient"], "42", None)
    assert detail["authentication"]["dmarc"] == {"result": "pass", "domain": "people.test", "detail": ""}
    assert await counts_of(pool, account.id) == {(True, False, False): 1}
    assert await pool.fetchval("SELECT used FROM plan_usage WHERE account_id = $1", account.id) == 1
    assert await pool.fetchval("SELECT last_received_at FROM inbound_addresses WHERE id = $1", address.id) is not None


async def test_the_same_bytes_are_stored_once_within_a_day_and_again_later(
    pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    first, second = await claim(pool, account), await claim(pool, account, "sales")
    raw = mail()

    together = await asyncio.gather(*[receive(receiver, first.recipient(), raw=raw) for _ in range(5)])
    assert together == [STORED] * 5
    assert await receive(receiver, first.recipient(), second.recipient(), raw=raw) is STORED
    assert await receive(receiver, first.recipient(), raw=raw, sender="bob@people.test") is STORED

    assert [row["address"] for row in await messages_of(pool, account.id)] == [
        first.address, second.address, first.address,
    ]  # fmt: skip
    assert len(await details_logged(pool, account.id, "inbound.received")) == 3
    assert await pool.fetchval("SELECT used FROM plan_usage WHERE account_id = $1", account.id) == 3
    await pool.execute(
        "UPDATE inbound_recent SET stored_at = now() - interval '25 hours' WHERE account_id = $1", account.id
    )
    assert await receive(receiver, first.recipient(), raw=raw) is STORED
    assert len(await messages_of(pool, account.id)) == 4


async def test_mail_without_a_message_id_is_stored_each_time(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    alarm = b"From: ann@people.test\r\nSubject: Door open\r\n\r\nDoor 3 is open.\r\n"
    named = b"Message-ID: <1@people.test>\r\n" + alarm
    forged = named.replace(b"Door 3", b"Door 4")  # a Message-ID that was used before hides nothing

    for raw in (alarm, alarm, named, named, forged):
        assert await receive(receiver, address.recipient(), raw=raw) is STORED
    await asyncio.gather(*[receive(receiver, address.recipient(), raw=alarm) for _ in range(5)])

    assert len(await messages_of(pool, account.id)) == 2 + 1 + 1 + 5


async def test_two_recipients_with_tags_of_one_address_are_one_message(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)

    assert await receive(receiver, address.recipient("a"), address.recipient("b")) is STORED

    [row] = await messages_of(pool, account.id)
    assert row["tag"] == "a"


async def test_accounts_of_one_transaction_share_the_bytes_and_nothing_else(
    pool: asyncpg.Pool, receiver: Receiver
) -> None:
    one, other = await make_account(pool), await make_account(pool)
    addresses = await claim(pool, one), await claim(pool, other)

    assert await receive(receiver, addresses[0].recipient(), addresses[1].recipient()) is STORED

    [mine], [theirs] = await messages_of(pool, one.id), await messages_of(pool, other.id)
    assert (mine["raw_id"], mine["recipient"]) == (theirs["raw_id"], addresses[0].address)
    [detail] = await details_logged(pool, other.id, "inbound.received")
    assert addresses[0].address not in orjson.dumps(detail).decode()


async def test_a_full_month_of_one_account_holds_no_other_back(pool: asyncpg.Pool, receiver: Receiver) -> None:
    full, other = await make_account(pool, plan="starter"), await make_account(pool)
    addresses = await claim(pool, full), await claim(pool, other)
    month = clock.first_of_month(clock.now().date())
    limit = CAPS[Plan.STARTER].monthly_received
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'received_messages', $2, $3)", full.id, month, limit)
    raw = mail()

    assert await receive(receiver, addresses[0].recipient(), addresses[1].recipient(), raw=raw) is MONTH_USED
    assert await receive(receiver, addresses[0].recipient(), addresses[1].recipient(), raw=raw) is MONTH_USED

    assert await messages_of(pool, full.id) == []
    assert len(await messages_of(pool, other.id)) == 1


async def test_the_month_is_exact_under_parallel_mail_to_a_family(pool: asyncpg.Pool, settings: Settings) -> None:
    parent, child = await make_account(pool, plan="starter"), await make_account(pool, plan="starter")
    await pool.execute("UPDATE accounts SET parent_id = $1 WHERE id = $2", parent.id, child.id)
    month = clock.first_of_month(clock.now().date())
    limit = CAPS[Plan.STARTER].monthly_received
    assert limit is not None
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'received_messages', $2, $3)", parent.id, month, limit - 7)
    addresses = [await claim(pool, parent), await claim(pool, child)]
    receivers = [Receiver(pool, settings), Receiver(pool, settings)]

    outcomes = await asyncio.gather(
        *[receive(receivers[turn % 2], addresses[turn // 2 % 2].recipient()) for turn in range(20)]
    )

    assert (outcomes.count(STORED), outcomes.count(MONTH_USED)) == (7, 13)
    used = await pool.fetch(
        "SELECT account_id, used FROM plan_usage WHERE account_id = ANY ($1)", [parent.id, child.id]
    )
    assert [(row["account_id"], row["used"]) for row in used] == [(parent.id, limit)]
    assert len(await messages_of(pool, parent.id)) + len(await messages_of(pool, child.id)) == 7


async def test_suspended_accounts_receive_and_closing_ones_do_not(pool: asyncpg.Pool, receiver: Receiver) -> None:
    suspended, closing = await make_account(pool), await make_account(pool)
    addresses = await claim(pool, suspended), await claim(pool, closing)
    await set_status(pool, suspended.id, "suspended")
    await set_status(pool, closing.id, "closing")

    assert await receive(receiver, addresses[0].recipient()) is STORED
    assert await receive(receiver, addresses[1].recipient()) is GONE
    assert await messages_of(pool, closing.id) == []


async def test_an_address_disabled_or_deleted_since_rcpt_takes_nothing(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    off, away, kept = [await claim(pool, account, local) for local in ("off", "away", "kept")]
    await pool.execute("UPDATE inbound_addresses SET enabled = false WHERE id = $1", off.id)
    await pool.execute("DELETE FROM inbound_addresses WHERE id = $1", away.id)

    for gone in (off, away):
        assert await receive(receiver, gone.recipient(), kept.recipient()) is GONE

    assert [row["address"] for row in await messages_of(pool, account.id)] == [kept.address] * 2


async def test_only_the_endpoint_of_the_route_gets_a_post(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    plain, routed, broken = [await claim(pool, account, local) for local in ("plain", "routed", "broken")]
    wanted, _, off = [await add_webhook(pool, account.id, status) for status in ("active", "active", "disabled")]
    await route(pool, routed, "webhook", webhook_id=wanted, include=["text"])
    await route(pool, broken, "webhook", webhook_id=off)

    for address in (plain, routed, broken):
        assert await receive(receiver, address.recipient()) is STORED

    assert await queued(pool, account.id) == [wanted]
    found = [(row["action"], row["fallback"], row["in_mailbox"]) for row in await messages_of(pool, account.id)]
    assert found == [("mailbox", False, True), ("webhook", False, False), ("mailbox", True, True)]
    assert await counts_of(pool, account.id) == await counted_anew(pool, account.id)
    assert await day_counts_of(pool, account.id) == await days_counted_anew(pool, account.id)


async def test_a_reply_names_the_sent_message_of_its_own_account_only(pool: asyncpg.Pool, receiver: Receiver) -> None:
    account, other = await make_account(pool), await make_account(pool)
    sent = ids.uuid7()
    await pool.execute(
        "INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, recipient_count,"
        " size_bytes) VALUES ($1, $2, 'delivered', 'api', 'a@b.test', 'b.test', '', 'transactional', 1, 1)",
        sent, account.id,
    )  # fmt: skip
    raw = mail(In_Reply_To=f"<{ids.encode(sent)}@b.test>")

    for owner in (account, other):
        address = await claim(pool, owner)
        assert await receive(receiver, address.recipient(), raw=raw) is STORED

    assert [row["replies_to"] for row in await messages_of(pool, account.id)] == [sent]
    assert [row["replies_to"] for row in await messages_of(pool, other.id)] == [None]


async def test_what_postgres_cannot_hold_is_replaced_and_the_bytes_are_kept(
    pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    raw = b"Subject: a\0b \xed\xa0\x80 =?utf-8?B?AAA=?=\r\nFrom: \xff\xfe <a\0@b>\r\nTo: =?x?Q?=00?= <c@d>\r\n"
    raw += b"\r\n\0\x80\r\n"

    assert await receive(receiver, address.recipient("\udcff"), raw=raw, sender="\udcff@x.test") is STORED

    [row] = await messages_of(pool, account.id)
    assert await pool.fetchval("SELECT bytes FROM inbound_bytes WHERE id = $1", row["raw_id"]) == raw


async def test_a_large_message_is_stored_apart_and_its_copy_leaves_no_bytes(
    pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    raw = mail(text="x" * 70 + "\r\n", files=[("a.bin", "application/octet-stream", bytes(LARGE_BYTES))])

    assert await asyncio.gather(*[receive(receiver, address.recipient(), raw=raw) for _ in range(3)]) == [STORED] * 3

    [row] = await messages_of(pool, account.id)
    held = await pool.fetch("SELECT id FROM inbound_bytes WHERE bytes = $1", raw)
    assert [one["id"] for one in held] == [row["raw_id"]]


async def test_reports_are_stored_beside_mail_in_one_transaction(
    pool: asyncpg.Pool, settings: Settings, receiver: Receiver
) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    report = InboundRecipient(
        given="b+token@bounces.mail.test", purpose=RecipientPurpose.BOUNCE, local=genuine_token(settings),
        host="bounces.mail.test",
    )  # fmt: skip
    raw = mail("Undelivered")
    scan = scanned()

    outcome = await receiver.receive(
        envelope(report, address.recipient(), sender=""), raw, summarise(raw), PASSED, scan
    )

    assert outcome is STORED
    [row] = await pool.fetch("SELECT purpose, raw FROM report_mails WHERE local = $1", report.local)
    assert (row["purpose"], row["raw"]) == ("bounce", raw)
    assert len(await messages_of(pool, account.id)) == 1
