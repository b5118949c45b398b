"""The connections of one process: how many there may be, and how one to a route comes about under its TLS policy."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.sites import Family
from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.outbound.lockstep import LockStep
from mta.outbound.route import Host, Route
from mta.outbound.sources_bind import Source
from mta.outbound.tls_policy import WITHOUT, Demand, TlsPolicy
from mta.outbound.tls_report import TlsSession
from mta.smtp.connection import ConnectFailed, Connection, Timeouts, TlsMode
from mta.smtp.faults import Fault, FaultKind
from mta.smtp.tls import Judge, judge
from mta.smtp.transcript import Json
from mta.smtp.watch import Watch

MOST_ADDRESSES = 5  # Postfix smtp_mx_address_limit
BROKEN_TLS_S = 3600.0  # an hour of plaintext for a server that has been mended, against a second connection each time
SILENT_S = 300.0  # an address that took no connection is tried behind all others for so long
_MOST_BROKEN = 10_000
_PLAINTEXT_TEXT = 160  # characters: the waybill has 4 KB for all
_OF_CERTIFICATES = frozenset({FaultKind.HOST_MISMATCH, FaultKind.EXPIRED, FaultKind.NOT_TRUSTED})


class Opened(Struct, frozen=True):
    """A connection that takes mail. `shown` is what the waybill says of it: `tls`, why there is none, and the source
    address where one is configured."""

    connection: Connection
    mx: str
    shown: dict[str, object]
    sessions: tuple[TlsSession, ...] = ()


class Tried(Struct, frozen=True):
    """A connection attempt that led nowhere: what decided it, all steps, what TLS reports will count, and what the
    waybill says of it beside."""

    answer: Answer
    steps: tuple[Json, ...]
    mx: str
    sessions: tuple[TlsSession, ...] = ()
    shown: dict[str, object] = msgspec.field(default_factory=lambda: {"tls": None})


class Sockets:
    """The connections of one process: bounded in all, and what is remembered of addresses with broken TLS."""

    def __init__(self, settings: Settings, certificates: Judge | None = None, watch: Watch | None = None) -> None:
        self._settings = settings
        self._watch = watch
        self.lock_step = LockStep()
        self._slots = asyncio.Semaphore(settings.mta_connections)
        self._idle: dict[int, Callable[[], None]] = {}
        self._broken_tls: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._silent: OrderedDict[str, float] = OrderedDict()  # addresses without an answer -> until when that counts
        self._certificates = certificates or judge(settings.tls_authorities)
        self._timeouts = Timeouts(
            connect_s=settings.connect_timeout_s,
            reply_s=settings.reply_timeout_s,
            final_dot_s=settings.final_dot_timeout_s,
        )

    async def open(
        self,
        route: Route,
        policy: TlsPolicy = WITHOUT,
        family: Family = Family.IPV4,
        source: Source | None = None,
    ) -> Opened | Tried:
        """A connection to the first server that takes one as the policy wants it; needs a `slot`. From a source only
        addresses of its family are tried."""
        if not route.built_in:
            route = preferring(route, family)
        if source is not None:
            route = preferring(route, Family.IPV6_ONLY if source.family == "6" else Family.IPV4_ONLY)
        trial = _Trial(route, source)
        for host, ip in self._targets(route, policy, trial):
            opened = await self._try(trial, host, (ip, route.port), policy.of(host.name))
            if opened is not None:
                if self.lock_step.of(route.site):
                    opened.connection.in_lock_step()
                return opened
        return trial.ended()

    async def slot(self) -> None:
        """Wait for the right to one more connection; asks the longest idle one to make room."""
        if self._slots.locked() and self._idle:
            self._idle.pop(next(iter(self._idle)))()
        await self._slots.acquire()

    def free(self) -> None:
        """The connection is closed."""
        self._slots.release()

    def idle(self, worker: int, stop: Callable[[], None]) -> None:
        """This worker's connection waits for work and may be asked to stop."""
        self._idle[worker] = stop

    def busy(self, worker: int) -> None:
        """It works again."""
        self._idle.pop(worker, None)

    # -- opening -------------------------------------------------------------------------------

    def _targets(self, route: Route, policy: TlsPolicy, trial: "_Trial") -> Iterator[tuple[Host, str]]:
        """The addresses to try, in order, those that lately did not answer last; what the policy keeps us from is
        noted in the trial."""
        left = MOST_ADDRESSES
        silent: list[tuple[Host, str]] = []
        now = time.monotonic()
        for host in route.hosts:
            demand = policy.of(host.name)
            if demand.refused is not None:
                trial.refused(host.name, demand, demand.refused)
                continue
            for ip in host.addresses[:left]:
                if self._silent.get(ip, 0.0) > now:
                    silent.append((host, ip))
                else:
                    yield host, ip
            left -= min(left, len(host.addresses))
        yield from silent

    async def _try(self, trial: "_Trial", host: Host, address: tuple[str, int], demand: Demand) -> Opened | None:
        """One address: as the policy wants it, and where that allows it once more in plaintext."""
        mode, plaintext = demand.mode, ""
        if mode is TlsMode.OPPORTUNISTIC:
            plaintext = self._known_broken(address[0])
            mode = TlsMode.OFF if plaintext else mode
        again = True
        while True:
            try:
                connection = await self._connect(host.name, address, mode, demand, trial.source)
            except ConnectFailed as failed:
                if failed.phase is Phase.CONNECT and blames_address(failed.outcome):
                    self._remember_silent(address[0])
                if failed.fault is not None and failed.resumed and again:
                    again = False  # the session is forgotten: a full handshake may do
                    continue
                if failed.fault is None or mode is not TlsMode.OPPORTUNISTIC:
                    trial.failed(host.name, address[0], demand, failed)
                    return None
                trial.steps += failed.transcript
                plaintext = self._remember_broken(address[0], failed.fault.reason)
                mode = TlsMode.OFF
            else:
                return trial.opened(host.name, address[0], demand, connection, plaintext)

    async def _connect(
        self, mx: str, address: tuple[str, int], mode: TlsMode, demand: Demand, source: Source | None
    ) -> Connection:
        return await Connection.open(
            address,
            server_name=mx,
            helo=self._settings.mail_host if source is None else source.helo,
            tls=mode,
            dane=demand.dane,
            certificates=self._certificates,
            timeouts=self._timeouts,
            watch=self._watch,
            source_ip=None if source is None else source.ip,
        )

    def _remember_silent(self, ip: str) -> None:
        self._silent.pop(ip, None)
        if len(self._silent) >= _MOST_BROKEN:
            self._silent.popitem(last=False)
        self._silent[ip] = time.monotonic() + SILENT_S

    def _known_broken(self, ip: str) -> str:
        """Why this address is spoken to in plaintext, '' when it is not."""
        until, why = self._broken_tls.get(ip, (0.0, ""))
        return why if until > time.monotonic() else ""

    def _remember_broken(self, ip: str, reason: str) -> str:
        self._broken_tls.pop(ip, None)
        if len(self._broken_tls) >= _MOST_BROKEN:
            self._broken_tls.popitem(last=False)  # the oldest
        self._broken_tls[ip] = (time.monotonic() + BROKEN_TLS_S, f"TLS failed at {clock.iso(clock.now())}: {reason}")
        return f"TLS failed just before: {reason}"


