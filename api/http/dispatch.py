"""One request through its operation: authenticate, limit, decode, handle, answer."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
import structlog
from msgspec import Struct

from api.http import auth, body, decode, paths, stream
from api.http.operation import Access, Call, Operation, Raw, Streamed
from api.http.services import ApiServices
from engine.areas.api_keys import key_auth
from engine.areas.sessions.session_auth import Person, SessionAuth
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, invalid, not_found, unavailable
from engine.base.netaddr import network_of
from engine.base.plans import CAPS, Plan
from engine.base.settings import Settings
from engine.store import metrics, rate_limits
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within

READ_DEADLINE_S = 8.0  # a little over what the reads themselves are bounded to
WRITE_DEADLINE_S = 20.0  # over the commit's own deadline (engine.flows.sending.accept)
MIN_PERSON_RATE = 50  # requests a second of a signed-in person, whatever the plan: a console asks in bursts
LOOK_UPS = 50  # keys that are still looked up for such an address: a good one may be among them
MAX_SUSPECTS = 10_000
REQUEST_ID = "X-Request-Id"
_JSON = "application/json"
# OWASP REST Security Cheat Sheet: answers are data, never a page, never stored, never framed.
CAREFUL = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)
_INSIST = ("Strict-Transport-Security", "max-age=31536000")
_ENCODER = msgspec.json.Encoder()
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{8,64}", re.ASCII)

_log = structlog.get_logger("api")

Responder = Callable[..., Awaitable[None]]


class Suspect(Struct):
    """An address that has just sent too many bad keys: made-up keys must not cost a query each for ever."""

    until: float
    left: int = LOOK_UPS


class DispatchContext(Struct):
    """What dispatching needs of the process."""

    settings: Settings
    services: ApiServices
    keys: key_auth.Keys
    sessions: SessionAuth
    limits: rate_limits.RateLimiter
    memory: body.BodyMemory
    suspects: "dict[str, Suspect]"
    on_answer: Callable[[str, int, str | None], None]  # operation id, status, refusal type


class RoutedOperation:
    """The Falcon resource of one path: a responder for each of its operations."""

    def __init__(self, door: DispatchContext, operations: Iterable[Operation]) -> None:
        for operation in operations:
            responder = _responder(door, operation)
            setattr(self, f"on_{operation.method.lower()}", responder)
            if operation.takes_head:
                self.on_head = responder  # the server leaves the body out


def _responder(door: DispatchContext, operation: Operation) -> Responder:
    decoder = None if operation.request is None else msgspec.json.Decoder(operation.request)

    id_of_operation = operation.id
    limit = operation.body_limit(door.settings.max_request_bytes)
    deadline_s = operation.deadline_s or (READ_DEADLINE_S if operation.method == "GET" else WRITE_DEADLINE_S)

    async def respond(request: falcon.asgi.Request, response: falcon.asgi.Response, **path: str) -> None:
        call = Call(request, door.services, door.settings, paths.parameters(path))
        refused: str | None = None
        try:
            await _admit(door, operation, call, response)
            body.check_size(call.request.content_length or 0, limit)
            call.query = decode.decode_query(request, operation.query, lenient=operation.lenient_query)
            if decoder is not None:
                await _read(door, operation, call, decoder, limit)
            elif _has_body(call.request):
                await _receive(door, call, limit)
            with within(deadline_s):
                answer = await operation.handler(call)
            _answer(response, operation, call, answer)
        except Refusal as refusal:
            refused = refusal.kind.value
            _log.info("refused", request=request.context.id, operation=id_of_operation, type=refused)
            refuse(response, refusal)
            for cookie in call.cookies:  # such as the one that takes a dead session's away
                response.append_header("Set-Cookie", cookie)
        except (DatabaseUnavailable, OSError) as error:
            _log.warning("unavailable", request=request.context.id, operation=id_of_operation, error=repr(error))
            refused = ErrorType.UNAVAILABLE.value
            refuse(response, unavailable())
        finally:
            if call.memory is not None:
                call.memory.release()
        door.on_answer(id_of_operation, int(str(response.status)[:3]), refused)

    return respond


async def _admit(door: DispatchContext, operation: Operation, call: Call, response: falcon.asgi.Response) -> None:
    """Authenticate and count the request; a failed authentication counts against the address it came from.

    An Authorization header speaks for the request, else the session's cookie does.
    """
    if operation.access is Access.NONE:
        await _limit(door, _address(call), door.settings.unauthenticated_rate, response)
        return
    header = call.request.get_header("Authorization")
    if header is None and operation.access is not Access.PLATFORM_KEY:
        secret = auth.session_secret(call.request)
        if secret is not None or operation.access is Access.SESSION:
            await _admit_person(door, operation, call, response, secret)
            return
    caller = await _calling_key(door, operation, call, response, header)
    rate = door.settings.request_rate or CAPS[Plan(caller.plan)].requests_per_second
    await _limit(door, f"key:{caller.key_id}", rate, response)
    if operation.access is Access.SESSION:
        raise auth.people_only()
    key_auth.check_scope(caller, operation.scopes)
    call.caller = caller


async def _calling_key(
    door: DispatchContext, operation: Operation, call: Call, response: falcon.asgi.Response, header: str | None
) -> key_auth.Caller:
    key = auth.bearer(header)
    if key is not None and door.keys.cache.peek(key.key_id) is None:
        await _heed_suspect(door, call, response)
    try:
        with within(READ_DEADLINE_S):
            return await door.keys.caller(key, call.request.remote_addr)
    except Refusal:
        await _suspect(door, call, response)
        if operation.access is Access.SESSION:
            raise auth.sign_in_first() from None
        raise


async def _admit_person(
    door: DispatchContext, operation: Operation, call: Call, response: falcon.asgi.Response, secret: str | None
) -> None:
    await _heed_suspect(door, call, response)
    with within(READ_DEADLINE_S):
        person = await door.sessions.person(secret, auth.device(call.request))
    if person is None:
        await _suspect(door, call, response)
        raise auth.sign_in_first() if operation.access is Access.SESSION else key_auth.unauthorized()
    await _limit(door, f"usr:{person.user_id}", _persons_rate(door.settings, person), response)
    if operation.needs_csrf:
        auth.check_csrf(person, call.request.get_header(auth.CSRF_HEADER))
    auth.check_role(person, operation.role)
    if operation.stops_suspended:
        auth.check_standing(person)
    call.signed_in = person


def _persons_rate(settings: Settings, person: Person) -> int:
    return settings.request_rate or max(MIN_PERSON_RATE, CAPS[Plan(person.plan)].requests_per_second)


def _address(call: Call) -> str:
    return f"ip:{network_of(call.request.remote_addr)}"


async def _heed_suspect(door: DispatchContext, call: Call, response: falcon.asgi.Response) -> None:
    """Count an unknown credential before it is looked up where its address has sent too many bad ones."""
    address = _address(call)
    if _used_up(door, address):
        await _limit(door, address, door.settings.unauthenticated_rate, response)


async def _suspect(door: DispatchContext, call: Call, response: falcon.asgi.Response) -> None:
    """Count a bad credential; raises 429 from an address that has sent too many."""
    address = _address(call)
    try:
        await _limit(door, address, door.settings.unauthenticated_rate, response)
    except Refusal as limited:
        if len(door.suspects) >= MAX_SUSPECTS:
            door.suspects.clear()
        door.suspects.setdefault(address, Suspect(time.monotonic() + (limited.retry_after_s or 1)))
        raise


def _used_up(door: DispatchContext, address: str) -> bool:
    suspect = door.suspects.get(address)
    if suspect is None:
        return False
    if suspect.until < time.monotonic():
        del door.suspects[address]
        return False
    suspect.left -= 1
    return suspect.left < 0


async def _limit(door: DispatchContext, bucket: str, rate: float, response: falcon.asgi.Response) -> None:
    standing = await door.limits.check(bucket, rate)
    response.set_header("RateLimit-Limit", str(standing.burst))
    response.set_header("RateLimit-Remaining", str(standing.remaining))
    response.set_header("RateLimit-Reset", str(standing.reset_s))
    if not standing.allowed:
        raise rate_limits.refusal(standing)


async def _read(
    door: DispatchContext, operation: Operation, call: Call, decoder: msgspec.json.Decoder[Any], limit: int
) -> None:
    may_be_empty = operation.no_body_is_empty and not call.request.content_length
    if not may_be_empty:
        decode.check_media_type(call.request)
    content = await _receive(door, call, limit)
    call.body_bytes = len(content)
    if not content and operation.no_body_is_empty:
        content = b"{}"  # some clients name a type for the body that they do not send
    elif may_be_empty:
        decode.check_media_type(call.request)
    if len(content) > decode.LARGE_BYTES:
        call.body = await asyncio.to_thread(decode.decode_body, content, decoder)
    else:
        call.body = decode.decode_body(content, decoder)


async def _receive(door: DispatchContext, call: Call, limit: int) -> bytes:
    """The body's octets, which count against the memory of who sends them until the request is answered."""
    if call.caller is not None:
        call.memory = door.memory.callers.open(call.caller.account_id, call.caller.key_id)
    elif call.signed_in is not None:
        call.memory = door.memory.callers.open(call.signed_in.account_id, call.signed_in.user_id)
    else:
        call.memory = door.memory.strangers.open(_address(call))
    connection = stream.connection_of(call.request.scope)
    return await body.read_body(connection, call.request.content_length, limit, door.settings, call.memory)


