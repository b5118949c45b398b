"""8-bit content encoded before signing: the same for every reader, in octets that any server takes."""

from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.seven_bit import to_seven_bit
from engine.mail.submitted import check_octets

HEAD = b"From: a@shop.test\r\nMIME-Version: 1.0\r\n"
PLAIN = b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n"


def read(mime: bytes) -> EmailMessage:
    found = message_from_bytes(mime, policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


def leaves(mime: bytes) -> list[tuple[str, bytes]]:
    """Content type and decoded content of each leaf, as the standard library reads them."""
    return [
        (part.get_content_type(), bytes(part.get_payload(decode=True) or b""))
        for part in read(mime).walk()
        if not part.is_multipart()
    ]


def mixed(*parts: bytes, encoding: bytes = b"8bit") -> bytes:
    head = HEAD + b"Content-Type: multipart/mixed; boundary=x\r\nContent-Transfer-Encoding: %b\r\n\r\n" % encoding
    return head + b"".join(b"--x\r\n" + part + b"\r\n" for part in parts) + b"--x--\r\n"


@given(st.text(alphabet=st.sampled_from("aé😀 \t.=From\n"), max_size=300), st.booleans())
def test_a_text_reads_the_same(text: str, declared: bool) -> None:
    content = text.replace("\n", "\r\n").encode() + b"\r\n"
    mime = HEAD + (PLAIN if declared else b"") + b"\r\n" + content
    converted = to_seven_bit(mime)

    assert converted.isascii()
    check_octets(converted)
    assert leaves(converted)[0][1].replace(b"\r\n", b"\n") == content.replace(b"\r\n", b"\n")
    assert to_seven_bit(converted) == converted


def test_ascii_is_left_alone() -> None:
    mime = HEAD + PLAIN + b"\r\nplain  \r\n.\r\n"
    assert to_seven_bit(mime) is mime


def test_each_8_bit_part_of_a_tree_is_encoded_and_the_others_stay() -> None:
    ascii_part = b"Content-Type: text/plain\r\n\r\nas  it is "
    latin = b"Content-Type: text/html; charset=iso-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n\r\n<b>\xfc</b>"
    binary = b"Content-Type: application/pdf\r\nContent-Transfer-Encoding: binary\r\n\r\n\xff\xfe\xfd"
    nested = (
        b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: x\r\n\r\nGr\xc3\xbc\xc3\x9fe"
    )
    mime = mixed(ascii_part, latin, binary, nested)
    converted = to_seven_bit(mime)

    assert converted.isascii()
    assert leaves(converted) == leaves(mime)
    assert ascii_part in converted
    assert b"8bit" not in converted
    assert read(converted).defects == []


def test_a_text_without_a_type_is_declared() -> None:
    utf8 = read(to_seven_bit(b"From: a@shop.test\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n"))
    assert (utf8["MIME-Version"], utf8.get_content_charset(), utf8.get_content().split()) == ("1.0", "utf-8", ["Grüße"])
    latin = read(to_seven_bit(b"From: a@shop.test\r\n\r\nGr\xfc\xdfe\r\n"))
    assert latin.get_content_charset() == "unknown-8bit"  # RFC 1428


@pytest.mark.parametrize(
    "mime",
    [
        HEAD + b"Content-Type: multipart/signed; boundary=x\r\n\r\n--x\r\n" + PLAIN + b"\r\n\xc3\xbc\r\n--x--\r\n",
        HEAD + b"Subject: \xc3\xbc\r\n" + PLAIN + b"\r\n\xc3\xbc\r\n",
        HEAD + b"Content-Transfer-Encoding: base64\r\n\r\n\xc3\xbc\r\n",
        mixed(b"Content-Type: message/partial\r\n\r\n\xc3\xbc"),
        mixed(b'Content-Type: image/png; name="\xc3\xbc"\r\n\r\n\xc3\xbc'),
        HEAD + b"Content-Type: multipart/mixed; boundary=x\r\n\r\n\xc3\xbc\r\n",
        HEAD + PLAIN + PLAIN + b"\r\n\xc3\xbc\r\n",
        HEAD + PLAIN,
    ],
    ids=["signed", "header", "misdeclared", "partial", "part header", "no part", "twice", "no body"],
)
def test_what_cannot_be_encoded_without_harm_stays_as_it_is(mime: bytes) -> None:
    assert to_seven_bit(mime) == mime


@given(st.binary(max_size=400))
def test_any_octets_are_taken(octets: bytes) -> None:
    converted = to_seven_bit(HEAD + b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n" + octets)
    assert converted
