"""The SMTP client on real sockets, against the sink and against servers that misbehave."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.smtp.client.certificates import CertificateAuthorities
from mta.smtp.client.connection import ConnectFailed, Envelope, SmtpConnection, SmtpTimeouts, TlsMode, Transaction
from mta.smtp.client.tls import CertificateVerifier, client_context
from ops.local import certificate
from ops.local.sink import Sink
from tests.harness.patience import PATIENCE_S, until
from tests.harness.tcp import listening

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PATIENT = SmtpTimeouts(quit_s=0.2)
BODY = b"Subject: hello\r\n\r\nhello\r\n"


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as running:
        yield running


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return certificate.server_context(tmp_path_factory.mktemp("tls"), "mx.peer.test")


async def connect(
    address: tuple[str, int],
    tls: TlsMode = TlsMode.OFF,
    timeouts: SmtpTimeouts = PATIENT,
    name: str = "mx.peer.test",
    source_ip: str | None = None,
) -> SmtpConnection:
    return await SmtpConnection.open(
        address, server_name=name, helo="client.test", tls=tls, timeouts=timeouts, source_ip=source_ip
    )


def envelope(*recipients: str, content: bytes | tuple[bytes, ...] = BODY) -> Envelope:
    return Envelope("ann@sender.test", recipients or ("bob@peer.test",), content)


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[tuple[str, int]]:
    """A server of a test's own; what it does with a connection ends with the test."""

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        await asyncio.Event().wait()  # the connection stays

    async with listening(each) as address:
        yield address


def outcome(transaction: Transaction, place: int = 0) -> tuple[Phase, int | BreakKind]:
    answer = transaction.answers[place]
    return answer.phase, answer.outcome.code if isinstance(answer.outcome, Reply) else answer.outcome.kind


# -- the ordinary --------------------------------------------------------------------------------------


async def test_messages_follow_one_another_on_one_connection(sink: Sink) -> None:
    connection = await connect(sink.address)
    queue = [envelope(f"user{number}@peer.test", content=b"%d\r\n" % number) for number in range(50)]
    for number, one in enumerate(queue):
        following = queue[number + 1] if number + 1 < len(queue) else None
        transaction = await connection.send(one, lambda given=following: given)  # type: ignore[misc]
        assert outcome(transaction) == (Phase.BODY, 250)
        assert connection.pipelined_envelope is following
    assert connection.messages_sent == 50
    await connection.close()
    assert [message.recipients[0] for message in sink.messages] == [one.recipients[0] for one in queue]
    assert [message.content for message in sink.messages] == [one.content for one in queue]
    assert sink.connections == 1
    assert list(sink.commands)[-1] == "QUIT"


async def test_a_large_message_in_parts_arrives_whole(sink: Sink) -> None:
    connection = await connect(sink.address, timeouts=SmtpTimeouts())
    parts = (b"Header: 1\r\n", b"\r\n" + b".dots\r\n" * 1_500_000)
    transaction = await connection.send(envelope("a@peer.test", content=parts))
    assert outcome(transaction) == (Phase.BODY, 250)
    assert sink.messages[0].content == b"".join(parts)
    await connection.close()


async def test_a_thousand_recipients_go_in_one_transaction(sink: Sink) -> None:
    connection = await connect(sink.address, timeouts=SmtpTimeouts())
    transaction = await connection.send(envelope(*(f"user{number}@peer.test" for number in range(1_000))))
    assert {outcome(transaction, place) for place in range(1_000)} == {(Phase.BODY, 250)}
    assert len(sink.messages[0].recipients) == 1_000
    await connection.close()


async def test_each_recipient_has_its_own_answer_in_order(sink: Sink) -> None:
    connection = await connect(sink.address)
    transaction = await connection.send(envelope("a@peer.test", "bounce@peer.test", "full@peer.test", "b@peer.test"))
    assert [outcome(transaction, place) for place in range(4)] == [
        (Phase.BODY, 250), (Phase.RCPT, 550), (Phase.RCPT, 452), (Phase.BODY, 250),
    ]  # fmt: skip
    assert sink.messages[0].recipients == ("a@peer.test", "b@peer.test")
    await connection.close()


async def test_no_recipients_is_an_empty_transaction(sink: Sink) -> None:
    connection = await connect(sink.address)
    transaction = await connection.send(Envelope("ann@sender.test", (), BODY))
    assert transaction.answers == ()
    assert connection.usable
    await connection.close()


async def test_the_source_address_is_the_one_asked_for() -> None:
    seen: list[str] = []

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peername")[0])
        writer.write(b"554 no\r\n")

    async with serving(serve) as address:
        with pytest.raises(ConnectFailed):
            await connect(address, source_ip="127.0.0.9")
    assert seen == ["127.0.0.9"]


