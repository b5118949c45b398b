"""The API as its customers meet it: Granian in a process of its own, and a small HTTP client."""

import contextlib
import io
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import orjson
from msgspec import Struct, structs

from api.http.operation import Operation
from engine.base.settings import PREFIX, Settings, to_environ
from loadtests.ports import reserve_port
from ops.processes.api import MAX_HEAD_BYTES
from tests.harness import fork_server

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 90.0
STOP_GRACE_S = 10.0
_TRIES = 3  # a free port may be taken by somebody else before Granian has it
_PIDS: dict[str, int] = {}  # of Granian, by base URL


class SignedIn(Protocol):
    """The session cookie and CSRF token that a client keeps."""

    @property
    def secret(self) -> str:
        """Return the value of the session cookie."""
        ...

    @property
    def csrf(self) -> str:
        """Return the CSRF token that every change must carry."""
        ...


Params = Mapping[str, str] | Sequence[tuple[str, str]]


class Answer(Struct, frozen=True):
    """An HTTP response; header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes
    set_cookies: tuple[str, ...] = ()

    def cookie(self, name: str) -> str | None:
        """The value that this answer sets a cookie to."""
        for one in self.set_cookies:
            if one.startswith(f"{name}="):
                return one.partition("=")[2].partition(";")[0]
        return None

    @property
    def json(self) -> Any:
        """The body read as JSON."""
        return orjson.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error envelope's inside."""
        found: dict[str, Any] = self.json["error"]
        return found


class Api:
    """Calls to one running API. Paths may carry a query string; `token` becomes a bearer token."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self.base_url = base_url
        self._session = session

    async def get(
        self,
        path: str,
        token: str | None = None,
        *,
        person: SignedIn | None = None,
        params: Params | None = None,
        headers: Params | None = None,
    ) -> Answer:
        """`GET path`; `params` are percent-encoded here. `person` sends their session's cookie."""
        return await self.request("GET", path, token=token, person=person, params=params, headers=headers)

    async def post(
        self,
        path: str,
        token: str | None = None,
        json: object = None,
        *,
        person: SignedIn | None = None,
        body: bytes | None = None,
        headers: Params | None = None,
    ) -> Answer:
        """`POST path` with `json` encoded, or with the very octets of `body`; `person` sends cookie and CSRF token."""
        content = orjson.dumps(json) if body is None else body
        sent = [("Content-Type", "application/json"), *_pairs(headers)]
        return await self.request("POST", path, token=token, person=person, body=content, headers=sent)

    async def patch(
        self, path: str, token: str | None = None, json: object = None, *, person: SignedIn | None = None
    ) -> Answer:
        """`PATCH path` with `json` encoded."""
        sent = [("Content-Type", "application/json")]
        return await self.request("PATCH", path, token=token, person=person, body=orjson.dumps(json), headers=sent)

    async def put(
        self, path: str, token: str | None = None, json: object = None, *, person: SignedIn | None = None
    ) -> Answer:
        """`PUT path` with `json` encoded."""
        sent = [("Content-Type", "application/json")]
        return await self.request("PUT", path, token=token, person=person, body=orjson.dumps(json), headers=sent)

    async def delete(self, path: str, token: str | None = None, *, person: SignedIn | None = None) -> Answer:
        """`DELETE path`."""
        return await self.request("DELETE", path, token=token, person=person)

    async def request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        person: SignedIn | None = None,
        params: Params | None = None,
        body: bytes | None = None,
        headers: Params | None = None,
    ) -> Answer:
        """Any request; a header of `headers` replaces one of the same name."""
        sent = dict(_pairs(headers))
        if person is not None:
            sent.setdefault("Cookie", f"svc_session={person.secret}")
            if method != "GET":
                sent.setdefault("X-CSRF-Token", person.csrf)
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        data = None if body is None else io.BytesIO(body)  # aiohttp sends large octets piece by piece only so
        async with self._session.request(
            method, self.base_url + path, params=params, data=data, headers=sent, allow_redirects=False
        ) as response:
            content = await response.read()
            kept = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, kept, content, tuple(response.headers.getall("Set-Cookie", ())))


@contextlib.contextmanager
def serving(settings: Settings, log: Path, factory: str = "create_app") -> Iterator[str]:
    """Run the application on a free loopback port and yield its base URL.

    `factory` is the function of tests.harness.served that makes it.

    Granian ends with this process, and its worker with Granian, whatever kills either.
    """
    for last in (False,) * (_TRIES - 1) + (True,):
        port = reserve_port()
        process = _start(settings, port, log, factory)
        try:
            if not _answers(process, port, must=last, log=log):
                continue
            _PIDS[f"http://127.0.0.1:{port}"] = process.pid
            yield f"http://127.0.0.1:{port}"
            return
        finally:
            _stop(process)


def server_pid(url: str) -> int:
    """Return the pid of the Granian that `serving` started at this base URL; its children are the workers."""
    return _PIDS[url]


def _start(settings: Settings, port: int, log: Path, factory: str) -> fork_server.Started:
    own = structs.replace(settings, api_port=port, public_url=f"http://127.0.0.1:{port}")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    words = [
        "--interface", "asgi", "--factory", "--workers", "1", "--host", "127.0.0.1", "--port", str(port),
        "--loop", "uvloop", "--log-level", "warning", "--http", "1", "--no-ws",
        "--http1-buffer-size", str(MAX_HEAD_BYTES), f"tests.harness.served:{factory}",
    ]  # fmt: skip
    with log.open("ab") as output:
        return fork_server.start("granian", words, environ=environ | to_environ(own), stdout=output, stderr=output)


def _answers(process: fork_server.Started, port: int, *, must: bool, log: Path) -> bool:
    """Return True once `/healthz` answers; False if the process ended and another try is left."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            if process.poll() is None:
                return True
        time.sleep(0.03)
    if must or process.poll() is None:
        raise RuntimeError(f"the API did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")
    return False


def _stop(process: fork_server.Started) -> None:
    """Kill it and its workers: a drain waits 2 s for the connections that the tests' client keeps.

    Measuring coverage needs the drain, as a process writes its figures when it ends.
    """
    if process.poll() is None and "COVERAGE_PROCESS_START" in os.environ:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its session's group: the workers that are left
    process.wait()


def _pairs(headers: Params | None) -> list[tuple[str, str]]:
    if headers is None:
        return []
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def refused(answer: Answer) -> tuple[int, str]:
    """Return the status and the type of a refusal."""
    return answer.status, answer.error["type"]


def refuses(answer: Answer, field: str) -> bool:
    """Return True if the answer refuses this field."""
    return answer.status == 400 and answer.error["type"] == "invalid_request" and answer.error["field"] == field


def name_of(operation: Operation) -> str:
    """Return the method and the path of an operation."""
    return f"{operation.method} {operation.path}"
