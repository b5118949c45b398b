"""Files of contacts: CSV and newline-delimited JSON in and out, with types kept and formulas defused."""

from typing import Any

import asyncpg
import orjson
import pytest

from engine.audience.contacts.files import FileFormat, read_file
from engine.audience.contacts.import_rules import read_rows
from engine.base import csv_files
from engine.base.errors import Refusal
from tests.audience.test_contacts import create, make_list
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api


async def upload(api: Api, account: TestAccount, form: str, content: str, **more: str) -> Answer:
    body = {"format": form, "content": content, "consent": "customer"} | more
    return await api.post("/v1/contacts/import/file", account.token, body)


async def rows(api: Api, account: TestAccount) -> list[tuple[str, Any, Any]]:
    listed = (await api.get("/v1/contacts?limit=100", account.token)).json["data"]
    return [(row["email"], row["name"], row["fields"]) for row in reversed(listed)]


@pytest.mark.parametrize("form", ["csv", "ndjson"])
async def test_what_is_exported_can_be_imported(api: Api, pool: asyncpg.Pool, account: TestAccount, form: str) -> None:
    news = await make_list(api, account, "News")
    fields = {"plan": 'pro, "x"\nline', "seats": -5, "share": 0.5, "trial": False, "sum": "=1+1", "id": "a"}
    await create(api, account, "ann@x.test", name="=HYPERLINK(1)", fields=fields, lists=[news])
    await create(api, account, "bob@x.test", name="Bob 'B'", fields={"seats": 2})
    exported = await api.get(f"/v1/contacts/export?format={form}", account.token)
    assert exported.status == 200
    assert f'filename="contacts.{form}"' in exported.headers["content-disposition"]
    text = exported.body.decode()
    if form == "csv":
        assert exported.headers["content-type"] == "text/csv; charset=utf-8"
        assert "'=HYPERLINK(1)" in text
        assert "'=1+1" in text
        assert ",-5," in text

    # Newest first in the file, so that the contacts are created in the reverse order.
    other = await make_account(pool)
    answer = await upload(api, other, form, text)
    assert (answer.status, answer.json["created"], answer.json["invalid"]) == (200, 2, [])
    assert await rows(api, other) == list(reversed(await rows(api, account)))
    members = await api.get(f"/v1/contacts/export?format={form}&list={news}", account.token)
    assert (b"ann@x.test" in members.body, b"bob@x.test" in members.body) == (True, False)


async def test_a_file_of_thousands_is_imported_and_names_bad_rows_by_their_number(
    api: Api, account: TestAccount
) -> None:
    lines = [f"a{number}@x.test;Name {number};{number}" for number in range(2_100)]
    lines[5] = "nobody;;"
    lines[2_050] = "a1@y.test;" + "x" * 400 + ";"
    news = await make_list(api, account, "News")
    answer = await upload(
        api, account, "csv", "E-Mail;Name;Customer Number\r\n" + "\r\n".join(lines) + "\r\n", list=news
    )

    assert (answer.status, answer.json["created"]) == (200, 2_098)
    assert [row["index"] for row in answer.json["invalid"]] == [5, 2_050]
    assert (await api.get(f"/v1/lists/{news}", account.token)).json["contacts"] == 2_098
    first = (await api.get("/v1/contacts?search=a0@", account.token)).json["data"][0]
    assert first["fields"] == {"Customer_Number": "0"}
    exported = await api.get("/v1/contacts/export", account.token)
    assert len(exported.body.splitlines()) == 2_098
    assert orjson.loads(exported.body.splitlines()[-1]) == first


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("csv", "email,email\na@x.test,b@x.test"), ("csv", "\n"), ("csv", "email,name\n"), ("csv", 'email\n"a@x.test'),
        ("csv", "email\na@x.test,b"), ("csv", "email,seats:number\na@x.test,many"), ("ndjson", "{}\nnot json"),
        ("csv", "email,trial:boolean\na@x.test,1"), ("ndjson", "[1]"), ("ndjson", "\n\n"),
        ("csv", "email\n" + "a@x.test\n" * 10_001), ("csv", ",".join(map(str, range(1_001))) + "\na@x.test\n"),
    ],
)  # fmt: skip
def test_an_unreadable_file_is_refused_whole(form: str, content: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_file(FileFormat(form), content)

    assert (refused.value.status, refused.value.fields["field"]) == (400, "content")


def test_an_address_column_beside_an_email_column_is_a_field() -> None:
    (row,) = read_file(FileFormat.CSV, "Name,E-Mail,Address\nAnn,ann@x.test,Main Street 1\n")
    assert row == {"name": "Ann", "email": "ann@x.test", "fields": {"Address": "Main Street 1"}}
    (row,) = read_file(FileFormat.CSV, "address\nann@x.test\n")
    assert row["email"] == "ann@x.test"


def test_no_more_fields_of_a_row_are_read_than_suffice_to_refuse_it() -> None:
    titles = [f"f{number}" for number in range(900)]
    (row,) = read_file(FileFormat.CSV, ",".join([*titles, "email"]) + "\n" + "1," * 900 + "ann@x.test\n")
    assert (row["email"], len(row["fields"])) == ("ann@x.test", 101)
    _, invalid = read_rows([row])
    assert [one.error["field"] for one in invalid] == ["fields"]


def test_a_wrong_cell_is_named_by_row_and_column() -> None:
    with pytest.raises(Refusal) as refused:
        read_file(FileFormat.CSV, "email,seats:number\na@x.test,1\nb@x.test,many\n")
    assert refused.value.message.startswith("Row 1, column 'seats:number': 'many'")


@pytest.mark.parametrize("cell", ["=1", "+1", "-1", "@x", "\tx", "plain", "'quoted", "'=1", ""])
def test_a_defused_cell_is_read_as_it_was(cell: str) -> None:
    line = csv_files.csv_lines([["c", "d"], [csv_files.defused(cell), "x"]]).decode()

    assert line.splitlines()[1][:1] not in {"=", "+", "-", "@", "\t"}
    assert list(csv_files.read_csv(line)) == [(0, {"c": cell, "d": "x"})]
