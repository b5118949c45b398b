"""The pure rules of a send request: what is refused and under which name, and what is made of the rest."""

import base64
import re
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import SMTP
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.base import ids
from engine.base.errors import ErrorType, Refusal
from engine.mail import client_fields
from engine.sending.emails import limits, rules
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.request_digest import request_digest
from engine.sending.emails.timing import timing_of
from engine.sending.emails.types import AttachmentIn, Content, MessageFacts, Prepared, SendRequest, Timing

ACCOUNT, MESSAGE = UUID(int=1), ids.uuid7(1_700_000_000_000)
AT = datetime(2026, 11, 20, 8, 9, 10, tzinfo=UTC)


def request(**fields: object) -> SendRequest:
    """A good request with some fields as given."""
    usual = {"from": "Shop <shop@shop.test>", "to": "ann@people.test", "subject": "Hello", "text": "Hello!"}
    return msgspec.convert(usual | fields, SendRequest)


def prepared(**fields: object) -> Prepared:
    return prepare(request(**fields))


def prepare(
    one: SendRequest,
    max_bytes: int = 1_000_000,
    content: Content | None = None,
    timing: Timing | None = None,
    feedback_key: bytes | None = None,
    cfbl: str = "",
) -> Prepared:
    rules.check_shape(one)
    return rules.prepare(
        one,
        sender_of(one),
        content or rules.content_of(one),
        timing or Timing(),
        MessageFacts(
            account_id=ACCOUNT,
            message_id=MESSAGE,
            source="api",
            at=AT,
            max_bytes=max_bytes,
            feedback_key=feedback_key,
            cfbl=cfbl,
        ),
    )


def refusal_of(**fields: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        prepared(**fields)
    return caught.value


def field_of(**fields: object) -> object:
    """The field that a 400 names."""
    refusal = refusal_of(**fields)
    assert refusal.kind is ErrorType.INVALID_REQUEST
    return refusal.fields["field"]


def mail(**fields: object) -> Any:
    return message_from_bytes(prepared(**fields).mime, policy=SMTP)


def file(**fields: object) -> dict[str, object]:
    return {"filename": "a.pdf", "contentType": "application/pdf", "content": "aGVsbG8="} | fields


# -- headers ----------------------------------------------------------------------------------


def test_mail_carries_one_feedback_id_of_template_stream_and_domain() -> None:
    content = Content("Welcome", None, "<p>Hi</p>", "welcome", 3)
    mime = prepare(request(stream="news"), content=content, feedback_key=b"k").mime
    (value,) = message_from_bytes(mime, policy=SMTP).get_all("Feedback-ID") or []

    assert re.fullmatch(r"welcome:news:shop\.test:[0-9a-z]{14}", value)
    assert b"Feedback-ID" not in prepare(request()).mime


def test_mail_carries_the_cfbl_fields_of_its_domain() -> None:
    cfbl = "CFBL-Address: fbl@bounce.shop.test; report=arf\r\nCFBL-Feedback-ID: token\r\n"

    assert cfbl.encode() in prepare(request(), cfbl=cfbl).mime


@pytest.mark.parametrize("name", sorted(client_fields.OWNED))
@pytest.mark.parametrize("written", [str.lower, str.upper, str.title])
def test_a_header_of_ours_cannot_be_set_in_any_case(name: str, written: Any) -> None:
    assert field_of(headers={written(name): "x"}) == f"headers.{written(name)}"


@pytest.mark.parametrize(
    "name",
    [
        "CFBL-Address", "CFBL-Feedback-ID", "Feedback-ID", "Content-Type", "content-transfer-encoding", "CONTENT-ID",
        "ARC-Seal", "arc-anything", "Resent-From", "", " ", "X A", "X:", "X-Ä", "X\r\nBcc", "X\0", "\tX", "X\x7f", "X ",
    ],
)  # fmt: skip
def test_a_header_of_a_family_of_ours_or_with_no_name_is_refused(name: str) -> None:
    assert field_of(headers={name: "me@evil.test; report=arf"}) == f"headers.{name}"


def test_the_length_of_a_header_is_bounded_and_its_entry_named() -> None:
    prepared(headers={"X-" + "h" * 198: "v" * 2000})
    assert field_of(headers={"X-" + "h" * 199: "v"}) == "headers.X-" + "h" * 198
    assert field_of(headers={"X-A": "fine", "X-B": "v" * 2001}) == "headers.X-B"


def test_a_header_given_twice_in_different_case_is_refused() -> None:
    assert field_of(headers={"X-Campaign": "a", "X-B": "b", "x-campaign": "c"}) == "headers.x-campaign"


@pytest.mark.parametrize("name", ["X-Note", "Feedback-ID", "References"])
def test_a_header_with_an_encoded_line_break_is_refused(name: str) -> None:
    assert field_of(headers={name: "=?utf-8?Q?hello =0D=0ABcc: a@b.test?="}) == f"headers.{name}"


def test_custom_headers_keep_their_names_values_and_order() -> None:
    found = mail(headers={"X-Campaign": "autumn", "Auto-Submitted": "auto-generated", "In-Reply-To": "<a@b.test>"})

    assert found["X-Campaign"] == "autumn"
    assert found["In-Reply-To"] == "<a@b.test>"
    names = [name for name in found if name in {"X-Campaign", "Auto-Submitted", "In-Reply-To"}]
    assert names == ["X-Campaign", "Auto-Submitted", "In-Reply-To"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Reply-To", {"replyTo": "help@shop.test"}),
        ("LIST-UNSUBSCRIBE", {"listUnsubscribe": "https://shop.test/u"}),
        ("List-Unsubscribe-Post", {"listUnsubscribe": "https://shop.test/u"}),
    ],
)
def test_a_header_with_a_field_of_its_own_is_given_once(name: str, fields: dict[str, object]) -> None:
    assert field_of(headers={name: "x"}, **fields) == f"headers.{name}"
    prepared(headers={name: "x@y.test"})


