"""Check settings for values that are out of range, malformed or contradict one another, before a process starts."""

import os
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from engine.base import redis_url, server_url
from engine.base.settings.fields import FRONT, MEBIBYTE, PROCESSES, Settings
from engine.base.settings.values import BadSetting, variable

MIN_PEPPER = 16
MAX_PORT_BASE = 65_500  # leaves room for the ports in a row that begin there
MAX_RESERVE = 0.5  # of an account's limits, which broadcasts leave unused
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?:\.(?!-)[a-z0-9-]{1,63})+", re.ASCII | re.IGNORECASE)
_CELL = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_ADDRESS = re.compile(rf"[a-z0-9._+-]{{1,64}}@{_HOST.pattern}", re.ASCII | re.IGNORECASE)
_SENDER = re.compile(rf"{_ADDRESS.pattern}|[^<>@\x00-\x1f]{{1,100}} <{_ADDRESS.pattern}>", re.IGNORECASE)
_HTTPS = re.compile(rf"https://{_HOST.pattern}(?::[0-9]{{1,5}})?(?:/[!-~]*)?", re.ASCII)
# Schemes that belong to browsers, not to apps.
_NO_APP_SCHEMES = frozenset({"", "http", "javascript", "data", "file", "vbscript", "blob", "about"})
_PORTS = tuple(name for name in Settings.__struct_fields__ if name.endswith("_port"))
_MINIMUM: dict[str, float] = {
    "api_workers": 1, "mta_workers": 1, "platform_daily_ceiling": 0, "max_message_bytes": 64 * 1024,
    "max_request_bytes": 64 * 1024, "max_inflight_bytes": MEBIBYTE, "body_deadline_s": 1,
    "body_min_bytes_per_s": 0, "request_rate": 0, "unauthenticated_rate": 1, "sign_in_rate": 1, "shards": 1,
    "lease_s": 1, "fresh_due_s": 0.5, "split_rate": 0, "split_share": 0, "split_after_s": 0, "merge_after_s": 0,
    "balance_rate": 0, "balance_after_s": 0, "read_lag_s": 2,
    "site_connections": 1, "messages_per_connection": 1, "mta_active_limit": 10, "mta_connections": 1,
    "relay_workers": 0, "relay_sessions": 1, "relay_sessions_each": 1, "relay_idle_s": 1, "relay_login_s": 1,
    "relay_session_s": 1, "relay_login_delay_s": 0,
    "mx_workers": 0, "mx_sessions": 1, "mx_sessions_each": 1, "mx_idle_s": 1, "mx_session_s": 1,
    "mx_unsolicited_bytes_each": 64 * 1024, "reports_max_bytes": MEBIBYTE,
    "inbound_max_bytes": 64 * 1024, "inbound_max_inflight_bytes": MEBIBYTE, "rspamd_timeout_s": 0.1,
    "clamd_timeout_s": 0.1,
    "connect_timeout_s": 0.1, "domain_check_s": 1, "blocklist_check_s": 60,
    "reply_timeout_s": 0.1, "final_dot_timeout_s": 0.1, "give_up_s": 1, "schedule_grace_s": 0, "drain_s": 0,
    "broadcast_reserve": 0,
    "webhook_timeout_s": 0.1, "webhook_connections": 10, "webhook_connections_each": 1,
    "tail_heartbeat_s": 0.1, "tail_idle_s": 0.1, "tail_lease_s": 1, "tails_per_worker": 1, "stream_write_s": 0.1,
}  # fmt: skip


def check(settings: Settings) -> None:
    """Raise BadSetting for the first wrong setting."""
    _check_ports(settings)
    for field, minimum in _MINIMUM.items():
        if not getattr(settings, field) >= minimum:
            raise BadSetting(f"{variable(field)} is {getattr(settings, field)}; it must be at least {minimum:g}")
    for field, schemes in (
        ("database_url", ("postgresql", "postgres")),
        ("database_read_url", ("postgresql", "postgres")),
        ("public_url", ("http", "https")),
        ("cloudflare_url", ("http", "https")),
        ("rspamd_url", ("http", "https")),
    ):
        value = getattr(settings, field)
        if value is not None and _scheme(value) not in schemes:
            raise BadSetting(f"{variable(field)} must be a URL that begins with {' or '.join(schemes)}://")
    _check_cells(settings)
    _check_processes(settings)
    _check_login(settings)
    _check_replicas(settings)
    _check_database(settings)
    _check_redis(settings)
    _check_incoming_mail(settings)
    _check_names(settings)
    _check_reporters(settings)
    _check_identity_provider(settings)
    _check_operators(settings)
    _check_passkeys(settings)
    _check_peppers(settings)
    if settings.submission_open and settings.delivery == "live":
        raise BadSetting(
            f"{variable('submission_open')} is true, but live mode accepts no mail without a login; unset it, or "
            f"set {variable('delivery')}=local"
        )
    if not settings.durable and settings.delivery == "live":
        raise BadSetting(
            f"{variable('durable')} is false, but live mode keeps every accepted message over a power failure; unset it"
        )
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise BadSetting(f"{variable('tls_cert')} and {variable('tls_key')} belong together; set both or neither")
    if settings.tls_authorities is not None and not settings.tls_authorities.is_file():
        raise BadSetting(f"{variable('tls_authorities')} is {settings.tls_authorities}; no such file exists")
    if settings.broadcast_reserve > MAX_RESERVE:
        raise BadSetting(
            f"{variable('broadcast_reserve')} is {settings.broadcast_reserve}; it must be at most {MAX_RESERVE}"
        )
    if settings.shards > 65536:
        raise BadSetting(f"{variable('shards')} is {settings.shards}; it must be at most 65536")


