"""Base class of Locust users that call the REST API over one keep-alive connection, at the rate of the plan."""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import gevent
from locust import FastHttpUser

from loadtests.users.load_run import load_run
from loadtests.users.messages import message

_turns = itertools.count()
_AWAY_S = 0.1


class ApiUser(FastHttpUser):
    """Base class of users that send over HTTP. `share` is the part of the plan's rate for this class."""

    abstract = True
    host = load_run.plan.url
    connection_timeout = 30.0
    network_timeout = 60.0
    share = 1.0

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.sender = load_run.plan.senders[next(_turns) % len(load_run.plan.senders)]
        self._headers = {"Authorization": f"Bearer {self.sender.key}"}
        self._due = 0.0

    def wait_time(self) -> float:
        """Return the seconds until the next request is due; slow answers do not reduce the rate."""
        rate = load_run.plan.rate
        if rate is None:
            return 0.0
        every_s = load_run.plan.users / (rate * self.share)
        now = time.monotonic()
        self._due = max(self._due + every_s, now - every_s) if self._due else now
        return max(0.0, self._due - now)

    def ready(self) -> bool:
        """Wait for the start of the load; return False once it is over."""
        while load_run.waiting:
            gevent.sleep(0.02)
        if load_run.over:
            gevent.sleep(_AWAY_S)
        return not load_run.over

    def send(self, recipient: str, *, name: str = "send", group: str = "all", **more: Any) -> str | None:
        """Send one message; return its id, or None when it was not accepted."""
        if not load_run.offer(1):
            return None
        accepted: list[str] = []  # Locust copies the context, not what is in it
        context = {"group": group, "recipients": [recipient], "accepted": accepted}
        body = message(self.sender.address, recipient, **more)
        with self.client.post(
            "/v1/emails", json=body, headers=self._headers, name=name, context=context, catch_response=True
        ) as answer:
            if answer.status_code != 202:
                answer.failure(f"{answer.status_code} {(answer.text or '')[:200]}")
                return None
            accepted.append(recipient)
            answer.success()
            return str(answer.json()["id"])

    def send_batch(self, recipients: Sequence[str], *, name: str = "batch", group: str = "all", **more: Any) -> None:
        """Send one message to each recipient in one batch request."""
        if not load_run.offer(len(recipients)):
            return
        accepted: list[str] = []
        context = {"group": group, "recipients": recipients, "accepted": accepted}
        body = {"messages": [message(self.sender.address, one, **more) for one in recipients]}
        with self.client.post(
            "/v1/emails/batch", json=body, headers=self._headers, name=name, context=context, catch_response=True
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"{answer.status_code} {(answer.text or '')[:200]}")
                return
            reply = answer.json()
            accepted.extend(recipients[item["index"]] for item in reply["data"] if item["status"] == "queued")
            if reply["refused"]:
                answer.failure(f"{reply['refused']} of {len(recipients)} refused")
            else:
                answer.success()

    def read(self, path: str, name: str) -> dict[str, Any]:
        """Send a GET request; return the JSON body, or {} after an error."""
        with self.client.get(
            path, headers=self._headers, name=name, context={"group": "read"}, catch_response=True
        ) as answer:
            if answer.status_code != 200:
                answer.failure(f"{answer.status_code} {(answer.text or '')[:200]}")
                return {}
            answer.success()
            return dict(answer.json())
