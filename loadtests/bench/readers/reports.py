"""Bounces, complaints, DMARC and TLS reports with the highest parsing cost."""

import gzip
import io
import zipfile
from collections.abc import Callable
from typing import Final

from engine.mail.delivery_reports import read_delivery_report
from engine.mail.dmarc_reports import read_dmarc_report
from engine.mail.feedback_reports import read_feedback_report
from engine.mail.report_parts import MAX_PARTS, MAX_READ
from engine.mail.tls_reports import read_tls_report
from engine.mail.unpack import MAX_UNPACKED, unpacked
from loadtests.bench.readers.cases import FunctionCase

_MB: Final = 1024 * 1024
_DAEMON: Final = b"From: mailer-daemon@b.test\r\nSubject: undeliverable\r\n"
_NOTICE: Final = _DAEMON + b"\r\nundeliverable:\r\n\r\n"
_MIXED: Final = _DAEMON + b"Content-Type: multipart/report; boundary=B\r\n\r\n"
_STATUS: Final = _MIXED + b"--B\r\nContent-Type: message/delivery-status\r\n\r\n"
_ROW: Final = (
    b"<record><row><source_ip>192.0.2.%d</source_ip><count>1</count><policy_evaluated><disposition>none</disposition>"
    b"<dkim>pass</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>b.test</header_from>"
    b"</identifiers><auth_results><dkim><domain>b.test</domain><result>pass</result></dkim></auth_results>%b</record>"
)


