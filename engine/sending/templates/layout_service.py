"""Create, publish and delete layouts; each change is one transaction with its event.

A change of a layout's content publishes the next version of every template that uses it, in the same transaction: sends
that name no version use the new layout at once, and a published version of a template never changes.
"""

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType, structs

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.events import AccountEvent
from engine.base.plans import layouts_of
from engine.base.slugs import slug_of
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.sending.templates import layout_rules, layout_store, rules, service
from engine.sending.templates.types import CheckedLayout, LayoutContent, Variable
from engine.store import caches
from engine.store.concurrency_limiter import ConcurrencyLimiter
from engine.store.database_clock import new_time
from engine.store.queries import Conn

_TRIES = 10  # retries of a change, if another process changed the same layout in between
_CHANGES = ConcurrencyLimiter("changes of one layout", at_once=64, each=1)
_CHANGES_WAIT_S = 10.0


class LayoutEdit(Struct, frozen=True, kw_only=True):
    """The changes of a PATCH; an unset field stays unchanged."""

    name: str | UnsetType | None = UNSET
    html: str | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    variables: tuple[Variable, ...] | UnsetType = UNSET


class OpenedLayout(Struct, frozen=True):
    """A layout with the checked content of its latest version, and the ids of the templates that use it."""

    slug: str
    name: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    checked: CheckedLayout
    templates: list[str]


async def read(pool: asyncpg.Pool, account: UUID, slug: str) -> OpenedLayout:
    """Return the layout with its latest version; raise the 404 if there is none."""
    row = await layout_store.READ.first(pool, account, slug)
    if row is None:
        raise not_found("layout")
    content = layout_rules.content_of(row)
    is_large = layout_rules.is_large(row.html, row.text)
    found = await asyncio.to_thread(layout_rules.inspected, content) if is_large else layout_rules.inspected(content)
    templates = await layout_store.users(pool, account, slug)
    return OpenedLayout(row.slug, row.name, row.version, row.created_at, row.updated_at, found, templates)


async def create(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    slug: str | None,
    name: str | None,
    content: LayoutContent,
    actor: str | None = None,
) -> OpenedLayout:
    """Create a layout with its first version; raise the 409 if the id is taken, the 403 above the plan's limit.

    Without `slug` the id is made from `name`. The id of a deleted layout may be reused; its version numbers continue.
    """
    if slug is not None:
        service.check_new_slug(slug)
    service.check_name(name)
    checked = await check(content)
    async with pool.acquire() as connection, connection.transaction():
        caps = await locked_caps(connection, account)
        at = await new_time(connection)
        chosen = await _free_slug(connection, account, slug, name)
        limit, used = layouts_of(caps), await layout_store.count(connection, account)
        if used >= limit:
            raise limit_reached("layouts", "layouts", limit, used)
        version = await layout_store.insert(connection, account, chosen, name, at)
        await layout_store.insert_version(connection, account, chosen, version, content, at)
        detail = {"id": chosen, "name": name, "version": version}
        await record_event(connection, account, AccountEvent.LAYOUT_CREATED, detail, actor=actor)
    return OpenedLayout(chosen, name, version, at, at, checked, [])


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    slug: str,
    wanted: LayoutEdit,
    *,
    if_version: int | None = None,
    actor: str | None = None,
) -> OpenedLayout:
    """Change the layout and return it; publish new versions, also of its templates, only if its content differs.

    Raises the 409 if `if_version` is given and is not the latest version.
    """
    if wanted.name is not UNSET:
        service.check_name(wanted.name)
    async with _CHANGES.of((account, slug), wait_s=_CHANGES_WAIT_S):
        return await _changed_in_turn(pool, account, slug, wanted, if_version, actor)


