"""Received messages: every field, hostile octets, and limits that lose nothing."""

import email
import email.policy
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.compose import Draft, compose
from engine.mail.mime_tree import MAX_DEPTH, MAX_PARTS
from engine.mail.read import UnreadableMail
from engine.mail.received import (
    MAX_BODY,
    ReceivedMail,
    read_received,
    received_attachment,
    received_contents,
    summarise,
)
from engine.mail.received_header import MAX_ADDRESSES, ReceivedAddress, addresses, date, message_ids
from engine.mail.received_warnings import TEXTS
from tests.mail.drafts import THOROUGH, drafts

FULL = (
    b"Received: from a by b; Sun, 22 Nov 2026 15:20:26 +0100\r\n"
    b'From: "Example, Ann" <Ann@Example.com>\r\nReply-To: desk@example.com\r\n'
    b"To: =?utf-8?q?J=C3=BCrgen?= <j@x.test>, team: Bob <bob@x.test>,\r\n carl@x.test;\r\nCc: dora@x.test (Dora)\r\n"
    b"Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\n from here\r\nDate: Sun, 22 Nov 2026 15:20:26 +0100\r\n"
    b"Message-ID: <abc@example.com>\r\nIn-Reply-To: <m1@y.test>\r\nReferences: <m0@y.test>\r\n <m1@y.test>\r\n"
    b"Auto-Submitted: auto-generated; x=y\r\nMIME-Version: 1.0\r\n"
    b'Content-Type: multipart/mixed; boundary="b1"\r\n\r\n'
    b"--b1\r\nContent-Type: multipart/alternative; boundary=b2\r\n\r\n"
    b"--b2\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\nHello \xfc\r\n  again\r\n"
    b"--b2\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>Hello</p>\r\n--b2--\r\n"
    b"--b1\r\nContent-Type: image/png\r\nContent-ID: <logo@x>\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\n"
    b"--b1\r\nContent-Type: application/pdf; name=plain.pdf\r\n"
    b"Content-Disposition: attachment; filename*=utf-8''%C3%BC.pdf\r\n\r\n%PDF\r\n"
    b"--b1\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ninside\r\n"
    b"--b1\r\nContent-Type: text/plain\r\n\r\nfooter\r\n--b1--\r\n"
)


def codes(mime: bytes) -> set[str]:
    return {one.code for one in read_received(mime).warnings}


def test_all_fields_of_a_message_are_read() -> None:
    found = read_received(FULL)

    assert found.sender == ReceivedAddress("Example, Ann", "Ann@example.com")
    assert found.reply_to == ReceivedAddress("", "desk@example.com")
    assert found.to == [
        ReceivedAddress("Jürgen", "j@x.test"),
        ReceivedAddress("Bob", "bob@x.test"),
        ReceivedAddress("", "carl@x.test"),
    ]
    assert found.cc == [ReceivedAddress("Dora", "dora@x.test")]
    assert found.subject == "Grüße from here"
    assert found.date == datetime(2026, 11, 22, 14, 20, 26, tzinfo=UTC)
    assert (found.header_message_id, found.in_reply_to) == ("abc@example.com", "m1@y.test")
    assert found.references == ["m0@y.test", "m1@y.test"]
    assert found.text == "Hello ü\n  again\nfooter"
    assert found.html == "<p>Hello</p>\n<p>footer</p>"
    assert found.snippet == "Hello ü again footer"
    assert found.auto_submitted
    assert found.received_count == 1
    assert found.headers[5].name == "Subject"
    assert found.headers[5].value == "Grüße from here"


def test_all_that_is_not_body_is_an_attachment_with_a_safe_name() -> None:
    image, pdf, inner = read_received(FULL).attachments

    assert (image.filename, image.content_type, image.cid, image.disposition) == (
        "attachment-1.png", "image/png", "logo@x", "inline",
    )  # fmt: skip
    assert image.sha256 == sha256(b"\0\1\2").hexdigest()
    assert (pdf.filename, pdf.disposition, pdf.size_bytes) == ("ü.pdf", "attachment", 4)
    assert (inner.filename, inner.content_type) == ("attachment-3.eml", "message/rfc822")
    assert received_attachment(FULL, 2) == b"Subject: inner\r\n\r\ninside"
    assert list(received_contents(FULL)) == [received_attachment(FULL, index) for index in range(3)]
    assert codes(FULL) == {"names_differ"}
    for index in (-1, 3):
        with pytest.raises(UnreadableMail):
            received_attachment(FULL, index)


