"""Messages that clients composed: kept, completed, or refused in one way."""

import contextlib
import time
from datetime import UTC, datetime
from email import message_from_bytes, policy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import Refusal
from engine.mail.address import BadAddress, Mailbox, check_sender
from engine.mail.compose import compose
from engine.mail.read import files
from engine.mail.submitted import MAX_LINE, Flaw, Unsendable, check_octets, complete, read, written
from engine.sending.emails import submitted as area
from tests.mail.drafts import THOROUGH, drafts

AT = datetime(2026, 11, 20, 8, 9, 10, tzinfo=UTC)
PLAIN = b"From: a@b.test\r\nTo: c@d.test\r\nSubject: x\r\n\r\nhello\r\n"


def flaw_of(octets: bytes, *, smtputf8: bool = False) -> Flaw | None:
    try:
        read(octets, smtputf8=smtputf8)
    except Unsendable as error:
        return error.flaw
    return None


def _may_send(sender: Mailbox) -> bool:
    try:
        check_sender(sender)
    except BadAddress:
        return False
    return True


@THOROUGH
@given(drafts(utf8=True).filter(lambda draft: _may_send(draft.sender)))
def test_what_we_compose_is_taken_and_kept(draft) -> None:  # type: ignore[no-untyped-def]
    mime = compose(draft).mime
    mail = read(mime, smtputf8=True)
    assert mail.kept == mime
    assert complete(mail, message_id="other@x.test", at=AT) == mime
    assert mail.sender.address == draft.sender.address


def test_only_what_is_missing_is_added() -> None:
    mail = read(PLAIN, smtputf8=False)
    made = complete(mail, message_id="id@b.test", at=AT, received="Received: by x;\r\n y\r\n")
    assert made == (
        b"Received: by x;\r\n y\r\nDate: Fri, 20 Nov 2026 08:09:10 +0000\r\nMessage-ID: <id@b.test>\r\n" + PLAIN
    )


def test_the_services_own_fields_are_taken_out_and_told() -> None:
    octets = b"X-Waybill-Tag: =?utf-8?q?=C3=BC?=,\r\n b\r\n" + PLAIN.replace(
        b"\r\n\r\n", b"\r\nx-WAYBILL-tag: c\r\n\r\n"
    )
    mail = read(octets, smtputf8=False)
    assert mail.kept == PLAIN
    assert [(one.name, one.text) for one in mail.options] == [("X-Waybill-Tag", "ü, b"), ("x-WAYBILL-tag", "c")]


@pytest.mark.parametrize(
    "field",
    [
        "Sender: ceo@victim.test", "SENDER : ceo@victim.test", "Sender: a@b.test, ceo@victim.test",
        "Sender: Boss\r\n <ceo@victim.test>", "Sender: ceo@sub.b.test", "Sender: nobody", "Sender: ",
        'Sender: "ceo@victim.test" <a@b.test>',
        "Authentication-Results: mx.d.test; dkim=pass", "Received-SPF: pass", "Return-Path: <x@y.test>",
        "Resent-From: ceo@victim.test", "resent-bcc: z@people.test", "ARC-Seal: i=1; cv=none",
        "arc-message-signature: i=1",
        "ARC-Authentication-Results: i=1; mx.d.test; spf=pass", "DomainKey-Signature: a=rsa-sha1; d=b.test",
        "DKIM-Signature: v=1; d=victim.test; b=AA", "DKIM-Signature: v=1; d=test; b=AA", "dkim-signature: v=1; b=AA",
        "DKIM-Signature: v=1; d=b.test;\r\n d=victim.test; b=AA", "DKIM-Signature: nonsense",
    ],
)  # fmt: skip
def test_a_field_that_only_others_may_write_is_taken_out(field: str) -> None:
    mail = read(field.encode() + b"\r\n" + PLAIN, smtputf8=False)
    assert mail.kept == PLAIN
    assert [one.name for one in mail.header] == [b"from", b"to", b"subject"]


