"""Suppressions over the API: adding, lifting, listing, importing and exporting."""

import asyncio
from urllib.parse import quote

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.sending.suppressions import rules, store
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api, Params, refuses


async def add(api: Api, account: TestAccount, address: str, **fields: object) -> Answer:
    return await api.post("/v1/suppressions", account.token, {"address": address} | fields)


async def lift(api: Api, account: TestAccount, address: str) -> Answer:
    path = f"/v1/suppressions/{quote(address, safe='@')}"
    return await api.request("DELETE", path, token=account.token)


async def delete(api: Api, account: TestAccount, raw: str) -> Answer:
    """With the path's last part as it is."""
    return await api.request("DELETE", f"/v1/suppressions/{raw}", token=account.token)


async def listed(api: Api, account: TestAccount, params: Params | None = None) -> list[str]:
    answer = await api.get("/v1/suppressions", account.token, params=params)
    assert answer.status == 200, answer
    return [row["address"] for row in answer.json["data"]]


async def seen(
    pool: asyncpg.Pool, account: TestAccount, address: str, reason: str = "bounce", *, detail: str | None = None
) -> str:
    """A suppression that a message caused; the message's id."""
    message = ids.uuid7()
    await store.ADD.execute(pool, [account.id], [address], [reason], [message], [detail])
    return ids.format_id(ids.Kind.MESSAGE, message)


# adding ----------------------------------------------------------------------------------------


async def test_a_suppressed_address_gets_no_mail(api: Api, account: TestAccount) -> None:
    before = clock.now()
    answer = await add(api, account, "Ann@People.test")

    assert answer.status == 201
    row = answer.json
    assert before <= clock.parse_iso(row["createdAt"]) <= clock.now()
    assert row == {
        "address": "ann@people.test",
        "reason": "manual",
        "detail": None,
        "messageId": None,
        "createdAt": row["createdAt"],
    }
    assert (await api.get("/v1/suppressions", account.token)).json["data"] == [row]
    sent = await api.post("/v1/emails", account.token, account.email())
    assert (sent.status, sent.error["type"], sent.error["reason"]) == (422, "suppressed", "manual")


async def test_suppressing_again_answers_what_stands(api: Api, account: TestAccount) -> None:
    first = await add(api, account, "ann@people.test")
    again = await add(api, account, "ANN@people.test", reason="manual")

    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json


@pytest.mark.parametrize(
    ("standing", "wanted", "kept"),
    [
        ("unsubscribe", "manual", "manual"),
        ("manual", "unsubscribe", "manual"),
        ("bounce", "manual", "bounce"),
        ("bounce", "unsubscribe", "bounce"),
        ("complaint", "manual", "complaint"),
        ("complaint", "unsubscribe", "complaint"),
    ],
)
async def test_the_stronger_reason_stands(
    api: Api, pool: asyncpg.Pool, account: TestAccount, standing: str, wanted: str, kept: str
) -> None:
    message = await seen(pool, account, "ann@people.test", standing, detail="550 no such user")
    before = (await api.get("/v1/suppressions", account.token)).json["data"][0]
    answer = await add(api, account, "ann@people.test", reason=wanted)

    assert (answer.status, answer.json["reason"]) == (200, kept)
    if kept == standing:
        assert answer.json == before
        assert before["messageId"] == message
    else:  # what caused the former reason goes with it; the time stays
        assert answer.json == before | {"reason": kept, "detail": None, "messageId": None}
    assert (await api.get("/v1/suppressions", account.token)).json["data"] == [answer.json]


@pytest.mark.parametrize("reason", ["bounce", "complaint", "spam", "", 5])
async def test_only_what_people_decide_is_added_by_hand(api: Api, account: TestAccount, reason: object) -> None:
    assert refuses(await add(api, account, "ann@people.test", reason=reason), "reason")
    assert await listed(api, account) == []


