"""The retry schedule: waits between attempts, for deliveries and for webhooks. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct


class RetrySchedule(Struct, frozen=True):
    """Waits between attempts, in seconds.

    `steps_s[n]` follows attempt n + 1. After the last step the schedule ends, or repeats that step with `repeat_last`.
    `jitter` is a fraction of the wait, to either side. `limit_s`, counted from acceptance, ends the retries.
    """

    steps_s: tuple[float, ...]
    repeat_last: bool = False
    jitter: float = 0.1
    limit_s: float | None = None

    def wait_s(self, attempts_made: int, *, jitter: float) -> float | None:
        """Return the seconds from attempt number `attempts_made` (at least 1) to the next, or None after the last.

        `jitter` in [0, 1) is the caller's random number; 0.5 leaves the step unchanged.
        """
        index = max(0, attempts_made - 1)
        if index >= len(self.steps_s):
            if not self.repeat_last or not self.steps_s:
                return None
            index = -1
        return self.steps_s[index] * (1 + self.jitter * (2 * jitter - 1))

    def next_at(
        self,
        attempts_made: int,
        accepted_at: datetime,
        now: datetime,
        *,
        jitter: float,
        deadline: datetime | None = None,
    ) -> datetime | None:
        """Return the time of the next attempt, after `now` and at or before the end, or None to give up.

        The end is `accepted_at` + `limit_s` or `deadline`, whichever comes first. A step beyond the end is shortened to
        it, so that the last attempt is made exactly then. Once `now` has reached the end there is no further attempt.
        """
        wait_s = self.wait_s(attempts_made, jitter=jitter)
        if wait_s is None:
            return None
        at = now + timedelta(seconds=wait_s)
        end = self._end(accepted_at, deadline)
        if end is None or at <= end:
            return at
        return end if now < end else None

    def _end(self, accepted_at: datetime, deadline: datetime | None) -> datetime | None:
        if self.limit_s is None:
            return deadline
        end = accepted_at + timedelta(seconds=self.limit_s)
        return end if deadline is None else min(end, deadline)


def next_attempt_at(
    attempts_made: int,
    accepted_at: datetime,
    now: datetime,
    *,
    ladder_s: Sequence[float],
    give_up_s: float,
    jitter: float,
    deliver_by: datetime | None = None,
) -> datetime | None:
    """Return the time of the next attempt of a deferred delivery, or None if it has failed.

    The last step repeats until `give_up_s` after acceptance or until `deliver_by`. All times are aware, in UTC;
    `jitter` is in [0, 1). RFC 5321 4.5.4.1 advises 30 minutes between tries and 4 to 5 days in all. The schedule is
    shorter because greylisting and one-time codes need early retries, and a transactional message is useless after
    three days.
    """
    schedule = RetrySchedule(tuple(ladder_s), repeat_last=True, limit_s=give_up_s)
    return schedule.next_at(attempts_made, accepted_at, now, jitter=jitter, deadline=deliver_by)
