"""Running broadcasts on real servers: each contact once, pauses, limits and obstacles in the middle, and the end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from engine.audience.broadcasts import checks as broadcast_checks
from engine.audience.broadcasts import service, store
from engine.audience.broadcasts.batch import MAX_BATCH_BYTES, BroadcastSender, next_recipients
from engine.audience.broadcasts.pace import FIRST_BATCH
from engine.audience.broadcasts.run import LANES, BroadcastRunner, TurnEnd
from engine.audience.broadcasts.start import start
from engine.audience.broadcasts.store import ClaimedWork
from engine.base import clock
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.mail.unsubscribe_links import UnsubscribeLinks
from engine.mail.unsubscribe_token import link_of
from engine.sending.accept_store import Storer
from engine.sending.admission import Pending
from engine.sending.batch_decisions import BatchResult
from engine.sending.emails.types import Accepted
from engine.store.queries import Conn
from tests.conftest import NewDatabase
from tests.harness import history
from tests.harness.accounts import TestAccount, make_account, set_status
from tests.harness.broadcasts import (
    ACTOR,
    BroadcastWorld,
    addressed,
    broadcast_events,
    broadcasting,
    make_list,
    states,
    with_stream,
)
from tests.harness.patience import PATIENCE_S
from tests.harness.sending import suppress as suppress_address
from tests.harness.unsubscribing import KEY


@pytest.fixture
async def account(here: BroadcastWorld) -> TestAccount:
    return await with_stream(here.pool, await make_account(here.pool))


async def mail_of(here: BroadcastWorld, account: TestAccount, address: str) -> EmailMessage:
    """Return the message to an address as composed."""
    mime = await here.pool.fetchval(
        "SELECT b.mime FROM recipients r JOIN message_bodies b ON b.message_id = r.message_id"
        " WHERE r.account_id = $1 AND r.address = $2",
        account.id, address,
    )  # fmt: skip
    return message_from_bytes(mime, policy=policy.default)


async def test_each_contact_gets_one_message_with_its_own_values_and_link(
    here: BroadcastWorld, account: TestAccount
) -> None:
    people: dict[str, dict[str, object]] = {
        "ann@x.test": {"plan": "<pro>", "seats": 12, "paid": True},
        "bob@x.test": {"paid": False},
    }
    news = await make_list(here.pool, account, people)
    broadcast = await here.sent(
        account,
        news,
        subject="For {{plan}}",
        html="<p>{{email}} {{plan}} {{seats}} {{#paid}}paid{{/paid}}</p>",
        text=None,
    )
    await here.runner.run_due()

    row, counts = await here.read(account, broadcast), await here.counts(broadcast)
    assert (row.status, counts.recipients, counts.accepted, counts.waiting) == ("sent", 2, 2, 0)
    assert row.finished_at is not None
    ann, bob = [await mail_of(here, account, address) for address in people]
    assert "ann@x.test &lt;pro&gt; 12 paid" in ann.get_content()
    assert "bob@x.test   </p>" in bob.get_content()
    assert (ann["Subject"], bob["Subject"]) == ("For <pro>", "For")
    assert ann["List-Unsubscribe"] != bob["List-Unsubscribe"]
    token = ann["List-Unsubscribe"].partition("/u/")[2].partition(">")[0]
    assert f"/u/{token}" in ann.get_content()
    link = await here.pool.fetchrow("SELECT * FROM unsubscribe_links WHERE id = $1", link_of(KEY, token))
    assert link is not None
    assert (link["account_id"], link["address"], link["broadcast_id"]) == (account.id, "ann@x.test", broadcast)
    assert link["list_id"] == news
    kinds = [kind for kind, _ in await broadcast_events(here.pool, account)]
    assert kinds == ["created", "started", "finished"]


async def test_a_link_in_a_section_that_is_left_out_is_replaced_by_a_footer(
    here: BroadcastWorld, account: TestAccount
) -> None:
    people: dict[str, dict[str, object]] = {"ann@x.test": {"own": True}, "bob@x.test": {}}
    body = "Hi{{#own}} <a href='{{unsubscribe_url}}'>Leave</a>{{/own}}"
    await here.sent(account, await make_list(here.pool, account, people), html=f"<p>{body}</p>", text=body)
    await here.runner.run_due()

    for address in people:
        mail = await mail_of(here, account, address)
        link = mail["List-Unsubscribe"].partition("<")[2].partition(">")[0]
        bodies = [mail.get_body((kind,)) for kind in ("html", "plain")]
        assert [str(one.get_content()).count(link) for one in bodies if one is not None] == [1, 1], address


async def test_one_worker_gives_several_broadcasts_their_turns_at_once(
    here: BroadcastWorld, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = await make_list(here.pool, account, 1)
    due = {await here.sent(account, news) for _ in range(LANES + 1)}
    all_lanes, ended = asyncio.Event(), set()
    in_turn = 0

    async def turn(runner: BroadcastRunner, work: ClaimedWork, sender: object) -> TurnEnd:
        nonlocal in_turn
        if work.broadcast_id in due:
            in_turn += 1
            if in_turn == LANES:
                all_lanes.set()
            await asyncio.wait_for(all_lanes.wait(), PATIENCE_S)
            ended.add(work.broadcast_id)
        return TurnEnd(timedelta(hours=1))

    monkeypatch.setattr(BroadcastRunner, "_turn", turn)
    await here.runner.run_due()
    assert ended == due


async def test_parallel_workers_that_die_and_pauses_neither_repeat_nor_omit(
    settings: Settings, here: BroadcastWorld, account: TestAccount
) -> None:
    people = 900
    news = await make_list(here.pool, account, people, domains=7)
    broadcast = await here.sent(account, news)
    rounds = 0
    while (await here.read(account, broadcast)).status != "sent":
        rounds += 1
        async with broadcasting(settings) as second:
            await here.make_due(broadcast)
            tasks = [asyncio.create_task(one.runner.run_due()) for one in (here, second)]
            await asyncio.sleep(0.03 * (rounds % 5))
            await here.make_due(broadcast)  # both work on it, as if a claim had lapsed
            await asyncio.sleep(0.03)
            if rounds % 3 == 0 and (await here.read(account, broadcast)).status == "sending":
                with suppress(Refusal):  # it may just have been sent
                    await service.pause(here.pool, account.id, broadcast, actor=ACTOR)
                    paused = (await here.counts(broadcast)).accepted
                    await asyncio.sleep(0.05)
                    assert (await here.counts(broadcast)).accepted == paused
                    await service.resume(here.pool, account.id, broadcast, actor=ACTOR)
            tasks[rounds % 2].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    got = await addressed(here.pool, account)
    assert (len(got), len(set(got))) == (people, people)
    counts = await here.counts(broadcast)
    assert (counts.recipients, counts.accepted, counts.skipped) == (people, people, 0)
    links = await here.pool.fetchval("SELECT count(*) FROM unsubscribe_links WHERE broadcast_id = $1", broadcast)
    assert links == people


async def test_two_copies_for_a_contact_in_one_batch_become_one_message(
    here: BroadcastWorld, account: TestAccount
) -> None:
    """Two tasks of a process may work on one broadcast after a claim has lapsed; their messages share a transaction."""
    broadcast = await here.sent(account, await make_list(here.pool, account, 3))
    await start(here.pool, account.id, broadcast, clock.now())
    row = await store.FIND.first(here.pool, broadcast)
    assert row is not None
    content = await broadcast_checks.compiled(here.pool, await service.read(here.pool, account.id, broadcast), None)
    sender = BroadcastSender(
        here.pool, here.process.acceptor, UnsubscribeLinks(KEY, "https://mail.example.test", "mail.example.test")
    )
    compose = await sender.composer(row)
    recipients = await next_recipients(here.pool, broadcast, 10)
    twice = [message for _ in range(2) for message in (await sender._composed(row, content, recipients, compose))[0]]

    decisions = await here.process.acceptor.accept_set(twice)

    assert [isinstance(one, Accepted) for one in decisions] == [True] * 3 + [False] * 3
    assert len(await addressed(here.pool, account)) == 3
    assert (await here.counts(broadcast)).accepted == 3


@pytest.fixture
def decided_under_locks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches of copies that are decided under the locks, not stored by one call."""
    sizes, stored = list[int](), Storer._store_locked

    async def counted(self: Storer, connection: Conn, batch: Sequence[Pending], *others: Any) -> BatchResult:
        sizes.append(len(batch))
        return await stored(self, connection, batch, *others)

    monkeypatch.setattr(Storer, "_store_locked", counted)
    return sizes


