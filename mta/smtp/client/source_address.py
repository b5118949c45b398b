"""Connect from one of this host's addresses.

A plain bind takes a local port for the address whatever the destination: after 28,000 connections in a minute, those
just closed included, no port is left. Linux can choose the port when the destination is known
(IP_BIND_ADDRESS_NO_PORT, ip(7), since 4.2); then only connections to one and the same server need ports of their own.
"""

import asyncio
import contextlib
import socket

_BIND_ADDRESS_NO_PORT = 24  # of IPPROTO_IP, for both families; Python 3.11 has no name for it


async def connect_from(source_ip: str, address: tuple[str, int]) -> socket.socket:
    """Return a socket bound to `source_ip` and connected to `address`, of the same family; raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in source_ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        with contextlib.suppress(OSError):  # without it, as on other systems, bind takes the port at once
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source_ip, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
