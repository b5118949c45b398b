"""Health check for containers: `python -m ops.host.healthcheck` exits with 0 while this host's service is healthy.

A host is healthy while all its processes are ready and, if it runs the API or a front, `/readyz` answers 200. With
`--alive` it is enough that its supervisor answers, which restarts processes itself.
"""

import os
import sys
import urllib.request
from collections.abc import Sequence

from engine.base.settings import FRONT, Settings, load
from ops.host import control
from ops.host.control import NoSupervisor, Refused

TIMEOUT_S = 4.0


def main(words: Sequence[str]) -> int:
    """Return the exit status: 0 healthy, 1 not."""
    settings = load(os.environ).settings
    try:
        rows = list(control.ask(settings.state.expanduser().absolute(), {"do": "status"}, TIMEOUT_S))
    except (NoSupervisor, Refused, OSError):
        return 1
    if "--alive" in words:
        return 0
    ready = all(row["process"]["ready"] for row in rows)
    serves = {"api", FRONT} & set(settings.processes)
    return 0 if ready and (not serves or _can_accept(settings)) else 1


def _can_accept(settings: Settings) -> bool:
    """Return True if the API is ready."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.api_host, settings.api_host)  # noqa: S104 - read, not bound
    try:
        with urllib.request.urlopen(f"http://{host}:{settings.api_port}/readyz", timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except OSError:  # of which URLError is one
        return False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
