"""`/v1/operator/queue`: pending deliveries, holds, and the operator's changes to both."""

from typing import Final

from api.areas.operator.operation import CONFLICTS, OPERATORS, actor_of, line, refusing
from api.areas.operator.schemas import MAX_TARGET, HeldDeliveriesQuery, QueueBounce, QueueHold, QueueQuery, QueueRelease
from api.http.operation import Call, Operation
from engine.base.text import checked_line
from engine.delivery import queue_depths
from engine.delivery.holds import MAX_REASON
from engine.delivery.mx_routes import opened_router
from engine.delivery.queue_depths import HeldDeliveryPage, QueueDepths
from engine.sending.queue_admin import checked_reason, queue_target
from engine.sending.queue_commands import QueueChange, QueueCommands

ROWS_WITHIN_S: Final = 10.0  # for the rows of one request
DEADLINE_S: Final = 60.0  # with the look-ups of up to 1,000 domains, for sites
_REST: Final = "`complete` false: there was no time for all rows; "
_LOGGED: Final = " The account's log, or the platform account's, names the operator."


async def show(call: Call, query: QueueQuery) -> QueueDepths:
    """Return pending deliveries in groups, and the holds in force."""
    async with opened_router(call.settings, call.services.resolver) as router:
        return await queue_depths.depths(call.services.pool, router, by=query.by, limit=query.limit)


async def list_held(call: Call, query: HeldDeliveriesQuery) -> HeldDeliveryPage:
    """Return a page of the deliveries under holds."""
    return await queue_depths.held(call.services.pool, after=query.after, limit=query.limit)


async def suspend(call: Call, body: QueueHold) -> QueueChange:
    """Hold deliveries."""
    target, reason = _target(body), _reason(body)
    return await _commands(call).suspend(body.kind, target, reason=reason, for_s=body.for_seconds)


async def resume(call: Call, body: QueueRelease) -> QueueChange:
    """End a hold and release its deliveries."""
    return await _commands(call).resume(body.kind, _target(body), note=_note(body))


async def flush(call: Call, body: QueueRelease) -> QueueChange:
    """Attempt deliveries now that wait for a later attempt."""
    return await _commands(call).flush(body.kind, _target(body), note=_note(body))


async def bounce(call: Call, body: QueueBounce) -> QueueChange:
    """Fail pending deliveries."""
    return await _commands(call).bounce(body.kind, _target(body), reason=_reason(body))


def _target(body: QueueHold | QueueRelease | QueueBounce) -> str:
    target = checked_line(body.target, "target", MAX_TARGET)
    with refusing("target"):
        queue_target(body.kind, target)
    return target


def _reason(body: QueueHold | QueueBounce) -> str:
    with refusing("reason"):
        return checked_reason(body.reason)


def _note(body: QueueRelease) -> str | None:
    return None if body.note is None else line(body.note, "note", MAX_REASON) or None


def _commands(call: Call) -> QueueCommands:
    services = call.services
    return QueueCommands(services.pool, call.settings, services.resolver, actor_of(call), ROWS_WITHIN_S)


OPERATIONS = (
    Operation(
        "GET",
        "/v1/operator/queue",
        show,
        "Show pending deliveries by domain, site, account or shard, and the holds",
        OPERATORS,
        deadline_s=DEADLINE_S,
        lagging=True,
    ),
    Operation("GET", "/v1/operator/queue/held", list_held, "List the deliveries under holds", OPERATORS, lagging=True),
    Operation(
        "POST",
        "/v1/operator/queue/suspend",
        suspend,
        "Hold deliveries by domain, site, account or message",
        OPERATORS,
        deadline_s=DEADLINE_S,
        note=f"Mail is still accepted. {_REST}each is held when it falls due.{_LOGGED}",
    ),
    Operation(
        "POST",
        "/v1/operator/queue/resume",
        resume,
        "End a hold and release its deliveries, spread over time",
        OPERATORS,
        deadline_s=DEADLINE_S,
        refusals=CONFLICTS,
        note=f"A 409 if there is no hold. {_REST}a worker releases the rest.{_LOGGED}",
    ),
    Operation(
        "POST",
        "/v1/operator/queue/flush",
        flush,
        "Attempt now the deliveries that wait for a later attempt",
        OPERATORS,
        deadline_s=DEADLINE_S,
        note=f"{_REST}repeat the request.{_LOGGED}",
    ),
    Operation(
        "POST",
        "/v1/operator/queue/bounce",
        bounce,
        "Fail pending deliveries; no address is suppressed",
        OPERATORS,
        deadline_s=DEADLINE_S,
        note=f"This can't be undone. {_REST}repeat the request.{_LOGGED}",
    ),
)
