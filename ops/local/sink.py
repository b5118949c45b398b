"""A local SMTP server that accepts and stores all mail, for local mode, tests and measurements.

It offers PIPELINING, SIZE, 8BITMIME, SMTPUTF8, ENHANCEDSTATUSCODES and STARTTLS with a self-signed certificate.
It stores `messages/<xx>/<id>.eml` (the content as received, dot-stuffing removed) and `index.ndjson` (`sink_store`),
for two weeks and up to 200,000 messages.

The local part of a recipient, without its plus tag, selects a behaviour (a new tag makes a new address):

    bounce@   550 5.1.1 at RCPT
    block@    550 5.7.1 at RCPT, with the text of a policy rejection
    full@     452 4.2.2 at RCPT
    defer@    451 4.7.1 at RCPT the first time this address is tried, then accepted (greylisting)
    busy@     421 4.3.2 at RCPT, then the connection is closed
    tarpit@   accepted, but the reply to RCPT is sent slowly: one octet every 10 s (tarpit+3@: every 3 s)
    slow@     accepted 2 s after the final dot (slow+5@: 5 s)
    drop@     the first time this address is tried, the connection is closed after the final dot without a reply
              and the message is not stored; then accepted
    latebounce@  accepted; 3 s later a bounce (RFC 3464) goes to the return path, by the MX that --reports-to names
    complain@    accepted; 3 s later a complaint (ARF, RFC 5965) goes there

With `--dns`, the personalities (`personalities`) answer for addresses at `gmail.sim`, `outlook.sim` and so on; their
rules for a mailbox replace the behaviour above.

Tests start a `Sink` in their own event loop and script it further. Run by hand:
`python -m ops.local.sink --port 2600 --store FOLDER`; SIGTERM and SIGINT stop it.
"""

import argparse
import asyncio
import itertools
import os
import re
import ssl
import sys
from collections import deque
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvloop
from msgspec import Struct

from engine.base import clock
from engine.base.settings import HostPort
from engine.store import service_time, stopping
from engine.store.resolver import Resolver
from ops.local import certificate, personalities
from ops.local.personalities import BadPersonalities, Personalities
from ops.local.receiving_rules import ReceivingRules
from ops.local.report_sender import ReportSender
from ops.local.sink_journal import SinkJournal
from ops.local.sink_script import FirstTries, ScriptedReplies, ScriptedReply
from ops.local.sink_session import SinkSession
from ops.local.sink_store import MailStore, SinkMessage, StoreMode

MAX_SIZE: Final = 52_428_800
KEPT: Final = timedelta(days=14)
KEPT_MESSAGES: Final = 200_000  # twice the longest drill
_TIDY_S: Final = 3600.0
_MAX_CONVERSATIONS: Final = 10_000
_IDLE_S: Final = 300.0
_SWEEP_S: Final = 30.0
NAME: Final = "sink.test"  # of the process
_TEST_ID = re.compile(rb"(?:^|\n)x-test-id:[ \t]*([^\r\n]{1,200})", re.IGNORECASE)


class Sink:
    """The SMTP server. In tests: `async with Sink() as sink:`, then `sink.address`, `sink.messages`, `sink.script`."""

    def __init__(
        self,
        *,
        name: str = "sink.test",
        store: MailStore | None = None,
        tls: ssl.SSLContext | None = None,
        extensions: tuple[str, ...] = ("PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"),
        max_size: int = MAX_SIZE,
        remember: int = 10_000,
        reports: ReportSender | None = None,
        rules: ReceivingRules | None = None,
    ) -> None:
        """Keep the last `remember` messages and commands in memory. `reports` sends those that mail asks for; `rules`
        are those of the personalities.
        """
        self.name = name
        self.max_size = max_size
        self.tls = tls
        self.rules = rules
        self.scripts = ScriptedReplies()
        self.first_tries = FirstTries()
        self.messages: deque[SinkMessage] = deque(maxlen=remember)
        self.commands: deque[str] = deque(maxlen=remember)
        self.count = 0
        self.connections = 0  # accepted since the start
        self._extensions = extensions
        self._store = store
        self._reports = reports
        self._keeps_commands = remember > 0
        self._conversations: set[SinkSession] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrival = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        at_ms = clock.unix_ms()
        # Keeps ids unique and in order when runs share a store.
        self._run = f"{at_ms if store is None else store.next_run(at_ms):x}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Listen on `port` (0: any free one); return the address."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: SinkSession(self), host, port, backlog=1_024)
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)
        return self.address

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port; raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the sink has not been started")
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """Close the listening socket and all sessions."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for conversation in tuple(self._conversations):
            conversation.hang_up()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- for tests -----------------------------------------------------------------------------

    def script(
        self,
        command: str,
        reply: str | None = None,
        *,
        delay_s: float = 0.0,
        close: bool = False,
        raw: bytes | None = None,
        drip_s: float | None = None,
        times: int | None = None,
    ) -> None:
        """Script the reply to `command` (see `ScriptedReply`); `CONNECT` is the greeting, `.` the final dot."""
        self.scripts.add(
            ScriptedReply(command, reply, delay_s=delay_s, close=close, raw=raw, drip_s=drip_s, times=times)
        )

    async def until(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until `count` messages have arrived since the start; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while self.count < count:
                self._arrival.clear()
                await self._arrival.wait()

    # -- for sessions (the SinkHost protocol) ----------------------------------------------------

    def extensions(self, *, secured: bool) -> list[str]:
        """Return the EHLO lines after the first."""
        lines = [*self._extensions, f"SIZE {self.max_size}"]
        if self.tls is not None and not secured:
            lines.append("STARTTLS")
        return lines

    def joined(self, conversation: SinkSession) -> bool:
        """Register a session; return False if there are too many."""
        self.connections += 1
        self._conversations.add(conversation)
        return len(self._conversations) <= _MAX_CONVERSATIONS

    def left(self, conversation: SinkSession) -> None:
        """Remove a session that has ended."""
        self._conversations.discard(conversation)

    def log_command(self, line: bytes) -> None:
        """Remember a command that arrived."""
        if self._keeps_commands:
            self.commands.append(line.decode("utf-8", "replace"))

    def accept(self, conversation: SinkSession, content: bytes) -> str:
        """Store a message and return its id; raises OSError if it can't be written."""
        place = next(self._numbers)
        received = SinkMessage(
            id=f"{self._run}-{place}",
            at=clock.iso(clock.now()),
            sender=conversation.sender or "",
            recipients=tuple(conversation.recipients),
            helo=conversation.helo,
            tls=conversation.tls_version,
            size=len(content),
            test_id=_test_id(content),
            content=content,
            port=conversation.peer_port,
        )
        if self._store is not None:
            self._store.keep(received, place)
        if self._reports is not None:
            self._reports.add(received)
        self.messages.append(received)
        self.count += 1
        self._arrival.set()
        return received.id

    def spawn(self, step: Coroutine[Any, Any, None]) -> None:
        """Run a step of a session that takes time in a task that `stop` cancels."""
        task = asyncio.get_running_loop().create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _sweep(self) -> None:
        """Close sessions that have been idle for 5 minutes."""
        loop = asyncio.get_running_loop()
        for conversation in tuple(self._conversations):
            if loop.time() - conversation.last_active > _IDLE_S:
                conversation.hang_up()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep)