def _has_body(request: falcon.asgi.Request) -> bool:
    """Whether a body follows a request of HTTP/1.1 (RFC 9112 section 6.3)."""
    return bool(request.content_length) or request.get_header("Transfer-Encoding") is not None


def _answer(
    response: falcon.asgi.Response, operation: Operation, call: Call, answer: Struct | Raw | Streamed | None
) -> None:
    response.status = falcon.code_to_http_status(call.status or operation.success)
    for cookie in call.cookies:
        response.append_header("Set-Cookie", cookie)
    for name, value in call.headers:
        response.set_header(name, value)
    if answer is None:
        response.content_type = None
        return
    if isinstance(answer, Raw | Streamed):
        if isinstance(answer, Raw):
            response.data = answer.content
        else:
            stream.connection_of(call.request.scope).carry(
                answer, operation=operation.id, request=call.request.context.id
            )
            response.stream = answer.chunks
        response.content_type = answer.content_type
        for name, value in answer.headers:
            response.set_header(name, value)
        return
    response.data = _ENCODER.encode(answer)
    response.content_type = _JSON


def refuse(response: falcon.asgi.Response, refusal: Refusal) -> None:
    """Write the error envelope."""
    response.status = falcon.code_to_http_status(refusal.status)
    response.data = _ENCODER.encode(refusal.envelope())
    response.content_type = _JSON
    if refusal.retry_after_s is not None:
        response.set_header("Retry-After", str(refusal.retry_after_s))
    if refusal.kind is ErrorType.UNAUTHORIZED:
        response.set_header("WWW-Authenticate", "Bearer")