def is_small(settings: Settings) -> bool:
    """Return True in the small profile: the default of local mode, where one host runs the whole service."""
    if settings.profile == "auto":
        return settings.delivery == "local" and runs_everything(settings)
    return settings.profile == "small"


def runs_everything(settings: Settings) -> bool:
    """Return True if this host runs the whole service; incoming mail may be left out."""
    return {*settings.processes, "mx"} == set(PROCESSES)


def _check_ports(settings: Settings) -> None:
    if settings.port_base is not None and not 0 < settings.port_base <= MAX_PORT_BASE:
        raise BadSetting(f"{variable('port_base')} is {settings.port_base}; it must be from 1 to {MAX_PORT_BASE}")
    for field in _PORTS:
        port = getattr(settings, field)
        if port is not None and not 0 < port < 65536:
            raise BadSetting(f"{variable(field)} is {port}; it must be a port from 1 to 65535")


def _check_peppers(settings: Settings) -> None:
    for name, pepper in (("key_pepper", settings.key_pepper), ("key_pepper_previous", settings.key_pepper_previous)):
        if pepper is not None and len(pepper) < MIN_PEPPER:
            raise BadSetting(f"{variable(name)} must have at least {MIN_PEPPER} characters, all of them random")
    if settings.key_pepper_previous is None:
        return
    if settings.key_pepper is None:
        raise BadSetting(f"{variable('key_pepper_previous')} is set without {variable('key_pepper')}. Set both.")
    if settings.key_pepper == settings.key_pepper_previous:
        raise BadSetting(
            f"{variable('key_pepper')} and {variable('key_pepper_previous')} are equal. Set a new key pepper, or unset"
            " the previous one."
        )


def _check_cells(settings: Settings) -> None:
    if settings.cell is not None and _CELL.fullmatch(settings.cell) is None:
        raise BadSetting(f"{variable('cell')} is {settings.cell!r}; it must be lower-case letters, digits and hyphens")
    if settings.directory_url is None:
        if settings.cell is not None or FRONT in settings.processes:
            raise BadSetting(f"{variable('directory_url')} is not set, but cells and fronts need it; set it too")
    elif _scheme(settings.directory_url) not in ("postgresql", "postgres"):
        raise BadSetting(f"{variable('directory_url')} must be a URL that begins with postgresql://")
    elif settings.cell is None and settings.processes != (FRONT,):
        raise BadSetting(f"{variable('cell')} is not set; name this installation as in the directory")


def _check_processes(settings: Settings) -> None:
    if settings.processes == (FRONT,):
        return
    unknown = [name for name in settings.processes if name not in PROCESSES]
    if unknown or not settings.processes or len(set(settings.processes)) < len(settings.processes):
        raise BadSetting(
            f"{variable('processes')} is {','.join(settings.processes)!r}; it must be a list of different ones of "
            f"{', '.join(PROCESSES)}, or {FRONT} alone"
        )
    own = [variable(field) for field in ("database_url", "redis_url") if getattr(settings, field) is None]
    if own and not runs_everything(settings):
        raise BadSetting(
            f"{variable('processes')} leaves some processes to other hosts, but without {' and '.join(own)} this host "
            "uses an embedded database that they can't reach; set the same URLs and the same "
            f"{variable('key_pepper')} on all hosts"
        )


