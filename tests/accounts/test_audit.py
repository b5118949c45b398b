"""The account log for auditors: listed newest first, exported oldest first, exactly as it was sealed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import aiohttp
import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.accounts.audit import rules, store
from engine.accounts.audit.types import Range
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.store.postgres import close_pool, open_pool
from tests.conftest import NewDatabase
from tests.harness import logbook
from tests.harness.accounts import make_account
from tests.harness.api import Api, serving
from tests.harness.patience import until

NOW = clock.now().replace(microsecond=123_000)


async def test_an_entry_is_what_was_hashed(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    sent = await api.post("/v1/emails", account.token, account.email(subject="Grüße"))
    await logbook.write(pool, account.id, ("domain.added", {"name": "bücher.test"}))

    page = (await api.get("/v1/audit/events", account.token)).json

    newest, oldest = page["data"]
    assert page["nextCursor"] is None
    assert set(newest) == {"seq", "id", "type", "occurredAt", "payload", "hash", "prevHash"}
    assert (newest["seq"], newest["type"], oldest["seq"], oldest["type"]) == (2, "domain.added", 1, "accepted")
    assert orjson.loads(oldest["payload"])["messageId"] == sent.json["id"]
    assert oldest["prevHash"] == "0" * 64
    assert newest["prevHash"] == oldest["hash"]
    for one in page["data"]:
        hashed = f"{one['prevHash']}\n{one['seq']}\n{one['occurredAt']}\n{one['payload']}"
        assert one["hash"] == sha256(hashed.encode()).hexdigest()


async def test_pages_go_back_to_the_first_event(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await logbook.many(pool, other.id, 3)
    await logbook.many(pool, account.id, 110)

    first = (await api.get("/v1/audit/events", account.token)).json
    assert [one["seq"] for one in first["data"]] == list(range(110, 10, -1))
    assert first["nextCursor"] == "11"
    rest = (await api.get("/v1/audit/events?before=11&limit=10", account.token)).json
    assert [one["seq"] for one in rest["data"]] == list(range(10, 0, -1))
    assert rest["nextCursor"] is None
    assert (await api.get("/v1/audit/events?before=1", account.token)).json == {"data": [], "nextCursor": None}


async def test_type_and_time_narrow_the_list_and_hashes_before_are_known_all_the_same(
    api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    for day in range(10):
        at = NOW - timedelta(days=20 - day)
        await logbook.write(pool, account.id, ("deferred", {}), ("bounced", {}), at=at)
    all_rows = (await api.get("/v1/audit/events", account.token)).json["data"]
    hashes = {one["seq"]: one["hash"] for one in all_rows}

    def on(day: int, milliseconds: int = 0) -> str:
        return clock.iso(NOW - timedelta(days=20 - day) + timedelta(milliseconds=milliseconds))

    for params, expected in (
        ({"type": "bounced"}, list(range(20, 0, -2))),
        ({"type": "no.such"}, []),
        ({"by": "people"}, []),
        ({"from": on(7)}, [20, 19, 18, 17, 16, 15]),
        ({"from": on(7, 1)}, [20, 19, 18, 17]),
        ({"until": on(2)}, [4, 3, 2, 1]),
        ({"until": on(2, 1), "type": "bounced"}, [6, 4, 2]),
        ({"from": on(3), "until": on(4)}, [8, 7]),
        ({"from": on(3), "until": on(3)}, []),
        ({"from": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59.999Z", "limit": "2"}, [20, 19]),
        ({"until": "0001-01-01T00:00:00Z"}, []),
        ({"from": "9999-12-31T23:59:59.999Z"}, []),
    ):
        page = (await api.get("/v1/audit/events", account.token, params=params)).json
        assert [one["seq"] for one in page["data"]] == expected, params
        for one in page["data"]:
            assert one["prevHash"] == hashes.get(one["seq"] - 1, "0" * 64)


async def test_what_people_did_is_listed_apart_from_what_keys_and_the_service_did(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    misleading = {"name": '"actor":"usr_1"', "actor": "service"}
    for detail in ({"actor": "usr_1"}, {"actor": "key_1"}, {"actor": "operator"}, misleading, {}):
        await logbook.write(pool, account.id, ("domain.added", detail))

    async def seqs(by: str) -> list[int]:
        return [one["seq"] for one in (await api.get(f"/v1/audit/events?by={by}", account.token)).json["data"]]

    assert (await seqs("people"), await seqs("keys")) == ([3, 1], [2])
    assert (await api.get("/v1/audit/events?by=robots", account.token)).status == 400


async def test_times_are_found_in_a_log_whose_clock_ran_back(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    wanted = []
    for number in range(400):
        at = NOW - timedelta(days=400 - number, hours=(number * 7) % 23)
        place = await logbook.write(pool, account.id, ("deferred", {}), at=at)
        if NOW - timedelta(days=200) <= at < NOW - timedelta(days=100):
            wanted.append(place)

    times = Range(NOW - timedelta(days=200), NOW - timedelta(days=100))
    found = await store.page(pool, account.id, limit=200, before=None, type_=None, times=times)

    assert sorted(row.seq for row in found.rows) == wanted


async def test_a_rare_type_does_not_walk_the_whole_log(pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    account = await make_account(pool)
    await logbook.write(pool, account.id, ("bounced", {}))
    await logbook.many(pool, account.id, 50)
    monkeypatch.setattr(store, "SPAN", 20)

    before: int | None = None
    pages = []
    while True:
        page = await store.page(pool, account.id, limit=10, before=before, type_="bounced", times=Range())
        pages.append([row.seq for row in page.rows])
        before = page.before
        if before is None:
            break

    assert pages == [[], [], [1]]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("events?limit=0", "limit"), ("events?limit=201", "limit"), ("events?before=0", "before"),
        ("events?before=evt_01", "before"), (f"events?before={2**63}", "before"), ("events?type=", "type"),
        ("events?type=%00", "type"), ("events?from=yesterday", "from"), ("events?until=2026-02-30T00:00:00Z", "until"),
        ("events?from=2026-02-20T00:00:00%2B01:00", "from"), ("events?after=1", "after"), ("export?from=x", "from"),
        ("export?until=2026-01-01T00:00:00", "until"), ("export?limit=1", "limit"), ("verify?x=1", "x"),
    ],
)  # fmt: skip
async def test_a_parameter_that_is_no_good_is_refused_by_name(
    path: str, field: str, api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)

    answer = await api.get(f"/v1/audit/{path}", account.token)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_an_export_explains_itself_and_ends_with_its_verdict(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 450)

    answer = await api.get("/v1/audit/export", account.token)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert answer.headers["content-disposition"] == f'attachment; filename="audit-{account.public_id}.ndjson"'
    header, *entries, trailer = [orjson.loads(line) for line in answer.body.split(b"\n")[:-1]]
    assert header["record"] == "header"
    assert header["account"] == account.public_id
    assert header["hash"]["formula"] == r'hash = SHA-256(prevHash + "\n" + seq + "\n" + occurredAt + "\n" + payload)'
    assert (header["purgedThroughSeq"], header["purgedHash"]) == (0, "0" * 64)
    assert [one["seq"] for one in entries] == list(range(1, 451))
    previous = header["hash"]["firstPrevHash"]
    for one in entries:  # as the header says it
        assert one["record"] == "event"
        assert one["prevHash"] == previous
        previous = sha256(f"{previous}\n{one['seq']}\n{one['occurredAt']}\n{one['payload']}".encode()).hexdigest()
        assert one["hash"] == previous
    assert header["head"] == {"seq": 450, "hash": previous}
    assert trailer == {"record": "trailer", "events": 450, "intact": True, "brokenAt": None, "problem": None}


async def test_an_export_of_a_time_holds_what_happened_in_it_and_vouches_for_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    for day in range(10):
        await logbook.write(pool, account.id, ("deferred", {}), at=NOW - timedelta(days=20 - day))
    params = {"from": clock.iso(NOW - timedelta(days=17)), "until": clock.iso(NOW - timedelta(days=14))}

    whole = await _records(api, account.token, params)
    await pool.execute(
        "UPDATE events SET payload = payload || ' ' WHERE account_id = $1 AND seq IN (1, 10)", account.id
    )
    outside = await _records(api, account.token, params)
    await pool.execute("UPDATE events SET payload = payload || ' ' WHERE account_id = $1 AND seq = 5", account.id)
    inside = await _records(api, account.token, params)

    assert [one["seq"] for one in whole[1:-1]] == [4, 5, 6]
    assert (whole[0]["from"], whole[0]["until"]) == (params["from"], params["until"])
    assert (whole[-1]["events"], whole[-1]["intact"]) == (3, True)
    assert (outside[-1]["events"], outside[-1]["intact"]) == (3, True)
    assert (inside[-1]["events"], inside[-1]["intact"], inside[-1]["brokenAt"]) == (3, False, 5)


async def test_an_empty_log_is_exported_and_intact(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    header, trailer = await _records(api, account.token, {})

    assert header["head"] == {"seq": 0, "hash": "0" * 64}
    assert (trailer["events"], trailer["intact"]) == (0, True)
    assert (await api.get("/v1/audit/events", account.token)).json == {"data": [], "nextCursor": None}


async def test_an_export_of_what_retention_left_starts_from_the_hash_it_left(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 10)
    await logbook.purge(pool, account.id, 4)

    header, *entries, trailer = await _records(api, account.token, {})

    assert header["purgedThroughSeq"] == 4
    assert header["purgedHash"] == entries[0]["prevHash"]
    assert [one["seq"] for one in entries] == list(range(5, 11))
    assert (trailer["events"], trailer["intact"]) == (6, True)
    listed = (await api.get("/v1/audit/events", account.token)).json["data"]
    assert [one["prevHash"] for one in reversed(listed)] == [one["prevHash"] for one in entries]


async def test_an_export_goes_on_behind_a_break_and_its_trailer_names_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 420)
    await pool.execute("DELETE FROM events WHERE account_id = $1 AND seq = 200", account.id)
    await pool.execute("UPDATE events SET hash = sha256('x') WHERE account_id = $1 AND seq = 400", account.id)

    _, *entries, trailer = await _records(api, account.token, {})

    assert [one["seq"] for one in entries] == [seq for seq in range(1, 421) if seq != 200]
    assert next(one for one in entries if one["seq"] == 201)["prevHash"] is None
    assert (trailer["events"], trailer["intact"], trailer["brokenAt"]) == (419, False, 200)
    assert "missing" in str(trailer["problem"])


async def test_an_export_whose_reader_leaves_gives_back_what_it_holds(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.write(pool, account.id, *[("deferred", {"diagnostic": "x" * 500})] * 3_000)

    for _ in range(6):  # more than may read at once
        async with _exporting(api.base_url, account.token) as answer:
            assert (await answer.content.readexactly(100_000)).startswith(b'{"record":"header"')
    assert (await _records(api, account.token, {}))[-1]["events"] == 3_000


async def test_an_export_that_breaks_off_is_no_whole_answer_and_has_no_trailer(
    settings: Settings, new_database: NewDatabase, api_log: Path
) -> None:
    url = await new_database()
    own = await open_pool(url, name="tests")
    name = await own.fetchval("SELECT current_database()")
    account = await make_account(own)
    await logbook.write(own, account.id, *[("deferred", {"diagnostic": "x" * 2_000})] * 10_000)
    await close_pool(own)
    operator = await asyncpg.connect(str(settings.database_url))
    try:
        with serving(structs.replace(settings, database_url=url), api_log) as base_url:
            async with _exporting(base_url, account.token) as answer:
                part = bytearray(await answer.content.readexactly(100_000))
                await operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                await operator.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
                )
                with pytest.raises(aiohttp.ClientPayloadError):
                    await _read_into(part, answer)
            await until(lambda: "stream interrupted" in api_log.read_text())
    finally:
        await operator.close()
    assert b'"trailer"' not in part


async def _read_into(part: bytearray, answer: aiohttp.ClientResponse) -> None:
    while chunk := await answer.content.readany():
        part += chunk


@asynccontextmanager
async def _exporting(base_url: str, token: str) -> AsyncIterator[aiohttp.ClientResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{base_url}/v1/audit/export", headers={"Authorization": f"Bearer {token}"}) as answer,
    ):
        yield answer
        answer.close()


async def _records(api: Api, token: str, params: dict[str, str]) -> list[dict[str, object]]:
    answer = await api.get("/v1/audit/export", token, params=params)
    assert answer.status == 200, answer.body
    return [orjson.loads(line) for line in answer.body.split(b"\n")[:-1]]


def test_an_export_is_named_after_its_account() -> None:
    account = ids.uuid7()
    assert rules.log_name(account) == f"audit-{ids.format_id(ids.Kind.ACCOUNT, account)}.ndjson"
