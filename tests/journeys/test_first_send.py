"""From `ops up` and one POST to a signed message in a real SMTP server, and everything on its waybill."""

import hashlib
from base64 import b64encode
from datetime import datetime

import pytest

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.service import arrived, message, octets, parsed, send, steps, try_send, until_status, verifies

pytestmark = pytest.mark.journey

PDF = bytes(range(256)) * 40
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(300)


async def test_the_first_run_can_send_at_once(service: Service, served: Api) -> None:
    made = service.first_run
    first = ApiAccess(made["accountId"], made["apiKey"], f"hello@{made['domain']}")
    found = await until_status(served, first, await send(served, first, "first@example.com"), "delivered")

    assert steps(found) == ["accepted", "attempted", "delivered"]
    assert (service.state / "first-run.json").stat().st_mode & 0o777 == 0o600
    assert made["baseUrl"] == service.base_url


async def test_a_message_arrives_signed_whole_and_without_its_bcc(
    service: Service, served: Api, access: ApiAccess
) -> None:
    to, cc, bcc = "ann@people.test", "bob@others.test", "cem@people.test"
    id_ = await send(
        served, access, f"Änn Ünder <{to}>",
        cc=[cc], bcc=[bcc], subject="Grüße – 你好 🚀",
        text="Schöne Grüße\n.\nEnde\n", html='<p>你好 <img src="cid:pic"></p>',
        headers={"X-Test-Id": "journey-first"},
        attachments=[
            {"filename": "Rechnung № 7.pdf", "contentType": "application/pdf", "content": b64encode(PDF).decode()},
            {
                "filename": "pic.png", "contentType": "image/png", "content": b64encode(PICTURE).decode(),
                "disposition": "inline", "cid": "pic",
            },
        ],
    )  # fmt: skip
    found = await until_status(served, access, id_, "delivered")

    assert steps(found)[0] == "accepted"
    assert sorted(steps(found)[1:]) == ["attempted", "attempted", "delivered", "delivered", "delivered"]
    assert {one["address"]: one["status"] for one in found["recipients"]} == dict.fromkeys((to, cc, bcc), "delivered")
    [both] = arrived(service, to)
    [other] = arrived(service, cc)
    assert set(both.recipients) == {to, bcc}
    # Of two domains each may be signed by a process of its own, and in another second.
    assert octets(service, both).partition(b"\r\nFrom:")[2] == octets(service, other).partition(b"\r\nFrom:")[2] != b""
    content = octets(service, both)
    assert bcc.encode() not in content
    assert verifies(content, service)
    mail = parsed(content)
    assert mail["subject"] == "Grüße – 你好 🚀"
    assert mail["to"].addresses[0].display_name == "Änn Ünder"
    assert mail["cc"].addresses[0].addr_spec == cc
    assert mail["bcc"] is None
    files = {part.get_filename(): part.get_content() for part in mail.walk() if part.get_filename()}
    assert files == {"Rechnung № 7.pdf": PDF, "pic.png": PICTURE}
    text = mail.get_body(("plain",))
    assert text is not None
    assert text.get_content().splitlines() == ["Schöne Grüße", ".", "Ende"]
    assert (both.tls or "").startswith("TLS")
    [pdf, _] = found["attachments"]
    download = await served.get(f"/v1/messages/{id_}/attachments/{pdf['id']}", access.key)
    assert download.body == PDF
    assert pdf["sha256"] == hashlib.sha256(PDF).hexdigest()


async def test_a_changed_message_does_not_verify(service: Service, served: Api, access: ApiAccess) -> None:
    await until_status(served, access, await send(served, access, "eve@people.test"), "delivered")
    [entry] = arrived(service, "eve@people.test")

    assert verifies(octets(service, entry), service)
    assert not verifies(octets(service, entry).replace(b"Hello!", b"Hallo!"), service)


async def test_a_refused_address_bounces_and_is_suppressed(service: Service, served: Api, access: ApiAccess) -> None:
    found = await until_status(served, access, await send(served, access, "bounce@people.test"), "bounced")

    assert steps(found) == ["accepted", "attempted", "bounced"]
    detail = found["waybill"][2]["detail"]
    assert (detail["smtp_code"], detail["enhanced_code"], detail["suppressed"]) == (550, "5.1.1", True)
    again = await try_send(served, access, "bounce@people.test")
    assert again.status == 422
    assert (again.error["type"], again.error["address"]) == ("suppressed", "bounce@people.test")
    assert arrived(service, "bounce@people.test") == []


async def test_a_policy_refusal_bounces_without_suppressing(served: Api, access: ApiAccess) -> None:
    found = await until_status(served, access, await send(served, access, "block@people.test"), "bounced")

    assert found["waybill"][2]["detail"]["suppressed"] is False
    assert (await try_send(served, access, "block@people.test")).status == 202


async def test_greylisted_mail_is_delivered_on_the_ladder_with_its_first_signature(
    service: Service, served: Api, access: ApiAccess
) -> None:
    address = f"defer+{access.account[-8:]}@people.test"
    found = await until_status(served, access, await send(served, access, address), "delivered")

    assert steps(found) == ["accepted", "attempted", "deferred", "attempted", "delivered"]
    assert found["recipients"][0]["attempts"] == 2
    deferred = found["waybill"][2]
    assert deferred["detail"]["next_attempt_at"] > deferred["createdAt"]
    [entry] = arrived(service, address)
    content = octets(service, entry)
    assert verifies(content, service)
    signed_at = int(content.partition(b"; t=")[2].partition(b";")[0])
    first_try = found["waybill"][1]["createdAt"]
    assert int(_seconds(found["waybill"][0]["createdAt"])) <= signed_at <= _seconds(deferred["createdAt"])
    assert _seconds(found["waybill"][3]["createdAt"]) - _seconds(first_try) >= 0.9


async def test_a_connection_lost_after_the_dot_costs_no_mail(service: Service, served: Api, access: ApiAccess) -> None:
    address = f"drop+{access.account[-8:]}@people.test"
    found = await until_status(served, access, await send(served, access, address), "delivered")

    assert steps(found) == ["accepted", "attempted", "deferred", "attempted", "delivered"]
    copies = arrived(service, address)
    assert 1 <= len(copies) <= 2
    assert len({parsed(octets(service, copy))["message-id"] for copy in copies}) == 1


@pytest.mark.parametrize("domain", ["nullmx.test", "nxdomain.test"])
async def test_a_domain_that_takes_no_mail_bounces_at_once(served: Api, access: ApiAccess, domain: str) -> None:
    found = await until_status(served, access, await send(served, access, f"ann@{domain}"), "bounced")

    assert steps(found) == ["accepted", "bounced"]


async def test_a_name_server_that_fails_defers(served: Api, access: ApiAccess) -> None:
    id_ = await send(served, access, "ann@servfail.test")
    found = await until_status(served, access, id_, "sending")

    assert "deferred" in steps(found)


async def test_a_slow_server_delays_nobody_else(served: Api, access: ApiAccess) -> None:
    slow = [await send(served, access, f"tarpit+1@slow{n}.test") for n in range(3)]
    quick = await send(served, access, "ann@people.test")
    await until_status(served, access, quick, "delivered")

    for id_ in slow:
        assert (await message(served, access, id_))["status"] != "delivered"


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
