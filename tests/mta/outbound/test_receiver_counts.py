"""How receivers treat mail is counted in memory, and added every few seconds to what the database has."""

from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.outcome import Category, Outcome, Scope, Verdict
from engine.delivery.queue import BROADCAST_PRIORITY, Row
from engine.delivery.routes import MailHost, Route
from engine.receiving.receivers.jobs import ReceiverJudge
from engine.receiving.receivers.service import ReceiverBoard
from engine.receiving.receivers.types import MIN_SAMPLE, Cohort
from engine.sending.settle import DeliveryAttempt, Result
from engine.store.resolver import Resolver
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.sites import receiver_counts
from mta.outbound.sites.receiver_counts import BUSY, BusySites, ReceiverCounts
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.harness.outbound import World, world

GOOGLE = Route("gmail-site", (MailHost("gmail-smtp-in.l.google.com", ("192.0.2.1",)),), 25)
PEER = Route("mx.peer.test", (MailHost("mx.peer.test", ("192.0.2.2",)),), 25)
AGAIN = clock.parse_iso("2030-01-01T00:00:00Z")


def outcome(verdict: Verdict, scope: Scope = Scope.SITE, category: Category = Category.POLICY) -> Outcome:
    return Outcome(verdict, scope, category, suppress=False, smtp_code=None, enhanced_code=None, diagnostic="")


def row(domain: str = "gmail.com", account: int = 1, **fields: object) -> Row:
    made = Row(
        message_id=ids.uuid7(), domain=domain, shard=0, account_id=UUID(int=account), from_domain="a.test",
        recipients=f'[[0, "ann@{domain}"]]', total=1, due_at=clock.now(), attempts=0, signature=None, waiting=None,
        mime=None, smtputf8=False,
    )  # fmt: skip
    return structs.replace(made, **fields)


def attempt(of: Row, result: Outcome | None, *, again: bool = False) -> DeliveryAttempt:
    at = clock.now()
    return DeliveryAttempt(
        row=of, started_at=at, ended_at=at, results=(Result(0, f"ann@{of.domain}", result),), conversation={},
        signature=None, next_at=AGAIN if again else None,
    )  # fmt: skip


@pytest.fixture
def counts() -> ReceiverCounts:
    made = ReceiverCounts()
    made.routed("gmail.com", GOOGLE)
    made.routed("peer.test", PEER)
    return made


def sums(counts: ReceiverCounts) -> dict[tuple[str, str], dict[str, int]]:
    """Return what was counted by receiver, over all buckets."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for one, _ in counts.take():
        of = found.setdefault((one.provider, one.site), {})
        numbers = structs.asdict(one) | {"arrived": sum(one.times)}
        for name in ("entered", "ended", "arrived", "first_delivered", "first_deferred", "first_refused"):
            of[name] = of.get(name, 0) + numbers[name]
    return {key: {name: count for name, count in of.items() if count} for key, of in found.items()}


@pytest.mark.parametrize(
    ("result", "again", "expected"),
    [
        (outcome(Verdict.DELIVERED), False, {"arrived": 1, "first_delivered": 1}),
        (outcome(Verdict.DEFERRED), True, {"first_deferred": 1}),
        (outcome(Verdict.DEFERRED), False, {"first_deferred": 1, "ended": 1}),
        (outcome(Verdict.BOUNCED), False, {"first_refused": 1, "ended": 1}),
        (outcome(Verdict.BOUNCED, Scope.RECIPIENT), False, {"ended": 1}),
        (outcome(Verdict.DEFERRED, category=Category.LOCAL), True, {}),
        (None, False, {"ended": 1}),
    ],
)
def test_outcomes_of_first_attempts_are_counted_by_their_meaning(
    counts: ReceiverCounts, result: Outcome | None, again: bool, expected: dict[str, int]
) -> None:
    mail = row()
    counts.entered([ActiveDelivery(mail, 0.0)])
    counts.settled(attempt(mail, result, again=again))

    assert sums(counts) == {("google", ""): {"entered": 1} | expected}


def test_a_later_attempt_counts_no_first_outcome(counts: ReceiverCounts) -> None:
    counts.settled(attempt(row(attempts=2), outcome(Verdict.DELIVERED)))

    assert sums(counts) == {("google", ""): {"arrived": 1}}


def test_a_message_that_waits_for_its_first_attempt_enters_once(counts: ReceiverCounts) -> None:
    mail = row()
    for _ in range(3):  # put back into the queue, and taken again
        counts.entered([ActiveDelivery(mail, 0.0)])
    counts.entered([ActiveDelivery(row(attempts=1), 0.0)])

    assert sums(counts) == {("google", ""): {"entered": 1}}


def test_broadcasts_and_simulated_mail_do_not_count(counts: ReceiverCounts) -> None:
    copy = row(priority=BROADCAST_PRIORITY)
    counts.entered([ActiveDelivery(copy, 0.0)])
    counts.settled(attempt(copy, outcome(Verdict.DELIVERED)))
    counts.settled(structs.replace(attempt(row(), outcome(Verdict.DELIVERED)), simulated=True))

    assert not counts.take()


def test_a_site_of_other_providers_has_figures_once_it_is_busy(counts: ReceiverCounts) -> None:
    for _ in range(BUSY + 4):
        counts.entered([ActiveDelivery(row("peer.test"), 0.0)])

    assert sums(counts) == {("other", ""): {"entered": BUSY + 4}, ("other", "mx.peer.test"): {"entered": 5}}


def test_busy_sites_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_counts, "MAX_SITES", 3)
    monkeypatch.setattr(receiver_counts, "MAX_COUNTED_SITES", 10)
    busy = BusySites()
    for number in range(50):
        busy.note(f"mx{number}.test", BUSY, 1.0)

    assert len(busy._chosen) == 3
    assert len(busy._counts[0]) == 10


def test_at_most_three_accounts_are_kept(counts: ReceiverCounts) -> None:
    for account in range(1, 9):
        counts.entered([ActiveDelivery(row(account=account), 0.0)])

    assert max(len(accounts) for _, accounts in counts.take()) <= 3


def test_counts_that_were_not_written_are_counted_again(counts: ReceiverCounts) -> None:
    mail = row()
    counts.entered([ActiveDelivery(mail, 0.0)])
    counts.settled(attempt(mail, outcome(Verdict.DELIVERED)))
    counts.put_back(counts.take())
    counts.settled(attempt(row(), outcome(Verdict.DELIVERED)))

    assert sums(counts) == {("google", ""): {"entered": 1, "arrived": 2, "first_delivered": 2}}


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a queue of its own."""
    async with world(settings, await new_database()) as made:
        yield made


