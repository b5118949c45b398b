"""A webhook storm: every message makes events, and every event is posted to endpoints, some of which never answer."""

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run


class WebhookSendUser(ApiUser):
    """Sends; the accounts' endpoints are made by `ops loadtest`."""

    @task
    def order(self) -> None:
        """By turns on every account."""
        if self.ready():
            self.send(load_run.recipient())
