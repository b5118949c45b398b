"""`/v1/notices`: what needs a person, for the bell of the console."""

from collections.abc import Sequence

from api.areas.notices.schemas import NoticeList, NoticeMarks, NoticeRecord
from api.http.operation import Access, Area, Call, Operation
from engine.accounts.notices import service
from engine.accounts.notices.types import MarkedNotice
from engine.base import clock


async def list_notices(call: Call) -> NoticeList:
    """Return the notices that the person has not dismissed."""
    return _list(await service.read(call.services.pool, call.account_id, call.person.user_id, clock.now()))


async def mark(call: Call, body: NoticeMarks) -> NoticeList:
    """Mark notices as seen or dismissed for the person, and return those left."""
    pool, person = call.services.pool, call.person
    return _list(await service.mark(pool, call.account_id, person.user_id, set(body.ids), body.mark, clock.now()))


def _list(found: Sequence[MarkedNotice]) -> NoticeList:
    records = [
        NoticeRecord(
            id=one.notice.id,
            kind=one.notice.kind,
            severity=one.notice.severity,
            message=one.notice.message,
            object_id=one.notice.object_id,
            since=clock.iso_or_none(one.notice.since),
            unread=one.unread,
        )
        for one in found
    ]
    return NoticeList(records, sum(one.unread for one in records))


_PEOPLE = Area("Account", access=Access.SESSION)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/notices",
        list_notices,
        "List what needs a person",
        _PEOPLE,
        note="An extra beyond the contract. Notices are derived from the present state: alerts that fire, webhook "
        "endpoints that fail or are disabled, domains that are no longer verified, broadcasts in review, paused or "
        "stopped in the last 7 days, and limits that are used to 80% or reached. A notice goes when its reason does.",
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/notices/marks",
        mark,
        "Mark notices as seen or dismissed",
        _PEOPLE,
        note="An extra beyond the contract. Marks count for you alone. A dismissed notice comes back when the same "
        "thing happens again.",
    ),
)
