"""The rows behind membership and ownership, in Postgres: where the truth about mail is, the right to send it is too.

Times are the database's own, so the clocks of the hosts do not matter.
"""

from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries

_SQL = Queries.beside(__file__, "lease.sql")


class MemberRow(Struct, frozen=True):
    """A living member."""

    id: UUID
    name: str
    weight: float


class OwnerRow(Struct, frozen=True):
    """A shard's owner; `alive` tells whether that member still exists."""

    shard: int
    owner: UUID | None
    epoch: int
    alive: bool


JOIN = _SQL.command("join_members")
SUPERSEDE = _SQL.command("supersede")
HEARTBEAT = _SQL.command("heartbeat")
LEAVE = _SQL.command("leave_members")
FENCE = _SQL.command("fence_expired")
MEMBERS = _SQL.rows("live_members", MemberRow)
OWNERS = _SQL.rows("owners", OwnerRow)
MAKE = _SQL.command("make_shards")
TAKE = _SQL.command("take_free")
RELEASE = _SQL.command("release")
