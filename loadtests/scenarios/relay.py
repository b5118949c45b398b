"""The SMTP relay: pipelined sessions over TLS, 200 messages each."""

import time

from locust import task

from loadtests.users.ledger import sending
from loadtests.users.smtp import RelayUser


class Application(RelayUser):
    """An application that speaks SMTP."""

    def wait_time(self) -> float:
        """As the world's pace says."""
        rate = sending.world.rate
        if rate is None:
            return 0.0
        now = time.monotonic()
        self._due = max(self._due + sending.world.users / rate, now)
        return self._due - now

    @task
    def order(self) -> None:
        """One message."""
        self.send()
