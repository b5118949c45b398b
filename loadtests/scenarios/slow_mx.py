"""Scenario: after a third of the time, the mail servers of three of ten domains become slow or refuse.

The local part selects the sink's behaviour: `tarpit` sends its reply to RCPT at one octet per 10 s, `slow` takes 2 s
for its 250, `busy` answers 421 and closes.
"""

import itertools
from typing import Final

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run

HEALTHY_PART: Final = 1 / 3  # of the time, in which all servers are healthy
BEHAVIOURS: Final = ("tarpit", "slow", "busy")
_turns = itertools.count()
_numbers = itertools.count()


class SlowMxUser(ApiUser):
    """Sends one message per request."""

    @task
    def order(self) -> None:
        """Send a message to one of ten domains in turn."""
        if not self.ready():
            return
        place = next(_turns) % 10
        before = load_run.elapsed_s < load_run.plan.seconds * HEALTHY_PART
        if place >= len(BEHAVIOURS):
            group = "others, all healthy" if before else "others, three slow"
            self.send(load_run.recipient(domain=f"healthy-{place}.test"), group=group)
        elif before:
            self.send(load_run.recipient(domain=f"slow-{place}.test"), group="the three, healthy")
        else:
            local = f"{BEHAVIOURS[place]}+x{next(_numbers)}"  # the tag makes each address different
            self.send(f"{local}@slow-{place}.test", group="the three, slow")
