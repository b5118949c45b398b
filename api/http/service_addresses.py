"""Name the addresses at which clients reach this service, for `GET /v1/instance` and the documentation. Pure."""

from importlib.util import find_spec
from typing import Final, NamedTuple

from engine.base.local_mode import sends_without_login
from engine.base.netaddr import connect_host
from engine.base.settings import HostPort, Settings
from engine.base.version import version
from engine.people.passkeys.rules import is_loopback

SMTP_PORT = 25  # at which other mail servers deliver
_MCP: Final = "This installation answers at that address."
_NO_MCP: Final = "This installation does not answer there: its operator has not installed the extra package."


class SubmissionAddress(NamedTuple):
    """The server for SMTP submission."""

    host: str
    starttls_port: int
    tls_port: int
    open: bool  # to programs on this machine, without TLS and login


def submission(settings: Settings) -> SubmissionAddress:
    """Return the address of SMTP submission; loopback in local mode only."""
    local = settings.delivery == "local" and is_loopback(settings.submission_host)
    host = settings.submission_host if local else settings.mail_host
    is_open = local and sends_without_login(settings)
    return SubmissionAddress(host, settings.submission_port, settings.submission_tls_port, is_open)


def has_submission(settings: Settings) -> bool:
    """Return True if the service takes mail by SMTP; other hosts run `relay` processes if this one does not."""
    if "relay" not in settings.processes:
        return True
    return settings.relay_workers > 0 and bool(settings.delivery == "local" or settings.tls_cert)


def incoming(settings: Settings) -> HostPort:
    """Return the address for incoming mail: where the server listens, in live mode port 25 of the mail host."""
    if settings.delivery == "local":
        return HostPort(connect_host(settings.mx_host), settings.mx_port)
    return HostPort(settings.mail_host, SMTP_PORT)


def has_incoming(settings: Settings) -> bool:
    """Return True if the service takes mail from other servers; other hosts run `mx` processes if this one does not."""
    return "mx" not in settings.processes or settings.mx_workers > 0


def has_mcp() -> bool:
    """Return True if the SDK of the MCP server is installed here: the extra `mcp`."""
    return find_spec("mcp") is not None


def placeholders(settings: Settings) -> dict[str, str]:
    """Return the values of the placeholders that guides contain, by name: `{{base}}` and the like."""
    relay = submission(settings)
    return {
        "base": settings.public_url.rstrip("/"),
        "submission": str(HostPort(relay.host, relay.starttls_port)),
        "submission_host": relay.host,
        "submission_port": str(relay.starttls_port),
        "submission_tls_port": str(relay.tls_port),
        "mx": str(incoming(settings)),
        "mcp": _MCP if has_mcp() else _NO_MCP,
        "version": version(),
    }


def filled(text: str, settings: Settings) -> str:
    """Fill the placeholders of a guide. Other text in double braces, such as that of templates, stays."""
    for name, value in placeholders(settings).items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def moved(text: str, settings: Settings) -> str:
    """Replace the addresses of a first start, with which the operators' pages are written, by those of this service."""
    first = placeholders(Settings())
    own = placeholders(settings)
    for name in ("base", "submission", "mx"):
        text = text.replace(first[name], own[name])
    return text
