"""What a scenario is told about the service it drives: one JSON file, named by the environment."""

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

VARIABLE: Final = "LOADTEST_PLAN"


class LoadSender(Struct, frozen=True):
    """An account that sends."""

    key: str
    address: str


class LoadPlan(Struct, frozen=True, kw_only=True):
    """The service, and the bounds of the load. `rate` is in requests a second over all users; None: no pause."""

    url: str
    senders: list[LoadSender]
    folder: str  # where the ledger goes
    users: int
    rate: float | None
    seconds: float
    cool_s: float = 0.0  # how long readers stay after the last send
    max_messages: int  # messages; the load ends when so many were offered
    domains: int = 10
    smtp: tuple[str, int] | None = None  # TLS from the first octet
    readers: list[str] = []  # keys, one for each tail


def read_plan() -> LoadPlan:
    """The plan that `ops loadtest` wrote; raises KeyError when it was not started by it."""
    return msgspec.json.decode(Path(os.environ[VARIABLE]).read_bytes(), type=LoadPlan)
