"""What is composed is what every parser gives back, in octets that every server passes on."""

import email
import email.policy
import re
from datetime import UTC, datetime
from email.header import decode_header, make_header
from email.headerregistry import AddressHeader, DateHeader
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.address import Mailbox
from engine.mail.compose import BadDraft, Draft, compose
from engine.mail.parts import MailAttachment
from tests.mail.drafts import THOROUGH, body_text, drafts

PLAIN = Draft(
    message_id="01jd3q9x5k0000000000000000@shop.test",
    date=datetime(2026, 11, 20, 8, 9, 10, tzinfo=UTC),
    sender=Mailbox("Shop", "shop@shop.test"),
    to=(Mailbox("", "ann@mail.test"),),
    subject="Shipped",
    text="Hello\n",
)
PICTURE = MailAttachment(
    filename="logo.png", content_type="image/png", content=b"\x89PNG", disposition="inline", cid="logo"
)
PAPER = MailAttachment(filename="invoice.pdf", content_type="application/pdf", content=b"%PDF")


def with_(**changes: Any) -> Draft:
    return msgspec.structs.replace(PLAIN, **changes)


def parsed(draft: Draft) -> EmailMessage:
    # From text, since the parser takes raw UTF-8 in a header for undecodable octets.
    found = email.message_from_string(compose(draft).mime.decode(), policy=email.policy.SMTPUTF8)
    assert isinstance(found, EmailMessage)
    return found


