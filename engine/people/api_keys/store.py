"""Read and write API keys."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)


class ApiKeyRow(Struct, frozen=True):
    """A key with its account, for authentication."""

    id: UUID
    key_id: str
    account_id: UUID
    digest: bytes
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    account_status: str
    plan: str
    agreed_caps: str | None
    domains: list[str] | None
    streams: list[str] | None
    networks: list[str] | None
    allowed_origins: list[str] | None
    agent_recipients: list[str] | None
    agent_approval: str | None


class KeyListRow(Struct):
    """A key of the list."""

    id: UUID
    key_id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    domains: list[str] | None
    streams: list[str] | None
    networks: list[str] | None
    allowed_origins: list[str] | None
    agent_recipients: list[str] | None
    agent_approval: str | None
    replaced_by: UUID | None = None  # the key that a rotation made of it


FIND = _SQL.rows("find_key", ApiKeyRow)
LIST = _SQL.rows("list_keys", KeyListRow)
INSERT = _SQL.command("insert_key")
LIMIT = _SQL.command("limit_key")
PLACES = _SQL.command("places_held")
HOLDER = _SQL.command("holder_of")
REVOKE = _SQL.command("revoke_key")
LOCK = _SQL.rows("lock_key", KeyListRow)
RENAME = _SQL.rows("rename_key", KeyListRow)
REPLACE = _SQL.rows("replace_key", KeyListRow)
LIVE_PREDECESSOR = _SQL.command("live_predecessor")
REDIGEST = _SQL.command("redigest_keys")
TOUCH = _SQL.command("touch_keys")
COUNT_LIVE = _SQL.command("count_live_keys")


async def touch(connection: Source, used: dict[str, datetime]) -> None:
    """Write the last uses of keys."""
    await TOUCH.execute(connection, list(used), list(used.values()))


async def count_live(connection: Conn, account: UUID) -> int:
    """Count the keys that authenticate."""
    return int((await COUNT_LIVE.records(connection, account))[0]["live"])
