"""The local SMTP sink: what it keeps, how it answers, and that it stops when told to."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import smtplib
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from engine.store.sink_folder import INDEX
from mta.smtp.client.connection import Envelope, SmtpConnection, SmtpTimeouts, TlsMode
from ops.local import certificate
from ops.local.sink import Sink
from ops.local.sink_store import MailStore, StoreMode, entries
from tests.harness.patience import PATIENCE_S

BODY = b"X-Test-Id: t-17\r\nSubject: hello\r\n\r\n.hello\r\n"
TIMEOUTS = SmtpTimeouts(reply_s=PATIENCE_S, final_dot_s=PATIENCE_S, quit_s=0.5)


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as running:
        yield running


async def deliver(sink: Sink, *recipients: str, content: bytes = BODY) -> list[str]:
    """One message over a connection of its own: a code or a kind of break per recipient."""
    connection = await SmtpConnection.open(
        sink.address, server_name="sink.test", helo="client.test", tls=TlsMode.OFF, timeouts=TIMEOUTS
    )
    transaction = await connection.send(Envelope("ann@sender.test", recipients, content))
    await connection.close()
    found = [answer.outcome for answer in transaction.answers]
    return [str(getattr(one, "code", "")) or str(getattr(one, "kind", "")) for one in found]


async def talk(sink: Sink, said: bytes) -> list[bytes]:
    """Say all at once, then read to the end."""
    reader, writer = await asyncio.open_connection(*sink.address)
    writer.write(said + b"QUIT\r\n")
    async with asyncio.timeout(PATIENCE_S):
        heard = await reader.read()
    writer.close()
    return heard.splitlines()


# -- answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipient", "first", "second"),
    [
        ("bounce@a.test", "550", "550"), ("BOUNCE+x@a.test", "550", "550"), ("block@a.test", "550", "550"),
        ("full@a.test", "452", "452"), ("defer@a.test", "451", "250"), ("drop@a.test", "closed", "250"),
        ("busy@a.test", "421", "421"), ("bouncer@a.test", "250", "250"),
    ],
)  # fmt: skip
async def test_the_local_part_draws_its_behaviour(sink: Sink, recipient: str, first: str, second: str) -> None:
    assert await deliver(sink, recipient) == [first]
    assert await deliver(sink, recipient) == [second]
    assert sink.count == [first, second].count("250")


async def test_a_tag_makes_a_fresh_address(sink: Sink) -> None:
    assert await deliver(sink, "defer+1@a.test") == ["451"]
    assert await deliver(sink, "defer+2@a.test") == ["451"]
    assert await deliver(sink, "defer+1@a.test") == ["250"]


async def test_slow_accepts_after_its_seconds(sink: Sink) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await deliver(sink, "slow+1@a.test") == ["250"]
    assert loop.time() - started > 0.9


async def test_a_tarpit_trickles_its_reply(sink: Sink) -> None:
    reader, writer = await asyncio.open_connection(*sink.address)
    writer.write(b"EHLO x\r\nMAIL FROM:<a@s.test>\r\nRCPT TO:<tarpit+1@a.test>\r\n")
    heard = b""
    async with asyncio.timeout(PATIENCE_S):
        while b"250 2.1.0 ok\r\n" not in heard:
            heard += await reader.read(1_000)
        heard = heard.partition(b"250 2.1.0 ok\r\n")[2]
        while len(heard) < 2:
            heard += await reader.read(1_000)
    assert heard == b"25"
    writer.transport.abort()


async def test_scripts_apply_newest_first_and_as_often_as_told(sink: Sink) -> None:
    sink.script("RCPT TO:<ann@slow.test>", "450 4.2.2 mailbox full", times=2)
    assert await deliver(sink, "ann@slow.test", "bob@slow.test") == ["450", "250"]
    sink.script("RCPT", "550 5.1.1 none", times=1)
    assert await deliver(sink, "ann@slow.test") == ["550"]
    assert await deliver(sink, "ann@slow.test") == ["450"]
    assert await deliver(sink, "ann@slow.test") == ["250"]


async def test_replies_to_a_group_come_in_order_and_together(sink: Sink) -> None:
    mail = b"MAIL FROM:<a@s.test>\r\nRCPT TO:<b@a.test>\r\nDATA\r\n" + BODY + b".\r\n"
    heard = await talk(sink, b"EHLO x\r\n" + mail * 3)
    codes = [line[:3] for line in heard if line[3:4] == b" "]
    assert codes == [b"220", b"250", *[b"250", b"250", b"354", b"250"] * 3, b"221"]
    assert sink.count == 3


async def test_limits_and_disorder_are_refused(sink: Sink) -> None:
    heard = await talk(
        sink,
        b"FOO\r\nRCPT TO:<a@a.test>\r\nDATA\r\nMAIL FROM:a\r\nMAIL FROM:<a@s.test> SIZE=999999999999\r\n"
        b"MAIL FROM:<a@s.test>\r\nMAIL FROM:<a@s.test>\r\nRCPT TO:<>\r\nDATA\r\nSTARTTLS\r\nRSET\r\nNOOP\r\nVRFY a\r\n",
    )
    codes = [int(line[:3]) for line in heard]
    assert codes == [220, 500, 503, 503, 501, 552, 250, 503, 501, 503, 502, 250, 250, 252, 221]


async def test_content_beyond_the_size_is_refused_and_not_kept_in_memory() -> None:
    async with Sink(max_size=10_000) as sink:
        begin = b"EHLO x\r\nMAIL FROM:<a@s.test>\r\nRCPT TO:<b@a.test>\r\nDATA\r\n"
        heard = await talk(sink, begin + b"x\r\n" * 100_000 + b".\r\nNOOP\r\n")
        assert [line[:3] for line in heard][-3:] == [b"552", b"250", b"221"]
        assert sink.count == 0


async def test_an_endless_command_line_ends_the_conversation(sink: Sink) -> None:
    reader, writer = await asyncio.open_connection(*sink.address)
    writer.write(b"E" * 10_000)
    async with asyncio.timeout(PATIENCE_S):
        heard = await reader.read()
    writer.close()
    assert b"500 5.5.2 line too long" in heard


@pytest.mark.parametrize("false_end", [b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r", b"\r\n\x00.\r\n"])
async def test_only_crlf_dot_crlf_ends_content(sink: Sink, false_end: bytes) -> None:
    content = b"a" + false_end + b"b\r\n"
    begin = b"EHLO x\r\nMAIL FROM:<a@s.test>\r\nRCPT TO:<b@a.test>\r\nDATA\r\n"
    heard = await talk(sink, begin + content + b".\r\n")
    assert heard[-2].startswith(b"250 2.0.0 ok")
    assert [message.content for message in sink.messages] == [content.replace(b"\r\n.", b"\r\n")]


async def test_content_is_found_however_it_is_cut(sink: Sink) -> None:
    wire = (
        b"EHLO x\r\nMAIL FROM:<a@s.test>\r\nRCPT TO:<b@a.test>\r\nDATA\r\n..a\r\n.\r\n"
        b"MAIL FROM:<a@s.test>\r\nRCPT TO:<b@a.test>\r\nDATA\r\n.\r\nQUIT\r\n"
    )
    for size in (1, 2, 3, 7):
        reader, writer = await asyncio.open_connection(*sink.address)
        for start in range(0, len(wire), size):
            writer.write(wire[start : start + size])
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()
    assert [message.content for message in sink.messages] == [b".a\r\n", b""] * 4


# -- another client ------------------------------------------------------------------------------------


async def test_the_standard_library_client_delivers_over_tls(tmp_path: Path) -> None:
    path, _ = certificate.ensure(tmp_path)
    trusted = ssl.create_default_context(cafile=str(path))
    trusted.check_hostname = False

    async with Sink(tls=certificate.server_context(tmp_path)) as sink:
        host, port = sink.address

        def send() -> None:
            with smtplib.SMTP(host, port, timeout=60) as client:
                client.starttls(context=trusted)
                client.sendmail("ann@sender.test", ["bob@a.test"], BODY)

        await asyncio.to_thread(send)
        await sink.until(1)
    message = sink.messages[0]
    assert (message.content, message.tls, message.test_id) == (BODY, "TLSv1.3", "t-17")
    assert (message.sender, message.recipients) == ("ann@sender.test", ("bob@a.test",))


# -- store -----------------------------------------------------------------------------------------------


async def test_a_message_is_kept_as_it_came_with_its_envelope(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        async with Sink(store=store) as sink:
            await deliver(sink, "a@a.test", "b@a.test")
            await deliver(sink, "c@a.test", content=b"\xff raw\r\n")
    first, second = entries(tmp_path)
    assert first.recipients == ("a@a.test", "b@a.test")
    assert (first.sender, first.helo, first.tls, first.test_id) == ("ann@sender.test", "client.test", None, "t-17")
    assert first.size == len(BODY)
    assert first.file is not None
    assert second.file is not None
    assert (tmp_path / first.file).read_bytes() == BODY
    assert (tmp_path / second.file).read_bytes() == b"\xff raw\r\n"
    line = json.loads((tmp_path / INDEX).read_text().splitlines()[0])
    assert line["from"] == "ann@sender.test"
    assert line["to"] == ["a@a.test", "b@a.test"]


@pytest.mark.parametrize(("mode", "lines"), [(StoreMode.INDEX, 1), (StoreMode.COUNT, 0)])
async def test_less_is_kept_when_less_is_asked_for(tmp_path: Path, mode: StoreMode, lines: int) -> None:
    with MailStore(tmp_path, mode) as store:
        async with Sink(store=store) as sink:
            await deliver(sink, "a@a.test")
            assert sink.count == 1
    assert len(entries(tmp_path)) == lines
    assert list(tmp_path.rglob("*.eml")) == []


async def test_an_index_line_cut_off_by_a_crash_harms_no_other(tmp_path: Path) -> None:
    for _ in range(2):
        with MailStore(tmp_path, StoreMode.INDEX) as store:
            async with Sink(store=store) as sink:
                await deliver(sink, "a@a.test")
        with (tmp_path / INDEX).open("ab") as index:
            index.write(b'{"id":"half')
    assert len(entries(tmp_path)) == 2


async def test_a_store_that_cannot_write_answers_452(tmp_path: Path) -> None:
    with MailStore(tmp_path, StoreMode.FILES) as store:
        (tmp_path / "messages").write_text("a file where a folder should be")
        async with Sink(store=store) as sink:
            assert await deliver(sink, "a@a.test") == ["452"]
            assert sink.count == 0


def test_the_certificate_is_kept_until_it_nears_its_end(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    path, key = certificate.ensure(tmp_path, now=now)
    made = path.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    certificate.ensure(tmp_path, now=now + timedelta(days=3_000))
    assert path.read_bytes() == made
    certificate.ensure(tmp_path, now=now + timedelta(days=3_640))
    assert path.read_bytes() != made


def test_the_certificate_is_valid_for_its_host_and_this_machine(tmp_path: Path) -> None:
    path, _ = certificate.ensure(tmp_path, "mail.example.com")
    made = path.read_bytes()
    names = x509.load_pem_x509_certificate(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["mail.example.com", "localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]

    certificate.ensure(tmp_path, "mail.example.com")
    assert path.read_bytes() == made
    certificate.ensure(tmp_path, "other.example.com")
    assert path.read_bytes() != made


# -- process -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The sink as its own process, on a free port."""
    command = [sys.executable, "-m", "ops.local.sink", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as running:
        assert running.stdout is not None
        try:
            ready = running.stdout.readline()
            assert ready.startswith("sink ready on 127.0.0.1:")
            number = "".join(itertools.takewhile(str.isdigit, ready.rpartition("127.0.0.1:")[2]))
            yield running, int(number)
        finally:
            running.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_takes_mail_and_stops_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with process("--store", str(tmp_path)) as (running, port):
        connection = await SmtpConnection.open(
            ("127.0.0.1", port), server_name="sink.test", helo="client.test", tls=TlsMode.OPPORTUNISTIC
        )
        assert connection.tls is not None
        transaction = await connection.send(Envelope("ann@sender.test", ("bob@a.test",), BODY))
        assert getattr(transaction.answers[0].outcome, "code", None) == 250
        (entry,) = entries(tmp_path)  # on disk as soon as it is answered
        assert entry.tls == "TLSv1.3"
        running.send_signal(number)
        assert await asyncio.to_thread(running.wait, 5) == 0
        await asyncio.sleep(0.05)
        assert not connection.usable
        connection.abort()


async def test_a_second_process_on_the_same_port_says_so(tmp_path: Path) -> None:
    with process("--store", str(tmp_path), "--no-tls") as (_, port):
        command = [sys.executable, "-m", "ops.local.sink", "--port", str(port), "--store", str(tmp_path / "b")]
        second = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=10)
    assert second.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}" in second.stderr
