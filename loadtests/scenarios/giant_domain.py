"""Scenario: nine of ten messages go to one domain; delivery to the other domains should not suffer."""

import random

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run

GIANT = "giant.test"
SHARE = 0.9
_chance = random.Random(1)


class GiantDomainUser(ApiUser):
    """Sends one message per request."""

    @task
    def order(self) -> None:
        """Send a message to a random domain; the sequence is the same in every run."""
        if not self.ready():
            return
        if _chance.random() < SHARE:
            self.send(load_run.recipient(domain=GIANT), group="giant domain")
        else:
            self.send(load_run.recipient(), group="other domains")
