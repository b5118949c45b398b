"""Every operation refuses a body of another shape, and names the field that it does not know."""

import re
from typing import Any

import asyncpg

from api.http.operation import Access
from api.routes import all_operations
from tests.harness.accounts import make_account
from tests.harness.api import Api, name_of
from tests.harness.people import make_person

JSON = {"Content-Type": "application/json"}
OTHER_FORMATS = {"/v1/emails/raw"}  # a message, or JSON of a shape of its own: tests/sending/test_emails_raw.py
WITH_JSON = [
    one for one in all_operations()
    if one.request is not None and one.errors is None and not one.for_operator and one.path not in OTHER_FORMATS
]  # fmt: skip
ODD = {
    b"{": "body", b"[]": "body", b'"x"': "body", b"7": "body", b"\xff": "body", b'{"a": 1,}': "a",
    b'{"nobodys": 1}': "nobodys", b'{"a": "\\ud800"}': "a",
}  # fmt: skip


async def test_a_body_of_another_shape_is_refused_by_the_field(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="enterprise")
    owner = await make_person(pool, account.id)
    wrong: dict[str, Any] = {}
    for operation in WITH_JSON:
        path = re.sub(r"\{\w+\}", "x", operation.path)
        keys = operation.access in {Access.KEY, Access.PLATFORM_KEY}
        who: dict[str, Any] = {"token": account.token} if keys else {"person": owner}
        for body, field in ODD.items():
            answer = await api.request(operation.method, path, body=body, headers=JSON, **who)
            if (answer.status, answer.error["type"], answer.error.get("field")) != (400, "invalid_request", field):
                wrong[f"{name_of(operation)} {body!r}"] = answer.body

    assert not wrong
    assert len(WITH_JSON) > 90
