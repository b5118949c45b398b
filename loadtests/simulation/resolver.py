"""DNS of the simulated world: each recipient domain has one mail server, and nothing else exists."""

from typing import Any

from engine.base.settings import HostPort
from engine.store.resolver import Answered, Mx, NxDomain, Records, Resolver

_TTL_S = 300.0


class SimulatedResolver(Resolver):
    """A resolver of one process; `addresses` has the mail servers by domain."""

    def __init__(self, addresses: dict[str, str]) -> None:
        super().__init__((HostPort("127.0.0.1", 53),))
        self._hosts = {f"mx.{domain}": address for domain, address in addresses.items()}

    async def _look_up(self, name: str, kind: str, _reading: Any) -> Answered[Any]:
        until = self._clock() + _TTL_S
        if kind == "MX" and f"mx.{name}" in self._hosts:
            return Records((Mx(10, f"mx.{name}"),), until)
        if kind == "A" and name in self._hosts:
            return Records((self._hosts[name],), until)
        return NxDomain(until)
