"""Requests and replies of notices."""

from typing import Annotated

from msgspec import Meta, Struct

from engine.accounts.notices.types import MAX_MARKED, NoticeKind, NoticeMark, NoticeSeverity

NoticeId = Annotated[str, Meta(min_length=1, max_length=120)]


class NoticeRecord(Struct, rename="camel", kw_only=True):
    """Something that needs a person.

    `objectId` names the alert rule, webhook endpoint, domain, broadcast or newest send of an agent; it is null for
    limits. The id changes when the same thing happens again.
    """

    id: str
    kind: NoticeKind
    severity: NoticeSeverity
    message: str
    object_id: str | None
    since: str | None
    unread: bool


class NoticeList(Struct, rename="camel"):
    """The notices that you have not dismissed, the most severe first, and how many of them are unread."""

    data: list[NoticeRecord]
    unread: int


class NoticeMarks(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Notices to mark as seen or dismissed, for you alone."""

    ids: Annotated[list[NoticeId], Meta(min_length=1, max_length=MAX_MARKED)]
    mark: NoticeMark
