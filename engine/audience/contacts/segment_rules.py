"""Parse the filter of a segment, and compile it into an SQL condition with arguments. Pure.

A filter is a condition, or `{"all": [...]}`, `{"any": [...]}` or `{"not": {...}}` of filters. A condition names a
property of the contact and an operator: `{"field": "plan", "op": "eq", "value": "pro"}` for a contact field,
`{"property": "consent", "op": "in", "value": ["signed_up", "customer"]}` for what every contact has. Values reach
PostgreSQL as arguments only.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from engine.audience.contacts import rules, search
from engine.audience.contacts.types import Consent
from engine.base import clock, ids
from engine.base.errors import invalid
from engine.mail.address import BadAddress, bare_address, canonical, domain_name

MAX_CONDITIONS: Final = 50
MAX_DEPTH: Final = 5
MAX_CHOICES: Final = 100  # values of `in`
MAX_FILTER_BYTES: Final = 16 * 1024

EXISTENCE: Final = frozenset({"exists", "missing"})
EQUALITY: Final = frozenset({"eq", "ne", "in"})
ORDER: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
TEXT: Final = frozenset({"contains", "starts_with"})
_FOLDED_NAME: Final = r"split_part(c.search, E'\n', -1)"
_MEMBER: Final = "EXISTS (SELECT 1 FROM contact_list_members m WHERE m.contact_id = c.id AND m.list_id = ANY ({}))"
_COUNT: Final = "(SELECT count(*) FROM contact_lists l WHERE l.id = ANY ({}))"
_FIELD_OPERATORS: Final = EXISTENCE | EQUALITY | frozenset(ORDER) | TEXT
_PROPERTY_OPERATORS: Final[Mapping[str, frozenset[str]]] = {
    "email": EQUALITY | TEXT,
    "name": EXISTENCE | EQUALITY | TEXT,
    "domain": EQUALITY,
    "consent": EQUALITY,
    "confirmed": frozenset({"eq"}),
    "createdAt": frozenset(ORDER),
    "list": EQUALITY,
}


class Condition(Struct, frozen=True):
    """A comparison of a contact field (`is_field`) or property with a value."""

    name: str
    operator: str
    value: Any = None
    is_field: bool = False


class Group(Struct, frozen=True):
    """Conditions that must hold together (`all`), of which one must hold (`any`), or none (`not`)."""

    kind: str
    parts: tuple["Condition | Group", ...]


SegmentFilter = Condition | Group


class CompiledFilter(Struct, frozen=True):
    """An SQL condition on contact `c`, and its arguments in order."""

    sql: str
    arguments: list[object]


def parse(filter_: object) -> SegmentFilter:
    """Return a filter as given in JSON; raise the 400 that names the wrong part."""
    size = len(msgspec.json.encode(filter_))
    if size > MAX_FILTER_BYTES:
        raise invalid("filter", f"`filter` has {size} octets as JSON; the limit is {MAX_FILTER_BYTES}. Remove some.")
    parsed = _parsed(filter_, "filter", depth=1)
    count = _conditions(parsed)
    if count > MAX_CONDITIONS:
        raise invalid("filter", f"`filter` has {count} conditions; the limit is {MAX_CONDITIONS}. Remove some.")
    return parsed


def lists_of(filter_: SegmentFilter) -> set[UUID]:
    """Return the lists that the filter names."""
    if isinstance(filter_, Group):
        return set().union(*(lists_of(part) for part in filter_.parts))
    if filter_.is_field or filter_.name != "list":
        return set()
    return set(filter_.value) if filter_.operator == "in" else {filter_.value}


def compiled(filter_: SegmentFilter, *, first: int) -> CompiledFilter:
    """Return the filter as an SQL condition on contact `c`; its arguments are numbered from `first`."""
    arguments: list[object] = []

    def place(value: object, cast: str) -> str:
        arguments.append(value)
        return f"${first + len(arguments) - 1}::{cast}"

    return CompiledFilter(_sql(filter_, place), arguments)


def _parsed(given: object, path: str, *, depth: int) -> SegmentFilter:
    if not isinstance(given, dict):
        raise invalid(path, f"`{path}` must be an object: a condition, or `all`, `any` or `not` of conditions.")
    if depth > MAX_DEPTH:
        raise invalid(path, f"`{path}` is nested deeper than {MAX_DEPTH} levels.")
    kind = next((name for name in ("all", "any", "not") if name in given), None)
    if kind is None:
        return _condition(given, path)
    if len(given) > 1:
        raise invalid(path, f"`{path}` contains more than `{kind}`. Put the other conditions inside it.")
    parts = [given["not"]] if kind == "not" else given[kind]
    if not isinstance(parts, list) or not parts:
        raise invalid(f"{path}.{kind}", f"`{path}.{kind}` must be a list of at least one condition.")
    return Group(
        kind,
        tuple(
            _parsed(part, f"{path}.{kind}" if kind == "not" else f"{path}.{kind}[{index}]", depth=depth + 1)
            for index, part in enumerate(parts)
        ),
    )


def _conditions(filter_: SegmentFilter) -> int:
    return sum(map(_conditions, filter_.parts)) if isinstance(filter_, Group) else 1


def _condition(given: Mapping[str, Any], path: str) -> Condition:
    unknown = sorted(set(given) - {"field", "property", "op", "value"})
    if unknown:
        raise invalid(f"{path}.{unknown[0]}", f"`{path}` has an unknown key `{unknown[0][:80]}`. Remove it.")
    if ("field" in given) == ("property" in given):
        raise invalid(path, f"`{path}` must name either a `field` or a `property`.")
    is_field = "field" in given
    name = given["field" if is_field else "property"]
    operators = _operators(name, path, is_field=is_field)
    operator = given.get("op", "eq")
    if not isinstance(operator, str) or operator not in operators:
        raise invalid(f"{path}.op", f"`{path}.op` must be one of: {', '.join(sorted(operators))}.")
    if operator in EXISTENCE:
        if "value" in given:
            raise invalid(f"{path}.value", f"`{path}` has a `value`, which `{operator}` doesn't use. Remove it.")
        return Condition(name, operator, None, is_field)
    if "value" not in given:
        raise invalid(f"{path}.value", f"`{path}` needs a `value`. Add one.")
    return Condition(name, operator, _value(name, operator, given["value"], path, is_field=is_field), is_field)


def _operators(name: object, path: str, *, is_field: bool) -> frozenset[str]:
    if not isinstance(name, str):
        raise invalid(path, f"`{path}` must give the name of the field or property as a string.")
    if is_field:
        rules.checked_field_name(name)
        return _FIELD_OPERATORS
    if name not in _PROPERTY_OPERATORS:
        raise invalid(f"{path}.property", f"`{path}.property` must be one of: {', '.join(_PROPERTY_OPERATORS)}.")
    return _PROPERTY_OPERATORS[name]


def _value(name: str, operator: str, value: object, path: str, *, is_field: bool) -> Any:
    where = f"{path}.value"
    if operator == "in":
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHOICES:
            raise invalid(where, f"`{where}` must be a list of 1 to {MAX_CHOICES} values.")
        return tuple(_one_value(name, operator, one, where, is_field=is_field) for one in value)
    return _one_value(name, operator, value, where, is_field=is_field)


def _one_value(name: str, operator: str, value: object, where: str, *, is_field: bool) -> Any:
    if is_field:
        return _field_value(operator, value, where)
    if name == "confirmed":
        if not isinstance(value, bool):
            raise invalid(where, f"`{where}` must be true or false.")
        return value
    if not isinstance(value, str) or "\0" in value or len(value) > rules.MAX_FIELD_TEXT:
        raise invalid(where, f"`{where}` must be a string of at most {rules.MAX_FIELD_TEXT} characters.")
    return _property_value(name, operator, value, where)


def _field_value(operator: str, value: object, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, str) and "\0" not in value and len(value) <= rules.MAX_FIELD_TEXT:
        return value
    if is_number and operator not in TEXT and abs(value) <= rules.MAX_FRACTION and math.isfinite(value):  # type: ignore[arg-type]
        return value
    if isinstance(value, bool) and operator in EQUALITY:
        return value
    kinds = {**dict.fromkeys(TEXT, "a string"), **dict.fromkeys(ORDER, "a string or a number")}
    raise invalid(where, f"`{where}` must be {kinds.get(operator, 'a string, a number, true or false')}.")


def _property_value(name: str, operator: str, value: str, where: str) -> Any:
    if name == "createdAt":
        return _time(value, where)
    if name == "list":
        try:
            return ids.parse_id(ids.Kind.LIST, value)
        except ids.WrongId as error:
            raise invalid(where, f"`{where}` must be the id of a list: {error}.") from None
    if name == "consent" and value not in set(Consent):
        raise invalid(where, f"`{where}` must be one of: {', '.join(Consent)}.")
    if name == "domain" or (name == "email" and operator in EQUALITY):
        try:
            return domain_name(value) if name == "domain" else canonical(bare_address(value))
        except BadAddress as error:
            raise invalid(
                where, f"`{where}` is not {'a domain' if name == 'domain' else 'an address'}: {error}"
            ) from None
    return search.folded(value) if operator in TEXT else value


def _time(value: str, where: str) -> datetime:
    try:
        return clock.parse_iso(value)
    except ValueError:
        raise invalid(where, f"`{where}` must be a time in ISO 8601, such as 2026-01-31T00:00:00Z.") from None


def _sql(filter_: SegmentFilter, place: Any) -> str:
    if isinstance(filter_, Condition):
        if filter_.name == "list" and not filter_.is_field:
            return _list_sql(filter_, place)
        sql = _field_sql(filter_, place) if filter_.is_field else _property_sql(filter_, place)
        return f"coalesce({sql}, false)"
    parts = [_sql(part, place) for part in filter_.parts]
    if filter_.kind == "not":
        return f"NOT {parts[0]}"
    return "(" + (" AND " if filter_.kind == "all" else " OR ").join(parts) + ")"


def _field_sql(condition: Condition, place: Any) -> str:
    """Return a comparison of a contact field. Values of another type than the wanted one are never equal or ordered."""
    name, operator, value = condition.name, condition.operator, condition.value
    key = place(name, "text")
    stored = f"(c.fields -> {key})"
    if operator in EXISTENCE:
        return f"{'NOT ' if operator == 'missing' else ''}c.fields ? {key}"
    if operator == "in":
        return f"{stored} = ANY ({place([_json(one) for one in value], 'jsonb[]')})"
    if operator in EQUALITY:
        return f"{stored} IS {'NOT ' if operator == 'eq' else ''}DISTINCT FROM {place(_json(value), 'jsonb')}"
    text = f"(c.fields ->> {key})"
    if operator in TEXT:
        return f"jsonb_typeof({stored}) = 'string' AND {_like(f'lower({text})', operator, value, place)}"
    if isinstance(value, str):
        return f"jsonb_typeof({stored}) = 'string' AND {text} {ORDER[operator]} {place(value, 'text')}"
    # jsonb orders numbers among themselves as numeric does.
    return f"jsonb_typeof({stored}) = 'number' AND {stored} {ORDER[operator]} {place(_json(value), 'jsonb')}"


def _property_sql(condition: Condition, place: Any) -> str:
    name, operator, value = condition.name, condition.operator, condition.value
    if name == "createdAt":
        return f"c.created_at {ORDER[operator]} {place(value, 'timestamptz')}"
    if name == "confirmed":
        return f"c.confirmed = {place(value, 'boolean')}"
    column = {"email": "c.address", "domain": "split_part(c.address, '@', 2)"}.get(name, f"c.{name}")
    if operator in EXISTENCE:
        return f"{column} IS {'NOT ' if operator == 'exists' else ''}NULL"
    if operator == "in":
        return f"{column} = ANY ({place(list(value), 'text[]')})"
    if operator in EQUALITY:
        return f"{column} IS {'NOT ' if operator == 'eq' else ''}DISTINCT FROM {place(value, 'text')}"
    if name == "name":  # the last line of the text to search, if there is a name
        return f"c.name IS NOT NULL AND {_like(_FOLDED_NAME, operator, value, place)}"
    return _like(column, operator, value, place)


def _list_sql(condition: Condition, place: Any) -> str:
    """Return a test for membership. After a list was deleted it is null for all but members of the others, also if
    negated: who was left out because of that list must not become a recipient.
    """
    wanted = set(condition.value) if condition.operator == "in" else {condition.value}
    lists = place(sorted(wanted), "uuid[]")
    complete = f"{_COUNT.format(lists)} = {len(wanted)}"
    known = f"({_MEMBER.format(lists)} OR CASE WHEN {complete} THEN false END)"
    return f"NOT {known}" if condition.operator == "ne" else known


def _like(text: str, operator: str, value: str, place: Any) -> str:
    """Return a comparison of a lower-case text. PostgreSQL lowers the argument as it lowered the text."""
    pattern = search.like_pattern(value)
    return f"{text} LIKE lower({place(pattern[1:] if operator == 'starts_with' else pattern, 'text')})"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
