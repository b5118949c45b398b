"""Run of all checks of `ops doctor`: this machine, then the servers that the service depends on.

Checks change nothing, send no mail, and have a time limit, so they also work on a service that is down, hangs or was
never started.
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

from engine.base.local_mode import FIRST_RUN
from engine.base.settings import FRONT, Loaded, Settings, variable
from engine.base.version import COMMAND
from ops.doctor.cells import cells
from ops.doctor.database import database
from ops.doctor.dnssec import dnssec
from ops.doctor.finding import DoctorFinding, bad, check_failed, describe_error, good
from ops.doctor.listeners import api, incoming_mail, metrics, sink, submission
from ops.doctor.mail_records import mail_records
from ops.doctor.names import names
from ops.doctor.replica_reads import replica_reads
from ops.doctor.sources import sources
from ops.doctor.stores import postgres_servers, redis
from ops.host import bootstrap, disk, interpreter, process_specs, server_paths
from ops.host.attach import NotRunning, attach
from ops.host.state import PEPPER, PREVIOUS_PEPPER, holder

OLDEST_PYTHON = (3, 11)
MIN_FREE_BYTES = 1024**3  # the API stops being ready at half of this
GROUP_TIMEOUT_S = 30.0  # for one server with all of its checks
START = f"Start Waybill with `{COMMAND} up`."


def examine(loaded: Loaded) -> list[DoctorFinding]:
    """Run all checks; returns findings in the order in which to fix them. Never raises. Not for event loops."""
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
    if FRONT in settings.processes:
        return [*found, *asyncio.run(_of_front(settings, running=running.ok))]
    return [*found, *asyncio.run(_servers(settings, running=running.ok))]


# -- this machine ---------------------------------------------------------------------------------


def _python() -> DoctorFinding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return bad("python", f"Python {version}", "Install Python 3.11 or newer and start Waybill with it.")
    optimised = interpreter.build()
    price = "" if optimised else ": an optimised build sends up to 15% more messages per second"
    return good("python", f"Python {version} at {sys.base_prefix}, {interpreter.words(optimised)}{price}")


def _packages() -> DoctorFinding:
    prefix = Path(sys.prefix)
    record = prefix / bootstrap.RECORD
    if not record.is_file():
        return good("packages", f"not checked: Waybill did not create the environment {prefix}")
    wanted = hashlib.sha256((bootstrap.LOCKS / "run.txt").read_bytes()).hexdigest()
    if json.loads(record.read_text("utf-8")).get("locks", {}).get("run") == wanted:
        return good("packages", f"{prefix} has the locked versions")
    mend = "Run `python3 -m ops bootstrap run` to install the locked versions."
    return bad("packages", f"{prefix} differs from ops/lock/run.txt", mend)


def _state(state: Path) -> DoctorFinding:
    if not state.exists():
        return good("state", f"{state} does not exist yet; the first start creates it")
    for folder in _written(state):
        if (about_disk := disk.why_unusable(folder)) is not None:
            problem, _, mend = about_disk.partition(". ")
            return bad("state", problem, mend)
    if not state.is_dir() or not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        mend = f"Change the owner of the folder to this user, or set {variable('state')} to another folder."
        return bad("state", f"this user can't write to {state}", mend)
    return good("state", f"{state} is writable")


def _disk(state: Path) -> DoctorFinding:
    free = {folder: shutil.disk_usage(folder).free for folder in map(disk.existing, _written(state))}
    found = ", ".join(f"{octets / 1024**3:.1f} GiB free at {folder}" for folder, octets in free.items())
    if min(free.values()) < MIN_FREE_BYTES:
        return bad(
            "disk", found, f"Free at least 1 GiB of space, or set {variable('state')} to a folder on a larger disk."
        )
    return good("disk", found)


def _written(state: Path) -> list[Path]:
    """Return the state folder, and the folder of the embedded servers' data if it lies elsewhere."""
    return list(dict.fromkeys((state, server_paths.known_base(state))))


