"""A rolling restart of the real processes while clients come and go: nobody is turned away."""

import asyncio
import http.client
import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

from loadtests.kit.service import Service
from tests.harness.service import command

pytestmark = pytest.mark.journey


class Caller:
    """Asks again and again in a thread of its own, and writes down what came of it."""

    def __init__(self, service: Service, *, keeps: bool) -> None:
        self.answers: list[tuple[int, str | None]] = []  # status, and what was said of the connection
        self.failures: list[str] = []
        self._host = service.base_url.removeprefix("http://")
        self._keeps = keeps
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=20)
        while not self._over.wait(0.02):
            try:
                connection.request("GET", "/healthz")
                answer = connection.getresponse()
                answer.read()
                self.answers.append((answer.status, answer.getheader("Connection")))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
            if not self._keeps:
                connection.close()
        connection.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


def standings(service: Service) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in command(service, "status", "--json").json}


@pytest.mark.exhaustive
@pytest.mark.timeout(150)
async def test_nobody_is_refused_while_processes_are_replaced(service: Service) -> None:
    before = standings(service)
    with Caller(service, keeps=True) as kept, Caller(service, keeps=False) as fresh:
        restarted = await asyncio.to_thread(command, service, "restart", "api", "relay", "--json")
        asked = len(fresh.answers)
        await until(lambda: len(fresh.answers) > asked + 5)
    after = standings(service)

    assert restarted.json == {"restarted": ["api", "relay-1"]}
    assert [name for name in after if after[name]["pid"] != before[name]["pid"]] == ["api", "relay-1"]
    assert [after[name]["renewals"] - before[name]["renewals"] for name in ("api", "relay-1", "worker")] == [1, 1, 0]
    assert all(row["ready"] for row in after.values())
    assert kept.failures == fresh.failures == []
    assert {status for status, _ in (*kept.answers, *fresh.answers)} == {200}
    assert any(said == "close" for _, said in kept.answers)