# -- Reply-To and List-Unsubscribe among the headers ------------------------------------------


@pytest.mark.parametrize("name", ["Reply-To", "reply-to"])
def test_a_reply_to_header_is_an_address_and_written_as_one(name: str) -> None:
    one = prepared(headers={name: '"Hilfe, schnell" <hilfe@bücher.test>'})

    assert b'Reply-To: "Hilfe, schnell" <hilfe@xn--bcher-kva.test>\r\n' in one.mime
    assert one.reply_to == '"Hilfe, schnell" <hilfe@bücher.test>'
    assert one.mime.lower().count(b"reply-to:") == 1


def test_a_reply_to_header_may_name_several() -> None:
    found = mail(headers={"Reply-To": 'a@x.test, "B, C" <b@x.test>,Größe <c@x.test>'})

    assert [(one.display_name, one.addr_spec) for one in found["Reply-To"].addresses] == [
        ("", "a@x.test"), ("B, C", "b@x.test"), ("Größe", "c@x.test"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["", "nobody", ",", "a@x.test b@x.test", '"a@x.test', "group: a@x.test;"])
def test_what_is_no_address_is_no_reply_to(value: str) -> None:
    assert field_of(headers={"Reply-To": value}) == "headers.Reply-To"


LONG_LINK = "<https://shop.test/u/" + "x" * 1500 + ">"


@pytest.mark.parametrize(
    "value", ["<https://shop.test/u=?utf-8?q?x?=>", LONG_LINK, "<mailto:l@shop.test>, <https://shop.test/u>"]
)
def test_a_list_unsubscribe_header_is_kept_as_it_was_given(value: str) -> None:
    raw = prepared(headers={"List-Unsubscribe": value, "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}).mime
    head = raw.partition(b"\r\n\r\n")[0].decode().replace("\r\n ", " ").split("\r\n")

    found = next(line for line in head if line.startswith("List-Unsubscribe:"))
    assert found.replace(" ", "") == f"List-Unsubscribe:{value}".replace(" ", "")  # blanks mean nothing there
    assert head.count("List-Unsubscribe-Post: List-Unsubscribe=One-Click") == 1


def test_a_list_unsubscribe_header_alone_promises_no_one_click() -> None:
    assert mail(headers={"List-Unsubscribe": "<https://shop.test/u>"})["List-Unsubscribe-Post"] is None


@pytest.mark.parametrize("value", ["", " ", "<https://shop.test/ü>", "<https://shop.test/u>\t"])
def test_a_list_unsubscribe_header_is_printable_ascii(value: str) -> None:
    assert field_of(headers={"list-unsubscribe": value}) == "headers.list-unsubscribe"


def test_the_number_of_headers_and_of_metadata_is_bounded() -> None:
    prepared(headers={f"X-{number}": "x" for number in range(limits.MAX_HEADERS)})
    assert field_of(headers={f"X-{number}": "x" for number in range(limits.MAX_HEADERS + 1)}) == "headers"
    prepared(metadata={f"m{number}": "x" for number in range(limits.MAX_METADATA)})
    assert field_of(metadata={f"m{number}": "x" for number in range(limits.MAX_METADATA + 1)}) == "metadata"


# -- line breaks and NUL ----------------------------------------------------------------------

BREAKERS = ["\r\n", "\r", "\n", "\0", "=?utf-8?q?=0A?="]
BOUND_FOR_HEADERS: list[tuple[str, dict[str, object]]] = [
    ("subject", {"subject": "a{}Bcc: eve@evil.test"}),
    ("to", {"to": "ann@people.test{}"}),
    ("to", {"to": "Ann{}Bcc: <ann@people.test>"}),
    ("to[1]", {"to": ["a@b.test", "Ann {} <ann@people.test>"]}),
    ("cc[0]", {"cc": ["a{}@b.test"]}),
    ("bcc[0]", {"bcc": ["a@b{}.test"]}),
    ("replyTo", {"replyTo": "Help{} <help@shop.test>"}),
    ("headers.X-A", {"headers": {"X-A": "b{}Bcc: eve@evil.test"}}),
    ("listUnsubscribe", {"listUnsubscribe": "https://shop.test/{}u"}),
    ("attachments[0].filename", {"attachments": [file(filename="a{}.pdf")]}),
    ("attachments[0].contentType", {"attachments": [file(contentType="application/pdf;{} x=y")]}),
    ("attachments[0].cid", {"attachments": [file(cid="lo{}go")]}),
]


@pytest.mark.parametrize("breaker", BREAKERS, ids=["crlf", "cr", "lf", "nul", "encoded lf"])
@pytest.mark.parametrize(
    ("field", "fields"), BOUND_FOR_HEADERS, ids=[f"{i}-{row[0]}" for i, row in enumerate(BOUND_FOR_HEADERS)]
)
def test_no_line_break_reaches_a_header(field: str, fields: dict[str, object], breaker: str) -> None:
    assert field_of(**_filled(fields, breaker)) == field


@pytest.mark.parametrize("breaker", BREAKERS, ids=["crlf", "cr", "lf", "nul", "encoded lf"])
def test_no_line_break_reaches_the_sender(breaker: str) -> None:
    with pytest.raises(Refusal) as caught:
        sender_of(request(**{"from": f"Shop{breaker}Bcc: <shop@shop.test>"}))

    assert caught.value.fields == {"field": "from"}


def test_a_sender_must_not_show_an_address_of_another_domain() -> None:
    with pytest.raises(Refusal, match=r"contains the address a@legit\.test, which does not belong to shop\.test"):
        sender_of(request(**{"from": '"<a@legit.test>" <x@shop.test>'}))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("text", {"text": "a\0b"}),
        ("html", {"html": "a\0b"}),
        ("idempotencyKey", {"idempotencyKey": "a\0"}),
        ("tags[1]", {"tags": ["a", "b\0"]}),
        ("metadata.a", {"metadata": {"a": "\0"}}),
        ("metadata", {"metadata": {"a\0": "b"}}),
    ],
)
def test_nul_is_refused_where_it_would_be_stored(field: str, fields: dict[str, object]) -> None:
    assert field_of(**fields) == field


@given(st.text(max_size=200))
@example("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
def test_no_subject_adds_a_header(text: str) -> None:
    """Whatever splits lines elsewhere: the mail has the same fields as any other."""
    usual = [name for name, _ in mail().raw_items() if name != "Subject"]
    try:
        found = mail(subject=text)
    except Refusal:
        return
    except UnicodeEncodeError:
        assert any(0xD800 <= ord(letter) < 0xE000 for letter in text)  # which no decoder lets in
        return
    assert [name for name, _ in found.raw_items() if name != "Subject"] == usual
    assert len(found.get_all("Subject", [])) <= 1


def _filled(value: Any, breaker: str) -> Any:
    if isinstance(value, str):
        return value.format(breaker)
    if isinstance(value, list):
        return [_filled(one, breaker) for one in value]
    return {name: _filled(one, breaker) for name, one in value.items()}


# -- recipients -------------------------------------------------------------------------------


def test_recipients_count_from_zero_in_the_order_to_cc_bcc() -> None:
    found = prepared(to=["a@x.test", "b@x.test"], cc=["c@y.test"], bcc=["d@z.test"]).recipients

    assert [(one.n, one.kind, one.mailbox.address) for one in found] == [
        (0, "to", "a@x.test"), (1, "to", "b@x.test"), (2, "cc", "c@y.test"), (3, "bcc", "d@z.test"),
    ]  # fmt: skip


def test_an_address_given_twice_is_one_recipient_where_it_stood_first() -> None:
    found = prepared(
        to=["Ann <ann@x.test>", "bob@x.test"], cc=["ANN@X.test"], bcc=["bob@x.test", "eve@x.test"]
    ).recipients

    assert [(one.n, one.kind, one.canonical) for one in found] == [
        (0, "to", "ann@x.test"), (1, "to", "bob@x.test"), (2, "bcc", "eve@x.test"),
    ]  # fmt: skip


def test_two_forms_of_one_international_domain_are_one_recipient() -> None:
    found = prepared(to=["ann@bücher.test", "ann@xn--bcher-kva.test"]).recipients

    assert [one.mailbox.address for one in found] == ["ann@xn--bcher-kva.test"]


def test_fifty_addresses_fit_and_duplicates_take_no_room() -> None:
    fifty = [f"p{number}@x.test" for number in range(50)]

    assert len(prepared(to=fifty[:20], cc=fifty[20:40], bcc=fifty[40:] + fifty[:5]).recipients) == 50
    assert field_of(to=fifty[:20], cc=fifty[20:], bcc=["one-more@x.test"]) == "bcc"
    assert field_of(to=[*fifty, "one-more@x.test"]) == "to"


def test_a_bad_address_is_named_with_its_place() -> None:
    refusal = refusal_of(to=["a@x.test"], cc=["b@x.test", "no address"])

    assert refusal.kind is ErrorType.INVALID_ADDRESS
    assert refusal.fields == {"address": "no address", "field": "cc[1]"}


def test_bcc_is_in_the_envelope_only() -> None:
    one = prepared(bcc=["secret@x.test"])

    assert "secret@x.test" in {each.mailbox.address for each in one.recipients}
    assert b"secret" not in one.mime
    assert b"bcc" not in one.mime.lower()


def test_only_a_header_outside_ascii_makes_the_whole_message_need_smtputf8() -> None:
    assert not prepared(to="ann@bücher.test").smtputf8  # its domain has an ASCII form
    assert prepared(cc=["jörg@x.test"]).smtputf8
    assert not prepared(bcc=["jörg@x.test"]).smtputf8  # in no header: the others' servers need not know


def test_more_entries_than_can_be_addresses_are_refused_before_they_are_parsed() -> None:
    with pytest.raises(Refusal) as refused:
        prepared(to="ann@x.test", cc=["not an address"] * 200)

    assert refused.value.kind is ErrorType.INVALID_REQUEST  # and not of the first entry: none was looked at


# -- unsubscribe ------------------------------------------------------------------------------


def test_an_https_unsubscribe_is_one_click() -> None:
    found = mail(listUnsubscribe="https://shop.test/u/1")

    assert found["List-Unsubscribe"] == "<https://shop.test/u/1>"
    assert found["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


def test_a_mailto_alone_is_not_one_click() -> None:
    found = mail(listUnsubscribe="mailto:leave@shop.test?subject=leave")

    assert found["List-Unsubscribe"] == "<mailto:leave@shop.test?subject=leave>"
    assert found["List-Unsubscribe-Post"] is None


@pytest.mark.parametrize("written", ["<https://s.test/u>, <mailto:l@s.test>", "https://s.test/u,mailto:l@s.test"])
def test_both_ways_may_be_given_in_either_notation(written: str) -> None:
    found = mail(listUnsubscribe=written)

    assert found["List-Unsubscribe"] == "<https://s.test/u>, <mailto:l@s.test>"
    assert found["List-Unsubscribe-Post"] is not None


@pytest.mark.parametrize(
    "written",
    [
        "http://shop.test/u",
        "ftp://shop.test/u",
        "javascript:alert(1)",
        "shop.test/u",
        "https://",
        "mailto:",
        "https://shop.test/a b",
        "https://shop.test/ü",
        "https://shop.test/>,<x",
        "https://shop.test/><mailto:eve@evil.test",
        "https://shop.test/u,",
        ",",
        " ",
    ],
)
def test_any_other_unsubscribe_is_refused(written: str) -> None:
    assert field_of(listUnsubscribe=written) == "listUnsubscribe"


# -- attachments ------------------------------------------------------------------------------


def test_an_attachment_is_kept_with_its_size_and_digest() -> None:
    content = bytes(range(256))
    [one] = prepared(attachments=[file(filename="Größe.pdf", content=base64.b64encode(content).decode())]).attachments

    assert (one.filename, one.content_type, one.size_bytes) == ("Größe.pdf", "application/pdf", 256)
    assert one.sha256 == sha256(content).hexdigest()
    assert one.id.startswith("att_")


@pytest.mark.parametrize("name", ["a.exe", "A.EXE", "a.js ", "a.pdf.exe", "a.exe.", "a.vbs.txt", "a.lnk", "ｘ.ｅｘｅ"])
def test_a_blocked_type_is_named(name: str) -> None:
    refusal = refusal_of(attachments=[file(), file(filename=name)])

    assert refusal.kind is ErrorType.ATTACHMENT_BLOCKED
    assert refusal.fields == {"filename": name}


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("content", {"content": "not base64"}),
        ("content", {"content": "aGVsbG8"}),
        ("content", {"content": "aGVs_G8="}),
        ("content", {"content": "ä"}),
        ("contentType", {"contentType": "pdf"}),
        ("contentType", {"contentType": "application/"}),
        ("contentType", {"contentType": "application/pdf; x"}),
        ("contentType", {"contentType": "application/pdf\u2028x"}),
        ("cid", {"cid": "<>"}),
        ("cid", {"cid": "a b"}),
        ("cid", {"cid": "<a><b>"}),
        ("cid", {"cid": "ä"}),
    ],
)
def test_a_bad_attachment_is_named_with_its_place(field: str, fields: dict[str, object]) -> None:
    assert field_of(attachments=[file(), file(**fields)]) == f"attachments[1].{field}"


@pytest.mark.parametrize("content_type", ["multipart/mixed", "multipart/alternative; boundary=x", "Multipart/Related"])
def test_an_attachment_cannot_be_a_multipart(content_type: str) -> None:
    """Its base64 would be read as parts (RFC 2045 6.4 allows it no encoding)."""
    found = mail(attachments=[file(contentType=content_type)])
    attached = [part for part in found.walk() if part.get_filename() == "a.pdf"]
    assert [part.get_content_type() for part in attached] == ["application/octet-stream"]
    assert attached[0].get_payload(decode=True) == b"hello"


def test_a_cid_names_one_attachment() -> None:
    prepared(attachments=[file(cid="a"), file(cid="b"), file(), file()])
    assert field_of(attachments=[file(cid="a"), file(), file(cid="<a>")]) == "attachments[2].cid"


# -- shape and size ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("templateVersion", {"templateVersion": 2}),
        ("variables", {"variables": {"a": "b"}}),
        ("text", {"template": "welcome"}),
        ("html", {"template": "welcome", "text": None, "html": ""}),
        ("variables", {"template": "welcome", "text": None, "variables": {f"v{n}": "" for n in range(501)}}),
        ("text", {"text": None}),
    ],
)
def test_fields_that_cannot_stand_together_are_refused_by_name(field: str, fields: dict[str, object]) -> None:
    assert field_of(**fields) == field


