"""Broadcasts made of blocks: stored with their HTML, and sent with the images that they carry."""

from email import message_from_bytes, policy
from typing import Any

import asyncpg

from engine.base import ids
from tests.harness.accounts import TestAccount
from tests.harness.api import Api, refuses
from tests.harness.broadcasts import BroadcastWorld, make_list, with_stream
from tests.harness.pictures import image_of


def document(image: str, images: str = "inline") -> dict[str, Any]:
    return {
        "version": 1,
        "images": images,
        "blocks": [
            {"id": "a", "type": "heading", "text": "Hello {{name}}{{email}}"},
            {"id": "b", "type": "image", "image": image, "alt": "A lamp"},
            {"id": "c", "type": "footer", "text": "[Leave]({{unsubscribe_url}})"},
        ],
    }


async def drafted(api: Api, pool: asyncpg.Pool, account: TestAccount, blocks: object, people: list[str]) -> Any:
    """A draft made of blocks."""
    await with_stream(pool, account)
    news = ids.format_id(ids.Kind.LIST, await make_list(pool, account, people))
    body = {"name": "News", "from": account.sender, "list": news, "subject": "News", "blocks": blocks}
    answer = await api.post("/v1/broadcasts", account.token, body)
    assert answer.status == 201, answer
    return answer.json


async def test_a_broadcast_of_blocks_comes_back_as_given_and_html_leaves_them(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    image = await image_of(api, account)
    made = await drafted(api, pool, account, document(image), ["ann@x.test"])
    path = f"/v1/broadcasts/{made['id']}"

    assert made["blocks"] == document(image)
    assert made["text"].startswith("Hello {{name}}{{email}}")
    assert (await api.get(path, account.token)).json["blocks"] == document(image)
    preview = (await api.get(f"{path}/preview", account.token)).json
    assert "cid:" not in preview["html"]
    assert "/images/" in preview["html"]
    used = await api.delete(f"/v1/images/{image}", account.token)
    assert (used.status, "broadcast 'News'" in used.error["message"]) == (409, True)
    assert refuses(await api.patch(path, account.token, {"blocks": document(image), "html": "x"}), "html")
    assert refuses(await api.patch(path, account.token, {"blocks": document(image), "template": "x"}), "template")
    assert refuses(await api.patch(path, account.token, {"blocks": document("img_x")}), "blocks.blocks[1].image")
    left = (await api.patch(path, account.token, {"html": "<p>By hand</p>"})).json
    assert (left["blocks"], left["html"]) == (None, "<p>By hand</p>")
    assert (await api.delete(f"/v1/images/{image}", account.token)).status == 204


async def test_each_message_carries_the_image_once_and_one_unsubscribe_link(
    here: BroadcastWorld, api: Api, account: TestAccount
) -> None:
    image = await image_of(api, account)
    people = ["ann@x.test", "bob@x.test"]
    made = await drafted(api, here.pool, account, document(image), people)
    assert (await api.post(f"/v1/broadcasts/{made['id']}/send", account.token, {})).status == 202
    await here.runner.run_due()

    for address in people:
        mime = await here.pool.fetchval(
            "SELECT b.mime FROM recipients r JOIN message_bodies b ON b.message_id = r.message_id"
            " WHERE r.account_id = $1 AND r.address = $2",
            account.id, address,
        )  # fmt: skip
        mail = message_from_bytes(mime, policy=policy.default)
        parts = [one for one in mail.walk() if one.get_content_type() == "image/png"]
        assert [one["Content-ID"] for one in parts] == [f"<{image}>"]
        html = mail.get_body(("html",))
        assert html is not None
        assert html.get_content().count("/u/") == 1
        assert f"Hello {address}" in html.get_content()
