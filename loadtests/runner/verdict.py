"""What must hold after a load: what was accepted was delivered once or is accounted for, and the logs are whole."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from engine.store.queries import Queries
from loadtests.bench.check import CheckResult
from loadtests.bench.service import BenchService
from loadtests.report.course import LoadRecord
from loadtests.runner.catalogue import Scenario
from loadtests.runner.own import LoadAccount, Receivers
from ops import admin

_SQL = Queries.beside(__file__, "verdict.sql")
_OUTCOMES = _SQL.command("count_outcomes")
_ACCEPTED = _SQL.command("count_accepted")
_SHOWN = _SQL.command("count_shown")
_POSTS = _SQL.command("count_posts")
_ENDED: Final = ("bounced", "failed", "rejected")


async def judge(
    scenario: Scenario,
    service: BenchService,
    accounts: list[LoadAccount],
    course: LoadRecord,
    receivers: Receivers | None,
) -> list[CheckResult]:
    """Compare the ledger, the database and the sink."""
    rows = await _OUTCOMES.records(service.pool, list(scenario.ill))
    [stored] = await _ACCEPTED.records(service.pool)
    outcomes = {row["status"]: row["rows"] for row in rows}
    findings = [
        _answers(course, stored["messages"], stored["accepted"]),
        _ways(course, outcomes, {row["status"]: row["well"] for row in rows}),
        CheckResult("every delivered copy arrived once", course.copies == 0, f"{course.copies} copies too many"),
        await _chains(service, accounts),
        CheckResult("no process died", not service.deaths(), ", ".join(service.deaths()) or "none"),
    ]
    if scenario.readers:
        findings.append(await _tails(scenario, service, accounts, course))
    if receivers is not None:
        findings.append(await _posts(service, receivers))
    return findings


def _answers(course: LoadRecord, messages: int, events: int) -> CheckResult:
    """A request without an answer may have been accepted all the same: its sender does not know."""
    accepted = len(course.ways)
    unknown = sum(one.offered - one.accepted for one in course.requests if one.status.startswith("lost"))
    refused = sum(one.offered - one.accepted for one in course.requests) - unknown
    return CheckResult(
        "what was accepted is stored, and nothing else",
        accepted <= messages == events <= accepted + unknown,
        f"{accepted} accepted, {messages} stored, {events} accepted events, {refused} refused, {unknown} unanswered",
    )


def _ways(course: LoadRecord, outcomes: Mapping[str, int], well: Mapping[str, int]) -> CheckResult:
    """At domains that are well everything has ended; elsewhere what waits is counted, and nothing is missing."""
    arrived = sum(way.arrived_at is not None for way in course.ways) + course.strangers
    delivered, ended = outcomes.get("delivered", 0), sum(outcomes.get(one, 0) for one in _ENDED)
    waiting = sum(outcomes.values()) - delivered - ended
    waiting_well = sum(well.values()) - well.get("delivered", 0) - sum(well.get(one, 0) for one in _ENDED)
    return CheckResult(
        "accepted = delivered + refused by their servers + waiting at slow ones",
        delivered <= arrived <= delivered + waiting and waiting_well == 0 and ended == 0,
        f"{sum(outcomes.values())} recipients: {delivered} delivered, {arrived} at the sink, {ended} bounced or failed,"
        f" {waiting} waiting",
    )


async def _chains(service: BenchService, accounts: list[LoadAccount]) -> CheckResult:
    """By the API, as a customer would ask."""
    base = f"http://{service.settings.api_host}:{service.settings.api_port}"
    keys = [one.key for one in accounts]

    def asked() -> list[dict[str, Any]]:
        return [admin.call_api(base, "GET", "/v1/audit/verify", key) for key in keys]

    return whole(await asyncio.to_thread(asked))


def whole(verdicts: list[dict[str, Any]]) -> CheckResult:
    """Of the logs of several accounts."""
    events = sum(one["events"] for one in verdicts)
    intact = all(one["intact"] for one in verdicts)
    return CheckResult("every log is a whole chain", intact, f"{events} events of {len(verdicts)} accounts")


async def _tails(
    scenario: Scenario, service: BenchService, accounts: list[LoadAccount], course: LoadRecord
) -> CheckResult:
    [row] = await _SHOWN.records(service.pool, [one.id for one in accounts])
    each = scenario.readers // len(accounts)
    expected = row["rows"] * each
    return CheckResult(
        "every live tail got every event",
        len(course.tailed) == expected,
        f"{len(course.tailed)} of {expected} on {scenario.readers} tails",
    )


async def _posts(service: BenchService, receivers: Receivers) -> CheckResult:
    [row] = await _POSTS.records(service.pool, receivers.hanging)
    arrived = receivers.arrivals()
    twice = len(arrived) - row["delivered"]
    return CheckResult(
        "every event was posted to every endpoint that answers",
        row["pending"] == 0 and twice == 0,
        f"{len(arrived)} arrived, {row['delivered']} recorded, {row['pending']} pending, {twice} beyond the record",
    )


async def posts_pending(service: BenchService, receivers: Receivers) -> int:
    """Webhook posts that an endpoint which answers still waits for."""
    [row] = await _POSTS.records(service.pool, receivers.hanging)
    return int(row["pending"])
