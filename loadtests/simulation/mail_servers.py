"""Mail servers of the simulated world: each transaction draws what the server does, and each 250 is on record."""

import asyncio
import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct

from loadtests.simulation.network import Network, SimulatedTransport
from loadtests.simulation.process import Process
from loadtests.simulation.world import World

PORT: Final = 25
_LABEL: Final = re.compile(rb"^Subject: (\S+)\r?$", re.MULTILINE)
_SLOW: Final = 0.4
_SLOW_S: Final = (0.3, 6.0)
_REPLY_S: Final = (0.0005, 0.02)


class Behaviour(StrEnum):
    """The behavior of a mail server in one transaction."""

    TAKES = "takes"
    DEFERS_RCPT = "defers rcpt"
    DEFERS_DOT = "defers dot"
    REFUSES_RCPT = "refuses rcpt"
    DROPS_BEFORE_DOT = "drops before dot"
    DROPS_AFTER_DOT = "drops after dot"
    TAKES_AND_DROPS = "takes and drops"
    SLOW = "slow"
    GREETS_421 = "greets 421"


FAULTY: Final = {
    Behaviour.TAKES: 50, Behaviour.DEFERS_RCPT: 8, Behaviour.DEFERS_DOT: 8, Behaviour.REFUSES_RCPT: 6,
    Behaviour.DROPS_BEFORE_DOT: 5, Behaviour.DROPS_AFTER_DOT: 5, Behaviour.TAKES_AND_DROPS: 8, Behaviour.SLOW: 10,
    Behaviour.GREETS_421: 3,
}  # fmt: skip


class Delivered(Struct):
    """A message that a server took for one recipient; `heard` once the client has the 250.

    `member` is the membership in the shards that the sending process had.
    """

    label: str
    address: str
    process: Process
    member: str
    heard: bool = False


class MailServers:
    """The servers of all recipient domains, and what they took and refused."""

    def __init__(self, world: World, network: Network, addresses: dict[str, str]) -> None:
        self.world = world
        self.rng = world.rng("mail")
        self.faulty = True
        self.slow = False  # replies to the final dot often take seconds
        self.delivered: dict[tuple[str, str], list[Delivered]] = {}
        self.refused: set[tuple[str, str]] = set()
        self.before_taking: Callable[[str, str, Process], str] = lambda _label, _address, _process: ""
        for domain, address in addresses.items():
            pipelining = self.rng.random() < 0.5
            network.listen(partial(_Conversation, self, domain, pipelining=pipelining), address, PORT)

    def draw(self) -> Behaviour:
        """Choose what happens to the next transaction."""
        if self.slow and self.rng.random() < _SLOW:
            return Behaviour.SLOW
        if not self.faulty:
            return Behaviour.TAKES
        return self.rng.choices(list(FAULTY), list(FAULTY.values()))[0]


class _Conversation(asyncio.Protocol):
    """The server's part of one connection."""

    def __init__(self, servers: MailServers, domain: str, *, pipelining: bool) -> None:
        self._servers = servers
        self._world = servers.world
        self._domain = domain
        self._pipelining = pipelining
        self._received = b""
        self._content: bytes | None = None
        self._behaviour = servers.draw()
        self._recipients: list[str] = []
        self._says_at = 0.0
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self._transport = transport
        busy = self._behaviour is Behaviour.GREETS_421
        self._say("421 4.3.2 try later" if busy else f"220 mx.{self._domain} ESMTP", then=self._close if busy else None)

    def connection_lost(self, _: Exception | None) -> None:
        self._gone = True

    def data_received(self, data: bytes) -> None:
        self._received += data
        while not self._gone:
            if self._content is not None:
                end = self._received.find(b"\r\n.\r\n")
                if end < 0:
                    return
                self._content, self._received = self._received[: end + 2], self._received[end + 5 :]
                self._end_content(self._content)
                self._content = None
                continue
            line, found, rest = self._received.partition(b"\r\n")
            if not found:
                return
            self._received = rest
            self._command(line.decode("ascii", "replace"))

    def _command(self, line: str) -> None:
        verb = line[:4].upper()
        if verb == "EHLO":
            offers = ["PIPELINING"] if self._pipelining else []
            lines = [f"mx.{self._domain}", *offers, "8BITMIME", "SIZE 10000000"]
            self._say("\r\n".join([*[f"250-{one}" for one in lines], "250 ENHANCEDSTATUSCODES"]))
        elif verb == "MAIL":
            self._behaviour, self._recipients = self._servers.draw(), []
            self._say("250 2.1.0 ok")
        elif verb == "RCPT":
            self._recipient(line.partition("<")[2].partition(">")[0])
        elif verb == "DATA":
            self._data()
        elif verb == "QUIT":
            self._say("221 2.0.0 bye", then=self._close)
        else:
            self._say("250 2.0.0 ok")

    def _recipient(self, address: str) -> None:
        if self._behaviour is Behaviour.REFUSES_RCPT:
            self._servers.refused.add(("", address))
            self._say("550 5.7.1 not from you")
        elif self._behaviour is Behaviour.DEFERS_RCPT:
            self._say("452 4.2.2 mailbox full")
        else:
            self._recipients.append(address)
            self._say("250 2.1.5 ok")

    def _data(self) -> None:
        if not self._recipients:
            self._say("503 5.5.1 no recipients")
        elif self._behaviour is Behaviour.DROPS_BEFORE_DOT:
            self._break()
        else:
            self._content = b""
            self._say("354 go on")

    def _end_content(self, content: bytes) -> None:
        found = _LABEL.search(content)
        label = found[1].decode() if found else "?"
        process = self._transport.peer.process
        assert process is not None
        match self._behaviour:
            case Behaviour.DROPS_AFTER_DOT:
                self._world.note(self._domain, f"{label}: connection lost after the dot, not taken")
                self._break()
                return
            case Behaviour.DEFERS_DOT:
                self._say("451 4.3.0 try later")
                return
        taken = [
            Delivered(label, address, process, self._servers.before_taking(label, address, process))
            for address in self._recipients
        ]
        for one in taken:
            self._servers.delivered.setdefault((one.label, one.address), []).append(one)
        lost = self._behaviour is Behaviour.TAKES_AND_DROPS
        self._world.note(self._domain, f"{label}: taken for {len(taken)} from {process.name}{', 250 lost' * lost}")
        if lost:
            self._break()
            return
        slow = self._behaviour is Behaviour.SLOW
        wait_s = self._servers.rng.uniform(*(_SLOW_S if slow else _REPLY_S))
        self._say("250 2.0.0 taken", wait_s=wait_s, taken=taken)

    # -- the wire ------------------------------------------------------------------------------

    def _say(
        self,
        reply: str,
        *,
        wait_s: float = 0.0,
        then: Callable[[], None] | None = None,
        taken: list[Delivered] = [],  # noqa: B006
    ) -> None:
        wait_s = wait_s or self._servers.rng.uniform(0.0, 0.002)
        self._says_at = max(self._says_at, self._world.now + wait_s)
        self._world.at(self._says_at, partial(self._write, reply, then, taken))

    def _write(self, reply: str, then: Callable[[], None] | None, taken: list[Delivered]) -> None:
        if self._gone:
            return
        self._transport.write(reply.encode() + b"\r\n", heard=partial(_heard, taken))
        if then is not None:
            then()

    def _close(self) -> None:
        self._transport.close()

    def _break(self) -> None:
        self._gone = True
        self._transport.break_now()


def _heard(taken: list[Delivered]) -> None:
    for one in taken:
        one.heard = True
