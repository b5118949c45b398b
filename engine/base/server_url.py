"""Split a URL that may name several servers, such as `postgresql://user:password@a,[::1]:5433/waybill`. Pure.

`urllib.parse.urlsplit` accepts such a list in some patch levels of Python and refuses it in others (its check of the
brackets around IPv6 addresses changed), so this module splits by the regular expression of RFC 3986, appendix B.
"""

import re
from ipaddress import IPv6Address

from msgspec import Struct

MAX_PORT = 65_535
_URL = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?", re.DOTALL)
_HOST_PORT = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:@]+))(?::([0-9]*))?", re.ASCII)


class ServerUrl(Struct, frozen=True):
    """The parts of a URL as they were written; a missing part is empty."""

    scheme: str
    login: str  # `user:password`, still percent-encoded
    hosts: tuple[str, ...]  # `host`, `host:port` or `[IPv6]:port`; empty where the URL names no host
    path: str
    query: str

    @property
    def password(self) -> str:
        """Return the password, still percent-encoded."""
        return self.login.partition(":")[2]


def split(url: str) -> ServerUrl:
    """Split a URL into its parts without validating them."""
    found = _URL.match(url)
    assert found is not None  # every part is optional
    scheme, authority, path, query = (part or "" for part in found.groups())
    login, _, hosts = authority.rpartition("@")
    items = tuple(item.strip() for item in hosts.split(",")) if hosts else ()
    return ServerUrl(scheme.lower(), login, items, path, query)


def unescaped(url: str) -> str:
    """Return a character of the user name or password that must be percent-encoded and is not; "" if there is none."""
    found = _URL.match(url)
    assert found is not None
    authority = found[2] or ""
    login, at, _ = authority.rpartition("@")
    for stray in "@[]":
        if stray in login:
            return stray
    name, _, port = authority.rpartition(":")
    rest = url[found.end(2) :]
    ended_early = not at and name and port and not port.isdigit() and "@" in rest  # `user:pass/word@host`
    return rest[0] if ended_early else ""


def host_port(item: str) -> tuple[str, int | None]:
    """Return the host, without brackets, and the port of `host`, `host:port` or `[IPv6]:port`. Raises ValueError."""
    found = _HOST_PORT.fullmatch(item)
    if found is None:
        raise ValueError("neither host:port nor [IPv6]:port")
    address, name, port = found.groups()
    if address:
        IPv6Address(address)
    if port and int(port) > MAX_PORT:
        raise ValueError(f"port {port} is above {MAX_PORT}")
    return address or name, int(port) if port else None
