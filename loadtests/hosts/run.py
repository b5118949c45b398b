"""`ops hosts`: several hosts brought up, told about, cut off, healed, brought down."""

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
from ops.process_specs import ROOT
from ops.state import tail, write_private

FOLDER: Final = Path("/var/lib/waybill/hosts")
READY_S: Final = 120.0
DRAIN_S: Final = 40.0
_LOG: Final = "host.log"
_PEPPER: Final = "pepper"
_SAYS_READY: Final = {plan.STORE: ("store is ready",), plan.WORLD: ("dns ready", "sink ready")}
_SERVICE_READY: Final = ("Waybill is ready",)

Say = Callable[[str], None]


def up(folder: Path, say: Say, more: Mapping[str, str] | None = None) -> None:
    """Make the network and start every host, in the order in which they need each other; `more` are settings.

    Raises NoNetwork, with the log of a host that did not get ready; what had come up stays, for a look and `down`.
    """
    why = network.missing()
    if why is not None:
        raise NoNetwork(f"Several hosts need network namespaces: {why}.")
    if network.standing():
        raise NoNetwork("The hosts are up already; `ops hosts down` takes them away.")
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
    """End everything on every host, doors first, and take the network away; the folder goes too. Idempotent."""
    standing = set(network.standing())
    for group in reversed(_in_order()):
        names = [one.name for one in group if one.name in standing]
        left = network.end(names, signal.SIGTERM, DRAIN_S)
        if left:
            say(f"{', '.join(left)} did not end within {DRAIN_S:.0f} s; ending by force")
            network.end(left, signal.SIGKILL, DRAIN_S)
    network.take_away()
    shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path, one: NamespaceHost, more: Mapping[str, str] | None = None) -> None:
    """What runs on that host, as processes that outlive us."""
    state = plan.state_of(folder, one)
    state.mkdir(exist_ok=True)
    state.chmod(0o711)
    environ = plan.environ(folder, one, pepper(folder), more)
    for argv in plan.commands(folder, one):
        with (state / _LOG).open("ab") as log:
            subprocess.Popen(
                network.inside(one.name, argv), env=environ, cwd=ROOT, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip


def wait_ready(folder: Path, one: NamespaceHost, timeout_s: float = READY_S) -> None:
    """Until it has said so in its log; raises NoNetwork."""
    log = plan.state_of(folder, one) / _LOG
    wanted = _SAYS_READY.get(one.name, _SERVICE_READY if one.processes else ())
    ends = time.monotonic() + timeout_s
    while wanted:
        said = log.read_text("utf-8", "replace") if log.exists() else ""
        if all(words in said for words in wanted):
            return
        if time.monotonic() > ends or not network.pids(one.name):
            raise NoNetwork(f"{one.name} did not get ready. The end of {log}:\n{tail(log)}")
        time.sleep(0.1)


def status(folder: Path) -> list[dict[str, Any]]:
    """Every host: address, what it runs, how many processes, cut off or not."""
    standing = set(network.standing())
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
        if one.name in standing
    ]


def pepper(folder: Path) -> str:
    """The one that all hosts share."""
    return (folder / _PEPPER).read_text("ascii").strip()


def known(name: str) -> NamespaceHost:
    """A host that is up; raises NoNetwork."""
    if name not in network.standing():
        raise NoNetwork(f"No host {name} is up; `ops hosts status` lists them, `ops hosts up` starts them.")
    return plan.host(name)


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """For programs."""
    return json.dumps(list(rows), indent=2)


def _in_order() -> list[list[NamespaceHost]]:
    """What stands below comes first; the first host of the service alone, because it makes the tables."""
    service = [one for one in HOSTS if one.processes]
    return [[plan.host(plan.STORE)], [plan.host(plan.WORLD)], service[:1], service[1:], [plan.host(plan.CLIENT)]]