async def test_a_batch_is_stored_by_one_call_unless_a_message_is_decided_otherwise(
    here: BroadcastWorld, account: TestAccount, decided_under_locks: list[int]
) -> None:
    broadcast = await here.sent(account, await make_list(here.pool, account, 120, domains=7))
    await here.runner.run_due()
    assert (await here.counts(broadcast)).accepted == 120
    assert decided_under_locks == [FIRST_BATCH]  # the process did not know the account's head
    assert await history.chain_holds(here.pool, account)

    await here.pool.execute("UPDATE accounts SET daily_cap = 150 WHERE id = $1", account.id)
    more = await here.sent(account, await make_list(here.pool, account, [f"more{n}@x.test" for n in range(40)]))
    await here.runner.run_due()
    assert (await here.counts(more)).accepted == 30
    assert decided_under_locks[1:] == [40]
    assert len(set(await addressed(here.pool, account))) == 150
    assert await history.chain_holds(here.pool, account)


async def test_batches_of_large_content_are_stored_by_one_call_too(
    here: BroadcastWorld, account: TestAccount, decided_under_locks: list[int]
) -> None:
    text = "A line of the newsletter, as long as lines are.\n" * 2_000
    broadcast = await here.sent(account, await make_list(here.pool, account, 20), text=text, html=f"<p>{text}</p>")
    await here.runner.run_due()
    assert (await here.counts(broadcast)).accepted == 20
    assert decided_under_locks == [MAX_BATCH_BYTES // (2 * len(text))]  # the process did not know the account's head


async def test_a_pause_just_before_a_batch_is_stored_keeps_it_out(
    here: BroadcastWorld, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    broadcast = await here.sent(account, await make_list(here.pool, account, 5))
    called = Storer._store_in_one_call

    async def paused_before(self: Storer, *given: Any) -> BatchResult | None:
        await service.pause(here.pool, account.id, broadcast, actor=ACTOR)
        return await called(self, *given)

    monkeypatch.setattr(Storer, "_store_in_one_call", paused_before)
    await here.runner.run_due()

    counts, row = await here.counts(broadcast), await here.read(account, broadcast)
    assert (counts.accepted, counts.waiting, row.status) == (0, 5, "paused")
    for table in ("messages", "queue", "unsubscribe_links"):
        assert await here.pool.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", account.id) == 0, table


async def test_a_daily_limit_that_other_mail_reaches_while_a_batch_is_written_holds(
    here: BroadcastWorld, account: TestAccount
) -> None:
    """A batch is decided twice: before its content is written, and under the lock of the account's head."""
    await here.pool.execute("UPDATE accounts SET daily_cap = 3 WHERE id = $1", account.id)
    broadcast = await here.sent(account, await make_list(here.pool, account, 5))
    await start(here.pool, account.id, broadcast, clock.now())
    async with here.pool.acquire() as other:
        async with other.transaction():
            await other.execute("SELECT FROM account_heads WHERE account_id = $1 FOR UPDATE", account.id)
            await here.make_due(broadcast)
            running = asyncio.create_task(here.runner.run_due())
            async with asyncio.timeout(30):
                while not await here.pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            await other.execute(
                "UPDATE account_heads SET day = $2, sent_today = 2 WHERE account_id = $1",
                account.id,
                clock.now().date(),
            )
        await running

    assert len(await addressed(here.pool, account)) == 1
    for table in ("messages", "queue", "unsubscribe_links"):
        assert await here.pool.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", account.id) == 1, table
    assert await here.pool.fetchval("SELECT sent_today FROM account_heads WHERE account_id = $1", account.id) == 3
    counts, row = await here.counts(broadcast), await here.read(account, broadcast)
    assert (counts.accepted, counts.waiting, row.status, row.paused_because) == (1, 4, "paused", "daily_limit")


async def test_recipients_who_cannot_get_it_are_skipped_by_reason_and_the_others_get_it(
    here: BroadcastWorld, account: TestAccount
) -> None:
    people = {f"{name}@x.test": {"plan": "a\nb" if name == "broken" else "pro"} for name in
              ("ok", "blocked", "late", "broken", "unconfirmed", "left")}  # fmt: skip
    news = await make_list(here.pool, account, people)
    await here.pool.execute(
        "UPDATE contacts SET confirmed = false WHERE account_id = $1 AND address = 'unconfirmed@x.test'", account.id
    )
    await here.pool.execute(
        "INSERT INTO topic_opt_outs (account_id, list_id, address, created_at) VALUES ($1, $2, 'left@x.test', now())",
        account.id, news,
    )  # fmt: skip
    await suppress_address(here.pool, account, "blocked@x.test")
    broadcast = await here.sent(account, news, subject="For {{plan}}")
    await here.runner.run_due()

    assert await states(here.pool, broadcast) == {
        "ok@x.test": "accepted", "late@x.test": "accepted", "blocked@x.test": "suppressed",
        "broken@x.test": "template_error", "unconfirmed@x.test": "unconfirmed", "left@x.test": "unsubscribed",
    }  # fmt: skip
    counts = await here.counts(broadcast)
    assert counts.accepted + counts.skipped == counts.recipients
    assert (await here.read(account, broadcast)).status == "sent"


async def test_a_contact_deleted_after_the_start_is_skipped_and_one_added_is_left_out(
    here: BroadcastWorld, account: TestAccount
) -> None:
    await here.pool.execute("UPDATE accounts SET daily_cap = 0 WHERE id = $1", account.id)
    news = await make_list(here.pool, account, ["ann@x.test", "bob@x.test"])
    broadcast = await here.sent(account, news)
    await here.runner.run_due()  # started, and paused at the limit
    await here.pool.execute("DELETE FROM contacts WHERE account_id = $1 AND address = 'bob@x.test'", account.id)
    await here.pool.execute("DELETE FROM contact_lists WHERE id = $1", news)
    await make_list(here.pool, account, ["eve@x.test"])
    await here.pool.execute("UPDATE accounts SET daily_cap = 100 WHERE id = $1", account.id)
    await here.make_due(broadcast)
    await here.runner.run_due()

    assert await states(here.pool, broadcast) == {"ann@x.test": "accepted", "bob@x.test": "removed"}
    assert (await here.read(account, broadcast)).status == "sent"


async def test_a_broadcast_goes_on_by_itself_on_the_next_utc_day(here: BroadcastWorld, account: TestAccount) -> None:
    await here.pool.execute("UPDATE accounts SET daily_cap = 30 WHERE id = $1", account.id)
    broadcast = await here.sent(account, await make_list(here.pool, account, 50))
    await here.runner.run_due()
    waits_until = (await here.read(account, broadcast)).resumes_at

    # A day passes: the stored times move back, by an hour more for a run right after midnight.
    await here.pool.execute("UPDATE account_heads SET day = day - 1 WHERE account_id = $1", account.id)
    await here.pool.execute(
        "UPDATE broadcast_work SET due_at = due_at - interval '25 hours' WHERE broadcast_id = $1", broadcast
    )
    await here.runner.run_due()

    assert waits_until is not None
    assert waits_until.date() == clock.now().date() + timedelta(days=1)
    row, counts = await here.read(account, broadcast), await here.counts(broadcast)
    assert (row.status, counts.accepted, counts.waiting) == ("sent", 50, 0)


async def test_a_limit_in_the_middle_of_a_batch_puts_the_rest_back_until_it_is_lifted(
    here: BroadcastWorld, account: TestAccount
) -> None:
    await here.pool.execute("UPDATE accounts SET daily_cap = 30 WHERE id = $1", account.id)
    news = await make_list(here.pool, account, 50)
    broadcast = await here.sent(account, news)
    await here.runner.run_due()

    row, counts = await here.read(account, broadcast), await here.counts(broadcast)
    assert (row.status, row.paused_because, counts.accepted, counts.waiting) == ("paused", "daily_limit", 30, 20)
    assert row.resumes_at is not None
    assert (row.resumes_at.hour, row.resumes_at.minute < 10) == (0, True)
    await here.make_due(broadcast)
    await here.runner.run_due()
    assert (await here.read(account, broadcast)).status == "paused"
    await here.pool.execute("UPDATE accounts SET daily_cap = 100 WHERE id = $1", account.id)
    await here.make_due(broadcast)
    await here.runner.run_due()
    assert (await here.read(account, broadcast)).status == "sent"
    assert len(set(await addressed(here.pool, account))) == 50
    kinds = [kind for kind, _ in await broadcast_events(here.pool, account)]
    assert kinds == ["created", "started", "paused", "resumed", "finished"]


async def test_the_reserve_is_left_for_other_mail(settings: Settings) -> None:
    async with broadcasting(structs.replace(settings, broadcast_reserve=0.25)) as here:
        account = await with_stream(here.pool, await make_account(here.pool, daily_cap=20))
        broadcast = await here.sent(account, await make_list(here.pool, account, 20))
        await here.runner.run_due()

        assert (await here.counts(broadcast)).accepted == 15
        assert (await here.read(account, broadcast)).paused_because == "daily_limit"
        assert (await here.process.send(account)).status == "queued"


@pytest.mark.parametrize("obstacle", ["suspended", "domain", "stream"])
async def test_an_obstacle_pauses_under_its_name_and_its_end_resumes(
    here: BroadcastWorld, account: TestAccount, obstacle: str
) -> None:
    news = await make_list(here.pool, account, 3)
    broadcast = await here.sent(account, news)
    away, back = {
        "suspended": ("UPDATE accounts SET status = 'suspended' WHERE id = $1",
                      "UPDATE accounts SET status = 'active' WHERE id = $1"),
        "domain": ("UPDATE domains SET status = 'failed' WHERE account_id = $1",
                   "UPDATE domains SET status = 'verified' WHERE account_id = $1"),
        "stream": ("UPDATE streams SET deleted_at = now() WHERE account_id = $1 AND slug = 'announcements'",
                   "UPDATE streams SET deleted_at = NULL WHERE account_id = $1 AND slug = 'announcements'"),
    }[obstacle]  # fmt: skip
    await here.pool.execute(away, account.id)
    await here.runner.run_due()
    row = await here.read(account, broadcast)
    assert (row.status, row.paused_because) == ("paused", obstacle)

    async with broadcasting(here_settings(here)) as fresh:  # nothing cached
        await fresh.pool.execute(back, account.id)
        await fresh.make_due(broadcast)
        await fresh.runner.run_due()
        assert (await fresh.read(account, broadcast)).status == "sent"


def here_settings(here: BroadcastWorld) -> Settings:
    """Return the settings of a world."""
    return here.runner._settings


async def test_the_platform_ceiling_lets_it_wait_without_another_state(
    settings: Settings, new_database: NewDatabase
) -> None:
    made = structs.replace(settings, platform_daily_ceiling=10, database_url=await new_database())
    async with broadcasting(made) as here:
        account = await with_stream(here.pool, await make_account(here.pool))
        broadcast = await here.sent(account, await make_list(here.pool, account, 25))
        await here.runner.run_due()

        row = await here.read(account, broadcast)
        assert (row.status, row.waits_for) == ("sending", "platform_paused")
        assert (await here.counts(broadcast)).accepted == 10


async def test_the_pace_bounds_how_many_are_accepted_in_a_turn(here: BroadcastWorld, account: TestAccount) -> None:
    broadcast = await here.sent(account, await make_list(here.pool, account, 30), per_minute=120)
    await here.runner.run_due()

    assert (await here.counts(broadcast)).accepted == 10  # five seconds' worth
    wait = await here.pool.fetchval(
        "SELECT due_at - clock_timestamp() FROM broadcast_work WHERE broadcast_id = $1", broadcast
    )
    assert 0 < wait.total_seconds() <= 5
    assert (await here.read(account, broadcast)).waits_for == "pace"


async def test_the_template_version_of_send_is_used_even_if_the_template_is_deleted(
    here: BroadcastWorld, account: TestAccount
) -> None:
    await here.pool.execute(
        "INSERT INTO templates (account_id, slug, version, created_at, updated_at)"
        " VALUES ($1, 'news', 1, now(), now())",
        account.id,
    )
    for version, text in ((1, "first {{code}}"), (2, "second")):
        await here.pool.execute(
            "INSERT INTO template_versions (account_id, slug, version, text, variables, created_at)"
            " VALUES ($1, 'news', $2, $3, $4, now())",
            account.id, version, text, '[{"name": "code", "required": true}]' if version == 1 else "[]",
        )  # fmt: skip
    news = await make_list(here.pool, account, {"ann@x.test": {"code": 5}, "bob@x.test": {}})
    broadcast = await here.sent(account, news, template="news", text=None)
    await here.pool.execute(
        "UPDATE templates SET version = 2, deleted_at = now() WHERE account_id = $1 AND slug = 'news'", account.id
    )
    await here.runner.run_due()

    assert await states(here.pool, broadcast) == {"ann@x.test": "accepted", "bob@x.test": "template_error"}
    assert (await mail_of(here, account, "ann@x.test")).get_content().startswith("first 5")


@pytest.mark.exhaustive
async def test_lists_below_the_limit_cannot_go_around_the_review(here: BroadcastWorld, account: TestAccount) -> None:
    first, second = [await make_list(here.pool, account, [f"p{place + n}@x.test" for n in range(700)])
                     for place in (0, 600)]  # fmt: skip
    one = await here.sent(account, first)
    again = await here.sent(account, first)
    await here.runner.run_due()
    assert [(await here.read(account, each)).status for each in (one, again)] == ["sent", "sent"]
    other = await here.sent(account, second)  # 1,300 different people in a day
    assert (await here.read(account, other)).status == "in_review"

    await service.approve(here.pool, other, (await here.read(account, other)).updated_at)
    await here.runner.run_due()
    assert (await here.read(account, other)).status == "sent"
    third = await here.sent(account, second)
    assert (await here.read(account, third)).status == "sending"


async def test_the_review_is_decided_again_at_the_start(here: BroadcastWorld, account: TestAccount) -> None:
    first, second = [await make_list(here.pool, account, [f"p{place + n}@x.test" for n in range(600)])
                     for place in (0, 600)]  # fmt: skip
    both = [await here.sent(account, each) for each in (first, second)]
    await here.runner.run_due()

    found = sorted([(await here.read(account, each)).status for each in both])
    assert found == ["in_review", "sent"]


async def test_broadcasts_that_were_paused_for_days_count_for_the_review(
    here: BroadcastWorld, account: TestAccount
) -> None:
    first, second = [await make_list(here.pool, account, [f"p{place + n}@x.test" for n in range(600)])
                     for place in (0, 600)]  # fmt: skip
    paused = await here.sent(account, first, per_minute=1)
    await here.runner.run_due()
    await service.pause(here.pool, account.id, paused, actor=ACTOR)
    await here.pool.execute("UPDATE broadcasts SET started_at = now() - interval '2 days' WHERE id = $1", paused)

    other = await here.sent(account, second)
    assert (await here.read(account, other)).status == "in_review"


async def test_a_scheduled_broadcast_starts_at_its_time_with_those_who_are_on_the_list_then(
    here: BroadcastWorld, account: TestAccount
) -> None:
    news = await make_list(here.pool, account, ["ann@x.test"])
    broadcast = await here.draft(account, news)
    await here.send(account, broadcast, clock.iso(clock.now() + timedelta(hours=2)))
    await here.make_due(broadcast)  # a worker looks too early
    await here.runner.run_due()
    row = await here.read(account, broadcast)
    assert (row.status, row.started_at) == ("scheduled", None)

    await here.pool.execute(
        "INSERT INTO contact_list_members (list_id, contact_id, account_id, added_at)"
        " SELECT $1, contact_id, account_id, added_at FROM contact_list_members WHERE list_id = $2",
        news, await make_list(here.pool, account, ["bob@x.test"]),
    )  # fmt: skip
    await here.pool.execute("UPDATE broadcasts SET scheduled_at = now() WHERE id = $1", broadcast)
    await here.make_due(broadcast)
    await here.runner.run_due()
    assert (await here.read(account, broadcast)).status == "sent"
    assert await states(here.pool, broadcast) == {"ann@x.test": "accepted", "bob@x.test": "accepted"}


async def test_a_broadcast_whose_list_is_gone_before_the_start_is_canceled_with_a_note(
    here: BroadcastWorld, account: TestAccount
) -> None:
    news = await make_list(here.pool, account, 2)
    broadcast = await here.sent(account, news)
    await here.pool.execute("DELETE FROM contact_lists WHERE id = $1", news)
    await here.runner.run_due()

    row = await here.read(account, broadcast)
    assert (row.status, row.review_note) == ("canceled", "Its list or segment was deleted before it started.")
    assert await addressed(here.pool, account) == []


async def test_a_segment_is_the_audience(here: BroadcastWorld, account: TestAccount) -> None:
    await make_list(here.pool, account, {"ann@x.test": {"plan": "pro"}, "bob@x.test": {"plan": "free"}})
    segment = UUID(int=account.id.int ^ 1)
    await here.pool.execute(
        "INSERT INTO contact_segments (id, account_id, name, name_key, filter, created_at, updated_at)"
        """ VALUES ($1, $2, 'Pro', 'pro', '{"field": "plan", "value": "pro"}', now(), now())""",
        segment, account.id,
    )  # fmt: skip
    broadcast = await here.draft(account, None, segment_id=segment)
    await here.send(account, broadcast)
    await here.runner.run_due()

    assert await states(here.pool, broadcast) == {"ann@x.test": "accepted"}


async def test_a_closing_account_sends_nothing_more(here: BroadcastWorld, account: TestAccount) -> None:
    broadcast = await here.sent(account, await make_list(here.pool, account, 3))
    await set_status(here.pool, account.id, "closing")
    await here.runner.run_due()

    assert (await here.counts(broadcast)).accepted == 0


async def test_the_stream_says_whether_the_copies_retain_their_content(
    here: BroadcastWorld, account: TestAccount
) -> None:
    await here.pool.execute("UPDATE streams SET content_hours = 4 WHERE account_id = $1", account.id)
    news = await make_list(here.pool, account, {"ann@x.test": {"plan": "zebra canary"}, "bob@x.test": {}})
    await here.sent(account, news, subject="News", text="Your plan: {{plan}}", html=None)
    await here.runner.run_due()

    rows = await here.pool.fetch(
        "SELECT b.mime, k.hours FROM messages m JOIN message_bodies b ON b.message_id = m.id"
        " JOIN content_keys k ON k.message_id = m.id WHERE m.account_id = $1",
        account.id,
    )
    assert [row["hours"] for row in rows] == [4, 4]
    assert not any(b"zebra" in row["mime"] for row in rows)
