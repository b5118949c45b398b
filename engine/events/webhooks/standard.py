"""Sign posts as Standard Webhooks says (https://www.standardwebhooks.com), beside the signature of the contract. Pure.

Both signatures come from one secret, `whsec_` and base64. `Service-Signature` takes all characters of the secret as its
key, this one the decoded octets. Base64 of 24 octets is 32 characters, as many as the base62 of earlier secrets, which
are therefore valid base64 too.
"""

import hmac
import os
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Final

WAYBILL, STANDARD = "waybill", "standard"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
HEADERS: Final = frozenset({ID, TIMESTAMP, SIGNATURE})
SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix, not a secret
SECRET_BYTES: Final = 24  # random octets of a new secret
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64  # of a symmetric key, as the specification says


def new_secret() -> str:
    """Return a new signing secret with 192 random bits."""
    return SECRET_PREFIX + b64encode(os.urandom(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes | None:
    """Return the key in a signing secret; None if the secret has not the form that Standard Webhooks requires."""
    if not secret.startswith(SECRET_PREFIX):
        return None
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:  # binascii.Error, or text that is not ASCII
        return None
    return key if MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES else None


def signature(secrets: tuple[str, ...], content: bytes, *, public_id: str, at_s: int) -> str:
    """Return the value of `webhook-signature`: one HMAC-SHA-256 per secret that has the required form."""
    signed = f"{public_id}.{at_s}.".encode() + content
    keys = [key for key in map(key_of, secrets) if key is not None]
    return " ".join(f"v1,{b64encode(hmac.digest(key, signed, sha256)).decode()}" for key in keys)


def headers(value: str, *, public_id: str, at_s: str) -> dict[str, str]:
    """Return the three headers of Standard Webhooks, with `value` as the signature."""
    return {ID: public_id, TIMESTAMP: at_s, SIGNATURE: value}
