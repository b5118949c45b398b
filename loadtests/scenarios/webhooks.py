"""Scenario: every message creates events that are posted to webhook endpoints, some of which never answer."""

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run


class WebhookSendUser(ApiUser):
    """Sends messages; `ops loadtest` registers the endpoints."""

    @task
    def order(self) -> None:
        """Send one message; accounts are used in turn."""
        if self.ready():
            self.send(load_run.recipient())
