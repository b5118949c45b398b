"""The rules of drills and the SMTP proxy. No service runs here."""

import asyncio
import inspect
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from loadtests.drill.catalogue import CATALOGUE, Drill, DrillOrder, named
from loadtests.drill.faults import InjectedFault
from loadtests.drill.process_stops import ArrivedCopy, DuplicateCause, ProcessStop, cause_of_copies
from loadtests.drill.reconciliation import Reconciliation, checks_of, longest_gap
from loadtests.drill.report import AllowedCopies, CopyReason, DrillReport, combined
from loadtests.drill.smtp_proxy import SmtpProxy
from loadtests.drill.soak import slope
from loadtests.kit.check import AccountLogSummary, Check
from ops.local.sink import Sink
from tests.harness.patience import PATIENCE_S

LOG = AccountLogSummary(events=6, intact=True, accepted=2, accepted_today=2, accepted_twice=0, sent_today=2)
GOOD = Reconciliation(retried=0, accepted=2, unanswered=0, log=LOG)


@pytest.mark.parametrize("drill", CATALOGUE, ids=lambda drill: drill.name)
def test_every_drill_takes_an_order_and_returns_a_report(drill: Drill) -> None:
    found = inspect.signature(drill.function())

    assert [one.annotation for one in found.parameters.values()] == [DrillOrder]
    assert found.return_annotation is DrillReport


def test_a_drill_that_needs_several_processes_refuses_the_small_profile() -> None:
    refused = {one.name: one.missing("small") for one in CATALOGUE if one.needs_full}

    assert {"fence", "hosts", "pause-mta", "scale", "soak", "tails"} <= refused.keys()
    assert all("it can't run in the small profile, because" in (why or "") for why in refused.values())
    assert not refused.keys() & {"kill-mta", "kill-relay", "kill-api", "before-dot", "held-reply", "lost-answer"}


def test_the_profile_of_an_order_reaches_the_services_settings() -> None:
    order = named("kill-mta").order(None, None, random.Random(1), None, profile="small")

    assert order.settings({"MTA_WORKERS": "1"}) == {"MTA_WORKERS": "1", "PROFILE": "small"}
    assert named("kill-mta").order(None, None, random.Random(1), None).settings() == {"PROFILE": "full"}


def test_drill_names_are_unique_and_every_drill_has_a_description() -> None:
    assert len({drill.name for drill in CATALOGUE}) == len(CATALOGUE)
    assert all(drill.about.endswith(".") for drill in CATALOGUE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": ["a"]}, {"waiting": ["a"]}, {"unsettled": ["a"]}, {"unknown": ["a"]}, {"unanswered": 1},
        {"same_message_id": False}, {"log": msgspec.structs.replace(LOG, intact=False)},
        {"log": msgspec.structs.replace(LOG, accepted_twice=1)}, {"log": msgspec.structs.replace(LOG, accepted=3)},
        {"log": msgspec.structs.replace(LOG, sent_today=1)},
    ],
    ids=str,
)  # fmt: skip
def test_each_broken_rule_fails_one_check(wrong: dict[str, object]) -> None:
    assert all(check.ok for check in checks_of(GOOD))

    spoilt = msgspec.structs.replace(GOOD, **wrong)

    assert [check.ok for check in checks_of(spoilt)].count(False) == 1


def test_a_drill_without_checks_does_not_pass() -> None:
    assert not DrillReport(drill="d").passed
    assert not DrillReport(drill="d", checks=[Check("a", ok=True, found="")], lost=1).passed
    assert combined("both", [DrillReport(drill="a", checks=[Check("rule", ok=True, found="")])]).passed
    assert not combined("both", [DrillReport(drill="a", checks=[Check("rule", ok=False, found="")])]).passed


