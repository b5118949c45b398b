"""Addresses: one form to store, one form to compare, and a fast path that is never laxer than the library."""

import pytest
from email_validator import EmailNotValidError, validate_email
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.address import (
    BadAddress,
    Mailbox,
    canonical,
    check_sender,
    domain_name,
    impersonated,
    parse_mailbox,
    path_mailbox,
)
from mta.smtp.client.envelope import Envelope, EnvelopeNeeds
from tests.mail.drafts import THOROUGH


@pytest.mark.parametrize(
    ("text", "name", "address"),
    [
        ("a@b.example", "", "a@b.example"),
        ("First.Last+tag@MAIL.Example", "", "First.Last+tag@mail.example"),
        ("Name <a@b.example>", "Name", "a@b.example"),
        ("  Name   <a@b.example>  ", "Name", "a@b.example"),
        ("<a@b.example>", "", "a@b.example"),
        ('"Quoted, Name" <a@b.example>', "Quoted, Name", "a@b.example"),
        (r'"Say \"hi\" \\ bye" <a@b.example>', r'Say "hi" \ bye', "a@b.example"),
        ("John Q. Public (Sales) <a@b.example>", "John Q. Public (Sales)", "a@b.example"),
        ("Жанна <a@b.example>", "Жанна", "a@b.example"),
        ("Family 👩‍👩‍👧 <a@b.example>", "Family 👩‍👩‍👧", "a@b.example"),
        ("a@bücher.example", "", "a@xn--bcher-kva.example"),
        ("a@BÜCHER.example", "", "a@xn--bcher-kva.example"),
        ("a@xn--bcher-kva.example", "", "a@xn--bcher-kva.example"),
        ("a@straße.example", "", "a@xn--strae-oqa.example"),  # IDNA 2008: ß is its own letter
        ("a@例え。テスト", "", "a@xn--r8jz45g.xn--zckzah"),
        ("jörg@mail.example", "", "jörg@mail.example"),
        ("jo\u0308rg@mail.example", "", "jörg@mail.example"),
        ("a@shop.test", "", "a@shop.test"),
        ("a@example.com", "", "a@example.com"),
        ("a@mail.localhost", "", "a@mail.localhost"),
        ("a@printer.local", "", "a@printer.local"),
        ("a@sub.invalid", "", "a@sub.invalid"),
    ],
)
def test_one_mailbox_in_every_accepted_writing(text: str, name: str, address: str) -> None:
    assert parse_mailbox(text) == Mailbox(name, address)


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "@", "a@", "@b.example", "a@b", "a@localhost", "a b@c.example", "a@b c.example", "a@@b.example",
        ".a@b.example", "a.@b.example", "a..b@c.example", "a@.b.example", "a@b.example.", "a@-b.example",
        "a@b-.example",
        "a@b_c.example", "a@[127.0.0.1]", "a@[IPv6:::1]", "a@127.0.0.1", "a@b.123", "a@ab--cd.example",
        "a@xn--a.example",
        '"a b"@c.example', '"a"@c.example', "a@b.example, c@d.example", "a@b.example;c@d.example",
        "Group: a@b.example;",
        "Doe, John <a@b.example>", "a@b.example <c@d.example>", "Name <a@b.example", "Name a@b.example>", "Name <>",
        'Bad "quote <a@b.example>', '"open <a@b.example>', "Name <<a@b.example>>", "Name <a@b.example> x",
        "a@b.example\n",
        "a\r\nBcc: c@d.example@b.example", "N\0ame <a@b.example>", "Name\r\n <a@b.example>",
        "Name\u2028 <a@b.example>",
        "N\x85 <a@b.example>", "\ud83d <a@b.example>", "a\ud83d@b.example", "a@b\u202e.example", "a\u202eb@c.example",
        "x" * 65 + "@b.example", "é" * 33 + "@b.example", "a@" + "b" * 64 + ".example", "a@" + "b." * 126 + "example",
        "a@" + ".".join(["b" * 60] * 4) + ".exampleexample", "N" * 310 + " <a@b.example>", "a@b。",
        "＠b.example", "a＠b.example",
    ],
)  # fmt: skip
def test_what_is_no_single_mailbox_is_refused(text: str) -> None:
    with pytest.raises(BadAddress) as refused:
        parse_mailbox(text)

    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_parts_of_a_mailbox() -> None:
    mailbox = parse_mailbox("Ann <Ann.Smith@Mail.Example>")

    assert (mailbox.local, mailbox.domain, mailbox.smtputf8) == ("Ann.Smith", "mail.example", False)
    assert parse_mailbox("jörg@mail.example").smtputf8
    assert not parse_mailbox("a@bücher.example").smtputf8


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann@Mail.Example", "ann@mail.example"),
        ("JÖRG@mail.example", "jo\u0308rg@mail.example"),
        ("jörg@bücher.example", "Jörg@xn--bcher-kva.example"),
    ],
)
def test_suppression_compares_across_writings(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    "local",
    ["a\ufe0fnn", "a\u034fnn", "\u115fann", "ann\u00ad", "\uff41nn", "\U0001d41ann", "a\u200bnn", "ANN\ufe0f"],
)
def test_a_suppression_holds_for_look_alikes_of_the_local_part(local: str) -> None:
    assert canonical(f"{local}@x.test") == "ann@x.test"


