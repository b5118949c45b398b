"""JSON bodies with the highest cost in decoding, validation and sending."""

from collections.abc import Callable, Mapping

import orjson

from loadtests.bench.readers.cases import SIZE_BYTES, HttpCase, RawRequest, ReaderTarget
from loadtests.bench.readers.http import head

Body = Callable[[ReaderTarget], bytes]


def _posting(body: Body, path: str = "/v1/emails", *, key: bool = True) -> Callable[[ReaderTarget], RawRequest]:
    def request(target: ReaderTarget) -> RawRequest:
        content = body(target)
        return RawRequest([head(target, f"Content-Length: {len(content)}", start=f"POST {path}", key=key) + content])

    return request


def _octets(content: bytes) -> Body:
    return lambda _target: content


def _email(fields: Mapping[str, object]) -> Body:
    def body(target: ReaderTarget) -> bytes:
        return orjson.dumps(
            {"from": target.sender, "to": "ann@bench-1.test", "subject": "s", "text": "t"} | dict(fields)
        )

    return body


def _raw_field(name: str, value: bytes) -> Body:
    """Return a message with one more field whose value is raw JSON."""
    return lambda target: _email({})(target)[:-1] + b',"%b":%b}' % (name.encode(), value)


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


def _broken_batch(target: ReaderTarget) -> bytes:
    """Return a batch in which only the last recipient of each message is invalid."""
    message = orjson.loads(_email({"to": [*["a@people.test"] * 1_000, 1]})(target))
    return orjson.dumps({"messages": [message] * 100})


def _rows(_target: ReaderTarget) -> bytes:
    row = {"address": "ann@people.test"} | {f"f{number}": 1 for number in range(150)}
    return orjson.dumps({"suppressions": [row] * 1_000})


def _entries(count: int, form: bytes = b'"k%d":"v"') -> Body:
    """Return a message with so many entries of metadata."""

    def body(target: ReaderTarget) -> bytes:
        return _raw_field("metadata", b"{%b}" % b",".join([form % number for number in range(count)]))(target)

    return body


def _items(name: str, item: bytes, count: int = 5_000_000) -> Body:
    return lambda _target: b'{"%b":[%b]}' % (name.encode(), b",".join([item] * count))


