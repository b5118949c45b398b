"""Create and check codes of authenticator apps (RFC 6238) and recovery codes, and limit tries.

Pure, except for randomness.
"""

import base64
import hmac
import io
import os
import re
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

import pyotp
import segno
from msgspec import Struct

from engine.base.ids import ALPHABET
from engine.base.secrets import DerivedKey, Pepper, derived, seal, unseal

ISSUER = "Waybill"
MAX_CODE = 32  # characters, including separators
STEP_S = 30  # RFC 6238 section 5.2
DRIFT = 1  # steps to either side, for clock differences and typing time
SECRET_BYTES = 20  # RFC 4226 section 4, R6
RECOVERY_CODES = 10
_RECOVERY_LENGTH = 12  # of base32: 60 bits
_LOOKALIKES = str.maketrans({"o": "0", "i": "1", "l": "1"})
_BETWEEN = str.maketrans("", "", " -\t\r\n\u00a0")
_TOTP = re.compile(r"[0-9]{6}", re.ASCII)
_RECOVERY = re.compile(rf"[{ALPHABET}]{{{_RECOVERY_LENGTH}}}", re.ASCII)

FREE_TRIES = 5
FIRST_LOCK_S, MAX_LOCK_S = 60, 3600
FORGOTTEN_AFTER = timedelta(hours=24)  # without a wrong code


class Factor(StrEnum):
    """Name the kind of a code; the value becomes part of a session's method."""

    TOTP = "totp"
    RECOVERY = "recovery"


class Tries(Struct, frozen=True):
    """Count wrong codes in a row from one network place."""

    failed: int
    failed_at: datetime
    locked_until: datetime | None


def new_secret() -> bytes:
    """Return a new secret to share with an authenticator app."""
    return os.urandom(SECRET_BYTES)


def key_of(pepper: Pepper) -> DerivedKey:
    """Derive the key that seals the secrets of authenticator apps."""
    return derived(pepper, "totp")


def sealed(pepper: Pepper, user: UUID, secret: bytes) -> bytes:
    """Encrypt the secret for storage, bound to the person."""
    return seal(key_of(pepper), secret, user.bytes)


def opened(pepper: Pepper, user: UUID, stored: bytes) -> bytes:
    """Decrypt a stored secret; raise Unsealable if the pepper has changed."""
    return unseal(key_of(pepper), stored, user.bytes)


def shown_secret(secret: bytes) -> str:
    """Return the secret in base32 without padding, for typing it in."""
    return base64.b32encode(secret).decode().rstrip("=")


def otpauth_uri(secret: bytes, email: str) -> str:
    """Return the content of the QR code, in the form that authenticator apps expect."""
    uri: str = pyotp.TOTP(shown_secret(secret)).provisioning_uri(name=email, issuer_name=ISSUER)
    return uri


def qr_svg(uri: str) -> str:
    """Return a QR code as a standalone SVG on white background. Takes about 10 ms."""
    drawn = io.BytesIO()
    code = segno.make(uri, error="m", micro=False)
    code.save(drawn, kind="svg", scale=4, light="#fff", xmldecl=False, nl=False, svgclass=None, lineclass=None)
    return drawn.getvalue().decode()


def step_of(at: datetime) -> int:
    """Return the time step of RFC 6238."""
    return int(at.timestamp()) // STEP_S


def matching_step(secret: bytes, code: str, at: datetime) -> int | None:
    """Return the valid time step whose code is `code`, or None; always compares all of them."""
    generator = pyotp.TOTP(shown_secret(secret))
    now = step_of(at)
    found = None
    for step in range(now - DRIFT, now + DRIFT + 1):
        if hmac.compare_digest(generator.generate_otp(step), code):
            found = step
    return found


def read(code: str) -> tuple[Factor, str] | None:
    """Return the kind of a typed code and its normal form; None if it has the form of neither kind."""
    typed = code.translate(_BETWEEN).lower()
    if _TOTP.fullmatch(typed):
        return Factor.TOTP, typed
    typed = typed.translate(_LOOKALIKES)
    return (Factor.RECOVERY, typed) if _RECOVERY.fullmatch(typed) else None


def new_recovery_codes() -> list[str]:
    """Return a set of new codes, each in three groups of four characters."""
    made = []
    for _ in range(RECOVERY_CODES):
        code = "".join(ALPHABET[byte & 31] for byte in os.urandom(_RECOVERY_LENGTH))
        made.append("-".join(code[start : start + 4] for start in range(0, _RECOVERY_LENGTH, 4)))
    return made


def recovery_digest(pepper: Pepper, user: UUID, code: str) -> bytes:
    """Return the stored digest of a recovery code; `code` is as returned by `read`."""
    return hmac.digest(derived(pepper, "recovery codes"), user.bytes + code.encode(), sha256)


def wait_s(tries: Tries | None, at: datetime) -> float:
    """Return the seconds until the next code is accepted, 0 for immediately."""
    if tries is None or tries.locked_until is None:
        return 0.0
    return max(0.0, (tries.locked_until - at).total_seconds())


def after_failure(tries: Tries | None, at: datetime) -> Tries:
    """Return the count after one more wrong code; from the fifth on, each doubles the wait, up to an hour.

    An attacker with the password can try about 25 codes per day; three of a million are valid at any time.
    """
    failed = 1 if tries is None or at - tries.failed_at > FORGOTTEN_AFTER else min(tries.failed + 1, 1_000_000)
    if failed < FREE_TRIES:
        return Tries(failed, at, None)
    lock_s = min(FIRST_LOCK_S * 2 ** min(failed - FREE_TRIES, 10), MAX_LOCK_S)
    return Tries(failed, at, at + timedelta(seconds=lock_s))