# -- the caller's hooks ----------------------------------------------------------------------------------


async def test_content_is_withheld_when_the_right_to_send_was_lost(sink: Sink) -> None:
    connection = await connect(sink.address)
    transaction = await connection.send(envelope(), envelope, lambda: False)
    assert outcome(transaction) == (Phase.DATA, BreakKind.LOCAL)
    assert not connection.usable
    assert connection.messages_sent == 0
    await asyncio.sleep(0.05)
    assert sink.count == 0


async def test_the_final_dot_of_long_content_is_withheld_when_the_right_to_send_is_lost_meanwhile(sink: Sink) -> None:
    connection = await connect(sink.address)
    asked = iter([True, True, True, False])  # at the beginning, before each of two pieces, before the dot
    long = Envelope("ann@sender.test", ("bob@peer.test",), b"Subject: x\r\n\r\n" + b"0123456789abcd\r\n" * 12_000)

    transaction = await connection.send(long, None, lambda: next(asked))

    assert next(asked, None) is None
    assert outcome(transaction) == (Phase.DATA, BreakKind.LOCAL)
    assert not connection.usable
    await asyncio.sleep(0.05)
    assert sink.count == 0


async def test_the_right_to_send_is_asked_for_behind_all_that_takes_time(sink: Sink) -> None:
    connection = await connect(sink.address)
    asked: list[str] = []

    def upcoming() -> None:
        asked.append("next")

    def right() -> bool:
        asked.append("right")
        return True

    await connection.send(envelope(), upcoming, right)
    assert asked == ["next", "right"]
    await connection.close()


async def test_the_hook_is_asked_again_for_an_envelope_begun_earlier(sink: Sink) -> None:
    connection = await connect(sink.address)
    second = envelope("cyd@peer.test")
    await connection.send(envelope(), lambda: second, lambda: True)
    transaction = await connection.send(second, None, lambda: False)
    assert outcome(transaction) == (Phase.DATA, BreakKind.LOCAL)
    assert sink.count == 1


async def test_another_envelope_than_the_one_begun_is_our_own_mistake(sink: Sink) -> None:
    connection = await connect(sink.address)
    await connection.send(envelope(), lambda: envelope("cyd@peer.test"))
    with pytest.raises(RuntimeError):
        await connection.send(envelope("dan@peer.test"))
    assert not connection.usable


async def test_a_mistake_in_a_hook_is_raised_and_drops_the_connection(sink: Sink) -> None:
    connection = await connect(sink.address)

    def wrong() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await connection.send(envelope(), None, wrong)
    assert not connection.usable
    assert sink.count == 0


async def test_upcoming_is_not_asked_where_the_server_takes_no_pipelining() -> None:
    async with Sink(extensions=()) as sink:
        connection = await connect(sink.address)
        asked: list[int] = []

        def upcoming() -> Envelope | None:
            asked.append(1)
            return envelope()

        assert outcome(await connection.send(envelope(), upcoming)) == (Phase.BODY, 250)
        assert asked == []
        await connection.close()


async def test_cancelling_a_send_drops_the_connection(sink: Sink) -> None:
    sink.script(".", delay_s=5.0)
    connection = await connect(sink.address, timeouts=SmtpTimeouts())
    task = asyncio.create_task(connection.send(envelope()))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not connection.usable


async def test_a_cancelled_send_writes_no_content_though_it_is_invited_in_the_same_moment(sink: Sink) -> None:
    sink.script("MAIL", delay_s=5.0)
    connection = await connect(sink.address)
    task = asyncio.create_task(connection.send(envelope()))
    await asyncio.sleep(0.05)
    task.cancel()
    connection.data_received(b"250 sender\r\n250 recipient\r\n354 go on\r\n")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert connection.messages_sent == 0


# -- the end of a session ----------------------------------------------------------------------------------


async def test_a_connection_that_the_server_closed_while_idle_is_not_usable(sink: Sink) -> None:
    connection = await connect(sink.address)
    await connection.send(envelope())
    await sink.stop()
    await until(lambda: not connection.usable)
    assert outcome(await connection.send(envelope())) == (Phase.MAIL, BreakKind.CLOSED)
    await connection.close()


async def test_an_envelope_begun_on_a_connection_that_died_is_answered_at_once(sink: Sink) -> None:
    sink.script(".", "250 2.0.0 ok", close=True, times=1)
    connection = await connect(sink.address)
    second = envelope("cyd@peer.test")
    first = await connection.send(envelope(), lambda: second)
    assert outcome(first) == (Phase.BODY, 250)
    answer = outcome(await connection.send(second))
    assert answer[1] is BreakKind.CLOSED
    assert answer[0] is not Phase.BODY
    assert sink.count == 1


