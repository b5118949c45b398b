"""Opens the connections of one process: within their slots, under the TLS policy of the route."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from uuid import UUID

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.routes import MailHost, Route, preferring
from engine.delivery.sites import Family
from engine.mail.replies import Answer, Break, BreakKind, Phase
from engine.store import metrics
from mta.outbound.sites.connection_attempt import ConnectionAttempt, FailedConnection, OpenedConnection
from mta.outbound.sites.pipelining import BrokenPipelining
from mta.outbound.sites.remote_hosts import HostKey, HostRest, RemoteHosts
from mta.outbound.sites.site import WorkerSeat
from mta.outbound.sites.slot_queue import SlotQueue
from mta.outbound.sites.slots import SlotClaim
from mta.outbound.source_ips.addresses import SourceAddress
from mta.outbound.tls.policy import WITHOUT, TlsDemand, TlsPolicy
from mta.smtp.client.connection import ConnectFailed, SmtpConnection, SmtpTimeouts, TlsMode
from mta.smtp.client.opening import OpeningAbort
from mta.smtp.client.tls import CertificateVerifier, certificate_verifier
from mta.smtp.client.trace import SmtpTrace

MAX_ADDRESSES = 5  # Postfix smtp_mx_address_limit
BROKEN_TLS_S = 3600.0  # a repaired server gets plaintext for an hour; without it each try costs a second connection
_MAX_BROKEN = 10_000
_NO_ADDRESS = HostKey("", 0)
_NO_ANSWER = frozenset({BreakKind.TIMEOUT, BreakKind.REFUSED, BreakKind.CLOSED})


class SiteConnections:
    """The connections of one process: their slots, and what is known of the hosts that they go to."""

    def __init__(
        self, settings: Settings, certificates: CertificateVerifier | None = None, watch: SmtpTrace | None = None
    ) -> None:
        self._settings = settings
        self._watch = watch
        self.pipelining = BrokenPipelining()
        self.hosts = RemoteHosts()
        self.slots = SlotQueue("connection", settings.mta_connections)
        self._probes: dict[HostKey, asyncio.Future[None]] = {}  # hosts that never greeted, while one opening asks them
        self._probing: dict[SlotClaim, HostKey] = {}
        self._concluded = 0
        self._stopped = False
        self._idle: dict[WorkerSeat, None] = {}  # whose connections wait for mail, the longest first
        self._broken_tls: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._certificates = certificates or certificate_verifier(settings.tls_authorities)
        self._timeouts = SmtpTimeouts(
            connect_s=settings.connect_timeout_s,
            reply_s=settings.reply_timeout_s,
            final_dot_s=settings.final_dot_timeout_s,
        )

    # -- slots ---------------------------------------------------------------------------------

    def resting(self, route: Route, policy: TlsPolicy, family: Family, source: SourceAddress | None) -> HostRest | None:
        """Return the rest of the route's hosts, while all of them are left alone."""
        return self.hosts.resting(_keys(_reachable(route, family, source), policy, source), clock.monotonic())

    async def claim(
        self, account: UUID, route: Route, policy: TlsPolicy, family: Family, source: SourceAddress | None
    ) -> SlotClaim | HostRest | None:
        """Wait for the right to open one connection over the route, on behalf of an account; give it back with `free`.

        A host that never greeted is asked by one opening at a time. Returns a Rest if the hosts are left alone now, and
        None when the process stops.
        """
        keys = list(_keys(_reachable(route, family, source), policy, source))
        while not self._stopped:
            now = clock.monotonic()
            key = self.hosts.first(keys, now)
            if key is None and (rest := self.hosts.resting(keys, now)) is not None:
                return rest
            key = key or _NO_ADDRESS
            probe = self._probes.get(key)
            if probe is not None:
                await asyncio.wait((probe,))
                continue
            host = self.hosts.of(key)
            claim = SlotClaim(account, key, proven=host.proven_until > now, failures=host.failures)
            if not host.greets and key is not _NO_ADDRESS:
                self._probes[key] = asyncio.get_running_loop().create_future()
                self._probing[claim] = key
            try:
                waiting = self.slots.ask(claim)
                if waiting is not None and not waiting.done() and self.slots.wants_room:
                    self._close_idle()
                if waiting is None or await self.slots.wait(claim, waiting):
                    return claim
            except BaseException:
                self._probe_over(claim)
                raise
            self._probe_over(claim)
        return None

    def free(self, claim: SlotClaim, *, failed: bool = False) -> None:
        """Give a slot back: the connection is closed, or with `failed` could not be opened."""
        if claim.greeted:
            self.hosts.closed(_key_of(claim))
        self._probe_over(claim)
        self._concluded += not claim.proven and (failed or claim.greeted)
        self.slots.free(claim, failed=failed)

    def take_concluded(self) -> int:
        """Return how many claims of hosts that are not proven have ended since the last call."""
        taken, self._concluded = self._concluded, 0
        return taken

    def answered(self, claim: SlotClaim) -> None:
        """Note that the server has answered a transaction."""
        self.hosts.answered(_key_of(claim), clock.monotonic())
        self._concluded += not claim.proven
        self.slots.answered(claim)

    def stalled(self, claim: SlotClaim) -> None:
        """Note that a transaction timed out."""
        self.hosts.stalled(_key_of(claim))

    def measure(self) -> None:
        """Show how many connections are being opened, and how many wait for that."""
        metrics.CONNECTIONS_OPENING.set(self.slots.measure().opening)

    def stop(self) -> None:
        """Open no more connections: the process stops."""
        self._stopped = True
        for claim in list(self._probing):
            self._probe_over(claim)
        self.slots.close()

    def idle(self, seat: WorkerSeat) -> None:
        """Note that this worker's connection waits for mail, or stop it at once if other mail needs its slot."""
        if self.slots.wants_room:
            seat.stop()
        else:
            self._idle[seat] = None

    def busy(self, seat: WorkerSeat) -> None:
        """Note that this worker works again."""
        self._idle.pop(seat, None)

    def _close_idle(self) -> None:
        """Ask the connection that has been idle for longest to make room."""
        if self._idle:
            seat = next(iter(self._idle))
            del self._idle[seat]
            seat.stop()

    def _probe_over(self, claim: SlotClaim) -> None:
        key = self._probing.pop(claim, None)
        if key is not None and not (probe := self._probes.pop(key)).done():
            probe.set_result(None)

    # -- opening -------------------------------------------------------------------------------

    async def open(
        self,
        claim: SlotClaim,
        route: Route,
        policy: TlsPolicy = WITHOUT,
        family: Family = Family.IPV4,
        source: SourceAddress | None = None,
    ) -> OpenedConnection | FailedConnection:
        """Open a connection to the first server that takes one as the policy wants it. From a source only addresses of
        its family are tried."""
        route = _reachable(route, family, source)
        trial = ConnectionAttempt(route, source)
        for host, key in self._targets(route, policy, trial):
            opened = await self._try(claim, trial, host, key, policy.of(host.name))
            if opened is not None:
                if self.pipelining.of(route.site):
                    opened.connection.disable_pipelining()
                return opened
            if self._stopped:
                break
        return trial.ended()

    def _targets(self, route: Route, policy: TlsPolicy, trial: ConnectionAttempt) -> Iterator[tuple[MailHost, HostKey]]:
        """Yield the addresses to try, in order: those that lately did not answer last, and of these no host that rests
        while another one does not. Hosts that the policy rules out are noted in the attempt."""
        left = MAX_ADDRESSES
        last: list[tuple[MailHost, HostKey]] = []
        now = clock.monotonic()
        for host in route.hosts:
            demand = policy.of(host.name)
            if demand.refused is not None:
                trial.refused(host.name, demand, demand.refused)
                continue
            for ip in host.addresses[:left]:
                key = _key(ip, route, trial.source)
                if self.hosts.comes_last(key, now):
                    last.append((host, key))
                else:
                    yield host, key
            left -= min(left, len(host.addresses))
        awake = [one for one in last if self.hosts.of(one[1]).rest_until <= now]
        yield from awake or ([] if trial.steps else last)

    async def _try(
        self, claim: SlotClaim, trial: ConnectionAttempt, host: MailHost, key: HostKey, demand: TlsDemand
    ) -> OpenedConnection | None:
        """Try one address as the policy wants it, and where that allows it once more in plaintext."""
        mode, plaintext = demand.mode, ""
        if mode is TlsMode.OPPORTUNISTIC:
            plaintext = self._known_broken(key.ip)
            mode = TlsMode.OFF if plaintext else mode
        again = True
        while True:
            try:
                connection = await self._connect(claim, host.name, key, mode, demand, trial.source)
            except ConnectFailed as failed:
                if speaks_for_host(failed):
                    self.hosts.failed(key, Answer(failed.phase, failed.outcome), clock.monotonic())
                if failed.fault is not None and failed.resumed and again:
                    again = False  # the session is forgotten: a full handshake may do
                    continue
                if failed.fault is None or mode is not TlsMode.OPPORTUNISTIC:
                    self._probe_over(claim)
                    trial.failed(host.name, key.ip, demand, failed)
                    return None
                trial.note(failed.transcript)
                plaintext = self._remember_broken(key.ip, failed.fault.reason)
                mode = TlsMode.OFF
            else:
                self.hosts.opened(key)
                self._probe_over(claim)
                self.slots.ready(claim)
                return trial.opened(host.name, key.ip, demand, connection, plaintext)

    async def _connect(
        self, claim: SlotClaim, mx: str, key: HostKey, mode: TlsMode, demand: TlsDemand, source: SourceAddress | None
    ) -> SmtpConnection:
        cut = OpeningAbort()
        self.slots.opening(claim, key, cut)
        try:
            return await SmtpConnection.open(
                (key.ip, key.port),
                server_name=mx,
                helo=self._settings.mail_host if source is None else source.helo,
                tls=mode,
                dane=demand.dane,
                certificates=self._certificates,
                timeouts=self._timeouts,
                watch=self._watch,
                source_ip=None if source is None else source.ip,
                cut=cut,
            )
        finally:
            self.slots.opening_over(claim)

    def _known_broken(self, ip: str) -> str:
        """Return why this address is spoken to in plaintext, or an empty string."""
        until, why = self._broken_tls.get(ip, (0.0, ""))
        return why if until > clock.monotonic() else ""

    def _remember_broken(self, ip: str, reason: str) -> str:
        self._broken_tls.pop(ip, None)
        if len(self._broken_tls) >= _MAX_BROKEN:
            self._broken_tls.popitem(last=False)  # the oldest
        self._broken_tls[ip] = (clock.monotonic() + BROKEN_TLS_S, f"TLS failed at {clock.iso(clock.now())}: {reason}")
        return f"TLS failed just before: {reason}"


