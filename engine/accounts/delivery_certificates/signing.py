"""Sign statements as JWS with Ed25519 (RFC 7515, RFC 8037, RFC 9864), and write the keys as JSON Web Keys. Pure."""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engine.accounts.delivery_certificates.types import (
    ALGORITHM,
    TYPE,
    CertificateSalts,
    DeliveryCertificate,
    KeyRow,
    Statement,
)
from engine.base import clock
from engine.base.secrets import Pepper, derived, seal, unseal

SEALING: Final = "certificate signing keys"  # the purpose of the key that seals private keys


def signed(statement: Statement, salts: CertificateSalts, *, key: Ed25519PrivateKey, kid: str) -> DeliveryCertificate:
    """Return the statement as JWS (RFC 7515 5.1)."""
    protected = _base64url(orjson.dumps({"alg": ALGORITHM, "kid": kid, "typ": TYPE}))
    payload = _base64url(msgspec.json.encode(statement))
    signature = _base64url(key.sign(f"{protected}.{payload}".encode()))
    return DeliveryCertificate(payload, protected, signature, salts)


def salts_of(
    content: bytes | None, recipients: Sequence[bytes], addresses: Sequence[str | None], log: bytes
) -> CertificateSalts:
    """Return the salts that go beside a statement: none for what it has no digest of."""
    return CertificateSalts(
        None if content is None else content.hex(),
        [None if address is None else salt.hex() for salt, address in zip(recipients, addresses, strict=True)],
        log.hex(),
    )


def new_key(pepper: Pepper) -> tuple[str, bytes, bytes]:
    """Return a new key: its id, its public half, and its private half, sealed."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    kid = thumbprint(public)
    return kid, public, seal(derived(pepper, SEALING), private.private_bytes_raw(), kid.encode())


def opened(row: KeyRow, pepper: Pepper) -> Ed25519PrivateKey:
    """Return the private half of the key that signs. Raises Unsealable."""
    sealed = unseal(derived(pepper, SEALING), row.sealed_key or b"", row.kid.encode())
    return Ed25519PrivateKey.from_private_bytes(sealed)


def thumbprint(public_key: bytes) -> str:
    """Return the id of a key: the thumbprint of its public half (RFC 7638, RFC 8037 2)."""
    members = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(public_key)}
    return _base64url(sha256(orjson.dumps(members)).digest())


def public_jwk(row: KeyRow) -> dict[str, str]:
    """Return the public half of a key as JSON Web Key, with the times of its use."""
    jwk = {
        "kty": "OKP", "crv": "Ed25519", "alg": ALGORITHM, "use": "sig", "kid": row.kid,
        "x": _base64url(row.public_key), "madeAt": clock.iso(row.made_at),
    }  # fmt: skip
    return jwk if row.retired_at is None else jwk | {"retiredAt": clock.iso(row.retired_at)}


def _base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
