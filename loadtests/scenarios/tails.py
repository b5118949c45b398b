"""Scenario: live tails while mail is sent; each reader records the delay from the creation of an event."""

import itertools
import socket
import time
from typing import Final
from urllib.parse import urlsplit

import msgspec
from locust import User, task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import TAILED, load_run

_POLL_S: Final = 1.0
_OPEN_S: Final = 30.0
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32, in lower case
_turns = itertools.count()


class _Event(msgspec.Struct):
    id: str
    type: str


_EVENT = msgspec.json.Decoder(_Event)


class TailUser(User):
    """Reads one live tail."""

    fixed_count = len(load_run.plan.readers)

    @task
    def follow(self) -> None:
        """Open a tail and read it until the load ends; a tail that ends early is recorded as a failure."""
        number = next(_turns)
        if number >= len(load_run.plan.readers):
            return self._report("tail ended early", ConnectionResetError("the tail was closed"))
        address = urlsplit(load_run.plan.url)
        began = time.perf_counter()
        with socket.create_connection((address.hostname or "", address.port or 80), _OPEN_S) as connection:
            connection.sendall(
                b"GET /v1/messages/tail?replay=0 HTTP/1.1\r\nHost: load.test\r\nAuthorization: Bearer %b\r\n\r\n"
                % load_run.plan.readers[number].encode()
            )
            with connection.makefile("rb") as lines:
                kind = b""
                while line := lines.readline(1 << 20):
                    if line.startswith(b"event: "):
                        kind = line[7:-1]
                        if kind == b"ready":
                            self._report("open a tail", None, began)
                    elif line.startswith(b"data: ") and kind == b"message":
                        _note(line[6:])
        return None

    def _report(self, name: str, problem: Exception | None, began: float | None = None) -> None:
        self.environment.events.request.fire(
            request_type="SSE", name=name, response_length=0, exception=problem, response=None,
            response_time=0.0 if began is None else (time.perf_counter() - began) * 1000,
            context={"group": "tail", "status": "200" if problem is None else "lost"},
        )  # fmt: skip


class TailedSendUser(ApiUser):
    """Sends messages, so that the tails have events."""

    @task
    def order(self) -> None:
        """Send one message; accounts are used in turn."""
        if self.ready():
            self.send(load_run.recipient())


def _note(data: bytes) -> None:
    """Record the delay of an event; its id is a UUIDv7 (RFC 9562) with the creation time in its first 48 bits (ms)."""
    event = _EVENT.decode(data)
    now = time.time()
    made_ms = _made_ms(event.id)
    load_run.write(TAILED, f"{now:.4f}", f"{now * 1000 - made_ms:.1f}", event.type)


def _made_ms(public_id: str) -> int:
    text = public_id.partition("_")[2]
    number = 0
    for letter in text:
        number = number * 32 + _ALPHABET.index(letter)
    return number >> 80
