"""Parse `WAYBILL_REDIS_URL`: one server, a primary with its replicas, or a cluster. Pure.

    redis://user:password@host:6379/0                one server (`rediss://` with TLS, `unix:///path` by its socket)
    redis://host1:6379,host2:6379/0                  a primary and its replicas: the present primary is used
    redis+cluster://host1:6379,host2:6379            Redis Cluster, found through any of these (`rediss+cluster://`)

Each further host may repeat the scheme. Credentials stand before the first host and apply to all. Options of redis-py
follow as a query (`?ssl_ca_certs=/etc/ca.pem`).
"""

import re
from enum import StrEnum

from msgspec import Struct

from engine.base import server_url

DEFAULT_PORT = 6379
SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_CLUSTER = "+cluster"


class RedisTopology(StrEnum):
    """The relation between the servers of one URL."""

    SINGLE = "single"
    PRIMARY = "primary"  # one of them takes writes, the others follow it
    CLUSTER = "cluster"


class RedisServers(Struct, frozen=True):
    """The servers of one URL, each as a URL of its own that redis-py understands."""

    kind: RedisTopology
    urls: tuple[str, ...]


def parse(text: str) -> RedisServers:
    """Split a URL into its servers. Raises ValueError whose text completes the sentence "the URL must be …" and never
    contains the URL.
    """
    scheme, separator, rest = text.strip().partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(f"a URL that begins with {' or '.join(f'{one}://' for one in SCHEMES)}")
    if scheme == "unix":
        return RedisServers(RedisTopology.SINGLE, (text.strip(),))
    parts = server_url.split(f"redis://{re.sub(rf', *{re.escape(scheme)}://', ',', rest)}")
    if parts.path.startswith("//"):
        raise ValueError(f"hosts that all have one scheme, here {scheme}://")
    if "@" in parts.login:
        raise ValueError("credentials before the first host only: they apply to all hosts")
    hosts = _hosts(parts.hosts)
    plain = scheme.removesuffix(_CLUSTER)
    if scheme.endswith(_CLUSTER):
        if parts.path.strip("/") not in ("", "0") or "db=" in parts.query:
            raise ValueError("a cluster without a database number: Redis Cluster has database 0 only")
        kind = RedisTopology.CLUSTER
    else:
        kind = RedisTopology.SINGLE if len(hosts) == 1 else RedisTopology.PRIMARY
    login = f"{parts.login}@" if parts.login else ""
    tail = parts.path + (f"?{parts.query}" if parts.query else "")
    return RedisServers(kind, tuple(f"{plain}://{login}{host}{tail}" for host in hosts))


def _hosts(items: tuple[str, ...]) -> list[str]:
    """Return `host:port` of each server, with brackets around IPv6."""
    found: list[str] = []
    for item in items or ("",):
        host, port = _host_port(item)
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if name in found:
            raise ValueError("hosts that are all different")
        found.append(name)
    return found


def _host_port(item: str) -> tuple[str, int]:
    try:
        host, port = server_url.host_port(item)
    except ValueError:
        example = f"redis://cache1.example:{DEFAULT_PORT},cache2.example:{DEFAULT_PORT}"
        raise ValueError(f"a list of hosts such as {example}") from None
    return host.lower(), DEFAULT_PORT if port is None else port
