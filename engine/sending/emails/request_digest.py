"""The digest of a send request, which tells two requests with one idempotency key apart. Pure."""

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import structs

from engine.sending.emails.defaults import DEFAULT_STREAM, min_tls_to_store
from engine.sending.emails.types import SendRequest

# Values equal to an absent field: a request that states the default has the same digest.
_MEANT: dict[str, object] = {
    "cc": [], "bcc": [], "subject": "", "headers": {}, "stream": DEFAULT_STREAM, "tags": [], "metadata": {},
    "attachments": [],
}  # fmt: skip


_DATA_ENCODER = msgspec.json.Encoder(order="deterministic")  # the order of members has no meaning
_TRACE_FIELDS = frozenset({"traceparent", "tracestate"})
_EMPTY_IS_ABSENT = frozenset({"reply_to", "list_unsubscribe", "variables"})

# Fields of the first version, which every stored digest covers whether or not they are given. A later field counts only
# where a request gives it: a replay across the upgrade that adds the field still has the digest of the first request.
_FIRST_FIELDS = frozenset({
    "from_", "to", "cc", "bcc", "subject", "text", "html", "reply_to", "headers", "list_unsubscribe", "stream",
    "template", "template_version", "variables", "tags", "metadata", "idempotency_key", "scheduled_at", "deliver_by",
    "attachments",
})  # fmt: skip


def request_digest(request: SendRequest) -> bytes:
    """Return 16 bytes that are equal for two requests with the same content.

    Compared when an idempotency key is replayed.
    """
    hashed = blake2b(digest_size=16)
    for field, default in zip(request.__struct_fields__, _defaults(type(request)), strict=True):
        value = getattr(request, field)
        if field not in _FIRST_FIELDS:
            value = _later_field(field, value)
            if value is None or value == default:
                continue
        hashed.update(repr(_canonical(field, value)).encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.digest()


def _later_field(field: str, value: Any) -> Any:
    """Return one value for all ways to write a field that the first version did not have; None if absent."""
    if field == "min_tls":
        return min_tls_to_store(value)
    if field == "data":
        return _DATA_ENCODER.encode(value) if value else None
    return value


def _canonical(field: str, value: Any) -> object:
    """Return one value for all ways to write the same content of a field."""
    if value is None:
        return _MEANT.get(field)
    if field == "headers":  # a retry may have a span of its own
        return {name: text for name, text in value.items() if name.lower() not in _TRACE_FIELDS}
    if field in _EMPTY_IS_ABSENT:
        return value or None
    if field == "attachments":
        return [
            (one.filename, one.content_type, one.content, one.disposition or "attachment", one.cid or None)
            for one in value
        ]
    return value


@lru_cache
def _defaults(request: type[SendRequest]) -> tuple[object, ...]:
    return tuple(field.default for field in structs.fields(request))
