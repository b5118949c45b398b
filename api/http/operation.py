"""The operation record: everything that one endpoint declares.

Routing, authentication, limits, decoding and the OpenAPI document use it. A handler gets a `Call` and, if it has these
parameters, the decoded `query`, the `page` of a list and the `body`; it returns a Struct, a `Raw`, a `Streamed`, or
None for 204.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Protocol, get_type_hints
from uuid import UUID

import falcon.asgi
import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from api.http import body_limits
from api.http.paging import PageQuery
from api.http.path_ids import PathId
from api.http.services import ApiServices
from engine.base import ids, trace_context
from engine.base.errors import ErrorType, Refusal
from engine.base.memory_pool import Reservation
from engine.base.roles import Role
from engine.base.settings import Settings
from engine.people.api_keys.key_auth import Caller
from engine.people.api_keys.rules import KeyRestrictions
from engine.people.sessions.session_auth import Person

_PARAMETER = re.compile(r"\{(\w+)\}")
_STREAMS = frozenset({"text/event-stream", "application/x-ndjson"})
CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})  # methods for which a session needs its CSRF token


class Access(StrEnum):
    """The credentials that an operation accepts."""

    NONE = "none"  # no credential
    KEY = "key"  # an API key with one of the scopes, or a signed-in person
    SESSION = "session"  # a signed-in person, with at least the role where one is named
    PLATFORM_KEY = "platform-key"  # an API key of the platform account, which sends the service's own mail


class LimitedKeys(StrEnum):
    """Say how an API key that is limited to domains or streams may use an operation.

    A message belongs to a domain and a stream, a domain to itself and to all streams, a stream to itself and to all
    domains, received mail to a domain alone. All else, such as suppressions, belongs to the whole account.
    """

    FREE = "free"  # as any key: it shows and changes nothing that belongs to a domain or a stream
    OWN = "own"  # for what belongs to its domains and streams; all else is unknown to it, and not in lists
    OWN_DOMAINS = "own-domains"  # as OWN; refused for a key limited to streams: it would act on all streams
    OWN_STREAMS = "own-streams"  # as OWN; refused for a key limited to domains: it would act on all domains
    WHOLE_ACCOUNT = "whole-account"  # refused: it shows or changes what belongs to others too


_OWN = frozenset({LimitedKeys.OWN, LimitedKeys.OWN_DOMAINS, LimitedKeys.OWN_STREAMS})


class Call(Struct):
    """A request with its credentials, and the parts of the response that its handler sets."""

    request: falcon.asgi.Request
    services: ApiServices
    settings: Settings
    path: Mapping[str, str]
    path_ids: tuple[UUID, ...] = ()  # of the path, as `id_of` and `inner_id_of` of the operation say
    caller: Caller | None = None  # set if the request has an API key
    signed_in: Person | None = None  # set if the request has a session
    body_bytes: int = 0
    body_fields: frozenset[str] = frozenset()  # names in a body with `ifExists`
    memory: Reservation | None = None  # for the body, until the request is answered
    status: int | None = None  # set by the handler if it differs from the operation's `success`
    cookies: tuple[str, ...] = ()  # `Set-Cookie` values of the answer, see api.http.cookies
    headers: tuple[tuple[str, str], ...] = ()  # other header fields of a successful response
    agent: str | None = None  # the client of an MCP request, for the request log

    @property
    def id(self) -> UUID:
        """Return the `{id}` of the path, of the kind `id_of`."""
        return self.path_ids[0]

    @property
    def inner_id(self) -> UUID:
        """Return the other id of the path, of the kind `inner_id_of`."""
        return self.path_ids[1]

    @property
    def account_id(self) -> UUID:
        """Return the caller's account. Raises RuntimeError in an operation without credentials."""
        if self.signed_in is not None:
            return self.signed_in.account_id
        if self.caller is None:
            raise RuntimeError("this operation has no caller")
        return self.caller.account_id

    @property
    def domains(self) -> frozenset[str] | None:
        """Return the domains that the caller's key is limited to, None without such a limit."""
        return None if self.reach is None else self.reach.domains

    @property
    def streams(self) -> frozenset[str] | None:
        """Return the streams that the caller's key is limited to, None without such a limit."""
        return None if self.reach is None else self.reach.streams

    @property
    def person(self) -> Person:
        """Return the signed-in person. Raises RuntimeError unless the operation requires a session."""
        if self.signed_in is None:
            raise RuntimeError("this operation has no signed-in person")
        return self.signed_in

    @property
    def credential(self) -> str | None:
        """Return the name of the caller's key or person among all, which is that of its rate limit; None without."""
        if self.caller is not None:
            return self.caller.credential
        return None if self.signed_in is None else f"usr:{self.signed_in.user_id}"

    @property
    def reach(self) -> KeyRestrictions | None:
        """Return the restrictions of the caller's key; None for a person, and for a key without any."""
        return None if self.caller is None else self.caller.reach

    @property
    def traceparent(self) -> str | None:
        """Return the caller's `traceparent`, None without a valid one."""
        return trace_context.read(self.request.get_header(trace_context.HEADER))

    @property
    def log_fields(self) -> dict[str, str]:
        """Return the fields that connect a log line with the caller's trace."""
        given = self.traceparent
        return {} if given is None else {"trace_id": trace_context.trace_of(given)}

    @property
    def actor(self) -> str:
        """Return the actor's id for the account log: `usr_…` or `key_…`."""
        if self.signed_in is not None:
            return ids.format_id(ids.Kind.USER, self.signed_in.user_id)
        if self.caller is None:
            raise RuntimeError("this operation has no caller")
        return ids.format_id(ids.Kind.API_KEY, self.caller.id)


