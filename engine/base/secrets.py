"""Hash and encrypt secrets with keys derived from the pepper (`WAYBILL_KEY_PEPPER`).

The caller passes the pepper. This module stores nothing but the prepared states of the last keys.
"""

import hmac
import os
from functools import lru_cache
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES = 12
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Unsealable(ValueError):  # noqa: N818 - named for what it is about
    """The encrypted bytes were made with another pepper, or were changed."""


def derived(pepper: str, purpose: str) -> bytes:
    """Derive a 32-byte key for one purpose from the pepper (HKDF-SHA-256, RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"waybill {purpose}".encode()).derive(pepper.encode())


def digest(pepper: str, secret: str) -> bytes:
    """Return the HMAC-SHA-256 of an API key's secret, keyed with the pepper."""
    return hmac_sha256(pepper.encode(), secret.encode())


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA-256 (RFC 2104) of a message: for keys that are used again and again.

    Copies a state that has read the key already: 0.8 µs instead of 1.3 µs, without warm caches 1.8 instead of 3.6.
    """
    state = _keyed(key).copy()
    state.update(message)
    return state.digest()


@lru_cache(maxsize=64)
def _keyed(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod=sha256)


def seal(key: bytes, plain: bytes, bound_to: bytes) -> bytes:
    """Encrypt with AES-256-GCM and a random nonce; `unseal` needs the same `bound_to` (associated data)."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound_to)


def unseal(key: bytes, sealed: bytes, bound_to: bytes) -> bytes:
    """Decrypt what `seal` returned. Raises Unsealable."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
    except InvalidTag as error:
        raise Unsealable("sealed under another pepper, or changed since") from error


def random_base62(length: int) -> str:
    """Return random base62 text, every character equally likely; 32 characters hold 190 bits."""
    letters: list[str] = []
    while len(letters) < length:
        letters += [BASE62[byte % 62] for byte in os.urandom(length) if byte < 248]
    return "".join(letters[:length])
