"""Scenario: every user sends one message after the other, or at the rate set with `--rate`."""

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run


class SingleSendUser(ApiUser):
    """Sends one message per request."""

    @task
    def order(self) -> None:
        """Send a message to the next domain in turn."""
        if self.ready():
            self.send(load_run.recipient())
