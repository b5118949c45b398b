"""Double opt-in: the mail, the page behind its link, and what a confirmation changes."""

import re
from datetime import timedelta
from typing import Any

import asyncpg

from engine.base import ids
from tests.audience.test_contacts import create, found, make_list
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, add_key, set_status
from tests.harness.api import Answer, Api


async def ask(api: Api, account: TestAccount, email: str, **fields: object) -> dict[str, Any]:
    sender = f"Ann's Shop <{account.sender}>"
    return await create(api, account, email, confirm=True, consent="customer", **({"from": sender} | fields))


async def link(api: Api, account: TestAccount) -> str:
    """The path of the link in the newest message."""
    listed = (await api.get("/v1/messages?limit=1", account.token)).json["data"]
    shown = (await api.get(f"/v1/messages/{listed[0]['id']}", account.token)).json
    paths = set(re.findall(r"/c/[0-9a-z]+", f"{shown['text']} {shown['html']}"))
    assert len(paths) == 1
    return str(paths.pop())


async def press(api: Api, path: str, method: str = "POST") -> Answer:
    return await api.request(method, path, headers={"Accept-Language": "de"})


async def test_a_contact_is_mailed_a_link_and_confirms_by_its_button(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    news = await make_list(api, account, "News")
    made = await ask(api, account, "ann@people.test", lists=[news], locale="fr")
    assert (made["confirmed"], made["consent"], made["lists"]) == (False, "customer", [news])
    [message] = (await api.get("/v1/messages", account.token)).json["data"]
    assert (message["to"], message["subject"]) == (["ann@people.test"], "Confirmez votre abonnement à Ann's Shop")
    raw = (await api.get(f"/v1/messages/{message['id']}/raw", account.token)).body
    assert b"\r\nAuto-Submitted: auto-generated\r\nX-Auto-Response-Suppress: All\r\n" in raw
    path = await link(api, account)
    hook = {"url": "http://127.0.0.1:9/hook", "eventTypes": ["contact.confirmed"]}
    webhook = (await api.post("/v1/webhooks", account.token, hook)).json

    for method in ("GET", "HEAD"):
        page = await press(api, path, method)
        assert page.status == 200
        assert page.headers["cache-control"] == "no-store"
    assert (await api.get(f"/v1/contacts/{made['id']}", account.token)).json == made
    await set_status(pool, account.id, "suspended")
    for _ in range(2):
        done = await press(api, path)
        assert (done.status, done.set_cookies) == (200, ())
        assert "Ihre Anmeldung ist bestätigt".encode() in done.body
    await set_status(pool, account.id, "active")

    after = (await api.get(f"/v1/contacts/{made['id']}", account.token)).json
    assert (after["confirmed"], after["consent"], after["consentBy"]) == (True, "signed_up", "contact")
    assert after["consentAt"] > made["consentAt"]
    kinds = [kind for kind, _ in await logged(pool, account.id, "contact.")]
    assert kinds == ["contact.created", "contact.confirmed"]
    posts = (await api.get(f"/v1/webhooks/{webhook['id']}/deliveries", account.token)).json["data"]
    assert (webhook["warnings"], [post["type"] for post in posts]) == ([], ["contact.confirmed"])
    again = await api.post(f"/v1/contacts/{made['id']}/confirmation", account.token, {"from": account.sender})
    assert (again.status, again.error["type"]) == (409, "invalid_state")


async def test_a_refused_mail_takes_the_contact_back(api: Api, account: TestAccount) -> None:
    await api.post("/v1/suppressions", account.token, {"address": "gone@people.test"})
    for email, sender, kind in (
        ("ann@people.test", "a@foreign.test", "domain_not_verified"),
        ("gone@people.test", account.sender, "suppressed"),
        ("ann@people.test", "nobody", "invalid_address"), ("ann@people.test", None, "invalid_request"),
    ):  # fmt: skip
        body = {"email": email, "consent": "customer", "confirm": True} | ({"from": sender} if sender else {})
        answer = await api.post("/v1/contacts", account.token, body)
        assert answer.error["type"] == kind
    assert await found(api, account) == []


async def test_a_sender_without_confirm_is_refused(api: Api, account: TestAccount) -> None:
    body = {"email": "ann@people.test", "consent": "customer", "from": account.sender}
    answer = await api.post("/v1/contacts", account.token, body)

    assert (answer.status, answer.error["field"]) == (400, "from")
    assert await found(api, account) == []


async def test_asking_needs_the_scope_of_a_send(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    key = await add_key(pool, account.id, scopes=["contacts:write"])
    body = {"email": "ann@people.test", "consent": "customer", "confirm": True, "from": account.sender}
    answer = await api.post("/v1/contacts", key, body)

    assert (answer.status, answer.error["scope"]) == (403, "emails:send")


async def test_another_mail_replaces_the_link_after_a_minute_and_at_most_five_go(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    made = await ask(api, account, "ann@people.test")
    first, path = await link(api, account), f"/v1/contacts/{made['id']}/confirmation"

    async def later() -> Answer:
        await pool.execute(
            "UPDATE contact_confirmations SET mailed_at = mailed_at - $2::interval WHERE account_id = $1",
            account.id, timedelta(minutes=1),
        )  # fmt: skip
        return await api.post(path, account.token, {"from": account.sender})

    early = await api.post(path, account.token, {"from": account.sender})
    assert (early.status, early.error["type"]) == (429, "rate_limited")
    assert [(await later()).status for _ in range(5)] == [202, 202, 202, 202, 429]
    assert b"Dieser Link ist abgelaufen" in (await press(api, first)).body
    assert (await api.get(f"/v1/contacts/{made['id']}", account.token)).json["confirmed"] is False
    assert "bestätigt".encode() in (await press(api, await link(api, account))).body


async def test_a_link_expires_and_dies_with_its_contact(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    made = await ask(api, account, "ann@people.test")
    path = await link(api, account)
    await pool.execute("UPDATE contact_confirmations SET expires_at = now() WHERE account_id = $1", account.id)
    assert b"Dieser Link ist abgelaufen" in (await press(api, path)).body
    assert (await api.get(f"/v1/contacts/{made['id']}", account.token)).json["confirmed"] is False

    await api.delete(f"/v1/contacts/{made['id']}", account.token)
    assert b"Dieser Link ist abgelaufen" in (await press(api, path)).body


async def test_a_made_up_link_is_unknown(api: Api, account: TestAccount) -> None:
    await ask(api, account, "ann@people.test")
    path = await link(api, account)
    forged = path[:-1] + ("0" if path[-1] != "0" else "1")

    for one in (forged, "/c/x", f"/c/{ids.encode(ids.uuid7())}"):
        assert (await press(api, one)).status == 404
