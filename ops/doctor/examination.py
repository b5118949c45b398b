"""`ops doctor`: looks at everything an installation stands on and says in one sentence what would mend it.

Nothing is changed, nothing is sent to the world, and every look is bounded in time: a service that is down, hangs
or was never started is an answer too.
"""

import asyncio
import functools
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import structs

from engine.base.settings import Loaded, Settings, variable
from ops import bootstrap, interpreter, process_specs
from ops.doctor.database import database
from ops.doctor.dnssec import dnssec
from ops.doctor.finding import DoctorFinding, bad, check_failed, describe_error, good
from ops.doctor.listeners import api, metrics, sink, submission
from ops.doctor.names import names
from ops.doctor.sources import sources
from ops.doctor.stores import postgres_servers, redis
from ops.first_run import FILE as FIRST_RUN
from ops.state import holder
from ops.up import NotRunning, attach

OLDEST_PYTHON = (3, 11)
MIN_FREE_BYTES = 1024**3  # the API stops being ready at half of this
GROUP_TIMEOUT_S = 30.0  # for one server with all of its checks
START = "Start it with `python3 -m ops up`."


def examine(loaded: Loaded) -> list[DoctorFinding]:
    """All findings, in the order in which they are worth mending. Never raises; not for use inside an event loop."""
    state = loaded.settings.state.expanduser().absolute()
    found = [_guarded("python", _python), _guarded("packages", _packages)]
    found += [_guarded(name, functools.partial(check, state)) for name, check in (("state", _state), ("disk", _disk))]
    found.append(_guarded("pepper", lambda: _pepper(loaded.settings, state)))
    running = _guarded("service", lambda: _service(state))
    found.append(running)
    if not running.ok:
        found.append(_guarded("ports", lambda: _ports(loaded.settings)))
    settings = _attached(loaded, state)
    if isinstance(settings, DoctorFinding):
        return [*found, settings]
    return [*found, *asyncio.run(_servers(settings, running=running.ok))]


# -- this machine ---------------------------------------------------------------------------------


def _python() -> DoctorFinding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return bad("python", f"Python {version}", "Install Python 3.11 or newer and start again with it.")
    optimised = interpreter.build()
    price = "" if optimised else ": an optimised build sends up to 15% more messages a second"
    return good("python", f"Python {version} at {sys.base_prefix}, {interpreter.words(optimised)}{price}")


def _packages() -> DoctorFinding:
    prefix = Path(sys.prefix)
    record = prefix / bootstrap.RECORD
    if not record.is_file():
        return good("packages", f"{prefix} was not made by Waybill: its packages are its maker's business")
    wanted = hashlib.sha256((bootstrap.LOCKS / "run.txt").read_bytes()).hexdigest()
    if json.loads(record.read_text("utf-8")).get("locks", {}).get("run") == wanted:
        return good("packages", f"{prefix} holds what the lock asks for")
    mend = "Run `python3 -m ops bootstrap run` to install what the lock asks for."
    return bad("packages", f"{prefix} does not hold what ops/lock/run.txt asks for", mend)


def _state(state: Path) -> DoctorFinding:
    if not state.exists():
        return good("state", f"{state} does not exist yet: the first start makes it")
    if not state.is_dir() or not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        mend = f"Give this user the folder, or set {variable('state')} to one of its own."
        return bad("state", f"{state} can't be written by this user", mend)
    return good("state", f"{state} can be written")


def _disk(state: Path) -> DoctorFinding:
    folder = next(path for path in (state, *state.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / 1024**3:.1f} GiB free at {folder}"
    if free < MIN_FREE_BYTES:
        return bad("disk", found, f"Free at least 1 GiB, or set {variable('state')} to a folder on a larger disk.")
    return good("disk", found)


def _pepper(settings: Settings, state: Path) -> DoctorFinding:
    """Never made here: a fresh pepper beside old data would hide that the true one is lost."""
    if settings.key_pepper is not None:
        return good("pepper", f"taken from {variable('key_pepper')}")
    file = state / "pepper"
    if not file.is_file():
        if (state / FIRST_RUN).is_file():
            mend = f"Restore {file} from a backup: without it every API key and every signing key is lost."
            return bad("pepper", f"{file} is missing", mend)
        return good("pepper", "none yet: the first start makes it")
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        return bad("pepper", f"{file} has mode {mode:04o}", f"Close it to others with `chmod 600 {file}`.")
    if len(file.read_text("ascii", "replace").strip()) != 64:
        return bad("pepper", f"{file} does not hold 64 hexadecimal digits", f"Restore {file} from a backup.")
    return good("pepper", f"{file}, closed to others")


def _service(state: Path) -> DoctorFinding:
    pid = holder(state)
    if pid is None:
        return bad("service", f"Waybill does not run on {state}", START)
    return good("service", f"runs on {state} (process {pid})" if pid else f"runs on {state}")


def _ports(settings: Settings) -> DoctorFinding:
    try:
        process_specs.check_ports(settings)
    except process_specs.PortTaken as taken:
        return bad("ports", "a port that the service needs is not free", str(taken))
    return good("ports", "all that the service needs are free")


def _attached(loaded: Loaded, state: Path) -> Settings | DoctorFinding:
    """The settings with URLs and pepper filled in, without making anything; or why there are none."""
    settings = structs.replace(loaded.settings, state=state)
    if settings.key_pepper is None and not (state / "pepper").is_file():
        if settings.database_url is not None and settings.redis_url is not None:
            return settings
        return bad("servers", "PostgreSQL and Redis come with the service, which does not run", START)
    try:
        return attach(loaded)
    except NotRunning:
        return bad("servers", "PostgreSQL and Redis come with the service, which does not run", START)
    except Exception as error:  # noqa: BLE001 - the doctor reports what it can't look at
        return bad("servers", f"can't be found ({describe_error(error)})", f"Look at {state} and its running.json.")


# -- what it stands on ----------------------------------------------------------------------------

Look = Callable[[Settings], Awaitable[Sequence[DoctorFinding]]]


async def _servers(settings: Settings, *, running: bool) -> list[DoctorFinding]:
    """Findings of all servers, asked at the same time, in the order of the table."""
    looks: list[tuple[str, Look]] = [("postgres", database), ("postgres servers", postgres_servers), ("redis", redis)]
    if running:
        looks += [("api", api), ("submission", submission), ("metrics", metrics)]
        if settings.delivery == "local":
            looks.append(("sink", sink))
    if running or settings.delivery == "live":
        looks += [("dns", names), ("dnssec", dnssec)]
    looks.append(("sources", sources))
    groups = await asyncio.gather(*[_bounded(name, look, settings) for name, look in looks])
    return [finding for group in groups for finding in group]


async def _bounded(name: str, look: Look, settings: Settings) -> Sequence[DoctorFinding]:
    try:
        async with asyncio.timeout(GROUP_TIMEOUT_S):
            return await look(settings)
    except TimeoutError:
        return [bad(name, f"no answer within {GROUP_TIMEOUT_S:g} s", "See whether the server hangs, and restart it.")]
    except Exception as error:  # noqa: BLE001 - the doctor reports what it can't look at
        return [check_failed(name, error)]


def _guarded(name: str, check: Callable[[], DoctorFinding]) -> DoctorFinding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - as above
        return check_failed(name, error)
