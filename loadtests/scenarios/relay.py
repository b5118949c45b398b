"""The SMTP relay: pipelined sessions over TLS, 200 messages each."""

import time

from locust import task

from loadtests.users.load_run import load_run
from loadtests.users.smtp_user import RelayUser


class RelaySendUser(RelayUser):
    """An application that speaks SMTP."""

    def wait_time(self) -> float:
        """As the plan's pace says."""
        rate = load_run.plan.rate
        if rate is None:
            return 0.0
        now = time.monotonic()
        self._due = max(self._due + load_run.plan.users / rate, now)
        return self._due - now

    @task
    def order(self) -> None:
        """One message."""
        self.send()
