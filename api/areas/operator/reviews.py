"""`/v1/operator/reviews`: the first broadcast of an account to more than 1,000 people waits for the operator."""

from uuid import UUID

from api.areas.operator.operation import CONFLICTS, OPERATORS, actor_of
from api.areas.operator.schemas import ReviewRejection, ReviewsQuery
from api.http.dispatch import cursor_id, path_id
from api.http.operation import Call, Operation
from engine.audience.broadcasts import review_admin
from engine.audience.broadcasts.review_admin import BroadcastReview, ReviewedBroadcast, ReviewPage
from engine.audience.broadcasts.rules import WHAT
from engine.base import ids


async def list_reviews(call: Call, query: ReviewsQuery) -> ReviewPage:
    """Return a page of the broadcasts that wait for review."""
    after = cursor_id(ids.Kind.BROADCAST, query.after)
    return await review_admin.waiting(call.services.pool, after=after, limit=query.limit)


async def show(call: Call) -> BroadcastReview:
    """Return a broadcast with its content and the figures of its account."""
    return await review_admin.show(call.services.pool, _broadcast(call))


async def approve(call: Call) -> ReviewedBroadcast:
    """Let a broadcast go out."""
    return await review_admin.approve(call.services.pool, _broadcast(call), actor=actor_of(call))


async def reject(call: Call, body: ReviewRejection) -> ReviewedBroadcast:
    """Cancel a broadcast with a note for its author."""
    return await review_admin.reject(call.services.pool, _broadcast(call), body.note, actor=actor_of(call))


def _broadcast(call: Call) -> UUID:
    return path_id(ids.Kind.BROADCAST, call.path["id"], WHAT)


OPERATIONS = (
    Operation(
        "GET",
        "/v1/operator/reviews",
        list_reviews,
        "List the broadcasts that wait for review",
        OPERATORS,
        deadline_s=30.0,
    ),
    Operation(
        "GET",
        "/v1/operator/reviews/{id}",
        show,
        "Show a broadcast: its content, the figures of its account, the consents of its recipients",
        OPERATORS,
    ),
    Operation(
        "POST",
        "/v1/operator/reviews/{id}/approve",
        approve,
        "Let a broadcast go out, now or at its time",
        OPERATORS,
        refusals=CONFLICTS,
        note="Its account needs no other review. A 409 if it does not wait for review.",
    ),
    Operation(
        "POST",
        "/v1/operator/reviews/{id}/reject",
        reject,
        "Cancel a broadcast that waits for review",
        OPERATORS,
        refusals=CONFLICTS,
        note="Its author reads the note.",
    ),
)
