"""Wire shapes of the second factor."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.areas.people.rules import MAX_PASSWORD
from engine.areas.second_factor.rules import MAX_CODE

Password = Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)]
Code = Annotated[str, Meta(min_length=1, max_length=MAX_CODE)]


class SetUp(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/2fa/setup`. `password` is asked for when your sign-in is older than ten minutes."""

    password: Password | None = None


class Setup(Struct, rename="camel"):
    """A secret for an authenticator app, shown this once: scan `qrSvg` (an SVG image of `otpauthUri`), or type in
    `secret`. No code is asked for before `POST /v1/auth/2fa/enable`; another setup replaces this one."""

    secret: str
    otpauth_uri: str
    qr_svg: str


class Enable(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/2fa/enable`: a current code of the app, as proof that it has the secret."""

    code: Code


class Enabled(Struct, rename="camel"):
    """The recovery codes, shown this once; each works once in place of a code. Your other sessions have ended, and
    this one goes on under a new cookie and with a new CSRF token."""

    recovery_codes: list[str]
    csrf_token: str


class Confirmed(Struct, rename="camel", forbid_unknown_fields=True):
    """A change that takes both factors: the password, where you have one, and a code of the app or for recovery."""

    code: Code
    password: Password | None = None


class RecoveryCodes(Struct, rename="camel"):
    """A new set, shown this once; the codes of the old one are void."""

    recovery_codes: list[str]


class FactorState(Struct, rename="camel"):
    """Whether signing in with your password takes a code, and how many recovery codes are left."""

    enabled: bool
    enabled_at: str | None
    recovery_codes_left: int
