"""Peers for tests of transport security: certificate authorities, signed DNS, and hosts of MTA-STS policies."""

import asyncio
import contextlib
import ssl
import warnings
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from mta.smtp.client.tls import TlsMode, client_context
from ops.local.dns import Responder
from tests.harness.tcp import listening

_AD = 0x20  # in the fourth octet of a DNS header


class Certified:
    """A key and its certificate, with those that lead up from it."""

    def __init__(
        self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, above: Sequence[x509.Certificate]
    ) -> None:
        self.key = key
        self.certificate = certificate
        self.above = tuple(above)

    @property
    def der(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def public_key(self) -> bytes:
        """Its SubjectPublicKeyInfo."""
        return self.certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def secret(self) -> bytes:
        """Its key, as PEM."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def pem(self, folder: Path, name: str = "authority") -> Path:
        """A file with the certificate alone."""
        path = folder / f"{name}.pem"
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return path

    def server(self, folder: Path, *, whole: bool = False, most: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """A server's context that shows it; `whole` with the root as well."""
        shown = [self.certificate, *(self.above if whole else self.above[:-1])]
        path = folder / f"{x509.random_serial_number():x}.pem"
        path.write_bytes(self.secret + b"".join(one.public_bytes(Encoding.PEM) for one in shown))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if most is not None and most < ssl.TLSVersion.TLSv1_2:
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.set_ciphers("DEFAULT:@SECLEVEL=0")  # their signatures use SHA-1
        if most is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of TLS 1.0 and 1.1
                context.maximum_version = most
        return context

    def authority(self, name: str) -> "Certified":
        """Make an intermediate authority below this one."""
        return _made(name, (), self, ca=True)

    def leaf(self, *names: str, at: datetime | None = None, ca: bool = False) -> "Certified":
        """A server's certificate for these names; with `at`, one that ended then."""
        return _made(names[0], names, self, until=at, ca=ca)


def forget_sessions() -> None:
    """Forget all client sessions of this process, so that the next handshakes are full ones."""
    for mode in TlsMode:
        client_context(mode)._kept.clear()


def authority(name: str = "authority") -> Certified:
    """A root of its own."""
    return _made(name, (), None, ca=True)


def self_signed(*names: str) -> Certified:
    """Make a self-signed server certificate."""
    return _made(names[0], names, None)


def _made(
    subject: str, names: Sequence[str], issuer: Certified | None, *, until: datetime | None = None, ca: bool = False
) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    end = until or datetime.now(UTC) + timedelta(days=30)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=60))
        .not_valid_after(end)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False
        )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(authority_usage(), critical=True)
    # What OpenSSL asks of a chain in strict mode (Python 3.13's default), as real authorities have it.
    above_key = key if issuer is None else issuer.key
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(above_key.public_key()), critical=False
    )
    certificate = builder.sign(above_key, hashes.SHA256())
    return Certified(key, certificate, () if issuer is None else (issuer.certificate, *issuer.above))


def authority_usage() -> x509.KeyUsage:
    """Return the key usage of an authority (RFC 5280 4.2.1.3)."""
    return x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip


class SignedDns(Responder):
    """A stand-in for a validating resolver: answers for names under `signed` are authentic."""

    def __init__(self) -> None:
        super().__init__()
        self.signed: set[str] = set()
        self.mangled: dict[bytes, bytes] = {}  # octets of answers, and what to send in their place

    def tlsa(self, host: str, port: int, *records: tuple[int, int, int, bytes]) -> None:
        """Publish TLSA records."""
        texts = [f"{usage} {selector} {matching} {data.hex()}" for usage, selector, matching, data in records]
        self.set(f"_{port}._tcp.{host}", "TLSA", texts)

    async def _respond(self, request: bytes, transport: str) -> bytes | None:
        response = await super()._respond(request, transport)
        if response is None:
            return None
        for good, bad in self.mangled.items():
            response = response.replace(good, bad)
        if not self._is_signed(self.questions[-1].name):
            return response
        return response[:3] + bytes([response[3] | _AD]) + response[4:]

    def _is_signed(self, name: str) -> bool:
        return any(name == one or name.endswith("." + one) for one in self.signed)


class PolicyHost:
    """An HTTPS server on loopback that serves what a test says, and notes what it was asked."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.response = answer(b"")
        self.requests: list[bytes] = []
        self.delay_s = 0.0
        self._context = context
        self._open = contextlib.AsyncExitStack()

    def policy(self, *lines: str) -> None:
        """Serve these lines as the policy."""
        self.response = answer("".join(f"{line}\r\n" for line in lines).encode())

    async def __aenter__(self) -> Self:
        self.port: int = (await self._open.enter_async_context(listening(self._serve, tls=self._context)))[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        await asyncio.sleep(self.delay_s)
        writer.write(self.response)
        await writer.drain()


def answer(body: bytes, *, status: str = "200 OK", kind: str = "text/plain", more: str = "") -> bytes:
    """An HTTP response."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def policy_host(root: Certified, folder: Path, domain: str) -> AsyncIterator[PolicyHost]:
    """The policy host of `domain`, vouched for by `root`."""
    async with PolicyHost(root.leaf(f"mta-sts.{domain}").server(folder)) as host:
        yield host
