"""The `mx` process: load the TLS certificate, then serve incoming mail (`mta.inbound`)."""

import argparse
import os
import sys

import uvloop

from engine.base import logs
from engine.base.server_versions import UnsupportedServer
from engine.base.settings import load
from engine.store import service_time, socket_activation
from engine.store.migrate import MigrationError
from mta.inbound.process import run
from ops.host import sockets
from ops.processes.certificates import NoCertificate, configured, self_signed


def main() -> int:
    """Serve until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="ops.processes.mx")
    parser.add_argument("--name", default="mx-1")
    settings = load(os.environ).settings
    name: str = parser.parse_args().name
    logs.configure(name, settings.log_level, settings.state)
    service_time.join(settings)
    try:
        # Most senders encrypt without checking the name (RFC 3207 4.1): a self-signed certificate beats none.
        own, key = configured(settings) or self_signed(settings, "mx")
        found = socket_activation.take()
    except (NoCertificate, socket_activation.WrongSockets) as error:
        print(error, file=sys.stderr)
        return 1
    given = [(one, False) for one in found.get(sockets.SMTP, [])]
    try:
        uvloop.run(run(settings, own, key, given, name=name))
    except (MigrationError, UnsupportedServer) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
