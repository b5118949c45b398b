"""An SMTP connection to a remote server: socket, clock and time-outs around the pure `session`.

No other module opens sockets to mail servers. All behaviour of a server becomes a value in a Transaction, or
ConnectFailed during the opening; any other exception is a bug. The transport's callbacks, the timer and the sending
task share one state, so they stay in one file.
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
    error_text,
    handshake_failure,
    sni,
)
from mta.smtp.client.session import ClientSession, ClientState
from mta.smtp.client.source_address import connect_from
from mta.smtp.client.tls import CertificateVerifier, TlsMode, certificate_verifier, client_context
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from mta.smtp.client.trace import ConnectionTrace, SmtpTrace
from mta.smtp.client.transaction import PendingTransaction, Transaction
from mta.smtp.client.transcript import Json, TlsDetails, TranscriptStep, opening, opening_with_size, outcome_text

__all__ = ["ConnectFailed", "Envelope", "SmtpConnection", "SmtpTimeouts", "TlsMode", "Transaction"]

# Content up to this size is written at once with its final dot: the socket buffer of an idle connection holds twice
# as much.
_MAX_SMALL_CONTENT = 16 * 1024
_CHUNK = 128 * 1024
_POLL_S = 0.005  # between checks whether the kernel has taken all written octets
_MAX_FINAL_COMMANDS = 4_096  # octets still to write at the end that are commands, not the rest of a message


class SmtpConnection(asyncio.Protocol):
    """An open SMTP session that sends one envelope after another, for one task at a time; created by `open`."""

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
        """Connect to `address` (IP address, port), greet, negotiate TLS; return a `usable` connection.

        `server_name` is the MX host name, for SNI and the certificate verdict; `dane` goes with TlsMode.DANE;
        `certificates` verifies by other authorities than the system's; `watch` traces the session while an operator
        watches its domain; `cut` ends the opening early, like a time-out. Raises only ConnectFailed; when that has a
        `fault`, the caller may retry with TlsMode.OFF if plaintext is allowed.
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
                watch.connection_trace(server_name, address[0]).note(None, outcome_text(broken), loop.time() - started)
            raise ConnectFailed(Phase.CONNECT, broken, (connect,)) from None
        finally:
            cut.ends(None)
        connect["ms"] = round((loop.time() - started) * 1_000, 1)
        try:
            cut.ends(connection._abort_opening)  # noqa: SLF001 - our own class, from its constructor
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
        self.certificate_failure: TlsFailure | None = None  # why the server's certificate was not verified
        self.messages_sent = 0  # envelopes whose content was written
        self.idle_since = loop.time()
        self._loop = loop
        self._timeouts = timeouts
        required = tls not in (TlsMode.OFF, TlsMode.OPPORTUNISTIC)
        self._session = ClientSession(helo, starttls=tls is not TlsMode.OFF, required=required, now=loop.time())
        self._mode = tls
        self._dane = dane
        self._verifier = certificates
        self._sni = sni(dane.base if dane is not None else server_name)
        self._certificates: tuple[bytes, ...] = ()  # the certificates of a full handshake
        self._resumed = False  # the handshake offered an earlier session
        self._watched, self._ip = watched
        self._trace: ConnectionTrace | None = None  # of this connection, once it was traced
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.Transport | None = None  # below TLS, if TLS is in use
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._content_until = math.inf
        self._block_until = math.inf
        self._paused = False
        self._sending = False
        self._aborted_opening = False  # `OpeningAbort` ended the opening
        self._ongoing: _OngoingSend | None = None  # the envelope that `send` is sending
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
        """Return True if the connection can take the next `send` (first that of `pipelined_envelope`)."""
        return self._session.state is ClientState.READY and not self._sending

    @property
    def pipelined_envelope(self) -> Envelope | None:
        """Return the envelope from `upcoming` whose commands are already written; it must be the next to send."""
        return self._session.pipelined_envelope

    @property
    def features(self) -> ServerFeatures:
        """Return the extensions that the server offers."""
        return self._session.features

    @property
    def tls(self) -> TlsDetails | None:
        """Return the negotiated TLS; None in plaintext."""
        return self._session.tls

    @property
    def plaintext_reason(self) -> str:
        """Return why TLS is not in use although it was requested."""
        return self._session.plaintext_reason

    @property
    def transcript(self) -> tuple[Json, ...]:
        """Return the steps that opened the session."""
        return self._opening

    @property
    def ended(self) -> Answer | None:
        """Return why the session ended; None while it is open."""
        return self._session.ended

    def disable_pipelining(self) -> None:
        """Send one command at a time from now on, even if the server offers PIPELINING."""
        self._session.disable_pipelining()

    def _update_trace(self, watch: SmtpTrace, how: str) -> None:
        """Start or stop tracing; without a watched domain this costs one look-up."""
        if not watch.domains:
            self._session.trace = None
        elif self._session.trace is None:
            if self._trace is None:
                self._trace = watch.connection_trace(self.server_name, self._ip)
                self._trace.note(None, how)
            self._session.trace = self._trace

    # -- sending -------------------------------------------------------------------------------

    async def send(
        self,
        envelope: Envelope,
        upcoming: Callable[[], Envelope | None] | None = None,
        before_content: Callable[[], bool] | None = None,
    ) -> Transaction:
        """Perform one transaction; return the server's answers in recipient order.

        `before_content` is called right before content is written, for long content also before each piece and before
        the final dot; False drops the connection and answers Break LOCAL. If the server offers PIPELINING, `upcoming`
        is called just before that; the commands of its envelope follow the final dot, and the envelope must go to the
        next `send` (RuntimeError otherwise), which answers at once if the connection has died meanwhile. Cancelling
        aborts the connection. Exceptions of the two callables abort the connection and are raised.
        """
        if self._sending:
            raise RuntimeError("`send` is already in progress on this connection")
        self._sending = True
        if self._watched is not None:
            self._update_trace(self._watched, "connected before")
        try:
            now = self._loop.time()
            transaction, commands = self._session.begin(envelope, now)
            ongoing = self._ongoing = _OngoingSend(transaction, upcoming, before_content or _always_true)
            if commands:
                self._write(commands)
            while not transaction.done:
                if self._session.content_due is transaction:
                    await self._send_content(ongoing)
                else:
                    self._start_timer()
                    await self._wait()
        except BaseException:
            self.abort()
            raise
        finally:
            self._sending = False
            self._ongoing = None
        self.idle_since = self._loop.time()
        if self._session.state is ClientState.ENDED:
            self._settle_end()
        session = self._session
        return transaction.result(
            self._opening,
            self._opening_octets,
            pipelined=session.features.pipelining,
            broke_on_commands=session.state is ClientState.ENDED and session.broke_on_commands(transaction),
        )

    async def _send_content(self, ongoing: "_OngoingSend") -> None:
        transaction = ongoing.transaction
        if transaction.size <= _MAX_SMALL_CONTENT and not self._paused:
            self._write_small_content(ongoing)
            return
        chunks = self._chunks(ongoing)
        if chunks:
            self._content_until = self._loop.time() + self._timeouts.content_s
            await self._write_slowly(chunks, transaction, ongoing.may_send)
            self._session.content_written(self._loop.time())

    def _write_small_content(self, ongoing: "_OngoingSend") -> None:
        if chunks := self._chunks(ongoing):
            self._write(b"".join(chunks))
            self._session.content_written(self._loop.time())

    def _chunks(self, ongoing: "_OngoingSend") -> list[bytes]:
        """Return the chunks to write now; none when the right to send was lost."""
        session = self._session
        # Prepare the next envelope first, which may sign: a process that is suspended there may lose its right to send.
        upcoming = ongoing.upcoming() if ongoing.upcoming is not None and session.features.pipelining else None
        now = self._loop.time()
        if not ongoing.may_send():
            session.withhold(now)
            return []
        self.messages_sent += 1
        return session.content(upcoming, now)

    async def _write_slowly(
        self, chunks: list[bytes], transaction: PendingTransaction, may_send: Callable[[], bool]
    ) -> None:
        """Write large content piece by piece, as fast as the peer reads.

        The final dot waits until the kernel has all content: octets still in this process would be sent without a
        check when a suspended process resumes.
        """
        *content, ending = chunks
        for chunk in content:
            view = memoryview(chunk)
            for start in range(0, len(view), _CHUNK):
                if not await self._wait_to_write(transaction, may_send):
                    break
                self._write(view[start : start + _CHUNK])
        if await self._wait_to_write(transaction, may_send, flushed=True):
            self._write(ending)
        self._block_until = self._content_until = math.inf

    async def _wait_to_write(
        self, transaction: PendingTransaction, may_send: Callable[[], bool], *, flushed: bool = False
    ) -> bool:
        """Wait for room; False when the transaction was answered or broken half-way, or the right to send was lost."""
        self._block_until = self._loop.time() + self._timeouts.block_s
        while self._paused and not transaction.done:
            self._start_timer()
            await self._wait()
        while flushed and not transaction.done and self._unwritten():
            self._start_timer()
            await asyncio.sleep(_POLL_S)
        if not transaction.done and not may_send():
            self._session.withhold(self._loop.time())
            self._drop()
        return not transaction.done

    def _unwritten(self) -> int:
        """Return the octets that the kernel has not taken yet, buffered TLS records included."""
        transports = {id(one): one for one in (self._transport, self._socket) if one is not None}
        return sum(one.get_write_buffer_size() for one in transports.values())

    async def close(self) -> None:
        """Send QUIT, wait a moment for the reply, close. Nothing that the server does raises."""
        session, transport = self._session, self._transport
        if transport is None or transport.is_closing():
            return
        if session.state is ClientState.READY and not session.busy:
            self._write(session.quit(self._loop.time()))
            try:
                with within(self._timeouts.quit_s):
                    await self._wait()
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
        session.opening_steps.insert(0, connect)  # the greeting may have arrived already
        while session.state not in (ClientState.READY, ClientState.ENDED):
            if session.state is ClientState.HANDSHAKE:
                await self._handshake()
            else:
                self._start_timer()
                await self._wait()
        self._settle_end()
        if session.ended is not None:
            raise self._failed(session.ended)
        if session.tls is not None:
            self._keep_session()
        self._opening, self._opening_octets = opening_with_size(session.opening_steps)
        self.idle_since = self._loop.time()

    def _failed(self, ended: Answer) -> ConnectFailed:
        session = self._session
        phase, outcome = ended.phase, ended.outcome
        fault = session.fault
        if isinstance(outcome, Break):
            session.opening_steps.append(TranscriptStep(phase, outcome, self._loop.time() - session.waiting_since))
            if (
                fault is None
                and not self._aborted_opening
                and blames_tls(phase, outcome, secured=session.tls is not None)
            ):
                fault = TlsFailure(TlsFailureType.VALIDATION_FAILURE, outcome.detail)
        if fault is not None and self._resumed:
            client_context(self._mode).forget(self._sni)
        return ConnectFailed(phase, outcome, opening(session.opening_steps), fault=fault, resumed=self._resumed)

    def _abort_opening(self) -> None:
        """End the opening as its time-out would."""
        self._aborted_opening = True
        now = self._loop.time()
        phase = self._session.waiting
        what = "no TLS handshake" if phase is None else f"no complete reply at {phase.value}"
        waited_s = now - self._session.waiting_since
        self._session.fail(Break(BreakKind.TIMEOUT, f"{what} within {waited_s:.0f} s{CUT_SHORT}"), now)
        self._drop()
        self._notify()

    async def _handshake(self) -> None:
        """Negotiate TLS after the 220 reply; reading is paused, so that no plaintext gets in."""
        if self._transport is None:
            return
        self._resumed = client_context(self._mode).has_session(self._sni)
        kept = client_context(self._mode).session_certificates(self._sni)
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
            # ssl.SSLError, resets and the time-out are OSErrors; a host name from DNS that can't be an SNI
            # name is a ValueError.
            self._give_up_tls(handshake_failure(error))
            return
        self._transport = transport
        if transport is None or self._session.state is not ClientState.HANDSHAKE:
            # It closed, or sent data before EHLO, which is invalid over TLS too.
            self._give_up_tls("the peer closed during the handshake")
            return
        handshake = (self._verifier or certificate_verifier()).verify(
            transport.get_extra_info("ssl_object"), self.server_name, kept=kept, dane=self._dane
        )
        self.certificate_failure = handshake.certificate_failure
        if handshake.certificate_failure is not None and self._mode in (TlsMode.VERIFIED, TlsMode.DANE):
            self._session.fault = handshake.certificate_failure
            self._give_up_tls(f"the server's certificate is not accepted: {handshake.details.certificate}")
            return
        self._certificates = handshake.certificates
        self._write(self._session.secured(handshake.details, self._loop.time()))

    def _give_up_tls(self, why: str) -> None:
        self._session.fail(Break(BreakKind.TLS, why), self._loop.time())
        self._drop()

    def _keep_session(self) -> None:
        """Keep the TLS session for the next connection; only now, since tickets follow the handshake."""
        tls = self._session.tls
        if self._sni is None or tls is None or tls.resumed or self._transport is None:
            return
        found = self._transport.get_extra_info("ssl_object").session
        if found is not None:
            client_context(self._mode).keep(self._sni, found, self._certificates)

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        self._socket = self._socket or self._transport
        if self._watched is not None:
            self._update_trace(self._watched, "connected")

    def data_received(self, data: bytes) -> None:
        """Feed the session, and write the commands that it returns at once."""
        session = self._session
        commands = session.received(data, self._loop.time())
        if commands:
            self._write(commands)
        ongoing = self._ongoing
        if ongoing is not None and session.content_due is ongoing.transaction:
            self._continue_send(ongoing)
        if session.state is ClientState.HANDSHAKE and self._transport is not None:
            self._transport.pause_reading()
        elif session.state is ClientState.ENDED:
            self._settle_end()
        else:
            self._start_timer()
        if ongoing is None or ongoing.transaction.done or session.content_due is ongoing.transaction:
            self._notify()

    def _continue_send(self, ongoing: "_OngoingSend") -> None:
        """Write short content right after the 354 reply, without waking the task that sleeps in `send`.

        A task that is awake or was cancelled does it itself.
        """
        wake = self._wake
        if wake is None or wake.done() or self._paused or ongoing.transaction.size > _MAX_SMALL_CONTENT:
            return
        try:
            self._write_small_content(ongoing)
        except Exception as error:  # noqa: BLE001 - `send` raises the exception of its hook
            wake.set_exception(error)

    def eof_received(self) -> bool:
        """Close: the server sends no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer open transactions and wake the task."""
        detail = "the peer closed the connection" if exc is None else f"connection lost: {error_text(exc)}"
        self._session.fail(Break(BreakKind.CLOSED, detail), self._loop.time())
        self._transport = self._socket = None
        self._paused = False
        self._stop_timer()
        self._notify()

    def pause_writing(self) -> None:
        """Stop writing: the peer reads too slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on writing."""
        self._paused = False
        self._notify()

    # -- clock and wire ------------------------------------------------------------------------

    def _write(self, data: bytes | memoryview) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    async def _wait(self) -> None:
        """Wait for octets, room to write, the end of the session, or a deadline."""
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _start_timer(self) -> None:
        """Start the timer unless it runs.

        It fires at least once per shortest limit and only then compares the deadline, so that a message costs no
        timer. No stage can begin after one firing and exceed its limit before the next, so no time-out is late.
        """
        if self._timer is None:
            self._set_timer(self._deadline())

    def _set_timer(self, deadline: float) -> None:
        at = min(deadline, self._loop.time() + self._shortest)
        self._timer = self._loop.call_at(at, self._on_timer)

    def _deadline(self) -> float:
        """Return the deadline of the current stage."""
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

    def _on_timer(self) -> None:
        self._timer = None
        deadline = self._deadline()
        if deadline == math.inf:
            return
        now = self._loop.time()
        if now < deadline:
            self._set_timer(deadline)
            return
        phase = self._session.waiting
        what = f"no complete reply at {phase.value} in time" if phase is not None else "out of time"
        if self._block_until != math.inf:
            what = "the peer stopped reading the content"
        self._session.fail(Break(BreakKind.TIMEOUT, what), now)
        self._drop()
        self._notify()

    def _settle_end(self) -> None:
        """Close the socket of an ended session: flush a last QUIT, without lingering."""
        transport = self._transport
        if self._session.state is not ClientState.ENDED or transport is None or transport.is_closing():
            return
        self._stop_timer()
        if transport.get_write_buffer_size() > _MAX_FINAL_COMMANDS:
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
    """The envelope that `send` is sending, and its caller's hooks."""

    transaction: PendingTransaction
    upcoming: Callable[[], Envelope | None] | None
    may_send: Callable[[], bool]


def _always_true() -> bool:
    return True
