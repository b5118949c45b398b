"""Creating and publishing templates, their versions, and previews."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, structs

from api.areas.templates.schemas import (
    BlockSource,
    Preview,
    PreviewIn,
    Template,
    TemplateCopyIn,
    TemplateIn,
    TemplatePage,
    TemplatePatch,
    TemplateRow,
    TemplatesQuery,
    TemplateTestIn,
    TemplateTestItem,
    TemplateTestReply,
    TemplateVersion,
    TemplateVersionPage,
    UnsavedPreviewIn,
    VariableIn,
    VersionsQuery,
)
from api.http import if_exists, item_errors
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, Refusal, invalid, not_found
from engine.base.slugs import is_slug
from engine.mail.blocks.types import BlockDocument, document_of
from engine.sending import block_content, template_test
from engine.sending.admission import Decision
from engine.sending.preparation import Origin
from engine.sending.template_test import TemplateTest
from engine.sending.templates import rules, store
from engine.sending.templates import service as templates_service
from engine.sending.templates.service import OpenedTemplate, TemplateEdit
from engine.sending.templates.types import Notice, TemplateContent, Variable, Version, VersionListRow

# Two texts of a million characters, as common encoders write them: UTF-8, or escapes for other scripts than Latin.
MAX_TEMPLATE_BYTES = 16 * 1024 * 1024
MAX_VALUES_BYTES = 8 * 1024 * 1024  # 200 values of 5,000 characters, encoded the same way


async def list_templates(call: Call, query: TemplatesQuery) -> TemplatePage:
    """Return a page of the account's templates, without their bodies."""
    pool = call.services.pool
    if query.before is not None:
        known = is_slug(query.before) and await store.READ_SLUG.first(pool, call.account_id, query.before)
        if not known:
            raise invalid("before", "`before` must be the `nextCursor` of an earlier page.")
    page = await store.page(pool, call.account_id, limit=query.limit, before=query.before, search=query.search)
    data = [
        TemplateRow(
            id=row.slug,
            name=row.name,
            version=row.version,
            subject=row.subject,
            layout=row.layout,
            created_at=clock.iso(row.created_at),
            updated_at=clock.iso(row.updated_at),
        )
        for row in page.rows
    ]
    return TemplatePage(data, data[-1].id if page.has_more else None)


async def create_template(call: Call, body: TemplateIn) -> Template:
    """Publish version 1 of a new template."""
    if_exists.check_id(body.if_exists, body.id)
    content = await _content(call, body)

    async def make() -> Template:
        opened = await templates_service.create(
            call.services.pool, call.account_id, slug=body.id, name=body.name, content=content, actor=call.actor
        )
        return _template(opened)

    found = Existing(read_template, change_template, TemplatePatch, change_limits=LimitedKeys.WHOLE_ACCOUNT)
    return await if_exists.made(call, body, found, make)


async def read_template(call: Call) -> Template:
    """Return one template with its latest version."""
    return _template(await templates_service.read(call.services.pool, call.account_id, _slug(call)))


async def change_template(call: Call, body: TemplatePatch) -> Template:
    """Change the given fields; changed content becomes the next version."""
    wanted = TemplateEdit(
        name=body.name,
        subject=body.subject,
        html=body.html,
        text=body.text,
        variables=UNSET if body.variables is UNSET else declared(body.variables),
        layout=body.layout,
        blocks=None if body.blocks is None else UNSET,
    )
    if isinstance(body.blocks, BlockDocument):
        block_content.forbid_beside(body.html)
        made = await block_content.made(
            call.services.pool, call.account_id, body.blocks, call.settings.public_url, text=body.text or None
        )
        wanted = structs.replace(wanted, html=made.html, text=made.text, blocks=made.blocks)
    opened = await templates_service.change(
        call.services.pool, call.account_id, _slug(call), wanted, if_version=body.if_version, actor=call.actor
    )
    return _template(opened)


async def duplicate_template(call: Call, body: TemplateCopyIn) -> Template:
    """Publish the latest version of a template as version 1 of a new one."""
    opened = await templates_service.duplicate(
        call.services.pool, call.account_id, _slug(call), copy=body.id, name=body.name, actor=call.actor
    )
    return _template(opened)