def test_a_template_stands_for_html_and_text() -> None:
    rules.check_shape(request(template="welcome", text=None))
    rules.check_shape(request(template="welcome", text=None, templateVersion=3, variables={"a": "b"}, subject="Mine"))


OPTIONAL = [
    "cc", "bcc", "subject", "html", "replyTo", "headers", "listUnsubscribe", "stream", "template", "templateVersion",
    "variables", "data", "tags", "metadata", "idempotencyKey", "scheduledAt", "deliverBy", "minTls", "attachments",
    "retainContent", "contentUntil",
]  # fmt: skip


def test_null_is_the_same_as_absent_for_every_optional_field() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(SendRequest)}
    assert names - {"from", "to", "text"} == set(OPTIONAL)
    bare = {"from": "shop@shop.test", "to": "ann@people.test", "text": "Hello!"}
    assert msgspec.convert(bare | dict.fromkeys(OPTIONAL), SendRequest) == msgspec.convert(bare, SendRequest)
    nulls = file(disposition=None, cid=None)
    assert request(attachments=[nulls]) == request(attachments=[file()])
    prepared(**dict.fromkeys(OPTIONAL))


@pytest.mark.parametrize("name", ["from", "to"])
def test_null_is_no_value_for_a_required_field(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="null"):
        request(**{name: None})


