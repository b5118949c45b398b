"""Received messages as the API shows them: each property is a column of the row, or computed."""

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, get_args, get_type_hints

from msgspec import json, structs

from api.areas.inbound_messages.schemas import ReceivedMessage
from engine.base import clock, ids
from engine.base.sql_types import Json
from engine.receiving.inbound_messages import rules
from engine.receiving.inbound_messages.types import ReceivedRow

WHAT = rules.WHAT
_COMPUTED: Final[Mapping[str, Callable[[ReceivedRow], object]]] = {
    "id": lambda row: ids.format_id(ids.Kind.RECEIVED, row.id),
    "received_at": lambda row: clock.iso(rules.received_at(row.id)),
    "replies_to": lambda row: None if row.replies_to is None else ids.format_id(ids.Kind.MESSAGE, row.replies_to),
}
_OTHER_COLUMNS: Final = {"from_": "sender", "date": "sent_at", "read": "is_read", "spam": "is_spam"}


def message_of(row: ReceivedRow) -> ReceivedMessage:
    """Return a message as the list shows it."""
    return ReceivedMessage(**fields_of(row))


def fields_of(row: ReceivedRow) -> dict[str, Any]:
    """Return the fields that the list and the single message have in common."""
    return {name: read(row) for name, read in _READERS.items()}


def _reader(field: structs.FieldInfo) -> Callable[[ReceivedRow], object]:
    """Return the function that reads a property from the row: JSON decoded, a time as text."""
    if field.name in _COMPUTED:
        return _COMPUTED[field.name]
    column = _OTHER_COLUMNS.get(field.name, field.name)
    value = attrgetter(column)
    hint = get_type_hints(ReceivedRow, include_extras=True)[column]
    kinds = (hint, *get_args(hint))
    if Json not in kinds and datetime not in kinds:
        return value
    shown = json.Decoder(field.type).decode if Json in kinds else clock.iso
    return lambda row: None if value(row) is None else shown(value(row))


_READERS: Final = {field.name: _reader(field) for field in structs.fields(ReceivedMessage)}
