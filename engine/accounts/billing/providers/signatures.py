"""Sign and verify the events of payment providers: HMAC-SHA-256 over time and raw body. Pure.

The header reads `t=<Unix seconds>,v1=<hex>[,v1=<hex>]`; a signature covers `<t>.<raw body>`. While a secret is being
rotated, the installation knows two, and a provider may send one signature for each.
"""

import hmac
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from engine.accounts.billing.providers.protocol import BadSignature

TOLERANCE_S: Final = 300  # either way: clocks differ, and an old event must not be played back
_MAX_HEADER: Final = 1_000
_MAX_SIGNATURES: Final = 5


def sign(secret: str, body: bytes, at: datetime) -> str:
    """Return the header value for a body sent at `at`."""
    seconds = int(at.timestamp())
    return f"t={seconds},v1={_digest(secret, seconds, body)}"


def verify(secrets: Sequence[str], header: str | None, body: bytes, at: datetime) -> None:
    """Raise BadSignature unless the header holds a signature by one of the secrets, at most TOLERANCE_S from `at`."""
    if header is None:
        raise BadSignature("The event carries no signature.")
    if len(header) > _MAX_HEADER:
        raise BadSignature("The signature header is too long.")
    fields = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in fields if name == "t"]
    given = [value for name, _, value in fields if name == "v1"][:_MAX_SIGNATURES]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= 12):
        raise BadSignature("The signature header has no single time `t`.")
    seconds = int(times[0])
    if not _matches(secrets, given, seconds, body):
        raise BadSignature("No signature matches the body.")
    if abs(at.astimezone(UTC).timestamp() - seconds) > TOLERANCE_S:
        raise BadSignature(f"The signature is more than {TOLERANCE_S} seconds away from the present time.")


def _matches(secrets: Sequence[str], given: Iterable[str], seconds: int, body: bytes) -> bool:
    """Compare every pair in constant time, so that the time tells nothing about which one matched."""
    found = False
    wanted = [_digest(secret, seconds, body) for secret in secrets]
    for one in given:
        for digest in wanted:
            found |= hmac.compare_digest(one.encode(), digest.encode())
    return found


def _digest(secret: str, seconds: int, body: bytes) -> str:
    return hmac.new(secret.encode(), b"%d." % seconds + body, sha256).hexdigest()
