"""Mail servers of a drill's own, one for each site: they count the connections that are open at once, and know over
which connection a message came."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from ops.local.dns import Responder
from ops.local.sink import Sink
from ops.local.sink_protocol import Conversation
from ops.local.sink_store import MailStore, StoreMode

_FIRST: Final = 10  # of the last octet; the addresses before it are other people's habits


class Arrival(Struct, frozen=True):
    """One message: its test id, when it came by the loop's clock, and the port of the client's side."""

    test_id: str
    at: float
    port: int


class SiteSink(Sink):
    """The mail server of one site."""

    def __init__(self, domain: str, store: MailStore, arrivals: list[Arrival], numbers: "itertools.count[int]") -> None:
        super().__init__(name=f"mx.{domain}", store=store, remember=0)
        self._numbers = numbers  # of the files in the store that all of them share
        self._run = "drill"
        self.domain = domain
        self.open = 0
        self.most_open = 0
        self._arrivals = arrivals
        self._ports: dict[Conversation, int] = {}

    def joined(self, conversation: Conversation) -> bool:
        """Count, as the sink does."""
        welcome = super().joined(conversation)
        self._ports[conversation] = conversation.peer_port
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return welcome

    def left(self, conversation: Conversation) -> None:
        """Likewise."""
        super().left(conversation)
        if self._ports.pop(conversation, None) is not None:
            self.open -= 1

    def accept(self, conversation: Conversation, content: bytes) -> str:
        """Keep it, and note where it came from."""
        found = super().accept(conversation, content)
        lines = (line for line in content.split(b"\r\n", 64) if line[:10].lower() == b"x-test-id:")
        test_id = next(lines, b"")[10:].strip()
        now = asyncio.get_running_loop().time()
        self._arrivals.append(Arrival(test_id.decode(), now, self._ports.get(conversation, 0)))
        return found


class Sites:
    """Mail servers for some domains and the DNS that leads to them. An asynchronous context manager.

    `port` is that of all mail servers, `dns_port` that of the responder; each final dot takes `delay_s`.
    """

    def __init__(self, domains: Sequence[str], store: Path, *, port: int, dns_port: int, delay_s: float) -> None:
        self.arrivals: list[Arrival] = []
        self.store = store
        self._port = port
        self._dns_port = dns_port
        self._delay_s = delay_s
        self._kept = MailStore(store, StoreMode.FILES)
        self._dns = Responder()
        self._opened = AsyncExitStack()
        numbers = itertools.count(1)
        self.sinks = [SiteSink(domain, self._kept, self.arrivals, numbers) for domain in domains]

    async def __aenter__(self) -> Self:
        self._opened.enter_context(self._kept)
        await self._dns.start(port=self._dns_port)
        self._opened.push_async_callback(self._dns.stop)
        for number, sink in enumerate(self.sinks):
            address = f"127.0.1.{_FIRST + number}"
            sink.script(".", delay_s=self._delay_s)
            await sink.start(address, self._port)
            self._opened.push_async_callback(sink.stop)
            self._dns.set(sink.domain, "MX", [f"10 {sink.name}."])
            self._dns.set(sink.name, "A", [address])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def pace(self, delay_s: float) -> None:
        """From now on each final dot takes so long."""
        for sink in self.sinks:
            sink.scripts.clear()
            sink.script(".", delay_s=delay_s)

    @property
    def most_open(self) -> int:
        """Connections that one site had open at once, at most."""
        return max(sink.most_open for sink in self.sinks)
