"""Queue commands of the operator beside real deliveries: suspend, resume, and cancel."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.delivery import holds, queue
from engine.delivery.holds import HoldKind
from engine.mail.address import BadAddress
from engine.sending import queue_admin
from engine.sending.queue_admin import queue_target
from engine.sending.queue_commands import QueueCommands
from ops.commands import queue as ops_queue
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.outbound import World, world
from tests.harness.patience import PATIENCE_S

LATER_S = (3600.0,)  # a retry that no test waits for
WHY = "their abuse desk asked us to wait"


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a queue of its own."""
    async with world(settings, await new_database()) as made:
        yield made


def public(message: UUID) -> str:
    return ids.format_id(ids.Kind.MESSAGE, message)


async def until_held(here: World, message: UUID) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not any(row["held_by"] for row in await here.queue(message)):
            await asyncio.sleep(0.02)


async def detail(here: World, message: UUID, kind: str) -> dict[str, object]:
    return dict(await here.waybill(message))[kind]


async def test_suspended_domain_keeps_its_mail_and_tells_why_on_the_waybill(here: World) -> None:
    on = queue_target(HoldKind.DOMAIN, "Peer.TEST")
    assert await queue_admin.suspend(here.pool, on, reason=f"  {WHY} ") == 0
    here.domain("other.test")
    await here.mta()
    held = await here.send("ann@peer.test")
    free = await here.send("bob@other.test")
    await here.until_step(free, "delivered")
    await here.until_step(held, "queued")

    assert await detail(here, held, "queued") == {
        "reason": "operator_hold", "note": WHY, "held": "domain", "until": None,
    }  # fmt: skip
    assert await here.steps(held) == ["accepted", "queued"]
    assert await here.status(held) == "queued"
    (row,) = await here.queue(held)
    assert (row["attempts"], row["waiting"]) == (0, "operator_hold")
    assert row["due_at"] > clock.now() + timedelta(hours=12)


async def test_hold_takes_effect_within_a_second_in_a_running_process_and_ends_as_fast(here: World) -> None:
    await here.mta()
    await here.until_step(await here.send("before@peer.test"), "delivered")
    on = queue_target(HoldKind.DOMAIN, "peer.test")
    await queue_admin.suspend(here.pool, on, reason=WHY)
    await here.heard()
    held = await here.send("ann@peer.test")
    await until_held(here, held)
    assert await queue_admin.resume(here.pool, on, note="they are well again") == 1
    await here.until_step(held, "delivered")  # its row is due in half a day

    waits = [told for kind, told in await here.waybill(held) if kind == "queued"]
    assert [one["reason"] for one in waits] == ["operator_hold", "operator_release"]
    assert waits[1]["note"] == "they are well again"
    assert await here.pool.fetchval("SELECT count(*) FROM holds") == 0
    assert await queue_admin.resume(here.pool, on) is None


async def test_suspending_an_account_or_a_message_leaves_everybody_else_alone(here: World) -> None:
    other = await make_account(here.pool)
    await queue_admin.suspend(here.pool, queue_target(HoldKind.ACCOUNT, other.public_id), reason="unpaid")
    kept = await here.send("one@peer.test", account=other)
    single, free = await here.send("two@peer.test"), await here.send("three@peer.test")
    assert await queue_admin.suspend(here.pool, queue_target(HoldKind.MESSAGE, public(single)), reason="asked for") == 1
    await here.mta()
    await here.until_step(free, "delivered")
    await until_held(here, kept)

    assert [await here.status(one) for one in (kept, single)] == ["queued", "queued"]
    told = await here.pool.fetchval("SELECT payload FROM events WHERE account_id = $1 AND type = 'delivery.suspended'",
                                    other.id)  # fmt: skip
    assert "unpaid" in told
    await queue_admin.resume(here.pool, queue_target(HoldKind.ACCOUNT, other.public_id))
    await queue_admin.resume(here.pool, queue_target(HoldKind.MESSAGE, public(single)))
    await here.until_step(kept, "delivered")
    await here.until_step(single, "delivered")