@pytest.mark.parametrize(
    "field",
    [
        "Sender: A Robot <robot@B.test>", "Received: from x by y; Fri, 20 Nov 2026 08:09:10 +0000",
        "DKIM-Signature: v=1; a=rsa-sha256;\r\n d=B.test; s=x; b=AA", "DKIM-Signature: v=1; d=mail.b.test; b=AA",
        "Reply-To: x@elsewhere.test", "List-Id: <x.b.test>", "X-Sender: ceo@victim.test",
    ],
)  # fmt: skip
def test_a_field_of_the_from_domain_stays(field: str) -> None:
    octets = field.encode() + b"\r\n" + PLAIN
    assert read(octets, smtputf8=False).kept == octets


def test_a_header_alone_becomes_a_message_with_an_empty_body() -> None:
    mail = read(b"From: a@b.test\r\n", smtputf8=False)
    parsed = message_from_bytes(complete(mail, message_id="i@b.test", at=AT), policy=policy.default)
    assert parsed["Message-ID"] == "<i@b.test>"
    assert parsed.get_content() == ""


@pytest.mark.parametrize(
    ("octets", "flaw"),
    [
        (PLAIN + b"a\nb\r\n", Flaw.OCTETS),
        (PLAIN + b"a\rb\r\n", Flaw.OCTETS),
        (PLAIN + b"a\0b\r\n", Flaw.OCTETS),
        (PLAIN + b"\n\r\n", Flaw.OCTETS),
        (PLAIN + b"x" * 999 + b"\r\n", Flaw.LINE),
        (b"\r\n" + PLAIN, Flaw.SENDER),
        (b"", Flaw.SENDER),
        (b"hello\r\n", Flaw.HEADER),
        (PLAIN.replace(b"To:", b"From:"), Flaw.SENDER),
        (PLAIN.replace(b"a@b.test", b"a@b.test, c@d.test"), Flaw.SENDER),
        (PLAIN.replace(b"a@b.test", b'"a b"@c.test'), Flaw.SENDER),
        (PLAIN.replace(b"To:", b"Subject:"), Flaw.HEADER),
        (PLAIN.replace(b"To:", b"Content-Type: a/b\r\ncontent-type:"), Flaw.HEADER),
        (PLAIN.replace(b"c@d", "ü@d".encode()), Flaw.CHARSET),
        (b"Received: x\r\n" * 51 + PLAIN, Flaw.LOOP),
    ],
)
def test_flaws_are_told_apart(octets: bytes, flaw: Flaw) -> None:
    assert flaw_of(octets) is flaw


@pytest.mark.parametrize(
    "field",
    [
        "From: =?utf-8?q?Ann=0D=0ABcc:_x?= <a@b.test>",
        "From: =?utf-8?b?QQBC?= <a@b.test>",
        "From: =?utf-7?q?+AAo-?= <a@b.test>",
        'From: "=?utf-8?q?=E2=80=A8?=" <a@b.test>',
        "From: a@b.test\r\nSubject: =?utf-8?q?Hi=0A?=",
        "From: a@b.test\r\nTo: =?utf-8?q?=1B?= <c@d.test>",
        "From: a@b.test\r\nSubject: =?utf-8?Q?hello =0D=0ABcc: a@b.test?=",
        "From: a@b.test\r\nSubject: =?utf-8?B?SGVsbG8=DQpCY2M6?=",
        "From: a@b.test\r\nSubject: =?utf-8?Q?Really?_=0D=0ABcc:?=",
        "From: a@b.test\r\nSubject: =?utf-8?q?x =?utf-8?q?a=0Ab?=",
        "From: a@b.test\r\nX-Own: =?utf-8?q?a?=\r\n =?utf-8?q?=7F?=",
    ],
)
def test_an_encoded_word_that_hides_a_control_character_is_refused(field: str) -> None:
    with pytest.raises(Unsendable, match=r"control character \(U\+[0-9A-F]{4}\)") as raised:
        read(f"{field}\r\n\r\nx\r\n".encode(), smtputf8=False)
    assert raised.value.flaw is Flaw.HEADER


def test_an_encoded_tab_or_plain_text_passes() -> None:
    read(b"From: =?utf-8?q?J=C3=B6rg?= <a@b.test>\r\nSubject: =?utf-8?q?a=09b?= =?odd\r\n\r\nx\r\n", smtputf8=False)


