"""The verdict on the account log: whatever is changed in what was stored is found, and at its place."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.accounts.audit import store
from engine.accounts.audit.types import Range
from engine.accounts.audit.verifier import Verifier
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.ledger import log
from engine.store.database_errors import BadData
from tests.harness import logbook
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.sampling import examples

COPY = (
    "INSERT INTO events SELECT gen_random_uuid7(), account_id, {to}, type, message_id, occurred_at, payload, hash"
    " FROM events WHERE {{a}} AND seq = {of}"
)
COLUMNS = ("id", "account_id", "seq", "type", "message_id", "occurred_at", "payload", "hash")


async def test_an_intact_log_is_intact(account: TestAccount, api: Api, pool: asyncpg.Pool) -> None:
    await api.post("/v1/emails", account.token, account.email())
    await logbook.write(
        pool, account.id, ("domain.added", {"name": "bücher.test"}), ("suppressed", {"address": "a@b.c"})
    )

    verdict = (await api.get("/v1/audit/verify", account.token)).json
    narrow = (await api.get("/v1/account/verify", account.token)).json

    newest = (await api.get("/v1/audit/events?limit=1", account.token)).json["data"][0]
    as_of = verdict.pop("asOf")
    assert abs(clock.parse_iso(as_of) - clock.now()) < timedelta(minutes=1)
    assert verdict == {
        "intact": True, "brokenAt": None, "problem": None, "purgedThroughSeq": 0, "events": 3, "erasedEntries": 0,
        "head": {"seq": 3, "hash": newest["hash"]},
    }  # fmt: skip
    assert narrow == {"intact": True, "brokenAt": None, "problem": None}


async def test_an_empty_log_is_intact(account: TestAccount, api: Api) -> None:
    verdict = (await api.get("/v1/audit/verify", account.token)).json

    assert (verdict["intact"], verdict["events"], verdict["head"]) == (True, 0, {"seq": 0, "hash": "0" * 64})


async def test_what_retention_left_is_intact_and_says_from_where(
    account: TestAccount, api: Api, pool: asyncpg.Pool
) -> None:
    await logbook.many(pool, account.id, 30)
    await logbook.purge(pool, account.id, 12)

    verdict = (await api.get("/v1/audit/verify", account.token)).json
    assert (verdict["intact"], verdict["purgedThroughSeq"], verdict["events"]) == (True, 12, 18)

    await pool.execute("UPDATE account_heads SET purged_hash = sha256('x') WHERE account_id = $1", account.id)
    verdict = (await api.get("/v1/audit/verify", account.token)).json
    assert (verdict["intact"], verdict["brokenAt"]) == (False, 13)

    await logbook.purge(pool, account.id, 30)
    verdict = (await api.get("/v1/audit/verify", account.token)).json
    assert (verdict["intact"], verdict["purgedThroughSeq"], verdict["events"]) == (True, 30, 0)


@pytest.mark.parametrize(
    ("change", "broken_at", "word"),
    [
        ("UPDATE events SET payload = replace(payload, '1', '2') WHERE {a} AND seq = 2", 2, "changed"),
        ("UPDATE events SET occurred_at = occurred_at + interval '1 millisecond' WHERE {a} AND seq = 3", 3, "changed"),
        ("UPDATE events SET occurred_at = occurred_at + interval '1 microsecond' WHERE {a} AND seq = 3", 3, "changed"),
        ("UPDATE events SET occurred_at = 'infinity' WHERE {a} AND seq = 3", 3, "changed"),
        ("UPDATE events SET occurred_at = '200000-01-01' WHERE {a} AND seq = 3", 3, "changed"),
        ("UPDATE events SET occurred_at = '4000-01-01 BC' WHERE {a} AND seq = 3", 3, "changed"),
        ("UPDATE events SET hash = set_byte(hash, 31, get_byte(hash, 31) # 1) WHERE {a} AND seq = 4", 4, "changed"),
        ("UPDATE events SET hash = ''  WHERE {a} AND seq = 8", 8, "changed"),
        ("UPDATE events SET type = 'delivered' WHERE {a} AND seq = 5", 5, "changed"),
        ("UPDATE events SET message_id = gen_random_uuid() WHERE {a} AND seq = 5", 5, "changed"),
        ("UPDATE events SET message_id = NULL WHERE {a} AND seq = 6", 6, "changed"),
        ("UPDATE events SET message_id = gen_random_uuid() WHERE {a} AND seq = 6", 6, "changed"),
        ("UPDATE events SET seq = -6 WHERE {a} AND seq = 6", -6, "outside"),
        ("UPDATE events SET seq = 9223372036854775807 WHERE {a} AND seq = 6", 6, "missing"),
        ("UPDATE events SET seq = 7 WHERE {a} AND seq = 6", 6, "missing"),
        ("UPDATE events SET account_id = gen_random_uuid() WHERE {a} AND seq = 1", 1, "missing"),
        ("DELETE FROM events WHERE {a} AND seq = 1", 1, "missing"),
        ("DELETE FROM events WHERE {a} AND seq IN (4, 5, 9)", 4, "missing"),
        ("DELETE FROM events WHERE {a} AND seq > 7", 8, "missing"),
        ("DELETE FROM events WHERE {a}", 1, "missing"),
        ("UPDATE account_heads SET hash = sha256('x') WHERE {a}", 10, "head"),
        ("UPDATE account_heads SET seq = 9 WHERE {a}", 9, "head"),
        ("UPDATE account_heads SET seq = 11 WHERE {a}", 11, "missing"),
        (COPY.format(to=4, of=4), 4, "Two"),
        (COPY.format(to=10, of=10), 10, "Two"),
        (COPY.format(to=12, of=10), 12, "outside"),
    ],
)  # fmt: skip
async def test_each_way_to_change_a_log_is_found_at_its_place(
    change: str, broken_at: int, word: str, account: TestAccount, api: Api, pool: asyncpg.Pool
) -> None:
    message = await logbook.message(pool, account.id)
    for number in range(1, 11):
        await logbook.write(pool, account.id, ("deferred", {"n": number}), message=message if number % 2 == 0 else None)
    fresh = f"'{ids.uuid7()}'::uuid"

    done = await pool.execute(
        change.replace("{a}", f"account_id = '{account.id}'").replace("gen_random_uuid7()", fresh)
    )
    assert not done.endswith(" 0")

    answer = await api.get("/v1/audit/verify", account.token)
    assert (answer.status, answer.json["intact"], answer.json["brokenAt"]) == (200, False, broken_at)
    assert word in answer.json["problem"]
    narrow = await api.get("/v1/account/verify", account.token)
    assert narrow.json == {name: answer.json[name] for name in ("intact", "brokenAt", "problem")}


async def test_a_verdict_counts_the_events_that_were_replayed(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 2_500)
    assert (await store.verify(pool, account.id)).events == 2_500

    await pool.execute("DELETE FROM events WHERE account_id = $1 AND seq = 2200", account.id)
    assert (await store.verify(pool, account.id)).events == 2_199


async def test_an_undone_change_is_no_change(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 3)
    before = await pool.fetch("SELECT * FROM events WHERE account_id = $1 ORDER BY seq", account.id)
    await pool.execute("UPDATE events SET payload = 'x' WHERE account_id = $1", account.id)
    assert (await store.verify(pool, account.id)).broken is not None
    await pool.executemany(
        "UPDATE events SET payload = $2 WHERE id = $1", [(row["id"], row["payload"]) for row in before]
    )

    assert (await store.verify(pool, account.id)).broken is None


async def test_a_place_taken_twice_is_found_where_pages_meet(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 2_000)
    for place in (1_000, 2_000):
        copy = ids.uuid7()
        await pool.execute(
            "INSERT INTO events SELECT $2, account_id, seq, type, message_id, occurred_at, payload, hash"
            " FROM events WHERE account_id = $1 AND seq = $3",
            account.id, copy, place,
        )  # fmt: skip
        verdict = await store.verify(pool, account.id)
        assert verdict.broken is not None
        assert verdict.broken.at == place
        await pool.execute("DELETE FROM events WHERE id = $1", copy)
    assert (await store.verify(pool, account.id)).broken is None


async def test_every_flipped_bit_of_a_stored_event_is_found(account: TestAccount, pool: asyncpg.Pool) -> None:
    """Bits of every column as Postgres sends it, but for the event's own id, which is a name and no statement."""
    rng = random.Random(20_261_121)
    message = await logbook.message(pool, account.id)
    for number in range(12):
        await logbook.write(
            pool, account.id, ("bounced", {"n": number, "text": "ü漢"}), message=message if number % 3 else None
        )
    rows = await _stored(pool, account.id)
    flips = 0
    while flips < 250:
        seq = rng.randint(1, 12)
        column = rng.choice(COLUMNS[2:])
        value = rows[seq][column]
        flipped = _flipped(value, rng) if value is not None else ids.uuid7()
        if flipped is None:
            continue
        flips += 1
        try:
            await _put(pool, rows[seq]["id"], column, flipped)
            verdict = await store.verify(pool, account.id)
            assert verdict.broken is not None, (seq, column, value, flipped)
            expected = min(seq, int(str(flipped))) if column == "seq" and int(str(flipped)) < 1 else seq
            assert verdict.broken.at == expected, (seq, column, flipped, verdict.broken)
        finally:
            await _put(pool, rows[seq]["id"], column, value)
    assert (await store.verify(pool, account.id)).broken is None


