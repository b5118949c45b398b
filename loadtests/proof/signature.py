"""Sign a proof with an Ed25519 key (RFC 8032), and verify the signature."""

import hashlib
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from loadtests.proof.record import Proof, Signature, canonical

_CONTEXT: Final = b"waybill proof 1\n"  # so that a signature made for another purpose is none here


def new_key(file: Path) -> str:
    """Write a new private key to `file`, which must not exist, and its public key to `file`.pub; return the
    fingerprint."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(private)
    file.with_name(f"{file.name}.pub").write_bytes(public)
    return fingerprint(key.public_key().public_bytes_raw())


def sign(proof: Proof, key: Ed25519PrivateKey) -> Signature:
    """Return the signature of a proof."""
    public = key.public_key().public_bytes_raw()
    value = key.sign(_CONTEXT + canonical(proof))
    return Signature(public_key=public.hex(), fingerprint=fingerprint(public), value=value.hex())


def is_genuine(proof: Proof, signature: Signature) -> bool:
    """Return True if the signature is that of its public key, and its fingerprint that key's."""
    try:
        public = bytes.fromhex(signature.public_key)
        Ed25519PublicKey.from_public_bytes(public).verify(
            bytes.fromhex(signature.value), _CONTEXT + canonical(proof)
        )  # fmt: skip
    except (InvalidSignature, ValueError):
        return False
    return signature.fingerprint == fingerprint(public)


def fingerprint(public: bytes) -> str:
    """Return the fingerprint of a raw public key."""
    return f"sha256:{hashlib.sha256(public).hexdigest()}"


def read_private(file: Path) -> Ed25519PrivateKey:
    """Read a private key; raises ValueError with a sentence for people, and OSError."""
    try:
        found = forms.load_pem_private_key(file.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} has no private key that can be read without a password.") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise ValueError(f"{file} has no Ed25519 key. Make one with `ops proof new-key`.")  # noqa: TRY004
    return found


def read_public(file: Path) -> str:
    """Return the raw public key of a PEM file in hex; raises ValueError with a sentence for people, and OSError."""
    try:
        found = forms.load_pem_public_key(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} has no public key.") from error
    if not isinstance(found, Ed25519PublicKey):
        raise ValueError(f"{file} has no Ed25519 key.")  # noqa: TRY004
    return found.public_bytes_raw().hex()
