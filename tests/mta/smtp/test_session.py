"""The pure parts of the SMTP client: replies, envelopes, transcripts, and special cases."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.smtp.client.envelope import Envelope, EnvelopeNeeds, ServerFeatures, dot_stuffed
from mta.smtp.client.replies import MAX_LINE, MAX_REPLY, MAX_TEXT, ReplyReader
from mta.smtp.client.session import ClientSession, ClientState
from mta.smtp.client.transcript import TlsDetails, TranscriptStep, conversation, json_octets, opening, opening_with_size

HELLO = Envelope("ann@sender.test", ("bob@peer.test",), b"Subject: hello\r\n\r\nhello\r\n")


def ready(*extensions: str, now: float = 0.0) -> ClientSession:
    """A session that has been greeted."""
    session = ClientSession("client.test", starttls=False, now=now)
    session.received(b"220 mx.peer.test\r\n", now)
    lines = ["mx.peer.test", *extensions]
    ehlo = [f"250-{line}" for line in lines[:-1]] + [f"250 {lines[-1]}"]
    session.received(("\r\n".join(ehlo) + "\r\n").encode(), now)
    assert session.state is ClientState.READY
    return session


def heard(raw: bytes) -> list[Reply]:
    return [one.reply for one in ReplyReader().feed(raw)]


# -- replies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "reply"),
    [
        (b"250 ok\r\n", Reply(250, "ok")),
        (b"250\r\n", Reply(250, "")),
        (b"250 \r\n", Reply(250, "")),
        (b"550 5.1.1 no such user\r\n", Reply(550, "5.1.1 no such user", "5.1.1")),
        (b"550 5.1.1\r\n", Reply(550, "5.1.1", "5.1.1")),
        (b"550 5.1.1x no\r\n", Reply(550, "5.1.1x no")),
        (b"450-4.2.1 a\r\n450 4.2.1 b\r\n", Reply(450, "4.2.1 a b", "4.2.1")),
        (b"450-\r\n450 b\r\n", Reply(450, "b")),
        (b"550 5.7.1 \xe2\x9c\x89 \x1b[0m\t!\r\n", Reply(550, "5.7.1 ✉ \ufffd[0m !", "5.7.1")),
        (b"550 5.7.1 a\x00b\xff\r\n", Reply(550, "5.7.1 a\ufffdb\ufffd", "5.7.1")),
    ],
)
def test_a_reply_becomes_printable_text_with_its_enhanced_code(raw: bytes, reply: Reply) -> None:
    assert heard(raw) == [reply]
    assert heard(raw) == [reply]  # the second time it may come out of the cache


@pytest.mark.parametrize("raw", [b"550 2.0.0 fine\r\n", b"250 5.1.1 no\r\n", b"450 5.7.1 no\r\n"])
def test_an_enhanced_code_that_contradicts_its_code_is_ignored(raw: bytes) -> None:
    assert heard(raw)[0].enhanced is None


@given(st.lists(st.sampled_from([b"250 ok", b"550-5.1.1 a\r\n550 5.1.1 b", b"220 \xff\x00"])), st.data())
def test_replies_do_not_depend_on_how_their_bytes_arrive(replies: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(reply + b"\r\n" for reply in replies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    reader = ReplyReader()
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    found = [one.reply for piece in pieces for one in reader.feed(piece)]
    assert found == heard(raw)
    assert len(found) == len(replies)
    assert not reader.pending


@given(st.binary(max_size=3_000))
def test_no_octets_make_the_reader_raise_or_give_unprintable_text(raw: bytes) -> None:
    reader = ReplyReader()
    for one in reader.feed(b"250-" + raw + b"\r\n250 end\r\n" + raw):
        assert one.reply.text.isprintable()
        assert len(one.reply.text) <= MAX_TEXT
        assert 200 <= one.reply.code <= 599
    assert reader.broken is None or reader.broken.isprintable()


def test_a_reply_is_bounded_in_line_length_lines_and_octets() -> None:
    for raw in (
        b"250 " + b"x" * MAX_LINE + b"\r\n",
        b"250 " + b"x" * (MAX_LINE + 1),
        b"250-x\r\n" * 600,
        (b"250-" + b"x" * 4_000 + b"\r\n") * (MAX_REPLY // 4_000 + 1),
    ):
        reader = ReplyReader()
        assert reader.feed(raw) == []
        assert reader.broken
        assert reader.feed(b"250 ok\r\n") == []  # nothing more is read


# -- envelopes and extensions ------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b".", b"..", b"", b"a", b".a", b"a."]), max_size=8), st.data())
def test_stuffing_can_be_undone_and_never_ends_the_content_early(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"\r\n".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    wire = b"".join(dot_stuffed((whole[:cut], whole[cut:])))
    assert wire == b"" or wire.endswith(b"\r\n")
    sent = wire.split(b"\r\n")[:-1]
    assert b"." not in sent
    undone = b"\r\n".join(line.removeprefix(b".") for line in sent)
    assert undone == whole.removesuffix(b"\r\n")


@pytest.mark.parametrize("dots", [0, 3, 2_000])  # in lines before
@pytest.mark.parametrize("line", [b"", b".", b"..", b".a", b"a."])
def test_large_content_is_stuffed_as_small_content_is(dots: int, line: bytes) -> None:
    base64 = (b"A" * 76 + b"\r\n") * 500
    content = b"a.b\r\n" * dots + base64 + line + b"\r\n" + base64

    assert dot_stuffed(content) == [content.replace(b"\r\n.", b"\r\n..")]


def test_extensions_are_read_whatever_their_case_and_order() -> None:
    features = ServerFeatures.parsed(["size 35882577", "Pipelining", "SMTPUTF8", "X-ODD", "", "8bitmime", "CHUNKING"])
    assert features == ServerFeatures(
        pipelining=True, size=35_882_577, eight_bit=True, smtputf8=True, declares_size=True
    )


@pytest.mark.parametrize("limit", ["SIZE", "SIZE 0", "SIZE x", "SIZE -5", "SIZE ٣", "SIZE " + "9" * 21])
def test_a_size_without_a_usable_number_is_no_limit(limit: str) -> None:
    assert ServerFeatures.parsed([limit]).size is None


@pytest.mark.parametrize(
    ("address", "unsafe"),
    [
        ("bob@peer.test", False), ("o'neil+tag@peer.test", False), ('"a b"@peer.test', False),
        ('"a\\"> b"@peer.test', False), ("jürgen@peer.test", False), ("", True), ("a b@peer.test", True),
        ("a>b@peer.test", True), ("a\r\nRCPT@peer.test", True), ('"a\r\n"@peer.test', True),
        ('"open@peer.test', True), ("a\x00@peer.test", True),
    ],
)  # fmt: skip
def test_an_address_that_would_end_its_command_is_not_written(address: str, unsafe: bool) -> None:
    needs = EnvelopeNeeds.of(Envelope("ann@sender.test", (address,), b"x"))
    assert needs.unsafe == ((0,) if unsafe else ())
    assert needs.smtputf8 == (not address.isascii())


# -- sessions ----------------------------------------------------------------------------------------


def test_bytes_after_the_end_change_nothing() -> None:
    session = ready()
    session.fail(Break(BreakKind.CLOSED, "gone"), 1.0)
    assert session.received(b"250 ok\r\n", 2.0) == b""
    session.fail(Break(BreakKind.TIMEOUT, "late"), 3.0)
    assert session.ended == Answer(Phase.MAIL, Break(BreakKind.CLOSED, "gone"))


def test_an_envelope_for_a_session_that_is_over_is_answered_at_once() -> None:
    session = ready()
    session.received(b"421 4.4.2 bye\r\n", 1.0)
    transaction, commands = session.begin(HELLO, 2.0)
    assert (transaction.done, commands) == (True, b"")
    (answer,) = transaction.result(()).answers
    assert answer.phase is Phase.MAIL
    assert isinstance(answer.outcome, Break)
    assert answer.outcome.kind is BreakKind.CLOSED
    assert "421 4.4.2 bye" in answer.outcome.detail


def test_the_envelope_begun_behind_a_dot_must_be_sent_next() -> None:
    session = ready("PIPELINING")
    following = Envelope("ann@sender.test", ("cyd@peer.test",), b"x\r\n")
    transaction, _ = session.begin(HELLO, 0.0)
    session.received(b"250 ok\r\n250 ok\r\n354 ok\r\n", 0.0)
    session.content(following, 0.0)
    session.content_written(0.0)
    session.received(b"250 ok\r\n", 0.0)
    assert transaction.done
    assert session.pipelined_envelope is following
    with pytest.raises(RuntimeError):
        session.begin(HELLO, 0.0)
    # One that is equal but not the same is another envelope.
    with pytest.raises(RuntimeError):
        session.begin(Envelope("ann@sender.test", ("cyd@peer.test",), b"x\r\n"), 0.0)
    again, commands = session.begin(following, 0.0)
    assert (again.envelope, commands) == (following, b"")


def test_a_refusal_while_content_is_being_written_is_the_answer_and_the_end() -> None:
    session = ready("PIPELINING")
    following = Envelope("ann@sender.test", ("cyd@peer.test",), b"x\r\n")
    transaction, _ = session.begin(HELLO, 0.0)
    session.received(b"250 ok\r\n250 ok\r\n354 ok\r\n", 0.0)
    session.content(following, 0.0)
    session.received(b"552 5.3.4 too big\r\n", 1.0)
    assert transaction.answers == [Answer(Phase.BODY, Reply(552, "5.3.4 too big", "5.3.4"))]
    assert session.state is ClientState.ENDED
    second, _ = session.begin(following, 1.0)
    (answer,) = second.result(()).answers
    assert answer.phase is Phase.MAIL
    assert isinstance(answer.outcome, Break)


def test_an_acceptance_of_half_a_message_is_not_believed() -> None:
    session = ready()
    transaction, _ = session.begin(HELLO, 0.0)
    for reply in (b"250 ok\r\n", b"250 ok\r\n", b"354 ok\r\n"):
        session.received(reply, 0.0)
    session.content(None, 0.0)
    session.received(b"250 ok\r\n", 0.0)
    (answer,) = transaction.result(()).answers
    assert isinstance(answer.outcome, Break)
    assert (answer.phase, answer.outcome.kind) == (Phase.BODY, BreakKind.PROTOCOL)


def test_content_that_is_withheld_leaves_the_phase_before_the_body() -> None:
    session = ready("PIPELINING")
    transaction, _ = session.begin(HELLO, 0.0)
    session.received(b"250 ok\r\n250 ok\r\n354 ok\r\n", 0.0)
    session.withhold(0.0)
    assert transaction.answers == [
        Answer(Phase.DATA, Break(BreakKind.LOCAL, "content not sent: the right to send was lost"))
    ]


def test_what_was_learnt_before_tls_is_forgotten() -> None:
    session = ClientSession("client.test", starttls=True, now=0.0)
    session.received(b"220 mx\r\n", 0.0)
    session.received(b"250-mx\r\n250-SIZE 10\r\n250-PIPELINING\r\n250 STARTTLS\r\n", 0.0)
    session.received(b"220 go\r\n", 0.0)
    assert session.state.value == "handshake"
    assert session.secured(TlsDetails("TLSv1.3", "c", "unverified"), 0.0) == b"EHLO client.test\r\n"
    session.received(b"250 mx\r\n", 0.0)
    assert session.features == ServerFeatures()
    assert session.state is ClientState.READY


# -- transcripts -------------------------------------------------------------------------------------


def test_a_transcript_shows_each_reply_with_its_milliseconds_and_no_content() -> None:
    session = ready("PIPELINING")
    secret = Envelope("ann@sender.test", ("bob@peer.test", "cyd@peer.test"), b"Subject: secret\r\n\r\nsecret\r\n")
    transaction, _ = session.begin(secret, 1.0)
    session.received(b"250 2.1.0 ok\r\n", 1.5)
    session.received(b"250 2.1.5 ok\r\n550 5.1.1 no\r\n354 go\r\n", 1.75)
    session.content(None, 2.0)
    session.content_written(2.0)
    session.received(b"250 2.0.0 queued\r\n", 2.25)
    result = transaction.result(opening(session.opening_steps))
    assert result.transcript == [
        {"step": "greeting", "reply": "220 mx.peer.test", "ms": 0.0},
        {"step": "ehlo", "reply": "250 mx.peer.test PIPELINING", "ms": 0.0},
        {"step": "mail", "reply": "250 2.1.0 ok", "ms": 500.0},
        {"step": "rcpt", "to": "bob@peer.test", "reply": "250 2.1.5 ok", "ms": 250.0},
        {"step": "rcpt", "to": "cyd@peer.test", "reply": "550 5.1.1 no", "ms": 0.0},
        {"step": "data", "reply": "354 go", "ms": 0.0},
        {"step": "body", "reply": "250 2.0.0 queued", "ms": 250.0},
    ]


@pytest.mark.parametrize("recipients", [1, 2, 7, 50, 1_000])
@pytest.mark.parametrize("text", ["x", '"\\', "✉", "\U0001f4ee"])
def test_a_transcript_stays_under_4_kb_of_json(recipients: int, text: str) -> None:
    long = Reply(550, text * MAX_TEXT)
    opened = opening([{"step": "connect", "to": "mx.peer.test [192.0.2.1]:25", "ms": 1.0}] + [
        TranscriptStep(phase, long, 1.0) for phase in (Phase.GREETING, Phase.EHLO, Phase.STARTTLS, Phase.EHLO)
    ])  # fmt: skip
    assert opening_with_size(opened) == (opened, json_octets(opened))
    steps = [TranscriptStep(Phase.MAIL, long, 12.5)]
    steps += [TranscriptStep(Phase.RCPT, long, 300.0, place) for place in range(recipients)]
    steps += [TranscriptStep(Phase.DATA, long, 1.0), TranscriptStep(Phase.BODY, long, 600.0)]
    addresses = ["é" * 300 + "@peer.test"] * recipients
    shown = conversation(opened, steps, addresses)
    assert len(json.dumps(shown)) < 4_096
    assert [step["step"] for step in shown[-2:]] == ["data", "body"]
    hidden = sum(step.get("omitted", 0) for step in shown)
    assert hidden + sum(1 for step in shown if step["step"] == "rcpt" and "omitted" not in step) == recipients
