"""Find the service that runs on a state folder: `ops up` records the URLs of its servers, and commands read them."""

import errno
import json
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.base.settings import FRONT, Loaded, Settings
from engine.base.version import COMMAND
from ops.host.state import holder, kept_peppers, make_state, write_private

RUNNING: Final = "running.json"


class NotRunning(RuntimeError):  # noqa: N818 - named for what it says
    """A command needs the embedded servers, and no `ops up` runs on the state folder."""


def attach(loaded: Loaded) -> Settings:
    """Return the settings of the service that runs on this state folder, for commands that run beside it.

    URLs come from the environment if set; those of embedded servers and the pepper come from the state folder. Raises
    NotRunning if an embedded server is needed and none runs.
    """
    settings = loaded.settings
    state = settings.state.expanduser().absolute()
    if state.is_dir() and not os.access(state, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(state))
    found: dict[str, Any] = {"state": state}
    if FRONT not in settings.processes and (settings.database_url is None or settings.redis_url is None):
        if holder(state) is None or not (state / RUNNING).is_file():
            raise NotRunning(f"Waybill does not run on {state}. Start it with `{COMMAND} up`.")
        running = json.loads((state / RUNNING).read_text())
        found["database_url"] = settings.database_url or running["databaseUrl"]
        found["redis_url"] = settings.redis_url or running["redisUrl"]
    if settings.key_pepper is None:
        found |= kept_peppers(make_state(state))
    if loaded.origin["public_url"] == "default":
        found["public_url"] = default_url(settings)
    return msgspec.structs.replace(settings, **found)


def record_running(settings: Settings, state: Path) -> None:
    """Write the file that `attach` reads."""
    running = {"pid": os.getpid(), "databaseUrl": settings.database_url, "redisUrl": settings.redis_url}
    write_private(state / RUNNING, json.dumps(running) + "\n")


def default_url(settings: Settings) -> str:
    """Return the URL of the API for those who are told no other."""
    return f"http://127.0.0.1:{settings.api_port}"