def speaks_for_host(failed: ConnectFailed) -> bool:
    """Return True if a failed opening means that the host serves no client at present: no connection, no answer, or a
    refusal in place of the greeting, whatever the name that it was reached by. A shortage of ours does not, nor do
    troubles with TLS."""
    if failed.fault is not None:
        return False
    if isinstance(failed.outcome, Break):
        return failed.outcome.kind in _NO_ANSWER
    return failed.phase is Phase.GREETING


def _reachable(route: Route, family: Family, source: SourceAddress | None) -> Route:
    """The route with the addresses that may be tried, in the order of the site's rule."""
    if not route.built_in:
        route = preferring(route, family)
    if source is not None:
        route = preferring(route, Family.IPV6_ONLY if source.family == "6" else Family.IPV4_ONLY)
    return route


def _keys(route: Route, policy: TlsPolicy, source: SourceAddress | None) -> Iterator[HostKey]:
    """The hosts that an opening over the route tries, at most `MAX_ADDRESSES`."""
    left = MAX_ADDRESSES
    for host in route.hosts:
        if policy.of(host.name).refused is None:
            for ip in host.addresses[:left]:
                yield _key(ip, route, source)
            left -= min(left, len(host.addresses))


def _key(ip: str, route: Route, source: SourceAddress | None) -> HostKey:
    return HostKey(ip, route.port, "" if source is None else source.ip)


def _key_of(claim: SlotClaim) -> HostKey:
    assert isinstance(claim.host, HostKey)
    return claim.host
