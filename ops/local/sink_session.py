"""An SMTP session of the local sink, on the same input buffer as Waybill's SMTP servers."""

import asyncio
import re
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

from mta.smtp.server.buffer import CONTENT_END, LineFlaw, SmtpBuffer, unstuffed
from ops.local.receiving_rules import ReceivingRules, Visit
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
_TLS_S: Final = 30.0


class SinkHost(Protocol):
    """The part of `Sink` that a session uses."""

    name: str
    max_size: int
    scripts: ScriptedReplies
    first_tries: FirstTries
    tls: ssl.SSLContext | None
    rules: ReceivingRules | None

    def extensions(self, *, secured: bool) -> list[str]:
        """Return the EHLO lines after the first."""

    def joined(self, session: "SinkSession") -> bool:
        """Count a new session; False when there are too many."""

    def left(self, session: "SinkSession") -> None:
        """Forget a session that ended."""

    def log_command(self, line: bytes) -> None:
        """Remember a command that arrived."""

    def accept(self, session: "SinkSession", content: bytes) -> str:
        """Keep a message; return its id."""

    def spawn(self, step: Coroutine[Any, Any, None]) -> None:
        """Run a step that takes time in a task that the sink owns."""


def _max_line(_beginning: bytes) -> int:
    return MAX_LINE


