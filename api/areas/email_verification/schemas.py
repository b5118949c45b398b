"""Requests and replies of confirming and changing an address, and of passwords."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.people.people.rules import MAX_EMAIL, MAX_PASSWORD, MIN_PASSWORD
from engine.people.tokens.rules import MAX_LENGTH

Email = Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL)]
Token = Annotated[str, Meta(min_length=1, max_length=MAX_LENGTH)]
Password = Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)]
NewPassword = Annotated[str, Meta(max_length=MAX_PASSWORD, extra_json_schema={"minLength": MIN_PASSWORD})]


class WithToken(Struct, rename="camel", forbid_unknown_fields=True):
    """The token of a link in a mail: the part after `#token=`."""

    token: Token


class WithProof(Struct, rename="camel", forbid_unknown_fields=True):
    """The token of a link in a mail (the part after `#token=`), and the password of its person.

    Without the password, and without a session of the person, the address counts as confirmed by the link alone: the
    next reset or sign-in with an identity provider then removes every earlier password, factor, passkey and session.
    """

    token: Token
    password: Password | None = None


class Forgot(Struct, rename="camel", forbid_unknown_fields=True):
    """The address of a person who needs a new password."""

    email: Email


class Reset(Struct, rename="camel", forbid_unknown_fields=True):
    """The token of a link in a mail, and the new password.

    `removeOthers` also removes the passkeys and identities of the person, which a new password does not close.
    """

    token: Token
    password: NewPassword
    remove_others: bool = False


class WayIn(Struct, rename="camel"):
    """A passkey or an identity. `lastUsedAt` is null for a passkey that was never used."""

    name: str
    created_at: str
    last_used_at: str | None


class OtherWaysIn(Struct):
    """The ways to sign in that a new password does not close."""

    passkeys: list[WayIn]
    identities: list[WayIn]


class ChangePassword(Struct, rename="camel", forbid_unknown_fields=True):
    """The new password and the current one.

    A person without a password omits `currentPassword` and must have signed in within the last ten minutes.
    """

    new_password: NewPassword
    current_password: Password | None = None


class ChangeEmail(Struct, rename="camel", forbid_unknown_fields=True):
    """The new address and the current password.

    A person without a password omits `currentPassword` and must have signed in within the last ten minutes.
    """

    new_email: Email
    current_password: Password | None = None


class Mailed(Struct, rename="camel"):
    """A mail was sent if the address belongs to a person."""

    status: Literal["accepted"] = "accepted"
