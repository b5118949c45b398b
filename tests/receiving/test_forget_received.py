"""Received mail whose route does not retain content: the record stays, its content goes once nothing needs it."""

from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.receiving.forget_received import forget_received
from engine.receiving.inbound_routes.forward import Forwarder
from engine.receiving.receive import Receiver
from engine.receiving.reports import read_reports
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, refuses
from tests.harness.content_canaries import canary, places, shows
from tests.harness.outbound import World, world
from tests.harness.received_mail import ClaimedAddress, claim, mail, messages_of, receive, route
from tests.harness.report_mails import add, dsn, stored
from tests.harness.report_mails import mail as report_mail
from tests.receiving.test_late_bounce import token


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world whose account's domain has a mail server: the sink."""
    async with world(settings, await new_database()) as made:
        made.domain(made.account.domain)
        yield made


async def endpoint(pool: asyncpg.Pool, account: UUID) -> UUID:
    webhook = ids.uuid7()
    await pool.execute(
        "INSERT INTO webhooks (id, account_id, url, sealed_secret, created_at)"
        " VALUES ($1, $2, 'https://x.test/', '', $3)",
        webhook, account, clock.now(),
    )  # fmt: skip
    return webhook


async def due(pool: asyncpg.Pool) -> None:
    await pool.execute("UPDATE inbound_forgets SET look_at = now()")


async def posted_all(pool: asyncpg.Pool, account: UUID) -> None:
    """End the posts of the account, as recording the last attempt does."""
    await pool.execute("DELETE FROM webhook_queue WHERE account_id = $1", account)


async def routed(here: World, account: TestAccount, local: str, action: str, **columns: object) -> ClaimedAddress:
    address = await claim(here.pool, account, local)
    await route(here.pool, address, action, **columns)
    return address


async def test_content_is_deleted_after_the_last_post(here: World) -> None:
    webhook = await endpoint(here.pool, here.account.id)
    address = await routed(here, here.account, "hook", "webhook", webhook_id=webhook, retain_content=False)
    words = canary(), canary()
    raw = mail(text=words[0], files=[("a.bin", "application/octet-stream", words[1].encode() * 20_000)])
    await receive(Receiver(here.pool, here.settings), address.recipient(), raw=raw)
    assert await forget_received(here.pool, here.settings) == 0
    waiting = await places(here.pool, here.redis, here.settings.state, words=words)
    await posted_all(here.pool, here.account.id)
    await due(here.pool)

    assert await forget_received(here.pool, here.settings) == 1
    assert waiting == {"inbound_bytes", "inbound_messages"}
    assert await places(here.pool, here.redis, here.settings.state, words=words) == set()
    [row] = await messages_of(here.pool, here.account.id)
    assert (row["subject"], row["snippet"], row["size_bytes"]) == ("Hello", "", len(raw))
    assert await here.pool.fetchval("SELECT count(*) FROM inbound_forgets") == 0


async def test_bytes_that_another_mailbox_keeps_stay_readable_there_alone(here: World) -> None:
    webhook, other = await endpoint(here.pool, here.account.id), await make_account(here.pool)
    passing = await routed(here, here.account, "hook", "webhook", webhook_id=webhook, retain_content=False)
    keeping = await claim(here.pool, other)
    word = canary()
    await receive(Receiver(here.pool, here.settings), passing.recipient(), keeping.recipient(), raw=mail(text=word))
    await posted_all(here.pool, here.account.id)
    await due(here.pool)
    await forget_received(here.pool, here.settings)

    [gone], [kept] = await messages_of(here.pool, here.account.id), await messages_of(here.pool, other.id)
    assert gone["raw_id"] == UUID(int=0)
    stored_bytes = await here.pool.fetchval("SELECT bytes FROM inbound_bytes WHERE id = $1", kept["raw_id"])
    assert shows(stored_bytes, (word,))


