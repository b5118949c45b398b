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
from engine.flows import levers
from ops import explain
from ops.explain import MEANINGS, EventRow, MessageRow, RecipientRow, paragraph
from tests.conftest import NewDatabase
from tests.flows.sending import process
from tests.harness.accounts import make_account
from tests.harness.settling import settle

AT = datetime(2026, 11, 20, 8, tzinfo=UTC)
ANN = "ann@b.test"


def story(status: str, *events: tuple[str, dict[str, object]], recipients: int = 1) -> str:
    message = MessageRow(ids.uuid7(), status, "api", "shop@a.test", "Your order", None, None)
    rows = [EventRow("accepted", AT, orjson.dumps({"detail": {"source": "api"}}).decode())]
    rows += [EventRow(kind, AT, orjson.dumps({"detail": detail}).decode()) for kind, detail in events]
    next_at = AT + timedelta(minutes=5) if status == "sending" else None
    addresses = [ANN, *[f"r{n}@b.test" for n in range(1, recipients)]]
    return paragraph(message, [RecipientRow(one, status, 1, next_at) for one in addresses], rows)


@pytest.mark.parametrize("category", Category)
def test_every_class_says_what_happened_whose_side_and_what_to_do(category: Category) -> None:
    meaning = MEANINGS[category]
    detail: dict[str, object] = {
        "recipient": ANN, "class": category.value, "scope": "recipient", "diagnostic": "550 5.5.5 their words",
        "attempt": 2, "mx": "mx.b.test",
    }  # fmt: skip
    told = story("bounced", ("bounced", detail))

    assert "\n" not in told
    assert meaning.happened in told
    assert f"This lies with {meaning.side}." in told
    assert f"What to do: {meaning.advice}." in told
    assert "“550 5.5.5 their words”" in told
    assert "try 2 with mx.b.test was refused for good" in told


def test_no_two_classes_tell_the_same() -> None:
    assert len({meaning.happened for meaning in MEANINGS.values()}) == len(Category)


def test_a_waiting_message_names_its_next_try_and_what_others_got() -> None:
    lately = {"minutes": 10, "delivered": 1, "deferred": 19, "bounced": 0}
    detail = {"recipient": ANN, "class": "system", "scope": "site", "diagnostic": "451 busy", "attempt": 1,
              "site_lately": lately}  # fmt: skip
    told = story("sending", ("attempted", {}), ("deferred", detail))
    assert "the next is at 2026-11-20T08:05:00.000Z" in told
    assert "took 1 of 20 deliveries of other accounts: it is more likely about them" in told
    well = detail | {"site_lately": lately | {"delivered": 300}}
    assert "more likely about this mail" in story("sending", ("deferred", well))
    assert "other accounts" not in story("sending", ("deferred", detail | {"site_lately": None}))


def test_a_trouble_of_the_whole_site_is_not_the_recipients() -> None:
    told = story("failed", ("failed", {"recipient": ANN, "class": "dns", "scope": "site", "diagnostic": "no"}))
    assert "This lies with the receiving side." in told


def test_suppressed_complained_and_many_recipients_are_told() -> None:
    refused: tuple[str, dict[str, object]] = (
        "suppressed",
        {"recipient": ANN, "address": ANN, "reason": "bounce", "phase": "delivery"},
    )
    assert "on the suppression list (bounce)" in story("rejected", refused)
    assert "reported it as spam" in story("complained")
    assert "2 more recipients" in story("queued", recipients=5)
    assert "canceled before that time" in story("canceled")
    assert "refused (domain_not_verified)" in story("rejected", ("schedule_failed", {"reason": "domain_not_verified"}))


def test_a_scheduled_message_waits_for_its_last_time() -> None:
    message = MessageRow(ids.uuid7(), "scheduled", "api", "shop@a.test", "Your order", None, None)
    times = [orjson.dumps({"detail": {"scheduled_at": time}}).decode() for time in ("monday", "tuesday")]
    told = paragraph(message, [], [EventRow("scheduled", AT, time) for time in times])

    assert "was scheduled at 2026-11-20T08:00:00.000Z for tuesday" in told


def test_words_of_a_server_can_not_stretch_the_paragraph() -> None:
    told = story("bounced", ("bounced", {"recipient": ANN, "class": "nonsense", "diagnostic": "x" * 5000}))
    assert len(told) < 1200


async def test_a_real_message_is_explained_from_its_waybill(settings: Settings, new_database: NewDatabase) -> None:
    own = msgspec.structs.replace(settings, database_url=await new_database())
    async with process(own) as door:
        account = await make_account(door.pool)
        sent = await door.send(account, to=[ANN, "bob@c.test"])
        fresh = await explain.explain(door.pool, sent.id)
        assert "has not been tried yet" in fresh["explanation"]
        reason = "they asked us to wait"
        await levers.suspend(door.pool, levers.chosen(HoldKind.DOMAIN, "c.test"), reason=reason)
        held = await explain.explain(door.pool, sent.id)
        assert f"the operator of this service holds it back: {reason}" in held["explanation"]
        await levers.resume(door.pool, levers.chosen(HoldKind.DOMAIN, "c.test"))
        await settle(door.pool, sent.id, (ANN, 550, "5.1.1 No such user"))
        told = await explain.explain(door.pool, sent.id)

        assert told["status"] == "bounced"
        assert "For ann@b.test, try 1 with mx.b.test was refused for good" in told["explanation"]
        assert "The address is suppressed now" in told["explanation"]
        assert "For bob@c.test, try 1 with mx.c.test succeeded" in told["explanation"]


async def test_what_is_no_message_is_refused(pool: asyncpg.Pool) -> None:
    with pytest.raises(ids.WrongId):
        await explain.explain(pool, "acc_1")
    with pytest.raises(Refusal):
        await explain.explain(pool, ids.format_id(ids.Kind.MESSAGE, ids.uuid7(clock.milliseconds(clock.now()))))
