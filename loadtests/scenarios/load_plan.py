"""The load plan, which `ops loadtest` writes for the Locust process, and the record that it gets back."""

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

VARIABLE: Final = "LOADTEST_PLAN"
SENT: Final = "sent.csv"
SENT_FIELDS: Final = ("at", "recipient", "group", "answer")  # accepted, refused, or lost without an answer
STATISTICS: Final = "statistics.csv"  # of Locust, as its `--csv` writes them
TAIL_EVENT: Final = "event at a live tail"  # the name under which Locust counts them


class LoadSender(Struct, frozen=True):
    """An account that sends: API key and sender address."""

    key: str
    address: str


class LoadPlan(Struct, frozen=True, kw_only=True):
    """The addresses of the service and the limits of the load. `rate` is in requests per second over all users."""

    url: str
    senders: list[LoadSender]
    folder: str  # for the record
    users: int
    rate: float | None
    seconds: float
    cool_s: float = 0.0  # how long readers stay after the last send
    max_messages: int  # messages; the load ends when so many were offered
    domains: int = 10
    smtp: tuple[str, int] | None = None  # TLS from the first octet
    readers: list[str] = []  # keys, one for each tail


def read_plan() -> LoadPlan:
    """Read the plan of `ops loadtest`; raises KeyError when Locust was started without it."""
    return msgspec.json.decode(Path(os.environ[VARIABLE]).read_bytes(), type=LoadPlan)
