"""Verify the ARC chain of a message (RFC 8617 5.2): the newest message signature, and all seals.

`chain` and `verify` are pure and may run in a thread; `fetch_keys` queries DNS. `arc_sets.MAX_SETS` bounds the
look-ups; the hash over the chain grows from set to set, so that its cost is linear.
"""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct

from engine.authentication import dkim_check as dkim
from engine.authentication import public_keys
from engine.authentication.arc_sets import ArcSet, BadArcChain, arc_sets
from engine.authentication.canonicalization import CanonicalHeader, SignedMessage, relaxed_field, without_signature
from engine.authentication.dkim_check import DkimSignature
from engine.authentication.dns import AuthenticationDns, printable
from engine.authentication.public_keys import KeyAlgorithm, UnusableKey, VerificationKey
from engine.mail.tag_list import BadTagList, base64_value, parse_tags
from engine.store.resolver import ascii_domain

ArcWord = Literal["none", "pass", "fail", "temperror"]

_ALGORITHMS: Final[dict[str, KeyAlgorithm]] = {"rsa-sha256": "rsa", "ed25519-sha256": "ed25519"}
MAX_QUERIES_AT_ONCE: Final = 10


class ArcSeal(Struct, frozen=True):
    """The content of one ARC-Seal field; `place` is its index in the header."""

    place: int
    domain: str
    key_name: str
    algorithm: KeyAlgorithm
    status: str  # cv=
    signature: bytes


class ArcChain(Struct, frozen=True):
    """A well-formed chain: its sets and seals from the first to the last, and the last message signature."""

    sets: tuple[ArcSet, ...]
    seals: tuple[ArcSeal, ...]
    message_signature: DkimSignature


class ArcResult(Struct, frozen=True):
    """The result of the chain; `domain` made the last seal."""

    result: ArcWord
    domain: str
    detail: str


def chain(message: SignedMessage) -> ArcChain | ArcResult:
    """Parse the chain; a result stands for a chain that needs no verification."""
    try:
        sets = arc_sets(message.header)
        if not sets:
            return ArcResult("none", "", "the message has no ARC set")
        seals = tuple(_seal(message.header, one) for one in sets)
    except (BadArcChain, BadTagList) as error:
        return ArcResult("fail", "", printable(str(error)))
    last = seals[-1].domain
    for number, seal in enumerate(seals, 1):
        if seal.status != ("none" if number == 1 else "pass"):
            return ArcResult("fail", last, printable(f"seal {number} says cv={seal.status}"))
    signature = dkim.parsed(message, sets[-1].signature, arc=True)
    if not isinstance(signature, DkimSignature):
        return ArcResult("fail", last, printable(f"message signature {len(sets)}: {signature.detail}"))
    return ArcChain(sets, seals, signature)


def key_names(found: ArcChain) -> list[str]:
    """Return the names of the keys that a chain needs, each once."""
    return list(dict.fromkeys([found.message_signature.key_name, *[seal.key_name for seal in found.seals]]))


async def fetch_keys(dns: AuthenticationDns, found: ArcChain) -> dict[str, VerificationKey | UnusableKey]:
    """Fetch the keys of the last message signature and of all seals, a few at a time, by name."""
    names = key_names(found)
    keys: dict[str, VerificationKey | UnusableKey] = {}
    for start in range(0, len(names), MAX_QUERIES_AT_ONCE):
        some = names[start : start + MAX_QUERIES_AT_ONCE]
        keys |= zip(some, await asyncio.gather(*[public_keys.fetch(dns, name) for name in some]), strict=True)
    return keys


def verify(
    message: SignedMessage, found: ArcChain, keys: Mapping[str, VerificationKey | UnusableKey], *, at: int
) -> ArcResult:
    """Verify a chain with its keys."""
    last = found.seals[-1].domain
    signature = dkim.verify(message, found.message_signature, keys[found.message_signature.key_name], at=at)
    if signature.result == "temperror":
        return ArcResult("temperror", last, signature.detail)
    if signature.result != "pass":
        return ArcResult("fail", last, printable(f"message signature {len(found.sets)}: {signature.detail}"))
    for number, digest in enumerate(_digests(message.header, found), 1):
        seal = found.seals[number - 1]
        key = keys[seal.key_name]
        if isinstance(key, UnusableKey):
            return ArcResult("temperror" if key.temporary else "fail", last, printable(f"seal {number}: {key.detail}"))
        if key.algorithm != seal.algorithm or not public_keys.is_valid(key, seal.signature, digest):
            return ArcResult("fail", last, f"seal {number} of {seal.domain} is not valid")
    domains = ", ".join([seal.domain for seal in found.seals[:5]])
    return ArcResult("pass", last, printable(f"sealed by {domains}" + (" and others" if len(found.seals) > 5 else "")))


def _digests(header: CanonicalHeader, found: ArcChain) -> list[bytes]:
    """Return the SHA-256 of what each seal covers: all earlier sets, and its own (RFC 8617 5.1.1)."""
    fields = header.relaxed()
    earlier = sha256()
    digests = []
    for one in found.sets:
        earlier.update(fields[one.results])
        earlier.update(fields[one.signature])
        covered = earlier.copy()
        covered.update(relaxed_field(without_signature(header.raw[one.seal])))
        digests.append(covered.digest())
        earlier.update(fields[one.seal])
    return digests


def _seal(header: CanonicalHeader, one: ArcSet) -> ArcSeal:
    """Parse the seal of a set. Raises BadArcChain and BadTagList."""
    tags = parse_tags(header.value(one.seal))
    if "h" in tags:
        raise BadArcChain(f"seal {one.instance} has h=")  # RFC 8617 4.1.3
    algorithm = _ALGORITHMS.get(tags.get("a", ""))
    domain = ascii_domain(tags.get("d", ""))
    name = None if domain is None else public_keys.key_name(domain, tags.get("s", ""))
    signature = base64_value(tags.get("b", ""))
    if algorithm is None or domain is None or name is None or not signature:
        raise BadArcChain(f"seal {one.instance} has an invalid a=, b=, d= or s=")
    return ArcSeal(one.seal, domain, name, algorithm, tags.get("cv", "").lower(), signature)