def test_the_summary_has_the_same_fields_as_the_message() -> None:
    found, summary = read_received(FULL), summarise(FULL)

    same = [name for name in summary.__struct_fields__ if name not in {"warnings", "snippet"}]
    assert [getattr(summary, name) for name in same] == [getattr(found, name) for name in same]
    assert summary.snippet == "Hello ü again"


def test_html_alone_gives_the_snippet() -> None:
    html = b"Content-Type: text/html\r\n\r\n<style>p{}</style><p>Your&nbsp;order</p>\xe2\x80\x8b <p>has shipped</p>"

    for found in (summarise(html), read_received(html)):
        assert found.snippet == "Your order has shipped"
    assert read_received(html).text is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"Sun, 22 Nov 2026 15:20:26 +0100", "2026-11-22T14:20:26"),
        (b"22 Nov 26 15:20 EST", "2026-11-22T20:20:00"),
        (b"21 Nov 97 09(comment):   55  :  06 -0600", "1997-11-21T15:55:06"),  # RFC 5322 appendix A.6.3
        (b"Thu, 13\r\n Feb\r\n 1969 23:32\r\n -0330 (Newfoundland Time)", "1969-02-14T03:02:00"),  # A.5
        (b"Sun Nov 22 15:20:26 2026", "2026-11-22T15:20:26"),
        (b"2026-11-22T15:20:26+01:00", "2026-11-22T14:20:26"),
        (b"Fri, 1 Sept 2023 12:00:60 GMT", "2023-09-01T12:00:59"),
        (b"Mon, 1 Jan 2024 12:00:00 XYZ", "2024-01-01T12:00:00"),
        (b"Mon, 30 Feb 2026 00:00:00 +0000", None),
        (b"Fri, 31 Dec 9999 23:59:59 -1200", None),
        (b"Tue, 1 Jan 2019 10:00:00 +9959", None),
        (b"yesterday", None),
        (b"", None),
    ],
)
def test_dates_are_read_in_current_and_obsolete_forms(value: bytes, expected: str | None) -> None:
    found = date(value)

    assert found == (None if expected is None else datetime.fromisoformat(expected).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("value", "name", "address"),
    [
        (b"MAILER-DAEMON", "MAILER-DAEMON", ""),
        (b'"a b"@c.test', "", '"a b"@c.test'),
        (b"<@hop.test:u@b.test>", "", "u@b.test"),
        (b"u@[192.0.2.1]", "", "u@[192.0.2.1]"),
        (b"Ann <a@b.test", "Ann", "a@b.test"),
        (b"a@b@c.test", "a@b@c.test", ""),
        (b"J\xfcrgen <j@x.test>", "Jürgen", "j@x.test"),
        (b"a@b.test <c@d.test>", "a@b.test", "c@d.test"),
        ("ü@bücher.test".encode(), "", "ü@bücher.test"),
        (b"=?utf-8?q?a=00b=0D=0AX=3A_y?= <a@b.test>", "a b X: y", "a@b.test"),
    ],
)
def test_unusual_addresses_are_shown_as_written(value: bytes, name: str, address: str) -> None:
    assert addresses(value)[0] == [ReceivedAddress(name, address)]


def test_an_empty_group_keeps_its_name_without_a_warning() -> None:
    assert addresses(b"undisclosed-recipients:;") == ([ReceivedAddress("undisclosed-recipients", "")], set())


