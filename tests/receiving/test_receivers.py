"""Receivers are judged by what happened to the mail of all accounts, and no account sees the mail of another in it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.receiving.analytics.mailbox_providers import MailboxProvider
from engine.receiving.receivers import rules, store
from engine.receiving.receivers.jobs import ReceiverJudge
from engine.receiving.receivers.time_classes import EDGES_S, class_of, part_below, time_in
from engine.receiving.receivers.types import MIN_SAMPLE, Cohort, ReceiverKey, ReceiverState
from engine.store import metrics
from engine.store.postgres import open_pool
from ops.commands import receivers
from tests.conftest import NewDatabase

AT = datetime(2026, 3, 2, 12, 2, tzinfo=UTC)
GOOGLE = ReceiverKey(MailboxProvider.GOOGLE)


def cohort(
    minutes_ago: float, entered: int = 30, took_s: float = 1.0, arrived: int | None = None, **fields: Any
) -> Cohort:
    """Return a cohort whose bucket began so many minutes ago; what arrived took the same time."""
    count = entered if arrived is None else arrived
    times = [0] * class_of(took_s) + [count] if count else []
    made = Cohort(
        bucket=AT - timedelta(minutes=minutes_ago), provider="google", site="", entered=entered, ended=0,
        first_delivered=count, first_deferred=0, first_refused=0, times=times, accounts=["d:1", "d:2", "d:3"],
    )  # fmt: skip
    return structs.replace(made, **fields)


def state_of(*cohorts: Cohort, usual: list[Cohort] | None = None, before: ReceiverState | None = None) -> str:
    row = None
    if before is not None:
        row = structs.replace(rules.judged(GOOGLE, [], None, None, AT), state=before.value)
    return rules.judged(GOOGLE, cohorts, None if usual is None else rules.usual_figures(usual), row, AT).state


# -- classes of time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 0.05, 0.1, 0.11, 1.0, 59.0, 3600.0, 86_400.0, 1e7])
def test_a_time_is_in_the_class_that_holds_it(seconds: float) -> None:
    place = class_of(seconds)
    assert seconds <= EDGES_S[place] or place == len(EDGES_S) - 1
    assert place == 0 or seconds > EDGES_S[place - 1]
    if 0 < seconds < EDGES_S[-1]:
        assert time_in(place, part_below(place, seconds)) == pytest.approx(seconds)


# -- the life table ----------------------------------------------------------------------------------


def test_without_waiting_mail_the_curve_is_the_share_that_took_longer() -> None:
    mail = [cohort(30, 90, 1.0), cohort(35, 10, 100.0)]
    shares = rules.survival(mail, AT, 3600)
    assert shares[class_of(1.0)] == pytest.approx(0.1)
    assert shares[class_of(1.0) - 1] == 1.0
    assert shares[-1] == 0.0
    p95_s = rules.quantile_s(shares, 0.95)
    assert p95_s is not None
    assert EDGES_S[class_of(100.0) - 1] < p95_s < EDGES_S[class_of(100.0)]


def test_waiting_mail_counts_as_long_as_it_has_waited() -> None:
    half_waits = rules.survival([cohort(20, 100, 1.0, arrived=50)], AT, 3600)
    assert rules.quantile_s(half_waits, 0.5) is not None
    assert rules.quantile_s(half_waits, 0.9) is None  # nothing has arrived later than that, and much may
    assert rules.share_within(half_waits, 60.0) == pytest.approx(0.5)
    assert rules.share_within(half_waits, 7200.0) is None


def test_mail_that_ended_is_not_expected_any_more() -> None:
    assert rules.survival([cohort(20, 100, 1.0, arrived=60, ended=40)], AT, 3600)[-1] == 0.0


def test_counts_lost_with_a_process_do_not_make_waiting_mail_negative() -> None:
    assert rules.survival([cohort(20, 10, 1.0, arrived=60, ended=5)], AT, 3600)[-1] == 0.0


def test_after_a_recovery_old_waits_do_not_count_for_new_mail() -> None:
    recovered = [cohort(40, 50, 1800.0), cohort(45, 50, 2100.0), *(cohort(minutes, 50, 1.0) for minutes in (6, 11))]
    p90_s = rules.quantile_s(rules.judged(GOOGLE, recovered, None, None, AT).survival, 0.9)
    assert p90_s is not None
    assert p90_s < 2.0


def test_a_message_that_has_waited_is_told_the_rest() -> None:
    shares = rules.survival([cohort(60, 80, 1.0), cohort(65, 20, 600.0)], AT, 3600)
    fresh, waiting = rules.quantile_s(shares, 0.5), rules.quantile_s(shares, 0.5, waited_s=30.0)
    assert fresh is not None
    assert waiting is not None
    assert fresh < 2.0
    assert 400 < waiting < 800


# -- states ------------------------------------------------------------------------------------------


def test_few_messages_tell_nothing() -> None:
    row = rules.judged(GOOGLE, [cohort(20, MIN_SAMPLE - 1)], None, None, AT)
    assert (row.state, row.survival, row.first_share, row.sample) == ("unknown", [], None, MIN_SAMPLE - 1)


def test_rejected_addresses_tell_nothing() -> None:
    row = rules.judged(GOOGLE, [cohort(20, 100, arrived=0, ended=100)], None, None, AT)
    assert (row.state, row.sample) == ("unknown", 0)


def test_with_few_messages_the_same_hour_of_the_week_gives_the_times() -> None:
    usual = rules.usual_figures([cohort(24 * 60 * day, 10, 5.0) for day in range(1, 8)])
    row = rules.judged(GOOGLE, [], usual, None, AT)
    assert (row.state, row.basis, row.sample) == ("unknown", "week", 70)
    assert rules.quantile_s(row.survival, 0.9) is not None


@pytest.mark.parametrize(
    ("lately", "expected"),
    [
        ({}, "normal"),
        ({"arrived": 20, "first_deferred": 10}, "deferring"),
        ({"arrived": 10, "first_refused": 20, "ended": 20}, "refusing"),
        ({"took_s": 400.0}, "slow"),
        ({"arrived": 20}, "slow"),  # a third waits for its first attempt
    ],
)
def test_states(lately: dict[str, Any], expected: str) -> None:
    assert state_of(cohort(21, 30, **lately), cohort(26, 30, **lately)) == expected


def test_slow_is_measured_by_what_is_usual_at_that_hour() -> None:
    slow = [cohort(21, 60, 100.0)]
    assert state_of(*slow) == "normal"
    assert state_of(*slow, usual=[cohort(24 * 60, 60, 10.0)]) == "slow"
    assert state_of(*slow, usual=[cohort(24 * 60, 60, 90.0)]) == "normal"


def test_a_state_ends_at_another_number_than_it_began() -> None:
    some = cohort(21, 60, arrived=48, first_deferred=12)
    assert state_of(some) != "deferring"
    assert state_of(some, before=ReceiverState.DEFERRING) == "deferring"


def test_since_is_kept_while_the_state_lasts() -> None:
    first = rules.judged(GOOGLE, [cohort(21, 60)], None, None, AT)
    later = rules.judged(GOOGLE, [cohort(20, 60)], None, first, AT + timedelta(minutes=1))
    changed = rules.judged(GOOGLE, [cohort(20, 60, first_refused=90)], None, later, AT + timedelta(minutes=2))
    assert (later.since, changed.since) == (first.since, AT + timedelta(minutes=2))


# -- whose figures they are --------------------------------------------------------------------------


def test_accounts_are_counted_by_day_because_their_keys_change() -> None:
    assert rules.account_count(["a:1", "a:2", "b:3", "b:4"]) == 2
    assert rules.account_count(["a:1", "a:2", "a:3", "b:1"]) == 3
    assert rules.account_count([]) == 0


def test_late_mail_of_others_is_no_part_of_ones_own_figures() -> None:
    mine, others = cohort(11, 100, 1.0, arrived=70, accounts=["d:1"]), cohort(16, 50, 700.0, accounts=["d:2"])
    alone = rules.judged(GOOGLE, [mine], None, None, AT)
    together = rules.judged(GOOGLE, [mine, others], None, None, AT)

    assert rules.survival([mine, others], AT, 600) != rules.survival([mine], AT, 600)
    assert together == alone
    assert alone.accounts == ["d:1"]


def test_digests_of_different_days_and_accounts_differ(settings: Settings) -> None:
    one, other, day = uuid4(), uuid4(), AT.date()
    made = {
        store.account_digest(settings.pepper, account, on)
        for account in (one, other)
        for on in (day, day + timedelta(days=1))
    }
    assert len({text.partition(":")[2] for text in made}) == 4
    assert store.account_digest(settings.pepper, one, day) in made


# -- the database ------------------------------------------------------------------------------------


@pytest.fixture
async def own(new_database: NewDatabase) -> Any:
    pool = await open_pool(await new_database(), name="tests", largest=2)
    yield pool
    await pool.close()


async def test_processes_add_up_in_one_row(own: asyncpg.Pool, settings: Settings) -> None:
    accounts = [UUID(int=number) for number in range(1, 6)]
    await store.add_cohorts(own, settings.pepper, [(cohort(10, 20, 1.0, accounts=[]), accounts[:2])])
    await store.add_cohorts(own, settings.pepper, [(cohort(10, 10, 100.0, ended=3, accounts=[]), accounts[1:])])
    (found,) = await store.recent_cohorts(own, AT)

    assert (found.entered, found.ended, found.first_delivered) == (30, 3, 30)
    assert (found.times[class_of(1.0)], found.times[class_of(100.0)], sum(found.times)) == (20, 10, 30)
    assert len(found.accounts) == 3


async def test_old_cohorts_are_read_while_their_mail_matters(own: asyncpg.Pool, settings: Settings) -> None:
    mail = [cohort(180), cohort(185, arrived=5), cohort(190, took_s=7200.0), cohort(60), cohort(27 * 60, arrived=0)]
    await store.add_cohorts(own, settings.pepper, [(one, ()) for one in mail])

    assert {one.bucket for one in await store.recent_cohorts(own, AT)} == {one.bucket for one in mail[1:4]}


async def test_leaving_old_cohorts_out_changes_no_judgement(own: asyncpg.Pool, settings: Settings) -> None:
    mail = [cohort(minutes, 40, 1.0 + minutes / 50, arrived=40 - minutes // 100) for minutes in range(2, 1400, 5)]
    await store.add_cohorts(own, settings.pepper, [(one, ()) for one in mail])
    read = await store.recent_cohorts(own, AT)

    assert len(read) < len(mail)
    assert rules.judged(GOOGLE, read, None, None, AT).survival == rules.judged(GOOGLE, mail, None, None, AT).survival


async def test_the_worker_judges_all_providers_and_busy_sites(
    own: asyncpg.Pool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.base.clock.now", lambda: AT)
    site: dict[str, Any] = {"provider": "other", "site": "mx.peer.test"}
    mail = [cohort(10, 100), cohort(10, 50, **site), cohort(24 * 60, 50), cohort(9 * 24 * 60, 50)]
    await store.add_cohorts(own, settings.pepper, [(one, (UUID(int=1),)) for one in mail])
    await ReceiverJudge().run(own, settings)
    rows = {one.key: one for one in await store.LIST.fetch(own)}

    assert {key for key in rows if not key.site} == {ReceiverKey(one) for one in MailboxProvider}
    assert (rows[GOOGLE].state, rows[GOOGLE].sample, rules.account_count(rows[GOOGLE].accounts)) == ("normal", 100, 1)
    assert rows[ReceiverKey(MailboxProvider.OTHER, "mx.peer.test")].sample == 50
    assert rows[ReceiverKey(MailboxProvider.APPLE)].state == "unknown"
    assert await own.fetchval("SELECT count(*) FROM receiver_cohorts") == 3  # the one of nine days ago is deleted


async def test_an_idle_service_writes_nothing(own: asyncpg.Pool, settings: Settings) -> None:
    versions = "SELECT array_agg(xmin::text ORDER BY provider) FROM receivers"
    judge = ReceiverJudge()
    await judge.run(own, settings)
    before = await own.fetchval(versions)
    await judge.run(own, settings)

    assert len(before) == len(MailboxProvider)
    assert await own.fetchval(versions) == before


async def test_the_operator_sees_receivers_of_fewer_accounts_too(own: asyncpg.Pool) -> None:
    row = rules.judged(GOOGLE, [cohort(10, 100, accounts=["d:1"])], None, None, AT)
    await store.write_receivers(own, [row])
    (found,) = await receivers.standing(own)

    assert (found["provider"], found["site"], found["state"], found["accounts"]) == ("google", None, "normal", 1)
    assert found["p90S"] is not None


async def test_the_metric_tells_the_state_of_each_provider(
    own: asyncpg.Pool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.base.clock.now", lambda: AT)
    await store.add_cohorts(own, settings.pepper, [(cohort(10, 100, first_refused=200), ())])
    await ReceiverJudge().run(own, settings)

    values = {
        state: metrics.RECEIVER_STATE.labels("google", state)._value.get()
        for state in ("normal", "refusing", "unknown")
    }
    assert values == {"normal": 0.0, "refusing": 1.0, "unknown": 0.0}
