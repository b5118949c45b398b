"""Remembers the sites that offer PIPELINING (RFC 2920) and mishandle it: they get one command at a time.

A session that breaks over a group of commands, before any content, proves nothing: so the delivery is tried once more
at once, over a new connection and without pipelining. If it succeeds, pipelining to this site is disabled for 24 h; if
it breaks again, pipelining was not the cause. Kept in the memory of the process: to find out anew costs one connection
a site and day, and a repaired server is met at full speed after the next restart.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

from engine.base import clock
from engine.mail.replies import Phase
from mta.smtp.client.connection import Transaction

PROVED_S: Final = 86_400.0
TRIAL_S: Final = 900.0  # longer than any transaction of small mail takes
CLEARED_S: Final = 3_600.0  # not suspected again for so long
MAX_SITES: Final = 10_000

_log = structlog.get_logger("mta")


class BrokenPipelining:
    """The sites of one process to which pipelining is disabled, on trial, or cleared of suspicion."""

    def __init__(self, now: Callable[[], float] = clock.monotonic) -> None:
        self._now = now
        self._sites: OrderedDict[str, tuple[str, float]] = OrderedDict()  # "proved", "trial" or "cleared", and until

    def of(self, site: str) -> bool:
        """Return True if a new connection to the site must send one command at a time."""
        return self._state(site) in ("proved", "trial")

    def wants_again(self, site: str, transaction: Transaction) -> bool:
        """Learn from a transaction; return True if it broke over pipelined commands before any content was sent, and is
        to be tried again over a new connection."""
        broke_on_commands = transaction.broke_on_commands and all(
            answer.phase is not Phase.BODY for answer in transaction.answers
        )
        state = self._state(site)
        if not transaction.pipelined:
            if state == "trial" and transaction.steps:  # else no command was sent
                self._set(site, "cleared" if broke_on_commands else "proved")
            return False
        if not broke_on_commands or state == "cleared":
            return False
        if state is None:
            self._set(site, "trial")
        return True  # in "trial" or "proved": this connection was opened before

    def _state(self, site: str) -> str | None:
        state, until = self._sites.get(site, (None, 0.0))
        return state if until > self._now() else None

    def _set(self, site: str, state: str) -> None:
        _log.info("pipelining state changed", site=site, state=state)
        self._sites.pop(site, None)
        if len(self._sites) >= MAX_SITES:
            self._sites.popitem(last=False)
        lasts_s = {"proved": PROVED_S, "trial": TRIAL_S, "cleared": CLEARED_S}[state]
        self._sites[site] = (state, self._now() + lasts_s)
