"""How an operator's command speaks with the running supervisor: JSON lines over a unix socket in the state folder.

One line asks (`{"do": "restart", "names": ["api"]}`); lines tell of the progress, and the last one ends with `done`
or `error`. Whoever may enter the state folder and write to the socket (0600) may ask.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

FILE: Final = "control.sock"
_ASK_S: Final = 5.0  # for the question
_LIMIT_BYTES: Final = 64 * 1024
_FOLDERS: Final = Path("/proc/self/fd")

Say = Callable[[dict[str, Any]], Awaitable[None]]
Act = Callable[[dict[str, Any], Say], Awaitable[None]]


class NoSupervisor(RuntimeError):  # noqa: N818 - named for what it says
    """Nobody answers on the state folder; the text says how to start it."""


class Refused(RuntimeError):  # noqa: N818 - named for what it says
    """The supervisor could not do what was asked; the text says why."""


@contextlib.asynccontextmanager
async def answering(state: Path, act: Act) -> AsyncIterator[None]:
    """Answer questions while inside: `act` does what one asks, and raises Refused where it can't."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(line: dict[str, Any]) -> None:
            writer.write(json.dumps(line).encode() + b"\n")
            with contextlib.suppress(OSError):  # who asked may have gone: what was begun goes on
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
    """The lines of the answer as they come; `timeout_s` between two. Raises NoSupervisor, Refused, TimeoutError."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(timeout_s)
        try:
            with _short(state / FILE) as path:
                link.connect(path)
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, str(state / FILE)) from error
        except OSError as error:
            raise NoSupervisor(f"Waybill does not run on {state}. Start it with `python3 -m ops up`.") from error
        link.sendall(json.dumps(question).encode() + b"\n")
        with link.makefile("rb") as lines:
            for raw in lines:
                line: dict[str, Any] = json.loads(raw)
                if "error" in line:
                    raise Refused(line["error"])
                if line.get("done"):
                    return
                yield line
    raise Refused("The supervisor ended before it was done.")


async def _act(act: Act, asked: object, say: Say) -> None:
    try:
        await act(asked if isinstance(asked, dict) else {}, say)
    except Refused as error:
        await say({"error": str(error)})
    else:
        await say({"done": True})


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # under the state lock: it can only be a dead one's
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
    """A name of the same file that fits into sun_path (108 octets), however deep the folder lies."""
    if not _FOLDERS.is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_FOLDERS / str(folder) / path.name)
    finally:
        os.close(folder)