async def test_suspended_site_holds_every_domain_behind_the_same_servers(here: World) -> None:
    for name in ("one.test", "two.test"):
        here.domain(name, mx="mx.big.test")
    await queue_admin.suspend(here.pool, queue_target(HoldKind.SITE, "MX.big.test"), reason=WHY)
    await here.mta()
    held = [await here.send(f"ann@{name}") for name in ("one.test", "two.test")]
    free = await here.send("bob@peer.test")
    await here.until_step(free, "delivered")
    for message in held:
        await until_held(here, message)

    found = await ops_queue.depths(here.pool, here.mtas[0].settings, by="site", limit=10)
    assert found["holds"][0]["target"] == "mx.big.test"
    live = here.mtas[0].settings
    done = await QueueCommands(here.pool, live).bounce(HoldKind.SITE, "mx.big.test", reason="closed for good")
    assert done.rows in (0, 2)  # in local mode every domain leads to the sink
    assert await queue_admin.resume(here.pool, queue_target(HoldKind.SITE, "mx.big.test")) is not None


@pytest.mark.exhaustive
async def test_hold_survives_a_restart_and_a_hold_with_an_end_lets_go_by_itself(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sending.postpone.SPREAD_S", 0.2)
    first = await here.mta()
    on = queue_target(HoldKind.DOMAIN, "peer.test")
    until = clock.now() + timedelta(seconds=12)
    await queue_admin.suspend(here.pool, on, reason=WHY, until=until)
    message = await here.send("ann@peer.test")
    await until_held(here, message)
    await first.stop()
    here.mtas.clear()
    await here.mta("mta-2")
    await asyncio.sleep(1.0)
    assert await here.steps(message) == ["accepted", "queued"]
    await here.until_step(message, "delivered")

    assert (await detail(here, message, "queued"))["until"] == clock.iso(until)
    assert clock.now() >= until


async def test_a_hold_ends_by_the_databases_clock_wherever_the_hosts_stands(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    await queue_admin.suspend(
        here.pool, queue_target(HoldKind.DOMAIN, "peer.test"), reason=WHY, until=now + timedelta(hours=1)
    )
    message = await here.send("ann@peer.test")
    (row,) = await queue.load(here.pool, [(message, "peer.test")])
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(hours=2))
    known = holds.Holds(here.pool)
    await known.refresh()

    held = known.of(row)
    assert held is not None
    assert held.reason == WHY


async def test_what_is_let_go_comes_back_spread_out(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_admin, "MIN_RELEASED_PER_S", 10.0)
    monkeypatch.setattr(queue_admin, "CHUNK", 7)
    on = queue_target(HoldKind.DOMAIN, "peer.test")
    messages = sorted(await here.send_many(30, lambda n: f"reader{n}@peer.test"))
    assert await queue_admin.suspend(here.pool, on, reason=WHY) == 30
    assert await queue_admin.suspend(here.pool, on, reason="still") == 0  # told once
    now = clock.now()
    assert await queue_admin.resume(here.pool, on) == 30

    rows = await here.pool.fetch("SELECT message_id, due_at, held_by, waiting FROM queue ORDER BY message_id")
    waits = [(row["due_at"] - now).total_seconds() for row in rows]
    assert [row["message_id"] for row in rows] == messages
    assert waits == sorted(waits)  # the oldest comes first
    assert 2.5 < waits[-1] - waits[0] < 3.5
    assert not [row for row in rows if row["held_by"] or row["waiting"]]


async def test_flush_brings_retries_forward_and_leaves_what_is_held(here: World) -> None:
    here.domain("kept.test")
    here.sink.script("RCPT", "450 4.2.1 later", times=1)
    await here.mta(retry_ladder_s=LATER_S)
    message = await here.send("ann@peer.test")
    await here.until_step(message, "deferred")
    await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "kept.test"), reason=WHY)
    await here.heard()
    held = await here.send("bob@kept.test")
    await until_held(here, held)
    assert await queue_admin.flush(here.pool, queue_target(HoldKind.DOMAIN, "peer.test"), note="they are back") == 1
    assert await queue_admin.flush(here.pool, queue_target(HoldKind.DOMAIN, "kept.test")) == 0
    await here.until_step(message, "delivered")

    assert (await detail(here, message, "queued"))["note"] == "they are back"
    assert (await detail(here, message, "queued"))["reason"] == "operator_flush"
    assert await here.status(held) == "queued"


