"""TLS towards other servers: contexts, made once, and what a handshake agreed on."""

import functools
import ssl
from datetime import UTC, datetime
from enum import StrEnum

from cryptography import x509

from mta.smtp.transcript import Tls


class TlsMode(StrEnum):
    """How far a connection goes for TLS."""

    OFF = "off"  # never STARTTLS, even if offered: the second try after a failed handshake
    OPPORTUNISTIC = "opportunistic"  # where offered, any certificate (RFC 7435)


@functools.cache
def unverified_context() -> ssl.SSLContext:
    """For opportunistic TLS: any certificate, TLS 1.2 or newer (RFC 8996 retired the older ones).

    One context for all peers: making one loads the trust store and costs milliseconds.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # Without a policy of the domain nobody can say which name would be right, and refusing here would mean
    # plaintext (RFC 7435 1.2); MTA-STS and DANE are where certificates decide.
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def agreed(session: ssl.SSLObject, server_name: str, at: datetime | None = None) -> Tls:
    """What the finished handshake of `session` agreed on, with a verdict on the server's certificate."""
    cipher = session.cipher()
    return Tls(
        version=session.version() or "unknown",
        cipher=cipher[0] if cipher is not None else "unknown",
        certificate=_verdict(session.getpeercert(binary_form=True), server_name, at or datetime.now(UTC)),
    )


def _verdict(encoded: bytes | None, server_name: str, at: datetime) -> str:
    """What the leaf alone tells; its chain was not checked, so the verdict never says verified."""
    if encoded is None:
        return "unverified: none shown"
    try:
        certificate = x509.load_der_x509_certificate(encoded)
        names = _names(certificate)
        self_signed = certificate.issuer == certificate.subject
        current = certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc
    except ValueError:  # a certificate that OpenSSL takes and the stricter parser does not
        return "unverified: unreadable"
    if not current:
        return "unverified: outside its dates"
    if self_signed:
        return "unverified: self-signed"
    if not any(_matches(name, server_name.lower()) for name in names):
        return "unverified: for another name"
    return "unverified: chain not checked"


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension):
        return []
    return [name.lower() for name in found.value.get_values_for_type(x509.DNSName)]


def _matches(pattern: str, name: str) -> bool:
    """RFC 6125 6.4.3: a wildcard stands for the whole leftmost label."""
    if pattern.startswith("*."):
        return name.partition(".")[2] == pattern[2:]
    return pattern == name
