"""`ops contacts` and `ops suppressions`: files in and out of an account."""

import io
from pathlib import Path

import asyncpg
import orjson
import pytest

from engine.areas.contacts.files import FileFormat
from engine.areas.contacts.types import Consent
from engine.areas.suppressions.files import SuppressionFileFormat
from engine.areas.suppressions.types import Reason
from ops import contacts
from tests.harness.accounts import make_account


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


async def test_opt_outs_are_imported_and_exported(pool: asyncpg.Pool, tmp_path: Path) -> None:
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
