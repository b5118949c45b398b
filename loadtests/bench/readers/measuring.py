"""Measure one case: send the request over a socket and read the API's CPU before and after."""

import os
import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from loadtests.bench.readers.cases import Case, FunctionCase, HttpCase, RawRequest, ReaderTarget

MIN_CPU_S: Final = 0.1  # a case is repeated until it has cost so much
MAX_ROUNDS: Final = 40
MAX_WALL_S: Final = 6.0
ANSWER_S: Final = 30.0
WRITTEN_AT_ONCE: Final = 256 * 1024
_SETTLE_S: Final = 0.05  # after an answer: the connection's end costs a little, too


class Cost(Struct, frozen=True):
    """The cost of one case; `octets` is the part of the input that the reader accepted."""

    case: Case
    answer: str
    octets: int
    cpu_ms: float

    @property
    def us_per_octet(self) -> float:
        """Return the CPU per octet in µs."""
        return self.cpu_ms * 1000 / max(1, self.octets)


def measured(case: Case, target: ReaderTarget, pids: Iterable[int]) -> Cost:
    """Repeat a case until its cost is measurable; return the mean per repetition."""
    if isinstance(case, FunctionCase):
        return _of_function(case)
    return _of_request(case, target, list(pids))


def _of_function(case: FunctionCase) -> Cost:
    content = case.content()
    answer = "read"
    rounds, began = 0, time.process_time()
    while rounds < MAX_ROUNDS and time.process_time() - began < MIN_CPU_S:
        try:
            case.read(content)
        except Exception as error:  # noqa: BLE001 - whatever a parser raises is its answer
            answer = type(error).__name__
        rounds += 1
    return Cost(case, answer, len(content), (time.process_time() - began) * 1000 / rounds)


def _of_request(case: HttpCase, target: ReaderTarget, pids: list[int]) -> Cost:
    request = case.request(target)
    sent = rounds = 0
    status = "-"
    before, began = cpu_s(pids), time.monotonic()
    while rounds < MAX_ROUNDS and cpu_s(pids) - before < MIN_CPU_S and time.monotonic() - began < MAX_WALL_S:
        status, octets = _exchange(target, request)
        sent += octets
        rounds += 1
        time.sleep(_SETTLE_S)
    return Cost(case, status, sent // rounds, (cpu_s(pids) - before) * 1000 / rounds)


def _exchange(target: ReaderTarget, request: RawRequest) -> tuple[str, int]:
    """Send a request until it is answered; return (status, octets sent)."""
    with socket.create_connection((target.host, target.port), timeout=ANSWER_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = 0
        with suppress(ConnectionError):
            for octets in _written(request):
                if select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(octets)
                sent += len(octets)
        return _status(connection), sent


def _written(request: RawRequest) -> Iterable[bytes]:
    if request.apart:
        yield from request.pieces
        return
    octets = b"".join(request.pieces)
    for at in range(0, len(octets), WRITTEN_AT_ONCE):
        yield octets[at : at + WRITTEN_AT_ONCE]


def _status(connection: socket.socket) -> str:
    received = b""
    try:
        while b"\r\n\r\n" not in received and (octets := connection.recv(65_536)):
            received += octets
    except ConnectionError:
        return "reset"
    except TimeoutError:
        return "no answer"
    return received[9:12].decode("ascii", "replace") or "closed"


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU of all threads of these processes in seconds (kernel documentation sched-stats.rst, first
    field)."""
    spent = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def cores() -> int:
    """Return the number of cores of this machine."""
    return os.cpu_count() or 1
