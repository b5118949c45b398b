"""Derive and check the values of a sign-in with an identity provider, and its redirects. Pure, except for randomness.

Every value is derived from the id of a sign-in step with the pepper, so it can be checked without a query and is stored
in no table.
"""

import base64
import hmac
import re
from collections.abc import Collection
from hashlib import sha256
from urllib.parse import urlsplit
from uuid import UUID

from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.secrets import Pepper, derived, random_base62
from engine.people.identity.types import SignInStep

COOKIE = "svc_idp"  # binds a sign-in to the browser that started it
COOKIE_PATH = "/v1/auth/idp"
COOKIE_S = 900  # longer than the lifetimes of a state and a ticket together
MAX_TRIES = 5  # second-factor codes per ticket
MAX_RETURN = 2_000
MAX_TOKEN = 200


_LENGTH = 43  # of base62: 256 bits
_BROWSER = re.compile(rf"[0-9A-Za-z]{{{_LENGTH}}}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{64}", re.ASCII)  # 16 bytes of id and 32 of its MAC, in base64url
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)  # RFC 7636 4.2: SHA-256 in base64url
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)  # RFC 7636 4.1
# RFC 3986 3.3 and 3.4 without a fragment, which we add ourselves. Excludes white space, which browsers strip, and the
# backslash, which they treat as a slash.
_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*)?", re.ASCII)

# Error codes of providers (RFC 6749 4.1.2.1, OpenID Connect Core 3.1.2.6) that a person can act on.
_KNOWN_ERRORS = frozenset(
    {
        "access_denied", "login_required", "interaction_required", "account_selection_required", "consent_required",
        "temporarily_unavailable",
    }
)  # fmt: skip
OTHER_ERROR = "provider_error"


def new_browser() -> str:
    """Return a new secret for the browser's cookie."""
    return random_base62(_LENGTH)


def browser_digest(secret: str | None) -> bytes | None:
    """Return the stored digest of a browser's secret; None if it does not have the form of one."""
    if secret is None or _BROWSER.fullmatch(secret) is None:
        return None
    return sha256(secret.encode()).digest()


def token_of(pepper: Pepper, step: SignInStep, step_id: UUID) -> str:
    """Return the token for a step: its id with a MAC for this kind of step."""
    return _text(step_id.bytes + _code(pepper, step.value, step_id))


def step_of(pepper: Pepper, step: SignInStep, token: str) -> UUID | None:
    """Return the step id of a token; None if we did not make it for this kind of step."""
    if _TOKEN.fullmatch(token) is None:
        return None
    found = UUID(bytes=base64.urlsafe_b64decode(token)[:16])
    return None if pepper_of(pepper, step, found, token) is None else found


def pepper_of(pepper: Pepper, step: SignInStep, step_id: UUID, token: str) -> Pepper | None:
    """Return the accepted pepper under which the token of a step was made; None if we did not make it."""
    for one in pepper.accepted:
        if hmac.compare_digest(token, token_of(one, step, step_id)):
            return one
    return None


def nonce_of(pepper: Pepper, state: UUID) -> str:
    """Return the nonce sent to the provider with a state."""
    return _text(_code(pepper, "nonce of a state", state))


def verifier_of(pepper: Pepper, state: UUID) -> str:
    """Return the PKCE verifier (RFC 7636) of a state, sent with the code to the provider only."""
    return _text(_code(pepper, "verifier of a state", state))


def s256(verifier: str) -> str:
    """Return the S256 challenge of a verifier (RFC 7636 4.2)."""
    return _text(sha256(verifier.encode("ascii")).digest())


def answers(challenge: str, verifier: str) -> bool:
    """Return True if the verifier matches the app's challenge."""
    return _VERIFIER.fullmatch(verifier) is not None and hmac.compare_digest(s256(verifier), challenge)


def checked_return(path: str | None) -> str | None:
    """Return the path to which the browser goes afterwards; raise the 400 unless it is on this service."""
    if path is None:
        return None
    if len(path) > MAX_RETURN or _PATH.fullmatch(path) is None or "//" in path.partition("?")[0]:
        raise invalid(
            "returnTo", "`returnTo` must be a path on this service, such as /domains?tab=dns, without a host."
        )
    return path


def checked_app(
    redirect: str | None, challenge: str | None, allowed: Collection[str]
) -> tuple[str, str] | tuple[None, None]:
    """Check an app's redirect, which must be configured, and its S256 challenge; both or neither must be given."""
    if redirect is None and challenge is None:
        return None, None
    if redirect is None or redirect not in allowed:
        raise invalid(
            "appRedirect", "`appRedirect` is not allowed. Ask the operator to add it to WAYBILL_IDP_APP_REDIRECTS."
        )
    if challenge is None or _CHALLENGE.fullmatch(challenge) is None:
        raise invalid(
            "verifierChallenge", "`verifierChallenge` must be the SHA-256 of the verifier in base64url, 43 characters."
        )
    return redirect, challenge


def error_code(error: str) -> str:
    """Return a known error code of the provider, else `provider_error`; its text is never shown."""
    return error if error in _KNOWN_ERRORS else OTHER_ERROR


def word_for(refusal: Refusal) -> str:
    """Return the code that a page gets for one of our refusals."""
    if refusal.kind is ErrorType.INVALID_STATE:
        return str(refusal.fields["state"])
    return _WORDS.get(refusal.kind, "refused")


_WORDS = {
    ErrorType.UNAVAILABLE: "unavailable",
    ErrorType.INVALID_ADDRESS: "invalid_address",
    ErrorType.CONFLICT: "other_identity",
    ErrorType.FORBIDDEN: "no_account",
    ErrorType.RATE_LIMITED: "too_many_tries",
    ErrorType.INVALID_REQUEST: "expired",
}


def shown_name(name: str | None, issuer: str) -> str:
    """Return the provider's name for people."""
    return name or urlsplit(issuer).hostname or issuer


def spent(field: str) -> Refusal:
    """Return the refusal for a value that is unknown, forged, used, expired or from another browser."""
    return invalid(field, "This sign-in was already used or has expired. Start it again.")


def refused() -> Refusal:
    """Return the refusal for every invalid token or code of a provider; the log has the reason."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS, "The identity provider's response is invalid. Start the sign-in again."
    )


def _code(pepper: Pepper, purpose: str, step: UUID) -> bytes:
    return hmac.digest(derived(pepper, f"identity {purpose}"), step.bytes, sha256)


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()
