"""A blocked extension is refused in every spelling of a file name that some reader decodes to it."""

from email import message_from_bytes, policy

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.base.errors import ErrorType, Refusal
from engine.mail.address import Mailbox
from engine.mail.attachments import blocked_extension
from engine.mail.encode import base64_body
from engine.sending.emails import submitted
from tests.harness.sampling import examples
from tests.mail.test_mime_tree import TEXT, parted
from tests.mail.written_mail import BOUNDARIES, NAMES, Writer

HEAD = b"From: a@b.test\r\nTo: c@d.test\r\n"


def refusal(mime: bytes) -> Refusal:
    """Return the refusal of a submitted message."""
    with pytest.raises(Refusal) as raised:
        submitted.read(HEAD + mime, [Mailbox("", "c@d.test")], smtputf8=False, host="mail.test")
    return raised.value


def attached(parameters: bytes) -> bytes:
    """Return a message with a file whose Content-Disposition has these parameters."""
    return parted(b"b", TEXT, b"Content-Type: a/b\r\nContent-Disposition: attachment; " + parameters + b"\r\n\r\nMZ")


PROGRAM = attached(b"filename=x.exe")


@pytest.mark.parametrize(
    "parameters",
    [
        b"filename=x.exe", b"filename=x.exe (comment)", b'filename="a.pdf"; filename="x.exe"', b'filename="x".exe',
        b"filename*=utf-8''x.exe%E2%80%8B", b"filename*=utf-8''x.exe%CD%8F", b"filename*=utf-8''x.exe%EF%B8%8F",
        b"filename*=utf-8''x.exe%E3%85%A4", b"filename*=utf-8''x.exe%E2%A0%80", b"filename*=utf-8''x.exe%C2%A0",
        b'filename="=?utf-8?q?x=2Eexe?="', b'filename="=?utf-8?q?x?=\r\n =?utf-8?q?=2Eexe?="',
        b"filename*0=x.; filename*1=exe", b"filename*0=x.exe; filename*2=.txt", b"filename*0=a; filename*0=x.exe",
        b'filename="x%2Eexe"', b'filename="x.e\\xe"', b'filename="x.exe', b'filename="a;x.exe', b"x=y filename=x.exe",
        b"FILENAME=X.EXE.", b'filename="x.exe. . "', b"name=x.exe", b"filename=a.pdf; name*=utf-8''x.exe",
        b'filename="a.pdf" "x.exe"', b"filename='x.exe'", b"filename=<x.exe>", b'filename="x.exe?"',
        b'filename="x.e\r\n xe"', b"filename=a.pdf;x.exe", b'filename=x.exe"a.pdf"', b"filename=x.exe a.pdf",
        b"filename=x.ex(c)e",
        b'filename="=?utf-8?q?x.e xe?="', b'filename="=?utf-8?q?=3D=3Futf-8=3Fq=3Fx=2Eexe=3F=3D?="',
        b"filename=x.exe,", b"filename*=utf-8''x.exe'",
    ],
)  # fmt: skip
def test_a_blocked_name_is_refused_in_any_spelling(parameters: bytes) -> None:
    assert refusal(attached(parameters)).kind is ErrorType.ATTACHMENT_BLOCKED


@pytest.mark.parametrize(
    "mime",
    [
        b"Content-Type: text/plain; name=x.exe\r\n\r\nMZ",
        b"\r\nwords\r\n\r\nbegin 644 x.exe\r\n#86)C\r\n`\r\nend\r\n",
        b"\r\nbegin 644 a.txt\r\n#86)C\r\n`\r\nend\r\nbegin 100644 x.exe\r\n#86)C\r\n`\r\nend\r\n",
        b"\r\n=ybegin line=128 size=3 name=x.exe\r\nabc\r\n=yend size=3\r\n",
        parted(b"b", TEXT, b"  Content-Type: a/b; name=x.exe\r\n\r\nMZ"),
        *(
            parted(b"b", TEXT, b"Content-Type: " + kind + b"\r\n\r\n" + PROGRAM)
            for kind in (b"message/global", b"message/news", b"message/partial; id=i; number=1; total=1")
        ),
        parted(b"b", TEXT, b"Content-Type: message/rfc822\r\n\r\n" + PROGRAM),
        parted(
            b"b",
            TEXT,
            b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64_body(PROGRAM),
        ),
    ],
)
def test_a_blocked_name_is_refused_in_any_part(mime: bytes) -> None:
    assert refusal(mime).kind is ErrorType.ATTACHMENT_BLOCKED


@pytest.mark.parametrize(
    "mime",
    [
        parted(b"b", TEXT) + PROGRAM.partition(b"\r\n\r\n")[2],
        PROGRAM.replace(b"boundary=", b"boundary=other"),
        b"\r\n" + b"begin 644 a.txt\r\n" * 1_100,
        *(
            parted(b"b", TEXT + b"\r\n--" + other + PROGRAM.partition(b"\r\n--b")[2], declared=declared)
            for other, declared in (
                (b"c", b"b; boundary=c"),
                (b"c", b"b; boundary*=''c"),
                (b"b (c)", b"b (c)"),
                (b"bc", b'"b"c'),
                (b"bc", b"b"),
                (b"b c", b"b"),
            )
        ),
        PROGRAM.replace(b"Content-Disposition", b"Content-Type: text/plain\r\nContent-Disposition"),
        PROGRAM.replace(b"--b\r\nContent-Type: a/b", b"--b\r\nno field\r\nContent-Type: a/b"),
        attached(b"a=b;" * 120 + b"\r\n filename=x.exe"),
        parted(b"b", TEXT, (b"X: " + b"y" * 900 + b"\r\n") * 120 + PROGRAM),
        b"Content-Type: multipart/mixed; boundary=b\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        + base64_body(PROGRAM),
    ],
)
def test_a_message_in_which_another_program_may_show_a_part_is_refused(mime: bytes) -> None:
    assert refusal(mime).kind is ErrorType.INVALID_REQUEST


def test_usual_names_and_the_footers_of_lists_are_accepted() -> None:
    for mime in (attached(b"filename=Report (1).pdf"), attached(b"filename=a.pdf") + b"footer\r\n"):
        found = submitted.read(HEAD + mime, [Mailbox("", "c@d.test")], smtputf8=False, host="mail.test")
        assert isinstance(found, submitted.Submitted)
        assert len(found.attachments) == 1


_writers = st.builds(
    lambda name, boundary: Writer(name=name, boundary=boundary),
    st.sampled_from(sorted(set(NAMES) - {"raw UTF-8", "raw Latin-1"})), st.sampled_from(sorted(BOUNDARIES)),
)  # fmt: skip


@pytest.mark.parametrize("structure", ["mixed", "alternative", "related"])
@pytest.mark.parametrize("program", ["x.exe", "a b.scr", "X.JS", "x.pdf.exe", "bill.com"])
@examples(1_500, share=75, suppress_health_check=[HealthCheck.too_slow])
@given(_writers)
def test_what_the_standard_library_reads_as_a_blocked_name_is_refused(
    program: str, structure: str, writer: Writer
) -> None:
    body = writer.multi(structure, lambda: writer.text("words"), lambda: writer.file(program))
    read = [
        part.get_filename() or ""
        for reader in (policy.compat32, policy.default)
        for part in message_from_bytes(HEAD + body, policy=reader).walk()
    ]

    if any(map(blocked_extension, read)):
        assert refusal(body).kind in {ErrorType.ATTACHMENT_BLOCKED, ErrorType.INVALID_REQUEST}