@pytest.mark.parametrize(
    ("name", "value"),
    [("From", b"J\xfcrgen <j@x.test>"), ("Reply-To", b"=?utf-8?q?M\xe4rz?= <j@x.test>"),
     ("To", b'"J\xfcrgen" <j@x.test>'), ("Subject", b"M\xe4rz"), ("Cc", b"j@x.test (J\xfcrgen)")],
)  # fmt: skip
def test_a_guessed_charset_is_named_for_every_field(name: str, value: bytes) -> None:
    assert "charset_guessed" in codes(name.encode() + b": " + value + b"\r\n\r\nx")


def test_an_entry_without_an_address_does_not_hide_the_sender() -> None:
    found = summarise(b"From: A, B, Ann <ann@x.test>\r\nReply-To: C, D, d@x.test\r\n\r\nx")

    assert (found.sender, found.reply_to) == (ReceivedAddress("Ann", "ann@x.test"), ReceivedAddress("", "d@x.test"))


def test_a_group_as_sender_shows_its_name() -> None:
    found = summarise(b"From: Backup job:;\r\nTo: undisclosed-recipients:;\r\nDate: Mon, 1 Jan 2024 0:00 Z\r\n\r\nx")

    assert found.sender == ReceivedAddress("Backup job", "")
    assert [one.code for one in found.warnings] == ["from_missing"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"<a@x.test> <b@x.test>", ["a@x.test", "b@x.test"]),
        (b"1234567@x.test 89@x.test", ["1234567@x.test", "89@x.test"]),
        (b"1@x.test,2@x.test;\r\n 3@x.test", ["1@x.test", "2@x.test", "3@x.test"]),
        (b"<a@x.test> b@x.test", ["a@x.test", "b@x.test"]),
        (b"<a@x.test b@x.test>", ["a@x.testb@x.test"]),
        (b"<a@x.test> (added by b@x.test) (c@x.test)", ["a@x.test"]),
        (b"<a-long\r\n -id@x.test>", ["a-long-id@x.test"]),
        (b"<a@x.test <b@x.test", ["a@x.test", "b@x.test"]),
        (b'Your message of Monday <a@x.test> "old <form>"', ["a@x.test", "form"]),
        (b"<>", []), (b"@ @x x@", []), (b"no id here", []),
    ],
)  # fmt: skip
def test_references_are_read_with_and_without_brackets(value: bytes, found: list[str]) -> None:
    assert message_ids(value) == found


def test_many_message_ids_keep_the_first_and_the_last() -> None:
    found = message_ids(b" ".join(b"<%d@x>" % number for number in range(5_000)))

    assert len(found) == 100
    assert (found[0], found[1], found[-1]) == ("0@x", "4901@x", "4999@x")


