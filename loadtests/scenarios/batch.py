"""Batches of 100 messages."""

from locust import task

from loadtests.users.ledger import sending
from loadtests.users.web import ApiUser

SIZE = 100


class BatchUser(ApiUser):
    """A hundred messages a request."""

    @task
    def orders(self) -> None:
        """Each with a recipient of its own, over all domains."""
        if self.ready():
            self.send_batch([sending.recipient() for _ in range(SIZE)])
