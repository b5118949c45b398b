"""File names and types of attachments: safe to show, to store under and to download."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.file_names import MAX_OCTETS, content_disposition, download_type, safe_filename, stand_in
from tests.mail.drafts import THOROUGH


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("C:\\Windows\\x.dll", "C__Windows_x.dll"),
        ("a\r\nb\x00c.txt", "a__b_c.txt"),
        ("invoice\u202efdp.exe", "invoice_fdp.exe"),  # shown as invoiceexe.pdf
        ("invoice.pdf.exe", "invoice_pdf.exe"),
        ("invoice.pdf          .exe", "invoice_pdf .exe"),
        ("archive.tar.gz", "archive.tar.gz"),
        ("  .hidden.  ", "hidden"),
        ("con", "_con"),
        ("NUL.txt", "_NUL.txt"),
        ("context.txt", "context.txt"),
        ("", "attachment"),
        (" . ", "attachment"),
        ("naïve résumé.doc", "naïve résumé.doc"),
        ("e\u0301.txt", "é.txt"),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
        ("€" * 300 + ".pdf", "€" * 65 + ".pdf"),
        ("a" * 300 + "." + "b" * 300, "a" * 200),
    ],
)
def test_a_file_name_is_safe_on_every_system(name: str, safe: str) -> None:
    assert safe_filename(name) == safe


@THOROUGH
@given(st.text(max_size=400))
def test_any_name_gives_a_short_printable_one(name: str) -> None:
    safe = safe_filename(name)

    assert 0 < len(safe.encode()) <= MAX_OCTETS + 1
    assert not set('/\\:*?"<>|\0\r\n') & set(safe)
    assert safe_filename(safe) == safe


def test_an_attachment_without_a_name_gets_one_by_its_type() -> None:
    assert stand_in("text/calendar", 2) == "attachment-2.ics"
    assert stand_in("x/unknown", 1) == "attachment-1"


@pytest.mark.parametrize("filename", ["a\r\nX-Evil: 1", 'a"\r\n\r\n<html>', "a\x00b", "a\u2028b", "\ufeff", "\u0085"])
def test_no_file_name_can_add_a_header(filename: str) -> None:
    header = content_disposition(filename)

    assert header.isascii()
    assert header.isprintable()
    assert header.startswith("attachment; filename=")


def test_safe_types_keep_their_name_without_parameters() -> None:
    assert download_type("application/pdf; name=x.pdf") == "application/pdf"
    assert download_type("Video/MP4") == "video/mp4"
    assert download_type("audio/x+xml") == "application/octet-stream"
    assert download_type("nonsense") == "application/octet-stream"
