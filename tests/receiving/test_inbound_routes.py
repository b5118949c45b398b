"""Inbound routes over the API, and the decision that a received message finds in its transaction."""

from typing import Any

import asyncpg
import orjson
import pytest

from engine.base import clock, ids
from engine.receiving.inbound_routes import store
from engine.receiving.inbound_routes.types import RouteAction, RouteDecision
from tests.harness.accounts import TestAccount, add_domain, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api
from tests.harness.people import make_person

Made = dict[str, Any]


async def claimed(api: Api, account: TestAccount, local: str = "support") -> Made:
    answer = await api.post("/v1/inbound/addresses", account.token, {"address": f"{local}@{account.domain}"})
    assert answer.status == 201, answer
    return dict(answer.json)


async def hook(api: Api, account: TestAccount, *types: str) -> str:
    body = {"url": "https://hooks.example.com/", "eventTypes": list(types)}
    return str((await api.post("/v1/webhooks", account.token, body)).json["id"])


async def route(api: Api, account: TestAccount, **fields: object) -> Made:
    answer = await api.post("/v1/inbound/routes", account.token, fields)
    assert answer.status == 201, answer
    return dict(answer.json)


async def patch(api: Api, account: TestAccount, id: str, **fields: object) -> Answer:  # noqa: A002
    return await api.patch(f"/v1/inbound/routes/{id}", account.token, fields)


async def read(api: Api, account: TestAccount, id: str) -> Made:  # noqa: A002
    answer = await api.get(f"/v1/inbound/routes/{id}", account.token)
    assert answer.status == 200
    return dict(answer.json)


async def decided(pool: asyncpg.Pool, *addresses: Made) -> list[RouteDecision]:
    """What the transaction of a message decides about these addresses."""
    keys = [ids.parse_id(ids.Kind.INBOUND_ADDRESS, one["id"]) for one in addresses]
    async with pool.acquire() as connection:
        found = await store.routes_of(connection, keys)
    return [found[key].decision for key in keys]


def refused(answer: Answer, status: int, kind: str, **fields: str) -> bool:
    return (answer.status, answer.error["type"]) == (status, kind) and fields.items() <= answer.error.items()


# -- creating ---------------------------------------------------------------------------------------


