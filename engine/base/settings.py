"""Every setting of the service: one Struct, read from the environment in one place.

A setting's variable is `WAYBILL_` and its field name in capitals. `secret` fields are masked wherever
settings are shown.
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from engine.base import redis_url, server_url

PREFIX = "WAYBILL_"
MEBIBYTE = 1024 * 1024


PROCESSES = ("api", "relay", "mta", "worker")


class BadSetting(ValueError):  # noqa: N818 - named for what it is about
    """A variable holds a value that can't be used; the text names it and says what would be right."""


class HostPort(Struct, frozen=True):
    """One `host:port`."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SourceIp(Struct, frozen=True):
    """An address of this host that mail leaves from, and the name it greets with there; None: `mail_host`."""

    ip: str
    name: str | None = None

    def __str__(self) -> str:
        return self.ip if self.name is None else f"{self.ip}={self.name}"


class Settings(Struct, frozen=True, kw_only=True):
    """The values one process runs with. Times in seconds, sizes in bytes, ports as TCP port numbers.

    The sentence under each field is its documentation everywhere (`engine.base.settings_docs`): first the processes
    that read it, as `ops status` names their kinds (`up` is the supervisor, `start` the first start), then its meaning.
    """

    state: Path = Path(".state")
    """all: Folder for everything that this host keeps: embedded servers, pepper, logs, the local sink."""
    processes: tuple[str, ...] = PROCESSES
    """up: Kinds of processes that run on this host, of `api`, `relay`, `mta` and `worker`."""
    database_url: str | None = None
    """all: PostgreSQL to use, `postgresql://…`, several hosts allowed; unset: an embedded server under the state
    folder."""
    redis_url: str | None = None
    """all: Redis or Valkey to use, `redis://…`, `rediss://…`, `redis+cluster://…` or `unix://…`; unset: an embedded
    server under the state folder."""
    api_host: str = "127.0.0.1"
    """api, worker: Address that the HTTP API and the metrics listen on."""
    api_port: int = 8080
    """api: Port of the HTTP API."""
    submission_host: str = "127.0.0.1"
    """relay: Address that SMTP submission listens on."""
    submission_port: int = 2587
    """relay: Port of SMTP submission with STARTTLS."""
    submission_tls_port: int = 2465
    """relay: Port of SMTP submission with TLS from the first octet."""
    mx_port: int = 2525
    """mta: Port of our own server for incoming mail, which nothing serves yet; where it equals `smtp_port`, an mta
    takes the addresses of this host for itself."""
    metrics_port: int = 9090
    """worker, metrics: Port of the Prometheus metrics of all processes of this host."""
    sink_port: int = 2600
    """mta, sink: Port of the local SMTP server that takes all mail in local mode."""
    dns_port: int = 2653
    """dns, up: Port of the local DNS responder in local mode."""
    api_workers: int = 1
    """up: Number of API worker processes on this host."""
    mta_workers: int = 2
    """up: Number of mta processes on this host."""
    relay_workers: int = 1
    """up: Number of relay processes on this host; 0: no SMTP submission."""
    delivery: Literal["local", "live"] = "local"
    """all: `local` delivers all mail to the sink on this machine, `live` to the recipients' mail servers."""
    dns_servers: tuple[HostPort, ...] = ()
    """api, mta, worker: Name servers to ask, as host:port; unset: the system's in live mode, our own responder in local
    mode."""
    dnssec_trusted: bool = False
    """mta: Whether the name servers validate DNSSEC and nobody can change answers on the way from them: only then DANE
    is used."""
    tls_authorities: Path | None = None
    """mta: PEM file of the authorities that vouch for mail servers; unset: the system's."""
    system_from: str | None = None
    """api, worker: Sender of the service's own mail, `Name <address>` or an address alone; unset: what `ops platform
    set` says, else no-reply@ the mail host."""
    tls_report_from: str | None = None
    """worker: Sender of TLS reports (RFC 8460), of a verified domain; unset: none are sent."""
    smtp_port: int = 25
    """mta: Port of remote mail servers in live mode."""
    mail_host: str = "mail.waybill.test"
    """api, relay, mta, worker: Name of this mail service: in EHLO, in return addresses and in the DNS records that
    customers publish; in live mode it must resolve to this host and back."""
    source_ips: tuple[SourceIp, ...] = ()
    """mta: Addresses of this host that mail leaves from, each with an EHLO name after `=`; unset: the system
    chooses."""
    public_url: str = "http://127.0.0.1:8080"
    """api, worker: URL of the API as people and browsers see it, for links in mail, cookies and passkeys; unset:
    http://127.0.0.1 with the API port."""
    key_pepper: str | None = None
    """api, relay, mta, worker: Secret that API keys and sessions are hashed with and DKIM keys are encrypted with,
    alike on all hosts; unset: made on the first start and kept in the state folder."""
    allow_private_mx: bool = False
    """mta, worker: Whether mail may be delivered to private and loopback addresses; `up` turns it on in local mode."""
    allow_private_webhooks: bool | None = None
    """api, worker: Whether webhooks may be posted to private and loopback addresses; unset: in local mode only."""
    platform_daily_ceiling: int = 1_000_000
    """api, relay, worker: Messages that all accounts together may send in a day (UTC)."""
    max_message_bytes: int = 40 * MEBIBYTE
    """api, relay: Size of the largest message, as composed."""
    max_request_bytes: int = 60 * MEBIBYTE
    """api: Size of the largest request body of a single send: base64 and JSON make it larger than the message."""
    max_inflight_bytes: int = 256 * MEBIBYTE
    """api, relay: Bytes of request bodies and messages under way that one process holds at once; an eighth of them for
    requests without credentials."""
    body_deadline_s: float = 60.0
    """api: Time within which a request body must arrive."""
    body_min_bytes_per_s: int = 500
    """api, relay: Slowest rate at which a body may arrive in every window of 5 s, beside the deadline (Postfix
    smtpd_min_data_rate)."""
    request_rate: int = 0
    """api, relay: Requests a second that every key may make; 0: what its plan allows."""
    unauthenticated_rate: int = 10
    """api: Requests a second that one network (an IPv4 address or an IPv6 /64) may make without a key or session."""
    sign_in_rate: int = 5
    """api: Tries a minute to sign in, to sign up or for a forgotten password, per network and per mail address."""
    shards: int = 256
    """all: Number of parts that the queue is divided into, alike on all hosts; chosen before the first start."""
    lease_s: float = 6.0
    """mta: Time for which an mta process owns its shards without renewing: so long after a crash others take over."""
    shard_rules: Literal["auto", "manual"] = "auto"
    """worker: `auto` splits hot domains and moves shards by load; `manual` leaves both to `ops shards`."""
    split_rate: float = 50.0
    """worker: Messages a second to one recipient domain from which it is split, when `split_share` is reached too."""
    split_share: float = 0.2
    """worker: Part of all mail (0 to 1) from which a recipient domain is split, when `split_rate` is reached too."""
    split_after_s: float = 60.0
    """worker: Time for which a domain must be that hot before it is split."""
    merge_after_s: float = 900.0
    """worker: Time below half of either mark after which a split domain is merged."""
    balance_rate: float = 20.0
    """worker: Messages a second in all below which shards are not moved for their load."""
    balance_after_s: float = 60.0
    """worker: Time for which the load must be uneven before shards are moved."""
    fresh_due_s: float = 5.0
    """api, relay, mta: Delay after which an mta process finds a new message by its due time when no hint of Redis
    came."""
    site_connections: int = 20
    """mta: Most connections at once to the mail servers of one site (Postfix default_destination_concurrency_limit)."""
    messages_per_connection: int = 100
    """mta: Most messages sent over one connection."""
    mta_active_limit: int = 2_000
    """mta: Most deliveries that one mta process holds in memory."""
    mta_connections: int = 1_000
    """mta: Most connections to mail servers that one mta process holds open."""
    connect_timeout_s: float = 30.0
    """mta: Time that connecting to a mail server may take."""
    reply_timeout_s: float = 300.0
    """mta: Time that a mail server may take for a greeting or a reply (RFC 5321 4.5.3.2)."""
    final_dot_timeout_s: float = 600.0
    """mta: Time that a mail server may take for its reply to a whole message (RFC 5321 4.5.3.2.6); giving up earlier
    delivers twice."""
    retry_ladder_s: tuple[float, ...] = (
        30, 60, 120, 300, 900, 1800, 3600, 7200, 14400, 28800,
    )  # fmt: skip
    """mta: Waits between the attempts of a delivery; the last one repeats until `give_up_s`."""
    give_up_s: float = 72 * 3600.0
    """api, mta, worker: Time after which a message that could not be delivered bounces."""
    schedule_grace_s: float = 3600.0
    """worker: Time for which the release of a scheduled message waits for quota."""
    drain_s: float = 20.0
    """all: Time that a process has to finish its work when it is told to stop."""
    tls_cert: Path | None = None
    """relay: PEM file with the certificate chain of SMTP submission; unset: made by itself, in local mode only."""
    tls_key: Path | None = None
    """relay: PEM file with the key of that certificate."""
    relay_sessions: int = 2_000
    """relay: Most SMTP sessions that one relay process holds open."""
    relay_sessions_each: int = 100
    """relay: Most of them from one address, or one IPv6 /64."""
    relay_idle_s: float = 300.0
    """relay: Time without a command after which an SMTP session is closed (RFC 5321 4.5.3.2.7)."""
    relay_login_s: float = 60.0
    """relay: Time from connecting to a successful AUTH."""
    relay_session_s: float = 3600.0
    """relay: Longest life of an SMTP session."""
    relay_login_delay_s: float = 1.0
    """relay: Wait before a refused AUTH is answered."""
    proxy_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """relay: Networks of load balancers that speak the PROXY protocol (v1, v2) to the relay."""
    http_proxy_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """api: Networks of load balancers whose X-Forwarded-For the API believes."""
    webhook_ladder_s: tuple[float, ...] = (10, 60, 300, 1800, 7200, 21600, 43200)
    """worker: Waits between the attempts of a webhook post."""
    webhook_timeout_s: float = 10.0
    """worker: Time for connecting to an endpoint, sending and the whole answer together."""
    webhook_connections: int = 1_000
    """worker: Most requests to webhook endpoints that one worker has in flight."""
    webhook_connections_each: int = 16
    """worker: Most of them to one endpoint."""
    domain_check_s: float = 6 * 3600.0
    """worker: Time between two checks of a verified domain's DNS records."""
    cloudflare_url: str = "https://api.cloudflare.com"
    """api: Base URL of Cloudflare's API, which publishes DNS records for customers who ask for it."""
    tail_heartbeat_s: float = 15.0
    """api: Time between two heartbeats on an open tail."""
    tail_idle_s: float = 900.0
    """api: Time without a message event after which a tail is closed."""
    tail_lease_s: float = 6.0
    """api: Time for which the places of a worker that died stay taken."""
    tails_per_worker: int = 5_000
    """api: Most tails that one API worker holds open."""
    stream_write_s: float = 30.0
    """api: Time without progress after which a client that reads nothing of its answer is cut off."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """api, relay, mta, worker: Lowest level of the log lines that are written; `ops log level` changes it for a
    while."""
    signup: Literal["open", "closed"] = "open"
    """api: `open` lets everybody sign up, `closed` lets people in by invitation only."""
    signup_challenge: Literal["off", "required"] = "off"
    """api: `required` asks for a proof of work at sign-up."""
    idp_issuer: str | None = None
    """api: Issuer URL of the OpenID Connect provider that people may sign in with; unset: none."""
    idp_client_id: str | None = None
    """api: Client id at that provider."""
    idp_client_secret: str | None = None
    """api: Client secret at that provider."""
    idp_name: str | None = None
    """api: Name of the provider as people know it; unset: the issuer's host."""
    idp_scopes: str = "openid email profile"
    """api: Scopes to ask the provider for."""
    idp_app_redirects: tuple[str, ...] = ()
    """api: URIs at which apps take a sign-in back, such as com.example.app:/signed-in."""
    allow_private_idp: bool | None = None
    """api: Whether the issuer may lie on a private address; unset: in local mode only."""
    passkey_rp_id: str | None = None
    """api: Domain that passkeys belong to, a domain above the public URL's host; unset: that host."""
    python: str | None = None
    """start: Python to make the virtual environment with on the first start, a path or a name on PATH; unset: an
    optimised build of the same or a newer version where there is one."""


