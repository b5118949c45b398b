"""Every operation bounds its body, and asks for credentials before it reads one."""

import re
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec import structs

from api.http import openapi
from api.http.body_limits import MAX_ANONYMOUS_BYTES, NO_BODY_BYTES
from api.http.operation import Access, Operation
from api.routes import all_operations
from engine.base import clock
from engine.base.scopes import SCOPES
from engine.base.settings import Settings
from engine.people.api_keys.key_auth import unauthorized
from engine.people.people import store as people
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, name_of
from tests.harness.people import TestPerson, make_person
from tests.harness.wire import Wire, chunked, wire

OPERATIONS = all_operations()
GUARDED = [one for one in OPERATIONS if one.access is not Access.NONE]
MAX_REQUEST_BYTES = 128 * 1024  # here, so that a body above each bound is small
NOBODY = TestPerson(UUID(int=0), UUID(int=0), UUID(int=0), "nobody@people.test", "x" * 43, "x")
JSON = "Content-Type: application/json"
LARGE = "Content-Length: 100000"  # more than most bounds, and never sent


@pytest.fixture(scope="module")
def bounded(settings: Settings, owner: TestPerson, serve: ServeApi) -> Api:
    limits = {"max_request_bytes": MAX_REQUEST_BYTES, "request_rate": 100_000}
    return serve(structs.replace(settings, operators=(owner.email,), **limits))


@pytest.fixture(scope="module")
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool, scopes=sorted(SCOPES))


@pytest.fixture(scope="module")
async def owner(pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    made = await make_person(pool, account.id)
    await people.SET_OPERATOR.execute(pool, made.id, clock.now())
    return made


async def begin(
    connection: Wire, operation: Operation, account: TestAccount | None, owner: TestPerson | None, *fields: str
) -> None:
    """The head of a request that may call the operation; None: with credentials that are not good."""
    path = re.sub(r"\{\w+\}", "x", operation.path)
    token = person = None
    if operation.access is Access.SESSION:
        person = owner or NOBODY
    elif operation.access is not Access.NONE:
        token = "nonsense" if account is None else account.token
    kind = f"Content-Type: {operation.body_types[0]}" if operation.body_types else JSON
    await connection.head(operation.method, path, kind, *fields, token=token, person=person)


@pytest.mark.exhaustive
async def test_a_declared_size_above_the_bound_is_refused_before_an_octet_is_read(
    bounded: Api, account: TestAccount, owner: TestPerson
) -> None:
    for operation in OPERATIONS:
        limit = operation.body_limit(MAX_REQUEST_BYTES)
        async with wire(bounded) as connection:
            await begin(connection, operation, account, owner, f"Content-Length: {limit + 1}")
            answer = await connection.answer()

        found = (answer.status, answer.error["type"], answer.error["limit"])
        assert found == (413, "payload_too_large", limit), name_of(operation)


async def test_a_body_above_the_bound_is_refused_while_it_arrives(
    bounded: Api, account: TestAccount, owner: TestPerson
) -> None:
    for operation in OPERATIONS:
        limit = operation.body_limit(MAX_REQUEST_BYTES)
        async with wire(bounded) as connection:
            await begin(connection, operation, account, owner, "Transfer-Encoding: chunked")
            await connection.write(chunked([b" " * (limit // 2), b" " * (limit - limit // 2 + 1)], end=False))
            answer = await connection.answer()

        found = (answer.status, answer.error["type"], answer.error["limit"])
        assert found == (413, "payload_too_large", limit), name_of(operation)


async def test_bad_credentials_are_refused_before_an_octet_is_read(bounded: Api) -> None:
    for operation in GUARDED:
        async with wire(bounded) as connection:
            await begin(connection, operation, None, None, LARGE)
            answer = await connection.answer()

        status = 401 if operation.errors is None else operation.errors.write(unauthorized(), {}, True)[0]
        assert (answer.status, answer.error["type"]) == (status, "unauthorized"), name_of(operation)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(openapi.document(OPERATIONS, Settings()))
    return found


def test_every_operation_has_a_bound_and_says_it(document: dict[str, Any]) -> None:
    largest = Settings().max_request_bytes
    for operation in OPERATIONS:
        described = document["paths"][operation.path][operation.method.lower()]
        limit = operation.body_limit(largest)

        assert described["x-max-body-bytes"] == limit, name_of(operation)
        assert f"more than {limit} bytes" in described["responses"]["413"]["description"], name_of(operation)
        assert limit == largest if operation.carries_messages else limit <= largest // 2, name_of(operation)
        if operation.access is Access.NONE:
            assert limit <= MAX_ANONYMOUS_BYTES, name_of(operation)
        if operation.raw_body:
            assert limit == operation.max_body_bytes, name_of(operation)
        elif operation.request is None and not operation.body_types:
            assert limit == NO_BODY_BYTES, name_of(operation)
