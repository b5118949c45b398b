"""`ops contacts`, `ops suppressions` and `ops opt-outs`: files in and out of an account."""

import io
from pathlib import Path

import asyncpg
import orjson
import pytest

from engine.audience.contacts.files import FileFormat
from engine.audience.contacts.types import Consent
from engine.base import ids
from engine.sending.suppressions.files import SuppressionFileFormat
from engine.sending.suppressions.types import Reason
from ops.commands import contacts, opt_outs
from tests.harness.accounts import make_account
from tests.harness.unsubscribing import store_topic


async def test_contacts_are_imported_listed_and_exported(pool: asyncpg.Pool, tmp_path: Path) -> None:
    account = await make_account(pool)
    file = tmp_path / "people.csv"
    file.write_text("\ufeffemail,name,seats:number\nAnn@x.test,Ann,3\nnobody,,\n", "utf-8")
    result = await contacts.import_contacts(
        pool, account=account.public_id, path=file, consent=Consent.CUSTOMER, list_id=None
    )
    assert (result["created"], [row["index"] for row in result["invalid"]]) == (1, [1])

    [found] = await contacts.newest(pool, account=account.public_id, search="ann@", limit=5)
    assert (found["email"], found["fields"]) == ("Ann@x.test", {"seats": 3})
    out = io.BytesIO()
    await contacts.export_contacts(pool, out, account=account.public_id, form=FileFormat.NDJSON)
    assert orjson.loads(out.getvalue()) == found
    out = io.BytesIO()
    await contacts.export_contacts(pool, out, account=account.public_id, form=FileFormat.CSV)
    assert out.getvalue().startswith(b"email,name,")
    with pytest.raises(ValueError, match="neither CSV"):
        await contacts.import_contacts(
            pool, account=account.public_id, path=tmp_path / "a.xls", consent=Consent.CUSTOMER, list_id=None
        )


async def test_suppressions_are_imported_and_exported(pool: asyncpg.Pool, tmp_path: Path) -> None:
    account = await make_account(pool)
    file = tmp_path / "out.csv"
    file.write_text("Email;Reason\nAnn@x.test;\nbob@x.test;manual\ncarl@x.test;hard bounce\nnobody;\n", "utf-8")
    result = await contacts.import_suppressions(pool, account=account.public_id, path=file, reason=Reason.UNSUBSCRIBE)
    assert (result["added"], [row["index"] for row in result["refused"]]) == (3, [3])

    out = io.BytesIO()
    await contacts.export_suppressions(
        pool, out, account=account.public_id, form=SuppressionFileFormat.CSV, reason=Reason.UNSUBSCRIBE
    )
    lines = out.getvalue().decode().splitlines()
    assert lines[0] == "address,reason,detail,createdAt"
    assert sorted(line.split(",")[0] for line in lines[1:]) == ["ann@x.test", "carl@x.test"]


async def test_opt_outs_of_a_list_are_imported_and_exported(pool: asyncpg.Pool, tmp_path: Path) -> None:
    account = await make_account(pool)
    topic = ids.format_id(ids.Kind.LIST, await store_topic(pool, account))
    file = tmp_path / "out.ndjson"
    file.write_text('{"email": "Ann@x.test"}\n{"address": "bob@x.test"}\n{"name": "carl"}\n', "utf-8")
    result = await opt_outs.import_file(pool, account=account.public_id, path=file, list_id=topic)
    assert (result["added"], result["already"], [row["index"] for row in result["refused"]]) == (2, 0, [2])
    again = await opt_outs.import_file(pool, account=account.public_id, path=file, list_id=topic)
    assert (again["added"], again["already"]) == (0, 2)

    out = io.BytesIO()
    await opt_outs.export(pool, out, account=account.public_id, list_id=topic, form=FileFormat.CSV)
    lines = out.getvalue().decode().splitlines()
    assert lines[0] == "address,source,createdAt"
    assert sorted(line.split(",")[:2] for line in lines[1:]) == [["ann@x.test", "api"], ["bob@x.test", "api"]]
    out = io.BytesIO()
    await opt_outs.export(pool, out, account=account.public_id, list_id=topic, form=FileFormat.NDJSON)
    assert {orjson.loads(line)["address"] for line in out.getvalue().splitlines()} == {"ann@x.test", "bob@x.test"}
