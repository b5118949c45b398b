"""Wire shapes of what runs over a mailbox."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.areas.people.rules import MAX_EMAIL, MAX_PASSWORD, MIN_PASSWORD
from engine.areas.tokens.rules import MAX_LENGTH

Email = Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
Token = Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH)]
Password = Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)]
NewPassword = Annotated[str, Meta(max_length=MAX_PASSWORD, extra_json_schema={"minLength": MIN_PASSWORD})]


class WithToken(Struct, rename="camel", forbid_unknown_fields=True):
    """The token of a link: what stands behind `#token=` in it."""

    token: Token


class Forgot(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/password/forgot`."""

    email: Email


class Reset(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/password/reset`."""

    token: Token
    password: NewPassword


class ChangePassword(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/password/change`. A person without a password leaves `currentPassword` out and has signed in
    within the last ten minutes."""

    new_password: NewPassword
    current_password: Password | None = None


class ChangeEmail(Struct, rename="camel", forbid_unknown_fields=True):
    """`POST /v1/auth/email/change`. `currentPassword` as for a change of the password."""

    new_email: Email
    current_password: Password | None = None


class Mailed(Struct, rename="camel"):
    """A mail is on its way, where there is anybody to get it."""

    status: Literal["accepted"] = "accepted"
