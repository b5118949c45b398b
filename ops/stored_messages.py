"""Messages of any account, read from the database: `ops messages` and `ops message` with `--account` or `--all`."""

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from api.areas.messages.resources import detail_of, message_of
from engine.base import clock, ids
from engine.base.errors import not_found
from engine.sending.messages import rules, store
from engine.store.queries import Queries

MAX_NAMED = 5  # accounts of one name that an error lists

_SQL = Queries.beside(__file__, "stored_messages.sql")


class AccountIdRow(Struct, frozen=True):
    """The id of an account found by name."""

    id: UUID


class NewestMessageRow(Struct, frozen=True):
    """A line of the list of messages of all accounts."""

    id: UUID
    account_id: UUID
    account: str
    status: str
    sender: str
    subject: str
    delivered_at: datetime | None
    recipients: list[str]


class MessageOwnerRow(Struct, frozen=True):
    """The account that owns a message."""

    account_id: UUID


_ACCOUNTS_NAMED = _SQL.rows("accounts_named", AccountIdRow)
_NEWEST = _SQL.rows("newest_messages", NewestMessageRow)
_OWNER = _SQL.rows("owner_of_message", MessageOwnerRow)


async def find_account(pool: asyncpg.Pool, text: str) -> UUID:
    """Return the account with this id (acc_…) or name; raises ValueError unless exactly one matches."""
    try:
        return ids.parse_id(ids.Kind.ACCOUNT, text)
    except ids.WrongId:
        found = await _ACCOUNTS_NAMED.fetch(pool, text, MAX_NAMED)
    if len(found) == 1:
        return found[0].id
    if not found:
        raise ValueError(f"No account is named {text!r}. `ops account list` shows names and ids.")
    named = ", ".join(ids.format_id(ids.Kind.ACCOUNT, one.id) for one in found)
    raise ValueError(f"Several accounts are named {text!r}. Give the id of one: {named}.")


async def newest(pool: asyncpg.Pool, *, account: str | None, status: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest messages: of one account as its API lists them, or shorter rows of all (`account` None)."""
    if account is None:
        return [_brief(row) for row in await _NEWEST.fetch(pool, status, limit)]
    owner = await find_account(pool, account)
    wanted = rules.filters(
        before=None, status=status, to=None, search=None, domain=None, stream=None, tags=(), metadata=None, since=None,
        until=None,
    )  # fmt: skip
    page = await store.page(pool, owner, wanted, limit=limit)
    return [_owned(owner) | msgspec.to_builtins(message_of(row)) for row in page.rows]


async def opened(pool: asyncpg.Pool, message: str, *, account: str | None) -> dict[str, Any]:
    """Return one message with its waybill as the API shows it; `account` None finds it in any account.

    Raises Refusal (404) or ValueError if there is no such message.
    """
    message_id = ids.parse_id(ids.Kind.MESSAGE, message)
    owner = await _owner(pool, message_id) if account is None else await find_account(pool, account)
    row = None if owner is None else await store.read(pool, owner, message_id)
    if owner is None or row is None:
        raise (not_found("message") if account is not None else ValueError(f"There is no message {message}."))
    mime = await store.body(pool, owner, message_id)
    return _owned(owner) | dict(msgspec.to_builtins(detail_of(row, mime)))


async def _owner(pool: asyncpg.Pool, message: UUID) -> UUID | None:
    row = await _OWNER.first(pool, message)
    return None if row is None else row.account_id


def _brief(row: NewestMessageRow) -> dict[str, Any]:
    return {
        **_owned(row.account_id),
        "account": row.account,
        "id": ids.format_id(ids.Kind.MESSAGE, row.id),
        "status": row.status,
        "from": row.sender,
        "to": row.recipients,
        "subject": row.subject,
        "createdAt": clock.iso(rules.made_at(row.id)),
        "deliveredAt": None if row.delivered_at is None else clock.iso(row.delivered_at),
    }


def _owned(account: UUID) -> dict[str, Any]:
    return {"accountId": ids.format_id(ids.Kind.ACCOUNT, account)}
