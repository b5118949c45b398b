"""Answers to received messages through the API, and the conversations that they make."""

from typing import Any

import asyncpg
import pytest

from engine.base import ids
from engine.base.settings import Settings
from engine.receiving.receive import Receiver
from tests.harness.accounts import add_key, make_account
from tests.harness.api import Api
from tests.harness.received_mail import claim, listed, mail, only, received


@pytest.fixture
def receiver(pool: asyncpg.Pool, settings: Settings) -> Receiver:
    return Receiver(pool, settings)


async def test_an_answer_is_sent_to_its_author_and_joins_the_conversation(
    api: Api, pool: asyncpg.Pool, receiver: Receiver
) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    await received(receiver, address, mail("Late order", Message_ID="<first@people.test>"), mail("Unrelated"))
    asking = (await listed(api, account))[1]["id"]

    sent = await api.post(f"/v1/inbound/messages/{asking}/reply", account.token, {"text": "On its way."})
    shown = (await api.get(f"/v1/messages/{sent.json['id']}", account.token)).json
    raw = (await api.get(f"/v1/messages/{sent.json['id']}/raw", account.token)).body
    own_id = f"<{ids.body_of(sent.json['id'])}@{account.domain}>"
    thanks = mail("Re: Late order", In_Reply_To=own_id, References=f"<first@people.test> {own_id}")
    bare = mail("AW: Late order", In_Reply_To=own_id)
    await received(receiver, address, thanks, bare)

    assert sent.status == 202, sent.json
    assert (shown["from"], shown["to"], shown["subject"]) == (address.address, ["ann@people.test"], "Re: Late order")
    assert b"In-Reply-To: <first@people.test>\r\n" in raw
    assert b"References: <first@people.test>\r\n" in raw
    for start in [asking, *[one["id"] for one in (await listed(api, account))[:2]]]:
        thread = (await api.get(f"/v1/inbound/messages/{start}/thread", account.token)).json
        assert [(one["type"], one["subject"]) for one in thread["data"]] == [
            ("received", "Late order"), ("sent", "Re: Late order"), ("received", "Re: Late order"),
            ("received", "AW: Late order"),
        ]  # fmt: skip
        assert thread["complete"] is True
        assert thread["data"][1]["repliesTo"] == asking
    limited = await add_key(pool, account.id, streams=["news"])
    thread = (await api.get(f"/v1/inbound/messages/{asking}/thread", limited)).json
    assert {one["type"] for one in thread["data"]} == {"received"}


@pytest.mark.parametrize(
    ("head", "sender", "status"),
    [
        ({}, "ann@people.test", 202),
        ({"Auto_Submitted": "auto-replied"}, "ann@people.test", 409),
        ({"Precedence": "bulk"}, "ann@people.test", 409),
        ({}, "", 409),
    ],
)
async def test_an_automatic_answer_says_so_and_answers_no_program(
    api: Api, pool: asyncpg.Pool, receiver: Receiver, head: dict[str, Any], sender: str, status: int
) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), mail("Hi", **head), sender=sender)
    path = f"/v1/inbound/messages/{(await only(api, account))['id']}/reply"

    sent = await api.post(path, account.token, {"text": "We are closed.", "automatic": True})
    by_hand = await api.post(path, account.token, {"text": "On its way."})

    assert (sent.status, by_hand.status) == (status, 202)
    if status == 202:
        raw = (await api.get(f"/v1/messages/{sent.json['id']}/raw", account.token)).body
        assert b"\r\nAuto-Submitted: auto-replied\r\nX-Auto-Response-Suppress: All\r\n" in raw
    else:
        assert (sent.error["type"], sent.error["state"]) == ("invalid_state", "automatic")


async def test_an_answer_needs_the_right_to_send_and_to_read(api: Api, pool: asyncpg.Pool, receiver: Receiver) -> None:
    account = await make_account(pool)
    await received(receiver, await claim(pool, account), mail())
    path = f"/v1/inbound/messages/{(await only(api, account))['id']}/reply"

    for scopes, status in ((["emails:send"], 403), (["inbound:read"], 403), (["emails:send", "inbound:read"], 202)):
        token = await add_key(pool, account.id, scopes=scopes)
        assert (await api.post(path, token, {"text": "Hello"})).status == status, scopes
