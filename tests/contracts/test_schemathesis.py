"""The description and the server agree: requests made from the one, valid and not, get answers that the other tells.

The same requests in every run. The account holds one of each thing, and about every second path names one of them.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar

import aiohttp
import asyncpg
import orjson
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.transport import Response
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.http import openapi
from api.http.operation import Access
from api.routes import all_operations
from engine.base import clock, ids
from engine.base.settings import HostPort, Settings
from engine.store.migrate import migrate
from engine.store.postgres import open_pool
from loadtests.ports import reserve_port
from ops.host.temporary_servers import Temporary
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.people import TestPerson, make_person
from tests.harness.pictures import image_of
from tests.harness.sampling import sampled

OPEN = {operation.path for operation in all_operations() if operation.access is Access.NONE}
OUTSIDE = {"/v1/domains/{id}/cloudflare"}  # what it asks outside is not there: `unavailable` is right
STREAMS = ["/v1/events/tail", "/v1/messages/tail"]  # endless answers by design; their own tests read them
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
    "suppress_health_check": list(HealthCheck),
}
Case = schemathesis.Case[Any]
Value = TypeVar("Value")
FOR_PEOPLE = sorted({operation.path for operation in all_operations() if operation.access is Access.SESSION})
DOCUMENT = schemathesis.openapi.from_dict(orjson.loads(openapi.document(all_operations(), Settings())))
EXAMPLES = 3  # made at random of each operation, beside some 60 that walk through its schema
FEEDBACK = FeedbackSources(constants_value_source=make_constants_value_source(DOCUMENT))
NAMES = sorted(f"{one.method} {one.path}" for one in all_operations() if one.path not in STREAMS)


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
def session() -> Iterator[requests.Session]:
    """Keep connections between requests, and no cookies; look for no proxy, which requests does for each request."""
    with requests.Session() as kept:
        kept.trust_env = False
        kept.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        yield kept


@pytest.fixture(scope="module")
def turns() -> Iterator[int]:
    """Counts the requests, so that every second one can be brought closer to what the account has."""
    return itertools.count()


@pytest.fixture
def things(world: World, name: str) -> dict[str, str]:
    """The names of one thing of each kind that the path of the operation takes, by the beginning of such paths."""
    path = name.partition(" ")[2]
    wanted = [beginning for beginning in MAKERS if path.startswith(beginning + "{")]
    return apart(made_things(world, wanted)) if wanted else {}


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


class Maker:
    """Makes one thing of a kind over the API."""

    def __init__(self, api: Api, account: TestAccount) -> None:
        self.api = api
        self.account = account
        self.newest_message = ""

    async def made(self, path: str, body: dict[str, object], name: str = "id") -> str:
        answer = await self.api.post(path, self.account.token, body)
        assert answer.status in {200, 201, 202}, answer
        return str(answer.json[name])

    async def message(self) -> str:
        file = {"filename": "a.txt", "contentType": "text/plain", "content": "aGk="}
        self.newest_message = await self.made("/v1/emails", self.account.email(attachments=[file]))
        return self.newest_message

    async def attachment(self) -> str:
        stored = (await self.api.get(f"/v1/messages/{self.newest_message}", self.account.token)).json
        return str(stored["attachments"][0]["id"])

    async def scheduled(self) -> str:
        soon = clock.iso(clock.now() + timedelta(hours=1))
        return await self.made("/v1/emails", self.account.email(scheduledAt=soon))

    async def template(self) -> str:
        return await self.made("/v1/templates", {"subject": "Hello", "text": "Hello {{name}}"})

    async def layout(self) -> str:
        return await self.made("/v1/layouts", {"html": "<p>{{{content}}}</p>"})

    async def image(self) -> str:
        return await image_of(self.api, self.account, f"#{secrets.token_hex(3)}")

    async def stream(self) -> str:
        return await self.made("/v1/streams", {"id": f"s-{ids.encode(ids.uuid7())}"})

    async def suppression(self) -> str:
        return await self.made("/v1/suppressions", {"address": "bob@people.test"}, "address")

    async def webhook(self) -> str:
        return await self.made("/v1/webhooks", {"url": "https://receiver.example.com/hook"})

    async def delivery(self) -> str:
        posted = await self.api.post(f"/v1/webhooks/{await self.webhook()}/test", self.account.token, {})
        return str(posted.json["id"])

    async def domain(self) -> str:
        return await spare_domain(self.api, self.account)


MAKERS: dict[str, Callable[[Maker], Awaitable[str]]] = {
    "/v1/messages/": Maker.message,
    "/v1/messages/{id}/attachments/": Maker.attachment,
    "/v1/emails/": Maker.scheduled,
    "/v1/templates/": Maker.template,
    "/v1/layouts/": Maker.layout,
    "/v1/images/": Maker.image,
    "/v1/streams/": Maker.stream,
    "/v1/suppressions/": Maker.suppression,
    "/v1/webhooks/": Maker.webhook,
    "/v1/webhooks/deliveries/": Maker.delivery,
    "/v1/domains/": Maker.domain,
}


async def made_things(world: World, kinds: list[str]) -> dict[str, str]:
    """Make one thing of each of these kinds."""
    async with aiohttp.ClientSession() as session:
        maker = Maker(Api(world.url, session), world.account)
        return {kind: await MAKERS[kind](maker) for kind in kinds}


async def spare_domain(api: Api, account: TestAccount) -> str:
    """A domain beside the one that sends: making one costs a key, so it is made again only after its deletion."""
    for row in (await api.get("/v1/domains", account.token)).json["data"]:
        if row["name"] != account.domain:
            return str(row["id"])
    answer = await api.post("/v1/domains", account.token, {"name": f"d{ids.encode(ids.uuid7())}.example.com"})
    return str(answer.json["id"])


def keep_the_time(case: Case) -> None:
    """Let no request move the clock by more than a second, else the sessions of the other tests would expire, or wait
    for more than a second: nobody delivers the mail here.
    """
    if case.operation.path in {"/v1/local/clock", "/v1/local/settle"} and isinstance(case.body, dict):
        for field, value in {"advance": "1s", "to": "2020-01-01T00:00:00Z"}.items():
            if isinstance(case.body.get(field), str):
                case.body[field] = value
        if case.body.get("timeoutS", 60) in range(1, 601):
            case.body["timeoutS"] = 1


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


def for_each_request(name: str, check: Callable[[Case], None], **options: Any) -> None:
    """Call `check` with requests made from the description of an operation.

    Schemathesis makes them while pytest collects tests, which takes 6 s of CPU in each worker; here they are made by
    the test of the operation.
    """
    method, path = name.split(" ")
    test = build_operation_test(
        config=DOCUMENT.config, operation=DOCUMENT[path][method], test_func=check, given_kwargs={}, feedback=FEEDBACK,
        explicit_settings=settings(**REPEATABLE, **options),
    )  # fmt: skip
    test()


async def new_people(world: World, count: int) -> list[TestPerson]:
    """New owners of the account, signed in: what a request does to its own session harms no other request."""
    pool = await open_pool(world.database_url, name="tests", smallest=1, largest=1)
    try:
        return [await make_person(pool, world.account.id) for _ in range(count)]
    finally:
        await pool.close()


@pytest.mark.parametrize("name", sampled(NAMES, 12))
def test_answers_are_as_described(
    name: str, world: World, things: dict[str, str], turns: Iterator[int], session: requests.Session
) -> None:
    """Each request is sent with a key and, where people may send it, by a person; one also by nobody."""
    method, path = name.split(" ")
    people = iter(apart(new_people(world, EXAMPLES)) if path in FOR_PEOPLE else ())
    unasked = [True]  # by nobody; requests of other methods, which some examples are, get a 405

    def answer_to(case: Case, headers: dict[str, str]) -> Response:
        checks = CHECKS if path not in OUTSIDE else CHECKS[1:]
        return case.call_and_validate(base_url=world.url, headers=headers, checks=checks, timeout=30, session=session)

    def check(case: Case) -> None:
        keep_the_time(case)
        if next(turns) % 2:
            bring_closer(case, things, world.account)
        if unasked and case.method == method:
            unasked.clear()
            assert answer_to(case, {"Authorization": ""}).status_code == 401 or path in OPEN
        answer = answer_to(case, {"Authorization": f"Bearer {world.account.token}"})
        assert answer.status_code < 500 or answer.json()["error"]["type"] == "unavailable"
        ann = next(people, None)
        if ann is not None:
            if case.headers:
                case.headers.pop("Authorization", None)  # a made-up one would speak before the cookie
            if case.cookies:
                case.cookies.clear()
            answer = answer_to(case, {"Cookie": f"svc_session={ann.secret}", "X-CSRF-Token": ann.csrf})
            assert answer.status_code not in {401, 500} or answer.json()["error"]["type"] == "invalid_credentials"

    for_each_request(name, check, max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate])

    assert not unasked
