"""Read the documentation of the settings from the docstrings under the fields of `Settings`, its only source.

Used by `ops config` and by the generator of `ops/runbooks/settings.md`.
"""

import ast
import inspect
import types
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin

from msgspec import Struct

from engine.base import settings as module
from engine.base.settings import SECRETS, Settings, variable
from engine.base.settings_groups import GROUP_OF

READERS: Final = ("all", "start", "up", "api", "relay", "mx", "mta", "worker", "front", "metrics", "dns", "sink")
UNSET: Final = "unset"
_UNITS: Final = {"_s": "seconds", "_bytes": "bytes", "_port": "TCP port", "_bytes_per_s": "bytes per second"}
_TYPES: Final[dict[str, str]] = {
    "bool": "true or false", "int": "whole number", "float": "number", "str": "text", "Path": "path",
    "HostPort": "host:port", "SocketAddress": "host:port or unix:/path", "SourceIp": "address, or address=name",
    "BlocklistZone": "zone, or name=zone", "IPv4Network": "network", "IPv6Network": "network",
}  # fmt: skip


class SettingDoc(Struct, frozen=True):
    """The documentation of one setting."""

    variable: str
    group: str
    kind: str  # type and unit
    default: str
    meaning: str
    readers: tuple[str, ...]
    secret: bool


@cache
def documented() -> dict[str, SettingDoc]:
    """Return the documentation of every setting by field, in the order of declaration."""
    default, docstrings = Settings(), _docstrings()
    found = {}
    for field in Settings.__struct_fields__:
        readers, _, meaning = docstrings.get(field, "").partition(": ")
        found[field] = SettingDoc(
            variable=variable(field),
            group=GROUP_OF[field],
            kind=_kind(field, Settings.__annotations__[field]),
            default=module.text_of(getattr(default, field)) or UNSET,
            meaning=meaning,
            readers=tuple(readers.split(", ")),
            secret=field in SECRETS,
        )
    return found


def _docstrings() -> dict[str, str]:
    """Return the docstring that follows each field of the class, with its white space collapsed."""
    (body,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def _kind(field: str, annotation: Any) -> str:
    ends = sorted((one for one in _UNITS if field.endswith(one)), key=len)
    many = "list of " if _is_list(annotation) else ""
    return many + (_UNITS[ends[-1]] if ends else _type(annotation))


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(get_args(annotation))
    if isinstance(annotation, types.UnionType) or _is_list(annotation):
        inner = [one for one in get_args(annotation) if one not in (types.NoneType, ...)]
        return " or ".join(dict.fromkeys(_type(one) for one in inner))
    return _TYPES[annotation.__name__]
