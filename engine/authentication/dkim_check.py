"""Verify DKIM signatures (RFC 6376, 8301, 8463): parse, fetch the keys, compare.

`signatures` and `verify` are pure and may run in a thread; `fetch_keys` queries DNS. Linear in the message, at most
MAX_SIGNATURES signatures.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import Final, Literal

from msgspec import Struct

from engine.authentication import public_keys
from engine.authentication.canonicalization import SignedMessage, relaxed_field, without_signature
from engine.authentication.dns import AuthenticationDns, is_domain, printable
from engine.authentication.public_keys import KeyAlgorithm, UnusableKey, VerificationKey
from engine.mail.tag_list import BadTagList, base64_value, parse_tags, without_blanks
from engine.store.deadlines import within
from engine.store.resolver import ascii_domain

DkimWord = Literal["none", "pass", "fail", "policy", "neutral", "temperror", "permerror"]

MAX_SIGNATURES: Final = 5
MAX_CLOCK_SKEW_S: Final = 36_000  # ten hours, as in dkimpy: clocks may have the wrong time zone
MAX_TAG_OCTETS: Final = 16_384  # of one signature field
_ALGORITHMS: Final[dict[str, KeyAlgorithm]] = {"rsa-sha256": "rsa", "ed25519-sha256": "ed25519"}
_CANONICAL: Final = {"simple": False, "relaxed": True}

_domain_tag = re.compile(rb"(?:\A|;)[ \t\r\n]*+d[ \t\r\n]*+=[ \t\r\n]*+([^; \t\r\n]++)").search
_number = re.compile(r"[0-9]{1,76}").fullmatch


class DkimSignature(Struct, frozen=True):
    """The content of one DKIM-Signature or ARC-Message-Signature field; `place` is its index in the header."""

    place: int
    domain: str
    key_name: str
    algorithm: KeyAlgorithm
    relaxed_header: bool
    relaxed_body: bool
    length: int | None
    names: tuple[bytes, ...]
    body_hash: bytes
    signature: bytes
    identity: str  # the domain of i=
    expires: int | None
    signed_at: int | None


class DkimResult(Struct, frozen=True):
    """The result of one signature; `domain` is its d= in A-labels where it could be read."""

    result: DkimWord
    domain: str
    detail: str


class _SignatureError(ValueError):
    """The signature field can't be used."""


def signatures(message: SignedMessage, author_domain: str = "") -> list[DkimSignature | DkimResult]:
    """Parse MAX_SIGNATURES signatures; a result stands for each that can't be verified.

    Of more than that, the ones nearest to the author's domain are taken, which DMARC may need, then the topmost: lists
    and relays add theirs on top.
    """
    places = list(message.header.places(b"dkim-signature"))
    if len(places) > MAX_SIGNATURES:
        places.sort(key=lambda place: -_common_labels(_claimed_domain(message.header.value(place)), author_domain))
    return [parsed(message, place) for place in places[:MAX_SIGNATURES]]


def _claimed_domain(value: bytes) -> str:
    """Return d= of a signature field that may be malformed; "" if it has none."""
    found = _domain_tag(value[:MAX_TAG_OCTETS])
    return "" if found is None else ascii_domain(found[1].decode("utf-8", "replace")) or ""