async def test_a_log_that_is_written_to_is_intact_all_the_while(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 3_000)
    done = asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            await asyncio.gather(*[logbook.many(pool, account.id, 20) for _ in range(3)])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        for _ in range(8):
            verdict = await store.verify(pool, account.id)
            assert (verdict.broken, verdict.events) == (None, verdict.head.seq)
        done.set()


async def test_retention_that_overtakes_a_verification_breaks_nothing(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 5_000)

    async def purge() -> None:
        for through in range(900, 5_000, 1_000):
            await logbook.purge(pool, account.id, through)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(purge())
        for _ in range(6):
            assert (await store.verify(pool, account.id)).broken is None
            exported = await store.open_export(pool, account.id, Range())
            async for _page in exported.pages():
                pass
            assert exported.broken is None


_MILLENNIUM = clock.parse_iso("1000-01-01T00:00:00Z")
moments = st.integers(0, 280_000_000_000_000).map(lambda ms: _MILLENNIUM + timedelta(milliseconds=ms))


@pytest.fixture(scope="module")
async def connection(pool: asyncpg.Pool) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
    async with pool.acquire() as one:
        yield one


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    previous=st.binary(min_size=32, max_size=32),
    seq=st.integers(0, 2**63 - 1),
    at=moments,
    payload=st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])),
)
async def test_the_database_hashes_as_the_writer_does(
    connection: asyncpg.pool.PoolConnectionProxy, previous: bytes, seq: int, at: datetime, payload: str
) -> None:
    found = await connection.fetchrow("SELECT iso($3), chained_hash($1, $2, $3, $4)", previous, seq, at, payload)

    assert found is not None
    assert tuple(found) == (clock.iso(at), log.chained(previous, seq, at, payload))


