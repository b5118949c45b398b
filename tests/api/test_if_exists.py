"""A set-up script runs twice: creates with `ifExists` return or update what exists."""

from typing import Any

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api

HOOK = "https://hooks.people.test/waybill"


def templates(_: TestAccount) -> tuple[str, dict[str, Any], dict[str, Any]]:
    content = {"id": "welcome", "subject": "Hello", "text": "Hello!"}
    return "/v1/templates", content, {"subject": "Welcome"}


def layouts(_: TestAccount) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "/v1/layouts", {"id": "brand", "html": "<p>{{{content}}}</p>"}, {"html": "<b>{{{content}}}</b>"}


def lists(_: TestAccount) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "/v1/lists", {"name": "News"}, {"description": "Monthly"}


def addresses(account: TestAccount) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "/v1/inbound/addresses", {"address": f"support@{account.domain}"}, {"label": "Support"}


def routes(account: TestAccount) -> tuple[str, dict[str, Any], dict[str, Any]]:
    route = {"domain": account.domain, "action": "mailbox"}
    return "/v1/inbound/routes", route, {"include": ["text"]}


def webhooks(_: TestAccount) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "/v1/webhooks", {"url": HOOK}, {"eventTypes": ["bounced"], "description": "Orders"}


KINDS = [templates, layouts, lists, addresses, routes, webhooks]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_create_that_is_repeated_returns_or_updates_what_exists(
    api: Api, account: TestAccount, kind: Any
) -> None:
    path, body, changes = kind(account)
    first = await api.post(path, account.token, body | {"ifExists": "update"})
    assert first.status == 201, first
    again = await api.post(path, account.token, body | {"ifExists": "return"} | changes)
    assert (again.status, again.json["id"]) == (200, first.json["id"])
    assert {name: again.json[name] for name in changes} == {name: first.json[name] for name in changes}
    same = await api.post(path, account.token, body | {"ifExists": "update"})
    assert same.status == 200
    updated = await api.post(path, account.token, body | {"ifExists": "update"} | changes)
    assert (updated.status, updated.json["id"]) == (200, first.json["id"])
    assert {name: updated.json[name] for name in changes} == changes
    assert updated.json.get("version", 2) == 2  # the same content again made no version
    if kind is webhooks:
        assert first.json["signingSecret"]
        assert updated.json["signingSecret"] is None
        further = await api.post(path, account.token, body)
        assert (further.status, further.json["id"] != first.json["id"]) == (201, True)
    else:
        refused = await api.post(path, account.token, body)
        assert (refused.status, refused.error["id"]) == (409, first.json["id"])


async def test_an_update_takes_empty_values_and_keeps_what_is_omitted(api: Api, account: TestAccount) -> None:
    hook = {"url": HOOK, "ifExists": "update"}
    await api.post("/v1/webhooks", account.token, hook | {"description": "Orders", "eventTypes": ["bounced"]})

    kept = await api.post("/v1/webhooks", account.token, hook | {"eventTypes": None})
    emptied = await api.post("/v1/webhooks", account.token, hook | {"description": "", "eventTypes": []})

    assert (kept.json["description"], kept.json["eventTypes"]) == ("Orders", ["bounced"])
    assert (emptied.json["description"], emptied.json["eventTypes"]) == ("", [])


async def test_an_existing_stream_is_returned(api: Api, account: TestAccount) -> None:
    first = await api.post("/v1/streams", account.token, {"id": "news", "ifExists": "return"})
    again = await api.post("/v1/streams", account.token, {"id": "news", "name": "X", "ifExists": "return"})
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json


@pytest.mark.parametrize("path", ["/v1/templates", "/v1/layouts"])
async def test_if_exists_needs_the_id_that_names_the_object(api: Api, account: TestAccount, path: str) -> None:
    body = {"name": "Welcome", "html": "<p>{{{content}}}</p>", "ifExists": "update"}
    answer = await api.post(path, account.token, body)
    assert (answer.status, answer.error["field"]) == (400, "ifExists")


async def test_a_set_up_script_runs_again_at_the_limit_of_the_plan(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="free")
    status, made = 201, 0
    while status == 201:
        made += 1
        answer = await api.post("/v1/webhooks", account.token, {"url": f"{HOOK}/{made}", "ifExists": "return"})
        status = answer.status
    assert (status, answer.error["type"]) == (403, "plan_limit_reached")
    again = await api.post("/v1/webhooks", account.token, {"url": f"{HOOK}/1", "ifExists": "return"})
    assert again.status == 200


async def test_a_limited_key_changes_nothing_of_others_by_if_exists(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    limited = await add_key(pool, account.id, domains=[account.domain])
    template = {"id": "welcome", "text": "Hello!", "subject": "Hello"}
    assert (await api.post("/v1/templates", account.token, template)).status == 201
    shown = await api.post("/v1/templates", limited, template | {"ifExists": "return"})
    refused = await api.post("/v1/templates", limited, template | {"ifExists": "update", "text": "Bye!"})
    assert (shown.status, refused.status, refused.error["type"]) == (200, 403, "forbidden")

    whole = await api.post("/v1/webhooks", account.token, {"url": HOOK})
    own = {"url": HOOK, "domains": [account.domain]}
    first = await api.post("/v1/webhooks", limited, own | {"ifExists": "update"})
    again = await api.post("/v1/webhooks", limited, own | {"ifExists": "update", "description": "Mine"})
    assert (first.status, again.status) == (201, 200)
    assert first.json["id"] == again.json["id"] != whole.json["id"]
