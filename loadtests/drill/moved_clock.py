"""`ops drill clock`: the clock of the service's hosts jumps while mail flows; that of the database does not.

The service's processes read the time through a preloaded library (moved_clock.c), PostgreSQL and Valkey do not, as if
the hosts' clocks were wrong. Due times come from the database, so nothing is sent early; days are counted by the
hosts' clock and never go back.
"""

import asyncio
import os
import re
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from engine.base import clock
from engine.store.sink_folder import SinkEntry
from loadtests.drill.account_state import AccountState, client_of, must_send, send
from loadtests.drill.arrivals import arrived_at, head_of
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import SendClient
from loadtests.drill.faults import InjectedFault
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import planned_client, report_after_faults, run_on_service, while_sending
from loadtests.kit.accounts import ApiAccess, first_access, new_access
from loadtests.kit.servers import WebhookEndpoint
from loadtests.kit.service import Service
from ops.host.process_specs import PRELOAD
from ops.local.sink_store import entries

NAME: Final = "clock"
RATE: Final = 40.0
PHASE_S: Final = 14.0
SOON: Final = timedelta(seconds=62)  # mail scheduled for within the drill, when the clock is off by days
FAR: Final = timedelta(minutes=90)  # and for a time over which the clock jumps
SCHEDULED: Final = 10  # of each
CAP: Final = 20
LADDER_S: Final = 4.0
SLACK_S: Final = 3.0  # from the making of a time to its being seen
MAX_WAIT_S: Final = 60.0  # for mail that is put off for seconds: an hour's jump must not become an hour's wait
_WATCH_S: Final = 0.2
_BUILD_S: Final = 60.0
_SOURCE: Final = Path(__file__).with_suffix(".c")
_SETTINGS: Final = {
    "WEBHOOK_LADDER_S": ",".join([f"{LADDER_S:g}"] * 7),
    "GIVE_UP_S": str(40 * 86_400),  # above the longest jump: what has waited for longer than that is given up rightly
}
_SIGNED_AT: Final = re.compile(rb"(?<=[;\s])t=(\d{9,11})(?=[;\s])")


def run(order: DrillOrder) -> DrillReport:
    """Send mail while the hosts' clock jumps."""
    with MovedClock() as moved:

        async def play(service: Service) -> DrillReport:
            async with WebhookEndpoint(refuses=1) as endpoint:
                return await _play(service, order, moved, endpoint)

        return run_on_service(play, order.settings(_SETTINGS))


class ClockChange(Struct, frozen=True):
    """From the true time `at` on, the hosts' clock is off by `by_s`."""

    label: str
    at: float
    by_s: float


class MovedClock:
    """The clock of the service's processes; a context manager. Start services inside it."""

    def __init__(self) -> None:
        self.moves: list[ClockChange] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="waybill-clock-")
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        library = folder / "moved_clock.so"
        built = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(built, check=True, timeout=_BUILD_S)
        self._file = (folder / "offset").open("w+b", buffering=0)
        self.move("true", timedelta())
        # In our own environment, which a service takes over: the library itself is loaded by none but its processes.
        self._environ = {PRELOAD: str(library), "MOVED_CLOCK": self._file.name}
        os.environ |= self._environ
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._environ:
            os.environ.pop(name, None)
        self._file.close()
        self._folder.cleanup()

    def move(self, label: str, by: timedelta) -> None:
        """Set the offset of the clock from now on."""
        by_s = round(by.total_seconds())
        os.pwrite(self._file.fileno(), struct.pack("=q", by_s), 0)  # in place: the processes have it in their memory
        self.moves.append(ClockChange(label, time.time(), by_s))

    def shows(self, told_s: float, *, since: float, until: float) -> bool:
        """Return True if this clock may have shown `told_s` between `since` and `until` of the true clock."""
        for number, move in enumerate(self.moves):
            ends = self.moves[number + 1].at if number + 1 < len(self.moves) else until
            first, last = max(since - SLACK_S, move.at), min(until, ends) + SLACK_S
            if first <= last and first - SLACK_S <= told_s - move.by_s <= last:
                return True
        return False


class CountedHead(Struct, frozen=True):
    """The counters of an account head at one time."""

    day: date
    month: date
    sent_today: int
    sent_this_month: int


