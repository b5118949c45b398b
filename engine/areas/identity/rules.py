"""The values that a sign-in hands out and takes back, and where it may lead. Pure.

Everything handed out is derived from a step's id under the pepper: it is checked without a look-up, and no table
holds it.
"""

import base64
import hmac
import re
from collections.abc import Collection
from hashlib import sha256
from urllib.parse import urlsplit
from uuid import UUID

from engine.areas.identity.types import SignInStep
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.secrets import derived, random_base62

COOKIE = "svc_idp"  # binds what is under way to the browser that began it
COOKIE_PATH = "/v1/auth/idp"
COOKIE_S = 900  # over a state's lifetime and a ticket's after it
MAX_TRIES = 5  # codes of the second factor for one ticket
MAX_RETURN = 2_000
MAX_TOKEN = 200


_LENGTH = 43  # of base62: 256 bits
_BROWSER = re.compile(rf"[0-9A-Za-z]{{{_LENGTH}}}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{64}", re.ASCII)  # 16 octets of id and 32 of its code, in base64url
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)  # RFC 7636 4.2: SHA-256 in base64url
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)  # RFC 7636 4.1
# RFC 3986 3.3 and 3.4 without the fragment, which is ours to write: neither white space, which browsers strip, nor the
# backslash, which they take for a slash.
_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*)?", re.ASCII)

# What the provider may have said (RFC 6749 4.1.2.1, OpenID Connect Core 3.1.2.6) that a person can act upon.
_SAID = frozenset(
    {
        "access_denied", "login_required", "interaction_required", "account_selection_required", "consent_required",
        "temporarily_unavailable",
    }
)  # fmt: skip
OTHERWISE = "provider_error"


def new_browser() -> str:
    """A secret for a browser's cookie."""
    return random_base62(_LENGTH)


def browser_digest(secret: str | None) -> bytes | None:
    """What is stored of a browser's secret; None for what can't be one."""
    if secret is None or _BROWSER.fullmatch(secret) is None:
        return None
    return sha256(secret.encode()).digest()


def token_of(pepper: str, step: SignInStep, step_id: UUID) -> str:
    """What is handed out for a step: its id, signed for this kind alone."""
    return _text(step_id.bytes + _code(pepper, step.value, step_id))


def step_of(pepper: str, step: SignInStep, token: str) -> UUID | None:
    """The id of the step that the token was handed out for; None for what we did not make for this kind."""
    if _TOKEN.fullmatch(token) is None:
        return None
    octets = base64.urlsafe_b64decode(token)
    found = UUID(bytes=octets[:16])
    return found if hmac.compare_digest(octets[16:], _code(pepper, step.value, found)) else None


def nonce_of(pepper: str, state: UUID) -> str:
    """The nonce that goes to the provider beside a state."""
    return _text(_code(pepper, "nonce of a state", state))


def verifier_of(pepper: str, state: UUID) -> str:
    """The PKCE verifier (RFC 7636) of a state: shown with the code, to the provider alone."""
    return _text(_code(pepper, "verifier of a state", state))


def s256(verifier: str) -> str:
    """RFC 7636 4.2."""
    return _text(sha256(verifier.encode("ascii")).digest())


def answers(challenge: str, verifier: str) -> bool:
    """Whether an app's verifier is the one that it gave the challenge of."""
    return _VERIFIER.fullmatch(verifier) is not None and hmac.compare_digest(s256(verifier), challenge)


def checked_return(path: str | None) -> str | None:
    """Where on this service the browser goes afterwards; anything that could lead elsewhere is a 400."""
    if path is None:
        return None
    if len(path) > MAX_RETURN or _PATH.fullmatch(path) is None or "//" in path.partition("?")[0]:
        raise invalid("returnTo", "`returnTo` is a path on this service, such as /domains?tab=dns, without a host.")
    return path


def checked_app(
    redirect: str | None, challenge: str | None, allowed: Collection[str]
) -> tuple[str, str] | tuple[None, None]:
    """An app's redirect and the S256 challenge of its verifier: both or neither, and the redirect a known one."""
    if redirect is None and challenge is None:
        return None, None
    if redirect is None or redirect not in allowed:
        raise invalid("appRedirect", "`appRedirect` must be one of those that the operator of this service has set.")
    if challenge is None or _CHALLENGE.fullmatch(challenge) is None:
        raise invalid(
            "verifierChallenge", "`verifierChallenge` is the SHA-256 of the verifier in base64url: 43 characters."
        )
    return redirect, challenge


def said(error: str) -> str:
    """The provider's error as one of a few words; its text is never shown."""
    return error if error in _SAID else OTHERWISE


def word_for(refusal: Refusal) -> str:
    """The word that a page is told about a refusal of ours."""
    return _WORDS.get(refusal.kind, "refused")


_WORDS = {
    ErrorType.UNAVAILABLE: "unavailable",
    ErrorType.EMAIL_UNVERIFIED: "email_unverified",
    ErrorType.INVALID_ADDRESS: "invalid_address",
    ErrorType.CONFLICT: "other_identity",
    ErrorType.INVALID_STATE: "address_unconfirmed",
    ErrorType.FORBIDDEN: "no_account",
    ErrorType.RATE_LIMITED: "too_many_tries",
    ErrorType.INVALID_REQUEST: "expired",
}


def shown_name(name: str | None, issuer: str) -> str:
    """What people know the provider as."""
    return name or urlsplit(issuer).hostname or issuer


def spent(field: str) -> Refusal:
    """The one answer to whatever is unknown, forged, used, another browser's, or too old."""
    return invalid(field, "This sign-in is used up or too old. Begin it again.")


def refused() -> Refusal:
    """The one answer to every token and code of a provider that does not hold; the log says why."""
    return Refusal(
        ErrorType.INVALID_CREDENTIALS, "The identity provider's answer does not hold. Begin the sign-in again."
    )


def _code(pepper: str, purpose: str, step: UUID) -> bytes:
    return hmac.digest(derived(pepper, f"identity {purpose}"), step.bytes, sha256)


def _text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()
