"""Valid examples for the readers: written for this purpose, at example domains."""

import struct
from typing import Final

import orjson

from engine.authentication.arc_seal import seal
from engine.authentication.dkim_signing import generate_ed25519, load, public_txt, sign
from engine.people.passkeys.ceremony import octets, text_of
from tests.harness.authenticator import Authenticator
from tests.mail.test_tls_reports import REPORT

HEAD: Final = b"From: Ann <ann@b.test>\r\nTo: c@d.test\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n" \
    b"Date: Sun, 1 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@b.test>\r\nMIME-Version: 1.0\r\n"  # fmt: skip
_ALTERNATIVE: Final = (
    b"Content-Type: multipart/alternative; boundary=B\r\n\r\n--B\r\nContent-Type: text/plain; charset=utf-8; format=flowed"
    b"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe =\r\nall\r\n> quoted\r\n--B\r\n"
    b"Content-Type: text/html; charset=iso-8859-1\r\n\r\n<p>Gr\xfc\xdfe</p>\r\n--B--\r\n"
)
_FILES: Final = (
    b"Content-Type: multipart/mixed; boundary=\"B B\"\r\n\r\npreamble\r\n--B B\r\n\r\nHello\r\n--B B\r\n"
    b"Content-Type: application/pdf; name*0*=utf-8''%C3%A4; name*1=.pdf\r\nContent-Transfer-Encoding: base64\r\n"
    b"Content-Disposition: attachment; filename=\"=?utf-8?b?w6Q=?=.pdf\"\r\n\r\nSGVsbG8=\r\n--B B\r\n"
    b"Content-Type: message/rfc822\r\n\r\nFrom: x@y.test\r\nSubject: inner\r\n\r\nInner\r\n--B B--\r\n"
)  # fmt: skip
MAILS: Final = (
    HEAD + b"\r\nHello\r\n.leading dot\r\n",
    HEAD + _ALTERNATIVE,
    HEAD + _FILES,
    HEAD + b"Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n\x1b$B$\"\x1b(B\r\n",
    HEAD + b"Auto-Submitted: auto-replied\r\nList-Unsubscribe: <https://b.test/u>\r\nReferences: <0@b.test>\r\n\r\nbegin"
    b" 644 a.txt\r\n#86)C\r\n`\r\nend\r\n",
)  # fmt: skip
_DER: Final = generate_ed25519()
KEY_RECORD: Final = public_txt(_DER).encode()
SIGNED: Final = sign(MAILS[1], [load("b.test", "s1", _DER)], at=1_700_000_000) + MAILS[1]
SEALED: Final = (
    seal(SIGNED, load("b.test", "s1", _DER), results="mx.test; dkim=pass", chain="none", at=1_700_000_000) + SIGNED
)
SPF: Final = (
    b"v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 a:%{d} mx/24//64 include:c.test exists:%{l1r-}.%{i}.b.test -all",
    b"v=spf1 redirect=_spf.%{o} exp=e.b.test",
)
DMARC: Final = b"v=DMARC1; p=reject; sp=none; np=quarantine; adkim=s; aspf=r; rua=mailto:d@b.test!10m; fo=1; t=y"
BOUNCE: Final = (
    b"From: MAILER-DAEMON@mx.test\r\nTo: b+0123456789@b.test\r\nSubject: Undelivered Mail\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: multipart/report; report-type=delivery-status; boundary=B\r\n\r\n--B\r\n\r\n<c@d.test>: host mx.d.test"
    b" said: 550 5.1.1 User unknown (in reply to RCPT TO command)\r\n--B\r\nContent-Type: message/delivery-status\r\n\r\n"
    b"Reporting-MTA: dns; mx.test\r\n\r\nFinal-Recipient: rfc822; c@d.test\r\nAction: failed\r\nStatus: 5.1.1\r\n"
    b"Diagnostic-Code: smtp; 550 5.1.1\r\n User unknown\r\n\r\n--B\r\nContent-Type: text/rfc822-headers\r\n\r\n"
    b"From: ann@b.test\r\nMessage-ID: <1@b.test>\r\n\r\n--B--\r\n"
)
COMPLAINT: Final = (
    b"From: fbl@p.test\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=B\r\n\r\n--B\r\n\r\nSpam\r\n"
    b"--B\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: x/1\r\nVersion: 1\r\n"
    b"Original-Rcpt-To: <c@d.test>\r\nArrival-Date: Sun, 1 Nov 2026 10:00:00 +0000\r\nSource-IP: 192.0.2.7\r\n\r\n--B\r\n"
    b"Content-Type: message/rfc822\r\n\r\nFrom: ann@b.test\r\nCFBL-Feedback-ID: x:y\r\n\r\nHi\r\n--B--\r\n"
)
DMARC_REPORT: Final = (
    b'<?xml version="1.0"?><feedback><report_metadata><org_name>p.test</org_name><email>d@p.test</email><report_id>1'
    b"</report_id><date_range><begin>1793491200</begin><end>1793577599</end></date_range></report_metadata>"
    b"<policy_published><domain>b.test</domain><p>none</p><pct>100</pct></policy_published><record><row><source_ip>"
    b"192.0.2.7</source_ip><count>2</count><policy_evaluated><disposition>none</disposition><dkim>pass</dkim><spf>fail"
    b"</spf></policy_evaluated></row><identifiers><header_from>b.test</header_from></identifiers><auth_results><dkim>"
    b"<domain>b.test</domain><selector>s1</selector><result>pass</result></dkim></auth_results></record></feedback>"
)
TLS_REPORT: Final = orjson.dumps(REPORT)
PROXY: Final = (
    b"PROXY TCP4 192.0.2.7 192.0.2.8 1234 25\r\n",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 1234 25\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + b"\xc0\0\2\7\xc0\0\2\x08\x04\xd2\x00\x19",
)
_NAME: Final = b"\1a\4test\0"


