"""TLS to other mail servers: modes, session resumption, and certificate verification, for `connection`.

Every handshake accepts any certificate; `CertificateVerifier.verify` checks the peer's certificates afterwards against
the mode of the connection.
"""

import functools
import ssl
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

from engine.base import clock
from mta.smtp.client.certificates import CertificateAuthorities, PeerCertificates, chain_failure
from mta.smtp.client.dane import DanePolicy, match
from mta.smtp.client.tls_failures import TlsFailure
from mta.smtp.client.transcript import TlsDetails

MAX_SESSIONS = 512  # about 10 KB each
MAX_SESSION_S = 3_600.0  # RFC 8446 4.6.1 allows seven days; a shorter time notices a repaired server sooner
MAX_VERDICTS = 2_000
VERDICT_TTL_S = 3_600.0
# OpenSSL's security level 0 is needed for the SHA-1 signatures of TLS 1.0 and 1.1, and for RSA keys of 1,024 bits.
_ANY_CIPHER = "DEFAULT:!PSK:!SRP:@SECLEVEL=0"
_OP_LEGACY_SERVER_CONNECT = 0x4  # openssl/ssl.h; Python names it from 3.12 on


class TlsMode(StrEnum):
    """The transport security that a connection requires."""

    OFF = "off"  # never STARTTLS, even if offered: the retry after a failed handshake
    OPPORTUNISTIC = "opportunistic"  # TLS if offered, any certificate (RFC 7435)
    ENCRYPTED = "encrypted"  # never plaintext, any certificate: TLSA records that can't be used (RFC 7672 2.2)
    VERIFIED = "verified"  # a certificate for the host's name from an authority we trust (RFC 8461 4.2)
    DANE = "dane"  # a certificate that matches the signed TLSA records (RFC 7672)


class ResumingTlsContext(ssl.SSLContext):
    """A client context that resumes its sessions by server name (RFC 8446 2.2, RFC 5077).

    It verifies nothing itself: without a policy of the domain the expected name is unknown, and refusing would mean
    plaintext (RFC 7435 1.2). A resumed session has no certificates, so those of its first handshake are kept with it
    and verified again. The sessions last `MAX_SESSION_S` at most.
    """

    _kept: "OrderedDict[str, tuple[float, ssl.SSLSession, tuple[bytes, ...]]]"

    @classmethod
    def create(cls, *, any_version: bool = False) -> "ResumingTlsContext":
        """Make a context for TLS 1.2 or newer (RFC 8996 retired the older versions).

        With `any_version` it also accepts TLS 1.0 and 1.1, short keys and servers without RFC 5746, because weak
        encryption is better than plaintext (RFC 7435 3).
        """
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if any_version:
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED  # TLS 1.0: Python's contexts leave out SSLv3
            context.set_ciphers(_ANY_CIPHER)
            context.options |= _OP_LEGACY_SERVER_CONNECT
        else:
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= (
            ssl.OP_NO_RENEGOTIATION
        )  # mail servers do not need it, and a stalled renegotiation blocks the session
        context._kept = OrderedDict()
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the signature is Python's
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Offer the kept session of `server_hostname`; event loops call this without a session."""
        kept = self._find(server_hostname)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, kept[1] if kept else session)

    def has_session(self, name: str | None) -> bool:
        """Return True if the next handshake with `name` will try to resume a session."""
        return self._find(name) is not None

    def keep(self, name: str, session: ssl.SSLSession, shown: tuple[bytes, ...]) -> None:
        """Store a session and its certificates; call after the first application data: tickets follow the handshake."""
        if not session.has_ticket and not session.id:
            return
        self._kept.pop(name, None)
        if len(self._kept) >= MAX_SESSIONS:
            self._kept.popitem(last=False)
        life_s = min(MAX_SESSION_S, session.ticket_lifetime_hint or session.timeout)
        self._kept[name] = (time.monotonic() + life_s, session, shown)

    def forget(self, name: str | None) -> None:
        """Drop the session of `name`, so that the next handshake is a full one."""
        if name is not None:
            self._kept.pop(name, None)

    def session_certificates(self, name: str | None) -> tuple[bytes, ...]:
        """Return the certificates of the kept session."""
        kept = self._find(name)
        return kept[2] if kept else ()

    def _find(self, name: str | bytes | None) -> "tuple[float, ssl.SSLSession, tuple[bytes, ...]] | None":
        kept = self._kept.get(name) if isinstance(name, str) else None
        return kept if kept is not None and kept[0] > time.monotonic() else None


def client_context(mode: TlsMode) -> ResumingTlsContext:
    """Return the process's context for connections in `mode`; making one costs a millisecond.

    Opportunistic connections have a context of their own, so that no session of an old TLS version is resumed where
    a policy or a message demands more.
    """
    return _cached_context(any_version=mode is TlsMode.OPPORTUNISTIC)


@functools.cache
def _cached_context(*, any_version: bool) -> ResumingTlsContext:
    return ResumingTlsContext.create(any_version=any_version)


class HandshakeResult(Struct, frozen=True):
    """The result of a handshake: TLS details, why verification failed, and the peer's certificates in DER."""

    details: TlsDetails
    certificate_failure: TlsFailure | None
    certificates: tuple[bytes, ...]


