"""Images of emails over the API: uploading, what is refused, how they are served, and whose they are."""

import base64
import io
from typing import Any

import asyncpg
import pytest
from PIL import Image

from engine.sending.images.types import MAX_ACCOUNT_BYTES, MAX_IMAGES, MAX_SIDE, MAX_UPLOAD_BYTES
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api, refuses
from tests.harness.pictures import bomb, image_of, picture, upload


async def served(api: Api, url: str) -> Any:
    return await api.request("GET", "/images/" + url.rpartition("/images/")[2])


async def test_an_image_is_uploaded_read_listed_and_deleted(api: Api, account: TestAccount) -> None:
    made = (await upload(api, account, picture(color="#123456"))).json  # no other test has this content
    other = (await upload(api, account, picture(color="#ff0000"), "red.png")).json

    assert made == {
        "id": made["id"], "url": made["url"], "filename": "lamp.png", "width": 40, "height": 20, "size": made["size"],
        "contentType": "image/png", "createdAt": made["createdAt"],
    }  # fmt: skip
    assert (await api.get(f"/v1/images/{made['id']}", account.token)).json == made
    page = (await api.get("/v1/images?limit=1", account.token)).json
    assert page == {"data": [other], "nextCursor": other["id"]}
    assert (await api.get(f"/v1/images?before={other['id']}", account.token)).json["data"] == [made]
    assert (await api.delete(f"/v1/images/{made['id']}", account.token)).status == 204
    assert (await api.get(f"/v1/images/{made['id']}", account.token)).status == 404
    assert (await served(api, made["url"])).status == 404


async def test_the_same_bytes_give_the_same_image(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    first, again = [(await upload(api, account, picture())).json for _ in range(2)]
    stranger = (await upload(api, await make_account(pool), picture())).json

    assert first == again
    assert stranger["id"] != first["id"]
    assert stranger["url"] == first["url"]


async def test_an_image_is_served_to_anybody_for_ever_without_cookies(api: Api, account: TestAccount) -> None:
    made = (await upload(api, account, picture("JPEG"))).json
    answer = await served(api, made["url"])

    assert (answer.status, len(answer.body)) == (200, made["size"])
    assert Image.open(io.BytesIO(answer.body)).size == (40, 20)
    kept = {name: answer.headers.get(name) for name in (
        "content-type", "cache-control", "content-security-policy", "x-content-type-options", "set-cookie",
        "cross-origin-resource-policy",
    )}  # fmt: skip
    assert kept == {
        "content-type": "image/jpeg",
        "cache-control": "public, max-age=31536000, immutable",
        "content-security-policy": "default-src 'none'; sandbox",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "cross-origin",
        "set-cookie": None,
    }
    for wrong in (made["url"].replace(".jpg", ".png"), "/images/x.png", f"/images/{'0' * 64}.jpg"):
        assert (await served(api, wrong)).status == 404


async def test_an_image_is_scaled_turned_upright_and_loses_its_metadata(api: Api, account: TestAccount) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    exif[0x010E] = "taken at home"
    made = (await upload(api, account, picture("JPEG", (3_000, 1_500), exif=exif.tobytes()), "x.jpg")).json
    content = (await served(api, made["url"])).body

    assert (made["width"], made["height"]) == (MAX_SIDE // 2, MAX_SIDE)
    assert b"taken at home" not in content
    assert not Image.open(io.BytesIO(content)).getexif()


async def test_an_animation_keeps_its_frames(api: Api, account: TestAccount) -> None:
    frames = [Image.new("RGB", (30, 30), color) for color in ("#ff0000", "#00ff00", "#0000ff")]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=200, loop=0)
    made = (await upload(api, account, base64.b64encode(out.getvalue()).decode(), "x.gif")).json

    with Image.open(io.BytesIO((await served(api, made["url"])).body)) as image:
        assert (made["contentType"], getattr(image, "n_frames", 1)) == ("image/gif", 3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"content": "not base64!"}, "base64"),
        ({"content": base64.b64encode(b"<svg xmlns='x'/>").decode()}, "not a PNG"),
        ({"content": base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()}, "PNG"),
        ({"content": picture(size=(200, 200))[:80] + "AA=="}, "decoded"),
        ({"content": bomb()}, "more than 40,000,000 pixels"),
        ({"content": bomb(7_000)}, "7,000 × 7,000 pixels"),
        ({"content": picture("BMP")}, "not a PNG"),
        ({"content": base64.b64encode(bytes(MAX_UPLOAD_BYTES + 1)).decode()}, "5,000,001 bytes"),
    ],
)
async def test_a_file_that_is_no_image_or_too_large_is_refused(
    api: Api, account: TestAccount, fields: dict[str, str], words: str
) -> None:
    answer = await upload(api, account, **fields)

    assert refuses(answer, "content")
    assert words in answer.error["message"]


