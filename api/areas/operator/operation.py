"""The access, tag and actor of all operations for operators, and their refusals of wrong input."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from api.http.operation import Access, Area, Call
from engine.base.errors import ErrorType, invalid
from engine.base.text import checked_line
from engine.ledger.platform_log import OPERATOR

OPERATORS: Final = Area("Operator", access=Access.SESSION, for_operator=True)
CONFLICTS: Final = (ErrorType.INVALID_STATE,)


def actor_of(call: Call) -> str:
    """Return the actor for account logs: `operator:usr_…`, the operator by name."""
    return f"{OPERATOR}:{call.actor}"


def line(text: str, field: str, max_length: int) -> str:
    """Return text that may be empty as one line; raises 400 for control characters."""
    return checked_line(text, field, max_length) if text.strip() else ""


@contextmanager
def refusing(field: str) -> Iterator[None]:
    """Refuse a value that the code below finds wrong with a 400 that names `field`."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise invalid(field, f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}") from None
