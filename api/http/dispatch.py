"""Run one request through its operation: authenticate, limit, decode, handle, answer."""

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import falcon
import falcon.asgi
import msgspec
import structlog
from msgspec import Struct

from api.http import admission, body, cross_origin, decode, paths, rate_limit_headers, stream
from api.http.admission import READ_DEADLINE_S, RequestContext
from api.http.operation import Call, Operation, Raw, Streamed
from api.http.paging import page_of
from engine.accounts.request_log import rules as request_log
from engine.base import ids
from engine.base.errors import ErrorType, Refusal, unavailable
from engine.store import large_mail, metrics
from engine.store.database_errors import DatabaseUnavailable
from engine.store.deadlines import within
from engine.store.pace import PACE

WRITE_DEADLINE_S = 20.0  # over the commit's own deadline (engine.sending.accept)
REQUEST_ID = "X-Request-Id"
_JSON = "application/json"
_PERMISSIONS = (
    "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(),"
    " midi=(), payment=(), usb=()"
)
# OWASP REST Security Cheat Sheet: responses are data, not pages; browsers must not store or frame them.
SECURITY_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # Passkeys and the clipboard stay: the console uses them.
    ("Permissions-Policy", _PERMISSIONS),
)
_HSTS = ("Strict-Transport-Security", "max-age=31536000")
_ENCODER = msgspec.json.Encoder()
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{8,64}", re.ASCII)

_log = structlog.get_logger("api")

Responder = Callable[..., Awaitable[None]]


class RoutedOperation:
    """The Falcon resource of one path: a responder for each of its operations."""

    def __init__(self, context: RequestContext, operations: Iterable[Operation]) -> None:
        self._methods: set[str] = set()
        for operation in operations:
            self._methods |= {operation.method, "HEAD"} if operation.takes_head else {operation.method}
            responder = _responder(context, operation)
            setattr(self, f"on_{operation.method.lower()}", responder)
            if operation.takes_head:
                self.on_head = responder  # the server leaves the body out

    async def on_options(self, request: falcon.asgi.Request, response: falcon.asgi.Response, **_: str) -> None:
        """Answer the path's methods, and preflights of browsers."""
        cross_origin.answer_options(request, response, self._methods)


def _responder(context: RequestContext, operation: Operation) -> Responder:
    decoder = None if operation.request is None else msgspec.json.Decoder(operation.request)

    id_of_operation = operation.id
    limit = operation.body_limit(context.settings.max_request_bytes)
    shown_path = operation.path if request_log.is_private(operation.path) else None
    deadline_s = operation.deadline_s or (READ_DEADLINE_S if operation.method == "GET" else WRITE_DEADLINE_S)

    async def respond(request: falcon.asgi.Request, response: falcon.asgi.Response, **path: str) -> None:
        began = time.perf_counter()
        call = Call(request, context.services, context.settings, paths.parameters(path))
        response.set_headers(operation.reply_headers)
        refused: str | None = None
        status = 500  # of an exception that nothing below expects
        try:
            await admission.admit(context, operation, call, response)
            given = await _input(context, operation, call, decoder, limit)
            answer = await _handled(context, operation, call, given, response, deadline_s)
            _answer(response, operation, call, answer)
            status = call.status or operation.success
        except Refusal as refusal:
            refused = refusal.kind.value
            _log.info(
                "request refused",
                request=request.context.id,
                operation=id_of_operation,
                type=refused,
                **call.log_fields,
            )
            status = _refuse(response, operation, call, refusal)
            for cookie in call.cookies:  # such as the one that deletes the cookie of an ended session
                response.append_header("Set-Cookie", cookie)
        except (DatabaseUnavailable, OSError) as error:
            _log.warning(
                "request failed: dependency unavailable",
                request=request.context.id,
                operation=id_of_operation,
                error=repr(error),
                **call.log_fields,
            )
            refused = ErrorType.UNAVAILABLE.value
            status = _refuse(response, operation, call, unavailable())
        finally:
            if call.memory is not None:
                call.memory.release()
            if operation.method != "GET":
                PACE.touch()
            seconds = time.perf_counter() - began
            _log_request(context, call, response, shown_path or request.path, status, seconds, refused)
        context.on_answer(id_of_operation, int(str(response.status)[:3]), refused)

    return respond


