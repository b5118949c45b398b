"""Read and write unsubscribe links and topic opt-outs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

from engine.areas.unsubscribes.types import TopicOptOut
from engine.base.extra_rows import ExtraRow
from engine.store.queries import Conn, Queries, Source, columns
from engine.store.row_sets import Column, RowSet

# SQL for a statement over broadcast recipients `r` of a broadcast `b`: true for people who opted out of its topic. A
# broadcast without a list has no topic.
IS_OPTED_OUT: Final = (
    "EXISTS (SELECT 1 FROM topic_opt_outs o"
    " WHERE o.account_id = b.account_id AND o.list_id = b.list_id AND o.address = r.address)"
)


class StoredLink(ExtraRow, frozen=True):
    """An unsubscribe link that is stored together with its message; `address` is canonical, `list_id` its topic.

    For a broadcast, `id` is a new UUIDv7; for a single message, `unsubscribe_token.link_of_person`.
    """

    id: UUID
    account_id: UUID
    address: str
    broadcast_id: UUID | None = None
    list_id: UUID | None = None

    @classmethod
    async def write(cls, connection: Any, rows: Sequence[Self]) -> None:
        """Store the links of a batch."""
        await _INSERT.run(connection, _LINK.of(rows))


_LINK: RowSet[StoredLink] = RowSet(
    "link",
    StoredLink,
    Column("id"),
    Column("account_id", repeats=True),
    Column("address"),
    Column("broadcast_id"),
    Column("list_id"),
)

_SQL = Queries.beside(__file__)
_INSERT = _SQL.wide("insert_links", _LINK)
_OPTED_OUT = _SQL.command("opted_out_of_topic")
_PAGE = _SQL.rows("page_topic_opt_outs", TopicOptOut)
_ADD_TOPICS = _SQL.command("add_topic_opt_outs")


async def opted_out(source: Source, account: UUID, topic: UUID, addresses: Sequence[str]) -> set[str]:
    """Return those of the canonical addresses that opted out of the list `topic`."""
    rows = await _OPTED_OUT.records(source, account, topic, list(addresses))
    return {row["address"] for row in rows}


async def topic_opt_outs(
    source: Source, account: UUID, *, after: tuple[UUID, str] = (UUID(int=0), ""), limit: int
) -> list[TopicOptOut]:
    """Return at most `limit` topic opt-outs of an account after (list, address), in this order, for export."""
    return await _PAGE.fetch(source, account, *after, limit)


async def add_topic_opt_outs(
    connection: Conn, account: UUID, wanted: Sequence[tuple[str, UUID]], at: datetime
) -> set[tuple[str, UUID]]:
    """Record opt-outs of (canonical address, list), for import; return those that are new."""
    addresses, topics = columns(list(wanted), 2)
    rows = await _ADD_TOPICS.records(connection, account, addresses, topics, at)
    return {(row["address"], row["list_id"]) for row in rows}
