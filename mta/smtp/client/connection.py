"""One SMTP connection to a remote server: socket, clock and time-outs around the pure `session`.

The only place of the service that opens sockets towards mail servers. Whatever the server does ends up as a
value in a Transaction, or in ConnectFailed while opening; only our own bugs raise anything else.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from engine.mail.replies import Answer, Break, BreakKind, Phase
from engine.store.deadlines import within
from mta.smtp.client.dane import DanePolicy
from mta.smtp.client.envelope import Envelope, ServerFeatures
from mta.smtp.client.opening import (
    CUT_SHORT,
    ConnectFailed,
    OpeningAbort,
    SmtpTimeouts,
    blames_tls,
    connect_break,
    handshake_failure,
    sni,
)
from mta.smtp.client.session import ClientSession, ClientState
from mta.smtp.client.source_address import connect_from
from mta.smtp.client.tls import CertificateVerifier, TlsMode, certificate_verifier, client_context
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from mta.smtp.client.trace import ConnectionTrace, SmtpTrace
from mta.smtp.client.transaction import PendingTransaction, Transaction
from mta.smtp.client.transcript import Json, TlsDetails, TranscriptStep, opening, outcome_text, weighed

__all__ = ["ConnectFailed", "Connection", "Envelope", "Timeouts", "TlsMode", "Transaction"]

# Content up to here goes out in one write with its final dot, and the kernel takes all of it at once: a connection has
# nothing else under way then, and room for twice as much from its first octet on.
_WHOLE = 16 * 1024
_CHUNK = 128 * 1024
_NAP_S = 0.005  # between looks whether the kernel has taken what was written
_LAST_WORDS = 4_096  # octets still to write at the end that are commands, not the rest of a message


class SmtpConnection(asyncio.Protocol):
    """A session that takes one envelope after another. Made by `SmtpConnection.open`; for one task at a time."""

    @classmethod
    async def open(
        cls,
        address: tuple[str, int],
        *,
        server_name: str,
        helo: str,
        tls: TlsMode = TlsMode.OPPORTUNISTIC,
        dane: DanePolicy | None = None,
        certificates: CertificateVerifier | None = None,
        timeouts: SmtpTimeouts | None = None,
        source_ip: str | None = None,
        watch: SmtpTrace | None = None,
        cut: OpeningAbort | None = None,
    ) -> "SmtpConnection":
        """Connect to `address` (IP address, port), greet, negotiate TLS: a connection that is `usable`.

        `server_name` is the MX host name, for SNI and the certificate verdict; `dane` goes with TlsMode.DANE;
        `certificates` judges by other authorities than the system's; `watch` is told what is said, as long as
        somebody watches; `cut` ends the opening early, as a time-out. Raises ConnectFailed and nothing else; where
        that has a `fault`, the caller may try once more with TlsMode.OFF, if plaintext is allowed.
        """
        limits = timeouts or SmtpTimeouts()
        loop = asyncio.get_running_loop()
        started = loop.time()
        connect: Json = {"step": Phase.CONNECT.value, "to": f"{server_name} [{address[0]}]:{address[1]}"}
        cut = cut or OpeningAbort()
        bound = within(limits.connect_s)
        try:
            with bound:
                cut.ends(bound.expire)
                way: dict[str, Any] = {"host": address[0], "port": address[1]}
                if source_ip is not None:
                    way = {"sock": await connect_from(source_ip, address)}
                _, connection = await loop.create_connection(
                    lambda: cls(helo, tls, limits, server_name, loop, dane, certificates, (watch, address[0])),
                    **way,
                )
        except OSError as error:  # TimeoutError is one
            waited_s = loop.time() - started if cut.made else limits.connect_s
            broken = connect_break(error, waited_s, cut=cut.made)
            connect |= {"break": outcome_text(broken), "ms": round((loop.time() - started) * 1_000, 1)}
            if watch is not None and watch.domains:
                watch.tap(server_name, address[0]).note(None, outcome_text(broken), loop.time() - started)
            raise ConnectFailed(Phase.CONNECT, broken, (connect,)) from None
        finally:
            cut.ends(None)
        connect["ms"] = round((loop.time() - started) * 1_000, 1)
        try:
            cut.ends(connection._cut_short)  # noqa: SLF001 - our own class, from its constructor
            await connection._open(connect)  # noqa: SLF001
        except BaseException:
            connection.abort()
            raise
        finally:
            cut.ends(None)
        return connection

    def __init__(
        self,
        helo: str,
        tls: TlsMode,
        timeouts: SmtpTimeouts,
        server_name: str,
        loop: asyncio.AbstractEventLoop,
        dane: DanePolicy | None = None,
        certificates: CertificateVerifier | None = None,
        watched: tuple[SmtpTrace | None, str] = (None, ""),
    ) -> None:
        self.server_name = server_name
        self.certificate_failure: TlsFailure | None = None  # why the server's certificate does not vouch for it
        self.messages_sent = 0  # envelopes whose content was written
        self.idle_since = loop.time()
        self._loop = loop
        self._timeouts = timeouts
        required = tls not in (TlsMode.OFF, TlsMode.OPPORTUNISTIC)
        self._session = ClientSession(helo, starttls=tls is not TlsMode.OFF, required=required, now=loop.time())
        self._mode = tls
        self._dane = dane
        self._judge = certificates
        self._sni = sni(dane.base if dane is not None else server_name)
        self._shown: tuple[bytes, ...] = ()  # the certificates of a full handshake
        self._resumed = False  # the handshake offered an earlier session
        self._watched, self._ip = watched
        self._tap: ConnectionTrace | None = None  # of this connection, once somebody watched
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.Transport | None = None  # below TLS, where there is any
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._content_until = math.inf
        self._block_until = math.inf
        self._paused = False
        self._sending = False
        self._is_cut = False  # while it was opened
        self._going: _OngoingSend | None = None  # what the present `send` was asked to do
        self._opening: tuple[Json, ...] = ()
        self._opening_octets = 0
        self._limits = {
            Phase.GREETING: timeouts.reply_s,
            Phase.EHLO: timeouts.reply_s,
            Phase.STARTTLS: timeouts.reply_s,
            Phase.MAIL: timeouts.reply_s,
            Phase.RCPT: timeouts.reply_s,
            Phase.DATA: timeouts.data_s,
            Phase.BODY: timeouts.final_dot_s,
        }
        self._shortest = min(*self._limits.values(), timeouts.envelope_s, timeouts.block_s, timeouts.content_s)

    # -- for the pool --------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """True when the next `send` can go over this connection (first of all the one `begun`)."""
        return self._session.state is ClientState.READY and not self._sending

    @property
    def begun(self) -> Envelope | None:
        """The envelope that `upcoming` gave and whose commands are already out: the next one to send."""
        return self._session.begun

    @property
    def features(self) -> ServerFeatures:
        """What the server offers."""
        return self._session.features

    @property
    def tls(self) -> TlsDetails | None:
        """What the handshake agreed on; None in plaintext."""
        return self._session.tls

    @property
    def plaintext(self) -> str:
        """Why there is no TLS although it was wanted."""
        return self._session.plaintext

    @property
    def transcript(self) -> tuple[Json, ...]:
        """The steps that opened the session."""
        return self._opening

    @property
    def ended(self) -> Answer | None:
        """Why the session is over, None while it is not."""
        return self._session.ended

    def disable_pipelining(self) -> None:
        """Say one command at a time from now on, even where the server offers PIPELINING."""
        self._session.disable_pipelining()

    def _attend(self, watch: SmtpTrace, how: str) -> None:
        """Tell whoever watches now; one look while nobody does."""
        if not watch.domains:
            self._session.tap = None
        elif self._session.tap is None:
            if self._tap is None:
                self._tap = watch.tap(self.server_name, self._ip)
                self._tap.note(None, how)
            self._session.tap = self._tap

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        envelope: Envelope,
        upcoming: Callable[[], Envelope | None] | None = None,
        before_content: Callable[[], bool] | None = None,
    ) -> Transaction:
        """Perform one transaction; what the server did stands in the answers, in recipient order.

        `before_content` is asked right before content is written, and of long content again before each piece and
        before the final dot: False drops the connection instead and answers Break LOCAL. `upcoming` is asked just
        before, where the server takes PIPELINING; the envelope it returns goes out behind the final dot and must be
        given to the next `send` (RuntimeError otherwise). When the connection has died meanwhile that send answers
        at once. Cancelling aborts the connection. Exceptions of the two callables abort the connection and are raised.
        """
        if self._sending:
            raise RuntimeError("one envelope at a time")
        self._sending = True
        if self._watched is not None:
            self._attend(self._watched, "connected before")
        try:
            now = self._loop.time()
            exchange, commands = self._session.begin(envelope, now)
            going = self._going = _OngoingSend(exchange, upcoming, before_content or _always)
            if commands:
                self._write(commands)
            while not exchange.done:
                if self._session.content_due is exchange:
                    await self._content(going)
                else:
                    self._watch()
                    await self._sleep()
        except BaseException:
            self.abort()
            raise
        finally:
            self._sending = False
            self._going = None
        self.idle_since = self._loop.time()
        if self._session.state is ClientState.ENDED:
            self._settle_end()
        session = self._session
        return exchange.transaction(
            self._opening,
            self._opening_octets,
            pipelined=session.features.pipelining,
            broke_on_commands=session.state is ClientState.ENDED and session.broke_on_commands(exchange),
        )

    async def _content(self, going: "_OngoingSend") -> None:
        exchange = going.exchange
        if exchange.size <= _WHOLE and not self._paused:
            self._content_at_once(going)
            return
        chunks = self._chunks(going)
        if chunks:
            self._content_until = self._loop.time() + self._timeouts.content_s
            await self._write_slowly(chunks, exchange, going.may_go_on)
            self._session.content_written(self._loop.time())

    def _content_at_once(self, going: "_OngoingSend") -> None:
        if chunks := self._chunks(going):
            self._write(b"".join(chunks))
            self._session.content_written(self._loop.time())

    def _chunks(self, going: "_OngoingSend") -> list[bytes]:
        """What is to be written now; nothing when the right to send was lost."""
        session = self._session
        # First what takes its time, such as signing: a process that is stopped in it may have lost its right after.
        upcoming = going.upcoming() if going.upcoming is not None and session.features.pipelining else None
        now = self._loop.time()
        if not going.may_go_on():
            session.withhold(now)
            return []
        self.messages_sent += 1
        return session.content(upcoming, now)

    async def _write_slowly(
        self, chunks: list[bytes], exchange: PendingTransaction, may_go_on: Callable[[], bool]
    ) -> None:
        """Large content piece by piece, as fast as the peer reads. The final dot waits until all before it has left
        this process: what is still here would go out by itself when a stopped process is resumed."""
        *content, ending = chunks
        for chunk in content:
            view = memoryview(chunk)
            for start in range(0, len(view), _CHUNK):
                if not await self._may_write(exchange, may_go_on):
                    break
                self._write(view[start : start + _CHUNK])
        if await self._may_write(exchange, may_go_on, all_gone=True):
            self._write(ending)
        self._block_until = self._content_until = math.inf

    async def _may_write(
        self, exchange: PendingTransaction, may_go_on: Callable[[], bool], *, all_gone: bool = False
    ) -> bool:
        """Wait for room; False when the exchange was answered or broken half-way, or the right to send was lost."""
        self._block_until = self._loop.time() + self._timeouts.block_s
        while self._paused and not exchange.done:
            self._watch()
            await self._sleep()
        while all_gone and not exchange.done and self._unwritten():
            self._watch()
            await asyncio.sleep(_NAP_S)
        if not exchange.done and not may_go_on():
            self._session.withhold(self._loop.time())
            self._drop()
        return not exchange.done

    def _unwritten(self) -> int:
        """Octets that the kernel has not taken yet, those behind TLS included."""
        open_ones = {id(one): one for one in (self._transport, self._socket) if one is not None}
        return sum(one.get_write_buffer_size() for one in open_ones.values())

    async def close(self) -> None:
        """QUIT, wait a moment for the answer, close. Never raises for what the server does."""
        session, transport = self._session, self._transport
        if transport is None or transport.is_closing():
            return
        if session.state is ClientState.READY and not session.busy:
            self._write(session.quit(self._loop.time()))
            try:
                with within(self._timeouts.quit_s):
                    await self._sleep()
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                self.abort()
                raise
        session.fail(Break(BreakKind.LOCAL, "we closed the session"), self._loop.time())
        self._drop()

    def abort(self) -> None:
        """Drop the connection now, without QUIT; open exchanges are answered with Break LOCAL."""
        self._session.fail(Break(BreakKind.LOCAL, "we dropped the connection"), self._loop.time())
        self._drop()

    # -- opening -------------------------------------------------------------------------------

    async def _open(self, connect: Json) -> None:
        session = self._session
        session.opening_steps.insert(0, connect)  # a quick greeting may be there already
        while session.state not in (ClientState.READY, ClientState.ENDED):
            if session.state is ClientState.HANDSHAKE:
                await self._handshake()
            else:
                self._watch()
                await self._sleep()
        self._settle_end()
        if session.ended is not None:
            raise self._failed(session.ended)
        if session.tls is not None:
            self._keep_session()
        self._opening, self._opening_octets = weighed(session.opening_steps)
        self.idle_since = self._loop.time()

    def _failed(self, ended: Answer) -> ConnectFailed:
        session = self._session
        phase, outcome = ended.phase, ended.outcome
        fault = session.fault
        if isinstance(outcome, Break):
            session.opening_steps.append(TranscriptStep(phase, outcome, self._loop.time() - session.waiting_since))
            if fault is None and not self._is_cut and blames_tls(phase, outcome, secured=session.tls is not None):
                fault = TlsFailure(TlsFailureType.VALIDATION_FAILURE, outcome.detail)
        if fault is not None and self._resumed:
            client_context(self._mode).forget(self._sni)
        return ConnectFailed(phase, outcome, opening(session.opening_steps), fault=fault, resumed=self._resumed)

    def _cut_short(self) -> None:
        """End the opening as if its time-out had passed."""
        self._is_cut = True
        now = self._loop.time()
        phase = self._session.waiting
        what = "no TLS handshake" if phase is None else f"no complete reply at {phase.value}"
        waited_s = now - self._session.waiting_since
        self._session.fail(Break(BreakKind.TIMEOUT, f"{what} within {waited_s:.0f} s{CUT_SHORT}"), now)
        self._drop()
        self._rouse()

    async def _handshake(self) -> None:
        """STARTTLS was answered 220; reading has been paused since, so no plaintext can slip in behind it."""
        if self._transport is None:
            return
        self._resumed = client_context(self._mode).offers(self._sni)
        kept = client_context(self._mode).shown(self._sni)
        try:
            transport = await self._loop.start_tls(
                self._transport,
                self,
                client_context(self._mode),
                server_hostname=self._sni,
                ssl_handshake_timeout=self._timeouts.tls_s,
                ssl_shutdown_timeout=self._timeouts.quit_s,
            )
        except (OSError, ValueError) as error:
            # ssl.SSLError, resets and the time-out are OSErrors; a host name out of DNS that can't be an SNI
            # name is a ValueError.
            self._give_up_tls(handshake_failure(error))
            return
        self._transport = transport
        if transport is None or self._session.state is not ClientState.HANDSHAKE:
            # It closed, or spoke before we did: over TLS too nothing may come before EHLO.
            self._give_up_tls("the peer closed during the handshake")
            return
        judgement = (self._judge or certificate_verifier()).judged(
            transport.get_extra_info("ssl_object"), self.server_name, kept=kept, dane=self._dane
        )
        self.certificate_failure = judgement.certificate_failure
        if judgement.certificate_failure is not None and self._mode in (TlsMode.VERIFIED, TlsMode.DANE):
            self._session.fault = judgement.certificate_failure
            self._give_up_tls(f"the server's certificate is not accepted: {judgement.facts.certificate}")
            return
        self._shown = judgement.shown
        self._write(self._session.secured(judgement.facts, self._loop.time()))

    def _give_up_tls(self, why: str) -> None:
        self._session.fail(Break(BreakKind.TLS, why), self._loop.time())
        self._drop()

    def _keep_session(self) -> None:
        """For the next connection to the same name. Now, because tickets come behind the handshake."""
        tls = self._session.tls
        if self._sni is None or tls is None or tls.resumed or self._transport is None:
            return
        found = self._transport.get_extra_info("ssl_object").session
        if found is not None:
            client_context(self._mode).keep(self._sni, found, self._shown)

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is up."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        self._socket = self._socket or self._transport
        if self._watched is not None:
            self._attend(self._watched, "connected")

    def data_received(self, data: bytes) -> None:
        """Bytes from the server: feed the session and write what it says at once."""
        session = self._session
        commands = session.received(data, self._loop.time())
        if commands:
            self._write(commands)
        going = self._going
        if going is not None and session.content_due is going.exchange:
            self._go_on(going)
        if session.state is ClientState.HANDSHAKE and self._transport is not None:
            self._transport.pause_reading()
        elif session.state is ClientState.ENDED:
            self._settle_end()
        else:
            self._watch()
        if going is None or going.exchange.done or session.content_due is going.exchange:
            self._rouse()

    def _go_on(self, going: "_OngoingSend") -> None:
        """Write short content as soon as it is invited, for a task that sleeps in `send`: it need not be woken for
        that. One that is awake, or cancelled by now, sees to it itself."""
        wake = self._wake
        if wake is None or wake.done() or self._paused or going.exchange.size > _WHOLE:
            return
        try:
            self._content_at_once(going)
        except Exception as error:  # noqa: BLE001 - a mistake in a hook is raised where it was given
            wake.set_exception(error)

    def eof_received(self) -> bool:
        """The server will say no more: close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        detail = "the peer closed the connection" if exc is None else f"connection lost: {words(exc)}"
        self._session.fail(Break(BreakKind.CLOSED, detail), self._loop.time())
        self._transport = self._socket = None
        self._paused = False
        self._stop_timer()
        self._rouse()

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self._paused = True

    def resume_writing(self) -> None:
        """There is room again."""
        self._paused = False
        self._rouse()

    # -- clock and wire ------------------------------------------------------------------------

    def _write(self, data: bytes | memoryview) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    async def _sleep(self) -> None:
        """Until something happened: bytes, room to write, the end, or a deadline."""
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _watch(self) -> None:
        """See to it that a timer runs. It rings at least once in the shortest limit and only then looks at
        the deadline, so that a message costs no timer; no stage can begin after one rang and be over before
        the next one does, so nothing is noticed late.
        """
        if self._timer is None:
            self._ring_at(self._deadline())

    def _ring_at(self, deadline: float) -> None:
        at = min(deadline, self._loop.time() + self._shortest)
        self._timer = self._loop.call_at(at, self._rings)

    def _deadline(self) -> float:
        """When the stage that the session is in must be over."""
        session = self._session
        phase = session.waiting
        if phase is None:
            return math.inf
        deadline = session.waiting_since + self._limits[phase]
        if phase is Phase.BODY:
            return min(deadline, self._block_until, self._content_until)
        if session.due_since is not None:
            return min(deadline, session.due_since + self._timeouts.envelope_s)
        return deadline

    def _rings(self) -> None:
        self._timer = None
        deadline = self._deadline()
        if deadline == math.inf:
            return
        now = self._loop.time()
        if now < deadline:
            self._ring_at(deadline)
            return
        phase = self._session.waiting
        what = f"no complete reply at {phase.value} in time" if phase is not None else "out of time"
        if self._block_until != math.inf:
            what = "the peer stopped reading the content"
        self._session.fail(Break(BreakKind.TIMEOUT, what), now)
        self._drop()
        self._rouse()

    def _settle_end(self) -> None:
        """A session that is over has no use for its socket: flush a last QUIT, but don't linger for it."""
        transport = self._transport
        if self._session.state is not ClientState.ENDED or transport is None or transport.is_closing():
            return
        self._stop_timer()
        if transport.get_write_buffer_size() > _LAST_WORDS:
            transport.abort()
        else:
            transport.close()
            self._timer = self._loop.call_later(self._timeouts.quit_s, transport.abort)

    def _drop(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _OngoingSend(Struct, frozen=True):
    """An envelope on its way, and what its caller wants to be asked before its content goes out."""

    exchange: PendingTransaction
    upcoming: Callable[[], Envelope | None] | None
    may_go_on: Callable[[], bool]


def _always() -> bool:
    return True
