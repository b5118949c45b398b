"""A passkey device in software: makes key pairs and signs challenges as a browser would hand them on, with every part
that a test may want to be wrong open to it."""

import base64
import hashlib
import os
import struct
from typing import Any, Literal

import cbor2
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from msgspec import Struct

Algorithm = Literal[-7, -8, -257]
PRESENT, VERIFIED, ELIGIBLE, BACKED_UP, ATTESTED = 0x01, 0x04, 0x08, 0x10, 0x40  # WebAuthn 6.1, flags
Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


class Credential(Struct):
    """A passkey in the device."""

    id: bytes
    key: Key
    algorithm: int
    rp_id: str
    user_handle: bytes
    counter: int


class Authenticator:
    """A device with its browser, at one origin. `flags` are those of every answer, `counting` devices count uses."""

    def __init__(self, origin: str, *, counting: bool = True, flags: int = PRESENT | VERIFIED) -> None:
        self.origin = origin
        self.counting = counting
        self.flags = flags
        self.credentials: list[Credential] = []

    def create(
        self,
        options: dict[str, Any],
        *,
        algorithm: Algorithm = -7,
        cose: dict[int, Any] | None = None,
        id_bytes: bytes | None = None,
        flags: int | None = None,
        rp_id: str | None = None,
        attestation: Literal["none", "self", "tpm"] = "none",
        **client_data: Any,
    ) -> dict[str, Any]:
        """`navigator.credentials.create({publicKey})` as JSON; the keyword arguments spoil it."""
        key = new_key(algorithm)
        made = Credential(
            id_bytes or os.urandom(32), key, algorithm, rp_id or options["rp"]["id"], octets(options["user"]["id"]), 0
        )
        self.credentials.append(made)
        public = cbor2.dumps(cose if cose is not None else public_cose(key))
        attested = bytes(16) + struct.pack(">H", len(made.id)) + made.id + public
        seen = (self.flags if flags is None else flags) | ATTESTED
        data = self._authenticator_data(made, seen) + attested
        told = self._client_data("webauthn.create", options["challenge"], client_data)
        statement: dict[str, Any] = {}
        if attestation == "self":
            statement = {"alg": algorithm, "sig": sign(key, data + hashlib.sha256(told).digest())}
        words = {"none": "none", "self": "packed", "tpm": "tpm"}
        wrapped = cbor2.dumps({"fmt": words[attestation], "attStmt": statement, "authData": data})
        return {
            "id": text(made.id),
            "rawId": text(made.id),
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {"credProps": {"rk": True}},
            "response": {
                "clientDataJSON": text(told),
                "attestationObject": text(wrapped),
                "authenticatorData": text(data),
                "transports": ["internal", "hybrid", "telepathy"],
                "publicKeyAlgorithm": algorithm,
            },
        }

    def get(
        self,
        options: dict[str, Any],
        *,
        credential: Credential | None = None,
        key: Key | None = None,
        counter: int | None = None,
        flags: int | None = None,
        rp_id: str | None = None,
        user_handle: bytes | None = None,
        **client_data: Any,
    ) -> dict[str, Any]:
        """`navigator.credentials.get({publicKey})` as JSON; the keyword arguments spoil it."""
        used = credential or self.credentials[-1]
        if counter is not None:
            used.counter = counter
        elif self.counting:
            used.counter += 1
        seen = self.flags if flags is None else flags
        data = self._authenticator_data(used, seen, rp_id)
        told = self._client_data("webauthn.get", options["challenge"], client_data)
        return {
            "id": text(used.id),
            "rawId": text(used.id),
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": text(told),
                "authenticatorData": text(data),
                "signature": text(sign(key or used.key, data + hashlib.sha256(told).digest())),
                "userHandle": text(user_handle or used.user_handle),
            },
        }

    def _authenticator_data(self, credential: Credential, flags: int, rp_id: str | None = None) -> bytes:
        party = hashlib.sha256((rp_id or credential.rp_id).encode()).digest()
        return party + bytes([flags]) + struct.pack(">I", credential.counter)

    def _client_data(self, kind: str, challenge: str, changed: dict[str, Any]) -> bytes:
        told = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return orjson.dumps(told | changed)


def new_key(algorithm: int) -> Key:
    """A key pair of ES256, EdDSA or RS256."""
    if algorithm == -8:
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm == -257:
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1())


def public_cose(key: Key) -> dict[int, Any]:
    """The public half as COSE_Key (RFC 9053 section 7, RFC 8230 section 4)."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return {1: 1, 3: -8, -1: 6, -2: key.public_key().public_bytes_raw()}
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {1: 3, 3: -257, -1: numbers.n.to_bytes(256, "big"), -2: numbers.e.to_bytes(3, "big")}
    point = key.public_key().public_numbers()
    return {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}


def sign(key: Key, data: bytes) -> bytes:
    """A signature as the key's algorithm has it."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    return key.sign(data, ec.ECDSA(SHA256()))


def octets(value: str) -> bytes:
    """Out of base64url."""
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


def text(value: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
