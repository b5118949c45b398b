"""What statements read: those that look up what is named must not go through everything else once tables are large."""

import json
import re
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.accounts import suspend
from engine.base import clock
from engine.delivery import queue
from engine.sending import broadcast_copies, release
from engine.sending.messages import store as messages
from engine.sending.messages.types import MessageIndex
from engine.store import partitions
from engine.store.postgres import open_pool
from engine.store.queries import Conn, Query, SessionFunction
from tests.conftest import NewDatabase
from tests.contracts.test_queries import QUERIES, name_of

# As after a busy minute: of the queue the planner knows the size alone.
MANY = {
    "queue": """
        INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at)
        SELECT gen_random_uuid(), 'many.test', n % 256, gen_random_uuid(), 'from.test', '[[0, "a@many.test"]]', 1, now()
        FROM generate_series(1, 20000) AS n""",
    "schedules": """
        INSERT INTO accounts (id, name, plan) VALUES ('a0000000-0000-7000-8000-000000000000', 'Many', 'scale');
        INSERT INTO schedules (message_id, account_id, due_at, look_at)
        SELECT gen_random_uuid(), 'a0000000-0000-7000-8000-000000000000', at, at
        FROM generate_series(1, 20000) AS n, LATERAL (SELECT now() + n * interval '1 ms') AS t (at);
        ANALYZE schedules""",
    "events": """
        INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
        SELECT uuid7_floor((extract(epoch FROM now()) * 1000)::bigint + n), 'a0000000-0000-7000-8000-000000000000', n,
               'delivered', gen_random_uuid(), now(), repeat('x', 300), '\\x00'
        FROM generate_series(1, 20000) AS n;
        DO $$ BEGIN
            EXECUTE 'ANALYZE ' || (
                SELECT tableoid::regclass FROM events WHERE account_id = 'a0000000-0000-7000-8000-000000000000' LIMIT 1
            );
        END $$""",
}
MANY["messages"] = """
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, recipient_count,
                          size_bytes)
    SELECT uuid7_floor((extract(epoch FROM now()) * 1000)::bigint + n),
           CASE WHEN n % 50 = 0 THEN 'a0000000-0000-7000-8000-000000000000' ELSE gen_random_uuid() END,
           CASE WHEN n = 50 THEN 'bounced' ELSE 'delivered' END, 'api', 'shop@from.test', 'from.test', 'Hello', 'news',
           1, 1
    FROM generate_series(1, 20000) AS n;
    INSERT INTO recipients (message_id, n, account_id, kind, address, status)
    SELECT id, 0, account_id, 'to', CASE WHEN random() < 0.5 THEN 'shared@people.test' ELSE id || '@people.test' END,
           'delivered'
    FROM messages"""
ACCOUNT = "'a0000000-0000-7000-8000-000000000000'"
SMALL = 100  # pages: a partition that holds a few rows of other tests is best read whole


