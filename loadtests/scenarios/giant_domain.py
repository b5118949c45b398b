"""A giant domain: nine of ten messages go to one domain, the tenth to the others, whose delivery should not suffer."""

import random

from locust import task

from loadtests.users.ledger import sending
from loadtests.users.web import ApiUser

GIANT = "giant.test"
SHARE = 0.9
_chance = random.Random(1)


class GiantDomainUser(ApiUser):
    """One message a request."""

    @task
    def order(self) -> None:
        """The same lots in every run."""
        if not self.ready():
            return
        if _chance.random() < SHARE:
            self.send(sending.recipient(domain=GIANT), group="giant domain")
        else:
            self.send(sending.recipient(), group="other domains")
