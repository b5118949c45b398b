"""Read and write accounts."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from engine.base.plans import Caps, Plan, caps_of
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
    agreed_caps: str | None
    created_at: datetime

    @property
    def caps(self) -> Caps:
        """Return the limits of the plan and of the agreement; months and retention are decided elsewhere."""
        return caps_of(self.plan, self.agreed_caps)


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


async def insert(
    connection: Conn, account: UUID, *, name: str, plan: Plan, daily_cap: int | None, monthly_cap: int | None
) -> None:
    """Insert an account with its head and its transactional stream."""
    await INSERT.execute(connection, account, name, plan.value, daily_cap, monthly_cap)
