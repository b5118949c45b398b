"""The API behind the load balancers of others, as they are packaged: what ops/deploy says of them is true.

A proxy that is not installed is skipped and says so; `pytest -m proxies` runs these alone.
"""

import asyncio
import base64
import io
import ssl
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_network
from urllib.parse import quote, urlsplit

import aiohttp
import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base.settings import Settings
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, serving
from tests.harness.people import make_person
from tests.harness.raw_http import exchange
from tests.harness.sse import Reader
from tests.ops.proxies import MIB, PROXIES, Proxy, Running, running

pytestmark = [pytest.mark.proxies, pytest.mark.exhaustive]

MAX_BODY_BYTES = 24 * MIB
SENT_BYTES = 8 * MIB
LOGIN = b'{"email": "ann@people.test", "password": "no such person"}'


@pytest.fixture(scope="module")
def behind(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API that believes a proxy on 127.0.0.1, and nobody else on loopback."""
    own = structs.replace(settings, http_proxy_networks=(ip_network("127.0.0.1/32"),), max_request_bytes=MAX_BODY_BYTES)
    with serving(own, tmp_path_factory.mktemp("behind") / "api.log") as url:
        yield url


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: proxy.name)
async def front(
    request: pytest.FixtureRequest, behind: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    """One proxy after the other in front of it."""
    proxy: Proxy = request.param
    async with running(proxy, behind, tmp_path_factory.mktemp(proxy.program)) as started:
        yield started


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that takes any certificate, keeps its connections, and comes from an address that is no proxy's."""
    connector = aiohttp.TCPConnector(limit=16, ssl=False, local_addr=("127.0.0.9", 0))
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as opened:
        yield opened


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool, plan="enterprise")


def written(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def test_clients_of_every_version_are_answered(front: Running) -> None:
    fields = ("Host: api.example.com", "Content-Type: application/json", "Connection: close")
    login = (*fields, f"Content-Length: {len(LOGIN)}")
    for version in ("1.0", "1.1"):
        asked = await exchange(front.url, written(f"GET /healthz HTTP/{version}", *fields))
        assert [one.status for one in asked] == [200], version
        sent = await exchange(front.url, written(f"POST /v1/auth/login HTTP/{version}", *login, body=LOGIN))
        assert [(one.status, one.error_type) for one in sent] == [(401, "invalid_credentials")], version


async def test_clients_may_use_http_2_over_tls(front: Running) -> None:
    if not front.proxy.tls:
        pytest.skip("without TLS no proxy offers HTTP/2")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    place = urlsplit(front.url)
    _, writer = await asyncio.open_connection(place.hostname, place.port, ssl=context)
    chosen = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.transport.abort()

    assert chosen == "h2"


async def test_an_announced_body_is_asked_for_and_read(front: Running, account: TestAccount) -> None:
    body = orjson.dumps(account.email())
    fields = ("Host: api.example.com", f"Authorization: Bearer {account.token}", "Content-Type: application/json")
    framing = ("Connection: close", "Expect: 100-continue", f"Content-Length: {len(body)}")
    found = await exchange(front.url, written("POST /v1/emails HTTP/1.1", *fields, *framing), body)

    assert [one.status for one in found if one.status != 100] == [202]


async def test_many_sends_over_few_connections_are_all_accepted(
    front: Running, session: aiohttp.ClientSession, account: TestAccount
) -> None:
    api = Api(front.url, session)
    sent = [api.post("/v1/emails", account.token, account.email()) for _ in range(100)]

    assert {answer.status for answer in await asyncio.gather(*sent)} == {202}


@pytest.mark.parametrize("chunks", [False, True], ids=["length", "chunks"])
async def test_a_large_send_passes_where_the_proxy_allows_it(
    front: Running, session: aiohttp.ClientSession, account: TestAccount, *, chunks: bool
) -> None:
    content = base64.b64encode(bytes(SENT_BYTES)).decode()
    attached = {"filename": "a.bin", "contentType": "application/octet-stream", "content": content}
    body = orjson.dumps(account.email(attachments=[attached]))
    given = {"Authorization": f"Bearer {account.token}", "Content-Type": "application/json"}
    data = _pieces(body) if chunks else io.BytesIO(body)
    async with session.post(front.url + "/v1/emails", data=data, headers=given) as answer:
        limit = front.proxy.limit
        assert answer.status == (413 if limit is not None and len(body) > limit else 202)


async def test_a_body_over_the_limit_of_the_api_is_a_413_and_no_fault_of_the_proxy(
    front: Running, session: aiohttp.ClientSession, account: TestAccount
) -> None:
    answer = await Api(front.url, session).post("/v1/emails", account.token, body=bytes(MAX_BODY_BYTES + 1))

    assert answer.status == 413


async def test_events_pass_as_they_happen(front: Running, session: aiohttp.ClientSession, account: TestAccount) -> None:
    given = {"Authorization": f"Bearer {account.token}", "Accept": "text/event-stream"}
    async with session.get(front.url + "/v1/messages/tail", headers=given) as response:
        tail = Reader(response)
        await tail.until("ready")
        for _ in range(2):
            sent = await Api(front.url, session).post("/v1/emails", account.token, account.email())
            assert (await tail.until("message")).data["messageId"] == sent.json["id"]


async def test_a_slash_within_a_path_parameter_passes(
    front: Running, session: aiohttp.ClientSession, account: TestAccount
) -> None:
    api = Api(front.url, session)
    await api.post("/v1/suppressions", account.token, {"address": "a/b+c@people.test"})
    octets = written(
        f"GET /v1/suppressions/{quote('a/b+c@people.test', safe='')} HTTP/1.1", "Host: api.example.com",
        f"Authorization: Bearer {account.token}", "Connection: close",
    )  # fmt: skip

    assert [one.status for one in await exchange(front.url, octets)] == [200]


async def test_the_api_sees_the_client_and_not_what_the_client_writes(
    front: Running, session: aiohttp.ClientSession, account: TestAccount, pool: asyncpg.Pool
) -> None:
    if not front.proxy.shipped:
        pytest.skip("only the shipped files name the client")
    api = Api(front.url, session)
    admin = await make_person(pool, account.id, "admin")

    async def key_for(network: str) -> str:
        limited = {"name": "office", "scopes": ["account:read"], "networks": [network]}
        token: str = (await api.post("/v1/api-keys", person=admin, json=limited)).json["token"]
        return token

    elsewhere = await key_for("198.51.100.7/32")
    assert (await api.get("/v1/me", await key_for("127.0.0.9/32"))).status == 200
    assert (await api.get("/v1/me", elsewhere, headers={"X-Forwarded-For": "198.51.100.7"})).status == 401


async def test_a_broken_request_is_refused_by_one_of_the_two(front: Running) -> None:
    chunked = ("POST /v1/auth/login HTTP/1.1", "Host: api.example.com", "Content-Type: application/json")
    broken = [
        written(*chunked, "Transfer-Encoding: chunked", body=b"zz\r\nabc\r\n0\r\n\r\n"),
        written(*chunked, "Transfer-Encoding: x, chunked", body=b"5\r\nabcde\r\n0\r\n\r\n"),
        written("GET /healthz HTTP/1.1", "Host: a.test", "Host: b.test", "Connection: close"),
        written("GET /healthz HTTP/1.1", "Connection: close"),
    ]
    found = await asyncio.gather(*(exchange(front.url, octets, most=1) for octets in broken))

    for octets, answers in zip(broken, found, strict=True):
        assert [answer.status >= 400 for answer in answers] == [True], (octets, answers)  # Caddy calls a bad chunk 502


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]