_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)  # libpq and redis-py take it there too
MIN_PEPPER = 16
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?:\.(?!-)[a-z0-9-]{1,63})+", re.ASCII | re.IGNORECASE)
_ADDRESS = re.compile(rf"[a-z0-9._+-]{{1,64}}@{_HOST.pattern}", re.ASCII | re.IGNORECASE)
_SENDER = re.compile(rf"{_ADDRESS.pattern}|[^<>@\x00-\x1f]{{1,100}} <{_ADDRESS.pattern}>", re.IGNORECASE)
SECRETS = frozenset({"key_pepper", "database_url", "redis_url", "idp_client_secret"})
_NO_APP = frozenset({"", "http", "javascript", "data", "file", "vbscript", "blob", "about"})  # no app's
_PORTS = tuple(name for name in Settings.__struct_fields__ if name.endswith("_port"))
_AT_LEAST: dict[str, float] = {
    "api_workers": 1, "mta_workers": 1, "platform_daily_ceiling": 0, "max_message_bytes": 64 * 1024,
    "max_request_bytes": 64 * 1024, "max_inflight_bytes": MEBIBYTE, "body_deadline_s": 1,
    "body_min_bytes_per_s": 0, "request_rate": 0, "unauthenticated_rate": 1, "sign_in_rate": 1, "shards": 1,
    "lease_s": 1, "fresh_due_s": 0.5, "split_rate": 0, "split_share": 0, "split_after_s": 0, "merge_after_s": 0,
    "balance_rate": 0, "balance_after_s": 0,
    "site_connections": 1, "messages_per_connection": 1, "mta_active_limit": 10, "mta_connections": 1,
    "relay_workers": 0, "relay_sessions": 1, "relay_sessions_each": 1, "relay_idle_s": 1, "relay_login_s": 1,
    "relay_session_s": 1, "relay_login_delay_s": 0,
    "connect_timeout_s": 0.1, "domain_check_s": 1,
    "reply_timeout_s": 0.1, "final_dot_timeout_s": 0.1, "give_up_s": 1, "schedule_grace_s": 0, "drain_s": 0,
    "webhook_timeout_s": 0.1, "webhook_connections": 10, "webhook_connections_each": 1,
    "tail_heartbeat_s": 0.1, "tail_idle_s": 0.1, "tail_lease_s": 1, "tails_per_worker": 1, "stream_write_s": 0.1,
}  # fmt: skip


