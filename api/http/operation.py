"""The operation record: everything one endpoint declares, once.

Routing, authentication, limits, decoding and the OpenAPI document are driven by it. A handler gets a `Call`
and returns a Struct, a `Raw`, a `Streamed`, or None for 204.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import falcon.asgi
from msgspec import Struct

from engine.areas.api_keys.keyring import Caller
from engine.base.errors import ErrorType
from engine.base.settings import Settings


class Access(StrEnum):
    """Who may call."""

    NONE = "none"  # no credential
    KEY = "key"  # an API key with one of the scopes


class Call(Struct):
    """One request on its way through an operation."""

    request: falcon.asgi.Request
    services: Any  # api.app.Services; typed there, so that this floor does not know the upper ones
    settings: Settings
    path: Mapping[str, str]
    caller: Caller | None = None
    body: Any = None
    query: Any = None
    body_bytes: int = 0
    status: int | None = None  # set by the handler when it is not the operation's success

    @property
    def account_id(self) -> UUID:
        """The caller's account; only where the operation needs a credential."""
        if self.caller is None:
            raise RuntimeError("this operation has no caller")
        return self.caller.account_id


class Raw(Struct, frozen=True):
    """An answer that is not JSON of ours."""

    content: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


class Chunks(Protocol):
    """Octets of a streamed answer, one piece at a time; an async generator is one."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Itself."""
        ...

    async def __anext__(self) -> bytes:
        """The next piece; it is cancelled when the client goes away."""
        ...

    async def aclose(self) -> None:
        """Give back what the stream holds; called exactly once, whether or not a piece was ever asked for."""
        ...


class Streamed(Struct, frozen=True):
    """An answer whose octets come one piece at a time, without a length (`api.http.stream` bounds its writes).

    `last_words` are offered to a client that takes nothing any more, right before it is cut.
    """

    chunks: Chunks
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    last_words: bytes = b""


class HeaderField(Struct, frozen=True):
    """A request header that an operation reads beside those that all of them read."""

    name: str
    description: str
    pattern: str


Handler = Callable[[Call], Awaitable[Struct | Raw | Streamed | None]]


class Operation(Struct, frozen=True, kw_only=True):
    """One endpoint."""

    method: str
    path: str
    tag: str
    summary: str
    access: Access
    handler: Handler
    success: int = 200
    also: tuple[int, ...] = ()  # other success statuses with the same reply
    scopes: tuple[str, ...] = ()  # any one of them
    request: Any = None  # Struct type of the body
    query: type[Struct] | None = None
    headers: tuple[HeaderField, ...] = ()
    reply: Any = None  # of each record, where `reply_type` is one of records in a row
    reply_type: str = "application/json"
    deadline_s: float | None = None  # for the handler, not for what it streams; None: that of its method
    refusals: tuple[ErrorType, ...] = ()  # beyond those every operation of its kind can answer
    no_body_is_empty: bool = False

    @property
    def id(self) -> str:
        """A stable name for the OpenAPI document: `post_v1_emails`."""
        words = self.path.strip("/").replace("{", "").replace("}", "").replace("-", "_").replace(".", "_")
        return f"{self.method.lower()}_{words.replace('/', '_')}"

    def all_refusals(self) -> tuple[ErrorType, ...]:
        """Every refusal this operation can answer, in the registry's order."""
        # Unknown query parameters are refused everywhere.
        own = {ErrorType.INVALID_REQUEST, ErrorType.RATE_LIMITED, ErrorType.UNAVAILABLE, *self.refusals}
        if self.access is Access.KEY:
            own |= {ErrorType.UNAUTHORIZED, ErrorType.FORBIDDEN}
        if self.request is not None:
            own |= {ErrorType.PAYLOAD_TOO_LARGE, ErrorType.UNSUPPORTED_MEDIA_TYPE}
        if "{" in self.path:
            own.add(ErrorType.NOT_FOUND)
        return tuple(kind for kind in ErrorType if kind in own)
