"""The pacer of one set of mail servers: how many connections, pauses and messages one process asks of them. No I/O.

The window starts small, doubles with what the servers take (slow start), grows by one a round from where they last
pushed back, and is halved when they do. Servers that push back repeatedly at one connection are paused: longer each
time, never in step with other processes, then probed by a single connection. Answers that moved the window are kept for
the operator. Times are monotonic seconds except those that are shown.
"""

import math
import random
from collections import deque
from datetime import datetime, timedelta

from msgspec import Struct

from engine.base import clock
from engine.delivery.sites import Limits

INITIAL_WINDOW = 5.0  # Postfix initial_destination_concurrency
PAUSE_S, MAX_PAUSE_S = 30.0, 900.0
PUSHED_TOO_OFTEN = 3  # push-backs in a row, the last at a window of one
RECENT = 10
MAX_SAID = 200  # characters of an answer that are kept
TOKENS_AHEAD_S = 0.5  # of a rate's messages that a process takes at once


class PacerNote(Struct, frozen=True):
    """An answer that changed the limits of a site, and its effect."""

    at: datetime
    said: str
    effect: str


class Pacer:
    """The state of one process towards one set of mail servers. `share` and `tokens` are leased among all processes."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.window = min(INITIAL_WINDOW, float(limits.connections))
        self.slow_start_until = math.inf
        self.open = 0  # connections, those being opened included
        self.connected = 0
        self.share = 0
        self.tokens = 0
        self.token_at = 0.0  # no token can be had before; monotonic
        self.paused_until = 0.0
        self.pauses = 0  # in a row
        self.pushes = 0  # in a row
        self.half_open = False  # all processes together may probe with one connection
        self.recovered = False  # a probe succeeded, and other processes have not been told
        self.moved: PacerNote | None = None
        self.recent: deque[PacerNote] = deque(maxlen=RECENT)
        self.next_probe: datetime | None = None
        self.touched = True  # since the state was last written for the operator
        self._moved_at = 0.0

    def obey(self, limits: Limits) -> None:
        """Apply changed rules."""
        if limits != self.limits:
            self.limits = limits
            self.window = min(self.window, float(limits.connections))
            self.tokens = min(self.tokens, self.ahead)
            self.touched = True

    # -- connections ---------------------------------------------------------------------------

    def paused(self, now: float) -> bool:
        """Return True while the servers are paused."""
        return now < self.paused_until

    @property
    def probing(self) -> bool:
        """Return True while a single connection probes the servers: the next answer decides."""
        return self.pauses > 0 or self.half_open

    @property
    def most(self) -> int:
        """Return the number of connections that the answers so far allow."""
        return 1 if self.probing else max(1, int(self.window))

    def room(self, now: float) -> int:
        """Return how many connections may be opened now."""
        if self.paused(now) or (self.limits.rates and self.tokens <= 0 and now < self.token_at):
            return 0
        return max(0, min(self.most, self.share) - self.open)

    @property
    def excess(self) -> bool:
        """Return True if this process has more connections than its share."""
        return self.open > self.share

    def connection_wanted(self) -> None:
        """Count a connection that is about to be opened."""
        self.open += 1

    def connection_given_up(self) -> None:
        """Count a connection less."""
        self.open -= 1

    def connection_ready(self) -> None:
        """Count a connection whose server is ready for MAIL."""
        self.connected += 1

    def connection_closed(self) -> None:
        """Count a connection less that was ready."""
        self.connected -= 1

    def lease(self, share: int) -> bool:
        """Take the share that all processes leave this one; return True if it has changed."""
        changed, self.share = share != self.share, share
        return changed

    def probe_together(self, *, half_open: bool) -> None:
        """Note whether all processes together may probe with one connection."""
        self.half_open = half_open

    def told_recovery(self) -> None:
        """Note that the other processes know of a probe that went well."""
        self.recovered = False

    def shown(self) -> None:
        """Note that the state has been written down for the operator."""
        self.touched = False

    # -- answers -------------------------------------------------------------------------------

    def succeeded(self) -> None:
        """Record a delivery: the window may grow."""
        self.answered()
        if self.window < self.limits.connections:
            step = 1.0 if self.window < self.slow_start_until else 1 / self.window
            self.window = min(float(self.limits.connections), self.window + step)
        self.touched = True

    def answered(self) -> None:
        """Record that the server answered normally or rejected only this message."""
        if self.probing:
            self.touched = self.recovered = True
            self.next_probe = None
            self.half_open = False
        self.pauses = self.pushes = 0

    def pushed_back(self, now: float, began: float, said: str) -> bool:
        """Record that the servers asked for less in answer to what began at `began`; return True if they are now
        paused."""
        self.touched = True
        if began < self._moved_at:  # it began before the answer that moved the window
            self._note(said, "counted with the answer before")
            return False
        self.pushes += 1
        if self.probing or (self.pushes >= PUSHED_TOO_OFTEN and self.window < 2):
            self.pause(now, said)
            return True
        self.window = max(1.0, min(self.window, float(max(self.open, 1))) / 2)
        self.slow_start_until = self.window
        self._moved_at = now
        self.moved = self._note(said, f"window halved to {int(self.window)}")
        return False

    def out_of_reach(self, said: str) -> None:
        """Record that no further connection could be opened while others stand: the window shrinks to those."""
        self.window = max(1.0, float(self.connected))
        self.slow_start_until = self.window
        self.touched = True
        self.moved = self._note(said, f"window cut to the {int(self.window)} that stand")

    def unreachable(self, said: str, seconds: float) -> None:
        """Record that no server could be reached under one TLS policy: that site rests, the window stands for the
        others."""
        self.touched = True
        self.moved = self._note(said, f"not reached; left alone for {seconds:.0f} s")

    def pause(self, now: float, said: str) -> float:
        """Pause the servers; return for how many seconds."""
        seconds = min(MAX_PAUSE_S, PAUSE_S * 2.0**self.pauses) * random.uniform(0.8, 1.2)
        self._stop(now, seconds)
        self.moved = self._note(said, f"left alone for {seconds:.0f} s")
        return seconds

    def heard_of_pause(self, now: float, seconds: float) -> None:
        """Pause the servers because another process does."""
        self._stop(now, seconds * random.uniform(1.0, 1.2))
        self.moved = self._note("another process was pushed back", f"left alone for {seconds:.0f} s")

    def _stop(self, now: float, seconds: float) -> None:
        self.pauses = min(self.pauses + 1, 16)
        self.paused_until = now + seconds
        self.next_probe = clock.now() + timedelta(seconds=seconds)
        self.slow_start_until = max(2.0, min(self.slow_start_until, self.window))
        self.window = 1.0
        self._moved_at = now
        self.touched = True

    def _note(self, said: str, effect: str) -> PacerNote:
        noted = PacerNote(clock.now(), said[:MAX_SAID], effect)
        self.recent.append(noted)
        return noted

    # -- pace ----------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """Return how many messages' worth of the rates a process takes at once."""
        return max(1, int(min((count / seconds for count, seconds in self.limits.rates), default=0) * TOKENS_AHEAD_S))

    def add_tokens(self, granted: int, next_at: float) -> None:
        """Add rights to begin messages; where none were granted, none can be had before `next_at`."""
        self.tokens += granted
        if not granted:
            self.token_at = next_at

    def may_begin(self) -> bool:
        """Use the right to begin one message, where the site has rates; return False if there is none."""
        if not self.limits.rates:
            return True
        if self.tokens <= 0:
            return False
        self.tokens -= 1
        return True

    def give_back(self) -> None:
        """Give the right to begin back: the message was not begun."""
        if self.limits.rates:
            self.tokens += 1
