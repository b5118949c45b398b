"""Sign messages with DKIM, relaxed/relaxed (RFC 6376), with RSA-2048 and Ed25519 (RFC 8463).

One RSA operation (0.22 ms) dominates the cost; canonicalisation by whole-body replacements takes microseconds, and the
body is hashed once for all keys.
"""

from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
)
from msgspec import Struct

from engine.authentication.canonicalization import divided, relaxed_body_hash, relaxed_lines

Algorithm = Literal["rsa-sha256", "ed25519-sha256"]

# Listed in `h=` once more often than they occur, also when absent, so that adding one on the way breaks the
# signature (RFC 6376 5.4.2, 8.15). These are the fields that may occur once (RFC 5322 3.6, RFC 2045 3,
# RFC 2183, RFC 2919, RFC 8058, RFC 8098) and that tell readers or mail clients the author, the format of the body,
# and where to answer, unsubscribe, complain or confirm. A mailing list that adds its own `Sender` or `List-Id`
# breaks the signature; it has to sign with its own domain or seal with ARC (RFC 8617): ops/decisions/0046.
_OVERSIGNED: Final = (
    b"From", b"Sender", b"Reply-To", b"To", b"Cc", b"Subject", b"Date", b"Message-ID", b"In-Reply-To", b"References",
    b"MIME-Version", b"Content-Type", b"Content-Transfer-Encoding", b"Content-Disposition", b"Content-ID",
    b"Content-Description", b"List-Id", b"List-Unsubscribe", b"List-Unsubscribe-Post", b"Feedback-ID",
    b"Disposition-Notification-To",
)  # fmt: skip
# Signed as often as they occur: they may repeat, or another server may legitimately add one.
_SIGNED: Final = (
    b"List-Help", b"List-Subscribe", b"List-Post", b"List-Owner", b"List-Archive", b"CFBL-Address",
    b"CFBL-Feedback-ID", b"Auto-Submitted", b"Precedence", b"Importance", b"Priority", b"X-Priority",
    b"Content-Language", b"Comments", b"Keywords",
    b"Resent-From", b"Resent-Sender", b"Resent-To", b"Resent-Cc", b"Resent-Date", b"Resent-Message-ID",
)  # fmt: skip

_USUAL: Final = _OVERSIGNED + _SIGNED  # in the usual spelling, which avoids lower-casing
_ORDER: Final = tuple(name.lower() for name in _USUAL)
_PLACES: Final = {name: place for names in (_ORDER, _USUAL) for place, name in enumerate(names)}
_PKCS1: Final = PKCS1v15()
_SHA256: Final = SHA256()
_FOLD_AT: Final = 72  # with " b=" before and ";" behind, below 78
_RSA_BITS: Final = 2048  # RFC 8301 3.2 asks for no less; longer keys no longer fit a UDP answer of 512 octets


class BadKey(ValueError):  # noqa: N818 - named for what the caller gave
    """The bytes are not a private key that DKIM can sign with."""


class SigningKey(Struct, frozen=True):
    """A parsed private key and the place of its public key in DNS: `selector._domainkey.domain`."""

    domain: str
    selector: str
    algorithm: Algorithm
    private: RSAPrivateKey | Ed25519PrivateKey


def sign(mime: bytes, keys: Sequence[SigningKey], *, at: int) -> bytes:
    """Return the DKIM-Signature fields to prepend to `mime`: one per key in the given order, each with its CRLF.

    `mime` has CRLF line ends; `at` is Unix time in seconds. Accepts any bytes: folded, repeated and malformed fields, a
    header without a body.
    """
    head_end, body_at = divided(mime)
    names, signed = select_fields(mime[:head_end])
    body_hash = _base64(relaxed_body_hash(mime, body_at))
    return b"".join([_signature(key, names, signed, body_hash, at) for key in keys])


def load(domain: str, selector: str, der: bytes) -> SigningKey:
    """Parse a private key in PKCS #8 DER, as the generators below return it. Raises BadKey.

    Verifies an RSA key by one signature. Checking its primes would take 27 ms more; the service generated the key
    itself, so a valid signature is enough to show that the stored bytes are intact.
    """
    private = _parsed(der)
    if isinstance(private, Ed25519PrivateKey):
        return SigningKey(domain, selector, "ed25519-sha256", private)
    try:
        private.public_key().verify(private.sign(b"", _PKCS1, _SHA256), b"", _PKCS1, _SHA256)
    except (InvalidSignature, ValueError) as error:
        raise BadKey("The private key is damaged: its public key rejects its signatures.") from error
    return SigningKey(domain, selector, "rsa-sha256", private)


