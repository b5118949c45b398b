"""Messages that the MX takes: 250 after the commit, the octets as they came, and the refusals after the final dot."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from engine.base.settings import Settings
from engine.store import metrics
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account
from tests.harness.inbound import TestMx, deliver, envelope, mail, new_source, receiving

# SMTP smuggling (2023): what some servers take for the end of a message, and others pass on.
FALSE_ENDS = [
    b"\n.\n", b"\n.\r", b"\r.\n", b"\r.\r", b"\n.\r\n", b"\r.\r\n", b"\r\n.\n", b"\r\n.\r", b"\r\n.\r\r\n",
    b"\r\r\n.\r\r\n", b"\r\n\x00.\r\n",
]  # fmt: skip
FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON inbound_messages FOR EACH ROW EXECUTE FUNCTION full_disk();
"""
STORED = "250 2.0.0 Stored"


async def test_a_message_is_stored_as_it_came_before_its_250(mx: TestMx, account: TestAccount) -> None:
    address, source = await mx.claim(account), new_source()
    client = await mx.greeted(tls=True, source=source)
    content = mail(address, body="..dots\r\nHello!\r\n")

    assert await deliver(client, content, address) == STORED

    [row] = await mx.stored(account)
    assert row["bytes"] == content.replace(b"\r\n..", b"\r\n.")
    assert (row["recipient"], row["envelope_from"], row["helo"]) == (address, "ann@sender.test", "client.test")
    assert (str(row["remote_ip"]), row["tls"]) == (source, "TLSv1.3")


async def test_a_quoted_local_part_reaches_the_catch_all_whatever_the_client_calls_itself(
    mx: TestMx, account: TestAccount
) -> None:
    await mx.claim(account, "*")
    client, address = await mx.greeted(), f'"Ann <a> B"@{account.domain}'
    await client.write(b"HELO (none) M\xfcller\r\n")
    assert (await client.reply()).startswith("250 ")

    assert await deliver(client, mail(f"*@{account.domain}"), address) == STORED

    [row] = await mx.stored(account)
    assert (row["recipient"], row["helo"]) == (address, "(none) M\ufffdller")


async def test_a_retry_with_the_same_octets_is_taken_and_not_stored_again(mx: TestMx, account: TestAccount) -> None:
    address = await mx.claim(account)
    client = await mx.greeted()

    assert [await deliver(client, mail(address), address) for _ in range(3)] == [STORED] * 3
    assert len(await mx.stored(account)) == 1


async def test_recipients_of_several_accounts_get_a_message_each(
    mx: TestMx, account: TestAccount, pool: asyncpg.Pool
) -> None:
    other = await make_account(pool)
    first, second = await mx.claim(account), await mx.claim(other)

    assert await deliver(await mx.greeted(), mail(first), first, second) == STORED

    assert [row["recipient"] for row in await mx.stored(account)] == [first]
    assert [row["recipient"] for row in await mx.stored(other)] == [second]


@pytest.mark.parametrize("end", FALSE_ENDS, ids=repr)
async def test_a_false_end_of_data_ends_nothing_and_smuggles_nothing(
    end: bytes, mx: TestMx, account: TestAccount
) -> None:
    address = await mx.claim(account)
    client = await mx.greeted()
    smuggled = f"MAIL FROM:<>\r\nRCPT TO:<{address}>\r\nDATA\r\nFrom: <ann@sender.test>\r\n\r\nx\r\n"

    reply = await deliver(client, mail(address) + end + smuggled.encode(), address)

    assert reply.startswith("550 5.6.11 ")
    assert await mx.stored(account) == []
    assert await deliver(client, mail(address), address) == STORED  # the session is in step
    assert len(await mx.stored(account)) == 1


@pytest.mark.parametrize("octets", [b"a\rb", b"a\nb", b"a\x00b", b"\r\r\n", b"\n\r\n"])
async def test_bare_line_ends_and_nul_are_refused(octets: bytes, mx: TestMx, account: TestAccount) -> None:
    address = await mx.claim(account)
    reply = await deliver(await mx.greeted(), mail(address) + octets + b"\r\n", address)
    assert reply.startswith("550 5.6.11 ")


async def test_more_than_50_received_fields_are_a_loop(mx: TestMx, account: TestAccount) -> None:
    address = await mx.claim(account)
    client = await mx.greeted()
    hop = "Received: from a.test by b.test; Sun, 22 Nov 2026 12:00:00 +0000\r\n"

    assert await deliver(client, mail(address, head=hop * 50), address) == STORED
    assert (await deliver(client, mail(address, head=hop * 51), address)).startswith("554 5.4.6 ")


async def test_a_network_that_tries_addresses_must_leave_whatever_session_it_uses(
    mx: TestMx, account: TestAccount
) -> None:
    source, replies = new_source(), []
    for session in range(20):
        client = await mx.greeted(source=source)
        await client.say("MAIL FROM:<>")
        replies += [await client.say(f"RCPT TO:<p{session}.{number}@{account.domain}>") for number in range(5)]
        if replies[-1].startswith("421") or not replies[-1]:
            break
        await client.say("QUIT")

    assert {reply[:9] for reply in replies[:99]} == {"550 5.1.1"}
    assert replies[99].startswith("421 4.7.0 ")
    address = await mx.claim(account)
    assert await deliver(await mx.greeted(source=source), mail(address), address) == STORED  # real recipients pass


async def test_reports_are_taken_without_being_judged(mx: TestMx) -> None:
    client = await mx.greeted()
    mx.zone.questions.clear()
    to = f"b+nosuchtoken@bounces.{mx.settings.mail_host}"
    assert await deliver(client, mail(to), to, sender="") == STORED
    assert not any("sender.test" in question.name for question in mx.zone.questions)


