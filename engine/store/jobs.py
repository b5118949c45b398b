"""A background job of the worker, declared beside the code that does the work; `ops.processes.worker` runs them."""

from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg
from msgspec import Struct

from engine.base.settings import Settings
from engine.store import service_time
from engine.store.pace import PACE, QUIET_S
from engine.store.service_time import Wake

PROMPT_S: Final = 1.0  # jobs that run at least so often take from a queue
PUT_OFF: Final = 12  # intervals: the longest wait of a job that uses more than its share of the time


class Job(Struct, frozen=True):
    """A background job: `run` is called again about `every_s` seconds after it returned.

    The wait is longer, up to `PUT_OFF` times `every_s`, if the job would otherwise use more than `share` of the time.
    Service time ends it, or machine time if the job is about the processes themselves (`machine`).
    """

    name: str
    every_s: float
    run: Callable[[asyncpg.Pool, Settings], Awaitable[object]]
    share: float = 1.0
    machine: bool = False
    quiet_s: float = QUIET_S  # the wait in a quiet service of the small profile, if longer (`engine.store.pace`)

    def wait_s(self, took_s: float) -> float:
        """Return the seconds to wait after a run that took `took_s`."""
        return min(max(self.every_s, took_s / self.share), PUT_OFF * self.every_s)

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, longer while the service is quiet; a jump of service time shortens the wait."""
        if self.machine:
            await PACE.wait(seconds, self.quiet_s)
        else:
            await service_time.sleep(seconds, Wake.QUEUE if self.every_s <= PROMPT_S else Wake.SELDOM, self.quiet_s)
