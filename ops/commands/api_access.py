"""Find the address and the key for commands that call the API as a customer's program does.

It imports neither the database nor the service, so that `ops sendmail` starts fast.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from engine.base.local_mode import FIRST_RUN
from engine.base.netaddr import connect_host
from engine.base.settings import HostPort, Loaded, load

KEY_VARIABLE = "WAYBILL_API_KEY"
URL_VARIABLE = "WAYBILL_URL"


class NoApiKey(RuntimeError):  # noqa: N818 - named for what it says
    """There is no API key to call the API with; the text says how to give one."""


def api_access(key: str | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `baseUrl`, `apiKey` and `domain` for calls to the API.

    The key is the given one, that of the variable, or that of the first run. Raises NoApiKey without any, BadSetting
    and OSError for settings and a first run that can't be read.
    """
    given = load(environ)
    file = Path(given.settings.state).expanduser() / FIRST_RUN
    found = {"baseUrl": given.settings.public_url, "domain": "", "apiKey": ""}
    own_key = key or environ.get(KEY_VARIABLE)
    if file.is_file() and not (own_key and not os.access(file, os.R_OK)):
        found |= json.loads(file.read_text("utf-8"))
        found["baseUrl"] = _base_url(given) or found["baseUrl"]
    found["apiKey"] = own_key or found["apiKey"]
    found["baseUrl"] = (environ.get(URL_VARIABLE) or found["baseUrl"]).rstrip("/")
    if not found["apiKey"]:
        raise NoApiKey(
            f"No API key: {file.parent} has no {FIRST_RUN}. Set {KEY_VARIABLE} (`ops key create` makes a key), or set"
            " WAYBILL_STATE to the state folder."
        )
    return found


def _base_url(given: Loaded) -> str | None:
    """Return the API's base URL if host or port are set in the environment; None to use the first run's."""
    if given.origin["api_host"] == given.origin["api_port"] == "default":
        return None
    return f"http://{HostPort(connect_host(given.settings.api_host), given.settings.api_port)}"
