"""The description and the server agree: requests made from the one, valid and not, get answers that the other tells.

The same requests in every run. The account holds one of each thing, and about every second path names one of them.
"""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import aiohttp
import asyncpg
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import all_operations
from api.http import openapi
from api.http.operation import Access
from engine.base import clock, ids
from engine.base.settings import HostPort, Settings
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from loadtests.ports import reserve_port
from ops.embedded import Temporary
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.people import TestPerson, make_person

OPEN = {operation.path for operation in all_operations() if operation.access is Access.NONE}
OUTSIDE = {"/v1/domains/{id}/cloudflare"}  # what it asks outside is not there: `unavailable` is right
STREAMS = ["/v1/messages/tail"]  # endless answers by design; their own tests read them
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NEEDS_MORE = ("template", "templateVersion", "variables", "stream", "scheduledAt", "deliverBy")  # than a random value
REPEATABLE: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
}
Case = schemathesis.Case[Any]
Value = TypeVar("Value")
FOR_PEOPLE = sorted({operation.path for operation in all_operations() if operation.access is Access.SESSION})
DOCUMENT = schemathesis.openapi.from_dict(
    orjson.loads(openapi.document(all_operations(), server="http://127.0.0.1"))
).exclude(path=STREAMS)


class World(NamedTuple):
    """An API on a database of its own, and its one account. These tests have no event loop, so what the other tests
    share through theirs is not for them."""

    url: str
    account: TestAccount
    database_url: str


