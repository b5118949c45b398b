"""The mail server addresses that one process knows: those that answer, and silent ones that rest. No I/O.

Several names on one address are one host: a probe of it speaks for all of them. Times are monotonic seconds given by
the caller. Kept in memory: a new process probes each host once.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.mail.replies import Answer, Break

PROVEN_S: Final = 3_600.0  # after an answered transaction
SILENT_S: Final = 300.0  # an address that did not answer is tried last for so long
REST_S, MAX_REST_S = 15.0, 300.0
MAX_HOSTS: Final = 50_000


class HostRest(NamedTuple):
    """The rest of a host: the answer that caused it, and for how long from now."""

    because: Answer
    seconds: float


class HostKey(NamedTuple):
    """An address, its port, and the source address that it is reached from ("": the system's choice)."""

    ip: str
    port: int
    source_ip: str = ""


class HostHealth:
    """The state of one address."""

    __slots__ = ("because", "connected", "failures", "greets", "proven_until", "rest_until", "silent_until")

    def __init__(self) -> None:
        self.proven_until = 0.0
        self.greets = False  # at the latest opening
        self.failures = 0  # of openings, in a row
        self.rest_until = 0.0
        self.silent_until = 0.0
        self.because: Answer | None = None  # its latest failure
        self.connected = 0


_UNKNOWN = HostHealth()


class RemoteHosts:
    """The hosts of one process, at most `MAX_HOSTS`, the least recently opened forgotten first."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[HostKey, HostHealth] = OrderedDict()

    def of(self, key: HostKey) -> HostHealth:
        """Return the state of a host; read only."""
        return self._hosts.get(key, _UNKNOWN)

    def first(self, keys: Iterable[HostKey], now: float) -> HostKey | None:
        """Return the host that an opening tries first: in the order of `keys`, hosts that were silent lately last. None
        if all of them rest, and if there are none."""
        silent: HostKey | None = None
        for key in keys:
            host = self.of(key)
            if host.rest_until > now:
                continue
            if host.silent_until <= now:
                return key
            silent = silent or key
        return silent

    def resting(self, keys: Iterable[HostKey], now: float) -> HostRest | None:
        """Return the rest that ends first, if every one of these hosts rests."""
        first: HostRest | None = None
        for key in keys:
            host = self.of(key)
            if host.rest_until <= now or host.because is None:
                return None
            if first is None or host.rest_until - now < first.seconds:
                first = HostRest(host.because, host.rest_until - now)
        return first

    def comes_last(self, key: HostKey, now: float) -> bool:
        """Return True for a host that was silent lately or rests: others go first."""
        host = self.of(key)
        return host.silent_until > now or host.rest_until > now

    # -- learning ------------------------------------------------------------------------------

    def opened(self, key: HostKey) -> None:
        """Record a connection to the host that is ready for MAIL."""
        host = self._known(key)
        self._hosts.move_to_end(key)
        host.greets = True
        host.failures = 0
        host.rest_until = host.silent_until = 0.0
        host.because = None
        host.connected += 1

    def closed(self, key: HostKey) -> None:
        """Record that a connection which was `opened` is closed."""
        host = self._hosts.get(key)
        if host is not None and host.connected:
            host.connected -= 1

    def answered(self, key: HostKey, now: float) -> None:
        """Record that the host has answered a transaction."""
        self._known(key).proven_until = now + PROVEN_S

    def stalled(self, key: HostKey) -> None:
        """Record that a transaction with the host timed out."""
        self._known(key).proven_until = 0.0

    def failed(self, key: HostKey, because: Answer, now: float) -> None:
        """Record that the host took no connection or did not greet. It rests, longer each time and never in step with
        other processes, unless other connections to it stand. A silent host is tried last."""
        host = self._known(key)
        self._hosts.move_to_end(key)
        if isinstance(because.outcome, Break):
            host.silent_until = now + SILENT_S
        if host.connected:
            return
        host.greets = False
        host.proven_until = 0.0
        host.because = because
        host.rest_until = now + min(MAX_REST_S, REST_S * 2.0 ** min(host.failures, 16)) * random.uniform(0.8, 1.2)
        host.failures += 1

    def _known(self, key: HostKey) -> HostHealth:
        host = self._hosts.get(key)
        if host is None:
            if len(self._hosts) >= MAX_HOSTS:
                self._hosts.popitem(last=False)
            host = self._hosts[key] = HostHealth()
        return host