async def test_a_message_goes_to_few_report_addresses(mx: TestMx) -> None:
    client, host = await mx.greeted(), mx.settings.mail_host
    await client.say("MAIL FROM:<>")
    replies = [await client.say(f"RCPT TO:<b+token{number}@bounces.{host}>") for number in range(6)]
    assert [reply[:9] for reply in replies] == ["250 2.1.5"] * 4 + ["452 4.5.3"] * 2


@contextlib.asynccontextmanager
async def small(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestMx]:
    """Run a server that takes messages of 1 MiB and holds two of them."""
    bounds = {"inbound_max_bytes": 1024 * 1024, "inbound_max_inflight_bytes": 2 * 1024 * 1024}
    async with receiving(settings, tmp_path_factory.mktemp("mx"), **bounds) as running:
        yield running


async def test_a_message_beyond_the_limit_is_refused_and_the_session_goes_on(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with small(settings, tmp_path_factory) as mx:
        address = await mx.claim(account)
        client = await mx.greeted()
        line = "x" * 998 + "\r\n"

        assert (await deliver(client, mail(address, body=line * 1100), address)).startswith("552 5.3.4 ")
        assert await deliver(client, mail(address, body=line * 1000), address) == STORED


async def test_messages_beyond_the_memory_budget_are_put_off_and_bystanders_pass(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with small(settings, tmp_path_factory) as mx:
        address = await mx.claim(account)
        clients = [await mx.greeted() for _ in range(4)]
        for client in clients:
            await envelope(client, address)
            await client.write(mail(address, body=("x" * 998 + "\r\n") * 900))
        await asyncio.sleep(0.2)
        assert await deliver(await mx.greeted(), mail(address), address) == STORED
        for client in clients:
            await client.write(b".\r\n")
        replies = sorted([(await client.reply())[:9] for client in clients])

        assert replies == ["250 2.0.0", "250 2.0.0", "452 4.3.1", "452 4.3.1"]
        assert mx.services.server.memory.held == 0


@pytest.mark.exhaustive
async def test_slow_clients_are_disconnected_and_bystanders_pass(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with receiving(settings, tmp_path_factory.mktemp("mx"), mx_idle_s=5.0) as mx:
        address = await mx.claim(account)
        slow = [await mx.greeted() for _ in range(50)]
        await asyncio.gather(*[envelope(client, address) for client in slow[:25]])  # none waits for the others
        for client in slow[:25]:
            await client.write(b"From: <ann@sender.test>\r\n")

        assert await deliver(await mx.greeted(), mail(address), address) == STORED
        replies = [await client.reply() for client in slow]
        assert {reply[:9] for reply in replies} == {"421 4.4.2"}
        assert mx.services.server.memory.held == 0


async def test_a_score_above_the_operators_limit_is_refused(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with receiving(settings, tmp_path_factory.mktemp("mx"), inbound_reject_score=6.0) as mx:
        mx.zone.set("sender.test", "TXT", ["v=spf1 -all"])
        mx.zone.set("_dmarc.sender.test", "TXT", ["v=DMARC1; p=reject"])
        address = await mx.claim(account)
        client = await mx.greeted()

        assert (await deliver(client, mail(address), address)).startswith("550 5.7.1 ")
        assert await mx.stored(account) == []


async def test_a_forged_sender_is_stored_as_spam_without_such_a_limit(mx: TestMx, account: TestAccount) -> None:
    mx.zone.set("forged.test", "TXT", ["v=spf1 -all"])
    mx.zone.set("_dmarc.forged.test", "TXT", ["v=DMARC1; p=reject"])
    address = await mx.claim(account)
    content = mail(address).replace(b"sender.test", b"forged.test")

    assert await deliver(await mx.greeted(), content, address, sender="ann@forged.test") == STORED
    [row] = await mx.stored(account)
    assert row["is_spam"]


async def test_a_full_disk_puts_the_sender_off(
    settings: Settings, new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = await new_database()
    pool = await open_pool(url, name="full disk", largest=2)
    account = await make_account(pool)
    async with receiving(settings, tmp_path_factory.mktemp("mx"), database_url=url) as mx:
        address = await mx.claim(account)
        client = await mx.greeted()
        await pool.execute(FULL_DISK)
        assert (await deliver(client, mail(address), address)).startswith("452 4.3.1 ")
        await pool.execute("DROP TRIGGER full_disk ON inbound_messages")
        assert await deliver(client, mail(address), address) == STORED
    await pool.close()


async def test_a_restart_lets_a_message_in_progress_finish(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with receiving(settings, tmp_path_factory.mktemp("mx"), drain_s=10.0) as mx:
        address = await mx.claim(account)
        busy, idle = await mx.greeted(), await mx.greeted()
        await envelope(busy, address)
        draining = asyncio.create_task(mx.services.server.drain(10.0))
        assert (await idle.reply()).startswith("421 4.3.2 ")
        await busy.write(mail(address) + b".\r\n")
        assert await busy.reply() == STORED
        assert (await busy.reply()).startswith("421 4.3.2 ")
        await draining
        assert len(await mx.stored(account)) == 1


async def test_results_are_counted(mx: TestMx, account: TestAccount) -> None:
    address = await mx.claim(account)
    assert await deliver(await mx.greeted(), mail(address), address) == STORED
    counted = {labels for (counter, labels) in metrics.TALLY._counts if counter._name == "waybill_mx_messages"}
    assert ("stored",) in counted
