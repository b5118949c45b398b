"""Claimed addresses and inbound routes of any account, read from the database: `ops inbound`."""

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.base import clock, ids
from engine.store.queries import Queries
from ops.stored_messages import find_account

_SQL = Queries.beside(__file__, "inbound.sql")


class NewestAddressRow(Struct, frozen=True):
    """A line of the list of claimed addresses; `receives`: its domain has not moved to another account."""

    id: UUID
    account_id: UUID
    account: str
    address: str
    label: str | None
    enabled: bool
    receives: bool
    created_at: datetime
    last_received_at: datetime | None


class NewestRouteRow(Struct, frozen=True):
    """A line of the list of inbound routes."""

    id: UUID
    account_id: UUID
    account: str
    target: str
    action: str
    webhook_id: UUID | None
    forward_to: str | None
    enabled: bool
    created_at: datetime


_ADDRESSES = _SQL.rows("newest_addresses", NewestAddressRow)
_ROUTES = _SQL.rows("newest_routes", NewestRouteRow)


async def addresses(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest claimed addresses of one account, or of all (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        {
            "id": ids.format_id(ids.Kind.INBOUND_ADDRESS, row.id),
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "address": row.address,
            "label": row.label,
            "enabled": row.enabled,
            "receives": row.receives,
            "createdAt": clock.iso(row.created_at),
            "lastReceivedAt": None if row.last_received_at is None else clock.iso(row.last_received_at),
        }
        for row in await _ADDRESSES.fetch(pool, owner, limit)
    ]


async def routes(pool: asyncpg.Pool, *, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest inbound routes of one account, or of all (`account` None)."""
    owner = None if account is None else await find_account(pool, account)
    return [
        {
            "id": ids.format_id(ids.Kind.INBOUND_ROUTE, row.id),
            "accountId": ids.format_id(ids.Kind.ACCOUNT, row.account_id),
            "account": row.account,
            "target": row.target,
            "action": row.action,
            "webhookId": None if row.webhook_id is None else ids.format_id(ids.Kind.WEBHOOK, row.webhook_id),
            "forwardTo": row.forward_to,
            "enabled": row.enabled,
            "createdAt": clock.iso(row.created_at),
        }
        for row in await _ROUTES.fetch(pool, owner, limit)
    ]
