"""Wire shapes of signing in."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from api.http.session import AccountShown, PersonShown
from engine.areas.people.rules import MAX_EMAIL, MAX_PASSWORD, MIN_PASSWORD

Email = Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
Password = Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)]


NewPassword = Annotated[
    str,
    Meta(
        max_length=MAX_PASSWORD,
        description="Not easy to guess: zxcvbn's score must be 3 or 4",
        extra_json_schema={"minLength": MIN_PASSWORD},
    ),
]


class SignUp(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/signup`."""

    email: Email
    password: NewPassword
    account_name: Annotated[str, Meta(min_length=1, max_length=120)] | None = None
    challenge_token: Annotated[str, Meta(max_length=4_000)] | None = None


class Challenge(Struct):
    """Find the number from 0 to `maxnumber` for which SHA-256 of `salt` and the number in decimal is `challenge`.

    ALTCHA's widget takes this as it is; send its payload as `challengeToken`, where `required`.
    """

    algorithm: str
    challenge: str
    maxnumber: int
    salt: str
    signature: str
    required: bool


class SignedUp(Struct, rename="camel"):
    """The same for an address that has a person already: only its mailbox learns which. Sign in next."""

    status: Literal["verification_sent"]
    email: str


class LogIn(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/login`. `code`: of the authenticator app or a recovery code, where one is set up.

    The answer sets the cookie `svc_session`: HttpOnly, SameSite=Lax and Secure. Only in local mode, where people reach
    the service by plain http on loopback, `Secure` is left out, because browsers would not send the cookie.
    """

    email: Email
    password: Password
    code: Annotated[str, Meta(min_length=1, max_length=32)] | None = None


class SignInState(Struct, rename="camel"):
    """Whether somebody is signed in; with the session's CSRF token, and the accounts they may switch to."""

    signed_in: bool
    csrf_token: str | None = None
    user: PersonShown | None = None
    account: AccountShown | None = None
    accounts: list[AccountShown] = []


class OneSession(Struct, rename="camel"):
    """A session of the person, on whatever device. `lastUsedAt` is up to a minute behind."""

    id: str
    current: bool
    account_id: str
    account_name: str
    method: str
    ip_address: str
    user_agent: str
    created_at: str
    last_used_at: str
    expires_at: str


class SessionList(Struct):
    """The last used first."""

    data: list[OneSession]


class SwitchAccount(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/switch`: go on at another account of yours."""

    account_id: Annotated[str, Meta(max_length=100)]