def blames_address(outcome: Reply | Break) -> bool:
    """True when a connection attempt says that nobody is there; a shortage of ours does not."""
    return isinstance(outcome, Break) and outcome.kind in (BreakKind.TIMEOUT, BreakKind.REFUSED)


def preferring(route: Route, family: Family) -> Route:
    """The route with its hosts' addresses as the site's rule wants them: another order, or one family alone."""
    if family is Family.IPV4:
        return route
    first = family in (Family.IPV4, Family.IPV4_ONLY)
    hosts = []
    for host in route.hosts:
        addresses = sorted(host.addresses, key=lambda ip: (":" not in ip) is not first)
        if family in (Family.IPV4_ONLY, Family.IPV6_ONLY):
            addresses = [ip for ip in addresses if (":" not in ip) is first]
        if addresses:
            hosts.append(msgspec.structs.replace(host, addresses=tuple(addresses)))
    return msgspec.structs.replace(route, hosts=tuple(hosts))


class _Trial:
    """What has been tried for one connection."""

    def __init__(self, route: Route, source: Source | None = None) -> None:
        self.source = source
        self.steps: tuple[Json, ...] = ()
        self._from: dict[str, object] = {} if source is None else {"source_ip": source.ip}
        self._mx = route.hosts[0].name if route.hosts else route.site
        self._sessions: list[TlsSession] = []
        self._last: tuple[Answer, str] | None = None
        self._insecure: tuple[Answer, str] | None = None  # the first that TLS is to blame for: waiting won't mend it

    def refused(self, mx: str, demand: Demand, fault: Fault) -> None:
        """The policy rules a host out without asking it."""
        step: Json = {"step": Phase.TLS.value, "to": mx, "break": fault.reason}
        self.steps += (step,)
        self._blame(mx, demand, fault)
        self._count(mx, "", demand, fault)

    def failed(self, mx: str, ip: str, demand: Demand, failed: ConnectFailed) -> None:
        """No connection to this address."""
        self.steps += failed.transcript
        self._last = (Answer(failed.phase, failed.outcome), mx)
        if failed.fault is not None:
            self._blame(mx, demand, failed.fault)
            self._count(mx, ip, demand, failed.fault)

    def opened(self, mx: str, ip: str, demand: Demand, connection: Connection, plaintext: str) -> Opened:
        """A connection: what the waybill and the reports say of it."""
        tls = connection.tls
        fault = demand.noted
        if tls is None:
            why = (plaintext or connection.plaintext)[:_PLAINTEXT_TEXT]
            shown: dict[str, object] = {"tls": None, "plaintext": why}
            if demand.tested:
                kind = FaultKind.VALIDATION_FAILURE if plaintext else FaultKind.STARTTLS_NOT_SUPPORTED
                fault = fault or Fault(kind, why)
        else:
            policy = {"policy": demand.whose} if demand.whose else {}
            shown = {"tls": {**tls.shown, **policy}}
            if demand.tested:
                fault = fault or connection.doubt
        self._count(mx, ip, demand, fault)
        return Opened(connection, mx, self._from | shown, tuple(self._sessions))

    def ended(self) -> Tried:
        """Nobody was reached."""
        nobody = Answer(Phase.ROUTE, Break(BreakKind.DNS, "no mail server of the domain has an address"))
        answer, mx = self._insecure or self._last or (nobody, self._mx)
        return Tried(answer, self.steps, mx, tuple(self._sessions), {**self._from, "tls": None})

    def _blame(self, mx: str, demand: Demand, fault: Fault) -> None:
        if self._insecure is None and demand.mode is not TlsMode.OPPORTUNISTIC:
            what = f"its certificate is {fault.reason}" if fault.kind in _OF_CERTIFICATES else fault.reason
            words = f"{mx} does not meet {demand.whose or 'its TLS policy'}: {what}"
            self._insecure = (Answer(Phase.TLS, Break(BreakKind.TLS, words)), mx)

    def _count(self, mx: str, ip: str, demand: Demand, fault: Fault | None) -> None:
        if demand.counted is not None:
            self._sessions.append(TlsSession(demand.counted, mx, ip, fault))
