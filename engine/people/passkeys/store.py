"""Read and write passkeys and pending challenges."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.people.passkeys import rules
from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)


class PasskeyRow(Struct, frozen=True):
    """A passkey for the list of its person."""

    id: UUID
    credential_id: bytes
    name: str
    transports: list[str]
    backed_up: bool
    created_at: datetime
    last_used_at: datetime | None
    suspected_at: datetime | None


class FoundRow(Struct, frozen=True):
    """A passkey for signing in."""

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
    """Store a challenge that its holder may answer once within its lifetime."""
    await _INSERT_CHALLENGE.execute(connection, rules.digest_of(challenge), holder, at + rules.LIFETIME, at)


async def burn_challenge(connection: Source, challenge: bytes, holder: bytes, at: datetime) -> bool:
    """Consume the challenge; return False if it is unknown, used, expired or another holder's.

    Only one of concurrent requests gets True.
    """
    return bool(await _BURN_CHALLENGE.records(connection, rules.digest_of(challenge), holder, at))
