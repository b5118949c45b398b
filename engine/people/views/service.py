"""Save, change and delete views. A person changes their own ones; admins and the owner also those that are shared."""

from datetime import datetime
from uuid import UUID

import asyncpg

from engine.base.errors import ErrorType, Refusal, existing, invalid
from engine.base.roles import Role
from engine.base.text import checked_line, is_line
from engine.people.views import store
from engine.people.views.types import MAX_NAME, MAX_QUERY, MAX_VIEWS, ViewPage, ViewRow
from engine.store.database_clock import new_id

WHAT = "saved view"


async def save(
    pool: asyncpg.Pool, account: UUID, user: UUID, page: ViewPage, name: str, query: str, at: datetime, *, shared: bool
) -> ViewRow:
    """Save a view; raise the 400 for an unusable name or query, the 409 if the person has MAX_VIEWS."""
    name, query = checked_line(name, "name", MAX_NAME), checked_query(query)
    async with pool.acquire() as connection:
        view = await new_id(connection)
        made = await store.INSERT.records(connection, view, account, user, page, name, query, shared, MAX_VIEWS, at)
        if not made:
            raise Refusal(
                ErrorType.CONFLICT, f"You have {MAX_VIEWS} saved views, the most per person. Delete one first."
            )
        return existing(await store.READ.first(connection, account, user, view), WHAT)


async def change(
    pool: asyncpg.Pool, account: UUID, user: UUID, role: Role, view: UUID, at: datetime, *,
    name: str | None, query: str | None, shared: bool | None,
) -> ViewRow:  # fmt: skip
    """Change the values that are not None, and return the view; raise the 404, or the 403 for a view of another."""
    name = None if name is None else checked_line(name, "name", MAX_NAME)
    query = None if query is None else checked_query(query)
    await _changeable(pool, account, user, role, view)
    await store.CHANGE.execute(pool, account, view, name, query, shared, at)
    return existing(await store.READ.first(pool, account, user, view), WHAT)


async def delete(pool: asyncpg.Pool, account: UUID, user: UUID, role: Role, view: UUID) -> None:
    """Delete a view; raise the 404, or the 403 for a view of another."""
    await _changeable(pool, account, user, role, view)
    await store.DELETE.execute(pool, account, view)


def checked_query(query: str) -> str:
    """Return the query of an address without its question mark; raise the 400 for a long one or control characters."""
    text = query.removeprefix("?")
    if len(text) > MAX_QUERY:
        raise invalid("query", f"`query` has {len(text):,} characters; the limit is {MAX_QUERY:,}.")
    if not is_line(text) or "#" in text:
        raise invalid("query", "`query` must be the query of an address: `status=bounced&tag=receipt`.")
    return text


async def _changeable(pool: asyncpg.Pool, account: UUID, user: UUID, role: Role, view: UUID) -> None:
    row = existing(await store.READ.first(pool, account, user, view), WHAT)
    if row.user_id != user and not role.includes(Role.ADMIN):
        raise Refusal(
            ErrorType.FORBIDDEN, f"{row.owner_name} shared this view. Only they, admins and the owner can change it."
        )
