"""Read the `X-Waybill-*` fields of a message that its client composed: the other fields of a send request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_type_hints

import msgspec

from engine.base import validation
from engine.base.errors import invalid, shown
from engine.base.suggest import hint
from engine.mail.submitted import Option
from engine.sending.emails.limits import MAX_METADATA
from engine.sending.emails.types import SendRequest

_TYPES: Final = get_type_hints(SendRequest, include_extras=True)


def _one(name: str, texts: list[str]) -> object:
    if len(texts) > 1:
        raise invalid(name, f"`{name}` appears {len(texts)} times. Give it once.")
    return texts[0]


def _several(_name: str, texts: list[str]) -> object:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _number(name: str, texts: list[str]) -> object:
    text = str(_one(name, texts))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise invalid(name, f"`{name}` is {text!r}; it must be a whole number.")
    return int(text)


def _yes_or_no(name: str, texts: list[str]) -> object:
    text = str(_one(name, texts))
    if text.lower() not in {"true", "false"}:
        raise invalid(name, f"`{name}` is {text!r}; it must be `true` or `false`.")
    return text.lower() == "true"


def _pairs(name: str, texts: list[str]) -> object:
    """Parse fields of the form `name=value`, or JSON objects."""
    found: dict[str, object] = {}
    for text in texts:
        if text.startswith("{"):
            pairs = _object(name, text)
        else:
            key, equals, value = text.partition("=")
            if not equals:
                raise invalid(name, f"`{name}` is neither name=value nor a JSON object of strings.")
            pairs = {key.strip(): value.strip()}
        for key, given in pairs.items():
            if key in found:
                raise invalid(name, f"`{name}` has the key {key!r} twice. Give it once.")
            found[key] = given
    return found


def _objects(name: str, texts: list[str]) -> object:
    return _object(name, str(_one(name, texts)))


def _object(name: str, text: str) -> Mapping[str, object]:
    try:
        found = msgspec.json.decode(text.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise invalid(name, f"`{name}` is not a JSON object.") from error
    return found


_READERS: Final[dict[str, tuple[str, Callable[[str, list[str]], object]]]] = {
    "x-waybill-stream": ("stream", _one),
    "x-waybill-tag": ("tags", _several),
    "x-waybill-metadata": ("metadata", _pairs),
    "x-waybill-idempotency-key": ("idempotency_key", _one),
    "x-waybill-scheduled-at": ("scheduled_at", _one),
    "x-waybill-deliver-by": ("deliver_by", _one),
    "x-waybill-min-tls": ("min_tls", _one),
    "x-waybill-retain-content": ("retain_content", _yes_or_no),
    "x-waybill-content-until": ("content_until", _number),
    "x-waybill-template": ("template", _one),
    "x-waybill-template-version": ("template_version", _number),
    "x-waybill-variables": ("variables", _objects),
    "x-waybill-data": ("data", _objects),
}
_FOLDED_JSON: Final = frozenset({"metadata", "variables"})


def options_of(options: Sequence[Option]) -> dict[str, Any]:
    """Return the SendRequest fields set by `X-Waybill-*` headers, by their names in `SendRequest`."""
    texts: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for option in options:
        folded = option.name.lower()
        if folded not in _READERS:
            meant = hint(folded, (name.title() for name in _READERS))
            raise invalid(option.name, f"Unknown header `{shown(option.name)}`; the message was not sent.{meant}")
        names.setdefault(folded, option.name)
        texts.setdefault(folded, []).append(option.text)
    found: dict[str, Any] = {}
    for folded, listed in texts.items():
        field, reader = _READERS[folded]
        name = names[folded]
        value = reader(name, listed)
        try:
            found[field] = msgspec.convert(value, _TYPES[field])
        except msgspec.ValidationError as error:
            fault = validation.fault_of(error, _TYPES[field], value)
            place = f"`{fault.path}` in `{name}`" if fault.path else f"`{name}`"
            raise invalid(name, f"{place} {fault.words}.") from None
    if len(found.get("metadata", ())) > MAX_METADATA:
        raise invalid(
            "X-Waybill-Metadata",
            f"The message has {len(found['metadata'])} metadata entries; the limit is {MAX_METADATA}. Remove some.",
        )
    if "\0" in "".join(_strings(found)):
        raise invalid("X-Waybill-Metadata", "The metadata contains NUL (U+0000). Remove it.")
    return found


def _strings(found: Mapping[str, Any]) -> Iterator[str]:
    for field in _FOLDED_JSON:
        for name, value in (found.get(field) or {}).items():
            yield name
            yield value


def header_of(field: str) -> str:
    """Return the name of the header that sets a field of `SendRequest`."""
    return next(name for name, (given, _) in _READERS.items() if given == field).title()
