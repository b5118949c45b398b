"""Self-signed certificates for the local servers, stored with their data.

They are valid for the host's own name and for the names by which programs on this machine reach it, so that a client
that is told to trust the file needs no exception. They are no authority: trusting one trusts these names alone.
"""

import os
import ssl
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from engine.base import clock

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_LIFE = timedelta(days=3_650)
_RENEW_BEFORE = timedelta(days=30)
_CERTIFICATE = "certificate.pem"
_KEY = "certificate.key"


def server_context(folder: Path, host: str = "localhost") -> ssl.SSLContext:
    """Return a TLS context with the certificate in `folder`, as `ensure` returns it."""
    certificate, key = ensure(folder, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def ensure(folder: Path, host: str = "localhost", now: datetime | None = None) -> tuple[Path, Path]:
    """Return the paths of certificate and private key (mode 0600) in `folder`.

    They are created if they are missing, lack one of the names, or expire within 30 days.
    """
    at = now or clock.machine_now()
    certificate, key = folder / _CERTIFICATE, folder / _KEY
    names = _alternative_names(host)
    if not (key.exists() and _holds(certificate, names, at)):
        folder.mkdir(parents=True, exist_ok=True)
        _make(certificate, key, host, names, at)
    return certificate, key


def folder_of(state: Path, kind: str) -> Path:
    """Return the folder of the certificate for processes of a kind, such as `relay`, within the state folder."""
    return state / kind


def path_in(folder: Path) -> Path:
    """Return the path that `ensure` gives the certificate in `folder`."""
    return folder / _CERTIFICATE


def _alternative_names(host: str) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for name in dict.fromkeys((host, *LOCAL_NAMES)):
        try:
            names.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            names.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(names)


def _holds(path: Path, names: x509.SubjectAlternativeName, at: datetime) -> bool:
    try:
        known = x509.load_pem_x509_certificate(path.read_bytes())
        if known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value != names:
            return False
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return known.not_valid_before_utc <= at < known.not_valid_after_utc - _RENEW_BEFORE


def _make(certificate: Path, key: Path, host: str, names: x509.SubjectAlternativeName, at: datetime) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(hours=1))
        .not_valid_after(at + _LIFE)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # Python's and OpenSSL's strict checks (VERIFY_X509_STRICT) want both key identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
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
