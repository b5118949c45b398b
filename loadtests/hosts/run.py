"""Start, stop and list the hosts of `ops hosts`."""

import json
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from loadtests.hosts import network, plan
from loadtests.hosts.network import NoNetwork
from loadtests.hosts.plan import HOSTS, NamespaceHost
from ops.host.process_specs import ROOT
from ops.host.state import tail, write_private

FOLDER: Final = Path("/var/lib/waybill/hosts")
READY_S: Final = 120.0
DRAIN_S: Final = 40.0
_LOG: Final = "host.log"
_PEPPER: Final = "pepper"
_READY_LINES: Final = {plan.STORE: ("store is ready",), plan.WORLD: ("dns ready", "sink ready")}
_SERVICE_READY: Final = ("Waybill is ready",)

Say = Callable[[str], None]


def up(folder: Path, say: Say, more: Mapping[str, str] | None = None) -> None:
    """Create the network and start every host in order of dependency; `more` are extra settings.

    Raises NoNetwork, with the log of a host that did not get ready; hosts already started are left for inspection.
    """
    why = network.unavailable_reason()
    if why is not None:
        raise NoNetwork(f"Several hosts need network namespaces: {why}.")
    if network.existing_hosts():
        raise NoNetwork("The hosts are already up; `ops hosts down` removes them.")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # the servers' user passes through
    write_private(folder / _PEPPER, secrets.token_hex(32) + "\n")
    network.make(((one.name, one.number) for one in HOSTS), plan.host(plan.WORLD).address)
    for group in _in_order():
        for one in group:
            start(folder, one, more)
        for one in group:
            wait_ready(folder, one)
            say(f"{one.name} at {one.address}: {', '.join(one.processes) or 'ready'}")


def down(folder: Path, say: Say) -> None:
    """Stop all processes, those that accept mail first, and remove the network and the folder. Idempotent."""
    existing = set(network.existing_hosts())
    for group in reversed(_in_order()):
        names = [one.name for one in group if one.name in existing]
        left = network.end(names, signal.SIGTERM, DRAIN_S)
        if left:
            say(f"{', '.join(left)} did not end within {DRAIN_S:.0f} s; killing the processes")
            network.end(left, signal.SIGKILL, DRAIN_S)
    network.remove_all()
    shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path, one: NamespaceHost, more: Mapping[str, str] | None = None) -> None:
    """Start the processes of a host; they outlive the caller."""
    state = plan.state_of(folder, one)
    state.mkdir(exist_ok=True)
    state.chmod(0o711)
    environ = plan.environ(folder, one, pepper(folder), more)
    for argv in plan.commands(folder, one):
        with (state / _LOG).open("ab") as log:
            subprocess.Popen(
                network.command_on(one.name, argv), env=environ, cwd=ROOT, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip


def wait_ready(folder: Path, one: NamespaceHost, timeout_s: float = READY_S) -> None:
    """Wait until a host's log says that it is ready; raises NoNetwork with the end of the log."""
    log = plan.state_of(folder, one) / _LOG
    wanted = _READY_LINES.get(one.name, _SERVICE_READY if one.processes else ())
    ends = time.monotonic() + timeout_s
    while wanted:
        text = log.read_text("utf-8", "replace") if log.exists() else ""
        if all(words in text for words in wanted):
            return
        if time.monotonic() > ends or not network.pids(one.name):
            raise NoNetwork(f"{one.name} did not get ready. The end of {log}:\n{tail(log)}")
        time.sleep(0.1)


def status(folder: Path) -> list[dict[str, Any]]:
    """Return for every host its address, processes and whether it is cut off."""
    existing = set(network.existing_hosts())
    return [
        {
            "host": one.name,
            "address": one.address,
            "runs": ", ".join(one.processes) or one.name,
            "processes": len(network.pids(one.name)),
            "cut": network.is_cut(one.name),
            "state": str(plan.state_of(folder, one)),
        }
        for one in HOSTS
        if one.name in existing
    ]


def pepper(folder: Path) -> str:
    """Return the key pepper that all hosts share."""
    return (folder / _PEPPER).read_text("ascii").strip()


def host_that_is_up(name: str) -> NamespaceHost:
    """Return a running host by name; raises NoNetwork."""
    if name not in network.existing_hosts():
        raise NoNetwork(f"No host {name} is up; `ops hosts status` lists them, `ops hosts up` starts them.")
    return plan.host(name)


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as JSON text."""
    return json.dumps(list(rows), indent=2)


def _in_order() -> list[list[NamespaceHost]]:
    """Return the hosts in start order; the first service host starts alone, because it creates the tables."""
    service = [one for one in HOSTS if one.processes]
    return [[plan.host(plan.STORE)], [plan.host(plan.WORLD)], service[:1], service[1:], [plan.host(plan.CLIENT)]]
