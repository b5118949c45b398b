"""Codes of authenticator apps (RFC 6238) and recovery codes: their forms, and how fast they may be tried. Pure."""

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
from engine.base.secrets import derived, seal, unseal

ISSUER = "Waybill"
MAX_CODE = 32  # characters, with what people put between the digits
STEP_S = 30  # RFC 6238 section 5.2
DRIFT = 1  # steps to either side: a phone's clock, and the time that typing takes
SECRET_BYTES = 20  # RFC 4226 section 4, R6
RECOVERY_CODES = 10
_RECOVERY_LENGTH = 12  # of base32: 60 bits, far beyond the tries there are
_LOOKALIKES = str.maketrans({"o": "0", "i": "1", "l": "1"})
_BETWEEN = str.maketrans("", "", " -\t\r\n\u00a0")
_TOTP = re.compile(r"[0-9]{6}", re.ASCII)
_RECOVERY = re.compile(rf"[{ALPHABET}]{{{_RECOVERY_LENGTH}}}", re.ASCII)

FREE_TRIES = 5
FIRST_LOCK_S, MAX_LOCK_S = 60, 3600
FORGOTTEN_AFTER = timedelta(hours=24)  # without a wrong code


class Factor(StrEnum):
    """What a code turned out to be; the value goes into a session's method."""

    TOTP = "totp"
    RECOVERY = "recovery"


class Tries(Struct, frozen=True):
    """Wrong codes in a row from one place."""

    failed: int
    failed_at: datetime
    locked_until: datetime | None


def new_secret() -> bytes:
    """What an authenticator app and we share."""
    return os.urandom(SECRET_BYTES)


def sealed(pepper: str, user: UUID, secret: bytes) -> bytes:
    """The secret as it is stored: of use for this person only."""
    return seal(derived(pepper, "totp"), secret, user.bytes)


def opened(pepper: str, user: UUID, stored: bytes) -> bytes:
    """The secret out of its stored form; raises Unsealable under another pepper."""
    return unseal(derived(pepper, "totp"), stored, user.bytes)


def shown_secret(secret: bytes) -> str:
    """As people type it in where they can't scan: base32 without padding."""
    return base64.b32encode(secret).decode().rstrip("=")


def otpauth_uri(secret: bytes, email: str) -> str:
    """What the QR code holds, in the form that authenticator apps agree on."""
    uri: str = pyotp.TOTP(shown_secret(secret)).provisioning_uri(name=email, issuer_name=ISSUER)
    return uri


def qr_svg(uri: str) -> str:
    """A standalone SVG on white, good in dark pages and as an image of its own. Takes some 10 ms."""
    drawn = io.BytesIO()
    code = segno.make(uri, error="m", micro=False)
    code.save(drawn, kind="svg", scale=4, light="#fff", xmldecl=False, nl=False, svgclass=None, lineclass=None)
    return drawn.getvalue().decode()


def step_of(at: datetime) -> int:
    """The RFC 6238 time step."""
    return int(at.timestamp()) // STEP_S


def matching_step(secret: bytes, code: str, at: datetime) -> int | None:
    """The time step that has this code, of those that are good at `at`; all are computed and compared each time."""
    generator = pyotp.TOTP(shown_secret(secret))
    now = step_of(at)
    found = None
    for step in range(now - DRIFT, now + DRIFT + 1):
        if hmac.compare_digest(generator.generate_otp(step), code):
            found = step
    return found


def read(code: str) -> tuple[Factor, str] | None:
    """Which kind of code a person has typed, and the code itself; None for what can be neither."""
    typed = code.translate(_BETWEEN).lower()
    if _TOTP.fullmatch(typed):
        return Factor.TOTP, typed
    typed = typed.translate(_LOOKALIKES)
    return (Factor.RECOVERY, typed) if _RECOVERY.fullmatch(typed) else None


def new_recovery_codes() -> list[str]:
    """A set in the form that people write down: three groups of four."""
    made = []
    for _ in range(RECOVERY_CODES):
        code = "".join(ALPHABET[byte & 31] for byte in os.urandom(_RECOVERY_LENGTH))
        made.append("-".join(code[start : start + 4] for start in range(0, _RECOVERY_LENGTH, 4)))
    return made


def recovery_digest(pepper: str, user: UUID, code: str) -> bytes:
    """What is stored of a recovery code; `code` as `read` gives it."""
    return hmac.digest(derived(pepper, "recovery codes"), user.bytes + code.encode(), sha256)


def wait_s(tries: Tries | None, at: datetime) -> float:
    """Seconds until the next code is looked at; 0 when it is right away."""
    if tries is None or tries.locked_until is None:
        return 0.0
    return max(0.0, (tries.locked_until - at).total_seconds())


def after_failure(tries: Tries | None, at: datetime) -> Tries:
    """The count with one more wrong code: from the fifth in a row on each doubles the wait, up to an hour.

    So whoever has the password gets 25 codes a day at the most: three of a million are right at any time.
    """
    failed = 1 if tries is None or at - tries.failed_at > FORGOTTEN_AFTER else min(tries.failed + 1, 1_000_000)
    if failed < FREE_TRIES:
        return Tries(failed, at, None)
    lock_s = min(FIRST_LOCK_S * 2 ** min(failed - FREE_TRIES, 10), MAX_LOCK_S)
    return Tries(failed, at, at + timedelta(seconds=lock_s))
