"""Rows of suppressions."""

from uuid import UUID

from msgspec import Struct

from engine.store.queries import Queries, Source

_SQL = Queries.beside(__file__)


class Hit(Struct, frozen=True):
    """An address of a batch that its account must not send to."""

    account_id: UUID
    address: str
    reason: str


FIND = _SQL.rows("find_suppressed", Hit)
ADD = _SQL.command("add_suppressions")


async def find(connection: Source, accounts: list[UUID], addresses: list[str]) -> dict[tuple[UUID, str], str]:
    """Reasons by (account, canonical address) for those of the given pairs that are suppressed."""
    hits = await FIND.fetch(connection, accounts, addresses)
    return {(hit.account_id, hit.address): hit.reason for hit in hits}
