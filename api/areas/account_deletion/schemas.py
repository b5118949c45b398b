"""Wire shapes of an account's deletion."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.areas.people.rules import MAX_PASSWORD


class DeletionIn(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """`POST /v1/account/deletion`. `password`: the caller's own; not needed within ten minutes of signing in."""

    password: Annotated[str, Meta(min_length=1, max_length=MAX_PASSWORD)] | None = None


class Deletion(Struct, rename="camel"):
    """Whether the account is going to be erased, and when. Until then it works as before."""

    status: Literal["none", "scheduled", "erasing"]
    requested_at: str | None = None
    scheduled_for: str | None = None
