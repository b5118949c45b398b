"""Single sends: every user posts one message after the other, or at the pace set with `--rate`."""

from locust import task

from loadtests.users.ledger import sending
from loadtests.users.web import ApiUser


class SingleSendUser(ApiUser):
    """One message a request."""

    @task
    def order(self) -> None:
        """To the next domain in turn."""
        if self.ready():
            self.send(sending.recipient())
