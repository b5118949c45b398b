"""Scenario: a broadcast burst in the middle third of the time, in batches of 100 on a stream of its own.

The same account also sends single messages at a steady rate; their latencies before, during and after the burst show
how much the burst delays other mail.
"""

from typing import Final

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run

SIZE: Final = 100
STREAM: Final = "news"
BURSTERS: Final = 2


def _phase() -> str:
    part = load_run.elapsed_s / load_run.plan.seconds
    return "before" if part < 1 / 3 else "during" if part < 2 / 3 else "after"


class NewsletterUser(ApiUser):
    """Sends batches as fast as answers come while the burst lasts."""

    fixed_count = BURSTERS

    def wait_time(self) -> float:
        """Return 0 during the burst and a short pause otherwise."""
        return 0.0 if _phase() == "during" else 0.1

    @task
    def issue(self) -> None:
        """Send a batch of 100 messages."""
        if self.ready() and _phase() == "during":
            self.send_batch([load_run.recipient("n") for _ in range(SIZE)], group="broadcast", stream=STREAM)


class SteadySendUser(ApiUser):
    """Sends single messages at a steady rate."""

    @task
    def order(self) -> None:
        """Send one message."""
        if self.ready():
            self.send(load_run.recipient(), group=f"single, {_phase()} the burst")