@pytest.mark.parametrize("reply", ["250 2.0.0 ok", "550 5.1.1 no such user"])
async def test_content_is_deleted_once_the_forwarded_message_is_final(here: World, reply: str) -> None:
    target = f"boss@{here.account.domain}"
    address = await routed(here, here.account, "sales", "forward", forward_to=target, retain_content=False)
    word = canary()
    here.sink.script(f"RCPT TO:<{target}>", reply, times=10)
    await receive(Receiver(here.pool, here.settings), address.recipient(), raw=mail(text=word))
    forwarder = Forwarder(here.pool, here.settings)
    try:
        assert await forwarder.forward_due() == 1
        await due(here.pool)
        assert await forget_received(here.pool, here.settings) == 0
        await here.live()
        [row] = await messages_of(here.pool, here.account.id)
        await here.until_step(row["forwarded_as"], "delivered" if reply.startswith("250") else "bounced")
        await here.pool.execute("UPDATE inbound_forwards SET due_at = now()")
        assert await forwarder.forward_due() == 1
    finally:
        await forwarder.close()
    await due(here.pool)

    assert await forget_received(here.pool, here.settings) == 1
    assert await places(here.pool, here.redis, here.settings.state, words=(word,)) == set()


async def test_a_report_about_a_message_that_retains_nothing_loses_what_it_quotes(here: World) -> None:
    await here.live()
    kept = await here.send("ann@peer.test", text="kept")
    message = await here.send("ann@peer.test", text="not kept", retainContent=False)
    word = canary()
    for one in (message, kept):
        await here.until_step(one, "delivered")
        auto = f"From: ann@peer.test\r\nAuto-Submitted: auto-replied\r\nSubject: away\r\n\r\nYou wrote: {word}\r\n"
        await add(here.pool, report_mail(auto.encode(), local=token(one)))
        quoting = dsn(("ann@peer.test", "failed", "5.1.1", "550 5.1.1 no such user")) + f"\r\n{word}\r\n".encode()
        await add(here.pool, report_mail(quoting, local=token(one)))
    await read_reports.read_due(here.pool, here.settings)

    assert {row["raw"] for row in await stored(here.pool, token(message))} == {None}
    assert sorted(row["state"] for row in await stored(here.pool, token(message))) == ["applied", "ignored"]
    assert any(row["raw"] is not None for row in await stored(here.pool, token(kept)))


async def test_the_api_says_that_the_content_was_deleted(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settings: Settings
) -> None:
    claimed = (await api.post("/v1/inbound/addresses", account.token, {"address": f"in@{account.domain}"})).json
    hook = (await api.post("/v1/webhooks", account.token, {"url": "https://hooks.example.com/"})).json["id"]
    made = await api.post(
        "/v1/inbound/routes", account.token,
        {"address": claimed["address"], "action": "webhook", "webhookId": hook, "retainContent": False},
    )  # fmt: skip
    address = ClaimedAddress(ids.parse_id(ids.Kind.INBOUND_ADDRESS, claimed["id"]), account.id, claimed["address"])
    files = [("a.txt", "text/plain", b"content")]
    await receive(Receiver(pool, settings), address.recipient(), raw=mail(files=files))
    [row] = await messages_of(pool, account.id)
    path = f"/v1/inbound/messages/{ids.format_id(ids.Kind.RECEIVED, row['id'])}"
    before = (await api.get(path, account.token)).json
    await posted_all(pool, account.id)
    await pool.execute("UPDATE inbound_forgets SET look_at = now() WHERE account_id = $1", account.id)
    await forget_received(pool, settings)

    after = (await api.get(path, account.token)).json
    assert (made.status, made.json["retainContent"]) == (201, False)
    assert (before["contentErased"], before["text"]) == (False, "Hello!\n")
    assert (after["contentErased"], after["text"], after["snippet"], after["subject"]) == (True, None, "", "Hello")
    for part in ("/raw", f"/attachments/{after['attachments'][0]['id']}"):
        gone = await api.get(path + part, account.token)
        assert (gone.status, gone.error["type"]) == (404, "not_found")
        assert "deleted once" in gone.error["message"]
    again = await api.post(f"{path}/replay", account.token, {})
    assert (again.status, again.error["type"], again.error["status"]) == (409, "invalid_state", "erased")


async def test_a_mailbox_keeps_its_content(api: Api, account: TestAccount) -> None:
    claimed = (await api.post("/v1/inbound/addresses", account.token, {"address": f"in@{account.domain}"})).json
    body = {"address": claimed["address"], "action": "mailbox", "retainContent": False}
    refused = await api.post("/v1/inbound/routes", account.token, body)
    made = await api.post("/v1/inbound/routes", account.token, body | {"retainContent": True})
    changed = await api.patch(f"/v1/inbound/routes/{made.json['id']}", account.token, {"retainContent": False})

    assert refuses(refused, "retainContent")
    assert refuses(changed, "retainContent")
