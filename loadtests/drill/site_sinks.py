"""Mail servers of a drill, one for each site, which count their open connections."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from ops.local.sink import Sink
from ops.local.sink_session import SinkSession
from ops.local.sink_store import MailStore, StoreMode

_FIRST: Final = 10  # of the last octet; the addresses before it are other people's habits


class SiteSink(Sink):
    """The mail server of one site."""

    def __init__(self, domain: str, store: MailStore, numbers: "itertools.count[int]") -> None:
        super().__init__(name=f"mx.{domain}", store=store, remember=0)
        self._numbers = numbers  # of the files in the store that all of them share
        self._run = "drill"
        self.domain = domain
        self.max_open = 0
        self._here: set[SinkSession] = set()

    def joined(self, conversation: SinkSession) -> bool:
        """Accept a connection as the sink does, and count it."""
        welcome = super().joined(conversation)
        self._here.add(conversation)
        self.max_open = max(self.max_open, len(self._here))
        return welcome

    def left(self, conversation: SinkSession) -> None:
        """Remove a closed connection from the count."""
        super().left(conversation)
        self._here.discard(conversation)


class SinkSites:
    """Mail servers for some domains, all at `port`, and a store for their mail. An asynchronous context manager.

    `point` sets the address of a domain's mail server in DNS (`DrillNetwork.point`); each final dot takes `delay_s`.
    """

    def __init__(
        self, domains: Sequence[str], store: Path, point: Callable[[str, str], None], *, port: int, delay_s: float
    ) -> None:
        self.store = store
        self._point = point
        self._port = port
        self._delay_s = delay_s
        self._kept = MailStore(store, StoreMode.FILES)
        self._opened = AsyncExitStack()
        numbers = itertools.count(1)
        self.sinks = [SiteSink(domain, self._kept, numbers) for domain in domains]

    async def __aenter__(self) -> Self:
        self._opened.enter_context(self._kept)
        for number, sink in enumerate(self.sinks):
            address = f"127.0.1.{_FIRST + number}"
            sink.script(".", delay_s=self._delay_s)
            await sink.start(address, self._port)
            self._opened.push_async_callback(sink.stop)
            self._point(sink.domain, address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def pace(self, delay_s: float) -> None:
        """Change the delay of each final dot from now on."""
        for sink in self.sinks:
            sink.scripts.clear()
            sink.script(".", delay_s=delay_s)

    @property
    def max_open(self) -> int:
        """Return the highest number of connections that one site had open at once."""
        return max(sink.max_open for sink in self.sinks)
