"""`/v1/local/clock` and `/v1/local/settle`: move the service time, and wait for what is due; in local mode only."""

from datetime import datetime, timedelta

from api.areas.local_clock.schemas import MAX_WAIT_S, Clock, ClockMove, Settling
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, invalid
from engine.sending.local_clock import rules, service
from engine.sending.local_clock.types import ClockState

DEADLINE_S = MAX_WAIT_S + 10


async def read(call: Call) -> Clock:
    """Return service time and machine time."""
    return _shown(service.state(call.settings))


async def move(call: Call, body: ClockMove) -> Clock:
    """Move the clock, and return when all that fell due has happened."""
    service.shared_clock(call.settings)  # the 404 outside of local mode comes before any other refusal
    wanted = _wanted(body)
    return _shown(await service.advance(call.settings, wanted, within_s=body.timeout_s))


async def settle(call: Call, body: Settling) -> Clock:
    """Return when nothing is due any more at the present service time."""
    return _shown(await service.settle(call.settings, within_s=body.timeout_s))


def _wanted(body: ClockMove) -> datetime | timedelta:
    if (body.advance is None) is (body.to is None):
        raise invalid("advance", "Give either `advance` or `to`.")
    if body.advance is not None:
        if (by := rules.duration(body.advance)) is None:
            raise invalid("advance", f"`advance` is {body.advance!r}; give a duration such as `90s`, `2d` or `1d12h`.")
        return by
    assert body.to is not None
    try:
        return clock.parse_iso(body.to)
    except ValueError as error:
        raise invalid("to", f"`to` is {body.to!r}: {error}.") from None


def _shown(state: ClockState) -> Clock:
    return Clock(clock.iso(state.service_time), clock.iso(state.machine_time), state.ahead_us / 1_000_000)


_KEYS = Area("Local mode", reads=("messages:read",), writes=("emails:send",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation("GET", "/v1/local/clock", read, "Read the clock, in local mode", _KEYS, refusals=(ErrorType.NOT_FOUND,)),
    Operation(
        "POST",
        "/v1/local/clock",
        move,
        "Move the clock forward, in local mode",
        _KEYS,
        note="All that falls due until then happens in its order, as if the time had passed: retries, scheduled "
        "messages, webhook posts, expiries, new days. The response comes when all of it has happened. The "
        "clock is that of the whole instance, and never goes back. A request with `to` may be repeated; "
        "one with `advance` moves again.",
        refusals=(ErrorType.NOT_FOUND, ErrorType.INVALID_STATE),
        deadline_s=DEADLINE_S,
    ),
    Operation(
        "POST",
        "/v1/local/settle",
        settle,
        "Wait until nothing is due, in local mode",
        _KEYS,
        note="Returns when no delivery, webhook post or other work is due at the present time. Then mail that has not "
        "arrived will not arrive until the clock moves.",
        refusals=(ErrorType.NOT_FOUND, ErrorType.INVALID_STATE),
        deadline_s=DEADLINE_S,
    ),
)
