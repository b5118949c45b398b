"""The server side of one SMTP conversation with the sink."""

import asyncio
import re
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

from ops.local.sink_script import (
    REFUSALS,
    SLOW_S,
    TARPIT_S,
    FirstTries,
    ScriptedReplies,
    ScriptedReply,
    SinkBehaviour,
    behaviour_of,
)
from ops.local.sink_script import seconds_of as seconds_named

MAX_LINE: Final = 4_096
MAX_RECIPIENTS: Final = 1_000
_PATH = re.compile(rb"[^<]*<(.*)>([^>]*)")
_SIZE = re.compile(rb"(?:^|\s)SIZE=(\d{1,20})(?:\s|$)", re.IGNORECASE)
_END: Final = b"\r\n.\r\n"
_TLS_S: Final = 30.0


class SinkHost(Protocol):
    """What a conversation needs from its server."""

    name: str
    max_size: int
    scripts: ScriptedReplies
    first_tries: FirstTries
    tls: ssl.SSLContext | None

    def extensions(self, *, secured: bool) -> list[str]:
        """The EHLO lines after the first."""

    def joined(self, conversation: "SinkSession") -> bool:
        """Count a new conversation; False when there are too many."""

    def left(self, conversation: "SinkSession") -> None:
        """The conversation is over."""

    def heard(self, line: bytes) -> None:
        """A command came."""

    def accept(self, conversation: "SinkSession", content: bytes) -> str:
        """Keep a message; returns its id."""

    def spawn(self, handshake: Coroutine[Any, Any, None]) -> None:
        """Run a handshake in a task that the server owns."""


