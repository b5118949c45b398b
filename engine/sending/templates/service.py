"""Create, publish and delete templates; each change is one transaction with its event and the cache stamp.

Content is checked and compiled before the account head is locked, because every send of the account waits for that
lock.
"""

import asyncio
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType

from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.events import AccountEvent
from engine.base.plans import Caps
from engine.base.slugs import is_slug, slug_of
from engine.ledger.events import record_event
from engine.ledger.plan_limits import limit_reached, locked_caps
from engine.sending.images import in_mail
from engine.sending.templates import layout_rules, layout_store, rules, store
from engine.sending.templates.types import (
    MAX_LABEL,
    MAX_LAYOUT_USES,
    CheckedContent,
    LayoutContent,
    TemplateContent,
    Variable,
)
from engine.store import caches
from engine.store.concurrency_limiter import ConcurrencyLimiter
from engine.store.database_clock import new_time
from engine.store.queries import Conn

_TRIES = 10  # retries of a change, if another process changed the same template in between
_CHANGES = ConcurrencyLimiter("changes of one template", at_once=64, each=1)
_CHANGES_WAIT_S = 10.0
_COPIED = " (copy)"

Value = TypeVar("Value")


class TemplateEdit(Struct, frozen=True, kw_only=True):
    """The changes of a PATCH; an unset field stays unchanged."""

    name: str | UnsetType | None = UNSET
    subject: str | UnsetType | None = UNSET
    html: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    variables: tuple[Variable, ...] | UnsetType = UNSET
    layout: str | UnsetType | None = UNSET
    blocks: str | UnsetType | None = UNSET


class OpenedTemplate(Struct, frozen=True):
    """A template with the checked content of its latest version, and the version of its layout."""

    slug: str
    name: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    checked: CheckedContent
    layout_version: int | None


async def read(pool: asyncpg.Pool, account: UUID, slug: str) -> OpenedTemplate:
    """Return the template with its latest version; raise the 404 if there is none."""
    row = await store.READ.first(pool, account, slug)
    if row is None:
        raise not_found("template")
    content, layout = rules.content_of(row), rules.layout_of(row)
    if rules.is_large(row):
        found = await asyncio.to_thread(rules.inspected, content, layout)
    else:
        found = rules.inspected(content, layout)
    return OpenedTemplate(row.slug, row.name, row.version, row.created_at, row.updated_at, found, row.layout_version)


async def create(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    slug: str | None,
    name: str | None,
    content: TemplateContent,
    actor: str | None = None,
) -> OpenedTemplate:
    """Create a template with its first version; raise the 409 if the id is taken, the 403 above the plan's limit.

    Without `slug` the id is made from `name`. The id of a deleted template may be reused; its version numbers continue.
    """
    if slug is not None:
        check_new_slug(slug)
    check_name(name)
    checked = await check(content, await layout_named(pool, account, content.layout))
    async with caches.change(pool, "templates", account) as connection:
        caps = await locked_caps(connection, account)
        at = await new_time(connection)
        chosen = await _free_slug(connection, account, slug, name)
        await _check_room(connection, account, caps)
        await in_mail.check_owned(connection, account, content.blocks)
        pinned = await _pinned(connection, account, chosen, content.layout)
        version = await store.insert(connection, account, chosen, name, at)
        await store.insert_version(connection, account, chosen, version, content, pinned, at)
        detail = {"id": chosen, "name": name, "version": version}
        await record_event(connection, account, AccountEvent.TEMPLATE_CREATED, detail, actor=actor)
    return OpenedTemplate(chosen, name, version, at, at, checked, pinned)


async def duplicate(
    pool: asyncpg.Pool, account: UUID, slug: str, *, copy: str | None, name: str | None, actor: str | None = None
) -> OpenedTemplate:
    """Create a template `copy` with the latest content of `slug`; raise what `create` raises.

    Without `name` the copy is named after the original.
    """
    original = await read(pool, account, slug)
    if name is None:
        name = f"{(original.name or slug)[: MAX_LABEL - len(_COPIED)]}{_COPIED}"
    return await create(pool, account, slug=copy, name=name, content=original.checked.content, actor=actor)


