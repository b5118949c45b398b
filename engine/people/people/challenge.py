"""Require a proof of work (ALTCHA) for a sign-up, to make bulk sign-ups expensive.

Takes a browser about half a second.
"""

import base64
import json
from datetime import datetime, timedelta
from hashlib import sha256

from altcha import v1 as altcha
from msgspec import Struct

from engine.base.errors import Refusal, invalid
from engine.base.secrets import Pepper, derived

EFFORT = 200_000  # max. hashes; half of them on average
LIFETIME = timedelta(minutes=20)


class AltchaChallenge(Struct, frozen=True):
    """A challenge for the ALTCHA widget (version 1 of its protocol)."""

    algorithm: str
    challenge: str
    maxnumber: int
    salt: str
    signature: str


def make(pepper: Pepper, at: datetime) -> AltchaChallenge:
    """Return a new challenge, valid until `LIFETIME` after `at`."""
    options = altcha.ChallengeOptions("SHA-256", EFFORT, hmac_key=_key(pepper), expires=at + LIFETIME)
    made = altcha.create_challenge(options)
    return AltchaChallenge(made.algorithm, made.challenge, EFFORT, made.salt, made.signature)


def checked(pepper: Pepper, solution: str | None) -> bytes:
    """Return a digest that identifies the solved challenge; raise the 400 for a missing, wrong or late solution."""
    if solution is None:
        raise _unsolved("Solve the challenge of GET /v1/auth/signup/challenge and send it as `challengeToken`.")
    try:
        good = any(altcha.verify_solution(solution, _key(one), check_expires=True)[0] for one in pepper.accepted)
        salt = json.loads(base64.b64decode(solution))["salt"] if good else ""
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # the input is untrusted
        good, salt = False, ""
    if not good:
        raise _unsolved(
            "The solution is wrong or the challenge has expired. Get a new one from GET /v1/auth/signup/challenge."
        )
    return sha256(str(salt).rstrip("&").encode()).digest()


def spent() -> Refusal:
    """Return the refusal of a solution that was used before."""
    return _unsolved("This challenge was already used. Get a new one from GET /v1/auth/signup/challenge.")


def _unsolved(words: str) -> Refusal:
    return invalid("challengeToken", words)


def _key(pepper: Pepper) -> bytes:
    return derived(pepper, "sign-up challenge")
