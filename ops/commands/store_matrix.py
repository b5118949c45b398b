"""`ops test --stores`: the tests of what Waybill asks of its servers, with each supported version that can be had here.

`.ci/run` runs the oldest pair; all pairs take 20 to 30 minutes. ops/runbooks/stores.md has the results of a full run.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from ops.host import store_servers
from ops.host.bootstrap import ROOT
from ops.host.store_servers import NotFetched

PAIRS: Final = (
    ("PostgreSQL 15", "Redis 7.0"), ("PostgreSQL 16", "Redis 7.2"), ("PostgreSQL 17", "Redis 7.4"),
    ("PostgreSQL 18", "Redis 8.2"), ("PostgreSQL 16", "Valkey 8.1"), ("PostgreSQL 17", "Valkey 9.0"),
)  # fmt: skip
OLDEST: Final = PAIRS[:1]
REFUSED: Final = ("PostgreSQL 14", "Redis 6.2")  # tests see that these are refused
OTHERS: Final = ("PostgreSQL 18",)  # a backup of the oldest comes back in it, and the other way round
NOWHERE: Final = ("Valkey 7.2: no package contains it",)
RUN_S: Final = 1_800  # of one pair; 100 to 250 s on two cores
_SHOWN_ON_FAILURE = 400  # lines

# Patterns of files and folders. What depends on the servers: statements, migrations, locks, time-outs, scripts and
# streams; flows through all of them; the service as a whole.
TESTS: Final = (
    "tests/store", "tests/ledger", "tests/delivery", "tests/sending/test_accept*.py",
    "tests/sending/test_complaint*.py", "tests/sending/test_release*.py", "tests/sending/test_settle*.py",
    "tests/sending/test_suppression*.py", "tests/audience", "tests/receiving", "tests/retention",
    "tests/accounts/test_limit_mails.py", "tests/accounts/test_suspend.py", "tests/accounts/test_system_mail.py",
    "tests/contracts/test_queries.py", "tests/contracts/test_isolation.py", "tests/ops/test_doctor.py",
    "tests/journeys/test_own_servers.py",
)  # fmt: skip
ONCE: Final = ("tests/ops/test_backup_versions.py",)  # starts its own servers


class PairResult(Struct, frozen=True):
    """The outcome of one pair of servers: `passed`, `failed`, or why it was not tested."""

    servers: str
    result: str
    took_s: float | None = None


def run(
    environ: Mapping[str, str], arguments: Sequence[str], pairs: Sequence[tuple[str, str]], *, offline: bool
) -> int:
    """Test the pairs one after the other and print a table; return 1 if a test failed.

    `arguments` go to pytest. A server that can't be had is named and is no failure.
    """
    for title in (*REFUSED, *OTHERS):
        try:
            store_servers.get(title, offline=offline)
        except NotFetched as error:
            print(f"{title} is missing, and tests that need it are left out: {error}", file=sys.stderr)
    results = []
    for number, pair in enumerate(pairs):
        files = tests() + (ONCE if number == 0 else ())
        results.append(_tested(pair, [*files, *arguments], environ, offline=offline))
    width = max(len(one.servers) for one in results)
    print()
    for one in results:
        print(f"{one.servers:{width}}  {one.result}" + (f"  {one.took_s:.0f} s" if one.took_s is not None else ""))
    for line in NOWHERE:
        print(f"Not tested: {line}")
    return int(any(one.result.startswith("failed") for one in results))


def pairs_of(wanted: str) -> Sequence[tuple[str, str]]:
    """Return the pairs for `all`, `oldest`, or a pair such as `PostgreSQL 18 + Valkey 9.0`; raises ValueError."""
    if wanted in ("all", "oldest"):
        return PAIRS if wanted == "all" else OLDEST
    postgres, _, redis = (word.strip() for word in wanted.partition("+"))
    titles = [title for pair in PAIRS for title in pair]
    if {postgres, redis} <= set(titles) and postgres.startswith("PostgreSQL") and not redis.startswith("PostgreSQL"):
        return ((postgres, redis),)
    raise ValueError(f"`{wanted}` is not all, oldest, or a pair of {', '.join(sorted(set(titles)))}")


def tests() -> tuple[str, ...]:
    """Return the files and folders of TESTS."""
    return tuple(str(path.relative_to(ROOT)) for one in TESTS for path in sorted(ROOT.glob(one)))


def _tested(pair: tuple[str, str], words: Sequence[str], environ: Mapping[str, str], *, offline: bool) -> PairResult:
    name = " + ".join(pair)
    try:
        postgres, redis = (store_servers.get(title, offline=offline) for title in pair)
        name = f"PostgreSQL {store_servers.version(postgres)} + {pair[1].split()[0]} {store_servers.version(redis)}"
    except NotFetched as error:
        return PairResult(name, f"not tested: {error}")
    print(f"\n{name}", flush=True)
    began = time.monotonic()
    problem = _pytest(postgres, redis, words, environ)
    return PairResult(name, "passed" if problem is None else f"failed: {problem}", time.monotonic() - began)


def _pytest(postgres: Path, redis: Path, words: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Run the tests with these servers; print the last line of pytest, or of a failure more; return the problem."""
    command = [sys.executable, "-m", "pytest", "-q", "--postgres", str(postgres.parent), "--redis", str(redis), *words]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environ, text=True, errors="replace", timeout=RUN_S, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not finished after {RUN_S} s"
    lines = done.stdout.splitlines()
    print("\n".join(lines[-1 if done.returncode == 0 else -_SHOWN_ON_FAILURE :]), flush=True)
    return None if done.returncode == 0 else f"pytest ended with {done.returncode}"
