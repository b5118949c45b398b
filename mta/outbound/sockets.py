"""The connections of one process: their slots, and how one to a route comes about under its TLS policy."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from uuid import UUID

import msgspec

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.sites import Family
from engine.mail.replies import Answer, Break, BreakKind, Phase
from engine.store import metrics
from mta.outbound.lockstep import LockStep
from mta.outbound.remote_hosts import HostKey, RemoteHosts, Rest
from mta.outbound.route import Host, Route
from mta.outbound.slot_queue import SlotQueue
from mta.outbound.slots import Claim
from mta.outbound.sources_bind import Source
from mta.outbound.tls_policy import WITHOUT, Demand, TlsPolicy
from mta.outbound.trial import Opened, Trial, Tried
from mta.smtp.client.connection import ConnectFailed, SmtpConnection, SmtpTimeouts, TlsMode
from mta.smtp.client.opening import OpeningAbort
from mta.smtp.client.tls import CertificateVerifier, certificate_verifier
from mta.smtp.client.trace import SmtpTrace

MAX_ADDRESSES = 5  # Postfix smtp_mx_address_limit
BROKEN_TLS_S = 3600.0  # an hour of plaintext for a server that has been mended, against a second connection each time
_MAX_BROKEN = 10_000
_NO_ADDRESS = HostKey("", 0)
_NO_ANSWER = frozenset({BreakKind.TIMEOUT, BreakKind.REFUSED, BreakKind.CLOSED})


class Sockets:
    """The connections of one process: their slots, and what is known of the hosts that they go to."""

    def __init__(
        self, settings: Settings, certificates: CertificateVerifier | None = None, watch: SmtpTrace | None = None
    ) -> None:
        self._settings = settings
        self._watch = watch
        self.lock_step = LockStep()
        self.hosts = RemoteHosts()
        self.slots = SlotQueue("connection", settings.mta_connections, self._close_idle)
        self._probes: dict[HostKey, asyncio.Future[None]] = {}  # hosts that never greeted, and are being asked
        self._probing: dict[Claim, HostKey] = {}
        self._concluded = 0
        self._stopped = False
        self._idle: dict[int, Callable[[], None]] = {}
        self._broken_tls: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._certificates = certificates or certificate_verifier(settings.tls_authorities)
        self._timeouts = SmtpTimeouts(
            connect_s=settings.connect_timeout_s,
            reply_s=settings.reply_timeout_s,
            final_dot_s=settings.final_dot_timeout_s,
        )

    # -- slots ---------------------------------------------------------------------------------

    def resting(self, route: Route, policy: TlsPolicy, family: Family, source: Source | None) -> Rest | None:
        """The rest of the route's hosts, while all of them are left alone."""
        return self.hosts.resting(_keys(_reachable(route, family, source), policy, source), time.monotonic())

    async def claim(
        self, account: UUID, route: Route, policy: TlsPolicy, family: Family, source: Source | None
    ) -> Claim | Rest | None:
        """Wait for the right to open one connection over the route, on behalf of an account; give it back with `free`.

        A host that never greeted is asked by one opening at a time. Returns a Rest if the hosts are left alone now, and
        None when the process stops.
        """
        keys = list(_keys(_reachable(route, family, source), policy, source))
        while not self._stopped:
            now = time.monotonic()
            key = self.hosts.first(keys, now)
            if key is None and (rest := self.hosts.resting(keys, now)) is not None:
                return rest
            key = key or _NO_ADDRESS
            probe = self._probes.get(key)
            if probe is not None:
                await asyncio.wait((probe,))
                continue
            host = self.hosts.of(key)
            claim = Claim(account, key, proven=host.proven_until > now, failures=host.failures)
            if not host.greets and key is not _NO_ADDRESS:
                self._probes[key] = asyncio.get_running_loop().create_future()
                self._probing[claim] = key
            try:
                if await self.slots.acquire(claim):
                    return claim
            except BaseException:
                self._probe_over(claim)
                raise
            self._probe_over(claim)
        return None

    def free(self, claim: Claim, *, failed: bool = False) -> None:
        """The connection is closed, or with `failed` did not come about."""
        if claim.greeted:
            self.hosts.closed(_key_of(claim))
        self._probe_over(claim)
        self._concluded += not claim.proven and (failed or claim.greeted)
        self.slots.free(claim, failed=failed)

    def take_concluded(self) -> int:
        """Return how many claims of hosts that are not proven have ended since the last call."""
        taken, self._concluded = self._concluded, 0
        return taken

    def answered(self, claim: Claim) -> None:
        """The server has answered a transaction."""
        self.hosts.answered(_key_of(claim), time.monotonic())
        self._concluded += not claim.proven
        self.slots.answered(claim)

    def stalled(self, claim: Claim) -> None:
        """A transaction ran into a time-out."""
        self.hosts.stalled(_key_of(claim))

    def measure(self) -> None:
        """Show how many connections are being opened, and how many wait for that."""
        metrics.CONNECTIONS_OPENING.set(self.slots.measure().opening)

    def stop(self) -> None:
        """The process stops: nothing is opened any more."""
        self._stopped = True
        for claim in list(self._probing):
            self._probe_over(claim)
        self.slots.close()

    def idle(self, worker: int, stop: Callable[[], None]) -> None:
        """This worker's connection waits for work and may be asked to stop."""
        if self.slots.wants_room:
            stop()
        else:
            self._idle[worker] = stop

    def busy(self, worker: int) -> None:
        """It works again."""
        self._idle.pop(worker, None)

    def _close_idle(self) -> None:
        """Ask the connection that has been idle for longest to make room."""
        if self._idle:
            self._idle.pop(next(iter(self._idle)))()

    def _probe_over(self, claim: Claim) -> None:
        key = self._probing.pop(claim, None)
        if key is not None and not (probe := self._probes.pop(key)).done():
            probe.set_result(None)

    # -- opening -------------------------------------------------------------------------------

    async def open(
        self,
        claim: Claim,
        route: Route,
        policy: TlsPolicy = WITHOUT,
        family: Family = Family.IPV4,
        source: Source | None = None,
    ) -> Opened | Tried:
        """Open a connection to the first server that takes one as the policy wants it. From a source only addresses of
        its family are tried."""
        route = _reachable(route, family, source)
        trial = Trial(route, source)
        for host, key in self._targets(route, policy, trial):
            opened = await self._try(claim, trial, host, key, policy.of(host.name))
            if opened is not None:
                if self.lock_step.of(route.site):
                    opened.connection.disable_pipelining()
                return opened
            if self._stopped:
                break
        return trial.ended()

    def _targets(self, route: Route, policy: TlsPolicy, trial: Trial) -> Iterator[tuple[Host, HostKey]]:
        """The addresses to try, in order, those that lately did not answer last, and of these no host that rests while
        another one does not; what the policy keeps us from is noted in the trial."""
        left = MAX_ADDRESSES
        last: list[tuple[Host, HostKey]] = []
        now = time.monotonic()
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

    async def _try(self, claim: Claim, trial: Trial, host: Host, key: HostKey, demand: Demand) -> Opened | None:
        """One address: as the policy wants it, and where that allows it once more in plaintext."""
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
                    self.hosts.failed(key, Answer(failed.phase, failed.outcome), time.monotonic())
                if failed.fault is not None and failed.resumed and again:
                    again = False  # the session is forgotten: a full handshake may do
                    continue
                if failed.fault is None or mode is not TlsMode.OPPORTUNISTIC:
                    self._probe_over(claim)
                    trial.failed(host.name, key.ip, demand, failed)
                    return None
                trial.steps += failed.transcript
                plaintext = self._remember_broken(key.ip, failed.fault.reason)
                mode = TlsMode.OFF
            else:
                self.hosts.opened(key)
                self._probe_over(claim)
                self.slots.ready(claim)
                return trial.opened(host.name, key.ip, demand, connection, plaintext)

    async def _connect(
        self, claim: Claim, mx: str, key: HostKey, mode: TlsMode, demand: Demand, source: Source | None
    ) -> SmtpConnection:
        cut = OpeningAbort()
        self.slots.opening(claim, key, cut.make)
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
        """Why this address is spoken to in plaintext, '' when it is not."""
        until, why = self._broken_tls.get(ip, (0.0, ""))
        return why if until > time.monotonic() else ""

    def _remember_broken(self, ip: str, reason: str) -> str:
        self._broken_tls.pop(ip, None)
        if len(self._broken_tls) >= _MAX_BROKEN:
            self._broken_tls.popitem(last=False)  # the oldest
        self._broken_tls[ip] = (time.monotonic() + BROKEN_TLS_S, f"TLS failed at {clock.iso(clock.now())}: {reason}")
        return f"TLS failed just before: {reason}"


