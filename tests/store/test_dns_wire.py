"""The fast DNS codec gives the same results as dnspython."""

from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.store import dns_wire
from engine.store.dns_exchange import DnsQuestion, answering
from engine.store.dns_wire import PlainAnswer, SentQuestion
from engine.store.resolver import Mx, RecordReader

KINDS = ("MX", "A", "AAAA")
LETTERS = "abcXYZ019-_"
labels = st.one_of(st.text(LETTERS, min_size=1, max_size=9), st.sampled_from(["x" * 63, "a"]))
names = st.lists(labels, min_size=1, max_size=4).map(".".join).filter(lambda name: len(name) <= 253)
odd_names = st.one_of(names, st.sampled_from([".", "a\\.b.test", "*.test", "\\000.test", "mx.b.test", "B.test"]))
ttls = st.sampled_from([0, 1, 60, 3_600, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
TEXTS = {
    "MX": st.builds("{} {}".format, st.integers(0, 65_535), odd_names.map(lambda name: name.rstrip(".") + ".")),
    "A": st.builds("192.0.2.{}".format, st.integers(0, 255)),
    "AAAA": st.sampled_from(["2001:db8::1", "::ffff:192.0.2.1", "::192.0.2.1", "::", "1:0:0:2::3", "fe80::1:0:0:1"]),
    "CNAME": odd_names.map(lambda name: name.rstrip(".") + "."),
    "TXT": st.just('"v=spf1 -all"'),
    "SOA": st.just("ns.b.test. root.b.test. 1 2 3 4 5"),
    "NS": st.just("ns.b.test."),
}


@st.composite
def packets(draw: st.DrawFn) -> tuple[str, str, SentQuestion, bytes]:
    """A question and what a server might answer to it, more or less."""
    kind, name = draw(st.sampled_from(KINDS)), draw(names)
    asked = dns_wire.ask(name, kind, draw(st.integers(0, 65_535)))
    assert asked is not None
    answer = dns.message.make_response(dns.message.from_wire(asked.wire), recursion_available=draw(st.booleans()))
    if draw(st.booleans()):
        answer.flags |= dns.flags.AD
    if draw(st.integers(0, 4)) == 0:
        answer.set_rcode(draw(st.sampled_from([dns.rcode.NXDOMAIN, dns.rcode.SERVFAIL, dns.rcode.BADVERS])))
    if draw(st.integers(0, 2)) == 0:
        answer.use_edns(False)
    owners = st.one_of(st.just(name), st.just(name), st.just(name.upper()), names)
    for _ in range(draw(st.integers(0, 4))):
        rdtype = draw(st.sampled_from([kind, kind, kind, "CNAME", "TXT"]))
        answer.answer.append(_rrset(draw(owners), draw(ttls), rdtype, draw(TEXTS[rdtype])))
    if draw(st.integers(0, 2)) == 0:
        rdtype = draw(st.sampled_from(["SOA", "SOA", "NS"]))
        answer.authority.append(_rrset("b.test", draw(ttls), rdtype, draw(TEXTS[rdtype])))
    if draw(st.integers(0, 5)) == 0:
        answer.additional.append(_rrset("mx.b.test", 60, "A", "192.0.2.9"))
    return name, kind, asked, answer.to_wire()


def _rrset(name: str, ttl: int, rdtype: str, text: str) -> dns.rrset.RRset:
    made = dns.rrset.from_text(name + ".", 0, "IN", rdtype, text)
    made.ttl = ttl
    return made


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, str, SentQuestion, bytes]:
    """The same with octets changed, cut off, put in or added."""
    name, kind, asked, wire = draw(packets())
    octets = bytearray(wire)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(octets) - 1)))
        match draw(st.sampled_from(["change", "point", "cut", "insert", "remove", "append"])):
            case "change":
                octets[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "point":
                octets[at : at + 2] = (0xC000 | draw(st.integers(0, len(octets) + 2))).to_bytes(2, "big")
            case "cut":
                del octets[at:]
            case "insert":
                octets[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "remove":
                del octets[at : at + 1]
            case _:
                octets += draw(st.binary(min_size=1, max_size=3))
    return name, kind, asked, bytes(octets)


def _mx(rdata: Any) -> Mx:
    host = rdata.exchange.to_text(omit_final_dot=True).lower()
    return Mx(rdata.preference, "" if host == "." else host)


def _alike(name: str, kind: str, asked: SentQuestion, wire: bytes) -> PlainAnswer | None:
    """Fails unless dnspython reads the same, where the codec reads anything; gives what it read."""
    plain = dns_wire.read(wire, asked)
    if plain is None:
        return None
    reading: RecordReader[Any] = RecordReader(_mx, lambda pair: Mx(*pair)) if kind == "MX" else RecordReader(str, str)
    question = DnsQuestion(asked.wire, None)
    response = answering(question, wire, lenient=False)
    assert isinstance(response, dns.message.Message)
    assert not response.flags & dns.flags.TC
    assert response.rcode() == (dns.rcode.NOERROR if plain.exists else dns.rcode.NXDOMAIN)
    ours, theirs = reading.of(plain, name), reading.of(response, name)
    assert (ours.exists, ours.authentic, ours.values, ours.canonical) == (
        theirs.exists, theirs.authentic, theirs.values, theirs.canonical,
    )  # fmt: skip
    assert not ours.values or ours.ttl_s == theirs.ttl_s  # the time that nothing is kept for is nobody's to say
    return plain


@given(packets())
def test_what_the_codec_reads_of_a_packet_dnspython_reads_alike(case: tuple[str, str, SentQuestion, bytes]) -> None:
    _alike(*case)


@given(mutated())
def test_what_the_codec_reads_of_a_damaged_packet_dnspython_reads_alike(
    case: tuple[str, str, SentQuestion, bytes],
) -> None:
    _alike(*case)


@given(names, st.sampled_from(KINDS), st.integers(0, 65_535))
def test_a_question_is_the_one_that_dnspython_would_ask(name: str, kind: str, number: int) -> None:
    query = dns.message.make_query(name, kind, use_edns=0, payload=dns_wire.EDNS_PAYLOAD, id=number)
    query.flags |= dns.flags.AD
    asked = dns_wire.ask(name, kind, number)
    assert asked is not None
    assert asked.wire == query.to_wire()


@given(st.sampled_from(KINDS), st.lists(st.integers(1, 9), max_size=30), st.booleans(), st.booleans())
def test_a_plain_answer_needs_no_dnspython(kind: str, numbers: list[int], edns: bool, authentic: bool) -> None:
    asked = dns_wire.ask("B.test", kind, 7)
    assert asked is not None
    answer = dns.message.make_response(dns.message.from_wire(asked.wire))
    answer.flags |= dns.flags.AD if authentic else 0
    if not edns:
        answer.use_edns(False)
    text = {"MX": "{} mx{}.b.test.", "A": "192.0.{}.{}", "AAAA": "2001:db8::{}:{}"}[kind]
    if numbers:
        texts = [text.format(number, number) for number in numbers]
        answer.answer.append(dns.rrset.from_text_list("B.test.", 60, "IN", kind, texts))
    else:
        answer.authority.append(_rrset("test", 60, "SOA", "ns.b.test. root.b.test. 1 2 3 4 5"))
    for wire in (answer.to_wire(), _uncompressed(answer)):
        plain = _alike("B.test", kind, asked, wire)
        assert plain is not None
        assert (len(plain.values), plain.authentic) == (len(set(numbers)), authentic)


def _uncompressed(answer: dns.message.Message) -> bytes:
    sections = [record for section in (answer.question, answer.answer, answer.authority) for record in section]
    parts = [answer.to_wire()[:12]]
    for number, rrset in enumerate(sections):
        fixed = rrset.rdtype.to_bytes(2, "big") + rrset.rdclass.to_bytes(2, "big")
        if number == 0:
            parts += [_octets(rrset.name), fixed]
        for rdata in rrset:
            data = rdata.to_wire()
            size = len(data).to_bytes(2, "big")
            parts += [_octets(rrset.name), fixed, rrset.ttl.to_bytes(4, "big"), size, data]
    if answer.opt is not None:
        parts.append(answer.to_wire()[-11:])
    return b"".join(parts)


def _octets(name: dns.name.Name) -> bytes:
    return name.to_wire() or b""


@pytest.mark.parametrize("name", ["", "a..b", "x" * 64, ".".join(["x" * 63] * 4), "a\\.b", "a b", "bücher.test", "a."])
def test_a_name_that_is_not_plain_is_asked_for_by_dnspython(name: str) -> None:
    assert dns_wire.ask(name, "A", 1) is None


def test_other_types_are_asked_for_by_dnspython() -> None:
    assert [dns_wire.ask("b.test", kind, 1) for kind in ("TXT", "TLSA", "PTR", "CNAME")] == [None] * 4


@given(st.binary(max_size=600))
def test_noise_is_never_an_answer(noise: bytes) -> None:
    asked = dns_wire.ask("b.test", "MX", 0)
    assert asked is not None
    assert dns_wire.read(noise, asked) is None
    _alike("b.test", "MX", asked, asked.wire[:12] + noise)