async def change(
    pool: asyncpg.Pool,
    account: UUID,
    slug: str,
    wanted: TemplateEdit,
    *,
    if_version: int | None = None,
    actor: str | None = None,
) -> OpenedTemplate:
    """Change the template and return it; publish a new version only if its content differs.

    Raises the 409 if `if_version` is given and is not the latest version.
    """
    if wanted.name is not UNSET:
        check_name(wanted.name)
    async with _CHANGES.of((account, slug), wait_s=_CHANGES_WAIT_S):
        return await _changed_in_turn(pool, account, slug, wanted, if_version, actor)


async def _changed_in_turn(
    pool: asyncpg.Pool, account: UUID, slug: str, wanted: TemplateEdit, if_version: int | None, actor: str | None
) -> OpenedTemplate:
    """Retry until no other process changes the template between the read and the write."""
    for _ in range(_TRIES):
        before = await read(pool, account, slug)
        if if_version not in {None, before.version}:
            raise Refusal(
                ErrorType.CONFLICT,
                f"The template {slug!r} changed since you read it (now version {before.version}, yours was "
                f"{if_version}). Fetch it and reapply your change.",
                id=slug,
                version=before.version,
            )
        content = _changed(before.checked.content, wanted)
        name = _or(wanted.name, before.name)
        publishes = content != before.checked.content
        if not publishes and name == before.name:
            return before
        checked = before.checked
        if publishes:
            checked = await check(content, await layout_named(pool, account, content.layout))
        done = await _change(pool, account, before, name, checked, publishes=publishes, actor=actor)
        if done is not None:
            return done
    raise Refusal(
        ErrorType.RATE_LIMITED,
        f"Other requests changed the template {slug!r} at the same time, {_TRIES} times in a row. Send changes of "
        "one template one at a time.",
        retry_after_s=1,
    )


async def delete(pool: asyncpg.Pool, account: UUID, slug: str, *, actor: str | None = None) -> None:
    """Delete the template, so that new sends can't use it; raise the 404 if there is none."""
    async with caches.change(pool, "templates", account) as connection:
        await locked_caps(connection, account)
        known = await store.READ_SLUG.first(connection, account, slug)
        if known is None or known.deleted_at is not None:
            raise not_found("template")
        await store.DELETE.execute(connection, account, slug, clock.now())
        detail = {"id": slug, "version": known.version}
        await record_event(connection, account, AccountEvent.TEMPLATE_DELETED, detail, actor=actor)


async def check(content: TemplateContent, layout: LayoutContent | None) -> CheckedContent:
    """Return the result of `rules.checked`; large content is compiled in a thread."""
    if rules.is_large(content):
        return await asyncio.to_thread(rules.checked, content, layout)
    return rules.checked(content, layout)


async def layout_named(pool: asyncpg.Pool, account: UUID, layout: str | None) -> LayoutContent | None:
    """Return the latest version of the layout, None for no name; raise the 400 for an unknown one."""
    if layout is None:
        return None
    row = await layout_store.READ.first(pool, account, layout) if is_slug(layout) else None
    if row is None:
        raise layout_rules.unknown(layout)
    return layout_rules.content_of(row)


def check_new_slug(slug: str) -> None:
    """Raise the 400 for an id that can't be given to a new template or layout."""
    rules.check_slug(slug)
    if not is_slug(slug):
        raise invalid("id", f"`id` is {slug!r}; use lower-case letters and digits in groups joined by single hyphens.")


def check_name(name: str | None) -> None:
    """Raise the 400 for a name with NUL."""
    if name is not None and "\0" in name:
        raise invalid("name", "`name` contains NUL (U+0000). Remove it.")