async def read_by(pool: asyncpg.Pool, query: Query, table: str, arguments: str) -> set[str]:
    """The indexes of a large table that a generic plan of the statement reads, and `*` where it reads all of it."""
    async with pool.acquire() as connection:
        undone = connection.transaction()
        await undone.start()
        try:
            await connection.execute(MANY[table])
            await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            await connection.execute(f"PREPARE judged AS {query.sql}")
            plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE judged ({arguments})")
            await connection.execute("DEALLOCATE judged")
        finally:
            await undone.rollback()
    read = set()
    nodes = [json.loads(plan)[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name", "").startswith(table) and node["Node Type"] == "Seq Scan":
            read |= {"*"} if node["Total Cost"] > SMALL else set()
        read |= {name for name in (node.get("Index Name", ""),) if name.startswith(table)}
    return read


@pytest.mark.parametrize(
    ("query", "count"), [(queue.LOAD, 4), (queue.HINTED, 4), (queue.OUTLINE, 2)], ids=["due", "hinted", "outline"]
)
async def test_rows_of_the_queue_that_are_named_are_looked_up_by_their_names_alone(
    pool: asyncpg.Pool, query: Query, count: int
) -> None:
    assert await read_by(pool, query, "queue", ", ".join(["NULL"] * count)) == {"queue_pkey"}


async def test_outcomes_are_counted_along_the_logs_of_their_accounts(pool: asyncpg.Pool) -> None:
    read = await read_by(pool, suspend._COUNT, "events", f"10, 10, '{UUID(int=0)}'")
    assert read
    assert read == {name for name in read if name.endswith("_account_id_seq_idx")}


async def test_a_share_of_what_is_due_is_found_along_the_schedules_of_the_accounts(pool: asyncpg.Pool) -> None:
    read = await read_by(pool, release.TAKE_FAIRLY, "schedules", "now(), 128, 8")
    assert read == {"schedules_by_account", "schedules_pkey"}


# As after many broadcasts, all of whose recipients got their message: the planner expects that nobody waits.
ENDED = """
    INSERT INTO broadcast_recipients (broadcast_id, contact_id, address, state, message_id)
    SELECT 'a0000000-0000-7000-8000-000000000000', gen_random_uuid(), n || '@people.test', 'accepted', gen_random_uuid()
    FROM generate_series(1, 20000) AS n;
    ANALYZE broadcast_recipients"""


@pytest.mark.parametrize(
    ("query", "count"), [(broadcast_copies.CLAIM_COPIES, 2), (broadcast_copies.MARK_COPIES, 4)], ids=["claim", "mark"]
)
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_recipients_of_a_batch_are_looked_up_one_by_one(
    pool: asyncpg.Pool, query: Query, count: int, mode: str
) -> None:
    ids = f"ARRAY['{UUID(int=1)}', '{UUID(int=2)}']::uuid[]"
    values = [ids, ids, "ARRAY['accepted', 'accepted']", ids][:count]
    async with pool.acquire() as connection:
        undone = connection.transaction()
        await undone.start()
        try:
            await connection.execute(ENDED)
            await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
            await connection.execute(f"PREPARE judged AS {query.sql}")
            plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE judged ({', '.join(values)})")
            await connection.execute("DEALLOCATE judged")
        finally:
            await undone.rollback()
    nodes, conditions = [json.loads(plan)[0]["Plan"]], []
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name") == "broadcast_recipients" and node["Node Type"] != "ModifyTable":
            conditions.append(node.get("Index Cond", "none"))
    assert conditions
    assert all("broadcast_id" in one and "contact_id" in one for one in conditions), conditions


async def plan_of(connection: Conn, query: Query, arguments: str) -> set[str]:
    """What a plan of the statement reads of this week's messages and recipients: indexes without the table's name."""
    await connection.execute(f"PREPARE judged AS {query.sql}")
    plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE judged ({arguments})")
    await connection.execute("DEALLOCATE judged")
    read, nodes = set(), [json.loads(plan)[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        for table in ("messages", "recipients", "events"):
            if node.get("Relation Name") == this_week(table) and node["Node Type"] == "Seq Scan":
                read.add(f"{table} *")
            if (index := node.get("Index Name", "")).startswith(this_week(table)):
                read.add(f"{table} {index.removeprefix(this_week(table) + '_')}")
        read |= {index for index in (node.get("Index Name", ""),) if index.startswith("broadcast_recipients")}
    return read


def this_week(table: str) -> str:
    return partitions.partition_name(table, partitions.week_of(clock.now()))


NO_OTHERS = "ARRAY[NULL, NULL, NULL, NULL, NULL]::text[]"  # source, template, recipient domain, broadcast, scope
# The filters with an index of their own: a value, and the index.
INDEXED = {
    MessageIndex.SOURCE: ("'smtp'", "messages account_key_id_idx1"),
    MessageIndex.TEMPLATE: ("'order'", "messages account_key_id_idx"),
    MessageIndex.RECIPIENT_DOMAIN: ("'people.test'", "recipients account_key_message_id_idx"),
    MessageIndex.BROADCAST: (ACCOUNT, "broadcast_recipients_in_order"),
    MessageIndex.SCOPE: ("'site'", "events account_key_message_id_idx"),
    MessageIndex.OUTCOME: ("ARRAY['bounced']", "events account_key_message_id_idx1"),
}
# What the filters of one message read that no filter of this list uses; a custom plan leaves them out.
OTHER_FILTERS = {"broadcast_recipients_in_order", "broadcast_recipients_pkey", "events message_id_idx"}
FILTERS = {
    "none": ("NULL", "NULL", "NULL", "NULL", "NULL", "NULL"),
    "status": ("'bounced'", "NULL", "NULL", "NULL", "NULL", "NULL"),
    "search": ("NULL", "NULL", "NULL", "NULL", "NULL", "ARRAY['%x%']"),
    "all": ("'bounced'", "ARRAY['from.test']", "ARRAY['news']", "'[\"x\"]'", 'ARRAY[\'{"a": "b"}\']', "ARRAY['%x%']"),
}


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("statistics", ["none", "stale", "fresh"])
async def test_messages_to_an_address_are_found_by_it_and_recipients_by_their_message_whatever_else_is_asked(
    new_database: NewDatabase, mode: str, statistics: str
) -> None:
    pool = await open_pool(await new_database(), name="tests", largest=1)  # what was rolled back swells a table
    try:
        await judge_lists(pool, mode, statistics)
    finally:
        await pool.close()


async def judge_lists(pool: asyncpg.Pool, mode: str, statistics: str) -> None:
    analyze = f"ANALYZE {this_week('messages')}, {this_week('recipients')}"
    async with pool.acquire() as connection:
        if statistics == "stale":
            await connection.execute(analyze)
        await connection.execute(MANY["messages"])
        if statistics == "fresh":
            await connection.execute(analyze)
        await connection.execute(f"SET plan_cache_mode = {mode}")
        low, high = f"'{UUID(int=0)}'", f"'{UUID(int=2**128 - 1)}'"
        for filters in FILTERS.values():
            arguments = ", ".join([ACCOUNT, low, high, "26", *filters, NO_OTHERS])
            read = await plan_of(connection, messages._LIST, arguments)
            assert read - OTHER_FILTERS == {"messages account_id_id_idx", "recipients pkey"}, filters

            for address in ("shared@people.test", "nobody@people.test"):
                read = await plan_of(connection, messages._LIST_TO, f"{arguments}, '{address}'")
                expected = {"recipients account_id_lower_message_id_idx", "messages pkey", "recipients pkey"}
                assert read - OTHER_FILTERS == expected, filters

        for index, (value, name) in INDEXED.items():
            read = await plan_of(connection, messages._ENTRIES[index], f"{ACCOUNT}, {low}, {high}, {value}")
            assert read == {name}, index
        arguments = ", ".join([ACCOUNT, low, high, "26", *FILTERS["none"], NO_OTHERS, f"ARRAY[{low}::uuid]"])
        assert await plan_of(connection, messages._LIST_AMONG, arguments) - OTHER_FILTERS == {
            "messages pkey", "recipients pkey",
        }  # fmt: skip


# An account with every twentieth row, all older than half of the others' and newer than the rest.
OTHERS = "('b0000000-0000-7000-8000-00000000000' || n % 10)::uuid"
QUIET = f"CASE WHEN n BETWEEN 10000 AND 11000 THEN {ACCOUNT} ELSE {OTHERS} END"
NUMBERED = "uuid7_floor((extract(epoch FROM now()) * 1000)::bigint + n)"
QUIETLY = f"""
    INSERT INTO accounts (id, name, plan) VALUES ({ACCOUNT}, 'Quiet', 'scale');
    INSERT INTO accounts (id, name, plan)
    SELECT ('b0000000-0000-7000-8000-00000000000' || n)::uuid, 'Other', 'scale' FROM generate_series(0, 9) AS n;
    INSERT INTO messages (id, account_id, status, source, sender, from_domain, subject, stream, recipient_count,
                          size_bytes)
    SELECT {NUMBERED}, {QUIET}, 'delivered', 'api', 'shop@from.test', 'from.test', 'Hello', 'news', 1, 1
    FROM generate_series(1, 20000) AS n;
    INSERT INTO contacts (id, account_id, address, email, consent, consent_at, consent_by, search, trigrams, created_at,
                          updated_at)
    SELECT {NUMBERED}, {QUIET}, n || '@people.test', n || '@people.test', 'customer', now(), 'operator', '', '{{1}}',
           now(), now()
    FROM generate_series(1, 20000) AS n;
    INSERT INTO inbound_addresses (id, account_id, address, canonical, created_at)
    SELECT {NUMBERED}, {QUIET}, n || '@shop.test', n || '@shop.test', now() FROM generate_series(1, 20000) AS n;
    INSERT INTO alert_events (id, account_id, rule_id, kind, value, threshold, window_days, detail, fired_at)
    SELECT {NUMBERED}, {QUIET}, gen_random_uuid(), 'bounces', 1, 1, 1, '{{}}', now()
    FROM generate_series(1, 20000) AS n;
    INSERT INTO inbound_messages (
        id, account_id, address_id, raw_id, address, domain, recipient, envelope_from, remote_ip, helo, "to", cc,
        subject, snippet, size_bytes, spam_threshold, authentication, action, in_mailbox, thread_key, is_read,
        sender_address, replies_to)
    SELECT {NUMBERED}, {QUIET}, {QUIET}, gen_random_uuid(), 'a@shop.test', 'shop.test', 'a@shop.test', 'b@people.test',
           '127.0.0.1', 'people.test', '[]', '[]', '', '', 1, 5, '{{}}', 'mailbox', true, n, n % 2 = 0, {QUIET}, {QUIET}
    FROM generate_series(1, 20000) AS n;
    ANALYZE messages, contacts, inbound_addresses, alert_events, inbound_messages"""
LOW, HIGH = f"'{UUID(int=0)}'", f"'{UUID(int=2**128 - 1)}'"
FLAGS = f"{ACCOUNT}, {LOW}, {HIGH}, 26, NULL, NULL, NULL, NULL"
NOBODY = f"ARRAY[{LOW}]::uuid[]"
LISTS = {
    "messages/queries.sql:list_messages": ", ".join([ACCOUNT, LOW, HIGH, "26", *FILTERS["none"], NO_OTHERS]),
    "contacts/queries.sql:list_contacts": f"{ACCOUNT}, {HIGH}, 26",
    "contacts/queries.sql:search_newest": f"{ACCOUNT}, {HIGH}, 26, '%x%', NULL, 1000",
    "inbound_addresses/queries.sql:list_addresses": f"{ACCOUNT}, {HIGH}, NULL, 26",
    "inbound_messages/queries.sql:list_received": FLAGS,
    "inbound_messages/queries.sql:list_unread": FLAGS,
    "inbound_messages/queries.sql:list_spam": FLAGS,
    "inbound_messages/queries.sql:list_searched": f"{FLAGS}, NULL, NULL, NULL, NULL",
    "inbound_messages/queries.sql:list_of_addresses": FLAGS.removesuffix("NULL") + f"ARRAY[{ACCOUNT}]::uuid[]",
    "inbound_messages/queries.sql:list_from_sender": f"{FLAGS}, {ACCOUNT}, NULL, NULL, NULL",
    "inbound_messages/queries.sql:list_replies": f"{FLAGS}, NULL, {ACCOUNT}, NULL, NULL",
    "inbound_messages/queries.sql:thread_received": f"{ACCOUNT}, '{{1}}', {NOBODY}, {NOBODY}, NULL, 26",
    "alerts/queries.sql:list_events": f"{ACCOUNT}, {HIGH}, 26",
    "retention/erase.sql:next_messages": f"{ACCOUNT}, 500",
    "retention/purge.sql:expired_messages": f"{ACCOUNT}, {HIGH}, 500",
    "retention/erase_address.sql:scan_messages": f"{ACCOUNT}, {LOW}, 500, '{{}}', '{{}}'",
    "retention/erase_address.sql:scan_received": f"{ACCOUNT}, {LOW}, 500, '{{}}', '{{}}'",
    "retention/purge_received.sql:next_received": f"{ACCOUNT}, {HIGH}, 500",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_lists_of_an_account_read_no_rows_of_others_that_are_newer(new_database: NewDatabase, mode: str) -> None:
    pool = await open_pool(await new_database(), name="tests", largest=1)
    tables = (*map(this_week, ("messages", "inbound_messages")), "contacts", "inbound_addresses", "alert_events")
    try:
        async with pool.acquire() as connection:
            await connection.execute(QUIETLY)
            await connection.execute(f"SET plan_cache_mode = {mode}")
            for name, arguments in LISTS.items():
                (query,) = [one for one in QUERIES if name_of(one).endswith(name)]
                scans = [
                    (node.get("Index Name", "*"), node.get("Index Cond", ""))
                    for node in await nodes_of(connection, query, arguments)
                    if node.get("Index Name", "").startswith(tables)
                    or (node.get("Relation Name") in tables and node["Node Type"] == "Seq Scan")
                ]
                assert scans, name
                for index, condition in scans:
                    assert re.search(r"(account_id|address_id|\(id) = ", condition), (name, index, condition)
    finally:
        await pool.close()


# Below 20,000 rows a partition has no statistics, and the planner takes it for granted that conditions select little.
YOUNG = (
    MANY["messages"].replace("20000", "15000").replace("n % 50 = 0", "n % 4 <> 0")
    + f""";
    INSERT INTO events (id, account_id, seq, type, message_id, occurred_at, payload, hash)
    SELECT uuid7_floor((extract(epoch FROM now()) * 1000)::bigint + n), account_id, n, 'delivered', id, now(),
           repeat('x', 300), '\\x00'
    FROM (SELECT id, account_id, row_number() OVER () AS n FROM messages) m;
    INSERT INTO message_bodies (message_id, mime, smtputf8)
    SELECT id, '\\x00', false FROM messages WHERE account_id = {ACCOUNT}"""
)
# Statements that go through all rows of an account, a part at a time.
READ_ALL_OF_AN_ACCOUNT = {
    "engine/retention/erase.sql:erase_events",
    "engine/retention/erase.sql:next_messages",
    "engine/retention/erase.sql:remaining",
}
# What the first columns of an index must be compared with; the account alone is up to every row of the table.
FIRST_COLUMNS = {
    "_account_id_lower_message_id_idx": "lower(",
    "_account_id_seq_idx": "(seq ",
    "_account_id_id_idx": "(id ",
    "_account_key_": "uuid_hash_extended(",
}


async def test_no_statement_reads_all_rows_of_an_account_in_a_partition_without_statistics(
    new_database: NewDatabase,
) -> None:
    pool = await open_pool(await new_database(), name="tests", largest=1)
    tables = tuple(map(this_week, ("messages", "recipients", "events", "message_bodies")))
    judged, wide = 0, {}
    try:
        async with pool.acquire() as connection:
            await connection.execute(YOUNG)
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            for query in filter(reads_large_tables, QUERIES):
                for node in await nodes_of(connection, query):
                    index = node.get("Index Name", "")
                    if index.startswith(tables):
                        judged += 1
                        condition = node.get("Index Cond", "")
                        if not all(part in condition for name, part in FIRST_COLUMNS.items() if name in index):
                            wide[name_of(query)] = f"{index}: {condition}"
    finally:
        await pool.close()
    assert judged > 50
    assert set(wide) <= READ_ALL_OF_AN_ACCOUNT, wide


def reads_large_tables(query: Query) -> bool:
    """Return True for a statement of the product that names one of the tables; benchmarks measure theirs."""
    is_product = not name_of(query).startswith("loadtests/") and not isinstance(query, SessionFunction)
    return is_product and re.search(r"\b(messages|recipients|events|message_bodies)\b", query.sql) is not None


async def nodes_of(connection: Conn, query: Query, arguments: str | None = None) -> list[dict[str, Any]]:
    """Return all nodes of a plan of the statement; without arguments, all are null."""
    if arguments is None:
        count = max(map(int, re.findall(r"\$(\d+)", query.sql)), default=0)
        arguments = ", ".join(["NULL"] * count)
    await connection.execute(f"PREPARE judged AS {query.sql}")
    plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE judged{arguments and f'({arguments})'}")
    await connection.execute("DEALLOCATE judged")
    nodes = [json.loads(plan)[0]["Plan"]]
    for node in nodes:  # grows
        nodes += node.get("Plans", [])
    return nodes
