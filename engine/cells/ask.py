"""Ask a cell over its internal operations: what fronts, other cells and the operator's commands have in common."""

from collections.abc import Mapping
from typing import Final, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from engine.base.secrets import Pepper, derived
from engine.cells.directory import Cell

ASK_S: Final = 3.0
MAX_REPLY: Final = 64 * 1024

Answer = TypeVar("Answer")


class CellSilent(Exception):  # noqa: N818 - named for the state
    """The cell did not answer in time, or not with what was asked for."""


class CellReply(Struct, frozen=True):
    """The reply of a cell."""

    status: int
    content: bytes

    def decoded(self, kind: type[Answer]) -> Answer:
        """Return what a reply with status 200 says. Raises CellSilent for any other."""
        if self.status != 200:
            raise CellSilent(f"status {self.status}")
        try:
            return msgspec.json.decode(self.content, type=kind)
        except msgspec.DecodeError as error:
            raise CellSilent(repr(error)) from error


def credential(pepper: Pepper) -> str:
    """Return the bearer token with which fronts and cells call one another's internal operations."""
    return derived(pepper, "cells").hex()


def credentials(pepper: Pepper) -> tuple[str, ...]:
    """Return the accepted tokens: those of both peppers during a change."""
    return tuple(credential(one) for one in pepper.accepted)


async def ask(
    http: aiohttp.ClientSession,
    cell: Cell,
    path: str,
    token: str,
    question: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> CellReply:
    """Post a question to a cell with the token of `credential`, or get the path without one. Raises CellSilent."""
    try:
        async with http.request(
            "GET" if question is None else "POST",
            cell.api_url.rstrip("/") + path,
            data=question,
            headers={**(headers or {}), "Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=ASK_S),
            allow_redirects=False,
        ) as response:
            content = bytearray()
            async for piece in response.content.iter_chunked(MAX_REPLY):
                content += piece
                if len(content) > MAX_REPLY:
                    raise CellSilent(f"a reply of more than {MAX_REPLY} octets")
            return CellReply(response.status, bytes(content))
    except (aiohttp.ClientError, OSError) as error:  # a time-out is an OSError
        raise CellSilent(repr(error)) from error
