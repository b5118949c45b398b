"""The queries of shard members and shard owners, used by `shards.member`, the rebalancer and `ops shards`.

All times are the database's own, so that the clocks of the hosts do not matter.
"""

from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries

_SQL = Queries.beside(__file__, "lease.sql")


class MemberRow(Struct, frozen=True):
    """A member that has not been removed; `weight` is 1.0 unless the process asked for another."""

    id: UUID
    name: str
    weight: float


class ShardOwnerRow(Struct, frozen=True):
    """A shard with its owner and epoch; `alive` is True while the owner is still a member."""

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
OWNERS = _SQL.rows("owners", ShardOwnerRow)
MAKE = _SQL.command("make_shards")
TAKE = _SQL.command("take_free")
RELEASE = _SQL.command("release")
