"""The `relay` process: load the TLS certificate, then serve SMTP submission (`mta.submission`)."""

import argparse
import os
import sys
from pathlib import Path

import uvloop

from engine.base import logs, scheduling
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import Settings, load, variable
from engine.store import service_time, socket_activation
from engine.store.migrate import MigrationError
from engine.store.traces import TRACES
from mta.submission.process import run
from ops.host import sockets
from ops.processes.certificates import NoCertificate, configured, self_signed


def main() -> int:
    """Serve until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="ops.processes.relay")
    parser.add_argument("--name", default="relay-1")
    settings = load(os.environ).settings
    name: str = parser.parse_args().name
    logs.configure(name, settings.log_level, settings.state)
    service_time.join(settings)
    scheduling.yield_to_running()
    try:
        own, key = certificate_files(settings)
        found = socket_activation.take()
    except (NoCertificate, socket_activation.WrongSockets) as error:
        print(error, file=sys.stderr)
        return 1
    clear, secured = (found.get(kind, []) for kind in (sockets.SUBMISSION, sockets.SUBMISSIONS))
    given = [(one, False) for one in clear] + [(one, True) for one in secured]
    try:
        with TRACES.during(settings, name):
            uvloop.run(run(settings, own, key, given, name=name))
    except (MigrationError, UnsupportedServer) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def certificate_files(settings: Settings) -> tuple[Path, Path]:
    """Return the paths of certificate and key, self-signed in local mode by default; raises NoCertificate."""
    found = configured(settings)
    if found is None and settings.delivery == "live":
        raise NoCertificate(
            f"SMTP submission needs a certificate: set {variable('tls_cert')} and {variable('tls_key')}, or"
            f" {variable('relay_workers')}=0 to go without."
        )
    return found or self_signed(settings, "relay")


if __name__ == "__main__":
    raise SystemExit(main())
