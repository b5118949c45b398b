"""Restrict load tests to a separate service or to a service on this machine."""

import ipaddress
from contextlib import suppress
from urllib.parse import urlsplit

from loadtests.bench import measure
from loadtests.runner.catalogue import Scenario


class LoadFailed(RuntimeError):  # noqa: N818 - named for what happened
    """The load test cannot run or failed; the text says why."""


def check_target(scenario: Scenario, url: str | None, key: str | None) -> None:
    """Raise LoadFailed when the scenario cannot run against this target; only loopback targets are allowed."""
    if not measure.PROC.joinpath("self/stat").exists():
        raise LoadFailed("`ops loadtest` reads /proc, so it needs Linux.")
    if url is None:
        return
    if key is None:
        raise LoadFailed("--url needs an API key of that service: add --key.")
    if scenario.needs_own_service:
        raise LoadFailed(f"{scenario.name} creates its own accounts and servers: run it without --url.")
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        host = "localhost" if ipaddress.ip_address(host).is_loopback else host
    if host != "localhost":
        raise LoadFailed("Load goes to loopback only: --url must name 127.0.0.1, ::1 or localhost.")