class Loaded(Struct, frozen=True):
    """Settings and, per field, where its value came from: `default` or the variable's name."""

    settings: Settings
    origin: dict[str, str]


def variable(field: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field.upper()


def load(environ: Mapping[str, str]) -> Loaded:
    """Read all settings; raises BadSetting for an unusable value or an unknown WAYBILL_ variable."""
    values: dict[str, Any] = {}
    origin = dict.fromkeys(Settings.__struct_fields__, "default")
    known = {variable(field): field for field in Settings.__struct_fields__}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX):
            continue
        field = known.get(name)
        if field is None:
            raise BadSetting(unknown_setting(name))
        if text == "":
            continue
        values[field] = _parse(name, field, text)
        origin[field] = name
    settings = msgspec.structs.replace(Settings(), **values)
    if "public_url" not in values:
        settings = msgspec.structs.replace(settings, public_url=f"http://127.0.0.1:{settings.api_port}")
    _check(settings)
    return Loaded(settings, origin)


def unknown_setting(name: str) -> str:
    """Return what to say about a variable that is no setting: its neighbour, or where they are listed."""
    close = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), Settings.__struct_fields__, n=1)
    meant = f"Did you mean {variable(close[0])}?" if close else "ops/runbooks/settings.md lists them."
    return f"{name} is not a setting of Waybill. {meant}"