async def send_test(call: Call, body: TemplateTestIn) -> TemplateTestReply:
    """Mail a template to people of the team."""
    test = TemplateTest(
        slug=_slug(call),
        version=body.version,
        sender=body.from_,
        to=body.to,
        values=body.variables or {},
        data=body.data,
        stream=body.stream,
    )
    origin = Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)
    decisions = await template_test.send(call.services.pool, call.services.acceptor, test, origin)
    data = [_tested(*one) for one in zip(body.to, decisions, strict=True)]
    item_errors.link(call, data)
    return TemplateTestReply(data)


async def delete_template(call: Call) -> None:
    """Delete a template; messages sent with it keep its name and version."""
    await templates_service.delete(call.services.pool, call.account_id, _slug(call), actor=call.actor)


async def list_versions(call: Call, query: VersionsQuery) -> TemplateVersionPage:
    """Return a page of a template's versions with their content."""
    pool, slug = call.services.pool, _slug(call)
    if not await _exists(call, slug):
        raise not_found("template")
    page = await store.versions(pool, call.account_id, slug, limit=query.limit, below=query.before)
    data = [_version(row) for row in page.rows]
    return TemplateVersionPage(data, str(data[-1].version) if page.has_more else None)


async def preview_template(call: Call, body: PreviewIn) -> Preview:
    """Render a stored version as a send would, without sending."""
    pool, slug = call.services.pool, _slug(call)
    row = await store.load_row(pool, call.account_id, slug, body.version)
    if row is None:
        if not await _exists(call, slug):
            raise not_found("template")
        raise rules.unknown(slug, body.version)
    html = await block_content.shown(pool, call.account_id, row.blocks, row.html, call.settings.public_url)

    def preview() -> Preview:
        checked = rules.inspected(structs.replace(rules.content_of(row), html=html), rules.layout_of(row))
        version = rules.version_with(checked, slug=slug, version=row.version)
        rules.check_sendable(version)
        values = body.variables or {}
        return preview_of(version, values, body.data, warnings=checked.warnings, field="variables")

    return await _run_preview(preview, in_thread=bool(body.data) or rules.is_large(row))


async def preview_unsaved(call: Call, body: UnsavedPreviewIn) -> Preview:
    """Check and render content that is never stored."""
    content = await _content(call, body, for_browser=True)
    layout = await templates_service.layout_named(call.services.pool, call.account_id, content.layout)
    source = None if body.blocks is None else BlockSource(html=content.html or "", text=content.text or "")

    def preview() -> Preview:
        checked = rules.checked(content, layout)
        version = rules.version_with(checked)
        shown = preview_of(version, body.values or {}, body.data, warnings=checked.warnings, field="values")
        return structs.replace(shown, source=source)

    return await _run_preview(preview, in_thread=bool(body.data) or rules.is_large(content))


async def _run_preview(preview: Callable[[], Preview], *, in_thread: bool) -> Preview:
    return await asyncio.to_thread(preview) if in_thread else preview()


def preview_of(
    version: Version,
    values: Mapping[str, str],
    data: Mapping[str, Any] | None,
    *,
    warnings: Sequence[Notice],
    field: str,
) -> Preview:
    """Render a version with the values of the request's `field`; call it outside the event loop if there is `data`."""
    rendered = rules.render_checked(version, values, data, field=field)
    return Preview(
        template=version.slug or None,
        version=version.version or None,
        subject=rendered.subject,
        html=rendered.html,
        text=rendered.text,
        warnings=rules.warnings_with(warnings, data),
    )


def _slug(call: Call) -> str:
    """Return the template id of the path; raises 404 for a text that can't be one."""
    slug = call.path["id"]
    if not is_slug(slug):
        raise not_found("template")
    return slug


async def _exists(call: Call, slug: str) -> bool:
    row = await store.READ_SLUG.first(call.services.pool, call.account_id, slug)
    return row is not None and row.deleted_at is None


def declared(variables: Sequence[VariableIn] | None) -> tuple[Variable, ...]:
    """Return the variables of a request as they are stored."""
    return tuple(one.declared() for one in variables or ())


async def _content(call: Call, body: TemplateIn | UnsavedPreviewIn, *, for_browser: bool = False) -> TemplateContent:
    """Return the content of a request, made of its blocks if it has any."""
    variables = declared(body.variables)
    if body.blocks is None:
        return TemplateContent(body.subject, body.html, body.text, variables, body.layout)
    block_content.forbid_beside(body.html)
    made = await block_content.made(
        call.services.pool,
        call.account_id,
        body.blocks,
        call.settings.public_url,
        text=body.text,
        for_browser=for_browser,
    )
    return TemplateContent(body.subject, made.html, made.text, variables, body.layout, made.blocks)