async def test_a_route_has_one_target_and_shows_its_effect(api: Api, account: TestAccount) -> None:
    address, endpoint = await claimed(api, account), await hook(api, account)

    made = await route(
        api, account, address=address["address"].upper(), action="both", webhookId=endpoint,
        include=["replyText", "text"],
    )  # fmt: skip

    assert made["id"].startswith("irt_")
    assert clock.parse_iso(made["createdAt"]) <= clock.now()
    assert made == {
        "id": made["id"], "address": address["address"], "domain": None, "action": "both", "webhookId": endpoint,
        "include": ["text", "replyText"], "forwardTo": None, "enabled": True, "retainContent": True,
        "effective": "both",
        "createdAt": made["createdAt"],
    }  # fmt: skip
    assert await read(api, account, made["id"]) == made
    listed = (await api.get("/v1/inbound/routes", account.token)).json
    assert listed == {"data": [made], "nextCursor": None}
    whole = await route(api, account, domain=account.domain.upper(), action="mailbox")
    assert (whole["address"], whole["domain"]) == (None, account.domain)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"action": "both"}, "address"), ({"address": "a@x.test", "domain": "x.test", "action": "both"}, "address"),
        ({"address": "a@x.test"}, "action"), ({"address": "a@x.test", "action": "drop"}, "action"),
        ({"address": "a@x.test", "action": "both", "webhookId": "msg_1"}, "webhookId"),
        ({"address": "a@x.test", "action": "both", "include": ["raw"]}, "include[0]"),
        ({"address": "a@x.test", "action": "both", "pattern": "*"}, "pattern"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named(api: Api, account: TestAccount, fields: dict[str, object], field: str) -> None:
    answer = await api.post("/v1/inbound/routes", account.token, fields)

    assert refused(answer, 400, "invalid_request", field=field), answer


async def test_the_address_must_be_claimed_and_the_domain_verified(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    pending = f"pending-{account.domain}"
    await add_domain(pool, account.id, pending, verified=False)

    async def asked(**target: str) -> Answer:
        return await api.post("/v1/inbound/routes", account.token, target | {"action": "webhook"})

    for target in (
        {"address": f"nobody@{account.domain}"}, {"address": "no address"}, {"domain": "stranger.test"},
        {"domain": "no domain"},
    ):  # fmt: skip
        assert refused(await asked(**target), 404, "not_found"), target
    assert refused(await asked(domain=pending), 403, "domain_not_verified", domain=pending)


async def test_a_target_has_one_route(api: Api, account: TestAccount) -> None:
    address = await claimed(api, account)
    for target in ({"address": address["address"]}, {"domain": account.domain}):
        made = await route(api, account, action="mailbox", **target)
        again = await api.post("/v1/inbound/routes", account.token, {"action": "webhook"} | target)
        assert refused(again, 409, "conflict", id=made["id"])


async def test_an_unknown_or_deleted_endpoint_is_404(api: Api, account: TestAccount) -> None:
    address, gone = await claimed(api, account), await hook(api, account)
    await api.delete(f"/v1/webhooks/{gone}", account.token)
    made = await route(api, account, domain=account.domain, action="webhook")

    for endpoint in (gone, "whk_00000000000000000000000000"):
        body = {"address": address["address"], "action": "webhook", "webhookId": endpoint}
        assert refused(await api.post("/v1/inbound/routes", account.token, body), 404, "not_found")
        assert refused(await patch(api, account, made["id"], webhookId=endpoint), 404, "not_found")
    assert (await read(api, account, made["id"]))["webhookId"] is None


# -- effect -----------------------------------------------------------------------------------------


async def test_a_route_without_endpoint_reaches_every_active_one_that_is_subscribed(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    address = await claimed(api, account)
    made = await route(api, account, address=address["address"], action="webhook", include=["html"])
    assert made["effective"] == "mailbox"
    [decision] = await decided(pool, address)
    assert decision == RouteDecision(action=RouteAction.MAILBOX, fallback=True)

    every, named = await hook(api, account), await hook(api, account, "inbound.received")
    await hook(api, account, "bounced")
    off = await hook(api, account)
    await api.patch(f"/v1/webhooks/{off}", account.token, {"status": "disabled"})

    assert (await read(api, account, made["id"]))["effective"] == "webhook"
    [decision] = await decided(pool, address)
    assert sorted(decision.webhook_ids) == sorted(ids.parse_id(ids.Kind.WEBHOOK, one) for one in (every, named))
    assert (decision.action, decision.include, decision.fallback) == (RouteAction.WEBHOOK, ("html",), False)


async def test_a_named_endpoint_is_reached_whatever_its_event_types(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    address, endpoint = await claimed(api, account), await hook(api, account, "bounced")
    made = await route(api, account, address=address["address"], action="webhook", webhookId=endpoint)

    assert made["effective"] == "webhook"
    [decision] = await decided(pool, address)
    assert decision.webhook_ids == (ids.parse_id(ids.Kind.WEBHOOK, endpoint),)


@pytest.mark.parametrize("ended", ["deleted", "disabled"])
async def test_an_endpoint_that_ended_leaves_the_route_and_never_widens_it(
    api: Api, account: TestAccount, pool: asyncpg.Pool, ended: str
) -> None:
    address, endpoint, _ = await claimed(api, account), await hook(api, account), await hook(api, account)
    made = await route(api, account, address=address["address"], action="both", webhookId=endpoint)

    if ended == "deleted":
        await api.delete(f"/v1/webhooks/{endpoint}", account.token)
    else:
        await api.patch(f"/v1/webhooks/{endpoint}", account.token, {"status": "disabled"})

    assert await read(api, account, made["id"]) == made | {"effective": "mailbox"}
    assert await decided(pool, address) == [RouteDecision(action=RouteAction.MAILBOX, fallback=True)]
    assert (await patch(api, account, made["id"], include=["text"])).status == 200


async def test_the_route_of_the_address_beats_that_of_its_domain_also_when_disabled(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    support, sales = await claimed(api, account), await claimed(api, account, "sales")
    await hook(api, account)
    own = await route(api, account, address=support["address"], action="mailbox")
    whole = await route(api, account, domain=account.domain, action="webhook")

    assert [one.action for one in await decided(pool, support, sales)] == ["mailbox", "webhook"]
    assert (await patch(api, account, own["id"], action="both")).json["effective"] == "both"
    assert (await patch(api, account, own["id"], enabled=False)).json["effective"] == "mailbox"
    assert [one.action for one in await decided(pool, support, sales)] == ["mailbox", "webhook"]
    assert not any(one.fallback for one in await decided(pool, support, sales))
    assert (await api.delete(f"/v1/inbound/routes/{own['id']}", account.token)).status == 204
    assert [one.action for one in await decided(pool, support, sales)] == ["webhook", "webhook"]
    assert (await api.delete(f"/v1/inbound/routes/{whole['id']}", account.token)).status == 204
    assert [one.action for one in await decided(pool, support, sales)] == ["mailbox", "mailbox"]


async def test_the_commit_learns_what_changed_since_rcpt(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    support, sales = await claimed(api, account), await claimed(api, account, "sales")
    keys = [ids.parse_id(ids.Kind.INBOUND_ADDRESS, one["id"]) for one in (support, sales)]
    await api.patch(f"/v1/inbound/addresses/{support['id']}", account.token, {"enabled": False})
    await api.delete(f"/v1/inbound/addresses/{sales['id']}", account.token)

    async with pool.acquire() as connection:
        found = await store.routes_of(connection, keys)

    assert [(key, one.account_id, one.receives) for key, one in found.items()] == [(keys[0], account.id, False)]


# -- forwarding -------------------------------------------------------------------------------------


async def test_mail_is_forwarded_to_the_team_and_under_own_domains_only(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    address, stranger = await claimed(api, account), await make_account(pool)
    member, outsider = await make_person(pool, account.id), await make_person(pool, stranger.id)
    made = await route(api, account, address=address["address"], action="forward", forwardTo=member.email.upper())

    assert (made["forwardTo"], made["effective"]) == (member.email, "forward")
    [decision] = await decided(pool, address)
    assert decision == RouteDecision(action=RouteAction.FORWARD, forward_to=member.email)
    allowed = await patch(api, account, made["id"], forwardTo=f"Archive@{account.domain}")
    assert allowed.json["forwardTo"] == f"archive@{account.domain}"
    for to in (outsider.email, f"x@{stranger.domain}", address["address"]):
        answer = await patch(api, account, made["id"], forwardTo=to)
        assert refused(answer, 400, "invalid_request", field="forwardTo"), to
    for to, status in ((None, 400), ("no address", 422)):
        answer = await patch(api, account, made["id"], forwardTo=to)
        assert (answer.status, answer.error["field"]) == (status, "forwardTo")
    assert await read(api, account, made["id"]) == allowed.json


async def test_an_address_that_left_the_team_gets_no_more_mail(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    address, member = await claimed(api, account), await make_person(pool, account.id)
    made = await route(api, account, address=address["address"], action="forward", forwardTo=member.email)

    await pool.execute("DELETE FROM members WHERE user_id = $1", member.id)

    assert (await read(api, account, made["id"]))["effective"] == "mailbox"
    assert await decided(pool, address) == [RouteDecision(action=RouteAction.MAILBOX, fallback=True)]


async def test_a_route_whose_mail_would_come_back_is_refused(api: Api, account: TestAccount) -> None:
    first, second = await claimed(api, account), await claimed(api, account, "sales")
    made = await route(api, account, address=first["address"], action="forward", forwardTo=second["address"])
    fields = {"action": "forward", "forwardTo": f"support+back@{account.domain}"}
    loops = [{"address": second["address"]}, {"domain": account.domain}]

    for target in loops:
        answer = await api.post("/v1/inbound/routes", account.token, fields | target)
        assert refused(answer, 400, "invalid_request", field="forwardTo"), target
    await patch(api, account, made["id"], enabled=False)
    await route(api, account, address=second["address"], **fields)
    answer = await patch(api, account, made["id"], enabled=True)
    assert refused(answer, 400, "invalid_request", field="forwardTo")


# -- changing ---------------------------------------------------------------------------------------


async def test_changes_keep_what_is_omitted_and_are_recorded(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    address, endpoint = await claimed(api, account), await hook(api, account)
    made = await route(api, account, address=address["address"], action="webhook", webhookId=endpoint)

    kept = await patch(api, account, made["id"], action="both")
    detached = await patch(api, account, made["id"], webhookId=None, include=["text"])
    same = await patch(api, account, made["id"], action="both")
    await api.delete(f"/v1/inbound/routes/{made['id']}", account.token)

    assert kept.json == made | {"action": "both", "effective": "both"}
    assert detached.json == kept.json | {"webhookId": None, "include": ["text"]}
    assert same.json == detached.json
    rows = await pool.fetch(
        "SELECT type, payload FROM events WHERE account_id = $1 AND type LIKE 'inbound_route.%' ORDER BY seq",
        account.id,
    )
    named = {"id": made["id"], "address": address["address"], "actor": await key_of(pool, account)}
    assert [(row["type"], orjson.loads(row["payload"])["detail"]) for row in rows] == [
        (
            "inbound_route.created",
            named
            | {"action": "webhook", "webhook_id": endpoint, "include": [], "forward_to": None, "enabled": True}
            | {"retain_content": True},
        ),
        ("inbound_route.updated", named | {"action": "both"}),
        ("inbound_route.updated", named | {"webhook_id": None, "include": ["text"]}),
        ("inbound_route.deleted", named),
    ]
