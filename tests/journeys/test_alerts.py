"""From bounces at a real mail server to the alert: event, mail in the sink, post to a webhook."""

import pytest

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.receiver import Receiver
from tests.harness.service import arrived, octets, parsed, until

pytestmark = pytest.mark.journey


@pytest.mark.exhaustive
async def test_ten_bounces_of_a_hundred_messages_fire_an_alert(
    service: Service, served: Api, access: ApiAccess
) -> None:
    async with Receiver() as hook:
        wanted = {"url": hook.url, "eventTypes": ["alert.fired"]}
        assert (await served.post("/v1/webhooks", access.key, wanted)).status == 201
        to = [f"{'bounce' if number < 10 else 'ann'}@people{number}.test" for number in range(100)]
        messages = [{"from": access.sender, "to": one, "subject": "Hello", "text": "Hello!"} for one in to]
        assert (await served.post("/v1/emails/batch", access.key, {"messages": messages})).status == 200
        await until(lambda: _are_settled(served, access))
        rule = {"kind": "bounce_rate", "threshold": 0.1}
        assert (await served.post("/v1/alerts/rules", access.key, rule)).status == 201

        await until(lambda: _has_fired(served, access))
        [alert] = (await served.get("/v1/alerts/events", access.key)).json["data"]
        assert (alert["value"], alert["threshold"], alert["detail"]) == (0.1, 0.1, {"settled": 100, "bounced": 10})
        assert (alert["channels"], alert["endedAt"]) == (["email", "webhook"], None)
        owner = f"{access.sender.removeprefix('drill@').removesuffix('.test')}@drill.test"
        await until(lambda: _is_told(service, hook, owner))
        [entry] = arrived(service, owner)
        mail = parsed(octets(service, entry))
        assert mail["subject"].startswith("Bounce rate of 10%: ")
        text = mail.get_body(("plain",))
        assert text is not None
        assert "10 of 100 recipients" in " ".join(text.get_content().split())
        [post] = hook.got
        assert (post.json["type"], post.json["data"]["detail"]["id"]) == ("alert.fired", alert["id"])


async def _are_settled(served: Api, access: ApiAccess) -> bool:
    pages = [(await served.get(f"/v1/messages?limit=1&status={one}", access.key)).json for one in ("queued", "sending")]
    return not any(page["data"] for page in pages)


async def _has_fired(served: Api, access: ApiAccess) -> bool:
    return bool((await served.get("/v1/alerts/events", access.key)).json["data"])


async def _is_told(service: Service, hook: Receiver, address: str) -> bool:
    return bool(arrived(service, address) and hook.got)
