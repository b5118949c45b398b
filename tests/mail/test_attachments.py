"""What may be attached."""

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.attachments import (
    BLOCKED,
    BadContent,
    blocked_extension,
    content_id,
    decode_content,
    media_type,
)


@pytest.mark.parametrize(
    ("filename", "extension"),
    [
        ("setup.exe", "exe"), ("SETUP.EXE", "exe"), ("invoice.pdf.exe", "exe"), ("a.exe.txt", "exe"), ("a.js", "js"),
        ("run.com", "com"), ("photo.scr ", "scr"), ("photo.scr. . .", "scr"), ("photo.scr      .txt", "scr"),
        ("invoice\u202efdp.exe", "exe"), ("a.e\u200bxe", "exe"), ("a.e\u00adxe", "exe"), ("a．ｅｘｅ", "exe"),
        ("a․exe", "exe"),
        ("a.exe::$DATA", "exe"), ("dir/a.bat", "bat"), ("dir\\a.bat", "bat"), (".exe", "exe"), ("a.exe/", "exe"),
        ("a.settingcontent-ms", "settingcontent-ms"), ("report.PS1", "ps1"), ("a.e\x01xe", "exe"),
        ("script.sh", "sh"), ("a.exe'", "exe"), ("a.ex|e", "exe"), ("a.exe\ufffd", "exe"), ('"a.exe"', "exe"),
    ],
)  # fmt: skip
def test_what_mailbox_providers_refuse_is_blocked(filename: str, extension: str) -> None:
    assert blocked_extension(filename) == extension


@pytest.mark.parametrize(
    "filename",
    ["invoice.pdf", "exe", "README", "exe.pdf", "1. Application.pdf", "invoice-example.com.pdf", "firma.pl.pdf",
     "archive.tar.gz", "photo.jpg",
     "résumé.docx", "v1.2.3.zip", "", ".", "...", "cert.crt", "data.mdb", "javascript.txt", "my.json", "a.jsx.map",
     "a.comé", "Smith & Co. (v1.2).pdf"],
)  # fmt: skip
def test_ordinary_files_pass(filename: str) -> None:
    assert blocked_extension(filename) is None


@given(st.sampled_from(sorted(BLOCKED)), st.text(max_size=10), st.sampled_from(["", ".", " ", ". .", "\u200f"]))
def test_no_decoration_hides_a_last_extension(extension: str, stem: str, tail: str) -> None:
    assert blocked_extension(f"{stem}.{extension.upper()}{tail}") is not None


@given(st.binary(max_size=500), st.booleans())
def test_base64_gives_back_the_bytes(content: bytes, wrapped: bool) -> None:
    text = (base64.encodebytes(content) if wrapped else base64.b64encode(content)).decode()

    assert decode_content(text) == content
    assert decode_content(text.replace("\n", "\r\n")) == content


@given(st.text(st.sampled_from("ABab+/09==\r\n -_é\0"), max_size=14))
def test_base64_is_taken_and_refused_as_the_standard_library_does(text: str) -> None:
    try:
        expected = binascii.a2b_base64(text.replace("\r", "").replace("\n", ""), strict_mode=True)
    except ValueError:
        with pytest.raises(BadContent):
            decode_content(text)
    else:
        assert decode_content(text) == expected


@pytest.mark.parametrize(
    "text",
    ["a", "ab", "abc", "abc=d", "ab==c", "YQ=", "YQ===", "=", "====", "Y Q==", "YQ==YQ==", "YQ-_", "YQ==\0", "é==="],
)
def test_loose_base64_is_refused(text: str) -> None:
    with pytest.raises(BadContent):
        decode_content(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Application/PDF", "application/pdf"),
        ("text/plain;charset=utf-8", "text/plain; charset=utf-8"),
        (' text/calendar ; method=REQUEST ; charset="utf-8";', 'text/calendar; method=REQUEST; charset="utf-8"'),
        (r'a/b; title="x \"y\"; z"', r'a/b; title="x \"y\"; z"'),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document",) * 2,
    ],
)
def test_a_media_type_is_written_one_way(text: str, expected: str) -> None:
    assert media_type(text) == expected


@pytest.mark.parametrize(
    "text", ["", "pdf", "a/", "/b", "a/b/c", "a b/c", "a/b; c", "a/b\r\nX: y", "a/b; c=é", 'a/b; c="', "a/b, c/d"]
)
def test_what_is_no_media_type_is_refused(text: str) -> None:
    with pytest.raises(BadContent):
        media_type(text)


def test_a_content_id_comes_with_or_without_brackets() -> None:
    assert content_id("logo") == content_id("<logo>") == "logo"
    assert content_id("a.b@shop.test") == "a.b@shop.test"


@pytest.mark.parametrize("text", ["", "<>", "a b", "a>b", "é", "a\r\nb", '"a"'])
def test_what_is_no_content_id_is_refused(text: str) -> None:
    with pytest.raises(BadContent):
        content_id(text)
