"""`retainContent` and `contentUntil` over the API: of sends, batches, streams, and what reading says afterwards."""

import base64
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.base import ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.retention import reseal
from engine.sending.emails.content_retention import content_hours_of
from engine.sending.settle import Settler
from tests.harness.account_log import details_logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api, refuses
from tests.harness.emails import send
from tests.harness.sending import BOUNCED, DELIVERED, attempt_at, rows_of

FILE = {"filename": "a.txt", "contentType": "text/plain", "content": base64.b64encode(b"file").decode()}


async def sent(api: Api, account: TestAccount, **fields: object) -> str:
    answer = await send(api, account, **fields)
    assert answer.status == 202, answer
    return str(answer.json["id"])


async def settled(pool: asyncpg.Pool, settler: Settler, message: str, *, bounces: bool = False) -> None:
    for row in await rows_of(pool, stored_id(message)):
        assert await settler.settle(attempt_at(row, BOUNCED if bounces else DELIVERED))


def stored_id(message: str) -> UUID:
    return ids.parse_id(ids.Kind.MESSAGE, message)


async def shown(api: Api, account: TestAccount, message: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/messages/{message}", account.token)
    assert answer.status == 200
    return dict(answer.json)


async def changed(api: Api, account: TestAccount, slug: str, **fields: object) -> Answer:
    return await api.patch(f"/v1/streams/{slug}", account.token, fields)


@pytest.mark.parametrize(
    ("retain", "until", "default", "expected"),
    [
        (None, None, None, None), (None, None, 0, 0), (None, None, 5, 5), (True, None, 0, None), (False, None, None, 0),
        (False, None, 5, 0), (None, 7, None, 7), (False, 7, None, 7), (None, 7, 0, 7),
    ],
)  # fmt: skip
def test_a_send_comes_before_its_stream(
    *, retain: bool | None, until: int | None, default: int | None, expected: int | None
) -> None:
    assert content_hours_of(retain=retain, until=until, default=default) == expected


def test_a_send_that_says_both_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        content_hours_of(retain=True, until=3, default=None)
    assert caught.value.fields["field"] == "contentUntil"


async def test_a_message_is_readable_until_it_is_final_and_then_says_why_it_is_not(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settler: Settler
) -> None:
    message = await sent(api, account, text="secret", attachments=[FILE], retainContent=False)
    before = await shown(api, account, message)
    path = f"/v1/messages/{message}"
    file = f"{path}/attachments/{before['attachments'][0]['id']}"
    first = [await api.get(one, account.token) for one in (f"{path}/raw", file)]
    await settled(pool, settler, message)
    after = await shown(api, account, message)

    assert (before["text"], before["retainContent"], before["contentErased"]) == ("secret", False, False)
    assert [one.status for one in first] == [200, 200]
    assert (after["text"], after["html"], after["contentErased"]) == (None, None, True)
    assert (after["subject"], after["sizeBytes"]) == (before["subject"], before["sizeBytes"])
    assert [one["type"] for one in after["waybill"]] == ["accepted", "attempted", "delivered"]
    for one in (f"{path}/raw", file):
        gone = await api.get(one, account.token)
        assert (gone.status, gone.error["type"]) == (404, "not_found")
        assert "deleted" in gone.error["message"]
    again = await api.post(f"{path}/resend", account.token, {})
    assert (again.status, again.error["type"]) == (409, "invalid_state")


async def test_a_resend_of_kept_content_does_not_retain_it_either(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settler: Settler
) -> None:
    message = await sent(api, account, text="secret", contentUntil=3)
    await settled(pool, settler, message)
    again = await api.post(f"/v1/messages/{message}/resend", account.token, {})
    second = await shown(api, account, again.json["id"])

    assert again.status == 202
    assert (second["text"].strip(), second["retainContent"], second["contentUntil"]) == ("secret", False, 3)


async def test_a_batch_decides_each_message_and_a_dry_run_shows_it(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    messages = [account.email(retainContent=False), account.email(), account.email(contentUntil=2)]
    foreseen = await api.post("/v1/emails/batch", account.token, {"messages": messages, "dryRun": True})
    answer = await api.post("/v1/emails/batch", account.token, {"messages": messages})
    made = [await shown(api, account, one["id"]) for one in answer.json["data"]]

    assert [one["message"]["text"] for one in foreseen.json["data"]] == [one["text"] for one in made]
    assert [(one["retainContent"], one["contentUntil"]) for one in made] == [(False, None), (True, None), (False, 2)]
    listed = (await api.get("/v1/messages", account.token)).json["data"]
    assert sorted(one["retainContent"] for one in listed) == [False, False, True]


@pytest.mark.parametrize("fields", [{"contentUntil": 0}, {"contentUntil": 721}, {"contentUntil": 1.5}])
async def test_hours_out_of_range_are_refused(api: Api, account: TestAccount, fields: dict[str, object]) -> None:
    assert refuses(await send(api, account, **fields), "contentUntil")


async def test_a_stream_is_changed_for_later_messages_and_the_change_is_recorded(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await api.post("/v1/streams", account.token, {"id": "results", "retainContent": False})
    first = await sent(api, account, stream="results")
    steps = [
        (await changed(api, account, "results", **fields)).json
        for fields in (
            {"contentUntil": 24}, {"retainContent": False}, {"contentUntil": None}, {"retainContent": True},
            {"contentUntil": None},
        )
    ]  # fmt: skip
    second = await sent(api, account, stream="results")

    assert [(one["retainContent"], one["contentUntil"]) for one in steps] == [
        (False, 24), (False, 24), (False, None), (True, None), (True, None),
    ]  # fmt: skip
    assert (await shown(api, account, first))["retainContent"] is False
    assert (await shown(api, account, second))["retainContent"] is True
    events = await details_logged(pool, account.id, "stream.updated")
    assert [one["content_until"] for one in events] == [24, None, None]


async def test_a_stream_that_is_not_there_is_404_and_a_contradiction_is_400(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await api.post("/v1/streams", account.token, {"id": "results"})
    stranger = await make_account(pool)

    assert (await changed(api, account, "missing", retainContent=False)).status == 404
    assert (await changed(api, stranger, "results", retainContent=False)).status == 404
    assert refuses(await changed(api, account, "results", retainContent=True, contentUntil=3), "contentUntil")
    assert refuses(
        await api.post("/v1/streams", account.token, {"id": "b", "retainContent": True, "contentUntil": 3}),
        "contentUntil",
    )


async def test_stored_keys_follow_a_change_of_the_pepper(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settings: Settings
) -> None:
    await sent(api, account, text="secret", retainContent=False)

    assert "content keys" in {one.name for one in reseal.SEALED}
    counts = {one.what: one for one in await reseal.count(pool, settings.pepper)}
    assert counts["content keys"].present >= 1
    assert counts["content keys"].unreadable == 0


async def test_metadata_and_a_replayed_key_say_nothing_of_the_content(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settler: Settler
) -> None:
    fields: dict[str, object] = {"text": "secret", "retainContent": False, "idempotencyKey": "once"}
    message = await sent(api, account, **fields)
    await settled(pool, settler, message, bounces=True)
    again = await send(api, account, **fields)

    assert (again.status, again.json["id"], again.json["status"]) == (200, message, "duplicate")
    assert set(again.json) <= {"id", "status", "bodyDiffers"}
    assert await pool.fetchval("SELECT count(*) FROM content_keys WHERE message_id = $1", stored_id(message)) == 0
