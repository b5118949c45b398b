"""`POST /mcp`: the tools over HTTP, stateless, so that any worker answers any request.

It is an operation with its credential, rate, size and time limits and its entry in the request log, but not one of the
OpenAPI document: its bodies are those of the Model Context Protocol.
"""

import asyncio
from collections.abc import Mapping, MutableMapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from api.http.operation import Area, Call, LimitedKeys, Operation, Raw
from api.http.service_addresses import has_mcp
from api.mcp.calls import MAX_ANSWER_BYTES, Api, CallAnswer
from engine.accounts.request_log.rules import agent_name
from engine.base.errors import ErrorType, Refusal, invalid
from engine.people.api_keys.key_auth import unauthorized

PATH: Final = "/mcp"
MAX_BODY_BYTES: Final = 2 * 1024 * 1024
DEADLINE_S: Final = 45.0  # a tool makes up to two calls, each with its own deadline
_API: Final = "waybill.api"
_WITHHELD: Final = frozenset({b"authorization", b"cookie"})  # the SDK has no use for them
_CLIENT: Final = "io.modelcontextprotocol/clientInfo"


def operation(app: Any) -> Operation:
    """Return the operation; the tools call the operations of `app`, the ASGI application itself."""

    async def serve(call: Call, body: bytes) -> Raw | None:
        return await _answer(app, call, body)

    return Operation(
        "POST",
        PATH,
        serve,
        "Call the tools of the MCP server",
        Area("Agents", limited_keys=LimitedKeys.FREE),
        body_types=("application/json",),
        max_body_bytes=MAX_BODY_BYTES,
        deadline_s=DEADLINE_S,
        reply=Raw,
    )


async def _answer(app: Any, call: Call, body: bytes) -> Raw | None:
    """Answer one message of the protocol."""
    if call.caller is None:
        raise unauthorized()
    _check_origin(call)
    if not has_mcp():
        raise Refusal(
            ErrorType.NOT_FOUND, "The MCP server is not installed here. Install `waybill[mcp]` and restart the service."
        )
    call.agent = _agent_of(_message(body)) or agent_name(call.request.user_agent or "")
    # In a thread, as the first import takes about a second.
    server: ModuleType = await asyncio.to_thread(import_module, "api.mcp.http_server")
    answer = await server.answer(_scope(call, app), body)
    call.status = answer.status
    return Raw(answer.body, answer.content_type) if answer.body else None


def api_of(scope: Mapping[str, Any]) -> Api:
    """Return the API as the caller of a request to PATH calls it."""
    found: Api = scope[_API]
    return found


def _check_origin(call: Call) -> None:
    """Refuse requests of web pages of other origins, as the protocol asks (DNS rebinding)."""
    origin = call.request.get_header("Origin")
    own = urlsplit(call.settings.public_url)
    if origin is not None and origin.lower() != f"{own.scheme}://{own.netloc}".lower():
        raise Refusal(ErrorType.FORBIDDEN, "Pages of other origins can't use the MCP server. Call it from a program.")


def _message(body: bytes) -> dict[str, Any]:
    """Return the decoded message; raise the 400 for anything but one JSON object, before the SDK reads it."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise invalid("body", "The body is not one JSON-RPC message. Send an object, not a batch.") from None


def _agent_of(message: Mapping[str, Any]) -> str | None:
    """Return name and version of the client that a message names: each one of the newer protocol, else `initialize`."""
    try:
        params = message["params"]
        known = params.get("clientInfo") or params["_meta"][_CLIENT]
        return agent_name(f"{known['name']} {known['version']}")
    except (KeyError, TypeError, AttributeError):
        return None


def _scope(call: Call, app: Any) -> dict[str, Any]:
    """Return the ASGI scope of the request for the SDK, with the API for its tools."""
    scope = call.request.scope
    inner = InnerCaller(app, scope, call.request.get_header("Authorization") or "")
    headers = [(name, value) for name, value in scope["headers"] if name not in _WITHHELD]
    return {**scope, "headers": headers, _API: Api(inner, call.agent)}


class InnerCaller:
    """Calls the application within this process, as a request of the same client with the same key."""

    def __init__(self, app: Any, scope: Mapping[str, Any], authorization: str) -> None:
        self._app = app
        self._scope = scope
        self._authorization = authorization

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> CallAnswer:
        """Return the answer of the application."""
        path, _, query = target.partition("?")
        fields = {"Host": "localhost", **headers, "Authorization": self._authorization}
        if body:
            fields["Content-Length"] = str(len(body))
        scope = {
            **{name: self._scope[name] for name in ("type", "asgi", "http_version", "scheme", "client", "server")},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in fields.items()],
        }
        answer = GatheredAnswer(body)
        await self._app(scope, answer.receive, answer.send)
        return CallAnswer(answer.status, bytes(answer.body))


class GatheredAnswer:
    """The ASGI receive and send of a request within the process: its whole body, and the response in memory."""

    def __init__(self, body: bytes) -> None:
        self.status = 500
        self.content_type = "application/json"
        self.body = bytearray()
        self._given: bytes | None = body

    async def receive(self) -> dict[str, Any]:
        """Return the body, then wait until the task ends: the client stays connected."""
        if self._given is None:
            await asyncio.Event().wait()
        body, self._given = self._given, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Keep a part of the response. Raises OSError for one that is too large."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            types = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            self.content_type = types[0].decode("latin-1") if types else self.content_type
            return
        self.body += message.get("body", b"")
        if len(self.body) > MAX_ANSWER_BYTES:
            raise OSError("the answer is too large")