@pytest.mark.parametrize(
    "sender",
    [
        '"<a@legit.test>" <x@b.test>',
        "=?utf-8?q?a=40legit=2Etest?= <x@b.test>",
        "x@b.test (a@legit.test)",
        "=?utf-8?Q?The Bank a=40legit=2Etest?= <x@b.test>",
        "=?utf-8?B?YUBsZWdpdA==LnRlc3Q=?= <x@b.test>",
        "=?utf-8?Q?Bank?_a=40legit.test?= <x@b.test>",
        "=?iso-8859-1?Q?a=40le\r\n git.test a=40legit.test?= <x@b.test>",
    ],
)
def test_a_sender_that_shows_an_address_of_another_domain_is_refused(sender: str) -> None:
    with pytest.raises(Unsendable, match=r"a@legit\.test, which does not belong to b\.test") as raised:
        read(f"From: {sender}\r\n\r\nx\r\n".encode(), smtputf8=False)
    assert raised.value.flaw is Flaw.SENDER


@pytest.mark.parametrize("letter", ["\u034f", "\u115f", "\ufe0f", "\u3164", "\u200b", "\u00ad"])
def test_invisible_characters_hide_no_address_in_a_name(letter: str) -> None:
    for name in (f"a{letter}@legit.test", f"a@{letter}legit.test", f"a@leg{letter}it.test", f"a@legit{letter}.test"):
        with pytest.raises(Unsendable, match="does not belong to b"):
            read(f'From: "{name}" <x@b.test>\r\n\r\nx\r\n'.encode(), smtputf8=True)


@pytest.mark.parametrize(
    "domain", ["b。test", "b．test", "ｂ.test", "b｡test", "b\ufe0f.test", "b\u034f.test", "b\u115f.test"]
)
def test_a_domain_that_programs_read_differently_is_refused(domain: str) -> None:
    for sender in (f"x@{domain}", f"Ann <x@{domain}>", f"x@{domain} (Ann)"):
        with pytest.raises(Unsendable, match="read differently"):
            read(f"From: {sender}\r\n\r\nx\r\n".encode(), smtputf8=True)
    for name in ("To", "Cc", "Reply-To", "Mail-Followup-To", "Disposition-Notification-To", "Errors-To"):
        with pytest.raises(Unsendable, match="read differently"):
            read(f"From: x@b.test\r\n{name}: a@c.test, Ann <ann@{domain}>\r\n\r\nx\r\n".encode(), smtputf8=True)
    found = read("From: x@bücher.test\r\nTo: jörg@bücher.test\r\n\r\nx\r\n".encode(), smtputf8=True)
    assert found.sender.domain == "xn--bcher-kva.test"


def test_several_of_the_same_trace_or_free_field_are_fine() -> None:
    assert flaw_of(b"Received: x\r\n" * 50 + b"X-A: b\r\nX-A: c\r\nComments: a\r\nComments: b\r\n" + PLAIN) is None


@given(st.lists(st.integers(0, 2_100), max_size=8))
def test_a_line_is_too_long_wherever_it_stands(lengths: list[int]) -> None:
    octets = b"".join(b"x" * length + b"\r\n" for length in lengths)
    fits = all(length <= MAX_LINE for length in lengths)
    try:
        check_octets(octets)
    except Unsendable as error:
        found: Flaw | None = error.flaw
    else:
        found = None
    assert found is (None if fits else Flaw.LINE)


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b"."]), max_size=12).map(b"".join))
def test_only_whole_line_ends_pass(octets: bytes) -> None:
    stripped = octets.replace(b"\r\n", b"")
    whole = b"\r" not in stripped and b"\n" not in stripped
    try:
        check_octets(octets)
        assert whole
    except Unsendable:
        assert not whole


@given(st.binary(max_size=300))
def test_any_octets_are_read_or_refused(octets: bytes) -> None:
    for head in (b"", b"From: a@b.test\r\n", b"From: a@b.test\r\n\r\n"):
        flaw_of(head + octets, smtputf8=True)


@given(st.lists(st.sampled_from(["a", "@", "b.test", "<", ">", '"', ",", ":", ";", "(", ")", " ", "\\", "\r\n ", "ü"])))
def test_any_from_is_one_address_or_refused(words: list[str]) -> None:
    octets = f"From: {''.join(words)}\r\nTo: c@d.test\r\n\r\n".encode()
    try:
        found = read(octets, smtputf8=True)
    except Unsendable:
        return
    assert found.sender.address.count("@") == 1


