"""Proof of work before a sign-up, in ALTCHA's form: half a second of one browser, dear only in bulk. Pure."""

import base64
import json
from datetime import datetime, timedelta
from hashlib import sha256

from altcha import v1 as altcha
from msgspec import Struct

from engine.base.errors import Refusal, invalid
from engine.base.secrets import derived

EFFORT = 200_000  # hashes at most; half of it on average
LIFETIME = timedelta(minutes=20)


class AltchaChallenge(Struct, frozen=True):
    """What ALTCHA's widget (version 1 of its protocol) takes."""

    algorithm: str
    challenge: str
    maxnumber: int
    salt: str
    signature: str


def make(pepper: str, at: datetime) -> AltchaChallenge:
    """A fresh challenge, good until `LIFETIME` after `at`."""
    options = altcha.ChallengeOptions("SHA-256", EFFORT, hmac_key=_key(pepper), expires=at + LIFETIME)
    made = altcha.create_challenge(options)
    return AltchaChallenge(made.algorithm, made.challenge, EFFORT, made.salt, made.signature)


def checked(pepper: str, solution: str | None) -> bytes:
    """What marks this challenge as spent: a digest of its salt; refuses what solves none of ours, or too late."""
    if solution is None:
        raise _unsolved("Solve the challenge of GET /v1/auth/signup/challenge and send it as `challengeToken`.")
    try:
        good, _ = altcha.verify_solution(solution, _key(pepper), check_expires=True)
        salt = json.loads(base64.b64decode(solution))["salt"] if good else ""
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # what a stranger sent may be anything
        good, salt = False, ""
    if not good:
        raise _unsolved("This challenge is not solved, or too old. Take a fresh one.")
    return sha256(str(salt).rstrip("&").encode()).digest()


def spent() -> Refusal:
    """What a solution hears that has been used."""
    return _unsolved("This challenge is used up. Take a fresh one.")


def _unsolved(words: str) -> Refusal:
    return invalid("challengeToken", words)


def _key(pepper: str) -> bytes:
    return derived(pepper, "sign-up challenge")
