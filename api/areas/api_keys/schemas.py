"""Wire shapes of API keys. A secret is never among them."""

from typing import Annotated

from msgspec import Meta, Struct


class KeysQuery(Struct, forbid_unknown_fields=True):
    """`GET /v1/api-keys`: newest first, revoked keys included."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the page before")] | None = None


class ApiKey(Struct, rename="camel"):
    """A key as the list shows it. `hint` is the key's first characters, of no use as a credential.

    `lastUsedAt` is null for a key never used, and up to half a minute behind. With `revokedAt` set a key no longer
    authenticates; its record stays.
    """

    id: str
    name: str
    scopes: list[str]
    hint: str
    created_at: str
    last_used_at: str | None
    revoked_at: str | None


class ApiKeyPage(Struct, rename="camel"):
    """Keys, newest first. `nextCursor` is null on the last page."""

    data: list[ApiKey]
    next_cursor: str | None