async def _changed_in_turn(
    pool: asyncpg.Pool, account: UUID, slug: str, wanted: LayoutEdit, if_version: int | None, actor: str | None
) -> OpenedLayout:
    """Retry until no other process changes the layout between the read and the write."""
    given = {field: value for field, value in structs.asdict(wanted).items() if value is not UNSET and field != "name"}
    for _ in range(_TRIES):
        before = await read(pool, account, slug)
        if if_version not in {None, before.version}:
            raise Refusal(
                ErrorType.CONFLICT,
                f"The layout {slug!r} changed since you read it (now version {before.version}, yours was "
                f"{if_version}). Fetch it and reapply your change.",
                id=slug,
                version=before.version,
            )
        content = structs.replace(before.checked.content, **given)
        name = before.name if wanted.name is UNSET else wanted.name
        publishes = content != before.checked.content
        if not publishes and name == before.name:
            return before
        checked = await check(content) if publishes else before.checked
        done = await _change(pool, account, before, name, checked, publishes=publishes, actor=actor)
        if done is not None:
            return done
    raise Refusal(
        ErrorType.RATE_LIMITED,
        f"Other requests changed the layout {slug!r} at the same time, {_TRIES} times in a row. Send changes of one "
        "layout one at a time.",
        retry_after_s=1,
    )


async def delete(pool: asyncpg.Pool, account: UUID, slug: str, *, actor: str | None = None) -> None:
    """Delete the layout; raise the 404 if there is none, the 409 that names the templates that use it."""
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        known = await layout_store.READ_SLUG.first(connection, account, slug)
        if known is None or known.deleted_at is not None:
            raise not_found("layout")
        templates = await layout_store.users(connection, account, slug)
        if templates:
            raise layout_rules.in_use(slug, templates)
        await layout_store.DELETE.execute(connection, account, slug, clock.now())
        detail = {"id": slug, "version": known.version}
        await record_event(connection, account, AccountEvent.LAYOUT_DELETED, detail, actor=actor)


async def check(content: LayoutContent) -> CheckedLayout:
    """Return the result of `layout_rules.checked`; large content is compiled in a thread."""
    if layout_rules.is_large(content.html, content.text):
        return await asyncio.to_thread(layout_rules.checked, content)
    return layout_rules.checked(content)


async def _change(
    pool: asyncpg.Pool,
    account: UUID,
    before: OpenedLayout,
    name: str | None,
    checked: CheckedLayout,
    *,
    publishes: bool,
    actor: str | None,
) -> OpenedLayout | None:
    """Write the change; return None if the layout has changed since it was read."""
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        known = await layout_store.READ_SLUG.first(connection, account, before.slug)
        if known is None or known.deleted_at is not None:
            raise not_found("layout")
        if (known.version, known.name) != (before.version, before.name):
            return None
        at = clock.now()
        version, templates = before.version + publishes, before.templates
        await layout_store.UPDATE.execute(connection, account, before.slug, name, version, at)
        if publishes:
            await layout_store.insert_version(connection, account, before.slug, version, checked.content, at)
            templates = await layout_store.publish_users(connection, account, before.slug, version, at)
            detail: dict[str, Any] = {"id": before.slug, "version": version, "templates": templates}
            if name != before.name:
                detail["name"] = name
            await record_event(connection, account, AccountEvent.LAYOUT_PUBLISHED, detail, actor=actor)
            await caches.bump(connection, "templates", account)
        else:
            detail = {"id": before.slug, "name": name}
            await record_event(connection, account, AccountEvent.LAYOUT_RENAMED, detail, actor=actor)
    caches.clear_here("templates", account)
    return OpenedLayout(before.slug, name, version, before.created_at, at, checked, templates)


async def _free_slug(connection: Conn, account: UUID, slug: str | None, name: str | None) -> str:
    """Return the wanted id (409 if it is taken), or a new one that was never used, made from the name."""
    if slug is not None:
        known = await layout_store.READ_SLUG.first(connection, account, slug)
        if known is not None and known.deleted_at is None:
            raise Refusal(
                ErrorType.CONFLICT, f"Your account already has a layout {slug!r}. Choose another `id`.", id=slug
            )
        return slug
    suggested = None if name is None else slug_of(name)
    if suggested is None or suggested in rules.RESERVED:
        return rules.generated_slug(suggested or "layout")
    used = await layout_store.READ_SLUG.first(connection, account, suggested)
    return suggested if used is None else rules.generated_slug(suggested)
