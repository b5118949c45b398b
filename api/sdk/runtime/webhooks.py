"""Verify webhook requests: `event = verify(body, headers, secret)`."""

import base64
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
STANDARD_HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")  # of Standard Webhooks
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
    rotation, and a request without either is verified by the headers of Standard Webhooks. `secret` is the endpoint's
    signing secret, or several of them. `tolerance` is the largest difference of the clocks in seconds, in both
    directions. Raises WebhookVerificationError. Compares in constant time.
    """
    content = _octets(body) if isinstance(body, str) else body
    if not isinstance(content, bytes | bytearray | memoryview):
        raise WebhookVerificationError("malformed_body", f"the body is {type(body).__name__}, not bytes or text")
    content = bytes(content)
    secrets = [secret] if isinstance(secret, str) else list(secret or ())
    if not secrets or not all(secrets):
        raise ValueError("give the signing secret of the endpoint")
    headers = _headers(header)
    standard = {} if headers else _standard_headers(header)
    if not headers and not standard:
        raise WebhookVerificationError("malformed_header", f"the request has no header {SIGNATURE_HEADER}")
    at = time.time() if now is None else now
    if standard:
        _check_standard(content, standard, secrets, tolerance, at)
        return _event(content)
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
    found = _lower(header)
    wanted = (SIGNATURE_HEADER.lower(), PREVIOUS_SIGNATURE_HEADER.lower())
    return [found[name] for name in wanted if name in found]


def _standard_headers(header: str | Mapping[str, object] | None) -> dict[str, str]:
    """Return the headers of Standard Webhooks by name, none of them without a signature."""
    if header is None or isinstance(header, str):
        return {}
    found = _lower(header)
    return {name: found.get(name, "") for name in STANDARD_HEADERS} if STANDARD_HEADERS[2] in found else {}


def _lower(header: Mapping[str, object]) -> dict[str, str]:
    return {str(name).lower(): value for name, value in header.items() if isinstance(value, str)}


def _check(content: bytes, header: str, secrets: list[str], tolerance: float, at: float) -> None:
    sent_at, signatures = _parsed(header)
    signed = sent_at.encode() + b"." + content
    expected = [hmac.digest(_octets(one), signed, hashlib.sha256).hex().encode() for one in secrets]
    matches = [hmac.compare_digest(mine, _octets(given)) for mine in expected for given in signatures]
    if not any(matches):
        raise WebhookVerificationError("signature_mismatch", "the signature does not fit the body and the secret")
    _check_age(int(sent_at), tolerance, at)


def _check_standard(content: bytes, headers: dict[str, str], secrets: list[str], tolerance: float, at: float) -> None:
    public_id, sent_at, value = (headers[name] for name in STANDARD_HEADERS)
    if not public_id or not _is_time(sent_at) or len(value) > MAX_HEADER_CHARS:
        raise WebhookVerificationError("malformed_header", "webhook-id, -timestamp or -signature is missing or wrong")
    found = [part.removeprefix("v1,") for part in value.split(" ") if part.startswith("v1,")]
    if not found:
        raise WebhookVerificationError("unsupported_version", "webhook-signature has no signature `v1`")
    signed = _octets(f"{public_id}.{sent_at}.") + content
    keys = [key for key in map(_key, secrets) if key is not None]
    expected = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    matches = [hmac.compare_digest(mine, _octets(given)) for mine in expected for given in found]
    if not any(matches):
        raise WebhookVerificationError("signature_mismatch", "the signature does not fit the body and the secret")
    _check_age(int(sent_at), tolerance, at)


def _key(secret: str) -> bytes | None:
    """Return the key in a secret, `whsec_` and base64; None if it has another form and so can't fit."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        return None


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _check_age(sent_at: int, tolerance: float, at: float) -> None:
    age = at - sent_at
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
    if len(times) != 1 or not _is_time(times[0]):
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
