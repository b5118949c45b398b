"""A body without required fields is optional: none, an empty one and `{}` get the same response."""

import re
from typing import Any

import asyncpg
import pytest

from api.http.operation import Access, Operation
from api.routes import all_operations
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api
from tests.harness.people import make_person

# `settle` waits for the mail of all accounts, which nobody delivers here: tests/journeys/test_clock.py calls it.
OPTIONAL = [one for one in all_operations() if one.body_is_optional and one.path != "/v1/local/settle"]
JSON = {"Content-Type": "application/json"}


def told(answer: Answer) -> tuple[int, Any]:
    if answer.status >= 400:
        return answer.status, {name: value for name, value in answer.error.items() if name != "requestId"}
    return answer.status, sorted(answer.json or ())


def test_bodies_that_the_contract_calls_optional_are() -> None:
    paths = {(one.method, one.path) for one in OPTIONAL}

    assert paths > {
        ("POST", "/v1/broadcasts/{id}/send"), ("POST", "/v1/templates"), ("POST", "/v1/templates/{id}/preview"),
        ("PATCH", "/v1/webhooks/{id}"), ("PUT", "/v1/verifications/settings"), ("POST", "/v1/account/deletion"),
    }  # fmt: skip
    assert not paths & {("POST", "/v1/emails"), ("POST", "/v1/domains"), ("POST", "/v1/webhooks")}


@pytest.mark.parametrize("operation", OPTIONAL, ids=lambda one: f"{one.method} {one.path}")
async def test_no_body_is_an_empty_object(api: Api, pool: asyncpg.Pool, operation: Operation) -> None:
    path = re.sub(r"\{\w+\}", "unknown", operation.path)
    answers = []
    for body, headers in ((b"{}", JSON), (None, {}), (b"", JSON), (b"", {})):
        account = await make_account(pool)
        owner = await make_person(pool, account.id)
        who: dict[str, Any] = {"token": account.token} if operation.access is Access.KEY else {"person": owner}
        answers.append(await api.request(operation.method, path, body=body, headers=headers, **who))

    found = [told(answer) for answer in answers]
    assert found[0][0] not in {401, 403, 415}, answers[0]
    assert found[1:] == found[:1] * 3
