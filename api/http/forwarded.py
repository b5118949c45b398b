"""Whom a load balancer speaks for: the client's address out of `X-Forwarded-For`, believed from known peers only.

Limits by address, keys limited to networks and the device shown beside a session all mean the client; behind a proxy
every connection comes from the proxy.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

HEADER = b"x-forwarded-for"
MAX_HOPS = 32  # read from the right: whoever is that far away has been named by somebody we do not know

Network = IPv4Network | IPv6Network


def with_client(scope: dict[str, Any], proxies: Sequence[Network]) -> dict[str, Any]:
    """The ASGI scope with its `client` as `proxies` name it; the same scope where they say nothing usable.

    Every proxy appends the peer it saw, so the list is read from its end: the first address that is none of ours is
    the client. What stands left of it the client may have written itself.
    """
    peer, port = scope.get("client") or ("", 0)
    address = client(peer, (value for name, value in scope["headers"] if name == HEADER), proxies)
    return scope if address == peer else scope | {"client": (address, port)}


def client(peer: str, headers: Iterable[bytes], proxies: Sequence[Network]) -> str:
    """The address that the proxy `peer` speaks for; `peer` itself unless it is a proxy that names somebody."""
    believed = peer
    if not _among(_parsed(peer), proxies):
        return believed
    hops = b",".join(headers).rsplit(b",", MAX_HOPS)[-MAX_HOPS:]
    for hop in reversed(hops):
        address = _parsed(hop.decode("ascii", "replace"))
        if address is None:
            break
        believed = str(address)
        if not _among(address, proxies):
            break
    return believed


def _among(address: IPv4Address | IPv6Address | None, networks: Sequence[Network]) -> bool:
    return address is not None and any(address in network for network in networks)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """An address, also as `[v6]`, `[v6]:port` or `v4:port`, as some proxies write it."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    with suppress(ValueError):
        address = ip_address(text)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return mapped or address
    return None
