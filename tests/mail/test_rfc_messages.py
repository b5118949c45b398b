"""The examples of the RFCs on MIME (2045 to 2049, 2183, 2231, 3676, 8621), read as they say."""

import pytest

from engine.mail.parameters import parse_field
from engine.mail.read import bodies
from engine.mail.received import read_received, received_attachment
from engine.mail.transfer_encoding import decode


def crlf(text: str) -> bytes:
    """Return a message with CRLF lines."""
    return text.lstrip("\n").replace("\n", "\r\n").encode()


def test_rfc_2046_5_1_1_a_part_without_header_and_the_line_end_of_a_delimiter() -> None:
    mime = crlf("""
Subject: Sample message
MIME-Version: 1.0
Content-type: multipart/mixed; boundary="simple boundary"

This is the preamble.  It is to be ignored.

--simple boundary

This is implicitly typed plain US-ASCII text.
It does NOT end with a linebreak.
--simple boundary
Content-type: text/plain; charset=us-ascii

This is explicitly typed plain US-ASCII text.
It DOES end with a linebreak.

--simple boundary--
""")

    assert bodies(mime).text == (
        "This is implicitly typed plain US-ASCII text.\nIt does NOT end with a linebreak.\n"
        "This is explicitly typed plain US-ASCII text.\nIt DOES end with a linebreak.\n"
    )


def test_rfc_2046_5_1_5_a_digest_of_messages() -> None:
    mime = crlf("""
Subject: Internet Digest
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="---- main boundary ----"

------ main boundary ----

...Introductory text or table of contents...

------ main boundary ----
Content-Type: multipart/digest; boundary="---- next message ----"

------ next message ----

From: someone-else
Subject: my opinion

...body goes here ...

------ next message ----

From: someone-else-again
Subject: my different opinion

... another body goes here ...

------ next message ------

------ main boundary ------
""")
    found = read_received(mime)

    assert found.text == "...Introductory text or table of contents...\n"
    assert [one.content_type for one in found.attachments] == ["message/rfc822"] * 2
    assert received_attachment(mime, 1).startswith(b"From: someone-else-again\r\n")


def test_rfc_2049_appendix_a_a_complex_multipart() -> None:
    mime = crlf("""
MIME-Version: 1.0
Subject: A multipart example
Content-Type: multipart/mixed; boundary=unique-boundary-1

This is the preamble area of a multipart message.

--unique-boundary-1

  ... Some text appears here ...

--unique-boundary-1
Content-type: text/plain; charset=US-ASCII

This could have been part of the previous part.

--unique-boundary-1
Content-Type: multipart/parallel; boundary=unique-boundary-2

--unique-boundary-2
Content-Type: audio/basic
Content-Transfer-Encoding: base64

AAEC

--unique-boundary-2
Content-Type: image/jpeg
Content-Transfer-Encoding: base64

/9j/

--unique-boundary-2--

--unique-boundary-1
Content-type: text/enriched

This is <bold><italic>enriched.</italic></bold>

--unique-boundary-1
Content-Type: message/rfc822

From: (mailbox in US-ASCII)
Subject: (subject in US-ASCII)
Content-Type: Text/plain; charset=ISO-8859-1
Content-Transfer-Encoding: Quoted-printable

  ... Additional text in ISO-8859-1 goes here ...

--unique-boundary-1--
""")
    found = read_received(mime)

    assert found.text == "  ... Some text appears here ...\n\nThis could have been part of the previous part.\n"
    types = ["audio/basic", "image/jpeg", "text/enriched", "message/rfc822"]
    assert [one.content_type for one in found.attachments] == types
    assert received_attachment(mime, 0) == b"\0\1\2"


def test_rfc_8621_4_1_4_the_body_of_a_message_with_every_kind_of_part() -> None:
    mime = crlf("""
Content-Type: multipart/mixed; boundary=1

--1
Content-Type: text/plain
Content-Disposition: inline

A
--1
Content-Type: multipart/mixed; boundary=2

--2
Content-Type: multipart/alternative; boundary=3

--3
Content-Type: multipart/mixed; boundary=4

--4
Content-Type: text/plain
Content-Disposition: inline

B
--4
Content-Type: image/jpeg
Content-Disposition: inline

C
--4
Content-Type: text/plain
Content-Disposition: inline

D
--4--
--3
Content-Type: multipart/related; boundary=5

--5
Content-Type: text/html

E
--5
Content-Type: image/jpeg

F
--5--
--3--
--2
Content-Type: image/jpeg
Content-Disposition: attachment

G
--2
Content-Type: application/x-excel

H
--2
Content-Type: message/rfc822

J
--2--
--1
Content-Type: text/plain
Content-Disposition: inline

K
--1--
""")
    found = read_received(mime)

    assert found.text == "A\nB\nD\nK"
    assert found.html == "<p>A</p>\nE\n<p>K</p>"
    assert [received_attachment(mime, one.index) for one in found.attachments] == [b"C", b"F", b"G", b"H", b"J"]


TITLE = (
    b"application/x-stuff;\r\n title*0*=us-ascii'en'This%20is%20even%20more%20;\r\n"
    b' title*1*=%2A%2A%2Afun%2A%2A%2A%20;\r\n title*2="isn\'t it!"'
)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (b"text/plain; charset=us-ascii (Plain text)", "charset", "us-ascii"),  # RFC 2045 5.1
        (b'text/plain; charset="us-ascii"', "charset", "us-ascii"),
        (b'multipart/mixed; boundary="gc0pJq0M:08jU534c0p"', "boundary", "gc0pJq0M:08jU534c0p"),  # RFC 2046 5.1.1
        (  # RFC 2183 2.10
            b'attachment; filename=genome.jpeg;\r\n modification-date="Wed, 12 Feb 1997 16:29:51 -0500"',
            "filename", "genome.jpeg",
        ),
        (  # RFC 2231 3
            b'message/external-body; access-type=URL;\r\n URL*0="ftp://";\r\n URL*1="cs.utk.edu/pub/bulk-mailer.tar"',
            "url", "ftp://cs.utk.edu/pub/bulk-mailer.tar",
        ),
        (  # RFC 2231 4
            b"application/x-stuff;\r\n title*=us-ascii'en-us'This%20is%20%2A%2A%2Afun%2A%2A%2A",
            "title", "This is ***fun***",
        ),
        (  # RFC 2231 4.1
            TITLE,
            "title", "This is even more ***fun*** isn't it!",
        ),
    ],
)  # fmt: skip
def test_parameters_of_the_rfcs(value: bytes, name: str, expected: str) -> None:
    assert parse_field(value).value(name) == expected


def test_rfc_2045_6_7_soft_line_breaks() -> None:
    raw = b"Now's the time =\r\nfor all folk to come=\r\n to the aid of their country."

    assert decode(raw, "quoted-printable")[0] == b"Now's the time for all folk to come to the aid of their country."


def test_rfc_3676_5_flowed_quotes() -> None:
    mime = crlf("""
Content-Type: text/plain; format=flowed

>>>Take some more tea.
>>I've had nothing yet,~
>>so I can't take more.
>You mean you can't take LESS,~
>it's very easy to take MORE than nothing.
""").replace(b"~", b" ")

    assert bodies(mime).text == (
        ">>> Take some more tea.\n>> I've had nothing yet, so I can't take more.\n"
        "> You mean you can't take LESS, it's very easy to take MORE than nothing.\n"
    )
