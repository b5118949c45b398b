"""Messages, headers, addresses and templates with the highest parsing cost."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from engine.base.memory_pool import MemoryPool
from engine.mail import template
from engine.mail.address import Mailbox, parse_mailbox
from engine.mail.fields import MAX_HEADER
from engine.mail.read import bodies, files
from engine.mail.seven_bit import to_seven_bit
from engine.mail.submitted import check_octets
from engine.sending.emails import submitted
from mta.smtp.server import commands
from mta.smtp.server.reader import SmtpReader
from tests.harness.sampling import sampled
from tests.worst_inputs.costs import SIZE_BYTES, Content, check, filled, of_text, worst

HEAD = b"From: a@b.test\r\nTo: c@d.test\r\n"
_TO = [Mailbox("", "c@d.test")]


def submission(content: bytes) -> None:
    """Read a submitted message as the SMTP submission server does."""
    submitted.read(content, _TO, smtputf8=False, host="mail.test")


def command(line: bytes) -> None:
    """Read a MAIL command."""
    commands.parse_mail(commands.parse_command(line).argument, extended=True, max_octets=1)


def feed(content: bytes, step: int) -> None:
    """Pass content to the SMTP reader in pieces of `step` octets, like TCP segments of that size."""

    async def run() -> None:
        async def nothing() -> None:
            await asyncio.sleep(0)

        reader, transport = SmtpReader(nothing), _Transport()
        reservation = MemoryPool.for_accounts(SIZE_BYTES * 4, largest=SIZE_BYTES).open("account")
        reading = asyncio.create_task(reader.content(SIZE_BYTES * 2, reservation, lambda _octets: None))
        await asyncio.sleep(0)
        for at in range(0, len(content), step):
            reader.feed(content[at : at + step], transport)
            await asyncio.sleep(0)
        await reading

    asyncio.run(run())


class _Transport(asyncio.ReadTransport):
    def is_closing(self) -> bool:
        """Return False: it stays open."""
        return False

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""


def _header(piece: bytes, name: bytes = b"To") -> Content:
    """Return a header of the maximum size, folded into lines of legal length."""
    line = piece * (900 // len(piece)) + (b"" if b"\r\n" in piece else b"\r\n ")
    start = b"From: a@b.test\r\n%b: c@d.test" % name
    return lambda: start + line * ((MAX_HEADER - 200) // len(line)) + b"x\r\n\r\nx\r\n"


def _nested(depth: int) -> bytes:
    parts = [
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (number, number) for number in range(depth)
    ]
    return HEAD + b"".join(parts) + "ü\r\n".encode() * (SIZE_BYTES // 4)


def _compiled(text: str) -> Any:
    return template.compile_part(text, template.TemplatePart.HTML)


_BASE64 = b"Content-Transfer-Encoding: base64\r\n"
_MIXED = HEAD + b"Content-Type: multipart/mixed; boundary=B\r\n\r\n"

CASES = [
    *worst("SMTP content", submission, {"lines of two octets": filled(b"a\r\n", HEAD + b"\r\n")}),
    *worst("SMTP content", check_octets, {"dots to unstuff": filled(b"..\r\n")}),
    *worst("SMTP content", lambda octets: feed(octets, 64), {
        "segments of 64 octets": filled(b"a" * 62 + b"\r\n", b"", b".\r\n", 256 * 1024),
    }),
    *worst("SMTP command", command, {
        "parameters without end": lambda: b"MAIL FROM:<a@b.test>" + b" A=b" * 250,
    }),
    *worst("MIME", submission, {
        "parts": filled(b"--B\r\n\r\n\xc3\xbc\r\n", _MIXED),
        "lines that look like boundaries": filled(b"--Bx\r\n", _MIXED),
        "nested without end": lambda: _nested(5_000),
        "spellings of names": filled(
            b"--B\r\nContent-Type: a/b;\r\n " + b"name==\\%\r\n ;" * 60 + b"x=y\r\n\r\n", _MIXED
        ),
    }),
    *worst("MIME", to_seven_bit, {"nested 8-bit multiparts": lambda: _nested(19)}),
    *worst("MIME", lambda octets: list(files(octets)), {
        "attachments in base64 with foreign letters": filled(
            b"A!" * 38 + b"\r\n", _MIXED + b"--B\r\n%bContent-Disposition: attachment\r\n\r\n" % _BASE64
        ),
    }),
    *worst("MIME", bodies, {
        "quoted-printable escapes": filled(
            b"=C3=BC" * 12 + b"=\r\n", HEAD + b"Content-Transfer-Encoding: quoted-printable\r\n\r\n"
        ),
    }),
    *worst("header", submission, {
        "fields": _header(b"\r\nA:b"),
        "folds": _header(b"\r\n b"),
        "encoded words": _header(b" =?utf-8?q?a?="),
        "encoded words that are none": _header(b"=?a?q?"),
        "addresses": _header(b",a@b.test"),
        "addresses that need the slow parser": _header("ü@b.test,".encode()),
        "nested comments": _header(b"("),
        "quotes": _header(b'"\\'),
        "parameters": _header(b";\r\n a=b", b"Content-Type"),
        "segments of a name": _header(b";\r\n name*1*=%C3", b"Content-Type"),
    }),
    *worst("address", of_text(parse_mailbox), {
        "labels": lambda: b"a@" + b"a-." * 100 + b"test",
        "non-ASCII local part and domain": ("ü" * 30 + "@" + "ü." * 100).encode,
    }),
    *worst("template", of_text(_compiled), {
        "tags": filled(b"{{a}}"),
        "sections one after another": lambda: (b"{{#a}}" * 30 + b"{{/a}}" * 30) * 80,
        "blanks before a section": filled(b" ", b"{{#a}}", b"\n{{/a}}"),
    }),
    *worst("template", of_text(lambda text: template.render(_compiled(text), {"a": "<" * 5_000})), {
        "a large value 5,000 times": lambda: b"{{a}}" * 5_000,
    }),
]  # fmt: skip


@pytest.mark.properties
@pytest.mark.parametrize(("read", "content"), sampled(CASES, 10))
def test_a_submitted_message_costs_little_cpu(read: Callable[[bytes], Any], content: Content) -> None:
    check(read, content())