async def test_bounce_ends_what_waits_as_failed_without_suppressing_or_counting_a_bounce(here: World) -> None:
    here.sink.script("RCPT", "450 4.2.1 later")
    await here.mta(retry_ladder_s=LATER_S)
    messages = [await here.send("ann@peer.test"), await here.send("bob@peer.test")]
    for message in messages:
        await here.until_step(message, "deferred")
    assert (
        await queue_admin.bounce(here.pool, queue_target(HoldKind.DOMAIN, "peer.test"), reason="the domain is closed")
        == 2
    )

    for message in messages:
        assert await here.status(message) == "failed"
        assert await here.steps(message) == ["accepted", "attempted", "deferred", "failed"]
        failed = await detail(here, message, "failed")
        assert (failed["class"], failed["scope"]) == ("operator", "message")
        assert failed["diagnostic"] == "ended by the operator: the domain is closed"
        assert "attempt" not in failed
        assert failed["reason"] == "operator"
        assert await here.queue(message) == []
    assert await here.suppressed() == []
    day = await here.pool.fetchrow("SELECT bounced, failed FROM account_days WHERE account_id = $1", here.account.id)
    assert day is not None
    assert tuple(day) == (0, 2)
    attempts = await here.pool.fetchval("SELECT max(attempts) FROM recipients WHERE account_id = $1", here.account.id)
    assert attempts == 1
    assert await here.pool.fetchval("SELECT count(*) FROM holds") == 0


async def test_bounce_of_one_domain_leaves_the_other_recipients_of_a_message_alone(here: World) -> None:
    here.domain("gone.test", World.NOBODY)
    message = await here.send("ann@peer.test", "bob@gone.test")
    await queue_admin.bounce(here.pool, queue_target(HoldKind.DOMAIN, "gone.test"), reason="closed", hold_known_s=0)
    assert await here.status(message) == "sending"
    await here.mta()
    await here.until_step(message, "delivered")

    assert await here.statuses(message) == {"ann@peer.test": "delivered", "bob@gone.test": "rejected"}
    assert await here.status(message) == "rejected"
    rejected = await detail(here, message, "rejected")
    assert (rejected["reason"], rejected["recipient"]) == ("operator", "bob@gone.test")


async def test_a_held_message_is_rejected_when_its_deliver_by_passes(here: World) -> None:
    await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "peer.test"), reason=WHY)
    held = await here.send("code@peer.test", deliverBy=clock.iso(clock.now() + timedelta(seconds=2)))
    await here.mta()
    await here.until_step(held, "rejected")

    assert (await detail(here, held, "rejected"))["reason"] == "deliver_by_passed"
    assert here.sink.count == 0


async def test_a_released_message_past_its_deliver_by_is_rejected_instead_of_arriving_late(here: World) -> None:
    on = queue_target(HoldKind.DOMAIN, "peer.test")
    late = await here.send("code@peer.test", deliverBy=clock.iso(clock.now() + timedelta(hours=1)))
    fine = await here.send("ann@peer.test")
    await queue_admin.suspend(here.pool, on, reason=WHY)
    await here.pool.execute("UPDATE queue SET deliver_by = now() - interval '1 second' WHERE message_id = $1", late)
    assert await queue_admin.resume(here.pool, on) == 2
    await here.mta()
    await here.until_step(late, "rejected")
    await here.until_step(fine, "delivered")

    assert await here.status(late) == "rejected"
    assert (await detail(here, late, "rejected"))["reason"] == "deliver_by_passed"
    assert here.sink.count == 1


