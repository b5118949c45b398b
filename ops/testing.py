"""`ops test`: the whole test suite with pytest, in the project's environment."""

import importlib.util
import os
import sys
from pathlib import Path

from engine.base.settings import PREFIX

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 4  # each has its own PostgreSQL and Valkey; most tests wait for a peer half of their time

QUICK_WORKERS = 2  # most of these tests compute
QUICK = "(rules or quick) and not properties"  # marks that tests/harness/selection.py sets


def run(args: list[str], *, quick: bool = False) -> int:
    """Become pytest with these arguments, so that its exit status and closing line are the command's own.

    Gives 1 where pytest is not installed. Settings of the shell stay outside: a test that wants one sets it.
    """
    if importlib.util.find_spec("pytest") is not None:
        os.chdir(ROOT)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        sys.stdout.flush()
        os.execve(sys.executable, command(args, quick=quick), environ)
    print("The test packages are not installed here: run `python3 -m ops test`.", file=sys.stderr)
    return 1


def command(args: list[str], *, quick: bool = False) -> list[str]:
    """Return pytest's command line: our number of workers unless `args` say otherwise.

    Each worker begins at a place of its own in the suite and at the end takes work from others: what computes runs
    beside what waits, and servers that a module shares are started once.
    """
    own_workers = any(word.startswith(("-n", "--numprocesses", "--dist")) for word in args)
    return [
        sys.executable,
        "-m",
        "pytest",
        *([] if own_workers else ["-n", str(QUICK_WORKERS if quick else WORKERS), "--dist", "worksteal"]),
        *(["-m", QUICK] if quick else []),
        *args,
    ]
