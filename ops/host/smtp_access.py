"""Compose the line of `ops up` that says how programs on this machine send mail over SMTP in local mode."""

from engine.base.local_mode import is_loopback, sends_without_login
from engine.base.netaddr import connect_host
from engine.base.settings import HostPort, Settings
from ops.host import process_specs
from ops.local import certificate


def smtp_lines(settings: Settings) -> list[str]:
    """Return the line, or nothing if this host takes no submission or mail goes to the internet."""
    if settings.delivery == "live" or not process_specs.relays(settings):
        return []
    host = connect_host(settings.submission_host)
    ways = [f"TLS and an API key as the password at {HostPort(host, settings.submission_tls_port)}"]
    if sends_without_login(settings) and is_loopback(host):
        ways.insert(0, f"without TLS and login at {HostPort(host, settings.submission_port)}, from this machine alone")
    file = settings.tls_cert or certificate.path_in(certificate.folder_of(settings.state, "relay"))
    return [f"SMTP {'; or '.join(ways)}. The certificate for programs that check it: {file}"]