def _answer(kind: int, data: bytes) -> bytes:
    head = struct.pack(">HHHHHH", 7, 0x8180, 1, 1, 0, 0)
    return (
        head + _NAME + struct.pack(">HH", kind, 1) + b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(data)) + data
    )


DNS: Final = (_answer(1, b"\xc0\0\2\7"), _answer(15, b"\0\x0a\2mx\xc0\x0c"), _answer(16, b"\x08v=spf1 a\x01b"))
JWKS: Final = b'{"keys":[{"kty":"RSA","kid":"1","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}]}'
ID_TOKEN: Final = b"eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL3AudGVzdCIsInN1YiI6IjEifQ.AAAA"
_PASSKEY: Final = Authenticator("https://b.test").create({
    "challenge": text_of(b"c" * 32), "rp": {"id": "b.test"}, "user": {"id": "dQ"},
})  # fmt: skip
CREDENTIAL: Final[str] = _PASSKEY["id"]
CLIENT_DATA: Final = octets(_PASSKEY["response"]["clientDataJSON"])
ATTESTATION: Final = octets(_PASSKEY["response"]["attestationObject"])
HTML: Final = (
    b"<p style='color:red;margin:0 auto'>Hi <b>Ann</b> <a href='https://b.test/?a=1&amp;b'>link</a><img src=cid:1></p>",
    b"<table><tr><td width=100>a<tr><td>&lt;&#8364;</table><blockquote type=cite><div>old</div></blockquote>",
)
BLOCKS: Final = orjson.dumps({
    "version": 1,
    "blocks": [
        {"type": "heading", "id": "a", "text": "Hello {{name}}"},
        {"type": "text", "id": "b", "text": "**bold** [link](https://b.test) {{#a}}x{{/a}}"},
        {"type": "button", "id": "c", "text": "Go", "url": "https://b.test/{{name}}"},
    ],
})  # fmt: skip
SEGMENT: Final = (
    b'{"all":[{"field":"age","op":"ge","value":3},{"any":[{"property":"consent","op":"in","value":["customer"]}]}]}'
)