class Raw(Struct, frozen=True):
    """A response body that is sent as it is, with its own content type."""

    content: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


class Chunks(Protocol):
    """The pieces of a streamed response; an async generator is one."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the object itself."""
        ...

    async def __anext__(self) -> bytes:
        """Return the next piece; cancelled when the client disconnects."""
        ...

    async def aclose(self) -> None:
        """Release what the stream holds; called exactly once, even if no piece was requested."""
        ...


class Streamed(Struct, frozen=True):
    """A response sent piece by piece, without a length (`api.http.stream` bounds its writes).

    `final_piece` is offered to a client that has stopped reading, right before its connection is closed.
    """

    chunks: Chunks
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    final_piece: bytes = b""


class HeaderField(Struct, frozen=True):
    """A request header that one operation reads, besides those that all operations read."""

    name: str
    description: str
    pattern: str


TRACEPARENT = HeaderField(
    trace_context.HEADER,
    "The trace that the send belongs to (W3C Trace Context); an invalid one is ignored. Events of the message name it",
    trace_context.PATTERN,
)


class ErrorForm(Struct, frozen=True):
    """The format of the refusals of an operation that stands in for another service."""

    body: Any  # Struct type of the bodies, for the OpenAPI document
    # Return status and body from the refusal, the `error` of this API, and whether the request has a key.
    write: Callable[[Refusal, dict[str, Any], bool], tuple[int, Struct]]


Answer = Struct | Raw | Streamed | None
# Of a `call`, and of the `query`, the `page` of a list, and the `body`, if it names them.
Handler = Callable[..., Awaitable[Answer]]
OwnerCheck = Callable[[Call, KeyRestrictions], Awaitable[None]]


class Area(Struct, frozen=True):
    """The tag, the access and the default field values of an area's operations."""

    tag: str
    access: Access = Access.KEY
    reads: tuple[str, ...] = ()  # scopes of a GET, any one of them
    writes: tuple[str, ...] = ()  # scopes of the other methods
    limited_keys: LimitedKeys | None = None
    id_of: ids.Kind | None = None  # for operations with an `{id}`
    noun: str = ""  # of the object with that id, if it is not the kind's own
    owner_check: OwnerCheck | None = None  # for operations with an `{id}` that limited keys use for their own
    role: Role | None = None
    for_operator: bool = False  # only for operators of the installation; to others it is unknown


