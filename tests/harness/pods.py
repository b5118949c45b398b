"""Run the container of a rendered pod by hand: its command, environment, user, mounts and read-only root.

Namespaces of Linux stand for the pod: its own mounts, host name, processes and network. The root file system holds the
machine's programs, the code and its environment at their places in the image, all read-only. Needs root; `why_not` says
why a machine can't do it. The kubelet's part, probes and hooks, is done by the test with `exec_in` and `http_get`.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from loadtests.kit.processes import child_pids
from ops.host.process_specs import ROOT
from tests.harness.patience import PATIENCE_S

PROGRAMS: Final = ("unshare", "nsenter", "setpriv", "mount", "ip", "hostname", "chroot", "awk")
DATABASE_SOCKETS: Final = "/stores/database"  # where pods see the folder with the socket of PostgreSQL
REDIS_SOCKETS: Final = "/stores/redis"
_DOCKERFILE: Final = ROOT / "ops" / "deploy" / "compose" / "Dockerfile"
_NAMESPACES: Final = ("mount", "uts", "ipc", "net", "pid")
_COMMAND_S: Final = 200.0  # a hook repeats its command for minutes
# The folder has root, state, tmp, tls, database and redis. Six parameters, then the command.
_ROOT_FILE_SYSTEM: Final = r"""
set -eu
root=$1 venv=$2 code=$3 folder=$4 name=$5 address=$6
shift 6
mount --make-rprivate /
mount -t tmpfs -o mode=0755 none "$root"
read_only() { mkdir -p "$2"; mount --rbind "$1" "$2"; mount -o remount,ro,bind "$2"; }
for one in bin sbin lib lib64 usr etc; do
  if [ -L "/$one" ]; then cp -P "/$one" "$root/$one"; elif [ -d "/$one" ]; then read_only "/$one" "$root/$one"; fi
done
read_only "$code" "$root/opt/waybill"
read_only "$venv" "$root/opt/waybill/.venv"
[ ! -e "$venv/waybill.json" ] || mount --bind /dev/null "$root/opt/waybill/.venv/waybill.json"  # of a checkout
read_only "$folder/tls" "$root/tls"
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/var/lib/waybill" "$root/stores/database" "$root/stores/redis"
mount -t proc none "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$folder/tmp" "$root/tmp"
mount --bind "$folder/state" "$root/var/lib/waybill"
mount --bind "$folder/database" "$root/stores/database"
mount --bind "$folder/redis" "$root/stores/redis"
mount -o remount,ro "$root"
hostname "$name"
ip link set lo up
ip address add "$address/32" dev lo
cd "$root"
exec chroot "$root" "$@"
"""


@cache
def why_not() -> str:
    """Return why pods can't be run on this machine; empty if they can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if os.geteuid() != 0:
        return "only root may make namespaces and mounts"
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        return f"the interpreter is in {sys.base_prefix}, not in /usr"
    if not (ROOT / ".venv").is_dir():
        return "the checkout has no .venv, which is where the image has its environment"
    tried = subprocess.run(
        ["unshare", *(f"--{one}" for one in _NAMESPACES), "--fork", "true"], check=False, capture_output=True
    )
    return "" if tried.returncode == 0 else tried.stderr.decode().strip()


class Stores(NamedTuple):
    """The folders with the sockets of PostgreSQL and Valkey."""

    database: Path
    redis: Path

    @contextlib.contextmanager
    def opened(self) -> Iterator[Self]:
        """Let every user connect while inside: pods run as another one."""
        paths = [self.database, self.redis, *self.database.glob(".s.PGSQL.*[0-9]"), *self.redis.glob("*.sock")]
        before = {path: path.stat().st_mode for path in paths}
        for path in paths:
            path.chmod(0o777)
        yield self
        for path, mode in before.items():
            path.chmod(stat.S_IMODE(mode))