class CertificateVerifier:
    """Verifies certificates for one process and caches each verdict for an hour."""

    def __init__(self, authorities: CertificateAuthorities) -> None:
        self._authorities = authorities
        self._known: OrderedDict[tuple[bytes, str], tuple[datetime, TlsFailure | None]] = OrderedDict()

    def verify(
        self,
        session: ssl.SSLObject,
        server_name: str,
        *,
        kept: Sequence[bytes] = (),
        dane: DanePolicy | None = None,
        at: datetime | None = None,
    ) -> HandshakeResult:
        """Verify the peer of a finished handshake as `server_name`.

        `kept` are the certificates of the resumed session. With `dane`, its records decide; otherwise the
        certificate authorities.
        """
        now = at or clock.machine_now()
        resumed = bool(session.session_reused)
        shown = certificates(session)
        # Only with the same leaf: another session may have replaced the kept one meanwhile.
        if resumed and shown and kept and kept[0] == shown[0]:
            shown = tuple(kept)
        cipher = session.cipher()
        verdict, certificate_failure = self._verdict(shown, server_name.lower(), dane, now)
        details = TlsDetails(
            version=session.version() or "unknown",
            cipher=cipher[0] if cipher is not None else "unknown",
            certificate=verdict,
            resumed=resumed,
        )
        return HandshakeResult(details, certificate_failure, shown)

    def _verdict(
        self, shown: tuple[bytes, ...], name: str, dane: DanePolicy | None, at: datetime
    ) -> tuple[str, TlsFailure | None]:
        if dane is not None:
            found = match(dane, PeerCertificates.parsed(shown), at)
            return (f"verified: {found}", None) if isinstance(found, str) else (f"unverified: {found.reason}", found)
        fault = self._by_authorities(shown, name, at)
        return ("verified", None) if fault is None else (f"unverified: {fault.reason}", fault)

    def _by_authorities(self, shown: tuple[bytes, ...], name: str, at: datetime) -> TlsFailure | None:
        key = (blake2b(b"".join(shown), digest_size=16).digest(), name)
        known = self._known.get(key)
        if known is not None and 0 <= (at - known[0]).total_seconds() < VERDICT_TTL_S:
            return known[1]
        fault = chain_failure(PeerCertificates.parsed(shown), name, self._authorities, at)
        self._known.pop(key, None)
        if len(self._known) >= MAX_VERDICTS:
            self._known.popitem(last=False)
        self._known[key] = (at, fault)
        return fault


@functools.cache
def certificate_verifier(authorities: Path | None = None) -> CertificateVerifier:
    """Return the process's verifier for a PEM file of authorities, None for the system's.

    Raises OSError for an unreadable file.
    """
    return CertificateVerifier(CertificateAuthorities.of_file(authorities))


def certificates(session: ssl.SSLObject) -> tuple[bytes, ...]:
    """Return the peer's certificates in DER, leaf first; of a resumed session only the leaf."""
    public: Any = getattr(session, "get_unverified_chain", None)  # Python 3.13
    if public is not None:
        chain = public()
    else:
        inner: Any = session._sslobj  # type: ignore[attr-defined]  # noqa: SLF001 - the same before 3.13
        chain = [certificate.public_bytes(ssl._ssl.ENCODING_DER) for certificate in inner.get_unverified_chain() or ()]  # type: ignore[attr-defined]  # noqa: SLF001
    if chain:
        return tuple(chain)
    leaf = session.getpeercert(binary_form=True)
    return () if leaf is None else (leaf,)
