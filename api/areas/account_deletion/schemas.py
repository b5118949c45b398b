"""Requests and replies of deleting an account."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.people.people.rules import MAX_PASSWORD


class DeletionIn(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The caller's password, for `POST /v1/account/deletion`; not needed within ten minutes of signing in."""

    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)] | None = None


class Deletion(Struct, rename="camel"):
    """The state of the account's deletion, and its date. Until then the account works as before."""

    status: Literal["none", "scheduled", "erasing"]
    requested_at: str | None = None
    scheduled_for: str | None = None
