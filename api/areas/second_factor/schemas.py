"""Requests and replies of the second factor."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.people.people.rules import MAX_PASSWORD
from engine.people.second_factor.rules import MAX_CODE

Password = Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)]
Code = Annotated[str, Meta(min_length=1, max_length=MAX_CODE)]


class SetUp(Struct, rename="camel", forbid_unknown_fields=True):
    """The caller's password, for `POST /v1/auth/2fa/setup`; needed if the sign-in is older than ten minutes."""

    password: Password | None = None


class Setup(Struct, rename="camel"):
    """A secret for an authenticator app, shown only once: scan `qrSvg` (an SVG image of `otpauthUri`), or type in
    `secret`.

    Codes are not required before `POST /v1/auth/2fa/enable`; another setup replaces this one.
    """

    secret: str
    otpauth_uri: str
    qr_svg: str


class Enable(Struct, rename="camel", forbid_unknown_fields=True):
    """A current code of the app, as proof that it has the secret."""

    code: Code


class Enabled(Struct, rename="camel"):
    """The recovery codes, shown only once; each works once in place of a code.

    Your other sessions have ended; this one gets a new cookie and CSRF token.
    """

    recovery_codes: list[str]
    csrf_token: str


class Confirmed(Struct, rename="camel", forbid_unknown_fields=True):
    """Both factors for a change: the password, if you have one, and a code of the app or a recovery code."""

    code: Code
    password: Password | None = None


class RecoveryCodes(Struct, rename="camel"):
    """The new recovery codes, shown only once; the former ones are invalid."""

    recovery_codes: list[str]


class FactorState(Struct, rename="camel"):
    """The state of the second factor, and the number of recovery codes left."""

    enabled: bool
    enabled_at: str | None
    recovery_codes_left: int
