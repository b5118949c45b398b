"""Reads beside sends, as a customer's application and its dashboard make them: six of ten requests send."""

from collections import deque

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run


class MixedUser(ApiUser):
    """Sends, and looks at what it sent."""

    def on_start(self) -> None:
        """Nothing is sent yet."""
        self._sent: deque[str] = deque(maxlen=100)

    @task(60)
    def order(self) -> None:
        """One message."""
        if self.ready() and (public_id := self.send(load_run.recipient(), group="send")) is not None:
            self._sent.append(public_id)

    @task(15)
    def look(self) -> None:
        """One of its last messages, events included."""
        if self._sent and self.ready():
            self.read(f"/v1/messages/{self._sent[0]}", "GET message")

    @task(8)
    def browse(self) -> None:
        """The newest 50."""
        if self.ready():
            self.read("/v1/messages?limit=50", "GET messages")

    @task(8)
    def pull(self) -> None:
        """A page of the account's log."""
        if self.ready():
            self.read("/v1/events?limit=100", "GET events")

    @task(4)
    def measure(self) -> None:
        """Today's figures."""
        if self.ready():
            self.read("/v1/stats/messages", "GET stats")

    @task(3)
    def streams(self) -> None:
        """What the account has."""
        if self.ready():
            self.read("/v1/streams", "GET streams")

    @task(2)
    def identity(self) -> None:
        """Who am I, and what may I."""
        if self.ready():
            self.read("/v1/me", "GET me")
