"""Mails about used-up limits: to owners and admins, each once a period."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from uuid import UUID

import asyncpg
import orjson
import pytest

from engine.accounts import limit_mails
from engine.accounts.sub_accounts.service import open_sub_account
from engine.base import clock
from engine.base.plans import Plan
from engine.ledger.heads import AccountHead
from engine.store.database_errors import ConstraintViolation
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.account_log import kinds_mailed
from tests.harness.accounts import TestAccount, make_account
from tests.harness.people import TestPerson, make_person

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
async def own_pool(lasting_database: NewDatabase) -> AsyncIterator[asyncpg.Pool]:
    """A database of this module's own: the job looks at every account in it."""
    opened = await open_pool(await lasting_database(), name="tests", largest=6)
    yield opened
    await opened.close()


@pytest.fixture
async def account(own_pool: asyncpg.Pool) -> TestAccount:
    return await make_account(own_pool, daily_cap=40, monthly_cap=100)


@pytest.fixture
async def owner(own_pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    return await make_person(own_pool, account.id, "owner")


async def count(pool: asyncpg.Pool, account: UUID, *, today: int = 0, month: int = 0, day: date | None = None) -> None:
    """Let the account have sent so many messages by `day`."""
    at = day or NOON.date()
    await pool.execute(
        "UPDATE account_heads SET day = $2, sent_today = $3, month = $4, sent_this_month = $5 WHERE account_id = $1",
        account, at, today, clock.first_of_month(at), month,
    )  # fmt: skip


async def test_each_limit_is_told_once_a_period_as_it_is_reached(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    expected: list[str] = []
    for today, month, told in (
        (39, 79, None), (40, 79, "daily_limit_reached"), (40, 80, "monthly_limit_near"), (40, 99, None),
        (40, 100, "monthly_limit_reached"), (40, 100, None),
    ):  # fmt: skip
        await count(own_pool, account.id, today=today, month=month)
        await limit_mails.send_due(own_pool, NOON)
        expected += [told] if told else []
        assert await kinds_mailed(own_pool, owner.email) == expected

    await count(own_pool, account.id, today=40, month=80, day=date(2026, 12, 1))
    await limit_mails.send_due(own_pool, datetime(2026, 12, 1, 12, tzinfo=UTC))
    assert sorted((await kinds_mailed(own_pool, owner.email))[3:]) == ["daily_limit_reached", "monthly_limit_near"]


async def test_the_mail_names_the_counts_and_the_day_on_which_they_begin_again(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await count(own_pool, account.id, today=40, month=100)
    await limit_mails.send_due(own_pool, NOON)

    rows = await own_pool.fetch("SELECT kind, detail FROM system_mail WHERE address = $1", owner.email)
    details = {row["kind"]: orjson.loads(row["detail"]) for row in rows}
    assert (details["daily_limit_reached"]["limit"], details["daily_limit_reached"]["next_period"]) == (
        "40", "21 November 2026",
    )  # fmt: skip
    assert details["monthly_limit_reached"]["period"] == "November 2026"
    assert details["monthly_limit_reached"]["next_period"] == "1 December 2026"


async def test_owners_and_admins_are_told_by_one_of_many_workers(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    admin, member = [await make_person(own_pool, account.id, role) for role in ("admin", "member")]
    await count(own_pool, account.id, today=40, month=50)

    await asyncio.gather(*[limit_mails.send_due(own_pool, NOON) for _ in range(6)])

    assert [await kinds_mailed(own_pool, one.email) for one in (owner, admin, member)] == [
        ["daily_limit_reached"]
    ] * 2 + [[]]


async def test_a_raised_limit_is_told_again_and_a_lowered_one_is_not(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await count(own_pool, account.id, month=100)
    for cap in (100, 500, 120, 100):
        await own_pool.execute("UPDATE accounts SET monthly_cap = $2 WHERE id = $1", account.id, cap)
        await count(own_pool, account.id, month=cap)
        await limit_mails.send_due(own_pool, NOON)

    assert await kinds_mailed(own_pool, owner.email) == ["monthly_limit_reached"] * 2


async def test_a_suspended_account_is_told_and_one_whose_counts_are_old_is_not(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await own_pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", account.id)
    await count(own_pool, account.id, today=40, day=date(2026, 11, 18))
    await limit_mails.send_due(own_pool, NOON)
    assert await kinds_mailed(own_pool, owner.email) == []

    await count(own_pool, account.id, today=40, day=date(2026, 11, 19))  # reached just before midnight
    await limit_mails.send_due(own_pool, NOON)
    assert await kinds_mailed(own_pool, owner.email) == ["daily_limit_reached"]


async def test_a_parent_is_told_of_its_sub_accounts_limits(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    child = await open_sub_account(own_pool, account.id, name="Shop", monthly_limit=10, actor="operator")
    await count(own_pool, child.id, month=10)
    await limit_mails.send_due(own_pool, NOON)
    await own_pool.execute("UPDATE accounts SET monthly_cap = NULL WHERE id = $1", child.id)
    await count(own_pool, child.id, month=100)  # of the parent's month, which the parent's own count tells of
    await limit_mails.send_due(own_pool, NOON)

    rows = await own_pool.fetch("SELECT kind, detail FROM system_mail WHERE address = $1", owner.email)
    assert [(row["kind"], orjson.loads(row["detail"])["account_name"]) for row in rows] == [
        ("monthly_limit_reached", "Shop")
    ]


async def test_a_failure_between_record_and_mail_leaves_neither(
    own_pool: asyncpg.Pool, account: TestAccount, owner: TestPerson
) -> None:
    await count(own_pool, account.id, today=40)
    await own_pool.execute("ALTER TABLE system_mail ADD CONSTRAINT broken CHECK (kind = '') NOT VALID")
    with pytest.raises(ConstraintViolation):
        await limit_mails.send_due(own_pool, NOON)
    await own_pool.execute("ALTER TABLE system_mail DROP CONSTRAINT broken")
    await limit_mails.send_due(own_pool, NOON)

    assert await kinds_mailed(own_pool, owner.email) == ["daily_limit_reached"]


def test_an_enterprise_agreement_and_a_limit_of_nothing_are_no_reason_for_a_mail() -> None:
    """An agreement never lowers the allowance of Enterprise; an idle account with a limit of 0 has not used it."""
    head = AccountHead(
        account_id=UUID(int=1), seq=0, hash=b"", rung=0, day=NOON.date(), sent_today=0, month=date(2026, 11, 1),
        sent_this_month=500, plan=Plan.ENTERPRISE.value, status="active", daily_cap=0, monthly_cap=500,
    )  # fmt: skip

    assert list(limit_mails.due(head)) == []
