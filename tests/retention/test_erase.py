"""Erasure: an account with one of everything, and nothing of it left."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.accounts.account_deletion import close_account
from engine.accounts.sub_accounts.service import open_sub_account
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.retention import erase
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase, ServeApi
from tests.harness import logbook
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api
from tests.harness.everything import furnish
from tests.harness.outbound import World, world
from tests.harness.patience import PATIENCE_S
from tests.harness.people import make_person, signed_in
from tests.harness.sending import process

# Tables that hold nothing of an account, each with the reason.
NOBODYS = {
    "schema_migrations": "the schema's own",
    "platform_days": "counts of the whole platform",
    "stamps": "one row a kind of cache",
    "replica_marks": "one row of the installation",
    "shard_splits": "recipients' domains and their parts",
    "shard_rehomings": "recipients' domains and shards",
    "shard_pins": "shards and processes",
    "shard_places": "processes and hosts",
    "shard_plan": "loads by shard",
    "shard_watch": "recipients' domains",
    "shard_rates": "loads by shard",
    "domain_rates": "loads by recipients' domain, of all accounts together",
    "processes": "processes",
    "installation": "what all hosts agree on",
    "shard_members": "processes",
    "shard_owners": "processes",
    "sts_policies": "policies of recipients' domains, fetched from the net, shared by all",
    "tls_days": "TLS results by recipients' domain, of all accounts together",
    "site_rules": "the operator's rules for mail servers",
    "site_states": "what processes last saw of mail servers",
    "blocklist_addresses": "the service's own addresses",
    "blocklist_zones": "the operator's settings",
    "source_pools": "the service's own addresses",
    "receiver_cohorts": "outcomes by mail servers, of all accounts together; digests of three of them, by day",
    "receivers": "the judgement of mail servers by these outcomes",
    "status_quarters": "states of the installation's components",
    "status_incidents": "what operators told everybody",
    "status_updates": "what operators told everybody",
    "certificate_keys": "the service's own keys",
    "source_warmups": "the service's own addresses",
    "source_counts": "the service's own addresses",
    "source_rests": "the service's own addresses",
    "tls_report_posts": "TLS reports on their way, by recipients' domain",
    "acme_accounts": "the service's account at a certificate authority",
    "acme_challenges": "answers to challenges of a certificate authority, minutes old",
    "traces": "recipients' domains the operator watches",
    "platform": "names the account that can't be deleted",
    "spent_challenges": "digests of solved puzzles, minutes old",
    "passkey_challenges": "digests of sign-ins under way, minutes old",
    "erased_accounts": "what is to be left: id, times, end of the log",
    "invoice_numbers": "the last invoice number of each year",
    "account_moves": "accounts on their way to another cell, which are not erased meanwhile",
    "account_move_drains": "what processes have in memory of accounts on their way, minutes old",
    "refund_notices": "counts of unsigned notices, by checkout or invoice and day",
}
# Kept for ten years after the erasure, for the operator alone: what was sold, and what was paid.
BOOKS = {"billing_events", "billing_heads", "checkouts", "invoices", "provider_events"}


@pytest.fixture(scope="module")
async def database(lasting_database: NewDatabase) -> str:
    """A database of this module's own: every row in it is looked at."""
    return await lasting_database()


@pytest.fixture(scope="module")
async def own_pool(database: str) -> AsyncIterator[asyncpg.Pool]:
    opened = await open_pool(database, name="tests", largest=6)
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def own_api(settings: Settings, database: str, serve: ServeApi) -> Api:
    return serve(structs.replace(settings, database_url=database))


async def tables(pool: asyncpg.Pool) -> list[str]:
    """Every table; of partitioned ones the whole."""
    rows = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace ORDER BY relname"
    )
    return [row["relname"] for row in rows]