@pytest.mark.parametrize("filename", ["a/b.png", "a\\b.png", "a\nb.png", "a\0.png", "lamp.exe", ""])
async def test_a_name_that_is_no_file_name_is_refused(api: Api, account: TestAccount, filename: str) -> None:
    assert refuses(await upload(api, account, picture(), filename), "filename")
    assert refuses(await api.post("/v1/images", account.token, {"content": picture()}), "filename")


async def test_an_account_has_a_bounded_number_and_size_of_images(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    fill = (
        "INSERT INTO images (account_id, id, sha256, filename, content_type, width, height, size_bytes, content,"
        " created_at) SELECT $1, gen_random_uuid(), sha256(n::text::bytea), 'x.png', 'image/png', 1, 1, $3, '', now()"
        " FROM generate_series(1, $2) n"
    )
    await pool.execute(fill, account.id, MAX_IMAGES, 10)
    full = await upload(api, account, picture())
    await pool.execute("DELETE FROM images WHERE account_id = $1", account.id)
    await pool.execute(fill, account.id, 1, MAX_ACCOUNT_BYTES)
    heavy = await upload(api, account, picture())

    assert [(one.status, one.error["type"], one.error["resource"]) for one in (full, heavy)] == [
        (403, "plan_limit_reached", "images"),
        (403, "plan_limit_reached", "image_bytes"),
    ]


async def test_images_of_others_can_neither_be_read_deleted_nor_used(
    api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    image = await image_of(api, account)
    stranger = await make_account(pool)
    used = {"version": 1, "blocks": [{"id": "a", "type": "image", "image": image, "alt": ""}]}

    assert (await api.get(f"/v1/images/{image}", stranger.token)).status == 404
    assert (await api.delete(f"/v1/images/{image}", stranger.token)).status == 404
    assert (await api.get("/v1/images", stranger.token)).json["data"] == []
    answer = await api.post("/v1/templates/preview", stranger.token, {"blocks": used})
    assert refuses(answer, "blocks.blocks[0].image")


async def test_an_image_in_use_is_not_deleted(api: Api, account: TestAccount) -> None:
    lamp, logo = await image_of(api, account), await image_of(api, account, "#00ff00")
    inner = {"id": "i", "type": "image", "image": lamp, "alt": ""}
    columns = {"id": "c", "type": "columns", "columns": [{"blocks": [inner]}, {"blocks": []}]}
    blocks = {"version": 1, "theme": {"logo": logo}, "blocks": [columns]}
    made = await api.post("/v1/templates", account.token, {"id": "news", "blocks": blocks})
    assert made.status == 201, made

    for image in (lamp, logo):
        answer = await api.delete(f"/v1/images/{image}", account.token)
        assert (answer.status, answer.error["type"], answer.error["id"]) == (409, "conflict", image)
        assert "template 'news'" in answer.error["message"]
    await api.patch("/v1/templates/news", account.token, {"html": "<p>By hand</p>"})
    for image in (lamp, logo):
        assert (await api.delete(f"/v1/images/{image}", account.token)).status == 204


async def test_uploads_and_deletions_are_logged(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    image = await image_of(api, account)
    await image_of(api, account)
    await api.delete(f"/v1/images/{image}", account.token)

    told = [(kind, detail["id"], detail["filename"]) for kind, detail in await logged(pool, account.id, "image.")]
    assert told == [("image.created", image, "lamp.png"), ("image.deleted", image, "lamp.png")]