@pytest.mark.parametrize(
    "address",
    ["not an address", "ann@", "@people.test", "a@b@c", "ann@people..test", "ann@people.test, bob@people.test",
     "Ann <ann@people.test>", "<ann@people.test>", "ann@people.test\0", "ann\n@people.test", "ann@[127.0.0.1]"],
)  # fmt: skip
async def test_what_is_no_address_is_refused(api: Api, account: TestAccount, address: str) -> None:
    answer = await add(api, account, address)

    assert (answer.status, answer.error["type"]) == (422, "invalid_address")
    assert (answer.error["address"], answer.error["field"]) == (address, "address")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "address"),
        ({"address": None}, "address"),
        ({"address": ["ann@people.test"]}, "address"),
        ({"address": "ab"}, "address"),
        ({"address": "a" * 321}, "address"),
        ({"address": "ann@people.test", "detail": "x"}, "detail"),
    ],
)
async def test_a_bad_field_is_named(api: Api, account: TestAccount, fields: dict[str, object], field: str) -> None:
    assert refuses(await api.post("/v1/suppressions", account.token, fields), field)


async def test_adding_is_an_event_of_the_account(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await add(api, account, "ann@people.test", reason="unsubscribe")
    await add(api, account, "ann@people.test", reason="unsubscribe")
    await add(api, account, "ann@people.test", reason="manual")

    told = {"address": "ann@people.test", "source": "api", "actor": await key_of(pool, account)}
    assert await logged(pool, account.id) == [
        ("suppression.added", told | {"reason": "unsubscribe"}),
        ("suppression.added", told | {"reason": "manual"}),
    ]


async def test_parallel_requests_add_once(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    for turn in range(20):
        answers = await asyncio.gather(*(add(api, account, f"ann{turn}@people.test") for _ in range(4)))
        assert sorted(answer.status for answer in answers) == [200, 200, 200, 201]
    assert len(await logged(pool, account.id)) == 20


# lifting ---------------------------------------------------------------------------------------


async def test_a_lifted_address_gets_mail_again(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await seen(pool, account, "ann@people.test", "bounce")
    answer = await lift(api, account, "ann@people.test")

    assert (answer.status, answer.body) == (204, b"")
    assert await listed(api, account) == []
    assert (await api.post("/v1/emails", account.token, account.email())).status == 202
    assert (await logged(pool, account.id))[0] == (
        "suppression.removed",
        {"address": "ann@people.test", "reason": "bounce", "source": "api", "actor": await key_of(pool, account)},
    )


async def test_a_complaint_is_never_lifted(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await seen(pool, account, "ann@people.test", "complaint")
    answer = await lift(api, account, "ann@people.test")

    assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", "complaint")
    assert await listed(api, account) == ["ann@people.test"]


@pytest.mark.parametrize(
    ("stored", "form"),
    [
        ("ann@people.test", "ANN@People.TEST"),
        ("ann+tag@people.test", "Ann+Tag@people.test"),
        ("a@bücher.test", "A@xn--bcher-kva.test"),
        ("a@xn--bcher-kva.test", "a@BÜCHER.test"),
        ("jörg@people.test", "JO\u0308RG@people.test"),
        ("o'neil%x@people.test", "O'Neil%x@people.test"),
        ("a?b#c@people.test", "a?b#c@people.test"),
    ],
)
async def test_an_address_is_found_in_any_form(api: Api, account: TestAccount, stored: str, form: str) -> None:
    assert (await add(api, account, stored)).status == 201
    assert (await add(api, account, form)).status == 200
    found = await api.request("GET", f"/v1/suppressions/{quote(form, safe='')}", token=account.token)
    assert (found.status, found.json) == (200, (await api.get("/v1/suppressions", account.token)).json["data"][0])
    assert (await lift(api, account, form)).status == 204
    assert await listed(api, account) == []


@pytest.mark.parametrize(
    "address", ["a/b@people.test", "/@people.test", "a%2fb@people.test", "a%252fb@people.test", "a+b/c?d#e@people.test"]
)
async def test_an_address_is_named_encoded_once_whatever_it_holds(api: Api, account: TestAccount, address: str) -> None:
    await add(api, account, address)
    await add(api, account, "ann@people.test")
    path = f"/v1/suppressions/{quote(address, safe='')}"

    assert (await api.request("GET", path, token=account.token)).json["address"] == address
    assert (await api.request("DELETE", path, token=account.token)).status == 204
    assert await listed(api, account) == ["ann@people.test"]


async def test_an_address_that_is_encoded_twice_is_another(api: Api, account: TestAccount) -> None:
    await add(api, account, "a/b@people.test")

    assert (await delete(api, account, quote(quote("a/b@people.test", safe=""), safe=""))).status == 404
    assert await listed(api, account) == ["a/b@people.test"]


async def test_a_percent_sign_of_the_address_itself_goes_first(api: Api, account: TestAccount) -> None:
    await add(api, account, "a%2fb@people.test")
    await add(api, account, "a/b@people.test")

    assert (await lift(api, account, "a%2fb@people.test")).status == 204
    assert await listed(api, account) == ["a/b@people.test"]


async def test_an_address_is_lifted_once(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await add(api, account, "ann@people.test")
    answers = await asyncio.gather(*(lift(api, account, "ann@people.test") for _ in range(4)))

    assert sorted(answer.status for answer in answers) == [204, 404, 404, 404]
    assert [kind for kind, _ in await logged(pool, account.id)] == ["suppression.added", "suppression.removed"]


# the list --------------------------------------------------------------------------------------


async def test_a_row_tells_what_caused_it(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    message = await seen(pool, account, "ann@people.test", "bounce", detail="550 5.1.1 no such user")
    (row,) = (await api.get("/v1/suppressions", account.token)).json["data"]

    assert clock.parse_iso(row.pop("createdAt")) <= clock.now()
    assert row == {
        "address": "ann@people.test",
        "reason": "bounce",
        "detail": "550 5.1.1 no such user",
        "messageId": message,
    }


async def test_suppressions_come_newest_first_50_a_page(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    for number in range(51):
        await seen(pool, account, f"a{number:02}@people.test")
    page = (await api.get("/v1/suppressions", account.token)).json

    assert [row["address"] for row in page["data"]] == [f"a{number:02}@people.test" for number in range(50, 0, -1)]
    assert page["hasMore"] is True
    last = (await api.get("/v1/suppressions", account.token, params={"before": page["nextCursor"]})).json
    assert [row["address"] for row in last["data"]] == ["a00@people.test"]
    assert (last["hasMore"], last["nextCursor"]) == (False, None)


@pytest.mark.parametrize("limit", [1, 3, 200])
async def test_rows_of_one_moment_are_paged_without_gap_or_repeat(api: Api, account: TestAccount, limit: int) -> None:
    """An import writes all its rows at one time; a cursor stays good when the row it was made of is lifted."""
    rows = [{"address": f"a{number}@people.test"} for number in range(7)] + [{"address": "Grüße@people.test"}]
    await api.post("/v1/suppressions/import", account.token, {"suppressions": rows})
    found: list[str] = []
    params = {"limit": str(limit)}
    while True:
        page = (await api.get("/v1/suppressions", account.token, params=params)).json
        found += [row["address"] for row in page["data"]]
        assert page["hasMore"] == (page["nextCursor"] is not None)
        if not page["hasMore"]:
            break
        await lift(api, account, found[-1])
        params["before"] = page["nextCursor"]

    assert len(found) == 8
    assert set(found) == {f"a{number}@people.test" for number in range(7)} | {"grüße@people.test"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"reason": "bounce"}, ["bob@people.test"]),
        ({"reason": "manual"}, ["ann_x@people.test", "dan@xn--bcher-kva.test"]),
        ({"search": "BOB"}, ["bob@people.test"]),
        ({"search": "people.test"}, ["ann_x@people.test", "bob@people.test"]),
        ({"search": "_"}, ["ann_x@people.test"]),
        ({"search": "%"}, []),
        ({"search": "\\"}, []),
        ({"search": "dan@bücher.test"}, ["dan@xn--bcher-kva.test"]),
        ({"search": "BÜCHER.test"}, ["dan@xn--bcher-kva.test"]),
        ({"search": "@bücher"}, ["dan@xn--bcher-kva.test"]),
        ({"search": "büch er"}, []),
        ({"search": "people", "reason": "manual"}, ["ann_x@people.test"]),
        ({"search": "people", "reason": "complaint"}, []),
    ],
)
async def test_filters_narrow_the_list(
    api: Api, pool: asyncpg.Pool, account: TestAccount, params: dict[str, str], expected: list[str]
) -> None:
    await add(api, account, "ann_x@people.test")
    await seen(pool, account, "bob@people.test", "bounce")
    await add(api, account, "dan@bücher.test")

    assert sorted(await listed(api, account, params)) == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("before=sup_AAAA", "before"),
        ("before=sup_OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk6YQ", "before"),  # a time beyond time
        ("before=sup_MTphAGI", "before"),  # a NUL inside
        ("reason=spam", "reason"), ("search=", "search"), ("search=a%00b", "search"), ("address=x", "address"),
        ("search=" + "a" * 321, "search"),
    ],
)  # fmt: skip
async def test_a_bad_list_parameter_is_named(api: Api, account: TestAccount, query: str, field: str) -> None:
    assert refuses(await api.get(f"/v1/suppressions?{query}", account.token), field)


async def test_a_search_through_very_many_is_bounded_in_time(pool: asyncpg.Pool, account: TestAccount) -> None:
    wanted = rules.filters(before=None, reason=None, search="x")

    with pytest.raises(TimeoutError):
        await store.page(pool, account.id, wanted, limit=1, timeout_s=0)


# import and export -----------------------------------------------------------------------------


async def test_an_import_takes_good_rows_and_names_the_bad_ones(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await seen(pool, account, "old@people.test", "bounce")
    await add(api, account, "left@people.test", reason="unsubscribe")
    rows: list[dict[str, object]] = [
        {"address": "Ann@people.test"},
        {"address": "nobody"},
        {"address": "bob@people.test", "reason": "unsubscribe"},
        {"address": "old@people.test"},
        {"address": "left@people.test"},
        {"address": 5},
        {},
        {"address": "dan@people.test", "reason": "complaint"},
        {"address": "eve@people.test", "note": "x"},
        {"address": "ANN@people.test"},
    ]
    answer = await api.post("/v1/suppressions/import", account.token, {"suppressions": rows})

    assert answer.status == 200
    found = answer.json
    assert (found["added"], found["changed"], found["unchanged"]) == (2, 1, 2)
    assert [(one["index"], one["error"]["type"], one["error"]["field"]) for one in found["refused"]] == [
        (1, "invalid_address", "address"),
        (5, "invalid_request", "address"),
        (6, "invalid_request", "address"),
        (7, "invalid_request", "reason"),
        (8, "invalid_request", "note"),
    ]
    stored = (await api.get("/v1/suppressions", account.token)).json["data"]
    assert {row["address"]: row["reason"] for row in stored} == {
        "ann@people.test": "manual",
        "bob@people.test": "unsubscribe",
        "old@people.test": "bounce",
        "left@people.test": "manual",
    }
    assert sorted((kind, detail["address"]) for kind, detail in (await logged(pool, account.id))[1:]) == [
        ("suppression.added", "ann@people.test"),
        ("suppression.added", "bob@people.test"),
        ("suppression.added", "left@people.test"),
    ]


async def test_rows_without_a_reason_take_the_imports(api: Api, account: TestAccount) -> None:
    rows = [{"address": "ann@people.test"}, {"address": "bob@people.test", "reason": "manual"}]
    body = {"suppressions": rows, "reason": "unsubscribe"}
    await api.post("/v1/suppressions/import", account.token, body)
    stored = (await api.get("/v1/suppressions", account.token)).json["data"]

    assert {row["address"]: row["reason"] for row in stored} == {
        "ann@people.test": "unsubscribe",
        "bob@people.test": "manual",
    }


async def test_a_thousand_rows_are_one_import_and_no_more(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    rows = [{"address": f"a{number}@people.test"} for number in range(1001)]
    too_many = await api.post("/v1/suppressions/import", account.token, {"suppressions": rows})
    answer = await api.post("/v1/suppressions/import", account.token, {"suppressions": rows[:1000]})

    assert refuses(too_many, "suppressions")
    assert answer.json == {"added": 1000, "changed": 0, "unchanged": 0, "refused": []}
    assert await pool.fetchval("SELECT count(*) FROM events WHERE account_id = $1", account.id) == 1000
    again = await api.post("/v1/suppressions/import", account.token, {"suppressions": rows[:1000]})
    assert again.json == {"added": 0, "changed": 0, "unchanged": 1000, "refused": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "suppressions"),
        ({"suppressions": []}, "suppressions"),
        ({"suppressions": ["ann@people.test"]}, "suppressions[0]"),
        ({"suppressions": [{"address": "ann@people.test"}], "reason": "bounce"}, "reason"),
        ({"suppressions": [{"address": "ann@people.test"}], "mode": "merge"}, "mode"),
    ],
)
async def test_a_malformed_import_is_refused_whole(
    api: Api, account: TestAccount, body: dict[str, object], field: str
) -> None:
    assert refuses(await api.post("/v1/suppressions/import", account.token, body), field)
    assert await listed(api, account) == []


async def test_an_export_holds_every_row_once(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    rows = [{"address": f"a{number}@people.test"} for number in range(2101)]
    for first in (0, 1000, 2000):
        await api.post("/v1/suppressions/import", account.token, {"suppressions": rows[first : first + 1000]})
    await seen(pool, account, "bob@people.test", "bounce", detail='550 "quoted"\r\nline')
    answer = await api.get("/v1/suppressions/export", account.token)

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == 'attachment; filename="suppressions.ndjson"'
    lines = [orjson.loads(line) for line in answer.body.splitlines()]
    assert len(lines) == 2102
    assert {line["address"] for line in lines} == {row["address"] for row in rows} | {"bob@people.test"}
    assert lines[0] == (await api.get("/v1/suppressions?limit=1", account.token)).json["data"][0]
    bounced = await api.get("/v1/suppressions/export?reason=bounce", account.token)
    assert [orjson.loads(line) for line in bounced.body.splitlines()] == [lines[0]]


async def test_an_export_of_nothing_is_empty(api: Api, account: TestAccount) -> None:
    answer = await api.get("/v1/suppressions/export", account.token)

    assert (answer.status, answer.body) == (200, b"")
    assert refuses(await api.get("/v1/suppressions/export?limit=5", account.token), "limit")


# who may ---------------------------------------------------------------------------------------


async def test_suppressions_of_others_do_not_exist(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    stranger = await make_account(pool)
    await add(api, account, "ann@people.test")

    assert await listed(api, stranger) == []
    assert (await lift(api, stranger, "ann@people.test")).status == 404
    assert (await api.get("/v1/suppressions/export", stranger.token)).body == b""
    assert (await add(api, stranger, "ann@people.test")).status == 201
    assert (await lift(api, account, "ann@people.test")).status == 204
    assert await listed(api, stranger) == ["ann@people.test"]


async def test_opt_outs_of_a_file_are_suppressed_and_exported_as_csv(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    content = "email,reason,list\nAnn@x.test,,a\nbob@x.test,bounce,b\nnobody,,c\n"
    body = {"format": "csv", "content": content}
    answer = await api.post("/v1/suppressions/import/file", account.token, body)
    assert answer.status == 200, answer
    assert (answer.json["added"], [row["index"] for row in answer.json["refused"]]) == (2, [2])

    exported = await api.get("/v1/suppressions/export?format=csv&reason=unsubscribe", account.token)
    assert exported.headers["content-type"] == "text/csv; charset=utf-8"
    lines = exported.body.decode().splitlines()
    assert sorted(line.split(",")[0] for line in lines) == ["address", "ann@x.test", "bob@x.test"]
    again = await api.post("/v1/suppressions/import/file", account.token, body | {"content": exported.body.decode()})
    assert again.json["unchanged"] == 2
