"""`ops drill rolling`: replace every process again and again while mail flows over HTTP and SMTP; no request fails.

Four kinds of client: one that keeps its connections, one that opens a connection per request, SMTP sessions that are
in
DATA most of the time, and a live tail that resumes with the last id it received.
"""

import asyncio
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Final

import aiohttp
import asyncpg

from engine.base.events import EventType
from loadtests.drill import tails
from loadtests.drill.catalogue import DrillOrder
from loadtests.drill.faults import InjectedFault
from loadtests.drill.fresh_service import account_id, database_url, first_access, run_on_service, until_empty
from loadtests.drill.reconciliation import reconcile, report_of
from loadtests.drill.report import Check, DrillReport
from loadtests.drill.send_client import ATTEMPT_S, CONCURRENCY, ApiAccess, Send, SendClient, key_of, planned
from loadtests.drill.service import Service
from ops.host import rolling as roller

NAME: Final = "rolling"
RATE: Final = 40.0  # messages a second of each HTTP client
SESSIONS: Final = 4
SETTINGS: Final = {"TAIL_LEASE_S": "1"}
_PIECES: Final = 8  # of a message's content, so that DATA lasts
_PIECE_S: Final = 0.1
_AGAIN_S: Final = 0.05
_TAIL_S: Final = 60.0
_LINE_S: Final = 30.0


def run(order: DrillOrder) -> DrillReport:
    """Restart all processes in rounds under load (fault 18)."""
    return run_on_service(lambda service: _play(service, order), SETTINGS)