@pytest.fixture(scope="module")
def world(servers: Temporary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Without a limit on requests; what the API would ask outside, DNS and Cloudflare, is not there."""
    nowhere = reserve_port()
    own = Settings(
        state=tmp_path_factory.mktemp("state"),
        database_url=servers.database_url.replace("/postgres?", "/described?", 1),
        redis_url=servers.redis_url,
        key_pepper=PEPPER,
        shards=16,
        request_rate=1_000_000,
        unauthenticated_rate=1_000_000,
        sign_in_rate=1_000_000,
        dns_servers=(HostPort("127.0.0.1", nowhere),),
        cloudflare_url=f"http://127.0.0.1:{nowhere}",
    )
    account = apart(prepared(servers.database_url, own))
    with serving(own, tmp_path_factory.mktemp("schemathesis") / "api.log") as url:
        assert own.database_url is not None
        yield World(url, account, own.database_url)


@pytest.fixture(scope="module")
def turns() -> Iterator[int]:
    """Counts the requests, so that every second one can be brought closer to what the account has."""
    return itertools.count()


@pytest.fixture
def things(world: World) -> dict[str, str]:
    """The names of one thing of each kind, by the beginning of the paths that take them."""
    return apart(made_things(world))


def apart(work: Coroutine[Any, Any, Value]) -> Value:
    """Run it on a loop of its own in a thread of its own: other tests' loop stands still in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result(60)


async def prepared(servers_url: str, own: Settings) -> TestAccount:
    """A fresh database with an account that no cap holds back."""
    connection = await asyncpg.connect(servers_url)
    try:
        await connection.execute("DROP DATABASE IF EXISTS described")
        await connection.execute("CREATE DATABASE described")
    finally:
        await connection.close()
    assert own.database_url is not None
    await migrate(own.database_url)
    pool = await open_pool(own.database_url, name="tests")
    try:
        return await make_account(pool, plan="enterprise")
    finally:
        await pool.close()


async def made_things(world: World) -> dict[str, str]:
    """Make them."""
    account, token = world.account, world.account.token
    async with aiohttp.ClientSession() as session:
        api = Api(world.url, session)

        async def made(path: str, body: dict[str, object], name: str = "id") -> str:
            answer = await api.post(path, token, body)
            assert answer.status in {200, 201, 202}, answer
            return str(answer.json[name])

        file = {"filename": "a.txt", "contentType": "text/plain", "content": "aGk="}
        soon = clock.iso(clock.now() + timedelta(hours=1))
        message = await made("/v1/emails", account.email(attachments=[file]))
        webhook = await made("/v1/webhooks", {"url": "https://receiver.example.com/hook"})
        posted = (await api.post(f"/v1/webhooks/{webhook}/test", token, {})).json
        stored = (await api.get(f"/v1/messages/{message}", token)).json
        return {
            "/v1/messages/": message,
            "/v1/messages/{id}/attachments/": stored["attachments"][0]["id"],
            "/v1/emails/": await made("/v1/emails", account.email(scheduledAt=soon)),
            "/v1/templates/": await made("/v1/templates", {"subject": "Hello", "text": "Hello {{name}}"}),
            "/v1/streams/": await made("/v1/streams", {"id": f"s-{ids.encode(ids.uuid7())}"}),
            "/v1/suppressions/": await made("/v1/suppressions", {"address": "bob@people.test"}, "address"),
            "/v1/webhooks/": webhook,
            "/v1/webhooks/deliveries/": posted["id"],
            "/v1/domains/": await spare_domain(api, account),
        }


async def spare_domain(api: Api, account: TestAccount) -> str:
    """A domain beside the one that sends: making one costs a key, so it is made again only after its deletion."""
    for row in (await api.get("/v1/domains", account.token)).json["data"]:
        if row["name"] != account.domain:
            return str(row["id"])
    answer = await api.post("/v1/domains", account.token, {"name": f"d{ids.encode(ids.uuid7())}.example.com"})
    return str(answer.json["id"])


def bring_closer(case: Case, things: dict[str, str], account: TestAccount) -> None:
    """Name things that exist, and send from a domain that may: else most requests end at the first check."""
    path = case.operation.path
    for beginning, name in things.items():
        parameter = path.removeprefix(beginning).partition("/")[0].strip("{}")
        if path.startswith(beginning + "{") and parameter in case.path_parameters:
            case.path_parameters[parameter] = name
    if not isinstance(case.body, dict):
        return
    sends = {"/v1/emails": [case.body], "/v1/emails/batch": case.body.get("messages")}.get(path)
    for send in sends if isinstance(sends, list) else ():
        if isinstance(send, dict):
            for field in NEEDS_MORE:
                send.pop(field, None)
            send |= {"from": account.sender, "to": "ann@people.test", "cc": [], "bcc": [], "text": "Hello"}


@DOCUMENT.parametrize()
@settings(max_examples=15, phases=[Phase.explicit, Phase.generate], **REPEATABLE)
def test_answers_are_as_described(case: Case, world: World, things: dict[str, str], turns: Iterator[int]) -> None:
    if next(turns) % 2:
        bring_closer(case, things, world.account)
    key = {"Authorization": f"Bearer {world.account.token}"}
    checks = CHECKS if case.operation.path not in OUTSIDE else CHECKS[1:]
    answer = case.call_and_validate(base_url=world.url, headers=key, checks=checks, timeout=30)

    assert answer.status_code < 500 or answer.json()["error"]["type"] == "unavailable"


async def somebody(world: World) -> TestPerson:
    """A new owner of the account, signed in: what a request does to its own session harms no other request."""
    pool = await open_pool(world.database_url, name="tests", smallest=1, largest=1)
    try:
        return await make_person(pool, world.account.id)
    finally:
        await pool.close()


@DOCUMENT.include(path=FOR_PEOPLE).parametrize()
@settings(max_examples=6, phases=[Phase.generate], **REPEATABLE)
def test_answers_to_people_are_as_described(case: Case, world: World) -> None:
    ann = apart(somebody(world))
    if case.headers:
        case.headers.pop("Authorization", None)  # a made-up one would speak before the cookie
    if case.cookies:
        case.cookies.clear()
    headers = {"Cookie": f"svc_session={ann.secret}", "X-CSRF-Token": ann.csrf}
    answer = case.call_and_validate(base_url=world.url, headers=headers, checks=CHECKS, timeout=30)

    assert answer.status_code not in {401, 500} or answer.json()["error"]["type"] == "invalid_credentials"


@DOCUMENT.parametrize()
@settings(max_examples=3, phases=[Phase.generate], **REPEATABLE)
def test_answers_to_nobody_are_as_described(case: Case, world: World) -> None:
    answer = case.call_and_validate(base_url=world.url, headers={"Authorization": ""}, checks=CHECKS, timeout=30)

    assert answer.status_code == 401 or case.operation.path in OPEN
