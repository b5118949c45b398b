"""`ops broadcasts` and `ops review`: why a broadcast waits, reviews, and the mail that tells the operator of one."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from msgspec import structs

from engine.audience.broadcasts import reviews as broadcast_reviews
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.sending.emails.types import AttachmentIn
from ops.commands import broadcasts
from ops.commands.broadcasts import visible
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
    assert (shown["subject"], shown["html"], shown["attachments"]) == ("News", None, [])
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
    sending = await here.sent(account, news)
    await here.pool.execute(
        "UPDATE broadcast_work SET due_at = now() + interval '1 h' WHERE broadcast_id = $1", sending
    )

    found = await broadcasts.in_progress(here.pool, account=account.public_id, limit=10)
    whys = {row["status"]: row["why"] for row in found}
    assert whys["paused"].startswith("the account's daily limit is used up, until about ")
    assert whys["scheduled"].startswith("waits for its time, ")
    assert whys["sending"] == "is sending"
    assert {row["accepted"] for row in found if row["status"] == "paused"} == {5}

    await here.pool.execute(
        "UPDATE broadcast_work SET due_at = now() - interval '1 min', worker = 'dead' WHERE broadcast_id = $1", sending
    )
    await here.pool.execute("UPDATE broadcasts SET waits_for = 'pace' WHERE id = $1", sending)
    found = await broadcasts.in_progress(here.pool, account=account.public_id, limit=10)
    assert {row["status"]: row["why"] for row in found}["sending"].startswith("no worker has taken it")


def test_control_characters_of_what_is_reviewed_are_printed_as_escapes() -> None:
    assert visible("a\r\n\tÄ\x1b[2J\u202eb") == "a\n\tÄ\\u001b[2J\\u202eb"


async def test_the_reviewer_sees_all_that_recipients_will_see(here: BroadcastWorld, account: TestAccount) -> None:
    await here.pool.execute(
        "INSERT INTO templates (account_id, slug, version, created_at, updated_at)"
        " VALUES ($1, 'news', 1, now(), now())",
        account.id,
    )
    await here.pool.execute(
        "INSERT INTO template_versions (account_id, slug, version, subject, html, text, variables, created_at)"
        " VALUES ($1, 'news', 1, 'Offer', '<p>Buy</p>', 'Hello', '[]', now())",
        account.id,
    )
    large = await make_list(here.pool, account, 1_001)
    pinned = await here.sent(account, large, template="news", text=None, subject=None)
    file = AttachmentIn(filename="a.txt", content_type="text/plain", content="QQ==")
    own = await here.sent(account, large, html="<p>" + "x" * 30_000, attachments=[file])

    shown = await broadcasts.review_of(here.pool, ids.format_id(ids.Kind.BROADCAST, pinned))
    assert (shown["subject"], shown["html"], shown["text"]) == ("Offer", "<p>Buy</p>", "Hello")
    shown = await broadcasts.review_of(here.pool, ids.format_id(ids.Kind.BROADCAST, own))
    assert (shown["text"], shown["attachments"]) == ("Hello {{email}}", ["a.txt"])
    assert shown["html"].endswith("x\n[10003 more characters]")
