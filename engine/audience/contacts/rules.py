"""Check and merge the values of contacts, lists and segments. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.audience.contacts.types import Consent, Fields, FieldValue
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.text import checked_line, checked_text, is_line
from engine.mail.address import BadAddress, bare_address, canonical

MAX_NAME = 320
MAX_FIELDS = 50
MAX_FIELD_TEXT = 1_000
MAX_FIELDS_BYTES = 16 * 1024
MAX_INTEGER = 2**63 - 1
MAX_FRACTION = 1e18  # PostgreSQL stores decimal numbers of any size digit by digit
MAX_LIST_NAME = 120
MAX_DESCRIPTION = 500

# Strongest first: the consent of a contact never becomes weaker.
CONSENTS: tuple[Consent, ...] = (Consent.SIGNED_UP, Consent.CUSTOMER, Consent.IMPORTED_WITH_CONSENT)

_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_RESERVED = frozenset({"email", "name"})  # merge fields of every contact


def checked_email(text: str, field: str = "email") -> tuple[str, str]:
    """Return an address as shown and in canonical form; raise the 422 `invalid_address`."""
    try:
        address = bare_address(text)
        return address, canonical(address)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`{field}` is not an email address: {error}", address=text, field=field
        ) from None


def checked_name(name: str | None) -> str | None:
    """Return the name without surrounding blanks, None for an empty one; raise the 400 for an unusable one."""
    line = (name or "").strip()
    if len(line) > MAX_NAME:
        raise invalid("name", f"`name` has {len(line)} characters; the limit is {MAX_NAME}. Shorten it.")
    if not is_line(line):
        raise invalid("name", "`name` must be one line without control characters.")
    return line or None


def checked_fields(fields: Mapping[str, Any]) -> dict[str, FieldValue]:
    """Return the fields of a contact; raise the 400 that names the first unusable one."""
    return check_size({name: _checked_value(checked_field_name(name), value) for name, value in fields.items()})


def checked_changes(fields: Mapping[str, Any]) -> dict[str, FieldValue | None]:
    """Return changes of fields, None for those to be removed; raise the 400 that names the first unusable one."""
    if len(fields) > 2 * MAX_FIELDS:
        raise invalid("fields", f"`fields` changes {len(fields)} fields; the limit is {2 * MAX_FIELDS}. Remove some.")
    return {
        name: None if value is None else _checked_value(checked_field_name(name), value)
        for name, value in fields.items()
    }


def merged(fields: Fields, changes: Mapping[str, FieldValue | None]) -> dict[str, FieldValue]:
    """Return the fields after changes; raise the 400 if they are too many or too large."""
    after = {**fields, **changes}
    return check_size({name: value for name, value in after.items() if value is not None})


def check_size(fields: dict[str, FieldValue]) -> dict[str, FieldValue]:
    """Return the fields if a contact may have so many; raise the 400 otherwise."""
    if len(fields) > MAX_FIELDS:
        raise invalid("fields", f"The contact would have {len(fields)} fields; the limit is {MAX_FIELDS}. Remove some.")
    size = len(fields_text(fields).encode())
    if size > MAX_FIELDS_BYTES:
        raise invalid("fields", f"`fields` has {size} octets as JSON; the limit is {MAX_FIELDS_BYTES}. Remove some.")
    return fields


def checked_field_name(name: str) -> str:
    """Return the name of a contact field; raise the 400 for an unusable one."""
    if name in _RESERVED:
        raise invalid(
            f"fields.{name}", f"`fields` can't contain `{name}`, which every contact has. Set it outside `fields`."
        )
    if _FIELD_NAME.fullmatch(name) is None:
        raise invalid(
            "fields",
            f"{name[:80]!r} isn't a valid field name. Begin with a letter or `_`; use at most 64 letters, digits, "
            "`_`, `.` and `-`.",
        )
    return name


def fields_text(fields: Fields) -> str:
    """Return fields as compact JSON."""
    return msgspec.json.encode(fields).decode()


def fields_of(text: str) -> dict[str, FieldValue]:
    """Return stored fields."""
    found: dict[str, FieldValue] = msgspec.json.decode(text)
    return found


def same_fields(one: Fields, other: Fields) -> bool:
    """Return True if the fields have the same values of the same types."""
    return one.keys() == other.keys() and all(same_value(value, other[name]) for name, value in one.items())


def same_value(one: FieldValue, other: FieldValue) -> bool:
    """Return True for equal values of the same type: 1, 1.0 and true differ."""
    return one == other and type(one) is type(other)


def stronger(one: Consent, other: Consent) -> Consent:
    """Return the stronger of two consents."""
    return min(one, other, key=CONSENTS.index)


def checked_list_name(name: str) -> str:
    """Return the name of a list or segment; raise the 400 for an unusable one."""
    return checked_line(name, "name", MAX_LIST_NAME)


def checked_description(text: str | None) -> str | None:
    """Return a description without surrounding blanks, None for an empty one; raise the 400 for an unusable one."""
    return checked_text((text or "").strip(), "description", MAX_DESCRIPTION) or None


def _checked_value(name: str, value: object) -> FieldValue:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value, f"fields.{name}", MAX_FIELD_TEXT)
    if isinstance(value, int):
        largest: float = MAX_INTEGER
    elif isinstance(value, float) and math.isfinite(value):
        largest = MAX_FRACTION
    else:
        raise invalid(f"fields.{name}", f"`fields.{name}` must be a string, a number, true or false.")
    if abs(value) > largest:
        raise invalid(f"fields.{name}", f"`fields.{name}` is {value!r}; the largest number is {largest!r}.")
    return value