def lines_of(text: str) -> list[str]:
    """The text's lines: CR, LF and CRLF are the same, and a last line end may be added on the way."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def one_space(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text).strip(" ")


def shape(message: EmailMessage) -> Any:
    """The tree of content types."""
    if message.is_multipart():
        return (message.get_content_subtype(), [shape(part) for part in message.iter_parts()])  # type: ignore[arg-type]
    return message.get_content_type()


# What arrives ---------------------------------------------------------------------------------------


def assert_mailboxes(field: Any, sent: tuple[Mailbox, ...]) -> None:
    assert isinstance(field, AddressHeader)
    assert [address.addr_spec for address in field.addresses] == [mailbox.address for mailbox in sent]


def shown_names(draft: Draft, field: str) -> list[str]:
    """Display names by the older of the two standard parsers.

    The newer one of Python 3.11 keeps the blank between two encoded words of a phrase, which RFC 2047 6.2
    tells readers to drop.
    """
    message = email.message_from_string(compose(draft).mime.decode())
    names = [name for name, _ in getaddresses(message.get_all(field, []))]
    return [one_space(str(make_header(decode_header(name)))) for name in names]


def written(draft: Draft, name: str) -> str:
    """Return the value of a field as it stands in the message, unfolded."""
    head = compose(draft).mime.partition(b"\r\n\r\n")[0].decode()
    [line] = [one for one in re.sub(r"\r\n(?=[ \t])", "", head).split("\r\n") if one.startswith(f"{name}:")]
    return line.partition(":")[2]


@THOROUGH
@given(drafts(utf8=True))
def test_a_parser_gives_back_every_field(draft: Draft) -> None:
    message = parsed(draft)

    assert_mailboxes(message["From"], (draft.sender,))
    assert shown_names(draft, "From") == [one_space(draft.sender.name)]
    assert shown_names(draft, "To") == [one_space(mailbox.name) for mailbox in draft.to]
    assert_mailboxes(message["To"], draft.to)
    for name, sent in (("Cc", draft.cc), ("Reply-To", draft.reply_to)):
        if sent:
            assert_mailboxes(message[name], sent)
            assert shown_names(draft, name) == [one_space(mailbox.name) for mailbox in sent]
        else:
            assert message[name] is None
    assert str(message["Subject"] or "") == draft.subject.strip(" \t")
    assert isinstance(message["Date"], DateHeader)
    assert message["Date"].datetime == draft.date
    assert message["Message-ID"] == f"<{draft.message_id}>"
    for name, value in draft.headers:
        assert message.get_all(name) is not None
        # No reader may decode a structured field (RFC 2047 5); Python's does.
        is_plain = value.strip(" \t").isascii() and value.strip(" \t").isprintable()
        shown = written(draft, name) if name == "References" and is_plain else str(message[name])
        assert shown.strip(" ") == value.strip(" \t")  # 3.11 keeps the blank of a first fold
    assert message["MIME-Version"] == "1.0"
    assert message["Bcc"] is None
    if draft.list_unsubscribe is not None:
        assert str(message["List-Unsubscribe"]).replace(" ", "") == draft.list_unsubscribe.replace(" ", "")
        assert (message["List-Unsubscribe-Post"] is not None) == draft.one_click


@THOROUGH
@given(drafts())
def test_a_parser_gives_back_every_body_and_attachment(draft: Draft) -> None:
    composed = compose(draft)
    leaves = [part for part in parsed(draft).walk() if not part.is_multipart()]
    bodies = [part for part in leaves if part.get_content_disposition() is None]
    files = [part for part in leaves if part.get_content_disposition() is not None]

    sent = [text for text in (draft.text, draft.html) if text is not None] or [""]
    assert [lines_of(part.get_content()) for part in bodies] == [lines_of(text) for text in sent]
    assert len(files) == len(draft.attachments)
    for index, attachment in enumerate(draft.attachments):
        part = files[composed.places[index]]
        assert part.get_payload(decode=True) == attachment.content
        assert part.get_filename() == attachment.filename.strip()  # the parser strips
        assert part.get_content_disposition() == attachment.disposition
        assert part["Content-ID"] == (attachment.cid and f"<{attachment.cid.strip('<>')}>")


# Octets that pass everywhere ------------------------------------------------------------------------


@THOROUGH
@given(drafts(utf8=True))
def test_octets_pass_every_server(draft: Draft) -> None:
    composed = compose(draft)
    head, _, body = composed.mime.partition(b"\r\n\r\n")

    assert b"\0" not in composed.mime
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n", composed.mime)
    assert all(len(line) <= 998 for line in composed.mime.split(b"\r\n"))
    assert composed.mime.endswith(b"\r\n")
    assert body.isascii()
    used = (draft.sender, *draft.to, *draft.cc, *draft.reply_to)
    assert composed.smtputf8 == any(mailbox.smtputf8 for mailbox in used)
    assert head.isascii() == (not composed.smtputf8)


@pytest.mark.exhaustive
@THOROUGH
@given(drafts())
def test_folded_lines_keep_the_advised_length_where_blanks_allow(draft: Draft) -> None:
    head = compose(draft).mime.partition(b"\r\n\r\n")[0]

    for line in head.split(b"\r\n"):
        if len(line) > 78:  # only one unbreakable word, beside the field's name at most
            assert len(re.sub(rb"^([!-9;-~]+:)? *", b"", line).split(b" ")) == 1
        assert line.strip(b" ")


@THOROUGH
@given(drafts())
def test_encoded_words_are_short_and_whole(draft: Draft) -> None:
    head = compose(draft).mime.partition(b"\r\n\r\n")[0]

    for word in re.findall(rb"=\?utf-8\?[qb]\?[^?]*\?=", head):
        assert len(word) <= 75
        decoded, _ = decode_header(word.decode())[0]
        assert isinstance(decoded, bytes)
        decoded.decode("utf-8")  # a divided character would raise


@pytest.mark.exhaustive
@THOROUGH
@given(drafts(), body_text)
def test_no_content_can_end_its_own_part(draft: Draft, text: str) -> None:
    boundary = re.search(rb'boundary="([^"]+)"', compose(msgspec.structs.replace(draft, html="", text="")).mime)
    assert boundary is not None
    forged = f"{text}\n--{boundary[1].decode()}--\n--{boundary[1].decode()}\n\nforged"
    draft = msgspec.structs.replace(draft, text=forged, html=forged)

    bodies = [part for part in parsed(draft).walk() if part.get_content_disposition() is None]

    assert [lines_of(part.get_content()) for part in bodies if not part.is_multipart()] == [
        lines_of(forged), lines_of(forged),
    ]  # fmt: skip


# Injection ------------------------------------------------------------------------------------------

ATTACK = "innocent{}Bcc: victim@mail.test{}X-Injected: yes"
SLOTS = ("subject", "sender", "to", "cc", "reply_to", "header", "filename", "content_type", "cid", "list_unsubscribe")


def attacked(slot: str, value: str) -> Draft:
    mailbox = Mailbox(value, "ann@mail.test")
    changes: dict[str, dict[str, Any]] = {
        "sender": {"sender": mailbox},
        "to": {"to": (mailbox,)},
        "cc": {"cc": (Mailbox("", value),)},
        "reply_to": {"reply_to": (mailbox,)},
        "header": {"headers": (("X-Ref", value),)},
        "filename": {"attachments": (msgspec.structs.replace(PAPER, filename=value),)},
        "content_type": {"attachments": (msgspec.structs.replace(PAPER, content_type=value),)},
        "cid": {"attachments": (msgspec.structs.replace(PICTURE, cid=value),)},
        "list_unsubscribe": {"list_unsubscribe": value},
    }
    return with_(**changes.get(slot, {slot: value}))


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0", "\r\n ", "\n\t"])
def test_a_line_break_in_a_header_value_is_refused(slot: str, end: str) -> None:
    with pytest.raises(BadDraft):
        compose(attacked(slot, ATTACK.format(end, end)))


@pytest.mark.parametrize("slot", [slot for slot in SLOTS if slot not in {"cc", "list_unsubscribe"}])
@pytest.mark.parametrize(
    "end",
    ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "%0d%0a", "=?utf-8?q?=0D=0A?=", "=?utf-8?b?DQo=?=", "=0D=0A"],
)
def test_what_resembles_a_line_break_never_makes_a_second_field(slot: str, end: str) -> None:
    try:
        mime = compose(attacked(slot, ATTACK.format(end, end))).mime
    except BadDraft:
        return
    names = re.findall(rb"^([!-9;-~]+):", mime, re.MULTILINE)
    assert b"Bcc" not in names
    assert b"X-Injected" not in names


@pytest.mark.parametrize("slot", ["subject", "sender", "filename", "header"])
def test_half_a_character_is_refused(slot: str) -> None:
    with pytest.raises(BadDraft):
        compose(attacked(slot, "a\ud83d"))


def test_half_a_character_in_a_body_is_refused() -> None:
    with pytest.raises(BadDraft):
        compose(with_(text="a\ud83d"))


def test_an_unsubscribe_url_must_be_ascii() -> None:
    with pytest.raises(BadDraft):
        compose(with_(list_unsubscribe="<https://bücher.example/u>"))


@pytest.mark.parametrize("bad", ["pdf", "application/", "a/b; c", 'a/b; c="d', "a b/c", "text/plain\t; x=é", ""])
def test_an_impossible_content_type_is_refused(bad: str) -> None:
    with pytest.raises(BadDraft):
        compose(with_(attachments=(msgspec.structs.replace(PAPER, content_type=bad),)))


@pytest.mark.parametrize("bad", ["a b", "a>b", "é", "<>", "", 'a"b', "(a)"])
def test_an_impossible_content_id_is_refused(bad: str) -> None:
    with pytest.raises(BadDraft):
        compose(with_(attachments=(msgspec.structs.replace(PICTURE, cid=bad),)))


# Shape ----------------------------------------------------------------------------------------------

ALTERNATIVE = ("alternative", ["text/plain", "text/html"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "text/plain"),
        ({"text": None, "html": "<p>"}, "text/html"),
        ({"text": None}, "text/plain"),
        ({"html": "<p>"}, ALTERNATIVE),
        ({"html": "<p>", "attachments": (PICTURE,)}, ("related", [ALTERNATIVE, "image/png"])),
        ({"text": None, "html": "<p>", "attachments": (PICTURE,)}, ("related", ["text/html", "image/png"])),
        (
            {"html": "<p>", "attachments": (PAPER, PICTURE)},
            ("mixed", [("related", [ALTERNATIVE, "image/png"]), "application/pdf"]),
        ),
        ({"attachments": (PICTURE,)}, ("mixed", ["text/plain", "image/png"])),
        ({"text": None, "attachments": (PAPER,)}, ("mixed", ["text/plain", "application/pdf"])),
    ],
)
def test_layers_only_where_needed(changes: dict[str, Any], expected: Any) -> None:
    assert shape(parsed(with_(**changes))) == expected


def test_related_names_the_type_of_its_root() -> None:
    both = parsed(with_(html="<p>", attachments=(PICTURE,)))
    single = parsed(with_(text=None, html="<p>", attachments=(PICTURE,)))

    assert both["Content-Type"].params["type"] == "multipart/alternative"
    assert single["Content-Type"].params["type"] == "text/html"


def test_places_lead_from_the_draft_to_the_mime() -> None:
    assert compose(with_(html="<p>", attachments=(PAPER, PICTURE))).places == (1, 0)
    assert compose(with_(attachments=(PAPER, PICTURE))).places == (0, 1)


def test_the_same_draft_gives_the_same_octets() -> None:
    draft = with_(html="<p>", attachments=(PAPER, PICTURE))

    assert compose(draft) == compose(draft)


def test_fields_stand_in_their_order() -> None:
    draft = with_(
        cc=PLAIN.to, reply_to=PLAIN.to, headers=(("X-Ref", "1"),), list_unsubscribe="<https://u.test>", one_click=True
    )

    assert compose(draft).mime.decode() == (
        "From: Shop <shop@shop.test>\r\n"
        "To: ann@mail.test\r\n"
        "Cc: ann@mail.test\r\n"
        "Reply-To: ann@mail.test\r\n"
        "Subject: Shipped\r\n"
        "Date: Fri, 20 Nov 2026 08:09:10 +0000\r\n"
        "Message-ID: <01jd3q9x5k0000000000000000@shop.test>\r\n"
        "X-Ref: 1\r\n"
        "List-Unsubscribe: <https://u.test>\r\n"
        "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"
        "MIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        "Content-Transfer-Encoding: 7bit\r\n"
        "\r\n"
        "Hello\r\n"
    )


def test_an_empty_subject_is_left_out() -> None:
    assert b"Subject" not in compose(with_(subject="")).mime


def test_composite_types_travel_as_octets_and_parameters_as_given() -> None:
    message = b"From: a@b.test\r\n\r\nbare \n line"
    invitation = b"BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nEND:VCALENDAR\r\n"
    calendar = "text/calendar; method=REQUEST; charset=utf-8"
    files = (
        MailAttachment(filename="m.eml", content_type="message/rfc822", content=message),
        MailAttachment(filename="d.eml", content_type="multipart/mixed; boundary=x", content=message),
        MailAttachment(filename="invite.ics", content_type=calendar, content=invitation),
    )

    found = list(parsed(with_(attachments=files)).iter_parts())[1:]

    octets = "application/octet-stream"
    assert [part.get_content_type() for part in found] == [octets, octets, "text/calendar"]
    assert dict(found[2]["Content-Type"].params) == {"method": "REQUEST", "charset": "utf-8"}
    assert not any(part["Content-Type"].params for part in found[:2])
    assert [part.get_filename() for part in found] == ["m.eml", "d.eml", "invite.ics"]
    assert [part.get_content_disposition() for part in found] == ["attachment"] * 3
    assert [part.get_payload(decode=True) for part in found] == [message, message, invitation]


@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 57 * 1024 - 1, 57 * 1024, 57 * 1024 + 1, 200_000])
def test_base64_lines_are_76_long_whatever_the_size(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    draft = with_(attachments=(msgspec.structs.replace(PAPER, content=content[:size]),))

    assert list(parsed(draft).iter_parts())[1].get_content() == content[:size]
    assert max(map(len, compose(draft).mime.split(b"\r\n"))) <= 76


@given(st.data())
def test_any_header_name_and_value_fit(data: st.DataObject) -> None:
    name = "X-" + "a" * data.draw(st.integers(1, 198))
    value = "v" * data.draw(st.integers(0, 2000))

    mime = compose(with_(headers=((name, value),))).mime

    assert all(len(line) <= 998 for line in mime.split(b"\r\n"))
    assert str(email.message_from_bytes(mime, policy=email.policy.SMTP)[name]).strip() == value


# Long values ------------------------------------------------------------------------------------------

LONG_URL = "<https://shop.test/u?t=" + "a,b" * 320 + ">"


def raw_lines(draft: Draft, name: str) -> list[str]:
    """The lines of a field, without CRLF."""
    head = compose(draft).mime.decode().partition("\r\n\r\n")[0] + "\r\n"
    found = re.search(rf"^{name}:.*\r\n(?:[ \t].*\r\n)*", head, re.MULTILINE)
    assert found is not None
    return found[0].split("\r\n")[:-1]


@pytest.mark.parametrize("name", ["List-Unsubscribe", "List-Help", "list-archive"])
@pytest.mark.parametrize("comma", [",", ", "])
def test_links_are_divided_at_commas_only(name: str, comma: str) -> None:
    value = comma.join((LONG_URL, "<mailto:u@shop.test?subject=out>", LONG_URL, LONG_URL))
    draft = with_(list_unsubscribe=value) if name == "List-Unsubscribe" else with_(headers=((name, value),))
    lines = raw_lines(draft, name)

    assert max(map(len, lines)) <= 998
    assert [line.removeprefix(f"{name}:").strip(" ,") for line in lines if len(line) > len(name) + 1] == [
        LONG_URL, "<mailto:u@shop.test?subject=out>", LONG_URL, LONG_URL
    ]  # fmt: skip


@pytest.mark.parametrize("length", [499, 500, 960, 997])
def test_a_link_that_fits_a_line_stays_whole(length: int) -> None:
    link = "<https://a.test/".ljust(length - 1, "x") + ">"
    lines = raw_lines(with_(list_unsubscribe=link), "List-Unsubscribe")

    assert " " + link in lines or lines == [f"List-Unsubscribe: {link}"]


@pytest.mark.parametrize("name", ["References", "In-Reply-To", "Feedback-ID"])
def test_structured_fields_are_not_encoded(name: str) -> None:
    value = "<=?utf-8?q?a?=@shop.test> <" + "b" * 980 + "@shop.test>"
    lines = raw_lines(with_(headers=((name, value),)), name)

    assert "".join(lines) == f"{name}: {value}"
    assert max(map(len, lines)) <= 998


@pytest.mark.parametrize("filename", ["Übersicht.pdf", "100%.pdf", "счёт за ноябрь " * 6 + ".pdf", 'a"b\\c.pdf'])
def test_a_file_name_that_needs_encoding_also_stands_in_content_type(filename: str) -> None:
    draft = with_(attachments=(msgspec.structs.replace(PAPER, filename=filename),))
    part = next(iter(parsed(draft).iter_attachments()))

    assert part.get_filename() == filename
    old = email.message_from_bytes(compose(draft).mime).get_payload()[1]  # type: ignore[index]
    name = old.get_param("name")  # type: ignore[union-attr]
    assert isinstance(name, str)
    assert str(make_header(decode_header(name))) == filename
    assert max(map(len, compose(draft).mime.split(b"\r\n"))) <= 78


def test_a_plain_file_name_or_a_name_of_the_customer_is_not_repeated() -> None:
    named = msgspec.structs.replace(PAPER, filename="ü.pdf", content_type="application/pdf; name=u.pdf")
    mime = compose(with_(attachments=(PAPER, named))).mime

    assert mime.count(b"name=u.pdf") == 1
    assert b'name="=?' not in mime