# -- times ------------------------------------------------------------------------------------


def timing(scheduled_at: str | None = None, deliver_by: str | None = None) -> Timing:
    return timing_of(scheduled_at, deliver_by, AT, give_up_s=72 * 3600.0)


def field_of_timing(scheduled_at: str | None = None, deliver_by: str | None = None) -> object:
    with pytest.raises(Refusal) as caught:
        timing(scheduled_at, deliver_by)
    assert caught.value.kind is ErrorType.INVALID_REQUEST
    return caught.value.fields["field"]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T10:00:00Z", "2026-11-20T10:00Z", "2026-11-20T11:00:00+01:00", "2026-11-20T11:00:00+0100",
        "2026-11-20T04:30:00.000-05:30",
    ],
)  # fmt: skip
def test_a_time_has_z_or_an_offset(text: str) -> None:
    assert timing(text) == Timing(datetime(2026, 11, 20, 10, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        "", "tomorrow", "2026-11-20", "2026-11-20T10:00:00", "2026-11-20 10:00:00Z", "2026-02-30T10:00:00Z",
        "2026-11-31T10:00:00Z", "2026-13-01T10:00:00Z", "2026-11-20T24:00:00Z", "2026-11-20T10:60:00Z",
        "2026-11-20T10:00:60Z", "2026-11-20T10:00:00+010", "2026-11-20T10:00:00+24:00", "2026-11-20T10:00:00 Z",
        "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00", "２０２６-11-20T10:00:00Z", "2027-02-29T00:00:00Z",
        "2026-11-20T10:00:00Z\n", "2026-11-20T10:00:00\x00Z", "1763632800",
    ],
)  # fmt: skip
def test_what_is_no_time_of_the_calendar_is_refused_by_name(text: str) -> None:
    assert field_of_timing(text) == "scheduledAt"
    assert field_of_timing(None, text) == "deliverBy"


