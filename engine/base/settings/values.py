"""Define the types of setting values, and convert values from and to the text of environment variables."""

import math
import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

PREFIX = "WAYBILL_"
MAX_ZONE = 180  # characters: the nibbles of an IPv6 address before it take 64 of the 253 (RFC 5782 2.4)
_ZONE = re.compile(rf"(?=.{{1,{MAX_ZONE}}}$)(?!-)[a-z0-9_-]{{1,63}}(?:\.(?!-)[a-z0-9_-]{{1,63}})+")
_LIST_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class BadSetting(ValueError):  # noqa: N818 - named for what it is about
    """The value of an environment variable is wrong; the text names the variable and says what would be right."""


class HostPort(Struct, frozen=True):
    """A host and a TCP or UDP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SocketAddress(Struct, frozen=True):
    """The address on which a server listens: a Unix socket at `path`, or a TCP port."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else str(HostPort(self.host, self.port))


class SourceIp(Struct, frozen=True):
    """A source address for mail, and the EHLO name used with it; without a name, `mail_host` is used."""

    ip: str
    name: str | None = None

    def __str__(self) -> str:
        return self.ip if self.name is None else f"{self.ip}={self.name}"


class BlocklistZone(Struct, frozen=True):
    """A DNS blocklist: the zone to query, and the name that people see, which is the zone unless another is given."""

    zone: str
    name: str

    def __str__(self) -> str:
        return self.zone if self.name == self.zone else f"{self.name}={self.zone}"


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + field.upper()


def text_of(value: object) -> str:
    """Format a value as text for an environment variable; None becomes ""."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return "" if value is None else str(value)


def parse(name: str, kind: Any, text: str) -> object:
    """Convert the text of the variable `name` to the type `kind`. Raises BadSetting."""
    parser = _PARSERS.get(kind)
    if parser is None:  # the Literal fields
        try:
            return msgspec.convert(text, kind)
        except msgspec.ValidationError:
            choices = ", ".join(kind.__args__)
            raise BadSetting(f"{name} is {text!r}; it must be one of: {choices}") from None
    try:
        return parser(text)
    except ValueError:
        raise BadSetting(f"{name} is {text!r}; it must be {_EXPECTED[kind]}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _bool(text: str) -> bool:
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    raise ValueError(text)


def _socket_address(text: str) -> SocketAddress:
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(text)
        return SocketAddress(path=path)
    [found] = _host_ports(text)
    return SocketAddress(host=found.host, port=found.port)


def _host_ports(text: str) -> tuple[HostPort, ...]:
    found = []
    for item in text.split(","):
        host, _, port = item.strip().rpartition(":")
        host = host.strip("[]")
        if not host or not 0 < int(port) < 65536:
            raise ValueError(item)
        found.append(HostPort(host, int(port)))
    return tuple(found)


def _source_ips(text: str) -> tuple[SourceIp, ...]:
    found: dict[str, SourceIp] = {}
    for item in text.split(","):
        literal, _, name = item.strip().partition("=")
        ip = str(ip_address(literal.strip().strip("[]")))
        if ip in found:
            raise ValueError(item)
        found[ip] = SourceIp(ip, name.strip().lower().rstrip(".") or None)
    return tuple(found.values())


def _blocklist_zones(text: str) -> tuple[BlocklistZone, ...]:
    found: dict[str, BlocklistZone] = {}
    for item in _list(text.lower()):
        given, _, after = item.rpartition("=")
        zone = after.strip().rstrip(".")
        name = given.strip() or zone
        if name in found or not _ZONE.fullmatch(zone) or not _LIST_NAME.fullmatch(name):
            raise ValueError(item)
        found[name] = BlocklistZone(zone, name)
    return tuple(found.values())


def _numbers(text: str) -> tuple[float, ...]:
    found = tuple(_finite(item) for item in text.split(","))
    if not all(number > 0 for number in found):
        raise ValueError(text)
    return found


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


def _file(text: str) -> Path:
    return Path(text).expanduser().absolute()  # child processes run in other folders


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(item.strip()) for item in text.split(","))


_PARSERS: dict[object, Callable[[str], object]] = {
    Path: Path,
    Path | None: _file,
    tuple[IPv4Network | IPv6Network, ...]: _networks,
    str: str,
    str | None: str,
    int: int,
    int | None: int,
    float: _finite,
    bool: _bool,
    bool | None: _bool,
    float | None: _finite,
    SocketAddress | None: _socket_address,
    tuple[HostPort, ...]: _host_ports,
    tuple[SourceIp, ...]: _source_ips,
    tuple[BlocklistZone, ...]: _blocklist_zones,
    tuple[float, ...]: _numbers,
    tuple[str, ...]: _list,
}
_EXPECTED: dict[object, str] = {
    int: "a whole number",
    int | None: "a whole number",
    float: "a number",
    float | None: "a number",
    SocketAddress | None: "host:port of a TCP socket, or unix:/path of a Unix socket",
    bool: "true or false",
    bool | None: "true or false",
    tuple[HostPort, ...]: "a list host:port,host:port",
    tuple[SourceIp, ...]: "a list of different addresses of this host, such as 192.0.2.1=mta1.example.com,2001:db8::1",
    tuple[BlocklistZone, ...]: "a list of different zones, such as zen.spamhaus.org,my-list=key.list.example",
    tuple[IPv4Network | IPv6Network, ...]: "a list of networks such as 10.0.0.0/8,fd00::/8",
    tuple[float, ...]: "a list of seconds above 0, such as 30,60,120",
}