class SinkSession(asyncio.Protocol):
    """Reads commands as they come, pipelined or not, and answers all of a group in one write."""

    def __init__(self, host: SinkHost) -> None:
        self.helo = ""
        self.sender: str | None = None
        self.recipients: list[str] = []
        self.tls_version: str | None = None
        self.last_active = 0.0
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._at = 0  # up to here the buffer has been dealt with
        self._searched = 0  # no end of content before here
        self._in_content = False
        self._oversize = False
        self._held: asyncio.TimerHandle | None = None
        self._handshaking = False
        self._replies: list[bytes] = []
        self._words: str | None = None  # a scripted reply in place of the ordinary one
        self._verbs: dict[bytes, Callable[[bytes], None]] = {
            b"EHLO": self._ehlo, b"HELO": self._helo, b"MAIL": self._mail, b"RCPT": self._rcpt,
            b"DATA": self._data, b"RSET": self._rset, b"NOOP": self._noop, b"QUIT": self._quit,
            b"STAR": self._starttls, b"VRFY": self._vrfy,
        }  # fmt: skip

    @property
    def peer_port(self) -> int:
        """The client's port; 0 when it has gone."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return int(peer[1]) if peer else 0

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        self.last_active = self._loop.time()
        if not self._host.joined(self):
            self._say("421 4.3.2 too many connections")
            self.hang_up()
            return
        greeting = f"220 {self._host.name} ESMTP sink"
        self._perform("CONNECT", lambda: self._say(greeting))
        self._run()

    def data_received(self, data: bytes) -> None:
        """Commands or content."""
        self.last_active = self._loop.time()
        self._buffer += data
        if self._held is None and not self._handshaking:
            self._run()
        elif len(self._buffer) > self._host.max_size * 2 + 65_536:
            self.hang_up()  # pipelined behind a reply that is held back, without end

    def connection_lost(self, _exc: Exception | None) -> None:
        """Over."""
        self._transport = None
        if self._held is not None:
            self._held.cancel()
        self._host.left(self)

    def hang_up(self) -> None:
        """Write what is due and close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    # -- reading -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Deal with all that is complete, then answer in one write."""
        while self._held is None and self._transport is not None:
            if not (self._take_content() if self._in_content else self._take_line()):
                break
        if self._at:
            del self._buffer[: self._at]
            self._searched = max(0, self._searched - self._at)
            self._at = 0
        self._flush()

    def _take_line(self) -> bool:
        end = self._buffer.find(b"\n", self._at)
        if end < 0 or end - self._at > MAX_LINE:
            if len(self._buffer) - self._at > MAX_LINE:
                self._say("500 5.5.2 line too long")
                self.hang_up()
            return False
        line = bytes(self._buffer[self._at : end])
        self._at = end + 1
        if line.endswith(b"\r"):
            line = line[:-1]
        self._host.heard(line)
        verb = self._verbs.get(line[:4].upper(), self._unknown)
        if self._host.scripts:
            self._perform(line.decode("utf-8", "replace"), lambda: verb(line))
        else:
            verb(line)
        return True

    def _take_content(self) -> bool:
        if self._buffer.startswith(b".\r\n", self._at):  # no content at all
            end, after = self._at, self._at + 3
        else:
            found = self._buffer.find(_END, max(self._at, self._searched))
            if found < 0:
                self._searched = max(self._at, len(self._buffer) - len(_END) + 1)
                self._shed()
                return False
            end, after = found + 2, found + len(_END)
        content = bytes(self._buffer[self._at : end])
        self._at = after
        self._in_content = False
        if content.startswith(b"."):
            content = content[1:]
        if b"\r\n.." in content:
            content = content.replace(b"\r\n..", b"\r\n.")
        self._perform(".", lambda: self._final_dot(content))
        return True

    def _shed(self) -> None:
        """Content beyond the bound is read and forgotten; the reply to the dot will say so."""
        if len(self._buffer) - self._at > self._host.max_size + len(_END):
            self._oversize = True
            del self._buffer[self._at : -len(_END)]
            self._searched = self._at

    # -- writing and scripted behaviour ----------------------------------------------------------

    def _say(self, reply: str) -> None:
        words, self._words = self._words, None
        self._replies.append((words or reply).encode() + b"\r\n")

    def _flush(self) -> None:
        if self._replies and self._transport is not None:
            self._transport.write(b"".join(self._replies))
        self._replies.clear()

    def _perform(self, line: str, act: Callable[[], None]) -> None:
        script = self._host.scripts.take(line) if self._host.scripts else None
        if script is None:
            act()
        elif script.delay_s:
            self._hold(script.delay_s, lambda: self._follow(script, act))
        else:
            self._follow(script, act)

    def _follow(self, script: ScriptedReply, act: Callable[[], None]) -> None:
        if script.raw is not None:
            self._replies.append(script.raw)
        elif script.drip_s is not None:
            self._drip((script.reply or "250 2.0.0 ok").encode() + b"\r\n", script.drip_s, close=script.close)
            return
        elif script.reply is not None and script.reply[:1] in "45":
            self._say(script.reply)
        elif not script.close or script.reply is not None:
            self._words = script.reply
            act()
        if script.close or (script.reply or "").startswith("421"):
            self.hang_up()

    def _hold(self, delay_s: float, then: Callable[[], None]) -> None:
        """Answer what is done, then nothing until `delay_s` have passed."""
        self._flush()
        self._held = self._loop.call_later(delay_s, self._release, then)

    def _release(self, then: Callable[[], None]) -> None:
        self._held = None
        then()
        self._run()

    def _drip(self, reply: bytes, each_s: float, *, close: bool = False) -> None:
        """One octet per `each_s` seconds."""
        self._flush()
        if self._transport is not None:
            self._transport.write(reply[:1])
            if reply[1:]:
                self._hold(each_s, lambda: self._drip(reply[1:], each_s, close=close))
            elif close:
                self.hang_up()

    # -- commands ------------------------------------------------------------------------------

    def _ehlo(self, line: bytes) -> None:
        self._reset()
        self.helo = line[5:].decode("utf-8", "replace").strip()
        lines = [self._host.name, *self._host.extensions(secured=self.tls_version is not None)]
        self._say("\r\n".join([*(f"250-{text}" for text in lines[:-1]), f"250 {lines[-1]}"]))

    def _helo(self, line: bytes) -> None:
        self._reset()
        self.helo = line[5:].decode("utf-8", "replace").strip()
        self._say(f"250 {self._host.name}")

    def _mail(self, line: bytes) -> None:
        path = _PATH.fullmatch(line)
        if path is None:
            self._say("501 5.5.4 syntax: MAIL FROM:<address>")
            return
        if self.sender is not None:
            self._say("503 5.5.1 nested MAIL")
            return
        declared = _SIZE.search(path[2])
        if declared is not None and int(declared[1]) > self._host.max_size:
            self._say("552 5.3.4 message too big")
            return
        self.sender = path[1].decode("utf-8", "replace")
        self._say("250 2.1.0 ok")

    def _rcpt(self, line: bytes) -> None:
        path = _PATH.fullmatch(line)
        if self.sender is None:
            self._say("503 5.5.1 MAIL first")
        elif path is None or not path[1]:
            self._say("501 5.5.4 syntax: RCPT TO:<address>")
        elif len(self.recipients) >= MAX_RECIPIENTS:
            self._say("452 4.5.3 too many recipients")
        else:
            self._recipient(path[1].decode("utf-8", "replace"))

    def _recipient(self, address: str) -> None:
        habit = behaviour_of(address)
        if habit is SinkBehaviour.TARPIT:
            self.recipients.append(address)
            self._drip(b"250 2.1.5 ok\r\n", seconds_named(address, TARPIT_S))
            return
        if habit is SinkBehaviour.DEFER and not self._host.first_tries.first(habit, address):
            habit = None
        if habit in REFUSALS:
            self._say(REFUSALS[habit])
            if habit is SinkBehaviour.BUSY:
                self.hang_up()
            return
        self.recipients.append(address)
        self._say("250 2.1.5 ok")

    def _data(self, _line: bytes) -> None:
        if not self.recipients:
            self._say("503 5.5.1 no valid recipients")
            return
        self._in_content = True
        self._oversize = False
        self._searched = self._at
        self._say("354 go ahead")

    def _final_dot(self, content: bytes) -> None:
        if self._oversize or len(content) > self._host.max_size:
            self._reset()
            self._say("552 5.3.4 message too big")
            return
        delay_s = 0.0
        for address in self.recipients:
            habit = behaviour_of(address)
            if habit is SinkBehaviour.DROP and self._host.first_tries.first(habit, address):
                self.hang_up()
                return
            if habit is SinkBehaviour.SLOW:
                delay_s = max(delay_s, seconds_named(address, SLOW_S))
        if delay_s:
            self._hold(delay_s, lambda: self._keep(content))
        else:
            self._keep(content)

    def _keep(self, content: bytes) -> None:
        try:
            reply = f"250 2.0.0 ok: kept as {self._host.accept(self, content)}"
        except OSError as error:  # RFC 5321 4.2.3: 452 for a full disk, so that the client tries again
            reply = f"452 4.3.1 could not be kept: {error.strerror}"
        self._reset()
        self._say(reply)

    def _rset(self, _line: bytes) -> None:
        self._reset()
        self._say("250 2.0.0 ok")

    def _reset(self) -> None:
        self.sender = None
        self.recipients = []

    def _noop(self, _line: bytes) -> None:
        self._say("250 2.0.0 ok")

    def _vrfy(self, _line: bytes) -> None:
        self._say("252 2.5.0 try and see")

    def _quit(self, _line: bytes) -> None:
        self._say("221 2.0.0 bye")
        self.hang_up()

    def _unknown(self, _line: bytes) -> None:
        self._say("500 5.5.2 unknown command")

    # -- TLS -----------------------------------------------------------------------------------

    def _starttls(self, _line: bytes) -> None:
        if self._host.tls is None or self.tls_version is not None or self._transport is None:
            self._say("502 5.5.1 TLS is not on offer")
            return
        self._say("220 2.0.0 ready")
        self._flush()
        # RFC 3207 6: what came in plaintext behind the command may have been put there by somebody else.
        self._buffer.clear()
        self._at = 0
        self._transport.pause_reading()
        self._handshaking = True
        self._host.spawn(self._handshake(self._transport, self._host.tls))

    async def _handshake(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        try:
            secured = await self._loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=_TLS_S
            )
        except OSError:  # ssl.SSLError and time-outs are; the client went away or can't
            transport.abort()
            self.connection_lost(None)
            return
        if secured is None:
            self.connection_lost(None)
            return
        self._transport = secured
        self._reset()
        self.helo = ""
        self.tls_version = secured.get_extra_info("ssl_object").version()
        self._handshaking = False
        self._run()  # the first command may have come with the last of the handshake