@pytest.mark.parametrize(("seconds", "later"), [(-86_400, False), (0, False), (60, False), (60.001, True), (61, True)])
def test_within_a_minute_is_at_once(seconds: float, later: bool) -> None:
    wanted = AT + timedelta(seconds=seconds)

    assert timing(wanted.isoformat()).scheduled_at == (wanted if later else None)


def test_times_are_kept_in_whole_milliseconds() -> None:
    assert timing("2026-11-21T00:00:00.123987Z").scheduled_at == datetime(2026, 11, 21, 0, 0, 0, 123_000, UTC)


def test_deliver_by_lies_after_the_send_and_within_its_retries() -> None:
    end = AT + timedelta(hours=72)
    assert timing(None, end.isoformat()).deliver_by == end
    assert field_of_timing(None, (end + timedelta(seconds=1)).isoformat()) == "deliverBy"
    assert field_of_timing(None, AT.isoformat()) == "deliverBy"
    later = AT + timedelta(hours=5)
    assert timing(later.isoformat(), (later + timedelta(hours=72)).isoformat()).scheduled_at == later
    assert field_of_timing(later.isoformat(), later.isoformat()) == "deliverBy"
    assert field_of_timing(later.isoformat(), (later + timedelta(hours=72, seconds=1)).isoformat()) == "deliverBy"
    soon = AT + timedelta(seconds=50)  # sent at once, and yet not before its deliverBy
    assert field_of_timing(soon.isoformat(), (AT + timedelta(seconds=49)).isoformat()) == "deliverBy"


