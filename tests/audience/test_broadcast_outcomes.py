"""Outcomes of broadcasts, counted from the account log when they come, and the rule that stops a bad broadcast."""

from uuid import UUID

import pytest

from engine.audience.broadcasts import outcomes as broadcast_outcomes
from engine.audience.broadcasts import rules, service
from engine.audience.broadcasts.types import BroadcastCounts, StopReason
from engine.base import clock, ids
from engine.base.events import AccountEvent, EventType
from engine.ledger import log
from engine.ledger.events import append_events
from tests.harness.accounts import TestAccount, make_account
from tests.harness.broadcasts import ACTOR, BroadcastWorld, make_list, with_stream
from tests.harness.people import make_person


@pytest.fixture
async def account(here: BroadcastWorld) -> TestAccount:
    return await with_stream(here.pool, await make_account(here.pool))


async def messages(here: BroadcastWorld, broadcast: UUID) -> list[UUID]:
    rows = await here.pool.fetch(
        "SELECT message_id FROM broadcast_recipients WHERE broadcast_id = $1 AND message_id IS NOT NULL", broadcast
    )
    return [row["message_id"] for row in rows]


async def tell(here: BroadcastWorld, account: TestAccount, of: list[UUID], kind: EventType) -> None:
    """Append an outcome of each message to the account log, as settling does."""
    async with here.pool.acquire() as connection, connection.transaction():
        entries = [
            log.Entry(account.id, kind, "{}", clock.now(), one, ids.format_id(ids.Kind.MESSAGE, one)) for one in of
        ]
        await append_events(connection, entries)


async def test_a_message_counts_by_its_last_outcome_whenever_it_comes(
    here: BroadcastWorld, account: TestAccount
) -> None:
    other = await here.process.send(account)
    broadcast = await here.sent(account, await make_list(here.pool, account, 6))
    await here.runner.run_due()
    found = await messages(here, broadcast)
    await tell(here, account, found[:4], EventType.DELIVERED)
    await tell(here, account, [*found[4:5], ids.parse_id(ids.Kind.MESSAGE, other.id)], EventType.BOUNCED)
    await broadcast_outcomes.count_new(here.pool)
    counts = await here.counts(broadcast)
    assert (counts.delivered, counts.bounced, counts.settled) == (4, 1, 5)

    await tell(here, account, found[:1], EventType.COMPLAINED)
    await tell(here, account, found[1:2], EventType.BOUNCED)
    await tell(here, account, found[5:], EventType.SUPPRESSED)
    await broadcast_outcomes.count_new(here.pool)
    await broadcast_outcomes.count_new(here.pool)
    counts = await here.counts(broadcast)
    assert (counts.delivered, counts.bounced, counts.complained, counts.rejected) == (2, 2, 1, 1)


async def test_people_who_leave_through_its_link_are_counted(here: BroadcastWorld, account: TestAccount) -> None:
    broadcast = await here.sent(account, await make_list(here.pool, account, 2))
    await here.runner.run_due()
    named = log.detail_text({"broadcast_id": ids.format_id(ids.Kind.BROADCAST, broadcast)})
    async with here.pool.acquire() as connection, connection.transaction():
        kinds = (
            AccountEvent.CONTACT_UNSUBSCRIBED,
            AccountEvent.CONTACT_UNSUBSCRIBED,
            AccountEvent.CONTACT_RESUBSCRIBED,
        )
        await append_events(connection, [log.Entry(account.id, kind, named, clock.now()) for kind in kinds])
    await broadcast_outcomes.count_new(here.pool)
    assert (await here.counts(broadcast)).unsubscribed == 1


async def test_bounces_of_its_own_messages_stop_it_for_good_and_no_other(
    here: BroadcastWorld, account: TestAccount
) -> None:
    await here.pool.execute("UPDATE accounts SET daily_cap = 250 WHERE id = $1", account.id)
    people = [await make_person(here.pool, account.id, role) for role in ("owner", "admin", "member")]
    news = await make_list(here.pool, account, 300)
    broadcast = await here.sent(account, news)
    await here.runner.run_due()  # 250 accepted, then paused at the limit
    other = await here.sent(account, news)
    found = await messages(here, broadcast)
    await tell(here, account, found[:199], EventType.BOUNCED)
    await broadcast_outcomes.count_new(here.pool)
    assert (await here.read(account, broadcast)).status == "paused"
    await tell(here, account, found[199:200], EventType.DELIVERED)
    await broadcast_outcomes.count_new(here.pool)

    row = await here.read(account, broadcast)
    assert (row.status, row.stopped_because) == ("stopped", "bounce_rate")
    assert (await here.read(account, other)).status == "sending"
    await here.pool.execute("UPDATE accounts SET daily_cap = 1000 WHERE id = $1", account.id)
    await here.make_due(broadcast)
    await here.runner.run_due()
    assert (await here.counts(broadcast)).accepted == 250
    rows = await here.pool.fetch(
        "SELECT address, detail ->> 'why' AS why, detail ->> 'settled' AS settled FROM system_mail"
        " WHERE kind = 'broadcast_stopped' AND detail ->> 'id' = $1 ORDER BY address",
        ids.format_id(ids.Kind.BROADCAST, broadcast),
    )
    assert [tuple(row) for row in rows] == [
        (email, "more than 10% of its messages bounced", "200") for email in sorted(one.email for one in people[:2])
    ]


async def test_outcomes_are_counted_until_30_days_after_the_end(here: BroadcastWorld, account: TestAccount) -> None:
    broadcast = await here.sent(account, await make_list(here.pool, account, 2), per_minute=1)
    await here.runner.run_due()  # one is accepted
    (first,) = await messages(here, broadcast)
    await here.pool.execute(
        "UPDATE broadcast_watches SET ends_at = now() - interval '1 s' WHERE account_id = $1", account.id
    )
    await broadcast_outcomes.forget_old(here.pool, clock.now())
    await tell(here, account, [first], EventType.BOUNCED)
    await broadcast_outcomes.count_new(here.pool)
    assert (await here.counts(broadcast)).bounced == 1

    await service.cancel(here.pool, account.id, broadcast, actor=ACTOR)
    await here.pool.execute("UPDATE broadcasts SET finished_at = now() - interval '31 days' WHERE id = $1", broadcast)
    await broadcast_outcomes.forget_old(here.pool, clock.now())
    assert not await here.pool.fetch("SELECT 1 FROM broadcast_watches WHERE account_id = $1", account.id)


@pytest.mark.parametrize(
    ("delivered", "bounced", "complained", "why"),
    [
        (180, 20, 0, None), (179, 21, 0, StopReason.BOUNCE_RATE), (0, 199, 0, None), (998, 0, 3, None),
        (997, 0, 4, StopReason.COMPLAINT_RATE), (199, 0, 1, StopReason.COMPLAINT_RATE), (150, 48, 1, None),
    ],
)  # fmt: skip
def test_the_stop_rule_needs_200_outcomes_and_more_than_its_shares(
    delivered: int, bounced: int, complained: int, why: StopReason | None
) -> None:
    counts = BroadcastCounts(delivered=delivered, bounced=bounced, complained=complained)
    assert rules.stop_reason(counts) is why
