"""Segments: filters checked, compiled and counted live, over the API and against stored contacts."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from engine.audience.broadcasts import audience as broadcast_audience
from engine.audience.broadcasts.types import BroadcastAudience
from engine.audience.contacts import segment_rules, segments, store
from engine.base import ids
from engine.base.errors import Refusal
from engine.base.plans import MAX_SEGMENTS
from engine.store.concurrency_limiter import SEARCHES
from tests.audience.test_contacts import create, make_list
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api

Filter = dict[str, Any]


async def matching(pool: asyncpg.Pool, account: TestAccount, filter_: Filter) -> list[str]:
    audience = store.audience_of_segment(account.id, segment_rules.parse(filter_), first=2)
    rows = await pool.fetch(f"SELECT a.address FROM ({audience.sql}) a WHERE $1 ORDER BY 1", True, *audience.arguments)
    return [row["address"].partition("@")[0] for row in rows]


def field(name: str, op: str = "eq", *value: object) -> Filter:
    return {"field": name, "op": op} | ({"value": value[0]} if value else {})


def of(name: str, op: str = "eq", *value: object) -> Filter:
    return {"property": name, "op": op} | ({"value": value[0]} if value else {})


async def test_filters_select_contacts(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    news = await make_list(api, account, "News")
    empty = await make_list(api, account, "Empty")
    ann = await create(
        api, account, "ann@x.test", name="Ann É. 5%", consent="signed_up", lists=[news],
        fields={"plan": "pro", "seats": 12, "trial": True, "code": "7"},
    )  # fmt: skip
    await create(api, account, "bob@münchen.example", fields={"plan": "Team", "seats": 2.5, "code": 7})
    await create(api, account, "carl@x.test", name="Carl", fields={"trial": False})
    await create(api, await make_account(pool), "stranger@x.test", fields={"plan": "pro"})

    for filter_, expected in (
        (field("plan", "eq", "pro"), "ann"), (field("plan", "ne", "pro"), "bob carl"), (field("code", "eq", 7), "bob"),
        (field("code", "eq", "7"), "ann"), (field("code", "in", [7, "7", True]), "ann bob"),
        (field("seats", "gt", 2.5), "ann"), (field("seats", "ge", 2.5), "ann bob"),
        (field("seats", "lt", 100), "ann bob"),
        (field("seats", "eq", 12.0), "ann"), (field("plan", "gt", "a"), "ann"), (field("seats", "gt", "1"), ""),
        (field("trial", "eq", True), "ann"), (field("trial", "exists"), "ann carl"), (field("trial", "missing"), "bob"),
        (field("plan", "contains", "EA"), "bob"), (field("plan", "starts_with", "PR"), "ann"),
        (field("seats", "contains", "1"), ""), (field("plan", "contains", "%"), ""),
        (of("consent", "eq", "signed_up"), "ann"), (of("consent", "in", ["customer", "signed_up"]), "ann bob carl"),
        (of("confirmed", "eq", True), "ann bob carl"), (of("email", "eq", "ANN@X.test"), "ann"),
        (of("email", "starts_with", "A"), "ann"), (of("domain", "eq", "MÜNCHEN.example"), "bob"),
        (of("domain", "in", ["x.test"]), "ann carl"), (of("name", "missing"), "bob"),
        (of("name", "contains", "é"), "ann"),
        (of("name", "contains", "5%"), "ann"), (of("name", "starts_with", "c"), "carl"),
        (of("name", "eq", "Carl"), "carl"),
        (of("name", "contains", "bob"), ""), (of("createdAt", "ge", ann["createdAt"]), "ann bob carl"),
        (of("createdAt", "lt", "2020-01-01T00:00:00+01:00"), ""), (of("list", "eq", news), "ann"),
        (of("list", "ne", news), "bob carl"), (of("list", "in", [news, empty]), "ann"),
        ({"all": [field("plan", "exists"), {"not": field("plan", "eq", "pro")}]}, "bob"),
        ({"any": [field("plan", "eq", "pro"), of("name", "eq", "Carl")]}, "ann carl"),
        ({"not": {"any": [field("seats", "gt", 3), field("trial", "eq", False)]}}, "bob"),
    ):  # fmt: skip
        assert " ".join(await matching(pool, account, filter_)) == expected, filter_
    audience = store.audience_of_list(account.id, ids.parse_id(ids.Kind.LIST, news))
    rows = await pool.fetch(audience.sql, *audience.arguments)
    assert [ids.format_id(ids.Kind.CONTACT, row["contact_id"]) for row in rows] == [ann["id"]]


@pytest.mark.parametrize(
    ("filter_", "where"),
    [
        ([], "filter"), ({}, "filter"), ({"all": []}, "filter.all"), ({"all": [{}]}, "filter.all[0]"),
        ({"all": [of("name", "missing")], "any": []}, "filter"), (field("a b", "exists"), "fields"),
        (field("plan", "like", "x"), "filter.op"), (field("plan") | {"op": ["eq"]}, "filter.op"),
        (field("plan", "eq"), "filter.value"),
        (field("plan", "exists", 1), "filter.value"), (field("plan", "eq", None), "filter.value"),
        (field("plan", "gt", True), "filter.value"), (field("plan", "contains", 5), "filter.value"),
        (field("plan", "in", []), "filter.value"), (field("plan", "eq", "a\0"), "filter.value"),
        (of("age", "eq", 1), "filter.property"), (of("consent", "eq", "maybe"), "filter.value"),
        (of("createdAt", "gt", "yesterday"), "filter.value"), (of("list", "eq", "con_1"), "filter.value"),
        (of("confirmed", "eq", "yes"), "filter.value"), (of("email", "eq", "x"), "filter.value"),
        ({"field": "a", "property": "name"}, "filter"), (field("a", "eq", 1) | {"colour": 1}, "filter.colour"),
        ({"all": [field("a", "eq", 1)] * 51}, "filter"),
        ({"not": {"not": {"not": {"not": {"not": field("a", "exists")}}}}}, "filter.not.not.not.not.not"),
    ],
)  # fmt: skip
def test_a_wrong_filter_names_its_part(filter_: object, where: str) -> None:
    with pytest.raises(Refusal) as refused:
        segment_rules.parse(filter_)

    assert (refused.value.status, refused.value.fields["field"]) == (400, where)


async def test_a_filter_is_counted_before_it_is_stored(api: Api, account: TestAccount) -> None:
    await create(api, account, "ann@x.test", fields={"plan": "pro"})
    await create(api, account, "bob@x.test")

    async def counted(filter_: Filter) -> tuple[int, object]:
        answer = await api.post("/v1/segments/count", account.token, {"filter": filter_})
        return answer.status, answer.json

    assert await counted(field("plan", "eq", "pro")) == (200, {"contacts": 1})
    assert (await counted({"all": []}))[0] == 400
    assert (await counted(of("list", "eq", ids.format_id(ids.Kind.LIST, ids.uuid7()))))[0] == 404
    assert (await api.get("/v1/segments", account.token)).json["data"] == []


async def test_a_segment_is_created_counted_changed_and_deleted(api: Api, account: TestAccount) -> None:
    await create(api, account, "ann@x.test", fields={"plan": "pro"})
    filter_ = field("plan", "eq", "pro")
    answer = await api.post("/v1/segments", account.token, {"name": "Pro", "filter": filter_})
    made = answer.json
    assert answer.status == 201
    assert made == {
        "id": made["id"], "name": "Pro", "description": None, "filter": filter_, "deletedLists": [],
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"], "contacts": 1,
    }  # fmt: skip
    assert made["id"].startswith("seg_")
    segment = made["id"]
    await create(api, account, "bob@x.test", fields={"plan": "pro"})
    assert (await api.get(f"/v1/segments/{segment}", account.token)).json == made | {"contacts": 2}
    listed = {name: value for name, value in made.items() if name != "contacts"}
    assert (await api.get("/v1/segments", account.token)).json == {"data": [listed], "nextCursor": None}

    changed = (
        await api.patch(f"/v1/segments/{segment}", account.token, {"filter": {"not": filter_}, "description": "Others"})
    ).json
    assert (changed["contacts"], changed["description"], changed["name"]) == (0, "Others", "Pro")
    again = await api.post("/v1/segments", account.token, {"name": "PRO", "filter": filter_})
    assert (again.status, again.error["id"]) == (409, made["id"])
    assert (await api.patch(f"/v1/segments/{segment}", account.token, {"filter": {"all": []}})).status == 400
    assert (await api.delete(f"/v1/segments/{segment}", account.token)).status == 204
    assert (await api.get(f"/v1/segments/{segment}", account.token)).status == 404


async def test_a_segment_names_lists_of_the_account_alone(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    foreign = await make_list(api, await make_account(pool), "News")
    body = {"name": "Members", "filter": of("list", "eq", foreign)}

    assert (await api.post("/v1/segments", account.token, body)).status == 404


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"property": "list", "value": "DELETED"}, 0),
        ({"property": "list", "op": "ne", "value": "DELETED"}, 0),
        ({"not": {"property": "list", "op": "in", "value": ["DELETED"]}}, 0),
        ({"not": {"property": "list", "op": "in", "value": ["DELETED", "KEPT"]}}, 0),
        ({"property": "list", "op": "in", "value": ["DELETED", "KEPT"]}, 1),
        ({"any": [{"not": {"property": "list", "value": "DELETED"}}, {"property": "list", "value": "KEPT"}]}, 1),
    ],
)
async def test_a_deleted_list_selects_nobody_and_the_segment_names_it(
    api: Api, account: TestAccount, condition: dict[str, Any], expected: int
) -> None:
    deleted, kept = await make_list(api, account, "No news"), await make_list(api, account, "Readers")
    for name, lists in (("ann", [deleted]), ("bob", [kept]), ("eve", [])):
        body = {"email": f"{name}@people.test", "consent": "customer", "lists": lists}
        assert (await api.post("/v1/contacts", account.token, body)).status == 201
    text = json.dumps(condition).replace("DELETED", deleted).replace("KEPT", kept)
    made = await api.post("/v1/segments", account.token, {"name": "Some", "filter": json.loads(text)})
    assert made.json["deletedLists"] == []
    segment = f"/v1/segments/{made.json['id']}"

    assert (await api.delete(f"/v1/lists/{deleted}", account.token)).status == 204
    found = (await api.get(segment, account.token)).json
    assert (found["contacts"], found["deletedLists"]) == (expected, [deleted])
    [listed] = (await api.get("/v1/segments", account.token)).json["data"]
    assert listed["deletedLists"] == [deleted]
    assert (await api.patch(segment, account.token, {"name": "Others"})).status == 200
    assert (await api.patch(segment, account.token, {"filter": json.loads(text)})).status == 404
    repaired = await api.patch(segment, account.token, {"filter": {"property": "list", "value": kept}})
    assert (repaired.json["contacts"], repaired.json["deletedLists"]) == (1, [])


@pytest.mark.exhaustive
async def test_counting_gives_up_where_other_searches_leave_no_place(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    body = {"name": "Planned", "filter": field("plan", "exists")}
    segment = ids.parse_id(ids.Kind.SEGMENT, (await api.post("/v1/segments", account.token, body)).json["id"])
    audience = BroadcastAudience(segment_id=segment)
    assert await broadcast_audience.count_now(pool, account.id, audience) == 0

    async with SEARCHES.of(account.id), SEARCHES.of(account.id):  # all places of the account
        assert await segments.count(pool, account.id, await segments.read(pool, account.id, segment)) is None
        assert await broadcast_audience.count_now(pool, account.id, audience) is None


async def test_an_account_has_a_limited_number_of_segments(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await make_list(api, account, "Starts the counts")
    await pool.execute("UPDATE contact_totals SET segments = $2 WHERE account_id = $1", account.id, MAX_SEGMENTS - 1)

    async def one(number: int) -> int:
        body = {"name": f"Segment {number}", "filter": field("plan", "exists")}
        return (await api.post("/v1/segments", account.token, body)).status

    assert sorted(await asyncio.gather(*map(one, range(3)))) == [201, 403, 403]
