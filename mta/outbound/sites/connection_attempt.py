"""Records what one attempt to open a connection to a route's servers tried, for the waybill."""

import msgspec
from msgspec import Struct

from engine.delivery.routes import Route
from engine.mail.replies import Answer, Break, BreakKind, Phase
from mta.outbound.source_ips.addresses import SourceAddress
from mta.outbound.tls.policy import TlsDemand
from mta.outbound.tls.report_counts import TlsSession
from mta.smtp.client.connection import ConnectFailed, SmtpConnection, TlsMode
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from mta.smtp.client.transcript import Json

_PLAINTEXT_TEXT = 160  # characters: the waybill has 4 KB for all
_OF_CERTIFICATES = frozenset({TlsFailureType.HOST_MISMATCH, TlsFailureType.EXPIRED, TlsFailureType.NOT_TRUSTED})


class OpenedConnection(Struct, frozen=True):
    """A connection that is ready for mail. `shown` is its part of the waybill: `tls`, why there is none, and the source
    address where one is configured."""

    connection: SmtpConnection
    mx: str
    shown: dict[str, object]
    sessions: tuple[TlsSession, ...] = ()


class FailedConnection(Struct, frozen=True):
    """An attempt that opened no connection: the answer that decided it, all steps, the sessions for TLS reports, and
    what the waybill says beside."""

    answer: Answer
    steps: tuple[Json, ...]
    mx: str
    sessions: tuple[TlsSession, ...] = ()
    shown: dict[str, object] = msgspec.field(default_factory=lambda: {"tls": None})


class ConnectionAttempt:
    """The steps of one attempt so far."""

    def __init__(self, route: Route, source: SourceAddress | None = None) -> None:
        self.source = source
        self.steps: tuple[Json, ...] = ()
        self._from: dict[str, object] = {} if source is None else {"source_ip": source.ip}
        self._mx = route.hosts[0].name if route.hosts else route.site
        self._sessions: list[TlsSession] = []
        self._last: tuple[Answer, str] | None = None
        self._insecure: tuple[Answer, str] | None = (
            None  # the first failure that TLS caused: waiting does not repair it
        )

    def refused(self, mx: str, demand: TlsDemand, fault: TlsFailure) -> None:
        """Note a host that the policy rules out; it is not asked."""
        step: Json = {"step": Phase.TLS.value, "to": mx, "break": fault.reason}
        self.steps += (step,)
        self._blame(mx, demand, fault)
        self._count(mx, "", demand, fault)

    def note(self, steps: tuple[Json, ...]) -> None:
        """Add the steps of a try after which the same address is tried again."""
        self.steps += steps

    def failed(self, mx: str, ip: str, demand: TlsDemand, failed: ConnectFailed) -> None:
        """Note an address to which no connection could be opened."""
        self.steps += failed.transcript
        self._last = (Answer(failed.phase, failed.outcome), mx)
        if failed.fault is not None:
            self._blame(mx, demand, failed.fault)
            self._count(mx, ip, demand, failed.fault)

    def opened(
        self, mx: str, ip: str, demand: TlsDemand, connection: SmtpConnection, plaintext: str
    ) -> OpenedConnection:
        """Return the opened connection with what the waybill and the reports say of it."""
        tls = connection.tls
        fault = demand.noted
        if tls is None:
            why = (plaintext or connection.plaintext_reason)[:_PLAINTEXT_TEXT]
            shown: dict[str, object] = {"tls": None, "plaintext": why}
            if demand.tested:
                kind = TlsFailureType.VALIDATION_FAILURE if plaintext else TlsFailureType.STARTTLS_NOT_SUPPORTED
                fault = fault or TlsFailure(kind, why)
        else:
            policy = {"policy": demand.whose} if demand.whose else {}
            shown = {"tls": {**tls.shown, **policy}}
            if demand.tested:
                fault = fault or connection.certificate_failure
        self._count(mx, ip, demand, fault)
        return OpenedConnection(connection, mx, self._from | shown, tuple(self._sessions))

    def ended(self) -> FailedConnection:
        """Return the failure of all addresses."""
        nobody = Answer(Phase.ROUTE, Break(BreakKind.DNS, "no mail server of the domain has an address"))
        answer, mx = self._insecure or self._last or (nobody, self._mx)
        return FailedConnection(answer, self.steps, mx, tuple(self._sessions), {**self._from, "tls": None})

    def _blame(self, mx: str, demand: TlsDemand, fault: TlsFailure) -> None:
        if self._insecure is None and demand.mode is not TlsMode.OPPORTUNISTIC:
            what = f"its certificate is {fault.reason}" if fault.kind in _OF_CERTIFICATES else fault.reason
            words = f"{mx} does not meet {demand.whose or 'its TLS policy'}: {what}"
            self._insecure = (Answer(Phase.TLS, Break(BreakKind.TLS, words)), mx)

    def _count(self, mx: str, ip: str, demand: TlsDemand, fault: TlsFailure | None) -> None:
        if demand.counted is not None:
            self._sessions.append(TlsSession(demand.counted, mx, ip, fault))
