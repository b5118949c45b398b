"""Mail servers that stop answering, each on its own loopback address at the service's SMTP port.

A silent server answers up to one stage of the session, then keeps the connection open without a reply, or with a reply
that never ends. A dead server is a listening socket with a full accept queue: Linux drops every further SYN to it.
"""

import asyncio
import os
import re
import resource
import socket
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final, Self

from loadtests.drill.silent_cases import SilentCase, SilentServerKind, Stage, address
from loadtests.kit.servers import MAX_HEADER, ScriptedServer

_SPARE_FILES: Final = 8_192  # for the connections that silent servers accept, and all else
_PROBE_S: Final = 0.3
_FILL_S: Final = 2.0
_DRIP_S: Final = 2.0
_SAMPLE_S: Final = 1.0
_TABLE: Final = Path("/proc/net/tcp")
_REPLIES: Final = {
    Stage.GREETING: b"220 silent.test ESMTP\r\n", Stage.EHLO: b"250 silent.test\r\n",
    Stage.STARTTLS: b"220 2.0.0 go on\r\n", Stage.MAIL: b"250 2.1.0 ok\r\n", Stage.RCPT: b"250 2.1.5 ok\r\n",
    Stage.DATA: b"354 go on\r\n", Stage.DOT: b"250 2.0.0 ok\r\n",
}  # fmt: skip
_OFFERING_TLS: Final = b"250-silent.test\r\n250 STARTTLS\r\n"
_VERBS: Final = {
    b"EHLO": Stage.EHLO, b"HELO": Stage.EHLO, b"STAR": Stage.STARTTLS, b"MAIL": Stage.MAIL,
    b"RCPT": Stage.RCPT, b"DATA": Stage.DATA,
}  # fmt: skip


class CannotListen(RuntimeError):  # noqa: N818 - named for what happened
    """The servers cannot be started here; the text says why and what to do."""


class SilentServers:
    """The servers of one case. An asynchronous context manager, bound to the loop that enters it."""

    def __init__(self, case: SilentCase, port: int) -> None:
        self._case = case
        self._port = port
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if not self._case.has_servers:
            return self
        _allow_files(self._case.used_addresses + _SPARE_FILES)
        async with AsyncExitStack() as opened:
            for place in range(self._case.used_addresses):
                try:
                    if self._case.is_dead(place):
                        opened.callback(_dead_listener(address(place), self._port).close)
                    else:
                        await opened.enter_async_context(_SilentServer(self._case, place, self._port))
                except OSError as error:
                    words = f"The address {address(place)}:{self._port} can't be listened on: {error}."
                    raise CannotListen(words) from None
            self._check_dead()
            self._opened = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def _check_dead(self) -> None:
        """Raise CannotListen if the kernel completes a connection to a dead server."""
        place = next(filter(self._case.is_dead, range(self._case.used_addresses)), None)
        if place is None:
            return
        try:
            socket.create_connection((address(place), self._port), timeout=_PROBE_S).close()
        except TimeoutError:
            return
        raise CannotListen("This kernel accepts connections beyond a full queue, so dead servers can't be shown here.")


class _SilentServer(ScriptedServer):
    """A server that answers up to a stage of the session, and keeps the connection."""

    def __init__(self, case: SilentCase, place: int, port: int) -> None:
        super().__init__(port, address(place))
        self._case = case

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the stage is reached; then say nothing, or drip a reply without end."""
        wanted, stage = self._case.stage, Stage.GREETING
        while stage is not wanted:
            tls = stage is Stage.EHLO and wanted in (Stage.STARTTLS, Stage.TLS)
            writer.write(_OFFERING_TLS if tls else _REPLIES[stage])
            if stage is Stage.STARTTLS:
                break
            if stage is Stage.DATA:
                while await reader.readuntil(b"\r\n") != b".\r\n":
                    pass
                stage = Stage.DOT
                continue
            while (verb := (await reader.readuntil(b"\r\n"))[:4].upper()) not in _VERBS:
                if verb == b"QUIT":
                    writer.write(b"221 2.0.0 bye\r\n")
                    return
                writer.write(b"250 2.0.0 ok\r\n")
            stage = _VERBS[verb]
        while self._case.kind is SilentServerKind.DRIP and stage is wanted:
            writer.write(_REPLIES[stage][:3] + b"-wait\r\n")
            await writer.drain()
            await asyncio.sleep(_DRIP_S)
        while await reader.read(MAX_HEADER):
            pass


def _dead_listener(ip: str, port: int) -> socket.socket:
    """Listen and fill the accept queue: its one entry stays although its client closes at once."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((ip, port))
    listener.listen(0)
    socket.create_connection((ip, port), timeout=_FILL_S).close()
    return listener


def _allow_files(wanted: int) -> None:
    """Raise this process's limit of open files; call after the service has started, since it would inherit the
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard < wanted and hard != resource.RLIM_INFINITY and os.geteuid() != 0:
        raise CannotListen(
            f"The drill needs {wanted} open files, and this user may have {hard} (`ulimit -Hn`). Lower --messages, or "
            "let domains share addresses with --addresses."
        )
    limit = hard if hard == resource.RLIM_INFINITY else max(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, limit))


class OpenConnections:
    """Counts open and distinct connections; connections shorter than the interval may be missed.

    `pattern` matches a line of the table; its groups are the local and the remote end. An asynchronous context
    manager: it counts while entered.
    """

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.max_open = 0
        self.max_to_one = 0  # at once, to the same remote end
        self._pattern = pattern
        self._seen: set[tuple[bytes, bytes]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def opened(self) -> int:
        """Return the number of distinct connections seen."""
        return len(self._seen)

    def count(self, table: bytes) -> None:
        """Count the connections in one copy of the table."""
        found = set(self._pattern.findall(table))  # the kernel shows lines twice while the table changes
        self._seen.update(found)
        self.max_open = max(self.max_open, len(found))
        each = Counter(remote for _, remote in found)
        self.max_to_one = max(self.max_to_one, max(each.values(), default=0))

    async def _run(self) -> None:
        while True:
            self.count(await asyncio.to_thread(_TABLE.read_bytes))
            await asyncio.sleep(_SAMPLE_S)
