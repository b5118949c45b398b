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

from api.http import body_limits
from api.http.services import ApiServices
from engine.areas.api_keys.key_auth import Caller
from engine.areas.sessions.session_auth import Person
from engine.base import ids
from engine.base.errors import ErrorType
from engine.base.memory_pool import Reservation
from engine.base.roles import Role
from engine.base.settings import Settings

_STREAMS = frozenset({"text/event-stream", "application/x-ndjson"})
CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})  # what a session needs its CSRF token for


class Access(StrEnum):
    """Who may call."""

    NONE = "none"  # no credential
    KEY = "key"  # an API key with one of the scopes, or a signed-in person
    SESSION = "session"  # a signed-in person, with at least the role where one is named
    PLATFORM_KEY = "platform-key"  # an API key of the account that the service itself sends from


class Call(Struct):
    """One request on its way through an operation."""

    request: falcon.asgi.Request
    services: ApiServices
    settings: Settings
    path: Mapping[str, str]
    caller: Caller | None = None  # the key that calls
    signed_in: Person | None = None  # or the person
    body: Any = None
    query: Any = None
    body_bytes: int = 0
    memory: Reservation | None = None  # for the body, until the request is answered
    status: int | None = None  # set by the handler when it is not the operation's success
    cookies: tuple[str, ...] = ()  # `Set-Cookie` values of the answer, see api.http.cookies
    headers: tuple[tuple[str, str], ...] = ()  # other header fields of the answer, where it succeeds

    @property
    def account_id(self) -> UUID:
        """The caller's account; only where the operation needs a credential."""
        if self.signed_in is not None:
            return self.signed_in.account_id
        if self.caller is None:
            raise RuntimeError("this operation has no caller")
        return self.caller.account_id

    @property
    def person(self) -> Person:
        """Who is signed in; only where the operation takes nobody else."""
        if self.signed_in is None:
            raise RuntimeError("nobody is signed in")
        return self.signed_in

    @property
    def actor(self) -> str:
        """Who acts, as the account log names them: `usr_…` or `key_…`."""
        if self.signed_in is not None:
            return ids.format_id(ids.Kind.USER, self.signed_in.user_id)
        if self.caller is None:
            raise RuntimeError("this operation has no caller")
        return ids.format_id(ids.Kind.API_KEY, self.caller.id)


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
    note: str = ""  # what callers need to know beside the summary, for the OpenAPI document
    success: int = 200
    also: tuple[int, ...] = ()  # other success statuses with the same reply
    scopes: tuple[str, ...] = ()  # any one of them
    role: Role | None = None  # the least, for a signed-in person; None: whoever is on the account
    request: Any = None  # Struct type of the body
    max_body_bytes: int | None = None  # None: what the schema of `request` can need
    carries_messages: bool = False  # the body may be as large as the settings allow any request to be
    query: type[Struct] | None = None
    lenient_query: bool = False  # parameters that we do not know are passed over: somebody else writes them
    headers: tuple[HeaderField, ...] = ()
    reply: Any = None  # of each record, where `reply_type` is one of records in a row
    reply_type: str = "application/json"
    deadline_s: float | None = None  # for the handler, not for what it streams; None: that of its method
    refusals: tuple[ErrorType, ...] = ()  # beyond those every operation of its kind can answer
    no_body_is_empty: bool = False
    open_to_suspended: bool = False  # a change that the people of a suspended account may make: it takes access away

    @property
    def id(self) -> str:
        """A stable name for the OpenAPI document: `post_v1_emails`."""
        words = self.path.strip("/").replace("{", "").replace("}", "").replace("-", "_").replace(".", "_")
        return f"{self.method.lower()}_{words.replace('/', '_')}"

    @property
    def takes_head(self) -> bool:
        """Whether HEAD asks what GET would answer (RFC 9110 9.1): not for streams, nor on the way through a sign-in."""
        return self.method == "GET" and self.success == 200 and self.reply_type not in _STREAMS

    @property
    def needs_csrf(self) -> bool:
        """Whether a signed-in caller has to show the session's CSRF token."""
        return self.access in (Access.KEY, Access.SESSION) and self.method in CHANGES

    @property
    def stops_suspended(self) -> bool:
        """Whether people of a suspended account are refused: they may look, change their own, and take access away."""
        return self.needs_csrf and (self.access is Access.KEY or self.role is not None) and not self.open_to_suspended

    def body_limit(self, max_request_bytes: int) -> int:
        """The octets that a body may have, where no request may have more than `max_request_bytes`."""
        if self.request is None:
            return body_limits.NO_BODY_BYTES
        if self.carries_messages:
            return max_request_bytes
        return min(max_request_bytes, self.max_body_bytes or body_limits.bytes_needed(self.request))

    def all_refusals(self) -> tuple[ErrorType, ...]:
        """Every refusal this operation can answer, in the registry's order."""
        # Unknown query parameters and large bodies are refused everywhere.
        own = {
            ErrorType.INVALID_REQUEST, ErrorType.RATE_LIMITED, ErrorType.UNAVAILABLE, ErrorType.PAYLOAD_TOO_LARGE,
            *self.refusals,
        }  # fmt: skip
        if self.access is not Access.NONE:
            own |= {ErrorType.UNAUTHORIZED, ErrorType.FORBIDDEN}
        if self.needs_csrf:
            own |= {ErrorType.CSRF_FAILED}
            if self.stops_suspended:
                own |= {ErrorType.ACCOUNT_SUSPENDED}
        if self.request is not None:
            own.add(ErrorType.UNSUPPORTED_MEDIA_TYPE)
        if "{" in self.path:
            own.add(ErrorType.NOT_FOUND)
        return tuple(kind for kind in ErrorType if kind in own)
