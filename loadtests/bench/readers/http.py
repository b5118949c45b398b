"""Requests with the highest cost in HTTP processing: framing, headers, query strings, cookies."""

from collections.abc import Callable

from loadtests.bench.readers.cases import SIZE_BYTES, HttpCase, RawRequest, ReaderTarget

SEGMENTS = 50_000
HEAD_BYTES = 60_000  # below the 64 KB at which the server refuses a target


def head(target: ReaderTarget, *fields: str, start: str = "POST /v1/emails", key: bool = True) -> bytes:
    """Return a request's header, with the API key unless `key` is False."""
    lines = [f"{start} HTTP/1.1", f"Host: {target.host}", "Connection: close"]
    if key:
        lines.append(f"Authorization: Bearer {target.key}")
    return "\r\n".join([*lines, *fields, "", ""]).encode()


def _chunks(start: str, *, key: bool, piece: bytes = b"1\r\n \r\n") -> Callable[[ReaderTarget], RawRequest]:
    body = piece * (SIZE_BYTES // len(piece)) + b"0\r\n\r\n"
    return lambda target: RawRequest([head(target, "Transfer-Encoding: chunked", start=start, key=key) + body])


def _segments(target: ReaderTarget) -> RawRequest:
    return RawRequest([head(target, f"Content-Length: {SEGMENTS}"), *[b" "] * SEGMENTS], apart=True)


def _headed(*fields: str, start: str = "GET /v1/me", key: bool = True) -> Callable[[ReaderTarget], RawRequest]:
    return lambda target: RawRequest([head(target, *fields, start=start, key=key)])


def _slow_head(target: ReaderTarget) -> RawRequest:
    octets = head(target, f"X-Long: {'x' * HEAD_BYTES}", start="GET /v1/me")
    return RawRequest([octets[at : at + 1] for at in range(len(octets))], apart=True)


_CHUNK_OF_512 = b"200\r\n%b\r\n" % (b" " * 512)
_PIECES = "256 pieces, then 512 octets each"
_DRAINED = "64 pieces, then 1 KB each"
_HEAD = "100 fields, 64 KB"
_QUERY = "100 parameters, 64 KB"
CASES = (
    HttpCase("body, no credentials", "chunks of one octet", _PIECES, _chunks("POST /v1/auth/login", key=False)),
    HttpCase("body, GET", "chunks of one octet", _PIECES, _chunks("GET /v1/me", key=True)),
    HttpCase("body, unknown path", "chunks of one octet", _DRAINED, _chunks("POST /none", key=False)),
    HttpCase("body, wrong key", "chunks of one octet", _DRAINED, _chunks("POST /v1/emails", key=False)),
    HttpCase("body, key", "chunks of one octet", _PIECES, _chunks("POST /v1/emails", key=True)),
    HttpCase("body, key", "segments of one octet", _PIECES, _segments),
    HttpCase(
        "body, key",
        "chunks of 512 octets",
        "60 MB",
        _chunks("POST /v1/emails", key=True, piece=_CHUNK_OF_512),
    ),
    HttpCase(
        "body, key",
        "extension on each chunk",
        "16 KB of them",
        _chunks("POST /v1/emails", key=True, piece=b"1;aaaaaaaa\r\n \r\n"),
    ),
    HttpCase("head", "segments of one octet", _HEAD, _slow_head),
    HttpCase("head", "90 fields of 600 octets", _HEAD, _headed(*[f"X-{n}: {'x' * 600}" for n in range(90)])),
    HttpCase("head", "one field of 60 KB", _HEAD, _headed(f"X-Long: {'x' * HEAD_BYTES}")),
    HttpCase("Authorization", "60 KB", _HEAD, _headed(f"Authorization: Bearer {'x' * HEAD_BYTES}", key=False)),
    HttpCase("Authorization", "60 KB of blanks", _HEAD, _headed(f"Authorization: a{' ' * HEAD_BYTES}b", key=False)),
    HttpCase("Accept", "60 KB of types", _HEAD, _headed(f"Accept: {'a/b;q=0.1,' * (HEAD_BYTES // 10)}")),
    HttpCase(
        "Content-Type",
        "60 KB of parameters",
        _HEAD,
        _headed(f"Content-Type: {'a/b;' * (HEAD_BYTES // 4)}", start="POST /v1/emails"),
    ),
    HttpCase("Cookie", "15,000 pairs", _HEAD, _headed(f"Cookie: {'a=b;' * (HEAD_BYTES // 4)}", key=False)),
    HttpCase(
        "Cookie", "6,000 of the session's", _HEAD, _headed(f"Cookie: {'svc_session=;' * (HEAD_BYTES // 13)}", key=False)
    ),
    HttpCase("Cookie", "60 KB of quotes", _HEAD, _headed(f"Cookie: svc_session={chr(34) * HEAD_BYTES}", key=False)),
    HttpCase("X-Request-Id", "60 KB", _HEAD, _headed(f"X-Request-Id: {'x' * HEAD_BYTES}")),
    HttpCase("X-Forwarded-For", "60 KB of hops", _HEAD, _headed(f"X-Forwarded-For: {'1.1.1.1,' * (HEAD_BYTES // 8)}")),
    HttpCase("query", "30,000 parameters", _QUERY, _headed(start=f"GET /v1/me?{'a&' * (HEAD_BYTES // 2)}")),
    HttpCase("query", "15,000 of a list", _QUERY, _headed(start=f"GET /v1/messages?{'status=&' * (HEAD_BYTES // 8)}")),
    HttpCase("query", "20,000 escapes", _QUERY, _headed(start=f"GET /v1/messages?search={'%41' * (HEAD_BYTES // 3)}")),
    HttpCase(
        "query, no credentials",
        "30,000 parameters",
        _QUERY,
        _headed(start=f"GET /v1/auth/idp/callback?{'a&' * (HEAD_BYTES // 2)}", key=False),
    ),
    HttpCase("path", "30,000 segments", "64 KB", _headed(start=f"GET {'/a' * (HEAD_BYTES // 2)}", key=False)),
    HttpCase("path", "20,000 escapes", "64 KB", _headed(start=f"GET /v1/suppressions/{'%41' * (HEAD_BYTES // 3)}")),
)