def _filled(start: bytes, piece: bytes, end: bytes = b"", size: int = 10 * _MB) -> Callable[[], bytes]:
    return lambda: start + piece * (size // len(piece)) + end


def _aggregate() -> bytes:
    """Return 40 MB with 100,000 rows."""
    padding = b"<note>" + b"x" * 90 + b"</note>"
    return b"<feedback>" + b"".join(_ROW % (number % 256, padding) for number in range(100_000)) + b"</feedback>"


def _zip_bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.xml", b" " * (MAX_UNPACKED + 1))
    return target.getvalue()


def _stray_fields() -> bytes:
    """Return a recipient without an action, and after it fields of different names between blank lines."""
    names = (b"x%05d:\n\n" % number for number in range(20_000))
    return _STATUS + b"Final-Recipient: rfc822;a@b.test\n\n" + b"".join(names)


def _unpack(content: bytes) -> None:
    for _ in unpacked(content):
        pass


def _dmarc(content: bytes) -> None:
    read_dmarc_report(content[at : at + 65_536] for at in range(0, len(content), 65_536))


_READ = f"{MAX_READ // _MB} MB, {MAX_PARTS} parts"
_XML = "50 MB, 100,000 rows, 4,000,000 elements"
_NESTED = b"Content-Type: message/rfc822\r\n\r\n"
_NESTED_BASE64 = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n"

CASES = (
    FunctionCase(
        "bounce", "Final-Recipient lines", _READ, _filled(_STATUS, b"Final-Recipient: rfc822;a@b.test\r\n"),
        read_delivery_report,
    ),
    FunctionCase(
        "bounce", "recipients", _READ, _filled(_STATUS, b"Final-Recipient: rfc822;a@b.test\r\n\r\n"),
        read_delivery_report,
    ),
    FunctionCase("bounce", "fields between blank lines", _READ, _stray_fields, read_delivery_report),
    FunctionCase("bounce", "addresses in the text", _READ, _filled(_NOTICE, b"a@b.test "), read_delivery_report),
    FunctionCase(
        "bounce", "listed addresses", _READ,
        lambda: _NOTICE + b"".join(b"<a%d@b.test>: 550 5.1.1 no\r\n" % number for number in range(40_000)),
        read_delivery_report,
    ),
    FunctionCase("bounce", "labels without an address", _READ, _filled(_NOTICE, b"to ((((@"), read_delivery_report),
    FunctionCase("bounce", "header lines", _READ, _filled(_NOTICE, b"Received: a\r\n"), read_delivery_report),
    FunctionCase(
        "bounce", "open styles in HTML", _READ, _filled(_DAEMON + b"Content-Type: text/html\r\n\r\n", b"<style><"),
        read_delivery_report,
    ),
    FunctionCase("bounce", "50 nested messages", _READ, _filled(_NESTED * 50, b"x\r\n"), read_delivery_report),
    FunctionCase("bounce", "nested messages without end", _READ, _filled(b"", _NESTED), read_delivery_report),
    FunctionCase("bounce", "nested messages in base64", _READ, _filled(b"", _NESTED_BASE64), read_delivery_report),
    FunctionCase(
        "bounce", "returned messages", _READ, _filled(_MIXED, b"--B\r\n" + _NESTED + b"From: a\r\n\r\n"),
        read_delivery_report,
    ),
    FunctionCase("bounce", "tokens", _READ, _filled(_NOTICE, b"b+" + b"0" * 39 + b" "), read_delivery_report),
    FunctionCase(
        "complaint", "fields", _READ,
        _filled(_MIXED + b"--B\r\nContent-Type: message/feedback-report\r\n\r\n", b"Original-Rcpt-To: a@b.test\r\n"),
        read_feedback_report,
    ),
    FunctionCase(
        "complaint", "reported messages", _READ, _filled(_MIXED, b"--B\r\n" + _NESTED + b"From: a\r\n\r\n"),
        read_feedback_report,
    ),
    FunctionCase(
        "complaint", "types in a text", _READ, _filled(_NOTICE, b"Feedback-Type: a\r\n\r\n"), read_feedback_report
    ),
    FunctionCase("DMARC", "40 MB, 100,000 rows", _XML, _aggregate, _dmarc),
    FunctionCase("DMARC", "nested elements", _XML, _filled(b"", b"<a>"), _dmarc),
    FunctionCase("DMARC", "empty elements", _XML, _filled(b"<a>", b"<b/>", size=MAX_UNPACKED), _dmarc),
    FunctionCase("DMARC", "one attribute list", _XML, _filled(b"<a ", b"b='c' "), _dmarc),
    FunctionCase("DMARC", "an open tag", _XML, _filled(b"<a b='", b"c", size=MAX_UNPACKED), _dmarc),
    FunctionCase("DMARC", "rows of one record", _XML, _filled(b"<a><record>", b"<row/>", size=MAX_UNPACKED), _dmarc),
    FunctionCase(
        "DMARC", "different names", _XML, lambda: b"<a>" + b"".join(b"<b%x/>" % number for number in range(5_000_000)),
        _dmarc,
    ),
    FunctionCase("DMARC", "open tags", _XML, _filled(b"<a>", b"<"), _dmarc),
    FunctionCase("DMARC", "addresses in brackets", _XML, _filled(b"<a>", b"<b@c>"), _dmarc),
    FunctionCase("DMARC", "a long value", _XML, _filled(b"<report_metadata><org_name>", b"x"), _dmarc),
    FunctionCase("DMARC", "entities of a DTD", _XML, _filled(b'<!DOCTYPE a [<!ENTITY b "b">]><a>', b"&b;"), _dmarc),
    FunctionCase("unpack", "gzip bomb", "50 MB", lambda: gzip.compress(b" " * (MAX_UNPACKED + 1)), _unpack),
    FunctionCase("unpack", "zip bomb", "50 MB", _zip_bomb, _unpack),
    FunctionCase("unpack", "gzip members", "16 members", _filled(b"", gzip.compress(b"")), _unpack),
    FunctionCase("TLS report", "policies", "10,000", _filled(b'{"policies":[', b"{},", b"{}]}"), read_tls_report),
    FunctionCase("TLS report", "nested arrays", "JSON depth", _filled(b'{"policies":', b"["), read_tls_report),
    FunctionCase(
        "TLS report", "failures", "100,000 rows",
        _filled(b'{"policies":[{"policy":{},"failure-details":[', b"{},", b"{}]}]}"), read_tls_report,
    ),
)  # fmt: skip
