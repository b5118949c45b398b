"""`listUnsubscribe` `auto`: our own page and address in header and bodies of mail to one person."""

import re

import asyncpg
import pytest

from engine.base.settings import Settings
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.unsubscribing import suppressions


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    account = await make_account(pool)
    await pool.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, 'news', 'News')", account.id)
    return account


async def send(api: Api, account: TestAccount, **fields: object) -> Answer:
    return await api.post("/v1/emails", account.token, account.email(listUnsubscribe="auto", stream="news") | fields)


async def raw(api: Api, account: TestAccount, answer: Answer) -> str:
    assert answer.status == 202, answer
    found = await api.get(f"/v1/messages/{answer.json['id']}/raw", account.token)
    return found.body.decode().replace("=\r\n", "").replace("=3D", "=").replace("\r\n ", " ")


async def links(pool: asyncpg.Pool, account: TestAccount) -> int:
    found: int = await pool.fetchval("SELECT count(*) FROM unsubscribe_links WHERE account_id = $1", account.id)
    return found


async def test_header_and_bodies_get_a_link_that_unsubscribes(
    api: Api, pool: asyncpg.Pool, account: TestAccount, settings: Settings
) -> None:
    mail = await raw(api, account, await send(api, account, html="<body>Hi {{unsubscribe_url}}</body>", text="Hi"))

    token = re.search("List-Unsubscribe: <http://[^>]+/u/([0-9a-z]+)>", mail)
    assert token is not None
    assert f"<mailto:u+{token[1]}@{settings.mail_host}>" in mail
    assert mail.count(f"/u/{token[1]}") == 3
    assert f"Unsubscribe: {api.base_url}/u/{token[1]}" in mail
    assert "{{" not in mail
    assert (await api.request("POST", f"/u/{token[1]}")).status == 200
    assert await suppressions(pool, account) == {"ann@people.test": "unsubscribe"}
    assert (await send(api, account)).error["reason"] == "unsubscribe"


async def test_all_messages_to_one_person_share_a_stored_link(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    sent = [await send(api, account, to=to) for to in ("ann@people.test", "Ann <ANN@people.test>", "bob@people.test")]
    batch = {"messages": [account.email(listUnsubscribe="auto", stream="news") for _ in range(3)]}
    answer = await api.post("/v1/emails/batch", account.token, batch)

    assert ([one.status for one in sent], answer.status) == ([202] * 3, 200)
    assert await links(pool, account) == 2


async def test_a_refused_message_and_other_mail_store_no_link(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'ann@people.test', 'bounce')", account.id
    )

    refused = await send(api, account)
    plain = await send(api, account, to="bob@people.test", listUnsubscribe="https://shop.test/out")

    assert (refused.status, plain.status) == (422, 202)
    assert await links(pool, account) == 0


async def test_a_template_places_the_link_by_its_name(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    made = await api.post(
        "/v1/templates", account.token,
        {"id": "digest", "name": "Digest", "subject": "News", "html": "<a href='{{unsubscribe_url}}'>out</a>"},
    )  # fmt: skip
    message = account.email(listUnsubscribe="auto", stream="news", template="digest", text=None, subject=None)

    mail = await raw(api, account, await api.post("/v1/emails", account.token, message))

    assert made.status == 201, made
    assert "undeclared_variable" not in str(made.json)
    assert f"<a href='{api.base_url}/u/" in mail
    assert mail.count("/u/") == 2


async def test_a_layout_places_the_link_for_its_templates(api: Api, account: TestAccount) -> None:
    layout = {"id": "brand", "html": "<body>{{{content}}}<a href='{{unsubscribe_url}}'>out</a></body>"}
    assert (await api.post("/v1/layouts", account.token, layout)).status == 201
    template = {"id": "digest", "subject": "News", "html": "<p>News</p>", "layout": "brand"}
    assert (await api.post("/v1/templates", account.token, template)).status == 201
    message = account.email(listUnsubscribe="auto", stream="news", template="digest", text=None, subject=None)

    mail = await raw(api, account, await api.post("/v1/emails", account.token, message))

    assert f"<body><p>News</p><a href='{api.base_url}/u/" in mail
    assert mail.count("/u/") == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stream": "transactional"}, "on the stream 'transactional'"),
        ({"stream": None}, "on the stream 'transactional'"),
        ({"to": ["ann@people.test", "bob@people.test"]}, "for 2 recipients"),
        ({"cc": ["bob@people.test"]}, "for 2 recipients"),
        ({"listUnsubscribe": "automatic"}, "must be `auto`, or an https URL"),
        ({"headers": {"List-Unsubscribe": "<https://shop.test/>"}}, "Set it in one of the two"),
    ],
)
async def test_a_message_that_can_have_no_link_of_ours_is_refused(
    api: Api, account: TestAccount, fields: dict[str, object], words: str
) -> None:
    answer = await send(api, account, **fields)

    assert (answer.status, words in answer.error["message"]) == (400, True), answer
