"""Write requests and refusals in the field names of another service. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from engine.base.errors import Refusal, invalid
from engine.base.validation import fault_of
from engine.mail.address_list import listed
from engine.sending.emails.types import Accepted, SendRequest

# A quoted path such as `to[1]`, `attachments[0].contentType` or `headers.X-Order`: its first name, its place in a list,
# and the name behind that.
_PATH: Final = re.compile(r"([A-Za-z]+)(\[\d+\])?(?:\.([A-Za-z]+))?(.*)", re.DOTALL)
_QUOTED: Final = re.compile(r"`([^`]*)`")

Value = str | int | float | bool
_FLAT: Final = frozenset({str, int, float})  # not bool: `data` has false as empty, a text "false" would show a section


class FieldNames(Struct, frozen=True):
    """The other service's names of our fields, and of the fields of an attachment."""

    fields: Mapping[str, str]
    of_files: Mapping[str, str]

    def path(self, path: str) -> str:
        """Return our path of a field as the other service writes it; an unknown one stays."""
        found = _PATH.fullmatch(path)
        if found is None or found[1] not in self.fields:
            return path
        name, place, inner, rest = found[1], found[2] or "", found[3], found[4]
        if inner is not None:
            inner = "." + (self.of_files.get(inner, inner) if name == "attachments" else inner)
        return f"{self.fields[name]}{place}{inner or ''}{rest}"

    def refusal(self, refusal: Refusal) -> Refusal:
        """Return a refusal of a send with the other service's names, in its sentence and in its field."""
        message = _QUOTED.sub(lambda found: f"`{self.path(found[1])}`", refusal.message)
        fields = dict(refusal.fields)
        if isinstance(fields.get("field"), str):
            fields["field"] = self.path(str(fields["field"]))
        return Refusal(refusal.kind, message, retry_after_s=refusal.retry_after_s, **fields)

    def send_request(self, fields: Mapping[str, Any]) -> SendRequest:
        """Return our request; raise the 400 that names the other service's field."""
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            return msgspec.convert(given, SendRequest)
        except msgspec.ValidationError as error:
            fault = fault_of(error, SendRequest, given)
            path = self.path(fault.path) or "body"
            raise invalid(path, fault.sentence(path)) from None


def refuse_unsupported(given: Mapping[str, object], reasons: Mapping[str, str]) -> None:
    """Raise the 400 for the first field that has a value although it can't be carried over."""
    for name, value in given.items():
        if value is not None:
            raise invalid(name, f"`{name}` is not supported here: {reasons[name]}")


def texts_of(values: Mapping[str, Value] | None) -> dict[str, str] | None:
    """Return values as texts, numbers and booleans as JSON writes them; None for no entry."""
    if not values:
        return None
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in values.items()
    }


def model_of(values: Mapping[str, Any] | None) -> dict[str, dict[str, Any] | None]:
    """Return the values of a template as our `variables` (texts, and numbers as texts) and `data` (all others)."""
    flat = {name: value for name, value in (values or {}).items() if type(value) in _FLAT}
    nested = {name: value for name, value in (values or {}).items() if name not in flat}
    return {"variables": texts_of(flat), "data": nested or None}


def own_fields(accepted: Accepted) -> dict[str, Any]:
    """Return our own fields of a result: those of `POST /v1/emails` for a repeated message, none for a new one."""
    if accepted.status != "duplicate":
        return {}
    return {"own_status": accepted.status, "body_differs": accepted.body_differs}


def addresses_of(text: str | None) -> list[str] | None:
    """Return the entries of a comma-separated list of addresses; None for an empty one."""
    return [one.written for one in listed(text)] or None if text else None


def with_reply_to(
    addresses: Sequence[str], headers: Mapping[str, str] | None, field: str
) -> tuple[str | None, dict[str, str] | None]:
    """Return our `replyTo` and `headers`: one address goes to the field, several to the header Reply-To."""
    if len(addresses) < 2:
        return (addresses[0] if addresses else None), (dict(headers) if headers else None)
    if any(name.lower() == "reply-to" for name in headers or ()):
        raise invalid(field, f"`{field}` and the header Reply-To are both given. Give one of the two.")
    return None, {**(headers or {}), "Reply-To": ", ".join(addresses)}
