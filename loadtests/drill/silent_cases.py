"""The cases of `ops drill silent-sites`: the behaviour, names and addresses of the harmful tenant's mail servers.

Every recipient domain has its own MX name. The names share `addresses` loopback addresses; by default each has its
own.
Pure: the drill and its servers read everything from here.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec import Struct

ZONE: Final = "silent.test"
DEFAULT_SITES: Final = 10_000
MAX_ADDRESSES: Final = 60_000  # of 127.100.0.0/16, whose other octets number them
_SINK: Final = "127.0.0.1"
_NETWORK: Final = "127.100"
_MX_NAME: Final = re.compile(rf"mx\.s(\d+)\.{re.escape(ZONE)}")


class SilentServerKind(StrEnum):
    """The behaviour of a recipient domain's servers."""

    SILENT = "silent"  # accept the connection, and stop answering at a stage of the conversation
    DRIP = "drip"  # the same, but they send a line of an endless reply every two seconds
    DEAD = "dead"  # drop every SYN: the connection attempt gets no answer
    MIXED = "mixed"  # every other server is silent, the rest are dead
    DNS_SILENT = "dns-silent"  # the domain's name servers never answer
    WELL = "well"  # the control: the sink, which answers


class Stage(StrEnum):
    """The first step of an SMTP session that a silent server leaves unanswered."""

    GREETING = "greeting"
    EHLO = "ehlo"
    STARTTLS = "starttls"
    TLS = "tls"  # STARTTLS is answered, the handshake is not
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    DOT = "dot"  # the content is complete, and no reply follows


class SilentCase(Struct, frozen=True, kw_only=True):
    """A run of the drill: `accounts` together send one message to each of `sites` domains."""

    kind: SilentServerKind
    stage: Stage = Stage.GREETING
    accounts: int = 1
    sites: int = DEFAULT_SITES
    addresses: int = 0  # that the domains share; 0: one for each

    @property
    def name(self) -> str:
        """Return a description of the case for the report."""
        stage = "" if self.stage is Stage.GREETING else f" at {self.stage.value}"
        shared = f" on {self.addresses} addresses" if self.addresses else ""
        return f"{self.kind.value}{stage}{shared}, {self.sites} domains of {self.accounts} accounts"

    @property
    def used_addresses(self) -> int:
        """Return the number of addresses that the servers listen on."""
        return min(self.addresses or self.sites, self.sites, MAX_ADDRESSES)

    @property
    def has_servers(self) -> bool:
        """Return True when the drill runs its own mail servers."""
        return self.kind not in (SilentServerKind.WELL, SilentServerKind.DNS_SILENT)

    def is_dead(self, place: int) -> bool:
        """Return True if the server on address number `place` drops connection attempts."""
        return self.kind is SilentServerKind.DEAD or (self.kind is SilentServerKind.MIXED and place % 2 == 1)


def domain(number: int) -> str:
    """Return the name of recipient domain `number`."""
    return f"s{number}.{ZONE}"


def address(place: int) -> str:
    """Return loopback address number `place` (from 0)."""
    high, low = divmod(place + 1, 256)
    return f"{_NETWORK}.{high}.{low}"


def records(case: SilentCase) -> Callable[[str, str], list[str] | None]:
    """Return a function from name and type to DNS records, or None for names outside the zone."""

    def found(name: str, rdtype: str) -> list[str] | None:
        if not name.endswith("." + ZONE):
            return None
        match = _MX_NAME.fullmatch(name)
        if match is None:
            return [f"10 mx.{name}."] if rdtype == "MX" else []
        if rdtype != "A":
            return []
        return [_SINK if case.kind is SilentServerKind.WELL else address(int(match[1]) % case.used_addresses)]

    return found


def remote_pattern(port: int) -> re.Pattern[bytes]:
    """Return a pattern for lines of /proc/net/tcp (proc(5)): connections to these addresses at `port`, that are open
    (state 01) or being opened (02). Its groups are the local and the remote end."""
    first, second = (f"{int(part):02X}" for part in _NETWORK.split("."))
    remote = rf"[0-9A-F]{{4}}{second}{first}:{port:04X}"  # addresses are shown with their last octet first
    return re.compile(rf" ([0-9A-F]{{8}}:[0-9A-F]{{4}}) ({remote}) 0[12] ".encode())
