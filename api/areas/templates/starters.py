"""Listing the starting templates."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.mail.blocks.starters import StarterVariable, starters
from engine.mail.blocks.types import BlockDocument


class TemplateStarter(Struct):
    """A starting template: content to change and publish as your own."""

    name: Annotated[str, Meta(description="Names it in the list", examples=["receipt"])]
    title: Annotated[str, Meta(description="What it is for", examples=["Receipt"])]
    subject: str
    blocks: BlockDocument
    variables: list[StarterVariable]
    data: Annotated[
        dict[str, Any], Meta(description="Values to show it with in a preview", examples=[{"company": "Acme"}])
    ]


class TemplateStarters(Struct):
    """The starting templates."""

    data: list[TemplateStarter]


async def list_starters(call: Call) -> TemplateStarters:  # noqa: ARG001
    """Return the starting templates."""
    return TemplateStarters(
        [TemplateStarter(one.name, one.title, one.subject, one.blocks, one.variables, one.data) for one in starters()]
    )


_KEYS = Area("Templates", reads=("templates:read",), writes=("templates:write",), limited_keys=LimitedKeys.FREE)
OPERATIONS = (
    Operation("GET", "/v1/template-starters", list_starters, "List starting templates made of blocks", _KEYS),
)