def test_a_scheduled_message_is_dated_for_its_time() -> None:
    later = AT + timedelta(hours=5)
    one = prepare(request(), timing=Timing(later, later + timedelta(hours=1)))

    assert message_from_bytes(one.mime, policy=SMTP)["Date"].datetime == later
    assert (one.scheduled_at, one.deliver_by, one.created_at) == (later, later + timedelta(hours=1), AT)


def test_the_words_of_a_template_are_the_messages_own() -> None:
    one = prepare(request(), content=Content("Welcome", None, "<p>Hi</p>", "welcome", 3))

    found = message_from_bytes(one.mime, policy=SMTP)
    assert (found["Subject"], found.get_content_type(), one.subject) == ("Welcome", "text/html", "Welcome")
    assert (one.template, one.template_version) == ("welcome", 3)


def test_an_empty_text_is_a_text() -> None:
    prepared(text="")
    prepared(text=None, html="")


def test_a_message_above_its_bound_is_refused_with_the_bound() -> None:
    one = request(text="x" * 5_000)
    size = len(prepare(one).mime)

    prepare(one, max_bytes=size)
    with pytest.raises(Refusal) as caught:
        prepare(one, max_bytes=size - 1)
    assert caught.value.kind is ErrorType.PAYLOAD_TOO_LARGE
    assert caught.value.fields == {"limit": size - 1}