async def stored(pool: asyncpg.Pool) -> list[Cohort]:
    rows = await pool.fetch(
        "SELECT bucket, provider, site, entered, ended, first_delivered, first_deferred, first_refused, times, accounts"
        " FROM receiver_cohorts ORDER BY bucket, provider, site"
    )
    return [Cohort(**dict(one)) for one in rows]


async def test_delivery_adds_its_outcomes_to_the_cohorts_of_receivers(here: World) -> None:
    here.domain("gmail.com")
    here.sink.script("RCPT TO:<full@gmail.com>", "451 4.3.0 not now")
    mta = await here.mta(retry_ladder_s=(600.0,))
    others = [await make_account(here.pool) for _ in range(4)]
    for n, account in enumerate(others):
        await here.until_step(await here.send(f"ann{n}@gmail.com", account=account), "delivered")
    await mta.outbound.site_stats.flush()
    await here.until_step(await here.send("full@gmail.com", account=others[0]), "deferred")
    await mta.outbound.site_stats.flush()

    found = [one for one in await stored(here.pool) if one.provider == "google"]
    assert sum(one.entered for one in found) == 5
    assert sum(one.first_delivered for one in found) == sum(sum(one.times) for one in found) == 4
    assert sum(one.first_deferred for one in found) == 1
    assert all(one.site == "" and len(one.accounts) <= 3 for one in found)
    text = str(await here.pool.fetch("SELECT * FROM receiver_cohorts"))
    assert not [one for one in others if str(one.id) in text or one.id.hex in text]


async def test_a_stopping_process_writes_its_last_counts(here: World) -> None:
    mta = await here.mta()
    await here.until_step(await here.send("ann@peer.test"), "delivered")
    here.mtas.remove(mta)
    await mta.stop()

    assert sum(one.entered for one in await stored(here.pool)) == 1


async def test_delivered_mail_becomes_a_forecast(here: World) -> None:
    here.domain("gmail.com")
    mta = await here.mta()
    accounts = [here.account, await make_account(here.pool), await make_account(here.pool)]
    sent = [await here.send(f"ann{n}@gmail.com", account=accounts[n % 3]) for n in range(MIN_SAMPLE)]
    for message in sent:
        await here.until_step(message, "delivered")
    await mta.outbound.site_stats.flush()
    await ReceiverJudge().run(here.pool, here.settings)
    resolver = Resolver.from_settings(here.settings)
    found = await ReceiverBoard(here.pool, resolver, here.settings).forecast(None, {"gmail.com"}, deliver_by=None)
    await resolver.close()

    assert found is not None
    (one,) = found.receivers
    assert (one.provider, one.first_attempt_share, one.sample) == ("google", 1.0, MIN_SAMPLE)
    assert one.p90_s is not None