@pytest.mark.parametrize(
    ("mime", "code"),
    [
        (b"From: a@b.test\r\nFrom: c@d.test\r\n\r\n", "field_repeated"),
        (b"From: a@b.test, c@d.test\r\n\r\n", "several_from"),
        (b'From: "ceo@bank.test" <a@b.test>\r\n\r\n', "misleading_name"),
        (b"X: y\r\n\r\n", "from_missing"),
        (b"From: daemon\r\n\r\n", "address_unreadable"),
        (b"Date: never\r\n\r\n", "date_unreadable"),
        (b"X: y\r\n\r\n", "date_missing"),
        (b"no field\r\nX: y\r\n\r\n", "header_malformed"),
        (b"X: " + b"y" * 110_000 + b"\r\n\r\n", "header_truncated"),
        (b"X:y\r\n" * 1_001 + b"\r\n", "header_truncated"),
        (b"To: " + b"a@b.test," * 1_001 + b"\r\n\r\n", "too_many_addresses"),
        (b"Content-Type: text/plain; charset=klingon\r\n\r\nx", "unknown_charset"),
        (b"X: y\r\n\r\n\xff", "charset_guessed"),
        (b"Content-Type: text/plain; charset=utf-8\r\n\r\n\xff", "text_damaged"),
        (b"Content-Transfer-Encoding: base64\r\n\r\nYQ", "text_damaged"),
        (b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ", "attachment_damaged"),
        (b"Content-Type: image/png\r\nContent-Transfer-Encoding: x-own\r\n\r\nYQ", "attachment_damaged"),
        (b"X: y\r\n\r\n" + b"a" * (MAX_BODY + 2), "text_truncated"),
    ],
)
def test_what_is_unusual_is_a_warning(mime: bytes, code: str) -> None:
    assert code in codes(mime)


DAMAGED = (
    b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\nSGVsbG8=\r\nSGk\r\n"
    b"--b\r\nContent-Type: a/b\r\nContent-Disposition: attachment; filename=f.bin\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\nSGVsbG8=\r\n-- \r\nfooter\r\n--b--\r\n"
)


def test_damage_is_named_with_the_part_and_the_octets_that_were_read() -> None:
    texts = {one.code: one.text for one in read_received(DAMAGED).warnings}

    assert texts["attachment_damaged"] == (
        "The encoding of attachment 1 (f.bin) is damaged or unknown; 5 octets of it were read."
    )
    assert "Text part 1" in texts["text_damaged"]
    assert "7 octets" in texts["text_damaged"]


def test_the_scanner_sees_what_programs_show_that_decode_beyond_the_padding() -> None:
    mime = b"Content-Type: a/b\r\nContent-Transfer-Encoding: base64\r\n\r\nSGVsbG8=\r\nIFdvcmxk\r\n"

    assert list(received_contents(mime)) == [b"Hello World"]


def test_warnings_of_one_kind_leave_room_for_others() -> None:
    part = b"--b\r\nContent-Type: a/b\r\nContent-Transfer-Encoding: x-own\r\n\r\nx\r\n"
    found = summarise(b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + part * 100)

    assert [one.code for one in found.warnings].count("attachment_damaged") == 10
    assert {one.code for one in found.warnings} == {"attachment_damaged", "date_missing", "from_missing"}


def nested(depth: int) -> bytes:
    head = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(depth))
    return head + b"\r\ndeep\r\n"


def test_entities_beyond_the_depth_are_one_attachment() -> None:
    mime = nested(MAX_DEPTH + 3)
    found = read_received(mime)

    assert "nested_too_deep" in codes(mime)
    (rest,) = found.attachments
    assert rest.content_type == "multipart/mixed"
    assert received_attachment(mime, 0).endswith(b"\r\ndeep\r\n")


def test_parts_beyond_the_limit_are_one_attachment() -> None:
    head, part = b"Content-Type: multipart/mixed; boundary=x\r\n\r\n", b"--x\r\nContent-Type: image/png\r\n\r\nab\r\n"
    mime = head + part * (MAX_PARTS + 500)
    found = read_received(mime)

    assert "too_many_parts" in codes(mime)
    assert len(found.attachments) == MAX_PARTS
    assert received_attachment(mime, MAX_PARTS - 1).count(b"image/png") == 501


def test_false_boundaries_end_the_division() -> None:
    mime = b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nbegin" + b"\r\n--xy" * 120_000
    found = read_received(mime)

    assert "too_many_boundaries" in codes(mime)
    assert (found.text or "").count("--xy") == 120_000


