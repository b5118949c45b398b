"""`GET /v1/messages/export`: the list as a file, by the list's filters."""

import csv
import io
from typing import Any

import orjson
import pytest

from engine.sending.messages import exports
from tests.harness.accounts import TestAccount
from tests.harness.api import Api, Params
from tests.harness.emails import sent_id
from tests.sending.test_messages import listed


async def lines(api: Api, account: TestAccount, params: Params | None = None) -> list[dict[str, Any]]:
    answer = await api.get("/v1/messages/export", account.token, params=params)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == 'attachment; filename="messages.ndjson"'
    return [orjson.loads(line) for line in answer.body.splitlines()]


async def test_an_export_holds_the_rows_of_the_list_newest_first(
    api: Api, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "PAGE_ROWS", 2)
    for number in range(5):
        await sent_id(api, account, subject=f"No. {number}", to=f"ann@{'one' if number % 2 else 'two'}.test")

    rows = (await api.get("/v1/messages", account.token)).json["data"]
    assert await lines(api, account) == rows
    some = {"recipientDomain": "one.test"}
    assert [row["id"] for row in await lines(api, account, some)] == await listed(api, account, some)
    assert await lines(api, account, {"recipientDomain": "none.test"}) == []


async def test_cells_of_a_csv_are_defused_and_its_columns_are_named(api: Api, account: TestAccount) -> None:
    message = await sent_id(
        api, account, subject='=HYPERLINK("x")', to=["+ann@one.test", "bob@one.test"], tags=["a"], metadata={"b": "c"}
    )
    answer = await api.get("/v1/messages/export?format=csv", account.token)

    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    (row,) = csv.DictReader(io.StringIO(answer.body.decode()))
    assert tuple(row) == exports.CSV_COLUMNS
    assert (row["id"], row["status"], row["subject"]) == (message, "queued", '\'=HYPERLINK("x")')
    assert row["to"] == "'+ann@one.test, bob@one.test"
    assert (row["tags"], row["metadata"], row["template"], row["cc"]) == ('["a"]', '{"b": "c"}', "", "")


async def test_an_export_needs_valid_filters(api: Api, account: TestAccount) -> None:
    for query, field in (("format=xml", "format"), ("limit=5", "limit"), ("status=gone", "status")):
        answer = await api.get(f"/v1/messages/export?{query}", account.token)
        assert (answer.status, answer.error["field"]) == (400, field)
