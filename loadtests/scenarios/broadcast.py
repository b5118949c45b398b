"""A broadcast burst: in the middle third of the time batches of 100 go out on a stream of their own, all at once.

Single transactional sends of the same account go on at their pace; their latencies before, during and after the
burst tell how fair the queue is.
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
    """Batches as fast as answers come, while the burst lasts."""

    fixed_count = BURSTERS

    def wait_time(self) -> float:
        """No pause within the burst."""
        return 0.0 if _phase() == "during" else 0.1

    @task
    def issue(self) -> None:
        """A hundred copies."""
        if self.ready() and _phase() == "during":
            self.send_batch([load_run.recipient("n") for _ in range(SIZE)], group="broadcast", stream=STREAM)


class SteadySendUser(ApiUser):
    """Orders at a steady pace."""

    @task
    def order(self) -> None:
        """One message."""
        if self.ready():
            self.send(load_run.recipient(), group=f"single, {_phase()} the burst")
