"""Bounces, complaints, DMARC and TLS reports with the highest parsing cost."""

import gzip
import io
import zipfile
from collections.abc import Callable
from typing import Any, Final

import pytest

from engine.mail.delivery_reports import read_delivery_report
from engine.mail.dmarc_reports import read_dmarc_report
from engine.mail.feedback_reports import read_feedback_report
from engine.mail.tls_reports import read_tls_report
from engine.mail.unpack import MAX_UNPACKED, unpacked
from tests.harness.sampling import sampled
from tests.worst_inputs.costs import Content, check, filled, worst

_MB: Final = 1024 * 1024
_DAEMON: Final = b"From: mailer-daemon@b.test\r\nSubject: undeliverable\r\n"
_NOTICE: Final = _DAEMON + b"\r\nundeliverable:\r\n\r\n"
_MIXED: Final = _DAEMON + b"Content-Type: multipart/report; boundary=B\r\n\r\n"
_STATUS: Final = _MIXED + b"--B\r\nContent-Type: message/delivery-status\r\n\r\n"
_COMPLAINT: Final = _MIXED + b"--B\r\nContent-Type: message/feedback-report\r\n\r\n"
_ROW: Final = (
    b"<record><row><source_ip>192.0.2.%d</source_ip><count>1</count><policy_evaluated><disposition>none</disposition>"
    b"<dkim>pass</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>b.test</header_from>"
    b"</identifiers><auth_results><dkim><domain>b.test</domain><result>pass</result></dkim></auth_results>%b</record>"
)


def _large(start: bytes, piece: bytes, end: bytes = b"", size: int = 10 * _MB) -> Content:
    return filled(piece, start, end, size)


def _aggregate() -> bytes:
    """Return 40 MB with 100,000 rows."""
    padding = b"<note>" + b"x" * 90 + b"</note>"
    return b"<feedback>" + b"".join(_ROW % (number % 256, padding) for number in range(100_000)) + b"</feedback>"


def _zip_bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.xml", b" " * (MAX_UNPACKED + 1))
    return target.getvalue()


def _listed_addresses() -> bytes:
    return _NOTICE + b"".join(b"<a%d@b.test>: 550 5.1.1 no\r\n" % number for number in range(40_000))


def _stray_fields() -> bytes:
    """Return a recipient without an action, and after it fields of different names between blank lines."""
    names = (b"x%05d:\n\n" % number for number in range(20_000))
    return _STATUS + b"Final-Recipient: rfc822;a@b.test\n\n" + b"".join(names)


def _unpack(content: bytes) -> None:
    for _ in unpacked(content):
        pass


def _dmarc(content: bytes) -> None:
    read_dmarc_report(content[at : at + 65_536] for at in range(0, len(content), 65_536))


_NESTED = b"Content-Type: message/rfc822\r\n\r\n"
_NESTED_BASE64 = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n"

CASES = [
    *worst("bounce", read_delivery_report, {
        "Final-Recipient lines": _large(_STATUS, b"Final-Recipient: rfc822;a@b.test\r\n"),
        "recipients": _large(_STATUS, b"Final-Recipient: rfc822;a@b.test\r\n\r\n"),
        "fields between blank lines": _stray_fields,
        "addresses in the text": _large(_NOTICE, b"a@b.test "),
        "listed addresses": _listed_addresses,
        "labels without an address": _large(_NOTICE, b"to ((((@"),
        "header lines": _large(_NOTICE, b"Received: a\r\n"),
        "open styles in HTML": _large(_DAEMON + b"Content-Type: text/html\r\n\r\n", b"<style><"),
        "50 nested messages": _large(_NESTED * 50, b"x\r\n"),
        "nested messages without end": _large(b"", _NESTED),
        "nested messages in base64": _large(b"", _NESTED_BASE64),
        "returned messages": _large(_MIXED, b"--B\r\n" + _NESTED + b"From: a\r\n\r\n"),
        "tokens": _large(_NOTICE, b"b+" + b"0" * 39 + b" "),
    }),
    *worst("complaint", read_feedback_report, {
        "fields": _large(_COMPLAINT, b"Original-Rcpt-To: a@b.test\r\n"),
        "reported messages": _large(_MIXED, b"--B\r\n" + _NESTED + b"From: a\r\n\r\n"),
        "types in a text": _large(_NOTICE, b"Feedback-Type: a\r\n\r\n"),
    }),
    *worst("DMARC", _dmarc, {
        "40 MB, 100,000 rows": _aggregate,
        "nested elements": _large(b"", b"<a>"),
        "empty elements": _large(b"<a>", b"<b/>", size=MAX_UNPACKED),
        "one attribute list": _large(b"<a ", b"b='c' "),
        "an open tag": _large(b"<a b='", b"c", size=MAX_UNPACKED),
        "rows of one record": _large(b"<a><record>", b"<row/>", size=MAX_UNPACKED),
        "different names": lambda: b"<a>" + b"".join(b"<b%x/>" % number for number in range(5_000_000)),
        "open tags": _large(b"<a>", b"<"),
        "addresses in brackets": _large(b"<a>", b"<b@c>"),
        "a long value": _large(b"<report_metadata><org_name>", b"x"),
        "entities of a DTD": _large(b'<!DOCTYPE a [<!ENTITY b "b">]><a>', b"&b;"),
    }),
    *worst("unpack", _unpack, {
        "gzip bomb": lambda: gzip.compress(b" " * (MAX_UNPACKED + 1)),
        "zip bomb": _zip_bomb,
        "gzip members": _large(b"", gzip.compress(b"")),
    }),
    *worst("TLS report", read_tls_report, {
        "policies": _large(b'{"policies":[', b"{},", b"{}]}"),
        "nested arrays": _large(b'{"policies":', b"["),
        "failures": _large(b'{"policies":[{"policy":{},"failure-details":[', b"{},", b"{}]}]}"),
    }),
]  # fmt: skip


@pytest.mark.properties
@pytest.mark.parametrize(("read", "content"), sampled(CASES, 10))
def test_a_report_costs_little_cpu(read: Callable[[bytes], Any], content: Content) -> None:
    check(read, content())