def _pepper(settings: Settings, state: Path) -> DoctorFinding:
    """Check the pepper without creating one: a new pepper would hide that the old one is lost."""
    if settings.key_pepper is not None:
        return good("pepper", f"taken from {variable('key_pepper')}")
    file, previous = state / PEPPER, state / PREVIOUS_PEPPER
    if not file.is_file():
        if previous.is_file():
            return good("pepper", f"{previous} was set aside; the next start creates a new pepper")
        if (state / FIRST_RUN).is_file():
            mend = f"Restore {file} from a backup. Without it, no API key and no signing key works."
            return bad("pepper", f"{file} is missing", mend)
        return good("pepper", "none yet; the first start creates it")
    kept = [one for one in (file, previous) if one.is_file()]
    wrong = [finding for finding in map(_pepper_file, kept) if finding is not None]
    return wrong[0] if wrong else good("pepper", f"{' and '.join(map(str, kept))}, readable only by the owner")


def _pepper_file(file: Path) -> DoctorFinding | None:
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        return bad(
            "pepper", f"{file} has mode {mode:04o}", f"Remove the access of other users with `chmod 600 {file}`."
        )
    if len(file.read_text("ascii", "replace").strip()) != 64:
        return bad("pepper", f"{file} does not contain 64 hexadecimal digits", f"Restore {file} from a backup.")
    return None


def _service(state: Path) -> DoctorFinding:
    pid = holder(state)
    if pid is None:
        return bad("service", f"Waybill does not run on {state}", START)
    return good("service", f"runs on {state} (process {pid})" if pid else f"runs on {state}")


def _ports(settings: Settings) -> DoctorFinding:
    try:
        process_specs.check_ports(settings)
    except process_specs.PortTaken as taken:
        return bad("ports", "a port of the service is in use", str(taken))
    return good("ports", "all ports of the service are free")


def _attached(loaded: Loaded, state: Path) -> Settings | DoctorFinding:
    """Return the settings with URLs and pepper filled in, or a finding that says why that is impossible."""
    settings = structs.replace(loaded.settings, state=state)
    if settings.key_pepper is None and not (state / PEPPER).is_file():
        if settings.database_url is not None and settings.redis_url is not None:
            return settings
        return bad("servers", "PostgreSQL and Redis run only while Waybill runs", START)
    try:
        return attach(loaded)
    except NotRunning:
        return bad("servers", "PostgreSQL and Redis run only while Waybill runs", START)
    except Exception as error:  # noqa: BLE001 - a check that fails is reported
        return bad("servers", f"can't be found ({describe_error(error)})", f"Check {state} and its file running.json.")


# -- servers --------------------------------------------------------------------------------------

ServerCheck = Callable[[Settings], Awaitable[Sequence[DoctorFinding]]]


async def _servers(settings: Settings, *, running: bool) -> list[DoctorFinding]:
    """Run the checks of all servers concurrently; returns findings in a fixed order."""
    checks: list[tuple[str, ServerCheck]] = [
        ("postgres", database),
        ("postgres servers", postgres_servers),
        ("replica reads", replica_reads),
        ("redis", redis),
    ]
    if running:
        checks += [("api", api), ("submission", submission), ("incoming mail", incoming_mail), ("metrics", metrics)]
        if settings.delivery == "local":
            checks.append(("sink", sink))
    if running or settings.delivery == "live":
        checks += [("dns", names), ("dnssec", dnssec), ("mail records", mail_records)]
    checks += [("sources", sources), ("directory", cells)]
    return await _all(checks, settings)


async def _of_front(settings: Settings, *, running: bool) -> list[DoctorFinding]:
    checks: list[tuple[str, ServerCheck]] = [("directory", cells)]
    return await _all([*checks, ("front", api), ("metrics", metrics)] if running else checks, settings)


async def _all(checks: Sequence[tuple[str, ServerCheck]], settings: Settings) -> list[DoctorFinding]:
    groups = await asyncio.gather(*[_bounded(name, check, settings) for name, check in checks])
    return [finding for group in groups for finding in group]


async def _bounded(name: str, check: ServerCheck, settings: Settings) -> Sequence[DoctorFinding]:
    try:
        async with asyncio.timeout(GROUP_TIMEOUT_S):
            return await check(settings)
    except TimeoutError:
        return [bad(name, f"no answer within {GROUP_TIMEOUT_S:g} s", "Check whether the server hangs, and restart it.")]
    except Exception as error:  # noqa: BLE001 - a check that fails is reported
        return [check_failed(name, error)]


def _guarded(name: str, check: Callable[[], DoctorFinding]) -> DoctorFinding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - as above
        return check_failed(name, error)
