"""Create, cut, reconnect and remove network namespaces that act as hosts, joined by a bridge in its own namespace.

The machine's own network is not changed: the addresses exist inside the namespaces only.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

PREFIX: Final = "waybill-"
SWITCH: Final = f"{PREFIX}switch"
NETWORK: Final = "10.86.0"
_NAMES: Final = Path("/run/netns")
_ETC: Final = Path("/etc/netns")  # ip-netns(8): files there take the place of those in /etc inside
_CLONE_NEWNET: Final = 0x40000000
_COMMAND_S: Final = 20.0


class NoNetwork(RuntimeError):  # noqa: N818 - named for what it says
    """Network namespaces are not available; the text says what is missing or what the kernel reported."""


def unavailable_reason() -> str | None:
    """Return why this machine cannot create network namespaces, or None if it can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "creating network namespaces needs root"
    if _program() is None:
        return "the program ip is not installed (Debian, Ubuntu: iproute2)"
    name = f"{PREFIX}trial"
    try:
        _ip("netns", "add", name)
        _ip("netns", "delete", name)
    except NoNetwork as error:
        return f"this system does not allow network namespaces ({error})"
    return None


def make(hosts: Iterable[tuple[str, int]], name_server: str) -> None:
    """Create namespaces for (name, last octet of the address), each with a resolv.conf that names `name_server`."""
    _ip("netns", "add", SWITCH)
    _ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge")
    _ip("-n", SWITCH, "link", "set", "bridge", "up")
    for name, number in hosts:
        inside = PREFIX + name
        folder = _ETC / inside
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "resolv.conf").write_text(f"nameserver {name_server}\n", "ascii")
        _ip("netns", "add", inside)
        _ip("-n", SWITCH, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("-n", SWITCH, "link", "set", name, "master", "bridge", "up")
        _ip("-n", inside, "link", "set", "lo", "up")
        _ip("-n", inside, "address", "add", f"{address(number)}/24", "dev", "eth0")
        _ip("-n", inside, "link", "set", "eth0", "up")


def address(number: int) -> str:
    """Return the address of the host with that number."""
    return f"{NETWORK}.{number}"


def existing_hosts() -> list[str]:
    """Return the names of the hosts that exist."""
    with contextlib.suppress(OSError):
        names = (path.name.removeprefix(PREFIX) for path in _NAMES.glob(f"{PREFIX}*") if path.name != SWITCH)
        return sorted(names)
    return []


def cut(host: str) -> None:
    """Disconnect a host: packets in both directions are dropped without notice."""
    _ip("-n", SWITCH, "link", "set", host, "down")


def heal(host: str) -> None:
    """Reconnect a host."""
    _ip("-n", SWITCH, "link", "set", host, "up")


def is_cut(host: str) -> bool:
    """Return True while a host is disconnected."""
    return "state DOWN" in _ip("-n", SWITCH, "link", "show", host)


def command_on(host: str, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` on that host."""
    return [_program() or "ip", "netns", "exec", PREFIX + host, *argv]


@contextlib.contextmanager
def entered(host: str) -> Iterator[None]:
    """Move the calling thread, and threads that it starts meanwhile, to the host's network; raises NoNetwork."""
    with (_NAMES / (PREFIX + host)).open("rb") as there, Path("/proc/thread-self/ns/net").open("rb") as home:
        _move(there.fileno())
        try:
            yield
        finally:
            _move(home.fileno())


def _move(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise NoNetwork(f"this thread cannot change its network: {os.strerror(ctypes.get_errno())}")


def pids(host: str) -> list[int]:
    """Return the processes that run on that host."""
    return [int(word) for word in _ip("netns", "pids", PREFIX + host).split()]


def end(names: Sequence[str], number: signal.Signals, grace_s: float) -> list[str]:
    """Send a signal to all processes of these hosts; return the hosts that still have some after `grace_s`."""
    for pid in (pid for name in names for pid in pids(name)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    ends = time.monotonic() + grace_s
    while left := [name for name in names if pids(name)]:
        if time.monotonic() > ends:
            return left
        time.sleep(0.05)  # processes of other network namespaces are no children
    return []


def remove_all() -> None:
    """Remove every namespace with our prefix and its files. Its processes must have ended. Idempotent."""
    for path in _NAMES.glob(f"{PREFIX}*") if _NAMES.is_dir() else ():
        _ip("netns", "delete", path.name)
    for folder in _ETC.glob(f"{PREFIX}*") if _ETC.is_dir() else ():
        shutil.rmtree(folder, ignore_errors=True)


def _program() -> str | None:
    return shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")


def _ip(*words: str) -> str:
    program = _program()
    if program is None:
        raise NoNetwork("the program ip is not installed")
    try:
        done = subprocess.run([program, *words], check=False, capture_output=True, text=True, timeout=_COMMAND_S)
    except subprocess.TimeoutExpired as error:
        raise NoNetwork(f"ip {' '.join(words)} did not end within {_COMMAND_S:g} s") from error
    if done.returncode != 0:
        raise NoNetwork(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
