"""Read and write unsubscribe links and topic opt-outs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

from engine.base.extra_rows import ExtraRow
from engine.base.list_cursors import ListPlace
from engine.sending.unsubscribes.types import TopicOptOut
from engine.store.queries import Conn, Queries, Source
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
        await _INSERT.run(connection, LINK.of(rows))


LINK: Final[RowSet[StoredLink]] = RowSet(
    "link",
    StoredLink,
    Column("id"),
    Column("account_id", repeats=True),
    Column("address"),
    Column("broadcast_id"),
    Column("list_id"),
)

_SQL = Queries.beside(__file__)
LINKS_STORED: Final = _SQL.fragment("links_stored")  # for statements that store more: it requires the row set LINK
_INSERT = _SQL.wide("insert_links", LINK)
_LIST_OPT_OUTS = _SQL.rows("list_topic_opt_outs", TopicOptOut)
_ADD_OPT_OUTS = _SQL.command("add_topic_opt_outs")
_DELETE_OPT_OUT = _SQL.command("delete_topic_opt_out")


async def topic_opt_outs(
    source: Source, account: UUID, topic: UUID, *, before: ListPlace, limit: int
) -> list[TopicOptOut]:
    """Return at most `limit` opt-outs of the list `topic` after the place `before`, newest first."""
    return await _LIST_OPT_OUTS.fetch(source, account, topic, *before, limit)


async def add_topic_opt_outs(
    connection: Conn, account: UUID, topic: UUID, addresses: Sequence[str], at: datetime
) -> set[str]:
    """Record that canonical addresses opted out of the list `topic`; return those that had not before."""
    rows = await _ADD_OPT_OUTS.records(connection, account, topic, list(addresses), at)
    return {row["address"] for row in rows}


async def delete_topic_opt_out(connection: Conn, account: UUID, topic: UUID, address: str) -> bool:
    """Delete the opt-out of a canonical address from the list `topic`; return False if there is none."""
    return bool(await _DELETE_OPT_OUT.records(connection, account, topic, address))