def test_the_message_id_is_ours_under_the_senders_domain() -> None:
    one = prepared()

    assert one.public_id == ids.format_id(ids.Kind.MESSAGE, MESSAGE)
    assert f"Message-ID: <{ids.encode(MESSAGE)}@shop.test>\r\n".encode() in one.mime
    assert (one.from_domain, one.sender) == ("shop.test", "Shop <shop@shop.test>")


def test_the_digest_tells_requests_apart() -> None:
    one = request(idempotencyKey="k")

    assert request_digest(one) == request_digest(request(idempotencyKey="k"))
    others = {"attachments": [AttachmentIn(filename="a", content_type="a/b", content="")], "headers": {"X-A": "b"}}
    for name in SendRequest.__struct_fields__:
        assert request_digest(replace(one, **{name: others.get(name, "another")})) != request_digest(one)
    moved = request_digest(request(subject="a", text="b")), request_digest(request(subject="b", text="a"))
    assert moved[0] != moved[1]
    assert prepare(one).request_digest == request_digest(one)
    assert prepared().request_digest == b""


def test_what_is_spelt_out_is_the_same_request() -> None:
    usual = request_digest(request(attachments=[file()]))

    spelt = request(
        cc=[], bcc=[], headers={}, stream="transactional", tags=[], metadata={}, html=None,
        replyTo="", listUnsubscribe="", variables={}, attachments=[file(disposition="attachment", cid="")],
    )  # fmt: skip
    assert request_digest(spelt) == usual
    assert request_digest(request(subject="")) == request_digest(request(subject=None))


# Computed by the version before optional fields were left out of the digest where a request lacks them.
PLAIN = {
    "from": "hello@hello.test", "to": ["ann@example.com"], "subject": "Hello", "text": "It works.",
    "idempotencyKey": "k-1",
}  # fmt: skip
RICH = {
    "from": "Shop <shop@hello.test>", "to": "ann@example.com", "cc": ["bob@example.com"], "subject": "Hello",
    "html": "<p>It works.</p>", "replyTo": "desk@hello.test", "headers": {"X-Order": "17"}, "stream": "news",
    "tags": ["a", "b"], "metadata": {"order": "17"}, "idempotencyKey": "k-2", "scheduledAt": "2026-11-20T08:00:00Z",
    "minTls": "verified", "attachments": [{"filename": "a.txt", "contentType": "text/plain", "content": "YQ=="}],
}  # fmt: skip
STORED_DIGESTS = [(PLAIN, "f6643ef01a20080ea9c157e2ea6f6a2f"), (RICH, "19112cae9529e3b53471ab5929a7956b")]


@pytest.mark.parametrize(("body", "digest"), STORED_DIGESTS)
def test_a_request_keeps_the_digest_that_an_earlier_version_stored(body: dict[str, object], digest: str) -> None:
    assert request_digest(msgspec.convert(body, SendRequest)).hex() == digest


@pytest.mark.parametrize(("body", "digest"), STORED_DIGESTS)
def test_a_later_field_counts_only_where_a_request_gives_it(body: dict[str, object], digest: str) -> None:
    class LaterRequest(SendRequest, frozen=True, kw_only=True):
        later: bool = False
        priority: str | None = None

    assert request_digest(msgspec.convert(body, LaterRequest)).hex() == digest
    for more in ({"later": True}, {"priority": "high"}):
        assert request_digest(msgspec.convert(body | more, LaterRequest)).hex() != digest
