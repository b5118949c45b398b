"""`GET /v1/events`: the whole account log, pulled oldest first."""

import asyncpg
import pytest

from engine.base import ids
from engine.events.tails import store
from tests.harness import logbook
from tests.harness.accounts import make_account
from tests.harness.api import Api


async def test_an_event_is_pulled_as_webhooks_push_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    sent = await api.post("/v1/emails", account.token, account.email())
    await logbook.write(pool, account.id, ("domain.added", {"name": "x.test"}))

    page = (await api.get("/v1/events", account.token)).json

    waybill = (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json["waybill"]
    accepted, added = page["data"]
    assert accepted == waybill[0] | {"messageId": sent.json["id"]}
    assert (added["type"], added["messageId"], added["detail"]) == ("domain.added", None, {"name": "x.test"})
    assert ids.format_id(ids.Kind.EVENT, ids.parse_id(ids.Kind.EVENT, added["id"])) == added["id"]
    assert [accepted["seq"], added["seq"]] == [1, 2]
    assert (page["nextCursor"], page["hasMore"], page["purgedThroughSeq"]) == ("2", False, 0)


async def test_pages_follow_one_another_without_gap_or_repeat(api: Api, pool: asyncpg.Pool) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await logbook.many(pool, other.id, 5)
    await logbook.many(pool, account.id, 1_010)

    seen: list[int] = []
    cursor, more = "0", True
    while more:
        page = (await api.get("/v1/events", account.token, params={"after": cursor, "limit": "300"})).json
        seen += [one["seq"] for one in page["data"]]
        cursor, more = page["nextCursor"], page["hasMore"]
        assert int(cursor) == seen[-1]

    assert seen == list(range(1, 1_011))
    assert len((await api.get("/v1/events", account.token)).json["data"]) == 100
    assert len((await api.get("/v1/events?limit=1000", account.token)).json["data"]) == 1_000


async def test_the_cursor_of_an_empty_page_is_good_for_what_comes(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    empty = (await api.get("/v1/events", account.token)).json
    assert empty == {"data": [], "nextCursor": "0", "hasMore": False, "purgedThroughSeq": 0}

    await logbook.many(pool, account.id, 2)
    ahead = (await api.get("/v1/events?after=77", account.token)).json
    assert (ahead["data"], ahead["nextCursor"], ahead["hasMore"]) == ([], "2", False)


async def test_types_narrow_the_pull_and_a_rare_one_does_not_walk_the_whole_log(
    api: Api, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 45)
    await logbook.write(pool, account.id, ("bounced", {}), ("complained", {}))

    page = (await api.get("/v1/events?type=bounced&type=complained&type=unknown", account.token)).json
    assert [one["type"] for one in page["data"]] == ["bounced", "complained"]

    monkeypatch.setattr(store, "SPAN", 20)
    first = await store.pull(pool, account.id, after=0, limit=10, types=["bounced"])
    assert (first.rows, first.after, first.has_more) == ([], 20, True)
    last = await store.pull(pool, account.id, after=40, limit=10, types=["bounced"])
    assert ([one.seq for one in last.rows], last.after, last.has_more) == ([46], 47, False)


async def test_what_retention_took_is_told(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 10)
    await logbook.purge(pool, account.id, 6)

    page = (await api.get("/v1/events?after=2&limit=3", account.token)).json

    assert [one["seq"] for one in page["data"]] == [7, 8, 9]
    assert (page["nextCursor"], page["hasMore"], page["purgedThroughSeq"]) == ("9", True, 6)


async def test_a_broken_event_is_pulled_without_its_detail(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 3)
    await pool.execute("UPDATE events SET payload = '{' WHERE account_id = $1 AND seq = 2", account.id)
    await pool.execute("UPDATE events SET occurred_at = '-infinity' WHERE account_id = $1 AND seq = 3", account.id)

    answer = await api.get("/v1/events", account.token)

    assert answer.status == 200
    assert [one["detail"] for one in answer.json["data"]] == [{"n": 0}, {}, {"n": 2}]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?limit=0", "limit"), ("?limit=1001", "limit"), ("?after=-1", "after"), (f"?after={2**63}", "after"),
        ("?after=evt_0", "after"), ("?type=", "type[0]"), ("?before=1", "before"), ("?after=1&after=2", "after"),
    ],
)  # fmt: skip
async def test_a_parameter_that_is_no_good_is_refused_by_name(
    query: str, field: str, api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)

    answer = await api.get(f"/v1/events{query}", account.token)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_any_text_of_a_type_is_a_type_that_never_comes(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 1)

    for text in ("a%00b", "%F0%9F%92%8C", "'%3B--"):
        answer = await api.get(f"/v1/events?type={text}", account.token)
        assert (answer.status, answer.json["data"]) == (200, [])


async def test_a_pull_may_begin_at_the_end_of_the_log(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    await logbook.many(pool, account.id, 5)
    page = (await api.get("/v1/events?after=latest", account.token)).json
    assert (page["data"], page["nextCursor"], page["hasMore"]) == ([], "5", False)
    await logbook.many(pool, account.id, 2)
    later = (await api.get(f"/v1/events?after={page['nextCursor']}", account.token)).json
    assert [event["seq"] for event in later["data"]] == [6, 7]


@pytest.mark.parametrize("after", ["newest", "-1", str(2**63), "1.5", ""])
async def test_a_pull_begins_at_a_seq_or_at_the_end(api: Api, pool: asyncpg.Pool, after: str) -> None:
    account = await make_account(pool)
    answer = await api.get(f"/v1/events?after={after}", account.token)
    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", "after")
