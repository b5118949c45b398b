"""Build the parts of a request from the arguments of a method."""

import base64
import json
import mimetypes
import os
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote


class Omit(Enum):
    """The type of `OMIT`, the default of optional arguments: the field is left out. None is sent as null."""

    OMIT = "omit"


OMIT: Final = Omit.OMIT


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the caller has set."""
    return {name: value for name, value in values.items() if value is not OMIT}


def query(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query parameters that the caller has set; None leaves a parameter out too."""
    return {name: _text(value) for name, value in values.items() if value is not OMIT and value is not None}


def with_key(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body with an `idempotencyKey`; a key of the caller stays."""
    return body if body.get("idempotencyKey") is not None else {**body, "idempotencyKey": f"auto-{uuid.uuid4()}"}


def with_keys(body: dict[str, Any], items: str) -> dict[str, Any]:
    """Return the body with an `idempotencyKey` in each object of the list `items`."""
    return {**body, items: [with_key(dict(item)) for item in body[items]]}


def path_segment(value: str) -> str:
    """Return a path parameter percent-encoded; raises ValueError for one that would name another path."""
    if value in {"", ".", ".."}:
        raise ValueError(f"{value!r} is not an id")
    return quote(value, safe="")


def setting(value: str | None, name: str, variable: str) -> str:
    """Return an argument of the client, or else the value of its environment variable; ValueError without either."""
    found = os.environ.get(variable) if value is None else value
    if not found:
        raise ValueError(f"pass {name}, or set the environment variable {variable}")
    return found


def encode(body: object) -> bytes:
    """Return the JSON of a body; aware datetimes become ISO 8601 in UTC."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def attachment(
    filename: str | Path, content: bytes | None = None, *, content_type: str | None = None, cid: str | None = None
) -> Any:
    """Return an attachment for `attachments`; without `content` the file at that path is read.

    `cid` makes it inline, for `<img src="cid:…">`. The content type is guessed from the name unless given.
    """
    path = Path(filename)
    data = path.read_bytes() if content is None else content
    kind = content_type or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    found = {"filename": path.name, "contentType": kind, "content": base64.b64encode(data).decode()}
    return found if cid is None else {**found, "disposition": "inline", "cid": cid}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return list(value)
    raise TypeError(f"{type(value).__name__} can't be sent as JSON")


def _text(value: object) -> object:
    if isinstance(value, datetime):
        return _instant(value)
    return value if isinstance(value, str | int | float | bool) or not isinstance(value, Iterable) else list(value)


def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError("the datetime has no time zone; use datetime.now(timezone.utc) or .astimezone()")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
