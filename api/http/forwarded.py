"""Find the client's address behind a load balancer from `X-Forwarded-For`, trusted from configured proxies only.

Rate limits by address, keys limited to networks and the device of a session all mean the client; behind a proxy every
connection comes from the proxy.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

HEADER = b"x-forwarded-for"
MAX_HOPS = 32  # read from the right: entries beyond them were written by unknown hosts

Network = IPv4Network | IPv6Network


def with_client(scope: dict[str, Any], proxies: Sequence[Network]) -> dict[str, Any]:
    """Return the ASGI scope with `client` as the `proxies` name it, or the same scope if they name no valid one.

    Every proxy appends the peer that it saw, so the list is read from its end: the first address outside `proxies` is
    the client. Entries left of it may be forged by the client.
    """
    peer, port = scope.get("client") or ("", 0)
    address = client(peer, (value for name, value in scope["headers"] if name == HEADER), proxies)
    return scope if address == peer else scope | {"client": (address, port)}


def client(peer: str, headers: Iterable[bytes], proxies: Sequence[Network]) -> str:
    """Return the client's address that the proxy `peer` forwards; `peer` itself if it is no proxy."""
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
    """Return an address, also from the forms `[v6]`, `[v6]:port` and `v4:port` that some proxies write; else None."""
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