async def test_a_resume_that_died_half_way_is_finished_by_the_next_lever(here: World) -> None:
    message = await here.send("ann@peer.test")
    await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "peer.test"), reason=WHY)
    await here.pool.execute("UPDATE holds SET ended = true")  # and then the command was killed
    await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "other.test"), reason=WHY)

    (row,) = await here.queue(message)
    assert (row["held_by"], row["waiting"]) == (None, None)
    assert row["due_at"] < clock.now() + timedelta(seconds=5)


@pytest.mark.parametrize("reason", ["", "   ", "x" * 201, "bell\x07"])
async def test_a_reason_that_no_waybill_could_show_is_refused(here: World, reason: str) -> None:
    with pytest.raises(ValueError, match="the reason must have 1 to 200"):
        await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "peer.test"), reason=reason)
    assert await queue_admin.holds_in_force(here.pool) == []


async def test_levers_refuse_what_they_can_not_be_pulled_on(here: World) -> None:
    with pytest.raises(BadAddress):
        queue_target(HoldKind.DOMAIN, "not a domain")
    with pytest.raises(ids.WrongId):
        queue_target(HoldKind.ACCOUNT, public(ids.uuid7()))
    nobody = queue_target(HoldKind.ACCOUNT, ids.format_id(ids.Kind.ACCOUNT, ids.uuid7()))
    with pytest.raises(Refusal):
        await queue_admin.suspend(here.pool, nobody, reason=WHY)
    with pytest.raises(ValueError, match="in the future"):
        await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "a.test"), reason=WHY, until=clock.now())
    with pytest.raises(Refusal, match="No hold exists on"):
        await QueueCommands(here.pool, here.settings).resume(HoldKind.DOMAIN, "peer.test", note=None)


async def test_a_domain_is_one_domain_in_either_of_its_forms(here: World) -> None:
    await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "BÜCHER.test"), reason=WHY)
    message = await here.send("ann@bücher.test")
    await here.mta()
    await until_held(here, message)
    (hold,) = await queue_admin.holds_in_force(here.pool)
    assert hold.target == "xn--bcher-kva.test" == holds.a_labels("bücher.test")


async def test_depth_and_age_are_shown_by_domain_account_and_shard(here: World) -> None:
    here.domain("slow.test")
    for n in range(3):
        await here.send(f"a{n}@slow.test", f"b{n}@slow.test")
    await here.send("ann@peer.test")
    await here.pool.execute("UPDATE queue SET due_at = now() - interval '1 minute' WHERE domain = 'peer.test'")
    await queue_admin.suspend(here.pool, queue_target(HoldKind.DOMAIN, "slow.test"), reason=WHY)

    by_domain = await ops_queue.depths(here.pool, here.settings, by="domain", limit=10)
    shown = ("domain", "rows", "recipients", "due", "held")
    assert [tuple(one[name] for name in shown) for one in by_domain["waiting"]] == [
        ("slow.test", 3, 6, 0, 3), ("peer.test", 1, 1, 1, 0),
    ]  # fmt: skip
    assert by_domain["holds"][0] | {"since": ""} == {
        "suspended": "domain", "target": "slow.test", "reason": WHY, "since": "", "until": None,
    }  # fmt: skip
    by_account = await ops_queue.depths(here.pool, here.settings, by="account", limit=10)
    assert [(one["account"], one["rows"]) for one in by_account["waiting"]] == [(here.account.public_id, 4)]
    by_shard = await ops_queue.depths(here.pool, here.settings, by="shard", limit=1)
    assert len(by_shard["waiting"]) == 1
    by_site = await ops_queue.depths(here.pool, here.settings, by="site", limit=1)
    assert {found["rows"] for found in (by_domain, by_account, by_shard, by_site)} == {4}
    assert all(one["ageS"] < 60 for one in by_domain["waiting"])
