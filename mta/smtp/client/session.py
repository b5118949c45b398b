"""The client side of an SMTP session as a state machine without I/O: bytes in, bytes to write out.

`connection` owns the socket and the clock and feeds this machine. Each step returns the bytes to write; the results
are in the `PendingTransaction` of an envelope and in `ended`. The server's behaviour never raises. All states are in
this one file, so that a transition can be followed without leaving it.
Source: RFC 5321, with RFC 1870 (SIZE), 2920 (PIPELINING), 3207 (STARTTLS), 6152 (8BITMIME), 6531 (SMTPUTF8).
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.smtp.client.envelope import (
    Envelope,
    EnvelopeNeeds,
    ServerFeatures,
    dot_stuffed,
    local_refusal,
    mail_command,
    rcpt_command,
    unwritable_address,
)
from mta.smtp.client.replies import ParsedReply, ReplyReader
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from mta.smtp.client.trace import ConnectionTrace
from mta.smtp.client.transaction import PendingTransaction
from mta.smtp.client.transcript import Json, TlsDetails, TranscriptStep, outcome_text

_OK: Final = 2
_GO_AHEAD: Final = 3
_REFUSED: Final = (4, 5)
_CLOSING: Final = 421  # RFC 5321 3.8: may come in place of any reply
# Aliases, because looking up an enum member costs 70 ns and a message needs thirty look-ups.
_MAIL, _RCPT, _DATA, _BODY = Phase.MAIL, Phase.RCPT, Phase.DATA, Phase.BODY
_COMMAND_PHASES: Final = frozenset({_MAIL, _RCPT, _DATA})


class ClientState(StrEnum):
    """The stage of a session; only READY takes an envelope."""

    OPENING = "opening"  # greeting, EHLO, STARTTLS
    HANDSHAKE = "handshake"  # the caller negotiates TLS, then calls `secured`
    READY = "ready"
    QUITTING = "quitting"
    ENDED = "ended"


_READY, _HANDSHAKE, _ENDED = ClientState.READY, ClientState.HANDSHAKE, ClientState.ENDED


class _AwaitedReply(Struct):
    """A reply that the server has yet to send: its handler, and the transaction and recipient that it answers."""

    handle: Callable[["_AwaitedReply", ParsedReply], None]
    phase: Phase
    transaction: PendingTransaction | None = None
    recipient: int | None = None


class ClientSession:
    """The state of one SMTP session, from greeting to QUIT. The caller passes times, in monotonic seconds."""

    def __init__(self, helo: str, *, starttls: bool, now: float, required: bool = False) -> None:
        """Await the greeting from `now` on.

        With `starttls`, negotiate TLS if the server offers it; with `required`, end the session unless TLS succeeds.
        """
        self.state = ClientState.OPENING
        self.features = ServerFeatures()
        self.tls: TlsDetails | None = None
        self.plaintext_reason = ""  # why TLS is not in use although it was requested
        self.fault: TlsFailure | None = None  # why the required TLS failed
        self.ended: Answer | None = None  # why the session ended, and in which phase
        self.opening_steps: list[TranscriptStep | Json] = []
        self.waiting_since = now
        self.trace: ConnectionTrace | None = None  # set while an operator traces the session
        self.content_due: PendingTransaction | None = None  # after 354: call `content` or `withhold`
        self._helo = helo
        self._starttls = starttls
        self._required = required
        self._now = now
        self._reader = ReplyReader()
        self._awaited: deque[_AwaitedReply] = deque((_AwaitedReply(self._on_greeting, Phase.GREETING),))
        self._outgoing: list[str] = []
        self._current: PendingTransaction | None = None
        self._upcoming: PendingTransaction | None = None
        self._writing = False  # the caller is still writing content
        self._open_transaction = False  # MAIL was accepted; neither content nor RSET followed
        self._carried_content = False  # this session has carried content

    # -- state -------------------------------------------------------------------------------

    @property
    def waiting(self) -> Phase | None:
        """Return the phase of the next expected reply; None if no reply is expected."""
        return self._awaited[0].phase if self._awaited else None

    @property
    def due_since(self) -> float | None:
        """Return when the transaction of the next expected reply got its first reply; None before that."""
        transaction = self._awaited[0].transaction if self._awaited else None
        return transaction.began if transaction is not None else None

    @property
    def pipelined_envelope(self) -> Envelope | None:
        """Return the envelope pipelined behind the last content, which must be the next to `begin`."""
        return self._upcoming.envelope if self._upcoming is not None else None

    @property
    def busy(self) -> bool:
        """Return True while a transaction is in progress or pipelined."""
        return self._current is not None or self._upcoming is not None

    # -- input and commands -------------------------------------------------------------------

    def received(self, data: bytes, now: float) -> bytes:
        """Process bytes from the server and return the commands to write."""
        self._now = now
        expected = len(self._awaited)
        for parsed in self._reader.feed(data):
            if self.state is _ENDED:
                break
            if self.trace is not None:
                transaction = self._awaited[0].transaction if self._awaited else self._current
                self.trace.answer(transaction.envelope if transaction else None, parsed.reply, now - self.waiting_since)
            if parsed.reply.code == _CLOSING and self.state is not _HANDSHAKE:
                self._end_with_421(parsed.reply)
                break
            if expected == 0:  # a reply before its command: out of step, or injected (RFC 3207 6)
                self._end(self._unexpected(outcome_text(parsed.reply)))
                break
            expected -= 1
            awaited = self._awaited.popleft()
            awaited.handle(awaited, parsed)
            self.waiting_since = now
        if self.state is not _ENDED:
            self._check_reader()
        return self._take_outgoing()

    def secured(self, tls: TlsDetails, now: float) -> bytes:
        """Return EHLO after the TLS handshake; discard all that the server announced before it (RFC 3207 4.2)."""
        self._now = now
        self.tls = tls
        if self.trace is not None:
            agreed = f"{tls.version} {tls.cipher}, certificate {tls.certificate}{', resumed' if tls.resumed else ''}"
            self.trace.note(None, agreed, now - self.waiting_since)
        self.opening_steps.append(
            {"step": Phase.TLS.value, **tls.shown, "ms": round((now - self.waiting_since) * 1_000, 1)}
        )
        self.features = ServerFeatures()
        self._reader = ReplyReader()
        self.state = ClientState.OPENING
        self.waiting_since = now
        self._greet()
        return self._take_outgoing()

    def disable_pipelining(self) -> None:
        """Send one command at a time from now on, even if the server offers PIPELINING; only when not `busy`."""
        self.features = structs.replace(self.features, pipelining=False)

    def broke_on_commands(self, transaction: PendingTransaction) -> bool:
        """Return True if the session broke while the server processed this transaction's commands, before its content.

        Servers that offer PIPELINING and mishandle it fail like this. A connection that carried content before and
        then closes without a first reply does not count: it may have died while idle.
        """
        ended = self.ended
        if ended is None or ended.phase not in _COMMAND_PHASES or not isinstance(ended.outcome, Break):
            return False
        kind = ended.outcome.kind
        if kind is BreakKind.PROTOCOL:
            return True
        if kind is BreakKind.CLOSED:
            return transaction.began is not None or not self._carried_content
        return kind is BreakKind.TIMEOUT and (transaction.began is not None or transaction.behind)

    def begin(self, envelope: Envelope, now: float) -> tuple[PendingTransaction, bytes]:
        """Start the transaction of `envelope`, or continue it if it is the one `pipelined_envelope`.

        Return the transaction and the commands to write. The transaction may be done at once: refused locally, or the
        session has ended. Raises RuntimeError while another envelope is in progress or pipelined.
        """
        self._now = now
        if self._upcoming is not None:
            if self._upcoming.envelope is not envelope:
                raise RuntimeError("another envelope was pipelined and must be sent first")
            transaction, self._upcoming = self._upcoming, None
            self._current = None if transaction.done else transaction
            return transaction, b""
        if self._current is not None:
            raise RuntimeError("this connection is still sending another message")
        transaction = PendingTransaction(envelope)
        if self.state is not _READY:
            lost = Break(BreakKind.LOCAL, "the session is not ready for a message")
            self._finish_unanswered(transaction, Answer(_MAIL, _as_break(self.ended.outcome) if self.ended else lost))
            return transaction, b""
        if not self._awaited:
            self.waiting_since = now
        self._current = transaction
        self._start(transaction)
        return transaction, self._take_outgoing()

    def content(self, upcoming: Envelope | None, now: float) -> list[bytes]:
        """Return the chunks to write, in order: the content, its final dot, and the commands of `upcoming`.

        RFC 2920 3.1 allows message text first in a group of commands. `upcoming` must be None unless the server
        offers PIPELINING. Call `content_written` afterwards. Raises RuntimeError before the 354 reply.
        """
        transaction = self.content_due
        if transaction is None:
            raise RuntimeError("no content is awaited")
        self._now = self.waiting_since = now
        self.content_due = None
        self._writing = True
        self._open_transaction = False
        self._awaited.append(_AwaitedReply(self._on_body, _BODY, transaction))
        self._outgoing.append(".\r\n")
        self._carried_content = True
        if self.trace is not None:
            self.trace.content(transaction.envelope, transaction.size)
        if upcoming is not None:
            self._upcoming = PendingTransaction(upcoming)
            self._upcoming.behind = True
            self._start(self._upcoming)
        return [*dot_stuffed(transaction.envelope.content), self._take_outgoing()]

    def content_written(self, now: float) -> None:
        """Start waiting for the reply to the final dot; call it when all chunks of `content` are written."""
        self._writing = False
        self.waiting_since = max(self.waiting_since, now)

    def quit(self, now: float) -> bytes:
        """Return QUIT; only when READY and not busy."""
        self._now = self.waiting_since = now
        self.state = ClientState.QUITTING
        if self.trace is not None:
            self.trace.command(None, "QUIT")
        self._awaited.append(_AwaitedReply(self._on_quit, _MAIL))
        return b"QUIT\r\n"

    def fail(self, outcome: Break, now: float) -> None:
        """End the session with `outcome`, such as a lost connection or a time-out, and settle open transactions.

        Does nothing if the session has ended already.
        """
        self._now = now
        if self.state is _ENDED:
            return
        phase = self.waiting or (_DATA if self.content_due is not None else _MAIL)
        if self.state is _HANDSHAKE:
            phase = Phase.TLS
        self._end(Answer(phase, outcome))

    def withhold(self, now: float) -> None:
        """End the session before the final dot after losing the right to send; the server can't have the message."""
        self._now = now
        if self.state is not _ENDED:
            self._end(Answer(_DATA, Break(BreakKind.LOCAL, "content not sent: the right to send was lost")))

    # -- opening -------------------------------------------------------------------------------

    def _on_greeting(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        self._note(awaited, parsed.reply)
        if parsed.reply.code // 100 == _OK:
            self._greet()
        else:
            self._refuse_session(awaited.phase, parsed.reply)

    def _greet(self) -> None:
        self._outgoing.append(f"EHLO {self._helo}\r\n")
        self._awaited.append(_AwaitedReply(self._on_ehlo, Phase.EHLO))

    def _on_ehlo(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        self._note(awaited, parsed.reply)
        verdict = parsed.reply.code // 100
        if verdict == _OK:
            self.features = ServerFeatures.parsed(parsed.lines[1:])
            if self._starttls and self.features.starttls and self.tls is None:
                self._outgoing.append("STARTTLS\r\n")
                self._awaited.append(_AwaitedReply(self._on_starttls, Phase.STARTTLS))
            else:
                self._ready("the server does not offer STARTTLS")
        elif verdict == 5:  # RFC 5321 3.2: servers without EHLO reply 500 or 502; some reply 550
            self._outgoing.append(f"HELO {self._helo}\r\n")
            self._awaited.append(_AwaitedReply(self._on_helo, Phase.EHLO))
        else:
            self._refuse_session(awaited.phase, parsed.reply)

    def _on_helo(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        self._note(awaited, parsed.reply)
        if parsed.reply.code // 100 == _OK:
            self._ready("the server does not know EHLO")
        else:
            self._refuse_session(awaited.phase, parsed.reply)

    def _ready(self, without: str) -> None:
        """Accept envelopes, or end the session if TLS is required and absent; `without` says why it is absent."""
        if self.tls is None:
            self.plaintext_reason = without
        if not self._required or self.tls is not None:
            self.state = _READY
            return
        detail = f"no TLS, which this mail needs: {without}"[:300]
        self.fault = TlsFailure(TlsFailureType.STARTTLS_NOT_SUPPORTED, without[:300])
        self._end(Answer(Phase.STARTTLS, Break(BreakKind.TLS, detail)))
        self._outgoing.append("QUIT\r\n")

    def _on_starttls(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        if parsed.reply.code == 220:
            self.state = _HANDSHAKE
        else:  # opportunistic: a server that offers and then refuses gets plaintext, as before the offer
            self._note(awaited, parsed.reply)
            self._ready(f"the server refuses STARTTLS: {outcome_text(parsed.reply)}")

    def _refuse_session(self, phase: Phase, reply: Reply) -> None:
        self._end(Answer(phase, _expected_class(reply, phase)))
        self._outgoing.append("QUIT\r\n")  # RFC 5321 3.1: after a 554 greeting the server waits for it

    # -- transactions --------------------------------------------------------------------------

    def _start(self, transaction: PendingTransaction) -> None:
        """Queue the first commands of a transaction; all of them up to DATA if the server offers PIPELINING."""
        needs = EnvelopeNeeds.of(transaction.envelope)
        refused = local_refusal(needs, self.features)
        if refused is not None:
            transaction.settle(Answer(_MAIL, refused))
        for place in needs.unsafe:
            if place is not None:
                transaction.settle_one(place, Answer(_RCPT, unwritable_address()))
        transaction.pending = [place for place, answer in enumerate(transaction.answers) if answer is None]
        if not transaction.pending:
            self._finish(transaction)
            return
        transaction.size = needs.size
        transaction.mail = mail_command(transaction.envelope.sender, needs, self.features)
        if self._open_transaction:
            # RFC 2920 3.1 allows RSET anywhere in a group, so MAIL can follow at once.
            self._outgoing.append("RSET\r\n")
            self._awaited.append(_AwaitedReply(self._on_rset, _MAIL, transaction))
            self._open_transaction = False
            if not self.features.pipelining:
                return
        self._ask(transaction)

    def _ask(self, transaction: PendingTransaction) -> None:
        outgoing, awaited = self._outgoing, self._awaited
        outgoing.append(transaction.mail)
        awaited.append(_AwaitedReply(self._on_mail, _MAIL, transaction))
        if self.features.pipelining:
            recipients = transaction.envelope.recipients
            for place in transaction.pending:
                outgoing.append(rcpt_command(recipients[place]))
                awaited.append(_AwaitedReply(self._on_rcpt, _RCPT, transaction, place))
            outgoing.append("DATA\r\n")
            awaited.append(_AwaitedReply(self._on_data, _DATA, transaction))

    def _on_rset(self, awaited: _AwaitedReply, _parsed: ParsedReply) -> None:
        """Ignore the reply to RSET; the reply to MAIL decides."""
        if not self.features.pipelining:
            assert awaited.transaction is not None
            self._ask(awaited.transaction)

    def _on_mail(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        transaction = awaited.transaction
        assert transaction is not None
        transaction.began = self.waiting_since
        self._note(awaited, parsed.reply)
        verdict = parsed.reply.code // 100
        if verdict in _REFUSED:
            transaction.settle(Answer(awaited.phase, parsed.reply))
        elif verdict == _OK:
            self._open_transaction = True
        else:
            self._end(Answer(awaited.phase, _expected_class(parsed.reply, awaited.phase)))
            return
        if not self.features.pipelining:
            self._next_recipient(transaction, 0)

    def _on_rcpt(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        transaction, recipient = awaited.transaction, awaited.recipient
        assert transaction is not None
        assert recipient is not None
        verdict = parsed.reply.code // 100
        if transaction.answers[recipient] is None:  # otherwise MAIL was refused, and this reply only repeats that
            self._note(awaited, parsed.reply)
            if verdict == _OK:
                transaction.accepted += 1
            elif verdict in _REFUSED:
                transaction.answers[recipient] = Answer(awaited.phase, parsed.reply)
            else:
                self._end(Answer(awaited.phase, _expected_class(parsed.reply, awaited.phase)))
                return
        if not self.features.pipelining:
            self._next_recipient(transaction, transaction.pending.index(recipient) + 1)

    def _next_recipient(self, transaction: PendingTransaction, place: int) -> None:
        """Queue the next command without PIPELINING: RCPT, DATA after the last, none if all recipients were refused."""
        if place < len(transaction.pending) and transaction.answers[transaction.pending[place]] is None:
            recipient = transaction.pending[place]
            self._outgoing.append(rcpt_command(transaction.envelope.recipients[recipient]))
            self._awaited.append(_AwaitedReply(self._on_rcpt, _RCPT, transaction, recipient))
        elif transaction.accepted:
            self._outgoing.append("DATA\r\n")
            self._awaited.append(_AwaitedReply(self._on_data, _DATA, transaction))
        else:
            self._finish(transaction)

    def _on_data(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        transaction = awaited.transaction
        assert transaction is not None
        verdict = parsed.reply.code // 100
        if verdict == _GO_AHEAD and transaction.accepted:
            self._note(awaited, parsed.reply)
            self.content_due = transaction
        elif verdict == _GO_AHEAD:
            # RFC 2920 3.1: a server may reply 354 although it refused all recipients; a lone dot ends that.
            self._outgoing.append(".\r\n")
            self._open_transaction = False
            self._awaited.append(_AwaitedReply(self._on_lone_dot, _DATA, transaction))
        elif verdict in _REFUSED:
            if transaction.accepted:
                self._note(awaited, parsed.reply)
                transaction.settle(Answer(awaited.phase, parsed.reply))
            self._finish(transaction)
        else:
            self._end(Answer(awaited.phase, _expected_class(parsed.reply, awaited.phase)))

    def _on_lone_dot(self, awaited: _AwaitedReply, _parsed: ParsedReply) -> None:
        assert awaited.transaction is not None
        self._finish(awaited.transaction)

    def _on_body(self, awaited: _AwaitedReply, parsed: ParsedReply) -> None:
        transaction = awaited.transaction
        assert transaction is not None
        reply = parsed.reply
        if reply.code // 100 not in (_OK, *_REFUSED) or (self._writing and reply.code // 100 == _OK):
            self._end(Answer(awaited.phase, _expected_class(reply, awaited.phase)))
            return
        self._note(awaited, reply)
        transaction.settle(Answer(awaited.phase, reply))
        self._finish(transaction)
        if self._writing:  # refused half-way: the rest can neither be sent nor skipped
            broken = Break(BreakKind.LOCAL, "the server refused a message before all of it was written")
            self._end(Answer(_MAIL, broken))  # commands pipelined behind it never reached the server

    def _on_quit(self, _awaited: _AwaitedReply, _parsed: ParsedReply) -> None:
        self._end(Answer(_MAIL, Break(BreakKind.LOCAL, "we closed the session")))

    # -- ends ----------------------------------------------------------------------------------

    def _end_with_421(self, reply: Reply) -> None:
        """End the session on reply 421, which also answers the next expected reply (RFC 5321 3.8)."""
        awaited = self._awaited[0] if self._awaited else None
        phase = awaited.phase if awaited is not None else _MAIL
        if awaited is not None and self.state is not ClientState.QUITTING:
            self._note(awaited, reply)
        if awaited is None and self.content_due is not None:
            phase = _DATA  # after 354, before any content
            self.content_due.settle(Answer(phase, reply))
        elif awaited is not None and awaited.transaction is not None:
            answer = Answer(phase, reply)
            if awaited.recipient is not None:
                awaited.transaction.settle_one(awaited.recipient, answer)
            else:
                awaited.transaction.settle(answer)
        self._end(Answer(phase, reply))

    def _end(self, cause: Answer) -> None:
        """End the session for `cause`; recipients of open transactions without an answer get a Break."""
        self.state = _ENDED
        self.ended = cause
        # The transaction that the cause ended; one pipelined behind another's final dot never began.
        affected = self._current or self._upcoming
        if self.trace is not None and isinstance(cause.outcome, Break):
            self.trace.answer(affected.envelope if affected else None, cause.outcome, self._now - self.waiting_since)
        for transaction in (self._current, self._upcoming):
            if transaction is not None and not transaction.done:
                phase = cause.phase if transaction is affected else _MAIL
                self._finish_unanswered(transaction, Answer(phase, _as_break(cause.outcome)))
        self._awaited.clear()
        self._outgoing.clear()
        self.content_due = None

    def _finish_unanswered(self, transaction: PendingTransaction, answer: Answer) -> None:
        if None in transaction.answers:
            transaction.steps.append(TranscriptStep(answer.phase, answer.outcome, self._now - self.waiting_since))
            transaction.settle(answer)
        self._finish(transaction)

    def _finish(self, transaction: PendingTransaction) -> None:
        transaction.done = True
        if transaction is self._current:
            self._current = None

    def _check_reader(self) -> None:
        if self.state is _HANDSHAKE and (self._reader.broken or self._reader.pending):
            self._end(self._unexpected(self._reader.broken or "more octets in plaintext"))
        elif self._reader.broken is not None:
            phase = self.waiting or _MAIL
            self._end(Answer(phase, Break(BreakKind.PROTOCOL, self._reader.broken)))

    def _unexpected(self, what: str) -> Answer:
        if self.state is _HANDSHAKE:
            detail = f"after the reply to STARTTLS, before the handshake, came: {what}"
            return Answer(Phase.STARTTLS, Break(BreakKind.PROTOCOL, detail[:300]))
        detail = f"the server sent a reply before a command: {what}"
        return Answer(self.waiting or _MAIL, Break(BreakKind.PROTOCOL, detail[:300]))

    # -- output --------------------------------------------------------------------------------

    def _take_outgoing(self) -> bytes:
        if not self._outgoing:
            return b""
        if self.trace is not None:
            self._show_commands(self.trace)
        commands = "".join(self._outgoing).encode()
        self._outgoing.clear()
        return commands

    def _show_commands(self, trace: ConnectionTrace) -> None:
        """Trace the queued commands; a leading final dot was traced with its content."""
        transaction = self._upcoming or self._current
        dot = self._outgoing[0] == ".\r\n" and self._writing
        for line in self._outgoing[1:] if dot else self._outgoing:
            trace.command(transaction.envelope if transaction else None, line)

    def _note(self, awaited: _AwaitedReply, outcome: Reply) -> None:
        step = TranscriptStep(awaited.phase, outcome, self._now - self.waiting_since, awaited.recipient)
        (self.opening_steps if awaited.transaction is None else awaited.transaction.steps).append(step)


def _as_break(outcome: Reply | Break) -> Break:
    """Return the outcome for transactions that the reply that ended the session did not answer."""
    if isinstance(outcome, Break):
        return outcome
    return Break(BreakKind.CLOSED, f"the server ended the session: {outcome_text(outcome)}"[:300])


def _expected_class(reply: Reply, phase: Phase) -> Reply | Break:
    """Return `reply` if it refuses; a Break if its class is invalid at `phase`."""
    if reply.code // 100 in _REFUSED:
        return reply
    detail = f"an unexpected reply at {phase.value}: {outcome_text(reply)}"
    return Break(BreakKind.PROTOCOL, detail[:300])