def test_a_large_message_is_read_in_linear_time() -> None:
    octets = PLAIN + (b"x" * 76 + b"\r\n") * 500_000
    began = time.thread_time()
    mail = read(octets, smtputf8=False)
    list(files(mail.kept))
    assert time.thread_time() - began < 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "a@b.test"),
        ("Ann", "Ann <a@b.test>"),
        ("Smith, Ann", '"Smith, Ann" <a@b.test>'),
        ('A "B" C', '"A \\"B\\" C" <a@b.test>'),
        ("Jörg", "Jörg <a@b.test>"),
        ("Müller: Jörg", '"Müller: Jörg" <a@b.test>'),
    ],
)
def test_a_mailbox_is_written_so_that_it_reads_back(name: str, text: str) -> None:
    assert written(Mailbox(name, "a@b.test")) == text


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("Content-Disposition: attachment; filename=a.pdf", ("a.pdf",)),
        ('Content-Disposition: attachment; filename="a; b.pdf"', ("a; b.pdf",)),
        ("Content-Disposition: attachment; filename*=utf-8''f%C3%BCr.pdf", ("für.pdf",)),
        (
            "Content-Disposition: attachment; filename*=iso-8859-1'de'f%FCr.pdf; filename=fuer.pdf",
            ("für.pdf", "fuer.pdf"),
        ),
        ("Content-Disposition: attachment; filename*1*=%C3%BC; filename*0*=utf-8''a; filename*2=.pdf", ("aü.pdf",)),
        ('Content-Type: application/pdf; name="=?utf-8?q?=C3=BC.pdf?="', ("ü.pdf",)),
        ('Content-Type: application/pdf; name="b"\r\nContent-Disposition: inline; filename="a"', ("a", "b")),
        ('Content-Disposition: attachment; filename="ü.pdf"', ("ü.pdf",)),
        ("Content-Disposition: attachment", ()),
        ("Content-Disposition: attachment; filename*0*=x", ("x",)),
        ("Content-Disposition: attachment; filename*1=x", ("x",)),
    ],
)
def test_attachments_have_all_the_names_they_go_by(head: str, names: tuple[str, ...]) -> None:
    (file,) = files(f"From: a@b.test\r\n{head}\r\n\r\nx".encode())
    assert file.names == names


_MIXED = b"Content-Type: multipart/mixed; boundary=%b\r\n\r\n"


@pytest.mark.parametrize(
    "content",
    [
        b"".join(_MIXED % b"B" + b"--B\r\n" for _ in range(5_000)),
        b"".join(_MIXED % (b"B%d" % number) + b"--B%d\r\n" % number for number in range(4_000)),
        _MIXED % b"B" + b"--B\r\n\r\n\r\n" * 20_000,
        _MIXED % b"B" + b"--Bx\r\n" * 40_000,
        _MIXED % b"B" + b"--B\r\nContent-Disposition: attachment; filename*0*=utf-8''%C3%BC\r\n\r\nx\r\n" * 900,
        b"Content-Type: text/plain" + b";\r\n a=b" * 12_000 + b"\r\n\r\n",
        b"Content-Disposition: attachment" + b";\r\n filename*1*=%C3" * 4_000 + b"\r\n\r\n",
        b"X: y" + b"\r\n z" * 24_000 + b"\r\n\r\n",
        b"\r\n" + b"\r\n" * 120_000,
    ],
    ids=["nested", "nested apart", "parts", "near boundaries", "names", "parameters", "segments", "folds", "blank"],
)
def test_hostile_messages_are_done_with_at_once(content: bytes) -> None:
    """Up to 256 KB are read on the event loop: none may hold the other sessions up."""
    octets = b"From: a@b.test\r\nTo: c@d.test\r\n" + content
    began = time.thread_time()
    with contextlib.suppress(Unsendable, Refusal):
        area.read(octets, [Mailbox("", "c@d.test")], smtputf8=False, host="mail.test")
    assert time.thread_time() - began < 0.6
