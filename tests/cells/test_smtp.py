"""SMTP through a front: submission reaches the cell of the key, incoming mail the cell of each recipient."""

import asyncio
import contextlib
import smtplib
from collections.abc import AsyncIterator
from ipaddress import ip_network

import pytest
from msgspec import Struct, structs

from engine.base.settings import Settings
from engine.cells.directory import Cell
from engine.mail import feedback_headers, return_path
from engine.people.api_keys import rules as keys
from engine.people.api_keys.service import revoke_key
from loadtests.ports import reserve_port
from mta.front.cell_connection import CellConnection, CellGone
from mta.front.process import run
from ops.local import certificate
from tests.cells.conftest import TestCells, front_settings, out_of_reach
from tests.harness.accounts import TestAccount, make_account
from tests.harness.inbound import TestMx, new_source, receiving
from tests.harness.patience import PATIENCE_S
from tests.harness.submission import Client, TestRelay, relaying

PROXIES = (ip_network("127.0.0.1/32"),)


class SmtpFront(Struct):
    """A front with the relays and MX servers of two cells behind it."""

    cells: TestCells
    settings: Settings
    relays: dict[str, TestRelay]
    mxs: dict[str, TestMx]

    async def submitting(self, *, tls: bool = True) -> Client:
        """Open a connection of a program and greet."""
        client = await Client.open(self.settings.submission_tls_port if tls else self.settings.submission_port, tls=tls)
        assert (await client.reply()).startswith("220 ")
        await client.say("EHLO client.test")
        if not tls:
            assert (await client.say("STARTTLS")).startswith("220 ")
            await client.start_tls()
            await client.say("EHLO client.test")
        return client

    async def delivering(self) -> Client:
        """Open a connection of a mail server and greet."""
        client = await Client.open(self.settings.mx_port, source=new_source())
        assert (await client.reply()).startswith("220 ")
        assert (await client.say("EHLO mail.sender.test")).startswith("250")
        return client


@pytest.fixture(scope="module")
async def front(
    cells: TestCells, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SmtpFront]:
    """Run relay and MX of both cells, and a front before them."""
    folder = tmp_path_factory.mktemp("smtp")
    relays: dict[str, TestRelay] = {}
    mxs: dict[str, TestMx] = {}
    async with contextlib.AsyncExitStack() as started:
        for name, cell in cells.cells.items():
            own = structs.replace(cell.settings, proxy_networks=PROXIES)
            relays[name] = await started.enter_async_context(relaying(own, folder))
            mxs[name] = await started.enter_async_context(receiving(own, folder))
            addresses = f"127.0.0.1:{relays[name].port}", f"127.0.0.1:{mxs[name].settings.mx_port}"
            await cells.directory.put_cell(Cell(name, cell.api.base_url, *addresses, "open", 100))
        own = structs.replace(
            front_settings(settings, cells.directory_url), submission_port=reserve_port(),
            submission_tls_port=reserve_port(), mx_port=reserve_port(), relay_login_delay_s=0.05, drain_s=1.0,
        )  # fmt: skip
        stop = asyncio.Event()
        running = asyncio.create_task(run(own, *certificate.ensure(folder, own.mail_host), stop=stop))
        await _listens(own.mx_port)
        yield SmtpFront(cells, own, relays, mxs)
        stop.set()
        await running