_SIZE = "size of a body"
_VALUES = "number of values"
CASES = (
    HttpCase("JSON", "nested arrays", _SIZE, _posting(_octets(_filled(b"[")))),
    HttpCase("JSON", "nested objects", _SIZE, _posting(_octets(_filled(b'{"a":')))),
    HttpCase("JSON", "nested in a free field", _SIZE, _posting(_raw_field("x", _filled(b"[")))),
    HttpCase("JSON", "white space", _SIZE, _posting(_octets(_filled(b" ")))),
    HttpCase("JSON", "a million entries", _VALUES, _posting(_entries(1_000_000))),
    HttpCase(
        "JSON", "a million that end with a backslash", _VALUES, _posting(_entries(1_000_000, b'"k%d\\\\":"\\\\"'))
    ),
    HttpCase("JSON", "as many entries as are decoded", _VALUES, _posting(_entries(70_000))),
    HttpCase("JSON", "a million tags", _VALUES, _posting(_items("tags", b'"a"', 1_000_000))),
    HttpCase("JSON", "5 million empty objects", _VALUES, _posting(_items("messages", b"{}"), "/v1/emails/batch")),
    HttpCase("JSON", "one field given again", _SIZE, _posting(_octets(_filled(b'"text":"",', b"{", b'"to":""}')))),
    HttpCase("JSON", "unknown fields", _SIZE, _posting(_octets(_filled(b'"a":1,', b"{", b'"to":""}')))),
    HttpCase("JSON", "a string of escapes", _SIZE, _posting(_raw_field("text", _filled(rb"\u00e9", b'"', b'"')))),
    HttpCase(
        "JSON", "a string of surrogates", _SIZE, _posting(_raw_field("text", _filled(rb"\ud83d\ude00", b'"', b'"')))
    ),
    HttpCase("JSON", "a number of 2 million digits", _SIZE, _posting(_raw_field("templateVersion", _filled(b"9")))),
    HttpCase(
        "JSON", "a fraction of 2 million digits", _SIZE, _posting(_raw_field("templateVersion", _filled(b"9", b"0.")))
    ),
    HttpCase(
        "JSON", "an exponent of 2 million digits", _SIZE, _posting(_raw_field("templateVersion", _filled(b"9", b"1e")))
    ),
    HttpCase("JSON", "a field's name of 2 MB", _SIZE, _posting(_octets(_filled(b"a", b'{"', b'":1}')))),
    HttpCase(
        "JSON, no credentials", "nested arrays", "64 KB", _posting(_octets(b"[" * 16_000), "/v1/auth/login", key=False)
    ),
    HttpCase("to", "100,000 recipients", "50", _posting(_email({"to": [f"{n}@people.test" for n in range(100_000)]}))),
    HttpCase("to", "100,000 of one", "50", _posting(_email({"to": ["a@people.test"] * 100_000}))),
    HttpCase("to", "a list that ends wrong", "50", _posting(_email({"to": [*["a@people.test"] * 100_000, 1]}))),
    HttpCase("tags", "200,000", "10", _posting(_email({"tags": ["t"] * 200_000}))),
    HttpCase("metadata", "100,000", "rules", _posting(_email({"metadata": _many("k{}", 100_000)}))),
    HttpCase("headers", "100,000", "rules", _posting(_email({"headers": _many("X-{}", 100_000)}))),
    HttpCase("variables", "100,000", "rules", _posting(_email({"variables": _many("k{}", 100_000)}))),
    HttpCase("attachments", "one of 1.5 MB", _SIZE, _posting(_email({"attachments": [_file("a.bin", SIZE_BYTES)]}))),
    HttpCase("attachments", "one of line ends", _SIZE, _posting(_email({"attachments": [_wrapped()]}))),
    HttpCase(
        "attachments", "100", "100", _posting(_email({"attachments": [_file(f"{n}.bin", 20_000) for n in range(100)]}))
    ),
    HttpCase("attachments", "50,000", "100", _posting(_email({"attachments": [_file("a.bin", 4)] * 50_000}))),
    HttpCase("text", "one line of 2 MB", _SIZE, _posting(_email({"text": "x" * SIZE_BYTES}))),
    HttpCase("text", "line ends", _SIZE, _posting(_email({"text": "\n" * SIZE_BYTES}))),
    HttpCase("text", "control characters", _SIZE, _posting(_email({"text": "\x01" * (SIZE_BYTES // 6)}))),
    HttpCase("text", "of another script", _SIZE, _posting(_email({"text": "é" * (SIZE_BYTES // 2)}))),
    HttpCase("html", "open tags", _SIZE, _posting(_email({"html": "<" * SIZE_BYTES}))),
    HttpCase("html", "tags", _SIZE, _posting(_email({"html": "<a>" * (SIZE_BYTES // 3)}))),
    HttpCase("template", "sections", "rules", _posting(_template("{{#a}}{{#b}}"), "/v1/templates/preview")),
    HttpCase("template", "open braces", "rules", _posting(_template("{{"), "/v1/templates/preview")),
    HttpCase("template", "values", "rules", _posting(_template("{{a}}"), "/v1/templates/preview")),
    HttpCase(
        "batch",
        "100,000 messages",
        "100",
        _posting(_octets(_filled(b"{},", b'{"messages":[', b"{}]}")), "/v1/emails/batch"),
    ),
    HttpCase("batch", "100 broken messages", "100", _posting(_broken_batch, "/v1/emails/batch")),
    HttpCase("import", "1,000 rows of many fields", "1,000 rows, 2 MB", _posting(_rows, "/v1/suppressions/import")),
)
