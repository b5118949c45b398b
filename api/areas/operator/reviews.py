"""`/v1/operator/reviews`: the first broadcast of an account to more than 1,000 people waits for the operator."""

from api.areas.operator.operation import CONFLICTS, OPERATORS, actor_of
from api.areas.operator.schemas import ReviewRejection, ReviewsQuery
from api.http.operation import Call, Operation
from api.http.path_ids import cursor_id
from engine.audience.broadcasts import review_admin
from engine.audience.broadcasts.review_admin import BroadcastReview, ReviewedBroadcast, ReviewPage
from engine.base import ids


async def list_reviews(call: Call, query: ReviewsQuery) -> ReviewPage:
    """Return a page of the broadcasts that wait for review."""
    after = cursor_id(ids.Kind.BROADCAST, query.after, "after")
    return await review_admin.waiting(call.services.pool, after=after, limit=query.limit)


async def show(call: Call) -> BroadcastReview:
    """Return a broadcast with its content and the figures of its account."""
    return await review_admin.show(call.services.pool, call.id)


async def approve(call: Call) -> ReviewedBroadcast:
    """Let a broadcast go out."""
    return await review_admin.approve(call.services.pool, call.id, actor=actor_of(call))


async def reject(call: Call, body: ReviewRejection) -> ReviewedBroadcast:
    """Cancel a broadcast with a note for its author."""
    return await review_admin.reject(call.services.pool, call.id, body.note, actor=actor_of(call))


OPERATIONS = (
    Operation(
        "GET",
        "/v1/operator/reviews",
        list_reviews,
        "List the broadcasts that wait for review",
        OPERATORS,
        deadline_s=30.0,
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/operator/reviews/{id}",
        show,
        "Show a broadcast: its content, the figures of its account, the consents of its recipients",
        OPERATORS,
        id_of=ids.Kind.BROADCAST,
    ),
    Operation(
        "POST",
        "/v1/operator/reviews/{id}/approve",
        approve,
        "Let a broadcast go out, now or at its time",
        OPERATORS,
        id_of=ids.Kind.BROADCAST,
        refusals=CONFLICTS,
        note="Its account needs no other review. A 409 if it does not wait for review.",
    ),
    Operation(
        "POST",
        "/v1/operator/reviews/{id}/reject",
        reject,
        "Cancel a broadcast that waits for review",
        OPERATORS,
        id_of=ids.Kind.BROADCAST,
        refusals=CONFLICTS,
        note="Its author reads the note.",
    ),
)
