"""What a server's certificate chain is worth: names, dates, and whether it leads to an authority we trust.

The handshake itself checks nothing (`tls`), so that one connection serves every policy: what the peer showed is
judged afterwards, and the policy decides what the judgement means.
"""

import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError
from msgspec import Struct

from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType

MAX_SHOWN = 12  # certificates of a chain that are looked at; real ones have two to four
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)
_END = b"-----END CERTIFICATE-----"

_log = structlog.get_logger("mta")


class PeerCertificates(Struct, frozen=True):
    """The certificates of a peer: its own, and the others it sent."""

    leaf: x509.Certificate
    others: tuple[x509.Certificate, ...]

    @classmethod
    def parsed(cls, encoded: Sequence[bytes]) -> "PeerCertificates | None":
        """From DER, leaf first; None for none, or when the leaf can't be read. Others that can't be are left out."""
        found = [_loaded(der) for der in encoded[:MAX_SHOWN]]
        if not found or found[0] is None:
            return None
        return cls(found[0], tuple(one for one in found[1:] if one is not None))


class CertificateAuthorities:
    """Certificates that a chain may lead to."""

    def __init__(self, certificates: Sequence[x509.Certificate]) -> None:
        self.count = len(certificates)
        self._store = Store(list(certificates)) if certificates else None

    @classmethod
    def of_file(cls, path: Path | None = None) -> "CertificateAuthorities":
        """Those of a PEM file, or the system's; OSError when a file that was named can't be read.

        Where the system has none, no server can be verified: mail to domains that ask for it waits, and the log
        says why.
        """
        chosen = path or next((bundle for bundle in map(Path, _BUNDLES) if bundle.is_file()), None)
        found = cls(_bundled(chosen.read_bytes()) if chosen is not None else ())
        if not found.count:
            _log.error("no certificate authorities found: no mail server can be verified", file=str(chosen))
        return found

    def certificate_failure(self, shown: PeerCertificates, name: str, at: datetime) -> str | None:
        """None when the leaf leads to one of these at `at` (aware) and is for `name`; else why not, in a few words.

        RFC 5280 section 6 by way of `cryptography`: signatures, dates, CA flags, path lengths and name constraints.
        """
        if self._store is None:
            return "there are no authorities to lead to"
        try:
            verifier = (
                PolicyBuilder()
                .store(self._store)
                .time(at)
                .extension_policies(ca_policy=_CA, ee_policy=_LEAF)
                .build_server_verifier(x509.DNSName(name))
            )
            verifier.verify(shown.leaf, list(shown.others))
        except (VerificationError, ValueError) as error:  # ValueError: a name or an extension that can't be read
            return _brief(error)
        return None


def chain_failure(
    shown: PeerCertificates | None, name: str, authorities: CertificateAuthorities, at: datetime
) -> TlsFailure | None:
    """What keeps the chain from vouching for the server `name` (a host name, lower case); None when nothing does."""
    if shown is None:
        return TlsFailure(TlsFailureType.NOT_TRUSTED, "no readable certificate")
    if not shown.leaf.not_valid_before_utc <= at <= shown.leaf.not_valid_after_utc:
        return TlsFailure(TlsFailureType.EXPIRED, "outside its dates")
    if shown.leaf.issuer == shown.leaf.subject:
        return TlsFailure(TlsFailureType.NOT_TRUSTED, "self-signed")
    if not covers(shown.leaf, (name,)):
        return TlsFailure(TlsFailureType.HOST_MISMATCH, "for another name")
    certificate_failure = authorities.certificate_failure(shown, name, at)
    return None if certificate_failure is None else TlsFailure(TlsFailureType.NOT_TRUSTED, certificate_failure)


def covers(certificate: x509.Certificate, names: Sequence[str]) -> bool:
    """True when the certificate is for one of the host names. Only subjectAltName counts (RFC 9525 2)."""
    return any(_matches(pattern, name) for pattern in _names(certificate) for name in names)


def _loaded(der: bytes) -> x509.Certificate | None:
    with warnings.catch_warnings():
        # Some old authorities have serial numbers below 1; they are to be trusted as long as the system does.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            return x509.load_der_x509_certificate(der)
        except ValueError:  # a certificate that OpenSSL takes and the stricter parser does not
            return None


def _bundled(pem: bytes) -> list[x509.Certificate]:
    """Each certificate of a PEM bundle by itself: one that can't be read costs only itself."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # as above
        for text in pem.split(_END)[:-1]:
            try:
                found.append(x509.load_pem_x509_certificate(text + _END))
            except ValueError:
                continue
    return found


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return []
    return [name.lower() for name in found.value.get_values_for_type(x509.DNSName)]


def _matches(pattern: str, name: str) -> bool:
    """RFC 6125 6.4.3: a wildcard stands for the whole leftmost label."""
    if pattern.startswith("*."):
        return name.partition(".")[2] == pattern[2:]
    return pattern == name


def _authority(_policy: Policy, _certificate: x509.Certificate, found: x509.BasicConstraints) -> None:
    if not found.ca:
        raise ValueError("an issuer that is no authority")


def _may_sign(_policy: Policy, _certificate: x509.Certificate, found: x509.KeyUsage | None) -> None:
    if found is not None and not found.key_cert_sign:
        raise ValueError("an issuer that may not sign certificates")


# What RFC 5280 requires and no more: the rules of the web's authorities (key identifiers, extended key usage,
# criticality) would refuse private authorities that mail servers live with.
_CA = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _authority)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
)
_LEAF = ExtensionPolicy.permit_all().require_present(x509.SubjectAlternativeName, Criticality.AGNOSTIC, None)


def _brief(error: Exception) -> str:
    """The reason without the certificate that the library prints with it."""
    text = str(error).removeprefix("validation failed: ").partition(" (encountered processing")[0]
    text = "".join(letter if letter.isprintable() else " " for letter in text)[:160]
    if "candidates exhausted" in text and text.endswith("exhausted: all candidates exhausted with no interior errors"):
        return "issued by nobody we trust"
    return text or type(error).__name__
