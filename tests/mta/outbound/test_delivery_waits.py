"""Waiting times end to end: with real servers, the causes of each attempt sum to the time between two events."""

from datetime import datetime, timedelta
from uuid import UUID

import orjson
import pytest

from engine.base import clock, ids
from engine.delivery.waits import WaitCause
from engine.sending.messages.waits import AttemptWait, WaitingEvent, attempt_waits
from mta.outbound import requeue
from mta.outbound.sites import fair_queue
from tests.harness.accounts import make_account
from tests.harness.outbound import World
from tests.harness.site_rules import set_rule

TOLERANCE = timedelta(milliseconds=1)
OUTCOMES = ("delivered", "bounced", "deferred", "failed", "rejected", "suppressed")
SLOW_S = 0.1


async def waybill(here: World, message: UUID) -> list[WaitingEvent]:
    rows = await here.pool.fetch(
        "SELECT id, type, occurred_at, payload FROM events WHERE message_id = $1 ORDER BY seq", message
    )
    return [
        WaitingEvent(row["id"], row["type"], row["occurred_at"], orjson.loads(row["payload"])["detail"]) for row in rows
    ]


async def waits_of(here: World, message: UUID) -> list[AttemptWait]:
    """Return the waiting times of a message to one domain, after checking that they divide its whole time."""
    events = await waybill(here, message)
    found = attempt_waits(events)
    ends: list[datetime] = [event.occurred_at for event in events if event.type in OUTCOMES]
    assert [one.until for one in found] == ends
    since = clock.at_milliseconds(ids.milliseconds_of(message))
    for one in found:
        assert abs(one.since - since) <= TOLERANCE, one
        assert sum(one.ms.values()) == (one.until - one.since) // timedelta(milliseconds=1)
        since = one.until
    return found


def total(waits: list[AttemptWait], cause: WaitCause) -> int:
    return sum(one.ms.get(cause, 0) for one in waits)


async def test_a_delivery_answers_for_its_time_from_acceptance_to_its_outcome(here: World) -> None:
    here.sink.script(".", delay_s=SLOW_S)
    await here.mta()
    message = await here.send("ann@peer.test")
    await here.until_idle()

    [one] = await waits_of(here, message)
    assert one.ms[WaitCause.TRANSACTION] >= SLOW_S * 1_000
    assert one.ms[WaitCause.CONNECTION] > 0
    assert one.fair_share == 1.0


async def test_each_attempt_answers_for_the_time_since_the_outcome_before(here: World) -> None:
    await here.mta(retry_ladder_s=(1.0,))
    message = await here.send("defer+1@peer.test")
    await here.until_step(message, "delivered")

    first, second = await waits_of(here, message)
    assert WaitCause.RETRY not in first.ms
    assert second.ms[WaitCause.RETRY] >= 500
    assert second.since == first.until


async def test_servers_that_cannot_be_reached_answer_for_the_time_too(here: World) -> None:
    here.domain("dead.test", here.NOBODY)
    here.dns.set("nothing.test", "MX", ["0 ."])
    await here.mta(retry_ladder_s=(600.0,))
    for address in ("ann@dead.test", "ann@nothing.test"):
        message = await here.send(address)
        await here.until_step(message, "deferred" if "dead" in address else "bounced")
        assert len(await waits_of(here, message)) == 1


async def test_recipients_at_several_domains_have_a_wait_for_each_domain(here: World) -> None:
    here.domain("other.test")
    await here.mta()
    message = await here.send("ann@peer.test", "bob@peer.test", "cid@other.test")
    await here.until_idle()

    waits = attempt_waits(await waybill(here, message))
    assert sorted(str(one.domain) for one in waits) == ["other.test", "peer.test"]


async def test_a_bystander_waits_for_the_flood_of_another_account_and_no_longer_than_its_turn(here: World) -> None:
    """Deficit round robin: at most a quantum of the other account goes between two of its own."""
    await set_rule(here.pool, "peer.test", {"connections": 1}, "a test")
    here.sink.script(".", delay_s=SLOW_S)
    other = await make_account(here.pool)
    flood = await here.send_many(40, lambda n: f"flood{n}@peer.test")
    await here.mta()
    await here.until(lambda: here.sink.count >= 2)
    message = await here.send("ann@peer.test", account=other)
    await here.until_idle()

    [bystander] = await waits_of(here, message)
    assert bystander.ms[WaitCause.OTHER_ACCOUNTS] > 0
    assert total([bystander], WaitCause.OWN_MAIL) <= 1
    assert bystander.fair_share < 1.0
    turn = fair_queue.QUANTUM // fair_queue.FLOOR
    began = [await waits_of(here, one) for one in flood]
    starts = [one.until - timedelta(milliseconds=one.ms[WaitCause.TRANSACTION]) for [one] in began]
    ahead = [start for start in starts if bystander.since < start < bystander.until]
    assert len(ahead) <= turn + 2  # one on the wire, one pipelined behind it
    assert sum(total(one, WaitCause.OWN_MAIL) for one in began) > 1_000


async def test_time_in_memory_is_kept_when_a_delivery_is_put_back(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue, "LATE_S", 0.5)
    monkeypatch.setattr(requeue, "MIN_PARK_S", 0.2)
    monkeypatch.setattr(requeue, "MAX_PARK_S", 0.4)
    await set_rule(here.pool, "peer.test", {"connections": 1}, "a test")
    here.sink.script(".", delay_s=2 * SLOW_S)
    messages = await here.send_many(30, lambda n: f"reader{n}@peer.test")
    await here.mta()
    await here.until_idle()

    waits = [await waits_of(here, message) for message in messages]
    assert sum(total(one, WaitCause.OWN_MAIL) for one in waits) > 10_000
    assert all(total(one, WaitCause.OTHER_ACCOUNTS) == 0 for one in waits)


async def test_the_pace_of_a_site_is_a_limit_of_the_site(here: World) -> None:
    await set_rule(here.pool, "peer.test", {"per_second": 2}, "a test")
    messages = await here.send_many(6, lambda n: f"reader{n}@peer.test")
    await here.mta()
    await here.until_idle()

    waits = [await waits_of(here, message) for message in messages]
    assert sum(total(one, WaitCause.SITE_LIMITS) for one in waits) > 1_000


async def test_a_delivery_tried_at_an_operators_request_waited_until_then(here: World) -> None:
    await here.mta(retry_ladder_s=(600.0,))
    message = await here.send("defer+1@peer.test")
    await here.until_step(message, "deferred")
    await here.until(lambda: not here.mtas[0].outbound.in_hand)
    await here.pool.execute("UPDATE queue SET due_at = $2 WHERE message_id = $1", message, clock.now())
    await here.until_step(message, "delivered")

    assert len(await waits_of(here, message)) == 2
