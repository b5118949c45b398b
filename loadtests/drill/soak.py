"""`ops drill soak`: hours of mail at half of the peak rate with a fault every few minutes; resources must not grow.

At the end every message is accounted for, and memory, open files and database sessions are compared with the
beginning.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg
from msgspec import Struct

from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import SendClient, plan
from loadtests.drill.faults import FAULTS, InjectedFault, NoProcessToKill, inject
from loadtests.drill.report import AllowedCopies, Check, CopyReason, DrillReport
from loadtests.drill.running import ON_THE_WIRE, on_service, report_after_faults, until_empty, while_sending
from loadtests.kit.accounts import new_access
from loadtests.kit.processes import open_files, rss_mb
from loadtests.kit.service import Service, ServicePart
from ops.local.sink import KEPT_MESSAGES

NAME: Final = "soak"
MINUTES: Final = 10.0
PEAK_MESSAGES: Final = 2_000  # sent as fast as it goes, to know what half of that is
FAULT_EVERY_S: Final = 300.0
MIN_FAULTS: Final = 8  # in a short soak they come closer
SAMPLE_S: Final = 10.0
REST_S: Final = 60.0  # after the last fault, until what is held is compared
MAX_GROWTH: Final = 1.25
MAX_GROWTH_MB: Final = 40.0  # beside it: caches that fill
MAX_FILES: Final = 60
MAX_SESSIONS: Final = 10
_TURNS: Final = ("kill-api", "kill-mta", "kill-valkey", "kill-postgres", "pause-mta", "kill-worker", "kill-relay")
_REASONS: Final = (CopyReason.MTA_KILLED, CopyReason.MTA_CUT_OFF, CopyReason.POSTGRES_ENDED)
_ROLES: Final = (ServicePart.API, ServicePart.RELAY, ServicePart.MTA, ServicePart.WORKER)


class ResourceSample(Struct, frozen=True):
    """The resources of the processes at one time. `rss_mb` is by role, with children."""

    at: float  # monotonic
    rss_mb: dict[str, float]
    files: int
    sessions: int


@on_service()
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Send mail for --minutes with faults in turn."""
    seconds = (order.minutes or MINUTES) * 60
    rate = await _half_of_peak(service, seconds)
    access = await new_access(service.settings, NAME)
    client = SendClient(service.base_url, access, plan(order.messages, NAME), rate=rate, rng=order.rng)
    resources = _Resources(service)
    resources.samples.append(await resources.sample())
    injected = await while_sending([client, resources], _faults(service, seconds, order.rng))
    await until_empty(service.database_url)
    await asyncio.sleep(REST_S)
    samples = [*resources.samples, await resources.sample()]
    copies = AllowedCopies.each(len(injected), ON_THE_WIRE, *_REASONS)
    report = await report_after_faults(service, access, client, injected, name=NAME, allowed_copies=copies)
    report.checks += _nothing_grows(samples)
    report.figures |= {"minutes": round(seconds / 60, 1), "messages a second": round(rate, 1)} | _slopes(samples)
    return report


async def _half_of_peak(service: Service, seconds: float) -> float:
    """Measure the peak rate with an account of its own; return half of it, or less if the sink could not keep all
    mail."""
    access = await new_access(service.settings, "soak-peak")
    client = SendClient(service.base_url, access, plan(PEAK_MESSAGES, "peak"))
    began = time.monotonic()
    await client.run()
    await until_empty(service.database_url)
    peak = PEAK_MESSAGES / (time.monotonic() - began)
    return min(peak / 2, 0.8 * KEPT_MESSAGES / seconds)


async def _faults(service: Service, seconds: float, rng: random.Random) -> list[InjectedFault]:
    """Inject the faults in turn, evenly over the time; return them."""
    injected = []
    began = time.monotonic()
    each_s = min(FAULT_EVERY_S, seconds / (MIN_FAULTS + 1))
    number = 0
    while time.monotonic() + each_s < began + seconds:
        await asyncio.sleep(each_s * rng.uniform(0.8, 1.2))
        name = _TURNS[number % len(_TURNS)]
        number += 1
        with suppress(NoProcessToKill):  # the final check reports processes that never came back
            injected.append(await asyncio.to_thread(inject, FAULTS[name], service, rng))
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
    return injected


class _Resources:
    """Samples the resources of the service's processes every `SAMPLE_S`."""

    def __init__(self, service: Service) -> None:
        self.samples: list[ResourceSample] = []
        self._service = service

    async def run(self, until: asyncio.Event) -> None:
        """Sample until the event is set."""
        while not until.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SAMPLE_S):
                    await until.wait()
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # a part of it may be dead just now
                self.samples.append(await self.sample())

    async def sample(self) -> ResourceSample:
        """Return the resources in use now."""
        pids = {part.name.lower(): self._service.with_children(part) for part in _ROLES}
        sessions = await self._service.value(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'waybill %'"
        )
        rss = {role: sum(map(rss_mb, found)) for role, found in pids.items()}
        files = sum(open_files(pid) for found in pids.values() for pid in found)
        return ResourceSample(time.monotonic(), rss, files, sessions)


def _nothing_grows(samples: Sequence[ResourceSample]) -> list[Check]:
    """Compare the state at rest with the maximum of the first half: a restarted process first holds less."""
    early, last = samples[: max(1, len(samples) // 2)], samples[-1]
    checks = []
    for role in last.rss_mb:
        before = max(one.rss_mb[role] for one in early)
        bound = max(before * MAX_GROWTH, before + MAX_GROWTH_MB)
        found = f"{before:.0f} MB to {last.rss_mb[role]:.0f} MB"
        checks.append(Check(f"the memory of {role} does not grow", last.rss_mb[role] <= bound, found))
    first = samples[0]
    checks.append(_returned("open files", first.files, last.files, MAX_FILES))
    checks.append(_returned("sessions of the database", first.sessions, last.sessions, MAX_SESSIONS))
    return checks


def _returned(what: str, first: int, last: int, most: int) -> Check:
    return Check(f"{what} return to the initial number", last <= first + most, f"{first} to {last}")


def _slopes(samples: Sequence[ResourceSample]) -> dict[str, Any]:
    """Return the growth of memory by role in MB per hour, by least squares over the second half of the samples."""
    half = samples[len(samples) // 2 : -1]
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in half:
        for role, rss in one.rss_mb.items():
            series[role].append((one.at / 3_600, rss))
    return {"memory slope, MB an hour": {role: round(slope(points), 1) for role, points in series.items()}}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through the points; 0 for fewer than two."""
    if len(points) < 2:
        return 0.0
    middle = [sum(one[axis] for one in points) / len(points) for axis in (0, 1)]
    spread = sum((x - middle[0]) ** 2 for x, _ in points)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in points) / spread if spread else 0.0