async def _play(service: Service, order: DrillOrder, moved: MovedClock, endpoint: WebhookEndpoint) -> DrillReport:
    settings = service.settings
    access, later = first_access(service), await new_access(settings, "later")
    capped, hooked = await new_access(settings, "capped", daily_cap=CAP), await new_access(settings, "hooked")
    client = planned_client(service, order, NAME, rate=RATE)
    watch = _HeadWatch(service, {"main": access, "capped": capped})
    eager = _Sender(service, capped, "capped", 0.1)
    due = await _schedule(service, later)
    async with client_of(service, hooked) as api:
        endpoint.secret = (await api.call("POST", "/v1/webhooks", {"url": endpoint.url})).json["signingSecret"]
    await while_sending([client, eager, _Sender(service, hooked, "hooked", 0.5), watch], _move(moved))
    await _posted(AccountState(service, hooked))
    waiting = await AccountState(service, later).read("SELECT count(*) FROM schedules WHERE account_id = $1")
    injected = [InjectedFault(f"the clock: {one.label}", one.at, one.at) for one in moved.moves[1:]]
    report = await report_after_faults(service, access, client, injected, name=NAME)
    arrived = list(entries(service.sink))
    report.checks += [
        *_scheduled_checks(due, arrived, waiting),
        *_retry_checks(client, arrived),
        *_day_checks(watch.seen, eager.answers),
        *_webhook_checks(moved, endpoint),
        _signed_check(moved, service.sink, arrived),
        _answers_check(client),
    ]
    report.figures["days seen"] = [str(day) for day in dict.fromkeys(one.day for one in watch.seen["capped"])]
    return report


async def _move(moved: MovedClock) -> None:
    await asyncio.sleep(PHASE_S)
    for label in ("two hours ahead", "an hour back", "over midnight", "over the end of the month", "true again"):
        moved.move(label, _offset(label, clock.now()))
        await asyncio.sleep(PHASE_S)


def _offset(label: str, at: datetime) -> timedelta:
    """Return the offset of a step; midnight is passed in the middle of the phase."""
    midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time(), UTC)
    next_month = clock.first_of_month(clock.first_of_month(at.date()) + timedelta(days=32))
    first = datetime.combine(next_month, datetime.min.time(), UTC)
    ahead = {
        "two hours ahead": timedelta(hours=2),
        "an hour back": timedelta(hours=-1),
        "over midnight": midnight - at - timedelta(seconds=PHASE_S / 2),
        "over the end of the month": first - at - timedelta(seconds=PHASE_S / 2),
    }
    return ahead.get(label, timedelta())


async def _schedule(service: Service, access: ApiAccess) -> dict[str, float]:
    """Schedule mail for soon and for later; return the true due time (Unix seconds) by address."""
    due = {}
    async with client_of(service, access) as api:
        for word, ahead in (("soon", SOON), ("far", FAR)):
            for number in range(SCHEDULED):
                at = clock.now() + ahead
                to = f"reader+{word}-{number}@d0.test"
                await must_send(api, access, to, scheduledAt=clock.iso(at))
                due[to] = at.timestamp()
    return due


class _Sender:
    """Sends a message of an account every `pause_s`, whatever the answers; `answers` counts them by status."""

    def __init__(self, service: Service, access: ApiAccess, word: str, pause_s: float) -> None:
        self.answers: Counter[int] = Counter()
        self._api = client_of(service, access)
        self._access = access
        self._word = word
        self._pause_s = pause_s

    async def run(self, until: asyncio.Event) -> None:
        """Send until the event is set."""
        async with self._api:
            while not until.is_set():
                to = f"reader+{self._word}-{self.answers.total()}@d1.test"
                self.answers[(await send(self._api, self._access, to)).status] += 1
                await asyncio.sleep(self._pause_s)


class _HeadWatch:
    """Records each change of the accounts' counters, as far as polling sees it."""

    def __init__(self, service: Service, accounts: dict[str, ApiAccess]) -> None:
        self.seen = {name: list[CountedHead]() for name in accounts}
        self._service = service
        self._accounts = accounts

    async def run(self, until: asyncio.Event) -> None:
        """Poll until the event is set, and once more."""
        async with self._service.session() as connection:
            last = False
            while not last:
                last = until.is_set()
                for name, access in self._accounts.items():
                    row = await connection.fetchrow(
                        "SELECT day, month, sent_today, sent_this_month FROM account_heads WHERE account_id = $1",
                        access.account_id,
                    )
                    assert row is not None
                    head = CountedHead(*row)
                    if head.sent_today and self.seen[name][-1:] != [head]:
                        self.seen[name].append(head)
                await asyncio.sleep(_WATCH_S)


async def _posted(state: AccountState) -> None:
    """Wait until no delivery and no webhook post is pending, at most `MAX_WAIT_S`."""
    ends = time.monotonic() + MAX_WAIT_S
    while time.monotonic() < ends:
        if not await state.read("SELECT count(*) FROM queue WHERE account_id = $1") and not await state.read(
            "SELECT count(*) FROM webhook_queue WHERE account_id = $1"
        ):
            return
        await asyncio.sleep(_WATCH_S)


# -- what must hold ----------------------------------------------------------------------------------------------------