def speaks_for_host(failed: ConnectFailed) -> bool:
    """Return True if a failed opening says that the host serves nobody at present: no connection, no answer, or a
    refusal in place of the greeting, whatever the name that it was reached by. A shortage of ours does not, nor do
    troubles with TLS."""
    if failed.fault is not None:
        return False
    if isinstance(failed.outcome, Break):
        return failed.outcome.kind in _NO_ANSWER
    return failed.phase is Phase.GREETING


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


def _reachable(route: Route, family: Family, source: Source | None) -> Route:
    """The route with the addresses that may be tried, in the order of the site's rule."""
    if not route.built_in:
        route = preferring(route, family)
    if source is not None:
        route = preferring(route, Family.IPV6_ONLY if source.family == "6" else Family.IPV4_ONLY)
    return route


def _keys(route: Route, policy: TlsPolicy, source: Source | None) -> Iterator[HostKey]:
    """The hosts that an opening over the route tries, at most `MAX_ADDRESSES`."""
    left = MAX_ADDRESSES
    for host in route.hosts:
        if policy.of(host.name).refused is None:
            for ip in host.addresses[:left]:
                yield _key(ip, route, source)
            left -= min(left, len(host.addresses))


def _key(ip: str, route: Route, source: Source | None) -> HostKey:
    return HostKey(ip, route.port, "" if source is None else source.ip)


def _key_of(claim: Claim) -> HostKey:
    assert isinstance(claim.host, HostKey)
    return claim.host
