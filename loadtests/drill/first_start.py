"""`ops drill first-start`: the first start of a state folder is killed at random moments, then it must complete.

Each folder's start is killed one to three times, alone (its servers then end by themselves) or with all its processes.
The start after them must be ready, with one account that can send and one key.
"""

import asyncio
import os
import signal
import time
from typing import Any, Final

from loadtests.drill.account_state import client_of, send
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.report import Check, DrillReport
from loadtests.kit.accounts import first_access
from loadtests.kit.service import Service, ServiceNotReady, clear, make_folder

NAME: Final = "first-start"
_KILLS_PER_FOLDER: Final = 3
_EARLIEST_S: Final = 0.1
_BEYOND: Final = 1.1  # of a whole start: some kills come right after it


def run(order: DrillOrder) -> DrillReport:
    """Kill first starts `order.rounds` times."""
    report = DrillReport(drill=NAME)
    began = time.monotonic()
    whole_s = _interrupted(0, 0.0, order, report)
    folders, left = 1, order.rounds
    while left:
        kills = min(left, order.rng.randint(1, _KILLS_PER_FOLDER))
        report.recovery_s = max(report.recovery_s, _interrupted(kills, whole_s, order, report))
        folders, left = folders + 1, left - kills
    wrong = len(report.examples)
    report.checks.append(
        Check("the start after the kills is ready, and its account sends", not wrong, f"{folders - wrong} of {folders}")
    )
    report.took_s = time.monotonic() - began
    return report


def _interrupted(kills: int, whole_s: float, order: DrillOrder, report: DrillReport) -> float:
    """Kill the first start of a new folder `kills` times and complete it; return how long the last start took."""
    folder = make_folder()
    service, rng = Service(folder, order.settings()), order.rng
    began = time.monotonic()
    try:
        for _ in range(kills):
            after_s = rng.uniform(_EARLIEST_S, whole_s * _BEYOND)
            alone = rng.random() < 0.5
            _kill_after(service, after_s, alone=alone)
            report.done.append(f"killed {'alone' if alone else 'with all'} after {after_s:.1f} s")
        began = time.monotonic()
        with service:
            took_s = time.monotonic() - began
            wrong = asyncio.run(_look(service, report))
    except ServiceNotReady as error:
        wrong, took_s = str(error), time.monotonic() - began
    finally:
        service.kill()
        clear(folder)
    if wrong:
        report.examples.append(f"{', '.join(report.done[-kills:])}: {wrong}")
    return took_s


def _kill_after(service: Service, after_s: float, *, alone: bool) -> None:
    """Start the service and kill it after `after_s`, ready or not."""
    began = time.monotonic()
    service.begin()
    time.sleep(max(began + after_s - time.monotonic(), 0.0))  # the random moment of the kill
    if alone and service.running():
        os.kill(service.pid, signal.SIGKILL)
        service.wait()
    else:
        service.kill()


async def _look(service: Service, report: DrillReport) -> str:
    """Send a message with the first run's key; return what is wrong, or an empty text."""
    access = first_access(service)
    async with client_of(service, access) as api:
        report.sent += 1
        answer = await send(api, access, "ann@example.com")
        if answer.status != 202:
            return f"sending answered {answer.status}: {answer.text}"
        report.accepted += 1
        listed = (await api.call("GET", "/v1/api-keys")).json
        valid: list[Any] = [one["id"] for one in listed["data"] if one["revokedAt"] is None]
        return "" if len(valid) == 1 else f"{len(valid)} keys are valid"