def generate_rsa() -> bytes:
    """Generate an RSA-2048 private key in PKCS #8 DER. Takes 20 to 150 ms of CPU: call it in a thread."""
    return _der(generate_private_key(public_exponent=65537, key_size=_RSA_BITS))


def generate_ed25519() -> bytes:
    """Generate an Ed25519 private key in PKCS #8 DER."""
    return _der(Ed25519PrivateKey.generate())


def public_txt(der: bytes) -> str:
    """Return the TXT record of a private key's public half (RFC 6376 3.6.1, RFC 8463 4) as one string. Raises BadKey.

    For RSA it exceeds the 255 octets of one DNS character string: divide it when writing the record.
    """
    private = _parsed(der)
    if isinstance(private, Ed25519PrivateKey):
        kind, octets = "ed25519", private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    else:
        kind = "rsa"
        octets = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"v=DKIM1; k={kind}; p={_base64(octets)}"


def select_fields(head: bytes) -> tuple[str, bytes]:
    """Return the value of `h=`, and the signed fields in relaxed form in that order.

    Of repeated fields the last comes first (RFC 6376 5.4.2).
    """
    found: dict[int, list[bytes]] = {}
    places = _PLACES
    for line in relaxed_lines(head).split(b"\r\n"):
        name, colon, value = line.partition(b":")
        place = places.get(name)
        if place is None:
            place = places.get(name.rstrip(b" ").lower())
        if colon and place is not None:
            field = b"%b:%b\r\n" % (_ORDER[place], value.strip(b" "))
            if place in found:
                found[place].insert(0, field)
            else:
                found[place] = [field]
    order = sorted(found)
    signed = b"".join([field for place in order for field in found[place]])
    return _name_list(tuple([(place, len(found[place])) for place in order])), signed


@lru_cache(maxsize=256)
def _name_list(found: tuple[tuple[int, int], ...]) -> str:
    """Return the value of `h=`: each name as often as it is signed, separated by colons, folded after a colon.

    `found` holds indexes into `_ORDER` and the number of fields of each; nearly all messages have the same ones.
    """
    counts = dict(found)
    lines = [""]
    for place, name in enumerate(_ORDER):
        for _ in range(counts.get(place, 0) + (place < len(_OVERSIGNED))):
            if len(lines[-1]) + len(name) > _FOLD_AT:
                lines.append("")
            lines[-1] += name.decode() + ":"
    return "\r\n ".join(lines)[:-1]


def _base64(octets: bytes) -> str:
    return b2a_base64(octets, newline=False).decode()


def _signature(key: SigningKey, names: str, signed: bytes, body_hash: str, at: int) -> bytes:
    """Return one complete DKIM-Signature field; every fold becomes one blank in its relaxed form."""
    written, relaxed = _constant_tags(key.domain, key.selector, names)
    begin = f"v=1; a={key.algorithm}; c=relaxed/relaxed; t={at};"
    data = b"%bdkim-signature:%b" % (signed, f"{begin}{relaxed} bh={body_hash}; b=".encode())
    return f"DKIM-Signature: {begin}{written}\r\n bh={body_hash};\r\n b={signature_lines(key, data)}\r\n".encode()


def signature_lines(key: SigningKey, data: bytes) -> str:
    """Sign canonical data; return the signature in base64, folded as the value of `b=`."""
    # Compares names because `isinstance` with these abstract classes takes 1 µs. Ed25519 signs the hash, not the data
    # (RFC 8463 3).
    if key.algorithm == "rsa-sha256":
        raw = cast("RSAPrivateKey", key.private).sign(data, _PKCS1, _SHA256)
    else:
        raw = cast("Ed25519PrivateKey", key.private).sign(sha256(data).digest())
    text = _base64(raw)
    return "\r\n ".join([text[start : start + _FOLD_AT] for start in range(0, len(text), _FOLD_AT)])


@lru_cache(maxsize=1024)
def _constant_tags(domain: str, selector: str, names: str) -> tuple[str, str]:
    """Return the tags that most signatures of a key share, as written and in relaxed form."""
    tags = f"\r\n d={domain};\r\n s={selector};\r\n h={names};"
    return tags, tags.replace("\r\n ", " ")


def _parsed(der: bytes) -> RSAPrivateKey | Ed25519PrivateKey:
    try:
        private = load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadKey("The private key can't be read; it must be PKCS #8 in DER, not encrypted.") from error
    if isinstance(private, RSAPrivateKey | Ed25519PrivateKey):
        return private
    raise BadKey("DKIM signs with an RSA or an Ed25519 key.")


def _der(private: RSAPrivateKey | Ed25519PrivateKey) -> bytes:
    return private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
