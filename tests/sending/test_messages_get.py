"""`GET /v1/messages/{id}` with its waybill, and the download of attachments."""

import base64
import re
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import asyncpg
import msgspec
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import Origin
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api
from tests.harness.emails import sent_id
from tests.harness.sending import accept, process
from tests.harness.settling import settle

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
UNKNOWN = "01m7xmsqwgebmv6bc4n8ss49bj"
PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256))


def file(filename: str, content: bytes, content_type: str = "application/octet-stream", **more: str) -> dict[str, str]:
    encoded = base64.b64encode(content).decode()
    return {"filename": filename, "contentType": content_type, "content": encoded, **more}


async def read(api: Api, account: TestAccount, message: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/messages/{message}", account.token)
    assert answer.status == 200, answer
    assert (await api.get(f"/v1/emails/{message}", account.token)).json == answer.json
    found: dict[str, Any] = answer.json
    return found


async def download(api: Api, account: TestAccount, message: str, place: int = 0) -> Answer:
    attachment = (await read(api, account, message))["attachments"][place]["id"]
    answer = await api.get(f"/v1/messages/{message}/attachments/{attachment}", account.token)
    assert answer.status == 200, answer
    return answer


async def test_a_message_that_was_sent_again_names_the_one_that_it_repeats(
    api: Api, account: TestAccount, settings: Settings
) -> None:
    first = await sent_id(api, account)
    request = msgspec.convert(account.email(), SendRequest)
    origin = Origin(account.id, "api", resent_from=ids.parse_id(ids.Kind.MESSAGE, first))
    async with process(settings) as one:
        again = (await accept(one.acceptor, request, origin)).id

    assert (await read(api, account, first))["resentFrom"] is None
    assert (await read(api, account, again))["resentFrom"] == first
    rows = (await api.get("/v1/messages", account.token)).json["data"]
    assert [(row["id"], row["resentFrom"]) for row in rows] == [(again, first), (first, None)]


async def test_a_message_is_its_list_row_with_bodies_and_waybill(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, text="Grüße,\nAnn\n", html="<p>Grüße</p>")
    found = await read(api, account, message)
    (row,) = (await api.get("/v1/messages", account.token)).json["data"]

    assert found.pop("text") == "Grüße,\nAnn\n"
    assert found.pop("html") == "<p>Grüße</p>"
    waybill = found.pop("waybill")
    assert found.pop("deliverBy") is None
    assert [one["domain"] for one in found.pop("forecast")["receivers"]] == ["people.test"]
    assert found.pop("waits") == []
    assert found.pop("contentErased") is False
    assert found == row
    assert [event["type"] for event in waybill] == ["accepted"]


async def test_a_body_that_was_not_sent_is_null(api: Api, account: TestAccount) -> None:
    plain = await read(api, account, await sent_id(api, account, text="only text"))
    marked = await read(api, account, await sent_id(api, account, text=None, html="<p>only html</p>"))

    assert (plain["text"].strip(), plain["html"]) == ("only text", None)
    assert (marked["text"], marked["html"].strip()) == (None, "<p>only html</p>")


async def test_the_waybill_tells_the_way_in_the_order_of_seq(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    other = await sent_id(api, account)
    message = await sent_id(api, account, to="ann@people.test")
    later = ("ann@people.test", 451, "4.7.1 greylisted")
    await settle(pool, message, later, again_after=timedelta(minutes=1))
    await settle(pool, other)
    await settle(pool, message)
    waybill = (await read(api, account, message))["waybill"]

    assert [event["type"] for event in waybill] == ["accepted", "attempted", "deferred", "attempted", "delivered"]
    assert [event["seq"] for event in waybill] == sorted(event["seq"] for event in waybill)
    assert all(event["id"].startswith("evt_") and TIME.fullmatch(event["createdAt"]) for event in waybill)
    assert all(set(event) == {"id", "seq", "type", "createdAt", "detail"} for event in waybill)
    assert waybill[0]["detail"] == {
        "to_domain": "people.test", "from_domain": account.domain, "stream": "transactional", "source": "api",
    }  # fmt: skip
    assert waybill[1]["detail"]["mx"] == "mx.people.test"
    assert waybill[2]["detail"]["smtp_code"] == 451
    assert "next_attempt_at" in waybill[2]["detail"]


async def test_the_accepted_event_lists_attachments_only_where_there_are_some(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, attachments=[file("a.txt", b"hi", "text/plain")])
    (accepted,) = (await read(api, account, message))["waybill"]

    (attachment,) = accepted["detail"]["attachments"]
    assert set(attachment) == {"filename", "content_type", "size_bytes", "sha256"}


async def test_a_large_message_reads_back_whole(api: Api, account: TestAccount) -> None:
    text = "".join(f"line {number} – ünïcode and a long tail of words\n" for number in range(60_000))
    found = await read(api, account, await sent_id(api, account, text=text, html="<p>x</p>" * 1000))

    assert found["sizeBytes"] > 2_000_000
    assert found["text"] == text
    assert found["html"] == "<p>x</p>" * 1000


async def test_an_attachment_is_always_a_download(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, attachments=[file("logo.png", PNG, "image/png")])
    answer = await download(api, account, message)

    assert answer.body == PNG
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-length"] == str(len(PNG))
    assert answer.headers["content-disposition"] == 'attachment; filename="logo.png"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize(
    "content", [b"", b"\r\n.\r\n", b"\n\n", bytes(range(256)) * 3, b"--=_boundary--\r\n", b"x" * 300_000]
)
async def test_an_attachment_comes_back_octet_for_octet(api: Api, account: TestAccount, content: bytes) -> None:
    message = await sent_id(
        api, account, attachments=[file("first.txt", b"first", "text/plain"), file("a.bin", content)]
    )

    assert (await download(api, account, message, 1)).body == content
    assert (await download(api, account, message, 0)).body == b"first"


async def test_each_attachment_id_gives_its_own_file_wherever_the_composed_message_put_it(
    api: Api, account: TestAccount
) -> None:
    files = [
        file("a.pdf", b"pdf", "application/pdf"),
        file("logo.png", PNG, "image/png", disposition="inline", cid="logo"),
        file("b.pdf", b"another", "application/pdf"),
        file("same.pdf", b"pdf", "application/pdf"),
        file("photo.jpg", b"jpeg", "image/jpeg", disposition="inline", cid="photo@x"),
    ]
    message = await sent_id(api, account, html='<img src="cid:logo">', attachments=files)
    shown = (await read(api, account, message))["attachments"]

    assert [one["filename"] for one in shown] == [one["filename"] for one in files]
    for place, sent in enumerate(files):
        answer = await download(api, account, message, place)
        assert answer.body == base64.b64decode(sent["content"])
        assert f'filename="{sent["filename"]}"' in answer.headers["content-disposition"]


@pytest.mark.parametrize("content_type", [
    "text/html", "TEXT/HTML; charset=utf-8", "image/svg+xml", "application/xhtml+xml", "text/xml", "text/javascript",
    "application/javascript", "application/x-shockwave-flash", "application/mathml+xml", "model/x3d+xml",
])  # fmt: skip
async def test_what_a_browser_could_run_goes_out_as_plain_octets(
    api: Api, account: TestAccount, content_type: str
) -> None:
    page = b"<html><script>alert(1)</script></html>"
    message = await sent_id(api, account, attachments=[file("page.dat", page, content_type)])
    answer = await download(api, account, message)

    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.body == page


@pytest.mark.parametrize(
    ("filename", "saved"),
    [
        ("plain name.pdf", "plain name.pdf"),
        ("Größe – €.pdf", "Größe – €.pdf"),
        ("日本語.txt", "日本語.txt"),
        ("😀.png", "😀.png"),
        ('q"uo"te.txt', 'q"uo"te.txt'),
        ("semi;colon=x.txt", "semi;colon=x.txt"),
        ("100%25.txt", "100%25.txt"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("C:\\Windows\\x.txt", "C:_Windows_x.txt"),
        ("tab\there.txt", "tab_here.txt"),
        ("invoice\u202efdp.txt", "invoice_fdp.txt"),
        ("zero\u200bwidth.txt", "zero_width.txt"),
        ("...", "attachment"),
        (" ", "attachment"),
        ("x" * 255, "x" * 255),
        ("€" * 255, "€" * 255),
    ],
)
async def test_any_file_name_survives_the_header(api: Api, account: TestAccount, filename: str, saved: str) -> None:
    message = await sent_id(api, account, attachments=[file(filename, b"content", "text/plain")])
    answer = await download(api, account, message)

    assert (await read(api, account, message))["attachments"][0]["filename"] == filename
    assert saved_name(answer.headers["content-disposition"]) == saved


async def test_an_unknown_attachment_is_not_found(api: Api, account: TestAccount) -> None:
    message = await sent_id(api, account, attachments=[file("a.bin", b"x")])
    other = await sent_id(api, account, attachments=[file("b.bin", b"y")])
    foreign = (await read(api, account, other))["attachments"][0]["id"]

    for name in (f"att_{UNKNOWN}", foreign, f"msg_{UNKNOWN}", "0", "att_", "..%2f..", "%00"):
        answer = await api.get(f"/v1/messages/{message}/attachments/{name}", account.token)
        assert (answer.status, answer.error["type"]) == (404, "not_found"), name


async def test_events_of_a_host_whose_clock_lags_are_on_the_waybill(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await sent_id(api, account)
    number = ids.parse_id(ids.Kind.MESSAGE, message)
    early = next(ids.uuid7s(1, ids.milliseconds_of(number) - 3_600_000))
    await pool.execute("UPDATE events SET id = $2 WHERE message_id = $1", number, early)

    assert len((await read(api, account, message))["waybill"]) == 1
    assert clock.parse_iso((await read(api, account, message))["createdAt"]) <= clock.now()


def saved_name(header: str) -> str:
    """The name under which a browser saves (RFC 6266 4.3: the extended parameter wins)."""
    extended = re.search(r"filename\*=UTF-8''([^;]*)", header)
    if extended is not None:
        return unquote(extended[1], errors="strict")
    plain = re.fullmatch(r'attachment; filename="([^"]*)"', header)
    assert plain is not None
    return plain[1]
