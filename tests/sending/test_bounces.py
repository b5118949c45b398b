"""`GET /v1/bounces`: the list, counts by class, and the history of an address."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from engine.base import clock
from engine.sending.bounces import store
from engine.sending.bounces.types import BounceFilters
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.api import Api
from tests.harness.broadcasts import with_stream
from tests.harness.settling import settle

UNKNOWN = (550, "5.1.1 no such user")
BLOCKED = (550, "5.7.1 blocked by policy")


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await with_stream(pool, await make_account(pool))


async def sent(api: Api, account: TestAccount, to: str, **fields: Any) -> str:
    body = {"from": account.sender, "to": to, "subject": "Hi", "text": "Hi"} | fields
    answer = await api.post("/v1/emails", account.token, body)
    assert answer.status == 202, answer
    return str(answer.json["id"])


async def bounced(
    api: Api, pool: asyncpg.Pool, account: TestAccount, to: str, reply: tuple[int, str] = UNKNOWN, **fields: Any
) -> str:
    message = await sent(api, account, to, **fields)
    await settle(pool, message, (to, *reply))
    return message


async def page(api: Api, account: TestAccount, **params: str) -> Any:
    answer = await api.get("/v1/bounces", account.token, params=params)
    assert answer.status == 200, answer
    return answer.json


async def addresses(api: Api, account: TestAccount, **params: str) -> list[str]:
    return [one["address"] for one in (await page(api, account, **params))["data"]]


async def test_a_bounce_is_listed_with_what_the_server_said(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    message = await bounced(api, pool, account, "gone@people.test")
    (one,) = (await page(api, account))["data"]

    assert one == {
        "id": one["id"], "type": "bounced", "messageId": message, "address": "gone@people.test",
        "class": "user_unknown", "scope": "recipient", "smtpCode": 550, "enhancedCode": "5.1.1",
        "diagnostic": "550 5.1.1 no such user", "mx": one["mx"], "attempt": one["attempt"], "late": False,
        "suppressed": True, "fromDomain": account.domain, "stream": "transactional", "occurredAt": one["occurredAt"],
    }  # fmt: skip
    assert one["id"].startswith("evt_")


async def test_a_key_sees_the_bounces_of_its_domains_and_streams_alone(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    other = f"other.{account.domain}"
    await add_domain(pool, account.id, other)
    await bounced(api, pool, account, "a@one.test")
    await bounced(api, pool, account, "b@two.test", BLOCKED, stream="announcements", **{"from": f"a@{other}"})
    of_domain = await add_key(pool, account.id, domains=[account.domain])
    of_stream = await add_key(pool, account.id, streams=["announcements"])
    for token, seen in ((of_domain, "a@one.test"), (of_stream, "b@two.test")):
        listed = (await api.get("/v1/bounces", token)).json["data"]
        classes = (await api.get("/v1/bounces/classes", token)).json

        assert [one["address"] for one in listed] == [seen]
        assert sum(one["bounces"] for one in classes["data"]) == 1
    hidden = await api.get("/v1/bounces?stream=transactional", of_stream)
    assert hidden.json["data"] == []


async def test_pages_are_newest_first_and_filters_are_combined(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    other = f"other.{account.domain}"
    await add_domain(pool, account.id, other)
    await bounced(api, pool, account, "a@one.test")
    await bounced(api, pool, account, "b@two.test", BLOCKED, stream="announcements")
    await bounced(api, pool, account, "c@two.test", BLOCKED, **{"from": f"a@{other}"})
    later = await sent(api, account, "d@one.test")
    await settle(pool, later, ("d@one.test", 451, "4.2.0 later"))  # the last retry
    await settle(pool, await sent(api, account, "fine@one.test"))

    assert await addresses(api, account) == ["d@one.test", "c@two.test", "b@two.test", "a@one.test"]
    assert await addresses(api, account, type="failed") == ["d@one.test"]
    assert await addresses(api, account, **{"class": "user_unknown"}) == ["a@one.test"]
    assert await addresses(api, account, scope="recipient", type="bounced") == ["a@one.test"]
    assert await addresses(api, account, recipientDomain="TWO.test") == ["c@two.test", "b@two.test"]
    assert await addresses(api, account, recipientDomain="two.test", domain=other) == ["c@two.test"]
    assert await addresses(api, account, stream="announcements") == ["b@two.test"]
    hour = clock.iso(clock.now() + timedelta(hours=1))
    assert await addresses(api, account, **{"from": hour}) == []
    assert len(await addresses(api, account, until=hour)) == 4

    first = await page(api, account, limit="3")
    second = await page(api, account, limit="3", before=first["nextCursor"])
    assert [one["address"] for one in second["data"]] == ["a@one.test"]
    assert second["nextCursor"] is None


async def test_a_page_reads_a_bounded_part_of_the_log(
    api: Api, pool: asyncpg.Pool, account: TestAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await bounced(api, pool, account, f"n{number}@people.test", UNKNOWN if number == 0 else BLOCKED)
    monkeypatch.setattr(store, "MAX_READ", 2)
    found, before, pages = [], None, 0
    while pages == 0 or before is not None:
        one = await store.page(pool, account.id, BounceFilters(category="user_unknown"), before=before, limit=10)
        found += one.rows
        before = one.before
        pages += 1
    assert (len(found), pages) == (1, 3)


async def test_classes_are_counted_with_the_last_reply(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    for number in range(3):
        await bounced(api, pool, account, f"a{number}@people.test")
    await bounced(api, pool, account, "b@people.test", (550, "5.1.1 other words"))
    await bounced(api, pool, account, "c@people.test", BLOCKED)
    answer = (await api.get("/v1/bounces/classes", account.token)).json

    assert (answer["counted"], answer["complete"]) == (5, True)
    first = answer["data"][0]
    assert (first["class"], first["scope"], first["bounces"], first["suppressed"]) == (
        "user_unknown", "recipient", 4, 4,
    )  # fmt: skip
    assert first["diagnostic"] == "550 5.1.1 other words"
    assert sum(one["bounces"] for one in answer["data"]) == 5
    only = (await api.get("/v1/bounces/classes", account.token, params={"class": "user_unknown"})).json
    assert [one["class"] for one in only["data"]] == ["user_unknown"]


async def test_the_history_of_an_address_leads_to_its_reactivation(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await settle(pool, await sent(api, account, "Ann@people.test"))
    both = await sent(api, account, "ann@people.test", cc=["bob@people.test"])
    await settle(pool, both, ("ann@people.test", *UNKNOWN))
    path = "/v1/bounces/ANN%40people.test"
    answer = (await api.get(path, account.token)).json

    assert answer["address"] == "ann@people.test"
    assert (answer["suppression"]["reason"], answer["removable"]) == ("bounce", True)
    assert [one["type"] for one in answer["data"]] == ["bounced", "delivered"]
    assert {one["address"].lower() for one in answer["data"]} == {"ann@people.test"}

    assert (await api.delete("/v1/suppressions/ann%40people.test", account.token)).status == 204
    after = (await api.get(path, account.token)).json
    assert (after["suppression"], after["removable"], len(after["data"])) == (None, False, 2)
    assert (await api.get("/v1/bounces/nobody%40people.test", account.token)).status == 404
    assert (await api.get("/v1/bounces/no-address", account.token)).status == 404


async def test_a_complaint_is_not_removable(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'cross@people.test', 'complaint')",
        account.id,
    )
    answer = (await api.get("/v1/bounces/cross%40people.test", account.token)).json
    assert (answer["suppression"]["reason"], answer["removable"], answer["data"]) == ("complaint", False, [])


async def test_another_account_and_erased_events_show_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    stranger = await make_account(pool)
    await bounced(api, pool, account, "gone@people.test")
    assert await addresses(api, stranger) == []
    assert (await api.get("/v1/bounces/gone%40people.test", stranger.token)).status == 404
    await pool.execute("UPDATE events SET payload = NULL WHERE account_id = $1 AND type = 'bounced'", account.id)
    assert await addresses(api, account) == []
    assert (await api.get("/v1/bounces/classes", account.token)).json["data"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("before", "evt_1"), ("before", "9" * 30), ("class", "no_class"), ("scope", "planet"), ("type", "delivered"),
        ("recipientDomain", "a@b.test"), ("domain", "x y"), ("stream", "A B"), ("from", "yesterday"),
        ("until", "2026-11-20T08:15:00"), ("limit", "0"), ("tag", "x"),
    ],
)  # fmt: skip
async def test_bad_filters_are_refused_by_name(api: Api, account: TestAccount, field: str, value: str) -> None:
    answer = await api.get("/v1/bounces", account.token, params={field: value})
    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)
