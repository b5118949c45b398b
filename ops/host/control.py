"""Control socket of the running supervisor: JSON lines over a unix socket in the state folder.

A command sends one line (`{"do": "restart", "names": ["api"]}`). The supervisor answers with lines of progress; the
last line has `done` or `error`. Access is by file permissions: the socket has mode 0600.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from engine.base.version import COMMAND

FILE: Final = "control.sock"
_ASK_S: Final = 5.0  # for the request line
_LIMIT_BYTES: Final = 64 * 1024
_FOLDERS: Final = Path("/proc/self/fd")

Say = Callable[[dict[str, Any]], Awaitable[None]]
Act = Callable[[dict[str, Any], Say], Awaitable[None]]


class NoSupervisor(RuntimeError):  # noqa: N818 - named for what it says
    """No supervisor runs on the state folder; the text says how to start it."""


class Refused(RuntimeError):  # noqa: N818 - named for what it says
    """The supervisor refused the request; the text says why."""


@contextlib.asynccontextmanager
async def answering(state: Path, act: Act) -> AsyncIterator[None]:
    """Serve requests while inside: `act` handles one, and raises Refused if it can't."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(line: dict[str, Any]) -> None:
            writer.write(json.dumps(line).encode() + b"\n")
            with contextlib.suppress(OSError):  # the client may have disconnected; the work continues
                await writer.drain()

        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_ASK_S):
                asked = json.loads(await reader.readline())
            await _act(act, asked, say)
        writer.close()

    listener = _bind(state / FILE)
    server = await asyncio.start_unix_server(answer, sock=listener, limit=_LIMIT_BYTES)
    try:
        yield
    finally:
        server.close()
        (state / FILE).unlink(missing_ok=True)


def ask(state: Path, question: dict[str, Any], timeout_s: float) -> Iterator[dict[str, Any]]:
    """Send a request and yield the answer's lines; `timeout_s` applies to each line.

    Raises NoSupervisor, Refused, TimeoutError.
    """
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        try:
            with _short(state / FILE) as path:
                link.connect(path)
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, str(state / FILE)) from error
        except OSError as error:
            raise NoSupervisor(f"Waybill does not run on {state}. Start it with `{COMMAND} up`.") from error
        link.sendall(json.dumps(question).encode() + b"\n")
        with link.makefile("rb") as lines:
            for raw in lines:
                line: dict[str, Any] = json.loads(raw)
                if "error" in line:
                    raise Refused(line["error"])
                if line.get("done"):
                    return
                yield line
    raise Refused("The supervisor ended before the request was done. Run `ops status` to see the processes.")


async def _act(act: Act, asked: object, say: Say) -> None:
    try:
        await act(asked if isinstance(asked, dict) else {}, say)
    except Refused as error:
        await say({"error": str(error)})
    else:
        await say({"done": True})


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # we hold the state lock, so an existing socket belongs to a dead supervisor
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        with _short(path) as short:
            listener.bind(short)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(8)
    listener.settimeout(0)
    return listener


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a path of the same file that fits into sun_path (108 octets), for deep folders."""
    if not _FOLDERS.is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_FOLDERS / str(folder) / path.name)
    finally:
        os.close(folder)
