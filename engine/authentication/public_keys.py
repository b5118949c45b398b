"""Fetch and parse the public keys of DKIM and ARC (RFC 6376 3.6, RFC 8301, RFC 8463).

Parsed keys are cached by the text of their record; how long a record holds is the resolver's business.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key
from msgspec import Struct

from engine.authentication.dns import AuthenticationDns, is_domain, is_queryable
from engine.mail.tag_list import BadTagList, base64_value, parse_tags, without_blanks
from engine.store.resolver import Answered, Records, TemporaryFailure, ascii_domain

KeyAlgorithm = Literal["rsa", "ed25519"]

MIN_RSA_BITS: Final = 1_024  # RFC 8301 3.2
MAX_RSA_BITS: Final = 4_096
MAX_EXPONENT_BITS: Final = 64  # a long exponent makes one verification cost as much as a signature
MAX_KEY_RECORD: Final = 4_096  # octets; an RSA-4096 key has 800
MAX_RECORDS: Final = 5  # TXT records of one name that are tried

_PKCS1: Final = PKCS1v15()
_HASHED: Final = Prehashed(SHA256())
_selector = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*")


class VerificationKey(Struct, frozen=True):
    """A parsed public key with the flags of its record (RFC 6376 3.6.1)."""

    algorithm: KeyAlgorithm
    public: RSAPublicKey | Ed25519PublicKey
    same_domain: bool = False  # t=s: the domain of i= must equal d=
    testing: bool = False  # t=y


class UnusableKey(Struct, frozen=True):
    """There is no usable key: for now if `temporary`, else until the record changes. `detail` says why."""

    detail: str
    temporary: bool = False


def key_name(domain: str, selector: str) -> str | None:
    """Return the name of a key record in A-labels; None if the domain or selector is invalid."""
    name = ascii_domain(domain)
    label = ascii_domain(selector)
    if name is None or label is None or not is_domain(name) or _selector.fullmatch(label) is None:
        return None
    whole = f"{label}._domainkey.{name}"
    return whole if is_queryable(whole) else None


def known(dns: AuthenticationDns, names: Sequence[str]) -> dict[str, VerificationKey | UnusableKey] | None:
    """Return the keys at `names` without a wait; None if one is not cached. Starts the look-ups of those together."""
    answers = [(name, dns.begin_txt(name)) for name in names]
    keys: dict[str, VerificationKey | UnusableKey] = {}
    for name, answer in answers:
        if isinstance(answer, asyncio.Task):
            return None
        keys[name] = _key(name, answer)
    return keys


async def fetch(dns: AuthenticationDns, name: str) -> VerificationKey | UnusableKey:
    """Return the key at `name`."""
    return _key(name, await dns.txt(name))


def _key(name: str, answer: Answered[bytes]) -> VerificationKey | UnusableKey:
    """Return the first usable key of several records (RFC 6376 3.6.2.2 leaves it open)."""
    if isinstance(answer, TemporaryFailure):
        return UnusableKey(answer.detail, temporary=True)
    if not isinstance(answer, Records):
        return UnusableKey(f"no key at {name}")
    key: VerificationKey | UnusableKey = UnusableKey(f"no key at {name}")
    for record in answer.values[:MAX_RECORDS]:
        key = parse_key(record) if len(record) <= MAX_KEY_RECORD else UnusableKey("the key record is too long")
        if isinstance(key, VerificationKey):
            break
    return key


@lru_cache(maxsize=4096)
def parse_key(record: bytes) -> VerificationKey | UnusableKey:
    """Parse one key record."""
    try:
        tags = parse_tags(record)
    except BadTagList as error:
        return UnusableKey(f"invalid key record: {error}")
    if tags.get("v", "DKIM1") != "DKIM1":
        return UnusableKey("unknown version of the key record")
    if "v" in tags and next(iter(tags)) != "v":  # RFC 6376 3.6.1
        return UnusableKey("v= is not the first tag of the key record")
    if "p" not in tags:
        return UnusableKey("the key record has no p=")
    if not tags["p"]:
        return UnusableKey("the key is revoked")
    if "sha256" not in _listed(tags.get("h", "sha256")):
        return UnusableKey("the key record does not allow SHA-256")
    if not {"*", "email"} & _listed(tags.get("s", "*")):
        return UnusableKey("the key is not for email")
    public = _public(tags.get("k", "rsa"), base64_value(tags["p"], strict=False))
    if isinstance(public, UnusableKey):
        return public
    flags = _listed(tags.get("t", ""))
    algorithm: KeyAlgorithm = "rsa" if isinstance(public, RSAPublicKey) else "ed25519"
    return VerificationKey(algorithm, public, "s" in flags, "y" in flags)


def is_valid(key: VerificationKey, signature: bytes, digest: bytes) -> bool:
    """Return True if a signature is valid for the SHA-256 `digest` of the signed data."""
    try:
        if isinstance(key.public, Ed25519PublicKey):  # signs the hash (RFC 8463 3)
            key.public.verify(signature, digest)
        else:
            key.public.verify(signature, digest, _PKCS1, _HASHED)
    except (InvalidSignature, ValueError):
        return False
    return True


def _public(kind: str, octets: bytes | None) -> RSAPublicKey | Ed25519PublicKey | UnusableKey:
    if octets is None:
        return UnusableKey("the key is no base64")
    try:
        if kind == "ed25519":
            return Ed25519PublicKey.from_public_bytes(octets)
        if kind != "rsa":
            return UnusableKey(f"unknown key type {kind[:20]!r}")
        public = load_der_public_key(octets)
    except (ValueError, UnsupportedAlgorithm):
        return UnusableKey("the key can't be read")
    if not isinstance(public, RSAPublicKey):
        return UnusableKey("the key is not an RSA key")
    if not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
        return UnusableKey(f"the key has {public.key_size} bits, not {MIN_RSA_BITS} to {MAX_RSA_BITS}")
    if public.public_numbers().e.bit_length() > MAX_EXPONENT_BITS:
        return UnusableKey(f"the exponent of the key has more than {MAX_EXPONENT_BITS} bits")
    return public


def _listed(value: str) -> set[str]:
    """Return the words of a list separated by colons."""
    return set(without_blanks(value).lower().split(":"))
