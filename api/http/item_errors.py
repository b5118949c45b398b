"""Complete the errors of single items, such as those of a batch, as the error of a whole request is."""

from collections.abc import Iterable
from typing import Any, Protocol

from api.http.operation import Call


class HasError(Protocol):
    """An item of a reply whose `error` is an error object, UNSET or null."""

    error: Any


def link(call: Call, items: Iterable[HasError]) -> None:
    """Add `docs`, the address of its explanation, to the `error` of each item that has one."""
    page = call.request.context.docs
    for item in items:
        if isinstance(item.error, dict):
            item.error["docs"] = f"{page}#{item.error['type']}"
