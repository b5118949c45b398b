"""Answers of remote servers with the highest parsing cost: SMTP replies, DNS packets, policies, tokens."""

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import pytest

from engine.delivery.outcome import classify
from engine.mail.replies import Answer, Phase, Reply
from engine.people.identity import id_tokens
from engine.store import dns_exchange, dns_wire
from mta.outbound.tls import mta_sts
from mta.smtp.client.replies import ReplyReader
from tests.harness.sampling import sampled
from tests.worst_inputs.costs import Content, check, worst

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


CASES = [
    *worst("SMTP reply", replies, {
        "continuation lines without end": lambda: b"250-a\r\n" * 10_000,
        "one line without end": lambda: b"250-" + b"a" * 500_000,
        "8-bit and control octets": lambda: b"250-\xff\x01\x80\r\n" * 5_000,
    }),
    *worst("reply text", judge, {
        "half of every pattern": lambda: b"user mailbox address rejected " * 33,
        "blanks and full stops": lambda: b"5.1.1 . " * 125,
    }),
    *worst("DNS packet", _read_plain, {"A records": _a_records}),
    *worst("DNS packet", _read_any, {"TXT records": _txt_records}),
    *worst("MTA-STS policy", mta_sts.parse, {
        "mx fields": lambda: b"version: STSv1\r\n" + b"mx: a.b\r\n" * 7_000,
        "blanks": lambda: (b"a:" + b" " * 60_000),
    }),
    *worst("keys of an identity provider", id_tokens.keys_in, {
        "keys": lambda: b'{"keys":[' + b",".join([b'{"kty":"RSA","n":"AQAB","e":"AQAB"}'] * 1_000) + b"]}",
    }),
    *worst("id token", lambda token: id_tokens.head_of(token.decode(), {"RS256"}), {
        "full stops": lambda: b"." * 20_000,
    }),
]  # fmt: skip


@pytest.mark.properties
@pytest.mark.parametrize(("read", "content"), sampled(CASES, 10))
def test_an_answer_of_a_remote_server_costs_little_cpu(read: Callable[[bytes], Any], content: Content) -> None:
    check(read, content())
