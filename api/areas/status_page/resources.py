"""Serve `/status` and `/status.json`: one measurement for all readers within a few seconds, with 200 in any state."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
import falcon.asgi
import msgspec

from api.http.static_files import StaticFile, serve
from api.pages import status_page
from api.pages.status_page import ShownComponent, ShownIncident, ShownUpdate, StatusDay, StatusReport
from engine.base import clock
from engine.base.settings import Settings
from engine.sending.status_page import rules, service
from engine.sending.status_page.types import ComponentDay, IncidentUpdate, StatusComponent, StatusReading
from engine.store.database_errors import DatabaseUnavailable

PATHS: Final = ("/status", "/status.json")
KEPT_S: Final = 5.0
HISTORY_S: Final = 60.0  # a quarter hour at most adds to it
_CACHE: Final = f"public, max-age={KEPT_S:.0f}"
_TITLES: Final = {
    StatusComponent.ACCEPTING: "Accepting emails",
    StatusComponent.DELIVERING: "Delivering emails",
    StatusComponent.WEBHOOKS: "Webhooks",
    StatusComponent.RECEIVING: "Receiving emails",
}


class StatusPage:
    """The page as HTML and JSON, made at most once in `KEPT_S` by each process."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._holder = StatusReports(pool, settings)
        self._prefix = urlsplit(settings.public_url.rstrip("/")).path
        self._made: tuple[StatusReport, dict[str, StaticFile]] | None = None
        self._rendering = asyncio.Lock()

    async def on_get(self, request: falcon.asgi.Request, response: falcon.asgi.Response) -> None:
        """Answer with the page; 200 also while components are down."""
        file = (await self._files())[PATHS[request.path.endswith(".json")]]
        serve(request, response, file, cache=_CACHE, policy=status_page.policy())

    on_head = on_get

    async def _files(self) -> dict[str, StaticFile]:
        """Return the page and its JSON by path, rendered once per report: 5 ms in a thread."""
        report = await self._holder.report()
        async with self._rendering:
            if self._made is None or self._made[0] is not report:
                self._made = report, await asyncio.to_thread(self._rendered, report)
            return self._made[1]

    def _rendered(self, report: StatusReport) -> dict[str, StaticFile]:
        html = status_page.html_of(report, self._prefix).encode()
        json = msgspec.json.encode(report)
        return dict(zip(PATHS, (StaticFile.of(html, ".html"), StaticFile.of(json, ".json")), strict=True))


class StatusReports:
    """The last report of this process, and the last history, which is shown while the database is away."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._report: StatusReport | None = None
        self._made_at = 0.0
        self._days: list[ComponentDay] | None = None
        self._days_at = 0.0
        self._incidents: list[IncidentUpdate] = []
        self._making = asyncio.Lock()

    async def report(self) -> StatusReport:
        """Return a report that is at most `KEPT_S` old; requests that come meanwhile wait for the same one."""
        async with self._making:
            if self._report is None or _seconds() - self._made_at >= KEPT_S:
                self._report = await self._make()
                self._made_at = _seconds()
            return self._report

    async def _make(self) -> StatusReport:
        at = clock.now()
        measuring = service.measure(self._pool, self._settings, "api")
        found, _ = await asyncio.gather(measuring, self._look_back(at))
        days = self._days or []
        return StatusReport(
            status=rules.overall(one.state for one in found.values()).word,
            measured_at=at,
            history_known=self._days is not None,
            components=[_component(name, reading, days, at) for name, reading in found.items()],
            incidents=_incidents(self._incidents),
        )

    async def _look_back(self, at: datetime) -> None:
        """Read incidents, and the history once a minute; keep what is known if the database does not respond."""
        try:
            async with asyncio.timeout(service.MEASURE_S):
                self._incidents = await service.incidents(self._pool, at)
                if self._days is None or _seconds() - self._days_at >= HISTORY_S:
                    self._days = await service.history(self._pool, at)
                    self._days_at = _seconds()
        except (DatabaseUnavailable, OSError):
            return


def add_routes(app: "falcon.asgi.App[Any, Any]", pool: asyncpg.Pool, settings: Settings) -> None:
    """Add the page to the application if the installation shows it."""
    if settings.status_page:
        page = StatusPage(pool, settings)
        for path in PATHS:
            app.add_route(path, page)


def _seconds() -> float:
    return asyncio.get_running_loop().time()


def _component(
    name: StatusComponent, reading: StatusReading, days: Sequence[ComponentDay], at: datetime
) -> ShownComponent:
    own = {one.day: one for one in days if one.component == name}
    shown = []
    for day in rules.shown_days(at.date()):
        counts = own.get(day)
        state = rules.day_state(counts)
        up = None if counts is None else _rounded(rules.uptime([counts]))
        shown.append(StatusDay(day, None if state is None else state.word, up))
    whole = _rounded(rules.uptime(own.values()))
    return ShownComponent(name.value, _TITLES[name], reading.state.word, reading.detail, whole, shown)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _incidents(updates: Sequence[IncidentUpdate]) -> list[ShownIncident]:
    by_incident: dict[Any, list[IncidentUpdate]] = defaultdict(list)
    for one in updates:
        by_incident[one.incident_id].append(one)
    return [
        ShownIncident(
            some[0].title, some[0].opened_at, some[0].closed_at,
            [ShownUpdate(one.written_at, one.message) for one in some],
        )
        for some in by_incident.values()
    ]  # fmt: skip