async def _change(
    pool: asyncpg.Pool,
    account: UUID,
    before: OpenedTemplate,
    name: str | None,
    checked: CheckedContent,
    *,
    publishes: bool,
    actor: str | None,
) -> OpenedTemplate | None:
    """Write the change; return None if the template has changed since it was read."""
    async with pool.acquire() as connection, connection.transaction():
        await locked_caps(connection, account)
        known = await store.READ_SLUG.first(connection, account, before.slug)
        if known is None or known.deleted_at is not None:
            raise not_found("template")
        if (known.version, known.name) != (before.version, before.name):
            return None
        at = clock.now()
        version, pinned = before.version + publishes, before.layout_version
        await store.UPDATE.execute(connection, account, before.slug, name, version, at)
        if publishes:
            await in_mail.check_owned(connection, account, checked.content.blocks)
            pinned = await _pinned(connection, account, before.slug, checked.content.layout)
            await store.insert_version(connection, account, before.slug, version, checked.content, pinned, at)
            detail: dict[str, object] = {"id": before.slug, "version": version}
            if name != before.name:
                detail["name"] = name
            await record_event(connection, account, AccountEvent.TEMPLATE_PUBLISHED, detail, actor=actor)
            await caches.bump(connection, "templates", account)
        else:
            await record_event(
                connection, account, AccountEvent.TEMPLATE_RENAMED, {"id": before.slug, "name": name}, actor=actor
            )
    caches.clear_here("templates", account)
    return OpenedTemplate(before.slug, name, version, before.created_at, at, checked, pinned)


async def _pinned(connection: Conn, account: UUID, slug: str, layout: str | None) -> int | None:
    """Return the version of the layout that a new version of template `slug` stands in: the latest.

    The caller holds the account's head, so that a change of the layout publishes this template too. Raises the 400 for
    a layout that was deleted meanwhile, and for one that MAX_LAYOUT_USES other templates use.
    """
    if layout is None:
        return None
    known = await layout_store.READ_SLUG.first(connection, account, layout)
    if known is None or known.deleted_at is not None:
        raise layout_rules.unknown(layout)
    others = [one for one in await layout_store.users(connection, account, layout) if one != slug]
    if len(others) >= MAX_LAYOUT_USES:
        raise layout_rules.too_many_uses(layout, len(others))
    return known.version


async def _free_slug(connection: Conn, account: UUID, slug: str | None, name: str | None) -> str:
    """Return the wanted id (409 if it is taken), or a new one that was never used, made from the name."""
    if slug is not None:
        known = await store.READ_SLUG.first(connection, account, slug)
        if known is not None and known.deleted_at is None:
            raise Refusal(
                ErrorType.CONFLICT, f"Your account already has a template {slug!r}. Choose another `id`.", id=slug
            )
        return slug
    suggested = None if name is None else slug_of(name)
    if suggested is None or suggested in rules.RESERVED:
        return rules.generated_slug(suggested)
    used = await store.READ_SLUG.first(connection, account, suggested)
    return suggested if used is None else rules.generated_slug(suggested)


async def _check_room(connection: Conn, account: UUID, caps: Caps) -> None:
    limit = caps.templates
    if limit is None:
        return
    used = await store.count(connection, account)
    if used >= limit:
        raise limit_reached("templates", "templates", limit, used)


def _changed(content: TemplateContent, wanted: TemplateEdit) -> TemplateContent:
    """Return the content after a change; HTML that is given without blocks is written by hand from then on."""
    by_hand = wanted.html is not UNSET and wanted.blocks is UNSET
    return TemplateContent(
        _or(wanted.subject, content.subject),
        _or(wanted.html, content.html),
        _or(wanted.text, content.text),
        _or(wanted.variables, content.variables),
        _or(wanted.layout, content.layout),
        None if by_hand else _or(wanted.blocks, content.blocks),
    )


def _or(wanted: Value | UnsetType, known: Value) -> Value:
    return known if wanted is UNSET else wanted