class RequestId:
    """Falcon middleware: every answer names its request, and tells browsers to be careful with it.

    A sane id of the caller is kept. `over_tls`: people reach us by https, and browsers shall insist on it.
    """

    def __init__(self, *, over_tls: bool) -> None:
        self._headers = [*CAREFUL, *([_INSIST] if over_tls else [])]

    async def process_request(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Before routing, so that a 404 carries it too."""
        given = request.get_header(REQUEST_ID)
        name = given if given and _GIVEN_ID.fullmatch(given) else ids.encode(ids.uuid7())
        request.context.id = name
        response.set_header(REQUEST_ID, name)
        response.set_headers(self._headers)


async def on_http_error(
    request: falcon.asgi.Request,
    response: falcon.asgi.Response,
    error: falcon.HTTPError,
    params: dict[str, object],  # noqa: ARG001
) -> None:
    """Falcon's own refusals (routing, transport) in our envelope."""
    metrics.TALLY.add(metrics.REQUESTS, "unrouted", str(error.status)[:3])
    allowed = dict(error.headers or {}) if not isinstance(error.headers, list) else dict(error.headers)
    refuse(response, _translated(error, request.method, allowed.get("Allow", "")))
    if "Allow" in allowed:
        response.set_header("Allow", allowed["Allow"])


async def on_bug(
    request: falcon.asgi.Request,
    response: falcon.asgi.Response,
    error: Exception,
    params: dict[str, object],  # noqa: ARG001 - Falcon's signature
) -> None:
    """What nobody expected: logged with the request's id; the client gets a bare 500."""
    _log.error("unhandled", request=getattr(request.context, "id", None), path=request.path, exc_info=error)
    metrics.TALLY.add(metrics.REQUESTS, "unhandled", "500")
    response.status = falcon.HTTP_500
    response.data = b'{"title":"500 Internal Server Error"}'
    response.content_type = _JSON


def path_id(kind: ids.Kind, text: str, what: str) -> UUID:
    """An id out of a path: a malformed one, or one of another kind, is as unknown as any other (404)."""
    try:
        return ids.parse_id(kind, text)
    except ids.WrongId:
        raise not_found(what) from None


def cursor_id(kind: ids.Kind, text: str | None) -> UUID | None:
    """An id out of a cursor: one of another kind is a 400."""
    if text is None:
        return None
    try:
        return ids.parse_id(kind, text)
    except ids.WrongId as error:
        raise invalid("before", f"`before` must be the `nextCursor` of an earlier page: {error}.") from None


def _translated(error: falcon.HTTPError, method: str, allowed: str) -> Refusal:
    status = int(str(error.status)[:3])
    if status == 404:
        return Refusal(ErrorType.NOT_FOUND, "There is nothing at this path.")
    if status == 405:
        return Refusal(ErrorType.METHOD_NOT_ALLOWED, f"This path does not take {method}. It takes {allowed}.")
    if status == 413:
        return Refusal(ErrorType.PAYLOAD_TOO_LARGE, "The request is too large.")
    if status == 415:
        return Refusal(ErrorType.UNSUPPORTED_MEDIA_TYPE, "Send the body as application/json.")
    return Refusal(ErrorType.INVALID_REQUEST, error.description or error.title or "The request is malformed.")
