"""Rows of passkeys, and of the challenges that are still to be answered."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.areas.passkeys import rules
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)


class PasskeyRow(Struct, frozen=True):
    """A passkey as its person sees it."""

    id: UUID
    credential_id: bytes
    name: str
    transports: list[str]
    backed_up: bool
    created_at: datetime
    last_used_at: datetime | None
    suspected_at: datetime | None


class FoundRow(Struct, frozen=True):
    """A passkey as signing in needs it."""

    id: UUID
    user_id: UUID
    name: str
    public_key: bytes
    sign_count: int
    backup_eligible: bool
    suspected_at: datetime | None


LIST = _SQL.rows("list_passkeys", PasskeyRow)
FIND = _SQL.rows("find_passkey", FoundRow)
INSERT = _SQL.command("insert_passkey")
USE = _SQL.command("use_passkey")
SUSPECT = _SQL.command("suspect_passkey")
RENAME = _SQL.rows("rename_passkey", PasskeyRow)
DELETE = _SQL.command("delete_passkey")
_INSERT_CHALLENGE = _SQL.command("insert_challenge")
_BURN_CHALLENGE = _SQL.command("burn_challenge")


async def keep_challenge(connection: Source, challenge: bytes, holder: bytes, at: datetime) -> None:
    """The challenge may be answered once by its holder, until its lifetime is over."""
    await _INSERT_CHALLENGE.execute(connection, rules.digest_of(challenge), holder, at + rules.LIFETIME, at)


async def burn_challenge(connection: Source, challenge: bytes, holder: bytes, at: datetime) -> bool:
    """Use the challenge up; False when it is unknown, used, too old, or somebody else's. Of two at once one gets it."""
    return bool(await _BURN_CHALLENGE.records(connection, rules.digest_of(challenge), holder, at))
