"""Translate broadcasts between their rows and the requests and replies of the API."""

from typing import Any

import msgspec
from msgspec import UNSET

from api.areas.broadcasts.schemas import (
    BroadcastAttachment,
    BroadcastChange,
    BroadcastItem,
    BroadcastProgress,
    BroadcastRecord,
    BroadcastTestItem,
    BroadcastWithCounts,
    NewBroadcast,
    SkippedRecipients,
)
from api.http.operation import Call
from engine.audience.broadcasts.draft import BroadcastFields
from engine.audience.broadcasts.types import Broadcast, BroadcastCounts, BroadcastSummary
from engine.base import clock, ids
from engine.base.errors import Refusal, invalid
from engine.mail.blocks.types import BlockDocument, document_of
from engine.sending import block_content
from engine.sending.admission import Decision
from engine.sending.emails.types import AttachmentIn

_ATTACHMENTS = msgspec.json.Decoder(list[AttachmentIn])
_REMOVED = msgspec.json.Decoder(list[BroadcastAttachment])
_PLAIN = ("name", "stream", "reply_to", "template", "subject", "html", "text", "attachments", "per_minute")


async def fields_of(call: Call, body: NewBroadcast | BroadcastChange) -> BroadcastFields:
    """Return the fields of a request, with the content that its blocks make; raise the 400 for a malformed id."""
    fields = BroadcastFields(
        sender=body.from_,
        list_id=_id("list", ids.Kind.LIST, body.list),
        segment_id=_id("segment", ids.Kind.SEGMENT, body.segment),
    )
    for name in _PLAIN:
        setattr(fields, name, getattr(body, name))
    if isinstance(body.blocks, BlockDocument):
        block_content.forbid_beside(body.html)
        block_content.forbid_beside(body.template, "template")
        made = await block_content.made(
            call.services.pool, call.account_id, body.blocks, call.settings.public_url, text=body.text or None
        )
        fields.html, fields.text, fields.blocks = made.html, made.text, made.blocks
    elif body.html is not UNSET or body.blocks is None:
        fields.blocks = None
    return fields


def item(row: BroadcastSummary) -> BroadcastItem:
    """Return a broadcast as a list shows it."""
    return BroadcastItem(**_summary(row))


def record(row: Broadcast) -> BroadcastRecord:
    """Return a broadcast with its content."""
    return BroadcastRecord(**_summary(row), **_content(row))


def with_counts(row: Broadcast, counts: BroadcastCounts, recipients: int | None) -> BroadcastWithCounts:
    """Return a broadcast with its content and counts; `recipients` is None if they can't be counted now."""
    progress = BroadcastProgress(
        recipients=recipients,
        waiting=None if recipients is None else recipients - counts.accepted - counts.skipped,
        accepted=counts.accepted,
        skipped=counts.skipped,
        delivered=counts.delivered,
        bounced=counts.bounced,
        complained=counts.complained,
        failed=counts.failed,
        rejected=counts.rejected,
        unsubscribed=counts.unsubscribed,
    )
    skipped = SkippedRecipients(
        counts.suppressed, counts.removed, counts.template_error, counts.unconfirmed, counts.unsubscribed_topic
    )
    return BroadcastWithCounts(**_summary(row), **_content(row), counts=progress, skipped=skipped)


def tested(to: str, decision: Decision) -> BroadcastTestItem:
    """Return the result for one address of a test."""
    if not isinstance(decision, Refusal):
        return BroadcastTestItem(to, decision.id, "queued")
    error = decision.envelope()["error"]
    if decision.retry_after_s is not None:
        error["retryAfter"] = decision.retry_after_s
    return BroadcastTestItem(to, None, "refused", error)


def _summary(row: BroadcastSummary) -> dict[str, Any]:
    return {
        "id": row.public_id,
        "name": row.name,
        "list": None if row.list_id is None else ids.format_id(ids.Kind.LIST, row.list_id),
        "segment": None if row.segment_id is None else ids.format_id(ids.Kind.SEGMENT, row.segment_id),
        "stream": row.stream,
        "from_": row.sender,
        "reply_to": row.reply_to,
        "template": row.template,
        "template_version": row.template_version,
        "subject": row.subject,
        "per_minute": row.per_minute,
        "status": row.status,
        "paused_because": row.paused_because,
        "stopped_because": row.stopped_because,
        "waits_for": row.waits_for,
        "review_note": row.review_note,
        "scheduled_at": clock.iso_or_none(row.scheduled_at),
        "started_at": clock.iso_or_none(row.started_at),
        "finished_at": clock.iso_or_none(row.finished_at),
        "resumes_at": clock.iso_or_none(row.resumes_at),
        "created_at": clock.iso(row.created_at),
        "updated_at": clock.iso(row.updated_at),
    }


def _content(row: Broadcast) -> dict[str, Any]:
    if row.removed_files is not None:
        files = _REMOVED.decode(row.removed_files)
    else:
        files = [] if row.attachments is None else list(map(_attachment, _ATTACHMENTS.decode(row.attachments)))
    blocks = None if row.blocks is None else document_of(row.blocks)
    return {"html": row.html, "text": row.text, "blocks": blocks, "attachments": files}


def _attachment(one: AttachmentIn) -> BroadcastAttachment:
    size = len(one.content) * 3 // 4 - one.content[-2:].count("=")
    return BroadcastAttachment(one.filename, one.content_type, size, one.disposition or "attachment", one.cid)


def _id(field: str, kind: ids.Kind, text: Any) -> Any:
    """Return the id in a field, which may be absent or null."""
    if text is UNSET or text is None:
        return text
    try:
        return ids.parse_id(kind, text)
    except ids.WrongId as error:
        raise invalid(field, f"`{field}` is {text[:100]!r}: {error}.") from None
