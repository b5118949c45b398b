"""Call the public API for a tool, and read its errors. `ops.commands.mcp_server` and `endpoint` send the calls."""

from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from engine.accounts.request_log.rules import MCP_CLIENT, agent_name
from engine.base.version import version

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_JSON: Final = "application/json"


class CallAnswer(Struct, frozen=True):
    """The status and the body of a response."""

    status: int
    body: bytes


class ApiCaller(Protocol):
    """Sends one request to the API with the agent's key; bounds its time and the size of its answer."""

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> CallAnswer:
        """Return the answer to a request for `target`, a path with its query. Raises OSError if there is none."""
        ...


class CallRefused(Exception):  # noqa: N818 - named for what it is
    """The API refused a call; `error` is the object of its answer."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", f"HTTP status {status}")))
        self.status = status
        self.error = dict(error)


class Api:
    """The API as one agent calls it; `agent` is the name and version of its program, for the request log."""

    def __init__(self, caller: ApiCaller, agent: str | None) -> None:
        self._caller = caller
        self._user_agent = user_agent(agent)

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Return the JSON of a GET. `query` leaves out what is None. Raises CallRefused."""
        return await self._json("GET", path + _query(query or {}), None)

    async def post(self, path: str, body: object) -> Any:
        """Return the JSON of a POST. Raises CallRefused."""
        return await self._json("POST", path, body)

    async def delete(self, path: str) -> Any:
        """Return the JSON of a DELETE. Raises CallRefused."""
        return await self._json("DELETE", path, None)

    async def file(self, path: str) -> bytes:
        """Return a file of the documentation. Raises CallRefused."""
        return (await self._answer("GET", path, None)).body

    async def _json(self, method: str, target: str, body: object) -> Any:
        answer = await self._answer(method, target, body)
        return msgspec.json.decode(answer.body) if answer.body else {}

    async def _answer(self, method: str, target: str, body: object) -> CallAnswer:
        headers = {"User-Agent": self._user_agent, "Accept": "*/*"}
        content = b"" if body is None else msgspec.json.encode(body)
        if content:
            headers["Content-Type"] = _JSON
        answer = await self._caller.send(method, target, headers, content)
        if answer.status >= 300:
            raise CallRefused(answer.status, _error_of(answer))
        return answer


def user_agent(agent: str | None) -> str:
    """Return the User-Agent of the server's own calls: it names the agent for the request log."""
    product = f"{MCP_CLIENT}{version()}"
    name = None if agent is None else agent_name("".join(one for one in agent if one.isascii() and one not in "()"))
    return product if name is None else f"{product} ({name})"


def path_of(template: str, values: Mapping[str, str]) -> str:
    """Return a path with its parameters percent-encoded."""
    return template.format(**{name: quote(value, safe="") for name, value in values.items()})


def _query(values: Mapping[str, object]) -> str:
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in values.items()
        if value is not None
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


def _error_of(answer: CallAnswer) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(answer.body, type=dict[str, Any])["error"]
    except (msgspec.DecodeError, KeyError):
        found = None
    return found if isinstance(found, Mapping) else {"message": f"The API answered with HTTP status {answer.status}."}
