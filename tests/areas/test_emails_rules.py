"""The pure rules of a send request: what is refused and under which name, and what is made of the rest."""

import base64
from datetime import UTC, datetime
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

from engine.areas.emails import rules
from engine.areas.emails.types import Prepared, SendRequest
from engine.base import ids
from engine.base.errors import ErrorType, Refusal

ACCOUNT, MESSAGE = UUID(int=1), ids.uuid7(1_700_000_000_000)
AT = datetime(2026, 11, 20, 8, 9, 10, tzinfo=UTC)


def request(**fields: object) -> SendRequest:
    """A good request with some fields as given."""
    usual = {"from": "Shop <shop@shop.test>", "to": "ann@people.test", "subject": "Hello", "text": "Hello!"}
    return msgspec.convert(usual | fields, SendRequest)


def prepared(**fields: object) -> Prepared:
    return prepare(request(**fields))


def prepare(one: SendRequest, most_bytes: int = 1_000_000) -> Prepared:
    return rules.prepare(
        one,
        rules.sender_of(one),
        account_id=ACCOUNT,
        message_id=MESSAGE,
        source="api",
        at=AT,
        most_bytes=most_bytes,
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


@pytest.mark.parametrize("name", sorted(rules.OWNED_HEADERS))
@pytest.mark.parametrize("written", [str.lower, str.upper, str.title])
def test_a_header_of_ours_cannot_be_set_in_any_case(name: str, written: Any) -> None:
    assert field_of(headers={written(name): "x"}) == f"headers.{written(name)}"


@pytest.mark.parametrize(
    "name", ["Content-Type", "content-transfer-encoding", "CONTENT-ID", "ARC-Seal", "arc-anything"]
)
def test_a_family_of_ours_cannot_be_set(name: str) -> None:
    assert field_of(headers={name: "x"}) == f"headers.{name}"


@pytest.mark.parametrize("name", ["", " ", "X A", "X:", "X-Ä", "X\r\nBcc", "X\0", "\tX", "X\x7f", "X "])
def test_what_is_no_header_name_is_refused(name: str) -> None:
    assert field_of(headers={name: "x"}) == "headers"


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


def test_the_number_of_headers_and_of_metadata_is_bounded() -> None:
    prepared(headers={f"X-{number}": "x" for number in range(rules.MOST_HEADERS)})
    assert field_of(headers={f"X-{number}": "x" for number in range(rules.MOST_HEADERS + 1)}) == "headers"
    prepared(metadata={f"m{number}": "x" for number in range(rules.MOST_METADATA)})
    assert field_of(metadata={f"m{number}": "x" for number in range(rules.MOST_METADATA + 1)}) == "metadata"


# -- line breaks and NUL ----------------------------------------------------------------------

BREAKERS = ["\r\n", "\r", "\n", "\0"]
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


@pytest.mark.parametrize("breaker", BREAKERS, ids=["crlf", "cr", "lf", "nul"])
@pytest.mark.parametrize(
    ("field", "fields"), BOUND_FOR_HEADERS, ids=[f"{i}-{row[0]}" for i, row in enumerate(BOUND_FOR_HEADERS)]
)
def test_no_line_break_reaches_a_header(field: str, fields: dict[str, object], breaker: str) -> None:
    assert field_of(**_filled(fields, breaker)) == field


@pytest.mark.parametrize("breaker", BREAKERS, ids=["crlf", "cr", "lf", "nul"])
def test_no_line_break_reaches_the_sender(breaker: str) -> None:
    with pytest.raises(Refusal) as caught:
        rules.sender_of(request(**{"from": f"Shop{breaker}Bcc: <shop@shop.test>"}))

    assert caught.value.fields == {"field": "from"}


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("text", {"text": "a\0b"}),
        ("html", {"html": "a\0b"}),
        ("idempotencyKey", {"idempotencyKey": "a\0"}),
        ("tags[1]", {"tags": ["a", "b\0"]}),
        ("metadata", {"metadata": {"a": "\0"}}),
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


@pytest.mark.parametrize("name", ["a.exe", "A.EXE", "a.js ", "a.pdf.exe", "a.exe.", "a.vbs.txt", "a.lnk"])
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
        ("cid", {"cid": ""}),
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


# -- shape and size ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("template", {"template": "welcome"}),
        ("templateVersion", {"templateVersion": 2}),
        ("variables", {"variables": {"a": "b"}}),
        ("variables", {"variables": {}}),
        ("scheduledAt", {"scheduledAt": "2026-11-20T08:09:10Z"}),
        ("text", {"text": None}),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(field: str, fields: dict[str, object]) -> None:
    assert field_of(**fields) == field


def test_an_empty_text_is_a_text() -> None:
    prepared(text="")
    prepared(text=None, html="")


def test_a_message_above_its_bound_is_refused_with_the_bound() -> None:
    one = request(text="x" * 5_000)
    size = len(prepare(one).mime)

    prepare(one, most_bytes=size)
    with pytest.raises(Refusal) as caught:
        prepare(one, most_bytes=size - 1)
    assert caught.value.kind is ErrorType.PAYLOAD_TOO_LARGE
    assert caught.value.fields == {"limit": size - 1}


def test_the_message_id_is_ours_under_the_senders_domain() -> None:
    one = prepared()

    assert one.public_id == ids.format_id(ids.Kind.MESSAGE, MESSAGE)
    assert f"Message-ID: <{ids.encode(MESSAGE)}@shop.test>\r\n".encode() in one.mime
    assert (one.from_domain, one.sender) == ("shop.test", "Shop <shop@shop.test>")


def test_the_digest_tells_requests_apart() -> None:
    one = request(idempotencyKey="k")

    assert rules.request_digest(one) == rules.request_digest(request(idempotencyKey="k"))
    for name in SendRequest.__struct_fields__:
        assert rules.request_digest(replace(one, **{name: "another"})) != rules.request_digest(one)
    moved = rules.request_digest(request(subject="a", text="b")), rules.request_digest(request(subject="b", text="a"))
    assert moved[0] != moved[1]
    assert prepare(one).request_digest == rules.request_digest(one)
    assert prepared().request_digest == b""
