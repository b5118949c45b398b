"""The unsubscribe page: what GET, HEAD and POST change, undo, topics, and answers to links that aren't genuine."""

import asyncio
import re

import asyncpg
import pytest

from api.pages.languages import LANGUAGES
from engine.base import ids
from engine.mail import unsubscribe_token
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api
from tests.harness.unsubscribing import (
    KEY,
    audience_events,
    store_link,
    store_topic,
    suppressions,
    topic_opt_outs,
)

ANN = "ann@people.test"
OUT, BACK = "You are unsubscribed", "You are subscribed again"


async def one_click(api: Api, token: str) -> Answer:
    """Post the form that mail providers send for one click (RFC 8058 3.2)."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return await api.request("POST", f"/u/{token}", body=b"List-Unsubscribe=One-Click", headers=headers)


async def press(api: Api, token: str, choice: str) -> Answer:
    return await api.request("POST", f"/u/{token}?choice={choice}", body=b"")


def title(answer: Answer) -> str:
    found = re.search("<h1>(.*?)</h1>", answer.body.decode())
    assert found is not None
    return found[1]


def buttons(answer: Answer) -> list[str]:
    return re.findall(r"<button[^>]*>(.*?)</button>", answer.body.decode())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_looking_at_a_link_changes_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount, method: str
) -> None:
    token = await store_link(pool, account)

    answers = [await api.request(method, f"/u/{token}{query}") for query in ("", "?choice=all")]

    assert [one.status for one in answers] == [200, 200]
    assert await suppressions(pool, account) == {}
    assert await audience_events(pool, account) == []


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"List-Unsubscribe=One-Click", {"Content-Type": "application/x-www-form-urlencoded"}),
        (b'--b\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--b--\r\n',
         {"Content-Type": "multipart/form-data; boundary=b"}),
        (b"{not json", {"Content-Type": "application/json"}),
        (b"x" * 300_000, {}),
        (b"", {"Cookie": "svc_session=none"}),
        (None, {}),
    ],
    ids=["form", "multipart", "broken", "large", "empty with cookie", "none"],
)  # fmt: skip
async def test_a_post_with_any_body_unsubscribes(
    api: Api, pool: asyncpg.Pool, account: TestAccount, body: bytes | None, headers: dict[str, str]
) -> None:
    token = await store_link(pool, account)

    answer = await api.request("POST", f"/u/{token}", body=body, headers=headers)

    assert (answer.status, title(answer)) == (200, OUT)
    assert "location" not in answer.headers
    assert "set-cookie" not in answer.headers
    assert await suppressions(pool, account) == {ANN: "unsubscribe"}


async def test_the_events_name_the_broadcast_and_the_way(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    broadcast, topic = ids.uuid7(), await store_topic(pool, account)
    token = await store_link(pool, account, broadcast=broadcast, topic=topic)

    await one_click(api, token.upper())

    public = ids.format_id(ids.Kind.BROADCAST, broadcast)
    assert await audience_events(pool, account) == [
        (
            "suppression.added",
            {"address": ANN, "reason": "unsubscribe", "source": "unsubscribe_link", "broadcast_id": public},
        ),
        (
            "contact.unsubscribed",
            {
                "address": ANN, "scope": "all", "list_id": ids.format_id(ids.Kind.LIST, topic),
                "source": "unsubscribe_link", "broadcast_id": public,
            },
        ),
    ]  # fmt: skip


async def test_parallel_posts_of_several_links_make_one_suppression(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    tokens = [await store_link(pool, account) for _ in range(3)]

    answers = await asyncio.gather(*[one_click(api, token) for token in tokens * 20])
    again = await one_click(api, tokens[0])

    assert {one.status for one in [*answers, again]} == {200}
    assert [kind for kind, _ in await audience_events(pool, account)] == ["suppression.added", "contact.unsubscribed"]


@pytest.mark.parametrize("status", ["suspended", "closing"])
async def test_a_link_works_whatever_the_state_of_the_account(
    api: Api, pool: asyncpg.Pool, account: TestAccount, status: str
) -> None:
    token = await store_link(pool, account)
    await pool.execute("UPDATE accounts SET status = $2, daily_cap = 0 WHERE id = $1", account.id, status)

    answer = await one_click(api, token)

    assert (answer.status, title(answer)) == (200, OUT)
    assert await suppressions(pool, account) == {ANN: "unsubscribe"}


async def test_an_unsubscribed_person_still_gets_transactional_mail(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await one_click(api, await store_link(pool, account))
    await pool.execute("INSERT INTO streams (account_id, slug, name) VALUES ($1, 'news', 'News')", account.id)

    news = await api.post("/v1/emails", account.token, account.email(stream="news"))
    receipt = await api.post("/v1/emails", account.token, account.email())

    assert (news.status, receipt.status) == (422, 202)


async def test_undo_takes_back_what_the_same_link_did(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    token = await store_link(pool, account)
    out = await one_click(api, token)

    back = await press(api, token, "undo")
    again = await press(api, token, "undo")

    assert buttons(out) == ["Undo"]
    assert (title(back), title(again)) == (BACK, BACK)
    assert await suppressions(pool, account) == {}
    assert [kind for kind, _ in await audience_events(pool, account)] == [
        "suppression.added", "contact.unsubscribed", "suppression.removed", "contact.resubscribed",
    ]  # fmt: skip


@pytest.mark.parametrize("reason", ["unsubscribe", "manual", "bounce", "complaint"])
async def test_undo_lifts_nothing_that_the_link_did_not_do(
    api: Api, pool: asyncpg.Pool, account: TestAccount, reason: str
) -> None:
    token = await store_link(pool, account)
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, $2, $3)", account.id, ANN, reason
    )

    out = await one_click(api, token)
    undone = await press(api, token, "undo")

    assert (title(out), buttons(out)) == (OUT, [])
    assert (undone.status, title(undone)) == (200, OUT)
    assert await suppressions(pool, account) == {ANN: reason}
    assert await audience_events(pool, account) == []


async def test_undo_stops_where_a_complaint_replaced_the_opt_out(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    token = await store_link(pool, account)
    await one_click(api, token)
    await pool.execute("UPDATE suppressions SET reason = 'complaint' WHERE account_id = $1", account.id)

    undone = await press(api, token, "undo")

    assert (title(undone), buttons(undone)) == (OUT, [])
    assert await suppressions(pool, account) == {ANN: "complaint"}


async def test_another_link_of_the_same_person_does_not_undo(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await one_click(api, await store_link(pool, account))

    undone = await press(api, await store_link(pool, account), "undo")

    assert (title(undone), buttons(undone)) == (OUT, [])
    assert await suppressions(pool, account) == {ANN: "unsubscribe"}


async def test_a_person_leaves_one_topic_then_all_and_comes_back(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    topic = await store_topic(pool, account, "Tips & <tricks>")
    token = await store_link(pool, account, topic=topic)

    page = await api.get(f"/u/{token}")
    left = await press(api, token, "topic")

    assert buttons(page) == ["Unsubscribe from all", "Only stop “Tips &amp; &lt;tricks&gt;”"]
    assert title(left) == "You are unsubscribed from “Tips &amp; &lt;tricks&gt;”"
    assert buttons(left) == ["Unsubscribe from all", "Undo"]
    assert (await suppressions(pool, account), await topic_opt_outs(pool, account)) == ({}, [(topic, ANN)])

    await press(api, token, "all")
    back = await press(api, token, "undo")

    assert title(back) == BACK
    assert (await suppressions(pool, account), await topic_opt_outs(pool, account)) == ({}, [])
    assert [(kind, detail.get("scope")) for kind, detail in await audience_events(pool, account)] == [
        ("contact.unsubscribed", "topic"), ("suppression.added", None), ("suppression.removed", None),
        ("contact.resubscribed", "all"),
    ]  # fmt: skip


async def test_a_genuine_link_answers_after_its_row_is_erased(api: Api) -> None:
    token = unsubscribe_token.token(KEY, ids.uuid7())

    answers = [await api.get(f"/u/{token}"), await one_click(api, token), await press(api, token, "undo")]

    assert [(one.status, title(one)) for one in answers] == [(200, OUT)] * 3


async def test_a_forged_token_is_unknown(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    token = await store_link(pool, account)
    forged = token[:-1] + ("0" if token[-1] != "0" else "1")

    for bad in (forged, token[:-1], token + "0", "é" * 48, "x" * 2_000):
        answer = await one_click(api, bad)
        assert (answer.status, title(answer)) == (404, "This link does not work")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert await suppressions(pool, account) == {}


async def test_the_page_has_no_script_and_can_be_neither_framed_nor_indexed(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    answer = await api.get(f"/u/{await store_link(pool, account)}")

    page = answer.body.decode()
    assert "<script" not in page
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-robots-tag"] == "noindex, nofollow"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert ANN not in page
    assert "a•••@people.test" in page


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_page_speaks_the_language_of_the_browser(
    api: Api, pool: asyncpg.Pool, account: TestAccount, language: str
) -> None:
    token = await store_link(pool, account, topic=await store_topic(pool, account))
    headers = {"Accept-Language": f"xx, {language}-XX;q=0.9, en;q=0.8"}

    pages = [await api.request("GET", f"/u/{token}", headers=headers)]
    for choice in ("topic", "all", "undo"):
        pages.append(await api.request("POST", f"/u/{token}?choice={choice}", headers=headers))  # noqa: PERF401

    assert {one.headers["content-language"] for one in pages} == {language}
    assert len({title(one) for one in pages}) == 4
    assert all("{" not in one.body.decode().partition("</style>")[2] for one in pages)
