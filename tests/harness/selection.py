"""Hooks that tests/conftest.py registers: the marks `rules`, `quick` and `properties`, and what a run left out."""

import importlib.util
import zlib
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
BROWSER_TESTS = TESTS / "browser"
# Only `ops test --browser` installs the driver; without it, tests/browser can't be imported.
_HAS_DRIVER = importlib.util.find_spec("playwright") is not None
# What a module imports that starts processes without a fixture.
_STARTS_PROCESSES = frozenset(
    {
        "Service", "Supervisor", "Temporary", "eventually", "process", "relaying", "running", "serving", "servers",
        "subprocess", "temporary_servers",
    }
)  # fmt: skip
_SERVERS = frozenset({"servers", "service", "browser"})
# A way through each part with servers: accepting, delivering, settling, one area of the API.
_QUICK = frozenset(
    {"sending/test_accept.py", "sending/test_settle.py", "mta/outbound/test_delivery.py", "sending/test_emails_post.py"}
)
# Rules that read every module of the project, or judge the whole OpenAPI document: a third of the time of all rules.
_SLOW = frozenset(
    {"contracts/test_event_names.py", "contracts/test_wide_statements.py",
     "contracts/test_operations.py", "contracts/test_queries.py", "contracts/test_structure.py",
     "contracts/test_driver_errors.py", "contracts/test_services.py", "authentication/test_spf_suite.py"}
)  # fmt: skip
# What begins a whole run, each by one worker: modules that share a service, and those that take longest.
_FIRST = (
    "browser/test_pages.py", "browser/", "contracts/test_schemathesis.py", "journeys/test_restart.py",
    "journeys/test_bystander.py", "journeys/test_tail_kill.py", "journeys/", "contracts/test_isolation.py",
    "loadtests/test_bench.py", "ops/test_bootstrap.py", "ops/test_doctor.py", "loadtests/test_bench_tails.py",
    "events/test_webhooks_worker.py", "shards/test_member.py", "mta/outbound/test_site_limits.py",
    "sending/test_domains_verify.py", "events/test_tails_lifetime.py", "mta/outbound/test_delivery.py",
    "sending/test_emails_post.py", "people/test_identity_tokens.py", "mta/smtp/test_dialogs.py",
    "sending/test_accept.py", "events/test_webhooks_hostile_receivers.py", "loadtests/test_silent_sites.py",
)  # fmt: skip
_left_out = 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item | pytest.Collector]) -> None:
    """Mark what `-m` may select; before pytest reads `-m`. Where there are workers, the first process has modules."""
    for item in items:
        if not isinstance(item, pytest.Item):
            continue
        if _is_rule(item):
            item.add_marker("rules")
        elif item.path.relative_to(TESTS).as_posix() in _QUICK:
            item.add_marker("quick")
        if item.path.relative_to(TESTS).as_posix() in _SLOW:
            item.add_marker("slow")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("properties")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what `-m` or `-k` leaves out."""
    global _left_out  # noqa: PLW0603 - one in a run
    _left_out += len(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Say in one line what was not tested, and why; after the other summaries."""
    yield
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    parts = [f"{count} × {reason}" if count > 1 else reason for reason, count in sorted(reasons.items())]
    if not drives_browsers(config):
        parts.append("tests/browser (`ops test --browser`)")
    if _left_out:
        parts.append(f"{_left_out} by -m {config.option.markexpr!r}" + (" or -k" if config.option.keyword else ""))
    terminalreporter.line(f"Left out: {'; '.join(parts) or 'nothing'}.")


def grouped(nodes: Sequence[pytest.Item | pytest.Collector]) -> list[list[pytest.Item | pytest.Collector]]:
    """Return the modules in the order in which workers take them; those of a group share a service, and so a worker.

    Long ones come first: none of them may be the last that runs. The others are mixed, so that modules that wait run
    beside modules that compute.
    """
    groups: dict[tuple[int, int, str], list[pytest.Item | pytest.Collector]] = {}
    for node in nodes:
        name = node.path.relative_to(TESTS).as_posix() if TESTS in node.path.parents else node.nodeid
        first = next((rank for rank, start in enumerate(_FIRST) if name.startswith(start)), len(_FIRST))
        key = (first, 0, "") if first < len(_FIRST) else (first, zlib.crc32(name.encode()), name)
        groups.setdefault(key, []).append(node)
    return [groups[key] for key in sorted(groups)]


def drives_browsers(config: pytest.Config) -> bool:
    """Return whether the arguments name tests that drive a browser, and its driver is installed."""
    named = [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]
    return _HAS_DRIVER and any(BROWSER_TESTS in (one, *one.parents) for one in named)


def _is_rule(item: pytest.Item) -> bool:
    """Return whether a test needs no server and its module starts no process."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    module = vars(getattr(item, "module", object))
    apart = any(item.get_closest_marker(name) for name in ("hosts", "journey", "peers"))
    return not apart and _SERVERS.isdisjoint(fixtures) and _STARTS_PROCESSES.isdisjoint(module)


def _reason(report: pytest.TestReport) -> str:
    text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
