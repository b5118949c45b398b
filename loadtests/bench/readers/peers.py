"""Answers of remote servers with the highest parsing cost: SMTP replies, DNS packets, policies, tokens."""

import contextlib
import struct

from engine.delivery.outcome import classify
from engine.mail.replies import Answer, Phase, Reply
from engine.people.identity import id_tokens
from engine.store import dns_exchange, dns_wire
from loadtests.bench.readers.cases import FunctionCase
from mta.outbound.tls import mta_sts
from mta.smtp.client.replies import ReplyReader

PACKET_BYTES = 65_535  # RFC 1035 4.2.2: the largest packet over TCP


def replies(octets: bytes) -> None:
    """Read SMTP replies as a session does, in segments of 1,460 octets."""
    reader = ReplyReader()
    for at in range(0, len(octets), 1_460):
        reader.feed(octets[at : at + 1_460])


def judge(text: bytes) -> None:
    """Classify a 550 reply with this text."""
    classify(Answer(Phase.RCPT, Reply(550, text.decode()[:1_000])))


def _packet(kind: str, record: bytes, count: int) -> bytes:
    asked = dns_wire.ask("a.test", kind, 1)
    assert asked is not None
    question = asked.wire[12 : asked.wire.index(b"\0\0)")] if b"\0\0)" in asked.wire else asked.wire[12:24]
    return struct.pack(">HHHHHH", 1, 0x8180, 1, count, 0, 0) + question + record * count


def _a_records() -> bytes:
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + b"\x7f\0\0\1"
    return _packet("A", record, (PACKET_BYTES - 40) // len(record))


def _txt_records() -> bytes:
    record = b"\xc0\x0c" + struct.pack(">HHIH", 16, 1, 60, 2) + b"\x01a"
    return _packet("A", record, (PACKET_BYTES - 40) // len(record))


def _read_plain(wire: bytes) -> None:
    asked = dns_wire.ask("a.test", "A", 1)
    assert asked is not None
    dns_wire.read(wire, asked)


def _read_any(wire: bytes) -> None:
    with contextlib.suppress(dns_exchange.TooManyRecords):
        dns_exchange.read_packet(wire, lenient=True)


CASES = (
    FunctionCase("SMTP reply", "continuation lines without end", "reply limits",
                 lambda: b"250-a\r\n" * 10_000, replies),
    FunctionCase("SMTP reply", "one line without end", "reply limits", lambda: b"250-" + b"a" * 500_000, replies),
    FunctionCase("SMTP reply", "8-bit and control octets", "reply limits", lambda: b"250-\xff\x01\x80\r\n" * 5_000,
                 replies),
    FunctionCase("reply text", "half of every pattern", "1,000 characters",
                 lambda: b"user mailbox address rejected " * 33, judge),
    FunctionCase("reply text", "blanks and full stops", "1,000 characters", lambda: b"5.1.1 . " * 125, judge),
    FunctionCase("DNS packet", "A records", "64 KB", _a_records, _read_plain),
    FunctionCase("DNS packet", "TXT records", f"{dns_exchange.MAX_RECORDS:,} records", _txt_records, _read_any),
    FunctionCase("MTA-STS policy", "mx fields", "64 KiB", lambda: b"version: STSv1\r\n" + b"mx: a.b\r\n" * 7_000,
                 mta_sts.parse),
    FunctionCase("MTA-STS policy", "blanks", "64 KiB", lambda: (b"a:" + b" " * 60_000), mta_sts.parse),
    FunctionCase("keys of an identity provider", "keys", "answer size",
                 lambda: b'{"keys":[' + b",".join([b'{"kty":"RSA","n":"AQAB","e":"AQAB"}'] * 1_000) + b"]}",
                 id_tokens.keys_in),
    FunctionCase("id token", "full stops", "token size", lambda: b"." * 20_000,
                 lambda token: id_tokens.head_of(token.decode(), {"RS256"})),
)  # fmt: skip
