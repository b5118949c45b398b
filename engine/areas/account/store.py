"""Read and write accounts."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.base.plans import Plan
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)
INSERT = _SQL.command("insert_account")


class AccountRow(Struct):
    id: UUID
    name: str
    plan: str
    status: str
    parent_id: UUID | None
    daily_cap: int | None
    monthly_cap: int | None
    retention_days: int | None
    created_at: datetime


class Used(Struct):
    """Count the resources of an account, by the names that refusals use."""

    api_keys: int
    domains: int
    streams: int
    templates: int
    layouts: int
    webhooks: int
    seats: int
    sub_accounts: int
    scheduled_messages: int
    inbound_addresses: int
    received_messages: int  # this month, of a sub-account and its parent together; as are the last two
    contacts: int
    lists: int
    segments: int
    verifications: int
    address_checks: int


READ = _SQL.rows("read_account", AccountRow)
USED = _SQL.rows("count_used", Used)
RENAME = _SQL.command("rename_account")
AGREE_RETENTION = _SQL.command("agree_retention")


async def insert(
    connection: Conn, account: UUID, *, name: str, plan: Plan, daily_cap: int | None, monthly_cap: int | None
) -> None:
    """Insert an account with its head and its transactional stream."""
    await INSERT.execute(connection, account, name, plan.value, daily_cap, monthly_cap)