async def test_a_verification_outlives_the_request_that_tired_of_it(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 4_000)
    verifier = Verifier(pool)
    try:
        with pytest.raises(Refusal) as refused:
            await verifier.verdict(account.id, max_wait_s=0.0)
        assert (refused.value.kind, refused.value.retry_after_s) == (ErrorType.UNAVAILABLE, 20)
        await asyncio.sleep(0.5)
        at = clock.now()
        kept = await verifier.verdict(account.id)
        assert (kept.broken, kept.events) == (None, 4_000)
        assert kept.as_of < at
        assert (await verifier.verdict(account.id)).as_of >= at  # given out once
    finally:
        await verifier.close()


async def test_requests_for_one_log_share_its_verification(account: TestAccount, pool: asyncpg.Pool) -> None:
    await logbook.many(pool, account.id, 2_000)
    verifier = Verifier(pool)

    verdicts = await asyncio.gather(*[verifier.verdict(account.id) for _ in range(20)])

    assert len({id(one) for one in verdicts}) == 1
    await verifier.close()


async def _stored(pool: asyncpg.Pool, account: UUID) -> dict[int, asyncpg.Record]:
    """The rows with every column as the integer, text or octets behind it."""
    found = await pool.fetch(
        "SELECT id, account_id, seq, type, message_id, payload, hash,"
        " (extract(epoch FROM occurred_at) * 1000000)::bigint AS occurred_at FROM events WHERE account_id = $1",
        account,
    )
    return {row["seq"]: row for row in found}


def _flipped(value: object, rng: random.Random) -> object | None:
    """The value with one bit of it changed; None where that is no value of its type."""
    match value:
        case int():
            bit = 1 << rng.randrange(63)
            return value ^ bit if rng.random() < 0.9 else -value - 1
        case UUID():
            return UUID(int=value.int ^ (1 << rng.randrange(128)))
        case bytes():
            place = rng.randrange(len(value))
            return value[:place] + bytes([value[place] ^ (1 << rng.randrange(8))]) + value[place + 1 :]
        case str():
            octets = _flipped(value.encode(), rng)
            assert isinstance(octets, bytes)
            try:
                text = octets.decode()
            except UnicodeDecodeError:
                return None
            return None if "\0" in text else text
    raise TypeError(type(value))


async def _put(pool: asyncpg.Pool, event: UUID, column: str, value: object) -> None:
    at = "to_timestamp(0) + make_interval(secs => 0) + $2::bigint * interval '1 microsecond'"
    expression = at if column == "occurred_at" else "$2"
    try:
        await pool.execute(f"UPDATE events SET {column} = {expression} WHERE id = $1", event, value)
    except BadData:  # past the calendar's end: the largest moment stands for it
        await pool.execute(f"UPDATE events SET {column} = 'infinity' WHERE id = $1", event)