def _common_labels(domain: str, author_domain: str) -> int:
    """Return the number of labels that two domains have in common from their end, and one more if they are equal."""
    pairs = zip(reversed(domain.split(".")), reversed(author_domain.split(".")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) + (domain == author_domain)


def key_names(found: Sequence[DkimSignature | DkimResult]) -> list[str]:
    """Return the names of the keys that the signatures need, each once."""
    return list(dict.fromkeys([one.key_name for one in found if isinstance(one, DkimSignature)]))


async def fetch_keys(
    dns: AuthenticationDns, found: Sequence[DkimSignature | DkimResult], *, max_seconds: float
) -> dict[str, VerificationKey | UnusableKey]:
    """Fetch the keys of all signatures concurrently, by name; one that takes longer than `max_seconds` is unusable."""
    names = key_names(found)
    keys = await asyncio.gather(*[_fetched(dns, name, max_seconds) for name in names])
    return dict(zip(names, keys, strict=True))


async def _fetched(dns: AuthenticationDns, name: str, max_seconds: float) -> VerificationKey | UnusableKey:
    """Fetch one key within its own time: a silent server of one signer must not cost the other signatures theirs."""
    try:
        with within(max_seconds):
            return await public_keys.fetch(dns, name)
    except TimeoutError:
        return UnusableKey(f"no answer for {name} within {max_seconds:g} s", temporary=True)


def verify_all(
    message: SignedMessage,
    found: Sequence[DkimSignature | DkimResult],
    keys: Mapping[str, VerificationKey | UnusableKey],
    *,
    at: int,
) -> list[DkimResult]:
    """Return one result per parsed signature. `at`: Unix time in seconds."""
    return [verify(message, one, keys[one.key_name], at=at) if isinstance(one, DkimSignature) else one for one in found]


def verify(message: SignedMessage, found: DkimSignature, key: VerificationKey | UnusableKey, *, at: int) -> DkimResult:
    """Verify one signature with its key."""
    if isinstance(key, UnusableKey):
        return DkimResult("temperror" if key.temporary else "permerror", found.domain, printable(key.detail))
    refused = _refused(found, key, at)
    if refused is not None:
        return refused
    if message.body_hash(found.length, relaxed=found.relaxed_body) != found.body_hash:
        return DkimResult("fail", found.domain, "the body was changed")
    if not public_keys.is_valid(key, found.signature, sha256(signed_data(message, found)).digest()):
        return DkimResult("fail", found.domain, "the signature does not match the header")
    return _accepted(message, found, key)


def parsed(message: SignedMessage, place: int, *, arc: bool = False) -> DkimSignature | DkimResult:
    """Parse a signature field; of ARC, `i=` is an instance number and there is no version (RFC 8617 4.1.2)."""
    value = message.header.value(place)
    domain = ""
    if len(value) > MAX_TAG_OCTETS:
        return DkimResult("permerror", domain, f"the signature has more than {MAX_TAG_OCTETS} octets")
    try:
        tags = parse_tags(value)
        claimed = ascii_domain(tags.get("d", "")) or ""
        domain = claimed if is_domain(claimed) else ""
        return _parsed(tags, place, domain, arc=arc)
    except BadTagList as error:
        return DkimResult("neutral", domain, printable(str(error)))
    except _SignatureError as error:
        return DkimResult("permerror", domain, printable(str(error)))


def signed_data(message: SignedMessage, found: DkimSignature) -> bytes:
    """Return the data that the signature covers: the selected fields and its own field (RFC 6376 3.7)."""
    own = without_signature(message.header.raw[found.place])
    fields = message.header.selected(found.names, relaxed=found.relaxed_header)
    return fields + (relaxed_field(own) if found.relaxed_header else own)


def _parsed(tags: Mapping[str, str], place: int, domain: str, *, arc: bool) -> DkimSignature:
    for tag in ("a", "b", "bh", "d", "h", "s", "i" if arc else "v"):
        if not tags.get(tag):
            raise _SignatureError(f"the signature has no {tag}=")
    if not arc and tags["v"] != "1":
        raise _SignatureError(f"unknown version {tags['v'][:20]!r}")
    if tags["a"] not in _ALGORITHMS:
        raise _SignatureError(f"the algorithm {tags['a'][:20]!r} is not accepted")
    if "dns/txt" not in without_blanks(tags.get("q", "dns/txt")).split(":"):
        raise _SignatureError("the key is not in DNS")
    name = public_keys.key_name(domain, tags["s"])
    if name is None:
        raise _SignatureError("invalid domain or selector")
    body_hash, signature = base64_value(tags["bh"]), base64_value(tags["b"])
    if body_hash is None or signature is None:
        raise _SignatureError("b= or bh= is no base64")
    header, body = _canonicalization(tags.get("c", "simple/simple"))
    return DkimSignature(
        place, domain, name, _ALGORITHMS[tags["a"]], header, body, _integer(tags, "l"), _names(tags["h"], arc=arc),
        body_hash, signature, domain if arc else _identity(tags.get("i", f"@{domain}"), domain), _integer(tags, "x"),
        _integer(tags, "t"),
    )  # fmt: skip


def _canonicalization(value: str) -> tuple[bool, bool]:
    header, _, body = value.partition("/")
    try:
        return _CANONICAL[header], _CANONICAL[body or "simple"]
    except KeyError:
        raise _SignatureError(f"unknown canonicalization {value[:20]!r}") from None


def _names(value: str, *, arc: bool) -> tuple[bytes, ...]:
    names = tuple(without_blanks(value).lower().encode("utf-8").split(b":"))
    if b"from" not in names:
        raise _SignatureError("the signature does not cover From")
    if arc and b"arc-seal" in names:
        raise _SignatureError("the signature covers ARC-Seal")  # RFC 8617 4.1.2 forbids it
    return names


def _identity(value: str, domain: str) -> str:
    """Return the domain of i=, which must be `domain` or below it (RFC 6376 3.5)."""
    found = ascii_domain(value.rpartition("@")[2])
    if found is None or not (found == domain or found.endswith(f".{domain}")):
        raise _SignatureError(f"i= {value[:60]!r} is not within {domain}")
    return found


def _integer(tags: Mapping[str, str], tag: str) -> int | None:
    value = tags.get(tag)
    if value is None:
        return None
    if _number(value) is None:
        raise _SignatureError(f"{tag}= is no number")
    return int(value)


def _refused(found: DkimSignature, key: VerificationKey, at: int) -> DkimResult | None:
    """Return the result of a signature that needs no cryptography."""
    if key.algorithm != found.algorithm:
        return DkimResult("permerror", found.domain, f"the key is an {key.algorithm} key")
    if key.same_domain and found.identity != found.domain:
        return DkimResult("permerror", found.domain, f"the key forbids i= below {found.domain}")
    if found.signed_at is not None and found.signed_at > at + MAX_CLOCK_SKEW_S:
        return DkimResult("permerror", found.domain, "the signature is from the future")
    if found.expires is not None:
        if found.signed_at is not None and found.expires < found.signed_at:
            return DkimResult("permerror", found.domain, "the signature expired before it was made")
        if found.expires < at - MAX_CLOCK_SKEW_S:
            return DkimResult("fail", found.domain, "the signature has expired")
    return None


def _accepted(message: SignedMessage, found: DkimSignature, key: VerificationKey) -> DkimResult:
    """Return `pass`, or `policy` where the valid signature leaves room for forged content."""
    authors = len(message.header.places(b"from"))
    if found.names.count(b"from") < authors:
        return DkimResult("policy", found.domain, f"the message has {authors} From fields, not all of them signed")
    if found.length is not None:
        unsigned = len(message.canonical_body(relaxed=found.relaxed_body)) - found.length
        if unsigned > 0:
            return DkimResult("policy", found.domain, f"the last {unsigned} octets of the body are not signed")
        if unsigned < 0:
            return DkimResult("permerror", found.domain, "l= exceeds the body")
    return DkimResult("pass", found.domain, "the key is in test mode" if key.testing else "")
