"""`ops test`: the whole test suite with pytest, in the project's environment."""

import importlib.util
import os
import sys
from pathlib import Path

from engine.base.settings import PREFIX
from ops.host import chromium

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 6  # most tests spend half their time waiting (decision 0087)
QUICK_WORKERS = 5  # the tests with servers among them mostly wait
QUICK = (
    "(rules or quick) and not properties and not slow and not exhaustive"  # tests/harness/selection.py sets the marks
)
ALL = "not hosts"
BROWSER = ["tests/browser", "-m", "not exhaustive"]


def run(args: list[str], *, quick: bool = False, browser: bool = False, everything: bool = False) -> int:
    """Replace this process by pytest with these arguments (exec); return 1 if pytest or a wanted browser is missing.

    Waybill's settings are removed from the environment variables, except the browser's path; a test sets those that it
    needs. Python keeps compiled modules even if PYTHONDONTWRITEBYTECODE is set: pytest compiles the tests for 8 to 14 s
    of CPU.
    """
    if (browser or everything) and chromium.find(os.environ) is None:
        print(f"The browser tests were not run: {chromium.MISSING}.", file=sys.stderr)
        return 1
    if importlib.util.find_spec("pytest") is not None:
        os.chdir(ROOT)
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name == chromium.SETTING
        }
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.stdout.flush()
        os.execve(sys.executable, command(args, quick=quick, browser=browser, everything=everything), environ)
    print("The test packages are not installed here: run `python3 -m ops test`.", file=sys.stderr)
    return 1


def command(args: list[str], *, quick: bool = False, browser: bool = False, everything: bool = False) -> list[str]:
    """Return pytest's command line, with the default number of workers unless `args` sets one."""
    workers = QUICK_WORKERS if quick else WORKERS
    words = [*(BROWSER if browser else []), *(["-m", QUICK] if quick else []), *(["--all"] if everything else [])]
    if everything:
        words += ["-m", ALL]  # the last one counts
    own_workers = any(word.startswith("--workers") for word in args)
    return [sys.executable, "-m", "pytest", *([] if own_workers else ["--workers", str(workers)]), *words, *args]
