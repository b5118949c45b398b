"""Scenario: an application and its dashboard; six of ten requests send, the others read."""

from collections import deque

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run


class MixedUser(ApiUser):
    """Sends messages and reads them back."""

    def on_start(self) -> None:
        """Prepare the list of messages sent."""
        self._sent: deque[str] = deque(maxlen=100)

    @task(60)
    def order(self) -> None:
        """Send one message."""
        if self.ready() and (public_id := self.send(load_run.recipient(), group="send")) is not None:
            self._sent.append(public_id)

    @task(15)
    def look(self) -> None:
        """Read one of the last messages sent, with its events."""
        if self._sent and self.ready():
            self.read(f"/v1/messages/{self._sent[0]}", "GET message")

    @task(8)
    def browse(self) -> None:
        """List the newest 50 messages."""
        if self.ready():
            self.read("/v1/messages?limit=50", "GET messages")

    @task(8)
    def pull(self) -> None:
        """Read a page of the account log."""
        if self.ready():
            self.read("/v1/events?limit=100", "GET events")

    @task(4)
    def measure(self) -> None:
        """Read today's statistics."""
        if self.ready():
            self.read("/v1/stats/messages", "GET stats")

    @task(3)
    def streams(self) -> None:
        """List the streams."""
        if self.ready():
            self.read("/v1/streams", "GET streams")

    @task(2)
    def identity(self) -> None:
        """Read `GET /v1/me`."""
        if self.ready():
            self.read("/v1/me", "GET me")
