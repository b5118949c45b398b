"""`ops test`: the whole test suite with pytest, in the project's environment."""

import importlib.util
import os
import sys
from pathlib import Path

from engine.base.settings import PREFIX
from ops import chromium

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 5  # each has its own PostgreSQL and Valkey; most tests spend half their time waiting (decision 0087)

QUICK_WORKERS = 4  # the tests with servers among them mostly wait
BROWSER_WORKERS = 2  # a browser, its pages and a service keep a core busy
BROWSER = ["tests/browser", "-m", "browser"]  # with the matrix of all pages
QUICK = "(rules or quick) and not properties and not slow"  # marks that tests/harness/selection.py sets


def run(args: list[str], *, quick: bool = False, browser: bool = False) -> int:
    """Replace this process by pytest with these arguments (exec); return 1 if pytest or a wanted browser is missing.

    Waybill's settings are removed from the environment variables, except the browser's path; a test sets those that it
    needs. Python keeps compiled modules even if PYTHONDONTWRITEBYTECODE is set: pytest compiles the tests for 8 to 14 s
    of CPU.
    """
    if browser and chromium.find(os.environ) is None:
        print(f"The browser tests were not run: {chromium.MISSING}.", file=sys.stderr)
        return 1
    if importlib.util.find_spec("pytest") is not None:
        os.chdir(ROOT)
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name == chromium.SETTING
        }
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.stdout.flush()
        os.execve(sys.executable, command(args, quick=quick, browser=browser), environ)
    print("The test packages are not installed here: run `python3 -m ops test`.", file=sys.stderr)
    return 1


def command(args: list[str], *, quick: bool = False, browser: bool = False) -> list[str]:
    """Return pytest's command line, with the default number of workers unless `args` sets one.

    With `--dist worksteal` each worker starts with its own part of the suite and then takes tests from the others:
    CPU-bound tests run beside tests that wait, and a module's shared servers are started once.
    """
    workers = BROWSER_WORKERS if browser else QUICK_WORKERS if quick else WORKERS
    own_workers = any(word.startswith(("-n", "--numprocesses", "--dist")) for word in args)
    return [
        sys.executable,
        "-m",
        "pytest",
        *([] if own_workers else ["-n", str(workers), "--dist", "worksteal"]),
        *(BROWSER if browser else []),
        *(["-m", QUICK] if quick else []),
        *args,
    ]
