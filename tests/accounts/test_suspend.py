"""Suspension: the rule, the operator's command, and the mail of a suspended account."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.accounts import suspend
from engine.accounts.sub_accounts.service import open_sub_account
from engine.accounts.suspend import Cause
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.delivery.holds import HoldKind
from engine.ledger import log
from engine.ledger.events import append_events
from engine.sending import queue_admin
from engine.store.postgres import open_pool
from ops.commands import account as accounts
from tests.conftest import NewDatabase
from tests.harness.account_log import logged, mails_to
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api
from tests.harness.outbound import World, world
from tests.harness.patience import PATIENCE_S
from tests.harness.people import make_person
from tests.harness.schedules import comes_due, release, scheduled, waybill
from tests.harness.schedules import standing as status_of
from tests.harness.sending import process


async def outcomes(
    pool: asyncpg.Pool,
    account: UUID,
    *,
    at: datetime | None = None,
    accepted: datetime | None = None,
    scope: str = "recipient",
    delivered: int = 0,
    bounced: int = 0,
    failed: int = 0,
    complained: int = 0,
    reporter: str | None = None,
    domain: str = "people.test",
    late: bool = False,
) -> None:
    """Events as deliveries and complaints write them: so many of each kind, each about a message of its own.

    `reporter` is that of the complaints, `domain` that of the recipients.
    """
    moment = at or clock.now()
    made = clock.milliseconds(accepted or moment)
    entries = []
    counts = {"delivered": delivered, "bounced": bounced, "failed": failed, "complained": complained}
    for kind, count in counts.items():
        found: dict[str, object] = {"recipient": f"ann@{domain}", "scope": scope, "smtp_code": 550}
        found |= {"late": True} if late else {}
        found |= {"reporter": reporter} if kind == "complained" and reporter is not None else {}
        detail = log.detail_text(found)
        for message in ids.uuid7s(count, made):
            public = ids.format_id(ids.Kind.MESSAGE, message)
            entries.append(log.Entry(account, kind, detail, moment, message, public))
    async with pool.acquire() as connection, connection.transaction():
        await append_events(connection, entries)


async def judged(pool: asyncpg.Pool, account: UUID) -> bool:
    """Whether a round of the rule suspends the account."""
    return account in await suspend.judge(pool, clock.now())


async def status(pool: asyncpg.Pool, account: UUID) -> str:
    return str(await pool.fetchval("SELECT status FROM accounts WHERE id = $1", account))


@pytest.mark.parametrize(
    ("counts", "suspended"),
    [
        ({"delivered": 170, "bounced": 30}, True),
        ({"delivered": 171, "bounced": 29}, False),
        ({"delivered": 169, "bounced": 30}, False),
        ({"delivered": 140, "failed": 30, "bounced": 30}, True),
        ({"delivered": 200, "complained": 100}, False),  # nobody is known to have reported them
        ({"failed": 300}, False),
        ({"bounced": 199}, False),
        ({"delivered": 0}, False),
    ],
)
async def test_the_rule_looks_at_shares_of_at_least_two_hundred_settled(
    pool: asyncpg.Pool, counts: dict[str, Any], suspended: bool
) -> None:
    account = await make_account(pool)
    await outcomes(pool, account.id, **counts)

    assert await judged(pool, account.id) is suspended
    assert await status(pool, account.id) == ("suspended" if suspended else "active")


YAHOO, HOTMAIL = "arf.mail.yahoo.com", "hotmail.com"
THREE = [(YAHOO, "yahoo.com"), (YAHOO, "aol.com"), (HOTMAIL, "hotmail.com")]


@pytest.mark.parametrize(
    ("delivered", "complaints", "suspended"),
    [
        (600, THREE, True),
        (601, THREE, False),
        (199, THREE, False),
        (600, [*THREE[:2], (YAHOO, "att.net")], False),  # one reporter
        (600, [THREE[0], THREE[2], THREE[2]], False),  # a reporter counts once per recipient domain
        (600, [*THREE[:2], ("x.yahoo.com", "att.net")], False),  # subdomains are free
        (600, [*THREE[:2], (None, "people.test")], False),  # whoever sent it is not known
        (600, [THREE[0], THREE[2], (None, "people.test")], False),
    ],
)
async def test_complaints_suspend_only_if_several_reporters_make_them(
    pool: asyncpg.Pool, delivered: int, complaints: list[tuple[str | None, str]], *, suspended: bool
) -> None:
    account = await make_account(pool)
    await outcomes(pool, account.id, delivered=delivered)
    for reporter, domain in complaints:
        await outcomes(pool, account.id, complained=1, reporter=reporter, domain=domain)

    assert await judged(pool, account.id) is suspended
    if suspended:
        reason = (await logged(pool, account.id))[-1][1]["reason"]
        assert reason == f"3 complaints about {delivered} recipients within 24 hours"


async def test_a_reporter_counts_once_per_recipient_domain_in_a_day_in_the_rate_too(pool: asyncpg.Pool) -> None:
    account, now = await make_account(pool), clock.now()
    await outcomes(pool, account.id, delivered=800)
    await outcomes(pool, account.id, complained=18, reporter=YAHOO, domain="yahoo.com")
    for reporter, domain in (THREE[1], THREE[2]):
        await outcomes(pool, account.id, complained=1, reporter=reporter, domain=domain)
    yesterday = now - timedelta(hours=24, minutes=16)
    await outcomes(pool, account.id, at=yesterday, complained=1, reporter=HOTMAIL, domain="live.com")
    assert not await judged(pool, account.id)

    await outcomes(pool, account.id, complained=1, reporter=HOTMAIL, domain="live.com")
    assert await judged(pool, account.id)
    assert (await logged(pool, account.id))[-1][1]["reason"] == "4 complaints about 800 recipients within 24 hours"


async def test_complaints_of_nobody_known_count_for_nothing(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await outcomes(pool, account.id, delivered=800)
    for reporter, domain in THREE:
        await outcomes(pool, account.id, complained=1, reporter=reporter, domain=domain)
    for domain in ("one.test", "two.test"):
        await outcomes(pool, account.id, complained=20, domain=domain)

    assert not await judged(pool, account.id)
    assert await pool.fetchval("SELECT count(*) FROM complaint_sources WHERE account_id = $1", account.id) == 3
    await pool.execute(  # as stored before complaints without an author stopped counting
        """INSERT INTO complaint_sources SELECT account_id, '', 'three.test', quarter FROM complaint_sources
           WHERE account_id = $1 LIMIT 1""",
        account.id,
    )
    assert not await judged(pool, account.id)


async def test_a_resumed_account_starts_without_the_reporters_of_before(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await outcomes(pool, account.id, delivered=200)
    for reporter, domain in THREE:
        await outcomes(pool, account.id, complained=1, reporter=reporter, domain=domain)
    assert await judged(pool, account.id)
    await asyncio.sleep(0.01)
    await accounts.resume(pool, account=account.public_id)
    await asyncio.sleep(0.01)

    await outcomes(pool, account.id, delivered=200, complained=50, reporter=YAHOO, domain="yahoo.com")
    assert not await judged(pool, account.id)


async def test_only_the_last_day_counts_by_when_the_outcome_came(pool: asyncpg.Pool) -> None:
    account, blast = await make_account(pool), await make_account(pool)
    now = clock.now()
    await outcomes(pool, account.id, at=now - timedelta(hours=24, minutes=16), bounced=300)
    await outcomes(pool, account.id, delivered=100)
    await outcomes(pool, blast.id, at=now - timedelta(hours=23), accepted=now - timedelta(days=5), bounced=300)

    assert not await judged(pool, account.id)
    assert await status(pool, blast.id) == "suspended"


async def test_a_late_bounce_counts_as_a_bounce_of_mail_that_was_settled_before(pool: asyncpg.Pool) -> None:
    account = (await make_account(pool)).id
    await outcomes(pool, account, delivered=200)
    await outcomes(pool, account, bounced=20, late=True)
    await suspend.judge(pool, clock.now())

    row = await pool.fetchrow("SELECT sum(settled), sum(bounced) FROM outcome_quarters WHERE account_id = $1", account)
    assert row is not None
    assert tuple(row) == (200, 20)


async def test_what_is_counted_once_is_not_counted_again(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for _ in range(5):
        await outcomes(pool, account.id, bounced=30)
        assert not await judged(pool, account.id)
    rows = await pool.fetch("SELECT * FROM outcome_quarters WHERE account_id = $1", account.id)

    assert sum(row["bounced"] for row in rows) == sum(row["settled"] for row in rows) == 150
    await asyncio.gather(*[suspend.judge(pool, clock.now()) for _ in range(3)])
    rows = await pool.fetch("SELECT * FROM outcome_quarters WHERE account_id = $1", account.id)
    assert sum(row["settled"] for row in rows) == 150


async def test_bounces_that_refuse_the_service_itself_say_nothing_of_the_account(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await outcomes(pool, account.id, scope="site", bounced=500)
    await outcomes(pool, account.id, delivered=300)

    assert not await judged(pool, account.id)


async def test_the_services_own_account_is_never_suspended(settings: Settings, new_database: NewDatabase) -> None:
    pool = await open_pool(await new_database(), name="tests", largest=2)
    try:
        account = await make_account(pool)
        await pool.execute("INSERT INTO platform (account_id) VALUES ($1)", account.id)
        await outcomes(pool, account.id, bounced=500)
        assert not await judged(pool, account.id)
        with pytest.raises(Refusal) as refusal:
            await suspend.suspend(pool, account.id, Cause.OPERATOR, "why not", actor="operator")
        assert refusal.value.kind is ErrorType.INVALID_STATE
    finally:
        await pool.close()


async def test_the_owners_are_told_why_and_when_it_is_over(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    owner, admin = await make_person(pool, account.id), await make_person(pool, account.id, "admin")
    member = await make_person(pool, account.id, "member")
    await outcomes(pool, account.id, delivered=150, bounced=50)
    await judged(pool, account.id)

    why = "50 of 200 recipients bounced within 24 hours"
    assert (await logged(pool, account.id))[-1] == (
        "account.suspended", {"cause": "rates", "reason": why, "actor": "service"},
    )  # fmt: skip
    await accounts.resume(pool, account=account.public_id)
    assert (await logged(pool, account.id))[-1] == ("account.resumed", {"actor": "operator"})
    name = await pool.fetchval("SELECT name FROM accounts WHERE id = $1", account.id)
    for person in (owner, admin):
        assert await mails_to(pool, person.email) == [
            ("account_suspended", {"account_name": name, "reason": why}), ("account_resumed", {"account_name": name}),
        ]  # fmt: skip
    assert await mails_to(pool, member.email) == []


async def test_a_resumed_account_is_not_suspended_again_for_the_same_old_mail(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await outcomes(pool, account.id, bounced=300)
    assert await judged(pool, account.id)
    before = clock.now()
    await asyncio.sleep(0.01)
    await accounts.resume(pool, account=account.public_id)

    await outcomes(pool, account.id, accepted=before, bounced=300, complained=5)
    assert not await judged(pool, account.id)
    await asyncio.sleep(0.01)
    await outcomes(pool, account.id, bounced=300)
    assert await judged(pool, account.id)


async def test_a_parent_cannot_wipe_its_sub_accounts_slate(pool: asyncpg.Pool) -> None:
    parent = await make_account(pool)
    child = (await open_sub_account(pool, parent.id, name="Shop", monthly_limit=None, actor="operator")).id
    await outcomes(pool, child, bounced=199)
    await suspend.judge(pool, clock.now())
    await suspend.suspend(pool, child, Cause.PARENT, "pause", actor="operator")
    await suspend.resume(pool, child, [Cause.PARENT], actor="operator")
    await outcomes(pool, child, bounced=1)

    assert await judged(pool, child)
    assert await status(pool, parent.id) == "active"
    kind, detail = (await logged(pool, parent.id))[-1]
    assert (kind, detail["id"]) == ("sub_account.suspended", ids.format_id(ids.Kind.ACCOUNT, child))


async def test_causes_add_up_and_each_is_lifted_by_itself(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await suspend.suspend(pool, account.id, Cause.PARENT, "one", actor="operator")
    await suspend.suspend(pool, account.id, Cause.OPERATOR, "two", actor="operator")
    left = await suspend.resume(pool, account.id, [Cause.PARENT], actor="operator")

    assert [(one.cause, one.reason) for one in left] == [("operator", "two")]
    assert await status(pool, account.id) == "suspended"
    assert await suspend.resume(pool, account.id, [Cause.OPERATOR], actor="operator") == []
    assert await status(pool, account.id) == "active"


@pytest.mark.parametrize("reason", ["", "  ", "a\x00b", "x" * 201])
async def test_a_reason_is_one_line_of_words(pool: asyncpg.Pool, reason: str) -> None:
    account = await make_account(pool)
    with pytest.raises(ValueError, match="reason"):
        await accounts.suspend(pool, account=account.public_id, reason=reason)
    assert await status(pool, account.id) == "active"


async def test_the_operator_sees_how_an_account_stands(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    child = await open_sub_account(pool, account.id, name="Shop", monthly_limit=None, actor="operator")
    shown = await accounts.suspend(pool, account=account.public_id, reason="spam traps")

    assert (shown["status"], shown["suspensions"][0]["reason"]) == ("suspended", "spam traps")
    below = ids.format_id(ids.Kind.ACCOUNT, child.id)
    assert shown["subAccounts"] == [{"id": below, "name": "Shop", "status": "suspended"}]
    assert {one["accountId"]: one["status"] for one in await accounts.listed(pool, limit=5)}[below] == "suspended"
    assert (await accounts.resume(pool, account=account.public_id))["suspensions"] == []
    with pytest.raises(Refusal, match="No such account"):
        await accounts.shown(pool, account=ids.format_id(ids.Kind.ACCOUNT, ids.uuid7()))


async def until_status(api: Api, token: str, wanted: int) -> Answer:
    for _ in range(40):
        answer = await api.get("/v1/streams", token)
        if answer.status == wanted:
            break
        await asyncio.sleep(0.05)
    return answer


async def test_keys_get_the_uniform_401_and_people_may_look(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    owner = await make_person(pool, account.id)
    assert (await api.get("/v1/streams", account.token)).status == 200
    await accounts.suspend(pool, account=account.public_id, reason="spam traps")

    refused = await until_status(api, account.token, 401)
    nobody = await api.get("/v1/streams", "svc_live_nobody")
    assert (refused.status, refused.body) == (401, nobody.body)
    assert (await api.get("/v1/streams", person=owner)).status == 200
    changed = await api.post("/v1/streams", None, {"id": "x"}, person=owner)
    assert (changed.status, changed.error["type"]) == (403, "account_suspended")
    await accounts.resume(pool, account=account.public_id)
    assert (await until_status(api, account.token, 200)).status == 200


async def test_a_scheduled_message_of_a_suspended_account_fails_at_its_time(
    pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    async with process(settings) as door:
        message = await scheduled(door, account)
    await suspend.suspend(pool, account.id, Cause.OPERATOR, "why", actor="operator")
    await comes_due(pool, message)
    await release(pool, settings)

    assert (await status_of(pool, message))[0] == "rejected"
    kind, detail = (await waybill(pool, message))[-1]
    assert (kind, detail["reason"]) == ("schedule_failed", "account_suspended")


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    async with world(settings, await new_database(), retry_ladder_s=(1.0,)) as made:
        yield made


async def until_held(here: World, message: UUID) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not any(row["held_by"] for row in await here.queue(message)):
            await asyncio.sleep(0.02)


async def test_queued_mail_waits_with_its_reason_and_goes_out_when_the_account_goes_on(here: World) -> None:
    await here.mta()
    message = await here.send("defer@peer.test")  # refused at the first try, taken at the second
    await here.until_step(message, "deferred")
    await suspend.suspend(here.pool, here.account.id, Cause.OPERATOR, "why", actor="operator")
    await until_held(here, message)
    free = await here.send("bob@peer.test", account=await make_account(here.pool))
    await here.until_step(free, "delivered")
    assert await here.statuses(message) == {"defer@peer.test": "sending"}
    detail = dict(await here.waybill(message))["queued"]
    assert (detail["reason"], detail["note"]) == ("operator_hold", "the account is suspended")

    await suspend.resume(here.pool, here.account.id, [Cause.OPERATOR], actor="operator")
    await here.until_step(message, "delivered")
    assert await here.pool.fetchval("SELECT count(*) FROM holds") == 0


async def test_a_hold_of_the_operators_own_outlives_the_suspension(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    on = queue_admin.queue_target(HoldKind.ACCOUNT, account.public_id)
    await queue_admin.suspend(pool, on, reason="looking into it")
    await suspend.suspend(pool, account.id, Cause.OPERATOR, "why", actor="operator")
    await suspend.resume(pool, account.id, [Cause.OPERATOR], actor="operator")

    held = [one for one in await queue_admin.holds_in_force(pool) if one.target == account.public_id]
    assert [one.reason for one in held] == ["looking into it"]
    await queue_admin.resume(pool, on)