async def _input(
    context: RequestContext,
    operation: Operation,
    call: Call,
    decoder: msgspec.json.Decoder[Any] | None,
    limit: int,
) -> dict[str, Any]:
    """Return the decoded `query` and `body` that the handler takes."""
    given: dict[str, Any] = {}
    body.check_size(call.request.content_length or 0, limit)
    query = decode.decode_query(call.request, operation.query, lenient=operation.lenient_query)
    if query is not None:
        given["query"] = query
    if decoder is not None:
        given["body"] = await _read(context, operation, call, decoder, limit)
    elif operation.raw_body or operation.body_types:
        if operation.body_types:
            decode.check_media_type(call.request, operation.body_types)
        given["body"] = await _receive(context, call, limit)
    elif _has_body(call.request):
        await _receive(context, call, limit)
    return given


async def _handled(
    context: RequestContext,
    operation: Operation,
    call: Call,
    given: dict[str, Any],
    response: falcon.asgi.Response,
    deadline_s: float,
) -> Any:
    """Call the handler. A bad signature of a body counts against the client's address, as any bad credential."""
    reads = context.replica_reads
    try:
        call.path_ids = tuple([one.read(call.path) for one in operation.path_ids])
        if operation.page is not None:
            given["page"] = page_of(operation.page, given["query"])
            if not operation.takes_query:
                del given["query"]
        if reads is not None and operation.lagging:
            return await reads.answer(call, given, partial(_handle, operation, call, given), deadline_s)
        with within(deadline_s):
            return await _handle(operation, call, given)
    except Refusal as refusal:
        if operation.raw_body and refusal.kind is ErrorType.UNAUTHORIZED:
            await admission.count_bad_credential(context, call, response)
        raise
    finally:
        if reads is not None and operation.method != "GET":
            await reads.wrote(call)


async def _handle(operation: Operation, call: Call, given: dict[str, Any]) -> Any:
    if operation.owner_check is not None and call.reach is not None:
        await operation.owner_check(call, call.reach)
    return await operation.handler(call, **given)


def _log_request(
    context: RequestContext,
    call: Call,
    response: falcon.asgi.Response,
    path: str,
    status: int,
    seconds: float,
    refused: str | None,
) -> None:
    """Add a request with a valid credential to the log of its account, and tell its caller how long it took.

    A stranger must not learn from exact times whether a key or an account is known.
    """
    caller, person = call.caller, call.signed_in
    if caller is None and person is None:
        return
    response.set_header("Server-Timing", rate_limit_headers.server_timing(seconds))
    request = call.request
    context.requests.record(
        call.account_id,
        None if caller is None else caller.id,
        None if person is None else person.user_id,
        request.method,
        path,
        status,
        seconds,
        request.context.id,
        refused,
        call.agent or request_log.agent_of(request.user_agent),
    )


async def _read(
    context: RequestContext, operation: Operation, call: Call, decoder: msgspec.json.Decoder[Any], limit: int
) -> Any:
    """Return the JSON body as the operation's Struct."""
    may_be_empty = operation.body_is_optional and not call.request.content_length
    if not may_be_empty:
        decode.check_media_type(call.request)
    content = await _receive(context, call, limit)
    call.body_bytes = len(content)
    if not content and operation.body_is_optional:
        content = b"{}"  # some clients send a Content-Type without a body
    elif may_be_empty:
        decode.check_media_type(call.request)
    if len(content) > decode.LARGE_BYTES:
        found = await large_mail.in_thread(len(content), partial(decode.decode_body, content, decoder))
    else:
        found = decode.decode_body(content, decoder)
    if getattr(found, "if_exists", None) is not None:
        call.body_fields = decode.names(content)
    return found


async def _receive(context: RequestContext, call: Call, limit: int) -> bytes:
    """Return the body; it counts against its sender's share of memory until the request is answered."""
    if call.caller is not None:
        call.memory = context.memory.callers.open(call.caller.account_id, call.caller.key_id)
    elif call.signed_in is not None:
        call.memory = context.memory.callers.open(call.signed_in.account_id, call.signed_in.user_id)
    else:
        call.memory = context.memory.anonymous.open(admission.address_of(call))
    connection = stream.connection_of(call.request.scope)
    return await body.read_body(connection, call.request.content_length, limit, context.settings, call.memory)


