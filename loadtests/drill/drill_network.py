"""The network between a drill's service and its sink: a DNS responder with failures, and SMTP proxies.

The DNS responder answers from its own zone and asks the service's responder for other names. A proxy listens on another
loopback address at the sink's port; mail for domains that point there goes through it.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, Self, TypeVar

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode

from loadtests.drill.smtp_proxy import SmtpProxy
from loadtests.kit.servers import HOST
from loadtests.kit.service import Service
from loadtests.ports import reserve_port
from ops.local.dns import Responder

_ASK_S: Final = 2.0
_PATIENCE_S: Final = 30.0

Answer = TypeVar("Answer")


class DrillNetwork:
    """DNS responder and proxies, in a loop and thread of their own; a context manager.

    The thread is needed because the responder must answer while the caller waits for the service to start.
    """

    def __init__(self, service: Service) -> None:
        self.dns_port = reserve_port()
        self.names = Responder(fallback=self._ask, cache=True)
        self._service = service
        self._proxies: list[SmtpProxy] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="drill network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self.names.start(HOST, self.dns_port))
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            self._do(proxy.stop())
        self._do(self.names.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def add_proxy(self, *domains: str) -> SmtpProxy:
        """Start a proxy on a new address and direct the mail of these domains through it."""
        host = f"127.77.0.{len(self._proxies) + 1}"
        proxy = SmtpProxy(host, self._service.sink_port, self._service.sink_port)
        self._do(proxy.start())
        self._proxies.append(proxy)
        for domain in domains:
            self.point(domain, host)
        return proxy

    def _do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    def point(self, domain: str, *hosts: str) -> None:
        """Set one mail server for this domain, with these addresses."""
        self.names.set(domain, "MX", [f"10 mx.{domain}."])
        self.names.set(f"mx.{domain}", "A", list(hosts))
        self.names.set(f"mx.{domain}", "AAAA", [])

    async def _ask(self, name: str, rdtype: str) -> list[str] | None:
        """Return the records of the service's own responder; [] when it fails, None for NXDOMAIN."""
        query = dns.message.make_query(name, rdtype)
        try:
            answer, _ = await dns.asyncquery.udp_with_fallback(query, HOST, timeout=_ASK_S, port=self._service.dns_port)
        except (OSError, dns.exception.DNSException, asyncio.IncompleteReadError):
            return []
        if answer.rcode() == dns.rcode.NXDOMAIN:
            return None
        return [rdata.to_text() for rrset in answer.answer for rdata in rrset]
