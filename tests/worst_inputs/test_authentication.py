"""Messages and DNS records that are expensive to authenticate (SPF, DKIM, ARC, DMARC)."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal

import pytest

from engine.authentication import dmarc_record
from engine.authentication.arc_seal import seal
from engine.authentication.dkim_signing import SigningKey, generate_rsa, load, public_txt
from engine.authentication.judge import MessageOrigin, authenticate
from engine.authentication.public_keys import parse_key
from engine.authentication.results import claims
from engine.store.resolver import Answered, Mx, NoData, Records
from tests.harness.sampling import sampled
from tests.worst_inputs.costs import Content, check, filled, worst

HEAD: Final = b"From: a@b.test\r\nTo: c@d.test\r\n\r\n"
BODY_BYTES: Final = 10 * 1024 * 1024
_FOREVER: Final = float("inf")
_ENVELOPE: Final = MessageOrigin("2001:db8::1", "mx.b.test", f"{'a' * 64}@b.test", "mx.test")


class FixedDns:
    """Answer TXT queries from a mapping, and MX and reverse queries with many names, without a network."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts

    async def txt(self, name: str) -> Answered[bytes]:
        """Return the text of a name, or that of `*`."""
        return self.begin_txt(name)

    def begin_txt(self, name: str) -> Answered[bytes]:
        """Return the text of a name, or that of `*`."""
        found = self._texts.get(name, self._texts.get("*"))
        return NoData(_FOREVER) if found is None else Records((found,), _FOREVER)

    async def addresses(self, name: str, kind: Literal["A", "AAAA"]) -> Answered[str]:
        """Return addresses of which none is the client's."""
        assert name
        return Records(("192.0.2.1" if kind == "A" else "2001:db8::2",) * 50, _FOREVER)

    async def mx(self, name: str) -> Answered[Mx]:
        """Return as many hosts as SPF allows."""
        return Records(tuple(Mx(10, f"mx{number}.{name}") for number in range(10)), _FOREVER)

    async def names(self, ip: str) -> Answered[str]:
        """Return many names."""
        assert ip
        return Records(tuple(f"host{number}.b.test." for number in range(1_000)), _FOREVER)


def judge(message: bytes, texts: Mapping[str, bytes] | None = None) -> None:
    """Authenticate a message as the MX does."""
    texts = {"*": public_txt(_der()).encode()} if texts is None else texts
    asyncio.run(authenticate(message, _ENVELOPE, FixedDns(texts), at=int(time.time())))


def _spf(record: bytes) -> None:
    judge(HEAD, {"b.test": record, "*": record})


@cache
def _der() -> bytes:
    return generate_rsa()


@cache
def _key() -> SigningKey:
    return load("b.test", "s", _der())


def _signatures(canonicalization: str, names: str = "from") -> bytes:
    """Return five signatures, each over another length of the body, so that no body hash is shared."""
    field = f"DKIM-Signature: v=1; a=rsa-sha256; c={canonicalization}; d=b.test; s=s; h={names}; bh=AAAA; b=AAAA; l="
    return b"".join(f"{field}{BODY_BYTES - number}\r\n".encode() for number in range(5))


def _signed(piece: bytes, canonicalization: str = "relaxed/relaxed") -> Content:
    return lambda: _signatures(canonicalization) + HEAD + piece * (BODY_BYTES // len(piece)) + b"\r\n"


def _header(line: bytes, octets: int = 250_000) -> Content:
    """Return a message with five signatures and a header of the maximum size."""
    return lambda: _signatures("relaxed/simple", "from:x" + ":x" * 3_000) + line * (octets // len(line)) + HEAD


def _sealed() -> bytes:
    """Return a message with 50 ARC sets."""
    message = HEAD
    for number in range(50):
        chain = "pass" if number else "none"
        message = seal(message, _key(), results="mx.test; spf=pass", chain=chain, at=int(time.time())) + message
    return message


def _from(piece: bytes) -> Content:
    return lambda: b"From: " + piece * (9_900 // len(piece)) + b" <a@b.test>\r\n\r\n"


CASES = [
    *worst("SPF", _spf, {
        "networks": lambda: b"v=spf1" + b" ip6:2001:db8:1::/48" * 400,
        "includes of a long record": lambda: b"v=spf1" + b" ip4:192.0.2.1" * 560 + b" include:%{d}",
        "macros": lambda: b"v=spf1" + (b" exists:" + b"%{S}" * 60 + b".x.test") * 10,
        "macros of other macros' text": lambda: b"v=spf1" + (b" exists:" + b"%{i1r.+-_}" * 48 + b".x.test") * 10,
        "reverse names and mail hosts": lambda: b"v=spf1" + b" ptr:%{p}.x.test mx" * 5 + b" exp=%{p}.x.test -all",
        "a term that is nearly valid": lambda: b"v=spf1 a:" + b"a-." * 2_700 + b"/",
    }),
    *worst("DKIM", judge, {
        "10 MB of empty lines": _signed(b"\r\n"),
        "10 MB of empty lines, simple": _signed(b"\r\n", "simple/simple"),
        "10 MB of blanks": _signed(b" \t"),
        "10 MB of blank lines": _signed(b" \r\n"),
        "10 MB of CR": _signed(b"\r\r\n"),
        "fields": _header(b"X:y\r\n", 49_000),
        "folds": _header(b"X: y\r\n" + b" \t" * 10 + b"z\r\n"),
        "lines beyond the limit": _header(b"X:y\r\n"),
        "tags": lambda: (b"DKIM-Signature: v=1;" + b"a;" * 8_000 + b"\r\n") * 5 + HEAD,
    }),
    *worst("DKIM key", parse_key.__wrapped__, {"tags": lambda: b"a=b;" * 1_000}),
    *worst("ARC", judge, {
        "50 sets": _sealed,
        "instances": lambda: b"ARC-Seal: i = 0\r\n" * 9_000 + HEAD,
    }),
    *worst("From", judge, {
        "comments": _from(b"("),
        "quotes": _from(b'"\\'),
        "encoded words": _from(b"=?utf-8?q?a?="),
        "addresses": _from(b"a@b.test,"),
    }),
    *worst("DMARC record", dmarc_record.parse.__wrapped__, {"tags": lambda: b"v=DMARC1;" + b"p=none;rua=a:," * 290}),
    *worst("Authentication-Results", lambda field: claims(field, "mx.test"), {
        "comments": filled(b"(()", b"Authentication-Results: "),
    }),
]  # fmt: skip


@pytest.mark.properties
@pytest.mark.parametrize(("read", "content"), sampled(CASES, 10))
def test_authenticating_a_message_costs_little_cpu(read: Callable[[bytes], Any], content: Content) -> None:
    check(read, content())