async def _listens(port: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


async def placed(front: SmtpFront, name: str) -> TestAccount:
    account = await make_account(front.cells.cells[name].pool)
    await front.cells.directory.place(account.id, name)
    return account


def content(account: TestAccount, subject: str = "Hello") -> bytes:
    return f"From: {account.sender}\r\nTo: ann@people.test\r\nSubject: {subject}\r\n\r\n..dot\r\nHi\r\n".encode()


async def until_answered(front: SmtpFront, address: str, reply: str) -> None:
    """Ask for a recipient until the front has read a change of the directory and answers so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            client = await front.delivering()
            await client.say("MAIL FROM:<ben@sender.test>")
            found = await client.say(f"RCPT TO:<{address}>")
            await client.close()
            if found.startswith(reply):
                return
            await asyncio.sleep(0.2)


async def messages(front: SmtpFront, account: TestAccount, name: str) -> int:
    count: int = await front.cells.cells[name].pool.fetchval(
        "SELECT count(*) FROM messages WHERE account_id = $1", account.id
    )
    return count


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "STARTTLS"])
async def test_a_program_sends_through_the_cell_of_its_key(front: SmtpFront, *, tls: bool) -> None:
    for name in ("one", "two"):
        account = await placed(front, name)
        client = await front.submitting(tls=tls)
        assert (await client.log_in(account.token)).startswith("235 ")
        for _ in range(2):
            assert (await client.send(account, content(account))).startswith("250 ")
        assert await messages(front, account, name) == 2
        await client.close()


async def test_a_client_of_the_standard_library_sends(front: SmtpFront) -> None:
    account = await placed(front, "two")

    def send() -> None:
        with smtplib.SMTP("127.0.0.1", front.settings.submission_port, timeout=PATIENCE_S) as client:
            client.starttls()
            client.login("any", account.token)
            client.sendmail(account.sender, ["ann@people.test", "ben@people.test"], content(account))

    await asyncio.to_thread(send)
    assert await messages(front, account, "two") == 1


@pytest.mark.parametrize("password", [keys.new_key().token, "no key"])
async def test_a_wrong_key_is_refused_as_by_a_cell(front: SmtpFront, password: str) -> None:
    client = await front.submitting()
    assert (await client.log_in(password)).startswith("535 5.7.8 [unauthorized] ")
    assert (await client.say("MAIL FROM:<a@b.test>")).startswith("530 ")
    await client.close()


async def test_a_refusal_of_the_cell_is_passed_on(front: SmtpFront) -> None:
    account, other = await placed(front, "one"), await placed(front, "one")
    client = await front.submitting()
    await client.log_in(account.token)
    assert (await client.say("RCPT TO:<ann@people.test>")).startswith("503 ")
    assert (await client.send(account, content(other))).startswith("550 5.7.1 [domain_not_verified] ")
    assert (await client.send(account, content(account))).startswith("250 ")
    await client.close()


async def test_incoming_mail_reaches_the_cell_of_each_recipient(front: SmtpFront) -> None:
    accounts = {name: await placed(front, name) for name in ("one", "two")}
    addresses = {name: await front.mxs[name].claim(account) for name, account in accounts.items()}
    client = await front.delivering()
    for name, other in (("one", "two"), ("two", "one")):
        assert (await client.say("MAIL FROM:<ben@sender.test>")).startswith("250 ")
        assert (await client.say(f"RCPT TO:<{addresses[name]}>")).startswith("250 ")
        assert (await client.say(f"RCPT TO:<{addresses[other]}>")).startswith("452 4.5.3 ")
        assert (await client.say("DATA")).startswith("354 ")
        await client.write(b"Subject: %b\r\n\r\n..dot\r\n.\r\n" % name.encode())
        assert (await client.reply()).startswith("250 ")
    for name, account in accounts.items():
        (stored,) = await front.mxs[name].stored(account)
        assert stored["bytes"].endswith(b"Subject: %b\r\n\r\n.dot\r\n" % name.encode())
    await client.close()


async def test_unknown_recipients_get_the_refusal_of_a_cell(front: SmtpFront) -> None:
    account = await placed(front, "two")
    await front.mxs["two"].claim(account)
    client = await front.delivering()
    await client.say("MAIL FROM:<ben@sender.test>")
    assert (await client.say(f"RCPT TO:<nobody@{account.domain}>")).startswith("550 5.1.1 ")
    assert (await client.say("RCPT TO:<ann@elsewhere.example>")).startswith("550 5.7.1 ")
    assert (await client.say("DATA")).startswith("554 ")
    await client.close()


async def test_a_bounce_reaches_the_cell_of_its_message(front: SmtpFront) -> None:
    account = await placed(front, "two")
    sent = await front.cells.front.post("/v1/emails", account.token, account.email())
    message = await front.cells.two.pool.fetchval("SELECT id FROM messages WHERE account_id = $1", account.id)
    assert sent.status == 202
    key = return_path.key_of(front.settings.pepper)
    to = return_path.return_path(key, message, 0, f"bounces.{front.settings.mail_host}")
    before = await _reports(front)
    client = await front.delivering()
    await client.say("MAIL FROM:<>")
    assert (await client.say(f"RCPT TO:<{to}>")).startswith("250 ")
    await client.say("DATA")
    await client.write(b"Subject: Undelivered\r\n\r\nno\r\n.\r\n")
    assert (await client.reply()).startswith("250 ")
    after = await _reports(front)
    assert {name: after[name] - before[name] for name in after} == {"one": 0, "two": 1}
    await client.close()


async def _reports(front: SmtpFront) -> dict[str, int]:
    return {
        name: await cell.pool.fetchval("SELECT count(*) FROM report_mails")
        for name, cell in front.cells.cells.items()
    }  # fmt: skip


async def test_a_bare_line_feed_ends_nothing(front: SmtpFront) -> None:
    account = await placed(front, "one")
    client = await front.submitting()
    await client.log_in(account.token)
    reply = await client.send(account, content(account) + b"\n.\nMAIL FROM:<x@y.test>\r\n")
    assert reply.startswith("550 5.6.11 ")
    assert await messages(front, account, "one") == 0
    await client.close()


async def test_a_message_that_is_too_large_is_refused_and_the_next_one_taken(front: SmtpFront) -> None:
    account = await placed(front, "one")
    address = await front.mxs["one"].claim(account)
    client = await front.delivering()
    await client.say("MAIL FROM:<ben@sender.test>")
    await client.say(f"RCPT TO:<{address}>")
    await client.say("DATA")
    line = b"x" * 998 + b"\r\n"
    for _ in range(front.settings.inbound_max_bytes // len(line) // 100 + 2):
        await client.write(line * 100)
    await client.write(b".\r\n")
    assert (await client.reply()).startswith("552 ")
    assert (await client.say("MAIL FROM:<ben@sender.test>")).startswith("250 ")
    assert (await client.say(f"RCPT TO:<{address}>")).startswith("250 ")
    await client.say("DATA")
    await client.write(b"Subject: small\r\n\r\nx\r\n.\r\n")
    assert (await client.reply()).startswith("250 ")
    await client.close()


async def test_a_cell_that_does_not_answer_delays_its_mail_alone(front: SmtpFront) -> None:
    here, gone = await placed(front, "one"), await placed(front, "two")
    address, lost = await front.mxs["one"].claim(here), await front.mxs["two"].claim(gone)
    known = next(one for one in await front.cells.directory.cells() if one.name == "two")
    nowhere = f"127.0.0.1:{reserve_port()}"
    await front.cells.directory.put_cell(structs.replace(known, submission=nowhere, mx=nowhere))
    try:
        await until_answered(front, lost, "451 4.3.0 ")
        client = await front.delivering()
        await client.say("MAIL FROM:<ben@sender.test>")
        assert (await client.say(f"RCPT TO:<{lost}>")).startswith("451 4.3.0 ")
        assert (await client.say(f"RCPT TO:<{address}>")).startswith("250 ")
        program = await front.submitting()
        assert (await program.log_in(gone.token)).startswith("454 ")
        await program.close()
        await client.close()
    finally:
        await front.cells.directory.put_cell(known)
        await until_answered(front, lost, "250 ")


async def test_a_complaint_reaches_the_cell_of_the_message_that_it_names(front: SmtpFront) -> None:
    account = await placed(front, "two")
    assert (await front.cells.front.post("/v1/emails", account.token, account.email())).status == 202
    message = await front.cells.two.pool.fetchval("SELECT id FROM messages WHERE account_id = $1", account.id)
    value = feedback_headers.cfbl_feedback_id(feedback_headers.cfbl_key(front.settings.pepper), message)
    before = await _reports(front)
    client = await front.delivering()
    await client.say("MAIL FROM:<fbl@provider.test>")
    assert (await client.say(f"RCPT TO:<fbl@{front.settings.mail_host}>")).startswith("250 ")
    await client.say("DATA")
    await client.write(f"Subject: Complaint\r\n\r\nCFBL-Feedback-ID: {value}\r\n.\r\n".encode())
    assert (await client.reply()).startswith("250 ")
    after = await _reports(front)
    assert {name: after[name] - before[name] for name in after} == {"one": 0, "two": 1}
    await client.close()


async def test_a_login_waits_for_the_end_of_a_move(front: SmtpFront) -> None:
    account = await placed(front, "one")
    await front.cells.directory.begin_move([account.id], source="one", to="two")
    await asyncio.sleep(1)
    client = await front.submitting()
    logging_in = asyncio.create_task(client.log_in(account.token))
    await asyncio.sleep(0.5)
    assert not logging_in.done()
    await front.cells.directory.cancel_move([account.id])
    assert (await logging_in).startswith("235 ")
    await client.close()


async def move(front: SmtpFront, account: TestAccount) -> None:
    """Place the account in the second cell, which does not have it."""
    began = await front.cells.directory.begin_move([account.id], source="one", to="two")
    await front.cells.directory.finish_move([account.id], [], to="two", began=began)


async def until_sent_away(client: Client, account: TestAccount) -> None:
    """Begin messages until the front has read that the account is elsewhere; no reply may be a permanent one."""
    async with asyncio.timeout(PATIENCE_S):
        while not (reply := await client.say(f"MAIL FROM:<{account.sender}>")).startswith("421 4.3.2 [unavailable] "):
            assert reply.startswith("250 ")
            await client.say("RSET")
            await asyncio.sleep(0.05)
    await client.close()


async def test_a_session_of_an_account_that_moved_is_asked_to_connect_again(front: SmtpFront) -> None:
    account = await placed(front, "one")
    waiting, sending = await front.submitting(), await front.submitting()
    for client in (waiting, sending):
        await client.log_in(account.token)
    await sending.say(f"MAIL FROM:<{account.sender}>")
    assert (await sending.say("RCPT TO:<ann@people.test>")).startswith("250 ")
    await move(front, account)
    await until_sent_away(waiting, account)

    pool = front.cells.one.pool
    for key in await pool.fetch("SELECT id FROM api_keys WHERE account_id = $1", account.id):
        await revoke_key(pool, account.id, key["id"], actor="test")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            direct = await front.relays["one"].client(tls=True, source="127.0.0.2")  # which is no front
            await direct.reply()
            await direct.say("EHLO client.test")
            if (await direct.log_in(account.token)).startswith("535 "):
                break
            await asyncio.sleep(0.05)
    await sending.say("DATA")
    await sending.write(content(account) + b".\r\n")
    assert (await sending.reply()).startswith("451 4.3.0 ")
    await sending.close()


async def test_a_message_for_an_account_that_moves_meanwhile_is_sent_again(front: SmtpFront) -> None:
    account = await placed(front, "one")
    address = await front.mxs["one"].claim(account)
    client = await front.delivering()
    await client.say("MAIL FROM:<ben@sender.test>")
    assert (await client.say(f"RCPT TO:<{address}>")).startswith("250 ")
    await move(front, account)
    await until_answered(front, address, "550 ")
    await front.cells.one.pool.execute("DELETE FROM inbound_addresses WHERE account_id = $1", account.id)
    await client.say("DATA")
    await client.write(b"Subject: slow\r\n\r\nx\r\n.\r\n")
    assert (await client.reply()).startswith("451 4.3.0 ")
    await client.close()


async def test_what_a_cell_no_longer_has_is_refused_for_a_while_only_if_the_directory_is_down(front: SmtpFront) -> None:
    account = await placed(front, "one")
    address, pool = await front.mxs["one"].claim(account), front.cells.one.pool
    await until_answered(front, address, "250 ")
    await until_logged_in(front, account, "235 ")
    async with out_of_reach(front.cells.directory_url):
        await pool.execute("DELETE FROM inbound_addresses WHERE account_id = $1", account.id)
        for key in await pool.fetch("SELECT id FROM api_keys WHERE account_id = $1", account.id):
            await revoke_key(pool, account.id, key["id"], actor="test")
        await until_answered(front, address, "451 4.3.0 ")
        await until_logged_in(front, account, "454 4.7.0 ")
    await until_answered(front, address, "550 ")
    await until_logged_in(front, account, "535 ")


async def until_logged_in(front: SmtpFront, account: TestAccount, reply: str) -> None:
    """Log in until the front answers so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            client = await front.submitting()
            found = await client.log_in(account.token)
            await client.close()
            if found.startswith(reply):
                return
            await asyncio.sleep(0.2)


async def test_a_reply_with_an_endless_line_ends_the_connection_to_the_cell() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 " + b"x" * 100_000)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.transport.abort()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CellGone):
            await CellConnection.open("one", f"127.0.0.1:{port}", "192.0.2.1", "client.test", secured=False)


async def test_a_cell_that_dies_before_its_reply_has_accepted_nothing(front: SmtpFront) -> None:
    account = await placed(front, "one")
    address = await front.mxs["one"].claim(account)
    client = await front.delivering()
    await client.say("MAIL FROM:<ben@sender.test>")
    await client.say(f"RCPT TO:<{address}>")
    await client.say("DATA")
    await client.write(b"Subject: half\r\n\r\n")
    await front.mxs["one"].services.server.drain(0)
    await client.write(b"rest\r\n.\r\n")
    assert (await client.reply()).startswith("451 4.3.0 ")
    assert await front.mxs["one"].stored(account) == []
    await client.close()