async def test_a_silent_server_is_noticed_although_nobody_is_sending(sink: Sink) -> None:
    sink.script("MAIL FROM:<late@sender.test>", delay_s=600.0)
    connection = await connect(sink.address, timeouts=structs.replace(PATIENT, reply_s=3.0))
    second = Envelope("late@sender.test", ("bob@peer.test",), BODY)
    assert outcome(await connection.send(envelope(), lambda: second)) == (Phase.BODY, 250)
    await until(lambda: not connection.usable)
    assert outcome(await connection.send(second)) == (Phase.MAIL, BreakKind.TIMEOUT)


async def test_close_does_not_wait_long_for_a_server_that_ignores_quit(sink: Sink) -> None:
    sink.script("QUIT", delay_s=600.0)
    connection = await connect(sink.address)
    async with asyncio.timeout(PATIENCE_S):
        await connection.close()
    assert not connection.usable
    await connection.close()  # again is harmless


# -- time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "phase", "limit"),
    [
        ("MAIL", Phase.MAIL, "reply_s"),
        ("RCPT", Phase.RCPT, "reply_s"),
        ("DATA", Phase.DATA, "data_s"),
        (".", Phase.BODY, "final_dot_s"),
    ],
)
async def test_a_reply_that_trickles_in_does_not_prolong_its_stage(
    sink: Sink, command: str, phase: Phase, limit: str
) -> None:
    sink.script(command, "250 2.0.0 a long reply, one octet at a time", drip_s=0.1)
    connection = await connect(sink.address, timeouts=structs.replace(PATIENT, **{limit: 2.0}))
    assert outcome(await connection.send(envelope())) == (phase, BreakKind.TIMEOUT)
    assert not connection.usable


async def test_recipients_that_each_stay_in_time_are_bounded_together(sink: Sink) -> None:
    sink.script("RCPT", delay_s=0.2)
    connection = await connect(sink.address, timeouts=structs.replace(PATIENT, envelope_s=3.0))
    transaction = await connection.send(envelope(*(f"user{number}@peer.test" for number in range(50))))
    assert outcome(transaction, 49) == (Phase.RCPT, BreakKind.TIMEOUT)


