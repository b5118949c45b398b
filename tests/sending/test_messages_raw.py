"""`GET /v1/messages/{id}/raw`: the message as a mail file."""

import base64
import email
import email.policy
from datetime import timedelta

import asyncpg

from engine.base import ids
from engine.delivery import queue
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import sent_id
from tests.harness.settling import settle


async def raw(api: Api, account: TestAccount, message: str) -> Answer:
    answer = await api.get(f"/v1/messages/{message}/raw", account.token)
    assert answer.status == 200, answer
    return answer


async def test_the_file_is_what_was_composed_octet_for_octet(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    content = base64.b64encode(bytes(range(256))).decode()
    file = {"filename": "a.bin", "contentType": "application/pdf", "content": content}
    message = await sent_id(api, account, subject="Grüße", text="Hello,\nAnn", html="<p>Hello</p>", attachments=[file])
    answer = await raw(api, account, message)
    stored = await pool.fetchval(
        "SELECT mime FROM message_bodies WHERE message_id = $1", ids.parse_id(ids.Kind.MESSAGE, message)
    )

    assert answer.body == stored
    parsed = email.message_from_bytes(answer.body, policy=email.policy.default)
    assert (parsed["Subject"], parsed["From"], parsed["To"]) == ("Grüße", account.sender, "ann@people.test")
    assert [part.get_content_type() for part in parsed.walk() if not part.is_multipart()] == [
        "text/plain", "text/html", "application/pdf",
    ]  # fmt: skip


async def test_it_is_a_download_that_no_browser_shows(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account)
    headers = (await raw(api, account, message)).headers

    assert headers["content-type"] == "message/rfc822"
    assert headers["content-disposition"] == f'attachment; filename="{message}.eml"'
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("sandbox")
    assert headers["cache-control"] == "private, no-store"


async def test_blind_recipients_are_not_in_it(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, bcc=["secret@people.test"])

    assert b"secret@people.test" not in (await raw(api, account, message)).body


async def test_it_stays_the_same_while_the_message_waits_and_after_it_settled(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await sent_id(api, account)
    fresh = (await raw(api, account, message)).body
    later = ("ann@people.test", 451, "4.2.0 later")
    await settle(pool, message, later, again_after=timedelta(minutes=5))
    await pool.execute("UPDATE queue SET signature = 'DKIM-Signature: x' WHERE account_id = $1", account.id)
    waiting = (await raw(api, account, message)).body
    await settle(pool, message)

    assert fresh == waiting == (await raw(api, account, message)).body
    assert b"DKIM-Signature" not in fresh


async def test_it_is_what_delivery_signs_and_sends(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    message = await sent_id(api, account)
    (row,) = await queue.load(pool, [(ids.parse_id(ids.Kind.MESSAGE, message), "people.test")])

    assert (await raw(api, account, message)).body == row.mime


async def test_a_large_message_comes_whole(api: Api, account: TestAccount) -> None:
    content = base64.b64encode(b"\xff" * 6_000_000).decode()
    file = {"filename": "a.bin", "contentType": "application/octet-stream", "content": content}
    answer = await raw(api, account, await sent_id(api, account, attachments=[file]))

    assert len(answer.body) > 8_000_000
    assert int(answer.headers["content-length"]) == len(answer.body)


async def test_only_the_accounts_own_message_is_found(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    other = await make_account(pool)
    message = await sent_id(api, other)

    for name in (message, "msg_01m7xmsqwgebmv6bc4n8ss49bj", "evt_01m7xmsqwgebmv6bc4n8ss49bj", "x", "%00", "msg_"):
        answer = await api.get(f"/v1/messages/{name}/raw", account.token)
        assert (answer.status, answer.error["type"]) == (404, "not_found"), name


async def test_a_message_whose_body_is_gone_has_no_file(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    message = await sent_id(api, account)
    await pool.execute("DELETE FROM message_bodies WHERE message_id = $1", ids.parse_id(ids.Kind.MESSAGE, message))
    answer = await api.get(f"/v1/messages/{message}/raw", account.token)

    assert (answer.status, answer.error["type"]) == (404, "not_found")
