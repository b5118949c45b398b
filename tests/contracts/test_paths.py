"""Paths are divided before they are decoded, and each part is decoded once: for every path parameter there is."""

import asyncio
import re

import asyncpg
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http import paths
from api.http.operation import Access, Operation
from api.routes import all_operations
from engine.base.errors import ErrorType, Refusal
from tests.contracts.test_isolation import BODIES
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.people import TestPerson, make_person
from tests.harness.raw_http import RawAnswer, exchange
from tests.harness.sampling import examples

AT_ONCE = 16
_PARAMETER = re.compile(r"\{(\w+)\}")
WITH_PARAMETERS = [one for one in all_operations() if _PARAMETER.search(one.path)]
# Each stands for a whole parameter, as it is on the wire. None names a thing of the account that asks.
ODD = [
    "a%2Fb", "%2F", "x%2Fschedule", "..%2F..%2Fme", "%2e%2e", "..", ".", "%2E", "a+b", "a%2Bb", "a%20b", "%00",
    "a%0D%0Ab", "%25", "%2525", "%252F", "%25%32%46", "%C3%A9", "\xc3\xa9", "%FF", "%C0%AF", "%ED%A0%80", "%zz", "%",
    "%2", "%3F", "%23", "a;b=c", "%5C", "a%40b.test", "%F0%9F%93%A8", "x" * 3000, "%41" * 1300, "x" * 5000,
    "'%22%3C%3E", "x", "msg_", "msg_short", "msg_" + "z" * 26, "00000000-0000-0000-0000-000000000000",
    *[f"{one}_01h455vb4pex5vsknk084sn02q" for one in ("whk", "evt", "con", "key", "usr")],
    "MSG_01H455VB4PEX5VSKNK084SN02Q",
]  # fmt: skip


def segment(text: str) -> bytes:
    """A path segment with every octet encoded."""
    return "".join(f"%{octet:02X}" for octet in text.encode()).encode()


@examples(50, derandomize=True)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=4))
def test_whatever_a_client_encodes_comes_back_as_it_was(texts: list[str]) -> None:
    raw = b"/" + b"/".join(map(segment, texts))
    divided = paths.routable(raw).split("/")[1:]

    assert len(divided) == len(texts)
    assert paths.parameters(dict(zip("abcd", divided, strict=False))) == dict(zip("abcd", texts, strict=False))


@pytest.mark.parametrize(
    ("raw", "matched"),
    [
        (b"/v1/me", "/v1/me"),
        (b"/v1/%6De", "/v1/me"),  # RFC 3986 6.2.2.2: the same path
        (b"/v1%2Fme", "/v1%2Fme"),
        (b"/a+b", "/a+b"),
        (b"/%2e%2E/x", "/../x"),  # no segment goes up: nothing resolves the dots
        (b"/%2541", "/%2541"),
        (b"/100%25", "/100%25"),
        (b"/%C3%A9", "/é"),
        (b"//", "//"),
        (b"*", "*"),
    ],
)
def test_the_router_gets_segments_that_are_decoded_once(raw: bytes, matched: str) -> None:
    assert paths.routable(raw) == matched


@pytest.mark.parametrize(
    "raw", [b"/%", b"/%2", b"/%zz", b"/%FF", b"/%C0%AF", b"/%ED%A0%80", b"/%u0041", b"/" + b"a" * 5000]
)
def test_nothing_is_at_a_path_that_is_not_percent_encoded_utf_8(raw: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        paths.routable(raw)
    assert caught.value.kind is ErrorType.NOT_FOUND


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool, plan="enterprise")


def request(operation: Operation, path: str, account: TestAccount, owner: TestPerson) -> bytes:
    """The request as octets: with the account's key where one is good, else by its owner."""
    credentials = [f"Authorization: Bearer {account.token}"]
    if operation.access is Access.SESSION:
        credentials = [f"Cookie: svc_session={owner.secret}", f"X-CSRF-Token: {owner.csrf}"]
    body = orjson.dumps(BODIES.get((operation.method, operation.path), {})) if operation.request is not None else b""
    framing = ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
    lines = [f"{operation.method} {path} HTTP/1.1", "Host: a.test", "Connection: close", *credentials, *framing, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


@pytest.mark.exhaustive
async def test_odd_parameters_are_as_unknown_as_any_other(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    owner = await make_person(pool, account.id, "owner")
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(operation: Operation, odd: str) -> tuple[str, RawAnswer]:
        path = _PARAMETER.sub(lambda _: odd, operation.path)
        async with gate:
            (answer,) = await exchange(api.base_url, request(operation, path, account, owner))
        return f"{operation.method} {path[:100]}", answer

    asked = [ask(operation, odd) for operation in WITH_PARAMETERS for odd in ODD]
    wrong = [
        (name, answer.status, answer.body[:200])
        for name, answer in await asyncio.gather(*asked)
        if (answer.status, answer.error_type) != (404, "not_found")
    ]

    assert wrong == []
    assert len(asked) > 1000


async def test_a_literal_part_of_a_path_may_be_encoded_and_a_slash_in_it_divides_nothing(
    api: Api, account: TestAccount
) -> None:
    key = f"Authorization: Bearer {account.token}"

    async def status(path: str) -> int:
        octets = "\r\n".join([f"GET {path} HTTP/1.1", "Host: a.test", "Connection: close", key, "", ""]).encode()
        return (await exchange(api.base_url, octets))[0].status

    assert await status("/v1/me") == await status("/v1/%6D%65") == await status("/%76%31/me") == 200
    assert await status("/v1%2Fme") == await status("/v1/me%2F") == await status("/v1/%2e/me") == 404
    assert await status("/v1/messages/../me") == 404
