"""Answer one HTTP request with the SDK's stateless transport; `endpoint` imports this at the first request."""

from typing import Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from api.mcp.calls import Api
from api.mcp.endpoint import MAX_BODY_BYTES, GatheredAnswer, api_of
from api.mcp.server import build_server

_SERVER: Final = build_server(lambda context: _api(context.request))


def _api(request: Any) -> Api:
    """Return the API of the request that the SDK passes on (Starlette's)."""
    return api_of(request.scope)


async def answer(scope: dict[str, Any], body: bytes) -> GatheredAnswer:
    """Return the response to a message. No task outlives it: each request has a session manager of its own."""
    gathered = GatheredAnswer(body)
    manager = StreamableHTTPSessionManager(
        _SERVER, json_response=True, stateless=True, max_request_body_size=MAX_BODY_BYTES
    )
    async with manager.run():
        await manager.handle_request(scope, gathered.receive, gathered.send)
    return gathered
