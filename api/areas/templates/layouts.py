"""Creating, changing and previewing the layouts of templates."""

import asyncio

from msgspec import UNSET

from api.areas.templates.layout_schemas import (
    Layout,
    LayoutIn,
    LayoutListed,
    LayoutPage,
    LayoutPatch,
    LayoutPreviewIn,
)
from api.areas.templates.resources import MAX_TEMPLATE_BYTES, MAX_VALUES_BYTES, declared, preview_of
from api.areas.templates.schemas import Preview
from api.http import if_exists
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import PageQuery
from engine.base import clock
from engine.base.errors import ErrorType, invalid, not_found
from engine.base.slugs import is_slug
from engine.sending.templates import layout_rules, layout_service, layout_store, rules, store
from engine.sending.templates.layout_service import LayoutEdit, OpenedLayout
from engine.sending.templates.types import LayoutContent, TemplateContent


async def list_layouts(call: Call, query: PageQuery) -> LayoutPage:
    """Return a page of the account's layouts, without their bodies."""
    pool = call.services.pool
    if query.before is not None:
        known = is_slug(query.before) and await layout_store.READ_SLUG.first(pool, call.account_id, query.before)
        if not known:
            raise invalid("before", "`before` must be the `nextCursor` of an earlier page.")
    page = await layout_store.page(pool, call.account_id, limit=query.limit, before=query.before)
    data = [
        LayoutListed(
            id=row.slug,
            name=row.name,
            version=row.version,
            templates=row.templates,
            created_at=clock.iso(row.created_at),
            updated_at=clock.iso(row.updated_at),
        )
        for row in page.rows
    ]
    return LayoutPage(data, data[-1].id if page.has_more else None)


async def create_layout(call: Call, body: LayoutIn) -> Layout:
    """Publish version 1 of a new layout."""
    if_exists.check_id(body.if_exists, body.id)
    content = LayoutContent(body.html, body.text, declared(body.variables))

    async def make() -> Layout:
        opened = await layout_service.create(
            call.services.pool, call.account_id, slug=body.id, name=body.name, content=content, actor=call.actor
        )
        return _layout(opened)

    found = Existing(read_layout, change_layout, LayoutPatch, change_limits=LimitedKeys.WHOLE_ACCOUNT)
    return await if_exists.made(call, body, found, make)


async def read_layout(call: Call) -> Layout:
    """Return one layout with its latest version."""
    return _layout(await layout_service.read(call.services.pool, call.account_id, _slug(call)))


async def change_layout(call: Call, body: LayoutPatch) -> Layout:
    """Change the given fields; changed content becomes the next version, also of the templates that use the layout."""
    wanted = LayoutEdit(
        name=body.name,
        html=body.html,
        text=body.text,
        variables=UNSET if body.variables is UNSET else declared(body.variables),
    )
    opened = await layout_service.change(
        call.services.pool, call.account_id, _slug(call), wanted, if_version=body.if_version, actor=call.actor
    )
    return _layout(opened)


async def delete_layout(call: Call) -> None:
    """Delete a layout that no template uses."""
    await layout_service.delete(call.services.pool, call.account_id, _slug(call), actor=call.actor)


async def preview_layout(call: Call, body: LayoutPreviewIn) -> Preview:
    """Check and render a layout that is never stored, around a template or a sample text."""
    layout = LayoutContent(body.html, body.text, declared(body.variables))
    content = await _shown(call, body.template)

    def preview() -> Preview:
        warnings = layout_rules.checked(layout).warnings
        checked = rules.inspected(content, layout)
        version = rules.version_with(checked)
        return preview_of(version, body.values or {}, body.data, warnings=warnings, field="values")

    return await asyncio.to_thread(preview)


async def _shown(call: Call, template: str | None) -> TemplateContent:
    """Return the content that a preview shows in the layout; raise the 400 for an unknown template."""
    if template is None:
        return layout_rules.SAMPLE
    row = await store.load_row(call.services.pool, call.account_id, template, None) if is_slug(template) else None
    if row is None:
        raise invalid("template", f"Your account has no template {template!r}. Name another, or leave `template` out.")
    return rules.content_of(row)


def _slug(call: Call) -> str:
    """Return the layout id of the path; raises 404 for a text that can't be one."""
    slug = call.path["id"]
    if not is_slug(slug):
        raise not_found("layout")
    return slug


def _layout(opened: OpenedLayout) -> Layout:
    content = opened.checked.content
    return Layout(
        id=opened.slug,
        name=opened.name,
        version=opened.version,
        html=content.html,
        text=content.text,
        variables=list(content.variables),
        templates=opened.templates,
        warnings=list(opened.checked.warnings),
        created_at=clock.iso(opened.created_at),
        updated_at=clock.iso(opened.updated_at),
    )


_KEYS = Area("Templates", reads=("templates:read",), writes=("templates:write",), limited_keys=LimitedKeys.FREE)
OPERATIONS = (
    Operation("GET", "/v1/layouts", list_layouts, "List layouts", _KEYS, lagging=True),
    Operation(
        "POST",
        "/v1/layouts",
        create_layout,
        "Create a layout for templates",
        _KEYS,
        max_body_bytes=MAX_TEMPLATE_BYTES,
        success=201,
        also=(200,),
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/layouts/preview",
        preview_layout,
        "Check and render a layout without storing it",
        _KEYS,
        scopes=_KEYS.reads,
        max_body_bytes=MAX_TEMPLATE_BYTES + MAX_VALUES_BYTES,
        refusals=(ErrorType.TEMPLATE_ERROR,),
    ),
    Operation("GET", "/v1/layouts/{id}", read_layout, "Read a layout with its latest version", _KEYS),
    Operation(
        "PATCH",
        "/v1/layouts/{id}",
        change_layout,
        "Change a layout and publish its templates with it",
        _KEYS,
        note="Each template that uses the layout gets its next version in the same step, so sends that name no version "
        "have the new layout at once; versions published before stay as they are.",
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        max_body_bytes=MAX_TEMPLATE_BYTES,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "DELETE",
        "/v1/layouts/{id}",
        delete_layout,
        "Delete a layout that no template uses",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        refusals=(ErrorType.CONFLICT,),
    ),
)
