"""`ops queue`, `ops explain` and `ops trace` beside a running service, as an operator types them."""

import asyncio
import json

import pytest

from loadtests.drill.service import Service
from tests.harness.api import Api
from tests.harness.patience import PATIENCE_S
from tests.harness.service import arrived, command

pytestmark = pytest.mark.journey

WHY = "their abuse desk asked us to wait"


def send(service: Service, to: str) -> str:
    return str(command(service, "send", "--to", to, "--subject", "Levers", "--json").json["id"])


async def until_held(service: Service, rows: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while sum(one["held"] for one in command(service, "queue", "--json").json["waiting"]) < rows:
            await asyncio.sleep(0.2)


async def test_a_domain_is_suspended_explained_partly_bounced_and_resumed(service: Service, served: Api) -> None:
    laid = command(service, "queue", "suspend", "--domain", "held.test", "--reason", WHY, "--json")
    assert laid.json == {"suspended": "domain", "target": "held.test", "until": None, "rowsHeld": 0}
    await asyncio.sleep(1.0)
    first, second = send(service, "one@held.test"), send(service, "two@held.test")
    await until_held(service, 2)

    shown = command(service, "queue", "--by", "site", "--json").json
    assert ("mx.held.test", 2, 2) in [(one["site"], one["rows"], one["held"]) for one in shown["waiting"]]
    assert shown["holds"][0]["reason"] == WHY
    told = command(service, "explain", first)
    assert f"the operator of this service holds it: {WHY}" in told.out
    assert told.out.count("\n") == 1

    bounced = command(service, "queue", "bounce", "--message", first, "--reason", "sent by mistake", "--yes", "--json")
    assert bounced.json == {"bounced": "message", "target": first, "rows": 1}
    assert "ended by the operator: sent by mistake" in command(service, "explain", first).out
    resumed = command(service, "queue", "resume", "--domain", "held.test", "--json")
    assert resumed.json["rowsBack"] == 1
    async with asyncio.timeout(PATIENCE_S):
        while not arrived(service, "two@held.test"):
            await asyncio.sleep(0.1)
    assert not arrived(service, "one@held.test")
    assert command(service, "message", second, "--json").json["waybill"][1]["detail"]["note"] == WHY


async def test_a_trace_prints_conversations_of_its_domain_alone(service: Service, served: Api) -> None:
    watching = asyncio.create_task(
        asyncio.to_thread(command, service, "trace", "--domain", "seen.test", "--seconds", "8", "--json")
    )
    await asyncio.sleep(3)
    seen, _ = await asyncio.to_thread(send, service, "a@seen.test"), await asyncio.to_thread(send, service, "b@un.test")
    found = [json.loads(line) for line in (await watching).out.splitlines()]

    attempts = [one for one in found if "messageId" in one]
    assert [one["messageId"] for one in attempts] == [seen]
    assert [step["step"] for step in attempts[0]["conversation"]][-1] == "body"
    assert "> RCPT TO:<a***@seen.test>" in [f"{one['way']} {one['text']}" for one in found if "way" in one]
    assert "It works" not in json.dumps(found)


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "suspend", "--reason", "x"),
        ("queue", "suspend", "--domain", "a.test", "--account", "acc_1", "--reason", "x"),
        ("queue", "suspend", "--domain", "not a domain", "--reason", "x"),
        ("queue", "suspend", "--domain", "a.test", "--reason", " "),
        ("queue", "resume", "--domain", "never.test"),
        ("queue", "flush", "--message", "msg_1"),
        ("explain", "msg_nope"),
        ("trace", "--domain", "not a domain"),
    ],
)
def test_a_mistake_is_one_line(service: Service, arguments: tuple[str, ...]) -> None:
    failed = command(service, *arguments)
    assert failed.status != 0
    assert "Traceback" not in failed.out + failed.err
    assert failed.err.startswith("Error: ")
