"""`ops broadcasts` and `ops review`: why a broadcast waits, reviews, and the mail that tells the operator of one."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.flows.audience import broadcast_reviews
from ops import broadcasts
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account
from tests.harness.broadcasts import BroadcastWorld, broadcasting, make_list, with_stream
from tests.harness.people import make_person


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[BroadcastWorld]:
    async with broadcasting(structs.replace(settings, database_url=await new_database())) as made:
        yield made


@pytest.fixture
async def account(here: BroadcastWorld) -> TestAccount:
    return await with_stream(here.pool, await make_account(here.pool))


async def test_the_operator_is_told_once_and_approves_or_rejects(here: BroadcastWorld, account: TestAccount) -> None:
    platform = await make_account(here.pool)
    owner = await make_person(here.pool, platform.id)
    await here.pool.execute("INSERT INTO platform (account_id) VALUES ($1)", platform.id)
    large = await make_list(here.pool, account, 1_001)
    kept, dropped = [await here.sent(account, large) for _ in range(2)]
    assert await broadcast_reviews.notify(here.pool, clock.now()) == 2
    assert await broadcast_reviews.notify(here.pool, clock.now()) == 0
    rows = await here.pool.fetch("SELECT address FROM system_mail WHERE kind = 'broadcast_in_review'")
    assert [row["address"] for row in rows] == [owner.email] * 2

    names = [ids.format_id(ids.Kind.BROADCAST, one) for one in (kept, dropped)]
    assert [row["id"] for row in await broadcasts.reviews(here.pool)] == names
    shown = await broadcasts.review_of(here.pool, names[0])
    assert (shown["recipients"], shown["consents"], shown["text"]) == (1_001, {"customer": 1_001}, "Hello {{email}}")
    assert (await broadcasts.approve(here.pool, names[0]))["status"] == "sending"
    found = await broadcasts.reject(here.pool, names[1], "Who are they?")
    assert (found["status"], found["reviewNote"]) == ("canceled", "Who are they?")
    with pytest.raises(Refusal):
        await broadcasts.approve(here.pool, names[1])
    with pytest.raises(ValueError, match="not the id of a broadcast"):
        await broadcasts.approve(here.pool, "msg_1")


async def test_it_says_why_each_waits(here: BroadcastWorld, account: TestAccount) -> None:
    await here.pool.execute("UPDATE accounts SET daily_cap = 5 WHERE id = $1", account.id)
    news = await make_list(here.pool, account, 10)
    await here.sent(account, news)
    await here.runner.run_due()
    later = await here.draft(account, news)
    await here.send(account, later, clock.iso(clock.now() + timedelta(hours=2)))
    await here.sent(account, news)

    found = await broadcasts.in_progress(here.pool, account=account.public_id, limit=10)
    whys = {row["status"]: row["why"] for row in found}
    assert whys["paused"].startswith("the account's daily limit is used up, until about ")
    assert whys["scheduled"].startswith("waits for its time, ")
    assert whys["sending"] == "is sending"
    assert {row["accepted"] for row in found if row["status"] == "paused"} == {5}
