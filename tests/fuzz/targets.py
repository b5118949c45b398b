"""The readers of octets from outside: what each reads, which exceptions it may raise, and valid examples.

A reader that is new gets a line here; `test_readers.py` holds the modules of this table against the folders that read.
"""

import asyncio
import gzip
import io
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec
import orjson
from dns.exception import DNSException
from msgspec import Struct
from PIL import Image

from engine.audience.contacts import import_rules, segment_rules
from engine.audience.contacts.files import FileFormat, read_file
from engine.authentication import dmarc_record, spf_record
from engine.authentication.judge import MessageOrigin, authenticate
from engine.authentication.public_keys import parse_key
from engine.authentication.results import claims
from engine.authentication.spf_macros import SpfSyntaxError
from engine.base import trace_context
from engine.base.errors import Refusal
from engine.base.secrets import Pepper
from engine.delivery.outcome import classify
from engine.events.webhooks import retry_after
from engine.events.webhooks import rules as webhook_rules
from engine.mail import (
    address,
    address_list,
    attachments,
    dates,
    encoded_words,
    parameters,
    return_path,
    template,
    template_data,
    unsubscribe_token,
)
from engine.mail.blocks.render import rendered
from engine.mail.blocks.types import BlockDocument, document_of
from engine.mail.delivery_reports import read_delivery_report
from engine.mail.dmarc_reports import BadReport, read_dmarc_report
from engine.mail.feedback_reports import looks_like_complaint, read_feedback_report
from engine.mail.file_names import content_disposition, safe_filename
from engine.mail.html import sanitise
from engine.mail.html_text import html_to_text
from engine.mail.read import UnreadableMail, bodies, files
from engine.mail.received import read_received, summarise
from engine.mail.replies import Answer, Phase, Reply
from engine.mail.reply_text import reply_text
from engine.mail.return_path_tokens import tokens_in
from engine.mail.seven_bit import to_seven_bit
from engine.mail.submitted import Unsendable
from engine.mail.tls_reports import BadTlsReport, read_tls_report
from engine.mail.unpack import UnpackError, unpacked
from engine.people.identity import id_tokens
from engine.people.passkeys import ceremony
from engine.people.passkeys.rules import RelyingParty
from engine.people.people import challenge
from engine.sending.emails import submitted
from engine.sending.images.encode import read_image
from engine.store import dns_exchange, dns_wire
from mta.outbound.tls import mta_sts
from mta.smtp.client.replies import ReplyReader
from mta.smtp.server import commands
from mta.smtp.server.proxy_protocol import BadProxyHeader, parse_proxy_header
from tests.fuzz import examples
from tests.worst_inputs.test_authentication import FixedDns
from tests.worst_inputs.test_messages import feed


class Target(Struct, frozen=True):
    """A reader. `modules` are those whose code it tries; it may raise `refusals` and nothing else."""

    name: str
    read: Callable[[bytes], Any]
    examples: tuple[bytes, ...]
    modules: str
    refusals: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    costly: int = 1  # by which its inputs are fewer


PEPPER: Final = Pepper("00" * 32)
_NOW: Final = datetime(2026, 11, 1, tzinfo=UTC)
_ORIGIN: Final = MessageOrigin("192.0.2.7", "mx.b.test", "ann@b.test", "mx.test")
_PARTY: Final = RelyingParty("b.test", "https://b.test")


