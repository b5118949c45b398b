"""Templates made of blocks over the API: what is made of them, stored and sent, and how block mode is left."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import asyncpg
import pytest

from engine.base import ids
from engine.mail.blocks.starters import Starter, starters
from engine.sending.images.types import MAX_CARRIED_BYTES
from tests.harness.accounts import TestAccount
from tests.harness.api import Api, refuses
from tests.harness.pictures import image_of
from tests.sending.test_templates import change, publish


def document(*blocks: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"version": 1, "blocks": [{"id": f"b{n}", **block} for n, block in enumerate(blocks)], **fields}


def heading(text: str = "Hello {{name}}") -> dict[str, Any]:
    return {"type": "heading", "text": text}


HELLO = document(heading(), {"type": "button", "text": "Open", "url": "https://x.test/{{id}}"})


async def made(api: Api, account: TestAccount, **fields: object) -> dict[str, Any]:
    """A new template of blocks."""
    usual = {"id": "hello", "text": None, "variables": None, "blocks": HELLO}
    return await publish(api, account, **(usual | fields))


async def test_blocks_make_the_html_and_the_text_and_come_back_as_given(api: Api, account: TestAccount) -> None:
    found = await made(api, account)

    assert found["blocks"] == HELLO
    assert "<h1" in found["html"]
    assert found["text"] == "Hello {{name}}\n\nOpen: https://x.test/{{id}}\n"
    assert [one["variable"] for one in found["warnings"]] == ["name", "id"]
    assert (await api.get("/v1/templates/hello", account.token)).json == found
    (version,) = (await api.get("/v1/templates/hello/versions", account.token)).json["data"]
    assert (version["blocks"], version["html"]) == (HELLO, found["html"])
    copy = await api.post("/v1/templates/hello/duplicate", account.token, {"id": "copy"})
    assert copy.json["blocks"] == HELLO


async def test_the_same_blocks_publish_nothing_and_others_the_next_version(api: Api, account: TestAccount) -> None:
    await made(api, account)
    same = await change(api, account, "hello", blocks=HELLO)
    other = await change(api, account, "hello", blocks=document(heading("Bye")))

    assert (same.json["version"], other.json["version"]) == (1, 2)
    assert (other.json["text"], other.json["blocks"]) == ("Bye\n", document(heading("Bye")))
    versions = (await api.get("/v1/templates/hello/versions", account.token)).json["data"]
    assert [one["blocks"] for one in versions] == [document(heading("Bye")), HELLO]


async def test_html_by_hand_leaves_block_mode(api: Api, account: TestAccount) -> None:
    await made(api, account)
    by_hand = (await change(api, account, "hello", html="<p>By hand</p>")).json
    again = (await change(api, account, "hello", blocks=HELLO)).json
    left = (await change(api, account, "hello", blocks=None)).json

    assert (by_hand["blocks"], by_hand["html"], by_hand["text"]) == (None, "<p>By hand</p>", again["text"])
    assert again["blocks"] == HELLO
    assert (left["blocks"], left["html"]) == (None, again["html"])


async def test_a_text_by_hand_stays_in_block_mode_until_the_blocks_change(api: Api, account: TestAccount) -> None:
    own = await made(api, account, text="My words")
    changed = (await change(api, account, "hello", text="Other words")).json
    anew = (await change(api, account, "hello", blocks=document(heading("Bye")))).json

    assert (own["text"], changed["text"], anew["text"]) == ("My words", "Other words", "Bye\n")
    assert own["blocks"] == changed["blocks"] == HELLO


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"html": "<p>x</p>"}, "html"),
        ({"layout": "brand"}, "layout"),
        ({"blocks": document({"type": "shout"})}, "blocks.blocks[0].type"),
        ({"blocks": document(heading(), {"type": "text"})}, "blocks.blocks[1].text"),
        ({"blocks": document({"type": "button", "text": "x", "url": "javascript:x"})}, "blocks.blocks[0].url"),
        ({"blocks": document({"type": "spacer", "height": 1_000})}, "blocks.blocks[0].height"),
        ({"blocks": document(theme={"accent": "red"})}, "blocks.theme.accent"),
        ({"blocks": document(theme={"logo": "img_x"})}, "blocks.theme.logo"),
        ({"blocks": document(preheader="{{{x}}}")}, "blocks.preheader"),
        ({"blocks": document(language="<b>")}, "blocks.language"),
        ({"blocks": {"version": 2, "blocks": []}}, "blocks.version"),
        ({"blocks": document(*[heading()] * 201)}, "blocks.blocks"),
        ({"blocks": document(*[{"type": "text", "text": "<" * 10_000}] * 60)}, "blocks"),
    ],
)
async def test_a_fault_is_refused_with_its_block(
    api: Api, account: TestAccount, fields: dict[str, object], field: str
) -> None:
    await api.post("/v1/layouts", account.token, {"id": "brand", "html": "{{{content}}}"})

    for path in ("/v1/templates", "/v1/templates/preview"):
        assert refuses(await api.post(path, account.token, {"blocks": HELLO} | fields), field)


async def test_a_kind_of_block_that_does_not_exist_is_refused_with_those_that_do(
    api: Api, account: TestAccount
) -> None:
    answer = await api.post("/v1/templates/preview", account.token, {"blocks": document({"type": "shout"})})

    assert "heading, text, button, image, columns, divider, spacer, list, footer" in answer.error["message"]


async def test_a_preview_shows_values_and_images_by_their_web_address(api: Api, account: TestAccount) -> None:
    image = await image_of(api, account)
    blocks = document(heading(), {"type": "image", "image": image, "alt": ""}, images="inline")
    url = (await api.get(f"/v1/images/{image}", account.token)).json["url"]
    unsaved = await api.post("/v1/templates/preview", account.token, {"blocks": blocks, "values": {"name": "<Ann>"}})
    stored = await made(api, account, blocks=blocks)
    saved = await api.post("/v1/templates/hello/preview", account.token, {"variables": {"name": "<Ann>"}})

    assert unsaved.json["html"] == saved.json["html"]
    assert "Hello &lt;Ann&gt;" in saved.json["html"]
    assert f'src="{url}"' in saved.json["html"]
    assert "Hello {{name}}" in unsaved.json["source"]["html"]
    assert unsaved.json["source"]["text"].startswith("Hello {{name}}\n")
    assert saved.json["source"] is None
    assert f'src="cid:{image}"' in stored["html"]


async def mail(api: Api, pool: asyncpg.Pool, account: TestAccount, version: int | None = None) -> EmailMessage:
    """The message of a send with the template."""
    body = account.email(text=None, subject=None, template="hello", templateVersion=version, variables={"name": "Ann"})
    answer = await api.post("/v1/emails", account.token, body)
    assert answer.status == 202, answer
    message = ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])
    mime = await pool.fetchval("SELECT mime FROM message_bodies WHERE message_id = $1", message)
    return message_from_bytes(mime, policy=policy.default)


async def test_messages_carry_inline_images_once_and_hosted_ones_not(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    image = await image_of(api, account)
    shown = {"type": "image", "image": image, "alt": "A lamp"}
    await made(api, account, blocks=document(heading(), shown, shown, images="inline"))
    await change(api, account, "hello", blocks=document(heading(), shown))

    inline, hosted = await mail(api, pool, account, 1), await mail(api, pool, account, 2)
    assert inline.get_content_type() == "multipart/related"
    parts = [one for one in inline.walk() if one.get_content_type() == "image/png"]
    assert [(one["Content-ID"], one.get_content_disposition()) for one in parts] == [(f"<{image}>", "inline")]
    html = inline.get_body(("html",))
    assert html is not None
    assert html.get_content().count(f"cid:{image}") == 2
    assert [one.get_content_type() for one in hosted.walk()] == ["multipart/alternative", "text/plain", "text/html"]


async def test_a_message_carries_a_bounded_size_of_images(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    image = await image_of(api, account)
    await pool.execute("UPDATE images SET size_bytes = $2 WHERE account_id = $1", account.id, MAX_CARRIED_BYTES + 1)
    shown = {"type": "image", "image": image, "alt": ""}
    inline = await api.post("/v1/templates", account.token, {"blocks": document(shown, images="inline")})
    hosted = await api.post("/v1/templates", account.token, {"blocks": document(shown)})

    assert refuses(inline, "blocks.images")
    assert hosted.status == 201


async def test_a_template_that_is_new_again_takes_blocks_with_if_exists(api: Api, account: TestAccount) -> None:
    await publish(api, account, id="hello", html="<p>By hand</p>")
    body = {"id": "hello", "blocks": HELLO, "ifExists": "update"}
    updated = await api.post("/v1/templates", account.token, body)

    assert (updated.status, updated.json["blocks"], updated.json["version"]) == (200, HELLO, 2)


@pytest.mark.parametrize("starter", starters(), ids=lambda one: one.name)
async def test_a_starting_template_can_be_previewed_and_published(
    api: Api, account: TestAccount, starter: Starter
) -> None:
    listed = (await api.get("/v1/template-starters", account.token)).json["data"]
    given = next(one for one in listed if one["name"] == starter.name)
    content = {name: given[name] for name in ("subject", "blocks", "variables")}
    preview = await api.post("/v1/templates/preview", account.token, content | {"data": given["data"]})
    published = await api.post("/v1/templates", account.token, content | {"id": starter.name.lower()})

    assert preview.status == 200, preview
    assert "{{" not in preview.json["text"]
    assert published.json["blocks"] == given["blocks"]
    assert len(published.json["html"].encode()) < 102 * 1024


async def test_the_starting_templates_take_no_id_from_templates(api: Api, account: TestAccount) -> None:
    body = {"id": "starters", "subject": "Hello", "text": "Hello"}
    assert (await api.post("/v1/templates", account.token, body)).status == 201
    assert (await api.get("/v1/templates/starters", account.token)).json["subject"] == "Hello"
