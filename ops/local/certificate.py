"""Self-signed certificates for the local servers, stored with their data."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = timedelta(days=3_650)
_RENEW_BEFORE = timedelta(days=30)
_CERTIFICATE = "certificate.pem"
_KEY = "certificate.key"


def server_context(folder: Path, host: str = "localhost") -> ssl.SSLContext:
    """Return a TLS context with the certificate in `folder`; create one if it is missing or expires within 30 days."""
    certificate, key = ensure(folder, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def ensure(folder: Path, host: str = "localhost", now: datetime | None = None) -> tuple[Path, Path]:
    """Return the paths of certificate and private key (mode 0600) in `folder`; create them unless they are valid."""
    at = now or datetime.now(UTC)
    certificate, key = folder / _CERTIFICATE, folder / _KEY
    if not (key.exists() and _holds(certificate, at)):
        folder.mkdir(parents=True, exist_ok=True)
        _make(certificate, key, host, at)
    return certificate, key


def _holds(path: Path, at: datetime) -> bool:
    try:
        known = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    return known.not_valid_before_utc <= at < known.not_valid_after_utc - _RENEW_BEFORE


def _make(certificate: Path, key: Path, host: str, at: datetime) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(hours=1))
        .not_valid_after(at + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(private, hashes.SHA256())
    )
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _replace(key, secret, 0o600)
    _replace(certificate, made.public_bytes(serialization.Encoding.PEM), 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write a temporary file with the given mode and rename it, so that a crash leaves no incomplete file."""
    aside = path.with_suffix(path.suffix + ".new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    aside.replace(path)
