"""DANE for SMTP (RFC 7672): whether the certificates of a server are those that its domain publishes in signed DNS."""

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from engine.store.resolver import Tlsa
from mta.smtp.client.certificates import CertificateAuthorities, PeerCertificates, covers
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType

TRUST_ANCHOR, END_ENTITY = 2, 3  # usages; 0 and 1 mean nothing for SMTP (RFC 7672 3.1.3)
WHOLE, PUBLIC_KEY = 0, 1  # selectors
EXACT, SHA256, SHA512 = 0, 1, 2  # matching types
_DIGEST_OCTETS = {SHA256: 32, SHA512: 64}


class DanePolicy(Struct, frozen=True):
    """What signed DNS says of one server.

    `base` is the name that the records were found under and the one to ask for in the handshake (RFC 7672 8.1).
    `names` are those a certificate may be for (3.2.2). `records` are the usable ones.
    """

    base: str
    names: tuple[str, ...]
    records: tuple[Tlsa, ...]


def usable(records: Sequence[Tlsa]) -> tuple[Tlsa, ...]:
    """The records that a mail client can use; of digests over the same thing the strongest alone.

    RFC 7672 3.1 for usages, RFC 7671 9 for the digests: a weak one must not serve where a stronger is published.
    """
    found = [one for one in records if _is_usable(one)]
    strong = {(one.usage, one.selector) for one in found if one.matching == SHA512}
    return tuple(one for one in found if one.matching != SHA256 or (one.usage, one.selector) not in strong)


def match(dane: DanePolicy, shown: PeerCertificates | None, at: datetime) -> str | TlsFailure:
    """How the certificates match, `dane-ee` or `dane-ta`, or why they don't.

    An end entity match looks at neither name nor dates (RFC 7672 3.1.1); a trust anchor match at both (3.1.2).
    """
    if shown is None:
        return TlsFailure(TlsFailureType.VALIDATION_FAILURE, "no readable certificate")
    if any(one.usage == END_ENTITY and _fits(one, shown.leaf) for one in dane.records):
        return "dane-ee"
    anchors = _anchors(dane.records, shown)
    if not anchors:
        return TlsFailure(TlsFailureType.VALIDATION_FAILURE, "none of the certificates matches a TLSA record")
    if not shown.leaf.not_valid_before_utc <= at <= shown.leaf.not_valid_after_utc:
        return TlsFailure(TlsFailureType.EXPIRED, "outside its dates")
    if not covers(shown.leaf, dane.names):
        return TlsFailure(TlsFailureType.HOST_MISMATCH, f"not for {dane.base}")
    authorities = CertificateAuthorities(anchors)
    doubts = [authorities.certificate_failure(shown, name, at) for name in dane.names if covers(shown.leaf, (name,))]
    return "dane-ta" if None in doubts else TlsFailure(TlsFailureType.NOT_TRUSTED, doubts[0] or "")


def _is_usable(record: Tlsa) -> bool:
    if record.usage not in (TRUST_ANCHOR, END_ENTITY) or record.selector not in (WHOLE, PUBLIC_KEY):
        return False
    if record.matching == EXACT:
        return bool(record.data)
    return len(record.data) == _DIGEST_OCTETS.get(record.matching)


def _anchors(records: Sequence[Tlsa], shown: PeerCertificates) -> list[x509.Certificate]:
    """The trust anchors at hand: those the server sent (RFC 7672 3.1.2 obliges it to), and those in DNS whole."""
    wanted = [one for one in records if one.usage == TRUST_ANCHOR]
    found = [certificate for certificate in shown.others if any(_fits(one, certificate) for one in wanted)]
    for one in wanted:
        if (one.selector, one.matching) == (WHOLE, EXACT):
            whole = PeerCertificates.parsed([one.data])
            found += [whole.leaf] if whole is not None else []
    return found


def _fits(record: Tlsa, certificate: x509.Certificate) -> bool:
    content = certificate.public_bytes(Encoding.DER) if record.selector == WHOLE else _public_key(certificate)
    if record.matching != EXACT:
        content = hashlib.new("sha512" if record.matching == SHA512 else "sha256", content).digest()
    return hmac.compare_digest(content, record.data)


def _public_key(certificate: x509.Certificate) -> bytes:
    """The SubjectPublicKeyInfo octet by octet as it stands in the certificate: encoded anew, unusual keys would differ.

    RFC 5280 4.1: TBSCertificate ::= SEQUENCE { [0] version, serial, signature, issuer, validity, subject, key, ... }.
    """
    tbs = certificate.tbs_certificate_bytes
    place, _ = _content(tbs, 0)
    if tbs[place] == 0xA0:  # the version, which the first one left out
        place = _content(tbs, place)[1]
    for _ in range(5):
        place = _content(tbs, place)[1]
    return tbs[place : _content(tbs, place)[1]]


def _content(der: bytes, place: int) -> tuple[int, int]:
    """Where the content of the element at `place` begins and ends; of a certificate that has been parsed already."""
    length, start = der[place + 1], place + 2
    if length & 0x80:
        octets = length & 0x7F
        length, start = int.from_bytes(der[start : start + octets], "big"), start + octets
    return start, start + length