class Operation(Struct, frozen=True):
    """An endpoint of the API: its path, access rules, input, output, limits and handler.

    The annotations of the handler name the types of the body, the query and the reply. Fields left out have the values
    of the area.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    area: Area
    id_of: ids.Kind | None = None  # the kind of `{id}` in the path, which the handler gets as `call.id`
    inner_id_of: ids.Kind | None = None  # the kind of the parameter behind it: `call.inner_id`
    page: ids.Kind | None = None  # the kind of the ids that a cursor of the list names; required with a `page`
    note: str = ""  # more for callers than the summary, for the OpenAPI document
    success: int = 0  # default: 200, or 204 for a handler that returns None
    also: tuple[int, ...] = ()  # other success statuses with the same reply
    scopes: tuple[str, ...] = ()  # any one of them
    limited_keys: LimitedKeys | None = None  # required with Access.KEY
    # Raises the 404 for an object in the path that a limited key must not see, see api.http.owner_checks. None: the
    # statements of the handler do that.
    owner_check: OwnerCheck | None = None
    role: Role | None = None  # the lowest role of a signed-in person; None: any member
    request: Any = None  # type of a JSON body: the handler's
    request_parts: tuple[Any, ...] = ()  # types that its schema refers to, for the OpenAPI document
    max_body_bytes: int | None = None  # None: the largest body that the schema of `request` allows
    raw_body: bool = False  # the handler gets the octets of any media type, at most `max_body_bytes`: they are signed
    body_types: tuple[str, ...] = ()  # the handler gets the octets of a body of one of these media types
    carries_messages: bool = False  # the body may have `max_request_bytes` of the settings
    query: type[Struct] | None = None  # the handler's
    lenient_query: bool = False  # unknown parameters are ignored: another service writes the query
    headers: tuple[HeaderField, ...] = ()
    reply_headers: tuple[tuple[str, str], ...] = ()  # fixed fields of every response, refusals included
    reply: Any = None  # type of the response if its handler does not return one, and of each record of a stream
    other_replies: tuple[Any, ...] = ()  # types of replies with the statuses `also`, besides `reply`
    reply_type: str = "application/json"
    other_reply_types: tuple[str, ...] = ()  # that the query can ask for
    deadline_s: float | None = None  # of the handler, not of its stream; None: the default of the method
    refusals: tuple[ErrorType, ...] = ()  # beyond those of every such operation
    errors: ErrorForm | None = None  # None: the `error` object of this API
    key_header: str | None = None  # a header that may hold the API key in place of Authorization
    path_ids: tuple[PathId, ...] = ()  # made of `id_of` and `inner_id_of`
    lagging: bool = False  # it only reads, through `call.services.pool`, and may show the data of some seconds ago
    takes_query: bool = False  # made of the handler's parameters
    open_to_suspended: bool = False  # allowed to persons of a suspended account, as it only revokes access

    def __post_init__(self) -> None:
        """Set the fields left out to the values of the area and the types of the handler.

        Raises TypeError unless exactly the operations for API keys declare their use by limited keys, exactly the
        lists the kind of their cursor, and no operation but a GET that it may lag.
        """
        area, types = self.area, _types_of(self.handler)
        self._default("scopes", area.reads if self.method == "GET" else area.writes)
        self._default("limited_keys", area.limited_keys)
        self._default("role", area.role)
        if "{id}" in self.path:
            self._default("id_of", area.id_of)
            if self.limited_keys in _OWN:
                self._default("owner_check", area.owner_check)
        self._default("query", types.get("query", PageQuery if "page" in types else None))
        self._default("request", None if types.get("body") is bytes else types.get("body"))
        self._default("success", 204 if types["return"] is NoneType else 200)
        self._default("reply", _reply_of(types["return"]))
        if (self.access is Access.KEY) is (self.limited_keys is None):
            raise TypeError(f"{self.method} {self.path}: `limited_keys` is required with Access.KEY, and only then")
        if self.lagging and self.method != "GET":
            raise TypeError(f"{self.method} {self.path}: only an operation that changes nothing may lag")
        if ("page" in types) is (self.page is None):
            raise TypeError(f"{self.method} {self.path}: `page` is required if the handler takes a page, and only then")

        force_setattr(self, "takes_query", "query" in types)
        force_setattr(self, "path_ids", self._path_ids())

    def _path_ids(self) -> tuple[PathId, ...]:
        kinds = [kind for kind in (self.id_of, self.inner_id_of) if kind is not None]
        nouns = self.area.noun, ""
        return tuple(PathId(*one) for one in zip(_PARAMETER.findall(self.path), kinds, nouns, strict=False))

    def _default(self, name: str, value: object) -> None:
        if not getattr(self, name):
            force_setattr(self, name, value)

    @property
    def tag(self) -> str:
        """Return the tag in the OpenAPI document."""
        return self.area.tag

    @property
    def access(self) -> Access:
        """Return the credentials that the operation accepts."""
        return self.area.access

    @property
    def for_operator(self) -> bool:
        """Return True if only operators of the installation may call it; to others it is unknown."""
        return self.area.for_operator

    @property
    def id(self) -> str:
        """Return the operation's name in metrics and logs, such as `post_v1_emails`."""
        words = self.path.strip("/").replace("{", "").replace("}", "").replace("-", "_").replace(".", "_")
        return f"{self.method.lower()}_{words.replace('/', '_')}"

    @property
    def takes_head(self) -> bool:
        """Return True if HEAD is allowed (RFC 9110 9.1): not for streams, nor for redirects of a sign-in."""
        return self.method == "GET" and self.success == 200 and self.reply_type not in _STREAMS

    @property
    def body_is_optional(self) -> bool:
        """Return True if no field of the body is required; no body is then the same as `{}`."""
        return self.request is not None and _takes_empty(self.request)

    @property
    def needs_csrf(self) -> bool:
        """Return True if a signed-in caller must send the session's CSRF token."""
        return self.access in (Access.KEY, Access.SESSION) and self.method in CHANGES

    @property
    def stops_suspended(self) -> bool:
        """Return True if persons of a suspended account are refused.

        They may still read, change their own profile and sign-in, and revoke access.
        """
        return self.needs_csrf and (self.access is Access.KEY or self.role is not None) and not self.open_to_suspended

    def body_limit(self, max_request_bytes: int) -> int:
        """Return the largest body in octets, at most `max_request_bytes`."""
        if self.carries_messages:
            return max_request_bytes
        if self.raw_body or self.body_types:
            return min(max_request_bytes, self.max_body_bytes or body_limits.NO_BODY_BYTES)
        if self.request is None:
            return body_limits.NO_BODY_BYTES
        return min(max_request_bytes, self.max_body_bytes or body_limits.bytes_needed(self.request))

    def all_refusals(self) -> tuple[ErrorType, ...]:
        """Return every error type that this operation can answer, in the registry's order."""
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
        if self.request is not None or self.body_types:
            own.add(ErrorType.UNSUPPORTED_MEDIA_TYPE)
        if "{" in self.path or self.for_operator:
            own.add(ErrorType.NOT_FOUND)
        return tuple(kind for kind in ErrorType if kind in own)


@cache
def _types_of(handler: Handler) -> Mapping[str, Any]:
    """Return the types that a handler declares: of its parameters by name, and `return`."""
    types = get_type_hints(handler, include_extras=True)
    if not types.keys() <= {"call", "query", "page", "body", "return"}:
        raise TypeError(f"{handler.__module__}.{handler.__qualname__} may take `call`, `query`, `page` and `body`")
    return types


def _reply_of(returned: Any) -> Any:
    """Return the Struct type that a handler returns; None if the octets are its own, or there are several types."""
    is_reply = isinstance(returned, type) and issubclass(returned, Struct) and returned not in {Raw, Streamed}
    return returned if is_reply else None


@cache
def _takes_empty(request: Any) -> bool:
    try:
        msgspec.json.decode(b"{}", type=request)
    except msgspec.ValidationError:
        return False
    return True