def text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return a reader of octets from a reader of text: JSON and SMTP refuse what is no UTF-8 before."""
    return lambda octets: read(octets.decode("utf-8", "replace"))


def _judged(message: bytes) -> None:
    asyncio.run(authenticate(message, _ORIGIN, FixedDns({"*": examples.KEY_RECORD}), at=1_700_000_000))


def _published(record: bytes) -> None:
    """Judge a message whose sender publishes this record for everything: SPF, DKIM keys, DMARC."""
    asyncio.run(authenticate(examples.SIGNED, _ORIGIN, FixedDns({"*": record}), at=1_700_000_000))


def _command(line: bytes) -> None:
    found = commands.parse_command(line)
    commands.parse_host(found.argument or "a")
    if found.verb == "MAIL":
        commands.parse_mail(found.argument, extended=True, max_octets=1_000)
    else:
        commands.parse_rcpt(found.argument, smtputf8=True, extended=True)


def _replies(octets: bytes) -> None:
    reader = ReplyReader()
    for at in range(0, len(octets), 7):
        reader.feed(octets[at : at + 7])


def _classified(reply: str) -> None:
    for phase in Phase:
        for code in (250, 421, 452, 550, 554):
            classify(Answer(phase, Reply(code, reply[:1_000])))


def _plain_dns(wire: bytes) -> None:
    for kind in ("A", "AAAA", "MX"):
        asked = dns_wire.ask("a.test", kind, int.from_bytes(wire[:2], "big"))
        assert asked is not None
        dns_wire.read(wire, asked)


def _templates(source: str) -> None:
    for part in template.TemplatePart:
        program = template.compile_part(source, part)
        template.render(program, {"name": "<Ann>", "a": "b"})
        template_data.render_data(program, {"name": "Ann"}, {"items": [{"name": "x"}, 1, None, "y"], "a": {"b": [1]}})


def _blocks(document: bytes) -> None:
    shown = msgspec.json.decode(document, type=BlockDocument)
    rendered(document_of(msgspec.json.encode(shown).decode()), {})


def _rows(content: str) -> None:
    for form in FileFormat:
        try:
            rows = read_file(form, content)
        except Refusal:
            continue
        import_rules.read_rows(rows)


def _passkey(attestation: bytes) -> None:
    encoded = urlsafe_b64encode(attestation).rstrip(b"=").decode()
    shown = urlsafe_b64encode(examples.CLIENT_DATA).rstrip(b"=").decode()
    ceremony.registered(
        ceremony.Attestation(examples.CREDENTIAL, examples.CREDENTIAL, shown, encoded), b"c" * 32, _PARTY
    )


def _client_data(content: bytes) -> None:
    ceremony.challenge_of(urlsafe_b64encode(content).rstrip(b"=").decode())


def _id_token(token: str) -> None:
    head = id_tokens.head_of(token, {"RS256", "ES256"})
    id_tokens.payload_of(token, head, id_tokens.keys_in(examples.JWKS))


def _unpacked(content: bytes) -> None:
    for piece in unpacked(content):
        assert piece is not None


def _tokens(local: str) -> None:
    return_path.origin(return_path.key_of(PEPPER), f"{local}@bounces.test")
    unsubscribe_token.link_of(unsubscribe_token.key_of(PEPPER), local)


@cache
def _image(form: str) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(target, form)
    return target.getvalue()


def _packed(content: bytes, form: str) -> bytes:
    if form == "gzip":
        return gzip.compress(content, mtime=0)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("report.xml"), content)
    return target.getvalue()


MAILS: Final = (*examples.MAILS, examples.SIGNED, examples.BOUNCE, examples.COMPLAINT)
MIME_WORDS: Final = (
    b"Content-Type: multipart/mixed; boundary=B\r\n", b"Content-Type: message/rfc822\r\n", b"--B\r\n", b"--B--\r\n",
    b"Content-Transfer-Encoding: base64\r\n", b"Content-Transfer-Encoding: quoted-printable\r\n",
    b"; charset=iso-2022-jp", b"; charset=utf-7", b"; charset=big5", b"name*0*=utf-8''%C3", b"name*1=x", b"\r\n ",
    b"Content-Disposition: attachment", b"From: a@b.test\r\n", b"begin 644 a\r\n", b"=C3=BC",
)  # fmt: skip

TARGETS: Final = (
    Target("received mail", read_received, MAILS, "mail.received mail.body_parts mail.body_text mail.mime_tree"
           " mail.charsets mail.transfer_encoding mail.fields mail.received_header mail.received_warnings"
           " mail.searchable_text", words=MIME_WORDS, costly=2),
    Target("summary of received mail", summarise, MAILS, "mail.received mail.machine_mail mail.reply_html",
           words=MIME_WORDS, costly=2),
    Target("submitted mail", lambda octets: submitted.read(octets, [address.Mailbox("", "c@d.test")], smtputf8=True,
                                                           host="mail.test"),
           MAILS, "mail.submitted mail.client_fields mail.resent", (Refusal, Unsendable), MIME_WORDS, 2),
    Target("bodies", bodies, MAILS, "mail.read", (UnreadableMail,), MIME_WORDS),
    Target("files", lambda octets: list(files(octets)), MAILS, "mail.read", (UnreadableMail,), MIME_WORDS),
    Target("8-bit mail for a 7-bit server", to_seven_bit, MAILS, "mail.seven_bit", (ValueError,), MIME_WORDS),
    Target("SMTP content", lambda octets: feed(octets + b"\r\n.\r\n", 61), MAILS, "", (ValueError,), (b"\r\n.\r\n", b"\n.\n"), 4),
    Target("bounce", read_delivery_report, (examples.BOUNCE, *examples.MAILS), "mail.delivery_reports"
           " mail.delivery_status mail.bounce_texts mail.report_parts", words=MIME_WORDS, costly=2),
    Target("complaint", lambda octets: (looks_like_complaint(octets), read_feedback_report(octets)),
           (examples.COMPLAINT, *examples.MAILS), "mail.feedback_reports", words=MIME_WORDS),
    Target("DMARC report", lambda octets: read_dmarc_report([octets[:99], octets[99:]]), (examples.DMARC_REPORT,),
           "mail.dmarc_reports mail.xml_text", (BadReport,), (b"<record>", b"</row>", b"<!DOCTYPE a>", b"&lt;")),
    Target("TLS report", read_tls_report, (examples.TLS_REPORT,), "mail.tls_reports", (BadTlsReport,)),
    Target("packed report", _unpacked, tuple(_packed(examples.DMARC_REPORT, form) for form in ("gzip", "zip")),
           "mail.unpack", (UnpackError,)),
    Target("tokens in a bounce", tokens_in, (examples.BOUNCE,), "mail.return_path_tokens"),
    Target("authentication of a message", _judged, (examples.SIGNED, examples.SEALED, *examples.MAILS),
           "authentication.judge authentication.dkim_check authentication.arc_check authentication.arc_sets"
           " authentication.author authentication.canonicalization mail.tag_list",
           words=(b"DKIM-Signature: ", b"ARC-Seal: i=1; ", b"b=", b"bh=", b"c=simple/simple; ", b"l=1; ", b"; x=1"),
           costly=8),
    Target("records of a sender", _published, (examples.KEY_RECORD, *examples.SPF, examples.DMARC),
           "authentication.spf authentication.dmarc authentication.dns", words=(b"v=spf1 ", b" include:b.test"), costly=8),
    Target("SPF record", spf_record.parse, examples.SPF, "authentication.spf_record authentication.spf_macros",
           (SpfSyntaxError,), (b" a:%{i}", b" ip4:", b" redirect=", b" exists:%{l1r-}.b.test", b"/24//64")),
    Target("DMARC record", dmarc_record.parse.__wrapped__, (examples.DMARC,), "authentication.dmarc_record"),
    Target("DKIM key", parse_key.__wrapped__, (examples.KEY_RECORD,), "authentication.public_keys"),
    Target("Authentication-Results", lambda octets: claims(octets, "mx.test"),
           (b"mx.test; spf=pass smtp.mailfrom=b.test; dkim=pass (good) header.d=b.test",), "authentication.results"),
    Target("SMTP command", _command, (b"MAIL FROM:<a@b.test> SIZE=100 BODY=8BITMIME SMTPUTF8", b"RCPT TO:<c@d.test>",
                                      'RCPT TO:<"ü x"@b.test>'.encode()),
           "mta.smtp.server.commands", (commands.BadCommand,)),
    Target("PROXY header", parse_proxy_header, examples.PROXY, "mta.smtp.server.proxy_protocol", (BadProxyHeader,)),
    Target("SMTP replies", _replies, (b"250-mx.test\r\n250-SIZE 1000\r\n250 STARTTLS\r\n", b"550 5.1.1 no\r\n"),
           "mta.smtp.client.replies"),
    Target("text of an SMTP reply", text(_classified), (b"5.1.1 <a@b.test>: user unknown", b"4.7.1 try again later"),
           ""),
    Target("DNS answer", _plain_dns, examples.DNS, ""),
    Target("DNS packet", lambda wire: dns_exchange.read_packet(wire, lenient=True), examples.DNS, "",
           (DNSException, dns_exchange.TooManyRecords)),
    Target("MTA-STS policy", mta_sts.parse, (b"version: STSv1\r\nmode: enforce\r\nmx: *.b.test\r\nmax_age: 86400\r\n",),
           "", (ValueError,)),
    Target("keys of an identity provider", id_tokens.keys_in, (examples.JWKS,), "", (ValueError,)),
    Target("id token", text(_id_token), (examples.ID_TOKEN,), "", (id_tokens.BadToken,)),
    Target("passkey", _passkey, (examples.ATTESTATION,), "", (ceremony.Rejected,)),
    Target("client data of a passkey", _client_data, (examples.CLIENT_DATA,), "", (ceremony.Rejected,)),
    Target("solved challenge", text(lambda solution: challenge.checked(PEPPER, solution)),
           (b64encode(b'{"algorithm":"SHA-256","challenge":"ab","number":1,"salt":"c","signature":"d"}'),), "",
           (Refusal,)),
    Target("address", text(address.parse_mailbox), (b"Ann <ann@example.com>", '"Ä" <ä@exämple.com>'.encode()),
           "mail.address", (address.BadAddress,)),
    Target("address list", text(lambda field: [address_list.display_name(one) for one in address_list.listed(field)]),
           (b'"A, B" <a@b.test>, c@d.test (C), group: e@f.test;', b"=?utf-8?q?=C3=A4?= <a@b.test>"),
           "mail.address_list"),
    Target("address of a suppression", text(lambda one: address.canonical(one.strip())), (b"Ann+x@Example.com",), "",
           (address.BadAddress,)),
    Target("encoded words", text(lambda field: (encoded_words.shown(field), encoded_words.readings(field))),
           (b"=?utf-8?q?a_=C3=A4?= =?iso-2022-jp?b?GyRCJCIbKEI=?= x",), "mail.encoded_words"),
    Target("field with parameters", parameters.parse_field,
           (b"text/plain; charset=utf-8; name*0*=utf-8''a%C3; name*1*=%A4; name*2=\"b\"",), "mail.parameters"),
    Target("date", text(dates.read_date), (b"Sun, 1 Nov 2026 10:00:00 +0100 (CET)", b"1 Nov 26 10:00 EST"), "mail.dates"),
    Target("file name", text(lambda name: content_disposition(safe_filename(name))), ("Rechnung ä.pdf.exe".encode(),),
           "mail.file_names"),
    Target("content of an attachment", text(attachments.decode_content), (b64encode(b"octets" * 9),), "mail.attachments",
           (attachments.BadContent,)),
    Target("HTML", text(sanitise), examples.HTML, "mail.html mail.html_limits mail.html_tokens",
           words=(b"<script>", b"</p>", b" style='", b" href=javascript:", b"<!--", b"&#x", b"<svg>", b"<table>")),
    Target("text of HTML", text(html_to_text), examples.HTML, "mail.html_text"),
    Target("reply", text(lambda found: (reply_text(found), reply_text(None, found))),
           (b"Yes.\n\nOn 1 Nov 2026, Ann <a@b.test> wrote:\n> Hello?\n", *examples.HTML), "mail.reply_text mail.reply_words"),
    Target("template", text(_templates), (b"Hi {{name}}{{#items}}, {{name}}{{/items}}{{^a}}-{{/a}} {{{name}}}",),
           "mail.template mail.template_data",
           (template.BadTemplate, template.TooLong, template_data.WrongData, template_data.Unprintable,
            template_data.TooManySteps), (b"{{#items}}", b"{{/items}}", b"{{name}}", b"{{a.b}}")),
    Target("blocks", _blocks, (examples.BLOCKS,), "", (msgspec.DecodeError, msgspec.ValidationError, Refusal, ValueError),
           (b'"type":"text"', b'"[a](https://b.test)"')),
    Target("image", lambda octets: read_image(b64encode(octets).decode()),
           tuple(_image(form) for form in ("PNG", "JPEG", "GIF", "WEBP")), "", (Refusal,), costly=4),
    Target("import of contacts", text(_rows),
           (b'email,name,field:age\nann@people.test,"Ann, B",3\n', b'{"email":"ann@people.test","fields":{"a":1}}\n'), "",
           (Refusal,)),
    Target("filter of a segment", lambda octets: segment_rules.parse(orjson.loads(octets)), (examples.SEGMENT,), "",
           (Refusal, orjson.JSONDecodeError)),
    Target("URL of a webhook", text(lambda url: webhook_rules.target(webhook_rules.checked_url(url))),
           (b"https://hooks.example.com:8443/a%20b?c=d",), "", (Refusal,)),
    Target("Retry-After", text(lambda value: retry_after.seconds(503, value, _NOW)),
           (b"120", b"Sun, 01 Nov 2026 10:00:00 GMT"), ""),
    Target("traceparent", text(trace_context.read), (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",), ""),
    Target("tokens in addresses", text(_tokens), (b"b+0123456789abcdef0123456789abcdef0123456", b"u+" + b"a" * 48),
           "mail.return_path mail.unsubscribe_token"),
)  # fmt: skip