def shown(loaded: Loaded) -> list[tuple[str, str, str]]:
    """(variable, value with secrets masked, origin) of every setting, in declaration order."""
    rows = []
    for field in Settings.__struct_fields__:
        value = getattr(loaded.settings, field)
        text = text_of(value)
        if field in SECRETS and value is not None:
            text = _masked(text)
        rows.append((variable(field), text, loaded.origin[field]))
    return rows


def to_environ(settings: Settings) -> dict[str, str]:
    """The variables that make a child process read these same settings."""
    default = Settings()
    return {
        variable(field): text_of(value)
        for field in Settings.__struct_fields__
        if (value := getattr(settings, field)) is not None
        and (value != getattr(default, field) or field == "public_url")
    }


def text_of(value: object) -> str:
    """Return a value as the environment writes it; None is empty."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return "" if value is None else str(value)


def _masked(text: str) -> str:
    """A URL keeps its host and loses every password in it; any other secret shows nothing."""
    if "://" not in text:
        return "********"
    password = server_url.split(text).password
    if password:
        text = text.replace(f":{password}@", ":********@")
    return _QUERY_PASSWORD.sub(r"\1********", text)


def _parse(name: str, field: str, text: str) -> object:
    kind = Settings.__annotations__[field]
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


def _numbers(text: str) -> tuple[float, ...]:
    found = tuple(_finite(item) for item in text.split(","))
    if not all(number > 0 for number in found):
        raise ValueError(text)
    return found


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


def _file(text: str) -> Path:
    return Path(text).expanduser().absolute()  # other processes of ours start in other folders


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(item.strip()) for item in text.split(","))


_PARSERS: dict[object, Callable[[str], object]] = {
    Path: Path,
    Path | None: _file,
    tuple[IPv4Network | IPv6Network, ...]: _networks,
    str: str,
    str | None: str,
    int: int,
    float: _finite,
    bool: _bool,
    bool | None: _bool,
    tuple[HostPort, ...]: _host_ports,
    tuple[SourceIp, ...]: _source_ips,
    tuple[float, ...]: _numbers,
    tuple[str, ...]: _list,
}
_EXPECTED: dict[object, str] = {
    int: "a whole number",
    float: "a number of seconds",
    bool: "true or false",
    bool | None: "true or false",
    tuple[HostPort, ...]: "a list host:port,host:port",
    tuple[SourceIp, ...]: "a list of different addresses of this host, such as 192.0.2.1=mta1.example.com,2001:db8::1",
    tuple[IPv4Network | IPv6Network, ...]: "a list of networks such as 10.0.0.0/8,fd00::/8",
    tuple[float, ...]: "a list of seconds above 0, such as 30,60,120",
}


def _check(settings: Settings) -> None:
    for field in _PORTS:
        if not 0 < getattr(settings, field) < 65536:
            raise BadSetting(f"{variable(field)} is {getattr(settings, field)}; it must be a port from 1 to 65535")
    for field, least in _AT_LEAST.items():
        if not getattr(settings, field) >= least:
            raise BadSetting(f"{variable(field)} is {getattr(settings, field)}; it must be at least {least:g}")
    for field, schemes in (
        ("database_url", ("postgresql", "postgres")),
        ("public_url", ("http", "https")),
        ("cloudflare_url", ("http", "https")),
    ):
        value = getattr(settings, field)
        if value is not None and _scheme(value) not in schemes:
            raise BadSetting(f"{variable(field)} must be a URL that begins with {' or '.join(schemes)}://")
    _check_processes(settings)
    _check_redis(settings)
    _check_names(settings)
    _check_identity_provider(settings)
    _check_passkeys(settings)
    if settings.key_pepper is not None and len(settings.key_pepper) < MIN_PEPPER:
        raise BadSetting(f"{variable('key_pepper')} must have at least {MIN_PEPPER} characters, all of them random")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise BadSetting(f"{variable('tls_cert')} and {variable('tls_key')} belong together; set both or neither")
    if settings.tls_authorities is not None and not settings.tls_authorities.is_file():
        raise BadSetting(f"{variable('tls_authorities')} is {settings.tls_authorities}; there is no such file")
    if settings.shards > 65536:
        raise BadSetting(f"{variable('shards')} is {settings.shards}; it must be at most 65536")


def _check_processes(settings: Settings) -> None:
    unknown = [name for name in settings.processes if name not in PROCESSES]
    if unknown or not settings.processes or len(set(settings.processes)) < len(settings.processes):
        raise BadSetting(
            f"{variable('processes')} is {','.join(settings.processes)!r}; it must be a list of different ones of "
            f"{', '.join(PROCESSES)}"
        )
    own = [variable(field) for field in ("database_url", "redis_url") if getattr(settings, field) is None]
    if own and set(settings.processes) != set(PROCESSES):
        raise BadSetting(
            f"{variable('processes')} leaves something to other hosts, and without {' and '.join(own)} this host "
            "would keep a database of its own that they do not see; set the URLs that all hosts share, and the "
            f"{variable('key_pepper')} that all share"
        )


def _check_redis(settings: Settings) -> None:
    if settings.redis_url is None:
        return
    try:
        redis_url.parse(settings.redis_url)
    except ValueError as error:
        raise BadSetting(f"{variable('redis_url')} must be {error}") from None


def _check_names(settings: Settings) -> None:
    if not _HOST.fullmatch(settings.mail_host):
        raise BadSetting(
            f"{variable('mail_host')} is {settings.mail_host!r}; it must be a host name such as mail.example.com"
        )
    if settings.system_from is not None and not _SENDER.fullmatch(settings.system_from):
        raise BadSetting(
            f"{variable('system_from')} is {settings.system_from!r}; it must be an address such as "
            "no-reply@example.com or Example <no-reply@example.com>"
        )
    for source in settings.source_ips:
        if source.name is not None and not _HOST.fullmatch(source.name):
            raise BadSetting(
                f"{variable('source_ips')} names {source.ip} {source.name!r}; that must be a host name such as"
                " mta1.example.com"
            )
    if settings.tls_report_from is not None and not _ADDRESS.fullmatch(settings.tls_report_from):
        raise BadSetting(
            f"{variable('tls_report_from')} is {settings.tls_report_from!r}; it must be an address such as "
            "tls-reports@example.com"
        )


def _check_passkeys(settings: Settings) -> None:
    wanted = settings.passkey_rp_id
    if wanted is None:
        return
    host = urlsplit(settings.public_url).hostname or ""
    if not _HOST.fullmatch(wanted) or not f".{host}".endswith(f".{wanted.lower()}"):
        raise BadSetting(
            f"{variable('passkey_rp_id')} is {wanted!r}; it must be the host name in {variable('public_url')}, or a "
            "domain above it"
        )


def _check_identity_provider(settings: Settings) -> None:
    given = [settings.idp_issuer, settings.idp_client_id, settings.idp_client_secret]
    if any(value is None for value in given) and any(value is not None for value in given):
        named = ", ".join(variable(field) for field in ("idp_issuer", "idp_client_id", "idp_client_secret"))
        raise BadSetting(f"{named} belong together; set all three or none")
    schemes = ("https", "http") if settings.delivery == "local" else ("https",)
    if settings.idp_issuer is not None and not _is_issuer(settings.idp_issuer, schemes):
        raise BadSetting(
            f"{variable('idp_issuer')} is {settings.idp_issuer!r}; it must be an https:// URL without query and "
            "fragment, exactly as the provider writes it (http:// in local mode only)"
        )
    if "openid" not in settings.idp_scopes.split():
        raise BadSetting(f"{variable('idp_scopes')} is {settings.idp_scopes!r}; it must hold the scope openid")
    for redirect in settings.idp_app_redirects:
        if _scheme(redirect) in _NO_APP or "#" in redirect or not redirect.isascii() or not redirect.isprintable():
            raise BadSetting(
                f"{variable('idp_app_redirects')} holds {redirect!r}; each must be a URI of an app's own scheme, or an "
                "https:// URL that an app has claimed, without fragment"
            )


def _is_issuer(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in schemes and bool(url.hostname) and not (url.query or url.fragment) and text.isascii()
    except ValueError:
        return False


def _scheme(url: str) -> str:
    return server_url.split(url).scheme
