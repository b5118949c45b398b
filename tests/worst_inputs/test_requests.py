"""Requests with the highest cost in framing, headers, queries, decoding and validation, sent to a running API."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import asyncpg
import orjson
import pytest

from loadtests.bench import measure
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import server_pid
from tests.harness.patience import PATIENCE_S
from tests.harness.sampling import sampled
from tests.worst_inputs.costs import SIZE_BYTES, is_cheap

SEGMENTS = 50_000
HEAD_BYTES = 60_000  # below the 64 KB at which the server refuses a target
WRITTEN_AT_ONCE = 256 * 1024
SETTLE_S = 0.05  # after an answer: the end of the connection costs a little, too
TRIES = 3  # of a case above the bounds: other requests of the run may meet it

Request = Callable[[TestAccount], list[bytes]]  # several pieces: each is a TCP segment of its own
Body = Callable[[TestAccount], bytes]


def _head(account: TestAccount, *fields: str, start: str = "POST /v1/emails", key: bool = True) -> bytes:
    """Return a request's header, with the API key unless `key` is False."""
    lines = [f"{start} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    if key:
        lines.append(f"Authorization: Bearer {account.token}")
    return "\r\n".join([*lines, *fields, "", ""]).encode()


def _chunks(start: str, *, key: bool = True, piece: bytes = b"1\r\n \r\n") -> Request:
    body = piece * (SIZE_BYTES // len(piece)) + b"0\r\n\r\n"
    return lambda account: [_head(account, "Transfer-Encoding: chunked", start=start, key=key) + body]


def _segments(account: TestAccount) -> list[bytes]:
    return [_head(account, f"Content-Length: {SEGMENTS}"), *[b" "] * SEGMENTS]


def _headed(*fields: str, start: str = "GET /v1/me", key: bool = True) -> Request:
    return lambda account: [_head(account, *fields, start=start, key=key)]


def _slow_head(account: TestAccount) -> list[bytes]:
    octets = _head(account, f"X-Long: {'x' * HEAD_BYTES}", start="GET /v1/me")
    return [octets[at : at + 1] for at in range(len(octets))]


def _posting(body: Body, path: str = "/v1/emails", *, key: bool = True) -> Request:
    def request(account: TestAccount) -> list[bytes]:
        content = body(account)
        return [_head(account, f"Content-Length: {len(content)}", start=f"POST {path}", key=key) + content]

    return request


def _octets(content: bytes) -> Body:
    return lambda _account: content


def _email(fields: Mapping[str, object]) -> Body:
    def body(account: TestAccount) -> bytes:
        return orjson.dumps(account.email(**fields))

    return body


def _raw_field(name: str, value: bytes) -> Body:
    """Return a message with one more field whose value is raw JSON."""
    return lambda account: _email({})(account)[:-1] + b',"%b":%b}' % (name.encode(), value)


def _filled(piece: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    return before + piece * (SIZE_BYTES // len(piece)) + after


def _many(form: str, count: int) -> dict[str, str]:
    return {form.format(number): "v" for number in range(count)}


def _file(name: str, size: int) -> dict[str, str]:
    return {"filename": name, "contentType": "application/octet-stream", "content": "A" * (size // 4 * 4)}


def _wrapped() -> dict[str, str]:
    return _file("a.bin", 4) | {"content": "AAAA" + "\r\n" * (SIZE_BYTES // 4)}


def _template(piece: str) -> Body:
    return _octets(orjson.dumps({"html": piece * (1_000_000 // len(piece)), "subject": "s", "values": {"a": "b"}}))


def _broken_batch(account: TestAccount) -> bytes:
    """Return a batch in which only the last recipient of each message is invalid."""
    message = orjson.loads(_email({"to": [*["a@people.test"] * 1_000, 1]})(account))
    return orjson.dumps({"messages": [message] * 100})


def _rows(_account: TestAccount) -> bytes:
    row = {"address": "ann@people.test"} | {f"f{number}": 1 for number in range(150)}
    return orjson.dumps({"suppressions": [row] * 1_000})


def _entries(count: int, form: bytes = b'"k%d":"v"') -> Body:
    """Return a message with so many entries of metadata."""

    def body(account: TestAccount) -> bytes:
        return _raw_field("metadata", b"{%b}" % b",".join([form % number for number in range(count)]))(account)

    return body


def _items(name: str, item: bytes, count: int = 5_000_000) -> Body:
    return lambda _account: b'{"%b":[%b]}' % (name.encode(), b",".join([item] * count))


_CHUNK_OF_512 = b"200\r\n%b\r\n" % (b" " * 512)
CASES: dict[str, Request] = {
    "body, no credentials: chunks of one octet": _chunks("POST /v1/auth/login", key=False),
    "body, GET: chunks of one octet": _chunks("GET /v1/me"),
    "body, unknown path: chunks of one octet": _chunks("POST /none", key=False),
    "body, wrong key: chunks of one octet": _chunks("POST /v1/emails", key=False),
    "body, key: chunks of one octet": _chunks("POST /v1/emails"),
    "body, key: segments of one octet": _segments,
    "body, key: chunks of 512 octets": _chunks("POST /v1/emails", piece=_CHUNK_OF_512),
    "body, key: extension on each chunk": _chunks("POST /v1/emails", piece=b"1;aaaaaaaa\r\n \r\n"),
    "head: segments of one octet": _slow_head,
    "head: 90 fields of 600 octets": _headed(*[f"X-{n}: {'x' * 600}" for n in range(90)]),
    "head: one field of 60 KB": _headed(f"X-Long: {'x' * HEAD_BYTES}"),
    "Authorization: 60 KB": _headed(f"Authorization: Bearer {'x' * HEAD_BYTES}", key=False),
    "Authorization: 60 KB of blanks": _headed(f"Authorization: a{' ' * HEAD_BYTES}b", key=False),
    "Accept: 60 KB of types": _headed(f"Accept: {'a/b;q=0.1,' * (HEAD_BYTES // 10)}"),
    "Content-Type: 60 KB of parameters": _headed(
        f"Content-Type: {'a/b;' * (HEAD_BYTES // 4)}", start="POST /v1/emails"
    ),
    "Cookie: 15,000 pairs": _headed(f"Cookie: {'a=b;' * (HEAD_BYTES // 4)}", key=False),
    "Cookie: 6,000 of the session's": _headed(f"Cookie: {'svc_session=;' * (HEAD_BYTES // 13)}", key=False),
    "Cookie: 60 KB of quotes": _headed(f"Cookie: svc_session={chr(34) * HEAD_BYTES}", key=False),
    "X-Request-Id: 60 KB": _headed(f"X-Request-Id: {'x' * HEAD_BYTES}"),
    "X-Forwarded-For: 60 KB of hops": _headed(f"X-Forwarded-For: {'1.1.1.1,' * (HEAD_BYTES // 8)}"),
    "query: 30,000 parameters": _headed(start=f"GET /v1/me?{'a&' * (HEAD_BYTES // 2)}"),
    "query: 15,000 of a list": _headed(start=f"GET /v1/messages?{'status=&' * (HEAD_BYTES // 8)}"),
    "query: 20,000 escapes": _headed(start=f"GET /v1/messages?search={'%41' * (HEAD_BYTES // 3)}"),
    "query, no credentials: 30,000 parameters": _headed(
        start=f"GET /v1/auth/idp/callback?{'a&' * (HEAD_BYTES // 2)}", key=False
    ),
    "path: 30,000 segments": _headed(start=f"GET {'/a' * (HEAD_BYTES // 2)}", key=False),
    "path: 20,000 escapes": _headed(start=f"GET /v1/suppressions/{'%41' * (HEAD_BYTES // 3)}"),
    "JSON: nested arrays": _posting(_octets(_filled(b"["))),
    "JSON: nested objects": _posting(_octets(_filled(b'{"a":'))),
    "JSON: nested in a free field": _posting(_raw_field("x", _filled(b"["))),
    "JSON: white space": _posting(_octets(_filled(b" "))),
    "JSON: a million entries": _posting(_entries(1_000_000)),
    "JSON: a million that end with a backslash": _posting(_entries(1_000_000, b'"k%d\\\\":"\\\\"')),
    "JSON: as many entries as are decoded": _posting(_entries(70_000)),
    "JSON: a million tags": _posting(_items("tags", b'"a"', 1_000_000)),
    "JSON: 5 million empty objects": _posting(_items("messages", b"{}"), "/v1/emails/batch"),
    "JSON: one field given again": _posting(_octets(_filled(b'"text":"",', b"{", b'"to":""}'))),
    "JSON: unknown fields": _posting(_octets(_filled(b'"a":1,', b"{", b'"to":""}'))),
    "JSON: a string of escapes": _posting(_raw_field("text", _filled(rb"\u00e9", b'"', b'"'))),
    "JSON: a string of surrogates": _posting(_raw_field("text", _filled(rb"\ud83d\ude00", b'"', b'"'))),
    "JSON: a number of 2 million digits": _posting(_raw_field("templateVersion", _filled(b"9"))),
    "JSON: a fraction of 2 million digits": _posting(_raw_field("templateVersion", _filled(b"9", b"0."))),
    "JSON: an exponent of 2 million digits": _posting(_raw_field("templateVersion", _filled(b"9", b"1e"))),
    "JSON: a field's name of 2 MB": _posting(_octets(_filled(b"a", b'{"', b'":1}'))),
    "JSON, no credentials: nested arrays": _posting(_octets(b"[" * 16_000), "/v1/auth/login", key=False),
    "to: 100,000 recipients": _posting(_email({"to": [f"{n}@people.test" for n in range(100_000)]})),
    "to: 100,000 of one": _posting(_email({"to": ["a@people.test"] * 100_000})),
    "to: a list that ends wrong": _posting(_email({"to": [*["a@people.test"] * 100_000, 1]})),
    "tags: 200,000": _posting(_email({"tags": ["t"] * 200_000})),
    "metadata: 100,000": _posting(_email({"metadata": _many("k{}", 100_000)})),
    "headers: 100,000": _posting(_email({"headers": _many("X-{}", 100_000)})),
    "variables: 100,000": _posting(_email({"variables": _many("k{}", 100_000)})),
    "attachments: one of 1.5 MB": _posting(_email({"attachments": [_file("a.bin", SIZE_BYTES)]})),
    "attachments: one of line ends": _posting(_email({"attachments": [_wrapped()]})),
    "attachments: 100": _posting(_email({"attachments": [_file(f"{n}.bin", 20_000) for n in range(100)]})),
    "attachments: 50,000": _posting(_email({"attachments": [_file("a.bin", 4)] * 50_000})),
    "text: one line of 2 MB": _posting(_email({"text": "x" * SIZE_BYTES})),
    "text: line ends": _posting(_email({"text": "\n" * SIZE_BYTES})),
    "text: control characters": _posting(_email({"text": "\x01" * (SIZE_BYTES // 6)})),
    "text: of another script": _posting(_email({"text": "é" * (SIZE_BYTES // 2)})),
    "html: open tags": _posting(_email({"html": "<" * SIZE_BYTES})),
    "html: tags": _posting(_email({"html": "<a>" * (SIZE_BYTES // 3)})),
    "template: sections": _posting(_template("{{#a}}{{#b}}"), "/v1/templates/preview"),
    "template: open braces": _posting(_template("{{"), "/v1/templates/preview"),
    "template: values": _posting(_template("{{a}}"), "/v1/templates/preview"),
    "batch: 100,000 messages": _posting(_octets(_filled(b"{},", b'{"messages":[', b"{}]}")), "/v1/emails/batch"),
    "batch: 100 broken messages": _posting(_broken_batch, "/v1/emails/batch"),
    "import: 1,000 rows of many fields": _posting(_rows, "/v1/suppressions/import"),
}  # fmt: skip


@pytest.mark.parametrize("request_of", sampled([pytest.param(case, id=name) for name, case in CASES.items()], 10))
async def test_a_request_costs_little_cpu(request_of: Request, pool: asyncpg.Pool, api_url: str) -> None:
    pieces = request_of(await make_account(pool))

    found = []
    for _ in range(TRIES):
        before = _cpu_ms(api_url)
        octets, status = await _exchange(api_url, pieces)
        await asyncio.sleep(SETTLE_S)
        found.append(_cpu_ms(api_url) - before)
        assert not status.startswith("5")
        if is_cheap(octets, found[-1]):
            return
    raise AssertionError(f"{octets:,} octets cost {min(found):,.0f} ms of CPU")


async def _exchange(url: str, pieces: list[bytes]) -> tuple[int, str]:
    """Send a request until it is answered; return the octets sent and the status, which is empty without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    if len(pieces) == 1:
        pieces = [pieces[0][at : at + WRITTEN_AT_ONCE] for at in range(0, len(pieces[0]), WRITTEN_AT_ONCE)]
    answer, sent = asyncio.create_task(reader.read(12)), 0
    try:
        with suppress(ConnectionError):
            for piece in pieces:
                if answer.done():
                    break
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)  # the reader's turn
                sent += len(piece)
        with suppress(ConnectionError):
            return sent, (await asyncio.wait_for(answer, PATIENCE_S))[9:12].decode("ascii", "replace")
        return sent, ""
    finally:
        answer.cancel()
        writer.transport.abort()


def _cpu_ms(url: str) -> float:
    return measure.sample({"api": [server_pid(url)]}).roles["api"].cpu_ms
