"""Batches of 100 messages."""

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run

SIZE = 100


class BatchUser(ApiUser):
    """A hundred messages a request."""

    @task
    def orders(self) -> None:
        """Each with a recipient of its own, over all domains."""
        if self.ready():
            self.send_batch([load_run.recipient() for _ in range(SIZE)])
