"""Messages, headers, addresses and templates with the highest parsing cost."""

import asyncio
from collections.abc import Callable
from typing import Any

from engine.base.memory_pool import MemoryPool
from engine.mail import template
from engine.mail.address import Mailbox, parse_mailbox
from engine.mail.fields import MAX_HEADER
from engine.mail.read import bodies, files
from engine.mail.seven_bit import to_seven_bit
from engine.mail.submitted import check_octets
from engine.sending.emails import submitted
from loadtests.bench.readers.cases import SIZE_BYTES, FunctionCase
from mta.smtp.server import commands
from mta.smtp.server.reader import SmtpReader

HEAD = b"From: a@b.test\r\nTo: c@d.test\r\n"
_TO = [Mailbox("", "c@d.test")]


def submission(content: bytes) -> None:
    """Read a submitted message as the SMTP submission server does."""
    submitted.read(content, _TO, smtputf8=False, host="mail.test")


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


def _filled(piece: bytes, before: bytes = b"", after: bytes = b"", size: int = SIZE_BYTES) -> Callable[[], bytes]:
    return lambda: before + piece * (size // len(piece)) + after


def _header(piece: bytes, name: bytes = b"To") -> Callable[[], bytes]:
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


_MIXED = HEAD + b"Content-Type: multipart/mixed; boundary=B\r\n\r\n"
_PARTS = "1,000 parts, depth 20"
_HEADER = "100 KB and 1,000 fields a header"

CASES = (
    FunctionCase("SMTP content", "lines of two octets", "message size", _filled(b"a\r\n", HEAD + b"\r\n"), submission),
    FunctionCase("SMTP content", "dots to unstuff", "message size", _filled(b"..\r\n"), check_octets),
    FunctionCase(
        "SMTP content", "segments of 64 octets", "message size",
        _filled(b"a" * 62 + b"\r\n", b"", b".\r\n", 256 * 1024), lambda octets: feed(octets, 64),
    ),
    FunctionCase(
        "SMTP command", "parameters without end", "line of 12 KB",
        lambda: b"MAIL FROM:<a@b.test>" + b" A=b" * 250,
        lambda line: commands.parse_mail(commands.parse_command(line).argument, extended=True, max_octets=1),
    ),
    FunctionCase("MIME", "parts", _PARTS, _filled(b"--B\r\n\r\n\xc3\xbc\r\n", _MIXED), submission),
    FunctionCase("MIME", "lines that look like boundaries", "10,000 of them", _filled(b"--Bx\r\n", _MIXED), submission),
    FunctionCase("MIME", "nested 8-bit multiparts", _PARTS, lambda: _nested(19), to_seven_bit),
    FunctionCase("MIME", "nested without end", _PARTS, lambda: _nested(5_000), submission),
    FunctionCase(
        "MIME", "attachments in base64 with foreign letters", _PARTS,
        _filled(b"A!" * 38 + b"\r\n", _MIXED + b"--B\r\nContent-Transfer-Encoding: base64\r\n"
                b"Content-Disposition: attachment\r\n\r\n"),
        lambda octets: list(files(octets)),
    ),
    FunctionCase(
        "MIME", "quoted-printable escapes", "message size",
        _filled(b"=C3=BC" * 12 + b"=\r\n", HEAD + b"Content-Transfer-Encoding: quoted-printable\r\n\r\n"), bodies,
    ),
    FunctionCase(
        "MIME", "spellings of names", _PARTS,
        _filled(b'--B\r\nContent-Type: a/b;\r\n ' + b"name==\\%\r\n ;" * 60 + b"x=y\r\n\r\n", _MIXED), submission,
    ),
    FunctionCase("header", "fields", _HEADER, _header(b"\r\nA:b"), submission),
    FunctionCase("header", "folds", _HEADER, _header(b"\r\n b"), submission),
    FunctionCase("header", "encoded words", _HEADER, _header(b" =?utf-8?q?a?="), submission),
    FunctionCase("header", "encoded words that are none", _HEADER, _header(b"=?a?q?"), submission),
    FunctionCase("header", "addresses", _HEADER, _header(b",a@b.test"), submission),
    FunctionCase("header", "addresses that need the slow parser", _HEADER, _header("ü@b.test,".encode()), submission),
    FunctionCase("header", "nested comments", _HEADER, _header(b"("), submission),
    FunctionCase("header", "quotes", _HEADER, _header(b'"\\'), submission),
    FunctionCase("header", "parameters", _HEADER, _header(b";\r\n a=b", b"Content-Type"), submission),
    FunctionCase("header", "segments of a name", _HEADER, _header(b";\r\n name*1*=%C3", b"Content-Type"), submission),
    FunctionCase(
        "address", "labels", "320 characters", lambda: b"a@" + b"a-." * 100 + b"test",
        lambda text: parse_mailbox(text.decode()),
    ),
    FunctionCase(
        "address", "non-ASCII local part and domain", "320 characters", ("ü" * 30 + "@" + "ü." * 100).encode,
        lambda text: parse_mailbox(text.decode()),
    ),
    FunctionCase(
        "template", "tags", f"{template.MAX_TAGS:,} tags", _filled(b"{{a}}"), lambda text: _compiled(text.decode())
    ),
    FunctionCase(
        "template", "sections one after another", f"depth {template.MAX_DEPTH}",
        lambda: (b"{{#a}}" * 30 + b"{{/a}}" * 30) * 80,
        lambda text: _compiled(text.decode()),
    ),
    FunctionCase(
        "template", "blanks before a section", "body size", _filled(b" ", b"{{#a}}", b"\n{{/a}}"),
        lambda text: _compiled(text.decode()),
    ),
    FunctionCase(
        "template", "a large value 5,000 times", f"{template.MAX_RENDERED:,} characters", lambda: b"{{a}}" * 5_000,
        lambda text: template.render(_compiled(text.decode()), {"a": "<" * 5_000}),
    ),
)  # fmt: skip