class ReconnectingClient(SendClient):
    """A send client that opens a connection for each request."""

    @staticmethod
    def session() -> aiohttp.ClientSession:
        """Return an HTTP session that keeps no connection open."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONCURRENCY, force_close=True),
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )


class SessionCutShort(Exception):  # noqa: N818 - an answer
    """The session ended after MAIL had been accepted, which must not happen."""


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
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=_trusting())
            except OSError as error:
                self.refused.append(repr(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                await self._session(reader, writer, until)
            except (OSError, EOFError) as error:
                self.refused.append(f"at the greeting: {error!r}")
            except SessionCutShort as error:
                self.cut.append(str(error))
            finally:
                writer.transport.abort()

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, until: asyncio.Event) -> None:
        login = b64encode(b"\0apikey\0" + self._access.key.encode()).decode()
        for line in ("", "EHLO drill.test", f"AUTH PLAIN {login}"):
            if (await _say(reader, writer, line)).startswith("421"):
                self.asked_to_leave += 1
                return
        while not until.is_set():
            send = planned(self._run, len(self.sends))
            try:
                first = await _say(reader, writer, f"MAIL FROM:<{self._access.sender}>")
            except (OSError, EOFError):  # the 421 was on its way while the command was sent: the connection is closed
                first = "421"
            if first.startswith("421"):
                self.asked_to_leave += 1
                return
            self.sends.append(send)
            send.first_at, send.tries = time.time(), 1
            try:
                await self._message(reader, writer, send)
            except (OSError, EOFError) as error:
                raise SessionCutShort(f"{key_of(send)}: {error!r}") from error

    async def _message(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, send: Send) -> None:
        await _expect(reader, writer, f"RCPT TO:<{send.address}>", "250")
        await _expect(reader, writer, "DATA", "354")
        key = key_of(send)
        writer.write(
            f"From: {self._access.sender}\r\nTo: {send.address}\r\nSubject: Drill {send.number}\r\n"
            f"X-Test-Id: {key}\r\nX-Waybill-Idempotency-Key: {key}\r\n\r\n".encode()
        )
        for number in range(_PIECES):
            await asyncio.sleep(_PIECE_S)
            writer.write(f"Piece {number} of a message whose sender takes its time.\r\n".encode())
        reply = await _expect(reader, writer, ".", "250")
        send.answered_at, send.status = time.time(), 202
        send.message_id = next(word for word in reply.split() if word.startswith("msg_"))


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


async def _play(service: Service, order: DrillOrder) -> DrillReport:
    access = first_access(service)
    start = await _place(service, access)
    follower = CountingTail(service.base_url, access.key, start)
    follower.reader.start()
    kept = SendClient(service.base_url, access, [planned(f"{NAME}-kept", 0)], rate=RATE, rng=order.rng)
    reconnecting = ReconnectingClient(service.base_url, access, [planned(f"{NAME}-fresh", 0)], rate=RATE, rng=order.rng)
    slow = [SlowSender(service.submission_tls_port, access, f"{NAME}-slow{number}") for number in range(SESSIONS)]
    senders: list[SendClient | SlowSender] = [kept, reconnecting, *slow]
    over = asyncio.Event()
    rounds: list[InjectedFault] = []
    replaced: list[str] = []
    began = time.monotonic()

    async def restarts() -> None:
        try:
            for number in range(1, order.rounds + 1):
                at = time.time()
                replaced.extend(await asyncio.to_thread(lambda: list(roller.ask_restart(service.state, []))))
                rounds.append(InjectedFault(f"round {number}", at, time.time()))
        finally:
            over.set()

    async with asyncio.TaskGroup() as tasks:
        for client in senders:
            tasks.create_task(client.run(over))
        tasks.create_task(restarts())
    url = database_url(service)
    await until_empty(url)
    took_s = time.monotonic() - began
    sends = [send for client in senders for send in client.sends]
    found = await reconcile(url, service.sink, account_id(access), sends, rounds, drill=NAME, took_s=took_s)
    shown = await _shown(service, access, start)
    await asyncio.to_thread(_until_seen, follower.reader, shown[-1])
    follower.reader.stop()
    report = report_of(found)
    report.checks += [
        Check("no message arrived twice", found.copies == 0, f"{found.copies} extra copies"),
        _answers("a client that keeps its connections gets no refusal and no broken connection", kept),
        _answers("a client with a connection for each request gets no refusal and no broken connection", reconnecting),
        *_smtp(slow),
        *_tail(follower, shown),
        Check("every process was replaced in every round", _all_replaced(replaced, order.rounds), _counts(replaced)),
    ]
    report.figures |= {
        "a round took, s": f"{min(one.until - one.at for one in rounds):.1f} to "
        f"{max(one.until - one.at for one in rounds):.1f}",
        "longest answer, ms": round(max(one.took_s for one in (*kept.tried, *reconnecting.tried)) * 1_000),
        "tail: goodbyes, connections": f"{follower.goodbyes}, {follower.reader.connections}",
    }
    return report


def _answers(what: str, client: SendClient) -> Check:
    bad = [one for one in client.tried if one.status not in (200, 202)]
    kinds = {one.status for one in bad}
    return Check(what, not bad, f"{len(client.tried)} requests, {len(bad)} without a 202 {kinds or ''}".strip())


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


def _all_replaced(replaced: list[str], rounds: int) -> bool:
    return bool(replaced) and all(replaced.count(name) == rounds for name in set(replaced))


def _counts(replaced: list[str]) -> str:
    return ", ".join(f"{name} {replaced.count(name)}" for name in dict.fromkeys(replaced))


async def _place(service: Service, access: ApiAccess) -> int:
    """Return the last `seq` of the account's log."""
    connection = await asyncpg.connect(database_url(service))
    try:
        found = await connection.fetchval(
            "SELECT seq FROM account_heads WHERE account_id = $1", account_id(access), timeout=10
        )
        return int(found)
    finally:
        await connection.close()


async def _shown(service: Service, access: ApiAccess, start: int) -> list[int]:
    """Return the `seq` of all events that a tail from `start` on shows."""
    connection = await asyncpg.connect(database_url(service))
    try:
        rows = await connection.fetch(
            "SELECT seq FROM events WHERE account_id = $1 AND seq > $2 AND type = ANY($3::text[]) ORDER BY seq",
            account_id(access), start, [str(one) for one in EventType], timeout=30,
        )  # fmt: skip
        return [row["seq"] for row in rows]
    finally:
        await connection.close()


def _until_seen(reader: tails.TailFollower, last: int) -> None:
    ends = time.monotonic() + _TAIL_S
    while time.monotonic() < ends and not (reader.seen and reader.seen[-1] >= last):
        time.sleep(0.05)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate was made a moment ago by the service itself
    return context


async def _expect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str, code: str) -> str:
    reply = await _say(reader, writer, line)
    if not reply.startswith(code):
        raise EOFError(reply)
    return reply


async def _say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str) -> str:
    """Send `line` and return the last line of the reply; for "" only read a reply."""
    if line:
        writer.write(line.encode() + b"\r\n")
    async with asyncio.timeout(_LINE_S):
        while True:
            reply = (await reader.readline()).decode("utf-8", "replace")
            if not reply:
                raise EOFError("closed")
            if reply[3:4] != "-":
                return reply.rstrip()
