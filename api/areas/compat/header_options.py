"""Read the options of a send that clients can give only as header fields of the message. Pure.

Clients with fixed fields can't add `idempotencyKey` to a body, but all of them can add a header field to the message.
django-anymail sends tags and metadata to Resend as the fields X-Tags and X-Metadata with JSON
(https://anymail.dev/en/stable/esps/resend/).
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from engine.base.errors import invalid

KEY_FIELD: Final = "X-Waybill-Idempotency-Key"  # as over SMTP; it is not sent to the recipients
_TAGS: Final = "x-tags"
_METADATA: Final = "x-metadata"

Fields = Mapping[str, str] | None
Value = str | int | float | bool
Read = TypeVar("Read")


def with_key(key: str | None, headers: Fields) -> tuple[str | None, dict[str, str] | None]:
    """Return the idempotency key, given as `idempotencyKey` or as a header field, and the headers without that field.

    Raises the 400 if both are given and differ.
    """
    named = next((name for name in headers or () if name.lower() == KEY_FIELD.lower()), None)
    if headers is None or named is None:
        return key, None if headers is None else dict(headers)
    if key is not None and key != headers[named]:
        raise invalid("idempotencyKey", f"`idempotencyKey` and the header {KEY_FIELD} differ. Give one of the two.")
    return headers[named], {name: value for name, value in headers.items() if name != named} or None


def tags_of(headers: Fields) -> list[str] | None:
    """Return the tags of the header field X-Tags, None without it; another value is only a header's."""
    return _read(headers, _TAGS, list[str])


def metadata_of(headers: Fields) -> dict[str, Value] | None:
    """Return the entries of the header field X-Metadata, None without it; another value is only a header's."""
    return _read(headers, _METADATA, dict[str, Value])


def _read(headers: Fields, wanted: str, form: type[Read]) -> Read | None:
    text = next((value for name, value in (headers or {}).items() if name.lower() == wanted), None)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=form) or None
    except (msgspec.DecodeError, RecursionError):
        return None
