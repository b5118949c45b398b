"""`ops queue`, `ops explain` and `ops trace` beside a running service, as an operator types them."""

import json

import pytest

from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.service import arrived, command, following, until

pytestmark = pytest.mark.journey

WHY = "their abuse desk asked us to wait"


def send(service: Service, to: str) -> str:
    return str(command(service, "send", "--to", to, "--subject", "Levers", "--json").json["id"])


def held(service: Service) -> int:
    return sum(int(one["held"]) for one in command(service, "queue", "--json").json["waiting"])


async def until_applied(service: Service) -> int:
    """Send to the suspended domain until a message is held; return how many are held."""
    sent = 0

    async def is_settled() -> bool:
        return len(arrived(service, "early@held.test")) + held(service) == sent

    while not held(service):
        send(service, "early@held.test")
        sent += 1
        await until(is_settled)
    return held(service)


@pytest.mark.exhaustive
async def test_a_domain_is_suspended_explained_partly_bounced_and_resumed(service: Service, served: Api) -> None:
    laid = command(service, "queue", "suspend", "--domain", "held.test", "--reason", WHY, "--json")
    assert laid.json == {"kind": "domain", "target": "held.test", "rows": 0, "complete": True, "until": None}
    early = await until_applied(service)
    first, second = send(service, "one@held.test"), send(service, "two@held.test")

    async def are_held() -> bool:
        return held(service) == early + 2

    await until(are_held)

    shown = command(service, "queue", "--by", "site", "--json").json
    found = [(one["site"], one["rows"], one["held"]) for one in shown["waiting"]]
    assert ("mx.held.test", early + 2, early + 2) in found
    assert shown["holds"][0]["reason"] == WHY
    told = command(service, "explain", first)
    assert f"the operator of this service holds it: {WHY}" in told.out
    assert told.out.count("\n") == 1

    bounced = command(service, "queue", "bounce", "--message", first, "--reason", "sent by mistake", "--yes", "--json")
    assert bounced.json == {"kind": "message", "target": first, "rows": 1, "complete": True, "until": None}
    assert "ended by the operator: sent by mistake" in command(service, "explain", first).out
    resumed = command(service, "queue", "resume", "--domain", "held.test", "--json")
    assert resumed.json["rows"] <= early + 1  # the worker may have released some of them before the command

    async def has_come() -> bool:
        return bool(arrived(service, "two@held.test"))

    await until(has_come)
    assert not arrived(service, "one@held.test")
    assert command(service, "message", second, "--json").json["waybill"][1]["detail"]["note"] == WHY


async def test_a_trace_prints_conversations_of_its_domain_alone(service: Service, served: Api) -> None:
    with following(service, "trace", "--domain", "seen.test") as printed:
        seen: list[str] = []

        def traced() -> list[str]:
            return [one["messageId"] for one in printed() if "messageId" in one]

        async def is_traced() -> bool:
            seen.append(send(service, "a@seen.test"))
            return bool(traced())

        async def has_come() -> bool:
            return bool(arrived(service, "b@un.test"))

        async def is_shown() -> bool:
            return seen[-1] in traced()

        await until(is_traced)
        send(service, "b@un.test")
        await until(has_come)
        seen.append(send(service, "a@seen.test"))
        await until(is_shown)
        found = printed()

    attempts = [one for one in found if "messageId" in one]
    assert {one["messageId"] for one in attempts} <= set(seen)
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
