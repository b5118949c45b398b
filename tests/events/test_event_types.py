"""Each of the contract's thirteen event types is written, with the properties that the documentation promises."""

from datetime import timedelta

from api.areas.webhooks.event_schemas import DETAILS
from engine.base import clock, ids
from engine.base.events import EventType
from engine.base.settings import Settings
from engine.delivery.holds import HoldKind
from engine.delivery.wait_reasons import QUEUED_CLAUSES, UNTRIED_CLAUSES, QueuedReason, UntriedReason
from engine.sending import postpone, queue_admin
from engine.sending.cancel_schedule import cancel_schedule
from engine.sending.complaint import complain
from tests.harness.accounts import make_account
from tests.harness.schedules import comes_due, release, scheduled, waybill
from tests.harness.sending import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    Process,
    attempt_at,
    member,
    rows_of,
    settler_of,
)  # fmt: skip
from tests.harness.stored_messages import sent

LATER = timedelta(minutes=5)
# The table "Event types" of the contract.
CONTRACT = {
    "accepted", "queued", "attempted", "delivered", "deferred", "bounced", "complained", "failed", "rejected",
    "suppressed", "scheduled", "schedule_canceled", "schedule_failed",
}  # fmt: skip


async def test_each_of_the_thirteen_types_is_written(door: Process, settings: Settings) -> None:
    pool = door.pool
    settler = settler_of(pool, await member(pool))
    complained, bounced, given_up, listed, held, ended = [(await sent(door))[1] for _ in range(6)]

    [row] = await rows_of(pool, complained)
    assert await settler.settle(attempt_at(row, DELIVERED))
    await complain(pool, complained, 0, at=clock.now())
    [row] = await rows_of(pool, bounced)
    assert await settler.settle(attempt_at(row, BOUNCED))
    for again in (clock.now() + LATER, None):
        [row] = await rows_of(pool, given_up)
        assert await settler.settle(attempt_at(row, DEFERRED, next_at=again))
    [row] = await rows_of(pool, listed)
    assert await settler.settle(attempt_at(row, suppressed="bounce"))
    await postpone.postpone(pool, await rows_of(pool, held), clock.now() + LATER, reason=QueuedReason.SITE_PAUSED)
    target = queue_admin.queue_target(HoldKind.MESSAGE, ids.format_id(ids.Kind.MESSAGE, ended))
    assert await queue_admin.bounce(pool, target, reason="asked", hold_known_s=0) == 1

    account = await make_account(pool)
    canceled, refused = await scheduled(door, account), await scheduled(door, account)
    await cancel_schedule(pool, account.id, canceled)
    await pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", account.id)
    await comes_due(pool, refused, ago=timedelta(minutes=1))
    await release(pool, settings)

    written = [
        event
        for message in (complained, bounced, given_up, listed, held, ended, canceled, refused)
        for event in await waybill(pool, message)
    ]
    assert {kind for kind, _ in written} == CONTRACT == {str(kind) for kind in EventType}
    for kind, detail in written:
        described = DETAILS[EventType(kind)]
        assert set(described.always) <= set(detail), kind
        assert set(detail) <= set(described.properties), kind


def test_every_reason_is_documented() -> None:
    assert set(QUEUED_CLAUSES) == set(QueuedReason)
    assert set(UNTRIED_CLAUSES) == set(UntriedReason)
    for kind, clauses in ((EventType.QUEUED, QUEUED_CLAUSES), (EventType.REJECTED, UNTRIED_CLAUSES)):
        described = DETAILS[kind].properties["reason"]["description"]
        assert [value for value in clauses if f"`{value}`" not in described] == []
