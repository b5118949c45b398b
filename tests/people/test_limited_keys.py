"""An API key that is limited to domains or streams sees, changes and creates only objects of these."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec import Struct

from engine.base import clock
from tests.harness.accounts import TestAccount, add_domain, add_key, add_stream, make_account
from tests.harness.api import Answer, Api
from tests.harness.sse import following


class Divided(Struct):
    """An account with two domains and three streams, and keys that are limited to one each."""

    account: TestAccount
    other: str
    of_domain: str
    of_stream: str

    @property
    def domain(self) -> str:
        return self.account.domain


@pytest.fixture
async def here(pool: asyncpg.Pool) -> Divided:
    account = await make_account(pool)
    other = f"two.{account.domain}"
    await add_domain(pool, account.id, other)
    await add_stream(pool, account.id, "news")
    return Divided(
        account,
        other,
        await add_key(pool, account.id, domains=[account.domain]),
        await add_key(pool, account.id, streams=["news"]),
    )


def said(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.error["type"]


async def sent(api: Api, here: Divided, domain: str, stream: str, **fields: object) -> str:
    body = here.account.email(**{"from": f"shop@{domain}", "stream": stream, **fields})
    answer = await api.post("/v1/emails", here.account.token, body)
    assert answer.status == 202, answer.body
    return str(answer.json["id"])


async def names_to_ids(api: Api, here: Divided) -> dict[str, str]:
    return {one["name"]: one["id"] for one in (await api.get("/v1/domains", here.account.token)).json["data"]}


async def ids_of(api: Api, path: str, token: str) -> set[str]:
    answer = await api.get(path, token)
    assert answer.status == 200, answer.body
    return {one["id"] for one in answer.json["data"]}


async def hook(api: Api, token: str, **fields: object) -> Answer:
    return await api.post("/v1/webhooks", token, {"url": "http://127.0.0.1:9/hook", **fields})


# domains -----------------------------------------------------------------------------------------


async def test_a_key_sees_its_domains_alone(api: Api, here: Divided) -> None:
    known = await names_to_ids(api, here)

    assert await ids_of(api, "/v1/domains", here.of_domain) == {known[here.domain]}
    for path in ("", "/setup"):
        assert (await api.get(f"/v1/domains/{known[here.domain]}{path}", here.of_domain)).status == 200
        assert said(await api.get(f"/v1/domains/{known[here.other]}{path}", here.of_domain)) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/verify"), ("POST", "/rotate"), ("POST", "/cloudflare"), ("PATCH", ""), ("DELETE", "")],
)
async def test_a_key_leaves_the_domains_of_others_alone(api: Api, here: Divided, method: str, path: str) -> None:
    known = await names_to_ids(api, here)
    body = b'{"returnPathLabel": "mine"}' if method == "PATCH" else b""
    headers = {"Content-Type": "application/json"} if body else None

    async def asked(token: str) -> Answer:
        whole = f"/v1/domains/{known[here.other]}{path}"
        return await api.request(method, whole, token=token, body=body or None, headers=headers)

    assert said(await asked(here.of_domain)) == (404, "not_found")
    refused = await asked(here.of_stream)
    assert said(refused) == (403, "forbidden")
    assert "limited to some streams" in refused.error["message"]
    assert known == await names_to_ids(api, here)


async def test_a_key_removes_its_own_domain_and_adds_none(api: Api, here: Divided) -> None:
    known = await names_to_ids(api, here)

    assert said(await api.post("/v1/domains", here.of_domain, {"name": "new.test"})) == (403, "forbidden")
    assert said(await api.delete("/v1/account/cloudflare", here.of_domain)) == (403, "forbidden")
    assert (await api.delete(f"/v1/domains/{known[here.domain]}", here.of_domain)).status == 204
    assert set(await names_to_ids(api, here)) == {here.other}


# streams -----------------------------------------------------------------------------------------


async def test_a_key_sees_and_closes_its_streams_alone(api: Api, pool: asyncpg.Pool, here: Divided) -> None:
    await add_stream(pool, here.account.id, "offers")

    assert await ids_of(api, "/v1/streams", here.of_stream) == {"news"}
    assert said(await api.delete("/v1/streams/offers", here.of_stream)) == (404, "not_found")
    assert said(await api.delete("/v1/streams/transactional", here.of_stream)) == (404, "not_found")
    assert said(await api.delete("/v1/streams/news", here.of_domain)) == (403, "forbidden")
    assert said(await api.post("/v1/streams", here.of_stream, {"id": "mine"})) == (403, "forbidden")
    assert await ids_of(api, "/v1/streams", here.of_domain) == {"transactional", "news", "offers"}
    assert (await api.delete("/v1/streams/news", here.of_stream)).status == 204


# webhooks ----------------------------------------------------------------------------------------


async def test_an_endpoint_made_by_a_limited_key_gets_its_events_alone(api: Api, here: Divided) -> None:
    by_domain = await hook(api, here.of_domain)
    by_stream = await hook(api, here.of_stream, domains=[here.other])

    assert (by_domain.json["domains"], by_domain.json["streams"]) == ([here.domain], [])
    assert (by_stream.json["domains"], by_stream.json["streams"]) == ([here.other], ["news"])
    assert said(await hook(api, here.of_domain, domains=[here.domain, here.other])) == (403, "forbidden")
    refused = await hook(api, here.of_stream, streams=["transactional"])
    assert said(refused) == (403, "forbidden")
    assert "transactional" in refused.error["message"]


async def test_a_change_by_a_limited_key_never_widens_an_endpoint(api: Api, here: Divided) -> None:
    path = f"/v1/webhooks/{(await hook(api, here.of_domain)).json['id']}"

    assert said(await api.patch(path, here.of_domain, {"domains": [here.other]})) == (403, "forbidden")
    assert (await api.patch(path, here.of_domain, {"domains": []})).json["domains"] == [here.domain]
    assert (await api.patch(path, here.of_domain, {"description": "Mine"})).json["domains"] == [here.domain]


async def test_a_key_sees_and_changes_the_endpoints_of_its_domains_alone(api: Api, here: Divided) -> None:
    whole = (await hook(api, here.account.token)).json["id"]
    others = (await hook(api, here.account.token, domains=[here.domain, here.other])).json["id"]
    mine = (await hook(api, here.account.token, domains=[here.domain])).json["id"]

    assert await ids_of(api, "/v1/webhooks", here.of_domain) == {mine}
    for hidden in (whole, others):
        path = f"/v1/webhooks/{hidden}"
        for answer in (
            await api.get(path, here.of_domain), await api.patch(path, here.of_domain, {"status": "disabled"}),
            await api.get(f"{path}/deliveries", here.of_domain), await api.post(f"{path}/rotate", here.of_domain),
            await api.post(f"{path}/test", here.of_domain), await api.delete(path, here.of_domain),
        ):  # fmt: skip
            assert said(answer) == (404, "not_found")
    assert (await api.delete(f"/v1/webhooks/{mine}", here.of_domain)).status == 204
    assert await ids_of(api, "/v1/webhooks", here.account.token) == {whole, others}


# messages ----------------------------------------------------------------------------------------


async def test_a_key_reads_the_messages_of_its_domains_and_streams_alone(api: Api, here: Divided) -> None:
    mine = await sent(api, here, here.domain, "transactional")
    news = await sent(api, here, here.other, "news")
    theirs = await sent(api, here, here.other, "transactional")

    assert await ids_of(api, "/v1/messages", here.of_domain) == {mine}
    assert await ids_of(api, "/v1/messages", here.of_stream) == {news}
    assert await ids_of(api, f"/v1/messages?domain={here.other}", here.of_domain) == set()
    assert await ids_of(api, "/v1/messages?stream=transactional", here.of_stream) == set()
    assert await ids_of(api, "/v1/messages?to=ann@people.test", here.of_domain) == {mine}
    assert theirs not in (await api.get("/v1/messages/export", here.of_domain)).body.decode()
    for path in ("", "/raw"):
        assert (await api.get(f"/v1/messages/{mine}{path}", here.of_domain)).status == 200
        for hidden, token in ((theirs, here.of_domain), (theirs, here.of_stream), (mine, here.of_stream)):
            assert said(await api.get(f"/v1/messages/{hidden}{path}", token)) == (404, "not_found")


async def test_a_key_moves_cancels_and_resends_its_messages_alone(api: Api, here: Divided) -> None:
    later = clock.iso(clock.now() + timedelta(hours=5))
    theirs = await sent(api, here, here.other, "transactional", scheduledAt=later)
    path = f"/v1/emails/{theirs}/schedule"
    bulk = (await api.post("/v1/messages/resend", here.of_domain, {"ids": [theirs]})).json["data"]

    assert bulk[0]["error"]["type"] == "not_found"
    assert said(await api.post(f"/v1/messages/{theirs}/resend", here.of_domain, {})) == (404, "not_found")
    assert said(await api.patch(path, here.of_domain, {"scheduledAt": later})) == (404, "not_found")
    assert said(await api.delete(path, here.of_domain)) == (404, "not_found")
    assert (await api.delete(path, here.account.token)).status == 200


async def test_figures_are_of_the_keys_domains_and_streams_alone(api: Api, here: Divided) -> None:
    for domain, stream in ((here.domain, "transactional"), (here.other, "news"), (here.other, "transactional")):
        await sent(api, here, domain, stream)

    async def counted(token: str, query: str = "") -> int:
        answer = await api.get(f"/v1/stats/messages{query}", token)
        assert answer.status == 200, answer.body
        total: int = answer.json["totals"]["total"]
        return total

    assert await counted(here.account.token) == 3
    assert await counted(here.of_domain) == 1
    assert await counted(here.of_stream) == 1
    assert await counted(here.of_domain, f"?domain={here.other}") == 0
    assert await counted(here.of_stream, "?stream=transactional") == 0
    assert await counted(here.of_stream, f"?domain={here.other}") == 1


async def test_a_tail_shows_the_events_of_the_keys_domains_and_streams_alone(api: Api, here: Divided) -> None:
    mine = await sent(api, here, here.domain, "transactional")
    news = await sent(api, here, here.other, "news")
    await sent(api, here, here.other, "transactional")

    for token, wanted in ((here.of_domain, mine), (here.of_stream, news)):
        async with following(api, token, "?replay=100") as tail:
            await tail.until("ready")
            [event] = await tail.messages(1)
            assert event.data["messageId"] == wanted
            assert await tail.quiet(0.5)


async def test_a_key_checks_the_codes_of_its_domains_alone(api: Api, here: Divided) -> None:
    start = {"to": "ann@people.test", "from": f"shop@{here.domain}"}
    made = (await api.post("/v1/verifications", here.of_domain, start)).json["id"]

    assert (await api.get(f"/v1/verifications/{made}", here.of_domain)).status == 200
    for answer in (
        await api.get(f"/v1/verifications/{made}", here.of_stream),
        await api.post(f"/v1/verifications/{made}/check", here.of_stream, {"code": "123456"}),
        await api.post(f"/v1/verifications/{made}/cancel", here.of_stream),
    ):
        assert said(answer) == (404, "not_found")


# what all domains share --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/events", None), ("GET", "/v1/audit/events", None), ("GET", "/v1/requests", None),
        ("GET", "/v1/suppressions", None), ("GET", "/v1/bounces/ann@people.test", None), ("GET", "/v1/usage", None),
        ("GET", "/v1/api-keys", None), ("POST", "/v1/suppressions", {"address": "ann@people.test"}),
    ],
)  # fmt: skip
async def test_what_all_domains_share_is_refused_with_a_way_out(
    api: Api, here: Divided, method: str, path: str, body: dict[str, Any] | None
) -> None:
    for token, what in ((here.of_domain, "domains"), (here.of_stream, "streams")):
        answer = await (api.get(path, token) if method == "GET" else api.post(path, token, body))

        assert said(answer) == (403, "forbidden")
        assert f"limited to some {what}" in answer.error["message"]
        assert "Use a key without this limit" in answer.error["message"]
