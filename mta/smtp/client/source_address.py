"""A connection from one of this host's addresses.

Binding to an address takes a local port for it alone, whoever is to be reached: after 28,000 connections in a minute,
those just closed included, none is left. Linux can leave the port open until the destination is known
(IP_BIND_ADDRESS_NO_PORT, ip(7), since 4.2); then only connections to one and the same server need ports of their own.
"""

import asyncio
import contextlib
import socket

_BIND_ADDRESS_NO_PORT = 24  # of IPPROTO_IP, for both families; Python 3.11 has no name for it


async def connect_from(source_ip: str, address: tuple[str, int]) -> socket.socket:
    """A socket bound to `source_ip` and connected to `address`, of the same family; raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in source_ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        with contextlib.suppress(OSError):  # elsewhere than on Linux the port is taken at once
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source_ip, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
