"""Imports of contacts: merging within a call and across calls, consent, invalid rows, and the plan's limit."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.audience.contacts import imports
from engine.audience.contacts.imports import PreparedImport, prepare
from engine.audience.contacts.types import Consent
from engine.base import ids
from tests.audience.test_contacts import create, make_list
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api

Row = dict[str, Any]


async def run_import(api: Api, account: TestAccount, *rows: Row, consent: str = "customer", **more: str) -> Row:
    body = {"contacts": list(rows), "consent": consent} | more
    answer = await api.post("/v1/contacts/import", account.token, body)
    assert answer.status == 200, answer
    return dict(answer.json)


def counts(result: Row) -> tuple[int, ...]:
    return tuple(result[name] for name in ("created", "updated", "unchanged", "suppressed", "overLimit"))


async def contacts(api: Api, account: TestAccount) -> dict[str, Row]:
    listed = (await api.get("/v1/contacts?limit=100", account.token)).json["data"]
    return {row["email"]: row for row in listed}


async def test_rows_of_one_address_are_merged_and_count_once(api: Api, account: TestAccount) -> None:
    result = await run_import(
        api, account,
        {"email": "Ann@x.test", "name": "Ann", "fields": {"a": 1, "b": "x"}},
        {"email": "bob@x.test"},
        {"email": "ANN@X.test", "name": None, "fields": {"b": "y", "c": True}},
        {"email": "ann@x.test", "name": "Ann Lee", "fields": {"a": None}},
    )  # fmt: skip

    assert result == {"created": 2, "updated": 0, "unchanged": 0, "suppressed": 0, "overLimit": 0, "invalid": []}
    found = await contacts(api, account)
    assert list(found) == ["bob@x.test", "Ann@x.test"]
    assert (found["Ann@x.test"]["name"], found["Ann@x.test"]["fields"]) == ("Ann Lee", {"b": "y", "c": True})


async def test_a_later_import_changes_what_it_gives_and_keeps_the_rest(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    made = await create(api, account, "ann@x.test", name="Ann", fields={"a": 1, "b": "x"})
    await create(api, account, "bob@x.test", name="Bob")
    await create(api, account, "carl@x.test")
    news = await make_list(api, account, "News")
    rows = ({"email": "ann@x.test", "fields": {"a": 2}}, {"email": "bob@x.test"}, {"email": "dora@x.test"})

    assert counts(await run_import(api, account, *rows)) == (1, 1, 1, 0, 0)
    assert counts(await run_import(api, account, *rows)) == (0, 0, 3, 0, 0)
    assert counts(await run_import(api, account, *rows, list=news)) == (0, 3, 0, 0, 0)
    assert counts(await run_import(api, account, *rows, list=news)) == (0, 0, 3, 0, 0)
    ann = (await contacts(api, account))["ann@x.test"]
    assert (ann["id"], ann["name"], ann["fields"], ann["lists"]) == (made["id"], "Ann", {"a": 2, "b": "x"}, [news])
    assert (await api.get(f"/v1/lists/{news}", account.token)).json["contacts"] == 3
    imported = [detail for kind, detail in await logged(pool, account.id, "contact.") if kind == "contact.imported"]
    assert [(detail["created"], detail["updated"], detail["list"]) for detail in imported] == [
        (1, 1, None), (0, 3, news),
    ]  # fmt: skip


async def test_a_new_name_is_found_by_searches_and_the_old_one_is_not(api: Api, account: TestAccount) -> None:
    await create(api, account, "ann@x.test", name="Former")
    await run_import(api, account, {"email": "ann@x.test", "name": "Present"}, {"email": "bob@x.test"})

    for search, expected in (("former", 0), ("present", 1)):
        assert len((await api.get(f"/v1/contacts?search={search}", account.token)).json["data"]) == expected


async def test_consent_grows_stronger_and_never_weaker(api: Api, account: TestAccount) -> None:
    row = {"email": "ann@x.test"}
    seen = []
    for consent in ("imported_with_consent", "customer", "imported_with_consent", "signed_up", "customer"):
        await run_import(api, account, row, consent=consent)
        ann = (await contacts(api, account))["ann@x.test"]
        seen.append((ann["consent"], ann["consentAt"]))

    kinds = [kind for kind, _ in seen]
    assert kinds == ["imported_with_consent", "customer", "customer", "signed_up", "signed_up"]
    assert seen[1] == seen[2]
    assert seen[3] == seen[4]
    assert seen[0][1] < seen[1][1] < seen[3][1]


async def test_invalid_rows_are_reported_by_index_and_leave_the_others_alone(api: Api, account: TestAccount) -> None:
    await create(api, account, "full@x.test", fields={f"f{number}": 1 for number in range(50)})
    result = await run_import(
        api, account,
        {"email": "nobody"}, {"email": "ann@x.test"}, {"name": "No address"},
        {"email": "b@x.test", "fields": {"a b": 1}}, {"email": "c@x.test", "fields": {"a": [1]}},
        {"email": "d@x.test", "nmae": "D"}, {"email": "e@x.test", "name": 5},
        {"email": "full@x.test", "fields": {"more": 1}}, {"email": "f@x.test", "fields": {"email": "x"}},
        {"email": "g@x.test", "fields": {"a": 1e300}}, {"email": "h@x.test", "fields": {"__proto__": "x"}},
    )  # fmt: skip

    assert counts(result) == (2, 0, 0, 0, 0)
    assert [(row["index"], row["error"]["type"], row["error"]["field"]) for row in result["invalid"]] == [
        (0, "invalid_address", "email"), (2, "invalid_request", "email"), (3, "invalid_request", "fields"),
        (4, "invalid_request", "fields.a"), (5, "invalid_request", "nmae"), (6, "invalid_request", "name"),
        (7, "invalid_request", "fields"), (8, "invalid_request", "fields.email"), (9, "invalid_request", "fields.a"),
    ]  # fmt: skip
    assert "`name`" in result["invalid"][4]["error"]["message"]
    assert set(await contacts(api, account)) == {"full@x.test", "ann@x.test", "h@x.test"}


async def test_suppressed_addresses_are_counted_and_stay_suppressed(api: Api, account: TestAccount) -> None:
    await api.post("/v1/suppressions", account.token, {"address": "ann@x.test", "reason": "unsubscribe"})

    result = await run_import(api, account, {"email": "Ann@x.test"}, {"email": "bob@x.test"}, consent="signed_up")
    assert counts(result) == (2, 0, 0, 1, 0)
    assert (await contacts(api, account))["Ann@x.test"]["suppressed"] is True


async def test_an_unknown_list_refuses_the_import(api: Api, account: TestAccount) -> None:
    for list_id, status in ((ids.format_id(ids.Kind.LIST, ids.uuid7()), 404), ("con_1", 400)):
        body = {"contacts": [{"email": "a@x.test"}], "consent": "customer", "list": list_id}
        assert (await api.post("/v1/contacts/import", account.token, body)).status == status
    assert await contacts(api, account) == {}


async def test_an_import_has_1_to_1000_rows(api: Api, account: TestAccount) -> None:
    for rows in ([], [{"email": f"a{number}@x.test"} for number in range(1_001)], ["a@x.test"]):
        answer = await api.post("/v1/contacts/import", account.token, {"contacts": rows, "consent": "customer"})
        assert answer.status == 400


async def test_the_limit_is_exact_under_20_parallel_imports(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter")
    for start in range(0, 4_500, 900):
        await run_import(api, account, *({"email": f"n{start + row}@x.test"} for row in range(900)))
    await run_import(api, account, {"email": "known@x.test"})

    async def one(number: int) -> Row:
        rows = [{"email": f"a{number}-{row}@x.test"} for row in range(40)]
        known = {"email": "known@x.test", "fields": {f"from{number}": number}}
        return await run_import(api, account, *rows, known, {"email": "SHARED@x.test"})

    results = await asyncio.gather(*map(one, range(20)))

    # 499 places; of 801 new addresses, "shared" comes last in each import: created once, or never.
    assert sum(result["created"] for result in results) == 499
    assert sum(result["overLimit"] for result in results) >= 301
    assert all(sum(counts(result)[:3]) + result["overLimit"] == 42 for result in results)
    kept = await pool.fetchrow(
        "SELECT contacts, (SELECT count(*) FROM contacts WHERE account_id = $1) AS real FROM contact_totals"
        " WHERE account_id = $1", account.id,
    )  # fmt: skip
    assert kept is not None
    assert (kept["contacts"], kept["real"]) == (5_000, 5_000)
    fields = await pool.fetchval(
        "SELECT fields FROM contacts WHERE account_id = $1 AND address = 'known@x.test'", account.id
    )
    assert fields.count("from") == 20


async def test_imports_of_one_account_do_not_queue_before_those_of_another(
    pool: asyncpg.Pool, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, read = await make_account(pool), []

    def recorded(owner: UUID, rows: Sequence[Row]) -> PreparedImport:
        read.append(owner)
        return prepare(owner, rows)

    monkeypatch.setattr(imports, "prepare", recorded)
    async with imports.IMPORTS.of(account.id), imports.IMPORTS.of(account.id):  # all places of the account
        row = {"email": "ann@x.test"}
        waits = asyncio.create_task(
            imports.import_contacts(pool, account.id, [row], consent=Consent.CUSTOMER, actor="test")
        )
        await imports.import_contacts(pool, other.id, [row], consent=Consent.CUSTOMER, actor="test")
        assert read == [other.id]
    assert (await waits).created == 1