def _template(opened: OpenedTemplate) -> Template:
    content = opened.checked.content
    return Template(
        id=opened.slug,
        name=opened.name,
        version=opened.version,
        subject=content.subject,
        html=content.html,
        text=content.text,
        variables=list(content.variables),
        layout=content.layout,
        layout_version=opened.layout_version,
        blocks=_document(content.blocks),
        warnings=list(opened.checked.warnings),
        created_at=clock.iso(opened.created_at),
        updated_at=clock.iso(opened.updated_at),
    )


def _document(blocks: str | None) -> BlockDocument | None:
    return None if blocks is None else document_of(blocks)


def _tested(to: str, decision: Decision) -> TemplateTestItem:
    if not isinstance(decision, Refusal):
        return TemplateTestItem(to, decision.id, "queued")
    error = decision.envelope()["error"]
    if decision.retry_after_s is not None:
        error["retryAfter"] = decision.retry_after_s
    return TemplateTestItem(to, None, "refused", error)


def _version(row: VersionListRow) -> TemplateVersion:
    return TemplateVersion(
        version=row.version,
        subject=row.subject,
        html=row.html,
        text=row.text,
        variables=list(rules.variables_of(row.variables)),
        layout=row.layout,
        layout_version=row.layout_version,
        blocks=_document(row.blocks),
        created_at=clock.iso(row.created_at),
    )


_KEYS = Area("Templates", reads=("templates:read",), writes=("templates:write",), limited_keys=LimitedKeys.FREE)
OPERATIONS = (
    Operation("GET", "/v1/templates", list_templates, "List templates", _KEYS, lagging=True),
    Operation(
        "POST",
        "/v1/templates",
        create_template,
        "Create a template and publish its first version",
        _KEYS,
        max_body_bytes=MAX_TEMPLATE_BYTES,
        success=201,
        also=(200,),
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/templates/preview",
        preview_unsaved,
        "Check and render content without storing it",
        _KEYS,
        scopes=_KEYS.reads,
        max_body_bytes=MAX_TEMPLATE_BYTES + MAX_VALUES_BYTES,
        refusals=(ErrorType.TEMPLATE_ERROR,),
    ),
    Operation("GET", "/v1/templates/{id}", read_template, "Read a template with its latest version", _KEYS),
    Operation(
        "PATCH",
        "/v1/templates/{id}",
        change_template,
        "Change a template; changed content is published as the next version",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
        max_body_bytes=MAX_TEMPLATE_BYTES,
        refusals=(ErrorType.CONFLICT,),
    ),
    Operation(
        "DELETE",
        "/v1/templates/{id}",
        delete_template,
        "Delete a template",
        _KEYS,
        limited_keys=LimitedKeys.WHOLE_ACCOUNT,
    ),
    Operation(
        "GET",
        "/v1/templates/{id}/versions",
        list_versions,
        "List a template's versions with their content",
        _KEYS,
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/templates/{id}/preview",
        preview_template,
        "Render a template without sending",
        _KEYS,
        scopes=_KEYS.reads,
        max_body_bytes=MAX_VALUES_BYTES,
        refusals=(ErrorType.TEMPLATE_ERROR,),
    ),
    Operation(
        "POST",
        "/v1/templates/{id}/duplicate",
        duplicate_template,
        "Publish the latest version of a template as a new template",
        _KEYS,
        success=201,
        refusals=(ErrorType.CONFLICT, ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/templates/{id}/test",
        send_test,
        "Mail a template to up to 5 people of the account's team",
        _KEYS,
        note="The subject begins with `[Test]`, and each message counts as a send.",
        limited_keys=LimitedKeys.OWN,
        scopes=("emails:send",),
        success=202,
        max_body_bytes=MAX_VALUES_BYTES,
        refusals=(
            ErrorType.DOMAIN_NOT_VERIFIED,
            ErrorType.INVALID_ADDRESS,
            ErrorType.SUPPRESSED,
            ErrorType.TEMPLATE_ERROR,
            ErrorType.DAILY_LIMIT_REACHED,
            ErrorType.MONTHLY_LIMIT_REACHED,
            ErrorType.PLATFORM_PAUSED,
        ),
    ),
)
