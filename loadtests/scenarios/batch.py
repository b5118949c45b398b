"""Scenario: batches of 100 messages."""

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run

SIZE = 100


class BatchUser(ApiUser):
    """Sends 100 messages per request."""

    @task
    def orders(self) -> None:
        """Send a batch to new recipients at all domains."""
        if self.ready():
            self.send_batch([load_run.recipient() for _ in range(SIZE)])
