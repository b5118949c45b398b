"""Let a set-up script run twice: a create with `ifExists` returns or updates the object that exists.

It is a field of the create, not a `PUT` by name: most of these objects have ids that the service makes.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal, TypeVar, cast
from uuid import UUID

from msgspec import Meta, Struct, structs

from api.http import auth
from api.http.operation import Call, LimitedKeys
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.people.api_keys.rules import KeyRestrictions

Reply = TypeVar("Reply")
_BOTH: Final = (
    "`return` returns it unchanged; `update` first sets the values of this request, and keeps what is omitted or "
    "null. Both return 200 instead of 201"
)
IfExists = Annotated[
    Literal["return", "update"] | None,
    Meta(description=f"For an object that exists, instead of the 409: {_BOTH}"),
]
ReturnIfExists = Annotated[
    Literal["return"] | None,
    Meta(description="For an object that exists, instead of the 409: `return` returns it unchanged, with 200"),
]


class Existing(Struct, frozen=True):
    """The operations on an object that exists, by its id in the path."""

    read: Callable[[Call], Awaitable[Any]]
    change: Callable[[Call, Any], Awaitable[Any]] | None = None
    changes: type[Struct] | None = None  # the body of `change`
    kind: ids.Kind | None = None  # of the id, None for one that the account chooses
    change_limits: LimitedKeys = LimitedKeys.OWN
    owner_check: Callable[[Call, KeyRestrictions], Awaitable[None]] | None = None


async def made(call: Call, body: Struct, existing: Existing, make: Callable[[], Awaitable[Reply]]) -> Reply:
    """Return what `make` returns, or the object whose id its 409 names, if `body.if_exists` says so."""
    wanted: str | None = getattr(body, "if_exists")  # noqa: B009 - of the structs that use this module
    try:
        return await make()
    except Refusal as refusal:
        name = refusal.fields.get("id")
        if wanted is None or refusal.kind is not ErrorType.CONFLICT or not isinstance(name, str):
            raise
    call.status = 200
    call.path = {**call.path, "id": name}
    call.path_ids = _path_ids(existing, name)
    if call.reach is not None and existing.owner_check is not None:
        await existing.owner_check(call, call.reach)
    if wanted == "return" or existing.change is None or existing.changes is None:
        return cast("Reply", await existing.read(call))
    if call.reach is not None:
        auth.check_limits(call.reach, existing.change_limits)
    given = _given(call, body, existing.changes)
    shown = await existing.change(call, existing.changes(**given)) if given else await existing.read(call)
    return cast("Reply", shown)


def check_id(if_exists: str | None, name: str | None) -> None:
    """Raise the 400 for `ifExists` without the id that names the object."""
    if if_exists is not None and name is None:
        raise invalid("ifExists", "`ifExists` needs an `id` to find an existing object. Add one.")


def _path_ids(existing: Existing, name: str) -> tuple[UUID, ...]:
    return () if existing.kind is None else (ids.parse_id(existing.kind, name),)


def _given(call: Call, body: Struct, changes: type[Struct]) -> dict[str, Any]:
    """Return the fields that the request gives, other than null, and that a change can set too."""
    known = {field.name for field in structs.fields(changes)}
    return {
        field.name: value
        for field in structs.fields(body)
        if field.name in known
        and field.encode_name in call.body_fields
        and (value := getattr(body, field.name)) is not None
    }