def _has_body(request: falcon.asgi.Request) -> bool:
    """Return True if a body follows the head of an HTTP/1.1 request (RFC 9112 section 6.3)."""
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
            stream.connection_of(call.request.scope).start_stream(
                answer, operation=operation.id, request=call.request.context.id
            )
            response.stream = answer.chunks
        response.content_type = answer.content_type
        for name, value in answer.headers:
            response.set_header(name, value)
        return
    response.data = _ENCODER.encode(answer)
    response.content_type = _JSON


def _refuse(response: falcon.asgi.Response, operation: Operation, call: Call, refusal: Refusal) -> int:
    """Write a refusal in the form of the operation; return its HTTP status."""
    refuse(call.request, response, refusal)
    if operation.errors is None:
        return refusal.status
    own = refusal.envelope(call.request.context.docs)["error"]
    status, body = operation.errors.write(refusal, own, bool(admission.given_key(operation, call)))
    response.status = falcon.code_to_http_status(status)
    response.data = _ENCODER.encode(body)
    return status


def refuse(request: falcon.asgi.Request, response: falcon.asgi.Response, refusal: Refusal) -> None:
    """Write the error object of a refusal into the response, with a link to its explanation."""
    response.status = falcon.code_to_http_status(refusal.status)
    response.data = _ENCODER.encode(refusal.envelope(request.context.docs))
    response.content_type = _JSON
    if refusal.retry_after_s is not None:
        response.set_header("Retry-After", str(refusal.retry_after_s))
    if refusal.kind is ErrorType.UNAUTHORIZED:
        response.set_header("WWW-Authenticate", "Bearer")


def errors_page(public_url: str) -> str:
    """Return the address of the page that explains every error type, with an anchor each."""
    return f"{public_url.rstrip('/')}/docs/errors"


class RequestId:
    """Falcon middleware: set the request id and the security headers of every response.

    A valid id of the client is kept. If the public URL is https, browsers are told to insist on it (HSTS).
    """

    def __init__(self, public_url: str) -> None:
        self._headers = [*SECURITY_HEADERS, *([_HSTS] if public_url.startswith("https://") else [])]
        self._docs = errors_page(public_url)

    async def process_request(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Set the headers before routing, so that a 404 has them too."""
        given = request.get_header(REQUEST_ID)
        name = given if given and _GIVEN_ID.fullmatch(given) else ids.encode(ids.uuid7())
        request.context.id = name
        request.context.docs = self._docs
        response.set_header(REQUEST_ID, name)
        response.set_headers(self._headers)


async def on_http_error(
    request: falcon.asgi.Request,
    response: falcon.asgi.Response,
    error: falcon.HTTPError,
    params: dict[str, object],  # noqa: ARG001
) -> None:
    """Answer an error of Falcon itself (routing, transport) with the API's error object."""
    metrics.TALLY.add(metrics.REQUESTS, "unrouted", str(error.status)[:3])
    allowed = dict(error.headers or {}) if not isinstance(error.headers, list) else dict(error.headers)
    refuse(request, response, _translated(error, request.method, allowed.get("Allow", "")))
    if "Allow" in allowed:
        response.set_header("Allow", allowed["Allow"])


async def on_bug(
    request: falcon.asgi.Request,
    response: falcon.asgi.Response,
    error: Exception,
    params: dict[str, object],  # noqa: ARG001 - Falcon's signature
) -> None:
    """Log an unexpected exception with the request's id, and answer a bare 500."""
    _log.error(
        "request failed: unexpected exception",
        request=getattr(request.context, "id", None),
        path=request.path,
        exc_info=error,
    )
    metrics.TALLY.add(metrics.REQUESTS, "unhandled", "500")
    response.status = falcon.HTTP_500
    response.data = b'{"title":"500 Internal Server Error"}'
    response.content_type = _JSON


def _translated(error: falcon.HTTPError, method: str, allowed: str) -> Refusal:
    status = int(str(error.status)[:3])
    if status == 404:
        return Refusal(ErrorType.NOT_FOUND, "No such path. Check it in the API reference.")
    if status == 405:
        return Refusal(ErrorType.METHOD_NOT_ALLOWED, f"{method} isn't supported here. Use {allowed}.")
    if status == 413:
        return Refusal(ErrorType.PAYLOAD_TOO_LARGE, "The request is too large.")
    if status == 415:
        return Refusal(ErrorType.UNSUPPORTED_MEDIA_TYPE, "Send the body as application/json.")
    return Refusal(ErrorType.INVALID_REQUEST, error.description or error.title or "The request is malformed.")
