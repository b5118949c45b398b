"""The starting templates that the console offers: documents to change, with values to show them with."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from engine.mail.blocks.types import BlockDocument

_FILE: Final = Path(__file__).with_name("starters.json")


class StarterVariable(Struct, frozen=True):
    """A variable that a starting template declares."""

    name: str
    required: bool
    description: str


class Starter(Struct, frozen=True):
    """A starting template; `data` has a value for each of its variables."""

    name: str
    title: str
    subject: str
    blocks: BlockDocument
    variables: list[StarterVariable]
    data: dict[str, Any]


@cache
def starters() -> tuple[Starter, ...]:
    """Return the starting templates, in the order to show them."""
    return msgspec.json.decode(_FILE.read_bytes(), type=tuple[Starter, ...])
