"""`ops explain` tells every fate in one paragraph: what happened, whose side it is on, what to do."""

from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import orjson
import pytest

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.delivery.holds import HoldKind
from engine.delivery.reply_codes import Category
from engine.delivery.wait_reasons import QueuedReason
from engine.sending import queue_admin
from ops.commands import explain
from ops.commands.explain import MEANINGS, ExplainedEvent, ExplainedMessage, ExplainedRecipient, paragraph
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.sending import process
from tests.harness.settling import settle

AT = datetime(2026, 11, 20, 8, tzinfo=UTC)
ANN = "ann@b.test"


def story(status: str, *events: tuple[str, dict[str, object]], recipients: int = 1) -> str:
    message = ExplainedMessage(ids.uuid7(), status, "api", "shop@a.test", "Your order", None, None)
    rows = [ExplainedEvent("accepted", AT, orjson.dumps({"detail": {"source": "api"}}).decode())]
    rows += [ExplainedEvent(kind, AT, orjson.dumps({"detail": detail}).decode()) for kind, detail in events]
    next_at = AT + timedelta(minutes=5) if status == "sending" else None
    addresses = [ANN, *[f"r{n}@b.test" for n in range(1, recipients)]]
    return paragraph(message, [ExplainedRecipient(one, status, 1, next_at) for one in addresses], rows, AT)


@pytest.mark.parametrize("category", Category)
def test_every_class_says_what_happened_whose_side_and_what_to_do(category: Category) -> None:
    meaning = MEANINGS[category]
    detail: dict[str, object] = {
        "recipient": ANN, "class": category.value, "scope": "recipient", "diagnostic": "550 5.5.5 their words",
        "attempt": 2, "mx": "mx.b.test",
    }  # fmt: skip
    told = story("bounced", ("bounced", detail))
    waiting = story("sending", ("deferred", detail))

    assert "\n" not in told
    assert meaning.happened in told
    assert f"This lies with {meaning.side}." in told
    assert f"What to do: {meaning.advice}." in waiting
    assert f"What to do: {meaning.over or meaning.advice}." in told
    assert "tried again" not in told
    assert "“550 5.5.5 their words”" in told
    assert "try 2 with mx.b.test was rejected permanently" in told


def test_no_two_classes_tell_the_same() -> None:
    assert len({meaning.happened for meaning in MEANINGS.values()}) == len(Category)


def test_a_waiting_message_names_its_next_try_and_what_others_got() -> None:
    lately = {"minutes": 10, "delivered": 1, "deferred": 19, "bounced": 0}
    detail = {"recipient": ANN, "class": "system", "scope": "site", "diagnostic": "451 busy", "attempt": 1,
              "site_lately": lately}  # fmt: skip
    told = story("sending", ("attempted", {}), ("deferred", detail))
    assert "the next is at 2026-11-20T08:05:00.000Z" in told
    assert "took 1 of 20 deliveries of other accounts: the cause is more likely the servers" in told
    well = detail | {"site_lately": lately | {"delivered": 300}}
    assert "the cause is more likely this mail" in story("sending", ("deferred", well))
    assert "other accounts" not in story("sending", ("deferred", detail | {"site_lately": None}))


def test_a_trouble_of_the_whole_site_is_not_the_recipients() -> None:
    told = story("failed", ("failed", {"recipient": ANN, "class": "dns", "scope": "site", "diagnostic": "no"}))
    assert "This lies with the receiving side." in told


def test_a_late_bounce_says_that_the_server_had_accepted_the_message() -> None:
    detail = {
        "recipient": ANN, "class": "user_unknown", "scope": "recipient", "diagnostic": "550 5.1.1 nobody",
        "late": True, "suppressed": True, "reporting_mta": "mx.b.test",
    }  # fmt: skip
    told = story("bounced", ("delivered", {"recipient": ANN, "class": "accepted"}), ("bounced", detail))

    assert "the delivery succeeded at 2026-11-20T08:00:00.000Z, but a bounce from mx.b.test came by mail at" in told
    assert "this mailbox does not exist" in told
    assert "The address is now on the suppression list" in told
    delayed = story("delivered", ("delivered", {"recipient": ANN}), ("deferred", detail | {"suppressed": False}))
    assert "says that the mail is delayed on its further way" in delayed


def test_suppressed_complained_and_many_recipients_are_told() -> None:
    refused: tuple[str, dict[str, object]] = (
        "suppressed",
        {"recipient": ANN, "address": ANN, "reason": "bounce", "phase": "delivery"},
    )
    assert "on the sender's suppression list (bounce)" in story("rejected", refused)
    unsubscribed = story("rejected", ("suppressed", refused[1] | {"reason": "unsubscribe"}))
    assert "this person unsubscribed, and gets mail of the stream `transactional` only" in unsubscribed
    assert "reported it as spam" in story("complained")
    assert "2 more recipients" in story("queued", recipients=5)
    assert "canceled before that time" in story("canceled")


@pytest.mark.parametrize(
    ("kind", "detail", "words"),
    [
        ("schedule_failed", {"reason": "domain_not_verified"}, "refused (domain_not_verified): the sending domain was"),
        ("schedule_failed", {"reason": "monthly_limit_reached", "limit": 1}, "after the 1st"),
        ("schedule_failed", {"reason": "platform_paused"}, "The operator can act"),
        ("schedule_failed", {"reason": "account_suspended"}, "ask the operator why"),
        ("schedule_failed", {"reason": "new"}, "refused (new): the sender can act"),
        ("suppressed", {"address": ANN, "reason": "manual", "phase": "scheduled_release"},
         f"sent to no recipient: {ANN} is on the sender's suppression list (manual)"),
    ],
)  # fmt: skip
def test_what_was_refused_at_its_time_says_why_and_whose_matter_it_is(
    kind: str, detail: dict[str, object], words: str
) -> None:
    told = story("rejected", (kind, detail))

    assert words in told
    assert "past their retention" not in told


