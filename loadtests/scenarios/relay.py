"""Scenario: SMTP submission over TLS in pipelined sessions of 200 messages."""

import time

from locust import task

from loadtests.users.load_run import load_run
from loadtests.users.smtp_user import RelayUser


class RelaySendUser(RelayUser):
    """Sends messages over SMTP."""

    def wait_time(self) -> float:
        """Return the seconds until the next message is due at the rate of the plan."""
        rate = load_run.plan.rate
        if rate is None:
            return 0.0
        now = time.monotonic()
        self._due = max(self._due + load_run.plan.users / rate, now)
        return self._due - now

    @task
    def order(self) -> None:
        """Send one message."""
        self.send()
