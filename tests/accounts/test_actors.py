"""Every change of an account names its person or API key in the account log."""

from typing import Any

import asyncpg
import orjson
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.harness.actors import key_of
from tests.harness.api import Api
from tests.harness.people import make_person
from tests.harness.pictures import picture


async def change_everything(api: Api, account: TestAccount, sent: dict[str, Any]) -> None:
    """One of each change that keys and people can make alike."""

    async def call(method: str, path: str, body: object = None) -> Any:
        content = None if body is None else orjson.dumps(body)
        answer = await api.request(method, path, body=content, headers={"Content-Type": "application/json"}, **sent)
        assert answer.status < 300, (method, path, answer)
        return answer.json if answer.body else None

    await call("POST", "/v1/streams", {"id": "news"})
    await call("DELETE", "/v1/streams/news")
    await call("POST", "/v1/templates", {"id": "hello", "subject": "Hi", "text": "Hi"})
    await call("PATCH", "/v1/templates/hello", {"text": "Ho"})
    await call("PATCH", "/v1/templates/hello", {"name": "Hello"})
    await call("DELETE", "/v1/templates/hello")
    await call("POST", "/v1/layouts", {"id": "brand", "html": "{{{content}}}"})
    await call("PATCH", "/v1/layouts/brand", {"html": "<p>{{{content}}}"})
    await call("PATCH", "/v1/layouts/brand", {"name": "Brand"})
    await call("DELETE", "/v1/layouts/brand")
    image = (await call("POST", "/v1/images", {"filename": "lamp.png", "content": picture()}))["id"]
    await call("DELETE", f"/v1/images/{image}")
    await call("POST", "/v1/suppressions", {"address": "ann@people.test", "reason": "manual"})
    await call("DELETE", "/v1/suppressions/ann@people.test")
    webhook = (await call("POST", "/v1/webhooks", {"url": "https://hooks.test/x"}))["id"]
    await call("PATCH", f"/v1/webhooks/{webhook}", {"status": "disabled"})
    await call("POST", f"/v1/webhooks/{webhook}/rotate")
    await call("POST", f"/v1/webhooks/{webhook}/test")
    await call("DELETE", f"/v1/webhooks/{webhook}")
    domain = (await call("POST", "/v1/domains", {"name": f"more.{account.domain}"}))["id"]
    await call("DELETE", f"/v1/domains/{domain}")


KINDS = {
    "stream.created", "stream.deleted", "template.created", "template.published", "template.renamed",
    "template.deleted", "layout.created", "layout.published", "layout.renamed", "layout.deleted",
    "image.created", "image.deleted",
    "suppression.added", "suppression.removed", "webhook.created", "webhook.updated",
    "webhook.rotated", "webhook.test", "webhook.deleted", "domain.added", "domain.removed",
}  # fmt: skip


@pytest.mark.parametrize("by", ["key", "member"])
async def test_each_change_names_its_actor(api: Api, pool: asyncpg.Pool, by: str) -> None:
    account = await make_account(pool)
    person = await make_person(pool, account.id, "member")
    sent = {"token": account.token} if by == "key" else {"person": person}
    actor = await key_of(pool, account) if by == "key" else person.public_id
    await change_everything(api, account, sent)
    rows = await pool.fetch(
        "SELECT type, payload FROM events WHERE account_id = $1 AND type <> 'member.signed_in'", account.id
    )

    assert {row["type"] for row in rows} == KINDS
    assert {row["type"]: orjson.loads(row["payload"])["detail"].get("actor") for row in rows} == dict.fromkeys(
        KINDS, actor
    )
