"""What the parts of a sign-in with an identity provider are."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class SignInStep(StrEnum):
    """What was handed out and is expected back."""

    STATE = "state"  # to the provider, which sends the browser back with it
    NONCE = "nonce"  # to the page that shows the provider's one-tap button; comes back inside the id token
    TICKET = "ticket"  # to whoever still has to show a code of the second factor
    APP_CODE = "app_code"  # to an app, which redeems it with its verifier


LIFETIME: dict[SignInStep, timedelta] = {
    SignInStep.STATE: timedelta(minutes=10),
    SignInStep.NONCE: timedelta(minutes=10),
    SignInStep.TICKET: timedelta(minutes=5),
    SignInStep.APP_CODE: timedelta(minutes=2),
}


class Config(Struct, frozen=True):
    """Which provider, and who we are there."""

    issuer: str
    client_id: str
    client_secret: str
    scopes: str


class Tokens(Struct, frozen=True):
    """What the provider gave for a code."""

    id_token: str
    access_token: str | None = None


class Proven(Struct, frozen=True):
    """What the provider vouches for."""

    issuer: str
    subject: str
    email: str | None
    email_verified: bool
    name: str


class PendingSignIn(Struct, frozen=True):
    """A step that was just taken up."""

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
    """What is left to sign in with."""

    password: bool
    passkeys: int
    identities: int

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return self.password or self.passkeys > 0 or self.identities > 0