async def holding(pool: asyncpg.Pool, needles: list[str]) -> dict[str, int]:
    """In how many rows of which tables any of the texts stand, in whatever column: octets are looked through too."""
    wanted = [f"%{needle}%" for needle in needles] + [f"%{needle.encode().hex()}%" for needle in needles]
    found = {}
    for table in await tables(pool):
        count = await pool.fetchval(f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE ANY ($1::text[])", wanted)
        if count:
            found[table] = int(count)
    return found


async def due(pool: asyncpg.Pool, account: UUID) -> None:
    """As if its deletion had been asked for 14 days ago."""
    await close_account.schedule(pool, account, actor="operator")
    await pool.execute("UPDATE deletions SET due_at = now() - interval '1 second' WHERE account_id = $1", account)


async def erased(pool: asyncpg.Pool) -> list[UUID]:
    return await erase.erase_due(pool, clock.now(), hold_known_s=0.05)


async def logged(pool: asyncpg.Pool, answer: Answer) -> None:
    """Wait until the request log holds this request, and so all that its process answered before."""
    query = "SELECT count(*) FROM api_requests WHERE request_id = $1"
    async with asyncio.timeout(PATIENCE_S):
        while not await pool.fetchval(query, answer.headers["x-request-id"]):
            await asyncio.sleep(0.05)


async def exists(pool: asyncpg.Pool, account: UUID) -> bool:
    return bool(await pool.fetchval("SELECT count(*) FROM accounts WHERE id = $1", account))


async def test_nothing_is_left_of_an_erased_account_in_any_table(
    own_pool: asyncpg.Pool, own_api: Api, settings: Settings
) -> None:
    """Walks the schema: a table that is neither filled here nor named above fails the test."""
    platform = await make_account(own_pool)
    await own_pool.execute("DELETE FROM platform")
    await own_pool.execute("INSERT INTO platform (account_id) VALUES ($1)", platform.id)
    bystander = await furnish(own_api, own_pool, await make_account(own_pool), settings)
    await logged(own_pool, await own_api.get("/v1/me", bystander.account.token))
    before = await holding(own_pool, bystander.needles)
    estate = await furnish(own_api, own_pool, await make_account(own_pool), settings)
    letter = await own_api.post("/v1/emails", platform.token, platform.email(to=[estate.owner.email]))
    assert letter.status == 202
    await logged(own_pool, letter)
    filled = await holding(own_pool, estate.needles)
    assert set(filled) | set(NOBODYS) >= set(await tables(own_pool)) - {"deletions"}
    assert not set(filled) & (set(NOBODYS) - {"platform"}), "a table that holds accounts' things after all"

    await due(own_pool, estate.account.id)
    assert "deletions" in await holding(own_pool, estate.needles)
    child = ids.parse_id(ids.Kind.ACCOUNT, estate.things["sub_account"])
    assert await erased(own_pool) == [child, estate.account.id]

    left = await holding(own_pool, estate.needles)
    assert {table: rows for table, rows in left.items() if table not in BOOKS} == {"erased_accounts": 2}
    assert await holding(own_pool, bystander.needles) == before
    gone = await own_api.get("/v1/me", estate.account.token)
    assert (gone.status, gone.error["type"]) == (401, "unauthorized")
    assert (await own_api.get("/v1/auth/sessions", person=estate.owner)).status == 401
    assert (await own_api.get("/v1/me", bystander.account.token)).status == 200


async def test_the_tombstone_tells_where_the_log_ended(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await make_person(pool, account.id)
    await logbook.many(pool, account.id, 30)
    await due(pool, account.id)
    head = await pool.fetchrow("SELECT seq, hash FROM account_heads WHERE account_id = $1", account.id)
    assert await erased(pool) == [account.id]

    left = await pool.fetchrow("SELECT * FROM erased_accounts WHERE account_id = $1", account.id)
    assert head is not None
    assert left is not None
    assert (left["seq"], left["hash"]) == (head["seq"], head["hash"])
    assert left["opened_at"] <= left["requested_at"] <= left["erased_at"]


async def test_what_is_not_due_or_was_canceled_stays(pool: asyncpg.Pool) -> None:
    waiting, canceled = await make_account(pool), await make_account(pool)
    for one in (waiting, canceled):
        await close_account.schedule(pool, one.id, actor="operator")
    await close_account.cancel(pool, canceled.id, actor="operator")

    early = await erase.erase_due(pool, clock.now() + timedelta(days=13, hours=23), hold_known_s=0.05)
    assert await exists(pool, waiting.id)
    await close_account.cancel(pool, waiting.id, actor="operator")
    late = await erase.erase_due(pool, clock.now() + timedelta(days=15), hold_known_s=0.05)

    assert not {waiting.id, canceled.id} & {*early, *late}  # other tests' accounts may well be due by then
    assert await exists(pool, waiting.id)
    assert await exists(pool, canceled.id)


@pytest.mark.exhaustive
async def test_an_erasure_may_be_broken_off_anywhere(
    own_pool: asyncpg.Pool, own_api: Api, settings: Settings, database: str
) -> None:
    estate = await furnish(own_api, own_pool, await make_account(own_pool), settings)
    await logbook.many(own_pool, estate.account.id, 12_000)
    await due(own_pool, estate.account.id)
    rng = random.Random(7)
    broken = 0
    for _ in range(60):
        doomed_pool = await open_pool(database, name="doomed_pool", largest=3)
        work = asyncio.create_task(erase.erase_due(doomed_pool, clock.now(), hold_known_s=0.01))
        done, _ = await asyncio.wait({work}, timeout=rng.uniform(0.01, 0.12))
        if done:
            assert work.exception() is None
            doomed_pool.terminate()
            if not await exists(own_pool, estate.account.id):
                break
            continue
        doomed_pool.terminate()  # connections drop in the midst of whatever they do, as when a process is killed
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        broken += 1
    assert broken >= 3
    await asyncio.sleep(0.1)
    await erased(own_pool)

    left = await holding(own_pool, estate.needles)
    assert {table: rows for table, rows in left.items() if table not in BOOKS} == {"erased_accounts": 2}


async def test_a_budget_that_ends_leaves_the_rest_for_the_next_call(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 11_000)
    await due(pool, account.id)
    calls = 0
    while await exists(pool, account.id):
        await erase.erase_due(pool, clock.now(), budget_s=0.0, hold_known_s=0.01)
        status = await pool.fetchval("SELECT status FROM accounts WHERE id = $1", account.id)
        assert status in (None, "closing")
        calls += 1
        assert calls < 50

    assert calls > 2


async def test_one_process_erases_at_a_time(pool: asyncpg.Pool) -> None:
    accounts = [await make_account(pool) for _ in range(2)]
    for one in accounts:
        await due(pool, one.id)
    found = await asyncio.gather(*[erased(pool) for _ in range(3)])

    assert sorted(one for gone in found for one in gone) == sorted(one.id for one in accounts)


async def test_people_who_are_on_another_account_stay(pool: asyncpg.Pool) -> None:
    going, staying = await make_account(pool), await make_account(pool)
    both = await make_person(pool, staying.id, "admin")
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'owner')", going.id, both.id)
    await signed_in(pool, both.id, going.id, both.email)
    await due(pool, going.id)
    await erased(pool)

    row = await pool.fetchrow("SELECT email, last_account_id FROM users WHERE id = $1", both.id)
    assert row is not None
    assert (row["email"], row["last_account_id"]) == (both.email, None)
    sessions = await pool.fetch("SELECT id, account_id FROM sessions WHERE user_id = $1", both.id)
    assert [(one["id"], one["account_id"]) for one in sessions] == [(both.session_id, staying.id)]


async def test_a_sub_account_goes_alone_and_its_parent_is_told(pool: asyncpg.Pool) -> None:
    parent = await make_account(pool)
    going = await open_sub_account(pool, parent.id, name="Going", monthly_limit=None, actor="operator")
    sibling = await open_sub_account(pool, parent.id, name="Staying", monthly_limit=None, actor="operator")
    await due(pool, going.id)
    assert await erased(pool) == [going.id]

    assert await exists(pool, parent.id)
    assert await exists(pool, sibling.id)
    last = await pool.fetchrow(
        "SELECT type, payload FROM events WHERE account_id = $1 ORDER BY seq DESC LIMIT 1", parent.id
    )
    assert last is not None
    public = ids.format_id(ids.Kind.ACCOUNT, going.id)
    assert last["type"] == "sub_account.erased"
    assert orjson.loads(last["payload"])["detail"] == {"id": public, "actor": "service"}
    assert await pool.fetchval("SELECT status FROM accounts WHERE id = $1", sibling.id) == "active"


async def test_the_account_that_the_service_sends_from_cannot_go(own_pool: asyncpg.Pool) -> None:
    made = await make_account(own_pool)
    await own_pool.execute(
        "INSERT INTO platform (account_id) SELECT $1 WHERE NOT EXISTS (SELECT FROM platform)", made.id
    )
    platform = await own_pool.fetchval("SELECT account_id FROM platform")
    with pytest.raises(Refusal) as refusal:
        await close_account.schedule(own_pool, platform, actor="operator")
    assert refusal.value.kind is ErrorType.INVALID_STATE


async def test_mail_that_comes_in_while_the_account_closes_does_not_keep_it(
    pool: asyncpg.Pool, settings: Settings
) -> None:
    """Requests that were authenticated before are refused at their commit, and what beat it is swept."""
    account = await make_account(pool)
    async with process(settings) as door:
        await due(pool, account.id)
        work = asyncio.create_task(erased(pool))
        results: list[object] = []
        while not work.done() or len(results) < 5:
            results.append(await door.try_send(account))
            await asyncio.sleep(0.005)
        assert await work == [account.id]

    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 0
    assert await pool.fetchval("SELECT count(*) FROM queue WHERE account_id = $1", account.id) == 0
    assert len(results) > 3


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    async with world(settings, await new_database(), retry_ladder_s=(4.0,)) as made:
        yield made


@pytest.mark.exhaustive
async def test_nothing_of_the_account_is_sent_after_its_erasure_began(here: World) -> None:
    other = await make_account(here.pool)
    await here.mta()
    waiting = [await here.send(f"defer+{n}@peer.test") for n in range(20)]  # refused at first, taken the next time
    staying = await here.send("defer@peer.test", account=other)
    for one in (*waiting, staying):
        await here.until_step(one, "deferred")
    await due(here.pool, here.account.id)
    gone = await erase.erase_due(here.pool, clock.now())
    await here.until_step(staying, "delivered")
    await here.until_idle()

    assert gone == [here.account.id]
    assert len(here.sink.messages) == 1
    assert await here.pool.fetchval("SELECT count(*) FROM queue") == 0
