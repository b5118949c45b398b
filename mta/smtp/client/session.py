"""The client side of an SMTP session as a state machine without I/O: bytes in, bytes to write out.

`connection` owns the socket and the clock and asks this machine what to say. Each step returns the bytes to
write; what came back stands in the `PendingTransaction` of an envelope and in `ended`. Remote behaviour never raises.
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
    unwritable,
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
# Looked up once: an enum member costs 70 ns on each mention, and a message mentions thirty.
_MAIL, _RCPT, _DATA, _BODY = Phase.MAIL, Phase.RCPT, Phase.DATA, Phase.BODY
_OF_A_GROUP: Final = frozenset({_MAIL, _RCPT, _DATA})


class ClientState(StrEnum):
    """Where the session stands; only READY takes an envelope."""

    OPENING = "opening"  # greeting, EHLO, STARTTLS
    HANDSHAKE = "handshake"  # the caller negotiates TLS, then calls `secured`
    READY = "ready"
    QUITTING = "quitting"
    ENDED = "ended"


_READY, _HANDSHAKE, _ENDED = ClientState.READY, ClientState.HANDSHAKE, ClientState.ENDED


class _AwaitedReply(Struct):
    """A reply that the server owes: who takes it, and for whom."""

    take: Callable[["_AwaitedReply", ParsedReply], None]
    phase: Phase
    exchange: PendingTransaction | None = None
    recipient: int | None = None


class ClientSession:
    """One connection's conversation. Times are monotonic seconds given by the caller."""

    def __init__(self, helo: str, *, starttls: bool, now: float, required: bool = False) -> None:
        """`starttls`: use it where the server offers it; with `required` the session ends where that fails.

        The greeting is awaited from `now` on.
        """
        self.state = ClientState.OPENING
        self.features = ServerFeatures()
        self.tls: TlsDetails | None = None
        self.plaintext = ""  # why there is no TLS although it was wanted
        self.fault: TlsFailure | None = None  # why TLS did not come up to what is required
        self.ended: Answer | None = None  # why the session is over, and at which phase
        self.opening_steps: list[TranscriptStep | Json] = []
        self.waiting_since = now
        self.tap: ConnectionTrace | None = None  # somebody watches
        self.content_due: PendingTransaction | None = None  # 354 came: the caller writes `content` or withholds
        self._helo = helo
        self._starttls = starttls
        self._required = required
        self._now = now
        self._reader = ReplyReader()
        self._due: deque[_AwaitedReply] = deque((_AwaitedReply(self._on_greeting, Phase.GREETING),))
        self._say: list[str] = []
        self._current: PendingTransaction | None = None
        self._upcoming: PendingTransaction | None = None
        self._writing = False  # content is on its way and not wholly written
        self._open_transaction = False  # MAIL was accepted and neither content nor RSET followed
        self._asked_before = False  # content went over this session

    # -- what the caller asks ------------------------------------------------------------------

    @property
    def waiting(self) -> Phase | None:
        """The phase of the reply that is due next, None when none is."""
        return self._due[0].phase if self._due else None

    @property
    def due_since(self) -> float | None:
        """When the transaction of the reply that is due next began to be answered, None before that."""
        exchange = self._due[0].exchange if self._due else None
        return exchange.began if exchange is not None else None

    @property
    def begun(self) -> Envelope | None:
        """The envelope already pipelined behind the last content: the next one to `begin`."""
        return self._upcoming.envelope if self._upcoming is not None else None

    @property
    def busy(self) -> bool:
        """True while an envelope is under way or one has been begun."""
        return self._current is not None or self._upcoming is not None

    # -- what the caller tells -----------------------------------------------------------------

    def received(self, data: bytes, now: float) -> bytes:
        """Take bytes from the server; returns the commands to write."""
        self._now = now
        owed = len(self._due)
        for heard in self._reader.feed(data):
            if self.state is _ENDED:
                break
            if self.tap is not None:
                exchange = self._due[0].exchange if self._due else self._current
                self.tap.answer(exchange.envelope if exchange else None, heard.reply, now - self.waiting_since)
            if heard.reply.code == _CLOSING and self.state is not _HANDSHAKE:
                self._closing(heard.reply)
                break
            if owed == 0:  # a reply to what was not yet said: out of step, or injected (RFC 3207 6)
                self._end(self._unasked(outcome_text(heard.reply)))
                break
            owed -= 1
            due = self._due.popleft()
            due.take(due, heard)
            self.waiting_since = now
        if self.state is not _ENDED:
            self._check_reader()
        return self._spoken()

    def secured(self, tls: TlsDetails, now: float) -> bytes:
        """The handshake succeeded: nothing learnt before it counts (RFC 3207 4.2). Returns EHLO."""
        self._now = now
        self.tls = tls
        if self.tap is not None:
            agreed = f"{tls.version} {tls.cipher}, certificate {tls.certificate}{', resumed' if tls.resumed else ''}"
            self.tap.note(None, agreed, now - self.waiting_since)
        self.opening_steps.append(
            {"step": Phase.TLS.value, **tls.shown, "ms": round((now - self.waiting_since) * 1_000, 1)}
        )
        self.features = ServerFeatures()
        self._reader = ReplyReader()
        self.state = ClientState.OPENING
        self.waiting_since = now
        self._greet()
        return self._spoken()

    def disable_pipelining(self) -> None:
        """Say one command at a time from now on, whatever the server offers; only when not `busy`."""
        self.features = structs.replace(self.features, pipelining=False)

    def broke_on_commands(self, exchange: PendingTransaction) -> bool:
        """True when the session broke over the commands of this exchange, before any of its content: so do servers
        that offer PIPELINING and can't. Where not even the first reply came, it may as well have died before."""
        ended = self.ended
        if ended is None or ended.phase not in _OF_A_GROUP or not isinstance(ended.outcome, Break):
            return False
        kind = ended.outcome.kind
        if kind is BreakKind.PROTOCOL:
            return True
        if kind is BreakKind.CLOSED:
            return exchange.began is not None or not self._asked_before
        return kind is BreakKind.TIMEOUT and (exchange.began is not None or exchange.behind)

    def begin(self, envelope: Envelope, now: float) -> tuple[PendingTransaction, bytes]:
        """Start the transaction of `envelope`, or go on with it when it is the one `begun`.

        Returns its exchange and the commands to write. The exchange may be done at once: refused by our own
        rules, or the session is over.
        """
        self._now = now
        if self._upcoming is not None:
            if self._upcoming.envelope is not envelope:
                raise RuntimeError("another envelope was pipelined and must be sent first")
            exchange, self._upcoming = self._upcoming, None
            self._current = None if exchange.done else exchange
            return exchange, b""
        if self._current is not None:
            raise RuntimeError("an envelope is under way")
        exchange = PendingTransaction(envelope)
        if self.state is not _READY:
            lost = Break(BreakKind.LOCAL, "the session takes no message")
            self._finish_unanswered(exchange, Answer(_MAIL, _as_break(self.ended.outcome) if self.ended else lost))
            return exchange, b""
        if not self._due:
            self.waiting_since = now
        self._current = exchange
        self._start(exchange)
        return exchange, self._spoken()

    def content(self, upcoming: Envelope | None, now: float) -> list[bytes]:
        """The content of the envelope that is due, its final dot and, where given, the next envelope's
        commands (RFC 2920 3.1: message text may come first in a group): chunks to write in order.

        `upcoming` must be None unless the server offers PIPELINING. Call `content_written` after.
        """
        exchange = self.content_due
        if exchange is None:
            raise RuntimeError("no content is due")
        self._now = self.waiting_since = now
        self.content_due = None
        self._writing = True
        self._open_transaction = False
        self._due.append(_AwaitedReply(self._on_body, _BODY, exchange))
        self._say.append(".\r\n")
        self._asked_before = True
        if self.tap is not None:
            self.tap.content(exchange.envelope, exchange.size)
        if upcoming is not None:
            self._upcoming = PendingTransaction(upcoming)
            self._upcoming.behind = True
            self._start(self._upcoming)
        return [*dot_stuffed(exchange.envelope.content), self._spoken()]

    def content_written(self, now: float) -> None:
        """All chunks of `content` have been written: from here the reply to the dot is awaited."""
        self._writing = False
        self.waiting_since = max(self.waiting_since, now)

    def quit(self, now: float) -> bytes:
        """Say goodbye; only when READY and not busy."""
        self._now = self.waiting_since = now
        self.state = ClientState.QUITTING
        if self.tap is not None:
            self.tap.command(None, "QUIT")
        self._due.append(_AwaitedReply(self._on_quit, _MAIL))
        return b"QUIT\r\n"

    def fail(self, outcome: Break, now: float) -> None:
        """The conversation broke (peer gone, time-out, our own decision): every open exchange is answered.

        Without effect when the session is over already.
        """
        self._now = now
        if self.state is _ENDED:
            return
        phase = self.waiting or (_DATA if self.content_due is not None else _MAIL)
        if self.state is _HANDSHAKE:
            phase = Phase.TLS
        self._end(Answer(phase, outcome))

    def withhold(self, now: float) -> None:
        """The right to send was lost before the final dot was said, so the message can't have been taken."""
        self._now = now
        if self.state is not _ENDED:
            self._end(Answer(_DATA, Break(BreakKind.LOCAL, "withheld: the right to send was lost")))

    # -- opening -------------------------------------------------------------------------------

    def _on_greeting(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        self._note(due, heard.reply)
        if heard.reply.code // 100 == _OK:
            self._greet()
        else:
            self._refuse_session(due.phase, heard.reply)

    def _greet(self) -> None:
        self._say.append(f"EHLO {self._helo}\r\n")
        self._due.append(_AwaitedReply(self._on_ehlo, Phase.EHLO))

    def _on_ehlo(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        self._note(due, heard.reply)
        verdict = heard.reply.code // 100
        if verdict == _OK:
            self.features = ServerFeatures.parsed(heard.lines[1:])
            if self._starttls and self.features.starttls and self.tls is None:
                self._say.append("STARTTLS\r\n")
                self._due.append(_AwaitedReply(self._on_starttls, Phase.STARTTLS))
            else:
                self._ready("the server does not offer STARTTLS")
        elif verdict == 5:  # RFC 5321 3.2: servers that don't know EHLO say 500 or 502; some say 550
            self._say.append(f"HELO {self._helo}\r\n")
            self._due.append(_AwaitedReply(self._on_helo, Phase.EHLO))
        else:
            self._refuse_session(due.phase, heard.reply)

    def _on_helo(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        self._note(due, heard.reply)
        if heard.reply.code // 100 == _OK:
            self._ready("the server does not know EHLO")
        else:
            self._refuse_session(due.phase, heard.reply)

    def _ready(self, without: str) -> None:
        """Greeted: take envelopes, unless TLS is required; `without` says why there is none."""
        if self.tls is None:
            self.plaintext = without
        if not self._required or self.tls is not None:
            self.state = _READY
            return
        detail = f"no TLS, which this mail needs: {without}"[:300]
        self.fault = TlsFailure(TlsFailureType.STARTTLS_NOT_SUPPORTED, without[:300])
        self._end(Answer(Phase.STARTTLS, Break(BreakKind.TLS, detail)))
        self._say.append("QUIT\r\n")

    def _on_starttls(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        if heard.reply.code == 220:
            self.state = _HANDSHAKE
        else:  # opportunistic: a server that offers and then refuses gets plaintext, as before the offer
            self._note(due, heard.reply)
            self._ready(f"the server refuses STARTTLS: {said(heard.reply)}")

    def _refuse_session(self, phase: Phase, reply: Reply) -> None:
        self._end(Answer(phase, _expected_class(reply, phase)))
        self._say.append("QUIT\r\n")  # RFC 5321 3.1: after a 554 greeting the server waits for it

    # -- transactions --------------------------------------------------------------------------

    def _start(self, exchange: PendingTransaction) -> None:
        """Queue the first commands of an exchange; all up to DATA when the server takes them at once."""
        needs = EnvelopeNeeds.of(exchange.envelope)
        refused = local_refusal(needs, self.features)
        if refused is not None:
            exchange.settle(Answer(_MAIL, refused))
        for place in needs.unsafe:
            if place is not None:
                exchange.settle_one(place, Answer(_RCPT, unwritable()))
        exchange.pending = [place for place, answer in enumerate(exchange.answers) if answer is None]
        if not exchange.pending:
            self._finish(exchange)
            return
        exchange.size = needs.size
        exchange.mail = mail_command(exchange.envelope.sender, needs, self.features)
        if self._open_transaction:
            # RFC 2920 3.1 lets RSET stand anywhere in a group: then MAIL follows at once.
            self._say.append("RSET\r\n")
            self._due.append(_AwaitedReply(self._on_rset, _MAIL, exchange))
            self._open_transaction = False
            if not self.features.pipelining:
                return
        self._ask(exchange)

    def _ask(self, exchange: PendingTransaction) -> None:
        say, due = self._say, self._due
        say.append(exchange.mail)
        due.append(_AwaitedReply(self._on_mail, _MAIL, exchange))
        if self.features.pipelining:
            recipients = exchange.envelope.recipients
            for place in exchange.pending:
                say.append(rcpt_command(recipients[place]))
                due.append(_AwaitedReply(self._on_rcpt, _RCPT, exchange, place))
            say.append("DATA\r\n")
            due.append(_AwaitedReply(self._on_data, _DATA, exchange))

    def _on_rset(self, due: _AwaitedReply, _heard: ParsedReply) -> None:
        """Whatever it says, the reply to MAIL decides."""
        if not self.features.pipelining:
            assert due.exchange is not None
            self._ask(due.exchange)

    def _on_mail(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        exchange = due.exchange
        assert exchange is not None
        exchange.began = self.waiting_since
        self._note(due, heard.reply)
        verdict = heard.reply.code // 100
        if verdict in _REFUSED:
            exchange.settle(Answer(due.phase, heard.reply))
        elif verdict == _OK:
            self._open_transaction = True
        else:
            self._end(Answer(due.phase, _expected_class(heard.reply, due.phase)))
            return
        if not self.features.pipelining:
            self._next_recipient(exchange, 0)

    def _on_rcpt(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        exchange, recipient = due.exchange, due.recipient
        assert exchange is not None
        assert recipient is not None
        verdict = heard.reply.code // 100
        if exchange.answers[recipient] is None:  # else MAIL was refused and the rest is an echo of that
            self._note(due, heard.reply)
            if verdict == _OK:
                exchange.accepted += 1
            elif verdict in _REFUSED:
                exchange.answers[recipient] = Answer(due.phase, heard.reply)
            else:
                self._end(Answer(due.phase, _expected_class(heard.reply, due.phase)))
                return
        if not self.features.pipelining:
            self._next_recipient(exchange, exchange.pending.index(recipient) + 1)

    def _next_recipient(self, exchange: PendingTransaction, place: int) -> None:
        """Lock-step: the next RCPT, DATA after the last, nothing when nobody was accepted."""
        if place < len(exchange.pending) and exchange.answers[exchange.pending[place]] is None:
            recipient = exchange.pending[place]
            self._say.append(rcpt_command(exchange.envelope.recipients[recipient]))
            self._due.append(_AwaitedReply(self._on_rcpt, _RCPT, exchange, recipient))
        elif exchange.accepted:
            self._say.append("DATA\r\n")
            self._due.append(_AwaitedReply(self._on_data, _DATA, exchange))
        else:
            self._finish(exchange)

    def _on_data(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        exchange = due.exchange
        assert exchange is not None
        verdict = heard.reply.code // 100
        if verdict == _GO_AHEAD and exchange.accepted:
            self._note(due, heard.reply)
            self.content_due = exchange
        elif verdict == _GO_AHEAD:
            # RFC 2920 3.1: a server may say 354 although it refused everybody; a lone dot ends it.
            self._say.append(".\r\n")
            self._open_transaction = False
            self._due.append(_AwaitedReply(self._on_lone_dot, _DATA, exchange))
        elif verdict in _REFUSED:
            if exchange.accepted:
                self._note(due, heard.reply)
                exchange.settle(Answer(due.phase, heard.reply))
            self._finish(exchange)
        else:
            self._end(Answer(due.phase, _expected_class(heard.reply, due.phase)))

    def _on_lone_dot(self, due: _AwaitedReply, _heard: ParsedReply) -> None:
        assert due.exchange is not None
        self._finish(due.exchange)

    def _on_body(self, due: _AwaitedReply, heard: ParsedReply) -> None:
        exchange = due.exchange
        assert exchange is not None
        reply = heard.reply
        if reply.code // 100 not in (_OK, *_REFUSED) or (self._writing and reply.code // 100 == _OK):
            self._end(Answer(due.phase, _expected_class(reply, due.phase)))
            return
        self._note(due, reply)
        exchange.settle(Answer(due.phase, reply))
        self._finish(exchange)
        if self._writing:  # refused half-way: the rest can be neither sent nor left out
            broken = Break(BreakKind.LOCAL, "the server refused a message before all of it was written")
            self._end(Answer(_MAIL, broken))  # whatever was begun behind it never reached the server

    def _on_quit(self, _due: _AwaitedReply, _heard: ParsedReply) -> None:
        self._end(Answer(_MAIL, Break(BreakKind.LOCAL, "we closed the session")))

    # -- ends ----------------------------------------------------------------------------------

    def _closing(self, reply: Reply) -> None:
        """421: the answer to whatever was due next; the session is over (RFC 5321 3.8)."""
        due = self._due[0] if self._due else None
        phase = due.phase if due is not None else _MAIL
        if due is not None and self.state is not ClientState.QUITTING:
            self._note(due, reply)
        if due is None and self.content_due is not None:
            phase = _DATA  # content was invited and never begun
            self.content_due.settle(Answer(phase, reply))
        elif due is not None and due.exchange is not None:
            answer = Answer(phase, reply)
            if due.recipient is not None:
                due.exchange.settle_one(due.recipient, answer)
            else:
                due.exchange.settle(answer)
        self._end(Answer(phase, reply))

    def _end(self, cause: Answer) -> None:
        """Close the session for `cause`: exchanges under way get a Break where they have no answer."""
        self.state = _ENDED
        self.ended = cause
        # The exchange that the cause struck; one pipelined behind another's dot never began.
        struck = self._current or self._upcoming
        if self.tap is not None and isinstance(cause.outcome, Break):
            self.tap.answer(struck.envelope if struck else None, cause.outcome, self._now - self.waiting_since)
        for exchange in (self._current, self._upcoming):
            if exchange is not None and not exchange.done:
                phase = cause.phase if exchange is struck else _MAIL
                self._finish_unanswered(exchange, Answer(phase, _as_break(cause.outcome)))
        self._due.clear()
        self._say.clear()
        self.content_due = None

    def _finish_unanswered(self, exchange: PendingTransaction, answer: Answer) -> None:
        if None in exchange.answers:
            exchange.steps.append(TranscriptStep(answer.phase, answer.outcome, self._now - self.waiting_since))
            exchange.settle(answer)
        self._finish(exchange)

    def _finish(self, exchange: PendingTransaction) -> None:
        exchange.done = True
        if exchange is self._current:
            self._current = None

    def _check_reader(self) -> None:
        if self.state is _HANDSHAKE and (self._reader.broken or self._reader.pending):
            self._end(self._unasked(self._reader.broken or "more octets in plaintext"))
        elif self._reader.broken is not None:
            phase = self.waiting or _MAIL
            self._end(Answer(phase, Break(BreakKind.PROTOCOL, self._reader.broken)))

    def _unasked(self, what: str) -> Answer:
        if self.state is _HANDSHAKE:
            detail = f"after the reply to STARTTLS, before the handshake, came: {what}"
            return Answer(Phase.STARTTLS, Break(BreakKind.PROTOCOL, detail[:300]))
        detail = f"the server answered what was not asked: {what}"
        return Answer(self.waiting or _MAIL, Break(BreakKind.PROTOCOL, detail[:300]))

    # -- small change --------------------------------------------------------------------------

    def _spoken(self) -> bytes:
        if not self._say:
            return b""
        if self.tap is not None:
            self._show_commands(self.tap)
        spoken = "".join(self._say).encode()
        self._say.clear()
        return spoken

    def _show_commands(self, tap: ConnectionTrace) -> None:
        """Behind a final dot, which is shown with the content, come those of the next envelope."""
        exchange = self._upcoming or self._current
        dot = self._say[0] == ".\r\n" and self._writing
        for line in self._say[1:] if dot else self._say:
            tap.command(exchange.envelope if exchange else None, line)

    def _note(self, due: _AwaitedReply, outcome: Reply) -> None:
        step = TranscriptStep(due.phase, outcome, self._now - self.waiting_since, due.recipient)
        (self.opening_steps if due.exchange is None else due.exchange.steps).append(step)


def _as_break(outcome: Reply | Break) -> Break:
    """How the end of a session looks to those whom the reply that ended it did not address."""
    if isinstance(outcome, Break):
        return outcome
    return Break(BreakKind.CLOSED, f"the server ended the session: {said(outcome)}"[:300])


def _expected_class(reply: Reply, phase: Phase) -> Reply | Break:
    """`reply` itself when it refuses; a Break when its class has no meaning at `phase`."""
    if reply.code // 100 in _REFUSED:
        return reply
    detail = f"an unexpected reply at {phase.value}: {said(reply)}"
    return Break(BreakKind.PROTOCOL, detail[:300])
