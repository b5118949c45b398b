"""Scenario: messages with an attachment; six of ten carry 10 KB, three 100 KB, one 1 MB."""

import random

from locust import task

from loadtests.users.api_user import ApiUser
from loadtests.users.load_run import load_run
from loadtests.users.messages import FILE_SHARES, FILE_SIZES, attachments

_FILES = attachments()
_NAMES = [f"{size // 1000:,} KB" for size in FILE_SIZES]
_chance = random.Random(1)


class AttachmentUser(ApiUser):
    """Sends one message with one attachment per request."""

    @task
    def invoice(self) -> None:
        """Send a message with an attachment of random size; the sequence of sizes is the same in every run."""
        if self.ready():
            [number] = _chance.choices(range(len(_FILES)), FILE_SHARES)
            name = _NAMES[number]
            self.send(load_run.recipient(), name=f"send {name}", group=name, attachments=[_FILES[number]])
