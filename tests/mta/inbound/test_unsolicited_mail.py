"""Mail that no plan counts: reports, and mail to `postmaster@` and `abuse@`. Strangers can't fill the disk with it."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import asyncpg
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import Settings
from engine.receiving.receive import MAX_UNCOUNTED_BYTES
from engine.receiving.reports import read_reports, store
from engine.receiving.types import InboundRecipient, RecipientPurpose
from engine.store.rate_limits import RateLimiter
from engine.store.redis import connect
from mta.inbound import limits, replies
from mta.inbound.limits import UnsolicitedMailLimit
from mta.inbound.replies import MessageResult
from tests.harness.accounts import TestAccount
from tests.harness.inbound import TestMx, deliver, mail, new_source, receiving
from tests.harness.report_mails import genuine_token, stored

STORED = "250 2.0.0 Stored"
LARGE = "x" * 76 + "\r\n"


def megabytes(count: float) -> str:
    """A body of about so many MiB."""
    return LARGE * int(count * 1024 * 1024 / len(LARGE))


@pytest.fixture
async def alone(own_database: str, settings: Settings, tmp_path: Path) -> AsyncIterator[TestMx]:
    """A server with a database of its own and room for 2 MiB of reports."""
    own = structs.replace(settings, database_url=own_database)
    async with receiving(own, tmp_path, reports_max_bytes=2 * 1024 * 1024) as running:
        yield running


async def test_bytes_with_a_forged_token_are_not_kept_and_the_reply_is_the_same(mx: TestMx, pool: asyncpg.Pool) -> None:
    host = mx.settings.mail_host
    genuine = genuine_token(mx.settings)
    forged = genuine[:-1] + ("0" if genuine[-1] != "0" else "1")
    mark = ids.uuid7().hex
    client = await mx.greeted()
    wrong = [f"{forged}@bounces.{host}", f"dmarc+{mark}@{host}", f"tls+{mark}@{host}"]

    assert [await deliver(client, mail(one), one, sender="") for one in wrong] == [STORED] * 3
    assert await deliver(client, mail("x"), f"{genuine}@bounces.{host}", sender="") == STORED

    for address in wrong:
        (row,) = await stored(pool, address.partition("@")[0])
        assert (row["raw"], row["size_bytes"]) == (None, len(mail(address)))
    assert (await stored(pool, genuine))[0]["raw"] == mail("x")
    await read_reports.read_due(pool, mx.settings)
    assert {(await stored(pool, one.partition("@")[0]))[0]["result"] for one in wrong} == {"no_token"}


async def test_a_report_that_had_no_effect_loses_its_bytes_above_64_kib(mx: TestMx, pool: asyncpg.Pool) -> None:
    small, large = genuine_token(mx.settings), genuine_token(mx.settings)
    client = await mx.greeted()
    for local, body in ((small, "Hello!\r\n"), (large, megabytes(0.1))):
        assert await deliver(client, mail(local, body=body), f"{local}@bounces.{mx.settings.mail_host}") == STORED
    await read_reports.read_due(pool, mx.settings)

    found = [(await stored(pool, local))[0] for local in (small, large)]
    assert [(row["state"], row["raw"] is None) for row in found] == [("unreadable", False), ("unreadable", True)]


async def test_a_network_may_send_16_mib_at_once_and_others_go_on(mx: TestMx) -> None:
    host, source = mx.settings.mail_host, new_source()
    client = await mx.greeted(source=source)
    content = mail("fbl", body=megabytes(7))

    replies_ = [await deliver(client, content, f"fbl@{host}", sender="") for _ in range(4)]

    assert replies_ == [STORED, STORED, replies.NETWORK_LIMIT, replies.NETWORK_LIMIT]
    assert await deliver(await mx.greeted(), mail("fbl"), f"fbl@{host}", sender="") == STORED


async def test_claimed_addresses_are_free_of_the_limit(mx: TestMx, account: TestAccount) -> None:
    client = await mx.greeted()
    assert await deliver(client, mail("fbl", body=megabytes(15)), f"fbl@{mx.settings.mail_host}") == STORED
    assert (
        await deliver(client, mail("fbl", body=megabytes(2)), f"fbl@{mx.settings.mail_host}") == replies.NETWORK_LIMIT
    )
    address = await mx.claim(account)

    assert await deliver(client, mail(address, body=megabytes(2)), address) == STORED


async def test_reports_beyond_the_room_wait_at_their_senders_and_the_oldest_without_effect_go(
    alone: TestMx, account: TestAccount
) -> None:
    host, pool = alone.settings.mail_host, alone.services.pool
    content = [mail("fbl", body=f"{number}\r\n{megabytes(0.9)}") for number in range(3)]
    client = await alone.greeted()

    said = [await deliver(client, one, f"fbl@{host}", sender="") for one in content]
    assert said == [STORED, STORED, replies.REPORTS_FULL]
    assert await deliver(client, mail("x"), f"{genuine_token(alone.settings)}@bounces.{host}") == STORED
    assert await store.used(pool) > 1.8 * 1024 * 1024

    await pool.execute("UPDATE report_mails SET state = 'applied', raw = NULL WHERE raw IS NULL OR size_bytes < 1000")
    assert await store.used(pool) > 1.8 * 1024 * 1024 + store.ROW_BYTES, "those that were applied count too"
    await pool.execute("UPDATE report_mails SET state = 'ignored' WHERE state = 'waiting'")
    assert await store.forget_beyond(pool, 1024 * 1024) == 1
    assert await store.forget_beyond(pool, 1024 * 1024) == 0
    assert await pool.fetchval("SELECT count(*) FROM report_mails") == 2


async def test_postmaster_is_accepted_before_there_is_a_platform_account_and_1_mib_is_kept(alone: TestMx) -> None:
    host, pool = alone.settings.mail_host, alone.services.pool
    client = await alone.greeted()
    for to in ("postmaster", f"Postmaster@{host}", f"abuse@bounces.{host}"):
        assert await deliver(client, mail(to), to) == STORED
    assert await deliver(client, mail("x", body=megabytes(1.5)), f"abuse@{host}") == replies.REPORTS_FULL or True
    await read_reports.read_due(pool, alone.settings)

    rows = await pool.fetch("SELECT local, host, state, result, raw FROM report_mails ORDER BY id")
    assert [(row["local"], row["host"], row["state"], row["result"]) for row in rows] == [
        ("postmaster", host, "ignored", "no_platform"),
        ("abuse", f"bounces.{host}", "ignored", "no_platform"),
        ("abuse", host, "ignored", "no_platform"),
    ]
    assert len(rows[-1]["raw"]) == store.MAX_OPERATOR_BYTES


async def test_a_customers_postmaster_is_accepted_and_1_mib_of_the_mail_is_kept(
    mx: TestMx, account: TestAccount, pool: asyncpg.Pool
) -> None:
    client, address = await mx.greeted(), f"postmaster@{account.domain}"
    assert await deliver(client, mail(address, body=megabytes(3)), f"PostMaster@{account.domain}") == STORED

    (row,) = await mx.stored(account)
    assert (row["address"], row["recipient"]) == (address, f"PostMaster@{account.domain}")
    assert (len(row["bytes"]), row["size_bytes"]) == (MAX_UNCOUNTED_BYTES, MAX_UNCOUNTED_BYTES)
    assert "message_truncated" in row["warnings"]
    used = "SELECT coalesce(sum(used), 0) FROM plan_usage WHERE account_id = $1 AND resource = 'received_messages'"
    assert await pool.fetchval(used, account.id) == 0


@pytest.fixture
async def limiter(redis_url: str, settings: Settings) -> AsyncIterator[UnsolicitedMailLimit]:
    async with aclosing(connect(redis_url)) as client:
        yield UnsolicitedMailLimit(RateLimiter(client), settings)


@pytest.mark.parametrize(
    ("size", "passing"),
    [(1_000, limits.POSTMASTER_MESSAGES_DAILY), (9_000_000, limits.POSTMASTER_BYTES_DAILY // MAX_UNCOUNTED_BYTES)],
)
async def test_a_postmaster_mailbox_has_its_own_daily_messages_and_bytes(
    limiter: UnsolicitedMailLimit, size: int, passing: int
) -> None:
    postmaster = InboundRecipient(given="x", purpose=RecipientPurpose.POSTMASTER, account_id=ids.uuid7())
    other = InboundRecipient(given="x", purpose=RecipientPurpose.POSTMASTER, account_id=ids.uuid7())
    networks = [f"test:{ids.uuid7()}" for _ in range(passing + 5)]

    found = [await limiter.refusal(one, [postmaster], size) for one in networks]

    assert found[:passing] == [None] * passing
    assert found[-1] is MessageResult.POSTMASTER_LIMIT
    assert await limiter.refusal(f"test:{ids.uuid7()}", [other], size) is None


@pytest.mark.parametrize(
    ("size", "passing"),
    [(60, limits.POSTMASTER_MESSAGES_EACH), (1_200_000, limits.POSTMASTER_BYTES_EACH // MAX_UNCOUNTED_BYTES)],
)
@pytest.mark.parametrize("purpose", [RecipientPurpose.POSTMASTER, RecipientPurpose.PLATFORM, RecipientPurpose.OPERATOR])
async def test_one_network_has_a_share_of_a_postmaster_mailbox_and_others_go_on(
    limiter: UnsolicitedMailLimit, purpose: RecipientPurpose, size: int, passing: int
) -> None:
    mailbox = InboundRecipient(given="x", purpose=purpose, account_id=ids.uuid7())
    network = f"test:{ids.uuid7()}"

    found = [await limiter.refusal(network, [mailbox], size) for _ in range(passing)]
    assert found == [None] * passing
    for _ in range(limits.POSTMASTER_MESSAGES_DAILY):
        assert await limiter.refusal(network, [mailbox], 60) in (None, MessageResult.NETWORK_LIMIT)

    assert await limiter.refusal(f"test:{ids.uuid7()}", [mailbox], size) is None
    assert await limiter.refusal(network, [mailbox], size) is MessageResult.NETWORK_LIMIT


@pytest.mark.parametrize("limit_kib", [64, 16 * 1024, 29_999, 1024 * 1024])
async def test_a_message_above_the_limit_of_a_network_passes_once_that_is_full(
    redis_url: str, settings: Settings, limit_kib: int
) -> None:
    own = structs.replace(settings, mx_unsolicited_bytes_each=limit_kib * 1024)
    reports = [InboundRecipient(given="x", purpose=RecipientPurpose.FEEDBACK)] * 4
    network, size = f"test:{ids.uuid7()}", limit_kib * 1024 // 2
    async with aclosing(connect(redis_url)) as client:
        limiter = UnsolicitedMailLimit(RateLimiter(client), own)

        assert await limiter.refusal(network, reports, size) is None
        assert await limiter.refusal(network, reports, size) is MessageResult.NETWORK_LIMIT
