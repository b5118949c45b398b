"""Requests and replies of signing up, in and out, and of sessions."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from api.http.session import AccountShown, PersonShown
from engine.people.people.rules import MAX_EMAIL, MAX_PASSWORD, MIN_PASSWORD
from engine.people.tokens.rules import MAX_LENGTH

ChallengeToken = Annotated[str, Meta(max_length=4_000)]
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
    """A new person with an account, for `POST /v1/auth/signup`."""

    email: Email
    password: NewPassword
    account_name: Annotated[str, Meta(min_length=1, max_length=120)] | None = None
    challenge_token: ChallengeToken | None = None


class Challenge(Struct):
    """A proof of work: find the number from 0 to `maxnumber` for which SHA-256 of `salt` and the number in decimal is
    `challenge`.

    ALTCHA's widget takes this object as it is; send its payload as `challengeToken`, where `required`.
    """

    algorithm: str
    challenge: str
    maxnumber: int
    salt: str
    signature: str
    required: bool


class SignedUp(Struct, rename="camel"):
    """The sign-up was accepted.

    The reply is the same for an address that has a person already; the mail to it tells which. Sign in next.
    """

    status: Literal["verification_sent"]
    email: str


class LogIn(Struct, rename="camel", forbid_unknown_fields=True):
    """The credentials for `POST /v1/auth/login`; `code` is from the authenticator app, or a recovery code, where one is
    set up.

    While many people sign in from networks that are new to them, a 400 about `challengeToken` asks for the solution of
    a challenge (`GET /v1/auth/signup/challenge`).

    The reply sets the cookie `svc_session`: HttpOnly, SameSite=Lax and Secure. `Secure` is omitted only in local mode
    over plain HTTP on loopback, because browsers would not send the cookie.
    """

    email: Email
    password: Password
    code: Annotated[str, Meta(min_length=1, max_length=32)] | None = None
    challenge_token: ChallengeToken | None = None


class FollowLink(Struct, forbid_unknown_fields=True):
    """The token in the fragment of a sign-in link, for `POST /v1/auth/link`; it works once.

    `code` is as for `POST /v1/auth/login`; a missing or wrong one leaves the link valid.
    """

    token: Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH)]
    code: Annotated[str, Meta(min_length=1, max_length=32)] | None = None


class SignInState(Struct, rename="camel"):
    """The sign-in state, with the session's CSRF token and the accounts that the person may switch to.

    `operator`: the person may call the operations under `/v1/operator/`.
    """

    signed_in: bool
    csrf_token: str | None = None
    user: PersonShown | None = None
    account: AccountShown | None = None
    accounts: list[AccountShown] = []
    operator: bool = False


class OneSession(Struct, rename="camel"):
    """A session of the person on some device. `lastUsedAt` is up to a minute old."""

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


class SessionList(Struct, rename="camel"):
    """The person's sessions, newest first. `nextCursor` is null on the last page."""

    data: list[OneSession]
    next_cursor: str | None


class SwitchAccount(Struct, rename="camel", forbid_unknown_fields=True):
    """The account to switch to, for `POST /v1/auth/switch`."""

    account_id: Annotated[str, Meta(max_length=100)]