def _test_id(content: bytes) -> str | None:
    end = content.find(b"\r\n\r\n")
    found = _TEST_ID.search(content[: end if end >= 0 else 65_536])
    return found[1].decode("utf-8", "replace").strip() if found is not None else None


class SinkPeers(Struct, frozen=True):
    """The servers that a sink uses: the MX that takes its reports, and DNS for the checks of its personalities."""

    mx: tuple[str, int] | None = None
    dns: tuple[str, int] | None = None


async def serve(
    host: str,
    port: int,
    store: MailStore,
    tls: ssl.SSLContext | None,
    peers: SinkPeers,
    known: Personalities,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the sink until `stop` is set (default: at SIGTERM or SIGINT).

    Without DNS, the personalities have no rules; without an MX, no reports are sent.
    """
    stop = stop or stopping.stop_event()
    resolver = None if peers.dns is None else Resolver((HostPort(*peers.dns),))
    with SinkJournal(store.folder) as journal:
        rules = None if resolver is None else ReceivingRules(known, journal, resolver, NAME)
        reports = None
        if peers.mx is not None:
            reports = ReportSender(peers.mx, NAME, journal=journal, rules=rules, dns=resolver)
        sink = Sink(name=NAME, store=store, tls=tls, remember=0, reports=reports, rules=rules)
        bound = await sink.start(host, port)
        tasks = [asyncio.create_task(_tidy(store)), asyncio.create_task(service_time.watch())]
        if reports is not None:
            tasks.append(asyncio.create_task(reports.run()))
        print(f"sink ready on {bound[0]}:{bound[1]}, keeping {store.mode.value} in {store.folder}", flush=True)
        await stop.wait()
        for task in tasks:
            task.cancel()
        await sink.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
    if resolver is not None:
        await resolver.close()
    print(f"sink stopped after {sink.count} messages", flush=True)


async def _tidy(store: MailStore) -> None:
    """Delete old messages from the store every hour."""
    while True:
        files = store.forget(before=clock.iso(clock.now() - KEPT), most=KEPT_MESSAGES)
        if files:
            await asyncio.to_thread(store.remove, files)
            print(f"sink forgot {len(files)} old messages", flush=True)
        await asyncio.sleep(_TIDY_S)


def _address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ops.local.sink", description="local SMTP sink")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0 chooses a free one and prints it")
    parser.add_argument("--store", type=Path, required=True, help="folder for what arrives")
    parser.add_argument("--store-mode", type=StoreMode, choices=list(StoreMode), default=StoreMode.FILES)
    parser.add_argument(
        "--reports-to", type=_address, help=("HOST:PORT of the MX that receives reports; default: none")
    )
    parser.add_argument("--clock", type=Path, help="state folder of the service whose clock the sink follows")
    parser.add_argument("--dns", type=_address, help="HOST:PORT of the DNS server for the personalities; default: none")
    parser.add_argument("--personalities", type=Path, help="folder whose personalities.toml adds to the shipped ones")
    parser.add_argument("--no-tls", action="store_true", help="do not offer STARTTLS")
    given = parser.parse_args(arguments)
    try:
        known = personalities.load(given.personalities)
    except BadPersonalities as error:
        print(error, file=sys.stderr)
        return 2
    os.umask(0o077)  # stored mail must not be readable by other users of this host
    if given.clock is not None:
        service_time.join_at(given.clock)
    tls = None if given.no_tls else certificate.server_context(given.store)
    with MailStore(given.store, given.store_mode) as store:
        try:
            peers = SinkPeers(given.reports_to, given.dns)
            uvloop.run(serve(given.host, given.port, store, tls, peers, known))
        except OSError as error:
            print(f"the sink can't listen on {given.host}:{given.port}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