def test_letters_of_other_alphabets_stay_apart_in_suppressions() -> None:
    forms = {canonical(f"{local}@x.test") for local in ("ann", "\u0430nn", "\u00e4nn", "a\u00dfn", "assn")}
    assert len(forms) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Shop.Example", "shop.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("xn--BCHER-kva.Example", "xn--bcher-kva.example"),
        ("a.b.c.shop.test", "a.b.c.shop.test"),
        ("faß.de", "xn--fa-hia.de"),
    ],
)
def test_a_domain_name_becomes_its_a_labels(text: str, expected: str) -> None:
    assert domain_name(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "localhost", ".", "a..b", "-a.example", "a@b.example", "[127.0.0.1]", "10.0.0.1", "a b.example",
     "a.example\n",
     "a" * 64 + ".example", "a,b.example", "xn--a.example", "a.example/x", "a" * 400, "é" * 400 + ".de",
     "\ud800.example"],
)  # fmt: skip
def test_what_is_no_domain_name_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        domain_name(text)


_pieces = st.sampled_from([
    "a", "b1", "-", ".", "--", "xn--", "@", "_", "+", "X", "9", "example", "test", "!", "'", "é", "ß",
    "x" * 30, " ", '"', "0",
])  # fmt: skip
_addresses = st.lists(_pieces, max_size=10).map("".join)


@THOROUGH
@given(
    st.builds("{}@{}".format, _addresses, _addresses)
    | st.from_regex(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,10}@[A-Za-z0-9.-]{1,20}", fullmatch=True)
)
def test_the_fast_path_accepts_nothing_that_the_library_refuses(text: str) -> None:
    try:
        mailbox = parse_mailbox(text)
    except BadAddress:
        return
    try:
        expected = validate_email(text.strip(), check_deliverability=False)
    except EmailNotValidError as error:
        raise AssertionError(f"{text!r} parsed as {mailbox}, but: {error}") from error
    assert mailbox.domain == expected.ascii_domain
    assert mailbox.smtputf8 == expected.smtputf8


@THOROUGH
@given(st.text(max_size=60) | st.builds("{} <{}>".format, st.text(max_size=20), _addresses))
def test_any_text_is_a_mailbox_or_one_error(text: str) -> None:
    try:
        mailbox = parse_mailbox(text)
    except BadAddress:
        return
    assert parse_mailbox(mailbox.address) == Mailbox("", mailbox.address)
    assert canonical(mailbox.address) == canonical(canonical(mailbox.address))
    assert not set(mailbox.name + mailbox.address) & set("\r\n\0")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<a@legit.test>", "a@legit.test"),
        ("Bank (a@legit.test)", "a@legit.test"),
        ("a＠legit。test", "a@legit.test"),
        ("a@\u200blegit.test", "a@legit.test"),
        ("ann@shop.test via b@legit.test", "b@legit.test"),
        ("a@notshop.test", "a@notshop.test"),
        ("Ann", None),
        ("Ann @ Work", None),
        ("ann@shop.test", None),
        ("ANN@Mail.Shop.Test", None),
    ],
)
def test_an_address_of_another_domain_in_the_display_name_is_found(name: str, shown: str | None) -> None:
    assert impersonated(Mailbox(name, "x@shop.test")) == shown


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ('"Ann B"@c.example', '"Ann B"@c.example'),
        ('"a<b>,c;d@e"@C.Example', '"a<b>,c;d@e"@c.example'),
        (r'"a\"b"@c.example', r'"a\"b"@c.example'),
        ('"ann"@c.example', "ann@c.example"),  # the quotes are not needed
        (r'"a\nn"@c.example', "ann@c.example"),
        ("ann@c.example", "ann@c.example"),
    ],
)
def test_a_path_may_have_a_quoted_local_part_that_can_be_written_again(text: str, address: str) -> None:
    found = path_mailbox(text)
    assert found == Mailbox("", address)
    assert EnvelopeNeeds.of(Envelope("", (found.address,), b"")).unsafe == ()


@pytest.mark.parametrize(
    "text", ['""@c.example', '"a@c.example', '"a"b"@c.example', '"a" b@c.example', '"a\nb"@c.example', '"a"',
             f'"{"a b" * 21}cd"@c.example'],
)  # fmt: skip
def test_a_malformed_path_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        path_mailbox(text)


@pytest.mark.parametrize("name", ["=?utf-8?q?bank=40bank.test?=", "Ann =?utf-8?b?QW5u?= Lee"])
def test_a_sender_has_no_encoded_word_in_its_name(name: str) -> None:
    with pytest.raises(BadAddress, match="encoded word"):
        check_sender(Mailbox(name, "ann@shop.test"))


def test_a_question_in_a_name_is_no_encoded_word() -> None:
    check_sender(Mailbox("What =? is this?=", "ann@shop.test"))