def _check_login(settings: Settings) -> None:
    urls = (("database_url", settings.database_url), ("database_read_url", settings.database_read_url))
    for field, url in (*urls, ("redis_url", settings.redis_url)):
        stray = server_url.unescaped(url or "")
        if stray and not (field == "redis_url" and stray == "@"):  # _check_redis: credentials before each host
            raise BadSetting(
                f"{variable(field)} has {stray} in its user name or password; percent-encode it: write"
                f" %{ord(stray):02X} instead"
            )


def _check_replicas(settings: Settings) -> None:
    if settings.database_read_url is None:
        return
    parts = server_url.split(settings.database_read_url)
    if not parts.hosts and "host=" not in parts.query:
        raise BadSetting(f"{variable('database_read_url')} must name the hosts of the replicas")
    if settings.database_url is None:
        raise BadSetting(
            f"{variable('database_read_url')} is set without {variable('database_url')}, but the embedded server has "
            "no replicas; unset it, or set both"
        )


def _check_database(settings: Settings) -> None:
    for field, url in (("database_url", settings.database_url), ("database_read_url", settings.database_read_url)):
        parts = server_url.split(url or "")
        query = parse_qs(parts.query)
        try:
            for item in (*parts.hosts, *(f"host:{port}" for port in query.get("port", [""])[-1].split(","))):
                server_url.host_port(item)
        except ValueError:
            raise BadSetting(
                f"{variable(field)} must name hosts such as db1.example:5432,db2.example:5432, with ports up to"
                f" {server_url.MAX_PORT}"
            ) from None
        _check_files(field, query, "sslrootcert", "sslcert", "sslkey", "sslcrl")


def _check_files(field: str, query: dict[str, list[str]], *options: str) -> None:
    """Raise BadSetting if an option of a URL names a file that this process can't read."""
    for option in options:
        path = query.get(option, [""])[-1]
        if path and not os.access(path, os.R_OK):
            problem = "may not be read by this user" if Path(path).exists() else "does not exist"
            raise BadSetting(f"{option} in {variable(field)} is {path}, which {problem}")


def _check_redis(settings: Settings) -> None:
    if settings.redis_url is None:
        return
    try:
        redis_url.parse(settings.redis_url)
    except ValueError as error:
        raise BadSetting(f"{variable('redis_url')} must be {error}") from None
    query = parse_qs(server_url.split(settings.redis_url).query)
    _check_files("redis_url", query, "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


def _check_incoming_mail(settings: Settings) -> None:
    for scanner, required in (("rspamd_url", "rspamd_required"), ("clamd", "clamd_required")):
        if getattr(settings, required) and getattr(settings, scanner) is None:
            raise BadSetting(f"{variable(required)} is true, but {variable(scanner)} is not set; set it too")
    if settings.inbound_max_inflight_bytes < settings.inbound_max_bytes:
        raise BadSetting(
            f"{variable('inbound_max_inflight_bytes')} is {settings.inbound_max_inflight_bytes}; it must be at least "
            f"{variable('inbound_max_bytes')} ({settings.inbound_max_bytes}), or no message of that size can arrive"
        )


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
    contact = settings.security_contact
    if contact is not None and not (_ADDRESS.fullmatch(contact) or _HTTPS.fullmatch(contact)):
        raise BadSetting(
            f"{variable('security_contact')} is {contact!r}; it must be an address such as security@example.com, or a "
            "URL that begins with https://"
        )


def _check_operators(settings: Settings) -> None:
    for address in settings.operators:
        if not _ADDRESS.fullmatch(address):
            raise BadSetting(
                f"{variable('operators')} names {address!r}; give the email addresses that the operators sign in with,"
                " such as ann@example.com,bob@example.com"
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


def _check_reporters(settings: Settings) -> None:
    for one in settings.complaint_reporters:
        if one != one.lower() or not (_ADDRESS.fullmatch(one) or _HOST.fullmatch(one)):
            raise BadSetting(
                f"{variable('complaint_reporters')} contains {one!r}; each must be an address or a domain in lower "
                "case, such as feedback@example.com or fbl.example.com"
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
        raise BadSetting(f"{variable('idp_scopes')} is {settings.idp_scopes!r}; it must contain the scope openid")
    for redirect in settings.idp_app_redirects:
        if (
            _scheme(redirect) in _NO_APP_SCHEMES
            or "#" in redirect
            or not redirect.isascii()
            or not redirect.isprintable()
        ):
            raise BadSetting(
                f"{variable('idp_app_redirects')} contains {redirect!r}; each must be a URI of an app's own scheme, "
                "or an https:// URL that an app has claimed, without fragment"
            )


def _is_issuer(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in schemes and bool(url.hostname) and not (url.query or url.fragment) and text.isascii()
    except ValueError:
        return False


def _scheme(url: str) -> str:
    return server_url.split(url).scheme
