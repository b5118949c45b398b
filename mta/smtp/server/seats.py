"""Count the open connections of one server: in all, and per client; no I/O."""

import socket
from collections import Counter
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

IpAddress = IPv4Address | IPv6Address


class ConnectionSeats:
    """Open connections by client key (`client_key`), within `limit` in all and `limit_each` per client."""

    def __init__(self, limit: int, limit_each: int) -> None:
        self._limit = limit
        self._limit_each = limit_each
        self._open = 0
        self._by_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open

    def take(self, client: str) -> bool:
        """Count a connection of `client`; False when a limit is reached."""
        if self._open >= self._limit or self._by_client.get(client, 0) >= self._limit_each:
            return False
        self._open += 1
        self._by_client[client] += 1
        return True

    def free(self, client: str) -> None:
        """Stop counting one connection of `client`."""
        self._open -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


def peer_address(peer: str) -> IpAddress:
    """Parse a socket's peer address; IPv4 that came through an IPv6 socket becomes IPv4."""
    found = ip_address(peer.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def is_on_loopback(connection: socket.socket) -> bool:
    """Return True if both ends of a connection have loopback addresses: the client runs on this machine.

    The client's address alone proves nothing on hosts that route 127.0.0.0/8 (`route_localnet`), nor does ours.
    """
    try:
        return all(peer_address(end[0]).is_loopback for end in (connection.getpeername(), connection.getsockname()))
    except OSError:  # the client has left
        return False


def client_key(address: IpAddress) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 that one IPv6 customer has at least."""
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)