@pytest.mark.exhaustive
async def test_a_late_acceptance_within_its_time_counts(sink: Sink) -> None:
    sink.script(".", delay_s=4.0)  # longer than any other stage may take
    connection = await connect(sink.address, timeouts=structs.replace(PATIENT, reply_s=3.0, data_s=3.0))
    assert outcome(await connection.send(envelope())) == (Phase.BODY, 250)
    await connection.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Up to and including the 354."""
    writer.write(b"220 mx\r\n")
    await reader.readline()
    writer.write(b"250-mx\r\n250 PIPELINING\r\n")
    while await reader.readline() != b"DATA\r\n":
        pass
    writer.write(b"250 ok\r\n250 ok\r\n354 ok\r\n")


async def test_a_peer_that_stops_reading_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with serving(serve) as address:
        connection = await connect(address, timeouts=structs.replace(PATIENT, block_s=0.5))
        transaction = await connection.send(envelope(content=b"x" * 78 + b"\r\n" * 10_000_000))
        assert outcome(transaction) == (Phase.BODY, BreakKind.TIMEOUT)


async def test_a_refusal_half_way_through_a_large_message_is_its_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.readexactly(100_000)
        writer.write(b"552 5.3.4 that is enough\r\n")
        await asyncio.Event().wait()

    async with serving(serve) as address:
        connection = await connect(address)
        transaction = await connection.send(envelope(content=(b"x" * 78 + b"\r\n") * 300_000))
        assert transaction.answers == (Answer(Phase.BODY, Reply(552, "5.3.4 that is enough", "5.3.4")),)
        assert not connection.usable


# -- opening -----------------------------------------------------------------------------------------------


async def test_a_closed_port_is_refused_and_a_silent_one_times_out(sink: Sink) -> None:
    address = sink.address
    await sink.stop()
    with pytest.raises(ConnectFailed) as failed:
        await connect(address)
    assert failed.value.phase is Phase.CONNECT
    assert isinstance(failed.value.outcome, Break)
    assert failed.value.outcome.kind is BreakKind.REFUSED
    assert failed.value.transcript[0]["step"] == "connect"
    assert "refused" in failed.value.transcript[0]["break"]


async def test_a_source_address_that_is_not_ours_says_nothing_about_the_peer(sink: Sink) -> None:
    with pytest.raises(ConnectFailed) as failed:
        await connect(sink.address, source_ip="192.0.2.1")
    assert isinstance(failed.value.outcome, Break)
    assert failed.value.outcome.kind is BreakKind.LOCAL


async def test_a_failed_opening_keeps_the_steps_up_to_it(sink: Sink) -> None:
    sink.script("EHLO", "421 4.3.2 not now")
    with pytest.raises(ConnectFailed) as failed:
        await connect(sink.address)
    assert failed.value.phase is Phase.EHLO
    assert failed.value.outcome == Reply(421, "4.3.2 not now", "4.3.2")
    assert [step["step"] for step in failed.value.transcript] == ["connect", "greeting", "ehlo"]


# -- TLS ---------------------------------------------------------------------------------------------------


async def test_an_unverified_certificate_is_accepted_and_recorded(context: ssl.SSLContext) -> None:
    async with Sink(tls=context) as sink:
        connection = await connect(sink.address, TlsMode.OPPORTUNISTIC)
        assert connection.tls is not None
        assert connection.tls.version == "TLSv1.3"
        assert connection.tls.certificate == "unverified: self-signed"
        large = envelope(content=b"x" * 78 + b"\r\n" * 2_000_000)
        transaction = await connection.send(large)
        assert outcome(transaction) == (Phase.BODY, 250)
        assert sink.messages[0].tls == "TLSv1.3"
        assert sink.messages[0].content == large.content
        steps = [step["step"] for step in transaction.transcript]
        assert steps == ["connect", "greeting", "ehlo", "tls", "ehlo", "mail", "rcpt", "data", "body"]
        await connection.close()


async def test_after_a_failed_handshake_plaintext_can_be_tried(context: ssl.SSLContext) -> None:
    async with Sink(tls=context) as sink:
        sink.script("STARTTLS", raw=b"220 go\r\n", times=1)  # and then no TLS
        with pytest.raises(ConnectFailed) as failed:
            await connect(sink.address, TlsMode.OPPORTUNISTIC)
        assert failed.value.phase is Phase.TLS
        assert isinstance(failed.value.outcome, Break)
        assert failed.value.outcome.kind is BreakKind.TLS
        assert failed.value.transcript[-1]["step"] == "tls"
        connection = await connect(sink.address, TlsMode.OFF)
        assert outcome(await connection.send(envelope())) == (Phase.BODY, 250)
        assert connection.tls is None
        await connection.close()


async def test_a_handshake_that_stalls_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx\r\n")
        await reader.readline()
        writer.write(b"250-mx\r\n250 STARTTLS\r\n")
        await reader.readline()
        writer.write(b"220 go\r\n")
        await asyncio.Event().wait()

    async with serving(serve) as address:
        with pytest.raises(ConnectFailed) as failed:
            await connect(address, TlsMode.OPPORTUNISTIC, structs.replace(PATIENT, tls_s=1.0))
        assert failed.value.phase is Phase.TLS


async def test_plaintext_injected_behind_starttls_is_never_obeyed(context: ssl.SSLContext) -> None:
    async with Sink(tls=context) as sink:
        sink.script("STARTTLS", raw=b"220 go\r\n250-evil.test\r\n250 SIZE 1\r\n")
        with pytest.raises(ConnectFailed) as failed:
            await connect(sink.address, TlsMode.OPPORTUNISTIC)
        assert failed.value.phase is Phase.STARTTLS
        assert isinstance(failed.value.outcome, Break)
        assert failed.value.outcome.kind is BreakKind.PROTOCOL


@pytest.mark.parametrize("name", ["127.0.0.1", ".bad.test", "x" * 70 + ".test", "under_score.test"])
async def test_odd_server_names_out_of_dns_do_no_harm(context: ssl.SSLContext, name: str) -> None:
    async with Sink(tls=context) as sink:
        with contextlib.suppress(ConnectFailed):
            connection = await connect(sink.address, TlsMode.OPPORTUNISTIC, name=name)
            await connection.close()


async def test_the_verdict_on_a_certificate_names_what_is_wrong(context: ssl.SSLContext) -> None:
    async with Sink(tls=context) as sink:
        client_context(TlsMode.OPPORTUNISTIC).forget("mx.peer.test")
        connection = await connect(sink.address, TlsMode.OPPORTUNISTIC)
        assert connection._transport is not None
        session = connection._transport.get_extra_info("ssl_object")
        later = datetime.now(UTC) + timedelta(days=9_000)
        handshake = CertificateVerifier(CertificateAuthorities([])).verify(
            session, "mx.peer.test", kept=connection._certificates, at=later
        )
        assert handshake.details.certificate == "unverified: outside its dates"
        await connection.close()
