"""Base class of Locust users that call the REST API over one keep-alive connection, at the rate of the plan."""

import itertools
from collections.abc import Sequence
from typing import Any

from locust import FastHttpUser, constant, constant_throughput

from loadtests.kit.message import HTML, SUBJECT, TEXT
from loadtests.scenarios.load_run import load_run

_turns = itertools.count()
pace = constant_throughput(load_run.plan.rate / load_run.plan.users) if load_run.plan.rate else constant(0)


class ApiUser(FastHttpUser):
    """Base class of users that send over HTTP. Locust counts requests by their group of mail."""

    abstract = True
    host = load_run.plan.url
    connection_timeout = 30.0
    network_timeout = 60.0
    wait_time = pace

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.sender = load_run.plan.senders[next(_turns) % len(load_run.plan.senders)]
        self._headers = {"Authorization": f"Bearer {self.sender.key}"}

    def send(self, recipient: str, group: str = "send", **more: Any) -> str | None:
        """Send one message; return its id, or None when it was not accepted."""
        if not load_run.offer(1):
            return None
        with self._posted("/v1/emails", self._message(recipient, more), group) as answer:
            taken = answer.status_code == 202
            self._judge(answer, [recipient], [recipient] * taken, group)
            return str(answer.json()["id"]) if taken else None

    def send_batch(self, recipients: Sequence[str], group: str = "batch", **more: Any) -> None:
        """Send one message to each recipient in one batch request."""
        if not load_run.offer(len(recipients)):
            return
        body = {"messages": [self._message(one, more) for one in recipients]}
        with self._posted("/v1/emails/batch", body, group) as answer:
            items = answer.json()["data"] if answer.status_code == 200 else []
            taken = {recipients[item["index"]] for item in items if item["status"] == "queued"}
            self._judge(answer, recipients, taken, group)

    def read(self, path: str, name: str) -> None:
        """Send a GET request."""
        self.client.get(path, headers=self._headers, name=name)

    def _message(self, recipient: str, more: dict[str, Any]) -> dict[str, Any]:
        sender = f"The Shop <{self.sender.address}>"
        return {"from": sender, "to": [recipient], "subject": SUBJECT, "text": TEXT, "html": HTML} | more

    def _posted(self, path: str, body: dict[str, Any], name: str) -> Any:
        return self.client.post(path, json=body, headers=self._headers, name=name, catch_response=True)

    @staticmethod
    def _judge(answer: Any, recipients: Sequence[str], taken: Sequence[str] | set[str], group: str) -> None:
        load_run.record(recipients, taken, group, lost=not answer.status_code)
        if len(taken) == len(recipients):
            answer.success()
        else:
            answer.failure(f"{answer.status_code}, {len(taken)} accepted: {(answer.text or '')[:200]}")