class Pod:
    """One running pod; `folder` keeps what its volumes hold. A context manager that kills it at the end."""

    def __init__(
        self, name: str, manifest: Mapping[str, Any], folder: Path, *, secrets: Mapping[str, str], stores: "Stores",
        tls: tuple[Path, Path], address: str = "10.0.0.1",
    ) -> None:  # fmt: skip
        self.name = name
        self.spec: Mapping[str, Any] = manifest["spec"]
        [self.container] = self.spec["containers"]
        self.log = folder / "log"
        self._folder = folder
        self._address = address
        given = {"HOSTNAME": name, "HOME": "/home/waybill"}  # by the container runtime
        self._environ = _image_environment() | given | _environment(self.container, secrets, address)
        self._process: subprocess.Popen[bytes] | None = None
        self._make_volumes(stores, tls)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def start(self) -> None:
        """Start its command, as the container runtime does with the image's entry point."""
        entry, working = _image_entry()
        words = [*self.container.get("command", entry), *self.container["args"]]
        if words[:2] == ["/usr/bin/tini", "--"]:
            words = words[2:]  # the init of the image, which only passes signals on and reaps
        script = ["sh", "-c", _ROOT_FILE_SYSTEM, "sh", str(self._folder / "root"), sys.prefix, str(ROOT),
                  str(self._folder), self.name, self._address]  # fmt: skip
        apart = ["unshare", *(f"--{one}" for one in _NAMESPACES), "--fork", "--kill-child=KILL"]
        with self.log.open("wb") as log:  # of this start
            self._process = subprocess.Popen(
                [*apart, *script, *self._as_user(working, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self, timeout_s: float) -> int:
        """Return the exit status of its command; raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self) -> float:
        """Send SIGTERM, as at the end of the pod; return the seconds that it took. It must end by itself, with 0."""
        began = time.monotonic()
        os.kill(self._pid(), signal.SIGTERM)
        assert self.wait(self.spec["terminationGracePeriodSeconds"]) == 0, self.log.read_text("utf-8")[-2000:]
        return time.monotonic() - began

    def exec_in(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as `kubectl exec`, probes and hooks do."""
        inside = ["nsenter", f"--target={self._pid()}", *(f"--{one}" for one in _NAMESPACES), "--root", "--wd=/"]
        return subprocess.run(
            [*inside, *self._as_user(_image_entry()[1], words)], check=False, capture_output=True, text=True,
            timeout=_COMMAND_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def probe(self, name: str) -> bool:
        """Return the result of one of its probes."""
        probe = self.container[f"{name}Probe"]
        if "exec" in probe:
            return self.exec_in(probe["exec"]["command"]).returncode == 0
        port = next(one["containerPort"] for one in self.container["ports"] if one["name"] == probe["httpGet"]["port"])
        return self.fetch(port, probe["httpGet"]["path"]).returncode == 0

    def fetch(self, port: int, path: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Ask an HTTP server of the pod with curl; its status is not 0 for an error status of HTTP."""
        words = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "10", *options]
        inside = ["nsenter", f"--target={self._pid()}", "--net"]
        return subprocess.run(
            [*inside, *words, f"http://127.0.0.1:{port}{path}"], check=False, capture_output=True, text=True,
            timeout=_COMMAND_S,
        )  # fmt: skip

    def hook(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one of its hooks."""
        return self.exec_in(self.container["lifecycle"][name]["exec"]["command"])

    def _pid(self) -> int:
        """Return the process id of its first process, as this machine sees it."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text("utf-8")[-3000:]
        [pid] = child_pids(self._process.pid)
        return pid

    def _as_user(self, working: str, words: Sequence[str]) -> list[str]:
        """Return the command with the rights that the security context leaves, and its environment alone."""
        context = self.spec["securityContext"]
        user, group = context["runAsUser"], context["runAsGroup"]
        security = self.container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not security["allowPrivilegeEscalation"]
        rights = ["setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={context['fsGroup']}", "--no-new-privs",
                  "--bounding-set=-all", "--inh-caps=-all"]  # fmt: skip
        variables = [f"{name}={value}" for name, value in self._environ.items()]
        return [*rights, "env", "--ignore-environment", f"--chdir={working}", *variables, *words]

    def _make_volumes(self, stores: "Stores", tls: tuple[Path, Path]) -> None:
        group = self.spec["securityContext"]["fsGroup"]
        self._folder.chmod(0o755)
        for name in ("root", "state", "tmp", "tls"):
            folder = self._folder / name
            folder.mkdir(exist_ok=True)
            os.chown(folder, 0, group)
            folder.chmod(0o2775)  # as the kubelet makes volumes for fsGroup
        for source, name in zip(tls, ("tls.crt", "tls.key"), strict=True):
            file = self._folder / "tls" / name
            shutil.copy(source, file)
            os.chown(file, 0, group)
            file.chmod(0o440)
        for name, sockets in (("database", stores.database), ("redis", stores.redis)):
            (self._folder / name).unlink(missing_ok=True)
            (self._folder / name).symlink_to(sockets)


def _environment(container: Mapping[str, Any], secrets: Mapping[str, str], address: str) -> dict[str, str]:
    """Return the variables of a container, as the kubelet fills them in."""
    found: dict[str, str] = {}
    for one in container["env"]:
        source = one.get("valueFrom", {})
        if "secretKeyRef" in source:
            key = source["secretKeyRef"]["key"]
            if key in secrets or not source["secretKeyRef"].get("optional"):
                found[one["name"]] = secrets[key]
        elif "fieldRef" in source:
            assert source["fieldRef"] == {"fieldPath": "status.podIP"}
            found[one["name"]] = address
        else:
            found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], str(one["value"]))
    return found


def _image() -> str:
    return _DOCKERFILE.read_text("utf-8").rpartition("\nFROM ")[2].replace("\\\n", " ")


def _image_environment() -> dict[str, str]:
    [line] = re.findall(r"^ENV (.+)$", _image(), re.MULTILINE)
    pairs = [word.partition("=") for word in shlex.split(line)]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {name: value.replace("$PATH", path) for name, _, value in pairs}


def _image_entry() -> tuple[list[str], str]:
    """Return the entry point and the working directory of the image."""
    [words] = re.findall(r"^ENTRYPOINT \[(.+)\]$", _image(), re.MULTILINE)
    [working] = re.findall(r"^WORKDIR (\S+)$", _image(), re.MULTILINE)
    return [one.strip('" ') for one in words.split(",")], working


def log_lines(pod: Pod) -> Iterator[str]:
    """Yield what `kubectl logs` would show."""
    yield from pod.log.read_text("utf-8").splitlines()
