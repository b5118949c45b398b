"""`ops drill rolling`: replace every process again and again while mail flows over HTTP and SMTP; no request fails.

Four kinds of client: one that keeps its connections, one that opens a connection per request, SMTP sessions that are in
DATA most of the time, and a live tail that resumes with the last id it received.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Final

from engine.base.events import EventType
from loadtests.drill import tails
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.clients import Send, SendClient, mail_of, planned
from loadtests.drill.faults import InjectedFault
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.running import on_service, reconcile_when_idle, while_sending
from loadtests.kit.accounts import ApiAccess, first_access
from loadtests.kit.service import Service
from loadtests.kit.smtp_client import RefusedCommand, SmtpSession
from ops.host import rolling as roller

NAME: Final = "rolling"
RATE: Final = 40.0  # messages a second of each HTTP client
SESSIONS: Final = 4
SETTINGS: Final = {"TAIL_LEASE_S": "1"}
_PIECES: Final = 8  # of a message's content, so that DATA lasts
_PIECE_S: Final = 0.1
_AGAIN_S: Final = 0.05
_TAIL_S: Final = 60.0


class SlowSender:
    """An SMTP session with slow DATA; after a 421 between messages it reconnects."""

    def __init__(self, port: int, access: ApiAccess, run_name: str) -> None:
        self.sends: list[Send] = []
        self.refused: list[str] = []  # connections that were refused
        self.cut: list[str] = []  # messages that were begun and got no answer
        self.asked_to_leave = 0
        self._port = port
        self._access = access
        self._run = run_name

    async def run(self, until: asyncio.Event) -> None:
        """Send until the event is set."""
        while not until.is_set():
            try:
                async with await SmtpSession.connect(self._port, tls=True) as session:
                    await self._greet_and_send(session, until)
            except OSError as error:
                self.refused.append(f"{error!r}")
                await asyncio.sleep(_AGAIN_S)

    async def _greet_and_send(self, session: SmtpSession, until: asyncio.Event) -> None:
        try:
            await session.greet(key=self._access.key)
        except RefusedCommand as error:
            if error.reply.startswith("421"):
                self.asked_to_leave += 1
            else:
                self.refused.append(f"at the greeting: {error!r}")
            return
        while not until.is_set():
            try:
                reply = await session.say(f"MAIL FROM:<{self._access.sender}>\r\n".encode())
            except OSError:
                reply = ""
            if not reply or reply.startswith("421"):  # a 421 may cross the command, and the connection is closed
                self.asked_to_leave += 1
                return
            send = planned(self._run, len(self.sends))
            self.sends.append(send)
            send.first_at, send.tries = time.time(), 1
            try:
                await self._message(session, send)
            except (OSError, RefusedCommand) as error:
                self.cut.append(f"{send.key}: {error!r}")
                return

    async def _message(self, session: SmtpSession, send: Send) -> None:
        await session.expect(f"RCPT TO:<{send.address}>".encode(), "250")
        await session.expect(b"DATA", "354")
        session.writer.write(mail_of(self._access, send, ""))
        for number in range(_PIECES):
            await asyncio.sleep(_PIECE_S)
            session.writer.write(f"Piece {number} of a message whose sender takes its time.\r\n".encode())
        reply = await session.expect(b".", "250")
        send.answered(202, next(word for word in reply.split() if word.startswith("msg_")))


class CountingTail:
    """A live tail that counts goodbye events and refused connections."""

    def __init__(self, base_url: str, key: str, start: int) -> None:
        self.goodbyes = 0
        self.refused = 0
        self.reader = tails.TailFollower("tail", self._follow, base_url, key, start)

    def _follow(self, url: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        try:
            for name, place in tails.plain(url, headers):
                self.goodbyes += name == "bye"
                yield name, place
        except ConnectionRefusedError:
            self.refused += 1
            raise


@on_service(SETTINGS)
async def run(service: Service, order: DrillOrder) -> DrillReport:
    """Restart all processes in rounds under load."""
    access = first_access(service)
    start = await service.value("SELECT seq FROM account_heads WHERE account_id = $1", access.account_id)
    follower = CountingTail(service.base_url, access.key, start)
    follower.reader.start()
    kept, reconnecting = (
        SendClient(service.base_url, access, [planned(f"{NAME}-{name}", 0)], rate=RATE, keeps=keeps, rng=order.rng)
        for name, keeps in (("kept", True), ("fresh", False))
    )
    slow = [SlowSender(service.submission_tls_port, access, f"{NAME}-slow{number}") for number in range(SESSIONS)]
    senders: list[SendClient | SlowSender] = [kept, reconnecting, *slow]
    replaced: list[str] = []
    rounds = await while_sending(senders, restart_in_rounds(service, order.rounds, [], replaced))
    sends = [send for client in senders for send in client.sends]
    report = await reconcile_when_idle(service, access, sends, rounds, name=NAME)
    shown = await _shown(service, access, start)
    await tails.until_seen(follower.reader, shown[-1], time.monotonic() + _TAIL_S)
    follower.reader.stop()
    report.checks += [
        Check("no message arrived twice", report.copies == 0, f"{report.copies} extra copies"),
        _answers("a client that keeps its connections gets no refusal and no broken connection", kept),
        _answers("a client with a connection for each request gets no refusal and no broken connection", reconnecting),
        *_smtp(slow),
        *_tail(follower, shown),
        all_replaced("every process was replaced in every round", replaced, order.rounds),
    ]
    took = [one.until - one.at for one in rounds]
    report.figures |= {
        "a round took, s": f"{min(took):.1f} to {max(took):.1f}",
        "longest answer, ms": round(max(one.took_s for one in (*kept.tried, *reconnecting.tried)) * 1_000),
        "tail: goodbyes, connections": f"{follower.goodbyes}, {follower.reader.connections}",
    }
    return report


async def restart_in_rounds(
    service: Service, rounds: int, kinds: list[str], replaced: list[str], pause_s: float = 0.0
) -> list[InjectedFault]:
    """Replace the processes of these kinds (none: all) in each round; add their names to `replaced`."""
    injected = []
    for number in range(1, rounds + 1):
        await asyncio.sleep(pause_s)
        at = time.time()
        replaced.extend(await asyncio.to_thread(lambda: list(roller.ask_restart(service.state, kinds))))
        injected.append(InjectedFault(f"round {number}", at, time.time()))
    return injected


def all_replaced(what: str, replaced: list[str], rounds: int) -> Check:
    """Check that each process that was replaced at all was replaced in every round."""
    counts = {name: replaced.count(name) for name in replaced}
    found = ", ".join(f"{name} {count}" for name, count in counts.items())
    return Check(what, bool(counts) and set(counts.values()) == {rounds}, found)


def _answers(what: str, client: SendClient) -> Check:
    bad = [one.status for one in client.tried if one.status not in (200, 202)]
    return Check(what, not bad, f"{len(client.tried)} requests, {len(bad)} without a 202 {set(bad) or ''}".strip())


def _smtp(slow: list[SlowSender]) -> Iterator[Check]:
    sent = sum(len(one.sends) for one in slow)
    left = sum(one.asked_to_leave for one in slow)
    for what, found in (
        ("no connection to the relay is refused", [line for one in slow for line in one.refused]),
        ("no message is interrupted", [line for one in slow for line in one.cut]),
    ):
        reply = f"{sent} messages, sessions ended by 421: {left}, against the rule: {len(found)} {found[:2] or ''}"
        yield Check(what, not found, reply.strip())


def _tail(follower: CountingTail, shown: list[int]) -> Iterator[Check]:
    seen = follower.reader.seen
    yield Check("the tail has every event once, in order", seen == shown, f"{len(seen)} of {len(shown)}")
    turned_away = follower.refused + follower.reader.refused
    yield Check("the tail is never refused", turned_away == 0, f"{turned_away} times")


async def _shown(service: Service, access: ApiAccess, start: int) -> list[int]:
    """Return the `seq` of all events that a tail from `start` on shows."""
    rows = await service.rows(
        "SELECT seq FROM events WHERE account_id = $1 AND seq > $2 AND type = ANY($3::text[]) ORDER BY seq",
        access.account_id, start, [str(one) for one in EventType],
    )  # fmt: skip
    return [row["seq"] for row in rows]
