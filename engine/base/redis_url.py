"""Parse `WAYBILL_REDIS_URL`: one server, a primary with its replicas, sentinels, or a cluster. Pure.

    redis://user:password@host:6379/0                one server (`rediss://` with TLS, `unix:///path` by its socket)
    redis://host1:6379,host2:6379/0                  a primary and its replicas: the present primary is used
    redis+cluster://host1:6379,host2:6379            Redis Cluster, found through any of these (`rediss+cluster://`)
    redis+sentinel://host1:26379,host2/mymaster/0    sentinels, and the primary that they watch (`rediss+sentinel://`)

Each further host may repeat the scheme. Credentials stand before the first host and apply to all. Options of redis-py
follow as a query (`?ssl_ca_certs=/etc/ca.pem`). With sentinels, the credentials are those of the servers that they
watch; `sentinel_username` and `sentinel_password` in the query are those of the sentinels.
"""

import re
from enum import StrEnum
from urllib.parse import quote, unquote

from msgspec import Struct

from engine.base import server_url
from engine.base.server_url import ServerUrl

DEFAULT_PORT = 6379
SENTINEL_PORT = 26_379
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_CLUSTER, _SENTINEL = "+cluster", "+sentinel"
_OF_SENTINEL = "sentinel_"  # begins the names of options that apply to the sentinels only
_OF_SENTINEL_LOGIN = re.compile(r"sentinel_(?:username|password)=")


class RedisTopology(StrEnum):
    """The relation between the servers of one URL."""

    SINGLE = "single"
    PRIMARY = "primary"  # one of them takes writes, the others follow it
    SENTINEL = "sentinel"  # the servers of the URL are sentinels
    CLUSTER = "cluster"


class RedisServers(Struct, frozen=True):
    """The servers of one URL, each as a URL of its own that redis-py understands."""

    kind: RedisTopology
    urls: tuple[str, ...]
    primary_name: str = ""  # under which the sentinels know the primary
    watched: tuple[str, str] = ("", "")  # of a URL of the servers that they watch: the parts around `host:port`

    def watched_url(self, address: str) -> str:
        """Return the URL of a server that the sentinels name, as `host:port`."""
        return address.join(self.watched)


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
    if scheme.endswith(_SENTINEL):
        return _sentinels(parts, scheme.removesuffix(_SENTINEL))
    hosts = _hosts(parts.hosts)
    plain = scheme.removesuffix(_CLUSTER)
    if scheme.endswith(_CLUSTER):
        if parts.path.strip("/") not in ("", "0") or "db=" in parts.query:
            raise ValueError("a cluster without a database number: Redis Cluster has database 0 only")
        kind = RedisTopology.CLUSTER
    else:
        if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
            raise ValueError("a URL whose path is the number of a database, such as /0")
        kind = RedisTopology.SINGLE if len(hosts) == 1 else RedisTopology.PRIMARY
    login = f"{parts.login}@" if parts.login else ""
    tail = parts.path + (f"?{parts.query}" if parts.query else "")
    return RedisServers(kind, tuple(f"{plain}://{login}{host}{tail}" for host in hosts))


def _sentinels(parts: ServerUrl, plain: str) -> RedisServers:
    """Split the URL of sentinels: their own URLs, and that of the servers that they watch."""
    name, _, database = parts.path.removeprefix("/").partition("/")
    database = database.rstrip("/")
    if not name or "/" in database:
        raise ValueError(
            "a list of sentinels with the name of the primary, such as"
            " redis+sentinel://s1.example,s2.example,s3.example/mymaster"
        )
    if database and not database.isdecimal():
        raise ValueError("a URL of sentinels with a number as the database, after the name of the primary")
    if "@" in parts.query:
        raise ValueError("a URL of sentinels whose @ in options is percent-encoded (%40)")
    options = [one for one in parts.query.split("&") if one]
    own = dict(one.removeprefix(_OF_SENTINEL).split("=", 1) for one in options if _OF_SENTINEL_LOGIN.match(one))
    shared = [one for one in options if not one.startswith(_OF_SENTINEL)]
    if len(own) + len(shared) < len(options):
        raise ValueError("a URL with no options of sentinels but sentinel_username and sentinel_password")
    if own.get("username") and not own.get("password"):
        raise ValueError("a URL with a sentinel_password beside its sentinel_username")
    # A query may hold characters that end a login.
    user, password = (quote(unquote(own.get(one, "")), safe="") for one in ("username", "password"))
    login = f"{user}:{password}@" if password else ""
    query = f"?{'&'.join(shared)}" if shared else ""
    # Sentinels have no databases.
    of_sentinels = "&".join(one for one in shared if not one.startswith("db="))
    urls = [
        f"{plain}://{login}{host}" + (f"?{of_sentinels}" if of_sentinels else "")
        for host in _hosts(parts.hosts, SENTINEL_PORT)
    ]
    before = f"{plain}://" + (f"{parts.login}@" if parts.login else "")
    after = (f"/{database}" if database else "") + query
    return RedisServers(RedisTopology.SENTINEL, tuple(urls), unquote(name), (before, after))


def _hosts(items: tuple[str, ...], default_port: int = DEFAULT_PORT) -> list[str]:
    """Return `host:port` of each server, with brackets around IPv6."""
    found: list[str] = []
    for item in items or ("",):
        host, port = _host_port(item, default_port)
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if name in found:
            raise ValueError("hosts that are all different")
        found.append(name)
    return found


def _host_port(item: str, default_port: int) -> tuple[str, int]:
    try:
        host, port = server_url.host_port(item)
    except ValueError:
        example = f"redis://cache1.example:{DEFAULT_PORT},cache2.example:{DEFAULT_PORT}"
        raise ValueError(f"a list of hosts such as {example}") from None
    return host.lower(), default_port if port is None else port
