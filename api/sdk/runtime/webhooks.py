"""Verify webhook requests: `event = verify(body, headers, secret)`."""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

from .errors import WebhookVerificationError
from .types import WebhookEvent

__all__ = ["DEFAULT_TOLERANCE_S", "WebhookEvent", "WebhookVerificationError", "verify"]

SIGNATURE_HEADER: Final = "Service-Signature"
PREVIOUS_SIGNATURE_HEADER: Final = "Service-Signature-Previous"  # sent for 24 hours after a rotation
DEFAULT_TOLERANCE_S: Final = 300
MAX_HEADER_CHARS: Final = 4_096


def verify(
    body: bytes | str,
    header: str | Mapping[str, object] | None,
    secret: str | Sequence[str],
    *,
    tolerance: float = DEFAULT_TOLERANCE_S,
    now: float | None = None,
) -> WebhookEvent:
    """Return the event of a webhook request if its signature is valid.

    `body` is the request's body as received, before any parsing. `header` is the value of `Service-Signature`, or all
    headers of the request: then `Service-Signature-Previous` counts too, which the service sends for 24 hours after a
    rotation. `secret` is the endpoint's signing secret, or several of them. `tolerance` is the largest difference of
    the clocks in seconds, in both directions. Raises WebhookVerificationError. Compares in constant time.
    """
    content = _octets(body) if isinstance(body, str) else body
    if not isinstance(content, bytes | bytearray | memoryview):
        raise WebhookVerificationError("malformed_body", f"the body is {type(body).__name__}, not bytes or text")
    content = bytes(content)
    secrets = [secret] if isinstance(secret, str) else list(secret or ())
    if not secrets or not all(secrets):
        raise ValueError("give the signing secret of the endpoint")
    headers = _headers(header)
    if not headers:
        raise WebhookVerificationError("malformed_header", f"the request has no header {SIGNATURE_HEADER}")
    at = time.time() if now is None else now
    failure: WebhookVerificationError | None = None
    for value in headers:
        try:
            _check(content, value, secrets, tolerance, at)
        except WebhookVerificationError as error:
            failure = failure or error
        else:
            return _event(content)
    assert failure is not None
    raise failure


def signed_header(body: bytes, secret: str, *, now: float | None = None) -> str:
    """Return the value of `Service-Signature` for a body, as the service would send it; for tests."""
    at = str(int(time.time() if now is None else now))
    return f"t={at},v1={hmac.digest(_octets(secret), at.encode() + b'.' + body, hashlib.sha256).hex()}"


def _octets(text: str) -> bytes:
    """Encode any text, also with lone surrogates: a signature that does not fit is refused, and nothing raises."""
    return text.encode("utf-8", "surrogatepass")


def _headers(header: str | Mapping[str, object] | None) -> list[str]:
    if isinstance(header, str):
        return [header]
    if header is None:
        return []
    wanted = (SIGNATURE_HEADER.lower(), PREVIOUS_SIGNATURE_HEADER.lower())
    found = {str(name).lower(): value for name, value in header.items() if isinstance(value, str)}
    return [found[name] for name in wanted if name in found]


def _check(content: bytes, header: str, secrets: list[str], tolerance: float, at: float) -> None:
    sent_at, signatures = _parsed(header)
    signed = sent_at.encode() + b"." + content
    expected = [hmac.digest(_octets(one), signed, hashlib.sha256).hex().encode() for one in secrets]
    matches = [hmac.compare_digest(mine, _octets(given)) for mine in expected for given in signatures]
    if not any(matches):
        raise WebhookVerificationError("signature_mismatch", "the signature does not fit the body and the secret")
    age = at - int(sent_at)
    if age > tolerance:
        raise WebhookVerificationError("timestamp_too_old", f"the request was signed {age:.0f} s ago")
    if -age > tolerance:
        raise WebhookVerificationError("timestamp_in_future", f"the request was signed {-age:.0f} s in the future")


def _parsed(header: str) -> tuple[str, list[str]]:
    """Return the time as sent and all `v1` signatures."""
    if len(header) > MAX_HEADER_CHARS:
        raise WebhookVerificationError("malformed_header", "the signature header is too long")
    pairs = [part.strip().partition("=")[::2] for part in header.split(",")]
    times = [value for name, value in pairs if name == "t"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= 12):
        raise WebhookVerificationError("malformed_header", "the signature header has no time `t`")
    found = [value for name, value in pairs if name == "v1"]
    if not found:
        raise WebhookVerificationError("unsupported_version", "the signature header has no signature `v1`")
    return times[0], found


def _event(content: bytes) -> WebhookEvent:
    try:
        event: WebhookEvent = json.loads(content)
    except ValueError:
        raise WebhookVerificationError("malformed_body", "the body is not JSON") from None
    return event
