"""Requests that break HTTP's framing: each gets a prompt answer of the 4xx kind, and none is read in two ways.

Each row is written to a socket of its own, octet by octet as it stands here. ENVELOPE rows are refused by the API;
SERVER rows by the HTTP server before the API sees them, with an empty body (ops/decisions/0006 and the description of
the API list them). The server has to close the connection, so that nothing behind a broken request is taken for one.
"""

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import orjson
import pytest
from msgspec import Struct, structs

from engine.base.settings import Settings
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import serving
from tests.harness.raw_http import RawAnswer, exchange

MAX_BODY_BYTES = 1024 * 1024


class Served(Struct):
    """The API with small limits, and where it writes its log."""

    url: str
    log: Path


@pytest.fixture(scope="module")
def served(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One API process for the module; its log must not show a traceback afterwards."""
    log = tmp_path_factory.mktemp("framing") / "api.log"
    own = structs.replace(settings, body_deadline_s=1, max_request_bytes=MAX_BODY_BYTES)
    with serving(own, log) as url:
        yield Served(url, log)
    written = log.read_text("utf-8", "replace")
    assert "Traceback" not in written
    assert "panicked" not in written


def get(*fields: str, target: str = "/healthz", version: str = "1.1", method: str = "GET") -> bytes:
    """A request without a body that is well-formed apart from what `fields` and the rest say."""
    named = [] if any(field.lower().startswith("host") for field in fields) else ["Host: api.test"]
    return _written(f"{method} {target} HTTP/{version}", *named, *fields)


def post(*fields: str, body: bytes = b"", version: str = "1.1") -> bytes:
    """A request for a change, without credentials, whose body is framed by `fields`."""
    given = ("Host: api.test", "Content-Type: application/json", *fields)
    return _written(f"POST /v1/auth/login HTTP/{version}", *given) + body


def chunked(body: bytes, *fields: str) -> bytes:
    """A request for a change with this chunked body as it is."""
    return post("Transfer-Encoding: chunked", *fields, body=body)


def _written(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


LOGIN = b'{"email": "ann@people.test", "password": "no such person"}'
WHOLE = b"%x\r\n%b\r\n" % (len(LOGIN), LOGIN)
END = b"0\r\n\r\n"
NEXT = get()
MANY = 200_000

ENVELOPE: dict[str, tuple[bytes, int]] = {
    "Host is missing": (_written("GET /healthz HTTP/1.1"), 400),
    "Host is empty": (get("Host:"), 400),
    "two Hosts": (get("Host: a.test", "Host: b.test"), 400),
    "the same Host twice": (get("Host: a.test", "Host: a.test"), 400),
    "two Hosts in HTTP/1.0": (get("Host: a.test", "Host: b.test", version="1.0"), 400),
    "a list of Hosts": (get("Host: a.test, b.test"), 400),
    "a space in Host": (get("Host: a.test b.test"), 400),
    "a path in Host": (get("Host: a.test/../b"), 400),
    "credentials in Host": (get("Host: ann:secret@a.test"), 400),
    "credentials in an absolute target": (_written("GET http://ann:x@a.test/healthz HTTP/1.1"), 400),
    "a target without a path": (get(target="healthz"), 400),
    "a target of an authority": (get(target="a.test:80"), 400),
    "CONNECT": (get(target="a.test:80", method="CONNECT"), 400),
    "an unknown method": (get(method="FOO"), 400),
    "a method in lower case": (get(method="get"), 400),
    "the method that Falcon means WebSockets by": (get(method="WEBSOCKET"), 400),
    "a target too long for any path": (get(target="/" + "a" * 10_000), 404),
    "a WebSocket": (
        get(
            "Upgrade: WebSocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            target="/v1/messages/tail",
        ),
        400,
    ),
    "a WebSocket without its key": (get("Upgrade: websocket", "Connection: Upgrade"), 400),
    "a transfer coding before chunked": (chunked(WHOLE + END).replace(b": chunked", b": x, chunked"), 400),
    "gzip before chunked": (chunked(WHOLE + END).replace(b": chunked", b": gzip, chunked"), 400),
    "chunked twice": (chunked(WHOLE + END).replace(b": chunked", b": chunked, chunked"), 400),
    "an empty coding before chunked": (chunked(WHOLE + END).replace(b": chunked", b": ,chunked"), 400),
    "two Transfer-Encodings": (chunked(WHOLE + END, "Transfer-Encoding: chunked"), 400),
    "another Transfer-Encoding first": (
        post("Transfer-Encoding: x", "Transfer-Encoding: chunked", body=WHOLE + END),
        400,
    ),
    "a declared 10 TB": (post("Content-Length: 10000000000000"), 413),
    "a declared 10 TB, which waits for 100": (post("Content-Length: 10000000000000", "Expect: 100-continue"), 413),
    "a declared 10 TB on GET": (get("Content-Length: 10000000000000"), 413),
    "the largest Content-Length": (post("Content-Length: 18446744073709551613"), 413),
    "one octet over the limit, all of it sent": (
        post(f"Content-Length: {MAX_BODY_BYTES + 1}", body=b" " * (MAX_BODY_BYTES + 1)),
        413,
    ),
    "a chunk size of no digits": (chunked(b"zz\r\nabc\r\n" + END), 400),
    "an empty chunk size": (chunked(b"\r\nabc\r\n" + END), 400),
    "a chunk size with 0x": (chunked(b"0x5\r\nabcde\r\n" + END), 400),
    "a negative chunk size": (chunked(b"-5\r\nabcde\r\n" + END), 400),
    "a chunk size with a sign": (chunked(b"+5\r\nabcde\r\n" + END), 400),
    "a chunk size over 64 bits": (chunked(b"fffffffffffffffff\r\nabcde\r\n" + END), 400),
    "chunk lines that end in LF": (chunked(b"5\nabcde\n0\n\n"), 400),
    "a chunk that is longer than it says": (chunked(b"5\r\nabcdeXX\r\n" + END), 400),
    "a whole body, then a bad chunk": (chunked(WHOLE + b"zz\r\n\r\n"), 400),
    "an LF in a chunk extension": (chunked(b"5;a\nb\r\nabcde\r\n" + END), 400),
    "a chunk extension of 1 MB": (chunked(b"5;" + b"a" * 1_000_000 + b"\r\nabcde\r\n" + END), 400),
    "trailers of 1 MB": (chunked(WHOLE + b"0\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n"), 400),
    "a trailer without a colon": (chunked(WHOLE + b"0\r\ngarbage\r\n\r\n"), 400),
    "a request behind a bad chunk": (chunked(b"zz\r\n" + NEXT), 400),
    "a request behind a refused coding": (chunked(WHOLE + END + NEXT).replace(b": chunked", b": x, chunked"), 400),
    "a request behind two Hosts": (get("Host: a.test", "Host: b.test") + NEXT, 400),
    "a request behind a declared 10 TB": (post("Content-Length: 10000000000000") + NEXT, 413),
}
BROKEN_OFF: dict[str, bytes] = {  # and then the client stops sending
    "a whole JSON text, and octets missing": post("Content-Length: 5000", body=LOGIN),
    "a whole JSON text, and no last chunk": chunked(WHOLE),
    "within a chunk": chunked(WHOLE[:-10]),
    "before any octet": post("Content-Length: 5000"),
    "within the trailers": chunked(WHOLE + b"0\r\nX: y"),
}
SERVER: dict[str, tuple[bytes, int]] = {
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", 400),
    "HTTP/1.2": (get(version="1.2"), 400),
    "HTTP/2.0": (get(version="2.0"), 400),
    "no HTTP": (b"no such protocol\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200, 400),
    "a method with a symbol": (get(method="G@T"), 400),
    "a space in the target": (get(target="/health z"), 400),
    "tabs in the request line": (b"GET\t/healthz\tHTTP/1.1\r\nHost: a.test\r\n\r\n", 400),
    "octets of Latin-1 in the target": (get(target="/m\xe9"), 400),
    "octets of Latin-1 in the query": (get(target="/v1/me?\xe9"), 400),
    "a space before the colon": (get("Host : a.test"), 400),
    "a folded field": (get("X-A: b\r\n c"), 400),
    "a space before the first field": (_written("GET /healthz HTTP/1.1", " Host: a.test"), 400),
    "NUL in a name": (get("X\0A: b"), 400),
    "NUL in a value": (get("X-A: b\0"), 400),
    "a bare CR in a value": (get("X-A: b\rc"), 400),
    "a line without a colon": (get("garbage"), 400),
    "an empty name": (get(": b"), 400),
    "101 fields": (get(*(f"X-{number}: y" for number in range(100))), 431),
    "a field of 200,000 octets": (get("X-A: " + "a" * MANY), 431),
    "a target of 70,000 octets": (get(target="/" + "a" * 70_000), 414),
    "a target of a million octets": (get(target="/" + "a" * 1_000_000), 431),
    "two Content-Lengths that differ": (post("Content-Length: 5", "Content-Length: 6", body=b"abcdef"), 400),
    "a list of Content-Lengths": (post("Content-Length: 5, 5", body=b"abcde"), 400),
    "Content-Length with a sign": (post("Content-Length: +5", body=b"abcde"), 400),
    "a negative Content-Length": (post("Content-Length: -5", body=b"abcde"), 400),
    "Content-Length in hexadecimal": (post("Content-Length: 0x5", body=b"abcde"), 400),
    "an empty Content-Length": (post("Content-Length:", body=b"abcde"), 400),
    "Content-Length over 64 bits": (post("Content-Length: 18446744073709551616"), 400),
    "Content-Length at the end of 64 bits": (post("Content-Length: 18446744073709551614"), 431),
    "a coding after chunked": (post("Transfer-Encoding: chunked, x", body=WHOLE + END), 400),
    "no chunked": (post("Transfer-Encoding: identity", "Content-Length: 5", body=b"abcde"), 400),
    "another coding second": (chunked(WHOLE + END, "Transfer-Encoding: identity"), 400),
    "xchunked": (post("Transfer-Encoding: xchunked", body=WHOLE + END), 400),
    "a vertical tab before chunked": (post("Transfer-Encoding: \x0bchunked", body=WHOLE + END), 400),
    "Transfer-Encoding in HTTP/1.0": (post("Transfer-Encoding: chunked", body=WHOLE + END, version="1.0"), 400),
    "a request behind a bad field": (get("X\0A: b") + NEXT, 400),
}
CLOSE = "Connection: close"
ACCEPTED: dict[str, tuple[bytes, list[int]]] = {  # as RFC 9112 allows or demands, and read in one way only
    "HTTP/1.0": (get(version="1.0"), [200]),
    "HTTP/1.0 without Host": (b"GET /healthz HTTP/1.0\r\n\r\n", [200]),
    "HTTP/1.0 that keeps the connection": (
        get("Connection: keep-alive", version="1.0") + get(version="1.0"),
        [200, 200],
    ),
    "a body in HTTP/1.0": (post(f"Content-Length: {len(LOGIN)}", body=LOGIN, version="1.0"), [401]),
    "an absolute target (3.2.2)": (get("Host: b.test", CLOSE, target="http://a.test/healthz"), [200]),
    "OPTIONS of the server": (get(CLOSE, target="*", method="OPTIONS"), [404]),
    "lines that end in LF (2.2)": (b"GET /healthz HTTP/1.1\nHost: a.test\nConnection: close\n\n", [200]),
    "an empty line before the request (2.2)": (b"\r\n" + get(CLOSE), [200]),
    "Content-Length repeated (RFC 9110 8.6)": (
        post(*[f"Content-Length: {len(LOGIN)}"] * 2, CLOSE, body=LOGIN),
        [401],
    ),
    "chunked wins over Content-Length (6.1)": (chunked(WHOLE + END + NEXT, "Content-Length: 5"), [401]),
    "chunked behind Content-Length (6.1)": (
        post("Content-Length: 5", "Transfer-Encoding: chunked", body=WHOLE + END + NEXT),
        [401],
    ),
    "a chunk extension (7.1.1)": (chunked(WHOLE.replace(b"\r\n", b";a=b\r\n", 1) + END, CLOSE), [401]),
    "trailers (7.1.2)": (chunked(WHOLE + b"0\r\nContent-Length: 9\r\nHost: b.test\r\n\r\n", CLOSE), [401]),
    "a coding in capitals (RFC 9110 8.4.1)": (
        chunked(WHOLE + END, CLOSE).replace(b": chunked", b": CHUNKED"),
        [401],
    ),
    "100-continue": (post("Expect: 100-continue", f"Content-Length: {len(LOGIN)}", CLOSE, body=LOGIN), [100, 401]),
    "an upgrade to HTTP/2 is passed over (RFC 9110 7.8)": (get("Upgrade: h2c", "Connection: Upgrade, close"), [200]),
    "100 fields": (get(CLOSE, *(f"X-{number}: y" for number in range(98))), [200]),
    "a field of 30,000 octets": (get(CLOSE, "X-A: " + "a" * 30_000), [200]),
    "octets of Latin-1 in a value": (get(CLOSE, "X-A: \xe9\xff", "X-Request-Id: \xe9\xff\xff\xff\xff\xff"), [200]),
    "pipelined requests": (NEXT + NEXT + get(CLOSE), [200, 200, 200]),
    "a request behind a 404": (get(target="/none") + get(CLOSE), [404, 200]),
    "a request behind a body nobody reads": (get("Content-Length: 5") + b"abcde" + get(CLOSE), [200, 200]),
}


@pytest.mark.parametrize("name", ENVELOPE)
async def test_a_broken_request_is_refused_in_the_envelope_and_its_connection_ends(served: Served, name: str) -> None:
    octets, status = ENVELOPE[name]
    found = await exchange(served.url, octets)

    assert [(one.status, one.error_type is not None) for one in found] == [(status, True)], found
    _is_careful(found[0])


@pytest.mark.parametrize("name", BROKEN_OFF)
async def test_a_body_that_breaks_off_is_never_taken_for_a_whole_one(served: Served, name: str) -> None:
    found = await exchange(served.url, BROKEN_OFF[name], ends=True)

    assert [(one.status, one.error_type) for one in found] == [(400, "invalid_request")], found
    _is_careful(found[0])


@pytest.mark.exhaustive
async def test_a_chunk_that_never_comes_is_given_up(served: Served) -> None:
    found = await exchange(served.url, chunked(b"ffffffffffffffff\r\nabcde\r\n" + END))

    assert [(one.status, one.error_type) for one in found] == [(400, "invalid_request")], found


@pytest.mark.parametrize("name", SERVER)
async def test_what_the_server_refuses_itself_has_no_body_and_ends_the_connection(served: Served, name: str) -> None:
    octets, status = SERVER[name]
    found = await exchange(served.url, octets)

    assert [(one.status, one.body) for one in found] == [(status, b"")], found
    assert found[0].headers["connection"] == "close"


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_http_allows_is_answered_once_for_each_request(served: Served, name: str) -> None:
    octets, statuses = ACCEPTED[name]
    found = await exchange(served.url, octets)

    assert [one.status for one in found] == statuses, found


@pytest.mark.parametrize("octets", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""], ids=["HTTP/2", "nothing"])
async def test_another_protocol_and_silence_end_without_an_answer(served: Served, octets: bytes) -> None:
    assert await exchange(served.url, octets, ends=not octets) == []


@pytest.mark.parametrize("broken", [WHOLE, WHOLE + b"zz\r\n"], ids=["breaks off", "bad chunk"])
async def test_a_send_that_breaks_off_sends_nothing(served: Served, pool: asyncpg.Pool, broken: bytes) -> None:
    account = await make_account(pool)
    request = orjson.dumps(account.email())
    chunk = b"%x\r\n%b\r\n" % (len(request), request)
    sent = _send(account, "Transfer-Encoding: chunked") + chunk

    assert [one.status for one in await exchange(served.url, sent + broken.replace(WHOLE, b""), ends=True)] == [400]
    assert await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = $1", account.id) == 0
    assert [one.status for one in await exchange(served.url, sent + END, ends=False)] == [202]


def _send(account: TestAccount, framing: str) -> bytes:
    given = ("Host: api.test", f"Authorization: Bearer {account.token}", "Content-Type: application/json")
    return _written("POST /v1/emails HTTP/1.1", *given, framing, CLOSE)


def _is_careful(answer: RawAnswer) -> None:
    """A refusal of the API carries what all its answers carry, and says that the connection ends."""
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]