@pytest.mark.parametrize(
    ("late", "words"), [(0, "nothing is wrong"), (5, "it was not released"), (-5, "nothing is wrong")]
)
def test_a_scheduled_message_that_is_overdue_says_so(late: int, words: str) -> None:
    message = ExplainedMessage(ids.uuid7(), "scheduled", "api", "shop@a.test", "", AT - timedelta(minutes=late), None)
    event = ExplainedEvent("scheduled", AT, orjson.dumps({"detail": {"scheduled_at": clock.iso(AT)}}).decode())

    assert words in paragraph(message, [], [event], AT)


@pytest.mark.parametrize("reason", QueuedReason)
def test_every_reason_to_wait_has_words(reason: str) -> None:
    told = story("queued", ("queued", {"reason": reason, "until": None}))
    ends = story("queued", ("queued", {"reason": reason, "until": clock.iso(AT)}))

    assert "It waits (" in told
    assert "It waits until 2026-11-20T08:00:00.000Z at the earliest (" in ends  # told once, and a wait may grow
    assert reason not in told


def test_a_wait_is_told_of_the_recipients_it_concerns() -> None:
    later = {"class": "system", "scope": "site", "diagnostic": "451 busy", "attempt": 1}
    events = [
        ("deferred", {"recipient": ANN, **later}), ("deferred", {"recipient": "bob@c.test", **later}),
        ("queued", {"reason": "operator_hold", "note": "asked", "until": None, "to_domain": "c.test"}),
        ("attempted", {"to_domain": "b.test"}), ("deferred", {"recipient": ANN, **later}),
    ]  # fmt: skip
    rows = [ExplainedEvent(kind, AT, orjson.dumps({"detail": detail}).decode()) for kind, detail in events]
    both = [ExplainedRecipient(ANN, "sending", 2, AT), ExplainedRecipient("bob@c.test", "sending", 1, None)]
    told = paragraph(ExplainedMessage(ids.uuid7(), "sending", "api", "shop@a.test", "", None, None), both, rows, AT)
    of_ann, of_bob = told.split("For bob@c.test")

    assert "the next is at" in of_ann
    assert "waits" not in of_ann
    assert "It waits (the operator of this service holds it: asked)" in of_bob
    assert "the next is at" not in of_bob


def test_a_scheduled_message_waits_for_its_last_time() -> None:
    message = ExplainedMessage(ids.uuid7(), "scheduled", "api", "shop@a.test", "Your order", None, None)
    times = [orjson.dumps({"detail": {"scheduled_at": time}}).decode() for time in ("monday", "tuesday")]
    told = paragraph(message, [], [ExplainedEvent("scheduled", AT, time) for time in times], AT)

    assert "was scheduled at 2026-11-20T08:00:00.000Z for tuesday" in told


def test_words_of_a_server_can_not_stretch_the_paragraph() -> None:
    told = story("bounced", ("bounced", {"recipient": ANN, "class": "nonsense", "diagnostic": "x" * 5000}))
    assert len(told) < 1200


async def test_a_real_message_is_explained_from_its_waybill(settings: Settings, new_database: NewDatabase) -> None:
    own = msgspec.structs.replace(settings, database_url=await new_database())
    async with process(own) as door:
        account = await make_account(door.pool)
        sent = await door.send(account, to=[ANN, "bob@c.test"])
        fresh = await explain.explanation(door.pool, sent.id)
        assert "has not been tried yet" in fresh["explanation"]
        reason = "they asked us to wait"
        await queue_admin.suspend(door.pool, queue_admin.queue_target(HoldKind.DOMAIN, "c.test"), reason=reason)
        held = await explain.explanation(door.pool, sent.id)
        assert f"the operator of this service holds it: {reason}" in held["explanation"]
        await queue_admin.resume(door.pool, queue_admin.queue_target(HoldKind.DOMAIN, "c.test"))
        await settle(door.pool, sent.id, (ANN, 550, "5.1.1 No such user"))
        told = await explain.explanation(door.pool, sent.id)

        assert told["status"] == "bounced"
        assert "For ann@b.test, try 1 with mx.b.test was rejected permanently" in told["explanation"]
        assert "The address is now on the suppression list" in told["explanation"]
        assert "For bob@c.test, try 1 with mx.c.test succeeded" in told["explanation"]


async def test_what_is_no_message_is_refused(pool: asyncpg.Pool) -> None:
    with pytest.raises(ids.WrongId):
        await explain.explanation(pool, "acc_1")
    with pytest.raises(Refusal):
        await explain.explanation(pool, ids.format_id(ids.Kind.MESSAGE, ids.uuid7(clock.milliseconds(clock.now()))))


def test_the_paragraph_says_where_the_time_of_the_last_attempt_went() -> None:
    told = story(
        "delivered",
        ("attempted", {"mx": "mx.b.test", "waits": {"queue": 900}}),
        ("deferred", {"recipient": ANN, "class": "greylisted", "scope": "recipient", "attempt": 1}),
        ("attempted", {"mx": "mx.b.test", "waits": {"retry": 30_000, "other_accounts": 10_000}, "fair_share": 0.5}),
        ("delivered", {"recipient": ANN, "class": "ok", "scope": "recipient", "attempt": 2}),
    )

    assert "Took 40 s, of which 30 s until the retry and 10 s for other accounts." in told
    assert "900" not in told