def test_a_drill_passes_with_as_many_second_copies_as_it_allows() -> None:
    reports = []
    for copies in (2, 3):
        reports.append(DrillReport(drill="d", copies=copies, checks=[Check("rule", ok=True, found="")]))
        reports[-1].allow_copies(AllowedCopies.each(2, 1, CopyReason.MTA_KILLED))

    assert [one.passed for one in reports] == [True, False]
    assert [one.checks[-1].ok for one in reports] == [True, False]
    assert combined("both", reports).allowed_copies == AllowedCopies(4, (CopyReason.MTA_KILLED,))
    assert not DrillReport(drill="d", copies=1, checks=[Check("rule", ok=True, found="")]).passed


def test_the_messages_of_two_reports_of_a_drill_are_added() -> None:
    report = DrillReport(drill="d", sent=3, accepted=2, delivered=1, lost=1, took_s=5.0)

    report.count(DrillReport(drill="e", sent=1, accepted=1, copies=1, duplicated=1, took_s=5.0))

    assert (report.sent, report.accepted, report.delivered, report.lost) == (4, 3, 1, 1)
    assert (report.copies, report.duplicated, report.took_s) == (1, 1, 5.0)


def test_the_time_to_recover_counts_from_the_end_of_the_fault() -> None:
    arrivals = [0.0, 1.0, 20.0, 21.0]

    assert longest_gap(arrivals, []) == 0.0
    assert longest_gap(arrivals, [InjectedFault("a kill", 2.0, 2.0)]) == 19.0
    assert longest_gap(arrivals, [InjectedFault("a stall", 2.0, 17.0)]) == 4.0
    assert longest_gap(arrivals, [InjectedFault("later", 20.5, 20.5)]) == 1.0


def test_the_slope_is_the_least_squares_slope() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope([(1.0, 7.0)]) == 0.0


@pytest.fixture
async def wired() -> AsyncIterator[tuple[SmtpProxy, Sink, int]]:
    """Run a sink behind a proxy; yield both and the proxy's port."""
    async with Sink() as sink, SmtpProxy("127.0.0.1", 0, sink.address[1]) as wire:
        yield wire, sink, wire.port


async def test_the_proxy_can_cut_the_reply_to_an_accepted_message(wired: tuple[SmtpProxy, Sink, int]) -> None:
    wire, sink, port = wired
    fates = iter([True, False])

    async def decide() -> bool:
        return next(fates)

    wire.on_kept = decide
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    for number in range(2):
        writer.write(b"MAIL FROM:<a@b.test>\r\nRCPT TO:<c%d@d.test>\r\nDATA\r\nX: 1\r\n\r\nHello\r\n.\r\n" % number)
        await sink.until(number + 1)
    async with asyncio.timeout(PATIENCE_S):
        said = await reader.read()
    writer.close()

    assert said.count(b"kept as") == 1
    assert sink.count == 2
    assert wire.passed_since(0.0) == 1


OWN, HEIRS = 4001, 5001


@pytest.mark.parametrize(
    ("own", "heir", "why"),
    [
        (100.3, 104.0, DuplicateCause.ON_THE_WIRE),  # its server took it while the process stood still
        (99.5, 104.0, DuplicateCause.UNSETTLED),
        (90.0, 104.0, DuplicateCause.OTHER),  # history by then
        (106.1, 104.0, DuplicateCause.WRONG),
        (106.9, 104.0, DuplicateCause.OTHER),  # given to it anew by then
    ],
)
def test_the_cause_of_a_copy_follows_from_its_time_and_connection(own: float, heir: float, why: DuplicateCause) -> None:
    stops = [ProcessStop(40.0, 46.0, frozenset({4000})), ProcessStop(100.0, 106.0, frozenset({4000, OWN}))]

    assert cause_of_copies([ArrivedCopy(own, OWN), ArrivedCopy(heir, HEIRS)], stops, dot_s=0.1) is why


def test_a_copy_sent_after_the_lease_was_lost_outweighs_other_causes() -> None:
    stop = ProcessStop(100.0, 106.0, frozenset({OWN}))
    copies = [ArrivedCopy(100.3, OWN), ArrivedCopy(104.0, HEIRS), ArrivedCopy(106.1, OWN)]

    assert cause_of_copies(copies, [stop], dot_s=0.0) is DuplicateCause.WRONG
