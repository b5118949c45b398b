"""Read and write claimed addresses and the labels of managed receiving domains."""

from uuid import UUID

from engine.receiving.inbound_addresses.types import ClaimableDomain, InboundAddressRow, ReceivingLabel
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_addresses", InboundAddressRow)
READ = _SQL.rows("read_address", InboundAddressRow)
FIND = _SQL.rows("find_addresses", InboundAddressRow)
CLAIMABLE = _SQL.rows("claimable_domain", ClaimableDomain)
INSERT = _SQL.rows("insert_address", InboundAddressRow)
CHANGE = _SQL.rows("change_address", InboundAddressRow)
LABEL_OWNER = _SQL.rows("label_owner", ReceivingLabel)
LABEL_OF = _SQL.rows("label_of", ReceivingLabel)
OPEN_LABEL = _SQL.command("open_label")
_COUNT = _SQL.command("count_addresses")
_UNREAD = _SQL.command("count_unread")
_DELETE = _SQL.command("delete_address")


async def count(connection: Conn, account: UUID) -> int:
    """Count the addresses of an account that its plan counts."""
    return int((await _COUNT.records(connection, account))[0]["used"])


async def unread(source: Source, account: UUID, address: UUID) -> int:
    """Count the unread messages of an address, without spam and mail that only webhooks got."""
    return int((await _UNREAD.records(source, account, address))[0]["unread"])


async def delete(connection: Conn, account: UUID, address: UUID) -> UUID | None:
    """Delete an address with its route; return the id of the route, None without one."""
    rows = await _DELETE.records(connection, account, address)
    return rows[0]["id"] if rows else None