def _scheduled_checks(due: dict[str, float], arrived: Sequence[SinkEntry], waiting: int) -> list[Check]:
    came: dict[str, list[float]] = {}
    for entry in arrived:
        for address in set(entry.recipients) & due.keys():
            came.setdefault(address, []).append(arrived_at(entry))
    soon = {address: at for address, at in due.items() if "+soon-" in address}
    early = [address for address, times in came.items() if min(times) < due[address]]
    late = max((times[0] - due[address] for address, times in came.items()), default=0.0)
    copies = Counter(len(came.get(address, ())) for address in soon)
    return [
        Check("no scheduled message is sent early", not early and waiting == SCHEDULED,
              f"{len(early)} early, {waiting} of {SCHEDULED} still wait for theirs"),
        Check("each scheduled message is sent once, on time", copies == {1: SCHEDULED} and late < MAX_WAIT_S,
              f"{copies[1]} of {SCHEDULED} once, at most {late:.1f} s after their time"),
    ]  # fmt: skip


def _retry_checks(client: SendClient, arrived: Sequence[SinkEntry]) -> list[Check]:
    """Check the wait of greylisted mail: the first retry step is 1 s, and the sink refuses the first attempt."""
    came = {address: arrived_at(entry) for entry in arrived for address in entry.recipients}
    put_off = [one for one in client.sends if one.is_greylisted and one.address in came]
    waits = [came[one.address] - one.answered_at for one in put_off]
    found = f"{len(waits)} after {min(waits, default=0):.1f} to {max(waits, default=0):.1f} s"
    held = bool(waits) and min(waits) > 0.5 and max(waits) < MAX_WAIT_S
    return [Check("greylisted mail waits for seconds only", held, found)]


def _day_checks(seen: dict[str, list[CountedHead]], answers: Counter[int]) -> list[Check]:
    checks = []
    for name, heads in seen.items():
        days = [one.day for one in heads]
        months = [one.month for one in heads]
        forward = days == sorted(days) and months == sorted(months)
        within = all(
            after.sent_today >= before.sent_today for before, after in pairwise(heads) if after.day == before.day
        )
        shown = f"{len(set(days))} days, {len(set(months))} months"
        held = forward and within and len(set(days)) > 1
        checks.append(Check(f"{name}: its day advances and never goes back", held, shown))
    most: dict[date, int] = {}
    for one in seen["capped"]:
        most[one.day] = max(most.get(one.day, 0), one.sent_today)
    exact = max(most.values(), default=0) == CAP and answers[202] == sum(most.values()) and set(answers) == {202, 429}
    shown = f"{answers[202]} accepted on {len(most)} days, {answers[429]} refused"
    return [*checks, Check(f"a cap of {CAP} per day holds", exact, shown)]


def _webhook_checks(moved: MovedClock, endpoint: WebhookEndpoint) -> list[Check]:
    events = endpoint.by_event()
    twice = [posts for posts in events.values() if [one.attempt for one in posts] == [1, 2]]
    waits = list(endpoint.waits_s())
    wrong = [one for one in endpoint.posts if not moved.shows(one.signed_at, since=one.at, until=one.at)]
    forged = sum(not one.genuine for one in endpoint.posts)
    least, most = min(waits, default=0.0), max(waits, default=0.0)
    return [
        Check("each event is posted until accepted, and not again", bool(events) and len(twice) == len(events),
              f"{len(twice)} of {len(events)}"),
        Check("posts keep their retry schedule", least > LADDER_S * 0.8 and most < LADDER_S + MAX_WAIT_S,
              f"{least:.1f} to {most:.1f} s for a step of {LADDER_S:g}"),
        Check("their signatures carry the host's time at the post", not wrong and not forged,
              f"{len(endpoint.posts)} posts, {len(wrong)} with another time, {forged} not genuine"),
    ]  # fmt: skip


def _signed_check(moved: MovedClock, sink: Path, arrived: Sequence[SinkEntry]) -> Check:
    """Check DKIM signing times: a signature is made within a minute before arrival and kept for retries."""
    total, wrong = 0, []
    for entry in arrived:
        for shown in map(int, _SIGNED_AT.findall(head_of(sink, entry))):
            total += 1
            came = arrived_at(entry)
            if not moved.shows(shown, since=came - MAX_WAIT_S, until=came):
                wrong.append(entry.test_id)
    held = total > 0 and not wrong
    return Check("DKIM signatures carry the host's time at the signing", held, f"{len(wrong)} of {total} do not")


def _answers_check(client: SendClient) -> Check:
    strange = Counter(one.status for one in client.tried if one.status not in (200, 202))
    return Check("no send is refused", not strange, f"{len(client.tried)} requests, {dict(strange)}")
