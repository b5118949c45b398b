"""The `front-smtp` process: load the TLS certificate, then serve SMTP before the cells (`mta.front`)."""

import os
import sys

import uvloop

from engine.base import logs, scheduling
from engine.base.settings import load
from engine.store import socket_activation
from mta.front.process import run
from ops.host import sockets
from ops.processes.certificates import NoCertificate, configured, self_signed


def main() -> int:
    """Serve until SIGTERM; return the exit status."""
    settings = load(os.environ).settings
    logs.configure("front-smtp", settings.log_level, settings.state)
    scheduling.yield_to_running()
    try:
        found = configured(settings)
        own, key = found or self_signed(settings, "front")
        given = socket_activation.take()
    except (NoCertificate, socket_activation.WrongSockets) as error:
        print(error, file=sys.stderr)
        return 1
    clear, secured, mail = (given.get(kind, []) for kind in (sockets.SUBMISSION, sockets.SUBMISSIONS, sockets.SMTP))
    # As a relay, it accepts no logins in live mode without a certificate that programs can check.
    logins = settings.relay_workers and (found is not None or settings.delivery == "local")
    submission = [(one, False) for one in clear] + [(one, True) for one in secured] if logins else None
    incoming = [(one, False) for one in mail] if settings.mx_workers else None
    uvloop.run(run(settings, own, key, submission=submission, incoming=incoming))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