MEBIBYTE = 1024 * 1024
HOSTILE: dict[str, Callable[[], bytes]] = {
    "folded header": lambda: b"Subject: " + b"a\r\n " * (5 * MEBIBYTE // 4) + b"\r\n\r\nx",
    "parts": lambda: b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + b"--x\r\n\r\n\r\n" * 100_000,
    "nested": lambda: nested(10_000),
    "encoded words": lambda: b"Subject: " + b"=?utf-8?q?a?= " * (MEBIBYTE // 14) + b"\r\n\r\n",
    "encoded words in lines": lambda: b"Subject: =?utf-8?q?a?=\r\n" * (MEBIBYTE // 24) + b"\r\n",
    "addresses": lambda: b"To: " + b"a@b.test," * 100_000 + b"\r\n\r\n",
    "IDN addresses": lambda: b"To: " + "ü@bücher.test,".encode() * 7_000 + b"\r\n\r\n",
    "nested comments": lambda: b"To: " + b"(" * 100_000 + b"\r\n\r\n",
    "open quotes": lambda: b'To: "' + b'\\"' * 50_000 + b"\r\n\r\n",
    "base64 garbage": lambda: b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    + b"=!" * 2 * MEBIBYTE,
    "blank lines": lambda: b"\r\n" * (3 * MEBIBYTE),
    "charsets": lambda: b"Content-Type: multipart/mixed; boundary=x\r\n\r\n"
    + b"".join(b"--x\r\nContent-Type: text/plain; charset=x%d\r\n\r\na\r\n" % n for n in range(999)),
    "comments in dates": lambda: b"Date: " + b"(a" * 40_000 + b"\r\n\r\n",
    "references": lambda: b"References: " + b"<a@b>" * 20_000 + b"\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_are_read_in_linear_time(name: str) -> None:
    mime = HOSTILE[name]()
    began = time.process_time()

    check(read_received(mime))

    assert time.process_time() - began < 1.5  # measured: at most 0.15 s


def check(found: ReceivedMail) -> None:
    """Assert that Postgres can store every text, and that lengths are bounded."""
    # Raises for lone surrogates. The parts of the text hold words as written, and only lead to the text.
    encoded = msgspec.json.encode(msgspec.structs.replace(found, text_parts=[], html_parts=[]))
    assert b"\\u0000" not in encoded
    assert all(one.code in TEXTS for one in found.warnings)
    assert len(found.to) <= MAX_ADDRESSES
    assert len(found.snippet) <= 200
    assert all(one.filename for one in found.attachments)


_tokens = st.sampled_from([
    b"\r\n", b"\n", b"\r", b"--x", b"--x--", b"Content-Type: multipart/mixed; boundary=x", b"From: ", b"Date: ",
    b"Content-Type: text/html", b"Content-Type: text/plain; charset=utf-7", b"+2AA-", b"charset=utf-16", b"\0", b"\xff",
    b"Content-Transfer-Encoding: base64", b"AAAA", b"Content-Transfer-Encoding: quoted-printable", b"=00", b"=ED=A0=80",
    b"Content-Disposition: attachment; filename*0*=utf-16''%D8%00", b"=?utf-7?q?+2AA-?=", b"=?utf-8?b?AA==?=", b"<",
    b">",
    b"Content-ID: <\xff\0>", b"Subject: ", b"To: ", b"@", b"a", b",", b'"', b"(", b"&#0;", b"&#xD800;", b" ", b";",
    b"References: <a\0b>", b"Message-ID: \0", b"Content-Type: a\0b/c", b"Content-Type: message/rfc822",
])  # fmt: skip


@THOROUGH
@given(st.lists(_tokens, max_size=40).map(b"".join) | st.binary(max_size=300))
def test_any_octets_become_a_message_that_can_be_stored(mime: bytes) -> None:
    found = read_received(mime)

    check(found)
    assert summarise(mime).attachments == found.attachments
    for one in found.attachments:
        assert sha256(received_attachment(mime, one.index)).hexdigest() == one.sha256


@THOROUGH
@given(drafts(utf8=True))
def test_well_formed_messages_are_read_as_the_standard_library_does(draft: Draft) -> None:
    mime = compose(draft).mime
    judge = email.message_from_bytes(mime, policy=email.policy.default)
    found = read_received(mime)

    for kind, mine in (("plain", found.text), ("html", found.html)):
        body = judge.get_body((kind,))
        if body is not None and not body.is_attachment() and body.get_filename() is None:
            assert (mine or "").rstrip("\n") == body.get_content().replace("\r\n", "\n").replace("\0", "\ufffd").rstrip(
                "\n"
            )
    contents = sorted(sha256(one.content).hexdigest() for one in draft.attachments)
    assert sorted(one.sha256 for one in found.attachments) == contents


def test_damage_in_a_field_is_a_warning_that_names_it() -> None:
    mime = b"From: =?utf-8?q?Ann_=FF?= <ann@people.test>\r\nSubject: =?utf-8?b?/w==?=\r\n\r\nx\r\n"
    texts = [one.text for one in read_received(mime).warnings if one.code == "field_damaged"]

    assert [text.split(" contains")[0] for text in texts] == ["From", "Subject"]
