"""Define the steps and values of a sign-in with an identity provider."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class SignInStep(StrEnum):
    """Name the kinds of values that are handed out and expected back."""

    STATE = "state"  # to the provider, which sends the browser back with it
    NONCE = "nonce"  # to the page that shows the provider's one-tap button; comes back inside the id token
    TICKET = "ticket"  # to a person who still has to enter a second-factor code
    APP_CODE = "app_code"  # to an app, which redeems it with its verifier


LIFETIME: dict[SignInStep, timedelta] = {
    SignInStep.STATE: timedelta(minutes=10),
    SignInStep.NONCE: timedelta(minutes=10),
    SignInStep.TICKET: timedelta(minutes=5),
    SignInStep.APP_CODE: timedelta(minutes=2),
}


class Config(Struct, frozen=True):
    """The provider's issuer and our client credentials."""

    issuer: str
    client_id: str
    client_secret: str
    scopes: str


class Tokens(Struct, frozen=True):
    """The provider's tokens for a code."""

    id_token: str
    access_token: str | None = None


class Proven(Struct, frozen=True):
    """The claims that the provider vouches for."""

    issuer: str
    subject: str
    email: str | None
    email_verified: bool
    name: str


class PendingSignIn(Struct, frozen=True):
    """A sign-in step as stored."""

    id: UUID
    browser: bytes | None = None
    user_id: UUID | None = None
    issuer: str | None = None
    subject: str | None = None
    return_to: str | None = None
    app_redirect: str | None = None
    challenge: str | None = None
    tries: int = 0


class IdentityRow(Struct, frozen=True):
    """A person's identity at an issuer."""

    id: UUID
    user_id: UUID
    issuer: str
    subject: str
    created_at: datetime
    used_at: datetime


class WaysIn(Struct, frozen=True):
    """Count the remaining ways of a person to sign in."""

    password: bool
    passkeys: int
    identities: int

    @property
    def any(self) -> bool:
        """Return True if there is at least one."""
        return self.password or self.passkeys > 0 or self.identities > 0
