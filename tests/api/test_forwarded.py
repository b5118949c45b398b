"""Client addresses behind a load balancer: only configured balancers are trusted."""

from collections.abc import Iterator
from ipaddress import ip_network

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from api.http.forwarded import MAX_HOPS, client
from engine.base.settings import Settings
from tests.harness.accounts import make_account
from tests.harness.api import Api, serving
from tests.harness.people import make_person

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "headers", "named"),
    [
        ("192.0.2.1", [b"198.51.100.7"], "192.0.2.1"),  # not one of ours: it may say what it likes
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [b"203.0.113.9, 198.51.100.7"], "198.51.100.7"),  # what stands left the client wrote itself
        ("10.0.0.1", [b"203.0.113.9", b"198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [b"198.51.100.7, 10.0.0.2,10.9.9.9"], "198.51.100.7"),  # through several of ours
        ("10.0.0.1", [b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),  # a client inside
        ("10.0.0.1", [b"198.51.100.7, nonsense"], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.7, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [b"198.51.100.7:4711"], "198.51.100.7"),
        ("10.0.0.1", [b"[2001:db8::7]:4711"], "2001:db8::7"),
        ("fd00::1", [b"2001:DB8::7"], "2001:db8::7"),
        ("::ffff:10.0.0.1", [b"::ffff:198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [b"\xff, \x00"], "10.0.0.1"),
        ("10.0.0.1", [b""], "10.0.0.1"),
        ("", [b"198.51.100.7"], ""),
    ],
)
def test_the_first_address_from_the_right_that_is_no_proxy_is_the_client(
    peer: str, headers: list[bytes], named: str
) -> None:
    assert client(peer, headers, PROXIES) == named


def test_a_long_list_is_read_from_its_end_and_no_further_than_the_bound() -> None:
    assert client("10.0.0.1", [b"198.51.100.7," + b"10.0.0.2," * MAX_HOPS + b"10.0.0.3"], PROXIES) == "10.0.0.2"
    assert client("10.0.0.1", [b"," * 100_000 + b"198.51.100.7"], PROXIES) == "198.51.100.7"


@pytest.fixture(scope="module")
def behind_a_proxy(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    own = structs.replace(settings, http_proxy_networks=(ip_network("127.0.0.0/8"),))
    with serving(own, tmp_path_factory.mktemp("proxied") / "api.log") as url:
        yield url


async def test_a_keys_networks_mean_the_client_that_the_proxy_names(
    api: Api, behind_a_proxy: str, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    admin = await make_person(pool, account.id, "admin")
    limited = {"name": "office", "scopes": ["account:read"], "networks": ["198.51.100.0/24"]}
    token = (await api.post("/v1/api-keys", person=admin, json=limited)).json["token"]
    office = {"X-Forwarded-For": "192.0.2.66, 198.51.100.7"}

    async with aiohttp.ClientSession() as session:
        proxied = Api(behind_a_proxy, session)
        assert (await proxied.get("/v1/me", token, headers=office)).status == 200
        assert (await proxied.get("/v1/me", token, headers={"X-Forwarded-For": "192.0.2.66"})).status == 401
        assert (await proxied.get("/v1/me", token)).status == 401

    assert (await api.get("/v1/me", token, headers=office)).status == 401, "no proxy was named to this one"
