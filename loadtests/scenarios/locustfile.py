"""The users of all scenarios; `loadtests.runner.catalogue` tells which of them a scenario runs."""

import base64
import itertools
import random
import socket
import time
from collections import deque
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from locust import User, task

from loadtests.scenarios.api_user import ApiUser
from loadtests.scenarios.load_plan import TAIL_EVENT
from loadtests.scenarios.load_run import load_run
from loadtests.scenarios.smtp_user import RelayUser

BATCH: Final = 100
NEWS_USERS: Final = 2
SLOW_FROM: Final = 1 / 3  # of the time, before which all mail servers are healthy
SLOW: Final = ("tarpit", "slow", "busy")  # one octet of the reply to RCPT per 10 s; 2 s for the 250; 421 and close
GIANT_SHARE: Final = 0.9
FILE_SIZES: Final = (10_000, 100_000, 1_000_000)  # octets
FILE_SHARES: Final = (6, 3, 1)  # of ten messages with a file
_OPEN_S: Final = 30.0
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32, in lower case
_chance = random.Random(1)  # the same sequence in every run
_turns, _tails, _tags = itertools.count(), itertools.count(), itertools.count()


class SingleSendUser(ApiUser):
    """Sends one message per request."""

    @task
    def order(self) -> None:
        """Send a message to the next domain in turn."""
        if load_run.ready():
            self.send(load_run.recipient())


class BatchUser(ApiUser):
    """Sends 100 messages per request."""

    @task
    def orders(self) -> None:
        """Send a batch to new recipients at all domains."""
        if load_run.ready():
            self.send_batch([load_run.recipient() for _ in range(BATCH)])


class AttachmentUser(ApiUser):
    """Sends one message with one attachment of random size per request."""

    def on_start(self) -> None:
        """Make one file of each size with incompressible content; encoding takes time."""
        self._files = {f"send {size // 1000:,} KB": [_attachment(size)] for size in FILE_SIZES}

    @task
    def invoice(self) -> None:
        """Send a message with an attachment."""
        if load_run.ready():
            [group] = _chance.choices(list(self._files), FILE_SHARES)
            self.send(load_run.recipient(), group, attachments=self._files[group])


class MixedUser(ApiUser):
    """An application and its dashboard: six of ten requests send, the others read."""

    def on_start(self) -> None:
        """Prepare the list of messages sent."""
        self._sent: deque[str] = deque(maxlen=100)

    @task(60)
    def order(self) -> None:
        """Send one message."""
        if load_run.ready() and (public_id := self.send(load_run.recipient())) is not None:
            self._sent.append(public_id)

    @task(15)
    def look(self) -> None:
        """Read one of the last messages sent, with its events."""
        if self._sent and load_run.ready():
            self.read(f"/v1/messages/{self._sent[0]}", "GET message")

    @task(25)
    def browse(self) -> None:
        """Read a page, a list or a figure of the dashboard."""
        if load_run.ready():
            paths = ("messages?limit=50", "events?limit=100", "stats/messages", "streams", "me")
            [path] = _chance.choices(paths, (8, 8, 4, 3, 2))
            self.read(f"/v1/{path}", f"GET {path.partition('?')[0]}")


class GiantDomainUser(ApiUser):
    """Sends nine of ten messages to one domain; delivery to the other domains should not suffer."""

    @task
    def order(self) -> None:
        """Send a message to a random domain."""
        if load_run.ready():
            giant = _chance.random() < GIANT_SHARE
            recipient = load_run.recipient(domain="giant.test" if giant else None)
            self.send(recipient, "giant domain" if giant else "other domains")


class SlowMxUser(ApiUser):
    """Sends to ten domains in turn; after a third of the time, three of them become slow or refuse."""

    @task
    def order(self) -> None:
        """Send a message; its local part selects the sink's behaviour."""
        if not load_run.ready():
            return
        place, before = next(_turns) % 10, load_run.part < SLOW_FROM
        if place >= len(SLOW):
            group = "others, all healthy" if before else "others, three slow"
            self.send(load_run.recipient(domain=f"healthy-{place}.test"), group)
        elif before:
            self.send(load_run.recipient(domain=f"slow-{place}.test"), "the three, healthy")
        else:  # the tag makes each address different
            self.send(f"{SLOW[place]}+x{next(_tags)}@slow-{place}.test", "the three, slow")


class NewsletterUser(ApiUser):
    """Sends batches on a stream of their own, as fast as answers come, in the middle third of the time."""

    fixed_count = NEWS_USERS

    def wait_time(self) -> float:
        """Return 0 during the burst and a short pause otherwise."""
        return 0.0 if _phase() == "during" else 0.1

    @task
    def issue(self) -> None:
        """Send a batch."""
        if load_run.ready() and _phase() == "during":
            self.send_batch([load_run.recipient("n") for _ in range(BATCH)], "broadcast", stream="news")


class SteadySendUser(ApiUser):
    """Sends single messages; their times before, during and after the burst show how much it delays other mail."""

    @task
    def order(self) -> None:
        """Send one message."""
        if load_run.ready():
            self.send(load_run.recipient(), f"single, {_phase()} the burst")


class RelaySendUser(RelayUser):
    """Sends messages over SMTP."""

    @task
    def order(self) -> None:
        """Send one message."""
        self.send()


class TailUser(User):
    """Reads one live tail, and reports to Locust the time from the creation of each event."""

    fixed_count = len(load_run.plan.readers)

    @task
    def follow(self) -> None:
        """Open a tail and read it until the load ends; a tail that ends early is a failure."""
        number = next(_tails)
        if number >= len(load_run.plan.readers):
            self._report("tail ended early", 0.0, ConnectionResetError("the tail was closed"))
            return
        address, kind, began = urlsplit(load_run.plan.url), b"", time.perf_counter()
        with socket.create_connection((address.hostname or "", address.port or 80), _OPEN_S) as connection:
            connection.sendall(
                b"GET /v1/messages/tail?replay=0 HTTP/1.1\r\nHost: load.test\r\nAuthorization: Bearer %b\r\n\r\n"
                % load_run.plan.readers[number].encode()
            )
            with connection.makefile("rb") as lines:
                while line := lines.readline(1 << 20):
                    if line.startswith(b"event: "):
                        kind = line[7:-1]
                        if kind == b"ready":
                            self._report("open a tail", (time.perf_counter() - began) * 1000)
                    elif line.startswith(b"data: ") and kind == b"message":
                        self._report(TAIL_EVENT, time.time() * 1000 - _made_ms(msgspec.json.decode(line[6:])["id"]))

    def _report(self, name: str, took_ms: float, problem: Exception | None = None) -> None:
        self.environment.events.request.fire(
            request_type="SSE", name=name, response_time=took_ms, response_length=0, exception=problem, context={}
        )


def _phase() -> str:
    return "before" if load_run.part < 1 / 3 else "during" if load_run.part < 2 / 3 else "after"


def _attachment(size: int) -> dict[str, Any]:
    content = base64.b64encode(b"%PDF-1.7\n" + random.Random(size).randbytes(size)).decode()
    return {"filename": f"invoice-{size}.pdf", "contentType": "application/pdf", "content": content}


def _made_ms(event_id: str) -> int:
    """Return the creation time of an event: the first 48 bits of its id, a UUIDv7 (RFC 9562), are Unix ms."""
    number = 0
    for letter in event_id.partition("_")[2]:
        number = number * 32 + _ALPHABET.index(letter)
    return number >> 80
