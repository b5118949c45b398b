"""A webhook storm: every message makes events, and every event is posted to endpoints, some of which never answer."""

from locust import task

from loadtests.users.ledger import sending
from loadtests.users.web import ApiUser


class WebhookSendUser(ApiUser):
    """Sends; the accounts' endpoints are made by `ops loadtest`."""

    @task
    def order(self) -> None:
        """By turns on every account."""
        if self.ready():
            self.send(sending.recipient())
