"""Single sends: every user posts one message after the other, or at the pace set with `--rate`."""

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run


class SingleSendUser(ApiUser):
    """One message a request."""

    @task
    def order(self) -> None:
        """To the next domain in turn."""
        if self.ready():
            self.send(load_run.recipient())