class SinkSession(asyncio.Protocol):
    """An SMTP session: executes commands, pipelined or not, and writes the replies of a group together."""

    def __init__(self, host: SinkHost) -> None:
        self.helo = ""
        self.sender: str | None = None
        self.recipients: list[str] = []
        self.tls_version: str | None = None
        self.last_active = 0.0
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = SmtpBuffer()
        self._in_content = False
        self._oversize = False
        self._declared = 0  # SIZE of MAIL
        self._held: asyncio.TimerHandle | None = None
        self._awaits = False  # a TLS handshake, or the judgement of a message
        self._replies: list[bytes] = []
        self._scripted_reply: str | None = None  # replaces the next reply
        self._verbs: dict[bytes, Callable[[bytes], None]] = {
            b"EHLO": self._ehlo, b"HELO": self._helo, b"MAIL": self._mail, b"RCPT": self._rcpt,
            b"DATA": self._data, b"RSET": self._rset, b"NOOP": self._noop, b"QUIT": self._quit,
            b"STAR": self._starttls, b"VRFY": self._vrfy,
        }  # fmt: skip

    @property
    def peer_port(self) -> int:
        """Return the client's port; 0 when the connection is closed."""
        return int(self._peer()[1])

    def _peer(self) -> tuple[str, int]:
        """Return the client's address and port; a closed connection has neither."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return (peer[0], peer[1]) if peer else ("127.0.0.1", 0)

    def _visit(self) -> Visit:
        return Visit(self._peer()[0], self.helo, self.sender or "", self._declared)

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the greeting, or 421 when there are too many sessions."""
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
        """Buffer the input and process complete commands and content."""
        self.last_active = self._loop.time()
        self._buffer.feed(data)
        if self._held is None and not self._awaits:
            self._run()
        elif len(self._buffer) > self._host.max_size * 2 + 65_536:
            self.hang_up()  # the client pipelines without end while a reply is delayed

    def connection_lost(self, _exc: Exception | None) -> None:
        """End the session."""
        self._transport = None
        if self._held is not None:
            self._held.cancel()
        self._host.left(self)

    def hang_up(self) -> None:
        """Write the pending replies and close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    # -- reading -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Process all complete lines and contents, then send the replies in one write."""
        while self._held is None and not self._awaits and self._transport is not None:
            if not (self._take_content() if self._in_content else self._take_line()):
                break
        self._flush()

    def _take_line(self) -> bool:
        """Execute the next command; return False if no line is complete or the line is invalid."""
        received = self._buffer.take_line(_max_line)
        if received is None and not self._buffer.discarded_line:
            return False
        if received is None or received.flaw is not None:
            bare = received is not None and received.flaw is LineFlaw.BARE
            self._say("500 5.5.2 lines end with CRLF" if bare else "500 5.5.2 line too long")
            self.hang_up()
            return False
        line = received.octets
        self._host.log_command(line)
        verb = self._verbs.get(line[:4].upper(), self._unknown)
        if self._host.scripts:
            self._perform(line.decode("utf-8", "replace"), lambda: verb(line))
        else:
            verb(line)
        return True

    def _take_content(self) -> bool:
        """Process the message content up to the final dot; return False if the final dot has not arrived."""
        end = self._buffer.find_content_end()
        if end < 0:
            if len(self._buffer) > self._host.max_size + len(CONTENT_END):
                self._oversize = True  # reported in the reply to the final dot
                self._buffer.discard_content()
            return False
        content = unstuffed(self._buffer.take_content(end, keep=not self._oversize))
        self._in_content = False
        self._perform(".", lambda: self._final_dot(content))
        return True

    # -- writing and scripted behaviour ----------------------------------------------------------

    def _say(self, reply: str) -> None:
        scripted, self._scripted_reply = self._scripted_reply, None
        self._replies.append((scripted or reply).encode() + b"\r\n")

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
            self._scripted_reply = script.reply
            act()
        if script.close or (script.reply or "").startswith("421"):
            self.hang_up()

    def _hold(self, delay_s: float, then: Callable[[], None]) -> None:
        """Write the pending replies, and pause the session for `delay_s` seconds before `then`."""
        self._flush()
        self._held = self._loop.call_later(delay_s, self._release, then)

    def _release(self, then: Callable[[], None]) -> None:
        self._held = None
        then()
        self._run()

    def _drip(self, reply: bytes, each_s: float, *, close: bool = False) -> None:
        """Write `reply` octet by octet, one per `each_s` seconds."""
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
        self._declared = 0 if declared is None else int(declared[1])
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
        rules = self._host.rules
        refusal = None if rules is None else rules.at_recipient(self._visit(), address)
        if refusal is not None:
            self._refuse(refusal)
            return
        behaviour = self._behaviour_of(address)
        if behaviour is SinkBehaviour.TARPIT:
            self.recipients.append(address)
            self._drip(b"250 2.1.5 ok\r\n", seconds_named(address, TARPIT_S))
            return
        if behaviour is SinkBehaviour.DEFER and not self._host.first_tries.first(behaviour, address):
            behaviour = None
        if behaviour in REFUSALS:
            self._refuse(REFUSALS[behaviour])
            return
        self.recipients.append(address)
        self._say("250 2.1.5 ok")

    def _behaviour_of(self, address: str) -> SinkBehaviour | None:
        """Return the behaviour that the local part selects, unless a personality has a rule for this mailbox."""
        rules = self._host.rules
        return None if rules is not None and rules.name_a_mailbox(address) else behaviour_of(address)

    def _refuse(self, reply: str) -> None:
        self._say(reply)
        if reply.startswith("421"):
            self.hang_up()

    def _data(self, _line: bytes) -> None:
        if not self.recipients:
            self._say("503 5.5.1 no valid recipients")
            return
        self._in_content = True
        self._oversize = False
        self._buffer.begin_content()
        self._say("354 go ahead")

    def _final_dot(self, content: bytes) -> None:
        if self._oversize or len(content) > self._host.max_size:
            self._reset()
            self._say("552 5.3.4 message too big")
            return
        delay_s = 0.0
        for address in self.recipients:
            behaviour = self._behaviour_of(address)
            if behaviour is SinkBehaviour.DROP and self._host.first_tries.first(behaviour, address):
                self.hang_up()
                return
            if behaviour is SinkBehaviour.SLOW:
                delay_s = max(delay_s, seconds_named(address, SLOW_S))
        if delay_s:
            self._hold(delay_s, lambda: self._judge(content))
        else:
            self._judge(content)

    def _judge(self, content: bytes) -> None:
        """Store the message, if the personalities of its recipients accept its content."""
        rules = self._host.rules
        if rules is None or not rules.read_content(self.recipients):
            self._keep(content)
            return
        self._flush()
        self._awaits = True
        self._host.spawn(self._judged(rules, content))

    async def _judged(self, rules: ReceivingRules, content: bytes) -> None:
        refusal = await rules.at_content(self._visit(), tuple(self.recipients), content)
        self._awaits = False
        if self._transport is None:  # the client did not wait for the reply
            return
        if refusal is None:
            self._keep(content)
        else:
            self._reset()
            self._refuse(refusal)
        self._run()

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
        # RFC 3207 6: plaintext octets after the command may have been injected.
        self._buffer.clear()
        self._transport.pause_reading()
        self._awaits = True
        self._host.spawn(self._handshake(self._transport, self._host.tls))

    async def _handshake(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        try:
            secured = await self._loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=_TLS_S
            )
        except OSError:  # ssl.SSLError and time-outs are; the client disconnected or can't do TLS
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
        self._awaits = False
        self._run()  # the first command may have arrived with the end of the handshake
