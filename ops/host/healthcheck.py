"""Health check for containers: `python -m ops.host.healthcheck` exits with 0 while this host's service is healthy.

A host that runs the API is healthy while `/readyz` answers 200; another host while its supervisor runs.
"""

import os
import urllib.error
import urllib.request

from engine.base.settings import Settings, load
from ops.host.state import holder

TIMEOUT_S = 4.0


def main() -> int:
    """Return the exit status: 0 healthy, 1 not."""
    settings = load(os.environ).settings
    if holder(settings.state.expanduser().absolute()) is None:
        return 1
    return 0 if _ready(settings) else 1


def _ready(settings: Settings) -> bool:
    """Return True if the API is ready, or if this host runs none and refuses the connection."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.api_host, settings.api_host)  # noqa: S104 - read, not bound
    try:
        with urllib.request.urlopen(f"http://{host}:{settings.api_port}/readyz", timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False
    except urllib.error.URLError as error:
        return isinstance(error.reason, ConnectionRefusedError) and not _serves_api()
    except OSError:
        return False


def _serves_api() -> bool:
    return "api" in os.environ.get("WAYBILL_PROCESSES", "api")


if __name__ == "__main__":
    raise SystemExit(main())
