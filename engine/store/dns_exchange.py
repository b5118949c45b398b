"""Send one DNS query to one server over UDP or TCP. `dns_wire` parses plain responses, dnspython all others."""

import asyncio
import secrets
import socket
from contextlib import ExitStack, suppress
from typing import Final, Literal

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query

from engine.base.settings import HostPort
from engine.store import dns_wire
from engine.store.dns_wire import EDNS_PAYLOAD, PlainAnswer, SentQuestion

RecordType = Literal["MX", "A", "AAAA", "TXT", "TLSA", "PTR", "NS"]


# dnspython takes 37 µs per record, and a packet over TCP can hold 5,000 of them: the owner of a domain could block the
# event loop for 0.2 s with every look-up. Real responses have a few dozen.
MAX_RECORDS: Final = 2_000
MAX_LOOP_RECORDS: Final = 100  # a larger packet is parsed in a thread

# A UDP query may get lost, above all under load. BIND and Unbound resend after 0.8 s and 0.4 s.
RESEND_AFTER_S: Final = (0.25, 1.0)


_CASE_BITS: Final = bytes(0x20 if chr(octet).isascii() and chr(octet).isalpha() else 0 for octet in range(256))


class NoName(Exception):  # noqa: N818 - named for what was asked for
    """The text can't be a domain name."""


class DnsQuestion:
    """A DNS query with one id for all servers and retries; converted for dnspython only if that parses the response."""

    def __init__(self, wire: bytes, plain: SentQuestion | None) -> None:
        self.wire = wire
        self.plain = plain
        self._query: dns.message.Message | None = None

    @classmethod
    def of(cls, name: str, kind: RecordType) -> "DnsQuestion":
        """Build the query for a name in text form. Raises NoName."""
        name = _mixed_case(name)
        plain = dns_wire.ask(name, kind, secrets.randbits(16))
        if plain is not None:
            return cls(plain.wire, plain)
        try:
            target = dns.name.from_text(name)
        except dns.exception.DNSException:
            raise NoName from None
        query = dns.message.make_query(target, kind, use_edns=0, payload=EDNS_PAYLOAD)
        query.flags |= dns.flags.AD  # RFC 6840 5.7: requests the AD bit of the response
        return cls(query.to_wire(), None)

    @property
    def query(self) -> dns.message.Message:
        """Return the query as a message of dnspython."""
        if self._query is None:
            self._query = dns.message.from_wire(self.wire)
        return self._query


def _mixed_case(name: str) -> str:
    """Return the name with letters in random case (draft-vixie-dnsext-dns0x20), which a forged response must repeat.

    A name of 12 letters adds 12 bits to the 16 of the id and those of the port. Flips bits of the whole name at once; a
    loop over its characters takes three times as long.
    """
    if not name.isascii():
        return name
    octets = name.encode()
    flips = int.from_bytes(octets.translate(_CASE_BITS)) & int.from_bytes(secrets.token_bytes(len(octets)))
    return (int.from_bytes(octets) ^ flips).to_bytes(len(octets)).decode()


class TooManyRecords(dns.exception.DNSException):
    """The packet has more than MAX_RECORDS records."""


def read_packet(wire: bytes, *, lenient: bool) -> dns.message.Message:
    """Parse a packet; if `lenient`, records that can't be parsed are left out and counted in its `errors`.

    Raises TooManyRecords before parsing any record.
    """
    if _records(wire) > MAX_RECORDS:
        raise TooManyRecords
    return dns.message.from_wire(wire, ignore_trailing=True, continue_on_error=lenient)


def _records(wire: bytes) -> int:
    """Count the records that the header of a packet declares (RFC 1035 4.1.1)."""
    return sum(int.from_bytes(wire[at : at + 2], "big") for at in (6, 8, 10))


async def over_udp(server: HostPort, question: DnsQuestion, *, lenient: bool) -> PlainAnswer | dns.message.Message:
    """Send a query from a new socket, hence from a new port (RFC 5452 9.2), and return the response.

    Packets that do not answer the query are skipped: a forged one must not end the wait for the true response. The
    query is sent again after RESEND_AFTER_S from the same port with the same id, so that a late response to the first
    one counts, and a forger gains nothing. A plain connected socket costs half as much as a datagram transport.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(_family(server), socket.SOCK_DGRAM) as sock, ExitStack() as timers:
        sock.settimeout(0)
        sock.connect((server.host, server.port))
        sock.send(question.wire)
        for after_s in RESEND_AFTER_S:
            timers.callback(loop.call_later(after_s, _resend, sock, question.wire).cancel)
        while True:
            wire = await loop.sock_recv(sock, 65535)
            response = answering(question, wire, lenient=lenient)
            if response is None:
                continue
            if not _repeats(question, wire):
                # Either a forged response, or a server that changes the case of names: TCP, which can't be forged from
                # elsewhere, tells the same.
                return await over_tcp(server, question, lenient=lenient)
            return response


def _resend(sock: socket.socket, wire: bytes) -> None:
    """Send a query again; ignore errors, which the receiving caller gets too."""
    with suppress(OSError):
        sock.send(wire)


def answering(question: DnsQuestion, wire: bytes, *, lenient: bool) -> PlainAnswer | dns.message.Message | None:
    """Return the response in a packet, or None if it does not answer this query. Raises TooManyRecords."""
    plain = None if question.plain is None else dns_wire.read(wire, question.plain)
    if plain is not None:
        return plain
    if wire[:2] != question.wire[:2]:
        return None
    try:
        response = read_packet(wire, lenient=lenient)
    except TooManyRecords:
        raise
    except dns.exception.DNSException:
        return None
    return response if question.query.is_response(response) else None


def _repeats(question: DnsQuestion, wire: bytes) -> bool:
    """Return True if a response repeats the question octet by octet, hence in the same case."""
    asked = question.wire[dns_wire.QUESTION_AT : -dns_wire.OPT_SIZE]
    return wire[dns_wire.QUESTION_AT : dns_wire.QUESTION_AT + len(asked)] == asked


def _family(server: HostPort) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.host else socket.AF_INET


async def over_tcp(server: HostPort, question: DnsQuestion, *, lenient: bool) -> dns.message.Message:
    """Send a query over TCP (RFC 7766): two octets of length, then the packet, at most 64 KiB."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(len(question.wire).to_bytes(2, "big") + question.wire)
        size = int.from_bytes(await reader.readexactly(2), "big")
        wire = await reader.readexactly(size)
        if _records(wire) > MAX_LOOP_RECORDS:
            response = await asyncio.to_thread(read_packet, wire, lenient=lenient)
        else:
            response = read_packet(wire, lenient=lenient)
    finally:
        writer.close()
    if not question.query.is_response(response):
        raise dns.query.BadResponse
    return response
