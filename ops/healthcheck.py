"""`python -m ops.healthcheck`: 0 while this host's service is well, for a container's health check.

Where there is an API it says so itself; a host without one is well as long as its metrics or its supervisor answer.
"""

import os
import urllib.error
import urllib.request

from engine.base.settings import Settings, load
from ops.state import holder

PATIENCE_S = 4.0


def main() -> int:
    """The exit status."""
    settings = load(os.environ).settings
    if holder(settings.state.expanduser().absolute()) is None:
        return 1
    return 0 if _ready(settings) else 1


def _ready(settings: Settings) -> bool:
    """Whether the API is ready; a host that runs none refuses the connection, and that is well too."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.api_host, settings.api_host)  # noqa: S104 - read, not bound
    try:
        with urllib.request.urlopen(f"http://{host}:{settings.api_port}/readyz", timeout=PATIENCE_S) as answer:
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
